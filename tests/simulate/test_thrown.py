"""Work thrown away: told off facts, one attempt at a time; what a fleet held is what was to do and what was in vain."""

from __future__ import annotations

from typing import Literal

import pytest

from tenure.api.policy import Policy
from tenure.facts import Closed, Cut, Lease, Life, Moved, Phase, Resolved, Role
from tenure.simulate.declare import Declare
from tenure.simulate.replay import Replay
from tenure.simulate.replay_thrown import Vain
from tenure.units import HOUR
from tests.simulate.test_replay import example, setting


def lease(name: str, run: str, gpus: int, start: int = 0, role: Role = "Active") -> Lease:
    return Lease(
        namespace="a", name=name, run=run, uid=name, owner="org:a", attempt=1, group=0, domain="d", node="n",
        gpus=tuple(range(gpus)), role=role, start=start * HOUR, budget="b", envelope="e", payer="org:a",
        funding="Owned", reason="Start",
    )  # fmt: skip


def closed(*leases: str, at: int, reason: str) -> Closed:
    return Closed(namespace="a", leases=leases, end=at * HOUR, reason=reason)


def moved(run: str, phase: Phase) -> Moved:
    return Moved(namespace="a", run=run, life=Life(phase=phase))


def resolved(*cuts: tuple[Literal["Lottery", "Overstay"], str]) -> Resolved:
    made = tuple(Cut(kind=kind, run=run, owner="org:a", gpus=1) for kind, run in cuts)
    return Resolved(trigger="Activation", subject="Reservation/a/r", activation=1, cuts=made)


def test_what_a_run_held_until_it_was_cut_is_thrown_away() -> None:
    vain = Vain()
    vain.opened(lease("x", "x", 8))
    vain.closed(closed("x", at=3, reason="RandomPreempt(0abc)"))
    vain.moved(moved("x", "Pending"))
    assert (vain.result().runs_cut, vain.result().gpu_hours) == (1, 24.0)
    vain.opened(lease("x2", "x", 8, start=5))
    vain.closed(closed("x2", at=9, reason="Completed"))
    vain.moved(moved("x", "Completed"))
    assert (vain.result().runs_cut, vain.result().gpu_hours) == (1, 24.0), "the second attempt did its work"


def test_leases_that_went_over_into_others_count_for_the_attempt_and_spares_do_not() -> None:
    vain = Vain()
    for item in (lease("x", "x", 4), lease("s", "x", 4, role="Spare"), lease("g", "guest", 2, role="Borrowed")):
        vain.opened(item)
    vain.closed(closed("x", at=1, reason="Swap"))
    vain.opened(lease("y", "x", 4, start=1))
    vain.closed(closed("g", at=2, reason="ReclaimedBySpare"))
    vain.moved(moved("guest", "Failed"))
    vain.closed(closed("y", "s", at=2, reason="Overstay"))
    vain.moved(moved("x", "Failed"))
    assert (vain.result().runs_cut, vain.result().gpu_hours) == (2, 4.0 + 8.0)


@pytest.mark.parametrize("reason", ["Shrink", "DropSpare"])
def test_a_run_that_gives_a_part_away_and_goes_on_has_lost_nothing(reason: str) -> None:
    vain = Vain()
    vain.opened(lease("x", "x", 4))
    vain.opened(lease("y", "x", 4))
    vain.closed(closed("y", at=1, reason=reason))
    vain.closed(closed("x", at=2, reason="Completed"))
    vain.moved(moved("x", "Completed"))
    assert (vain.result().runs_cut, vain.result().gpu_hours) == (0, 0.0)


def test_a_run_is_drawn_each_time_that_it_loses_a_lottery() -> None:
    vain = Vain()
    vain.resolved(resolved(("Overstay", "a/x")))
    vain.resolved(resolved(("Overstay", "a/x"), ("Lottery", "a/y"), ("Lottery", "a/y"), ("Lottery", "a/z")))
    vain.resolved(resolved(("Lottery", "a/y")))
    assert (vain.result().draws, vain.result().runs_drawn) == (2, 3)


@pytest.mark.parametrize("declare", ["none", "true"])
def test_gpus_were_held_for_the_work_and_for_what_was_thrown_away(declare: Declare) -> None:
    jobs = example()[:60]
    replay = Replay(setting(jobs, "2x4x8", policy=Policy(patience="1h"), declare=declare))
    found = replay.play()
    busy = replay.watch.tally.busy
    held = sum(busy.means(busy.period * 10**4)) * busy.period / HOUR
    work = sum(job.gpus * job.duration for job in jobs) / HOUR
    assert found.summary.completed == len(jobs)
    assert held == pytest.approx(work + found.thrown.gpu_hours, rel=1e-4)
    assert found.thrown.runs_drawn <= found.thrown.runs_cut
