"""Questions to the query tables, as SQL: which leases, how much was used, by whom.

Answers are checked for their types as they come out: a row from a damaged page becomes a refusal.
All sums are exact. A product of GPUs and microseconds can pass 2^63, where SQLite turns to floats or
gives up, so it only adds up lengths of time, in whole seconds and the microseconds left over, for each
width of lease; Python multiplies. Intervals are half-open: a lease counts at its start and not at its
end.

    usage = sum over leases of gpus x |[start, end) ∩ [since, until)|   (an open lease ends at `until`)
"""

from __future__ import annotations

import sqlite3
from collections.abc import Collection, Container, Iterator
from typing import Any, Literal, TypedDict

import msgspec
from msgspec import Struct

from tenure.api.lease import Role
from tenure.facts import FundingClass, Lease
from tenure.units import DAY, SECOND, GpuMicros, Instant, Micros, format_time

UsageKey = Literal["owner", "payer", "envelope", "sponsor", "run", "node", "day"]
HolderKey = Literal["owner", "payer", "envelope", "sponsor", "run", "node"]

_KEYS: dict[str, str] = {
    "owner": "owner",
    "payer": "payer",
    "envelope": "budget || '/' || envelope",
    "sponsor": "payer",
    "run": "namespace || '/' || run",
    "node": "node",
}
_LEASE = (
    "namespace, name, run, uid, owner, attempt, grp, domain, node, ordinals, role, start, until, "
    "budget, envelope, payer, funding, reason, end, closure, seq, closed_by, since"
)
_ordinals = msgspec.json.Decoder(tuple[int, ...])


class LeaseRow(Struct, frozen=True, kw_only=True):
    """A lease and how it ended; ``end`` and ``closure`` are None while it is open."""

    lease: Lease
    end: Instant | None = None
    closure: str | None = None
    seq: int
    """The entry that opened it."""
    closed_by: int | None = None
    """The entry that closed it."""

    @property
    def open(self) -> bool:
        return self.end is None

    def used(self, *, since: Instant, until: Instant) -> GpuMicros:
        """What it used of ``[since, until)``."""
        end = until if self.end is None else min(self.end, until)
        return len(self.lease.gpus) * max(0, end - max(self.lease.start, since))


class CompletedRow(Struct, frozen=True, kw_only=True):
    """A run that came to its end by itself: how long it said that it would take, and how long it held GPUs."""

    owner: str
    declared: Micros | None
    real: Micros
    end: Instant


class Which(TypedDict, total=False):
    """The keywords that narrow a question down; what is absent or None does not matter."""

    namespace: str | None
    run: str | None
    node: str | None
    owner: str | None
    budget: str | None
    envelope: str | None
    payer: str | None
    role: Role | None
    funding: FundingClass | None


class Filter(Struct, frozen=True, kw_only=True):
    """The same as a record."""

    namespace: str | None = None
    run: str | None = None
    node: str | None = None
    owner: str | None = None
    budget: str | None = None
    envelope: str | None = None
    payer: str | None = None
    role: Role | None = None
    funding: FundingClass | None = None

    def terms(self) -> list[str]:
        return [f"{name} = :{name}" for name, value in self.values().items() if value is not None]

    def values(self) -> dict[str, Any]:
        return msgspec.structs.asdict(self)


class Period(Struct, frozen=True, kw_only=True):
    """When a lease must have been held."""

    at: Instant | None = None
    since: Instant | None = None
    until: Instant | None = None
    open_only: bool = False

    def opened(self) -> Iterator[str]:
        """What must be so of a lease that is open."""
        yield "end IS NULL"
        if self.at is not None:
            yield "start <= :at"
        if self.until is not None:
            yield "start < :before"

    def closed(self) -> Iterator[str]:
        """What must be so of a lease that is closed."""
        yield "end IS NOT NULL"
        if self.at is not None:
            yield "start <= :at AND end > :at"
        if self.since is not None:  # one that begins inside counts even if it ended as it began
            yield "end >= :since AND (end > :since OR start >= :since)"
        if self.until is not None:
            yield "start < :before"

    def values(self) -> dict[str, Any]:
        return {"at": self.at, "since": self.since, "before": self.until}


