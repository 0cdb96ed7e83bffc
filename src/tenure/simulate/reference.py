"""What other schedulers would have done with the same jobs: plain FIFO, and EASY backfill.

Both are written for the comparison and kept as simple as the literature has them. They know machines and nothing else:
no topology above them and no budgets. What a job declares about its run time they hear as Tenure does (``declare``),
and it ends when it really did.

- **FIFO**: jobs start in the order of submission; the first that does not fit holds up all behind it.
- **EASY**: the head of the queue is promised the earliest instant at which enough running jobs are declared to have
  ended (its *shadow* time), worked out anew at every event. A later job may start now if it is declared to end by then,
  or if the head could start at its shadow time all the same (the *extra* GPUs). Who is past its declared end is taken
  to end this very instant. Who declares none never ends as far as is known: it gives no shadow, and passes the head on
  extra GPUs only. A head for which nothing known frees enough has no shadow; it waits for whatever ends, and nobody
  passes it. So where nothing is declared, EASY is FIFO.

A **room** says what fits. ``_Pool`` is one number of GPUs. ``_Nodes`` are machines, and a gang lies on them in pods
that never cross one (``pod_of``): on the fullest that still hold them, so that whole machines stay free.

At each instant ends come first, then submissions, then starts. Jobs of equal submission keep their order in the trace.

>>> from tenure.simulate.trace import job
>>> jobs = [job("a", 0, 10, 6), job("b", 1, 10, 8), job("c", 2, 5, 2), job("d", 3, 9, 2)]
>>> [(stay.job.name, stay.start) for stay in fifo(jobs, 8)]
[('a', 0), ('b', 10), ('c', 20), ('d', 20)]
>>> [(stay.job.name, stay.start) for stay in easy(jobs, 8)]
[('a', 0), ('c', 2), ('b', 10), ('d', 20)]

Where all declare twice what they take, the head is promised 20 instead of 10, and who declares 10 may pass at 7.

>>> [(stay.job.name, stay.start) for stay in easy([*jobs[:3], job("d", 3, 5, 2)], 8, declare="x2")]
[('a', 0), ('c', 2), ('d', 7), ('b', 12)]
>>> easy(jobs, 8, declare="none") == fifo(jobs, 8)
True

Two machines of four: ``a`` and ``b`` leave one GPU on each, and ``c`` needs two on one machine.

>>> jobs = [job("a", 0, 10, 3), job("b", 0, 10, 3), job("c", 1, 5, 2)]
>>> [stay.start for stay in easy(jobs, 8)], [stay.start for stay in easy_nodes(jobs, 2, 4)]
([0, 0, 1], [0, 0, 10])
"""

from __future__ import annotations

from bisect import bisect_left, insort
from collections import deque
from collections.abc import Iterable, Iterator, Sequence
from heapq import heappop, heappush
from math import gcd
from typing import Literal, Protocol, get_args

from msgspec import Struct

from tenure.simulate.declare import Declare, declared_by
from tenure.simulate.stats import Tally
from tenure.simulate.trace import Job
from tenure.units import Micros

Policy = Literal["fifo", "easy"]
POLICIES: tuple[Policy, ...] = get_args(Policy)

Share = tuple[int, int]
"""(number of a machine, GPUs on it)"""
Place = tuple[Share, ...]


class Stay(Struct, frozen=True):
    """When a job ran."""

    job: Job
    start: Micros

    @property
    def end(self) -> Micros:
        return self.start + self.job.duration


def fifo(jobs: Sequence[Job], gpus: int, *, declare: Declare = "true") -> list[Stay]:
    """Strictly in the order of submission. What jobs declare makes no difference."""
    return play("fifo", jobs, _Pool(gpus), declare=declare)


def easy(jobs: Sequence[Job], gpus: int, *, declare: Declare = "true") -> list[Stay]:
    """In the order of submission, with later jobs let past where that cannot delay the head of the queue."""
    return play("easy", jobs, _Pool(gpus), declare=declare)


