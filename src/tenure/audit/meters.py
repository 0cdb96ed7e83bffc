"""GPU-time as straight lines: what was used, what is promised, and exactly when a bound is passed.

A meter that runs at ``rate`` GPUs since ``since`` reads ``used + rate * (t - since)`` at ``t``, in
GPU-microseconds. The bound is exceeded at the first whole microsecond at which the reading is greater than
it:

>>> meter = Meter(); meter.change(+3, at=0)
>>> first_over(used=0, bound=10, pieces=[(0, 3)])      # 3 * 3 = 9 is within 10, 3 * 4 = 12 is not
4
>>> meter.read(3), meter.read(4)
(9, 12)
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from heapq import heappop, heappush
from itertools import pairwise

from tenure.units import FOREVER, GpuMicros, Instant

Piece = tuple[Instant, int]
"""(from this instant on, at this rate), until the next piece begins."""


@dataclass(slots=True)
class Meter:
    """One sum of GPU-time that grows at a known rate."""

    rate: int = 0
    used: GpuMicros = 0
    since: Instant = 0

    def read(self, at: Instant) -> GpuMicros:
        return self.used + self.rate * (at - self.since)

    def change(self, gpus: int, *, at: Instant) -> None:
        self.used = self.read(at)
        self.since = at
        self.rate += gpus

    def correct(self, amount: GpuMicros) -> None:
        """Take back what was charged between the end of a lease and the entry that told of it."""
        self.used += amount


def first_over(*, used: GpuMicros, bound: GpuMicros, pieces: Sequence[Piece]) -> Instant | None:
    """The first instant at which more than ``bound`` is used, or never; it begins at ``used``.

    >>> first_over(used=0, bound=10, pieces=[(0, 3), (2, 1)])      # 6 at 2, then one a microsecond
    7
    >>> first_over(used=0, bound=10, pieces=[(0, 3), (2, 0)]) is None
    True
    """
    for (start, rate), (end, _) in pairwise([*pieces, (FOREVER, 0)]):
        if used > bound:
            return start
        if rate > 0:
            crossing = start + (bound - used) // rate + 1
            if crossing <= end:
                return crossing
        used += rate * (end - start)
    return None


@dataclass(slots=True)
class Promises:
    """What open leases with a declared end may still use: gpus x (until - now), of those not overdue.

    ``now`` never runs back, so a lease that is overdue once can be forgotten.

    >>> promises = Promises(); promises.add("a", gpus=2, until=10); promises.add("b", gpus=1, until=5)
    >>> promises.read(0), promises.read(6)
    (25, 8)
    """

    _gpus: int = 0
    _weight: int = 0
    _open: dict[str, tuple[int, Instant]] = field(default_factory=dict)
    _ends: list[tuple[Instant, str]] = field(default_factory=list)

    def add(self, lease: str, *, gpus: int, until: Instant) -> None:
        self._open[lease] = (gpus, until)
        self._gpus += gpus
        self._weight += gpus * until
        heappush(self._ends, (until, lease))

    def drop(self, lease: str) -> None:
        gpus, until = self._open.pop(lease, (0, 0))
        self._gpus -= gpus
        self._weight -= gpus * until

    def read(self, now: Instant) -> GpuMicros:
        while self._ends and self._ends[0][0] <= now:
            self.drop(heappop(self._ends)[1])
        return self._weight - self._gpus * now
