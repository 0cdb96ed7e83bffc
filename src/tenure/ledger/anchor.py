"""The anchor: a small file beside the ledger that remembers how far it had come.

A hash chain proves that nothing in the middle was changed; it cannot prove that its end is the end. A
truncated file, a WAL whose damaged tail SQLite quietly drops, an old copy put back: each is a perfectly
good shorter chain. So after every commit, and before the commit is acknowledged, the anchor is moved to
the new head and synced.

    always:  anchor <= last committed entry      (the anchor moves after the commit)
    always:  last acknowledged entry <= anchor   (the acknowledgement comes after the anchor)

So a head behind the anchor has lost something that was acknowledged, and a head ahead of it is a crash
between the two steps: the chain from the anchor to the head is checked and the anchor rolled forward,
by whoever opens the ledger next or, holding it open, next writes or takes in what others wrote.

The file has two slots of 4096 bytes, each one line padded with blanks, so that `cat` shows it:

    tenure-anchor/1 <fleet> <seq> <hash of that entry> <SHA-256 of the text before>

They are written in turn, the older or damaged one first, so a torn write never costs the newer one.
Because a slot is only written when a later entry is already committed, a damaged slot beside an anchor
that *equals* the head means that either the older slot has rotted or the newest entries are gone; nobody
can tell, and so it is refused.

Several processes may commit: each takes the file's lock and never moves the anchor backwards. The file is
opened anew each time, so that one that was deleted or replaced is noticed at the next write and not years
later.
"""

from __future__ import annotations

import fcntl
import hashlib
import os
import re
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from msgspec import Struct

from tenure.facts import GENESIS
from tenure.ledger.refusals import Code, refused, translated

SLOT = 4096
_FLEET = re.compile(r"[A-Za-z0-9._:-]{1,128}", re.ASCII)
_LINE = re.compile(r"tenure-anchor/1 (\S+) (\d{1,18}) ([0-9a-f]{64}) [0-9a-f]{64}", re.ASCII)


class Mark(Struct, frozen=True, kw_only=True):
    """How far a ledger had come: the number and the hash of its last entry."""

    fleet: str
    seq: int
    hash: str


class Reading(Struct, frozen=True, kw_only=True):
    """What an anchor file says: its newer slot, and whether the other one is unreadable."""

    mark: Mark
    torn: bool


def sidecar(path: Path) -> Path:
    """Where the anchor is when nobody says otherwise."""
    return path.with_name(path.name + ".anchor")


def check_fleet(fleet: str) -> None:
    if not _FLEET.fullmatch(fleet):
        raise ValueError(f"a fleet id is 1 to 128 of A-Z a-z 0-9 . _ : -, not {fleet[:40]!r}")


def read(path: Path, *, ledger: Path, timeout: float) -> Reading:
    """Read the anchor, or refuse."""
    with _opened(path, os.O_RDONLY, ledger=ledger) as fd:
        _lock(fd, fcntl.LOCK_SH, path=path, timeout=timeout)
        return _require(fd, path)


def advance(
    path: Path, mark: Mark, *, ledger: Path, timeout: float, hook: Callable[[str], None] = lambda _: None
) -> None:
    """Move the anchor to ``mark`` and sync it; never backwards, and never away from another fleet."""
    with _opened(path, os.O_RDWR, ledger=ledger) as fd:
        _lock(fd, fcntl.LOCK_EX, path=path, timeout=timeout)
        seen = _require(fd, path)
        _check_same(seen.mark, mark, ledger=ledger, path=path)
        hook("before-anchor")
        if seen.mark.seq < mark.seq or seen.torn:
            newer = max(seen.mark, mark, key=lambda one: one.seq)
            os.pwrite(fd, _render(newer), _stale_slot(fd) * SLOT)
        hook("anchor-written")
        # Synced even when another process had moved it further: that one may have died before its own sync.
        os.fdatasync(fd)


@contextmanager
def held(path: Path, *, timeout: float) -> Iterator[int]:
    """The anchor file, made if need be, locked against every other process for as long as the block lasts.

    It is made for its owner alone: whoever may read it can lock it, and nobody commits while somebody has the lock.
    """
    with translated(path):
        fd = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        with translated(path):
            _lock(fd, fcntl.LOCK_EX, path=path, timeout=timeout)
        yield fd
    finally:
        os.close(fd)


