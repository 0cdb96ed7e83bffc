"""I10: exact sums, three ways, after every step of random histories; and what was spent stays spent."""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tenure.api.budget import Budget
from tenure.api.policy import Policy
from tenure.audit import Auditor, recount, settled_pass_wrote
from tenure.facts import Closed, Entry, Fact, Noted, Opened, PutBudget, PutPolicy, PutRun, Removed
from tenure.units import HOUR, Instant, format_time, parse_time
from tests.audit.builders import MM, SYS, T0, History, budget, envelope, lease, node, pod, run, time
from tests.audit.rich import NOW, rich

JOB = run("job", 8)
WINDOWS: list[dict[str, str]] = [
    {},
    {"end": "2026-01-01T00:00:00Z"},
    {"start": "2025-01-01T00:00:00Z", "end": "2026-01-01T00:00:00Z"},
]


# --- random histories ---------------------------------------------------------------------------------------

STEPS = st.lists(
    st.one_of(
        st.tuples(st.just("open"), st.integers(0, 3), st.sampled_from(["west", "east"]), st.booleans()),
        st.tuples(st.just("close"), st.integers(0, 9), st.integers(0, 12)),
        st.tuples(st.just("window"), st.integers(0, 2), st.integers(0, 2)),
        st.tuples(st.just("remove")),
        st.tuples(st.just("wait"), st.integers(1, 10)),
    ),
    max_size=25,
)


class Walk:
    """Random facts about one budget, fed step by step; not one of them need be wise."""

    def __init__(self) -> None:
        self.history = History().fleet(node("a-0"), node("b-0"))
        self.history.add(PutRun(object=JOB))
        self._open: list[str] = []
        self._number = 0

    def step(self, kind: str, *how: Any) -> None:
        getattr(self, f"_{kind}")(*how)

    def _wait(self, length: int) -> None:
        self.history.now += length

    def _window(self, west: int, east: int) -> None:
        grants = envelope("west", **WINDOWS[west]), envelope("east", **WINDOWS[east])
        self.history.add(PutBudget(object=budget("sys", SYS, *grants)))

    def _remove(self) -> None:
        self.history.add(Removed(kind="Budget", name="sys"))

    def _open_lease(self, place: int, grant: str, lent: bool) -> None:
        self._number += 1
        where = f"{'ab'[place % 2]}-0:0-{place}"
        funding = ("sys", SYS, "borrowed" if lent else "owned")
        new = lease(JOB, where, at=self.history.now, group=self._number, envelope=grant, paid=funding)
        self._open.append(new.name)
        self.history.add(Opened(lease=new))

    def _close(self, which: int, late: int) -> None:
        if self._open:
            name = self._open.pop(which % len(self._open))
            end = max(T0, self.history.now - late)
            self.history.add(Closed(namespace="rai", leases=(name,), end=end, reason="Fail"))


@given(steps=STEPS, after=st.integers(0, 9))
def test_the_books_equal_a_recount_after_every_step(steps: list[tuple[Any, ...]], after: int) -> None:
    walk, auditor, fed = Walk(), Auditor(), 0
    for kind, *how in steps:
        walk.step("open_lease" if kind == "open" else kind, *how)
        for entry in walk.history.entries[fed:]:
            auditor.feed(entry)
        fed = len(walk.history.entries)
        now = walk.history.now + after
        assert auditor.recheck(walk.history.entries, now=now) == []
        assert [item for item in auditor.check(now) if item.invariant == "I10-sums-agree"] == []


@given(steps=STEPS)
def test_no_edit_changes_what_was_charged_before_it(steps: list[tuple[Any, ...]]) -> None:
    walk = Walk()
    for kind, *how in steps:
        if kind in ("window", "remove"):
            before = recount(walk.history.entries, now=walk.history.now).accounts
            walk.step(kind, *how)
            assert recount(walk.history.entries, now=walk.history.now).accounts == before
        else:
            walk.step("open_lease" if kind == "open" else kind, *how)


# --- by hand ------------------------------------------------------------------------------------------------


def window(end: str) -> dict[str, str]:
    return {"end": end}


def running(grant: Budget) -> History:
    history = History().fleet(node("a-0")).budgets(grant)
    return history.started(JOB, [lease(JOB, "a-0:0-7", at=T0)], [pod(JOB, "a-0:0-7", rank=0)])


