"""What other schedulers would have done with the same jobs: plain FIFO, and EASY backfill.

Both are written for the comparison and kept as simple as the literature has them. They know one number of GPUs: no
topology, no fragmentation, no budgets, and every run time exactly. That makes them optimistic, so a policy that has to
respect all of these is measured against a generous yardstick.

- **FIFO**: jobs start in the order of submission; the first that does not fit holds up all behind it.
- **EASY**: the head of the queue is promised the earliest instant at which enough running jobs will have ended (its
  *shadow* time). A later job may start now if it ends by then, or if it only needs GPUs that the head will leave over
  (*extra*).

At each instant ends come first, then submissions, then starts. Jobs of equal submission keep their order in the trace.

>>> jobs = [job("a", 0, 10, 6), job("b", 1, 10, 8), job("c", 2, 5, 2), job("d", 3, 9, 2)]
>>> [(stay.job.name, stay.start) for stay in fifo(jobs, 8)]
[('a', 0), ('b', 10), ('c', 20), ('d', 20)]
>>> [(stay.job.name, stay.start) for stay in easy(jobs, 8)]
[('a', 0), ('c', 2), ('b', 10), ('d', 20)]
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from heapq import heappop, heappush

from msgspec import Struct

from tenure.simulate.stats import Tally
from tenure.simulate.trace import Job
from tenure.units import Micros


class Stay(Struct, frozen=True):
    """When a job ran."""

    job: Job
    start: Micros

    @property
    def end(self) -> Micros:
        return self.start + self.job.duration


Policy = Callable[[Sequence[Job], int], list[Stay]]


def fifo(jobs: Sequence[Job], gpus: int) -> list[Stay]:
    """Strictly in the order of submission."""
    return _Pool(gpus).play(jobs, _Pool.start_heads)


def easy(jobs: Sequence[Job], gpus: int) -> list[Stay]:
    """In the order of submission, with later jobs let past where that cannot delay the head of the queue."""
    return _Pool(gpus).play(jobs, _Pool.start_heads_and_backfill)


POLICIES: dict[str, Policy] = {"fifo": fifo, "easy": easy}


def count(policy: str, stays: Iterable[Stay], *, gpus: int, horizon: Micros) -> Tally:
    """Tell a tally what a policy did."""
    tally = Tally(policy, gpus=gpus, horizon=horizon)
    stays = list(stays)
    events = [(stay.end, 0, stay) for stay in stays]
    events += [(stay.job.submit, 1, stay) for stay in stays]
    events += [(stay.start, 2, stay) for stay in stays]
    for at, what, stay in sorted(events, key=lambda event: event[:2]):
        if what == 0:
            tally.hold(-stay.job.gpus, at=at)
            tally.end(at=at)
        elif what == 1:
            tally.submit(1, at=at)
        else:
            tally.start(stay.job, at=at)
            tally.hold(stay.job.gpus, at=at)
    return tally


class _Pool:
    """So many GPUs, what runs on them, and what waits for them."""

    def __init__(self, gpus: int) -> None:
        self.gpus = self.free = gpus
        self.now: Micros = 0
        self.queue: deque[Job] = deque()
        self.running: list[tuple[Micros, int, int]] = []
        """(end, number of the stay, GPUs), a heap."""
        self.stays: list[Stay] = []

    def play(self, jobs: Sequence[Job], decide: Callable[[_Pool], None]) -> list[Stay]:
        """All jobs to their starts, in the order in which they start."""
        assert all(0 < job.gpus <= self.gpus for job in jobs), "a job wider than the fleet never starts"
        coming = deque(sorted(jobs, key=lambda job: job.submit))
        while coming or self.queue:
            self.now = min(self._next_instants(coming))
            while self.running and self.running[0][0] <= self.now:
                self.free += heappop(self.running)[2]
            while coming and coming[0].submit <= self.now:
                self.queue.append(coming.popleft())
            decide(self)
        return self.stays

    def _next_instants(self, coming: deque[Job]) -> Iterator[Micros]:
        if coming:
            yield coming[0].submit
        if self.running:
            yield self.running[0][0]

    def start_heads(self) -> None:
        while self.queue and self.queue[0].gpus <= self.free:
            self._start(self.queue.popleft())

    def start_heads_and_backfill(self) -> None:
        self.start_heads()
        if not self.queue or not self.free:
            return
        shadow, extra = self._promise(self.queue[0])
        kept = deque([self.queue.popleft()])
        while self.queue and self.free:
            job = self.queue.popleft()
            ends_in_time = self.now + job.duration <= shadow
            if job.gpus <= self.free and (ends_in_time or job.gpus <= extra):
                extra -= 0 if ends_in_time else job.gpus
                self._start(job)
            else:
                kept.append(job)
        self.queue.extendleft(reversed(kept))

    def _promise(self, head: Job) -> tuple[Micros, int]:
        """When the head can start at the latest, and how many GPUs it will then leave over."""
        available = self.free
        for end, _, gpus in sorted(self.running):
            available += gpus
            if available >= head.gpus:
                return end, available - head.gpus
        raise AssertionError("an empty fleet holds every job")

    def _start(self, job: Job) -> None:
        self.free -= job.gpus
        heappush(self.running, (self.now + job.duration, len(self.stays), job.gpus))
        self.stays.append(Stay(job, self.now))


def job(name: str, submit: Micros, duration: Micros, gpus: int, owner: str = "somebody") -> Job:
    """A job in few words, for examples and tests."""
    return Job(id=name, name=name, owner=owner, submit=submit, duration=duration, gpus=gpus)
