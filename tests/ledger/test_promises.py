"""Reservations, resolutions and cuts in the query tables: what was promised, what came of it, and what it cost."""

from __future__ import annotations

import sqlite3
from pathlib import Path

import pytest
from msgspec.structs import replace

from tenure.facts import Cut, Fact, Published, PutRun, Resolved
from tenure.ledger import Ledger, derive, schema
from tenure.testing import run
from tenure.units import MINUTE, SECOND
from tests.ledger.support import opened
from tests.promises import NAME, draw_for, froze, moved, put, released, reservation, resolved


def record(ledger: Ledger, *entries: tuple[int, list[Fact]]) -> None:
    with ledger.write() as tx:
        for at, facts in entries:
            tx.append(at=at, cause="test", facts=facts)


# --- reservations -------------------------------------------------------------------------------------------------


def test_a_reservation_is_kept_with_its_last_record(ledger: Ledger) -> None:
    first = reservation()
    last = moved(first, 20 * MINUTE)
    record(ledger, (1, [put(first)]), (2, [put(last)]))
    [row] = ledger.reservations()
    assert (row.reservation, row.seq, row.changed, row.ended) == (last, 1, 2, None)


def test_what_is_over_stays_for_audit_and_is_not_live(ledger: Ledger) -> None:
    kept = released(reservation(), 10 * MINUTE)
    gone = reservation(name="b-r1", run="b", state="Canceled")
    waits = reservation(name="c-r1", run="c")
    record(ledger, (1, [put(kept), put(gone)]), (2, [put(waits)]))
    assert [row.reservation for row in ledger.reservations()] == [gone, kept, waits]
    assert [row.reservation for row in ledger.reservations(live=True)] == [waits]
    assert [row.ended for row in ledger.reservations(name=NAME)] == [1]


def test_reservations_are_found_by_run_by_namespace_and_by_name(ledger: Ledger) -> None:
    mine, other = reservation(), reservation(name="eval-r1", run="eval")
    elsewhere = reservation(namespace="mm", name="x-r1", run="x")
    record(ledger, (1, [put(mine), put(other), put(elsewhere)]))
    found = [
        [row.reservation.name for row in ledger.reservations(**which)]  # type: ignore[arg-type]  # names of columns
        for which in ({"namespace": "rai"}, {"namespace": "rai", "run": "eval"}, {"name": "x-r1"}, {"namespace": "no"})
    ]
    assert found == [["eval-r1", NAME], ["eval-r1"], ["x-r1"], []]


def test_a_name_that_came_back_is_another_reservation(ledger: Ledger) -> None:
    old, new = reservation(state="Canceled"), reservation(uid="uid-of-the-second")
    frozen, result = draw_for(new)
    record(ledger, (1, [put(old)]), (2, [put(new)]), (3, [froze(frozen)]), (4, [resolved(frozen, result)]))
    assert [row.reservation for row in ledger.reservations()] == [old, new]
    assert {row.uid for row in ledger.resolutions(f"Reservation/{new.key}")} == {new.uid}


def test_only_a_change_of_the_plan_is_a_row_of_its_history(ledger: Ledger) -> None:
    first = reservation()
    later = moved(first, 20 * MINUTE, reason="MovedLater", message="A node failed.")
    blocked = moved(later, None, state="Blocked", confidence="")
    record(ledger, (1, [put(first)]), (2, [put(first)]), (3, [put(later)]), (4, [put(blocked)]))
    told = [(row.seq, row.state, row.start, row.message) for row in ledger.plans("rai", "train")]
    assert told == [
        (1, "Pending", 10 * MINUTE, "There is no room."),
        (3, "Pending", 20 * MINUTE, "A node failed."),
        (4, "Blocked", None, "A node failed."),
    ]
    assert ledger.plans("rai", "eval") == []


def test_the_owner_of_a_reservation_is_the_owner_of_its_run(ledger: Ledger) -> None:
    asked = run("train", 16, namespace="rai", owner="org:ai:rai")
    record(ledger, (1, [PutRun(object=asked), put(reservation())]))
    with ledger.beside(writing=False) as db:
        found = dict(db.execute("SELECT object, owner FROM owners").fetchall())
    assert found == {"Run/rai/train": "org:ai:rai", f"Reservation/rai/{NAME}": "org:ai:rai"}


# --- runs ---------------------------------------------------------------------------------------------------------


