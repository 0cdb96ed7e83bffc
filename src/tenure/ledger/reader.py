"""What can be asked of a ledger: entries, leases, usage, notes, decisions, promises, the last good snapshot.

Entries are the truth and are checked as they are read. The other answers come from the query tables
(``tenure.ledger.derive``); none of them looks at more of the history than the question covers.
"""

from __future__ import annotations

import hashlib
import sqlite3
from collections.abc import Collection, Container, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Unpack

import msgspec
from msgspec import Struct

from tenure.facts import Entry, Verdict
from tenure.ledger import chain, promises, queries
from tenure.ledger.chain import Head, Link
from tenure.ledger.charges import Charge, charges
from tenure.ledger.promises import CutRow, PlanRow, PromiseRow, ReservationRow, ResolutionRow, RunRow
from tenure.ledger.queries import CompletedRow, Filter, HolderKey, LeaseRow, Period, UsageKey, Which
from tenure.ledger.refusals import Code, refused, translated
from tenure.units import GpuMicros, Instant


class Note(Struct, frozen=True, kw_only=True):
    """Something people wanted to hear about, and the entry that said it."""

    seq: int
    at: Instant
    kind: str
    object: str
    reason: str
    message: str


class Decision(Struct, frozen=True, kw_only=True):
    """Why a run started or waited: the verdict, and the entry that recorded it."""

    seq: int
    at: Instant
    namespace: str
    run: str
    verdict: Verdict


class Snapshot(Struct, frozen=True, kw_only=True):
    """The state after entry ``seq``, in whatever form the caller saved it."""

    seq: int
    hash: str
    body: bytes


