"""Whether the operator lives and is ready, for the kubelet: ``/startz``, ``/livez`` and ``/readyz`` over plain HTTP.

It has started when it has read everything and its loop went round once: that may take minutes, and may end in a ledger
that refuses. It lives while its watches make progress and its loop goes round: a process that is up and sees nothing
any more is dead, and is started again. It is ready when everything is synced and folded and the ledger can be written.
"""

from __future__ import annotations

from typing import Protocol

from aiohttp import web


class Probed(Protocol):
    ready: bool
    started: bool

    @property
    def alive(self) -> bool: ...


class Probes:
    """The server. ``port`` is known after ``start``."""

    def __init__(self, operator: Probed) -> None:
        self._operator = operator
        self._runner: web.AppRunner | None = None
        self.port = 0

    async def start(self, host: str, port: int) -> None:
        app = web.Application()
        app.router.add_get("/startz", self._started)
        app.router.add_get("/livez", self._live)
        app.router.add_get("/readyz", self._ready)
        self._runner = web.AppRunner(app, access_log=None)
        await self._runner.setup()
        await web.TCPSite(self._runner, host, port).start()
        self.port = self._runner.addresses[0][1]

    async def stop(self) -> None:
        if self._runner is not None:
            await self._runner.cleanup()
            self._runner = None

    async def _started(self, request: web.Request) -> web.Response:
        return _answer(self._operator.started, "the loop went round", "reads what there is")

    async def _live(self, request: web.Request) -> web.Response:
        return _answer(
            self._operator.alive, "watches make progress", "a watch or the loop has been silent for too long"
        )

    async def _ready(self, request: web.Request) -> web.Response:
        ready = self._operator.ready and self._operator.alive
        return _answer(ready, "synced, and the ledger can be written", "not synced, or the ledger cannot be written")


def _answer(good: bool, yes: str, no: str) -> web.Response:
    return web.Response(text=f"{yes if good else no}\n", status=200 if good else 503)
