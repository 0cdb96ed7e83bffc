"""The ledger: one SQLite file, its anchor, and the promise that what was acknowledged stays.

    with ledger.write() as tx:                          # BEGIN IMMEDIATE; the head is not behind its anchor
        tx.append(at=now, cause="apply Run/rai/train", facts=facts)
    # here: COMMIT is synced, the anchor has moved and is synced. Only now anybody may be told.

Leaving the block with an exception rolls back and stores nothing. If COMMIT or the move of the anchor
itself fails, the outcome is not known: the handle refuses everything from then on (``Unconfirmed``), and
opening the ledger again decides by what is really there. An entry that was never acknowledged may survive
a crash; one that was acknowledged either survives or the ledger refuses to open and says why.

Any number of processes may hold a ledger open. A handle may move between threads but serves one at a time.
The file must be on a local disk: SQLite's WAL and the anchor's lock both need that.

Nothing here may open the database file except through SQLite: closing a second descriptor of it would
drop the locks that SQLite holds in this process.
"""

from __future__ import annotations

import os
import sqlite3
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Self

from msgspec import Struct

from tenure.facts import Closed, Lease, Opened
from tenure.ledger import anchor as anchors
from tenure.ledger import chain, connect, derive
from tenure.ledger.anchor import Mark
from tenure.ledger.chain import Head
from tenure.ledger.reader import Reader
from tenure.ledger.refusals import Code, LedgerRefused, refused, translated
from tenure.ledger.transaction import Transaction
from tenure.units import Instant

if TYPE_CHECKING:
    from tenure.ledger.verify import Progress, Report

Hook = Callable[[str], None]
WRITE_POINTS = (
    "begin", "before-append", "after-append", "before-commit",
    "after-commit", "before-anchor", "anchor-written", "after-anchor",
)  # fmt: skip
CREATE_POINTS = ("anchor-made", "file-built", "file-linked")
"""The named points at which a hook is called, in order: places to die at."""
ATTESTED = 10_000
"""Entries up to which ``attest`` looks at all of a ledger: two or three seconds' work, and more with each one more."""


class Accepted(Struct, frozen=True, kw_only=True):
    """What ``accept_anchor`` changed: what the anchor said, if it could be read, and what it says now."""

    before: Mark | None
    after: Mark


