"""Meters of GPU time (SPEC 3): what was used, what may still be used, and when a limit is reached.

A meter is a straight line: ``used(t) = offset + rate * t`` in GPU-microseconds. Opening a lease of g GPUs at s adds
the line ``g * (t - s)``, closing it at e freezes that line at ``g * (e - s)``. So a reading is exact at any instant,
does not depend on when anybody looked, and costs two additions however long the history is.

What running claims with a declared end may still use is a second sum, ``sum(g * until) - sum(g) * t`` over the claims
whose declared end is ahead.

>>> meter = Meter(); meter.open(8, at=100); meter.close(8, at=160); meter.open(2, at=200)
>>> meter.used(150), meter.used(210)
(380, 500)
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from heapq import heappop, heappush

from tenure.units import FOREVER, GpuMicros, Instant

WALK_MAX = 1_024
"""So many declared ends are walked along, one by one."""


class Meter:
    """GPUs held now, and GPU-microseconds used so far."""

    __slots__ = ("offset", "rate")

    def __init__(self, offset: GpuMicros = 0, rate: int = 0) -> None:
        self.offset = offset
        self.rate = rate

    def open(self, gpus: int, *, at: Instant) -> None:
        self.rate += gpus
        self.offset -= gpus * at

    def close(self, gpus: int, *, at: Instant) -> None:
        self.rate -= gpus
        self.offset += gpus * at

    def used(self, at: Instant) -> GpuMicros:
        return self.offset + self.rate * at

    def split(self, at: Instant, into: Meter) -> None:
        """Stop here and go on in another meter at the same rate."""
        into.rate += self.rate
        into.offset -= self.rate * at
        self.offset, self.rate = self.used(at), 0


class Commitments:
    """What claims with a declared end may still use.

    Ends that nobody claims any more are forgotten at once, also where nobody ever asks (an envelope without a limit of
    hours): what is kept grows with what is open, and not with what ever was.
    """

    __slots__ = ("_ends", "_heap", "_latest", "_past", "_until", "gpus")

    def __init__(self) -> None:
        self._ends: dict[Instant, int] = {}
        self._heap: list[Instant] = []
        self._latest: list[Instant] = []
        """The same ends, negative: the last comes first."""
        self._past: Instant = -1
        self.gpus = 0
        self._until = 0

    def open(self, gpus: int, until: Instant) -> None:
        if until <= self._past:
            return
        if until not in self._ends:
            heappush(self._heap, until)
            heappush(self._latest, -until)
        self._ends[until] = self._ends.get(until, 0) + gpus
        self.gpus += gpus
        self._until += gpus * until

    def close(self, gpus: int, until: Instant) -> None:
        if until <= self._past:
            return
        self._ends[until] -= gpus
        if not self._ends[until]:
            self._forget(until)
        self.gpus -= gpus
        self._until -= gpus * until

    def _forget(self, until: Instant) -> None:
        del self._ends[until]
        if len(self._heap) + len(self._latest) > 4 * len(self._ends) + 16:
            self._heap, self._latest = sorted(self._ends), sorted(-end for end in self._ends)

    def first(self) -> Instant:
        """The first end that is ahead; FOREVER if there is none."""
        while self._heap and self._heap[0] not in self._ends:
            heappop(self._heap)
        return self._heap[0] if self._heap else FOREVER

    def last(self) -> Instant:
        """The last end that is ahead; 0 if there is none."""
        while self._latest and -self._latest[0] not in self._ends:
            heappop(self._latest)
        return -self._latest[0] if self._latest else 0

    def __len__(self) -> int:
        return len(self._ends)

    def ends(self) -> Iterable[tuple[Instant, int]]:
        """The ends that are ahead, each with its GPUs."""
        return self._ends.items()

    def ahead(self, now: Instant) -> GpuMicros:
        while self._heap and self._heap[0] <= now:
            self._past = heappop(self._heap)
            gpus = self._ends.pop(self._past, 0)
            self.gpus -= gpus
            self._until -= gpus * self._past
        return self._until - self.gpus * now


def reaches(limit: GpuMicros | None, *meters: Meter) -> Instant:
    """The first instant at which the meters together have used the limit, at their present rates."""
    rate = sum(meter.rate for meter in meters)
    if limit is None or rate <= 0:
        return FOREVER
    return -((sum(meter.offset for meter in meters) - limit) // rate)


def runs_out(
    limit: GpuMicros | None, meters: Sequence[tuple[Meter, Commitments]], *, now: Instant
) -> Instant:  # fmt: skip
    """When meters together will have used the limit, if what is to end does; FOREVER if they will not.

    That is plain as long as nothing ends before, and once everything has ended that is to. In between the ends are
    walked along; where they are too many, nobody is told. The answer is the same until something does not end as it
    is to.
    """
    at = reaches(limit, *(meter for meter, _ in meters))
    if limit is None or at <= now:
        return at
    left = limit - sum(meter.used(now) for meter, _ in meters)
    committed = sum(ahead.ahead(now) for _, ahead in meters)
    rate = sum(meter.rate - ahead.gpus for meter, ahead in meters)
    if at <= min(ahead.first() for _, ahead in meters):
        return at
    at = now - (committed - left) // rate if rate > 0 else FOREVER
    if committed <= left and at >= max(ahead.last() for _, ahead in meters):
        return at
    return _walked(left, meters, now=now) if sum(len(ahead) for _, ahead in meters) <= WALK_MAX else FOREVER


def _walked(left: GpuMicros, meters: Sequence[tuple[Meter, Commitments]], *, now: Instant) -> Instant:
    rate, since = sum(meter.rate for meter, _ in meters), now
    for until, gpus in sorted(end for _, ahead in meters for end in ahead.ends()):
        if rate * (until - since) >= left:
            break
        left -= rate * (until - since)
        rate, since = rate - gpus, until
    return since - (-left // rate) if rate > 0 else FOREVER
