"""Names kept by size, so that the tightest and the largest are found without looking at the rest.

One row of names per size, sorted, and one bit per size that has a row. "The smallest size of at least n" is a shift
and a lowest set bit; its first name is the tie-break. Size 0 is kept nowhere: what is full cannot be chosen.

>>> free = Buckets()
>>> for name, size in (("n1", 8), ("n2", 3), ("n0", 8)): free.move(name, 0, size)
>>> free.at_least(4), free.first(8), free.largest()
(8, 'n0', 8)
"""

from __future__ import annotations

from bisect import bisect_left, insort
from collections.abc import Iterator
from typing import Generic, Protocol, Self, TypeVar


class _Ordered(Protocol):
    def __lt__(self, other: Self, /) -> bool: ...


Name = TypeVar("Name", bound=_Ordered)


class Buckets(Generic[Name]):
    """A multiset of sizes with a name each."""

    __slots__ = ("_mask", "_rows")

    def __init__(self) -> None:
        self._rows: dict[int, list[Name]] = {}
        self._mask = 0

    def move(self, name: Name, old: int, new: int) -> None:
        """Change the size of a name; from 0 adds it, to 0 takes it out."""
        if old == new:
            return
        if old:
            row = self._rows[old]
            del row[bisect_left(row, name)]
            if not row:
                del self._rows[old]
                self._mask ^= 1 << old
        if new:
            found = self._rows.get(new)
            if found is None:
                self._rows[new] = [name]
                self._mask |= 1 << new
            else:
                insort(found, name)

    def at_least(self, size: int) -> int:
        """The smallest size of at least ``size`` that somebody has, or 0."""
        above = self._mask >> size
        return size + (above & -above).bit_length() - 1 if above else 0

    def largest(self) -> int:
        return self._mask.bit_length() - 1 if self._mask else 0

    def below(self, size: int) -> int:
        """The largest size under ``size`` that somebody has, or 0."""
        under = self._mask & ((1 << size) - 1)
        return under.bit_length() - 1 if under else 0

    def first(self, size: int) -> Name:
        return self._rows[size][0]

    def names(self, size: int) -> list[Name]:
        return self._rows.get(size, [])

    def items(self) -> Iterator[tuple[int, Name]]:
        for size in sorted(self._rows):
            for name in self._rows[size]:
                yield size, name

    def copy(self) -> Buckets[Name]:
        twin: Buckets[Name] = Buckets()
        twin._rows = {size: row[:] for size, row in self._rows.items()}
        twin._mask = self._mask
        return twin
