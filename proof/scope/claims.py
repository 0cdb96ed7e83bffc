"""The points that are known, for all workers: a table in memory that they share, so that each point is taken once."""

from __future__ import annotations

from mmap import mmap
from multiprocessing import get_context

Key = bytes
"""16 bytes that stand for all that decides a point's future."""
WIDTH = 16
_SLOTS = 1 << 23
_FULL = _SLOTS * 3 // 4
_EMPTY = bytes(WIDTH)


class Claims:
    """Keys, each claimed by whoever came first. Workers are forked from the process that made it."""

    def __init__(self) -> None:
        self._table = mmap(-1, _SLOTS * WIDTH)
        self._gone_on = mmap(-1, _SLOTS)
        """A mark for each place of the table."""
        self._lock = get_context("fork").Lock()
        self._count = get_context("fork").RawValue("q", 0)

    def claim(self, key: Key) -> bool:
        """True for the first who asks, of all."""
        at = self._find(key)
        if self._table[at : at + WIDTH] == key:  # a look at a key that is being written may miss it: not the one below
            return False
        with self._lock:
            at = self._find(key)
            if self._table[at : at + WIDTH] == key:
                return False
            if self._count.value >= _FULL:
                raise MemoryError(f"{_FULL:,} points are known: proof/scope/claims.py has room for no more")
            self._table[at : at + WIDTH] = key
            self._count.value += 1
        return True

    def go_on(self, key: Key) -> bool:
        """True for the first who means to go on from a point that was claimed."""
        place = self._find(key) // WIDTH
        if self._gone_on[place]:  # a mark that is being set may be missed: the look below does not
            return False
        with self._lock:
            if self._gone_on[place]:
                return False
            self._gone_on[place] = 1
        return True

    def _find(self, key: Key) -> int:
        """Where a key is, or would be put."""
        table, at = self._table, int.from_bytes(key[:8]) % _SLOTS * WIDTH
        while (held := table[at : at + WIDTH]) != key and held != _EMPTY:
            at = (at + WIDTH) % (_SLOTS * WIDTH)
        return at
