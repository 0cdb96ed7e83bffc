"""The append-only, hash-chained record of every decision, kept in SQLite.

    ledger = Ledger.create("fleet.db", fleet="lab-7")
    with ledger.write() as tx:
        tx.append(at=now, cause="apply Run/rai/train", facts=facts)
    # acknowledged: committed, synced, anchored

Read ``tenure.ledger.store`` for the promise, ``tenure.ledger.anchor`` for how the end is protected, and
docs/concepts/ledger.md for the operator's side. Only what is named here is public.
"""

from tenure.ledger.anchor import Mark, sidecar
from tenure.ledger.chain import Head, Link
from tenure.ledger.charges import Charge
from tenure.ledger.connect import companions
from tenure.ledger.promises import CutRow, PlanRow, PromiseRow, ReservationRow, ResolutionRow, RunRow
from tenure.ledger.queries import CompletedRow, HolderKey, LeaseRow, UsageKey, Which
from tenure.ledger.reader import Decision, Note, Snapshot
from tenure.ledger.refusals import Code, LedgerRefused
from tenure.ledger.store import CREATE_POINTS, WRITE_POINTS, Accepted, Hook, Ledger
from tenure.ledger.transaction import Transaction

__all__ = [
    "CREATE_POINTS",
    "WRITE_POINTS",
    "Accepted",
    "Charge",
    "Code",
    "CompletedRow",
    "CutRow",
    "Decision",
    "Head",
    "HolderKey",
    "Hook",
    "LeaseRow",
    "Ledger",
    "LedgerRefused",
    "Link",
    "Mark",
    "Note",
    "PlanRow",
    "PromiseRow",
    "ReservationRow",
    "ResolutionRow",
    "RunRow",
    "Snapshot",
    "Transaction",
    "UsageKey",
    "Which",
    "companions",
    "sidecar",
]
