"""The ledger as a ``Store``: what ``Home`` needs of it, under the names it knows."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import AbstractContextManager

from tenure.facts import Entry, Froze, Lease, Reservation, Resolved
from tenure.ledger import Head, Ledger, Snapshot
from tenure.shell.store import Writing
from tenure.units import Instant


class LedgerStore:
    """A SQLite ledger behind a home."""

    keeps_images = True

    def __init__(self, ledger: Ledger) -> None:
        self.ledger = ledger

    @property
    def fleet(self) -> str:
        return self.ledger.fleet

    @property
    def head(self) -> Head:
        return self.ledger.head

    def write(self) -> AbstractContextManager[Writing]:
        return self.ledger.write()

    def entries(self, after: int = 0, until: int | None = None) -> Iterator[Entry]:
        return self.ledger.entries(after, until)

    def attempts(self, namespace: str, run: str) -> int:
        return self.ledger.attempts(namespace, run)

    def snapshot(self) -> Snapshot | None:
        return self.ledger.snapshot()

    def lease_history(self) -> Iterable[tuple[Lease, Instant | None, str | None]]:
        return ((row.lease, row.end, row.closure) for row in self.ledger.leases())

    def reservation_history(self) -> Iterable[tuple[Reservation, Froze | Resolved | None]]:
        last = {(row.subject, row.uid): row.fact for row in self.ledger.resolutions()}
        rows = (row.reservation for row in self.ledger.reservations())
        return [(one, last.get((f"Reservation/{one.key}", one.uid))) for one in rows]

    def resolution_history(self) -> Iterable[Froze | Resolved]:
        return [row.fact for row in self.ledger.resolutions()]
