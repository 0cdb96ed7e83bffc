"""I2: limits hold at every instant, and what excuses a breach."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from tenure.api.budget import AggregateCap, Budget, Lending, PreActivation
from tenure.api.policy import Policy
from tenure.api.run import Funding, Run
from tenure.audit import LATE, Auditor, Violation, check_all
from tenure.draw import Token
from tenure.facts import Closed, Froze, Lease, Opened, PutBudget, PutPolicy, PutRun, Removed, Resolved, Warned
from tenure.units import HOUR, MINUTE, Instant
from tests.audit import drawing
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


def due(offset: str) -> Instant:
    """The last instant at which what is above a limit, reached at this offset, may be asked to end."""
    return time(offset) + 1 + LATE


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
def test_a_limit_is_exceeded_one_microsecond_after_it_is_reached_and_due_a_moment_later(
    budgets: list[Budget], job: Run, paid: dict[str, Any]
) -> None:
    history = running(*budgets, of=job, **paid)
    assert breaches(history, now=due("1h")) == []
    assert len(breaches(history, now=due("1h") + 1)) == 1
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
    # Who has not run for the lead by then cannot be drawn yet; the first has after 15 minutes.
    due = max(last + 1, T0 + 15 * MINUTE) + LATE
    assert breaches(history, now=due) == []
    assert breaches(history, now=due + 1) != []


def test_pods_that_ended_before_anybody_told_stop_the_clock_when_they_ended() -> None:
    late = running(sys(max_gpu_hours=8)).at("62m")
    late.stop("job", "Completed").gone("job", "Completed", "Completed", end=time("1h"))
    found = [item for entry in _fed(late) for item in entry]
    # The stop was decided two minutes late, when the hours had run out by all that was known.
    assert [item.invariant for item in found] == ["I2-limits"]
    told_at_once = running(sys(max_gpu_hours=8)).at("62m")
    told_at_once.gone("job", "Completed", "Completed", end=due("1h"))
    assert breaches(told_at_once, now=time("2h")) == []
    too_late = running(sys(max_gpu_hours=8)).at("62m")
    too_late.gone("job", "Completed", "Completed", end=due("1h") + 1)
    assert [item.at for item in breaches(too_late, now=time("2h"))] == [time("1h") + 1]


def test_an_end_told_several_entries_late_takes_back_what_ran_on() -> None:
    history = running(sys(max_gpu_hours=8)).at("59m").add().at("61m")
    history.gone("job", "Completed", "Completed", end=time("52m"))
    assert breaches(history, now=time("2h")) == []


@pytest.mark.parametrize(("late", "broken"), [(0, False), (1, True)])
def test_a_window_that_was_left_in_time_is_not_exceeded_by_news_of_it(late: int, broken: bool) -> None:
    history = running(sys(end="2025-11-01T01:00:00Z")).at("2h")
    history.gone("job", "Completed", "Completed", end=due("1h") + late)
    assert (breaches(history, now=time("2h")) != []) is broken


# --- excuses ------------------------------------------------------------------------------------------------


def exhausted(name: str = "west") -> Warned:
    return Warned(budget="sys", envelope=name, mark="exhausted")


COAST = Policy(on_budget_shortage="Coast", lookahead="0s")


def test_who_is_asked_to_end_in_time_is_charged_until_its_pods_are_gone() -> None:
    history = running(sys(max_gpu_hours=8))
    history.now = due("1h")
    history.stop("job", "Completed")
    assert breaches(history, now=time("3h")) == []
    assert breaches(history.at("4h").gone("job", "Completed", "Completed"), now=time("5h")) == []


def test_who_is_asked_to_end_a_microsecond_too_late_is_noticed() -> None:
    history = running(sys(max_gpu_hours=8))
    history.now = due("1h") + 1
    history.stop("job", "Completed")
    assert next(item.at for item in breaches(history, now=time("3h"))) == time("1h") + 1


def test_a_notice_is_no_way_out_where_the_shortage_is_to_be_resolved() -> None:
    history = running(sys(max_gpu_hours=8)).at("1h").add(exhausted())
    assert breaches(history, now=time("2h")) != []


def test_what_is_handed_to_another_payer_in_time_is_out_of_the_way() -> None:
    both = budget("sys", SYS, envelope(max_gpu_hours=8), envelope("east"))
    for late, expected in ((0, 0), (1, 1)):
        history = running(both)
        history.now = due("1h") + late
        old = lease(JOB, "a-0:0-7", at=T0)
        moved = replace(lease(JOB, "a-0:0-7", at=history.now, envelope="east", reason="Refund"), name="job-again")
        history.add(Closed(namespace="rai", leases=(old.name,), end=history.now, reason="Refund"), Opened(lease=moved))
        assert len(breaches(history, now=time("3h"))) == expected


def test_a_handover_that_leaves_somebody_behind_is_noticed() -> None:
    other = run("other", 8)
    both = budget("sys", SYS, envelope(max_gpu_hours=8), envelope("east"))
    history = running(both)
    history.started(other, [lease(other, "a-1:0-7", at=T0)], [pod(other, "a-1:0-7", rank=0)]).at("30m")
    moved = replace(lease(JOB, "a-0:0-7", at=history.now, envelope="east", reason="Refund"), name="job-again")
    name = lease(JOB, "a-0:0-7", at=T0).name
    history.add(Closed(namespace="rai", leases=(name,), end=history.now, reason="Refund"), Opened(lease=moved))
    assert breaches(history, now=due("30m") + 1) != []


def test_what_goes_on_with_an_exhausted_payer_is_noticed() -> None:
    history = running(sys(max_gpu_hours=8)).at("1h").stop("job", "Canceled").at("2h")
    moved = replace(lease(JOB, "a-0:0-7", at=history.now, reason="Refund"), name="job-again")
    name = lease(JOB, "a-0:0-7", at=T0).name
    closed = Closed(namespace="rai", leases=(name,), end=history.now, reason="Refund")
    assert breaches(history.add(closed, Opened(lease=moved)), now=time("3h")) != []


# --- draws and leads ----------------------------------------------------------------------------------------


TOKEN = Token(id="rai/job", owner=SYS, gpus=8)


def test_nothing_is_due_while_a_draw_waits_for_its_reveals_and_it_is_a_moment_after() -> None:
    for late, expected in ((0, 0), (1, 2)):
        history = running(sys(max_gpu_hours=8)).add(*drawing.published())
        history.now = due("1h") + late
        intent = drawing.intent("sys/west", TOKEN, at=history.now)
        history.add(Froze(trigger="Shortage", intent=intent))
        history.at("9h").add()
        assert len(breaches(history, now=time("10h"))) == expected
    history = running(sys(max_gpu_hours=8)).add(*drawing.published()).at("1h")
    intent = drawing.intent("sys/west", TOKEN, at=history.now)
    history.add(Froze(trigger="Shortage", intent=intent)).at("9h")
    nothing = Resolved(
        trigger="Shortage", subject="Budget/sys/west", activation=1, intent=intent, result=drawing.result(intent)
    )
    history.add(nothing)
    assert breaches(history, now=time("9h") + LATE) == []
    assert breaches(history, now=time("9h") + LATE + 1) != []


SPARED = run("job", 4, group=4, spares=4)


@pytest.mark.parametrize(
    ("job", "leases", "last"),
    [
        (JOB, [lease(JOB, "a-0:0-7", at=T0)], time("15m") + LATE),
        (SPARED, [lease(SPARED, "a-0:0-3", at=T0), lease(SPARED, "a-1:0-3", at=T0, role="Spare")], due("7m30s")),
    ],
    ids=["a run", "a spare can be dropped at any time"],
)
def test_a_run_that_cannot_be_drawn_yet_may_go_on_until_it_can(job: Run, leases: list[Lease], last: Instant) -> None:
    """8 GPUs use up an hour in seven and a half minutes; the lead is fifteen."""
    history = History().fleet(node("a-0"), node("a-1")).budgets(sys(max_gpu_hours=1))
    history.add(PutPolicy(policy=Policy(lookahead="0s")))
    history.started(job, leases, [pod(job, "a-0:0-7" if job is JOB else "a-0:0-3", rank=0)])
    assert breaches(history, now=last) == []
    assert breaches(history, now=last + 1) != []
    history.at("1h").add()
    assert [item.at for items in _fed(history) for item in items] == [time("7m30s") + 1]


def test_a_run_that_is_still_starting_cannot_be_drawn() -> None:
    history = History().fleet(node("a-0")).budgets(sys(max_gpu_hours=1)).add(PutPolicy(policy=Policy(lookahead="0s")))
    history.start(JOB, [lease(JOB, "a-0:0-7", at=T0)], [pod(JOB, "a-0:0-7", rank=0)]).at("1h").bind("job")
    assert breaches(history, now=time("75m") + LATE) == []
    assert breaches(history, now=time("75m") + LATE + 1) != []


# --- coasting -----------------------------------------------------------------------------------------------


def test_under_coast_a_notice_in_time_lets_work_run_on() -> None:
    for late, expected in ((0, []), (1, [time("1h") + 1, time("3h")])):
        history = running(sys(max_gpu_hours=8), policy=COAST).add(exhausted(), at=due("1h") + late)
        assert [item.at for item in breaches(history, now=time("3h"))] == expected


def test_under_coast_silence_is_noticed() -> None:
    assert breaches(running(sys(max_gpu_hours=8), policy=COAST), now=due("1h") + 1) != []


def test_a_notice_for_another_mark_does_not_excuse() -> None:
    history = running(sys(max_gpu_hours=8), policy=COAST).at("30m")
    history.add(Warned(budget="sys", envelope="west", mark="90"))
    assert breaches(history, now=time("2h")) != []


@pytest.mark.parametrize(("mark", "excused"), [("window", True), ("exhausted", True), ("soon", False)])
def test_a_notice_that_the_window_is_over_excuses_its_end(mark: str, excused: bool) -> None:
    history = running(sys(end="2025-11-01T01:00:00Z"), policy=COAST).at("1h")
    history.add(Warned(budget="sys", envelope="west", mark=mark))
    assert (breaches(history, now=time("2h")) == []) is excused


def test_the_end_of_a_window_does_not_excuse_more_hours() -> None:
    history = running(sys(end="2025-11-01T01:00:00Z", max_gpu_hours=8), policy=COAST).at("1h")
    history.add(Warned(budget="sys", envelope="west", mark="window"))
    (found,) = breaches(history, now=time("2h"))
    assert found.message.startswith("envelope west exceeds its limit (GPU-microseconds)")


@pytest.mark.parametrize("name", ["west", "all"])
def test_a_notice_for_a_cap_or_one_of_its_envelopes_excuses_the_cap(name: str) -> None:
    capped = sys(caps=(cap("all", "west", max_gpu_hours=8),))
    history = running(capped, policy=COAST).at("1h").add(exhausted(name))
    assert breaches(history, now=time("2h")) == []


def test_coast_lets_work_run_on_and_admits_nothing_more() -> None:
    history = running(sys(max_gpu_hours=8), policy=COAST).at("1h").add(exhausted()).at("2h").add()
    assert breaches(history, now=time("3h")) == []
    assert breaches(second(history), now=time("3h")) != []


def test_what_coasted_stays_excused_when_the_policy_changes() -> None:
    history = running(sys(max_gpu_hours=8), policy=COAST).at("1h").add(exhausted())
    history.at("2h").add(PutPolicy(policy=Policy()))
    assert breaches(history, now=time("3h")) == []


# --- lowered limits -----------------------------------------------------------------------------------------

GRACE = 15 * MINUTE
LOWERED = {
    "concurrency": sys(concurrency=4),
    "hours": sys(max_gpu_hours=1),
    "window": sys(end="2025-11-01T00:30:00Z"),
    "cap": sys(caps=(cap("all", "west", max_concurrency=4),)),
    "hours of a cap": sys(caps=(cap("all", "west", max_gpu_hours=1),)),
    "envelope": budget("sys", SYS, envelope("east")),
}


@pytest.mark.parametrize("lowered", LOWERED.values(), ids=LOWERED.keys())
def test_what_is_above_a_lowered_limit_has_its_grace(lowered: Budget) -> None:
    history = running(sys()).at("1h").add(PutBudget(object=lowered))
    last = time("1h") + GRACE + LATE
    assert breaches(history, now=last) == []
    assert breaches(history, now=last + 1) != []
    ended = running(sys()).at("1h").add(PutBudget(object=lowered))
    ended.now = last
    assert breaches(ended.stop("job", "Canceled"), now=time("9h")) == []
    history.at("9h").add()
    assert [item.at for items in _fed(history) for item in items] == [last]


@pytest.mark.parametrize("lowered", LOWERED.values(), ids=LOWERED.keys())
def test_under_coast_what_is_above_a_lowered_limit_stays(lowered: Budget) -> None:
    history = running(sys(), policy=COAST).at("1h").add(PutBudget(object=lowered))
    assert breaches(history.at("9h").add(), now=time("9h")) == []


def test_a_removed_budget_is_one_lowered_to_nothing() -> None:
    history = running(sys(max_gpu_hours=100)).at("1h").add(Removed(kind="Budget", name="sys"))
    last = time("1h") + GRACE + LATE
    assert breaches(history, now=last) == []
    assert breaches(history, now=last + 1) != []
    back = running(sys(max_gpu_hours=100)).at("1h").add(Removed(kind="Budget", name="sys")).at("70m").budgets(sys())
    assert breaches(back, now=time("9h")) == []


def test_lowering_a_limit_again_gives_its_grace_again_and_any_other_edit_does_not() -> None:
    for edited, expected in ((sys(concurrency=2), 0), (sys(concurrency=4, sharing="None"), 1)):
        history = running(sys()).at("1h").add(PutBudget(object=sys(concurrency=4)))
        history.at("70m").add(PutBudget(object=edited))
        assert len(breaches(history, now=time("1h") + GRACE + LATE + 1)) == expected


def test_hours_lowered_to_just_what_was_used_are_due_after_the_grace() -> None:
    """The next microsecond is above them, and that was the edit's doing."""
    used = running(sys()).at("1h")
    history = used.add(PutBudget(object=sys(max_gpu_hours=8))).at("1h").add(PutBudget(object=sys(max_gpu_hours=8)))
    last = time("1h") + GRACE + LATE
    assert breaches(history, now=last) == []
    assert breaches(history, now=last + 1) != []


