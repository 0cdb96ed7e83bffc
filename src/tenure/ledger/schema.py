"""The shape of the file, as a list of steps: a new ledger takes all of them, an old one those it lacks.

Because creating and upgrading are the same walk, a fresh file and an upgraded one cannot differ. Step *n*
leads to ``user_version`` *n*. A step may change the derived tables freely: it drops them, makes them anew
and says ``rebuild=True``, and they are filled again from the entries, once, after the last step. It never
touches the entries.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator, Sequence
from pathlib import Path

from msgspec import Struct

from tenure.ledger import chain, derive
from tenure.ledger.refusals import Code, refused

APPLICATION_ID = int.from_bytes(b"Tnre", "big")
_FOLDER = Path(__file__).parent


class Step(Struct, frozen=True, kw_only=True):
    """One version's change: the SQL, and whether the derived tables must be filled again after it."""

    file: str = ""
    sql: str = ""
    rebuild: bool = False

    def text(self) -> str:
        return self.sql or (_FOLDER / self.file).read_text("utf-8")


STEPS: tuple[Step, ...] = (
    Step(file="schema.sql"),
    Step(file="schema_2.sql", rebuild=True),  # owners, and the outbox of the notifier
    Step(file="schema_3.sql", rebuild=True),  # runs, reservations and resolutions
    Step(file="schema_4.sql"),  # since when, of leases that go on where others have ended
)


def build(db: sqlite3.Connection, *, fleet: str, steps: Sequence[Step] | None = None) -> None:
    """Turn an empty database into a ledger without entries, in one transaction."""
    db.execute("BEGIN IMMEDIATE")
    db.execute(f"PRAGMA application_id = {APPLICATION_ID}")
    _take(db, STEPS if steps is None else steps, after=0)
    db.execute("INSERT INTO meta VALUES ('fleet', ?)", (fleet,))
    db.execute("COMMIT")


def check(db: sqlite3.Connection, *, path: Path) -> int:
    """The version of the schema; refuses what is no ledger, or one of the future."""
    if _pragma(db, "application_id") != APPLICATION_ID:
        raise refused(Code.NotALedger, path=path, why="it is a database of some other application")
    found = _pragma(db, "user_version")
    if found > len(STEPS):
        raise refused(Code.NewerSchema, path=path, found=found, known=len(STEPS))
    if found < 1:
        raise refused(Code.NotALedger, path=path, why="its schema has no version")
    return found


def upgrade(db: sqlite3.Connection, *, path: Path) -> None:
    """Take the steps that the file lacks, all in one transaction."""
    db.execute("BEGIN IMMEDIATE")
    try:
        # Read again: another process may have upgraded it while we waited for the lock.
        found = check(db, path=path)
        _take(db, STEPS, after=found)
        if any(step.rebuild for step in STEPS[found:]):  # once: what fills the tables knows only their newest shape
            derive.rebuild(db, (link.entry for link in chain.walk(db, path=path, after=0)))
        db.execute("COMMIT")
    finally:
        if db.in_transaction:
            db.execute("ROLLBACK")


def statements(text: str) -> Iterator[str]:
    """Split SQL text. ``executescript`` would commit the transaction that a migration must stay in.

    >>> list(statements("CREATE TABLE a (b); CREATE TRIGGER t AFTER INSERT ON a BEGIN DELETE FROM a; END;"))
    ['CREATE TABLE a (b);', ' CREATE TRIGGER t AFTER INSERT ON a BEGIN DELETE FROM a; END;']
    """
    start, end = 0, text.find(";")
    while end >= 0:
        if sqlite3.complete_statement(text[start : end + 1]):
            yield text[start : end + 1]
            start = end + 1
        end = text.find(";", end + 1)


def _take(db: sqlite3.Connection, steps: Sequence[Step], *, after: int) -> None:
    for step in steps[after:]:
        for statement in statements(step.text()):
            db.execute(statement)
    db.execute(f"PRAGMA user_version = {len(steps)}")


def _pragma(db: sqlite3.Connection, name: str) -> int:
    return int(db.execute(f"PRAGMA {name}").fetchone()[0])
