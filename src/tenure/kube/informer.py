"""A copy of all objects of a kind, kept right by a list and a watch, and word of what changed in it.

    changes = Changes()
    nodes = Informer(client, NODES, changes)
    io.start(nodes.follow())                       # for ever, on the loop's thread
    nodes.synced.wait(30)
    for resource, keys in changes.take().items():  # on the engine's thread, level-triggered
        for key in keys: look at nodes.get(key)    # None: it is gone

The copy is complete from the moment that ``synced`` is set. A watch that ends, breaks or falls silent is resumed from
the last resourceVersion seen (bookmarks keep that recent); one that is too old to resume is replaced by a new list, and
whatever differs from it, also what is gone, counts as changed. A list that shows an older world than we have seen
comes from a server that lags behind: it is asked again, and believed only when it insists, for then etcd itself was
set back. ``progress`` is when the server last proved to be alive to us, the thing that a liveness probe should ask.
"""

from __future__ import annotations

import asyncio
import logging
import random
import threading
import time
from collections.abc import Callable, Iterable
from concurrent.futures import Future

from tenure.kube.client import Client, Listing, Object, WatchEvent
from tenure.kube.errors import ApiError
from tenure.kube.loop import IO
from tenure.kube.resources import Resource

WATCH_SECONDS = 60
"""How long the server keeps a watch open: a connection that died in silence is noticed soon after."""
STALE_LISTS_MAX = 5
_BACKOFF_SECONDS = (0.1, 10.0)
_DOUBLINGS = 10
"""How often the pause is doubled at most: by then it is as long as it gets; without bound it is no number any more."""

log = logging.getLogger(__name__)
Keep = Callable[[Object], Object | None]


def key_of(item: Object) -> str:
    """``namespace/name``, or the name alone."""
    metadata = item["metadata"]
    namespace = metadata.get("namespace")
    return f"{namespace}/{metadata['name']}" if namespace else str(metadata["name"])


def whole(item: Object) -> Object | None:
    """Keep an object, without the record of who set which field, which is often larger than the rest."""
    item["metadata"].pop("managedFields", None)
    return item


class Changes:
    """Which objects changed since somebody last looked, each once; shared by informers, safe between threads."""

    def __init__(self) -> None:
        self._keys: dict[Resource, dict[str, None]] = {}
        self._news = threading.Condition()

    def add(self, resource: Resource, keys: Iterable[str]) -> None:
        with self._news:
            known = self._keys.setdefault(resource, {})
            known.update(dict.fromkeys(keys))
            if known:
                self._news.notify_all()

    def wake(self) -> None:
        """Let whoever waits look, though no object changed."""
        with self._news:
            self._news.notify_all()

    def take(self) -> dict[Resource, list[str]]:
        """All of them, in the order in which they came; they are then no longer new."""
        with self._news:
            keys, self._keys = self._keys, {}
        return {resource: list(known) for resource, known in keys.items() if known}

    def wait(self, timeout: float | None = None) -> bool:
        """Wait until something has changed; False if nothing did in that time."""
        with self._news:
            if not any(self._keys.values()):
                self._news.wait(timeout)
            return any(self._keys.values())