LESS = {
    "hours, then concurrency": (sys(max_gpu_hours=1), sys(max_gpu_hours=1, concurrency=4)),
    "concurrency, then hours": (sys(concurrency=4), sys(max_gpu_hours=1, concurrency=4)),
    "a cap of both": (
        sys(caps=(cap("all", "west", max_concurrency=4),)),
        sys(caps=(cap("all", "west", max_concurrency=4, max_gpu_hours=1),)),
    ),
}


@pytest.mark.parametrize(("one", "both"), LESS.values(), ids=LESS.keys())
def test_an_envelope_or_a_cap_has_one_grace_and_notice_is_given_anew_of_all_of_it(one: Budget, both: Budget) -> None:
    history = running(sys()).at("1h").add(PutBudget(object=one)).at("70m").add(PutBudget(object=both))
    last = time("70m") + GRACE + LATE
    assert breaches(history, now=last) == []
    assert breaches(history, now=last + 1) != []


def test_what_is_lowered_elsewhere_gives_no_grace_here() -> None:
    capped = sys(concurrency=4, caps=(cap("all", "west", max_concurrency=4),))
    history = running(sys()).at("1h").add(PutBudget(object=sys(concurrency=4)))
    history.at("70m").add(PutBudget(object=capped))
    last = time("1h") + GRACE + LATE
    assert breaches(history, now=last) == []
    assert [item.expected for item in breaches(history, now=last + 1)] == [4]


