"""One class of waiting runs, in order of age: the oldest that takes no longer than a hole.

Runs of a class ask for the same, of the same owner, and differ in how long they take. They are kept in blocks, each of
which knows its least duration, so a question passes over the blocks that hold nobody who is short enough.

>>> line = Line()
>>> for at, lasts in ((1, 50), (2, 30), (3, 10), (4, 20)): line.add((at, "lab", f"r{at}"), lasts)
>>> line.oldest(), line.oldest(within=25), line.oldest(within=5), line.least
((1, 'lab', 'r1'), (3, 'lab', 'r3'), None, 10)
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right

from tenure.engine.queue.age import Age
from tenure.units import FOREVER, Micros

_BLOCK = 256


class _Block:
    __slots__ = ("ages", "lasts", "least")

    def __init__(self, ages: list[Age], lasts: list[Micros]) -> None:
        self.ages, self.lasts = ages, lasts
        self.least = min(lasts, default=FOREVER)


class Line:
    """Runs by age, each with how long it takes; who declares no end takes for ever."""

    def __init__(self) -> None:
        self._blocks: list[_Block] = []
        self._firsts: list[Age] = []

    def __bool__(self) -> bool:
        return bool(self._blocks)

    def __len__(self) -> int:
        return sum(len(block.ages) for block in self._blocks)

    def add(self, age: Age, lasts: Micros) -> None:
        if not self._blocks:
            self._blocks.append(_Block([age], [lasts]))
            self._firsts.append(age)
            return
        place = len(self._blocks) - 1
        if age < self._firsts[place]:
            place = max(0, bisect_right(self._firsts, age) - 1)
        block = self._blocks[place]
        index = len(block.ages) if block.ages[-1] < age else bisect_left(block.ages, age)
        block.ages.insert(index, age)
        block.lasts.insert(index, lasts)
        block.least = min(block.least, lasts)
        if len(block.ages) > 2 * _BLOCK:
            self._blocks[place : place + 1] = [
                _Block(block.ages[:_BLOCK], block.lasts[:_BLOCK]),
                _Block(block.ages[_BLOCK:], block.lasts[_BLOCK:]),
            ]
            self._firsts.insert(place + 1, self._blocks[place + 1].ages[0])
        self._firsts[place] = self._blocks[place].ages[0]

    def remove(self, age: Age) -> None:
        place = max(0, bisect_right(self._firsts, age) - 1)
        block = self._blocks[place]
        index = bisect_left(block.ages, age)
        assert block.ages[index] == age
        lasts = block.lasts[index]
        del block.ages[index], block.lasts[index]
        if not block.ages:
            del self._blocks[place], self._firsts[place]
            return
        self._firsts[place] = block.ages[0]
        if lasts == block.least:
            block.least = min(block.lasts)

    @property
    def least(self) -> Micros:
        """The shortest duration; beyond all if nobody is there."""
        return min((block.least for block in self._blocks), default=FOREVER + 1)

    def oldest(self, *, within: Micros = FOREVER) -> Age | None:
        """The oldest that takes no longer."""
        for block in self._blocks:
            if block.least <= within:
                return next(age for age, lasts in zip(block.ages, block.lasts, strict=True) if lasts <= within)
        return None

    def ages(self) -> list[Age]:
        return [age for block in self._blocks for age in block.ages]
