"""The ledger in the API server, as a ``Store``: a home on it decides as it does on a file.

    with store.write() as tx:                       # on what the journal knows, which is what the head said last
        tx.append(at=now, cause="...", facts=facts)
    # here: the entries are objects, the LedgerHead names the last of them, and the journal has them too

The swap of the ``LedgerHead`` is the commit. Before it the entries are objects that mean nothing; after it they count,
whatever becomes of us. Nobody holds a lock: a transaction is begun on the newest head we know, and whoever is outrun
loses the swap, changes nothing and raises ``StoreRefused(Outrun)``; its home then rebuilds on what the winner wrote.
A swap without an answer is looked up, see ``heads``. The journal is a copy of what was committed and is never ahead of
it, except when the API server was set back in time; then every write is refused until somebody has decided.

``head`` is the end of the copy. Who must know what others wrote, calls ``refresh``; writing does so by itself whenever
the last swap did not succeed.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from itertools import chain
from pathlib import Path
from types import TracebackType
from typing import Self

import msgspec

from tenure.api.ledger_objects import Archived, LedgerHeadSpec
from tenure.facts import Entry, Fact, Froze, Reservation, Resolved
from tenure.kube.archive import Archive
from tenure.kube.client import Client, Object, urgently
from tenure.kube.entries import Batch, Line, batch_of, objects_of, same
from tenure.kube.errors import ApiError
from tenure.kube.heads import Fence, first_head, read_head, swap, unwritten
from tenure.kube.journal import open_journal, seen, take_all
from tenure.kube.loop import IO
from tenure.kube.refusals import Code, StoreRefused, refused
from tenure.kube.resources import LEDGER_ENTRIES
from tenure.kube.walk import Stretch, stretch
from tenure.ledger import Head, Ledger, Transaction
from tenure.shell.ledger_store import LedgerStore
from tenure.units import Instant

CREATES_MAX = 6


class KubeStore(LedgerStore):
    """The ledger of one cluster. Serves one thread at a time."""

    copy = "this operator's journal"
    """What the copy is called in refusals, and what it lacks where the archive would be needed."""
    no_archive = "this operator was given no archive"

    def __init__(self, io: IO, client: Client, journal: Ledger, *, archive: Archive | None = None) -> None:
        super().__init__(journal)
        self.io = io
        self.client = client
        self.archive = archive
        self._fence: Fence | None = None
        """The head that the journal ends in; None if it has to be read again."""

    @classmethod
    def open(
        cls,
        io: IO,
        client: Client,
        path: Path,
        *,
        fleet: str,
        anchor: Path | None = None,
        archive: Path | None = None,
    ) -> Self:
        """The ledger of a cluster, with the journal at ``path``; both are made if there is none yet.

        ``fleet`` names a new ledger; one that exists keeps its name. Refuses if the API server knows less than the
        journal or its anchor.
        """
        fence = io.run(read_head(client))
        if fence is None:
            if known := seen(path, anchor):
                raise refused(Code.NoHead, what=known[0], seen=known[1])
            fence = io.run(first_head(client, fleet))
        folder = None if archive is None else Archive(archive)
        journal = open_journal(
            path,
            anchor=anchor,
            head=fence.spec,
            fill=lambda journal: cls(io, client, journal, archive=folder).refresh(),
        )
        store = cls(io, client, journal, archive=folder)
        try:
            store.refresh()
        except BaseException:
            store.close()
            raise
        return store

    def close(self) -> None:
        """Let go of the journal; the client is the caller's."""
        self.ledger.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    @property
    def spec(self) -> LedgerHeadSpec:
        """The LedgerHead that the journal ends in, read again if need be."""
        if self._fence is None:
            self.refresh()
        assert self._fence is not None
        return self._fence.spec

    @property
    def version(self) -> str:
        """The resourceVersion of that head: whatever has a higher one was written later."""
        return "" if self._fence is None else self._fence.version

    def promises(
        self, *, since: Instant | None, also: Iterable[str] = ()
    ) -> list[tuple[Reservation, Froze | Resolved | None]]:
        """Reservations with the last resolution of each: those that stand, that were over no earlier than ``since``, or
        that are named (``namespace/name``)."""
        rows = self.ledger.reservations(since=since)
        if since is not None:
            known = {row.reservation.key for row in rows}
            for namespace, _, name in (key.partition("/") for key in also if key not in known):
                rows += self.ledger.reservations(namespace=namespace, name=name)
        first = min((row.seq for row in rows), default=0)
        last = {(row.subject, row.uid): row.fact for row in self.ledger.resolutions(after=first - 1)}
        facts = [row.reservation for row in rows]
        return [(one, last.get((f"Reservation/{one.key}", one.uid))) for one in facts]

    # --- catching up --------------------------------------------------------------------------------------

    def refresh(self) -> None:
        """Take in what others have committed; refuses where the API server has gone back in time."""
        self._fence = None
        try:
            self._fence = self._caught_up()
        except StoreRefused as refusal:
            if refusal.code is not Code.EntryMissing:
                raise
            self._fence = self._caught_up()  # it may have been archived between two reads of ours

    def _caught_up(self) -> Fence:
        fence, ours = self.io.run(urgently(read_head(self.client))), self.head
        if fence is None:
            raise refused(Code.NoHead, what=self.copy, seen=ours.seq)
        self._check(fence.spec, ours)
        if fence.spec.seq > ours.seq:
            take_all(self.ledger, self._missing(fence, ours))
        return fence

    def _check(self, head: LedgerHeadSpec, ours: Head) -> None:
        if head.fleet != self.fleet:
            raise refused(Code.OtherFleet, fleet=head.fleet, ours=self.fleet, what=self.copy)
        if head.seq < ours.seq:
            raise refused(Code.Behind, head=head.seq, seen=ours.seq, what=self.copy)
        if head.seq == ours.seq and head.hash != ours.hash:
            raise refused(Code.Forked, seq=head.seq, what=self.copy)

    def _missing(self, fence: Fence, ours: Head) -> Iterator[Line]:
        """The lines between the journal's end and the head, in order: live ones, after those in the archive."""
        found = self.io.run(urgently(stretch(self.client, fence, after=ours.seq)))
        archived: Iterable[Line] = ()
        if found.after > ours.seq:
            if self.archive is None:
                raise refused(Code.ArchiveNeeded, seq=found.after, why=self.no_archive)
            archived = self.archive.lines(after=ours.seq, until=found.after)
        before = ours.hash
        for line in chain(archived, self._live(found)):
            if line.entry.seq <= ours.seq:  # a copy that stopped within a batch meets what it has
                if line.entry.seq == ours.seq and line.hash != ours.hash:
                    raise refused(Code.Forked, seq=ours.seq, what=self.copy)
                continue
            if line.entry.prev != before:
                raise refused(Code.Forked, seq=line.entry.seq - 1, what=self.copy)
            yield line
            before = line.hash

    def _live(self, found: Stretch) -> Iterator[Line]:
        async def following() -> Batch | None:
            return await anext(found.batches, None)

        while (batch := self.io.run(following())) is not None:
            yield from batch.lines

    # --- committing ---------------------------------------------------------------------------------------

    @contextmanager
    def write(self) -> Iterator[KubeWriting]:
        """Append; when the block ends everything in it is committed by one swap, or nothing is."""
        if self._fence is None:
            self.refresh()
        with self.ledger.write() as tx:
            writing = KubeWriting(tx)
            yield writing
            fence, self._fence = self._fence, None  # until the journal has what the swap made so
            assert fence is not None
            if writing.entries:
                fence = self.io.run(urgently(self._commit(fence, writing.entries)))
        self._fence = fence

    async def _commit(self, fence: Fence, entries: list[Entry]) -> Fence:
        batch = batch_of(entries)
        assert batch.prev == fence.spec.hash, "I5 a transaction goes on from the head it is swapped against"
        await asyncio.gather(*(put_entry(self.client, item) for item in objects_of(batch)))
        last = batch.last
        spec = msgspec.structs.replace(fence.spec, seq=last.entry.seq, hash=last.hash, at=last.entry.at)
        return await swap(self.client, fence, spec)

    def move_archive(self, archived: Archived) -> None:
        """Say on the head how far the archive reaches; the end of the chain stays where it is."""
        spec = msgspec.structs.replace(self.spec, archived=archived)
        fence, self._fence = self._fence, None
        assert fence is not None
        self._fence = self.io.run(urgently(swap(self.client, fence, spec)))


