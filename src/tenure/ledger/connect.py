"""The database file itself: making it, opening it, and the settings that durability hangs on.

A new file is built under another name, synced, and then linked to its own: a crash leaves no half-made
ledger, and of two processes that create the same one only one succeeds.
"""

from __future__ import annotations

import os
import sqlite3
from collections.abc import Callable
from pathlib import Path

from tenure.ledger import schema
from tenure.ledger.anchor import sync_folder
from tenure.ledger.refusals import Code, refused, translated

_COMPANIONS = ("-wal", "-shm", "-journal")
_SETTINGS = (
    "PRAGMA foreign_keys = ON",
    "PRAGMA synchronous = FULL",  # a commit is synced before it returns
    "PRAGMA cell_size_check = ON",  # a damaged page is noticed when it is read
    "PRAGMA trusted_schema = OFF",
    "PRAGMA cache_size = -16384",
)


def connect(path: Path, *, readonly: bool, timeout: float) -> sqlite3.Connection:
    """Open the file, check that it is a ledger of a schema we know, and bring it up to date."""
    if not path.exists():
        raise refused(Code.NotFound, path=path)
    with translated(path):
        db = _open(path, mode="ro" if readonly else "rw", timeout=timeout)
        try:
            if readonly:
                db = _readable(db, path, timeout=timeout)
            _prepare(db, path, readonly=readonly)
        except BaseException:
            db.close()
            raise
    return db


def fleet(db: sqlite3.Connection, *, path: Path) -> str:
    """The id stored at creation."""
    row = db.execute("SELECT value FROM meta WHERE key = 'fleet'").fetchone()
    if row is None or not isinstance(row[0], str):
        raise refused(Code.Damaged, path=path, why="it does not say whose it is")
    return str(row[0])


def place(path: Path) -> tuple[int, int] | None:
    """Which file is at a path right now."""
    try:
        found = path.stat()
    except FileNotFoundError:
        return None
    return found.st_dev, found.st_ino


def check_vacant(path: Path) -> None:
    """Refuse to create over anything, also over a journal that SQLite would replay into the new file."""
    if path.exists():
        raise refused(Code.Exists, path=path)
    for leftover in companions(path):
        raise refused(Code.Leftover, path=path, leftover=leftover)


def companions(path: Path) -> list[Path]:
    """The files that SQLite keeps beside a database, as far as they are there."""
    return [file for suffix in _COMPANIONS if (file := path.with_name(path.name + suffix)).exists()]


def make(path: Path, *, fleet: str, hook: Callable[[str], None]) -> None:
    """Build a ledger without entries and put it in its place, durably. The caller holds the anchor."""
    hook("anchor-made")
    draft = path.with_name(path.name + ".creating")
    draft.unlink(missing_ok=True)
    _build(draft, fleet=fleet)
    hook("file-built")
    try:
        os.link(draft, path)
    except FileExistsError as error:
        raise refused(Code.Exists, path=path) from error
    draft.unlink()
    sync_folder(path.parent)
    hook("file-linked")


def _build(draft: Path, *, fleet: str) -> None:
    """The file, for its owner alone: what runs are told in their environment stands in it. SQLite makes its companions
    with the same mode."""
    os.close(os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600))
    db = sqlite3.connect(draft, isolation_level=None)
    try:
        db.execute("PRAGMA journal_mode = MEMORY")
        schema.build(db, fleet=fleet)
    finally:
        db.close()
    fd = os.open(draft, os.O_RDONLY | os.O_CLOEXEC)
    try:
        os.fsync(fd)
    finally:
        os.close(fd)


def _open(path: Path, *, mode: str, timeout: float) -> sqlite3.Connection:
    address = f"{path.absolute().as_uri()}?{mode if '=' in mode else f'mode={mode}'}"
    return sqlite3.connect(address, uri=True, timeout=timeout, isolation_level=None, check_same_thread=False)


def _readable(db: sqlite3.Connection, path: Path, *, timeout: float) -> sqlite3.Connection:
    """On a medium where SQLite cannot make its shared memory, read a finished file without it."""
    try:
        db.execute("PRAGMA user_version")
    except sqlite3.OperationalError as error:
        wal = path.with_name(path.name + "-wal")
        unfinished = wal.exists() and wal.stat().st_size > 0
        if unfinished or error.sqlite_errorcode & 0xFF not in (
            sqlite3.SQLITE_CANTOPEN,
            sqlite3.SQLITE_READONLY,
        ):
            raise
        db.close()
        return _open(path, mode="mode=ro&immutable=1", timeout=timeout)
    return db


def _prepare(db: sqlite3.Connection, path: Path, *, readonly: bool) -> None:
    found = schema.check(db, path=path)
    for setting in _SETTINGS:
        db.execute(setting)
    if readonly:
        if found < len(schema.STEPS):
            raise refused(Code.OlderSchema, path=path, found=found, known=len(schema.STEPS))
        return
    if db.execute("PRAGMA journal_mode = WAL").fetchone()[0] != "wal":
        raise refused(Code.CannotOpen, path=path, why="SQLite cannot keep a WAL there; is it a local disk?")
    db.execute("PRAGMA wal_autocheckpoint = 4000")  # pages: hot ones are written back once, not four times
    db.execute("PRAGMA journal_size_limit = 67108864")
    if found < len(schema.STEPS):
        schema.upgrade(db, path=path)