class Ledger(Reader):
    """An open ledger. Made by ``create``, ``open`` or ``examine``."""

    def __init__(
        self,
        db: sqlite3.Connection,
        path: Path,
        *,
        anchor: Path,
        readonly: bool,
        timeout: float,
        hook: Hook | None,
    ) -> None:
        super().__init__(db, path)
        self.anchor_path = anchor
        self.readonly = readonly
        self.refusal: LedgerRefused | None = None
        """Why ``open`` would refuse; only a ledger from ``examine`` can have one."""
        self.commits = 0
        """How many transactions this handle has committed: fewer than entries, where commits are grouped."""
        self._timeout = timeout
        self._hook: Hook = hook or (lambda _: None)
        self._writing = False
        self._place = connect.place(path)

    # --- opening ------------------------------------------------------------------------------------------

    @classmethod
    def create(
        cls,
        path: str | os.PathLike[str],
        *,
        fleet: str,
        anchor: str | os.PathLike[str] | None = None,
        busy_timeout: float = 5.0,
        hook: Hook | None = None,
    ) -> Self:
        """Make a new ledger and its anchor, durably, and open it. ``fleet`` is the id that ties the two."""
        anchors.check_fleet(fleet)
        file, anchor_file = _paths(path, anchor)
        connect.check_vacant(file)
        with anchors.held(anchor_file, timeout=busy_timeout) as fd, translated(file):
            connect.check_vacant(file)  # again, now that nobody else can be creating it
            _check_unused(anchors.peek(fd, anchor_file), anchor_file)
            anchors.overwrite(fd, anchor_file, anchors.blank(fleet))
            connect.make(file, fleet=fleet, hook=hook or (lambda _: None))
        return cls.open(file, anchor=anchor_file, busy_timeout=busy_timeout, hook=hook)

    @classmethod
    def open(
        cls,
        path: str | os.PathLike[str],
        *,
        readonly: bool = False,
        anchor: str | os.PathLike[str] | None = None,
        busy_timeout: float = 5.0,
        hook: Hook | None = None,
    ) -> Self:
        """Open a ledger, or refuse with the reason. ``busy_timeout`` is in seconds."""
        ledger = cls._connected(path, anchor, readonly=readonly, timeout=busy_timeout, hook=hook)
        try:
            ledger._settle()
        except BaseException:
            ledger.close()
            raise
        return ledger

    @classmethod
    def examine(
        cls,
        path: str | os.PathLike[str],
        *,
        anchor: str | os.PathLike[str] | None = None,
        busy_timeout: float = 5.0,
    ) -> Self:
        """Open for reading what ``open`` may refuse, to verify, export or accept it; see ``refusal``."""
        ledger = cls._connected(path, anchor, readonly=True, timeout=busy_timeout, hook=None)
        try:
            ledger._settle()
        except LedgerRefused as refusal:
            ledger.refusal = refusal
        return ledger

    @classmethod
    def _connected(
        cls,
        path: str | os.PathLike[str],
        anchor: str | os.PathLike[str] | None,
        *,
        readonly: bool,
        timeout: float,
        hook: Hook | None,
    ) -> Self:
        file, anchor_file = _paths(path, anchor)
        db = connect.connect(file, readonly=readonly, timeout=timeout)
        try:
            with translated(file):
                ledger = cls(db, file, anchor=anchor_file, readonly=readonly, timeout=timeout, hook=hook)
        except BaseException:
            db.close()
            raise
        return ledger

    def _settle(self) -> None:
        """Compare the ledger with its anchor, check what lies between them, and roll the anchor forward."""
        with self._asking() as db:
            self.fleet = connect.fleet(db, path=self.path)
            mark = self._compared(db)
            end = chain.head(db)
            for link in chain.walk(db, path=self.path, after=max(0, mark.seq - 1)):
                end = Head(seq=link.entry.seq, hash=link.hash, at=link.entry.at)
            if end.seq > mark.seq and not self.readonly:
                self._anchor(end, hook=lambda _: None)

    def _compared(self, db: sqlite3.Connection) -> Mark:
        """The anchor, after making sure that the ledger has not fallen behind it."""
        # The anchor first: it is never ahead of what is committed, so a head read later cannot be behind.
        reading = anchors.read(self.anchor_path, ledger=self.path, timeout=self._timeout)
        mark, head = reading.mark, chain.head(db)
        names = {"path": self.path, "anchor": self.anchor_path}
        if mark.fleet != self.fleet:
            why = f"the anchor is of fleet {mark.fleet}, the ledger of another"
            raise refused(Code.AnchorMismatch, **names, why=why)
        if mark.seq > head.seq:
            raise refused(Code.BehindAnchor, **names, head=head.seq, seen=mark.seq)
        there = chain.head_at(db, mark.seq)
        if there is None or there.hash != mark.hash:
            raise refused(Code.AnchorMismatch, **names, why=f"they have different entries {mark.seq}")
        if reading.torn and mark.seq == head.seq:
            why = f"one of its slots is damaged, and the ledger ends at entry {mark.seq}, as the other says"
            raise refused(Code.AnchorDamaged, anchor=self.anchor_path, why=why)
        return mark

    def close(self) -> None:
        """Let go of the file. Closing twice is harmless."""
        self._db.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    # --- writing ------------------------------------------------------------------------------------------

    @contextmanager
    def write(self) -> Iterator[Transaction]:
        """Hold the ledger, append, and commit when the block ends; see the module's theory."""
        tx = self._begin()
        try:
            yield tx
            if tx.spoiled:
                raise RuntimeError("a write in this transaction had failed, and the error was swallowed")
            self._hook("before-commit")
        except BaseException as error:
            self._rollback()
            self._writing = False
            if tx.spoiled and isinstance(error, ValueError | sqlite3.IntegrityError):
                self._check_tables(error)
            raise
        finally:
            tx.finish()
            self._writing = False
        self._commit(tx)

    def rebuild(self) -> None:
        """Fill the query tables again from the entries, which are checked on the way, and forget the snapshots."""
        with self.write(), self._asking() as db:
            db.execute("DELETE FROM snapshots")
            derive.rebuild(db, (link.entry for link in chain.walk(db, path=self.path, after=0)))

    def stop_clock(self, at: Instant) -> None:
        """The clock was virtual, and stops here: whoever reads this later sees the world as it was then."""
        with self.beside(writing=True) as db:
            db.execute("INSERT OR REPLACE INTO meta VALUES ('clock', ?)", (str(at),))

    @contextmanager
    def beside(self, *, writing: bool) -> Iterator[sqlite3.Connection]:
        """The connection, for tables that stand beside the chain (the notifier's outbox), with the ledger's own care:
        refusals in words, and, ``writing``, one synced transaction, which appends nothing and may not touch the chain.
        """
        if writing:
            with self.write(), self._asking() as db:
                yield db
        else:
            with self._asking() as db:
                yield db

    def _begin(self) -> Transaction:
        if self._writing:
            raise RuntimeError("this handle is inside a write already")
        if self.readonly:
            raise refused(Code.ReadOnly, path=self.path, why="it was opened for reading only")
        with self._asking() as db:
            if connect.place(self.path) != self._place:
                raise refused(Code.Replaced, path=self.path)
            db.execute("BEGIN IMMEDIATE")
            self._writing = True
            try:
                mark, head = self._compared(db), chain.head(db)
                self._hook("begin")
                return Transaction(db, path=self.path, head=head, anchored=mark.seq, hook=self._hook)
            except BaseException:
                self._writing = False
                self._rollback()
                raise

    def _rollback(self) -> None:
        """Undo. After some errors SQLite has done so by itself; if it cannot, the handle is of no use."""
        try:
            if self._db.in_transaction:
                self._db.execute("ROLLBACK")
        except sqlite3.Error:
            self._unconfirmed = True

    def _check_tables(self, error: Exception) -> None:
        """An entry contradicts the query tables: whose fault is it? Theirs, if they differ from the entries."""
        for finding in self.verify().findings:
            raise self._damaged(finding.sentence) from error

    def _damaged(self, sentence: str) -> LedgerRefused:
        return refused(Code.Damaged, path=self.path, why=sentence.rstrip("."))

    def _commit(self, tx: Transaction) -> None:
        try:
            with translated(self.path):
                self._db.execute("COMMIT")
            self.commits += 1
            self._hook("after-commit")
            if tx.head.seq > tx.anchored:  # also past what another committed, and could not anchor: we act on it
                self._anchor(tx.head, hook=self._hook)
        except BaseException as error:
            self._rollback()
            self._unconfirmed = True
            if isinstance(error, LedgerRefused):
                raise error.in_doubt() from error
            raise
        self._hook("after-anchor")

    def _anchor(self, head: Head, *, hook: Hook) -> None:
        mark = Mark(fleet=self.fleet, seq=head.seq, hash=head.hash)
        anchors.advance(self.anchor_path, mark, ledger=self.path, timeout=self._timeout, hook=hook)

    # --- trust --------------------------------------------------------------------------------------------

    def accept_anchor(self) -> Accepted:
        """Declare the ledger right as it stands: check the whole chain, then set the anchor to its head.

        For a ledger from ``examine``, after a person has decided. It writes nothing in the ledger itself:
        open it next, and append a ``Noted`` that tells who accepted what. Another fleet's anchor is never
        overwritten.
        """
        if not self.fleet and self.refusal is not None:
            raise self.refusal  # it does not even say whose it is
        for _ in self.links():
            pass
        with anchors.held(self.anchor_path, timeout=self._timeout) as fd, self._asking() as db:
            # Read the head while holding the anchor: a commit missed here moves the anchor after us.
            head, seen = chain.head(db), anchors.peek(fd, self.anchor_path)
            after = Mark(fleet=self.fleet, seq=head.seq, hash=head.hash)
            if seen is not None and seen.mark.fleet != self.fleet:
                why = f"the anchor is of fleet {seen.mark.fleet}, the ledger of another"
                raise refused(Code.AnchorMismatch, path=self.path, anchor=self.anchor_path, why=why)
            anchors.overwrite(fd, self.anchor_path, after)
        self.refusal = None
        return Accepted(before=None if seen is None else seen.mark, after=after)

    def attest(self, held: Iterable[Lease] | None = None, *, at: int = 0) -> None:
        """Refuse query tables that would give a wrong answer: asked once by whoever drives a fleet, before acting.

        Opening compares the end of the chain and no table, so that it costs the same after ten years. This holds all
        of them against the entries where those are no more than ``ATTESTED``. Of a longer history it only compares the
        leases that are open with those that are ``held`` after entry ``at``; the rest is left to ``verify``.
        """
        if self.head.seq <= ATTESTED:
            for finding in self.verify().findings:
                if finding.check not in ("sqlite", "snapshots") or (finding.check == "sqlite" and self._misleads()):
                    raise self._damaged(finding.sentence)
        if held is not None:
            self._compare_held({lease.key: lease for lease in held}, at)

    def _compare_held(self, held: dict[str, Lease], at: int) -> None:
        with self._asking() as db:
            db.execute("BEGIN")  # others may be writing
            try:
                for link in chain.walk(db, path=self.path, after=at):
                    for fact in link.entry.facts:
                        if isinstance(fact, Opened):
                            held[fact.lease.key] = fact.lease
                        elif isinstance(fact, Closed):
                            for name in fact.leases:
                                held.pop(f"{fact.namespace}/{name}", None)
                stored = {row.lease.key: row.lease for row in self.leases(open_only=True)}
            finally:
                self._rollback()
        for key in sorted(stored.keys() | held.keys()):
            if stored.get(key) != held.get(key):
                raise self._damaged(f"the open lease {key} is not in its query tables as it is in the entries")

    def _misleads(self) -> bool:
        """Whether SQLite finds fault with a table that answers come from: pages of images only save time."""
        with self._asking() as db:
            for table in ("meta", "entries", *derive.TABLES):
                if [text for (text,) in db.execute(f"PRAGMA integrity_check({table})")] != ["ok"]:
                    return True
            return any(row[0] in derive.TABLES for row in db.execute("PRAGMA foreign_key_check"))

    def verify(self, progress: Progress | None = None) -> Report:
        """Check everything there is to check; findings are values, nothing is changed."""
        from tenure.ledger.verify import verify  # only audits need it

        if self._writing:
            raise RuntimeError("a ledger is verified outside of writes")
        with self._asking() as db:
            db.execute("BEGIN")
            try:
                # The first read of this transaction is inside: after the anchor was read, as it must be.
                compare = partial(self._compared, db)
                return verify(db, path=self.path, fleet=self.fleet, compare=compare, progress=progress)
            finally:
                self._rollback()


def _paths(path: str | os.PathLike[str], anchor: str | os.PathLike[str] | None) -> tuple[Path, Path]:
    file = Path(path)
    return file, anchors.sidecar(file) if anchor is None else Path(anchor)


def _check_unused(seen: anchors.Reading | None, path: Path) -> None:
    """A ledger that was lost must not be replaced by an empty one: its anchor still tells of it."""
    if seen is not None and seen.mark.seq > 0:
        raise refused(Code.AnchorInUse, anchor=path, fleet=seen.mark.fleet, seen=seen.mark.seq)
