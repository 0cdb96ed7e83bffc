"""The outbox: which notes there are, and how far each receiver has come, in the ledger's own file.

Nothing is copied: the notes are the ledger's, and a receiver is a place among them, the objects that lag behind it,
and its dead letters (``progress.py``). A letter is taken out by saving the new place, in a transaction of its own,
*after* the receiver has answered. So whatever dies in between, the letter is still there, and goes out again with the
same id. Reads are by key, from a place on, and never more than asked for: the cost does not grow with the history.

A receiver that is no longer named keeps its rows, and goes on where it was when it is named again.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Sequence
from typing import Any, Final, TypeVar

import msgspec
from msgspec import Struct
from msgspec.structs import replace

from tenure.ledger import Ledger
from tenure.notify.event import Letter, Place
from tenure.notify.progress import Dead, Lag, Progress
from tenure.units import Instant

LAST: Final = 2**53
"""A fact's number beyond every other in its entry."""
COUNTED_MAX: Final = 10_000
"""Notes that a status counts, before it says "at least"."""

_OWNER = "SELECT o.owner FROM owners o WHERE o.object = n.object AND o.seq <= n.seq ORDER BY o.seq DESC LIMIT 1"
_LETTER = f"""SELECT n.seq, n.idx, n.at, n.kind, n.object, n.reason, n.message, substr(e.hash, 1, 8),
    coalesce(({_OWNER}), '') FROM notes n JOIN entries e ON e.seq = n.seq"""

_SAVE = """INSERT INTO receivers VALUES (?,?,?,?,?,?,?)
    ON CONFLICT (name) DO UPDATE SET seq = excluded.seq, idx = excluded.idx, sent = excluded.sent,
    fails = excluded.fails, not_before = excluded.not_before, why = excluded.why"""
_BURY = "INSERT OR REPLACE INTO dead_letters VALUES (?,?,?,?,?,?,0)"
_UNBURY = "DELETE FROM dead_letters WHERE receiver = ? AND seq = ? AND idx = ?"
_NEXT = "SELECT at FROM notes WHERE (seq, idx) > (?, ?) ORDER BY seq, idx LIMIT 1"
_OWED = """SELECT at FROM notes WHERE object = ? AND seq >= ? AND (seq, idx) >= (?, ?)
    ORDER BY seq, idx LIMIT 1"""
R = TypeVar("R", bound=Struct)


class DeadLetter(Struct, frozen=True, kw_only=True):
    """An event that a receiver refused, and that is not sent again by itself."""

    receiver: str
    seq: int
    idx: int
    at: Instant
    refusals: int
    why: str
    kind: str
    object: str


class ReceiverState(Struct, frozen=True, kw_only=True):
    """A receiver, for people."""

    name: str
    progress: Progress
    behind: int
    """Notes after its place, wanted or not, up to ``COUNTED_MAX``."""
    dead: int
    oldest: Instant | None
    """When the first was told of the notes that it has not taken; None if it has taken all."""


