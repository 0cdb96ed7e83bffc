"""A store that says how long deciding and committing took; in all else the store behind it."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from time import perf_counter

from tenure.facts import Entry, Froze, Lease, Reservation, Resolved
from tenure.shell.store import HeadLike, SnapshotLike, Store, Writing
from tenure.units import Instant

Timed = Callable[[float, float], None]
"""Told, after each transaction that wrote something: seconds until its commit was asked for, and those it took."""


class TimedStore:
    def __init__(self, store: Store, tell: Timed) -> None:
        self._store = store
        self._tell = tell
        self.keeps_images = store.keeps_images

    @contextmanager
    def write(self) -> Iterator[Writing]:
        with self._timed() as asked, self._store.write() as tx:
            before = tx.head.seq
            yield tx
            if tx.head.seq != before:
                asked.append(perf_counter())

    @contextmanager
    def _timed(self) -> Iterator[list[float]]:
        began, asked = perf_counter(), list[float]()
        yield asked
        if asked:
            self._tell(asked[0] - began, perf_counter() - asked[0])

    @property
    def fleet(self) -> str:
        return self._store.fleet

    @property
    def head(self) -> HeadLike:
        return self._store.head

    def entries(self, after: int = 0, until: int | None = None) -> Iterator[Entry]:
        return self._store.entries(after, until)

    def attempts(self, namespace: str, run: str) -> int:
        return self._store.attempts(namespace, run)

    def snapshot(self) -> SnapshotLike | None:
        return self._store.snapshot()

    def lease_history(self) -> Iterable[tuple[Lease, Instant | None, str | None]]:
        return self._store.lease_history()

    def reservation_history(self) -> Iterable[tuple[Reservation, Froze | Resolved | None]]:
        return self._store.reservation_history()

    def resolution_history(self) -> Iterable[Froze | Resolved]:
        return self._store.resolution_history()
