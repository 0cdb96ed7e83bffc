"""The wire between one operator and the API server, with whatever is wrong with it."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import AsyncIterator
from random import Random
from typing import TYPE_CHECKING

import aiohttp
import msgspec
from msgspec import Struct

from proof.sim.api import Reply
from proof.sim.api_client import Request, Unreached
from proof.sim.api_forms import Refusal, expired
from proof.sim.api_shelf import Stream
from proof.sim.faults_api import LISTS, READS, STRIKES, WATCHES, WRITES
from tenure.kube.resources import ELECTION_LEASES, SYSTEM_NAMESPACE

if TYPE_CHECKING:
    from proof.sim.process import Process

BEFORE = {
    "api-conflict": Refusal(409, "Conflict", "the object has been modified; please apply your changes to the latest"),
    "api-throttle": Refusal(429, "TooManyRequests", "the server has received too many requests"),
    "api-forbidden": Refusal(403, "Forbidden", "you may not, says a role that somebody is editing"),
    "api-unauthorized": Refusal(401, "Unauthorized", "Unauthorized"),
    "api-admission": Refusal(500, "InternalError", "failed calling webhook: context deadline exceeded"),
}
ERRORS = (
    Refusal(500, "InternalError", "etcdserver: leader changed"),
    Refusal(503, "ServiceUnavailable", "the server is currently unable to handle the request"),
)
LOSING = ("api-reset-after", "api-error-after", "api-truncated", "api-slow", "dies-after")
"""Faults after which whoever wrote does not know that it was applied."""
LATENCY = (0.001, 0.004, 0.02)
_ELECTION = ELECTION_LEASES.path(SYSTEM_NAMESPACE)


class Strike(Struct, eq=False):
    """A fault that is on."""

    kind: str
    chance: int
    process: str
    luck: Random

    def hits(self, wire: Wire) -> bool:
        return self.process in ("", wire.name) and self.luck.randrange(100) < self.chance


class Wire:
    """See ``api_client.Link``. ``strikes`` is shared: what is on, for all wires."""

    def __init__(self, name: str, strikes: list[Strike], luck: Random, tally: Counter[str]) -> None:
        self.name, self.strikes, self.luck, self.tally = name, strikes, luck, tally
        self.process: Process | None = None
        self.mortal: tuple[int, bool] | None = None
        """At which write from now on its process dies, and whether that is applied."""
        self.watches: dict[Request, str] = {}
        """Watches that are open, and what is wrong with each."""
        self._streams: dict[Request, Stream] = {}
        self._lost: dict[str, float] = {}
        """Paths of whose watches a deletion was kept, and when they expire: a copy is never wrong for ever."""
        self._last: dict[str, bytes] = {}
        """What each path told last."""

    # --- requests -------------------------------------------------------------------------------------------------

    async def pass_on(self, request: Request) -> Reply | None:
        await self._through()
        request.fault = kind = self._pick(request)
        if request.watching:
            self.watches[request] = kind if kind.startswith("watch") else ""
        if kind == "api-admission":
            await asyncio.sleep(10.0)
        if kind in BEFORE or kind in ("api-reset-before", "api-error"):
            self._count(kind)
        if kind == "api-reset-before":
            raise Unreached
        if kind == "api-error":
            return self._error()
        if kind in BEFORE:
            return _refused(BEFORE[kind], retry=kind == "api-throttle")
        if kind == "list-stale":
            return self._stale(request)
        if self.mortal is not None and request.method != "GET":
            number, applied = self.mortal
            self.mortal = (number - 1, applied)
            if number <= 1:
                self.mortal = None
                request.fault = "dies-after" if applied else ""
                if not applied:
                    self._die()
        return None

    def _stale(self, request: Request) -> Reply:
        """A list as it was: which is counted if anything of that kind has changed since."""
        version = request.server.version
        past = max(1, version - self.luck.choice((1, 5, 40)))
        old, new = (request.server.list_at(request.path, request.query, one) for one in (past, version))
        if old.partition(b'"items":')[2] != new.partition(b'"items":')[2]:
            self._count("list-stale")
        return Reply(200, old)

    async def pass_back(self, request: Request, reply: Reply) -> Reply:
        if reply.status == 410 or (request.watching and reply.status == 200):  # a watch that is one line: an error
            self._count("etcd-compacts")
        if request.method != "GET" and self.process is not None and not request.path.startswith(_ELECTION):
            self.process.wrote()
        if request.fault in ("api-reset-after", "api-error-after", "api-truncated") and reply.status < 300:
            self._count(request.fault)
        if request.fault in LOSING and request.method != "GET" and reply.status < 300:
            self.tally[f"lost/{request.fault}, of {written(request.path, request.method)}"] += 1
        match request.fault:
            case "dies-after":
                self._die()
            case "api-reset-after":
                raise aiohttp.ServerDisconnectedError
            case "api-error-after":
                return _refused(
                    Refusal(504, "Timeout", "the server was unable to return a response in the time allotted")
                )
            case "api-slow":
                await asyncio.sleep(request.timeout.total or 30.0)
                await self._through()
                self._count(request.fault)
                raise TimeoutError
            case "api-truncated":
                reply = Reply(reply.status, reply.body[: len(reply.body) // 2], reply.headers)
        await self._through()
        return reply

    async def _through(self) -> None:
        """The way takes a moment; a process that stands still takes nothing in, and a dead one is not there."""
        await asyncio.sleep(self.luck.choice(LATENCY))
        process = self.process
        while process is not None and process.stands and not process.dead:
            await process.going()
        if process is not None and process.dead:
            raise asyncio.CancelledError

    def _die(self) -> None:
        assert self.process is not None
        self._count("dies-writing")
        self.process.dies()
        raise asyncio.CancelledError

    def _pick(self, request: Request) -> str:
        if not self.strikes:
            return ""
        what = WATCHES if request.watching else READS if request.method == "GET" else WRITES
        is_list = request.method == "GET" and "limit" in request.query and "continue" not in request.query
        for strike in self.strikes:
            fits = what in STRIKES[strike.kind] or (is_list and STRIKES[strike.kind] == LISTS)
            if fits and strike.hits(self):
                return strike.kind
        return ""

    def _error(self) -> Reply:
        if self.luck.random() < 0.3:
            return Reply(502, b"<html>Bad gateway</html>")
        return _refused(self.luck.choice(ERRORS))

    # --- watches --------------------------------------------------------------------------------------------------

    def strike(self, strike: Strike) -> None:
        """A fault has begun: watches that are open already may be struck too."""
        for request in self.watches:
            if strike.hits(self):
                self.watches[request] = strike.kind
                if request in self._streams:
                    self._streams[request].interrupt()

    async def tell(self, request: Request, stream: Stream) -> AsyncIterator[bytes]:
        self._streams[request] = stream
        self.watches.setdefault(request, "")
        loop, heard = asyncio.get_running_loop(), asyncio.get_running_loop().time()
        if request.path in self._lost:
            loop.call_at(self._lost[request.path] + 0.1, stream.interrupt)
        patience = float(request.timeout.sock_read or 60.0)
        try:
            while (lines := await stream.next()) is not None:
                kind = self.watches[request]
                if self.process is not None and (self.process.stands or self.process.dead):
                    await self._through()
                if loop.time() > self._lost.get(request.path, loop.time()):
                    del self._lost[request.path]
                    yield _gone()
                    return
                match kind:
                    case "watch-closed":
                        self._count(kind)
                        if self.luck.random() < 0.5:
                            yield b"".join(lines)[:-5]
                        raise aiohttp.ClientPayloadError("the connection was closed")
                    case "watch-expired":
                        self._count(kind)
                        yield _gone()
                        return
                    case "watch-silent":
                        await asyncio.sleep(max(0.0, heard + patience - loop.time()))
                        await self._through()
                        self._count(kind)
                        raise TimeoutError
                    case "watch-duplicated" if lines:
                        again = lines[-self.luck.randint(1, len(lines)) :]
                        self._count(kind, any(map(_is_news, again)))
                        lines = [*lines, *again]
                    case "watch-delayed" if lines:
                        await asyncio.sleep(45.0)
                        self._count(kind, any(map(_is_news, lines)))
                    case "watch-reordered" if lines:
                        await asyncio.sleep(self.luck.choice((0.0, 1.0, 20.0, 90.0)))
                        self._count(kind, self._overtaken(request.path, lines))
                    case "watch-lost-delete":
                        kept = [line for line in lines if not line.startswith(b'{"type":"DELETED"')]
                        if len(kept) < len(lines):
                            self._count(kind)
                            lost = self._lost.setdefault(request.path, loop.time() + self.luck.choice((60.0, 1200.0)))
                            loop.call_at(lost + 0.1, stream.interrupt)
                        lines = kept
                heard = loop.time()
                if lines:
                    if _is_news(lines[-1]):
                        self._last[request.path] = lines[-1]
                    yield b"".join(lines)
        finally:
            self._streams.pop(request, None)
            self.watches.pop(request, None)

    def heal(self, kind: str) -> None:
        """A fault is over: watches that it slows or cheats are as they should be again."""
        for request, struck in self.watches.items():
            if struck == kind:
                self.watches[request] = ""

    def _overtaken(self, path: str, lines: list[bytes]) -> bool:
        """Whether something was told of another kind that happened later than what is told now."""
        news = [line for line in lines if _is_news(line)]
        return bool(news) and any(_version(last) > _version(news[0]) for at, last in self._last.items() if at != path)

    def _count(self, kind: str, really: bool = True) -> None:
        self.tally[f"fault/{kind}"] += really


def written(path: str, method: str) -> str:
    """What kind of thing a request writes.

    >>> written("/api/v1/namespaces/lab/pods", "POST"), written("/api/v1/namespaces/lab/pods/a/status", "PATCH")
    ('pods', 'pods')
    """
    if path.startswith(_ELECTION):
        return "the election"
    parts = path.strip("/").split("/")
    parts = parts[2:] if parts[0] == "api" else parts[3:]
    if parts[0] == "namespaces" and len(parts) > 2:
        parts = parts[2:]
    return parts[0]


def _refused(refusal: Refusal, *, retry: bool = False) -> Reply:
    return Reply(refusal.code, msgspec.json.encode(refusal.status()), {"Retry-After": "2"} if retry else {})


def _is_news(line: bytes) -> bool:
    return not line.startswith(b'{"type":"BOOKMARK"')


def _version(line: bytes) -> int:
    return int(msgspec.json.decode(line)["object"]["metadata"]["resourceVersion"])


def _gone() -> bytes:
    return b'{"type":"ERROR","object":%s}\n' % msgspec.json.encode(expired().status())
