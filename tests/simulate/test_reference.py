"""The references: FIFO and EASY as the literature has them, checked against a second reading and published figures."""

from __future__ import annotations

from fractions import Fraction
from math import gcd
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from tenure.simulate.declare import WAYS, Declare, declared_by
from tenure.simulate.reference import Stay, count, easy, easy_nodes, fifo, on_machines, play, pod_of
from tenure.simulate.trace import Job, job, merge, read_trace
from tenure.units import HOUR

TRACES = Path(__file__).parents[3] / "shared" / "traces"
GPUS = 8

declares = st.sampled_from(WAYS)
asked = st.lists(
    st.builds(job, st.just("j"), st.integers(0, 30), st.integers(1, 12), st.integers(1, GPUS),
              requested=st.one_of(st.none(), st.integers(1, 20))),
    max_size=14,
)  # fmt: skip
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
    for policy in (fifo, easy):
        assert starts(policy([job("a", 0, 5, GPUS), job("b", 5, 5, GPUS)], GPUS)) == {"a": 0, "b": 5}


@given(jobs)
def test_no_policy_uses_more_gpus_than_there_are_or_starts_before_submission(trace: list[Job]) -> None:
    for policy in (fifo, easy):
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


# --- declarations -----------------------------------------------------------------------------------------------------


def plain_easy(trace: list[Job], gpus: int, declare: Declare) -> list[tuple[Job, int]]:
    """EASY once more, from scratch at every instant: nothing is kept but what runs and what waits."""
    coming, waiting, running = sorted(trace, key=lambda one: one.submit), list[Job](), list[tuple[int, Job]]()
    started: list[tuple[Job, int]] = []

    def start(one: Job, now: int) -> None:
        waiting.remove(one)
        running.append((now, one))
        started.append((one, now))

    for now in range(31 + 12 * len(trace) + 1):
        running[:] = [(at, one) for at, one in running if at + one.duration > now]
        while coming and coming[0].submit <= now:
            waiting.append(coming.pop(0))
        while waiting and waiting[0].gpus + sum(one.gpus for _, one in running) <= gpus:
            start(waiting[0], now)
        ends = [(at + length, one.gpus) for at, one in running if (length := declared_by(one, declare)) is not None]
        free = then = gpus - sum(one.gpus for _, one in running)
        shadow = None
        for end, width in sorted(ends, key=lambda end: end[0]):
            then += width
            if waiting and then >= waiting[0].gpus:
                shadow = max(now, end)
                break
        if shadow is None:
            continue
        extra = then - waiting[0].gpus
        for one in waiting[1:]:
            length = declared_by(one, declare)
            outlasts = length is None or now + length > shadow
            if one.gpus <= free and (not outlasts or one.gpus <= extra):
                free -= one.gpus
                extra -= one.gpus if outlasts else 0
                start(one, now)
    return started


def numbered(trace: list[Job]) -> list[Job]:
    """Jobs that are told apart, so that a second reading can take them out of a list by themselves."""
    return [replace(one, id=str(number)) for number, one in enumerate(trace)]


@given(asked, declares)
def test_easy_is_what_a_plain_reading_of_the_rule_gives(trace: list[Job], declare: Declare) -> None:
    trace = numbered(trace)
    assert [(stay.job, stay.start) for stay in easy(trace, GPUS, declare=declare)] == plain_easy(trace, GPUS, declare)


@given(asked)
def test_where_nothing_is_declared_easy_is_fifo(trace: list[Job]) -> None:
    assert easy(trace, GPUS, declare="none") == fifo(trace, GPUS)


@given(asked, declares)
def test_declarations_make_no_difference_to_fifo(trace: list[Job], declare: Declare) -> None:
    assert fifo(trace, GPUS, declare=declare) == fifo(trace, GPUS)


def test_a_job_is_let_past_by_what_it_declares_and_ends_by_what_it_takes() -> None:
    queue = [job("runs", 0, 10, 6, requested=10), job("head", 1, 1, 8, requested=1), job("liar", 2, 30, 2, requested=8)]
    assert starts(easy(queue, GPUS, declare="requested-raw")) == {"runs": 0, "liar": 2, "head": 32}
    assert starts(easy(queue, GPUS, declare="requested")) == {"runs": 0, "head": 10, "liar": 11}


