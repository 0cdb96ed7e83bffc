"""What people are told fits what happened, and reads as a person would say it."""

from __future__ import annotations

import re

import pytest

from tenure.api.policy import Policy
from tenure.engine.demand import compile_demand
from tenure.engine.reasons import CAUSES, RULES, for_whom, sentence
from tenure.facts import Reason
from tenure.testing import Fleet, at, budget, envelope, node, nodes, run
from tenure.units import parse_duration

FAR = Policy(patience="30d")
COUNTS = {"limit", "used", "asked", "short", "room", "free", "need", "largest", "gpus", "hours", "pods", "nodes",
          "groups", "tokens", "width", "held"}  # fmt: skip


def last(fleet: Fleet, kind: str, run: str) -> str:
    return [note.message for note in fleet.notes(kind) if note.object == f"Run/{run}"][-1]


def why(fleet: Fleet, run: str = "lab/wide") -> str:
    """The last words about a start that moved later."""
    return re.sub(r"^The start moved from \S+Z to \S+Z: ", "", last(fleet, "StartMoved", run))


# --- numbers ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("code", "data", "told"),
    [
        ("ConcurrencyCapExceeded", {"envelope": "a/b", "limit": 1, "used": 1, "asked": 1, "short": 1},
         "a/b allows 1 GPU at once; 1 is in use and 1 was asked: 1 too many."),
        ("NoCapacity", {"where": "west", "free": 1, "need": 1}, "west has 1 free GPU of the 1 that is needed."),
        ("NoCapacity", {"where": "west", "free": 0, "need": 8}, "west has 0 free GPUs of the 8 that are needed."),
        ("LendingCapExceeded", {"envelope": "a/b", "room": 1, "asked": 2, "short": 1},
         "a/b may lend 1 more GPU for this claim; 2 were asked: 1 too many."),
        ("BorrowLimit", {"limit": 1, "held": 1, "asked": 1, "short": 1},
         "The run may borrow 1 GPU and borrows 1; 1 more was needed: 1 too many."),
        ("NoEnvelope", {"asked": 1, "flavor": "H100", "owner": "org:a"},
         "No envelope can pay for 1 H100 GPU of org:a here."),
        ("HandedOver", {"gpus": 1, "envelope": "a/b", "payers": "a/c (1)"},
         "1 GPU that a/b can no longer pay for is paid by a/c (1) from now on."),
        ("IntegralCapExceeded", {"envelope": "a/b", "hours": 1, "room": 1, "period": "2h", "asked": 8, "short": 7},
         "a/b has 1 GPU-hour left, enough for 1 GPU for 2h; 8 were asked: 7 too many."),
    ],
)  # fmt: skip
def test_one_is_not_several(code: str, data: dict[str, int | str], told: str) -> None:
    assert sentence(Reason(code=code, data=data)) == told


@pytest.mark.parametrize("count", [0, 1, 2])
def test_every_sentence_counts_as_people_do(count: int) -> None:
    """Whatever is filled in: no "1 GPUs", no "1 are", no "2 GPU"."""
    wrong = re.compile(
        r"(?<!\S)1 (\w+ )?(GPUs|GPU-hours|groups|pods|nodes|runs|are|were)\b|\b[02] (GPU|pod|node|run)[ .:;]"
    )
    for rule in RULES.values():
        names = re.findall(r"\{(\w+)", rule.template)
        data: dict[str, int | str] = {name: count if name in COUNTS else "x" for name in names}
        told = sentence(Reason(code=rule.code, data=data))
        assert not wrong.search(told), told


@pytest.mark.parametrize("code", [code for code, rule in RULES.items() if "{subject:" in rule.template])
def test_a_budget_that_shrank_is_no_place_to_make_room_for(code: str) -> None:
    data: dict[str, int | str] = {"subject": "Budget/rai/west", "seed": "ab", "gpus": 2, "groups": 1}
    told = sentence(Reason(code=code, data=data))
    assert "because Budget/rai/west can no longer pay for all its runs" in told
    assert "for Budget/" not in told
    assert "for Reservation/x" in sentence(Reason(code=code, data=data | {"subject": "Reservation/x"}))
    assert for_whom("Budget/rai/west/lending").endswith("pay for all that is lent")


# --- why a start moved ----------------------------------------------------------------------------------------------


