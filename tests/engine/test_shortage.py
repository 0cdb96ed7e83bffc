"""Money that runs short: others take over, then work gives way, and only what that money paid for (SPEC 3, 8)."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from tenure.api.budget import Envelope, Lending
from tenure.api.policy import Policy
from tenure.engine import Publish, Reveal, SetPolicy, State, Tick, dump, load, next_wake, render, step
from tenure.engine.lottery import verify
from tenure.facts import Ending, Froze, Opened, Reserved, Resolved, Warned
from tenure.shell.custodian import SimulatedCustodian
from tenure.shell.home import fold_entry
from tenure.testing import Fleet, at, budget, cap, elastic, envelope, node, nodes, run
from tenure.units import HOUR

COAST = Policy(on_budget_shortage="Coast")


def lower(fleet: Fleet, name: str, gpus: int, *, envelope: int = 0) -> None:
    change(fleet, name, envelope, concurrency=gpus)


def change(fleet: Fleet, name: str, index: int = 0, **fields: Any) -> None:
    item = fleet.state.budgets[name]
    envelopes = list(item.spec.envelopes)
    envelopes[index] = msgspec.structs.replace(envelopes[index], **fields)
    fleet.apply(msgspec.structs.replace(item, spec=msgspec.structs.replace(item.spec, envelopes=tuple(envelopes))))


def resolved(fleet: Fleet) -> list[Resolved]:
    return [fact for fact in fleet.facts if isinstance(fact, Resolved)]


def closures(fleet: Fleet) -> dict[str, str]:
    return {name: one.reason.partition("(")[0] for name, one in fleet.closed().items()}


def leave_all(fleet: Fleet) -> None:
    for key in sorted(fleet.state.runs):
        if any(row.stop for row in fleet.state.runs[key].pods.values()):
            fleet.leave(key)


def gives_way_in(fleet: Fleet, minutes: int, *, to: int) -> None:
    """Nobody gives way before so many minutes are over, and then all that is above ``to`` GPUs."""
    fleet.later(f"{minutes - 1}m59s")
    assert not resolved(fleet)
    fleet.later("1s")
    leave_all(fleet)
    assert fleet.headroom("a").used == to
    fleet.audit()


# --- when -----------------------------------------------------------------------------------------------------------


def test_what_was_put_off_until_a_shortage_is_looked_at_is_so_for_who_reads_the_entries() -> None:
    """The limit is lowered at once, and x has not run for long enough to be cut: nothing is decided, nobody waits, and
    the entries say all the same that it was looked at."""
    fleet = Fleet(*nodes("n", 1), budget("a"), policy=Policy(budget_grace="0s"))
    fleet.start(run("x", 8, owner="org:a"))
    lower(fleet, "a", 4)
    assert fleet.state.agenda.put_off
    assert not fleet.handle(Tick()).facts
    folded = State(fleet.state.fleet)
    for entry in fleet.entries:
        fold_entry(folded, entry)
    assert not folded.agenda.put_off
    assert dump(folded) == dump(fleet.state)
    assert not fleet.handle(Tick()).looked


def test_a_lowered_limit_is_announced_and_nobody_gives_way_before_the_grace_is_over() -> None:
    fleet = Fleet(*nodes("n", 4), budget("a", envelope("main", 32)), secret="x")
    fleet.start(run("x", 32, owner="org:a", elastic=elastic(8, 32, 8)))
    fleet.later("1h")
    lower(fleet, "a", 16)
    assert [note.reason for note in fleet.notes("BudgetNotice")] == ["Lowered"]
    assert "2025-11-01T01:15:00Z" in fleet.notes("BudgetNotice")[0].message
    fleet.later("14m")
    assert fleet.headroom("a").used == 32
    fleet.later("1m")
    leave_all(fleet)
    assert fleet.headroom("a").used == 16
    assert fleet.phase("lab/x") == "Running"
    assert fleet.run("lab/x").status.message.startswith("Shrunk by resolver")
    fleet.audit()


def test_a_limit_raised_again_in_time_cuts_nothing() -> None:
    fleet = Fleet(*nodes("n", 2), budget("a", envelope("main", 16)), secret="x")
    fleet.start(run("x", 16, owner="org:a"))
    lower(fleet, "a", 8)
    fleet.later("10m")
    lower(fleet, "a", 16)
    fleet.later("1d")
    assert not resolved(fleet)
    assert fleet.phase("lab/x") == "Running"
    lower(fleet, "a", 8)
    assert len(fleet.notes("BudgetNotice")) == 2, "lowered again is news again"


def test_a_budget_that_is_deleted_and_comes_again_with_less_begins_no_new_grace() -> None:
    """Deleting acts like lowering to zero (SPEC 3), and who raises a limit by too little puts nothing off."""
    fleet = Fleet(*nodes("n", 4), budget("a", envelope("main", 32)), secret="x")
    fleet.start(run("x", 32, owner="org:a", elastic=elastic(8, 32, 8)))
    fleet.later("1h")
    fleet.delete("Budget", "a")
    fleet.later("10m")
    fleet.apply(budget("a", envelope("main", 16)))
    said = [note.message for note in fleet.notes("BudgetNotice")]
    assert len(said) == 2, "another limit is other news"
    assert all("2025-11-01T01:15:00Z" in message for message in said)
    gives_way_in(fleet, 5, to=16)


@pytest.mark.parametrize(
    ("fields", "due"),
    [({"end": "2025-12-01T00:00:00Z"}, 5), ({"max_gpu_hours": 960}, 5), ({"concurrency": 24}, 5),
     ({"concurrency": 8}, 15)],
    ids=["its window ends some day", "its hours are bounded", "it is raised by too little", "it is lowered further"],
)  # fmt: skip
def test_only_less_of_what_is_exceeded_begins_a_new_grace(fields: dict[str, Any], due: int) -> None:
    """Else somebody could put off for ever what is too much, by lowering something else a little."""
    fleet = Fleet(*nodes("n", 4), budget("a", envelope("main", 32)), secret="x")
    fleet.start(run("x", 32, owner="org:a", elastic=elastic(8, 32, 8)))
    fleet.later("1h")
    lower(fleet, "a", 16)
    fleet.later("10m")
    change(fleet, "a", **fields)
    gives_way_in(fleet, due, to=fields.get("concurrency", 16))


def test_what_is_lowered_twice_in_two_ways_has_one_grace_from_the_last() -> None:
    """Notice is given anew, of all of it."""
    fleet = Fleet(*nodes("n", 4), budget("a", envelope("main", 32)), secret="x")
    fleet.start(run("x", 32, owner="org:a", elastic=elastic(8, 32, 8)))
    fleet.later("1h")
    lower(fleet, "a", 16)
    fleet.later("10m")
    change(fleet, "a", max_gpu_hours=8)
    first, *_, last = [note.message for note in fleet.notes("BudgetNotice")]
    assert "2025-11-01T01:15:00Z" in first
    assert "2025-11-01T01:25:00Z" in last
    gives_way_in(fleet, 15, to=0)


@pytest.mark.parametrize("fields", [{"concurrency": 16}, {"max_gpu_hours": 4}], ids=["GPUs", "hours"])
def test_what_has_run_out_is_not_put_off_by_lowering_it(fields: dict[str, Any]) -> None:
    """The hours end after 10 minutes, and x may be drawn after 15. Who lowers a limit in between wins no time: else
    what nobody pays for could go on for ever, a little less each time."""
    fleet = Fleet(*nodes("n", 4), budget("a", envelope("main", 30)), secret="x", policy=Policy(lookahead="5m"))
    change(fleet, "a", max_gpu_hours=5)
    fleet.start(run("x", 30, owner="org:a"))
    fleet.later("11m")
    change(fleet, "a", **fields)
    gives_way_in(fleet, 4, to=0)


@pytest.mark.parametrize("edit", ["the Budget goes", "the cap goes, and the envelope has nothing"])
def test_what_a_cap_has_run_out_of_is_not_put_off_by_what_leaves_nothing(edit: str) -> None:
    """As with the envelope's own hours: whoever deletes the Budget then wins no time."""
    capped = budget("a", envelope("main", 30), caps=[cap("all", ["main"], hours=5)])
    fleet = Fleet(*nodes("n", 4), capped, secret="x", policy=Policy(lookahead="5m"))
    fleet.start(run("x", 30, owner="org:a"))
    fleet.later("11m")
    if edit == "the Budget goes":
        fleet.delete("Budget", "a")
    else:
        fleet.apply(budget("a", envelope("main", 30, hours=0)))
    fleet.later("3m59s")
    assert not resolved(fleet)
    fleet.later("1s")
    assert [cut.run for one in resolved(fleet) for cut in one.cuts] == ["lab/x"]
    fleet.audit(settled=False)