def charged(history: History, *, now: Instant) -> dict[str, int]:
    """GPU-hours by the end of the window, as the auditor keeps them."""
    auditor = Auditor()
    for entry in history.entries:
        auditor.feed(entry)
    ends = {key[3]: amount // HOUR for key, amount in auditor.charges(now).items()}
    return {"none" if end is None else format_time(end)[:10]: amount for end, amount in ends.items()}


def test_an_edited_window_is_another_account_and_the_old_one_resumes() -> None:
    history = running(budget("sys", SYS))
    history.at("1h").add(PutBudget(object=budget("sys", SYS, envelope(**window("2026-01-01T00:00:00Z")))))
    history.at("3h").add(PutBudget(object=budget("sys", SYS)))
    assert charged(history, now=time("7h")) == {"none": 40, "2026-01-01": 16}


@pytest.mark.parametrize("edited", [WINDOWS[1], WINDOWS[2]], ids=["end", "start and end"])
def test_editing_either_side_of_the_window_begins_an_account(edited: dict[str, str]) -> None:
    for other in WINDOWS:
        history = running(budget("sys", SYS, envelope(**edited)))
        history.at("1h").add(PutBudget(object=budget("sys", SYS, envelope(**other))))
        accounts = recount(history.entries, now=time("2h")).accounts
        assert len(accounts) == (1 if other == edited else 2)
        auditor = Auditor()
        for entry in history.entries:
            auditor.feed(entry)
        assert auditor.charges(time("2h")) == accounts


def test_another_spelling_of_the_same_window_is_the_same_account() -> None:
    history = running(budget("sys", SYS, envelope(**window("2026-01-01T00:00:00Z"))))
    history.at("1h").add(PutBudget(object=budget("sys", SYS, envelope(**window("2026-01-01T01:00:00+01:00")))))
    assert charged(history, now=time("2h")) == {"2026-01-01": 16}


def test_any_other_edit_keeps_the_account() -> None:
    history = running(budget("sys", SYS))
    history.at("1h").add(PutBudget(object=budget("sys", MM, envelope(concurrency=1, max_gpu_hours=1, sharing="None"))))
    assert charged(history, now=time("2h")) == {"none": 16}


def test_leases_of_a_removed_budget_go_on_charging_it() -> None:
    history = running(budget("sys", SYS)).at("1h").add(Removed(kind="Budget", name="sys"))
    assert charged(history, now=time("2h")) == {"none": 16}


def test_a_lease_told_late_is_charged_to_its_end_in_the_window_then_in_force() -> None:
    history = running(budget("sys", SYS))
    history.at("2h").add(PutBudget(object=budget("sys", SYS, envelope(**window("2026-01-01T00:00:00Z")))))
    history.at("3h").gone("job", "Completed", "Completed", end=time("1h"))
    assert charged(history, now=time("4h")) == {"none": 8}
    assert recount(history.entries, now=time("4h")).runs == {"rai/job": 8 * HOUR}


def test_the_rich_ledger_adds_up_by_payer_node_and_run() -> None:
    count = recount(rich(), now=NOW)
    assert count.accounts.total() == count.nodes.total() == count.runs.total() > 0
    lent = sum(count.lent.values())
    assert lent == 4 * (parse_time("2025-11-01T01:30:30Z") - parse_time("2025-11-01T00:10:00Z"))


# --- I11 ----------------------------------------------------------------------------------------------------


def test_a_settled_pass_that_writes_is_reported_fact_by_fact() -> None:
    assert settled_pass_wrote([], at=T0) == []
    wrote: list[Fact] = [
        Noted(kind="Run", object="Run/rai/job", reason="x", message="y"),
        PutPolicy(policy=Policy()),
    ]
    assert [item.invariant for item in settled_pass_wrote(wrote, at=T0)] == ["I11-settled", "I11-settled"]


# --- cost ---------------------------------------------------------------------------------------------------


def calls(work: Callable[[], object]) -> int:
    """How many Python functions a piece of work calls: the same on every machine."""
    counted = 0

    def count(_frame: object, event: str, _argument: object) -> None:
        nonlocal counted
        counted += event == "call"

    sys.setprofile(count)
    try:
        work()
    finally:
        sys.setprofile(None)
    return counted


def after_history(length: int) -> tuple[Auditor, list[Entry]]:
    """An auditor that has read a history of so many finished runs, and the next two entries."""
    history = History().fleet(node("a-0")).budgets(budget("sys", SYS, envelope(max_gpu_hours=10**6)))
    for number in range(length):
        job = run(f"job-{number}", 8)
        history.now = T0 + number * HOUR
        history.started(job, [lease(job, "a-0:0-7", at=history.now)], [pod(job, "a-0:0-7", rank=0)])
        history.now += HOUR // 2
        history.finish(job.metadata.name)
    auditor = Auditor()
    assert [item for entry in history.entries for item in auditor.feed(entry)] == []
    history.now = T0 + 10_000 * HOUR
    done = len(history.entries)
    history.started(JOB, [lease(JOB, "a-0:0-7", at=history.now)], [pod(JOB, "a-0:0-7", rank=0)])
    return auditor, history.entries[done:]


def cost_of_feeding(length: int) -> int:
    auditor, entries = after_history(length)
    return calls(lambda: [auditor.feed(entry) for entry in entries])


def cost_of_checking(length: int) -> int:
    auditor, entries = after_history(length)
    for entry in entries:
        auditor.feed(entry)
    return calls(lambda: auditor.check(T0 + 10_001 * HOUR, settled=True))


@pytest.mark.parametrize("cost", [cost_of_feeding, cost_of_checking])
def test_the_cost_does_not_grow_with_the_history(cost: Callable[[int], int]) -> None:
    assert cost(400) <= 1.1 * cost(20)