def three_nodes(**wanted: bool) -> Fleet:
    """One of three nodes comes free in an hour, one in two: `wide` waits for the first of them, and has the third."""
    fleet = Fleet(*nodes("n", 3), budget("a"), policy=FAR)
    fleet.start(run("long", 8, owner="org:a", lasts="2h"))
    fleet.start(run("short", 8, owner="org:a", lasts="1h"))
    fleet.apply(run("wide", 16, owner="org:a", lasts="1h", **wanted))
    return fleet


def test_a_node_that_is_closed_is_named() -> None:
    fleet = three_nodes()
    fleet.apply(node("n2", cordoned=True))
    assert why(fleet) == "node n2 takes no work now."


def test_who_overstays_is_named() -> None:
    fleet = three_nodes(opportunistic=True)
    fleet.later("1h")
    assert last(fleet, "Waiting", "lab/wide").startswith(
        "lab/short was to end at 2025-11-01T01:00:00Z and has a moment"
    )
    assert not fleet.notes("StartMoved"), "half a minute more is no other start"
    fleet.later("1m")
    assert why(fleet) == "lab/short overstays the end it declared."


def test_who_was_started_late_ends_late() -> None:
    fleet = Fleet(*nodes("n", 2), budget("a"), policy=FAR)
    fleet.apply(run("long", 8, owner="org:a", lasts="2h"))
    fleet.apply(run("wide", 16, owner="org:a", lasts="1h"))
    fleet.later("10m")
    fleet.bind("lab/long")
    assert fleet.state.reservations["lab/wide"].confidence == "projected", "nobody is drawn for ten minutes more"
    assert why(fleet) == "lab/long on n0 started later than it was to, and ends at 2025-11-01T02:10:00Z."


def test_who_does_not_leave_is_named() -> None:
    """The place of `short` is held for `next`; who was promised what comes after it starts later once that is so late
    that it would not be over."""
    fleet = Fleet(node("n0"), budget("a"), policy=FAR)
    fleet.start(run("short", 8, owner="org:a", lasts="1h"))
    fleet.apply(run("next", 8, owner="org:a", lasts="1h"))
    fleet.apply(run("after", 8, owner="org:a", lasts="1h"))
    fleet.delete("Run", "lab/short")
    fleet.later("2m")
    assert fleet.state.reservations["lab/next"].state == "Active"
    assert fleet.state.reservations["lab/after"].plan.start == at("2h"), "only the first is planned earlier"
    fleet.until(at("65m"))  # what is held for `next` is looked at whenever it is late twice as long
    assert why(fleet, "lab/after") == "lab/short was told to leave n0 and has not left yet."


def test_who_cannot_give_way_yet_is_named() -> None:
    fleet = Fleet(node("n0"), budget("a"), policy=Policy(patience="0s"), secret="s")
    fleet.apply(run("slow", 8, owner="org:a"))
    fleet.apply(run("next", 8, owner="org:a"))
    fleet.later("20m")
    assert why(fleet, "lab/next") == "lab/slow on n0 is still being started, and cannot give way yet."


@pytest.mark.parametrize("late", ["300ms", "30s"])
def test_a_moment_is_no_other_start(late: str) -> None:
    """What is late by half a minute breaks nothing: the promise stands as it was written, and nobody is told."""
    fleet = Fleet(node("n0"), budget("a"), policy=FAR)
    fleet.apply(run("long", 8, owner="org:a", lasts="2h"))
    fleet.apply(run("next", 8, owner="org:a", lasts="1h"))
    one = fleet.state.reservations["lab/next"]
    fleet.later(late)
    fleet.bind("lab/long")
    assert fleet.state.runs["lab/long"].until == at("2h") + parse_duration(late)
    assert (fleet.state.reservations["lab/next"], one.plan.start) == (one, at("2h"))
    assert not fleet.notes("StartMoved")
    fleet.until(at("1h"))
    fleet.succeed("lab/long")
    assert last(fleet, "Released", "lab/next") == "It started 1h before the start promised first."


def test_every_cause_is_a_sentence_without_its_end() -> None:
    assert all(text and not text.endswith(".") for text in CAUSES.values())


# --- blocked, and released ------------------------------------------------------------------------------------------


