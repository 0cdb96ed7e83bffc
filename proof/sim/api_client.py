"""The real client over a wire that is not there: requests reach the server in memory, and a ``Link`` may harm them.

Everything above the wire is Tenure's own: retries, timeouts, parsing, what is in doubt. Failures are the exceptions
that aiohttp would raise.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Mapping
from types import TracebackType
from typing import Any, Protocol

import aiohttp

from proof.sim.api import Reply, Server
from proof.sim.api_shelf import Stream
from tenure.kube.client import Client
from tenure.kube.config import Access


class Unreached(aiohttp.ClientConnectorError):
    """The server could not be connected to."""

    def __init__(self) -> None:
        Exception.__init__(self, "the connection was refused")

    def __str__(self) -> str:
        return "the connection was refused"


class Link(Protocol):
    """What lies between one process and the server."""

    async def pass_on(self, request: Request) -> Reply | None:
        """Before a request is carried out: wait; answer in the server's place; or raise what the client shall see."""

    async def pass_back(self, request: Request, reply: Reply) -> Reply:
        """After it was: the answer as it arrives, if it does."""

    async def tell(self, request: Request, stream: Stream) -> AsyncIterator[bytes]:
        """What a watch tells."""


class Request:
    """One request under way, as ``aiohttp`` would have it."""

    def __init__(self, link: Any, server: Server, method: str, path: str, query: Mapping[str, Any], data: bytes | None,
                 headers: Mapping[str, str], timeout: aiohttp.ClientTimeout) -> None:  # fmt: skip
        self.link, self.server, self.method, self.path, self.query = link, server, method, path, query
        self.data, self._headers, self.timeout = data, headers, timeout
        self.watching = query.get("watch") == "true"
        self.status = 200
        self.fault = ""
        self.headers: Mapping[str, str] = {}
        self._body = b""
        self._stream: Stream | None = None

    @property
    def content(self) -> Request:
        return self

    async def __aenter__(self) -> Request:
        reply = await self.link.pass_on(self)
        if reply is not None:
            self.status, self._body, self.headers = reply.status, reply.body, reply.headers
            return self
        if self.watching:
            found = self.server.watch(self.path, self.query)
            if isinstance(found, Stream):
                self._stream = found
                return self
            reply = found
        else:
            reply = self.server.handle(
                self.method, self.path, self.query, self.data,
                content=self._headers.get("Content-Type", ""), accept=self._headers.get("Accept", ""),
            )  # fmt: skip
        reply = await self.link.pass_back(self, reply)
        self.status, self._body, self.headers = reply.status, reply.body, reply.headers
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        return None

    async def read(self) -> bytes:
        return self._body

    async def iter_any(self) -> AsyncIterator[bytes]:
        if self._stream is None:
            yield self._body
            return
        async for chunk in self.link.tell(self, self._stream):
            yield chunk


class VirtualClient(Client):
    """Tenure's client, on a link."""

    def __init__(self, link: Any, server: Server) -> None:
        super().__init__(Access(server="http://virtual"))
        self._link, self._server = link, server

    def _open(self, method: str, path: str, *, query: Any, timeout: Any, data: Any = None, headers: Any = None) -> Any:  # type: ignore[override]
        return Request(self._link, self._server, method, path, query or {}, data, headers or {}, timeout)

    async def close(self) -> None:
        """There is nothing to let go of."""


class PlainLink:
    """A wire without faults, and without time."""

    async def pass_on(self, request: Request) -> Reply | None:
        await asyncio.sleep(0)

    async def pass_back(self, request: Request, reply: Reply) -> Reply:
        return reply

    async def tell(self, request: Request, stream: Stream) -> AsyncIterator[bytes]:
        while (lines := await stream.next()) is not None:
            yield b"".join(lines)