def test_what_has_run_out_and_comes_again_has_its_grace_for_what_was_lowered_meanwhile() -> None:
    fleet = Fleet(*nodes("n", 4), budget("a", envelope("main", 30)), secret="x", policy=Policy(lookahead="5m"))
    change(fleet, "a", max_gpu_hours=5)
    fleet.start(run("x", 30, owner="org:a"))
    fleet.later("11m")
    change(fleet, "a", concurrency=16)
    change(fleet, "a", max_gpu_hours=500)
    gives_way_in(fleet, 15, to=0)


@pytest.mark.parametrize(("first", "due"), [("11m", 26), ("1m", 16)])
def test_what_was_lowered_is_due_when_it_was_announced_though_hours_ran_out_meanwhile(first: str, due: int) -> None:
    """The hours end after 10 minutes, are lowered further and raised again. What is too much at once was lowered before
    all that, or after they ended: for that nothing has changed."""
    fleet = Fleet(*nodes("n", 4), budget("a", envelope("main", 30)), secret="x", policy=Policy(lookahead="5m"))
    change(fleet, "a", max_gpu_hours=5)
    fleet.start(run("x", 30, owner="org:a"))
    fleet.until(at(first))
    change(fleet, "a", concurrency=16)
    fleet.until(at("12m"))
    change(fleet, "a", max_gpu_hours=4)
    fleet.until(at("14m"))
    change(fleet, "a", max_gpu_hours=500)
    fleet.until(at(f"{due}m") - 1)
    assert not resolved(fleet)
    fleet.until(at(f"{due}m"))
    assert [cut.run for one in resolved(fleet) for cut in one.cuts] == ["lab/x"]
    fleet.audit(settled=False)


