"""Why a ledger said no: one closed list of codes, each with its sentence and what to do next.

A refusal is an answer about the file, the disk or another process; it is raised, because it can come out
of any read or write, and it is a value, because callers match on ``code`` and print the two sentences. A
bug of the caller (closing a lease that is not open, a clock that went backwards) is a ValueError or
RuntimeError instead.

>>> print(refused(Code.BehindAnchor, path="fleet.db", anchor="fleet.db.anchor", head=812, seen=840).sentence)
fleet.db ends at entry 812, its anchor fleet.db.anchor has seen entry 840: the file was truncated or restored
from an old copy, and at least 28 acknowledged entries are missing.
"""

from __future__ import annotations

import errno
import os
import sqlite3
from collections.abc import Iterator
from contextlib import contextmanager
from enum import StrEnum
from pathlib import Path

import msgspec

_LEAST = 64 << 10
"""Bytes of room below which a failed write is one for want of room: SQLite takes 32 KiB at a time."""
GUIDE = "docs/concepts/ledger.md"


class Code(StrEnum):
    """Every way to be refused."""

    NotFound = "NotFound"
    Exists = "Exists"
    Leftover = "Leftover"
    CannotOpen = "CannotOpen"
    NotALedger = "NotALedger"
    NewerSchema = "NewerSchema"
    OlderSchema = "OlderSchema"
    AnchorMissing = "AnchorMissing"
    AnchorDamaged = "AnchorDamaged"
    AnchorMismatch = "AnchorMismatch"
    AnchorInUse = "AnchorInUse"
    BehindAnchor = "BehindAnchor"
    ChainBroken = "ChainBroken"
    Damaged = "Damaged"
    Replaced = "Replaced"
    Busy = "Busy"
    DiskFull = "DiskFull"
    WriteFailed = "WriteFailed"
    ReadOnly = "ReadOnly"
    Unconfirmed = "Unconfirmed"


_ACCEPT = f"If it is right as it stands, `tenure ledger accept` says so for good ({GUIDE})."
_RESTORE = "Stop every process that uses it, keep a copy of all its files, and restore the newest backup"

_TEXTS: dict[Code, tuple[str, str]] = {
    Code.NotFound: (
        "There is no ledger at {path}.",
        "Check the path, or create a ledger there.",
    ),
    Code.Exists: (
        "{path} exists already.",
        "Open it, or choose another path: a ledger is never overwritten.",
    ),
    Code.Leftover: (
        "{leftover} is left over from an earlier ledger at {path}; SQLite would replay it into a new one.",
        "Restore the ledger it belongs to, or move it away.",
    ),
    Code.CannotOpen: (
        "{path} cannot be opened: {why}.",
        "Check that the folder exists and that you may read and write in it.",
    ),
    Code.NotALedger: (
        "{path} is not a Tenure ledger: {why}.",
        f"Check the path; if it was a ledger, its first page is damaged. {_RESTORE}.",
    ),
    Code.NewerSchema: (
        "{path} was written by a newer Tenure: its schema is {found}, this release knows {known}.",
        "Upgrade Tenure; nothing in the file was changed.",
    ),
    Code.OlderSchema: (
        "{path} has schema {found}, this release reads {known}, and it was opened for reading only.",
        "Open it once for writing: it is upgraded then, in one transaction.",
    ),
    Code.AnchorMissing: (
        "The anchor {anchor} of {path} is missing: nothing vouches that the ledger's end is its end.",
        f"Put the anchor back, or say where it is. {_ACCEPT}",
    ),
    Code.AnchorDamaged: (
        "The anchor {anchor} cannot be relied on: {why}.",
        f"Restore the anchor. {_ACCEPT}",
    ),
    Code.AnchorMismatch: (
        "{path} and its anchor {anchor} do not belong together: {why}.",
        f"Check that both paths are of the same fleet, or restore both from one backup. {_ACCEPT}",
    ),
    Code.AnchorInUse: (
        "{anchor} is the anchor of fleet {fleet}, whose ledger had reached entry {seen}.",
        "Restore that ledger; to begin a new one, move its anchor away first.",
    ),
    Code.BehindAnchor: (
        (
            "{path} ends at entry {head}, its anchor {anchor} has seen entry {seen}: the file was truncated "
            "or restored from an old copy, and at least {missing} acknowledged entries are missing."
        ),
        f"Put back the newest copy of the file and of its -wal. {_ACCEPT}",
    ),
    Code.ChainBroken: (
        "The chain of {path} is broken at entry {seq}: {why}.",
        f"{_RESTORE}; `tenure ledger verify` lists all that is wrong.",
    ),
    Code.Damaged: (
        "{path} is damaged: {why}.",
        f"{_RESTORE}; `tenure ledger verify` lists all that is wrong.",
    ),
    Code.Replaced: (
        "{path} is no longer the file that was opened: it was moved, deleted or replaced.",
        "Open it again: opening decides by what is there now.",
    ),
    Code.Busy: (
        "{path} is being written by another process, which did not finish in time.",
        "Try again; if it lasts, look for a process that hangs.",
    ),
    Code.DiskFull: (
        "There is no room to write {path}.",
        "Free some space, then try again.",
    ),
    Code.WriteFailed: (
        "The operating system failed to read, write or sync {path}: {why}.",
        "Check the disk and the system's log, then open the ledger again.",
    ),
    Code.ReadOnly: (
        "{path} cannot be written: {why}.",
        "Open it for writing, as a user who may write the file, its folder and its anchor.",
    ),
    Code.Unconfirmed: (
        "An earlier commit to {path} failed half-way, so this handle does not know what is stored.",
        "Open the ledger again: opening decides by what is really there.",
    ),
}


