"""Starts whose time has come: who is waited for, and for how long (SPEC 7, 8; decision 0014)."""

from __future__ import annotations

import msgspec
import pytest

from tenure.api.policy import Policy
from tenure.engine import Publish
from tenure.facts import Resolved
from tenure.shell.custodian import SimulatedCustodian
from tenure.testing import START, Fleet, at, budget, node, nodes, run
from tests.engine.test_reservations import FAR, cuts, promised, start_of


@pytest.mark.parametrize("bound_after", ["10s", "2m"])
def test_who_ends_as_it_said_has_its_moment_however_late_its_pods_were_bound(bound_after: str) -> None:
    """It was drawn by lot in the second of its end: the moment counted from the end that its lease gave, and not from
    when its work has lasted as long as it said."""
    fleet = Fleet(*nodes("n", 1), budget("a"), budget("b"), secret="x")
    fleet.apply(run("old", 8, owner="org:a", lasts="1h"))
    fleet.later(bound_after)
    fleet.bind("lab/old")
    fleet.apply(run("next", 8, owner="org:b", lasts="1h"))
    fleet.until(promised(fleet, "lab/next").plan.start or START)  # the clock comes before the report that it is over
    assert promised(fleet, "lab/next").reason == "EndsLate"
    fleet.succeed("lab/old")
    assert (fleet.phase("lab/old"), cuts(fleet)) == ("Completed", [])
    assert fleet.leases("lab/next")


def test_who_waits_for_a_late_end_keeps_nobody_else_from_starting() -> None:
    """y waited the half minute of x, though its own machine was free."""
    fleet = Fleet(node("a0", 8), node("b0", 8, domain="B"), budget("a"), budget("b"))
    in_a, in_b = {"fabric.domain": "A"}, {"fabric.domain": "B"}
    fleet.start(run("p", 8, owner="org:a", lasts="1h", where=in_a), run("q", 8, owner="org:a", lasts="1h", where=in_b))
    fleet.later("1m")
    fleet.apply(run("x", 8, owner="org:b", lasts="1h", where=in_a))
    fleet.apply(run("y", 8, owner="org:b", lasts="1h", where=in_b))
    fleet.until(at("1h"))
    assert [promised(fleet, key).reason for key in ("lab/x", "lab/y")] == ["EndsLate"] * 2
    fleet.later("3s")
    fleet.succeed("lab/q")
    assert fleet.where("lab/y") == {"b0": 8}
    assert promised(fleet, "lab/x").reason == "EndsLate"


def test_a_chain_that_is_begun_anew_wakes_the_start_whose_draw_is_void() -> None:
    """It stayed Active, and held its slice against everybody, until something else happened in its flavor."""
    first, second = SimulatedCustodian("one"), SimulatedCustodian("two")
    fleet = Fleet(node("a0", 8), budget("a"), budget("b"))
    fleet.handle(Publish(first.beacon, first.root))
    fleet.start(run("old", 8, owner="org:a"))
    fleet.later("1h")
    fleet.apply(run("x", 8, owner="org:b", lasts="1h"))
    fleet.later("16m")
    assert (promised(fleet, "lab/x").state, len(fleet.state.draws)) == ("Active", 1)
    before = promised(fleet, "lab/x")
    fleet.handle(Publish(first.beacon, second.root))
    fleet.later("1m")
    one = promised(fleet, "lab/x")
    assert (one.state, one.activation) == ("Active", before.activation + 1), "it is drawn on the new chain"
    [froze] = fleet.state.draws.values()
    assert [beacon.previous for beacon in froze.intent.beacons] == [second.root]
    assert start_of(fleet, "lab/x") == "75m", "a custodian is not the world: its promise was not moved"
    assert not fleet.notes("StartMoved")
    assert fleet.custodian is None
    fleet.reveal(second)
    fleet.leave("lab/old")
    assert fleet.where("lab/x") == {"a0": 8}


def test_a_pod_that_hangs_elsewhere_in_the_domain_is_not_waited_for() -> None:
    """Room was made on a machine that is cordoned then. As long as any pod of the domain was leaving, whoever's, the
    start was not planned anew."""
    fleet = Fleet(node("a0", 8), node("a1", 1), node("a2", 8), budget("a"), budget("b"), secret="q")
    fleet.start(*(run(name, gpus, owner="org:a") for name, gpus in (("old", 8), ("w", 8), ("z", 1))))
    fleet.later("1h")
    fleet.apply(run("x", 8, owner="org:b", lasts="1h"))
    fleet.later("16m")
    cut = [one.run for fact in fleet.facts if isinstance(fact, Resolved) for one in fact.cuts]
    assert (promised(fleet, "lab/x").state, len(cut)) == ("Active", 1)
    fleet.apply(node(promised(fleet, "lab/x").plan.shares[0].node, 8, cordoned=True))
    fleet.delete("Run", "lab/z")  # its pod never goes
    fleet.leave(cut[0])
    assert promised(fleet, "lab/x").state == "Pending"