@pytest.mark.parametrize("edits", ["", "GPUs", "hours", "GPUs and hours"])
def test_hours_ran_out_when_they_did_though_others_have_ended_since(edits: str) -> None:
    """They end after 10 minutes. At the rate of the little that is left after 11 they would have ended before anything
    began."""
    fleet = Fleet(*nodes("n", 4), budget("a", envelope("main", 30)), secret="x", policy=Policy(lookahead="5m"))
    change(fleet, "a", max_gpu_hours=5)
    fleet.start(run("x", 29, owner="org:a"), run("y", 1, owner="org:a"))
    fleet.later("1m")
    if "GPUs" in edits:
        change(fleet, "a", concurrency=29)
    fleet.until(at("11m"))
    fleet.succeed("lab/x")
    fleet.later("1m")
    if "hours" in edits:
        change(fleet, "a", max_gpu_hours=4)
    fleet.until(at("15m") - 1)
    assert not resolved(fleet)
    fleet.until(at("15m"))
    assert [cut.run for one in resolved(fleet) for cut in one.cuts] == ["lab/y"]
    fleet.audit(settled=False)


@pytest.mark.parametrize("hours", [7, 8])
def test_hours_that_are_lowered_to_what_was_used_or_below_leave_a_grace(hours: int) -> None:
    """Eight were used, to the microsecond: it is the edit that ends the work, and not time."""
    fleet = Fleet(*nodes("n", 2), budget("a", envelope("main", 16)), secret="x")
    fleet.start(run("x", 8, owner="org:a"))
    fleet.later("1h")
    change(fleet, "a", max_gpu_hours=hours)
    assert "2025-11-01T01:15:00Z" in fleet.notes("BudgetNotice")[-1].message
    gives_way_in(fleet, 15, to=0)


@pytest.mark.parametrize("fields", [{"max_gpu_hours": 4}, {"concurrency": 4}], ids=["hours", "GPUs"])
def test_a_window_that_ends_within_a_grace_ends_the_work(fields: dict[str, Any]) -> None:
    fleet = Fleet(*nodes("n", 2), budget("a", envelope("main", 16, end="65m")), secret="x")
    fleet.start(run("x", 8, owner="org:a"))
    fleet.later("1h")
    change(fleet, "a", **fields)
    gives_way_in(fleet, 5, to=0)


def test_what_is_spent_is_not_put_off_by_calling_its_cap_something_else() -> None:
    """Spent after a quarter of an hour, and due when x may be drawn."""
    policy = Policy(activation_lead="30m", lookahead="10m")
    old, new = (budget("a", envelope("main", 8), caps=[cap(name, ["main"], hours=2)]) for name in "cd")
    fleet = Fleet(*nodes("n", 1), old, policy=policy, secret="x")
    fleet.start(run("x", 8, owner="org:a"))
    fleet.later("20m")
    fleet.apply(new)
    assert {limit for limit, _ in fleet.state.books.crossed} == {("a", "cap", "d")}
    gives_way_in(fleet, 10, to=0)


def test_lent_hours_that_have_run_out_are_not_put_off_by_lending_less() -> None:
    fleet = Fleet(*nodes("n", 4), budget("b", envelope("main", 30)), secret="x", policy=Policy(lookahead="5m"))
    lend(fleet, 5)
    fleet.start(run("x", 30, owner="org:a", sponsors=["org:b"]))
    fleet.later("11m")
    lend(fleet, 4)
    assert not resolved(fleet)
    fleet.later("4m")
    leave_all(fleet)
    assert fleet.headroom("b").used == 0
    fleet.audit()


def test_a_budget_that_comes_again_when_nothing_is_left_over_may_be_lowered_anew() -> None:
    fleet = Fleet(*nodes("n", 4), budget("a", envelope("main", 32)), secret="x")
    fleet.start(run("x", 32, owner="org:a", elastic=elastic(8, 32, 8)))
    fleet.delete("Budget", "a")
    fleet.later("10m")
    fleet.apply(budget("a", envelope("main", 32)))
    fleet.later("1m")
    lower(fleet, "a", 16)
    assert "2025-11-01T00:26:00Z" in fleet.notes("BudgetNotice")[-1].message
    gives_way_in(fleet, 15, to=16)


def test_the_grace_survives_a_restart() -> None:
    fleet = Fleet(*nodes("n", 2), budget("a", envelope("w", 16), envelope("v", 16),
                                         caps=[cap("all", ["w", "v"], gpus=16)]))  # fmt: skip
    fleet.start(run("x", 16, owner="org:a", elastic=elastic(8, 16, 8)))
    item = fleet.state.budgets["a"]
    less = msgspec.structs.replace(item.spec, aggregate_caps=(cap("all", ["w", "v"], gpus=8),))
    fleet.apply(msgspec.structs.replace(item, spec=less))
    fleet.later("10m")
    twin = load(dump(fleet.state))
    early = step(twin, Tick(), now=at("14m59s"))
    late = step(twin, Tick(), now=at("15m"))
    assert not early.facts
    assert [cut.kind for fact in late.facts if isinstance(fact, Resolved) for cut in fact.cuts] == ["Shrink"]


def test_hours_that_run_out_end_the_work_at_that_instant() -> None:
    fleet = Fleet(*nodes("n", 2), budget("a", envelope(hours=16)), secret="x")
    fleet.start(run("x", 8, owner="org:a"))
    fleet.later("2h")
    leave_all(fleet)
    assert fleet.state.books.funds["a", "main"].total.used(fleet.now) == 16 * HOUR
    assert fleet.phase("lab/x") == "Failed"
    assert closures(fleet) == {"x-a1-g00-n0-0": "RandomPreempt"}
    fleet.later("1h")
    fleet.audit()


def test_work_that_is_over_at_the_very_instant_is_not_cut() -> None:
    fleet = Fleet(*nodes("n", 2), budget("a", envelope(hours=16, end="2h")), secret="x")
    fleet.start(run("x", 8, owner="org:a", lasts="2h"))
    fleet.now = at("2h")
    fleet.handle(Tick())
    fleet.succeed("lab/x")
    fleet.later("1h")
    assert fleet.phase("lab/x") == "Completed"
    assert not resolved(fleet)


