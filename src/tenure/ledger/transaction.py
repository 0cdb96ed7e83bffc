"""One transaction: what a writer may do while it holds the ledger.

Between BEGIN IMMEDIATE and COMMIT no other process can append, so ``head`` is the head, ``since`` tells
what others appended before us, and what is planned on that is still true when it is committed. Several
``append`` calls in one transaction share one commit, one sync and one move of the anchor: group commit.

A transaction in which an append failed can only be rolled back, even if the caller caught the error: its
entry may be half written.
"""

from __future__ import annotations

import hashlib
import sqlite3
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path

import msgspec

from tenure.facts import Entry, Fact, decode_entry, encode_entry, entry_hash
from tenure.ledger import chain, derive
from tenure.ledger.chain import Head
from tenure.ledger.refusals import translated
from tenure.units import Instant

SNAPSHOTS_KEPT = 2


class Transaction:
    """Obtained from ``Ledger.write``; of no use after its block."""

    def __init__(
        self, db: sqlite3.Connection, *, path: Path, head: Head, anchored: int, hook: Callable[[str], None]
    ) -> None:
        self._db = db
        self._path = path
        self._hook = hook
        self._over = False
        self.head = head
        """The last entry, as this transaction sees it: its own appends count."""
        self.anchored = anchored
        """The last entry that the anchor knew when this began."""
        self.spoiled = False
        """True once a write has failed: the block will be rolled back."""

    def since(self, seq: int) -> Iterator[Entry]:
        """The entries after ``seq``, whoever appended them, each checked against the one before."""
        self._alive()
        with translated(self._path):
            for link in chain.walk(self._db, path=self._path, after=seq):
                yield link.entry

    def append(self, *, at: Instant, cause: str, facts: Iterable[Fact], decided: bool = True) -> Entry:
        """Append one entry: effective, together with the others of this transaction, when the block ends.

        Returns the entry as a reader will see it. ``at`` must not be earlier than the head's. Without ``decided`` the
        facts are only recorded, for somebody else to decide on.
        """
        self._alive()
        seq = self.head.seq + 1
        if at < self.head.at:
            raise ValueError(f"entry {seq} at {at} would be earlier than entry {seq - 1} at {self.head.at}")
        entry = Entry(seq=seq, at=at, cause=cause, facts=tuple(facts), prev=self.head.hash, decided=decided)
        body = encode_entry(entry)
        entry = _readable(body)
        self._hook("before-append")
        self._store(entry, body)
        self._hook("after-append")
        return entry

    def take(self, body: bytes) -> Entry:
        """Append an entry that is kept elsewhere, byte for byte: what a copy of a ledger does to follow it.

        It must follow from the head; a body that does not is a mistake of the caller, who is to have checked it.
        """
        self._alive()
        entry = _readable(body)
        _, faults = chain.inspect((entry.seq, entry.at, entry.cause, body, entry_hash(body)), before=self.head)
        if faults:
            raise ValueError(f"entry {entry.seq} cannot be taken after entry {self.head.seq}: {'; '.join(faults)}")
        self._hook("before-append")
        self._store(entry, body)
        self._hook("after-append")
        return entry

    def save_snapshot(self, body: bytes) -> None:
        """Keep the state at ``head``, replacing all but the newest one before it."""
        self._alive()
        if self.head.seq == 0:
            raise ValueError("there is nothing to take a snapshot of before the first entry")
        row = (self.head.seq, self.head.hash, hashlib.sha256(body).hexdigest(), body)
        with self._spoiling():
            self._db.execute("INSERT OR REPLACE INTO snapshots VALUES (?,?,?,?)", row)
            self._db.execute(
                """DELETE FROM snapshots
                   WHERE seq NOT IN (SELECT seq FROM snapshots ORDER BY seq DESC LIMIT ?)""",
                (SNAPSHOTS_KEPT,),
            )

    def finish(self) -> None:
        """The block is over; called by the ledger."""
        self._over = True

    def _store(self, entry: Entry, body: bytes) -> None:
        stamp = entry_hash(body)
        with self._spoiling():
            row = (entry.seq, entry.at, entry.cause, body, stamp)
            self._db.execute("INSERT INTO entries VALUES (?,?,?,?,?)", row)
            derive.apply(self._db, entry)
        self.head = Head(seq=entry.seq, hash=stamp, at=entry.at)

    def _alive(self) -> None:
        if self._over:
            raise RuntimeError("this transaction is over: use it inside its `with ledger.write()` block")

    @contextmanager
    def _spoiling(self) -> Iterator[None]:
        try:
            with translated(self._path):
                yield
        except BaseException:
            self.spoiled = True
            raise


def _readable(body: bytes) -> Entry:
    """What a reader will get. Records do not check types when they are made, and a ledger cannot unlearn."""
    try:
        return decode_entry(body)
    except msgspec.MsgspecError as error:
        raise ValueError(f"the entry could not be read back: {error}") from error
