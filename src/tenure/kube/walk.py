"""Reading the chain that ends in the LedgerHead: back from it, object by object, to what is known already.

Every object says which entry it follows from, and that gives the name of the object before. A copy that is a few
commits behind catches up with as many reads. One that is far behind lists everything twice, a page at a time: once for
the names, which show the chain, and once for the bodies of those in it, which come in its order. So it never holds more
than a page. Objects that the walk does not meet are not part of the ledger, whatever they hold.
"""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import TypeVar

from msgspec import Struct

from tenure.api.ledger_objects import LedgerEntrySpec, entry_name
from tenure.kube.client import Client
from tenure.kube.entries import Batch, read_batch, spec_of
from tenure.kube.errors import ApiError
from tenure.kube.heads import Fence, unwritten
from tenure.kube.refusals import Code, refused
from tenure.kube.resources import LEDGER_ENTRIES

Found = TypeVar("Found")
STEPS_MAX = 16
"""How many objects are read one by one before all are listed."""
PAGE = 100
TRIES = 3


class Stretch(Struct, frozen=True):
    """A piece of the chain, in order, and what its first entry follows from."""

    after: int
    prev: str
    batches: AsyncIterator[Batch]


async def stretch(client: Client, fence: Fence, *, after: int) -> Stretch:
    """The chain from its head back to entry ``after`` at least, or as far as it has not been archived."""
    archived = 0 if fence.spec.archived is None else fence.spec.archived.seq
    seq, digest = fence.spec.seq, fence.spec.hash
    batches: list[Batch] = []
    while seq > after:
        if len(batches) == STEPS_MAX:
            return await _long_stretch(client, fence, after=after)
        batch = await _batch(client, seq, digest, archived=seq <= archived)
        if batch is None:
            break
        batches.append(batch)
        seq, digest = batch.first - 1, batch.prev
    return Stretch(seq, digest, _each(batches[::-1]))


async def _each(batches: list[Batch]) -> AsyncIterator[Batch]:
    for batch in batches:
        yield batch


async def _batch(client: Client, seq: int, digest: str, *, archived: bool) -> Batch | None:
    """The batch whose last entry this is; None if it is in the archive."""
    spec = await _spec(client, entry_name(seq, digest))
    if spec is None and archived:
        return None
    specs = [_present(spec, entry_name(seq, digest), seq)]
    for part in range(2, specs[0].parts + 1):
        name = entry_name(seq, digest, part)
        specs.append(_present(await _spec(client, name), name, seq))
    return _checked(specs, entry_name(seq, digest), digest)


async def _spec(client: Client, name: str) -> LedgerEntrySpec | None:
    try:
        return spec_of(await client.get(LEDGER_ENTRIES, name))
    except ApiError as error:
        if error.not_found:
            return None
        raise unwritten(error) from error


# --- far behind ---------------------------------------------------------------------------------------------------


class _Metadata(Struct):
    name: str


class _Place(Struct):
    """Where an object stands in the chain."""

    first: int
    prev: str
    parts: int = 1


class _Name(Struct):
    metadata: _Metadata
    spec: _Place


class _Whole(Struct):
    metadata: _Metadata
    spec: LedgerEntrySpec


async def _long_stretch(client: Client, fence: Fence, *, after: int) -> Stretch:
    places = await _places(client)
    archived = 0 if fence.spec.archived is None else fence.spec.archived.seq
    seq, digest, names = fence.spec.seq, fence.spec.hash, []
    while seq > after:
        name = entry_name(seq, digest)
        place = places.get(name)
        if place is None and seq <= archived:
            break
        place = _present(place, name, seq)
        names.append((seq, digest, place.parts))
        seq, digest = place.first - 1, place.prev
    return Stretch(seq, digest, _read_all(client, names[::-1]))


async def _places(client: Client) -> dict[str, _Place]:
    for number in range(1, TRIES + 1):
        try:
            pages = client.pages(LEDGER_ENTRIES, _Name, page=PAGE)
            return {item.metadata.name: item.spec async for page in pages for item in page}
        except ApiError as error:
            if not error.expired or number == TRIES:
                raise unwritten(error) from error
    raise AssertionError("the last try returns or raises")


async def _read_all(client: Client, steps: list[tuple[int, str, int]]) -> AsyncIterator[Batch]:
    """The batches of a chain, as their objects come by. A list that expires is begun again behind the last one."""
    done, number = 0, 0
    while done < len(steps):
        number += 1
        try:
            async for batch in _read_from(client, steps[done:]):
                yield batch
                done += 1
        except ApiError as error:
            if not error.expired or number == TRIES:
                raise unwritten(error) from error
        else:
            if done < len(steps):
                seq, digest, _ = steps[done]
                raise refused(Code.EntryMissing, name=entry_name(seq, digest), seq=seq)


async def _read_from(client: Client, steps: list[tuple[int, str, int]]) -> AsyncIterator[Batch]:
    wanted = {entry_name(seq, digest, part) for seq, digest, parts in steps for part in range(1, parts + 1)}
    held: dict[str, LedgerEntrySpec] = {}
    rest = iter(steps)
    step = next(rest, None)
    async for page in client.pages(LEDGER_ENTRIES, _Whole, page=PAGE):
        held.update((item.metadata.name, item.spec) for item in page if item.metadata.name in wanted)
        while step is not None:
            names = [entry_name(step[0], step[1], part) for part in range(1, step[2] + 1)]
            if not all(name in held for name in names):
                break
            yield _checked([held.pop(name) for name in names], names[0], step[1])
            step = next(rest, None)


def _checked(specs: list[LedgerEntrySpec], name: str, digest: str) -> Batch:
    if specs[0].hash != digest:
        raise refused(Code.EntryDamaged, name=name, why="it holds an entry with another hash")
    return read_batch(specs)


def _present(item: Found | None, name: str, seq: int) -> Found:
    if item is None:
        raise refused(Code.EntryMissing, name=name, seq=seq)
    return item