def test_every_run_that_had_a_name_is_known_once(ledger: Ledger) -> None:
    def asked(uid: str, gpus: int) -> PutRun:
        item = run("train", gpus, namespace="rai", owner="org:ai:rai")
        return PutRun(object=replace(item, metadata=replace(item.metadata, uid=uid)))

    record(ledger, (1, [asked("u-1", 8)]), (2, [asked("u-1", 16)]), (3, [asked("u-2", 24)]))
    assert [(one.uid, one.gpus, one.at, one.seq) for one in ledger.submissions("rai", "train")] == [
        ("u-1", 8, 1, 1),
        ("u-2", 24, 3, 3),
    ]


# --- resolutions --------------------------------------------------------------------------------------------------


def test_what_was_frozen_and_what_was_resolved_are_kept_in_order(ledger: Ledger) -> None:
    one = reservation()
    frozen, result = draw_for(one)
    done = resolved(frozen, result, count=2)
    record(ledger, (1, [put(one)]), (2, [froze(frozen)]), (3, [done]))
    rows = ledger.resolutions(f"Reservation/{one.key}")
    assert [(row.seq, row.activation, row.uid, row.fact) for row in rows] == [
        (2, 1, one.uid, froze(frozen)),
        (3, 1, one.uid, done),
    ]


def test_cuts_are_found_by_the_run_that_gave_way(ledger: Ledger) -> None:
    one = reservation()
    frozen, result = draw_for(one)
    done = resolved(frozen, result, count=2)
    record(ledger, (1, [put(one)]), (2, [froze(frozen)]), (3, [done]))
    for cut in done.cuts:
        [row] = ledger.cuts(*cut.run.split("/"))
        assert (row.cut, row.subject, row.activation, row.seq) == (cut, f"Reservation/{one.key}", 1, 3)
    assert ledger.cuts("ns", result.order[3].split("/")[1]) == []


def test_a_budgets_resolutions_are_found_with_or_without_the_envelope(ledger: Ledger) -> None:
    def shortage(subject: str, activation: int) -> Resolved:
        cut = Cut(kind="DropSpare", run="rai/train", owner="org:ai:rai", gpus=2)
        return Resolved(trigger="Shortage", subject=subject, activation=activation, cuts=(cut,))

    facts: list[Fact] = [
        shortage("Budget/rai/east", 1),
        shortage("Budget/rai/west", 1),
        shortage("Budget/rai2/west", 1),
    ]
    record(ledger, (1, facts), (2, [shortage("Budget/rai/west", 2)]))
    assert [(row.subject, row.activation) for row in ledger.resolutions("Budget/rai")] == [
        ("Budget/rai/east", 1),
        ("Budget/rai/west", 1),
        ("Budget/rai/west", 2),
    ]
    assert [row.activation for row in ledger.resolutions("Budget/rai/west")] == [1, 2]
    assert len(ledger.resolutions()) == 4


def test_what_custodians_published_is_known_as_of_any_entry(ledger: Ledger) -> None:
    record(
        ledger,
        (1, [Published(beacon="operator", root="a" * 64)]),
        (2, [Published(beacon="auditor", root="b" * 64)]),
        (3, [Published(beacon="operator", root="c" * 64)]),
    )
    assert [ledger.beacons(seq) for seq in (0, 1, 2, 3)] == [
        {},
        {"operator": "a" * 64},
        {"operator": "a" * 64, "auditor": "b" * 64},
        {"operator": "c" * 64, "auditor": "b" * 64},
    ]


# --- promised against real ----------------------------------------------------------------------------------------


def started(ledger: Ledger, name: str, *, at: int, promised: int | None, uid: str = "u-1") -> None:
    """A run that waited, was promised a start, and started."""
    one = reservation(at, promised, run=name, name=f"{name}-r1", run_uid=uid)
    record(
        ledger,
        (at, [put(one)]),
        (at + 2, [opened(f"{name}-l0", run=name, uid=uid, start=at + 2), put(released(one, at + 2))]),
    )


def test_a_promise_is_held_against_the_first_lease_after_it(ledger: Ledger) -> None:
    record(ledger, (1, [opened("old", start=1)]))
    one = reservation(2, 10)
    record(ledger, (2, [put(one)]), (3, [put(moved(one, 12))]))
    record(ledger, (15, [put(released(moved(one, 12), 15)), opened("l1", start=15)]), (16, [opened("l2", start=16)]))
    [row] = ledger.promises(since=0, until=100)
    assert (row.namespace, row.run, row.name, row.confidence) == ("rai", "train", NAME, "projected")
    assert (row.promised, row.planned, row.started) == (10, 12, 15)