def easy_nodes(jobs: Sequence[Job], nodes: int, per_node: int, *, declare: Declare = "true") -> list[Stay]:
    """EASY on machines: a pod lies on one of them."""
    return play("easy", jobs, _Nodes([per_node] * nodes), declare=declare)


def play(policy: Policy, jobs: Sequence[Job], room: Room, *, declare: Declare) -> list[Stay]:
    """All jobs to their starts, in the order in which they start."""
    return _Queue(room, declare).play(jobs, backfill=policy == "easy")


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


# --- rooms ------------------------------------------------------------------------------------------------------------


class Room(Protocol):
    """GPUs, and what of them is free."""

    def fits(self, gpus: int) -> bool:
        """True if a gang of so many could start."""

    def choose(self, gpus: int) -> Place:
        """Where a gang that fits would lie."""

    def take(self, place: Place) -> None: ...

    def give(self, place: Place) -> None: ...

    def copy(self) -> Room: ...


def pooled(gpus: int) -> Room:
    """One number of GPUs."""
    return _Pool(gpus)


def on_machines(sizes: Sequence[int]) -> Room:
    """Machines of so many GPUs each, on which gangs lie in pods."""
    return _Nodes(sizes)


def pod_of(gpus: int, per_node: int) -> int:
    """How wide the pods of a gang are on such machines: all alike, and none wider than a machine.

    A gang that a machine holds is one pod; a wider one is cut into the widest pods that fill machines without a rest.

    >>> [pod_of(gpus, 8) for gpus in (1, 7, 8, 9, 12, 16, 30, 64)]
    [1, 7, 8, 1, 4, 8, 2, 8]
    """
    return gpus if gpus <= per_node else gcd(gpus, per_node)


class _Pool:
    """One number of GPUs; a place is one share of it."""

    def __init__(self, gpus: int) -> None:
        self.free = gpus

    def fits(self, gpus: int) -> bool:
        return gpus <= self.free

    def choose(self, gpus: int) -> Place:
        return ((0, gpus),)

    def take(self, place: Place) -> None:
        self.free -= place[0][1]

    def give(self, place: Place) -> None:
        self.free += place[0][1]

    def copy(self) -> _Pool:
        return _Pool(self.free)


