"""What else a waiting run could ask for: each kind in a small world, the earliest first; asking changes nothing."""

from __future__ import annotations

import pytest

from tenure.engine import dump
from tenure.engine.alternatives import Alternative, alternatives
from tenure.engine.waits import Rest, rests_on, verdict_of
from tenure.facts import Reservation
from tenure.testing import Fleet, at, budget, envelope, nodes, run

EAST = {"region": "us-east"}


def asked(fleet: Fleet, key: str) -> list[Alternative]:
    """The alternatives of a run; to ask changes nothing, and leaves nothing to decide."""
    before = dump(fleet.state)
    found = alternatives(fleet.state, fleet.state.runs[key], now=fleet.now)
    assert dump(fleet.state) == before
    fleet.audit()
    return found


def kinds(found: list[Alternative]) -> dict[str, str]:
    return {one.kind: one.text for one in found}


def test_narrower_is_the_widest_half_that_starts_earlier() -> None:
    fleet = Fleet(*nodes("a", 3), budget("a"))
    fleet.start(run("x", 8, owner="org:a", lasts="6h"))
    fleet.apply(run("z", 24, owner="org:a", lasts="2h"))
    [one] = asked(fleet, "lab/z")
    assert (one.kind, one.text, one.at, one.confidence) == ("narrower", "12 GPUs instead of 24", fleet.now, "now")
    assert (one.gpus, one.gpu_hours, one.borrowed) == (12, 24, 0)


def test_groups_stay_whole_in_a_narrower_run() -> None:
    fleet = Fleet(*nodes("a", 3), budget("a"))
    fleet.start(run("x", 8, owner="org:a", lasts="6h"))
    fleet.apply(run("z", 24, owner="org:a", group=8))
    assert kinds(asked(fleet, "lab/z")) == {"narrower": "8 GPUs instead of 24"}


def test_elsewhere_is_told_to_who_asked_for_a_place() -> None:
    money = budget("a", envelope("west"), envelope("east", selector=EAST))
    fleet = Fleet(*nodes("a", 1), *nodes("b", 1, region="us-east", cluster="gpu-b"), money)
    fleet.start(run("x", 8, owner="org:a", lasts="6h", where={"region": "us-west"}))
    fleet.apply(run("z", 8, owner="org:a", where={"region": "us-west"}))
    found = asked(fleet, "lab/z")
    assert kinds(found)["elsewhere"] == "in us-east/gpu-b"
    assert found[0].at == fleet.now


def test_borrowing_names_who_would_lend_and_how_much() -> None:
    lenders = (budget("b", envelope(lends_to=["org:a"])), budget("c", envelope(lends_to=["org:x"])))
    fleet = Fleet(*nodes("a", 3), budget("a", envelope(gpus=12)), *lenders)
    fleet.start(run("x", 8, owner="org:a", lasts="6h"))
    fleet.apply(run("z", 8, owner="org:a", lasts="1h"))
    assert fleet.code("lab/z") == "ConcurrencyCapExceeded"
    found = {one.kind: one for one in asked(fleet, "lab/z")}
    assert (found["borrow"].text, found["borrow"].borrowed, found["borrow"].gpu_hours) == ("with money of org:b", 4, 8)


def test_without_spares_is_told_where_spares_are_in_the_way() -> None:
    fleet = Fleet(*nodes("a", 2), budget("a"))
    fleet.start(run("x", 8, owner="org:a", lasts="6h"))
    fleet.apply(run("z", 8, owner="org:a", group=8, spares=2))
    found = {one.kind: one for one in asked(fleet, "lab/z")}
    assert (found["without-spares"].at, found["without-spares"].gpus) == (fleet.now, 8)


def protected() -> Fleet:
    """lab/big is to start in 6 h, and lab/z could start now if it were over by then."""
    fleet = Fleet(*nodes("a", 2), budget("a"))
    fleet.start(run("x", 8, owner="org:a", lasts="6h"))
    fleet.apply(run("big", 16, owner="org:a", lasts="1h"))
    fleet.later("1m")
    fleet.apply(run("z", 8, owner="org:a", lasts="8h"))
    return fleet


