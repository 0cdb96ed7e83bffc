"""How much room a location will have, for as long as a run lasts: sums over its nodes that a search can leap along.

A node has for a whole time what it has at the worst instant of it. Sums of the levels themselves promise too much, as
nodes have their dips at different instants. So for each of a few *windows* the dips are taken out first, node by node:

    sliding_min(t) = the least that a node has in [t, t + window)

A run that lasts longer than its window needs the sum for the rest of its time as well. People declare round times, so
most windows are exact; a run that never ends has one of its own. The sums are kept as a tree, by domain, by block of
domains, up to the location: who looks for domains that have something passes over the blocks that have nothing.

Everything is brought up to date when it is read, for the nodes that changed since.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from itertools import chain, groupby

from tenure.engine.timeline.step_function import StepFunction
from tenure.engine.timeline.step_trace import ALWAYS, Read, Span, Steps, StepTrace, both, part
from tenure.units import DAY, FOREVER, HOUR, MINUTE, Instant, Micros

INSTANT: Micros = 1
WINDOWS: tuple[Micros, ...] = (
    INSTANT, MINUTE, 5 * MINUTE, 15 * MINUTE, 30 * MINUTE, HOUR, 90 * MINUTE, 2 * HOUR, 3 * HOUR, 4 * HOUR, 5 * HOUR,
    6 * HOUR, 8 * HOUR, 12 * HOUR, 16 * HOUR, DAY, 36 * HOUR, 2 * DAY, 3 * DAY, 4 * DAY, 7 * DAY, 14 * DAY, 30 * DAY,
)  # fmt: skip

_BLOCK = 8
_COUNTS_MAX = 16


def window_of(length: Micros | None) -> Micros:
    """The longest window that a run of this length has room for."""
    return FOREVER if length is None else WINDOWS[bisect_right(WINDOWS, max(length, INSTANT)) - 1]


def sliding_min(read: Read, window: Micros) -> Read:
    """The least of a level within each window, as a level of its own.

    >>> sliding_min(([0, 10, 20, 30], [4, 8, 2, 6]), 5), sliding_min(([0, 10, 20, 30], [4, 8, 2, 6]), FOREVER)
    (([0, 10, 16, 30], [4, 8, 2, 6]), ([0, 30], [2, 6]))
    """
    times, levels = read
    if window == INSTANT or len(times) == 1:
        return read
    if window >= FOREVER:
        return _for_ever(times, levels)
    begin = times[0]
    falls = [
        max(begin, at - window + 1) for at, was, is_ in zip(times[1:], levels, levels[1:], strict=False) if is_ < was
    ]
    if not falls:
        return read
    out_times: list[Instant] = []
    out: list[int] = []
    seen: deque[int] = deque()
    coming = 0
    for at in sorted({*times, *falls}):
        while coming < len(times) and times[coming] < at + window:
            while seen and levels[seen[-1]] >= levels[coming]:
                seen.pop()
            seen.append(coming)
            coming += 1
        while seen[0] + 1 < len(times) and times[seen[0] + 1] <= at:
            seen.popleft()
        if not out or out[-1] != levels[seen[0]]:
            out_times.append(at)
            out.append(levels[seen[0]])
    return out_times, out


def _for_ever(times: list[Instant], levels: list[int]) -> Read:
    out_times: list[Instant] = []
    out: list[int] = []
    lowest = levels[-1]
    for index in range(len(times) - 1, -1, -1):
        lowest = min(lowest, levels[index])
        if out and out[-1] == lowest:
            out_times[-1] = times[index]
        else:
            out_times.append(times[index])
            out.append(lowest)
    return out_times[::-1], out[::-1]


class DomainTree:
    """Levels of domains, summed over blocks of them, over blocks of blocks, and so on up to all."""

    def __init__(self) -> None:
        self.total = StepFunction()
        self.domains: dict[str, StepFunction] = {}
        self._names: list[str] = []
        self._tiers: list[list[StepFunction]] = [[]]
        """The domains in the order in which they came, and above each ``_BLOCK`` of a tier their sum."""
        self._number: dict[str, int] = {}

    def copy(self) -> DomainTree:
        other = DomainTree()
        other.total = self.total.copy()
        other._names, other._number = self._names[:], dict(self._number)
        other._tiers = [[line.copy() for line in tier] for tier in self._tiers]
        other.domains = dict(zip(other._names, other._tiers[0], strict=True))
        return other

    def add(self, fabric: str, steps: Iterable[tuple[Instant, int]]) -> None:
        lines = [self.total, *self._above(fabric)]
        for at, step in steps:
            for line in lines:
                line.add(at, step)

    def lay(self, steps: dict[str, Steps]) -> None:
        """The same for all domains at once, into sums that are empty."""
        for fabric in steps:
            if fabric not in self._number:
                self._enter(fabric)
        blocks: dict[tuple[int, int], Steps] = {}
        for fabric, some in steps.items():
            number = self._number[fabric]
            for tier in range(len(self._tiers)):
                blocks.setdefault((tier, number), []).extend(some)
                number //= _BLOCK
        for (tier, number), several in blocks.items():
            self._tiers[tier][number].lay(several)
        self.total.lay(list(chain.from_iterable(steps.values())))

    def holding(self, need: int, at: Instant) -> Iterator[tuple[int, str]]:
        """What each domain has at an instant, if that is enough."""
        tiers = self._tiers
        numbers: Iterable[int] = range(len(tiers[-1]))
        for depth in range(len(tiers) - 1, 0, -1):
            tier, count = tiers[depth], len(tiers[depth - 1])
            below: list[int] = []
            for number in numbers:
                if tier[number].level(at) >= need:
                    below.extend(range(number * _BLOCK, min(count, (number + 1) * _BLOCK)))
            numbers = below
        domains, names = tiers[0], self._names
        for number in numbers:
            level = domains[number].level(at)
            if level >= need:
                yield level, names[number]

    def _above(self, fabric: str) -> list[StepFunction]:
        """The line of a domain, and those of the blocks that it is in."""
        number = self._number.get(fabric)
        if number is None:
            number = self._enter(fabric)
        lines = []
        for tier in self._tiers:
            lines.append(tier[number])
            number //= _BLOCK
        return lines

    def _enter(self, fabric: str) -> int:
        number = self._number[fabric] = len(self._names)
        self._names.append(fabric)
        at = number
        for tier in self._tiers:
            if at == len(tier):
                tier.append(StepFunction())
            at //= _BLOCK
        if len(self._tiers[-1]) > _BLOCK:
            self._grow()
        self.domains[fabric] = self._tiers[0][number]
        return number

    def _grow(self) -> None:
        """One more tier, of what is there already."""
        top = self._tiers[-1]
        tier = [StepFunction() for _ in range(-(-len(top) // _BLOCK))]
        for number, line in enumerate(top):
            for at, step in line.steps():
                tier[number // _BLOCK].add(at, step)
        self._tiers.append(tier)


class WindowCapacity:
    """What the nodes of a location have for one window, in whole pods of one width."""

    def __init__(self, window: Micros, pod: int, look: Callable[[str], tuple[str, Read] | None]) -> None:
        """``look``: where a node is, and its free GPUs from each instant on; None if it is not one of these."""
        self.window = window
        self.pod = pod
        self.sums = DomainTree()
        self.version = 0
        """Up to which change of its place it was read."""
        self.firsts: dict[str, dict[str, Instant]] = {}
        """By domain: when each of its nodes will have something for the first time."""
        self._stale: dict[str, Span] = {}
        self._look = look
        self._shown: dict[str, tuple[str, StepTrace]] = {}
        self._counts: dict[tuple[int, int], GroupCounts] = {}

    def derive(self, window: Micros, falling: Iterable[str]) -> WindowCapacity:
        """The same for a window, from a view of instants: only nodes that will have less some day look otherwise."""
        other = WindowCapacity(window, self.pod, self._look)
        other.sums = self.sums.copy()
        other._shown = {name: (fabric, trace.copy()) for name, (fabric, trace) in self._shown.items()}
        other.firsts = {fabric: dict(nodes) for fabric, nodes in self.firsts.items()}
        other.look_at(falling)
        other.version = self.version
        return other

    def look_at(self, names: Iterable[str], span: Span = ALWAYS) -> None:
        """Some nodes may look otherwise, in a span."""
        for name in names:
            self._stale[name] = both(self._stale.get(name), span)

    def refresh(self) -> WindowCapacity:
        if self._stale:
            names, self._stale = self._stale, {}
            if self._shown:
                for name, span in names.items():
                    self._reread(name, span)
            else:
                self._read_all(names)
        return self

    def _reread(self, name: str, span: Span) -> None:
        found, shown = self._look(name), self._shown.get(name)
        if shown is not None and (found is None or found[0] != shown[0]):
            del self._shown[name]
            self.firsts.get(shown[0], {}).pop(name, None)
            self._step(shown[0], [(at, -step) for at, step in shown[1].steps()], ALWAYS)
            shown = None
        if found is None:
            return
        fabric, read = found
        if shown is None:
            shown, span = (fabric, StepTrace()), ALWAYS
        span = max(0, span[0] - self.window + 1), span[1]
        steps, changed = shown[1].replace(*span, *self._lasting(read, span))
        self._keep(name, *shown)
        if steps or self.pod > 1 or fabric not in self.sums.domains:  # counts look at single GPUs as well
            self._step(fabric, steps, span if self.pod > 1 else changed)

    def _keep(self, name: str, fabric: str, trace: StepTrace) -> None:
        self._shown[name] = (fabric, trace)
        if trace.times:
            self.firsts.setdefault(fabric, {})[name] = trace.times[0]
        else:
            self.firsts.get(fabric, {}).pop(name, None)

    def _step(self, fabric: str, steps: Steps, span: Span) -> None:
        self.sums.add(fabric, steps)
        for counts in self._counts.values():
            counts.look_at(fabric, span)

    def _read_all(self, names: Iterable[str]) -> None:
        steps: dict[str, Steps] = {}
        for name in sorted(names):
            found = self._look(name)
            if found is not None:
                fabric, read = found
                trace = StepTrace()
                steps.setdefault(fabric, []).extend(trace.replace(*ALWAYS, *self._lasting(read, ALWAYS))[0])
                self._keep(name, fabric, trace)
        self.sums.lay(steps)
        for counts in self._counts.values():
            for fabric in steps:
                counts.look_at(fabric, ALWAYS)

    def _lasting(self, read: Read, span: Span) -> Read:
        """The least of a level within each window that begins in a span, in whole pods."""
        begin, end = span
        times, levels = sliding_min(part(read, (begin, end + self.window - 1)), self.window)
        last, pod = bisect_left(times, end), self.pod
        return times[:last], levels[:last] if pod == 1 else [level // pod * pod for level in levels[:last]]

    def counts(self, unit: int, whole: int, free: WindowCapacity) -> GroupCounts:
        """How many groups of a size could find a place; ``free`` is this view for pods of one GPU."""
        found = self._counts.pop((unit, whole), None)
        if found is None:
            found = GroupCounts(self, unit, whole)
            while len(self._counts) >= _COUNTS_MAX:
                del self._counts[next(iter(self._counts))]
        self._counts[unit, whole] = found
        return found.refresh(free)


class GroupCounts:
    """For each domain: groups of ``unit`` GPUs in pods, ``whole`` with their spares, that it could hold."""

    def __init__(self, pods: WindowCapacity, unit: int, whole: int) -> None:
        self.sums = DomainTree()
        self._stale: dict[str, Span] = dict.fromkeys(pods.sums.domains, ALWAYS)
        self._pods, self._unit, self._whole = pods, unit, whole
        self._shown: dict[str, StepTrace] = {}

    def look_at(self, fabric: str, span: Span) -> None:
        """A domain may look otherwise, in a span."""
        self._stale[fabric] = both(self._stale.get(fabric), span)

    def refresh(self, free: WindowCapacity) -> GroupCounts:
        if self._stale:
            stale, self._stale = self._stale, {}
            steps = {fabric: self._reread(fabric, span, free) for fabric, span in stale.items()}
            if self.sums.domains:
                for fabric, some in steps.items():
                    self.sums.add(fabric, some)
            else:
                self.sums.lay(steps)
        return self

    def _reread(self, fabric: str, span: Span, free: WindowCapacity) -> Steps:
        shown = self._shown.get(fabric)
        if shown is None:
            shown, span = self._shown.setdefault(fabric, StepTrace()), ALWAYS
        unit, whole = self._unit, self._whole
        times: list[Instant] = []
        counts: list[int] = []
        for at, pods, gpus in _both(self._pods.sums.domains[fabric], free.sums.domains[fabric], span):
            times.append(at)
            counts.append(min(pods // unit, gpus // whole))
        return shown.replace(*span, times, counts)[0]


def _both(one: StepFunction, other: StepFunction, span: Span) -> Iterator[tuple[Instant, int, int]]:
    """Two levels side by side, in a span."""
    if one is other:
        yield from ((at, level, level) for at, level in one.part(*span))
        return
    levels = [0, 0]
    changes = sorted(
        chain(((at, 0, level) for at, level in one.part(*span)), ((at, 1, level) for at, level in other.part(*span)))
    )
    for at, some in groupby(changes, key=lambda change: change[0]):
        for _, which, level in some:
            levels[which] = level
        yield at, levels[0], levels[1]
