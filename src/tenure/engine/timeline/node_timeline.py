"""The future of one node: its free GPUs, relative to those of now, as leases end and claims begin and end.

A claim that is laid or taken back, and a lease that is to end at another time, change the line in place, and the span
of it alone; whatever else happens has the whole line read anew, when it is asked. Thousands may be promised something
of one node: what lasts for ever from some instant on is a change of what comes before, with the opposite sign.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Collection
from itertools import accumulate
from typing import NamedTuple

from tenure.engine.timeline.step_trace import ALWAYS, Read, Span, StepTrace
from tenure.engine.topology import Location
from tenure.units import FOREVER, Instant, Micros

Domain = tuple[str, Location, str]
"""(flavor, location, fabric)"""


class Shown(NamedTuple):
    """What a node adds to its place: where it is, and its free GPUs from each instant on."""

    where: Domain
    labels: dict[str, str]
    free: StepTrace


class NodeTimeline:
    """The future of one node: levels relative to what is free now, from each instant on."""

    __slots__ = (
        "_lasting",
        "base",
        "claims",
        "cutting",
        "fresh",
        "held",
        "levels",
        "offset",
        "releases",
        "shown",
        "times",
    )

    def __init__(self) -> None:
        self.releases: dict[str, tuple[Instant, int]] = {}
        self.claims: dict[str, tuple[Instant, Instant | None, int]] = {}
        self.cutting: set[str] = set()
        """Claims for which whoever is in the way will be cut: afterwards it is not there any more."""
        self.base = 0
        """What is free now."""
        self.held = 0
        """What leases hold now: no more than that can be cut."""
        self.times: list[Instant] = [0]
        self.levels: list[int] = [0]
        self.offset = 0
        """What is to be added to every level."""
        self._lasting: list[int] = []
        """The least that comes after, less the offset; empty until somebody asks."""
        self.fresh = True
        self.shown: Shown | None = None

    # -- leases --

    def release(self, lease: str, end: Instant | None, gpus: int) -> Span:
        """A lease of so many is to end then (None: nobody knows), and not when it was; the span that looks otherwise
        relative to now."""
        was, _ = self.releases.pop(lease, (FOREVER, 0))
        if end is not None:
            self.releases[lease] = (end, gpus)
        comes = FOREVER if end is None else end
        first, last = min(was, comes), max(was, comes)
        return self._shift(first, None if last == FOREVER else last, gpus if comes < was else -gpus)

    # -- claims --

    def claim(self, run: str, start: Instant, end: Instant | None, gpus: int, *, cuts: bool) -> Span:
        """Set so much aside for a run that has nothing yet; the span that looks otherwise now."""
        self.claims[run] = (start, end, gpus)
        if cuts:
            self.cutting.add(run)
        return self._shift(start, end, -gpus)

    def unclaim(self, run: str) -> Span:
        """Give back what was set aside for a run."""
        start, end, gpus = self.claims.pop(run)
        if run in self.cutting:
            self.cutting.discard(run)
            self.fresh = False
        return self._shift(start, end, gpus)

    def _shift(self, start: Instant, end: Instant | None, by: int) -> Span:
        if self.cutting or not self.fresh:
            self.fresh = False
            return ALWAYS
        first = self._cut(start)
        last = len(self.times) if end is None else self._cut(end)
        if end is None and first < last - first:
            self.offset += by
            self.levels[:first] = [level - by for level in self.levels[:first]]
        else:
            self.levels[first:last] = [level + by for level in self.levels[first:last]]
        for index in (last, first):
            if 0 < index < len(self.times) and self.levels[index] == self.levels[index - 1]:
                del self.times[index], self.levels[index]
        self._lasting = []
        return start, FOREVER if end is None else end

    def _cut(self, at: Instant) -> int:
        """The place of an instant, which is put there if the level does not change then."""
        index = bisect_left(self.times, at)
        if index == len(self.times) or self.times[index] != at:
            self.times.insert(index, at)
            self.levels.insert(index, self.levels[index - 1])
        return index

    # -- questions --

    def low(self, start: Instant, end: Instant | None) -> int:
        """The lowest level in ``[start, end)``."""
        if not self.fresh:
            self._read()
        times = self.times
        index = bisect_right(times, start) - 1
        if end is None:
            if not self._lasting:
                self._lasting = list(accumulate(reversed(self.levels), min))[::-1]
            return self._lasting[index] + self.offset
        return min(self.levels[index : bisect_left(times, end, index + 1)]) + self.offset

    def first(self, need: int, *, since: Instant, length: Micros | None) -> Instant | None:
        """The first instant from which so much is free for so long."""
        times, free = self.free((since, FOREVER))
        at: Instant | None = None
        for begin, level in zip(times, free, strict=True):
            if level >= need:
                at = begin if at is None else at
            elif at is not None and length is not None and begin - at >= length:
                return at
            else:
                at = None
        return at

    def free(self, span: Span = ALWAYS) -> Read:
        """What is free in a span, from its begin on."""
        if not self.fresh:
            self._read()
        times, base = self.times, self.base + self.offset
        first, last = bisect_right(times, span[0]) - 1, bisect_left(times, span[1])
        return [span[0], *times[first + 1 : last]], [max(0, base + level) for level in self.levels[first:last]]

    def less(self, without: Collection[str], base: int) -> NodeTimeline:
        """The same with so much free now, because these have ended."""
        line = NodeTimeline()
        line.held = max(0, self.held - max(0, base - self.base))
        line.releases = {key: release for key, release in self.releases.items() if key not in without}
        line.claims, line.cutting, line.base, line.fresh = self.claims, self.cutting, base, False
        return line

    def _read(self) -> None:
        ends: dict[Instant, int] = {0: 0}
        steps: dict[Instant, int] = {}
        taken: dict[Instant, int] = {}
        for at, gpus in self.releases.values():
            ends[at] = ends.get(at, 0) + gpus
        for run, (start, end, gpus) in self.claims.items():
            if run in self.cutting:
                taken[start] = taken.get(start, 0) + gpus
            else:
                steps[start] = steps.get(start, 0) - gpus
            if end is not None:
                steps[end] = steps.get(end, 0) + gpus
        self.times = sorted({*ends, *steps, *taken})
        self.levels, level, cut, held = [], 0, 0, self.held
        for at in self.times:
            gone = min(cut, ends.get(at, 0))  # who was cut does not end a second time
            cut -= gone
            held -= ends.get(at, 0) - gone
            level += ends.get(at, 0) - gone + steps.get(at, 0)
            if at in taken:  # what is free first, and then what leases hold
                free = min(taken[at], max(0, self.base + level))
                more = min(taken[at] - free, max(0, held))
                level -= taken[at] - more
                held -= more
                cut += more
            self.levels.append(level)
        self._lasting, self.offset = [], 0
        self.fresh = True
