"""How much room a location will have, for as long as a run lasts: sums over its nodes that a search can leap along.

A node has for a whole time what it has at the worst instant of it. Sums of the levels themselves promise too much, as
nodes have their dips at different instants. So for each of a few *windows* the dips are taken out first, node by node:

    lasting(t) = the least that a node has in [t, t + window)

A run that lasts longer than its window needs the sum for the rest of its time as well. People declare round times, so
most windows are exact; a run that never ends has one of its own. The sums are kept as a tree, by domain, by block of
domains, up to the location: who looks for domains that have something passes over the blocks that have nothing.

Everything is brought up to date when it is read, for the nodes that changed since.
"""

from __future__ import annotations

from bisect import bisect_right
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from itertools import chain, groupby

from tenure.engine.levels import Profile
from tenure.units import DAY, FOREVER, HOUR, MINUTE, Instant, Micros

Steps = list[tuple[Instant, int]]
Read = tuple[list[Instant], list[int]]
"""The instants at which a level changes, and the level from each on."""

INSTANT: Micros = 1
WINDOWS: tuple[Micros, ...] = (
    INSTANT, MINUTE, 5 * MINUTE, 15 * MINUTE, 30 * MINUTE, HOUR, 90 * MINUTE, 2 * HOUR, 3 * HOUR, 4 * HOUR, 5 * HOUR,
    6 * HOUR, 8 * HOUR, 12 * HOUR, 16 * HOUR, DAY, 36 * HOUR, 2 * DAY, 3 * DAY, 4 * DAY, 7 * DAY, 14 * DAY, 30 * DAY,
)  # fmt: skip

_BLOCK = 16
_COUNTS_MAX = 16


def window_of(length: Micros | None) -> Micros:
    """The longest window that a run of this length has room for."""
    return FOREVER if length is None else WINDOWS[bisect_right(WINDOWS, max(length, INSTANT)) - 1]


def lasting(read: Read, window: Micros) -> Read:
    """The least of a level within each window, as a level of its own.

    >>> lasting(([0, 10, 20, 30], [4, 8, 2, 6]), 5), lasting(([0, 10, 20, 30], [4, 8, 2, 6]), FOREVER)
    (([0, 10, 16, 30], [4, 8, 2, 6]), ([0, 30], [2, 6]))
    """
    times, levels = read
    if window == INSTANT or len(times) == 1:
        return read
    if window >= FOREVER:
        return _for_ever(times, levels)
    falls = [max(0, at - window + 1) for at, was, is_ in zip(times[1:], levels, levels[1:], strict=False) if is_ < was]
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


def differ(new: Iterable[tuple[Instant, int]], old: Iterable[tuple[Instant, int]]) -> Iterator[tuple[Instant, int]]:
    """The steps that lead from one sum of steps to another."""
    steps = dict(new)
    for at, step in old:
        left = steps.pop(at, 0) - step
        if left:
            yield at, left
    yield from steps.items()


