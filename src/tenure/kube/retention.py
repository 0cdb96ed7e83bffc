"""What leaves the API server, so that etcd stays bounded and the books stay whole.

    retention = Retention(store, keep=30 * DAY)
    retention.step(now)                     # every second or so: lists and deletes go on beside, nobody waits for them

    sweep(store)                            # at once: objects that no chain leads to, left by whoever lost a swap
    retire(store, before=now - 30 * DAY)    # at once: what is old and over, after it is safe in the archive

Nothing is deleted that could still matter. An object without a place in the chain is swept when the head has come as
far as it: its own swap was against an earlier head, and can no longer succeed. Entries are deleted only after their
segment was written, synced and read back against the chain, and after the LedgerHead says that the archive reaches
that far; whoever is interrupted in between does the rest the next time. A closed lease goes when the entries that
opened and closed it are in the archive, and so does a reservation that was kept or canceled. The journal keeps
everything.

The work is written as generators: each yields what has to be waited for on the loop's thread, and goes on with the
answer on the thread that may use the ledger. ``None`` is yielded where somebody else may have a turn.
"""

from __future__ import annotations

import asyncio
import re
import time
from collections.abc import Callable, Generator, Iterable, Iterator
from concurrent.futures import Future
from itertools import islice
from typing import Any, TypeVar

from msgspec import Struct

from tenure.api.formats import instant_of
from tenure.api.ledger_objects import Archived, entry_name
from tenure.engine.shown import OVER
from tenure.facts import GENESIS
from tenure.kube.archive import Archive, Segment
from tenure.kube.client import Client
from tenure.kube.entries import Line
from tenure.kube.errors import ApiError
from tenure.kube.heads import unwritten
from tenure.kube.marks import UID
from tenure.kube.refusals import Code, refused
from tenure.kube.resources import LEASES, LEDGER_ENTRIES, RESERVATIONS, Resource
from tenure.kube.store import KubeStore
from tenure.units import DAY, MINUTE, Instant, Micros

T = TypeVar("T")
SEGMENT_ENTRIES_MAX = 20_000
ROUND = 10 * MINUTE
STEP_SECONDS = 0.02
_CHUNK = 200
_NAME = re.compile(r"(\d{12})-([0-9a-f]{16})(?:-\d+)?", re.ASCII)


class Named(Struct, frozen=True, gc=False):
    """What is kept of an object: enough to delete it, and no other."""

    name: str
    uid: str
    namespace: str = ""


class _Any(Struct, frozen=True, gc=False):
    metadata: Named


class _RunRef(Struct, frozen=True, gc=False):
    name: str


class _LeaseSpec(Struct, frozen=True, gc=False, rename="camel"):
    run_ref: _RunRef


class _LeaseStatus(Struct, frozen=True, gc=False, rename="camel"):
    end_time: str = ""


class _Lease(Struct, frozen=True, gc=False):
    metadata: Named
    spec: _LeaseSpec
    status: _LeaseStatus = _LeaseStatus()


class _Promised(Named, frozen=True, gc=False):
    annotations: dict[str, str] = {}


class _Reservation(Struct, frozen=True, gc=False):
    metadata: _Promised


class Retired(Struct, frozen=True):
    """What ``retire`` has done."""

    segments: tuple[Segment, ...] = ()
    entries: int = 0
    leases: int = 0
    reservations: int = 0


Work = Generator["Future[Any] | None", Any, T]
"""Yields what to wait for, if anything; is sent the answer."""


def sweep(store: KubeStore) -> int:
    """Delete the entry objects that are no part of the ledger and can never become one; returns how many."""
    return _at_once(_sweeping(store))


def retire(store: KubeStore, *, before: Instant, worth: Micros = 0) -> Retired:
    """Move what was decided before an instant to the archive, and delete it from the API server, with the leases and
    reservations that were over by then.

    A segment is begun when it is full, or when its first entry is older than that by ``worth``: else an archive would
    be made of many small files.
    """
    return _at_once(_retiring(store, before=before, worth=worth))