def test_only_what_was_kept_in_the_period_counts(ledger: Ledger) -> None:
    for number, name in enumerate("abc"):
        started(ledger, name, at=100 * number + 1, promised=100 * number + 2)
    record(ledger, (400, [put(reservation(400, 500, run="d", name="d-r1", state="Canceled"))]))
    record(ledger, (401, [opened("d-l0", run="d", start=401), put(reservation(401, 500, run="e", name="e-r1"))]))
    assert [row.run for row in ledger.promises(since=0, until=1000)] == ["a", "b", "c"]
    assert [row.run for row in ledger.promises(since=103, until=203)] == ["b"]


def test_a_promise_without_a_start_counts_only_by_its_last_plan(ledger: Ledger) -> None:
    one = reservation(1, None, state="Blocked")
    planned = moved(reservation(1, 50), 50, promise=one.promise)
    record(ledger, (1, [put(one)]), (2, [put(planned)]), (60, [put(released(planned, 60)), opened("l", start=60)]))
    [row] = ledger.promises(since=0, until=100)
    assert (row.promised, row.planned, row.started) == (None, 50, 60)


def test_another_run_of_the_name_keeps_no_promise_of_this_one(ledger: Ledger) -> None:
    record(ledger, (1, [put(released(reservation(run_uid="u-1"), 1))]), (2, [opened("l", uid="u-2", start=2)]))
    assert ledger.promises(since=0, until=100) == []


# --- the tables ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("table", ["runs", "reservations", "plans", "resolutions", "cuts", "beacons"])
def test_a_row_that_somebody_took_away_is_missed(path: Path, table: str) -> None:
    one = reservation()
    frozen, result = draw_for(one)
    asked = run("train", 16, namespace="rai", owner="org:ai:rai")
    facts = [PutRun(object=asked), put(one), froze(frozen), resolved(frozen, result)]
    with Ledger.create(path, fleet="lab") as ledger:
        record(ledger, (1, [Published(beacon="operator", root="a" * 64), *facts]))
        assert ledger.verify().findings == ()
    db = sqlite3.connect(path)
    db.execute(f"DELETE FROM {table}")
    db.commit()
    db.close()
    with Ledger.open(path) as ledger:
        found = {finding.where.split()[0] for finding in ledger.verify().findings}
        assert found == {table}
        ledger.rebuild()
        assert ledger.verify().findings == ()


def test_a_ledger_from_before_reservations_gets_them_from_its_entries(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    one = reservation()
    asked = run("train", 16, namespace="rai", owner="org:ai:rai")
    with monkeypatch.context() as past:
        past.setattr(schema, "STEPS", schema.STEPS[:1])
        past.setattr(derive, "apply", lambda *_: None)  # the tables of then knew nothing of these facts
        with Ledger.create(path, fleet="lab") as ledger:
            record(ledger, (SECOND, [PutRun(object=asked), put(one)]))
    with Ledger.open(path) as ledger:
        assert [row.reservation for row in ledger.reservations()] == [one]
        assert [row.owner for row in ledger.submissions("rai", "train")] == ["org:ai:rai"]
        assert ledger.verify().findings == ()


QUESTIONS = {
    "live": lambda ledger: ledger.reservations(live=True),
    "of a run": lambda ledger: ledger.reservations(namespace="rai", run="train"),
    "plans": lambda ledger: ledger.plans("rai", "train"),
    "resolutions": lambda ledger: ledger.resolutions(f"Reservation/rai/{NAME}"),
    "cuts": lambda ledger: ledger.cuts("ns", "one"),
    "promises": lambda ledger: ledger.promises(since=0, until=100),
}


@pytest.mark.parametrize("question", QUESTIONS)
def test_no_question_looks_at_the_history_of_others(ledger: Ledger, question: str) -> None:
    one = reservation(1, 10)
    frozen, result = draw_for(one)
    record(ledger, (1, [put(one)]), (2, [froze(frozen)]), (3, [resolved(frozen, result)]))
    before = effort(ledger, question)
    for number in range(60):
        other = reservation(200, 300, name=f"x{number}-r1", run=f"x{number}")
        frozen, result = draw_for(other)
        facts = [put(other), froze(frozen), resolved(frozen, result, cuts=())]
        record(ledger, (200 + number, facts), (200 + number, [put(released(other, 300))]))
    assert effort(ledger, question) <= before + 10


def effort(ledger: Ledger, question: str) -> int:
    """How many steps SQLite takes to answer."""
    steps = 0

    def step() -> int:
        nonlocal steps
        steps += 1
        return 0

    with ledger.beside(writing=False) as db:
        db.set_progress_handler(step, 1)
    QUESTIONS[question](ledger)
    with ledger.beside(writing=False) as db:
        db.set_progress_handler(None, 1)
    return steps
