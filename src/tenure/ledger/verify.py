"""The full check of a ledger: everything that can be known from the file and its anchor, listed.

    sqlite     PRAGMA integrity_check and foreign_key_check find nothing
    schema     tables, indexes and triggers are, to the letter, those that a new ledger gets
    chain      every entry is whole and follows from the one before (``tenure.ledger.chain``), none is missing
    derived    the query tables equal what the entries give when they are folded again, row for row
    anchor     the anchor is there, of this fleet, and not ahead of the chain
    snapshots  each kept snapshot belongs to an entry of the chain and has its own bytes' hash (that it is the state
               which the entries give, only who can fold them knows: ``tenure.cli.images``)

Findings are values; nothing is repaired and nothing raised, so that one fault does not hide the next. All
of it is read in one transaction: a ledger that is being written can be verified, as of the moment the
check began.
"""

from __future__ import annotations

import hashlib
import sqlite3
from collections.abc import Callable, Iterable, Iterator
from itertools import islice
from pathlib import Path
from typing import Any, Literal

from msgspec import Struct

from tenure.ledger import chain, derive, schema
from tenure.ledger.chain import EMPTY, Head, Link
from tenure.ledger.refusals import LedgerRefused, translated

Check = Literal["sqlite", "schema", "chain", "derived", "anchor", "snapshots"]
Progress = Callable[[str, int, int], None]
"""Called with the check under way, how much is done, and how much there is."""
_LISTED = 20
_EVERY = 256


class Finding(Struct, frozen=True, kw_only=True):
    """One thing that is wrong."""

    check: Check
    where: str
    sentence: str


class Report(Struct, frozen=True, kw_only=True):
    """What was looked at and what was found."""

    path: str
    fleet: str
    head: Head
    entries: int
    leases: int
    findings: tuple[Finding, ...] = ()

    @property
    def ok(self) -> bool:
        return not self.findings

    @property
    def can_be_filled_again(self) -> bool:
        """Whether only what is derived is wrong: the entries are whole, and say what belongs there."""
        return bool(self.findings) and all(one.check in ("derived", "snapshots") for one in self.findings)


def verify(
    db: sqlite3.Connection,
    *,
    path: Path,
    fleet: str,
    compare: Callable[[], object],
    progress: Progress | None,
) -> Report:
    """Run every check; ``compare`` holds the ledger against its anchor and raises what it finds."""
    tell: Progress = progress or (lambda *_: None)
    audit = _Audit(db, path, tell)
    tell("sqlite", 0, 1)
    audit.run("anchor", _anchor(compare))
    audit.run("sqlite", _sqlite(db))
    audit.run("schema", audit.schema())
    audit.run("chain", audit.chain())
    if audit.folded:
        for table, key in derive.TABLES.items():
            audit.run("derived", audit.derived(table, key))
    tell("snapshots", 0, 1)
    audit.run("snapshots", _snapshots(db))
    audit.scratch.close()
    return Report(
        path=str(path), fleet=fleet, head=audit.head, entries=audit.entries, leases=audit.leases,
        findings=tuple(audit.findings),
    )  # fmt: skip