class Retention:
    """Sweeps and retires for ever, a little at each step."""

    def __init__(
        self,
        store: KubeStore,
        *,
        keep: Micros | None,
        worth: Micros = DAY,
        ticks: Callable[[], float] = time.monotonic,
    ) -> None:
        """``keep``: how long entries, and leases and reservations that are over, stay; None for ever. ``worth``: see
        ``retire``."""
        self._store, self._keep, self._worth, self._ticks = store, keep, worth, ticks
        self._work: Work[Retired] | None = None
        self._awaited: Future[Any] | None = None
        self._due: Instant = 0

    def step(self, now: Instant) -> Retired | None:
        """Do what can be done without waiting, for a moment. Returns what was done when a round is over."""
        if self._work is None and now < self._due:
            return None
        work, self._work = self._work or self._round(now), None
        self._due = now + ROUND  # also after a failure
        try:
            self._go_on(work, until=self._ticks() + STEP_SECONDS)
        except StopIteration as end:
            done: Retired = end.value
            return done
        except ApiError as error:
            raise unwritten(error) from error
        self._work = work
        return None

    def _go_on(self, work: Work[Retired], *, until: float) -> None:
        while self._ticks() < until and (self._awaited is None or self._awaited.done()):
            awaited, self._awaited = self._awaited, None
            self._awaited = work.send(None if awaited is None else awaited.result())

    def _round(self, now: Instant) -> Work[Retired]:
        yield from _sweeping(self._store)
        if self._keep is None:
            return Retired()
        return (yield from _retiring(self._store, before=now - self._keep, worth=self._worth))


def _at_once(work: Work[T]) -> T:
    """Do all of it, waiting where there is something to wait for."""
    answer = None
    try:
        while True:
            awaited = work.send(answer)
            answer = None if awaited is None else awaited.result()
    except StopIteration as end:
        done: T = end.value
        return done
    except ApiError as error:
        raise unwritten(error) from error


# --- the work -----------------------------------------------------------------------------------------------------


def _sweeping(store: KubeStore) -> Work[int]:
    head = store.spec.seq
    orphans = []
    for number, item in enumerate((yield _entry_objects(store)), 1):
        if _seq(item) <= head and not _in_chain(store, item):
            orphans.append(item)
        if number % _CHUNK == 0:
            yield None
    return (yield from _deleting(store, LEDGER_ENTRIES, orphans))


def _retiring(store: KubeStore, *, before: Instant, worth: Micros) -> Work[Retired]:
    if store.archive is None:
        raise refused(Code.ArchiveNeeded, seq=store.spec.seq, why="this operator was given no archive")
    items: list[Named] = yield _entry_objects(store)
    segments: list[Segment] = []
    for segment in _archive_more(store, store.archive, _boundary(store, items, before), before - worth):
        segments.append(segment)
        yield None
    reached = store.spec.archived
    if reached is None:
        return Retired()
    gone = yield from _deleting(store, LEDGER_ENTRIES, [item for item in items if _seq(item) <= reached.seq])
    leases: list[_Lease] = yield _listed(store, LEASES, _Lease, fields="status.closed=true")
    over: list[Named] = []
    for found in _over(store, leases, before=before, through=reached.seq):
        over += found
        yield None
    closed = yield from _deleting(store, LEASES, over)
    promised = yield from _retiring_promises(store, before=before, through=reached.seq)
    return Retired(tuple(segments), gone, closed, promised)


def _retiring_promises(store: KubeStore, *, before: Instant, through: int) -> Work[int]:
    """Reservations that were over before an instant, and of which everything is in the archive."""
    over: list[Named] = []
    for state in OVER:
        items: list[_Reservation] = yield _listed(store, RESERVATIONS, _Reservation, fields=f"status.state={state}")
        for number, one in enumerate((item.metadata for item in items), 1):
            rows = store.ledger.reservations(namespace=one.namespace, name=one.name)
            ours = next((row for row in rows if row.reservation.uid == one.annotations.get(UID)), None)
            if ours is not None and ours.ended is not None and ours.ended < before and ours.changed <= through:
                over.append(one)
            if number % _CHUNK == 0:
                yield None
    return (yield from _deleting(store, RESERVATIONS, over))