def test_who_is_past_its_declared_end_is_taken_to_end_now() -> None:
    """At 6 the head's shadow is 6: only who needs no GPU of the head's may start."""
    late = [job("late", 0, 20, 5, requested=5), job("head", 1, 1, 6, requested=1)]
    small, wide = job("small", 6, 9, 2, requested=9), job("wide", 6, 9, 3, requested=9)
    assert starts(easy([*late, small], GPUS, declare="requested-raw")) == {"late": 0, "small": 6, "head": 20}
    assert starts(easy([*late, wide], GPUS, declare="requested-raw")) == {"late": 0, "head": 20, "wide": 21}


# --- machines ---------------------------------------------------------------------------------------------------------


def test_a_gang_that_a_machine_holds_lies_on_one_and_leaves_whole_machines_whole() -> None:
    room = on_machines([8, 8, 8])
    room.take(((1, 3),))
    assert room.choose(4) == ((1, 4),)
    assert room.choose(6) == ((0, 6),)
    assert room.choose(16) == ((0, 8), (2, 8))
    assert room.fits(16)
    assert not room.fits(24)
    assert room.choose(12) == ((1, 4), (0, 8)), "three pods of four"


def test_scattered_gpus_are_of_no_use_to_a_gang_that_needs_a_machine() -> None:
    halves = [job("a", 0, 10, 5), job("b", 0, 10, 5), job("c", 1, 5, 6)]
    assert [stay.start for stay in easy(halves, 16)] == [0, 0, 1]
    assert [stay.start for stay in easy_nodes(halves, 2, 8)] == [0, 0, 10]


def test_on_machines_the_head_keeps_whole_ones_at_its_shadow_time() -> None:
    """The head needs both machines at 10. Three GPUs are free on each: who outlasts 10 has to wait."""
    queue = [job("a", 0, 10, 5), job("b", 0, 10, 5), job("head", 1, 5, 16), job("short", 2, 8, 3), job("long", 2, 9, 3)]
    assert starts(easy_nodes(queue, 2, 8)) == {"a": 0, "b": 0, "short": 2, "head": 10, "long": 15}


@given(asked, declares)
def test_machines_of_one_gpu_are_one_number_of_gpus(trace: list[Job], declare: Declare) -> None:
    assert easy_nodes(trace, GPUS, 1, declare=declare) == easy(trace, GPUS, declare=declare)


@given(asked, declares, st.sampled_from([(4, 4), (2, 8), (3, 6)]))
def test_every_job_starts_on_machines_and_none_holds_more_than_it_has(
    trace: list[Job], declare: Declare, fleet: tuple[int, int]
) -> None:
    nodes, per_node = fleet
    stays = easy_nodes(trace, nodes, per_node, declare=declare)
    assert len(stays) == len(trace)
    for at in {stay.start for stay in stays}:
        running = [stay.job.gpus for stay in stays if stay.start <= at < stay.end]
        assert sum(running) <= nodes * per_node
        assert sum(per_node // 2 < gpus <= per_node for gpus in running) <= nodes, "two of these do not share one"


@given(st.lists(st.integers(1, 9), min_size=1, max_size=5), st.lists(st.integers(1, 40), max_size=8))
def test_a_place_is_made_of_whole_pods_where_there_is_room(sizes: list[int], widths: list[int]) -> None:
    room, unit = on_machines(sizes), gcd(*sizes)
    free = list(sizes)
    for gpus in widths:
        pod = pod_of(gpus, unit)
        assert room.fits(gpus) == (sum(left // pod for left in free) * pod >= gpus)
        if room.fits(gpus):
            place = room.choose(gpus)
            room.take(place)
            assert sum(share for _, share in place) == gpus
            for number, share in place:
                assert share % pod == 0
                free[number] -= share
            assert min(free) >= 0


def test_fifo_plays_on_machines_too() -> None:
    halves = [job("a", 0, 10, 5), job("b", 0, 10, 5), job("c", 1, 5, 6), job("d", 1, 5, 1)]
    assert starts(play("fifo", halves, on_machines([8, 8]), declare="true")) == {"a": 0, "b": 0, "c": 10, "d": 10}


# --- published figures ------------------------------------------------------------------------------------------------


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