def peek(fd: int, path: Path) -> Reading | None:
    """What a held anchor says; None if nothing yet, or if both slots are damaged. Refuses a foreign file."""
    raw = os.pread(fd, 2 * SLOT + 1, 0)
    if not raw.strip(b"\0"):
        return None
    if len(raw) != 2 * SLOT and not raw.startswith(b"tenure-anchor/1 "):
        raise refused(Code.AnchorDamaged, anchor=path, why="it is some other file")
    return _newest(_slots(raw))


def overwrite(fd: int, path: Path, mark: Mark) -> None:
    """Set a held anchor, both slots, whatever it said before."""
    with translated(path):
        os.ftruncate(fd, 0)
        os.pwrite(fd, _render(mark) * 2, 0)
        os.fsync(fd)
        sync_folder(path.parent)


def blank(fleet: str) -> Mark:
    """The anchor of a ledger that has no entry yet."""
    return Mark(fleet=fleet, seq=0, hash=GENESIS)


def sync_folder(folder: Path) -> None:
    """Make names in a folder durable."""
    fd = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(fd)
    finally:
        os.close(fd)


@contextmanager
def _opened(path: Path, flags: int, *, ledger: Path) -> Iterator[int]:
    try:
        fd = os.open(path, flags | os.O_CLOEXEC)
    except FileNotFoundError as error:
        raise refused(Code.AnchorMissing, path=ledger, anchor=path) from error
    except OSError as error:
        with translated(path):
            raise error
    try:
        with translated(path):
            yield fd
    finally:
        os.close(fd)  # and with it goes the lock


def _lock(fd: int, kind: int, *, path: Path, timeout: float) -> None:
    deadline = time.monotonic() + timeout
    while True:
        try:
            return fcntl.flock(fd, kind | fcntl.LOCK_NB)
        except BlockingIOError as error:
            if time.monotonic() >= deadline:
                raise refused(Code.Busy, path=path) from error
            time.sleep(0.0005)


def _require(fd: int, path: Path) -> Reading:
    reading = _newest(_slots(os.pread(fd, 2 * SLOT, 0)))
    if reading is None:
        raise refused(Code.AnchorDamaged, anchor=path, why="neither of its two slots passes its checksum")
    return reading


def _check_same(seen: Mark, mark: Mark, *, ledger: Path, path: Path) -> None:
    if seen.fleet != mark.fleet:
        why = f"the anchor is of fleet {seen.fleet}, the ledger of fleet {mark.fleet}"
        raise refused(Code.AnchorMismatch, path=ledger, anchor=path, why=why)
    if seen.seq == mark.seq and seen.hash != mark.hash:
        why = f"they have different entries {mark.seq}"
        raise refused(Code.AnchorMismatch, path=ledger, anchor=path, why=why)


def _stale_slot(fd: int) -> int:
    first, second = _slots(os.pread(fd, 2 * SLOT, 0))
    if first is None or second is None:
        return 0 if first is None else 1
    return 0 if first.seq < second.seq else 1


def _slots(raw: bytes) -> tuple[Mark | None, Mark | None]:
    return _parse(raw[:SLOT]), _parse(raw[SLOT:])


def _newest(slots: tuple[Mark | None, Mark | None]) -> Reading | None:
    good = [slot for slot in slots if slot is not None]
    if not good:
        return None
    return Reading(mark=max(good, key=lambda mark: mark.seq), torn=len(good) == 1)


def _render(mark: Mark) -> bytes:
    text = f"tenure-anchor/1 {mark.fleet} {mark.seq} {mark.hash} "
    line = text.encode() + hashlib.sha256(text.encode()).hexdigest().encode()
    return line.ljust(SLOT - 1) + b"\n"


def _parse(raw: bytes) -> Mark | None:
    found = _LINE.match(raw.decode("ascii", errors="replace"))
    if found is None:
        return None
    mark = Mark(fleet=found[1], seq=int(found[2]), hash=found[3])
    return mark if _render(mark) == raw else None
