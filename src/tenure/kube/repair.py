"""Putting back what an API server has lost, from a journal that still knows it.

After a restore of etcd from an old copy the LedgerHead is behind what operators remember, and they refuse to go on. The
journal has every entry, byte for byte. If the API server's end of the chain is in it, the missing entries are made
objects again and the head is swapped forward over them, as if nothing had happened; what was materialised from them
follows by itself when an operator starts. Where both have gone on, there are two histories, and no tool chooses.
"""

from __future__ import annotations

import asyncio
from itertools import islice

import msgspec
from msgspec import Struct

from tenure.kube.client import Client
from tenure.kube.entries import Batch, Line, objects_of
from tenure.kube.heads import first_head, read_head, swap
from tenure.kube.refusals import Code, refused
from tenure.kube.store import put_entry
from tenure.ledger import Ledger

BATCH = 500
JOURNAL = "the journal"


class Restored(Struct, frozen=True):
    """From which entry to which the API server has them again; both the same if it had lost none."""

    before: int
    after: int


async def restore(client: Client, journal: Ledger) -> Restored:
    """Bring the API server's ledger up to the journal's; refuses if they are not one history."""
    fence = await read_head(client) or await first_head(client, journal.fleet)
    head = fence.spec
    if head.fleet != journal.fleet:
        raise refused(Code.OtherFleet, fleet=head.fleet, ours=journal.fleet, what=JOURNAL)
    if head.seq > journal.head.seq:
        return Restored(head.seq, head.seq)
    known = journal.head_at(head.seq)
    if known is None or known.hash != head.hash:
        raise refused(Code.Forked, seq=head.seq, what=JOURNAL)
    links = journal.links(head.seq)
    while chunk := list(islice(links, BATCH)):
        batch = Batch(tuple(Line(link.entry, link.body, link.hash) for link in chunk))
        await asyncio.gather(*(put_entry(client, item) for item in objects_of(batch)))
        last = batch.last
        spec = msgspec.structs.replace(fence.spec, seq=last.entry.seq, hash=last.hash, at=last.entry.at)
        fence = await swap(client, fence, spec)
    return Restored(head.seq, fence.spec.seq)
