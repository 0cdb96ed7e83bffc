"""The queue of SPEC 7 at capacity level: one number of GPUs, no topology, no money. For benchmarks of estimates.

It is written apart from what it judges (``tenure.engine.estimate``), and to be read rather than to be fast: promises
with places and the quarter of them for owners that hold none, the first improved by at least a tenth, safe backfill
past all promises, starts by age. Declared ends are never before the real ones, so no promise is ever broken.
"""

from __future__ import annotations

from bisect import insort
from collections.abc import Callable, Iterator
from heapq import heappop, heappush

from msgspec import Struct

from tenure.units import Instant, Micros

DEPTH = 64


class Ask(Struct, frozen=True):
    """One submission: how long it says that it runs, and how long it will."""

    key: str
    owner: str
    gpus: int
    submit: Instant
    declared: Micros
    real: Micros


class Claim(Struct):
    """A promise that stands."""

    ask: Ask
    start: Instant
    made: Instant
    by_wait: Micros
    """What was to be waited when it was made."""

    @property
    def end(self) -> Instant:
        return self.start + self.ask.declared


Steps = list[tuple[Instant, int]]
"""(instant, GPUs taken from then on): what changes of the room; what comes free is negative."""


class Queue:
    """So many GPUs, what runs on them, and what waits for them."""

    def __init__(self, gpus: int, depth: int = DEPTH) -> None:
        self.free, self.depth = gpus, depth
        self.now: Instant = 0
        self.running: dict[str, tuple[Ask, Instant]] = {}
        """Each with its start."""
        self.promises: list[Claim] = []
        """By number."""
        self.waiting: list[Ask] = []
        """Those without a promise, by age."""
        self.started: dict[str, Instant] = {}
        self._ends: list[tuple[Instant, str]] = []
        self._declared: Steps = []

    def play(
        self, asks: list[Ask], *, submitted: Callable[[Ask], None], ended: Callable[[Ask], None], until: Instant
    ) -> None:
        """Play the submissions of a trace; tell of each after the pass that it caused, and of each end before its."""
        coming = sorted(asks, key=lambda ask: ask.submit)[::-1]
        while coming or self._ends:
            self.now = min([ask.submit for ask in coming[-1:]] + [at for at, _ in self._ends[:1]])
            if self.now > until:
                return
            while self._ends and self._ends[0][0] <= self.now:
                ended(self._end(heappop(self._ends)[1]))
            fresh = []
            while coming and coming[-1].submit <= self.now:
                fresh.append(coming.pop())
            self.waiting += fresh
            self._pass()
            for ask in fresh:
                submitted(ask)

    def planned(self, key: str) -> Instant:
        """When the declarations say that a run will start: its promise, or a plan behind all who are before it."""
        for claim in self.promises:
            if claim.ask.key == key:
                return claim.start
        steps = self._steps()
        for ask in self.waiting:
            at = earliest(self.free, steps, ask, since=self.now)
            if ask.key == key:
                return at
            insort(steps, (at, ask.gpus))
            insort(steps, (at + ask.declared, -ask.gpus))
        raise KeyError(key)

    # --- one pass ---------------------------------------------------------------------------------------------------

    def _pass(self) -> None:
        for claim in list(self.promises):
            if claim.ask.gpus <= self.free and self._may_start(claim.ask, claim):
                self.promises.remove(claim)
                self._start(claim.ask)
        self._improve()
        self._deal()
        while (ask := self._next_backfill()) is not None:
            self.waiting.remove(ask)
            self._start(ask)

    def _improve(self) -> None:
        if not self.promises:
            return
        first = self.promises[0]
        at = earliest(self.free, self._steps(without=first), first.ask, since=self.now)
        if first.start - at >= max(1, first.by_wait // 10):
            first.start = at

    def _deal(self) -> None:
        while len(self.promises) < self.depth and (ask := self._next_dealt()) is not None:
            at = earliest(self.free, self._steps(), ask, since=self.now)
            self.waiting.remove(ask)
            if at <= self.now:
                self._start(ask)
            else:
                self.promises.append(Claim(ask, at, self.now, at - self.now))

    def _next_dealt(self) -> Ask | None:
        if 4 * len(self.promises) < 3 * self.depth:
            return self.waiting[0] if self.waiting else None
        holders = {claim.ask.owner for claim in self.promises}
        return next((ask for ask in self.waiting if ask.owner not in holders), None)

    def _next_backfill(self) -> Ask | None:
        holes = dict(self._holes())
        for ask in self.waiting:
            if ask.gpus <= self.free:
                end = min((at for gpus, at in holes.items() if gpus < ask.gpus), default=None)
                if end is None or self.now + ask.declared <= end:
                    return ask
        return None

    def _may_start(self, ask: Ask, claim: Claim) -> bool:
        steps = self._steps(without=claim)
        return earliest(self.free, steps, ask, since=self.now) <= self.now

    def _holes(self) -> Iterator[tuple[int, Instant]]:
        """(GPUs left, from when) wherever that is less than at any instant before."""
        level = least = self.free
        for at, taken in self._steps():
            level -= taken
            if level < least:
                least = level
                yield least, at

    def _steps(self, without: Claim | None = None) -> Steps:
        steps = list(self._declared)
        for claim in self.promises:
            if claim is not without:
                steps += [(claim.start, claim.ask.gpus), (claim.end, -claim.ask.gpus)]
        steps.sort()
        return steps

    def _start(self, ask: Ask) -> None:
        self.free -= ask.gpus
        self.started[ask.key] = self.now
        self.running[ask.key] = (ask, self.now)
        heappush(self._ends, (self.now + ask.real, ask.key))
        insort(self._declared, (self.now + ask.declared, -ask.gpus))

    def _end(self, key: str) -> Ask:
        ask, start = self.running.pop(key)
        self.free += ask.gpus
        self._declared.remove((start + ask.declared, -ask.gpus))
        return ask


def earliest(free: int, steps: Steps, ask: Ask, *, since: Instant) -> Instant:
    """The first instant from which enough GPUs are free for as long as the run says; steps of one instant go together,
    those that free (negative) first."""
    level, start = free, since if free >= ask.gpus else None
    for at, taken in steps:
        if start is not None and at >= start + ask.declared:
            return start
        level -= taken
        if level < ask.gpus:
            start = None
        elif start is None:
            start = max(at, since)
    assert start is not None, "an empty fleet holds every run"
    return start