class _Nodes:
    """Machines. ``by_free[n]`` counts those with n GPUs free, so that to ask what fits looks at no machine."""

    def __init__(self, sizes: Sequence[int], *, unit: int = 0) -> None:
        self.unit = unit or gcd(*sizes)
        """The width into which machines of all sizes can be cut."""
        self.free = list(sizes)
        self.by_free = [0] * (max(sizes, default=0) + 1)
        for gpus in sizes:
            self.by_free[gpus] += 1

    def fits(self, gpus: int) -> bool:
        pod = pod_of(gpus, self.unit)
        missing = gpus // pod
        for free in range(len(self.by_free) - 1, pod - 1, -1):
            missing -= self.by_free[free] * (free // pod)
            if missing <= 0:
                return True
        return False

    def choose(self, gpus: int) -> Place:
        """The fullest machines that hold a pod, by number where they are equally full."""
        pod = pod_of(gpus, self.unit)
        shares: list[Share] = []
        for free, number in sorted((free, number) for number, free in enumerate(self.free) if free >= pod):
            take = min(free // pod * pod, gpus)
            shares.append((number, take))
            gpus -= take
            if not gpus:
                return tuple(shares)
        raise AssertionError("asked for a place where none is")

    def take(self, place: Place) -> None:
        for number, gpus in place:
            self._change(number, -gpus)

    def give(self, place: Place) -> None:
        for number, gpus in place:
            self._change(number, gpus)

    def copy(self) -> _Nodes:
        other = _Nodes((), unit=self.unit)
        other.free, other.by_free = self.free[:], self.by_free[:]
        return other

    def _change(self, number: int, gpus: int) -> None:
        free = self.free[number]
        self.by_free[free] -= 1
        self.by_free[free + gpus] += 1
        self.free[number] = free + gpus


# --- the queue --------------------------------------------------------------------------------------------------------


class _Running(Struct, order=True, frozen=True):
    """A job that runs, by its end: the real one in one list, the declared one in the other."""

    end: Micros
    number: int
    """Of its stay."""
    place: Place


class _Queue:
    """What waits for a room, and what runs in it."""

    def __init__(self, room: Room, declare: Declare) -> None:
        self.room = room
        self.declare = declare
        self.now: Micros = 0
        self.queue: deque[Job] = deque()
        self.stays: list[Stay] = []
        self._ends: list[_Running] = []
        """By the real end, a heap."""
        self._declared: list[_Running] = []
        """Those that declare an end, by that, sorted."""
        self._by_number: dict[int, _Running] = {}

    def play(self, jobs: Sequence[Job], *, backfill: bool) -> list[Stay]:
        assert all(job.gpus > 0 and self.room.fits(job.gpus) for job in jobs), "a job wider than the fleet never starts"
        coming = deque(sorted(jobs, key=lambda job: job.submit))
        while coming or self.queue:
            self.now = min(self._next_instants(coming))
            self._end()
            while coming and coming[0].submit <= self.now:
                self.queue.append(coming.popleft())
            self._start_heads()
            if backfill and len(self.queue) > 1 and self.room.fits(1):
                self._backfill()
        return self.stays

    def _next_instants(self, coming: deque[Job]) -> Iterator[Micros]:
        if coming:
            yield coming[0].submit
        if self._ends:
            yield self._ends[0].end

    def _end(self) -> None:
        while self._ends and self._ends[0].end <= self.now:
            over = heappop(self._ends)
            self.room.give(over.place)
            declared = self._by_number.pop(over.number, None)
            if declared is not None:
                del self._declared[bisect_left(self._declared, declared)]

    def _start_heads(self) -> None:
        while self.queue and self.room.fits(self.queue[0].gpus):
            job = self.queue.popleft()
            self._start(job, self.room.choose(job.gpus))

    def _backfill(self) -> None:
        """Let jobs past the head that cannot delay it, as far as is known."""
        head = self.queue[0]
        promise = self._promise(head)
        if promise is None:
            return
        shadow, then = promise
        kept = deque([self.queue.popleft()])
        while self.queue and self.room.fits(1):
            job = self.queue.popleft()
            if not (self.room.fits(job.gpus) and self._start_beside(job, head, shadow=shadow, then=then)):
                kept.append(job)
        self.queue.extendleft(reversed(kept))

    def _start_beside(self, job: Job, head: Job, *, shadow: Micros, then: Room) -> bool:
        """Start a job if the head can still start at its shadow time, when ``then`` is what is free."""
        declared = declared_by(job, self.declare)
        place = self.room.choose(job.gpus)
        if declared is None or self.now + declared > shadow:
            then.take(place)
            if not then.fits(head.gpus):
                then.give(place)
                return False
        self._start(job, place)
        return True

    def _promise(self, head: Job) -> tuple[Micros, Room] | None:
        """The shadow time of the head, and the room as it will be then; None if nothing known frees enough."""
        then = self.room.copy()
        for running in self._declared:
            then.give(running.place)
            if then.fits(head.gpus):
                return max(self.now, running.end), then
        return None

    def _start(self, job: Job, place: Place) -> None:
        number = len(self.stays)
        self.room.take(place)
        heappush(self._ends, _Running(self.now + job.duration, number, place))
        declared = declared_by(job, self.declare)
        if declared is not None:
            self._by_number[number] = _Running(self.now + declared, number, place)
            insort(self._declared, self._by_number[number])
        self.stays.append(Stay(job, self.now))