class Sums:
    """Levels of domains, summed over blocks of them, over blocks of blocks, and so on up to all."""

    def __init__(self) -> None:
        self.total = Profile()
        self.domains: dict[str, Profile] = {}
        self._names: list[str] = []
        self._tiers: list[list[Profile]] = [[]]
        """The domains in the order in which they came, and above each ``_BLOCK`` of a tier their sum."""
        self._number: dict[str, int] = {}

    def copy(self) -> Sums:
        other = Sums()
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

    def _above(self, fabric: str) -> list[Profile]:
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
                tier.append(Profile())
            at //= _BLOCK
        if len(self._tiers[-1]) > _BLOCK:
            self._grow()
        self.domains[fabric] = self._tiers[0][number]
        return number

    def _grow(self) -> None:
        """One more tier, of what is there already."""
        top = self._tiers[-1]
        tier = [Profile() for _ in range(-(-len(top) // _BLOCK))]
        for number, line in enumerate(top):
            for at, step in line.steps():
                tier[number // _BLOCK].add(at, step)
        self._tiers.append(tier)


class View:
    """What the nodes of a location have for one window, in whole pods of one width."""

    def __init__(self, window: Micros, pod: int, look: Callable[[str], tuple[str, Read] | None]) -> None:
        """``look``: where a node is, and its free GPUs from each instant on; None if it is not one of these."""
        self.window = window
        self.pod = pod
        self.sums = Sums()
        self.stale: set[str] = set()
        self.version = 0
        """Up to which change of its place it was read."""
        self.firsts: dict[str, dict[str, Instant]] = {}
        """By domain: when each of its nodes will have something for the first time."""
        self._look = look
        self._shown: dict[str, tuple[str, Steps]] = {}
        self._counts: dict[tuple[int, int], Counts] = {}

    def derive(self, window: Micros, falling: Iterable[str]) -> View:
        """The same for a window, from a view of instants: only nodes that will have less some day look otherwise."""
        other = View(window, self.pod, self._look)
        other.sums, other._shown = self.sums.copy(), dict(self._shown)
        other.firsts = {fabric: dict(nodes) for fabric, nodes in self.firsts.items()}
        other.stale.update(falling)
        other.version = self.version
        return other

    def refresh(self) -> View:
        if self.stale:
            names, self.stale = self.stale, set()
            if self._shown:
                for name in names:
                    self._reread(name)
            else:
                self._read_all(names)
        return self

    def _reread(self, name: str) -> None:
        old, new = self._forget(name), self._seen(name)
        if new is not None:
            self._keep(name, *new)
        if new is not None and old is not None and new[0] == old[0]:
            if new[1] != old[1] or self.pod > 1:  # counts look at single GPUs as well
                self._step(new[0], list(differ(new[1], old[1])))
            return
        if old is not None:
            self._step(old[0], [(at, -step) for at, step in old[1]])
        if new is not None:
            self._step(*new)

    def _keep(self, name: str, fabric: str, steps: Steps) -> None:
        self._shown[name] = (fabric, steps)
        if steps:
            self.firsts.setdefault(fabric, {})[name] = steps[0][0]

    def _forget(self, name: str) -> tuple[str, Steps] | None:
        old = self._shown.pop(name, None)
        if old is not None:
            self.firsts.get(old[0], {}).pop(name, None)
        return old

    def _step(self, fabric: str, steps: Steps) -> None:
        self.sums.add(fabric, steps)
        for counts in self._counts.values():
            counts.stale.add(fabric)

    def _read_all(self, names: set[str]) -> None:
        steps: dict[str, Steps] = {}
        for name in sorted(names):
            seen = self._seen(name)
            if seen is not None:
                self._keep(name, *seen)
                steps.setdefault(seen[0], []).extend(seen[1])
        self.sums.lay(steps)
        for counts in self._counts.values():
            counts.stale.update(steps)

    def _seen(self, name: str) -> tuple[str, Steps] | None:
        found = self._look(name)
        if found is None:
            return None
        fabric, read = found
        pod, was, steps = self.pod, 0, []
        for at, level in zip(*lasting(read, self.window), strict=True):
            whole = level // pod * pod
            if whole != was:
                steps.append((at, whole - was))
                was = whole
        return fabric, steps

    def counts(self, unit: int, whole: int, free: View) -> Counts:
        """How many groups of a size could find a place; ``free`` is this view for pods of one GPU."""
        found = self._counts.pop((unit, whole), None)
        if found is None:
            found = Counts(self, unit, whole)
            while len(self._counts) >= _COUNTS_MAX:
                del self._counts[next(iter(self._counts))]
        self._counts[unit, whole] = found
        return found.refresh(free)


class Counts:
    """For each domain: groups of ``unit`` GPUs in pods, ``whole`` with their spares, that it could hold."""

    def __init__(self, pods: View, unit: int, whole: int) -> None:
        self.sums = Sums()
        self.stale: set[str] = set(pods.sums.domains)
        self._pods, self._unit, self._whole = pods, unit, whole
        self._shown: dict[str, Steps] = {}

    def refresh(self, free: View) -> Counts:
        if self.stale:
            stale, self.stale = self.stale, set()
            new = {fabric: self._steps(fabric, free) for fabric in stale}
            if self._shown:
                for fabric, steps in new.items():
                    self.sums.add(fabric, list(differ(steps, self._shown.get(fabric, ()))))
            else:
                self.sums.lay(new)
            self._shown.update(new)
        return self

    def _steps(self, fabric: str, free: View) -> Steps:
        unit, whole, was = self._unit, self._whole, 0
        steps: Steps = []
        for at, pods, gpus in _both(self._pods.sums.domains[fabric], free.sums.domains[fabric]):
            count = min(pods // unit, gpus // whole)
            if count != was:
                steps.append((at, count - was))
                was = count
        return steps


def _both(one: Profile, other: Profile) -> Iterator[tuple[Instant, int, int]]:
    """Two levels side by side."""
    if one is other:
        yield from ((at, level, level) for at, level in one.read())
        return
    levels = [0, 0]
    changes = sorted(
        chain(((at, 0, level) for at, level in one.read()), ((at, 1, level) for at, level in other.read()))
    )
    for at, some in groupby(changes, key=lambda change: change[0]):
        for _, which, level in some:
            levels[which] = level
        yield at, levels[0], levels[1]
