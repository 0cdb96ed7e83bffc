"""I2: limits hold at every instant, and what excuses a breach."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tenure.api.budget import AggregateCap, Budget, Lending, PreActivation
from tenure.api.policy import Policy
from tenure.api.run import Funding, Run
from tenure.audit import Auditor, Violation, check_all
from tenure.facts import Opened, PutBudget, PutPolicy, PutRun, Removed, Warned
from tenure.units import HOUR, MINUTE, Instant
from tests.audit.builders import (
    MM,
    SYS,
    T0,
    History,
    budget,
    cap,
    envelope,
    lease,
    lends,
    node,
    pod,
    run,
    time,
)

JOB = run("job", 8)
LOAN = ("vision", MM, "borrowed")
BORROWER = run("job", 8, funding=Funding(allow_borrow=True, sponsors=(MM,)))


def sys(*, caps: tuple[AggregateCap, ...] = (), **limits: Any) -> Budget:
    return budget("sys", SYS, envelope(**limits), caps=caps)


def vision(**lending: Any) -> Budget:
    return budget("vision", MM, envelope(lending=lends("*", **lending)))


def running(*budgets: Budget, of: Run = JOB, policy: Policy | None = None, **paid: Any) -> History:
    """A run of 8 GPUs since the beginning, paid by what is given."""
    history = History().fleet(node("a-0"), node("a-1")).budgets(*budgets)
    history.add(PutPolicy(policy=policy or Policy(lookahead="0s")))
    return history.started(of, [lease(of, "a-0:0-7", at=T0, **paid)], [pod(of, "a-0:0-7", rank=0)])


def breaches(history: History, *, now: Instant) -> list[Violation]:
    return [item for item in check_all(history.entries, now=now) if item.invariant == "I2-limits"]


def second(history: History, where: str = "a-1:0-0", **other: Any) -> History:
    """One GPU more, for another run."""
    more = run("more", 1)
    return history.started(more, [lease(more, where, at=history.now, **other)], [pod(more, where, rank=0)])


# --- the passing of time ------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("budgets", "job", "paid"),
    [
        ([sys(max_gpu_hours=8)], JOB, {}),
        ([sys(caps=(cap("all", "west", max_gpu_hours=8),))], JOB, {}),
        ([vision(max_gpu_hours=8)], BORROWER, {"paid": LOAN}),
        ([sys(end="2025-11-01T01:00:00Z")], JOB, {}),
    ],
    ids=["hours of an envelope", "hours of a cap", "hours of lending", "end of a window"],
)
def test_a_limit_is_exceeded_one_microsecond_after_it_is_reached(
    budgets: list[Budget], job: Run, paid: dict[str, Any]
) -> None:
    history = running(*budgets, of=job, **paid)
    assert breaches(history, now=time("1h")) == []
    assert len(breaches(history, now=time("1h") + 1)) == 1
    # An entry long after it finds the crossing where it was, and says so once.
    history.at("5h").add().add()
    found = [item for entry in _fed(history) for item in entry]
    assert [(item.invariant, item.at) for item in found] == [("I2-limits", time("1h") + 1)]


def _fed(history: History) -> list[list[Violation]]:
    auditor = Auditor()
    return [auditor.feed(entry) for entry in history.entries]


@given(gpus=st.integers(1, 8), hours=st.integers(1, 3), later=st.integers(0, 200), more=st.integers(0, 8))
def test_the_crossing_follows_every_change_of_rate(gpus: int, hours: int, later: int, more: int) -> None:
    first, other = run("first", gpus), run("other", max(more, 1))
    history = History().fleet(node("a-0"), node("a-1")).budgets(sys(max_gpu_hours=hours))
    history.add(PutPolicy(policy=Policy(lookahead="0s")))
    where = f"a-0:0-{gpus - 1}"
    history.started(first, [lease(first, where, at=T0)], [pod(first, where, rank=0)])
    then, bound = T0 + later * MINUTE, hours * HOUR
    rate = gpus
    if more and gpus * later * MINUTE < bound:
        history.now = then
        where = f"a-1:0-{more - 1}"
        history.started(other, [lease(other, where, at=then)], [pod(other, where, rank=0)])
        bound -= gpus * (then - T0)
        rate = gpus + more
    else:
        then = T0
    last = then + bound // rate
    assert breaches(history, now=last) == []
    assert breaches(history, now=last + 1) != []


def test_pods_that_ended_before_anybody_told_stop_the_clock_when_they_ended() -> None:
    history = running(sys(max_gpu_hours=8)).at("61m")
    on_time = history.stop("job", "Completed").gone("job", "Completed", "Completed", end=time("1h"))
    found = [item for entry in _fed(on_time) for item in entry]
    # The stop was decided a minute late, when the hours had run out by all that was known.
    assert [item.invariant for item in found] == ["I2-limits"]
    told_at_once = running(sys(max_gpu_hours=8)).at("61m")
    told_at_once.gone("job", "Completed", "Completed", end=time("1h"))
    assert breaches(told_at_once, now=time("2h")) == []
    too_late = running(sys(max_gpu_hours=8)).at("61m")
    too_late.gone("job", "Completed", "Completed", end=time("1h") + 1)
    assert [item.at for item in breaches(too_late, now=time("2h"))] == [time("1h") + 1]


def test_an_end_told_several_entries_late_takes_back_what_ran_on() -> None:
    history = running(sys(max_gpu_hours=8)).at("59m").add().at("61m")
    history.gone("job", "Completed", "Completed", end=time("52m"))
    assert breaches(history, now=time("2h")) == []


@pytest.mark.parametrize(("late", "broken"), [(0, False), (1, True)])
def test_a_window_that_was_left_in_time_is_not_exceeded_by_news_of_it(late: int, broken: bool) -> None:
    history = running(sys(end="2025-11-01T01:00:00Z")).at("2h")
    history.gone("job", "Completed", "Completed", end=time("1h") + late)
    assert (breaches(history, now=time("2h")) != []) is broken


# --- excuses ------------------------------------------------------------------------------------------------


def exhausted(name: str = "west") -> Warned:
    return Warned(budget="sys", envelope=name, mark="exhausted")


def test_a_notice_at_the_crossing_excuses_it() -> None:
    history = running(sys(max_gpu_hours=8)).at("1h").add(exhausted())
    assert breaches(history, now=time("2h")) == []
    assert breaches(history.at("3h").add(), now=time("3h")) == []


def test_a_notice_at_the_first_microsecond_beyond_still_excuses() -> None:
    history = running(sys(max_gpu_hours=8)).add(exhausted(), at=time("1h") + 1)
    assert breaches(history, now=time("2h")) == []


def test_a_notice_in_the_first_entry_after_the_crossing_excuses_it_a_later_one_does_not() -> None:
    late = running(sys(max_gpu_hours=8)).at("1h")
    late.add(exhausted(), at=time("1h") + 2)
    assert breaches(late, now=time("2h")) == []
    later = running(sys(max_gpu_hours=8)).at("1h")
    later.add(Warned(budget="sys", envelope="west", mark="90"), at=time("1h") + 2)
    later.add(exhausted(), at=time("1h") + 3)
    assert next(item.at for item in breaches(later, now=time("2h"))) == time("1h") + 1


def test_a_notice_for_another_mark_does_not_excuse() -> None:
    history = running(sys(max_gpu_hours=8)).at("30m").add(Warned(budget="sys", envelope="west", mark="90"))
    assert breaches(history, now=time("2h")) != []


@pytest.mark.parametrize(("mark", "excused"), [("window", True), ("exhausted", True), ("soon", False)])
def test_a_notice_that_the_window_is_over_excuses_its_end(mark: str, excused: bool) -> None:
    history = running(sys(end="2025-11-01T01:00:00Z")).at("1h")
    history.add(Warned(budget="sys", envelope="west", mark=mark))
    assert (breaches(history, now=time("2h")) == []) is excused


def test_the_end_of_a_window_does_not_excuse_more_hours() -> None:
    history = running(sys(end="2025-11-01T01:00:00Z", max_gpu_hours=8)).at("1h")
    history.add(Warned(budget="sys", envelope="west", mark="window"))
    assert [item.message for item in breaches(history, now=time("2h"))] == [
        "envelope west exceeds its limit (GPU-microseconds)"
    ]


@pytest.mark.parametrize("name", ["west", "all"])
def test_a_notice_for_a_cap_or_one_of_its_envelopes_excuses_the_cap(name: str) -> None:
    history = running(sys(caps=(cap("all", "west", max_gpu_hours=8),))).at("1h").add(exhausted(name))
    assert breaches(history, now=time("2h")) == []


def test_coast_lets_work_run_on_and_admits_nothing_more() -> None:
    coast = Policy(on_budget_shortage="Coast", lookahead="0s")
    history = running(sys(max_gpu_hours=8), policy=coast).at("2h").add()
    assert breaches(history, now=time("3h")) == []
    assert breaches(second(history), now=time("3h")) != []


def test_what_coasted_stays_excused_when_the_policy_changes() -> None:
    coast = Policy(on_budget_shortage="Coast", lookahead="0s")
    history = running(sys(max_gpu_hours=8), policy=coast).at("2h").add(PutPolicy(policy=Policy()))
    assert breaches(history, now=time("3h")) == []


@pytest.mark.parametrize(
    "lowered",
    [
        sys(concurrency=4),
        sys(max_gpu_hours=1),
        sys(end="2025-11-01T00:30:00Z"),
        sys(caps=(cap("all", "west", max_concurrency=4, max_gpu_hours=1),)),
    ],
    ids=["concurrency", "hours", "window", "cap"],
)
def test_a_limit_lowered_below_use_is_excused(lowered: Budget) -> None:
    history = running(sys()).at("1h").add(PutBudget(object=lowered))
    assert breaches(history, now=time("9h")) == []


def test_a_removed_budget_is_excused() -> None:
    history = running(sys(max_gpu_hours=100)).at("1h").add(Removed(kind="Budget", name="sys"))
    assert breaches(history, now=time("99h")) == []


def test_a_lowered_lending_cap_cuts_nothing() -> None:
    history = running(vision(max_concurrency=8), of=BORROWER, paid=LOAN).at("1h")
    history.add(PutBudget(object=vision(max_concurrency=1, max_gpu_hours=1)))
    assert breaches(history, now=time("9h")) == []


def test_use_above_a_lowered_limit_may_only_fall() -> None:
    history = running(sys()).at("1h").add(PutBudget(object=sys(concurrency=4)))
    assert breaches(second(history), now=time("1h")) != []


def test_the_excuse_ends_when_the_limit_holds_again() -> None:
    history = running(sys()).at("1h").add(PutBudget(object=sys(concurrency=4)))
    history.at("2h").finish("job")
    big = run("big", 5)
    history.started(big, [lease(big, "a-0:0-4", at=history.now)], [pod(big, "a-0:0-4", rank=0)])
    assert [item.found for item in breaches(history, now=time("2h"))] == [5, 5]


def test_an_edit_that_lowers_nothing_excuses_nothing() -> None:
    history = running(sys(concurrency=4)).at("1h").add(PutBudget(object=sys(concurrency=4, sharing="None")))
    assert [item.at for item in breaches(history, now=time("2h"))] == [T0, time("2h")]


def test_raising_the_hours_moves_the_crossing() -> None:
    history = running(sys(max_gpu_hours=8)).at("30m").add(PutBudget(object=sys(max_gpu_hours=16)))
    assert breaches(history, now=time("2h")) == []
    assert breaches(history, now=time("2h") + 1) != []


# --- accounts -----------------------------------------------------------------------------------------------


def test_a_new_window_begins_a_new_account_and_an_old_one_resumes() -> None:
    bounded: dict[str, Any] = {"max_gpu_hours": 8, "end": "2025-12-01T00:00:00Z"}
    history = running(sys(max_gpu_hours=8)).at("30m").add(PutBudget(object=sys(**bounded)))
    assert breaches(history, now=time("90m")) == []
    history.at("80m").add(PutBudget(object=sys(max_gpu_hours=8)))
    assert breaches(history, now=time("110m")) == []
    assert breaches(history, now=time("110m") + 1) != []


def test_use_before_the_window_counts_in_it() -> None:
    early: dict[str, Any] = {
        "start": "2025-11-01T00:30:00Z",
        "pre_activation": PreActivation(allow_admission=True),
    }
    history = running(sys(max_gpu_hours=8, **early))
    assert breaches(history, now=time("1h")) == []
    assert breaches(history, now=time("1h") + 1) != []


def test_only_what_was_lent_counts_against_the_lending_cap() -> None:
    bank = budget("sys", SYS, envelope(lending=Lending(allow=True, to=("*",), max_concurrency=1, max_gpu_hours=1)))
    assert breaches(running(bank), now=time("9h")) == []


def test_a_cap_adds_up_its_envelopes() -> None:
    two = budget("sys", SYS, envelope("west"), envelope("east"), caps=[cap("all", "west", "east", max_concurrency=8)])
    history = running(two)
    assert breaches(history, now=time("1h")) == []
    assert [item.found for item in breaches(second(history, envelope="east"), now=time("1h"))] == [9, 9]


# --- claims -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("hours", "fits"), [(48, True), (47, False)])
def test_a_declared_claim_needs_hours_for_all_of_it(hours: int, fits: bool) -> None:
    history = running(sys(max_gpu_hours=hours), of=run("job", 8, duration="6h"))
    assert (breaches(history, now=T0) == []) is fits


@pytest.mark.parametrize(("hours", "fits"), [(16, True), (15, False)])
def test_an_undeclared_claim_needs_hours_for_one_look_ahead(hours: int, fits: bool) -> None:
    history = running(sys(max_gpu_hours=hours), policy=Policy(lookahead="2h"))
    assert (breaches(history, now=T0) == []) is fits


@pytest.mark.parametrize(("hours", "fits"), [(50, True), (49, False)])
def test_what_others_were_promised_is_not_left(hours: int, fits: bool) -> None:
    history = running(sys(max_gpu_hours=hours), of=run("job", 8, duration="6h"), policy=Policy(lookahead="2h"))
    assert (breaches(second(history), now=T0) == []) is fits


def test_what_was_decided_to_stop_is_promised_nothing() -> None:
    history = running(sys(max_gpu_hours=50), of=run("job", 8, duration="6h"), policy=Policy(lookahead="10h")).at("1h")
    assert breaches(second(history), now=time("1h")) != []
    history = running(sys(max_gpu_hours=50), of=run("job", 8, duration="6h"), policy=Policy(lookahead="10h")).at("1h")
    assert breaches(second(history.stop("job", "Canceled")), now=time("1h")) == []


# --- maxBorrowGPUs ------------------------------------------------------------------------------------------


def borrower(bound: int | None) -> Run:
    return run("job", 8, funding=Funding(allow_borrow=True, sponsors=(MM,), max_borrow_gpus=bound))


@pytest.mark.parametrize(("bound", "fits"), [(None, True), (8, True), (7, False), (0, False)])
def test_a_run_borrows_at_most_max_borrow_gpus(bound: int | None, fits: bool) -> None:
    history = running(vision(), of=borrower(bound), paid=LOAN)
    assert (breaches(history, now=T0) == []) is fits


def test_lowering_max_borrow_gpus_cuts_nothing_and_lets_nothing_in() -> None:
    history = running(vision(), of=borrower(8), paid=LOAN).at("1h").add(PutRun(object=borrower(4)))
    assert breaches(history, now=time("2h")) == []
    more = lease(borrower(4), "a-1:0-0", at=history.now, group=1, paid=LOAN, reason="Grow")
    assert breaches(history.add(Opened(lease=more)), now=time("2h")) != []
