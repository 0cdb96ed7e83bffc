"""The chain of entries: how it is read, and what makes it whole.

Entry *n* is whole when its stored hash is the SHA-256 of its stored bytes, the bytes decode, they say the
same number, instant and cause as the columns beside them, its ``prev`` is the hash of entry *n - 1*, and
its instant is not earlier than that entry's. Reading always checks; there is no way to get an unchecked
entry out of a ledger.

Rows are read in pages, by number. An append-only table makes that safe, and no statement stays open
between pages: a half-read generator neither holds back checkpoints nor turns the next write into a
conflict.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec
from msgspec import Struct

from tenure.facts import GENESIS, Entry, decode_entry, entry_hash
from tenure.ledger.refusals import Code, refused
from tenure.units import Instant

_PAGE = 64
Row = tuple[Any, Any, Any, Any, Any]
"""seq, at, cause, body, hash: as found, of whatever type a damaged page may hold."""


class Head(Struct, frozen=True, kw_only=True):
    """The end of the chain: number, hash and instant of the last entry."""

    seq: int
    hash: str
    at: Instant


EMPTY = Head(seq=0, hash=GENESIS, at=0)


class Link(Struct, frozen=True, kw_only=True):
    """An entry as it is stored: the record, the exact bytes, their hash."""

    entry: Entry
    body: bytes
    hash: str


def head(db: sqlite3.Connection) -> Head:
    """The last entry, or ``EMPTY``."""
    row = db.execute("SELECT seq, hash, at FROM entries ORDER BY seq DESC LIMIT 1").fetchone()
    return EMPTY if row is None else _head(row)


def head_at(db: sqlite3.Connection, seq: int) -> Head | None:
    """What the head was when the chain was ``seq`` entries long."""
    row = db.execute("SELECT seq, hash, at FROM entries WHERE seq = ?", (seq,)).fetchone()
    if row is not None:
        return _head(row)
    return EMPTY if seq == 0 else None


def _head(row: tuple[Any, ...]) -> Head:
    """Check the types, too: the row may be from a damaged page."""
    return msgspec.convert(dict(zip(Head.__struct_fields__, row, strict=True)), Head)


def rows(db: sqlite3.Connection, *, path: Path, after: int, until: int | None = None) -> Iterator[Row]:
    """The stored rows in ``(after, until]``, unchecked, in order."""
    last = until if until is not None else 2**62
    while page := db.execute(
        "SELECT seq, at, cause, body, hash FROM entries WHERE seq > ? AND seq <= ? ORDER BY seq LIMIT ?",
        (after, last, _PAGE),
    ).fetchall():
        for row in page:
            if row[0] <= after:  # only in a damaged tree, where it could go round in circles
                raise refused(Code.Damaged, path=path, why=f"entry {row[0]} comes after entry {after}")
            yield row
            after = row[0]


def walk(db: sqlite3.Connection, *, path: Path, after: int, until: int | None = None) -> Iterator[Link]:
    """The entries in ``(after, until]``, each checked against the one before; refuses at the first fault."""
    before = head_at(db, after)
    if before is None:
        raise refused(Code.ChainBroken, path=path, seq=after, why="there is no such entry")
    for row in rows(db, path=path, after=after, until=until):
        link, faults = inspect(row, before=before)
        if link is None or faults:
            raise refused(Code.ChainBroken, path=path, seq=before.seq + 1, why="; ".join(faults))
        yield link
        before = Head(seq=link.entry.seq, hash=link.hash, at=link.entry.at)


def inspect(row: Row, *, before: Head) -> tuple[Link | None, list[str]]:
    """Judge one stored row: the entry if it can be read at all, and all that is wrong with it."""
    seq, at, cause, body, stored = row
    if not isinstance(body, bytes) or not isinstance(stored, str):
        return None, ["its row is damaged"]
    faults = [] if entry_hash(body) == stored else ["its bytes do not have the hash that is stored with them"]
    try:
        entry = decode_entry(body)
    except (msgspec.MsgspecError, UnicodeError, RecursionError) as error:
        return None, [*faults, f"its bytes are not an entry ({error})"]
    if (entry.seq, entry.at, entry.cause) != (seq, at, cause):
        faults.append("its columns differ from its bytes")
    if entry.seq != before.seq + 1:
        faults.append(f"its number is {entry.seq}")
    if entry.prev != before.hash:
        faults.append(f"it does not follow from entry {before.seq}")
    if entry.at < before.at:
        faults.append(f"it is earlier than entry {before.seq}")
    return Link(entry=entry, body=body, hash=stored), faults
