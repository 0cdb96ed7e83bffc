"""The bare client: aiohttp with 32 requests in flight, bodies encoded beforehand, and no thought about any of them."""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import AsyncIterator, Callable, Coroutine, Iterable, Sequence
from pathlib import Path

import aiohttp
import msgspec
from msgspec import Struct

AT_ONCE = 32
Request = tuple[str, str, bytes]
"""Method, path and body."""
_FORMS = {"POST": "application/json", "PUT": "application/json", "PATCH": "application/merge-patch+json"}


class Meta(Struct, rename="camel", gc=False):
    name: str = ""
    uid: str = ""
    resource_version: str = ""


class _Spec(Struct, rename="camel", gc=False):
    node_name: str = ""


class _Status(Struct, gc=False):
    phase: str = ""


class Seen(Struct, gc=False):
    """What a measurement wants to know of an object."""

    metadata: Meta
    spec: _Spec = msgspec.field(default_factory=_Spec)
    status: _Status = msgspec.field(default_factory=_Status)


class _Event(Struct, gc=False):
    type: str
    object: Seen


_decode_event = msgspec.json.Decoder(_Event).decode
_decode_seen = msgspec.json.Decoder(Seen).decode


class Bare:
    """One caller with its own connections."""

    def __init__(
        self,
        loop: asyncio.AbstractEventLoop,
        server: str,
        authority: Path,
        token: str = "",
        pair: tuple[Path, Path] | None = None,
    ) -> None:
        self.loop, self._server = loop, server
        self._tls = ssl.create_default_context(cafile=str(authority))
        if pair is not None:
            self._tls.load_cert_chain(*pair)
        self._headers = {"Authorization": f"Bearer {token}"} if token else {}
        self._session: aiohttp.ClientSession | None = None

    def close(self) -> None:
        if self._session is not None:
            self.loop.run_until_complete(self._session.close())
            self.loop.run_until_complete(asyncio.sleep(0.1))  # TLS connections say goodbye

    def write(self, requests: Iterable[Request]) -> list[Seen]:
        """Send everything; the answers, in order."""
        return self.loop.run_until_complete(self.written(requests))

    async def written(self, requests: Iterable[Request]) -> list[Seen]:
        answers: dict[int, Seen] = {}

        async def one(number: int, request: Request) -> None:
            answers[number] = await self.sent(request)

        await at_once(one(number, request) for number, request in enumerate(requests))
        return [answers[number] for number in sorted(answers)]

    async def sent(self, request: Request) -> Seen:
        return _decode_seen(await self._send(*request))

    async def _send(self, method: str, path: str, body: bytes) -> bytes:
        async with self._opened().request(
            method, self._server + path, data=body, headers={"Content-Type": _FORMS[method]}
        ) as answer:
            found = await answer.read()
            if answer.status >= 300:
                raise RuntimeError(f"{method} {path}: {answer.status} {found.decode(errors='replace')}")
            return found

    def _opened(self) -> aiohttp.ClientSession:
        if self._session is None:
            connector = aiohttp.TCPConnector(limit=0, ssl=self._tls)
            self._session = aiohttp.ClientSession(connector=connector, headers=self._headers)
        return self._session

    async def until(self, path: str, is_so: Callable[[Seen], bool], count: int, *, begun: asyncio.Event) -> None:
        """Watch until so many different objects have been so; ``begun`` is set when nothing can be missed any more."""
        so: set[str] = set()
        async with self._opened().get(f"{self._server}{path}?limit=1") as answer:
            version = str(msgspec.json.decode(await answer.read())["metadata"]["resourceVersion"])
        while len(so) < count:  # a server that has much to do hangs up on watchers
            async for event in self._watch(f"{path}?watch=true&resourceVersion={version}&timeoutSeconds=590", begun):
                version = event.object.metadata.resource_version
                if is_so(event.object):
                    so.add(event.object.metadata.name)
                    if len(so) >= count:
                        break

    async def _watch(self, path: str, begun: asyncio.Event) -> AsyncIterator[_Event]:
        async with self._opened().get(self._server + path, timeout=aiohttp.ClientTimeout(total=600)) as answer:
            if answer.status != 200:
                raise RuntimeError(f"{path}: {answer.status} {await answer.text()}")
            begun.set()
            rest = b""
            async for chunk in answer.content.iter_any():
                *lines, rest = (rest + chunk).split(b"\n")
                for line in lines:
                    if line:
                        yield _decode_event(line)


async def at_once(works: Iterable[Coroutine[object, object, None]]) -> None:
    """Do everything, so many at a time."""
    rest = iter(works)

    async def hand() -> None:
        for work in rest:
            await work

    await asyncio.gather(*(hand() for _ in range(AT_ONCE)))


def filled(text: bytes, marks: Sequence[tuple[bytes, bytes]]) -> bytes:
    """A template with its blanks filled in."""
    for mark, value in marks:
        text = text.replace(mark, value)
    return text
