"""The references: FIFO and EASY as the literature has them, checked against a second reading and published figures."""

from __future__ import annotations

from fractions import Fraction
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tenure.simulate.reference import POLICIES, Stay, count, easy, fifo, job
from tenure.simulate.trace import Job, merge, read_trace
from tenure.units import HOUR

TRACES = Path(__file__).parents[3] / "shared" / "traces"
GPUS = 8

jobs = st.lists(st.builds(job, st.just("j"), st.integers(0, 30), st.integers(1, 12), st.integers(1, GPUS)), max_size=14)


def starts(stays: list[Stay]) -> dict[str, int]:
    return {stay.job.name: stay.start for stay in stays}


def test_fifo_lets_nobody_past_the_head_of_the_queue() -> None:
    queue = [job("runs", 0, 10, 6), job("head", 1, 1, 4), job("small", 2, 1, 1)]
    assert starts(fifo(queue, GPUS)) == {"runs": 0, "head": 10, "small": 10}


def test_easy_lets_a_job_past_that_ends_before_the_head_could_start() -> None:
    queue = [job("runs", 0, 10, 6), job("head", 1, 1, 8), job("short", 2, 8, 2), job("long", 3, 8, 2)]
    assert starts(easy(queue, GPUS)) == {"runs": 0, "short": 2, "head": 10, "long": 11}


def test_easy_lets_a_long_job_past_on_gpus_that_the_head_leaves_over() -> None:
    queue = [job("runs", 0, 10, 6), job("head", 1, 5, 6), job("long", 2, 99, 2), job("more", 3, 99, 1)]
    assert starts(easy(queue, GPUS)) == {"runs": 0, "long": 2, "head": 10, "more": 15}


def test_a_job_that_ends_at_an_instant_makes_room_for_one_that_is_submitted_then() -> None:
    for policy in POLICIES.values():
        assert starts(policy([job("a", 0, 5, GPUS), job("b", 5, 5, GPUS)], GPUS)) == {"a": 0, "b": 5}


@given(jobs)
def test_no_policy_uses_more_gpus_than_there_are_or_starts_before_submission(trace: list[Job]) -> None:
    for policy in POLICIES.values():
        stays = policy(trace, GPUS)
        assert sorted(stay.job.submit for stay in stays) == sorted(one.submit for one in trace)
        assert all(stay.start >= stay.job.submit for stay in stays)
        for at in {stay.start for stay in stays}:
            assert sum(stay.job.gpus for stay in stays if stay.start <= at < stay.end) <= GPUS


@given(jobs)
def test_fifo_starts_in_the_order_of_submission_and_each_job_as_soon_as_it_can(trace: list[Job]) -> None:
    """Written the other way round: each job in turn takes the first instant at which it fits beside those before it."""
    placed: list[Stay] = []
    for one in sorted(trace, key=lambda one: one.submit):
        earliest = max([one.submit, *(stay.start for stay in placed)])
        candidates = [at for at in {earliest, *(stay.end for stay in placed)} if at >= earliest]
        start = min(
            at
            for at in candidates
            if sum(stay.job.gpus for stay in placed if stay.start <= at < stay.end) + one.gpus <= GPUS
        )
        placed.append(Stay(one, start))
    assert [(stay.job, stay.start) for stay in fifo(trace, GPUS)] == [(stay.job, stay.start) for stay in placed]


@given(jobs)
def test_easy_never_delays_the_head_of_the_queue_beyond_its_promise(trace: list[Job]) -> None:
    """A job that was first in the queue starts no later than the jobs that ran when it got there would have allowed."""
    stays = easy(trace, GPUS)
    for stay in stays:
        earlier = [other for other in stays if _before(other, stay)]
        became_head = max([stay.job.submit, *(other.start for other in earlier)])
        running = [other for other in stays if other.start < became_head < other.end]
        free_at = sorted([became_head, *(other.end for other in running)])
        promise = next(
            at for at in free_at if sum(one.job.gpus for one in running if one.end > at) + stay.job.gpus <= GPUS
        )
        same_instant = [other for other in earlier if other.start == became_head and other.end > promise]
        if not same_instant:  # older jobs that started at that very instant count too; leave those cases out
            assert stay.start <= promise


def _before(other: Stay, stay: Stay) -> bool:
    return other is not stay and other.job.submit <= stay.job.submit and other.start <= stay.start


def test_a_tally_of_stays_counts_every_job_and_every_gpu_hour() -> None:
    stays = [Stay(job("a", 0, 2 * HOUR, 4), 0), Stay(job("b", HOUR, HOUR, 8), 2 * HOUR)]
    summary = count("fifo", stays, gpus=8, horizon=HOUR).summary()
    assert (summary.submitted, summary.started, summary.completed) == (2, 2, 2)
    assert summary.wait_hours.mean == 0.5
    assert summary.utilisation == 0.5
    assert summary.virtual_days == pytest.approx(3 / 24)


@pytest.mark.skipif(not TRACES.is_dir(), reason="the public traces lie beside the checkout, and are not there")
@pytest.mark.parametrize(
    ("slices", "gpus", "published"),
    [
        ([("philly-vc", 1)], 1024, (49.0, 46.3)),
        ([("philly-vc", 1)], 1152, (25.3, 23.9)),
        ([("philly-vc", 1)], 1280, (10.5, 9.9)),
        ([("kalos-llm", 5)], 1024, (61.9, 43.6)),
        ([("kalos-llm", 6)], 1280, (55.0, 31.4)),
        ([("philly-vc", 1), ("kalos-llm", 3)], 1792, (76.9, 26.9)),
        ([("philly-vc", 1), ("kalos-llm", 3)], 2048, (37.3, 11.6)),
        ([("metacentrum", 1)], 1200, (27.9, 11.2)),
    ],
    ids=str,
)
def test_the_published_waits_are_reproduced(
    slices: list[tuple[str, int]], gpus: int, published: tuple[float, float]
) -> None:
    traces = []
    for name, scale in slices:
        with (TRACES / f"{name}.csv").open(newline="") as file:
            traces.append(read_trace(file, source=name, scale=Fraction(scale)))
    trace = merge(traces)
    means = [
        sum(stay.start - stay.job.submit for stay in policy(trace, gpus)) / len(trace) / HOUR for policy in (fifo, easy)
    ]
    assert means == pytest.approx(published, rel=0.01)
