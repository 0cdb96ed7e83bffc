"""The ``LedgerHead``: reading it, making the first one, and the swap that commits.

A swap replaces the head only if it is still the object that was read. Whoever comes second gets a conflict and changes
nothing. An answer that is lost after the swap is found by reading the head again: if it says what we wanted, we wrote
it; if it is still what it was, the same swap is sent again, which cannot count twice, since the first of the two to
arrive makes the other a conflict with itself.
"""

from __future__ import annotations

import asyncio

import msgspec
from msgspec import Struct

from tenure.api.ledger_objects import HEAD, LedgerHeadSpec
from tenure.api.meta import to_wire
from tenure.facts import GENESIS
from tenure.kube.client import Client, Object
from tenure.kube.errors import ApiError
from tenure.kube.refusals import Code, StoreRefused, refused
from tenure.kube.resources import LEDGER_HEADS

SWAPS_MAX = 6
_PAUSE_SECONDS = 0.1


class Fence(Struct, frozen=True):
    """A head, and the version of the object that says so: what a swap is made against."""

    spec: LedgerHeadSpec
    version: str


async def read_head(client: Client) -> Fence | None:
    """The head as it is now; None if there is none yet."""
    try:
        return fence_of(await client.get(LEDGER_HEADS, HEAD))
    except ApiError as error:
        if error.not_found:
            return None
        raise unwritten(error) from error


async def first_head(client: Client, fleet: str) -> Fence:
    """The head of a ledger without entries, made if nobody has made it before."""
    spec = LedgerHeadSpec(fleet=fleet, seq=0, hash=GENESIS, at=0)
    try:
        return fence_of(await client.create(LEDGER_HEADS, LEDGER_HEADS.named(HEAD, spec=to_wire(spec))))
    except ApiError as error:
        if not error.exists and not error.in_doubt:
            raise unwritten(error) from error
    found = await read_head(client)
    if found is None:
        raise refused(Code.Unreachable, why="the LedgerHead could not be made")
    return found


async def swap(client: Client, fence: Fence, spec: LedgerHeadSpec) -> Fence:
    """Move the head from ``fence`` to ``spec``: the commit. Returns the new fence, or raises why it did not happen."""
    why = ""
    for number in range(SWAPS_MAX):
        body = LEDGER_HEADS.named(HEAD, spec=to_wire(spec))
        body["metadata"]["resourceVersion"] = fence.version
        try:
            return fence_of(await client.replace(LEDGER_HEADS, body))
        except ApiError as error:
            if error.not_found:
                raise refused(Code.NoHead, what="this operator's journal", seen=fence.spec.seq) from error
            if not error.conflict and not error.in_doubt:
                raise unwritten(error) from error
            why = str(error)
        seen = await _seen_after(client, spec, why)
        if seen.spec.hash == spec.hash and seen.spec.archived == spec.archived:
            return seen
        if (seen.spec.seq, seen.spec.hash) != (fence.spec.seq, fence.spec.hash):
            raise refused(Code.Outrun)
        if seen.version != fence.version:  # the same end of the chain: only the archive moved on, or a label
            moved = spec.archived == fence.spec.archived
            fence, spec = seen, msgspec.structs.replace(spec, archived=seen.spec.archived) if moved else spec
        await asyncio.sleep(_PAUSE_SECONDS * number)
    raise refused(Code.InDoubt, seq=spec.seq, why=why)


async def _seen_after(client: Client, spec: LedgerHeadSpec, why: str) -> Fence:
    """The head after a swap of which nobody knows whether it happened."""
    try:
        seen = await read_head(client)
    except StoreRefused as refusal:
        raise refused(Code.InDoubt, seq=spec.seq, why=why) from refusal
    if seen is None:
        raise refused(Code.NoHead, what="this operator's journal", seen=spec.seq)
    return seen


def unwritten(error: ApiError) -> StoreRefused:
    """What it means for the ledger that the API server did not do something."""
    return refused(Code.Unreachable if error.transient else Code.NotAllowed, why=error)


def fence_of(item: Object) -> Fence:
    """A LedgerHead as it was read."""
    return Fence(msgspec.convert(item["spec"], LedgerHeadSpec), item["metadata"]["resourceVersion"])