def leases(db: sqlite3.Connection, which: Filter, when: Period, *, newest: bool, limit: int | None) -> list[LeaseRow]:
    """Leases that match, in the order they were opened; ``newest`` turns the order round."""
    way = "DESC" if newest else "ASC"
    sql = f"{select(_LEASE, which, when)} ORDER BY seq {way}, namespace {way}, name {way} LIMIT :limit"
    values = which.values() | when.values() | {"limit": -1 if limit is None else limit}
    return [_row(row) for row in db.execute(sql, values)]


def closed_leases(db: sqlite3.Connection, when: Period, but: Container[str]) -> Iterator[LeaseRow]:
    """Leases that have ended, one after the other, less those of which the ``namespace/name`` is named."""
    sql = f"SELECT namespace, name FROM leases WHERE {' AND '.join(when.closed())}"
    missing = [key for key in db.execute(sql, when.values()) if "/".join(key) not in but]
    for key in missing:
        yield _row(db.execute(f"SELECT {_LEASE} FROM leases WHERE namespace = ? AND name = ?", key).fetchone())


def usage(
    db: sqlite3.Connection, which: Filter, *, by: UsageKey, since: Instant, until: Instant
) -> dict[str, GpuMicros]:
    """GPU-microseconds used in ``[since, until)`` for each value of ``by``, sorted; nothing that is zero."""
    when = Period(since=since, until=until)
    if by == "day":
        return _by_day(db, which, when)
    length = "MIN(COALESCE(end, :before), :before) - MAX(start, :since) AS length"
    sql = f"""SELECT key, gpus, SUM(length / {SECOND}), SUM(length % {SECOND})
              FROM ({select(f"{_KEYS[by]} AS key, gpus, {length}", which, when, *_sponsored(by))})
              WHERE length > 0 GROUP BY key, gpus ORDER BY key"""
    totals: dict[str, GpuMicros] = {}
    rows = db.execute(sql, which.values() | when.values()).fetchall()
    for key, gpus, seconds, micros in msgspec.convert(rows, list[tuple[str, int, int, int]]):
        totals[key] = totals.get(key, 0) + gpus * (seconds * SECOND + micros)
    return totals


def concurrency(db: sqlite3.Connection, which: Filter, *, by: HolderKey, at: Instant) -> dict[str, int]:
    """GPUs held at one instant for each value of ``by``, sorted."""
    when = Period(at=at)
    held = select(f"{_KEYS[by]} AS key, gpus", which, when, *_sponsored(by))
    sql = f"SELECT key, SUM(gpus) FROM ({held}) GROUP BY key ORDER BY key"
    rows = db.execute(sql, which.values() | when.values()).fetchall()
    return dict(msgspec.convert(rows, list[tuple[str, int]]))


def attempts(db: sqlite3.Connection, *, namespace: str, run: str) -> int:
    """The highest attempt of any lease of a run of that name, ever; 0 if it never had one."""
    sql = "SELECT max(attempt) FROM leases WHERE namespace = ? AND run = ?"
    found = db.execute(sql, (namespace, run)).fetchone()[0]
    return msgspec.convert(found, int | None) or 0


def completed(
    db: sqlite3.Connection, owners: Collection[str], *, before: Instant, each: int, fleet: int
) -> list[CompletedRow]:  # fmt: skip
    """The last completed runs of each of these owners, and, where one of them has few, the last of all; by their ends.

    Of a run that was tried several times its last attempt counts. What it declared is on its leases.
    """
    found: dict[tuple[str, str, str, int], CompletedRow] = {}
    scarce = not owners
    for owner in owners:
        mine = _completed(db, "owner = :owner AND", {"owner": owner, "before": before}, most=each)
        scarce = scarce or len(mine) < _FEW
        found |= mine
    if scarce:
        found |= _completed(db, "", {"before": before}, most=fleet)
    return sorted(found.values(), key=lambda row: (row.end, row.owner, row.real))