class Outbox:
    """A ledger's outbox, through a handle of its own."""

    def __init__(self, ledger: Ledger) -> None:
        self.ledger = ledger

    @property
    def fleet(self) -> str:
        return self.ledger.fleet

    def close(self) -> None:
        self.ledger.close()

    # -- letters --

    def letters(self, *, after: Place, limit: int) -> list[Letter]:
        """The notes after a place, in order."""
        sql = f"{_LETTER} WHERE (n.seq, n.idx) > (?, ?) ORDER BY n.seq, n.idx LIMIT ?"
        with self.ledger.beside(writing=False) as db:
            return [_letter(row) for row in db.execute(sql, (*after, limit))]

    def letters_about(self, about: str, *, since: Place, until: Place, limit: int) -> list[Letter]:
        """The notes about one object in ``[since, until]``, in order."""
        sql = f"""{_LETTER} WHERE n.object = ? AND n.seq >= ? AND (n.seq, n.idx) >= (?, ?) AND (n.seq, n.idx) <= (?, ?)
                  ORDER BY n.seq, n.idx LIMIT ?"""
        with self.ledger.beside(writing=False) as db:
            return [_letter(row) for row in db.execute(sql, (about, since[0], *since, *until, limit))]

    def revived(self, name: str, *, limit: int) -> list[Letter]:
        """Dead letters that a person wants sent again."""
        sql = f"""{_LETTER} JOIN dead_letters d ON d.seq = n.seq AND d.idx = n.idx
                  WHERE d.receiver = ? AND d.again = 1 ORDER BY n.seq, n.idx LIMIT ?"""
        with self.ledger.beside(writing=False) as db:
            return [_letter(row) for row in db.execute(sql, (name, limit))]

    # -- places --

    def register(self, name: str, *, history: bool) -> Progress:
        """Where a receiver is. One that is new begins now, or, with ``history``, at the very first note."""
        found = self._load(name)
        if found is not None:
            return found
        begin = (0, 0) if history else (self.ledger.head.seq, LAST)
        progress = Progress(seq=begin[0], idx=begin[1])
        self.save(name, progress)
        return progress

    def save(self, name: str, progress: Progress, *, dead: Sequence[Dead] = (), settled: Sequence[Place] = ()) -> None:
        """Keep how far a receiver has come, durably: place and lags, new dead letters, and those ``settled`` since."""
        row = (name, progress.seq, progress.idx, progress.sent, progress.fails, progress.not_before, progress.why)
        lags = [_lag_row(name, lag) for lag in progress.lags]
        buried = [(name, one.seq, one.idx, one.at, one.refusals, one.why) for one in dead]
        with self.ledger.beside(writing=True) as db:
            db.execute(_SAVE, row)
            db.execute("DELETE FROM lagging WHERE receiver = ?", (name,))
            db.executemany("INSERT INTO lagging VALUES (?,?,?,?,?,?,?,?)", lags)
            db.executemany(_UNBURY, [(name, *place) for place in settled])
            db.executemany(_BURY, buried)

    def revive(self, name: str) -> int:
        """Have all dead letters of a receiver sent again; how many there are."""
        with self.ledger.beside(writing=True) as db:
            return db.execute("UPDATE dead_letters SET again = 1 WHERE receiver = ?", (name,)).rowcount

    # -- for people --

    def states(self) -> list[ReceiverState]:
        """Every receiver that was ever named, by name."""
        with self.ledger.beside(writing=False) as db:
            names = [name for (name,) in db.execute("SELECT name FROM receivers ORDER BY name").fetchall()]
        return [self._state(name) for name in names]

    def dead_letters(self, name: str, *, limit: int) -> list[DeadLetter]:
        """The newest dead letters of a receiver."""
        sql = """SELECT d.receiver, d.seq, d.idx, d.at, d.refusals, d.why, n.kind, n.object
                 FROM dead_letters d JOIN notes n ON n.seq = d.seq AND n.idx = d.idx
                 WHERE d.receiver = ? ORDER BY d.seq DESC, d.idx DESC LIMIT ?"""
        with self.ledger.beside(writing=False) as db:
            return [_record(DeadLetter, row) for row in db.execute(sql, (name, limit))]

    def _state(self, name: str) -> ReceiverState:
        progress = self._load(name)
        assert progress is not None, "rows of receivers are never deleted"
        count = f"SELECT count(*) FROM (SELECT 1 FROM notes WHERE (seq, idx) > (?, ?) LIMIT {COUNTED_MAX})"
        with self.ledger.beside(writing=False) as db:
            behind = db.execute(count, progress.place).fetchone()[0]
            dead = db.execute("SELECT count(*) FROM dead_letters WHERE receiver = ?", (name,)).fetchone()[0]
            told = [db.execute(_NEXT, progress.place).fetchone()]
            told += [db.execute(_OWED, (lag.object, lag.seq, *lag.place)).fetchone() for lag in progress.lags]
        oldest = min((at for row in told if row is not None for at in row), default=None)
        return ReceiverState(name=name, progress=progress, behind=behind, dead=dead, oldest=oldest)

    def _load(self, name: str) -> Progress | None:
        with self.ledger.beside(writing=False) as db:
            sql = "SELECT seq, idx, sent, fails, not_before, why FROM receivers WHERE name = ?"
            row = db.execute(sql, (name,)).fetchone()
            return None if row is None else replace(_record(Progress, row), lags=_lags(db, name))


def _lags(db: sqlite3.Connection, name: str) -> tuple[Lag, ...]:
    sql = """SELECT object, seq, idx, tries, refusals, not_before, why FROM lagging WHERE receiver = ?
             ORDER BY seq, idx"""
    return tuple(_record(Lag, row) for row in db.execute(sql, (name,)))


def _lag_row(name: str, lag: Lag) -> tuple[Any, ...]:
    return name, lag.object, lag.seq, lag.idx, lag.tries, lag.refusals, lag.not_before, lag.why


def _letter(row: tuple[Any, ...]) -> Letter:
    return _record(Letter, row)


def _record(cls: type[R], row: tuple[Any, ...]) -> R:
    """Check the types, too: the row may be from a damaged page."""
    return msgspec.convert(dict(zip(cls.__struct_fields__, row, strict=False)), cls)
