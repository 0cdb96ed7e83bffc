"""Promises of a replay: moved and missed by their bound where they have one, else by the planned start."""

from __future__ import annotations

from typing import Literal

from tenure.facts import Reservation, Slice
from tenure.simulate.replay_promises import Promised, Promises
from tenure.units import HOUR


def reservation(
    start: int | None,
    *,
    uid: str = "r",
    by: int | None = None,
    state: Literal["Pending", "Blocked", "Active", "Released", "Canceled"] = "Pending",
    released: int | None = None,
) -> Reservation:
    plan = Slice(start=None if start is None else start * HOUR)
    return Reservation(
        namespace="a", name=uid, uid=uid, run="x", run_uid="x", made=0, by=None if by is None else by * HOUR,
        state=state, promise=plan, plan=plan, confidence="" if start is None else "projected",
        released=None if released is None else released * HOUR,
    )  # fmt: skip


def told(*records: Reservation) -> Promises:
    promised = Promised()
    for record in records:
        promised.saw(record)
    return promised.result()


def counts(*records: Reservation) -> tuple[int, int, int, int, int]:
    found = told(*records)
    return found.made, found.kept, found.missed, found.moved_later, found.moves_later


def test_without_a_bound_the_planned_start_counts() -> None:
    assert counts(reservation(5), reservation(4), reservation(4, state="Released", released=4)) == (1, 1, 0, 0, 0)
    assert counts(reservation(5), reservation(5, state="Released", released=6)) == (1, 0, 1, 0, 0)


def test_a_reservation_that_moves_later_twice_counts_once_and_its_moves_twice() -> None:
    records = [reservation(start) for start in (5, 6, 4, 7)]
    assert counts(*records, reservation(7, state="Released", released=5)) == (1, 1, 0, 1, 2)


def test_a_start_that_slips_within_the_bound_is_neither_moved_nor_missed() -> None:
    records = [reservation(5, by=8), reservation(7, by=8), reservation(7, by=8, state="Released", released=7)]
    assert counts(*records) == (1, 1, 0, 0, 0)
    assert told(*records).error_hours["all"].max == 2.0, "the forecast error is that of the start"


def test_a_bound_that_moves_back_is_a_move_and_a_start_behind_the_first_one_a_miss() -> None:
    records = [reservation(5, by=8), reservation(5, by=9), reservation(5, by=9, state="Released", released=9)]
    assert counts(*records) == (1, 0, 1, 1, 1)


def test_a_reservation_that_was_blocked_is_judged_by_the_first_start_that_it_named() -> None:
    records = [reservation(None, state="Blocked"), reservation(5), reservation(None, state="Blocked"), reservation(6)]
    assert counts(*records, reservation(6, state="Released", released=6)) == (1, 0, 1, 1, 1)
    assert counts(reservation(None, state="Blocked"), reservation(None, state="Canceled")) == (1, 0, 0, 0, 0)


def test_reservations_are_told_apart() -> None:
    records = [reservation(5, uid="r"), reservation(6, uid="s"), reservation(6, uid="s", state="Canceled")]
    found = told(*records, reservation(5, uid="r", state="Released", released=5))
    assert (found.made, found.kept, found.canceled, found.moved_later) == (2, 1, 1, 0)
