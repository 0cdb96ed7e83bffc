"""Whether the Lease objects of a cluster say what its ledger says.

They are written after the fact, by the operator, for `kubectl get` and for people who may not read the ledger; nobody
decides by them. An object may be a moment late, so whatever differs is looked at again, for a while, before it counts.
Objects of leases that ended long ago may have been retired: that one is missing is no finding.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any

from msgspec import Struct

from tenure.cli.port import Misshown, Telling
from tenure.kube import shown
from tenure.kube.errors import ApiError
from tenure.kube.resources import LEASES

if TYPE_CHECKING:
    from tenure.kube.client import Client
    from tenure.kube.loop import IO
    from tenure.ledger import LeaseRow, Ledger

PATIENCE = 5.0
"""Seconds that an object may be behind the ledger."""
Books = dict[str, "LeaseRow"]
Item = dict[str, Any]


class Seen(Struct):
    """As much of a Lease object as is compared."""

    metadata: Item
    spec: Item = {}
    status: Item = {}


class Mirror:
    """The Lease objects, beside the ledger."""

    def __init__(self, io: IO, client: Client, ledger: Ledger, refresh: Callable[[], None]) -> None:
        self._io, self._client, self._ledger, self._refresh = io, client, ledger, refresh

    def differences(self, progress: Telling) -> Iterator[Misshown]:
        """What still differs after ``PATIENCE``."""
        suspects = self._compared(progress)
        deadline = time.monotonic() + PATIENCE
        while suspects and time.monotonic() < deadline:
            time.sleep(0.5)
            self._refresh()
            books = self._books()
            again = {key: _judged(key, books.get(key), self._one(key)) for key in suspects}
            suspects = {key: found for key, found in again.items() if found is not None}
        yield from (suspects[key] for key in sorted(suspects))

    def _books(self) -> Books:
        return {f"{row.lease.namespace}/{row.lease.name}": row for row in self._ledger.leases()}

    def _compared(self, progress: Telling) -> dict[str, Misshown]:
        self._refresh()
        books = self._books()
        suspects: dict[str, Misshown] = {}
        met: set[str] = set()
        for seen in self._all():
            key = f"{seen.metadata['namespace']}/{seen.metadata['name']}"
            met.add(key)
            progress("Lease object", len(met), max(len(books), len(met)))
            if (found := _judged(key, books.get(key), seen)) is not None:
                suspects[key] = found
        for key in books.keys() - met:
            if (found := _judged(key, books[key], None)) is not None:
                suspects[key] = found
        return suspects

    def _all(self) -> Iterator[Seen]:
        pages = self._client.pages(LEASES, Seen)

        async def following() -> list[Seen] | None:
            return await anext(pages, None)

        while (page := self._io.run(following())) is not None:
            yield from page

    def _one(self, key: str) -> Seen | None:
        namespace, _, name = key.partition("/")
        try:
            found = self._io.run(self._client.get(LEASES, name, namespace))
        except ApiError as error:
            if error.not_found:
                return None
            raise
        return Seen(found["metadata"], found.get("spec") or {}, found.get("status") or {})


def _judged(key: str, row: LeaseRow | None, seen: Seen | None) -> Misshown | None:
    """What an object says wrongly about a lease, if anything."""
    if row is None:
        return None if seen is None else _finding(key, "no entry of the ledger opened it", "no object", "an object")
    is_open = row.end is None
    if seen is None:
        return _finding(key, "an open lease has no object", "an object", "none") if is_open else None
    wanted = shown.lease_object(row.lease, fleet="", end=row.end, closure=row.closure)
    for part in ("spec", "status") if not is_open else ("spec",):
        if not shown.covers(getattr(seen, part), wanted[part]):
            return _finding(key, f"its object's {part} is another one", str(wanted[part]), str(getattr(seen, part)))
    if is_open and seen.status.get("closed"):
        return _finding(key, "its object is closed", "open", "closed")
    return None


def _finding(key: str, message: str, expected: str, found: str) -> Misshown:
    return Misshown(object=f"Lease/{key}", message=message, expected=expected, found=found)