def counting_on_money_that_runs_out(*others: Envelope) -> Fleet:
    """At 2h ``work`` runs out of money; ``first`` is promised its machines for then, and ``second`` those behind it."""
    fleet = Fleet(node("n0"), budget("w", envelope(hours=8), *others), budget("a", envelope(gpus=16)), secret="x")
    fleet.start(run("work", 4, owner="org:w"))
    fleet.apply(run("first", 8, owner="org:a", lasts="1h", opportunistic=True))
    fleet.apply(run("second", 4, owner="org:a", lasts="3h"))
    planned = {one.run: one.plan.start for one in fleet.state.reservations.values()}
    assert planned == {"first": at("2h"), "second": at("3h")}
    return fleet


def test_regression_a_start_that_counts_on_money_that_runs_out_waits_until_that_is_resolved() -> None:
    """It was Blocked, since the work was still there, and who was promised a start behind it started at once (I8)."""
    fleet = counting_on_money_that_runs_out()
    fleet.later("2h")
    assert fleet.leases("lab/second") == []
    fleet.leave("lab/work")
    assert {lease.run: lease.start for lease in fleet.leases()} == {"first": at("2h")}
    assert fleet.state.reservations["lab/second"].plan.start == at("3h")
    fleet.audit()


def test_regression_nobody_starts_before_it_is_known_whether_work_goes_on_on_other_money() -> None:
    """The start was given up in one entry, with the work about to end for all that the record said, and the money that
    keeps the work was found in the next."""
    fleet = counting_on_money_that_runs_out(envelope("more", 8))
    fleet.now = at("2h")
    fleet.handle(Tick())
    facts = fleet.entries[-1].facts
    assert "exhausted" in {fact.mark for fact in facts if isinstance(fact, Warned)}
    assert not [fact for fact in facts if isinstance(fact, Reserved | Opened)]
    image, folded = load(dump(fleet.state)), State(fleet.state.fleet)
    for entry in fleet.entries:
        fold_entry(folded, entry)
    outcome = fleet.handle(Tick())
    assert outcome.looked
    assert [type(fact) for fact in outcome.facts if isinstance(fact, Opened | Reserved)][:2] == [Opened, Reserved]
    for other in (image, folded):
        other.head = fleet.state.head
        assert step(other, Tick(), now=fleet.now) == outcome
        assert dump(other) == dump(fleet.state)
    assert {lease.run: lease.envelope for lease in fleet.leases()} == {"work": "more", "second": "main"}
    assert fleet.state.reservations["lab/first"].reason == "CutsNobody"
    assert not fleet.handle(Tick()).looked
    fleet.audit()


def test_the_end_of_a_window_ends_the_work() -> None:
    fleet = Fleet(*nodes("n", 2), budget("a", envelope(end="3h")), secret="x")
    fleet.start(run("x", 8, owner="org:a", on_preemption="Requeue"))
    fleet.later("3h")
    leave_all(fleet)
    assert fleet.phase("lab/x") == "Pending"
    assert fleet.state.runs["lab/x"].life.cut, "its reservation will cut nobody"
    fleet.audit()


def test_a_budget_that_is_deleted_is_a_limit_of_zero() -> None:
    fleet = Fleet(*nodes("n", 2), budget("a"), secret="x")
    fleet.start(run("x", 8, owner="org:a"))
    fleet.delete("Budget", "a")
    fleet.later("14m")
    assert fleet.phase("lab/x") == "Running"
    fleet.later("1m")
    leave_all(fleet)
    assert fleet.phase("lab/x") == "Failed"
    assert resolved(fleet)[0].subject == "Budget/a/main"


def test_under_coast_work_runs_on_and_shows_as_over_budget() -> None:
    fleet = Fleet(*nodes("n", 2), budget("a", envelope("main", 16, hours=32)), policy=COAST, secret="x")
    fleet.start(run("x", 16, owner="org:a"))
    lower(fleet, "a", 8)
    fleet.later("3h")
    assert fleet.phase("lab/x") == "Running"
    assert not resolved(fleet)
    shown = render.budget(fleet.state, fleet.state.budgets["a"], now=fleet.now).status.conditions
    assert [mark.type for mark in shown] == ["OverBudget"]
    fleet.handle(SetPolicy(Policy()))
    assert resolved(fleet), "and gives way as soon as that is the policy"


def test_lending_less_or_to_others_cuts_nothing() -> None:
    fleet = Fleet(*nodes("n", 2), budget("b", envelope("main", 16, lends_to=["org:a"], lends=16)),
                  budget("a", envelope("main", 8)), secret="x")  # fmt: skip
    fleet.start(run("x", 16, owner="org:a", sponsors=["org:b"]))
    change(fleet, "b", lending=None)
    fleet.later("1d")
    assert fleet.phase("lab/x") == "Running"
    assert not resolved(fleet)


def lend(fleet: Fleet, hours: int) -> None:
    change(fleet, "b", lending=Lending(allow=True, to=("org:a",), max_gpu_hours=hours))