def _boundary(store: KubeStore, items: Iterable[Named], before: Instant) -> int:
    """The last entry of the last commit that is old enough; never the head's own, so that the chain's end is live."""
    for item in sorted(items, key=_seq, reverse=True):
        seq = _seq(item)
        if seq < store.spec.seq:
            found = store.ledger.head_at(seq)
            if found is not None and found.at < before and _in_chain(store, item):
                return seq
    return 0


def _archive_more(store: KubeStore, archive: Archive, until: int, oldest: Instant) -> Iterator[Segment]:
    """Write what lies between the archive's end and an entry, and say so on the head, segment by segment."""
    reached = store.spec.archived
    seq, prev = (0, GENESIS) if reached is None else (reached.seq, reached.hash)
    while seq < until:
        first = store.ledger.head_at(seq + 1)
        assert first is not None
        if until - seq < SEGMENT_ENTRIES_MAX and first.at >= oldest:
            return
        end = min(until, seq + SEGMENT_ENTRIES_MAX)
        lines = (Line(link.entry, link.body, link.hash) for link in store.ledger.links(seq, end))
        segment = archive.write(lines, after=seq, prev=prev)
        last = store.ledger.head_at(segment.last)
        assert last is not None
        assert last.hash[:16] == segment.mark, "I5 a segment ends in the entry that the chain has there"
        store.move_archive(Archived(seq=last.seq, hash=last.hash, at=last.at))
        seq, prev = last.seq, last.hash
        yield segment


def _over(store: KubeStore, leases: Iterable[_Lease], *, before: Instant, through: int) -> Iterator[list[Named]]:
    """Closed leases of which everything is in the archive, run by run."""
    runs: dict[tuple[str, str], list[Named]] = {}
    for item in leases:
        ended = instant_of(item.status.end_time)
        if ended is not None and ended < before:
            runs.setdefault((item.metadata.namespace, item.spec.run_ref.name), []).append(item.metadata)
    for (namespace, run), items in runs.items():
        rows = store.ledger.leases(namespace=namespace, run=run)
        over = {row.lease.name for row in rows if row.closed_by is not None and row.closed_by <= through}
        yield [item for item in items if item.name in over]


def _seq(item: Named) -> int:
    found = _NAME.fullmatch(item.name)
    return 2**62 if found is None else int(found[1])  # not one of ours: never old enough


def _in_chain(store: KubeStore, item: Named) -> bool:
    """Whether an object is named after an entry of the ledger."""
    seq = _seq(item)
    link = store.ledger.head_at(seq)
    return link is not None and f"{item.name}-".startswith(f"{entry_name(seq, link.hash)}-")


# --- what is waited for -------------------------------------------------------------------------------------------


def _entry_objects(store: KubeStore) -> Future[list[Named]]:
    async def names() -> list[Named]:
        pages = store.client.pages(LEDGER_ENTRIES, _Any, metadata_only=True)
        return [item.metadata async for page in pages for item in page]

    return store.io.start(names())


def _listed(store: KubeStore, resource: Resource, item: type[T], *, fields: str) -> Future[list[T]]:
    async def all_of_them() -> list[T]:
        return [one async for page in store.client.pages(resource, item, fields=fields) for one in page]

    return store.io.start(all_of_them())


def _deleting(store: KubeStore, resource: Resource, items: Iterable[Named]) -> Work[int]:
    rest, count = iter(items), 0
    while chunk := list(islice(rest, _CHUNK)):
        count += sum((yield store.io.start(_delete_all(store.client, resource, chunk))))
    return count


async def _delete_all(client: Client, resource: Resource, items: list[Named]) -> list[int]:
    return await asyncio.gather(*(_delete_one(client, resource, item) for item in items))


async def _delete_one(client: Client, resource: Resource, item: Named) -> int:
    try:
        await client.delete(resource, item.name, item.namespace, uid=item.uid)
    except ApiError as error:
        if error.not_found or error.conflict:
            return 0  # somebody else was faster, or it is another object by now
        raise
    return 1
