"""A thin client of the Kubernetes API: typed addresses, plain objects, and no surprise retries.

    async with Client(access) as client:
        await client.create(PODS, pod, namespace="rai")
        listing = await client.list(NODES)
        async for event in client.watch(NODES, resource_version=listing.resource_version): ...

Objects are plain dicts as the server sends them. Every call either returns what was asked or raises ``ApiError``.

What is tried again, and what is not. A server that says 429 has done nothing: the call waits as it was told and goes
again. A server that could not be connected to has seen nothing: the same. A read is harmless and is repeated after any
transient failure. A write whose answer was lost is *not* repeated: it may have been applied, and only the caller knows
how to find out. (Only where a kept connection turns out to be closed does aiohttp send a GET, PUT or DELETE once more;
a replace that had been applied then meets itself and says Conflict, which a caller that cares can see by looking.) At
most ``in_flight`` calls are under way at a time; watches do not count.
"""

from __future__ import annotations

import asyncio
import builtins
import random
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import nullcontext
from contextvars import ContextVar
from types import TracebackType
from typing import Any, Generic, Literal, Self, TypeVar

import aiohttp
import msgspec
from msgspec import Struct

from tenure import __version__
from tenure.kube.config import Access
from tenure.kube.errors import ANSWER_LOST, UNREACHABLE, ApiError, failed_watch, refusal
from tenure.kube.resources import FIELD_MANAGER, Resource

__all__ = ["ApiError", "Client", "Listing", "Object", "Resource", "WatchEvent"]

T = TypeVar("T")
Object = dict[str, Any]
PatchKind = Literal["merge", "json", "strategic", "apply"]
Query = Mapping[str, str | int]

IN_FLIGHT = 32
PAGE = 500
TRIES = 6
"""How often a call that may safely be repeated is made, at most."""
SILENCE_SECONDS = 10.0
"""How much longer than its own ``timeoutSeconds`` a watch may be silent before it is given up as dead."""

_JSON = "application/json"
_METADATA = "application/json;as=PartialObjectMetadataList;g=meta.k8s.io;v=v1"
_PATCHES: dict[PatchKind, str] = {
    "merge": "application/merge-patch+json",
    "json": "application/json-patch+json",
    "strategic": "application/strategic-merge-patch+json",
    "apply": "application/apply-patch+yaml",
}
_BACKOFF_SECONDS = (0.05, 2.0)
_urgent: ContextVar[bool] = ContextVar("urgent", default=False)


async def urgently(work: Awaitable[T]) -> T:
    """Do something that everybody waits for: its calls do not queue behind the others."""
    before = _urgent.set(True)
    try:
        return await work
    finally:
        _urgent.reset(before)


class Listing(Struct, frozen=True):
    """Objects as they were at one instant, and where to watch on from."""

    items: list[Object]
    resource_version: str


class WatchEvent(Struct, frozen=True, gc=False):
    """Something changed: ADDED, MODIFIED or DELETED; or nothing did (BOOKMARK), up to a resourceVersion."""

    type: str
    object: Object

    @property
    def resource_version(self) -> str:
        return str(self.object["metadata"]["resourceVersion"])


class _PageOf(Struct, Generic[T]):
    items: list[T] | None = None
    metadata: dict[str, Any] = {}


_decode_object = msgspec.json.Decoder(Object).decode
_decode_page = msgspec.json.Decoder(_PageOf[Object]).decode
_decode_event = msgspec.json.Decoder(WatchEvent).decode
_encode = msgspec.json.Encoder().encode


