"""Archive segments: stretches of the chain as files, each proof of itself.

A segment is a gzip file of JSON Lines, ``{"hash":"...","entry":{...}}``, the format of ``tenure ledger export``; the
entry is the exact bytes that were hashed. Its name says which entries it holds and how it ends:

    000000000001-000000004096-9f86d081884c7d65.jsonl.gz

A segment is written under another name, synced, read back and checked against the chain, and only then given its own.
Reading always checks: each entry against its hash, against the one before, and the segments against one another.
"""

from __future__ import annotations

import gzip
import os
import re
import zlib
from collections.abc import Iterable, Iterator
from contextlib import suppress
from pathlib import Path

import msgspec
from msgspec import Struct

from tenure.facts import GENESIS, decode_entry, entry_hash
from tenure.kube.entries import Line
from tenure.kube.refusals import Code, StoreRefused, refused

_NAME = re.compile(r"(\d{12})-(\d{12})-([0-9a-f]{16})\.jsonl\.gz", re.ASCII)
_BEFORE, _BETWEEN, _AFTER = b'{"hash":"', b'","entry":', b"}"


class Segment(Struct, frozen=True, order=True):
    """One file, as its name says."""

    first: int
    last: int
    mark: str
    path: Path


class Archive:
    """A folder of segments."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def segments(self) -> list[Segment]:
        """All of them, in order."""
        found = [(path, _NAME.fullmatch(path.name)) for path in self.folder.glob("*.jsonl.gz")]
        return sorted(Segment(int(name[1]), int(name[2]), name[3], path) for path, name in found if name is not None)

    def write(self, lines: Iterable[Line], *, after: int, prev: str) -> Segment:
        """Put a stretch of the chain into a file, durably, after reading it back. ``after`` and ``prev``: where it
        begins. Refuses if the folder cannot be written, and leaves nothing half done there."""
        draft = self.folder / f"{after + 1:012}.part"
        try:
            return self._write(draft, lines, after=after, prev=prev)
        except BaseException as error:
            with suppress(OSError):
                draft.unlink(missing_ok=True)
            if isinstance(error, OSError):
                why = error.strerror or str(error)
                raise refused(Code.ArchiveRefuses, folder=self.folder, why=why, seq=after + 1) from error
            raise

    def _write(self, draft: Path, lines: Iterable[Line], *, after: int, prev: str) -> Segment:
        self.folder.mkdir(parents=True, exist_ok=True)
        with draft.open("wb") as raw:
            with gzip.GzipFile(fileobj=raw, mode="wb", compresslevel=6, mtime=0, filename="") as file:
                for line in lines:
                    file.write(_BEFORE + line.hash.encode() + _BETWEEN + line.body + _AFTER + b"\n")
            raw.flush()
            os.fsync(raw.fileno())
        last, digest = after, prev
        for line in _read(draft, after=after, prev=prev):
            last, digest = line.entry.seq, line.hash
        if last == after:
            raise ValueError("a segment holds at least one entry")
        path = self.folder / f"{after + 1:012}-{last:012}-{digest[:16]}.jsonl.gz"
        draft.rename(path)
        _sync(self.folder)
        return Segment(after + 1, last, digest[:16], path)

    def lines(self, *, after: int, until: int) -> Iterator[Line]:
        """The entries in ``(after, until]``, checked; refuses if any of them is not there."""
        at, prev = 0, None
        for segment in self.segments():
            if segment.last <= after or segment.first > until:
                continue
            if segment.last <= at:
                continue  # an older cut of what was read already
            if segment.first > max(at, after) + 1:
                break
            for line in _read(segment.path, after=segment.first - 1, prev=GENESIS if segment.first == 1 else None):
                if line.entry.seq <= at or line.entry.seq > until:
                    continue
                if prev is not None and line.entry.prev != prev:
                    raise _damaged(segment.path, f"entry {line.entry.seq} does not follow from the segment before")
                at, prev = line.entry.seq, line.hash
                if at > after:
                    yield line
        if at < until:
            raise refused(Code.ArchiveNeeded, seq=until, why=f"{self.folder} holds none after entry {max(at, after)}")

    def verify(self, *, until: int, digest: str) -> int:
        """Read the archive from its first entry to the one that the LedgerHead names; returns how many there are."""
        count, seen = 0, GENESIS
        for line in self.lines(after=0, until=until):
            count, seen = count + 1, line.hash
        if seen != digest:
            raise refused(
                Code.ArchiveNeeded, seq=until, why=f"{self.folder} has another entry {until} than the LedgerHead says"
            )
        return count


def _read(path: Path, *, after: int, prev: str | None) -> Iterator[Line]:
    """The entries of one file, each checked against the one before."""
    number = after
    try:
        with gzip.open(path, "rb") as file:
            for raw in file:
                line = _line(raw, path)
                number += 1
                if line.entry.seq != number or (prev is not None and line.entry.prev != prev):
                    raise _damaged(path, f"entry {line.entry.seq} does not follow from entry {number - 1}")
                prev = line.hash
                yield line
    except (OSError, EOFError, zlib.error) as error:
        raise _damaged(path, str(error)) from error


def _line(raw: bytes, path: Path) -> Line:
    start = len(_BEFORE) + 64
    digest = raw[len(_BEFORE) : start].decode("ascii", errors="replace")
    body = raw[start + len(_BETWEEN) : -len(_AFTER) - 1]
    if not raw.startswith(_BEFORE) or entry_hash(body) != digest:
        raise _damaged(path, "a line does not have the hash that is written beside it")
    try:
        return Line(decode_entry(body), body, digest)
    except msgspec.MsgspecError as error:
        raise _damaged(path, f"a line is no entry ({error})") from error


def _damaged(path: Path, why: str) -> StoreRefused:
    return refused(Code.EntryDamaged, name=path.name, why=why)


def _sync(folder: Path) -> None:
    fd = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(fd)
    finally:
        os.close(fd)
