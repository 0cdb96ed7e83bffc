"""The tables about promises: runs as they were submitted, reservations, resolutions, cuts and custodians' chains.

What an entry says about them is written by ``put_*`` (called by ``derive``), and read by the questions below, none of
which looks at more of the history than it is about. A reservation has one row, with its last record; each change of
its plan is a small row of its own, so that the whole of a run's waiting can be told without reading the chain.

    forecast error = real start - promised start, for each reservation that was Released
"""

from __future__ import annotations

import sqlite3
from collections.abc import Iterable, Iterator
from typing import Any, TypeVar

import msgspec
from msgspec import Struct

from tenure.api.run import Run
from tenure.facts import Cut, Froze, Published, Reservation, Resolved
from tenure.units import Instant

OVER = ("Released", "Canceled")
Resolution = Froze | Resolved
_Row = TypeVar("_Row", bound=Struct)

_json = msgspec.json.Encoder(order="deterministic")
_reservation = msgspec.json.Decoder(Reservation)
_resolution: msgspec.json.Decoder[Resolution] = msgspec.json.Decoder(Resolution)
_cut = msgspec.json.Decoder(Cut)


class RunRow(Struct, frozen=True, kw_only=True):
    """A Run as it was submitted."""

    namespace: str
    name: str
    uid: str
    owner: str
    flavor: str
    gpus: int
    at: Instant
    seq: int
    created: Instant | None = None
    """When its object says that it was made, where that was looked up: in an outage long before it was taken in."""

    @property
    def submitted(self) -> Instant:
        return self.at if self.created is None else min(self.at, self.created)


class ReservationRow(Struct, frozen=True, kw_only=True):
    """A reservation as it stands, or stood last, and the entries that made it and changed it last."""

    reservation: Reservation
    ended: Instant | None = None
    seq: int
    changed: int


class PlanRow(Struct, frozen=True, kw_only=True):
    """What a reservation said from an entry on."""

    namespace: str
    name: str
    uid: str
    seq: int
    at: Instant
    state: str
    reason: str
    message: str
    start: Instant | None
    confidence: str


class ResolutionRow(Struct, frozen=True, kw_only=True):
    """A draw that was frozen, or what the resolver did."""

    subject: str
    seq: int
    at: Instant
    activation: int
    uid: str
    fact: Resolution


class CutRow(Struct, frozen=True, kw_only=True):
    """What a run lost to the resolver, and for whom."""

    run: str
    seq: int
    at: Instant
    subject: str
    activation: int
    cut: Cut


class PromiseRow(Struct, frozen=True, kw_only=True):
    """What a run that started had been promised, and when it really started."""

    namespace: str
    run: str
    name: str
    confidence: str
    promised: Instant | None
    planned: Instant | None
    bound: Instant | None
    """By when it was to start in the end: what was protected for it."""
    started: Instant


# --- writing --------------------------------------------------------------------------------------------------------

_RUN = "INSERT INTO runs VALUES (?,?,?,?,?,?,?,?) ON CONFLICT DO UPDATE SET flavor = excluded.flavor"
_RESERVE = """INSERT INTO reservations
    VALUES (:namespace, :name, :uid, :run, :run_uid, :state, :made, :promised, :confidence, :planned, :ended, :body,
            :seq, :seq)
    ON CONFLICT (namespace, name, uid) DO UPDATE SET
        state = excluded.state, planned = coalesce(excluded.planned, planned), ended = excluded.ended,
        body = excluded.body, changed = excluded.changed"""
_PLAN = """INSERT INTO plans
    SELECT :namespace, :name, :uid, :seq, :idx, :at, :state, :reason, :message, :start, :confidence
    WHERE (:state, :reason, :start, :confidence) IS NOT (
        SELECT state, reason, start, confidence FROM plans
        WHERE namespace = :namespace AND name = :name AND uid = :uid ORDER BY seq DESC, idx DESC LIMIT 1)"""
_RESOLVE = """INSERT INTO resolutions SELECT :subject, :seq, :idx, :at, :activation, coalesce((
    SELECT uid FROM reservations WHERE namespace = :namespace AND name = :name ORDER BY seq DESC LIMIT 1), ''), :body"""


def put_run(db: sqlite3.Connection, run: Run, *, seq: int, at: Instant) -> None:
    """A Run that is new; an edit of one that is known is no new row. Until it is admitted it may ask for another
    flavor: what its leases were of is what it asked for last."""
    meta, spec = run.metadata, run.spec
    db.execute(_RUN, (meta.namespace, meta.name, meta.uid, spec.owner, spec.resources.gpu_type,
                      spec.resources.total_gpus, at, seq))  # fmt: skip


def put_reservation(db: sqlite3.Connection, one: Reservation, *, seq: int, idx: int, at: Instant) -> None:
    row = {
        "namespace": one.namespace, "name": one.name, "uid": one.uid, "run": one.run, "run_uid": one.run_uid,
        "state": one.state, "made": one.made, "promised": one.promise.start, "confidence": one.confidence,
        "planned": one.plan.start, "ended": at if one.state in OVER else None, "body": _json.encode(one).decode(),
        "seq": seq, "idx": idx, "at": at, "reason": one.reason, "message": one.message, "start": one.plan.start,
    }  # fmt: skip
    db.execute(_RESERVE, row)
    db.execute(_PLAN, row)