def test_lent_hours_that_run_out_are_told_ahead_and_told_again_of_another_limit() -> None:
    fleet = Fleet(*nodes("n", 2), budget("b", envelope("main", 16, lends_to=["org:a"])), secret="x")
    lend(fleet, 8)
    fleet.start(run("x", 8, owner="org:a", sponsors=["org:b"]), run("own", 8, owner="org:b"))
    fleet.later("50m")
    lend(fleet, 16)
    fleet.later("1h9m")
    first = ["LendingExhaustsSoon", "LendingNotice"]  # 45 and 48 minutes after the start
    said = [*first, "LendingNotice", "LendingExhaustsSoon", "LendingNotice"]  # 96, 105 and 108
    assert [note.reason for note in fleet.notes("BudgetNotice")] == said
    shares = [note.message for note in fleet.notes("BudgetNotice") if note.reason == "LendingNotice"]
    assert shares == [
        "b/main has lent 80 % of the 8 GPU-hours that it may lend.",
        "b/main has lent 80 % of the 16 GPU-hours that it may lend.",
        "b/main has lent 90 % of the 16 GPU-hours that it may lend.",
    ]
    assert not resolved(fleet)
    fleet.later("1m")
    leave_all(fleet)
    assert [note.reason for note in fleet.notes("BudgetNotice")] == [*said, "LendingExhausted"]
    assert (fleet.phase("lab/x"), fleet.phase("lab/own")) == ("Failed", "Running")


def test_to_lend_fewer_hours_than_were_lent_cuts_nothing() -> None:
    fleet = Fleet(*nodes("n", 1), budget("b", envelope("main", 8, lends_to=["org:a"])), secret="x")
    lend(fleet, 16)
    fleet.start(run("x", 8, owner="org:a", sponsors=["org:b"]))
    fleet.later("1h30m")
    lend(fleet, 8)
    fleet.later("1d")
    assert fleet.phase("lab/x") == "Running"
    assert not resolved(fleet)


def test_another_selector_cuts_nothing() -> None:
    fleet = Fleet(*nodes("n", 2), budget("a", envelope("main", 16)), secret="x")
    fleet.start(run("x", 16, owner="org:a"))
    change(fleet, "a", selector={"region": "us-east"})
    fleet.later("1d")
    assert fleet.phase("lab/x") == "Running"


# --- handing over ---------------------------------------------------------------------------------------------------


def test_what_is_too_much_is_handed_to_others_and_pods_notice_nothing() -> None:
    fleet = Fleet(node("n0"), budget("a", envelope("first", 8), envelope("second", 3)), secret="x")
    fleet.start(run("x", 8, owner="org:a"))
    pods = fleet.pods("lab/x")
    lower(fleet, "a", 5)
    fleet.later("15m")
    assert fleet.payers("lab/x") == {"a/first": 5, "a/second": 3}
    assert sorted((one.envelope, one.gpus, one.reason) for one in fleet.leases("lab/x")) == [
        ("first", (0, 1, 2, 3, 4), "Refund"), ("second", (5, 6, 7), "Refund"),
    ]  # fmt: skip
    assert closures(fleet) == {"x-a1-g00-n0-0": "Refund"}
    assert fleet.pods("lab/x") == pods
    assert [note.reason for note in fleet.notes("BudgetNotice")] == ["Lowered", "HandedOver"]
    assert [(one.deficit, one.cuts) for one in resolved(fleet)] == [(3, ())]
    fleet.audit()


def test_only_what_cover_allows_for_that_run_takes_over() -> None:
    fleet = Fleet(
        node("n0"),
        budget("a", envelope("main", 8)),
        budget("sib", envelope("shut", 8, sharing="None"), owner="org:sib", parents=["org:p"]),
        budget("far", envelope("east", 8, selector={"region": "us-east"}), owner="org:a"),
        budget("old", envelope("over", 8, end="10m"), owner="org:a"),
        budget("rich", envelope("main", 8, lends_to=["org:other"])),
        secret="x",
    )
    fleet.start(run("x", 8, owner="org:a", sponsors=["org:rich"]))
    fleet.delete("Budget", "a")
    fleet.later("15m")
    leave_all(fleet)
    assert closures(fleet) == {"x-a1-g00-n0-0": "RandomPreempt"}


def test_a_hand_over_respects_what_the_run_may_borrow() -> None:
    fleet = Fleet(node("n0"), budget("a", envelope("main", 8)), budget("b", envelope("main", 8, lends_to=["org:a"])),
                  secret="x")  # fmt: skip
    fleet.start(run("x", 8, owner="org:a", sponsors=["org:b"], max_borrow=3))
    fleet.later("20m")
    lower(fleet, "a", 5)
    fleet.later("15m")
    assert fleet.payers("lab/x") == {"a/main": 5, "b/main": 3}
    assert {one.funding for one in fleet.leases("lab/x") if one.budget == "b"} == {"borrowed"}
    fleet.audit()


@pytest.mark.parametrize("first", ["elder", "younger"])
def test_who_was_let_past_others_takes_over_nothing_that_these_were_promised(first: str) -> None:
    """elder waits for all of a's money, which is free at 2h; younger works on what b lends. At 1h b lends no more: half
    of a's money is free then, and younger may have it if it was there before elder."""
    fleet = Fleet(*nodes("n", 3), budget("a", envelope("main", 8)),
                  budget("b", envelope("main", 4, lends_to=["org:a"])), secret="x")  # fmt: skip
    fleet.start(run("busy", 4, owner="org:a", lasts="2h"), run("brief", 4, owner="org:a", lasts="1h"))
    elder = run("elder", 8, owner="org:a", lasts="1h")
    if first == "elder":
        fleet.apply(elder)
    fleet.start(run("younger", 4, owner="org:a", sponsors=["org:b"], lasts="8h"))
    if first == "younger":
        fleet.apply(elder)
    fleet.later("1h")
    fleet.succeed("lab/brief")
    assert fleet.state.reservations["lab/elder"].plan.start == at("2h")
    fleet.delete("Budget", "b")
    fleet.later("15m")
    leave_all(fleet)
    fleet.later("45m")
    fleet.succeed("lab/busy")
    assert fleet.phase("lab/younger") == ("Failed" if first == "elder" else "Running")
    paid = {one.run: (one.budget, len(one.gpus)) for one in fleet.leases()}
    assert paid == ({"elder": ("a", 8)} if first == "elder" else {"younger": ("a", 4)})
    fleet.audit(settled=False)