class Client:
    """A connection to one API server. Belongs to the loop on which it is first used."""

    def __init__(
        self,
        access: Access,
        *,
        in_flight: int = IN_FLIGHT,
        timeout: float = 30.0,
        headers: Mapping[str, str] | None = None,
        compressed: bool = True,
    ) -> None:
        """``compressed``: answers may be; over a fast network that costs both ends more than it saves."""
        self.access = access
        self.timeout = timeout
        self.calls = 0
        """Requests that were sent, repeated ones counted again: what the API server had to do for us."""
        self._bearer = access.bearer()
        self._slots = asyncio.Semaphore(in_flight)
        self._headers = {"User-Agent": f"tenure/{__version__}", "Accept": _JSON, **(headers or {})}
        if not compressed:
            self._headers["Accept-Encoding"] = "identity"
        self._tls = access.tls()
        self._session: aiohttp.ClientSession | None = None

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close()

    async def close(self) -> None:
        """Let go of all connections."""
        if self._session is not None:
            await self._session.close()

    # --- objects ------------------------------------------------------------------------------------------

    async def get(self, resource: Resource, name: str, namespace: str | None = None, subresource: str = "") -> Object:
        """One object as it is now: a consistent read."""
        return self._object(await self.call("GET", resource.path(namespace, name, subresource)))

    async def create(
        self,
        resource: Resource,
        body: Object,
        namespace: str | None = None,
        *,
        name: str | None = None,
        subresource: str = "",
        dry_run: bool = False,
    ) -> Object:
        """Make an object; its namespace is the one it names, if none is given. ``name`` only with a subresource."""
        path = resource.path(namespace or _namespace(body), name, subresource)
        return self._object(await self.call("POST", path, body=body, query=_writing(dry_run=dry_run)))

    async def ensure(self, resource: Resource, body: Object) -> Object:
        """Make an object, or find the one of its name; also after a create whose answer was lost."""
        try:
            return await self.create(resource, body)
        except ApiError as error:
            if not error.exists and not error.in_doubt:
                raise
            doubt = error
        try:
            return await self.get(resource, body["metadata"]["name"], _namespace(body))
        except ApiError as error:
            if error.not_found:  # it was not made, or is gone again: to try again is right
                raise ApiError(0, "Vanished", f"{body['kind']} {body['metadata']['name']} is not there") from doubt
            raise

    async def replace(
        self,
        resource: Resource,
        body: Object,
        namespace: str | None = None,
        *,
        subresource: str = "",
        dry_run: bool = False,
    ) -> Object:
        """Put an object in place of the one with its name; with a ``resourceVersion`` only if it is still that one."""
        path = resource.path(namespace or _namespace(body), body["metadata"]["name"], subresource)
        return self._object(await self.call("PUT", path, body=body, query=_writing(dry_run=dry_run)))

    async def patch(
        self,
        resource: Resource,
        name: str,
        change: Any,
        namespace: str | None = None,
        *,
        kind: PatchKind = "merge",
        subresource: str = "",
        force: bool = True,
        dry_run: bool = False,
    ) -> Object:
        """Change a part of an object. ``apply`` is server-side apply by our field manager, ``force`` takes over."""
        query = _writing(dry_run=dry_run) | ({"force": "true"} if kind == "apply" and force else {})
        path = resource.path(namespace, name, subresource)
        return self._object(await self.call("PATCH", path, body=change, query=query, content=_PATCHES[kind]))

    async def delete(
        self,
        resource: Resource,
        name: str,
        namespace: str | None = None,
        *,
        uid: str | None = None,
        resource_version: str | None = None,
        grace_seconds: int | None = None,
        propagation: Literal["Orphan", "Background", "Foreground"] | None = None,
        dry_run: bool = False,
    ) -> Object:
        """Delete an object, or only that incarnation or version of it. Returns its last state, or a Status."""
        conditions = {"uid": uid, "resourceVersion": resource_version}
        preconditions = {key: value for key, value in conditions.items() if value is not None}
        options = {
            "preconditions": preconditions or None,
            "gracePeriodSeconds": grace_seconds,
            "propagationPolicy": propagation,
            "dryRun": ["All"] if dry_run else None,
        }
        body = {key: value for key, value in options.items() if value is not None}
        return self._object(await self.call("DELETE", resource.path(namespace, name), body=body or None))

    async def delete_collection(
        self, resource: Resource, namespace: str | None = None, *, labels: str = "", fields: str = ""
    ) -> None:
        """Delete all objects of a kind that match."""
        await self.call("DELETE", resource.path(namespace), query=_selecting(labels, fields))

    # --- collections --------------------------------------------------------------------------------------

    async def list(
        self,
        resource: Resource,
        namespace: str | None = None,
        *,
        labels: str = "",
        fields: str = "",
        page: int = PAGE,
        metadata_only: bool = False,
    ) -> Listing:
        """All objects that match, as they were at one instant no earlier than this call, in pages.

        A list that takes so long that its pages expire is begun anew, and at last taken in one piece.
        """
        path, query = resource.path(namespace), _selecting(labels, fields)
        for size in (page, page, 0):
            try:
                listing = await self._pages(path, query, size, _METADATA if metadata_only else _JSON)
                for item in listing.items:  # in lists the server leaves out what in watches it says
                    item.setdefault("apiVersion", resource.api_version)
                    item.setdefault("kind", resource.kind)
                return listing
            except ApiError as error:
                if not error.expired or not size:
                    raise
        raise AssertionError("the last try returns or raises")

    async def pages(
        self,
        resource: Resource,
        item: type[T],
        *,
        fields: str = "",
        page: int = PAGE,
        metadata_only: bool = False,
    ) -> AsyncIterator[builtins.list[T]]:
        """All objects that match, page by page, in the order of their names, as far as ``item`` describes them.

        For what is too much to hold at once. Raises ``ApiError`` that is ``expired`` if it takes too long.
        """
        decode, token = msgspec.json.Decoder(_PageOf[item]).decode, ""  # type: ignore[valid-type]  # at run time
        while True:
            asked = {**_selecting("", fields), "limit": page, **({"continue": token} if token else {})}
            accept = _METADATA if metadata_only else _JSON
            found = _decoded(decode, await self.call("GET", resource.path(), query=asked, accept=accept))
            yield found.items or []
            token = found.metadata.get("continue") or ""
            if not token:
                return

    async def _pages(self, path: str, query: Query, size: int, accept: str) -> Listing:
        items: list[Object] = []
        token = ""
        while True:
            asked = {**query, **({"limit": size} if size else {}), **({"continue": token} if token else {})}
            page = _decoded(_decode_page, await self.call("GET", path, query=asked, accept=accept))
            items += page.items or []
            token = page.metadata.get("continue") or ""
            if not token:
                return Listing(items, str(page.metadata.get("resourceVersion", "")))

    async def watch(
        self,
        resource: Resource,
        namespace: str | None = None,
        *,
        resource_version: str,
        labels: str = "",
        fields: str = "",
        timeout_seconds: int = 60,
        silence: float = SILENCE_SECONDS,
    ) -> AsyncIterator[WatchEvent]:
        """Changes after ``resource_version``, with bookmarks, until the server ends the watch: then call again.

        The server ends it after ``timeout_seconds``, so that a connection which died without a word is noticed
        soon after. Raises ``ApiError``; one that is ``expired`` means: list again.
        """
        query = {
            **_selecting(labels, fields),
            "watch": "true",
            "allowWatchBookmarks": "true",
            "resourceVersion": resource_version,
            "timeoutSeconds": timeout_seconds,
        }
        patience = aiohttp.ClientTimeout(total=None, sock_connect=self.timeout, sock_read=timeout_seconds + silence)
        self.calls += 1
        try:
            async with self._open("GET", resource.path(namespace), query=query, timeout=patience) as answer:
                if answer.status != 200:
                    raise refusal(answer.status, await answer.read(), answer.headers.get("Retry-After"))
                async for line in _lines(answer.content):
                    event = _decode_event(line)
                    if event.type == "ERROR":
                        raise failed_watch(event.object)
                    yield event
        except (aiohttp.ClientError, TimeoutError, OSError, msgspec.MsgspecError) as error:
            raise _broken(error) from error

    async def stream(self, path: str, *, query: Query) -> AsyncIterator[bytes]:
        """An answer as it comes, for as long as it comes: a log."""
        patience = aiohttp.ClientTimeout(total=None, sock_connect=self.timeout)
        self.calls += 1
        try:
            async with self._open("GET", path, query=query, timeout=patience) as answer:
                if answer.status != 200:
                    raise refusal(answer.status, await answer.read(), answer.headers.get("Retry-After"))
                async for block in answer.content.iter_any():
                    yield block
        except (aiohttp.ClientError, TimeoutError, OSError) as error:
            raise _broken(error) from error

    # --- requests -----------------------------------------------------------------------------------------

    async def call(
        self,
        method: str,
        path: str,
        *,
        body: Any = None,
        query: Query | None = None,
        content: str = _JSON,
        accept: str = _JSON,
        timeout: float | None = None,
    ) -> bytes:
        """One request and its answer's bytes, tried again only where that is safe."""
        data = None if body is None else _encode(body)
        headers = {"Accept": accept, **({"Content-Type": content} if data is not None else {})}
        for number in range(1, TRIES + 1):
            try:
                return await self._once(method, path, data, query, headers, timeout)
            except ApiError as error:
                if number == TRIES or not _repeatable(method, error):
                    raise
                await asyncio.sleep(_pause(number, error))
        raise AssertionError("the last try returns or raises")

    async def _once(
        self,
        method: str,
        path: str,
        data: bytes | None,
        query: Query | None,
        headers: dict[str, str],
        timeout: float | None,
    ) -> bytes:
        patience = aiohttp.ClientTimeout(total=timeout or self.timeout, sock_connect=5.0)
        async with nullcontext() if _urgent.get() else self._slots:
            for fresh in (False, True):
                self.calls += 1
                try:
                    async with self._open(
                        method, path, query=query, timeout=patience, data=data, headers=headers
                    ) as answer:
                        status, found = answer.status, await answer.read()
                        retry_after = answer.headers.get("Retry-After")
                except (aiohttp.ClientError, TimeoutError, OSError) as error:
                    raise _broken(error) from error
                if status < 300:
                    return found
                if status != 401 or fresh or not self._bearer.refresh():
                    raise refusal(status, found, retry_after)
        raise AssertionError("the second try returns or raises")

    def _open(
        self,
        method: str,
        path: str,
        *,
        query: Query | None,
        timeout: aiohttp.ClientTimeout,
        data: bytes | None = None,
        headers: dict[str, str] | None = None,
    ) -> aiohttp.client._RequestContextManager:
        if self._session is None:
            self._session = self._connected()
        return self._session.request(
            method,
            self.access.server + path,
            params=query,
            data=data,
            headers={**(headers or {}), **self._bearer.headers()},
            timeout=timeout,
            server_hostname=self.access.server_name or None,
            allow_redirects=False,
        )

    def _connected(self) -> aiohttp.ClientSession:
        connector = aiohttp.TCPConnector(limit=0, ssl=True if self._tls is None else self._tls)
        return aiohttp.ClientSession(
            connector=connector, headers=self._headers, cookie_jar=aiohttp.DummyCookieJar(), auto_decompress=True
        )

    @staticmethod
    def _object(body: bytes) -> Object:
        return _decoded(_decode_object, body)


