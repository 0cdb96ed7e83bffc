"""All objects of one kind, and what became of them: the log that watches are fed from."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from typing import Any

import msgspec
from msgspec import Struct

from proof.sim.api_forms import Match, Object, expired
from tenure.kube import resources
from tenure.kube.resources import Resource

_encode = msgspec.json.Encoder().encode
PLAIN = frozenset({"metadata.name", "metadata.namespace"})
"""Fields that every kind can be selected by."""


class Kind(Struct, frozen=True):
    """How the server treats a kind."""

    resource: Resource
    custom: bool
    """Defined by a CRD: it has a generation, and is never replaced blindly."""
    status: bool = True
    """Whether its status is a part of its own, written apart."""
    fields: frozenset[str] = PLAIN

    @property
    def name(self) -> str:
        """As messages call it."""
        group = self.resource.group
        return f"{self.resource.plural}.{group}" if group else self.resource.plural


def _ours(resource: Resource, *fields: str, status: bool = True) -> Kind:
    return Kind(resource, custom=True, status=status, fields=PLAIN | set(fields))


KINDS = (
    _ours(resources.RUNS, "spec.owner", "spec.resources.gpuType", "status.phase"),
    _ours(resources.BUDGETS, "spec.owner"),
    _ours(resources.RESERVATIONS, "spec.runRef.name", "status.state"),
    _ours(resources.LEASES, "spec.owner", "spec.runRef.name", "status.closed", "status.closureReason"),
    _ours(resources.LEDGER_ENTRIES, status=False),
    _ours(resources.LEDGER_HEADS, status=False),
    Kind(resources.NAMESPACES, custom=False, fields=PLAIN | {"status.phase"}),
    Kind(resources.NODES, custom=False, fields=PLAIN | {"spec.unschedulable"}),
    Kind(resources.PODS, custom=False, fields=PLAIN | {"spec.nodeName", "status.phase"}),
    Kind(resources.SERVICES, custom=False),
    Kind(resources.CONFIG_MAPS, custom=False, status=False),
    Kind(resources.EVENTS, custom=False, status=False),
    Kind(resources.ELECTION_LEASES, custom=False, status=False),
)


class Stored:
    """One version of an object. Nothing in it ever changes."""

    __slots__ = ("_raw", "item", "version")

    def __init__(self, item: Object) -> None:
        self.item = item
        self.version = int(item["metadata"]["resourceVersion"])
        self._raw = b""

    @property
    def raw(self) -> bytes:
        if not self._raw:
            self._raw = _encode(self.item)
        return self._raw


class Change(Struct, frozen=True):
    """What a write has done: before, after (of something deleted its last state), and at which version."""

    version: int
    before: Stored | None
    after: Stored
    deleted: bool = False


class Shelf:
    """The objects of a kind by key, as they are now."""

    def __init__(self, kind: Kind) -> None:
        self.kind = kind
        self.items: dict[str, Stored] = {}
        self.log: list[Change] = []
        self.forgotten = 0
        """The version up to which nobody can watch on from any more."""
        self.waiting: dict[asyncio.Future[None], None] = {}

    def put(self, key: str, change: Change) -> None:
        if change.deleted:
            self.items.pop(key, None)
        else:
            self.items[key] = change.after
        self.log.append(change)
        waiting, self.waiting = self.waiting, {}
        for one in waiting:
            if not one.done():
                one.set_result(None)

    def chosen(self, namespace: str | None, match: Match | None) -> list[Stored]:
        """What is asked for, in the order in which the server keeps it."""
        prefix = f"{namespace}/" if namespace else ""
        keys = sorted(self.items) if not prefix else sorted(key for key in self.items if key.startswith(prefix))
        found = (self.items[key] for key in keys)
        return [one for one in found if match is None or match(one.item)]

    def at(self, version: int) -> Shelf:
        """The kind as it was at a version."""
        past = Shelf(self.kind)
        past.items = dict(self.items)
        for change in reversed(self.log):
            if change.version <= version:
                break
            meta = change.after.item["metadata"]
            key = f"{meta['namespace']}/{meta['name']}" if "namespace" in meta else meta["name"]
            past.items.pop(key, None)
            if change.before is not None:
                past.items[key] = change.before
        return past

    def after(self, version: int) -> int:
        """Where in the log a watch from a version begins."""
        if version < self.forgotten:
            raise expired()
        at = len(self.log)
        while at and self.log[at - 1].version > version:
            at -= 1
        return at

    def told(self, change: Change, namespace: str | None, match: Match | None) -> bytes | None:
        """A change as who watches a part of the kind is told of it; None if it is no news there."""
        if namespace and change.after.item["metadata"].get("namespace") != namespace:
            return None
        was = change.before is not None and (match is None or match(change.before.item))
        is_so = not change.deleted and (match is None or match(change.after.item))
        if was and not is_so:
            assert change.before is not None
            last = change.after if change.deleted else _at_version(change.before, change.version)
            return _line("DELETED", last)
        if is_so:
            return _line("MODIFIED" if was else "ADDED", change.after)
        return None


def _at_version(stored: Stored, version: int) -> Stored:
    """What left a selection: as it was, but of the version at which it left."""
    meta = {**stored.item["metadata"], "resourceVersion": str(version)}
    return Stored({**stored.item, "metadata": meta})


def _line(kind: str, stored: Stored) -> bytes:
    return b'{"type":"%s","object":%s}\n' % (kind.encode(), stored.raw)


class Stream:
    """One watch, as far as the server is concerned: chunks of whole lines, until its time is over."""

    def __init__(
        self, shelf: Shelf, at: int, *, namespace: str | None, match: Match | None, ends: float, version: Any
    ) -> None:
        self._shelf, self._at = shelf, at
        self._namespace, self._match, self._ends, self._version = namespace, match, ends, version
        self._bookmarked = self._interrupted = False
        self._waits: asyncio.Future[None] | None = None

    def ready(self) -> Iterator[bytes]:
        """What there is to tell now, line by line."""
        while self._at < len(self._shelf.log):
            line = self._shelf.told(self._shelf.log[self._at], self._namespace, self._match)
            self._at += 1
            if line is not None:
                yield line

    async def next(self) -> list[bytes] | None:
        """The next lines (none after ``interrupt``); None when the server ends the watch, after a last bookmark."""
        loop = asyncio.get_running_loop()
        while True:
            lines = list(self.ready())
            if lines or self._interrupted:
                self._interrupted = False
                return lines
            left = self._ends - loop.time()
            if left <= 0:
                return None
            if left <= 2.0 and not self._bookmarked:
                self._bookmarked = True
                return [self.bookmark()]
            await self._news(left if self._bookmarked else left - 2.0)

    async def _news(self, seconds: float) -> None:
        loop = asyncio.get_running_loop()
        future: asyncio.Future[None] = loop.create_future()
        timer = loop.call_later(max(0.0, seconds), _wake, future)
        self._shelf.waiting[future] = None
        self._waits = future
        try:
            await future
        finally:
            timer.cancel()
            self._shelf.waiting.pop(future, None)

    def interrupt(self) -> None:
        """Let who waits look up."""
        self._interrupted = True
        if self._waits is not None:
            _wake(self._waits)

    def bookmark(self) -> bytes:
        resource = self._shelf.kind.resource
        item = {
            "kind": resource.kind,
            "apiVersion": resource.api_version,
            "metadata": {"resourceVersion": str(self._version())},
        }
        return b'{"type":"BOOKMARK","object":%s}\n' % _encode(item)


def _wake(future: asyncio.Future[None]) -> None:
    if not future.done():
        future.set_result(None)