def test_what_grew_after_a_promise_takes_over_nothing_of_it() -> None:
    """x runs on what b lends, and grows there after elder was promised all of a's money. When b lends no more, half of
    a's money is free: the part of x that was there before elder has it, and the other goes."""
    fleet = Fleet(*nodes("n", 3), budget("a", envelope("main", 8)),
                  budget("b", envelope("main", 8, lends_to=["org:a"])), secret="x")  # fmt: skip
    fleet.start(run("busy", 4, owner="org:a", lasts="2h"), run("brief", 4, owner="org:a", lasts="1h"))
    fleet.start(run("x", 4, owner="org:a", sponsors=["org:b"], elastic=elastic(4, 8, 4, desired=4)))
    fleet.apply(run("elder", 8, owner="org:a", lasts="1h"))
    fleet.resize("lab/x", 8)
    fleet.later("1h")
    fleet.bind("lab/x")
    fleet.succeed("lab/brief")
    assert fleet.payers("lab/x") == {"b/main": 8}
    fleet.delete("Budget", "b")
    fleet.later("15m")
    leave_all(fleet)
    assert [(one.group, one.budget, len(one.gpus)) for one in fleet.leases("lab/x")] == [(0, "a", 4)]
    fleet.audit(settled=False)


def test_the_newest_leases_are_handed_over_first() -> None:
    fleet = Fleet(*nodes("n", 2), budget("a", envelope("first", 16), envelope("second", 8, start="30m")), secret="x")
    fleet.start(run("older", 8, owner="org:a"))
    fleet.later("5m")
    fleet.start(run("newer", 8, owner="org:a"))
    fleet.later("25m")
    lower(fleet, "a", 8)
    fleet.later("15m")
    assert (fleet.payers("lab/older"), fleet.payers("lab/newer")) == ({"a/first": 8}, {"a/second": 8})
    fleet.audit()


def test_spares_and_their_guests_change_hands_where_they_are() -> None:
    fleet = Fleet(*nodes("n", 2), budget("a", envelope("first", 16), envelope("second", 16, start="30m")),
                  budget("g", envelope("main", 8)), secret="x")  # fmt: skip
    fleet.start(run("x", 8, owner="org:a", group=8, spares=8))
    fleet.start(run("guest", 8, owner="org:g", opportunistic=True))
    fleet.later("30m")
    lower(fleet, "a", 4)
    fleet.later("15m")
    assert fleet.payers("lab/x") == {"a/first": 4, "a/second": 12}
    assert [(one.role, len(one.gpus)) for one in fleet.leases("lab/guest")] == [("Borrowed", 8)]
    fleet.audit()


# --- cutting --------------------------------------------------------------------------------------------------------


def test_spares_go_before_groups_and_groups_before_runs() -> None:
    fleet = Fleet(*nodes("n", 8), budget("a", envelope("main", 64)), secret="x")
    fleet.start(
        run("guarded", 8, owner="org:a", group=8, spares=4), run("wide", 24, owner="org:a", elastic=elastic(8, 24, 8))
    )
    fleet.start(run("fixed", 16, owner="org:a"))
    fleet.later("20m")
    lower(fleet, "a", 20)
    fleet.later("15m")
    leave_all(fleet)
    (one,) = resolved(fleet)
    assert [cut.kind for cut in one.cuts][:3] == ["DropSpare", "Shrink", "Shrink"]
    assert {cut.kind for cut in one.cuts[3:]} == {"Lottery"}
    assert fleet.headroom("a").used <= 20
    assert one.intent is not None
    assert one.result is not None
    assert verify(one.intent, one.result) == []
    assert [token.id for token in one.intent.tokens] == ["lab/fixed", "lab/guarded", "lab/wide"]
    assert one.intent.reservation.name == "a/main"
    drawn = [cut.run for cut in one.cuts if cut.kind == "Lottery"]
    assert drawn == list(one.result.order[: len(drawn)]), "the shortest prefix of what was drawn"
    fleet.later("1h")
    fleet.audit()


def test_group_ten_gives_way_before_group_nine() -> None:
    fleet = Fleet(*nodes("n", 11), budget("a", envelope("main", 88)))
    fleet.start(run("x", 88, owner="org:a", elastic=elastic(8, 88, 8)))
    lower(fleet, "a", 80)
    fleet.later("15m")
    leave_all(fleet)
    assert sorted({lease.group for lease in fleet.leases("lab/x")}) == list(range(10))
    lower(fleet, "a", 72)
    fleet.later("15m")
    leave_all(fleet)
    assert sorted({lease.group for lease in fleet.leases("lab/x")}) == list(range(9))
    assert [one.activation for one in resolved(fleet)] == [1, 2]
    fleet.audit()