@pytest.mark.parametrize("together", [False, True], ids=["alone", "with all who wait"])
def test_who_was_cut_before_holds_no_equal_demand_back(together: bool) -> None:
    """Others count on backfill that overstays to go, who was cut does not: where it was looked at just before, an equal
    demand was promised its start ten hours later."""
    fleet = Fleet(*nodes("a", 3), *(budget(name) for name in "abcd"), policy=Policy(patience="1000h"), secret="q")
    fleet.start(run("again", 8, owner="org:d", lasts="2h", on_preemption="Requeue", where={"fabric.domain": "A"}))
    fleet.start(run("long", 8, owner="org:a", lasts="10h"))
    fleet.apply(run("wide", 16, owner="org:b", lasts="1h"))
    fleet.start(run("late", 8, owner="org:c", lasts="1h"))
    fleet.later("20m")
    granted = fleet.state.budgets["d"]
    few = msgspec.structs.replace(granted.spec.envelopes[0], concurrency=1)
    fleet.apply(msgspec.structs.replace(granted, spec=msgspec.structs.replace(granted.spec, envelopes=(few,))))
    fleet.later("16m")
    where = fleet.leases("lab/again")[0].node
    fleet.leave("lab/again")
    fleet.apply(node(where, 8, cordoned=True))
    fleet.apply(granted)
    fleet.later("26m")
    assert (fleet.state.runs["lab/again"].life.cut, start_of(fleet, "lab/again")) == (True, "660m")
    alike = run("alike", 8, owner="org:d", lasts="2h", where={"fabric.domain": "A"})
    fleet.apply(alike, *([node("zz", 1, cordoned=True)] if together else []))
    assert start_of(fleet, "lab/alike") == "77m"


def test_who_ends_just_now_has_its_moment_also_beside_backfill_that_overstays() -> None:
    """Backfill apart, all who were in the way were to end that second: it was drawn by lot, as ``L`` was there too."""
    fleet = Fleet(node("n0"), budget("a"), budget("b"), policy=FAR, secret="s")
    fleet.start(run("A", 4, owner="org:a", lasts="1h"))
    fleet.apply(run("p", 8, owner="org:b", lasts="1h"))
    fleet.start(run("L", 4, owner="org:a", lasts="30m"))
    fleet.until(at("1h"))  # the clock comes before the report that it is over
    assert not [kind for kind, _, _ in cuts(fleet) if kind == "Lottery"]
    fleet.succeed("lab/A")
    fleet.later("1m")
    assert [(kind, key) for kind, key, _ in cuts(fleet)] == [("Overstay", "lab/L")]
    fleet.leave("lab/L")
    assert fleet.where("lab/p") == {"n0": 8}
    assert not fleet.notes("StartMoved")


def test_what_was_promised_on_a_node_for_later_keeps_no_earlier_start_from_its_cuts() -> None:
    """Half of the node was promised to ``r4`` for when ``r0`` is over, beside ``r3``, for which ``r0`` is to be drawn:
    then nobody was drawn on that node any more, and ``r3`` was put off by hours."""
    fleet = Fleet(node("n0"), budget("a"), budget("b"), policy=Policy(patience="3h"), secret="s")
    fleet.start(run("r0", 6, owner="org:b", lasts="7h"))
    fleet.later("56m")
    fleet.apply(run("r3", 4, owner="org:a", lasts="7h"))
    fleet.apply(run("r4", 4, owner="org:a", lasts="20m"))
    first = promised(fleet, "lab/r3")
    assert first.confidence == "conservative"
    fleet.until(first.plan.start or START)
    assert [(kind, key) for kind, key, _ in cuts(fleet)] == [("Lottery", "lab/r0")]
    fleet.leave("lab/r0")
    assert fleet.leases("lab/r3")
    assert fleet.leases("lab/r4"), "beside it"


def test_a_draw_for_a_start_that_is_half_a_minute_late_makes_room_for_it() -> None:
    """``y`` was promised what is left when ``x`` is over, to the second: with the moment that ``A`` had, ``x`` would be
    over too late for that, and its draw was found to have freed too little. Half a minute breaks nothing."""
    fleet = Fleet(node("n0"), budget("a"), budget("b"), policy=FAR, secret="s")
    fleet.start(run("A", 2, owner="org:a", lasts="1h"))
    fleet.apply(run("x", 8, owner="org:b", lasts="1h"))
    fleet.apply(run("y", 3, owner="org:b"))
    behind = promised(fleet, "lab/y")
    fleet.until(at("60m30s"))
    assert [(kind, key) for kind, key, _ in cuts(fleet)] == [("Lottery", "lab/A")]
    assert promised(fleet, "lab/y") == behind
    fleet.leave("lab/A")
    assert fleet.where("lab/x") == {"n0": 8}
    assert not fleet.notes("StartMoved")


def test_who_is_behind_a_start_that_is_late_keeps_its_number() -> None:
    """It was looked at before the start that it is behind was resolved: nothing was known to serve it in between, and
    it was Blocked and dealt a place anew, behind all others, within one entry."""
    fleet = Fleet(node("n0"), budget("a"), budget("b"), policy=FAR, secret="s")
    fleet.start(run("A", 8, owner="org:a", lasts="1h"))
    fleet.apply(run("x", 8, owner="org:b", lasts="1h"))
    fleet.apply(run("y", 8, owner="org:b", lasts="1h"))
    behind = promised(fleet, "lab/y")
    fleet.until(at("60m30s"))
    assert promised(fleet, "lab/x").state == "Active"
    assert not fleet.notes("ReservationBlocked")
    one = promised(fleet, "lab/y")
    assert (one.turn, one.dated) == (behind.turn, behind.dated)
    assert start_of(fleet, "lab/y") in ("120m", "120.5m", "121m")
