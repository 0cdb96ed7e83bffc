"""A step function of time, and the first instant from which it stays high enough.

Kept as a sum of steps in blocks; each block knows the lowest and the highest level within it, so a search passes over
the blocks that cannot hold the answer. Adding a step costs one block.

>>> free = StepFunction()
>>> for at, step in ((0, 2), (10, 6), (20, -8), (30, 8)): free.add(at, step)
>>> free.first(4, start=0, length=10), free.first(4, start=0, length=11), free.first(9, start=0, length=1)
(10, 30, None)
>>> free.low(0, 20), free.low(0, 21), free.low(15, None), free.next_rise(10)
(2, 0, 0, 30)
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Iterator
from itertools import accumulate

from tenure.units import FOREVER, Instant, Micros

_BLOCK = 256


class _Block:
    __slots__ = ("high", "levels", "low", "stale", "steps", "times", "total")

    def __init__(self, times: list[Instant], steps: list[int]) -> None:
        self.times = times
        self.steps = steps
        self.levels: list[int] = []
        self.stale = True
        self.total = self.low = self.high = 0

    def copy(self) -> _Block:
        return _Block(self.times[:], self.steps[:])

    def read(self) -> _Block:
        """Work out the level after each step, and the extremes of the block, from 0 before it."""
        if self.stale:
            levels = self.levels = list(accumulate(self.steps))
            self.total, self.low, self.high, self.stale = levels[-1], min(levels), max(levels), False
        return self


class StepFunction:
    """The sum of all steps up to an instant, that instant included."""

    __slots__ = ("_after", "_blocks", "_firsts", "_sums")

    def __init__(self) -> None:
        self._blocks: list[_Block] = []
        self._firsts: list[Instant] = []
        self._sums = [0]
        """The level before each block, as far as it is known."""
        self._after: list[int] = []
        """The lowest level from each block on; empty until somebody asks."""

    def add(self, at: Instant, step: int) -> None:
        """Raise (or lower) the level from an instant on; a step and its opposite leave nothing behind."""
        if not step:
            return
        self._after = []
        if not self._blocks:
            self._blocks.append(_Block([at], [step]))
            self._firsts.append(at)
            return
        place = max(0, bisect_right(self._firsts, at) - 1)
        del self._sums[place + 1 :]
        block = self._blocks[place]
        index = bisect_left(block.times, at)
        block.stale = True
        if index < len(block.times) and block.times[index] == at:
            block.steps[index] += step
            if not block.steps[index]:
                del block.times[index], block.steps[index]
        else:
            block.times.insert(index, at)
            block.steps.insert(index, step)
        self._tidy(place, block)

    def lay(self, steps: list[tuple[Instant, int]]) -> None:
        """Many steps at once, into a profile that has none."""
        assert not self._blocks
        sums: dict[Instant, int] = {}
        for at, step in steps:
            sums[at] = sums.get(at, 0) + step
        times = sorted(at for at, step in sums.items() if step)
        for first in range(0, len(times), _BLOCK):
            some = times[first : first + _BLOCK]
            self._blocks.append(_Block(some, [sums[at] for at in some]))
            self._firsts.append(some[0])

    def __len__(self) -> int:
        return sum(len(block.times) for block in self._blocks)

    def copy(self) -> StepFunction:
        other = StepFunction()
        other._blocks = [block.copy() for block in self._blocks]
        other._firsts = self._firsts[:]
        return other

    def steps(self) -> Iterator[tuple[Instant, int]]:
        return (step for block in self._blocks for step in zip(block.times, block.steps, strict=True))

    def part(self, begin: Instant, end: Instant) -> Iterator[tuple[Instant, int]]:
        """The level at the begin of a span, and at each instant within at which it changes."""
        if not self._blocks:
            yield begin, 0
            return
        place, index, before = self._find(begin)
        yield begin, before + (self._blocks[place].read().levels[index - 1] if index else 0)
        for block in self._blocks[place:]:
            block.read()
            last = bisect_left(block.times, end, index)
            for at, level in zip(block.times[index:last], block.levels[index:last], strict=True):
                yield at, before + level
            if last < len(block.times):
                return
            before += block.total
            index = 0

    def level(self, at: Instant) -> int:
        """The level of an instant."""
        blocks = self._blocks
        if len(blocks) == 1:  # most are small
            index = bisect_right(blocks[0].times, at)
            return blocks[0].read().levels[index - 1] if index else 0
        if not blocks:
            return 0
        place, index, before = self._find(at)
        return before + (blocks[place].read().levels[index - 1] if index else 0)

    def _tidy(self, place: int, block: _Block) -> None:
        if not block.times:
            del self._blocks[place], self._firsts[place]
            return
        if len(block.times) > 2 * _BLOCK:
            self._blocks.insert(place + 1, _Block(block.times[_BLOCK:], block.steps[_BLOCK:]))
            self._firsts.insert(place + 1, block.times[_BLOCK])
            del block.times[_BLOCK:], block.steps[_BLOCK:]
        self._firsts[place] = block.times[0]

    def _find(self, at: Instant) -> tuple[int, int, int]:
        """The block of an instant, how many of its steps were taken by then, and the level before it."""
        place = max(0, bisect_right(self._firsts, at) - 1)
        sums = self._sums
        while len(sums) <= place:
            sums.append(sums[-1] + self._blocks[len(sums) - 1].read().total)
        return place, bisect_right(self._blocks[place].times, at), sums[place]

    def first(self, need: int, *, start: Instant, length: Micros | None) -> Instant | None:
        """The first instant, not before ``start``, from which the level is at least ``need`` for so long."""
        if not self._blocks:
            return start if need <= 0 else None
        place, index, before = self._find(start)
        blocks = self._blocks
        level = before + (blocks[place].read().levels[index - 1] if index else 0)
        since = start if level >= need else FOREVER
        for number in range(place, len(blocks)):
            block = blocks[number].read()
            if since == FOREVER:
                skip = before + block.high < need
            else:
                if length is not None and index < len(block.times) and block.times[index] >= since + length:
                    return since
                skip = before + block.low >= need
            if not skip:
                times, levels, wanted = block.times, block.levels, need - before
                for at in range(index, len(times)):
                    if since == FOREVER:
                        if levels[at] >= wanted:
                            since = times[at]
                    elif length is not None and times[at] >= since + length:
                        return since
                    elif levels[at] < wanted:
                        since = FOREVER
            before += block.total
            index = 0
        return None if since == FOREVER else since

    def low(self, start: Instant, end: Instant | None) -> int:
        """The lowest level in ``[start, end)``; to the end of time if there is no end."""
        if not self._blocks:
            return 0
        place, index, before = self._find(start)
        blocks = self._blocks
        if end is None:
            levels = blocks[place].read().levels
            here = min(levels[index - 1 :]) if index else min(0, blocks[place].low)
            return min([before + here, *self._lows()[place + 1 : place + 2]])
        lowest = before + (blocks[place].read().levels[index - 1] if index else 0)
        for number in range(place, len(blocks)):
            block = blocks[number].read()
            last = len(block.times) if block.times[-1] < end else bisect_left(block.times, end)
            if index == 0 and last == len(block.times):
                lowest = min(lowest, before + block.low)
            elif index < last:
                lowest = min(lowest, before + min(block.levels[index:last]))
            if last < len(block.times):
                break
            before += block.total
            index = 0
        return lowest

    def _lows(self) -> list[int]:
        if not self._after:
            self._find(self._firsts[-1])  # so that all sums are known
            lows = [before + block.read().low for before, block in zip(self._sums, self._blocks, strict=False)]
            self._after = list(accumulate(reversed(lows), min))[::-1]
        return self._after

    def next_rise(self, after: Instant) -> Instant | None:
        """The next instant at which the level rises."""
        place = max(0, bisect_right(self._firsts, after) - 1)
        for block in self._blocks[place:]:
            for index in range(bisect_right(block.times, after), len(block.times)):
                if block.steps[index] > 0:
                    return block.times[index]
        return None

    def next_change(self, after: Instant) -> Instant | None:
        """The next instant at which the level is another."""
        place = max(0, bisect_right(self._firsts, after) - 1)
        for block in self._blocks[place : place + 2]:
            index = bisect_right(block.times, after)
            if index < len(block.times):
                return block.times[index]
        return None
