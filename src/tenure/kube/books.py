"""Lease and Reservation objects: what the ledger says, for ``kubectl get``. Written by nobody else, and believed by
nobody who decides: decisions rest on the ledger alone.

A lease is created when it opens and gets its end once, when it closes: one write each. One that opened and closed
before it was ever written is written closed. An object of that name which says something else is nobody's business to
overwrite: it is reported.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from msgspec import Struct

from tenure.engine import State
from tenure.facts import Closed, Lease
from tenure.kube import shown
from tenure.kube.client import Client
from tenure.kube.desk import LEASE, WAITING, Desk
from tenure.kube.errors import ApiError
from tenure.kube.intake import Cache
from tenure.kube.marks import UID
from tenure.kube.resources import LEASES, RESERVATIONS, Resource
from tenure.kube.said import Said
from tenure.units import Instant

Object = dict[str, Any]


class Leased(Struct, frozen=True, gc=False):
    """A lease, and its end if it has one."""

    lease: Lease
    end: Instant | None = None
    closure: str | None = None


class Differs(Exception):
    """An object is there, and says something else than the ledger."""


class Books:
    """What is wanted of Lease and Reservation objects."""

    def __init__(self, client: Client, desk: Desk, caches: Mapping[str, Cache], *, fleet: str, said: Said) -> None:
        self._client, self._desk, self._caches, self._fleet, self._said = client, desk, caches, fleet, said
        self._open: dict[str, Lease] = {}
        self._recent: dict[str, Leased] = {}
        """Closed leases whose end is not written yet."""
        self._compared = True
        """Whether it is known which closed leases lack their end."""
        self._due: set[str] = set()
        self._made: set[str] = set()
        """Leases that we created and that the informer has not shown yet."""

    # -- leases --

    def opened(self, lease: Lease) -> None:
        self._open[lease.key] = lease
        self._due.add(lease.key)

    def closed(self, fact: Closed) -> Iterator[Lease]:
        """Note the end of leases; tells which they were."""
        for name in fact.leases:
            key = f"{fact.namespace}/{name}"
            lease = self._open.pop(key, None)
            if lease is not None:
                self._recent[key] = Leased(lease, fact.end, fact.reason)
                self._due.add(key)
                yield lease

    def is_closing(self, run: str) -> bool:
        """Whether the end of some lease of a run is not written yet, as far as is known."""
        return not self._compared or any(one.lease.run_key == run for one in list(self._recent.values()))

    def saw(self, key: str, state: State) -> None:
        """An open lease's object changed: compare it with the ledger. What is not there was deleted, or closed."""
        item = self._caches["Lease"].get(key)
        self._made.discard(key)
        if key in self._open:
            wanted = shown.lease_object(self._open[key], fleet=self._fleet)
            if item is None or not shown.covers(item, _spec(wanted)):
                self._due.add(key)

    def resync(self, state: State) -> None:
        """Compare every open lease with what is there. The closed ones are compared later: see ``compare``."""
        self._open, self._recent, self._compared = dict(state.leases), {}, False
        cache = self._caches["Lease"]
        self._due = {key for key in self._open if cache.get(key) is None}

    def compare(self, missing: Iterable[tuple[Lease, Instant | None, str | None]]) -> None:
        """Write the ends of closed leases of which no object says so."""
        for lease, end, closure in missing:
            if lease.key not in self._open and lease.key not in self._recent:
                self._recent[lease.key] = Leased(lease, end, closure)
                self._due.add(lease.key)
        self._compared = True

    def flush(self, *, now: Instant) -> None:
        for key in sorted(self._due):
            one = self._recent.get(key) or (Leased(self._open[key]) if key in self._open else None)
            if one is not None:
                self._write(key, one)
        self._due.clear()

    def _write(self, key: str, one: Leased) -> None:
        wanted = shown.lease_object(one.lease, fleet=self._fleet, end=one.end, closure=one.closure)
        namespace, name = one.lease.namespace, one.lease.name

        async def write() -> None:
            item = self._caches["Lease"].get(key)
            if item is None and key not in self._made:
                item = await self._create(LEASES, wanted)
                if item is None:
                    self._recent.pop(key, None)
                    return
                self._made.add(key)
            if item is not None and not shown.covers(item, _spec(wanted)):
                raise Differs(f"Lease {key} says something else than the ledger")
            if one.end is not None:
                if not _is_closed(item):
                    await self._close(name, namespace, wanted)
                self._recent.pop(key, None)
                self._made.discard(key)

        self._desk.put(f"Lease/{key}", write, rank=LEASE)

    async def _create(self, resource: Resource, wanted: Object) -> Object | None:
        """Make an object, or find it; None where its namespace is going, and everything in it."""
        body = {key: value for key, value in wanted.items() if key != "status"}
        try:
            return await self._client.ensure(resource, body)
        except ApiError as error:
            if error.not_found or (error.code == 403 and "being terminated" in error.message):
                return None
            raise

    async def _close(self, name: str, namespace: str, wanted: Object) -> None:
        change = {"status": wanted["status"]}
        try:
            await self._client.patch(LEASES, name, change, namespace, subresource="status")
        except ApiError as error:
            if not error.not_found:
                raise
            self._made.discard(f"{namespace}/{name}")
            raise ApiError(0, "Vanished", f"Lease {namespace}/{name} was deleted before it was closed") from error

    # -- reservations --

    def reserve(self, key: str, wanted: Object) -> None:
        """Make a Reservation what it should be. A name may be used again: then the old object makes room."""
        meta = wanted["metadata"]

        async def write() -> None:
            item = self._caches["Reservation"].get(key)
            if item is None or _uid(item) != _uid(wanted):
                item = await self._replace(meta["name"], meta["namespace"], wanted)
            if item is None:
                return
            status = item.get("status") or {}
            if not shown.same(status, wanted["status"]) or shown.is_off(status, wanted["status"]):
                self._said.check(item, wanted["status"])
                change = [{"op": "add", "path": "/status", "value": wanted["status"]}]
                await self._client.patch(
                    RESERVATIONS, meta["name"], change, meta["namespace"], kind="json", subresource="status"
                )
                self._said.note(item, wanted["status"])

        self._desk.put(f"Reservation/{key}", write, rank=WAITING)

    async def _replace(self, name: str, namespace: str, wanted: Object) -> Object | None:
        for _ in range(2):
            found = await self._create(RESERVATIONS, wanted)
            if found is None or _uid(found) == _uid(wanted):
                return found
            await self._client.delete(RESERVATIONS, name, namespace, uid=found["metadata"]["uid"])
        raise ApiError(409, "Conflict", f"Reservation {namespace}/{name} is written by somebody else")


def _spec(item: Object) -> Object:
    return {"spec": item["spec"]}


def _uid(item: Object) -> str:
    return str((item["metadata"].get("annotations") or {}).get(UID, ""))


def _is_closed(item: Object | None) -> bool:
    return item is not None and bool((item.get("status") or {}).get("closed"))
