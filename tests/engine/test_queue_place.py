"""What a waiting run is told about its place: from the index, without a search."""

from __future__ import annotations

import pytest

from tenure.api.policy import Policy
from tenure.api.run import QueuePlace
from tenure.engine import render, words
from tenure.engine.state import RunRow
from tenure.engine.words import Words
from tenure.testing import Fleet, at, budget, elastic, envelope, node, nodes, run
from tenure.units import format_time


def place(fleet: Fleet, name: str) -> QueuePlace | None:
    return fleet.run(f"lab/{name}").status.queue


@pytest.fixture
def full() -> Fleet:
    """One node of which org:a holds everything; four of org:a and one of org:b wait, and there are four places."""
    fleet = Fleet(*nodes("n", 1), budget("a"), budget("b"), policy=Policy(promise_depth=4))
    fleet.start(run("first", 8, owner="org:a", lasts="1h"))
    for number in range(1, 6):
        fleet.later("1m")
        fleet.apply(run(f"a{number}", 8, owner="org:a", lasts="1h"))
    fleet.later("1m")
    fleet.apply(run("b1", 8, owner="org:b", lasts="1h"))
    return fleet


def test_who_has_no_promise_has_a_place_by_age(full: Fleet) -> None:
    """The example of QUEUE.md, "Places": four promises stand, two of org:a wait without one."""
    promised = set(full.state.promises[full.state.runs["lab/a1"].demand.flavor])
    assert promised == {"lab/a1", "lab/a2", "lab/a3", "lab/b1"}
    assert [place(full, name) for name in ("first", "a1", "b1")] == [None] * 3
    first, second = place(full, "a4"), place(full, "a5")
    assert first is not None
    assert second is not None
    assert (first.position, first.ahead, first.waits_for) == (1, 4, "machines")
    assert (second.position, second.ahead, second.waits_for) == (2, 5, "machines")
    assert first.reason == "It starts when 8 H100-80GB GPUs come free that nobody before it needs."
    full.succeed("lab/first")
    assert place(full, "a4") is not None, "three of four places are taken, and org:a holds one"


def test_a_promise_shows_its_bound() -> None:
    fleet = Fleet(*nodes("n", 1), budget("a"), policy=Policy(promise_slack="50%"))
    fleet.start(run("first", 8, owner="org:a", lasts="2h"))
    fleet.apply(run("next", 8, owner="org:a", lasts="1h"))
    one = render.reservation(fleet.state, fleet.state.reservations["lab/next"], now=fleet.now)
    assert (one.status.planned_start, one.status.promised_by) == (format_time(at("2h")), format_time(at("3h")))


def test_who_waits_for_money_is_told_so() -> None:
    """There are machines enough, and nobody to pay: the oldest says it for its owner."""
    fleet = Fleet(*nodes("n", 4), budget("a", envelope("main", 8)), budget("b"))
    fleet.start(run("mine", 8, owner="org:a"))
    for name in ("poor", "poorer"):
        fleet.later("1m")
        fleet.apply(run(name, 4, owner="org:a"))
    found = [place(fleet, name) for name in ("poor", "poorer")]
    assert [(one.position, one.ahead, one.waits_for) for one in found if one] == [(1, 0, "money"), (2, 1, "money")]
    assert all(one and "a/main allows 8 GPUs at once" in one.reason for one in found)


def test_money_for_another_place_is_no_money() -> None:
    """What could be spent elsewhere does not pay here."""
    west, east = (envelope(name, 8, selector={"region": name}) for name in ("us-west", "us-east"))
    fleet = Fleet(*nodes("n", 2), *nodes("e", 1, region="us-east", cluster="gpu-b"), budget("a", west, east))
    fleet.start(run("mine", 8, owner="org:a", where={"region": "us-west"}, lasts="1h"))
    told, life = Words(fleet.state, now=fleet.now), fleet.state.runs["lab/mine"].life
    for where, paid in (("us-west", False), ("us-east", True)):
        asked = RunRow(run("x", 8, owner="org:a", where={"region": where}), life)
        assert told.is_paid(asked.demand) == paid


