"""How long runs really take: the last completed runs of each owner, as quantiles.

A run that declares its end is expected to take its declaration times a ratio, real / declared, of one of its owner's
last 64 completed runs. Until five of these declared an end the ratio is 1. A run that declares nothing is expected to
take as long as one of its owner's completed runs took, or one of the fleet's until the owner has five. Of a run that is
under way only what is longer than it has run already still counts.

    expected length = declared x ratio     or     a real run time     or     None: nobody can know

Samples are integers (ratios in millionths) and are handed out at evenly spaced quantiles: nothing here needs luck.

>>> history = History([Completed("org:a", 100, real) for real in (10, 20, 50, 80, 100)])
>>> history.lengths("org:a", declared=HOUR, elapsed=0, count=3) == [HOUR // 10, HOUR // 2, HOUR]
True
>>> history.lengths("org:b", declared=HOUR, elapsed=0, count=3) == [HOUR, HOUR, HOUR]
True
>>> history.lengths("org:b", declared=None, elapsed=60, count=2), history.lengths("org:b", None, 100, count=2)
([80, 100], [None, None])
"""

from __future__ import annotations

from bisect import bisect_right
from collections import deque
from collections.abc import Iterable, Sequence
from typing import NamedTuple

from tenure.units import HOUR, Micros

KEPT = 64
"""Completed runs of an owner that count."""
ENOUGH = 5
"""Completed runs from which on an owner's own history is believed."""
FLEET_KEPT = 512
"""Completed runs of the whole fleet that stand in for an owner's."""
MILLION = 1_000_000

assert HOUR  # used by the examples above


class Completed(NamedTuple):
    """One run that came to its end by itself."""

    owner: str
    declared: Micros | None
    real: Micros


class History:
    """The completed runs that estimates learn from, oldest first. What is added later displaces what is oldest."""

    def __init__(self, completed: Iterable[Completed] = ()) -> None:
        self._of: dict[str, deque[Completed]] = {}
        self._fleet: deque[Micros] = deque(maxlen=FLEET_KEPT)
        self._ratios: dict[str, tuple[int, ...]] = {}
        self._times: dict[str, tuple[Micros, ...]] = {}
        self._fleet_times: tuple[Micros, ...] | None = None
        for run in completed:
            self.add(run)

    def add(self, run: Completed) -> None:
        """Take in a run that has ended. One that took no time says nothing."""
        if run.real <= 0 or (run.declared is not None and run.declared <= 0):
            return
        self._of.setdefault(run.owner, deque(maxlen=KEPT)).append(run)
        self._fleet.append(run.real)
        self._ratios.pop(run.owner, None)
        self._times.pop(run.owner, None)
        self._fleet_times = None

    def ratios(self, owner: str) -> tuple[int, ...]:
        """Real / declared of the owner's last completed runs, in millionths, sorted; none until there are five."""
        if owner not in self._ratios:
            runs = self._of.get(owner, ())
            found = sorted(max(1, run.real * MILLION // run.declared) for run in runs if run.declared is not None)
            self._ratios[owner] = tuple(found) if len(found) >= ENOUGH else ()
        return self._ratios[owner]

    def times(self, owner: str) -> tuple[Micros, ...]:
        """Real run times of the owner's last completed runs, sorted; the fleet's until there are five."""
        if owner not in self._times:
            runs = self._of.get(owner, ())
            self._times[owner] = tuple(sorted(run.real for run in runs)) if len(runs) >= ENOUGH else ()
        if self._fleet_times is None:
            self._fleet_times = tuple(sorted(self._fleet))
        return self._times[owner] or self._fleet_times

    def scales(self, owner: str, count: int) -> list[int]:
        """As many quantiles of the owner's ratios, in millionths; 1 for each where there are none."""
        found = self.ratios(owner)
        return quantiles(found, count) if found else [MILLION] * count

    def lengths(self, owner: str, declared: Micros | None, elapsed: Micros, count: int) -> list[Micros | None]:
        """As many quantiles of how long a run takes in all, given how long it has run; None if nothing says.

        A declared run that has outlasted all that is known of its owner is expected to end as declared. One that is
        past that too is expected to stay for up to as long again: the longer it overstays, the less is known.
        """
        if declared is None:
            longer = _above(self.times(owner), elapsed)
            return [*quantiles(longer, count)] if longer else [None] * count
        known = self.ratios(owner) or (MILLION,)
        possible = [declared * ratio // MILLION for ratio in known]
        longer = _above(possible, elapsed) or _above([declared], elapsed)
        if longer:
            return [*quantiles(longer, count)]
        return [elapsed + max(1, elapsed * (2 * place + 1) // (2 * count)) for place in range(count)]


def quantiles(values: Sequence[int], count: int) -> list[int]:
    """Evenly spaced quantiles of sorted values: the middle of each of ``count`` equal parts.

    >>> quantiles((1, 2, 3, 4), 2), quantiles((1, 2, 3), 4), quantiles((7,), 3)
    ([2, 4], [1, 2, 2, 3], [7, 7, 7])
    """
    return [values[(2 * place + 1) * len(values) // (2 * count)] for place in range(count)]


def _above(values: Sequence[int], limit: int) -> Sequence[int]:
    return values[bisect_right(values, limit) :]