def test_a_lowered_limit_asks_only_what_is_above_it_to_end() -> None:
    history = second(running(sys())).at("1h").add(PutBudget(object=sys(concurrency=8)))
    assert breaches(history, now=time("9h")) != []
    assert breaches(history.stop("more", "Canceled"), now=time("9h")) == []


def test_a_lowered_lending_cap_cuts_nothing() -> None:
    history = running(vision(max_concurrency=8), of=BORROWER, paid=LOAN).at("1h")
    history.add(PutBudget(object=vision(max_concurrency=1, max_gpu_hours=1)))
    assert breaches(history, now=time("9h")) == []


def test_use_above_a_lowered_limit_may_only_fall() -> None:
    history = running(sys()).at("1h").add(PutBudget(object=sys(concurrency=4)))
    assert breaches(second(history), now=time("1h")) != []


def test_the_excuse_ends_when_the_limit_holds_again() -> None:
    history = running(sys()).at("1h").add(PutBudget(object=sys(concurrency=4)))
    history.at("70m").finish("job")
    big = run("big", 5)
    history.started(big, [lease(big, "a-0:0-4", at=history.now)], [pod(big, "a-0:0-4", rank=0)])
    assert [item.found for item in breaches(history, now=time("2h"))] == [5, 5]


def test_an_edit_that_lowers_nothing_excuses_nothing() -> None:
    history = running(sys(concurrency=4)).at("1h").add(PutBudget(object=sys(concurrency=4, sharing="None")))
    assert [item.at for item in breaches(history, now=time("2h"))] == [T0, time("2h")]