class Informer:
    """The copy of one kind.

    ``keep`` may trim objects, or leave them out by returning None. An object counts as changed when what is kept of it
    is another thing than before, so what a reader does not want to be woken for should be trimmed off.
    """

    def __init__(
        self,
        client: Client,
        resource: Resource,
        changes: Changes | None = None,
        *,
        namespace: str | None = None,
        labels: str = "",
        fields: str = "",
        keep: Keep = whole,
        watch_seconds: int = WATCH_SECONDS,
        silence: float = 10.0,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self.resource = resource
        self.synced = threading.Event()
        self.progress = clock()
        """When, by ``clock``, the server last told us anything."""
        self.lists = 0
        """How often everything had to be read."""
        self.failures = 0
        """How often a list or watch has failed since something was last heard by a watch."""
        self._client = client
        self._changes = changes if changes is not None else Changes()
        self._where = {"namespace": namespace, "labels": labels, "fields": fields}
        self._keep = keep
        self._watch = {"timeout_seconds": watch_seconds, "silence": silence}
        self._clock = clock
        self._objects: dict[str, Object] = {}
        self._version = ""
        """Up to which resourceVersion the copy is right; empty if it has to be listed."""
        self._newest = ""
        self._stale_lists = 0

    # --- reading, from any thread -------------------------------------------------------------------------

    def get(self, key: str) -> Object | None:
        """The object as last seen; not to be changed."""
        return self._objects.get(key)

    def keys(self) -> list[str]:
        return list(self._objects)

    def values(self) -> list[Object]:
        return list(self._objects.values())

    def __len__(self) -> int:
        return len(self._objects)

    def passed(self, version: str) -> bool:
        """Whether the copy is of no earlier than a resourceVersion: what was written then and is not in it is gone.

        To be asked before the copy is looked at, which moves on meanwhile.
        """
        return version == self._newest or older(version, self._newest)

    # --- following, on the loop's thread ------------------------------------------------------------------

    async def follow(self) -> None:
        """Keep the copy right until cancelled."""
        while True:
            try:
                await self._list_and_watch()
            except ApiError as error:
                await self._failed(error)
            except Exception as error:  # a bug must not leave a copy that looks right and grows old
                log.exception("%s cannot be followed", self.resource.plural)
                self._version = ""
                await self._failed(ApiError(0, "Bug", repr(error)))

    async def _list_and_watch(self) -> None:
        if not self._version:
            self._replace(await self._client.list(self.resource, **self._where))  # type: ignore[arg-type]  # by name
            self.progress = self._clock()  # whether it can also be followed is not known yet
        began = self._clock()
        watch = self._client.watch(self.resource, resource_version=self._version, **self._where, **self._watch)  # type: ignore[arg-type]  # by name
        async for event in watch:
            self._alive()
            self._take(event)
        self._alive()
        if self._clock() - began < 1.0:  # a server that hangs up at once is not to be asked in a tight loop
            await asyncio.sleep(_BACKOFF_SECONDS[0])

    def _alive(self) -> None:
        self.progress, self.failures = self._clock(), 0

    async def _failed(self, error: ApiError) -> None:
        self.failures += 1
        if error.expired or self.failures % 5 == 0:  # what cannot be resumed for long may not be resumable at all
            self._version = ""
        if not error.expired:
            log.info("%s: %s", self.resource.plural, error)
        if not error.expired or self.failures > 1:
            first, most = _BACKOFF_SECONDS
            await asyncio.sleep(min(most, first * 2 ** min(self.failures, _DOUBLINGS)) * (0.5 + random.random() / 2))

    def _replace(self, listing: Listing) -> None:
        """Take a whole new copy, and tell what differs from the old one."""
        self.lists += 1
        if older(listing.resource_version, self._newest) and self._stale_lists < STALE_LISTS_MAX:
            self._stale_lists += 1
            raise ApiError(0, "StaleList", f"the list is of {listing.resource_version}, {self._newest} was seen")
        self._stale_lists = 0
        kept = ((key_of(item), self._keep(item)) for item in listing.items)
        before, after = self._objects, {key: item for key, item in kept if item is not None}
        changed = [key for key, item in after.items() if before.get(key) != item]
        self._objects = after
        self._version = self._newest = listing.resource_version
        self._changes.add(self.resource, changed + [key for key in before if key not in after])
        self.synced.set()

    def _take(self, event: WatchEvent) -> None:
        version = event.resource_version
        if event.type != "BOOKMARK":
            key, item = key_of(event.object), None if event.type == "DELETED" else self._keep(event.object)
            before = self._objects.pop(key, None) if item is None else self._objects.get(key)
            if item is not None:
                self._objects[key] = item
            if item != before:
                self._changes.add(self.resource, (key,))
        self._version = self._newest = version


class Informers:
    """Several informers on one loop: started together, ready when all are."""

    def __init__(self, io: IO, informers: Iterable[Informer]) -> None:
        self._io = io
        self._all = tuple(informers)
        self._tasks: list[Future[None]] = []

    def start(self) -> None:
        self._tasks = [self._io.start(one.follow()) for one in self._all]

    def wait(self, timeout: float) -> list[Informer]:
        """Wait until every copy is complete; returns those that are not."""
        deadline = time.monotonic() + timeout
        return [one for one in self._all if not one.synced.wait(max(0.0, deadline - time.monotonic()))]

    def silent_seconds(self, clock: Callable[[], float] = time.monotonic) -> float:
        """For how long the server has told nothing to the one that has waited longest."""
        return max((clock() - one.progress for one in self._all), default=0.0)

    def stop(self) -> None:
        for task in self._tasks:
            task.cancel()
        self._tasks = []


def older(version: str, than: str) -> bool:
    """Whether a version is of before another. They are numbers wherever etcd is behind the server."""
    return version.isdigit() and than.isdigit() and int(version) < int(than)