def _decoded(decode: Callable[[bytes], T], body: bytes) -> T:
    try:
        return decode(body)
    except msgspec.MsgspecError as error:
        raise ApiError(0, ANSWER_LOST, f"the answer is not what was asked for: {error}") from error


async def _lines(stream: aiohttp.StreamReader) -> AsyncIterator[bytes]:
    """Lines of any length. A last line without an end was cut off, and is no line."""
    rest = b""
    async for chunk in stream.iter_any():
        *lines, rest = (rest + chunk).split(b"\n")
        for line in lines:
            if line:
                yield line


def _namespace(body: Object) -> str | None:
    namespace: str | None = body.get("metadata", {}).get("namespace")
    return namespace


def _writing(*, dry_run: bool = False) -> dict[str, str | int]:
    return {"fieldManager": FIELD_MANAGER, **({"dryRun": "All"} if dry_run else {})}


def _selecting(labels: str, fields: str) -> dict[str, str | int]:
    return {**({"labelSelector": labels} if labels else {}), **({"fieldSelector": fields} if fields else {})}


def _broken(error: BaseException) -> ApiError:
    """What a failed connection means: whether anything can have reached the server."""
    unsent = isinstance(error, aiohttp.ClientConnectorError | aiohttp.ConnectionTimeoutError)
    if isinstance(error, TimeoutError) and not unsent:
        return ApiError(0, ANSWER_LOST, "no answer came in time")
    return ApiError(0, UNREACHABLE if unsent else ANSWER_LOST, str(error) or type(error).__name__)


def _repeatable(method: str, error: ApiError) -> bool:
    if isinstance(error.__cause__, aiohttp.ClientSSLError):
        return False  # wrong certificates do not become right
    return error.throttled or error.reason == UNREACHABLE or (method == "GET" and error.transient)


def _pause(number: int, error: ApiError) -> float:
    """Seconds until the next try: as the server said, else doubling, with jitter so that not all come back at once."""
    if error.retry_after is not None:
        return min(error.retry_after, 30.0) + random.random() * 0.1
    first, most = _BACKOFF_SECONDS
    return float(min(most, first * 2**number) * (0.5 + random.random()))
