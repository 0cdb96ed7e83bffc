"""Where entries are kept: the port, and the simulator's memory.

``tenure.ledger.Ledger`` is the real one; ``MemoryStore`` has the same face and forgets when the process ends. A
contract test runs one suite on both.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import AbstractContextManager, contextmanager
from typing import Protocol

from msgspec import Struct

from tenure.facts import (
    GENESIS,
    Closed,
    Entry,
    Fact,
    Froze,
    Lease,
    Opened,
    Reservation,
    Reserved,
    Resolved,
    encode_entry,
    entry_hash,
)
from tenure.units import Instant


class HeadLike(Protocol):
    """The end of the chain."""

    @property
    def seq(self) -> int: ...
    @property
    def hash(self) -> str: ...
    @property
    def at(self) -> Instant: ...


class SnapshotLike(Protocol):
    @property
    def seq(self) -> int: ...
    @property
    def body(self) -> bytes: ...


class Writing(Protocol):
    """A transaction: nobody else appends while it is open."""

    @property
    def head(self) -> HeadLike: ...
    def since(self, seq: int) -> Iterator[Entry]: ...
    def append(self, *, at: Instant, cause: str, facts: Iterable[Fact], decided: bool = True) -> Entry: ...
    def save_snapshot(self, body: bytes) -> None: ...


class Store(Protocol):
    keeps_images: bool
    """Whether images of the state are worth making: only where opening means reading."""

    @property
    def fleet(self) -> str: ...
    @property
    def head(self) -> HeadLike: ...
    def write(self) -> AbstractContextManager[Writing]: ...
    def entries(self, after: int = 0, until: int | None = None) -> Iterator[Entry]: ...
    def attempts(self, namespace: str, run: str) -> int: ...
    def snapshot(self) -> SnapshotLike | None: ...
    def lease_history(self) -> Iterable[tuple[Lease, Instant | None, str | None]]:
        """Every lease there ever was, with its end and closure if it is closed."""
        ...

    def reservation_history(self) -> Iterable[tuple[Reservation, Froze | Resolved | None]]:
        """Every reservation there ever was: its last record, and the last that the resolver did for it."""
        ...

    def resolution_history(self) -> Iterable[Froze | Resolved]:
        """Everything that the resolver froze and did, in order, also for budgets."""
        ...


class _Head(Struct, frozen=True):
    seq: int = 0
    hash: str = GENESIS
    at: Instant = 0


class MemoryStore:
    """A store in memory, for the simulator.

    A long replay need not grow with its history: with ``keep=False`` an entry is gone once it was handed out, and all
    that is left is the end of the chain. Such a store cannot be read again, and refuses to pretend that it can.
    """

    keeps_images = False

    def __init__(self, fleet: str = "simulator", *, keep: bool = True) -> None:
        self.fleet = fleet
        self.keep = keep
        self.head = _Head()
        self.log: list[Entry] = []
        self._leases: dict[str, tuple[Lease, Instant | None, str | None]] = {}
        self._attempts: dict[tuple[str, str], int] = {}
        self._promises: dict[str, tuple[Reservation, Froze | Resolved | None]] = {}
        self._newest: dict[str, str] = {}
        """Of each name, the uid of the reservation that had it last."""
        self._resolutions: list[Froze | Resolved] = []

    @contextmanager
    def write(self) -> Iterator[Writing]:
        head, kept = self.head, len(self.log)
        try:
            yield self
        except BaseException:
            if self.keep:
                self._go_back(head, kept)
            raise

    def since(self, seq: int) -> Iterator[Entry]:
        return self.entries(seq)

    def entries(self, after: int = 0, until: int | None = None) -> Iterator[Entry]:
        assert self.keep or after >= self.head.seq, "this store was told to keep no entries"
        return iter(self.log[after:until])

    def attempts(self, namespace: str, run: str) -> int:
        return self._attempts.get((namespace, run), 0)

    def lease_history(self) -> Iterable[tuple[Lease, Instant | None, str | None]]:
        assert self.keep, "this store was told to keep no entries"
        return self._leases.values()

    def reservation_history(self) -> Iterable[tuple[Reservation, Froze | Resolved | None]]:
        assert self.keep, "this store was told to keep no entries"
        return self._promises.values()

    def resolution_history(self) -> Iterable[Froze | Resolved]:
        assert self.keep, "this store was told to keep no entries"
        return self._resolutions

    def snapshot(self) -> SnapshotLike | None:
        return None

    def save_snapshot(self, body: bytes) -> None:
        """Memory needs none."""

    def append(self, *, at: Instant, cause: str, facts: Iterable[Fact], decided: bool = True) -> Entry:
        seq, prev = self.head.seq + 1, self.head.hash
        entry = Entry(seq=seq, at=at, cause=cause, facts=tuple(facts), prev=prev, decided=decided)
        self.head = _Head(entry.seq, entry_hash(encode_entry(entry)), at)
        self._count(entry)
        if self.keep:
            self._keep(entry)
        return entry

    def _go_back(self, head: _Head, kept: int) -> None:
        """A transaction that failed leaves nothing."""
        log, self.log, self.head = self.log[:kept], [], head
        self._leases, self._attempts = {}, {}
        self._promises, self._newest, self._resolutions = {}, {}, []
        for entry in log:
            self._count(entry)
            self._keep(entry)

    def _count(self, entry: Entry) -> None:
        for fact in entry.facts:
            if isinstance(fact, Opened):
                lease = fact.lease
                self._attempts[lease.namespace, lease.run] = max(
                    self.attempts(lease.namespace, lease.run), lease.attempt
                )

    def _keep(self, entry: Entry) -> None:
        self.log.append(entry)
        for fact in entry.facts:
            if isinstance(fact, Opened):
                self._leases[fact.lease.key] = (fact.lease, None, None)
            elif isinstance(fact, Closed):
                for name in fact.leases:
                    key = f"{fact.namespace}/{name}"
                    self._leases[key] = (self._leases[key][0], fact.end, fact.reason)
            elif isinstance(fact, Reserved):
                one = fact.reservation
                self._newest[f"Reservation/{one.key}"] = one.uid
                self._promises[one.uid] = (one, self._promises[one.uid][1] if one.uid in self._promises else None)
            elif isinstance(fact, Froze | Resolved):
                self._resolutions.append(fact)
                uid = self._newest.get(fact.subject)
                if uid is not None:
                    self._promises[uid] = (self._promises[uid][0], fact)