_FEW = 5
_LOOKED_AT = 16
"""Leases that are looked at for each run that is wanted: most runs have fewer."""


def _completed(
    db: sqlite3.Connection, which: str, values: dict[str, Any], *, most: int
) -> dict[tuple[str, str, str, int], CompletedRow]:
    """The last completed runs, found from their recent end."""
    sql = f"""SELECT namespace, run, uid, attempt FROM leases
              WHERE {which} end IS NOT NULL AND end <= :before AND closure = 'Completed'
              ORDER BY end DESC LIMIT {_LOOKED_AT * most}"""
    keys: dict[tuple[str, str, str, int], None] = {}
    for row in db.execute(sql, values):
        keys[row] = None
        if len(keys) == most:
            break
    one = """SELECT owner, min(start), max(end), max(until) FROM leases
             WHERE namespace = ? AND run = ? AND uid = ? AND attempt = ?"""
    found = {}
    for key in keys:
        owner, start, end, until = msgspec.convert(db.execute(one, key).fetchone(), tuple[str, int, int, int | None])
        declared = None if until is None else until - start
        found[key] = CompletedRow(owner=owner, declared=declared, real=end - start, end=end)
    return found


def _by_day(db: sqlite3.Connection, which: Filter, when: Period) -> dict[str, GpuMicros]:
    sql = select("MAX(start, :since), MIN(COALESCE(end, :before), :before), gpus", which, when)
    totals: dict[int, GpuMicros] = {}
    for row in db.execute(sql, which.values() | when.values()):
        start, end, gpus = msgspec.convert(row, tuple[int, int, int])
        for day, length in days(start, end):
            totals[day] = totals.get(day, 0) + gpus * length
    return {format_time(day * DAY)[:10]: totals[day] for day in sorted(totals)}


def days(start: Instant, end: Instant) -> Iterator[tuple[int, int]]:
    """Cut ``[start, end)`` at UTC midnights.

    >>> list(days(DAY - 10, 2 * DAY + 5)) == [(0, 10), (1, DAY), (2, 5)]
    True
    """
    while start < end:
        day = start // DAY
        cut = min(end, (day + 1) * DAY)
        yield day, cut - start
        start = cut


def select(columns: str, which: Filter, when: Period, *terms: str) -> str:
    """The open half and the closed half of the leases: each has its own indexes (schema.sql)."""
    common = [*which.terms(), *terms]
    halves = [when.opened()] if when.open_only else [when.opened(), when.closed()]
    return " UNION ALL ".join(f"SELECT {columns} FROM leases WHERE {' AND '.join([*half, *common])}" for half in halves)


def _sponsored(by: str) -> list[str]:
    return ["funding = 'borrowed'"] if by == "sponsor" else []


def _row(row: tuple[Any, ...]) -> LeaseRow:
    """Build the record from the columns, checking types: a damaged page must not pass as an answer."""
    (namespace, name, run, uid, owner, attempt, group, domain, node, ordinals, role, start, until,
     budget, envelope, payer, funding, reason, end, closure, seq, closed_by, since) = row  # fmt: skip
    gpus = _ordinals.decode(msgspec.convert(ordinals, str))
    lease = {
        "namespace": namespace, "name": name, "run": run, "uid": uid, "owner": owner, "attempt": attempt,
        "group": group, "domain": domain, "node": node, "gpus": gpus, "role": role,
        "start": start, "until": until, "budget": budget, "envelope": envelope, "payer": payer,
        "funding": funding, "reason": reason, "since": since,
    }  # fmt: skip
    whole = {"lease": lease, "end": end, "closure": closure, "seq": seq, "closed_by": closed_by}
    return msgspec.convert(whole, LeaseRow)