def test_nobody_is_cut_for_the_shortage_of_others() -> None:
    fleet = Fleet(*nodes("n", 4), budget("a", envelope("main", 16)), budget("b", envelope("main", 16)), secret="x")
    fleet.start(run("mine", 16, owner="org:a", group=8), run("theirs", 16, owner="org:b", elastic=elastic(8, 16, 8)))
    fleet.later("20m")
    lower(fleet, "a", 8)
    fleet.later("15m")
    leave_all(fleet)
    assert fleet.phase("lab/mine") == "Failed", "a fixed gang goes whole"
    assert fleet.phase("lab/theirs") == "Running"
    assert len(fleet.leases("lab/theirs")) == 2
    fleet.audit()


def test_a_cap_that_is_lowered_cuts_among_its_envelopes() -> None:
    fleet = Fleet(*nodes("n", 4), budget("a", envelope("w", 8), envelope("v", 8), envelope("free", 8),
                                         caps=[cap("all", ["w", "v"], gpus=16)]), secret="x")  # fmt: skip
    fleet.start(run("x", 24, owner="org:a", elastic=elastic(8, 24, 8)))
    item = fleet.state.budgets["a"]
    less = msgspec.structs.replace(item.spec, aggregate_caps=(cap("all", ["w", "v"], gpus=8),))
    fleet.apply(msgspec.structs.replace(item, spec=less))
    fleet.later("15m")
    leave_all(fleet)
    assert resolved(fleet)[0].subject == "Budget/a/all"
    assert sum(gpus for name, gpus in fleet.payers("lab/x").items() if name != "a/free") <= 8
    fleet.audit()


def test_what_was_cut_is_not_cut_again_while_it_leaves() -> None:
    fleet = Fleet(*nodes("n", 4), budget("a", envelope("main", 32)), secret="x")
    fleet.start(run("x", 16, owner="org:a"), run("y", 8, owner="org:a"), run("z", 8, owner="org:a"))
    fleet.later("20m")
    lower(fleet, "a", 31)
    fleet.later("15m")
    count = len(fleet.entries)
    for _ in range(5):
        fleet.later("1m")
    assert len(fleet.entries) == count, "its pods take their time; nobody else goes for it"
    assert sum(len(one.cuts) for one in resolved(fleet)) == 1
    fleet.audit()


def test_a_cut_run_whose_pod_fails_while_it_leaves_is_over_once() -> None:
    fleet = Fleet(node("n0"), budget("a", envelope(hours=8)), secret="x")
    fleet.start(run("x", 8, owner="org:a", restarts=3))
    fleet.later("1h")
    fleet.report("Failed", "lab/x-a1-0", code=137)
    leave_all(fleet)
    assert fleet.phase("lab/x") == "Failed"
    assert fleet.run("lab/x").status.restarts == 0
    fleet.audit()


def test_who_has_not_run_for_the_lead_goes_when_it_has() -> None:
    fleet = Fleet(*nodes("n", 2), budget("a", envelope(hours=9)), policy=Policy(lookahead="1m"), secret="x")
    fleet.start(run("old", 8, owner="org:a"))
    fleet.later("1h")
    fleet.start(run("new", 1, owner="org:a"))
    fleet.until(fleet.state.books.funds["a", "main"].exhausts())
    leave_all(fleet)
    assert (fleet.phase("lab/old"), fleet.phase("lab/new")) == ("Failed", "Running")
    fleet.until(at("1h15m"))
    leave_all(fleet)
    assert fleet.phase("lab/new") == "Failed"
    fleet.audit()


def test_who_has_not_run_for_the_lead_goes_when_it_has_also_after_a_restart() -> None:
    fleet = Fleet(*nodes("n", 2), budget("a", envelope(hours=9)), policy=Policy(lookahead="1m"), secret="x")
    fleet.start(run("old", 8, owner="org:a"))
    fleet.later("1h")
    fleet.start(run("new", 1, owner="org:a"))
    fleet.until(fleet.state.books.funds["a", "main"].exhausts())
    leave_all(fleet)
    twin = load(dump(fleet.state))
    froze = []
    while (wake := next_wake(twin)) is not None and wake <= at("1h15m"):
        froze += [fact for fact in step(twin, Tick(), now=max(wake, twin.now)).facts if isinstance(fact, Froze)]
    assert [(fact.intent.at, [token.id for token in fact.intent.tokens]) for fact in froze] == [
        ("2025-11-01T01:15:00Z", ["lab/new"])
    ]


# --- draws ----------------------------------------------------------------------------------------------------------


def test_without_a_custodian_nobody_is_drawn_and_that_is_said_once() -> None:
    fleet = Fleet(*nodes("n", 2), budget("a", envelope("main", 16)))
    fleet.start(run("x", 8, owner="org:a"), run("y", 8, owner="org:a"))
    fleet.later("20m")
    lower(fleet, "a", 8)
    fleet.later("1d")
    assert [note.reason for note in fleet.notes("Draw")] == ["NoCustodian"]
    assert "tenure" not in fleet.notes("Draw")[0].message
    assert fleet.headroom("a").used == 16
    fleet.audit()
    custodian = SimulatedCustodian("late")
    fleet.handle(Publish(custodian.beacon, custodian.root))
    fleet.reveal(custodian)
    leave_all(fleet)
    assert fleet.headroom("a").used == 8
    fleet.audit()


