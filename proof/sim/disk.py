"""The ledger's files, in memory where there is room for that, and what befalls them.

A kill is faithful: the files are copied as they lie at that instant, and life goes on with the copy, so nothing that a
dying process would not have done (a rollback, a checkpoint at close) is in what its successor finds. What was
acknowledged (``known``) must be there whenever the ledger is opened; anything else is a violation, and so is an old
copy that opens.
"""

from __future__ import annotations

import errno
import os
import shutil
import sqlite3
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

from proof import scratch
from tenure.ledger import Code, Ledger, LedgerRefused
from tenure.ledger.anchor import SLOT

SUFFIXES = ("", "-wal", ".anchor")
_NO_LIMIT = 1_000_000_000


class Killed(BaseException):
    """The process dies here. Nothing may catch it but the world."""


class Disk:
    """One fleet's files and the handles on them."""

    def __init__(self, tally: Counter[str]) -> None:
        self.root = scratch.make("sim")
        self.tally = tally
        self.known: tuple[int, str] = (0, "")
        """The last entry that somebody was told of: its number and hash."""
        self.faults: list[str] = []
        """What the disk did that it must not: opened an old copy in silence, lost an acknowledged entry."""
        self.backup: tuple[int, Path] | None = None
        self._generation = 0
        self._handles: list[Ledger] = []
        self._full = ""
        self._failing: list[str] = []
        self._kill_at = ""
        self._tear: int | None = None
        self._wal_size = 0
        self._doomed = self.root
        self.path = self._folder() / "fleet.db"
        Ledger.create(self.path, fleet="sim").close()

    def close(self) -> None:
        self.close_all()
        shutil.rmtree(self.root, ignore_errors=True)

    # -- handles --

    def open(self) -> Ledger:
        """Open the ledger as it is, or be refused; what was acknowledged must be in it."""
        ledger = Ledger.open(self.path, hook=self._reached)
        self._handles.append(ledger)
        seq, stamp = self.known
        there = ledger.head_at(seq) if seq else None
        if seq and (there is None or there.hash != stamp):
            self.faults.append(f"the ledger opened without entry {seq}, which had been acknowledged")
        self._limit(ledger)
        return ledger

    def shut(self, ledger: Ledger) -> None:
        ledger.close()
        if ledger in self._handles:
            self._handles.remove(ledger)

    def close_all(self) -> None:
        for ledger in self._handles:
            ledger.close()
        self._handles = []

    # -- what befalls the file --

    def fill(self, where: str) -> None:
        """The disk is full (``file``, ``anchor``), or has room again (empty)."""
        self._full = where
        for ledger in self._handles:
            self._limit(ledger)

    def fail_sync(self, how: str) -> None:
        """The next commit fails: ``before`` it counts, ``after`` it, or at the ``anchor``."""
        self._failing.append(how)
        if how == "before":
            for ledger in self._handles:
                ledger._db = FailsToCommit(ledger, self._fails_before)  # type: ignore[assignment]  # a stand-in

    def kill_at(self, point: str, *, tear: int | None = None) -> None:
        """The next write dies at a point of it; with ``tear`` what it was writing is damaged there."""
        self._kill_at, self._tear = point, tear

    def kill(self) -> None:
        """Everything that has the file open dies now; its successors find a copy of what lies there."""
        old = self.path
        self.path = self._copied(self._folder())
        self.close_all()
        shutil.rmtree(old.parent, ignore_errors=True)

    def calm(self) -> None:
        """Nothing more is to befall it."""
        self._kill_at, self._failing = "", []
        self.fill("")

    def keep_backup(self) -> None:
        folder = self.root / "backup"
        shutil.rmtree(folder, ignore_errors=True)
        folder.mkdir()
        self.backup = (self.known[0], self._copied(folder))

    def restore_backup(self, *, only_the_file: bool) -> Path:
        """Put the old copy in place, and leave the anchor: what is there now is kept aside, for who restores it."""
        assert self.backup is not None
        aside = self._copied(self._folder())
        old = self.backup[1]
        for suffix in ("",) if only_the_file else ("", "-wal"):
            target, source = _with(self.path, suffix), _with(old, suffix)
            if source.exists():
                fresh = _with(self.path, ".restored")
                shutil.copyfile(source, fresh)
                os.replace(fresh, target)
            else:
                target.unlink(missing_ok=True)
        _with(self.path, "-shm").unlink(missing_ok=True)
        return aside

    def put_right(self, aside: Path) -> None:
        """Somebody put the newest copy back."""
        self.close_all()
        old, self.path = self.path, aside
        shutil.rmtree(old.parent, ignore_errors=True)

    # -- the hook of every handle --

    def _reached(self, point: str) -> None:
        if point == "begin":
            wal = _with(self.path, "-wal")
            self._wal_size = wal.stat().st_size if wal.exists() else 0
        if self._full == "anchor" and point == "before-anchor":
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        if self._failing and (self._failing[0], point) in (("after", "after-commit"), ("anchor", "anchor-written")):
            self._failing.pop(0)
            self.tally["fault/sync-fails"] += 1
            if point == "anchor-written":
                raise OSError(errno.EIO, os.strerror(errno.EIO))
            raise LedgerRefused(Code.WriteFailed, "the sync of the file failed.", "Open it again.")
        if point == self._kill_at:
            self._die(point)

    def _die(self, point: str) -> None:
        self._kill_at = ""
        old = self.path
        self.path = self._copied(self._folder())
        torn = self._tear is not None and self._tear_at(point, self._tear)
        self.tally["fault/torn-write" if torn else "fault/crash-in-write"] += 1
        self._tear, self._doomed = None, old
        raise Killed(point)

    def bury(self) -> None:
        """Whoever was killed in a write is dead, and all others on that machine."""
        self.close_all()
        shutil.rmtree(self._doomed.parent, ignore_errors=True)

    def _tear_at(self, point: str, where: int) -> bool:
        """Damage what the dead process had not finished: frames of its transaction, or the slot it was writing."""
        if point == "anchor-written":
            anchor = _with(self.path, ".anchor")
            raw = bytearray(anchor.read_bytes())
            before = anchor_slot(raw)
            raw[before * SLOT + where % SLOT] ^= 0xFF
            anchor.write_bytes(raw)
            return True
        wal = _with(self.path, "-wal")
        size = wal.stat().st_size
        if size <= self._wal_size:  # it began again at the front: which part is new is not to be seen from outside
            return False
        offset = self._wal_size + where % (size - self._wal_size)
        raw = bytearray(wal.read_bytes())
        if where % 2:
            del raw[offset:]
        else:
            raw[offset] ^= 0xFF
        wal.write_bytes(raw)
        return True

    def _limit(self, ledger: Ledger) -> None:
        pages = ledger._db.execute("PRAGMA page_count").fetchone()[0] if self._full == "file" else _NO_LIMIT
        ledger._db.execute(f"PRAGMA max_page_count = {pages}").fetchone()

    def _folder(self) -> Path:
        self._generation += 1
        folder = self.root / str(self._generation)
        folder.mkdir()
        return folder

    def _fails_before(self) -> bool:
        """Whether the sync of this commit fails, before anything of it counts."""
        if "before" not in self._failing:
            return False
        self._failing.remove("before")
        self.tally["fault/sync-fails"] += 1
        return True

    def _copied(self, folder: Path) -> Path:
        """The files as they lie. Nobody else has them open but this process, so no lock is lost that matters."""
        for suffix in SUFFIXES:
            source = _with(self.path, suffix)
            if source.exists():
                shutil.copyfile(source, _with(folder / "fleet.db", suffix))
        return folder / "fleet.db"


class FailsToCommit:
    """A connection whose next COMMIT fails in its sync, and is not done; if ``failing`` still says so then."""

    def __init__(self, ledger: Ledger, failing: Callable[[], bool]) -> None:
        self._ledger, self._failing, self._db = ledger, failing, ledger._db

    def __getattr__(self, name: str) -> Any:
        return getattr(self._db, name)

    def execute(self, sql: str, *parameters: Any) -> sqlite3.Cursor:
        if sql == "COMMIT":
            self._ledger._db = self._db
            if self._failing():
                error = sqlite3.OperationalError("disk I/O error")
                error.sqlite_errorcode = sqlite3.SQLITE_IOERR
                raise error
        return self._db.execute(sql, *parameters)


def anchor_slot(raw: bytes) -> int:
    """The slot that was written last: the one with the higher number."""
    numbers = [int(raw[at : at + SLOT].split()[2]) for at in (0, SLOT)]
    return 0 if numbers[0] > numbers[1] else 1


def _with(path: Path, suffix: str) -> Path:
    return path.with_name(path.name + suffix)