def test_one_purse_serves_many_demands(monkeypatch: pytest.MonkeyPatch) -> None:
    """A hundred demands that differ in width and duration ask the books a few times, and get what each alone gets."""
    fleet = Fleet(*nodes("n", 1), budget("a", envelope("main", 64, hours=100)))
    fleet.start(run("mine", 8, owner="org:a", lasts="1h"))
    life = fleet.state.runs["lab/mine"].life
    demands = [
        RunRow(run("x", 1 + number * 37 % 64, owner="org:a", lasts=f"{1 + number * 61 % 300}m"), life).demand
        for number in range(100)
    ]
    alone = [Words(fleet.state, now=fleet.now).is_paid(demand) for demand in demands]
    assert {True, False} == set(alone)
    asked: list[int] = []
    walk = words.walk
    monkeypatch.setattr(words, "walk", lambda *given, **named: asked.append(1) or walk(*given, **named))
    together = Words(fleet.state, now=fleet.now)
    assert [together.is_paid(demand) for demand in demands] == alone
    assert len(asked) <= 40


def test_who_can_never_start_has_no_place() -> None:
    fleet = Fleet(*nodes("n", 1), budget("a"))
    fleet.apply(run("giant", 16, owner="org:a"))
    assert fleet.condition("lab/giant", "Blocked")[0] == "True"
    assert place(fleet, "giant") is None


def test_a_list_makes_no_plan(full: Fleet, monkeypatch: pytest.MonkeyPatch) -> None:
    """Whoever shows a run looks up its place; a search is made for who asks about one."""

    def refuse(*given: object, **named: object) -> None:
        raise AssertionError("somebody planned for a list")

    monkeypatch.setattr(words, "make_plan", refuse)
    for key in full.state.runs:
        full.run(key)
    with pytest.raises(AssertionError, match="for a list"):
        Words(full.state, now=full.now).told_freshly(full.state.runs["lab/a4"])


def test_an_owner_whose_money_is_asked_for_takes_no_place_beside_all_others() -> None:
    """org:b may spend what org:a has, and is promised a start of it; org:a's oldest is asked first, and is no fifth."""
    elsewhere = budget("b", envelope("else", 1, flavor="A100"), parents=("org:a",))
    fleet = Fleet(*nodes("n", 1), budget("a"), elsewhere, policy=Policy(promise_depth=4))
    fleet.start(run("first", 8, owner="org:a", lasts="1h"))
    fleet.apply(*(run(f"a{number}", 8, owner="org:a", lasts="1h") for number in range(5)))
    assert len(fleet.state.reservations) == 3
    fleet.apply(run("b1", 8, owner="org:b", lasts="1h"))
    assert sorted(fleet.state.reservations) == ["lab/a0", "lab/a1", "lab/a2", "lab/b1"]


def test_what_a_run_that_was_let_past_others_takes_later_declares_no_end_either() -> None:
    """It has an end, that of what it was let past; its leases say what the run said."""
    fleet = Fleet(node("n0", rack="r0"), node("n1", rack="r1"), budget("a"), budget("w", envelope(start="48h")))
    fleet.start(run("busy", 8, owner="org:a", where={"rack": "r0"}, lasts="1h"))
    fleet.apply(run("first", 8, owner="org:w", where={"rack": "r1"}, lasts="1h"))
    fleet.start(run("past", 16, owner="org:a", elastic=elastic(8, 16, 8)))
    assert fleet.state.runs["lab/past"].life.bound == at("48h")
    fleet.succeed("lab/busy")
    fleet.later("5m")
    assert len(fleet.leases("lab/past")) == 2
    assert {lease.until for lease in fleet.leases("lab/past")} == {None}
    fleet.audit()
