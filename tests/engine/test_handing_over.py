"""SPEC 7 and 8, when money runs short: who takes over what others were promised, and who does not; that a question
changes nothing, and that whoever reads the entries decides alike."""

from __future__ import annotations

import pytest

from tenure.engine import Apply, Publish, State, dump, load, render, step
from tenure.engine.threats import all_limits, threats
from tenure.facts import Reserved, Resolved
from tenure.shell.custodian import SimulatedCustodian
from tenure.shell.home import fold_entry
from tenure.testing import Fleet, at, budget, elastic, envelope, nodes, run
from tenure.units import SECOND, Instant, Micros


def concurrency(fleet: Fleet, name: str, gpus: int) -> None:
    fleet.apply(budget(name, envelope("main", gpus)))


def starts(facts: tuple[object, ...], run: str) -> list[Instant | None]:
    found = (fact.reservation for fact in facts if isinstance(fact, Reserved))
    return [one.plan.start for one in found if one.run == run]


def let_past(*, lasts: str) -> Fleet:
    """``bb`` runs on the money of a, past ``elder``, to whom the money of s was promised, which could pay for it. Half
    of a's money goes when an hour is over, and ``aa`` says it would be gone by then, or a little before. Nobody
    reveals anything."""
    loan = envelope("main", 8, lends_to=["org:a"])
    money = (budget("a", envelope("main", 16, hours=60)), budget("s", loan), budget("w", envelope("main", 64)))
    fleet, custodian = Fleet(*nodes("n", 3), *money), SimulatedCustodian("x")
    fleet.handle(Publish(custodian.beacon, custodian.root))
    fleet.start(run("aa", 8, owner="org:a", lasts=lasts), run("busy", 4, owner="org:s", lasts="2h"))
    fleet.apply(run("elder", 8, owner="org:s", lasts="1h"))
    fleet.start(run("bb", 8, owner="org:a", sponsors=["org:s"]))
    assert fleet.state.runs["lab/bb"].life.backfilled
    fleet.later("1h")
    fleet.apply(budget("a", envelope("main", 8, hours=60)))
    return fleet


@pytest.mark.parametrize(("late", "start"), [(0, "3h"), (30 * SECOND - 1, "3h"), (30 * SECOND, "3h45m")])
def test_when_money_ends_is_not_foreseen_without_the_lease_that_is_asked_for(late: Micros, start: str) -> None:
    """What overstays just then was seen while a lease was out of the books: the engine counted on money for longer, and
    one that was rebuilt did not. For half a minute ``aa`` is still counted on to go, as ``elder`` counts on it; from
    then on ``ww`` waits for the money of a to be spent."""
    fleet = let_past(lasts="75m")
    fleet.until(at("75m"))
    fleet.until(at("75m") + late)
    folded = State(fleet.state.fleet)
    for entry in fleet.entries:
        fold_entry(folded, entry)
    event = Apply((run("ww", 16, owner="org:w", lasts="1h"),))
    states = (load(dump(fleet.state)), folded, fleet.state)
    decided = [step(state, event, now=fleet.now).facts for state in states]
    assert starts(decided[0], "ww") == [at(start)]
    assert decided[0] == decided[1] == decided[2]


@pytest.mark.parametrize("looks", [False, True])
def test_a_status_that_somebody_looks_at_changes_no_decision(looks: bool) -> None:
    fleet = let_past(lasts="70m")
    fleet.now = at("71m")
    if looks:
        assert render.run(fleet.state, fleet.state.runs["lab/bb"], now=fleet.now).status is not None
    fleet.now = at("72m")
    assert starts(fleet.apply(run("ww", 16, owner="org:w", lasts="1h")).facts, "ww") == [at("3h45m")]
    assert fleet.state.reservations["lab/elder"].plan.start == at("2h"), "on another node: lab/aa overstays"
    assert [share.node for share in fleet.state.reservations["lab/elder"].plan.shares] == ["n1"]


@pytest.mark.parametrize("past", [False, True])
def test_the_same_money_is_not_handed_out_twice_in_a_dry_run(past: bool) -> None:
    """Three runs of 4, of which one may stay, and a sponsor for one more: each of the others is at risk, whether they
    were let past somebody or not."""
    fleet = Fleet(*nodes("n", 4), budget("a", envelope("main", 12)), budget("z", envelope("main", 8)),
                  budget("s", envelope("main", 4, lends_to=["org:a"])), secret="x")  # fmt: skip
    fleet.start(run("busy", 4, owner="org:z", lasts="9h"))
    if past:
        fleet.apply(run("elder", 8, owner="org:z", lasts="1h"))
    fleet.start(*(run(name, 4, owner="org:a", sponsors=["org:s"]) for name in "bcd"))
    fleet.later("1h")
    concurrency(fleet, "a", 4)
    fleet.later("5m")
    before = dump(fleet.state)
    [threat] = threats(fleet.state, all_limits(fleet.state), now=fleet.now)
    assert (threat.short, threat.odds) == (4, {"lab/c": "0.5000", "lab/d": "0.5000"})
    assert dump(fleet.state) == before
    fleet.later("10m")
    [cut] = [one.run for fact in fleet.facts if isinstance(fact, Resolved) for one in fact.cuts]
    assert cut in threat.odds


# --- whose is older -------------------------------------------------------------------------------------------------