class Reader:
    """The reading half of ``Ledger``."""

    def __init__(self, db: sqlite3.Connection, path: Path) -> None:
        self._db = db
        self.path = path
        self.fleet = ""
        self._unconfirmed = False

    @property
    def head(self) -> Head:
        """The last entry: its number, hash and instant."""
        with self._asking() as db:
            return chain.head(db)

    def head_at(self, seq: int) -> Head | None:
        """What the head was when the ledger was ``seq`` entries long; None if it never was."""
        with self._asking() as db:
            return chain.head_at(db, seq)

    @property
    def stands_at(self) -> Instant | None:
        """Where the virtual clock stopped that this ledger was written by (a scenario's); None if its time goes on: it
        is of the real world, or something was written to it since."""
        with self._asking() as db:
            row = db.execute("SELECT value FROM meta WHERE key = 'clock'").fetchone()
            if row is None:
                return None
            at = msgspec.convert(row[0], int, strict=False)
            return at if chain.head(db).at <= at else None

    def data_version(self) -> int:
        """A number that changes when *another* connection has committed; cheap enough to ask often."""
        with self._asking() as db:
            return int(db.execute("PRAGMA data_version").fetchone()[0])

    def entries(self, after: int = 0, until: int | None = None) -> Iterator[Entry]:
        """The entries in ``(after, until]``, each checked against the one before."""
        for link in self.links(after, until):
            yield link.entry

    def links(self, after: int = 0, until: int | None = None) -> Iterator[Link]:
        """The same with the stored bytes and their hash."""
        with self._asking() as db:
            yield from chain.walk(db, path=self.path, after=after, until=until)

    def export(self, after: int = 0, until: int | None = None) -> Iterator[bytes]:
        """JSON Lines, ``{"hash":"...","entry":{...}}``; the entry is the exact bytes that were hashed."""
        for link in self.links(after, until):
            yield b'{"hash":"' + link.hash.encode() + b'","entry":' + link.body + b"}"

    def leases(
        self,
        *,
        at: Instant | None = None,
        since: Instant | None = None,
        until: Instant | None = None,
        open_only: bool = False,
        newest: bool = False,
        limit: int | None = None,
        **which: Unpack[Which],
    ) -> list[LeaseRow]:
        """Leases that match everything given, in the order they were opened (``newest``: the other way).

        ``at``: held at that instant. ``since``, ``until``: held at some time in ``[since, until)``. Further
        keywords: ``namespace``, ``run``, ``node``, ``owner``, ``budget``, ``envelope``, ``payer``, ``role``,
        ``funding``.
        """
        when = Period(at=at, since=since, until=until, open_only=open_only)
        with self._asking() as db:
            return queries.leases(db, Filter(**which), when, newest=newest, limit=limit)

    def closed_leases(self, *, since: Instant | None = None, but: Container[str] = ()) -> Iterator[LeaseRow]:
        """Leases that have ended (no earlier than ``since``), less those named: one by one, for they may be many."""
        with self._asking() as db:
            yield from queries.closed_leases(db, Period(since=since), but)

    def usage(self, *, by: UsageKey, since: Instant, until: Instant, **which: Unpack[Which]) -> dict[str, GpuMicros]:
        """GPU-microseconds used in ``[since, until)`` for each ``by``; an open lease counts up to ``until``.

        Keys look like ``owner``, ``payer``, ``budget/envelope``, ``namespace/run``, ``node``, ``2025-11-01``
        (UTC); ``sponsor`` is the payers of borrowed GPUs. Further keywords narrow it down as in ``leases``:
        ``role="Spare"`` shows spares apart.
        """
        with self._asking() as db:
            return queries.usage(db, Filter(**which), by=by, since=since, until=until)

    def concurrency(self, *, by: HolderKey, at: Instant, **which: Unpack[Which]) -> dict[str, int]:
        """GPUs held at one instant, past or present, for each ``by``; keys and keywords as in ``usage``."""
        with self._asking() as db:
            return queries.concurrency(db, Filter(**which), by=by, at=at)

    def charges(self, *, since: Instant, until: Instant, **which: Unpack[Which]) -> list[Charge]:
        """What each envelope paid for each run on each day of ``[since, until)``, in each class and role, sorted.

        Keywords as in ``leases``. The sum over all of them is the sum of ``usage`` by anything.
        """
        with self._asking() as db:
            return charges(db, Filter(**which), since=since, until=until)

    def attempts(self, namespace: str, run: str) -> int:
        """The highest attempt that any lease of a run of that name ever had; 0 if there was none."""
        with self._asking() as db:
            return queries.attempts(db, namespace=namespace, run=run)

    def completed(
        self, owners: Collection[str], *, before: Instant, each: int = 64, fleet: int = 512
    ) -> list[CompletedRow]:  # fmt: skip
        """The last so many completed runs of each of these owners, by their ends; where one of them has fewer than
        five, the last of the whole ``fleet`` too."""
        with self._asking() as db:
            return queries.completed(db, owners, before=before, each=each, fleet=fleet)

    def notes(self, object: str | None = None, after_seq: int = 0, limit: int | None = None) -> list[Note]:  # noqa: A002 -- the field's name
        """Notes in the order they were made, about one object (``Run/ns/name``) or all, after an entry."""
        about = "" if object is None else "AND object = :object"
        sql = f"""SELECT seq, at, kind, object, reason, message FROM notes WHERE seq > :after {about}
                  ORDER BY seq, idx LIMIT :limit"""
        values = {"object": object, "after": after_seq, "limit": -1 if limit is None else limit}
        with self._asking() as db:
            return [_note(row) for row in db.execute(sql, values)]

    def decisions(self, namespace: str, run: str, limit: int | None = None) -> list[Decision]:
        """What was decided about a run, newest first."""
        sql = """SELECT seq, at, namespace, run, verdict FROM decisions WHERE namespace = ? AND run = ?
                 ORDER BY seq DESC, idx DESC LIMIT ?"""
        with self._asking() as db:
            rows = db.execute(sql, (namespace, run, -1 if limit is None else limit)).fetchall()
            return [_decision(row) for row in rows]

    def submissions(self, namespace: str, run: str) -> list[RunRow]:
        """Every Run that ever had this name, the oldest first."""
        with self._asking() as db:
            return promises.runs(db, namespace=namespace, name=run)

    def reservations(
        self, *, namespace: str | None = None, run: str | None = None, name: str | None = None, live: bool = False,
        since: Instant | None = None,
    ) -> list[ReservationRow]:  # fmt: skip
        """Reservations, each with its last record, in the order they were made; ``live``: neither Released nor
        Canceled; ``since``: or not before then."""
        with self._asking() as db:
            return promises.reservations(db, namespace=namespace, run=run, name=name, live=live, since=since)

    def plans(self, namespace: str, run: str) -> list[PlanRow]:
        """How the reservations of a run changed, in order."""
        with self._asking() as db:
            return promises.plans(db, namespace=namespace, run=run)

    def resolutions(self, subject: str | None = None, *, after: int = 0) -> list[ResolutionRow]:
        """What was frozen and resolved after an entry, in order: all of it, or for one subject
        (``Reservation/ns/name``, or ``Budget/name`` with or without ``/envelope``)."""
        with self._asking() as db:
            return promises.resolutions(db, subject=subject, after=after)

    def cuts(self, namespace: str, run: str) -> list[CutRow]:
        """What a run lost to the resolver, in order."""
        with self._asking() as db:
            return promises.cuts(db, run=f"{namespace}/{run}")

    def beacons(self, at_seq: int) -> dict[str, str]:
        """The first value of each custodian's chain, as it was published by an entry."""
        with self._asking() as db:
            return promises.beacons(db, at_seq=at_seq)

    def promises(self, *, since: Instant, until: Instant) -> list[PromiseRow]:
        """What the runs that started in ``[since, until)`` out of a reservation had been promised."""
        with self._asking() as db:
            return promises.promises(db, since=since, until=until)

    def snapshot(self) -> Snapshot | None:
        """The newest snapshot that belongs to this chain and is undamaged. None only costs time."""
        with self._asking() as db:
            sql = """SELECT s.seq, s.hash, s.digest FROM snapshots s JOIN entries e ON e.seq = s.seq
                     WHERE e.hash = s.hash ORDER BY s.seq DESC"""
            try:
                for seq, stamp, digest in db.execute(sql).fetchall():
                    body = self._snapshot_body(db, seq)
                    if body is not None and hashlib.sha256(body).hexdigest() == digest:
                        return Snapshot(seq=seq, hash=stamp, body=body)
            except sqlite3.DatabaseError:
                return None  # damaged pages: the entries are asked instead, and they say what is wrong
            return None

    @staticmethod
    def _snapshot_body(db: sqlite3.Connection, seq: int) -> bytes | None:
        try:
            row = db.execute("SELECT body FROM snapshots WHERE seq = ?", (seq,)).fetchone()
        except sqlite3.DatabaseError:
            return None
        # In a damaged tree a row may be listed, and then not be found by its key.
        return row[0] if row is not None and isinstance(row[0], bytes) else None

    @contextmanager
    def _asking(self) -> Iterator[sqlite3.Connection]:
        """Every read goes through here: refuses on a handle in doubt, and says in words what is damaged."""
        if self._unconfirmed:
            raise refused(Code.Unconfirmed, path=self.path)
        with translated(self.path):
            yield self._db


def _note(row: tuple[Any, ...]) -> Note:
    return msgspec.convert(dict(zip(Note.__struct_fields__, row, strict=True)), Note)


def _decision(row: tuple[Any, ...]) -> Decision:
    *columns, verdict = row
    whole = [*columns, msgspec.json.decode(msgspec.convert(verdict, str))]
    return msgspec.convert(dict(zip(Decision.__struct_fields__, whole, strict=True)), Decision)