class _Audit:
    """One pass over a ledger. ``scratch`` is a database of its own, where the entries are folded again."""

    def __init__(self, db: sqlite3.Connection, path: Path, tell: Progress) -> None:
        self.db, self.path, self.tell = db, path, tell
        self.findings: list[Finding] = []
        self.head, self.entries, self.leases = EMPTY, 0, 0
        self.folded = True
        self.scratch = sqlite3.connect("", isolation_level=None)  # a temporary file, if it outgrows memory
        schema.build(self.scratch, fleet="scratch")
        self.scratch.execute("BEGIN")

    def run(self, check: Check, found: Iterable[tuple[str, str]]) -> None:
        """Collect one check's findings, the first of them by name and the rest by number."""
        found = iter(found)
        try:
            with translated(self.path):
                for where, sentence in islice(found, _LISTED):
                    self.findings.append(Finding(check=check, where=where, sentence=sentence))
                if more := sum(1 for _ in found):
                    self.findings.append(Finding(check=check, where="", sentence=f"and {more} more."))
        except LedgerRefused as refusal:
            self.findings.append(Finding(check=check, where=str(self.path), sentence=refusal.sentence))
            self.folded = self.folded and check != "chain"

    def schema(self) -> Iterator[tuple[str, str]]:
        """A name that changed in the schema changes every answer, and no checksum of SQLite's tells."""
        sql = "SELECT name, type, tbl_name, sql FROM sqlite_master ORDER BY name"
        for row, fault in _differences(self.db.execute(sql), self.scratch.execute(sql), 1):
            yield f"schema {row[0]}", f"The {row[1]} {row[0]} {fault}."

    def chain(self) -> Iterator[tuple[str, str]]:
        """Check each entry and fold it into the scratch tables."""
        total = chain.head(self.db).seq
        for row in chain.rows(self.db, path=self.path, after=0):
            link, faults = chain.inspect(row, before=self.head)
            yield from ((f"entry {row[0]}", f"Entry {row[0]}: {fault}.") for fault in faults)
            self.folded = self.folded and link is not None
            if link is not None and self.folded:  # after a gap, what follows would seem to contradict it
                yield from self._fold(link)
            self.head = Head(seq=row[0], hash=str(row[4]), at=self.head.at if link is None else link.entry.at)
            self.entries += 1
            if self.entries % _EVERY == 0 or self.entries == total:
                self.tell("chain", self.entries, total)

    def _fold(self, link: Link) -> Iterator[tuple[str, str]]:
        try:
            derive.apply(self.scratch, link.entry)
        except (ValueError, OverflowError, sqlite3.IntegrityError) as error:
            self.folded = False
            yield f"entry {link.entry.seq}", f"Entry {link.entry.seq} contradicts an earlier one: {error}."

    def derived(self, table: str, key: str) -> Iterator[tuple[str, str]]:
        """Walk a stored table and its rebuilt twin side by side."""
        sql = f"SELECT * FROM {table} ORDER BY {key}"
        width = key.count(",") + 1
        total = self.scratch.execute(f"SELECT count(*) FROM {table}").fetchone()[0]
        if table == "leases":
            self.leases = total
        self.tell(table, 0, total)
        for row, fault in _differences(self.db.execute(sql), self.scratch.execute(sql), width):
            name = "/".join(str(part) for part in row[:width])
            yield f"{table} {name}", f"Row {name} of {table} {fault}."
        self.tell(table, total, total)


def _differences(
    stored: Iterator[tuple[Any, ...]], rebuilt: Iterator[tuple[Any, ...]], width: int
) -> Iterator[tuple[tuple[Any, ...], str]]:
    """Merge two sorted streams and tell where they part."""
    left, right = next(stored, None), next(rebuilt, None)
    while left is not None or right is not None:
        order = _order(left, right, width)
        if order == 0 and left is not None and left != right:
            yield left, "is not as it should be"
        elif order < 0 and left is not None:
            yield left, "should not be there"
        elif order > 0 and right is not None:
            yield right, "is missing"
        left = next(stored, None) if order <= 0 else left
        right = next(rebuilt, None) if order >= 0 else right


def _order(left: tuple[Any, ...] | None, right: tuple[Any, ...] | None, width: int) -> int:
    """Which comes first; a damaged key, of no type that can be compared, counts as one that is too many."""
    if left is None or right is None:
        return 1 if left is None else -1
    mine, other = left[:width], right[:width]
    try:
        return 0 if mine == other else -1 if mine < other else 1
    except TypeError:
        return -1


def _anchor(compare: Callable[[], object]) -> Iterator[tuple[str, str]]:
    try:
        compare()
    except LedgerRefused as refusal:
        yield str(refusal.code), refusal.sentence


def _sqlite(db: sqlite3.Connection) -> Iterator[tuple[str, str]]:
    for (text,) in db.execute(f"PRAGMA integrity_check({_LISTED})"):
        if text != "ok":
            yield "the file", f"SQLite finds: {' '.join(text.split())}."
    for table, _, parent, _ in db.execute("PRAGMA foreign_key_check"):
        yield str(table), f"A row of {table} names a row of {parent} that is not there."


def kept_snapshots(db: sqlite3.Connection) -> Iterator[tuple[int, bytes]]:
    """The number and the body of every snapshot that somebody might go on from: of this chain, and undamaged."""
    sql = "SELECT s.seq, s.digest, s.body FROM snapshots s JOIN entries e USING (seq, hash) ORDER BY s.seq"
    for seq, digest, body in db.execute(sql):
        if isinstance(body, bytes) and hashlib.sha256(body).hexdigest() == digest:
            yield seq, body


def _snapshots(db: sqlite3.Connection) -> Iterator[tuple[str, str]]:
    sql = """SELECT s.seq, s.hash = e.hash, s.digest, s.body
             FROM snapshots s LEFT JOIN entries e ON e.seq = s.seq ORDER BY s.seq"""
    for seq, same, digest, body in db.execute(sql):
        if not same:
            yield f"snapshot {seq}", f"The snapshot at entry {seq} belongs to another chain."
        if not isinstance(body, bytes) or hashlib.sha256(body).hexdigest() != digest:
            yield f"snapshot {seq}", f"The snapshot at entry {seq} is damaged."
