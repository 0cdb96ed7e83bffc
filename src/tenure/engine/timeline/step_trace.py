"""A level by time, as it was shown, of which a span can be shown anew: what changes costs what changed.

Sums of many such levels are kept elsewhere (``step_function``); they are told the steps that lead from what was to what
is.

>>> trace = StepTrace()
>>> trace.replace(0, FOREVER, [0, 10, 20], [4, 8, 2])
([(0, 4), (10, 4), (20, -6)], (0, 4611686018427387904))
>>> trace.replace(12, 15, [12, 14], [8, 5])
([(14, -3), (15, 3)], (14, 15))
>>> trace.times, trace.levels
([0, 10, 14, 15, 20], [4, 8, 5, 8, 2])
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Iterator

from tenure.units import FOREVER, Instant

Steps = list[tuple[Instant, int]]
Read = tuple[list[Instant], list[int]]
"""The instants at which a level changes, and the level from each on; before the first it is 0."""
Span = tuple[Instant, Instant]
"""From an instant until before another."""

ALWAYS: Span = (0, FOREVER)


def both(one: Span | None, other: Span) -> Span:
    """The least span that holds two."""
    return other if one is None else (min(one[0], other[0]), max(one[1], other[1]))


def differ(new: Iterable[tuple[Instant, int]], old: Iterable[tuple[Instant, int]]) -> Iterator[tuple[Instant, int]]:
    """The steps that lead from one sum of steps to another."""
    steps = dict(new)
    for at, step in old:
        left = steps.pop(at, 0) - step
        if left:
            yield at, left
    yield from steps.items()


def part(read: Read, span: Span) -> Read:
    """What a level is in a span, from its very begin on."""
    times, levels = read
    begin, end = span
    first, last = bisect_right(times, begin), bisect_left(times, end)
    return [begin, *times[first:last]], [levels[first - 1] if first else 0, *levels[first:last]]


class StepTrace:
    """A level by time; no two neighbours are equal."""

    __slots__ = ("levels", "times")

    def __init__(self) -> None:
        self.times: list[Instant] = []
        self.levels: list[int] = []

    def copy(self) -> StepTrace:
        other = StepTrace()
        other.times, other.levels = self.times[:], self.levels[:]
        return other

    def read(self) -> Read:
        return self.times, self.levels

    def steps(self) -> Steps:
        return _steps(0, self.times, self.levels)

    def replace(self, begin: Instant, end: Instant, times: list[Instant], levels: list[int]) -> tuple[Steps, Span]:
        """Show these levels in a span, the first from its begin on; the steps that lead there, and where they differ.

        Steps that cancel one another out beyond the span are none.
        """
        before, old, new = self.put(begin, end, times, levels)
        if old == new:
            return [], (begin, begin)
        changes = sorted(differ(_steps(before, *new), _steps(before, *old)))
        return changes, (changes[0][0], FOREVER if sum(step for _, step in changes) else changes[-1][0])

    def put(self, begin: Instant, end: Instant, times: list[Instant], levels: list[int]) -> tuple[int, Read, Read]:
        """The same; what it is just before the span, and its changes within and at the end, as they were and are."""
        first = bisect_left(self.times, begin)
        last = bisect_right(self.times, end, first)
        before = was = self.levels[first - 1] if first else 0
        after = self.levels[last - 1] if last else 0
        new_times: list[Instant] = []
        new_levels: list[int] = []
        for at, level in zip(times, levels, strict=True):
            if level != was:
                new_times.append(at)
                new_levels.append(level)
                was = level
        if end < FOREVER and was != after:
            new_times.append(end)
            new_levels.append(after)
        old = self.times[first:last], self.levels[first:last]
        self.times[first:last], self.levels[first:last] = new_times, new_levels
        return before, old, (new_times, new_levels)


def _steps(before: int, times: list[Instant], levels: list[int]) -> Steps:
    return [(at, level - was) for at, level, was in zip(times, levels, [before, *levels], strict=False)]


def rises(before: int, read: Read) -> Steps:
    """Where a level rises, and by how much."""
    return [step for step in _steps(before, *read) if step[1] > 0]
