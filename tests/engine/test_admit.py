"""SPEC 4 and 7: who is looked at when, and in which order."""

from __future__ import annotations

from itertools import permutations

import pytest

from tenure.engine import Apply, State, Tick, dump, load, step
from tenure.facts import Decided, Reserved
from tenure.testing import START, Fleet, at, budget, envelope, node, nodes, run


def test_the_oldest_run_is_considered_first() -> None:
    fleet = Fleet(node("n0"), budget("a"))
    fleet.start(run("busy", 8, owner="org:a"))
    for name in ("z", "m", "b"):
        fleet.later("1s")
        fleet.apply(run(name, 8, owner="org:a"))
    fleet.succeed("lab/busy")
    assert [lease.run for lease in fleet.leases()] == ["z"]


def test_runs_of_one_age_go_by_namespace_and_name() -> None:
    fleet = Fleet(node("n0"), budget("a"))
    fleet.apply(
        run("a", 8, owner="org:a", namespace="z"),
        run("b", 8, owner="org:a", namespace="m"),
        run("a", 8, owner="org:a", namespace="m"),
    )
    assert [lease.run_key for lease in fleet.leases()] == ["m/a"]


def test_a_smaller_run_may_start_past_a_larger_one_that_waits() -> None:
    fleet = Fleet(node("n0"), budget("a"))
    fleet.start(run("busy", 4, owner="org:a"))
    fleet.apply(run("large", 8, owner="org:a"))
    fleet.apply(run("open-ended", 4, owner="org:a"), run("too-long", 4, owner="org:a", lasts="16m"))
    assert not fleet.leases("lab/open-ended"), "it would be in the way when large is to start"
    assert not fleet.leases("lab/too-long")
    assert fleet.code("lab/too-long") == "Protected"
    fleet.apply(run("small", 4, owner="org:a", lasts="15m"))
    assert len(fleet.leases("lab/small")) == 1


@pytest.mark.parametrize("lasts", ["24h", None], ids=["promised an end", "promised a cut"])
def test_a_run_that_asks_for_something_else_goes_behind_those_who_wait(lasts: str | None) -> None:
    """Else who comes early with anything would keep a place for what it wants later. A changed demand counts from its
    change; what was promised for the old one is Canceled."""
    fleet = Fleet(node("n0"), budget("a"))
    fleet.start(run("busy", 8, owner="org:a", lasts=lasts))
    fleet.apply(run("old", 7, owner="org:a", lasts="1h"))
    fleet.later("1h")
    fleet.apply(run("new", 8, owner="org:a", lasts="1h"))
    first = fleet.state.reservations["lab/old"]
    assert first.turn < fleet.state.reservations["lab/new"].turn
    fleet.apply(run("old", 8, owner="org:a", lasts="1h"))
    assert [fact.reservation.state for fact in fleet.facts
            if isinstance(fact, Reserved) and fact.reservation.uid == first.uid][-1] == "Canceled"  # fmt: skip
    if "lab/old" in fleet.state.reservations:
        assert fleet.state.reservations["lab/old"].turn > fleet.state.reservations["lab/new"].turn
    fleet.succeed("lab/busy")
    assert [lease.run for lease in fleet.leases()] == ["new"]
    fleet.bind("lab/new")
    fleet.succeed("lab/new")
    assert [lease.run for lease in fleet.leases()] == ["old"]


def test_a_run_that_is_paid_otherwise_keeps_its_place_in_the_queue() -> None:
    """Whom it may borrow from is no other demand: it is planned anew in place."""
    fleet = Fleet(node("n0"), budget("a"), budget("s", envelope(lends_to=["org:a"])))
    fleet.start(run("busy", 8, owner="org:a", lasts="2h"))
    fleet.apply(run("old", 8, owner="org:a", lasts="1h"))
    before = fleet.state.reservations["lab/old"]
    fleet.later("1h")
    fleet.apply(run("new", 8, owner="org:a", lasts="1h"))
    fleet.apply(run("old", 8, owner="org:a", lasts="1h", sponsors=["org:s"]))
    one = fleet.state.reservations["lab/old"]
    assert (one.uid, one.turn, one.dated, one.plan.start) == (before.uid, before.turn, before.dated, at("2h"))
    fleet.succeed("lab/busy")
    assert [lease.run for lease in fleet.leases()] == ["old"]


# --- an owner's own claim -----------------------------------------------------------------------------------------


def family(*, gpus: int = 8) -> Fleet:
    """Machines for two, money of one owner only, and a sibling who would like to use it; nothing can start yet."""
    return Fleet(
        *nodes("n", 2, cordoned=True),
        budget("rich", envelope(gpus=gpus), parents=["org:up"]),
        budget("poor", envelope(flavor="A100"), parents=["org:up"]),
    )


