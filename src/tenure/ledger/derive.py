"""The query tables: what entries say about leases, notes, decisions, owners and promises, laid out for questions.

They are written in the transaction of the entry they come from and hold nothing that the entries do not,
so they can be thrown away and filled again (``rebuild``), and ``verify`` compares them with exactly that.

On the way two invariants of SPEC 13 are asserted: a lease is opened once, and it closes once, not before
its start. A caller that breaks one has a bug, and gets a ValueError before anything is committed.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Iterable

import msgspec

from tenure.api.budget import Budget
from tenure.api.core import Namespace
from tenure.api.meta import OWNER_ANNOTATION
from tenure.api.run import Run
from tenure.facts import (
    Closed,
    Decided,
    Entry,
    Froze,
    Lease,
    Noted,
    Opened,
    Published,
    PutBudget,
    PutNamespace,
    PutRun,
    Reservation,
    Reserved,
    Resolved,
)
from tenure.ledger import promises

TABLES = {
    "leases": "namespace, name",
    "notes": "seq, idx",
    "decisions": "namespace, run, seq, idx",
    "owners": "object, seq",
    "runs": "namespace, name, uid",
    "reservations": "namespace, name, uid",
    "plans": "namespace, name, uid, seq, idx",
    "resolutions": "subject, seq, idx",
    "cuts": "run, seq, idx, place",
    "beacons": "beacon, seq",
}
"""The derived tables and their keys."""

_OPEN = """INSERT INTO leases (namespace, name, run, uid, owner, attempt, grp, domain, node, ordinals, gpus, role,
                               start, until, budget, envelope, payer, funding, reason, seq)
           VALUES (?,?,?,?,?,?,?,?,?,?,?,?,?,?,?,?,?,?,?,?)"""
_SINCE = "UPDATE leases SET since = ? WHERE namespace = ? AND name = ?"
_CLOSE = """UPDATE leases SET end = ?, closure = ?, closed_by = ?
            WHERE namespace = ? AND name = ? AND end IS NULL"""
_OWN = """INSERT INTO owners SELECT :object, :seq, :owner
          WHERE :owner IS NOT (SELECT owner FROM owners WHERE object = :object ORDER BY seq DESC LIMIT 1)
          ON CONFLICT (object, seq) DO UPDATE SET owner = excluded.owner"""
_json = msgspec.json.Encoder(order="deterministic")


def apply(db: sqlite3.Connection, entry: Entry) -> None:
    """Write what one entry says into the tables."""
    for index, fact in enumerate(entry.facts):
        match fact:
            case Opened(lease=lease):
                _open(db, lease, seq=entry.seq)
            case Closed():
                _close(db, fact, seq=entry.seq)
            case Noted(kind=kind, object=about, reason=reason, message=message):
                note = (entry.seq, index, entry.at, kind, about, reason, message)
                db.execute("INSERT INTO notes VALUES (?,?,?,?,?,?,?)", note)
            case Decided(namespace=namespace, run=run, verdict=verdict):
                text = _json.encode(verdict).decode()
                decision = (namespace, run, entry.seq, index, entry.at, text)
                db.execute("INSERT INTO decisions VALUES (?,?,?,?,?,?)", decision)
            case PutRun(object=run):
                _own(db, run, owner=run.spec.owner, seq=entry.seq)
                promises.put_run(db, run, seq=entry.seq, at=entry.at)
            case PutBudget(object=budget):
                _own(db, budget, owner=budget.spec.owner, seq=entry.seq)
            case PutNamespace(object=namespace):
                _own(db, namespace, owner=namespace.metadata.annotations.get(OWNER_ANNOTATION, ""), seq=entry.seq)
            case Reserved(reservation=one):
                promises.put_reservation(db, one, seq=entry.seq, idx=index, at=entry.at)
                _own_as_its_run(db, one, seq=entry.seq)
            case Froze() | Resolved():
                promises.put_resolution(db, fact, seq=entry.seq, idx=index, at=entry.at)
            case Published():
                promises.put_beacon(db, fact, seq=entry.seq)
            case _:
                pass  # state, which the engine folds; nobody asks the ledger about it


def rebuild(db: sqlite3.Connection, entries: Iterable[Entry]) -> None:
    """Empty the tables and fill them from the entries; inside the caller's transaction."""
    for table in TABLES:
        db.execute(f"DELETE FROM {table}")
    for entry in entries:
        apply(db, entry)


def _own(db: sqlite3.Connection, item: Run | Budget | Namespace, *, owner: str, seq: int) -> None:
    """Whose an object is from here on, under the name that notes give it; only a change is a row."""
    meta = item.metadata
    about = f"{item.kind}/{meta.namespace}/{meta.name}" if meta.namespace else f"{item.kind}/{meta.name}"
    db.execute(_OWN, {"object": about, "seq": seq, "owner": owner})


def _own_as_its_run(db: sqlite3.Connection, one: Reservation, *, seq: int) -> None:
    sql = "SELECT owner FROM owners WHERE object = ? ORDER BY seq DESC LIMIT 1"
    found = db.execute(sql, (f"Run/{one.run_key}",)).fetchone()
    if found is not None:
        db.execute(_OWN, {"object": f"Reservation/{one.key}", "seq": seq, "owner": found[0]})


def _open(db: sqlite3.Connection, lease: Lease, *, seq: int) -> None:
    row = (
        lease.namespace, lease.name, lease.run, lease.uid, lease.owner, lease.attempt, lease.group,
        lease.domain, lease.node, _json.encode(lease.gpus).decode(), len(lease.gpus), lease.role, lease.start,
        lease.until, lease.budget, lease.envelope, lease.payer, lease.funding, lease.reason, seq,
    )  # fmt: skip
    try:
        db.execute(_OPEN, row)
    except sqlite3.IntegrityError as error:
        raise ValueError(f"entry {seq} opens lease {lease.key} a second time") from error
    if lease.since is not None:
        db.execute(_SINCE, (lease.since, lease.namespace, lease.name))


def _close(db: sqlite3.Connection, fact: Closed, *, seq: int) -> None:
    for name in fact.leases:
        try:
            closed = db.execute(_CLOSE, (fact.end, fact.reason, seq, fact.namespace, name)).rowcount
        except sqlite3.IntegrityError as error:
            raise ValueError(f"entry {seq} closes lease {fact.namespace}/{name} before its start") from error
        if closed != 1:
            raise ValueError(f"entry {seq} closes lease {fact.namespace}/{name}, which is not open")