def test_shorter_is_just_what_older_runs_leave() -> None:
    fleet = protected()
    assert fleet.code("lab/z") == "Protected"
    [one] = asked(fleet, "lab/z")
    assert (one.kind, one.at, one.gpu_hours) == ("shorter", fleet.now, 48)
    assert one.text == "within 5h59m, before older runs start"


def test_later_is_told_to_who_counts_on_cuts() -> None:
    fleet = Fleet(*nodes("a", 1), budget("a"), secret="x")
    fleet.start(run("x", 8, owner="org:a", lasts="48h"))
    fleet.apply(run("z", 8, owner="org:a"))
    assert fleet.state.reservations["lab/z"].confidence == "conservative"
    [one] = asked(fleet, "lab/z")
    assert (one.kind, one.at, one.confidence) == ("later", at("48h"), "projected")


def test_the_earliest_comes_first_and_of_equals_the_cheapest() -> None:
    money = (budget("a", envelope(gpus=16)), budget("b", envelope(lends_to=["org:a"])))
    fleet = Fleet(*nodes("a", 4), *money)
    fleet.start(run("x", 8, owner="org:a", lasts="1h"), run("y", 8, owner="org:b", lasts="3h"))
    fleet.apply(run("z", 16, owner="org:a", lasts="2h"))
    found = asked(fleet, "lab/z")
    assert [one.kind for one in found] == ["narrower", "borrow"]
    assert [one.at for one in found] == [fleet.now, fleet.now]
    assert [one.gpu_hours for one in found] == [16, 32]


def test_what_can_never_start_may_have_alternatives_too() -> None:
    fleet = Fleet(*nodes("a", 2), budget("a", envelope(gpus=8)))
    fleet.apply(run("z", 16, owner="org:a"))
    assert "lab/z" not in fleet.state.reservations
    assert kinds(asked(fleet, "lab/z")) == {"narrower": "8 GPUs instead of 16"}


# --- what a start rests on ------------------------------------------------------------------------------------------


def rests(fleet: Fleet, key: str) -> tuple[Rest, ...]:
    before = dump(fleet.state)
    one: Reservation = fleet.state.reservations[key]
    found = rests_on(fleet.state, one, now=fleet.now)
    assert dump(fleet.state) == before
    return found


def test_a_start_rests_on_runs_that_end_and_on_what_was_promised_before() -> None:
    fleet = protected()
    assert rests(fleet, "lab/big") == (Rest(kind="run-ends", name="lab/x", at=at("6h"), gpus=8),)
    assert rests(fleet, "lab/z") == (
        Rest(kind="run-ends", name="lab/x", at=at("6h"), gpus=8),
        Rest(kind="reservation-ends", name="lab/big", at=at("7h"), gpus=8),
    )


def test_a_start_rests_on_a_window_that_opens() -> None:
    fleet = Fleet(*nodes("a", 1), budget("a", envelope(start="2h", end="9h")))
    fleet.apply(run("z", 8, owner="org:a", lasts="1h"))
    assert rests(fleet, "lab/z") == (Rest(kind="window-opens", name="a/main", at=at("2h"), gpus=8),)


def test_a_start_may_rest_on_money_that_is_spent_elsewhere() -> None:
    fleet = Fleet(*nodes("a", 2), budget("a", envelope(gpus=8)))
    fleet.start(run("x", 8, owner="org:a", lasts="2h"))
    fleet.apply(run("z", 8, owner="org:a", lasts="1h"))
    [one] = rests(fleet, "lab/z")
    assert (one.kind, one.name, one.at) == ("run-ends", "lab/x", at("2h"))


@pytest.mark.parametrize(("key", "code"), [("lab/z", "Protected"), ("lab/big", "NoCapacity")])
def test_why_not_now_is_asked_behind_those_who_were_promised_before(key: str, code: str) -> None:
    fleet = protected()
    before = dump(fleet.state)
    verdict = verdict_of(fleet.state, fleet.state.runs[key], now=fleet.now)
    assert verdict.headline is not None
    assert verdict.headline.code == code
    assert dump(fleet.state) == before