def test_an_owners_own_claim_comes_before_the_familys_use_within_one_pass() -> None:
    fleet = family()
    fleet.apply(run("guest", 8, owner="org:poor"))
    fleet.later("1h")
    fleet.apply(run("host", 8, owner="org:rich"))
    fleet.apply(*nodes("n", 2))
    assert [lease.run for lease in fleet.leases()] == ["host"]


def test_the_family_gets_what_the_owners_leave() -> None:
    fleet = family(gpus=12)
    fleet.apply(run("guest", 4, owner="org:poor"))
    fleet.later("1h")
    fleet.apply(run("host", 8, owner="org:rich"))
    fleet.apply(*nodes("n", 2))
    assert sorted(lease.run for lease in fleet.leases()) == ["guest", "host"]


def test_an_owners_claim_never_evicts_a_running_relative() -> None:
    fleet = Fleet(
        *nodes("n", 2),
        budget("rich", envelope(gpus=8), parents=["org:up"]),
        budget("poor", envelope(flavor="A100"), parents=["org:up"]),
    )
    fleet.start(run("guest", 8, owner="org:poor"))
    fleet.apply(run("host", 8, owner="org:rich"))
    assert [lease.run for lease in fleet.leases()] == ["guest"]
    assert fleet.code("lab/host") == "ConcurrencyCapExceeded"


def test_an_owner_that_cannot_start_now_does_not_hold_up_the_family() -> None:
    fleet = family()
    fleet.apply(run("guest", 8, owner="org:poor"))
    fleet.apply(run("host", 64, owner="org:rich"))
    fleet.apply(*nodes("n", 2))
    assert [lease.run for lease in fleet.leases()] == ["guest"]


def test_the_owner_of_what_an_owners_claim_would_share_comes_first_in_turn() -> None:
    """guest would use the money of a, a's own run that of b, so b's own run comes first of all."""
    fleet = Fleet(
        *nodes("n", 3, cordoned=True),
        budget("a", envelope(gpus=4), parents=["org:up"]),
        budget("b", envelope(gpus=8), parents=["org:up"]),
        budget("guest", envelope(flavor="A100"), parents=["org:up"]),
    )
    for name, gpus in (("guest", 4), ("a", 8), ("b", 8)):
        fleet.apply(run(name, gpus, owner=f"org:{name}"))
        fleet.later("1h")
    fleet.apply(*nodes("n", 3))
    assert sorted({lease.run for lease in fleet.leases()}) == ["b", "guest"]
    assert fleet.payers("lab/guest") == {"a/main": 4}


def test_every_owner_whose_money_is_left_to_the_family_comes_first() -> None:
    """When a's own run has taken a's money, guest would turn to b's, and b's own run comes before that too."""
    fleet = Fleet(
        *nodes("n", 3, cordoned=True),
        budget("a", envelope(gpus=8), parents=["org:up"]),
        budget("b", envelope(gpus=8), parents=["org:up"]),
        budget("guest", envelope(flavor="A100"), parents=["org:up"]),
    )
    for name in ("guest", "a", "b"):
        fleet.apply(run(name, 8, owner=f"org:{name}"))
        fleet.later("1h")
    fleet.apply(*nodes("n", 3))
    assert sorted(lease.run for lease in fleet.leases()) == ["a", "b"]


def test_a_lenders_own_claim_comes_before_the_borrowers() -> None:
    fleet = Fleet(*nodes("n", 2, cordoned=True), budget("bank", envelope(gpus=8, lends_to=["*"])))
    fleet.apply(run("guest", 8, owner="org:poor", sponsors=["org:bank"]))
    fleet.later("1h")
    fleet.apply(run("host", 8, owner="org:bank"))
    fleet.apply(*nodes("n", 2))
    assert [lease.run for lease in fleet.leases()] == ["host"]


# --- when something is looked at ----------------------------------------------------------------------------------


WAKERS = {
    "machines come": lambda fleet: fleet.apply(node("n1")),
    "money comes": lambda fleet: fleet.apply(budget("b", envelope(gpus=64), owner="org:a")),
    "a run ends": lambda fleet: fleet.succeed("lab/busy"),
    "a run is deleted": lambda fleet: (fleet.delete("Run", "lab/busy"), fleet.leave("lab/busy")),
}


@pytest.mark.parametrize("what", WAKERS)
def test_a_waiting_run_starts_in_the_decision_that_lets_it(what: str) -> None:
    fleet = Fleet(node("n0"), budget("a", envelope(gpus=8 if what == "money comes" else 16)))
    if what == "money comes":
        fleet.apply(node("n1"))
    fleet.start(run("busy", 8, owner="org:a"))
    fleet.apply(run("x", 8, owner="org:a"))
    assert fleet.leases("lab/x") == []
    WAKERS[what](fleet)
    assert len(fleet.leases("lab/x")) == 1
    fleet.audit()