class KubeWriting:
    """A transaction: the journal's, of which every entry is also remembered to be sent."""

    def __init__(self, tx: Transaction) -> None:
        self._tx = tx
        self.entries: list[Entry] = []

    @property
    def head(self) -> Head:
        return self._tx.head

    def since(self, seq: int) -> Iterator[Entry]:
        return self._tx.since(seq)

    def append(self, *, at: Instant, cause: str, facts: Iterable[Fact], decided: bool = True) -> Entry:
        entry = self._tx.append(at=at, cause=cause, facts=facts, decided=decided)
        self.entries.append(entry)
        return entry

    def save_snapshot(self, body: bytes) -> None:
        """Kept in the journal only: it saves time at the next start, and nothing depends on it."""
        self._tx.save_snapshot(body)


async def put_entry(client: Client, item: Object) -> None:
    """Make an object that is named after what it holds: to try again is harmless."""
    for number in range(1, CREATES_MAX + 1):
        try:
            await client.create(LEDGER_ENTRIES, item)
            return
        except ApiError as error:
            if error.exists:
                await _check_same(client, item)
                return
            if number == CREATES_MAX or not (error.in_doubt or error.conflict):
                raise unwritten(error) from error
        await asyncio.sleep(0.05 * 2**number * random.random())


async def _check_same(client: Client, item: Object) -> None:
    """An object of that name is there: our own, of a create without an answer. Another cut of the same chain can only
    be left by somebody who decided the same before us; then we are not the first, and decide again."""
    try:
        found = await client.get(LEDGER_ENTRIES, item["metadata"]["name"])
    except ApiError as error:
        raise unwritten(error) from error
    if not same(found, item):
        raise refused(Code.Outrun)