class LedgerRefused(Exception):
    """The ledger said no: ``code``, one ``sentence`` why, and the ``next_step``.

    ``unknown`` is True where a commit failed half-way: the entries may be stored or not, and opening the
    ledger again tells. Otherwise nothing of the refused transaction is stored.
    """

    def __init__(self, code: Code, sentence: str, next_step: str, *, unknown: bool = False) -> None:
        super().__init__(code, sentence, next_step)
        self.code = code
        self.sentence = sentence
        self.next_step = next_step
        self.unknown = unknown

    def in_doubt(self) -> LedgerRefused:
        """The same, of a commit whose outcome is not known."""
        next_step = f"{self.next_step} Open the ledger again first: what is really there decides."
        return LedgerRefused(self.code, self.sentence, next_step, unknown=True)

    def __str__(self) -> str:
        return f"{self.code}: {self.sentence} {self.next_step}"


def refused(code: Code, **numbers: object) -> LedgerRefused:
    """The refusal with its sentences filled in."""
    if code is Code.BehindAnchor:
        numbers["missing"] = int(str(numbers["seen"])) - int(str(numbers["head"]))
    sentence, next_step = _TEXTS[code]
    return LedgerRefused(code, sentence.format(**numbers), next_step.format(**numbers))


_PRIMARY: dict[int, Code] = {
    sqlite3.SQLITE_BUSY: Code.Busy,
    sqlite3.SQLITE_LOCKED: Code.Busy,
    sqlite3.SQLITE_FULL: Code.DiskFull,
    sqlite3.SQLITE_IOERR: Code.WriteFailed,
    sqlite3.SQLITE_CORRUPT: Code.Damaged,
    sqlite3.SQLITE_ERROR: Code.Damaged,  # our SQL is fixed: an error in it means the schema is damaged
    sqlite3.SQLITE_NOTADB: Code.NotALedger,
    sqlite3.SQLITE_READONLY: Code.ReadOnly,
    sqlite3.SQLITE_PERM: Code.ReadOnly,
    sqlite3.SQLITE_CANTOPEN: Code.CannotOpen,
}


def from_sqlite(error: sqlite3.Error, path: Path) -> LedgerRefused:
    """What SQLite's answer means to a person."""
    # Errors of the Python module itself (text that is not UTF-8) carry no code; here they mean damage.
    number = getattr(error, "sqlite_errorcode", sqlite3.SQLITE_CORRUPT)
    code = _PRIMARY.get(number & 0xFF, Code.Damaged)
    if code is Code.WriteFailed and _is_full(path):
        code = Code.DiskFull
    return refused(code, path=path, why=f"SQLite says {str(error)!r}")


def _is_full(path: Path) -> bool:
    """Whether there is no room where a file is: SQLite calls that an I/O error if its shared memory does not fit."""
    try:
        disk = os.statvfs(path.parent)
    except OSError:
        return False
    return disk.f_bavail * disk.f_frsize < _LEAST


def from_system(error: OSError, path: Path) -> LedgerRefused:
    """What the operating system's answer means to a person."""
    match error.errno:
        case errno.ENOSPC | errno.EDQUOT:
            return refused(Code.DiskFull, path=path)
        case errno.EACCES | errno.EPERM | errno.EROFS:
            return refused(Code.ReadOnly, path=path, why=error.strerror)
        case errno.ENOENT | errno.ENOTDIR | errno.EISDIR:
            return refused(Code.CannotOpen, path=path, why=error.strerror)
        case _:
            return refused(Code.WriteFailed, path=path, why=error.strerror)


@contextmanager
def translated(path: Path) -> Iterator[None]:
    """Turn the errors of SQLite, of the operating system and of decoding what is stored into refusals."""
    try:
        yield
    except sqlite3.IntegrityError:
        raise  # a bug of the caller, not an answer
    except sqlite3.Error as error:
        raise from_sqlite(error, path) from error
    except UnicodeDecodeError as error:  # SQLite quotes damaged names in its messages
        raise refused(Code.Damaged, path=path, why="it holds text that is not UTF-8") from error
    except msgspec.MsgspecError as error:
        raise refused(Code.Damaged, path=path, why=f"a stored row cannot be read ({error})") from error
    except OSError as error:
        raise from_system(error, path) from error