def test_new_relatives_may_pay_for_runs_of_any_flavor() -> None:
    fleet = Fleet(node("n0", flavor="A100"), budget("rich", envelope(flavor="A100"), parents=["org:up"]))
    fleet.apply(run("x", 8, owner="org:poor", flavor="A100"))
    assert fleet.leases() == []
    fleet.apply(budget("poor", envelope(), parents=["org:up"]))
    assert fleet.payers("lab/x") == {"rich/main": 8}


def test_a_run_whose_last_node_is_deleted_is_told_so() -> None:
    fleet = Fleet(*nodes("n", 2), budget("a"))
    fleet.start(run("busy", 8, owner="org:a"))
    fleet.apply(run("x", 16, owner="org:a"))
    assert fleet.verdict("lab/x").outcome == "wait"
    fleet.delete("Node", "n1")
    assert (fleet.verdict("lab/x").outcome, fleet.code("lab/x")) == ("never", "TooLarge")


def test_a_refusal_is_told_once_and_again_when_it_changes() -> None:
    fleet = Fleet(node("n0"), budget("a", envelope(gpus=8)))
    fleet.start(run("busy", 4, owner="org:a"))
    fleet.apply(run("x", 8, owner="org:a"))
    for rack in ("r1", "r2", "r3"):
        fleet.later("1h")
        fleet.apply(node("n0", rack=rack))
    told = [fact.verdict.headline.code for fact in fleet.facts if isinstance(fact, Decided) and fact.verdict.headline]
    assert told == ["ConcurrencyCapExceeded"]
    fleet.delete("Budget", "a")
    assert fleet.verdict("lab/x").outcome == "never"
    assert len(fleet.notes("Waiting")) + len(fleet.notes("Blocked")) == 2


def test_a_settled_world_writes_nothing_on_one_more_pass() -> None:
    fleet = Fleet(*nodes("n", 2), budget("a", envelope(gpus=12)))
    fleet.start(run("x", 8, owner="org:a"))
    fleet.apply(run("y", 8, owner="org:a"), run("z", 99, owner="org:a"))
    before = len(fleet.entries)
    for _ in range(3):
        fleet.later("1h")
    assert len(fleet.entries) == before
    again = load(dump(fleet.state))
    assert not step(again, Tick(), now=fleet.now).facts, "nor does a state that was loaded"
    again.mark_all()
    assert not step(again, Tick(), now=fleet.now).facts, "nor when everything is looked at"


def test_many_alike_waiting_runs_are_refused_alike() -> None:
    fleet = Fleet(node("n0"), budget("a"))
    fleet.start(run("busy", 8, owner="org:a"))
    fleet.apply(*(run(f"x{index}", 8, owner="org:a") for index in range(20)))
    assert {fleet.code(f"lab/x{index}") for index in range(20)} == {"NoCapacity"}
    fleet.succeed("lab/busy")
    assert [lease.run for lease in fleet.leases()] == ["x0"]


# --- order does not matter ----------------------------------------------------------------------------------------


def test_independent_facts_may_arrive_in_any_order() -> None:
    """Same instants, same decisions; what is recorded of each object is the same."""
    objects = [*nodes("n", 2), budget("a", parents=["org:up"]), budget("b", parents=["org:up"]), budget("up")]
    leases = set()
    for order in permutations(objects):
        state = State("test")
        for item in order:
            step(state, Apply((item,)), now=START)
        step(state, Apply((run("x", 12, owner="org:a"),)), now=at("1h"))
        leases.add(dump(state))
    assert len(leases) == 1


def test_runs_that_arrive_together_are_decided_on_alike_in_any_order() -> None:
    runs = [run(name, gpus, owner="org:a") for name, gpus in (("p", 4), ("q", 8), ("r", 4), ("s", 2))]
    answers = set()
    for order in permutations(runs):
        fleet = Fleet(node("n0"), budget("a"))
        fleet.apply(*order)
        answers.add(tuple((lease.name, lease.gpus) for lease in fleet.leases()))
    assert len(answers) == 1


def test_a_waiting_run_shows_the_numbers_of_now_though_nothing_new_is_recorded() -> None:
    fleet = Fleet(*nodes("n", 4), budget("me", envelope(gpus=16)))
    fleet.start(run("a", 8, owner="org:me"), run("b", 8, owner="org:me"))
    fleet.apply(run("wide", 16, owner="org:me"))
    recorded = fleet.state.runs["lab/wide"].life
    fleet.succeed("lab/a")
    assert fleet.state.runs["lab/wide"].life == recorded
    shown = fleet.run("lab/wide").status
    assert shown.message == "me/main allows 16 GPUs at once; 8 are in use and 16 were asked: 8 too many."
    assert {mark.message for mark in shown.conditions if mark.type == "Admitted"} == {shown.message}