def test_who_lacks_money_is_not_told_of_machines() -> None:
    """There are no machines now, and when they come, somebody else was promised the money."""
    fleet = Fleet(node("n0"), budget("a"), budget("b", envelope("main", 8)), policy=FAR)
    fleet.start(run("theirs", 8, owner="org:a", lasts="1h"))
    fleet.apply(run("first", 5, owner="org:b"))
    fleet.apply(run("poor", 4, owner="org:b"))
    one = fleet.state.reservations["lab/poor"]
    assert (fleet.code("lab/poor"), one.state, one.forecast.short) == ("NoCapacity", "Blocked", 1)
    assert one.reason == "NoMoneyInSight"
    assert one.message.startswith("Nobody can pay for 1 GPU of this run, now or at any time that is known: ")


def test_money_for_other_places_is_no_money() -> None:
    """The owner has money for as many GPUs elsewhere: here all of them are lacking."""
    west, east = (envelope(name, 8, selector={"region": name}) for name in ("us-west", "us-east"))
    fleet = Fleet(node("n0"), node("n1", region="us-east"), budget("a", west, east), policy=FAR)
    fleet.start(run("mine", 8, owner="org:a", where={"region": "us-west"}))
    fleet.apply(run("poor", 8, owner="org:a", where={"region": "us-west"}))
    one = fleet.state.reservations["lab/poor"]
    assert (one.state, one.forecast.short) == ("Blocked", 8)
    told = {visit.envelope: sentence(visit.limit) for visit in fleet.verdict("lab/poor").visits if visit.limit}
    assert told == {
        "us-west": "a/us-west allows 8 GPUs at once; 8 are in use and 8 were asked: 8 too many.",
        "us-east": "a/us-east is granted for other places than where this run may go.",
    }


def test_a_start_is_held_against_what_was_promised_also_if_that_came_late() -> None:
    """There was no money in sight at first; then there was, a start was promised, and that was kept."""
    fleet = Fleet(*nodes("n", 2), budget("a", envelope("main", 8)), budget("b"), policy=FAR)
    fleet.start(run("mine", 8, owner="org:a"), run("long", 8, owner="org:b", lasts="2h"))
    fleet.apply(run("poor", 8, owner="org:a", lasts="1h"))
    one = fleet.state.reservations["lab/poor"]
    assert (one.state, one.promise.start, one.forecast.short) == ("Blocked", None, 8)
    fleet.apply(budget("a", envelope("main", 16)))
    assert fleet.notes("Reserved")[-1].object == "Run/lab/poor"
    assert fleet.state.reservations["lab/poor"].plan.start == at("2h")
    fleet.later("1h")
    fleet.succeed("lab/long")
    assert last(fleet, "Released", "lab/poor") == "It started 1h before the start promised last."


def test_who_is_dealt_a_place_when_a_start_is_known_was_promised_that_first() -> None:
    """No start was known at first, so there was no Reservation; the one that is made then has a promise from its making
    on."""
    fleet = Fleet(node("n0"), node("n1", cordoned=True), budget("a"), policy=FAR)
    fleet.start(run("long", 8, owner="org:a", lasts="2h"))
    fleet.apply(run("wide", 16, owner="org:a", lasts="1h"))
    assert "lab/wide" not in fleet.state.reservations
    assert not fleet.notes("ReservationBlocked")
    fleet.later("10m")
    fleet.apply(node("n1"))
    one = fleet.state.reservations["lab/wide"]
    assert (one.dated, one.promise.start, one.plan.start) == (at("10m"), at("2h"), at("2h"))
    assert [note.object for note in fleet.notes("Reserved")] == ["Run/lab/wide"]
    fleet.until(at("1h"))
    fleet.succeed("lab/long")
    assert last(fleet, "Released", "lab/wide") == "It started 1h before the start promised first."


def test_who_was_promised_nothing_started_when_it_could() -> None:
    fleet = Fleet(node("n0"), budget("a"), budget("b", envelope("main", 4)), policy=FAR)
    fleet.start(run("mine", 4, owner="org:b"))
    fleet.apply(run("poor", 4, owner="org:b"))
    fleet.succeed("lab/mine")
    assert last(fleet, "Released", "lab/poor") == "It started as soon as it could: no start was promised."


@pytest.mark.parametrize("group", [None, 4])
@pytest.mark.parametrize("spares", [0, 1])
@pytest.mark.parametrize("gpus", [3, 8, 10])
def test_what_a_demand_needs_is_charged_with_its_spares(gpus: int, spares: int, group: int | None) -> None:
    demand = compile_demand(run("train", gpus, owner="org:a", group=group, spares=spares if group else 0))
    assert demand.need == demand.shape(demand.widths[-1]).gpus
