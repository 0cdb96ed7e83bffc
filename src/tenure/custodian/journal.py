"""What a custodian has revealed, and for which commit: written before the value leaves it, and never changed.

One line of fixed width for each index, from 1 on, so that line k stands at (k-1) x WIDTH:

    0000000007 <commit, 64 hex> <check, 16 hex>

The check covers the line and the chain it belongs to. A reveal is acknowledged only after its line is synced,
so a last line that is cut short, or was not filled (a power cut leaves zero bytes), was never acknowledged:
it counts as not there and is written over. Any other line that fails its check was acknowledged once, and the
journal is refused.
"""

from __future__ import annotations

import os
import re

from msgspec import Struct

from tenure.draw import H

WIDTH = 10 + 1 + 64 + 1 + 16 + 1
_LINE = re.compile(rb"(\d{10}) ([0-9a-f]{64}) [0-9a-f]{16}\n", re.ASCII)


class Answered(Struct, frozen=True, kw_only=True):
    """The value with this index was revealed for this commit."""

    index: int
    commit: str


class JournalDamaged(Exception):
    """A line that was acknowledged cannot be read any more."""


class Journal:
    """The lines in an open file. The caller holds its lock."""

    def __init__(self, fd: int, published: str) -> None:
        self._fd = fd
        self._published = published

    def position(self) -> int:
        """The index that was revealed last; 0 if none was."""
        count = os.fstat(self._fd).st_size // WIDTH
        if count and b"\0" in self._raw(count):
            count -= 1
        if count:
            self.line(count)
        return count

    def line(self, index: int) -> Answered:
        raw = self._raw(index)
        found = _LINE.fullmatch(raw)
        if found is None or self._render(index, found[2].decode()) != raw:
            raise JournalDamaged(f"line {index} of the journal fails its check")
        return Answered(index=index, commit=found[2].decode())

    def write(self, index: int, commit: str) -> None:
        """Put a line in place; durable when this returns. The same may be written again, another never."""
        raw = self._render(index, commit)
        written = os.pwrite(self._fd, raw, (index - 1) * WIDTH)
        if written != len(raw):
            raise OSError(f"only {written} of {len(raw)} bytes were written")
        os.fsync(self._fd)

    def _raw(self, index: int) -> bytes:
        return os.pread(self._fd, WIDTH, (index - 1) * WIDTH)

    def _render(self, index: int, commit: str) -> bytes:
        text = f"{index:010d} {commit} "
        return (text + H(self._published.encode(), text.encode()).hex()[:16] + "\n").encode()