def test_a_reveal_that_does_not_fit_changes_nothing() -> None:
    custodian = SimulatedCustodian("mine")
    fleet = Fleet(*nodes("n", 2), budget("a", envelope("main", 16)))
    fleet.handle(Publish(custodian.beacon, custodian.root))
    fleet.start(run("x", 8, owner="org:a"), run("y", 8, owner="org:a"))
    fleet.later("20m")
    lower(fleet, "a", 8)
    fleet.later("15m")
    (subject,) = fleet.state.draws
    count = len(fleet.entries)
    for value in ("", "zz", "0" * 64, SimulatedCustodian("other").answer(fleet.state.draws[subject].intent) or ""):
        assert not fleet.handle(Reveal(subject, {custodian.beacon: value})).facts
    assert not fleet.handle(Reveal("Budget/nobody/main", {custodian.beacon: "0" * 64})).facts
    assert len(fleet.entries) == count
    fleet.later("3h")
    assert len(fleet.entries) == count, "a missing reveal delays"
    fleet.reveal(custodian)
    assert len(resolved(fleet)) == 1
    fleet.reveal(custodian)
    assert len(resolved(fleet)) == 1, "never drawn twice"


def test_a_draw_repeats_after_a_crash_between_freeze_and_result() -> None:
    custodian = SimulatedCustodian("mine")
    fleet = Fleet(*nodes("n", 4), budget("a", envelope("main", 32)))
    fleet.handle(Publish(custodian.beacon, custodian.root))
    fleet.start(*(run(name, 8, owner="org:a") for name in "wxyz"))
    fleet.later("20m")
    lower(fleet, "a", 16)
    fleet.later("15m")
    ((subject, froze),) = fleet.state.draws.items()
    reveal = Reveal(subject, {custodian.beacon: custodian.answer(froze.intent) or ""})
    facts = [step(load(dump(fleet.state)), reveal, now=fleet.now).facts for _ in range(2)]
    assert facts[0] == facts[1]
    assert sum(isinstance(fact, Ending) for fact in facts[0]) == 2


def test_the_intent_names_the_head_of_the_ledger_before_it() -> None:
    fleet = Fleet(*nodes("n", 2), budget("a", envelope("main", 16)), secret="x")
    fleet.start(run("x", 8, owner="org:a"), run("y", 8, owner="org:a"))
    fleet.later("20m")
    lower(fleet, "a", 8)
    fleet.later("15m")
    entry, froze = next((entry, fact) for entry in fleet.entries for fact in entry.facts if isinstance(fact, Froze))
    assert froze.intent.ledger_head == entry.prev
    assert froze.intent.at == "2025-11-01T00:35:00Z"


def test_a_shortage_that_is_over_before_the_reveal_spends_the_index_and_cuts_nobody() -> None:
    custodian = SimulatedCustodian("mine")
    fleet = Fleet(*nodes("n", 2), budget("a", envelope("main", 16)))
    fleet.handle(Publish(custodian.beacon, custodian.root))
    fleet.start(run("x", 8, owner="org:a"), run("y", 8, owner="org:a"))
    fleet.later("20m")
    lower(fleet, "a", 8)
    fleet.later("15m")
    lower(fleet, "a", 16)
    fleet.reveal(custodian)
    assert [(one.cuts, one.result is not None) for one in resolved(fleet)] == [((), True)]
    assert fleet.state.beacons[custodian.beacon][0] == 1
    assert fleet.headroom("a").used == 16
    fleet.audit()


def test_two_shortages_are_drawn_one_after_the_other() -> None:
    fleet = Fleet(*nodes("n", 4), budget("a", envelope("main", 16)), budget("b", envelope("main", 16)), secret="x")
    for owner in "ab":
        fleet.start(run(f"{owner}1", 8, owner=f"org:{owner}"), run(f"{owner}2", 8, owner=f"org:{owner}"))
    fleet.later("20m")
    lower(fleet, "a", 8)
    lower(fleet, "b", 8)
    fleet.later("15m")
    leave_all(fleet)
    intents = [one.intent for one in resolved(fleet)]
    assert [(one.reservation.name, one.beacons[0].index) for one in intents if one] == [("a/main", 1), ("b/main", 2)]
    assert (fleet.headroom("a").used, fleet.headroom("b").used) == (8, 8)
    fleet.audit()


def test_a_chain_that_is_begun_anew_voids_the_draw_that_waits_for_the_old_one() -> None:
    lost, new = SimulatedCustodian("lost"), SimulatedCustodian("new")
    fleet = Fleet(*nodes("n", 2), budget("a", envelope("main", 16)))
    fleet.handle(Publish(lost.beacon, lost.root))
    fleet.start(run("x", 8, owner="org:a"), run("y", 8, owner="org:a"))
    fleet.later("20m")
    lower(fleet, "a", 8)
    fleet.later("15m")
    fleet.handle(Publish(new.beacon, new.root))
    fleet.reveal(new)
    leave_all(fleet)
    assert fleet.headroom("a").used == 8
    assert sum(isinstance(fact, Froze) for fact in fleet.facts) == 2
    fleet.audit()


@pytest.mark.parametrize("requeue", [True, False])
def test_a_drawn_run_fails_or_is_queued_again_as_it_asked(requeue: bool) -> None:
    fleet = Fleet(node("n0"), budget("a", envelope(hours=8)), secret="x")
    fleet.start(run("x", 8, owner="org:a", on_preemption="Requeue" if requeue else "Fail"))
    fleet.later("1h")
    leave_all(fleet)
    assert fleet.phase("lab/x") == ("Pending" if requeue else "Failed")
    (seed,) = {one.result.seed for one in resolved(fleet) if one.result}
    assert {one.reason for one in fleet.closed().values()} == {f"RandomPreempt({seed})"}
    assert [note.reason for note in fleet.notes("Cut")] == ["CutByLottery"]