def test_raising_the_hours_moves_the_crossing() -> None:
    history = running(sys(max_gpu_hours=8)).at("30m").add(PutBudget(object=sys(max_gpu_hours=16)))
    assert breaches(history, now=due("2h")) == []
    assert breaches(history, now=due("2h") + 1) != []


# --- accounts -----------------------------------------------------------------------------------------------


def test_a_new_window_begins_a_new_account_and_an_old_one_resumes() -> None:
    bounded: dict[str, Any] = {"max_gpu_hours": 8, "end": "2025-12-01T00:00:00Z"}
    history = running(sys(max_gpu_hours=8)).at("30m").add(PutBudget(object=sys(**bounded)))
    assert breaches(history, now=time("90m")) == []
    history.at("80m").add(PutBudget(object=sys(max_gpu_hours=8)))
    assert breaches(history, now=due("110m")) == []
    assert breaches(history, now=due("110m") + 1) != []


def test_use_before_the_window_counts_in_it() -> None:
    early: dict[str, Any] = {
        "start": "2025-11-01T00:30:00Z",
        "pre_activation": PreActivation(allow_admission=True),
    }
    history = running(sys(max_gpu_hours=8, **early))
    assert breaches(history, now=due("1h")) == []
    assert breaches(history, now=due("1h") + 1) != []


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