def promised(*, one_node: bool = False, **money: int) -> Fleet:
    """Two runs on the money of a, of which one ends after an hour, and one after two; b may lend."""
    lenders = {"b": money.get("b", 4), "c": 8}
    fleet = Fleet(
        *(nodes("n", 1, 32) if one_node else nodes("n", 4)),
        *(budget(name, envelope("main", gpus, lends_to=["org:a"])) for name, gpus in lenders.items()),
        *(budget(name, envelope("main", gpus)) for name, gpus in {"a": money.get("a", 8), "z": 8}.items()),
        secret="x",
    )
    fleet.start(run("busy", 4, owner="org:a", lasts="2h"), run("brief", 4, owner="org:a", lasts="1h"))
    return fleet


def elder(fleet: Fleet) -> None:
    """All that a has is promised, from two hours on."""
    fleet.apply(run("elder", 8, owner="org:a", lasts="1h"))


def lend_no_more(fleet: Fleet, name: str = "b") -> None:
    """When an hour is over and half of what a has is free, whoever is paid by another has to go."""
    fleet.until(at("1h"))
    fleet.succeed("lab/brief")
    assert fleet.state.reservations["lab/elder"].plan.start == at("2h")
    fleet.delete("Budget", name)
    fleet.later("15m")
    leave(fleet)


def leave(fleet: Fleet) -> None:
    for row in list(fleet.state.runs.values()):
        if any(pod.stop for pod in row.pods.values()):
            fleet.leave(row.key)


def test_who_is_being_started_past_others_takes_over_nothing_that_these_were_promised() -> None:
    """Its pods are not bound yet, and yet it was let past somebody."""
    fleet = promised()
    elder(fleet)
    fleet.later("50m")
    fleet.apply(run("younger", 4, owner="org:a", sponsors=["org:b"], lasts="8h"))
    fleet.delete("Budget", "b")
    fleet.until(at("1h"))
    fleet.succeed("lab/brief")
    fleet.later("5m")
    assert fleet.payers("lab/younger") == {"b/main": 4}
    fleet.later("30m")
    leave(fleet)
    fleet.now = at("2h")
    fleet.succeed("lab/busy")
    assert fleet.payers("lab/elder") == {"a/main": 8}
    fleet.audit(settled=False)


@pytest.mark.parametrize("bound", ["before", "after"])
def test_what_was_promised_while_pods_were_bound_is_not_older_than_their_run(bound: str) -> None:
    fleet = promised()
    fleet.start(run("busyz", 4, owner="org:z", lasts="9h"))
    fleet.apply(run("other", 8, owner="org:z", lasts="1h"))
    fleet.apply(run("younger", 4, owner="org:a", sponsors=["org:b"], lasts="8h"))
    assert fleet.state.runs["lab/younger"].life.backfilled
    if bound == "before":
        fleet.bind("lab/younger")
    fleet.later("1m")
    elder(fleet)
    fleet.later("1m")
    fleet.bind("lab/younger")
    lend_no_more(fleet)
    assert fleet.payers("lab/younger") == {"a/main": 4}


@pytest.mark.parametrize("twice", [False, True])
def test_what_grew_after_a_promise_takes_over_nothing_of_it_whoever_has_paid_since(twice: bool) -> None:
    sponsors = ["org:b", "org:c"] if twice else ["org:b"]
    fleet = promised(a=12, b=8)
    fleet.start(run("x", 4, owner="org:a", sponsors=sponsors, elastic=elastic(4, 8, 4, desired=4)))
    elder(fleet)
    fleet.resize("lab/x", 8)
    fleet.later("10m")
    fleet.bind("lab/x")
    if twice:
        fleet.delete("Budget", "b")
        fleet.later("20m")
        assert fleet.payers("lab/x") == {"a/main": 4, "c/main": 4}
    lend_no_more(fleet, "c" if twice else "b")
    assert [(one.group, one.budget) for one in fleet.leases("lab/x")] == [(0, "a")]
    fleet.now = at("2h")
    fleet.succeed("lab/busy")
    assert fleet.payers("lab/elder") == {"a/main": 8}
    fleet.audit(settled=False)


def test_spares_that_were_bought_after_a_promise_take_over_nothing_of_it() -> None:
    fleet = promised(a=12)
    fleet.start(run("x", 4, owner="org:a", sponsors=["org:b"], group=4, spares=4))
    fleet.later("1m")
    elder(fleet)
    [spare] = [one for one in fleet.leases("lab/x") if one.role == "Spare"]
    fleet.later("1m")
    fleet.fence(spare.node)
    assert fleet.payers("lab/x") == {"a/main": 4, "b/main": 4}
    lend_no_more(fleet)
    assert fleet.payers("lab/x") == {"a/main": 4}
    fleet.now = at("2h")
    fleet.succeed("lab/busy")
    assert fleet.payers("lab/elder") == {"a/main": 8}
    fleet.audit(settled=False)


@pytest.mark.parametrize("again", [False, True])
def test_what_grew_before_a_promise_is_handed_over_though_what_grew_after_it_is_not(again: bool) -> None:
    fleet = promised(a=12, b=8, one_node=True)
    fleet.start(run("x", 4, owner="org:a", sponsors=["org:b"], elastic=elastic(4, 12, 4, desired=4)))
    fleet.resize("lab/x", 8)
    fleet.later("2m")
    fleet.bind("lab/x")
    elder(fleet)
    if again:
        fleet.resize("lab/x", 12)
        fleet.later("3m")
        fleet.bind("lab/x")
    assert fleet.payers("lab/x") == {"a/main": 4, "b/main": 8 if again else 4}
    lend_no_more(fleet)
    assert [(one.group, one.budget) for one in fleet.leases("lab/x")] == [(0, "a"), (1, "a")]
    fleet.audit(settled=False)