def put_resolution(db: sqlite3.Connection, fact: Resolution, *, seq: int, idx: int, at: Instant) -> None:
    activation = fact.intent.activation if isinstance(fact, Froze) else fact.activation
    _, namespace, name = (*fact.subject.split("/", 2), "", "")[:3]
    row = {
        "subject": fact.subject, "seq": seq, "idx": idx, "at": at, "activation": activation,
        "namespace": namespace, "name": name, "body": _json.encode(fact).decode(),
    }  # fmt: skip
    db.execute(_RESOLVE, row)
    for place, cut in enumerate(fact.cuts if isinstance(fact, Resolved) else ()):
        body = _json.encode(cut).decode()
        db.execute(
            "INSERT INTO cuts VALUES (?,?,?,?,?,?,?,?)", (cut.run, seq, idx, place, at, fact.subject, activation, body)
        )


def put_beacon(db: sqlite3.Connection, fact: Published, *, seq: int) -> None:
    db.execute("INSERT OR REPLACE INTO beacons VALUES (?,?,?)", (fact.beacon, seq, fact.root))


# --- asking ---------------------------------------------------------------------------------------------------------
# CROSS JOIN is SQLite's way to say which table comes first: the few reservations of a run, then what is theirs.


def runs(db: sqlite3.Connection, *, namespace: str, name: str) -> list[RunRow]:
    """Every Run that ever had a name, the oldest first."""
    sql = "SELECT * FROM runs WHERE namespace = ? AND name = ? ORDER BY seq"
    return [_named((*row, None), RunRow) for row in db.execute(sql, (namespace, name))]


def reservations(
    db: sqlite3.Connection, *, namespace: str | None, run: str | None, name: str | None, live: bool,
    since: Instant | None = None,
) -> list[ReservationRow]:  # fmt: skip
    """Reservations in the order they were made; with ``since``, less those that were over by then."""
    given = {"namespace": namespace, "run": run, "name": name}
    terms = [f"{column} = :{column}" for column, value in given.items() if value is not None]
    terms += ["ended IS NULL"] if live else [] if since is None else [f"(ended IS NULL OR ended >= {since:d})"]
    where = " AND ".join([*terms, "1"])
    sql = f"SELECT body, ended, seq, changed FROM reservations WHERE {where} ORDER BY seq, namespace, name"
    return [_named((_reservation.decode(_text(body)), *row), ReservationRow) for body, *row in db.execute(sql, given)]


def plans(db: sqlite3.Connection, *, namespace: str, run: str) -> list[PlanRow]:
    """How the reservations of a run changed, in order."""
    sql = """SELECT p.namespace, p.name, p.uid, p.seq, p.at, p.state, p.reason, p.message, p.start, p.confidence
             FROM reservations r CROSS JOIN plans p USING (namespace, name, uid)
             WHERE r.namespace = ? AND r.run = ? ORDER BY p.seq, p.idx"""
    return [_named(row, PlanRow) for row in db.execute(sql, (namespace, run))]


def resolutions(db: sqlite3.Connection, *, subject: str | None, after: int = 0) -> list[ResolutionRow]:
    """What was frozen and resolved: all of it, or for one subject; a Budget alone stands for all its envelopes."""
    sql = "SELECT subject, seq, at, activation, uid, body FROM resolutions WHERE seq > :after"
    if subject is not None:  # '0' is what follows '/'
        sql += " AND (subject = :subject OR (subject > :subject || '/' AND subject < :subject || '0'))"
    return list(_resolutions(db.execute(f"{sql} ORDER BY seq, idx", {"subject": subject, "after": after})))


def cuts(db: sqlite3.Connection, *, run: str) -> list[CutRow]:
    """What a run (``namespace/name``) lost, in order."""
    sql = "SELECT run, seq, at, subject, activation, body FROM cuts WHERE run = ? ORDER BY seq, idx, place"
    return [_named((*row, _cut.decode(_text(body))), CutRow) for *row, body in db.execute(sql, (run,))]


def beacons(db: sqlite3.Connection, *, at_seq: int) -> dict[str, str]:
    """What each custodian had published by an entry: the first value of the chain in force."""
    sql = "SELECT beacon, root FROM beacons WHERE seq <= ? ORDER BY seq"
    return dict(msgspec.convert(db.execute(sql, (at_seq,)).fetchall(), list[tuple[str, str]]))


def promises(db: sqlite3.Connection, *, since: Instant, until: Instant) -> list[PromiseRow]:
    """Reservations that were Released in ``[since, until)``, with the first lease their run got from then on."""
    sql = """SELECT namespace, run, name, confidence, promised, planned, coalesce(bound, planned), started FROM (
                 SELECT r.*, json_extract(r.body, '$.by') AS bound,
                        (SELECT min(l.start) FROM leases l WHERE l.namespace = r.namespace AND l.run = r.run
                         AND l.uid = r.run_uid AND l.seq >= r.seq) AS started
                 FROM reservations r WHERE r.state = 'Released' AND r.ended >= ? AND r.ended < ?
             ) WHERE started IS NOT NULL ORDER BY started, namespace, run"""
    return [_named(row, PromiseRow) for row in db.execute(sql, (since, until))]


def _resolutions(rows: Iterable[tuple[Any, ...]]) -> Iterator[ResolutionRow]:
    for *row, body in rows:
        yield _named((*row, _resolution.decode(_text(body))), ResolutionRow)


def _named(row: Iterable[Any], kind: type[_Row]) -> _Row:
    """A row as a record, its types checked: a damaged page must not pass as an answer."""
    return msgspec.convert(dict(zip(kind.__struct_fields__, row, strict=True)), kind)


def _text(value: Any) -> str:
    return msgspec.convert(value, str)
