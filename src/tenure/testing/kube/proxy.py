"""Something between a client and the API server that goes wrong on demand, where and as often as a test says.

    with FaultProxy.started(plane.admin) as proxy:
        proxy.fail("reset-after", method="PUT", path="/ledgerheads/", times=1)
        ... a client of proxy.server (plain HTTP, nobody needs to log in) ...

=============== =====================================================================================
``throttle``    429 with Retry-After, nothing reaches the server
``conflict``    409 Conflict, nothing reaches the server
``gone``        410 Expired, as for a list whose next page comes too late
``error``       500, nothing reaches the server
``error-after`` 500, though the server did it
``reset-before`` the connection is closed, nothing reaches the server
``reset-after`` the server did it, the connection is closed before the answer
``hang-after``  the server did it, no answer ever comes
``drop``        a watch: closed without an end after its first ``after`` events
``silent``      a watch: held open after its first ``after`` events, and nothing more comes
``expire``      a watch: its next event is 410 Expired
``stale``       a list: the answer to the first such list that passed here
``garbage``     200, and no JSON
``hold``        the request waits until the proxy is healed, and is then served
=============== =====================================================================================
"""

from __future__ import annotations

import asyncio
import base64
import ssl
import tempfile
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import aiohttp
import yaml
from aiohttp import web

from tenure.kube.loop import hang_up

_REFUSALS = {
    "throttle": (429, "TooManyRequests", {"Retry-After": "0"}),
    "conflict": (409, "Conflict", {}),
    "gone": (410, "Expired", {}),
    "error": (500, "InternalError", {}),
    "error-after": (500, "InternalError", {}),
}
_OF_WATCHES = {"drop", "silent", "expire"}
_EXPIRED = b'{"type":"ERROR","object":{"kind":"Status","code":410,"reason":"Expired","message":"too old"}}\n'


@dataclass
class Fault:
    """One thing that goes wrong, to requests that match, ``times`` times."""

    kind: str
    method: str = ""
    path: str = ""
    times: int = 1
    skip: int = 0
    """How many matching requests pass unharmed first."""
    after: int = 0
    hits: int = 0

    def strikes(self, method: str, path: str, *, watch: bool) -> bool:
        """Whether it happens to this request; counts."""
        fits = (not self.method or method == self.method) and self.path in path
        if not fits or self.hits >= self.times or watch != (self.kind in _OF_WATCHES):
            return False
        if self.skip:
            self.skip -= 1
            return False
        self.hits += 1
        return True


@dataclass
class Passed:
    """One request that came by."""

    method: str
    path: str
    fault: str = ""


@dataclass
class FaultProxy:
    """A proxy on loopback. Its faults and its log may be touched from any thread."""

    kubeconfig: Path
    server: str = ""
    faults: list[Fault] = field(default_factory=list)
    log: list[Passed] = field(default_factory=list)
    _lists: dict[str, tuple[int, bytes]] = field(default_factory=dict)
    _session: aiohttp.ClientSession | None = None

    @classmethod
    @contextmanager
    def started(cls, kubeconfig: Path) -> Iterator[FaultProxy]:
        """A proxy for the length of a block, on a loop and a thread of its own."""
        proxy, loop = cls(kubeconfig), asyncio.new_event_loop()
        thread = threading.Thread(target=loop.run_forever, name="fault-proxy", daemon=True)
        thread.start()
        runner = asyncio.run_coroutine_threadsafe(proxy._serve(), loop).result()
        try:
            yield proxy
        finally:
            asyncio.run_coroutine_threadsafe(proxy._end(runner), loop).result()
            loop.call_soon_threadsafe(loop.stop)
            thread.join()
            loop.close()

    def fail(self, kind: str, **how: Any) -> Fault:
        """Let something go wrong from now on; the newest fault that matches a request happens to it."""
        fault = Fault(kind, **how)
        self.faults.insert(0, fault)
        return fault

    def write_kubeconfig(self, path: Path) -> Path:
        """For programs that want a file: this proxy is the server."""
        content = {
            "clusters": [{"name": "proxy", "cluster": {"server": self.server}}],
            "contexts": [{"name": "proxy", "context": {"cluster": "proxy"}}],
            "current-context": "proxy",
        }
        path.write_text(yaml.safe_dump(content))
        return path

    def heal(self) -> None:
        """No more faults; watches that were silenced stay so."""
        self.faults.clear()

    # ---- serving ----

    async def _serve(self) -> web.AppRunner:
        target, tls, headers = _target(self.kubeconfig)
        connector = aiohttp.TCPConnector(limit=0, ssl=tls)
        self._session = aiohttp.ClientSession(target, connector=connector, headers=headers, auto_decompress=False)
        app = web.Application(client_max_size=16 * 1024 * 1024)
        app.router.add_route("*", "/{path:.*}", self._handle)
        runner = web.AppRunner(app, access_log=None, shutdown_timeout=0.1)
        await runner.setup()
        site = web.TCPSite(runner, "127.0.0.1", 0)
        await site.start()
        host, port = runner.addresses[0][:2]
        self.server = f"http://{host}:{port}"
        return runner

    async def _end(self, runner: web.AppRunner) -> None:
        await runner.cleanup()
        left = [task for task in asyncio.all_tasks() if task is not asyncio.current_task()]  # those that hang for ever
        for task in left:
            task.cancel()
        await asyncio.gather(*left, return_exceptions=True)
        assert self._session is not None
        await self._session.close()
        await hang_up()

    async def _handle(self, request: web.Request) -> web.StreamResponse:
        watch = request.query.get("watch") == "true"
        fault = next((one for one in self.faults if one.strikes(request.method, request.path_qs, watch=watch)), None)
        kind = fault.kind if fault else ""
        self.log.append(Passed(request.method, request.path_qs, kind))
        while kind == "hold" and fault in self.faults:
            await asyncio.sleep(0.01)
        if kind in _REFUSALS and kind != "error-after":
            return _refusal(kind)
        if kind == "reset-before":
            return self._hang_up(request)
        if watch:
            return await self._watch(request, fault)
        if kind == "garbage":
            return web.Response(body=b"\x1f\x8b not what was asked for")
        if kind == "stale" and request.path in self._lists:
            status, body = self._lists[request.path]
            return web.Response(status=status, body=body, content_type="application/json")
        return await self._forward(request, kind)

    async def _forward(self, request: web.Request, kind: str) -> web.StreamResponse:
        assert self._session is not None
        async with self._session.request(
            request.method, request.path_qs, data=await request.read() or None, headers=_headers(request)
        ) as answer:
            body = await answer.read()
        if request.method == "GET" and b'"items":' in body:
            self._lists.setdefault(request.path, (answer.status, body))
        match kind:
            case "error-after":
                return _refusal(kind)
            case "reset-after":
                return self._hang_up(request)
            case "hang-after":
                await asyncio.Event().wait()
        passed = {name: answer.headers[name] for name in ("Retry-After", "Content-Type") if name in answer.headers}
        return web.Response(status=answer.status, body=body, headers=passed)

    async def _watch(self, request: web.Request, fault: Fault | None) -> web.StreamResponse:
        assert self._session is not None
        kind, left = (fault.kind, fault.after) if fault else ("", 0)
        async with self._session.get(
            request.path_qs, headers=_headers(request), timeout=aiohttp.ClientTimeout(total=None)
        ) as answer:
            out = web.StreamResponse(status=answer.status, headers={"Content-Type": "application/json"})
            await out.prepare(request)
            if kind == "expire":
                await out.write(_EXPIRED)
                return out
            rest = b""
            async for chunk in answer.content.iter_any():
                if not kind:
                    await out.write(chunk)
                    continue
                *lines, rest = (rest + chunk).split(b"\n")
                for line in lines[:left]:
                    await out.write(line + b"\n")
                left -= min(left, len(lines))
                if not left:
                    break
            if kind == "drop":
                return self._hang_up(request)
            if kind == "silent":
                await asyncio.Event().wait()
        return out

    @staticmethod
    def _hang_up(request: web.Request) -> web.Response:
        if request.transport is not None:
            request.transport.abort()
        return web.Response()


def _refusal(kind: str) -> web.Response:
    code, reason, headers = _REFUSALS[kind]
    status = {"kind": "Status", "code": code, "reason": reason, "message": f"as the test wished ({kind})"}
    return web.json_response(status, status=code, headers=headers)


def _headers(request: web.Request) -> dict[str, str]:
    kept = ("Accept", "Content-Type", "User-Agent", "Impersonate-User", "Impersonate-Group")
    passed = {name: request.headers[name] for name in kept if name in request.headers}
    return {**passed, "Accept-Encoding": "identity"}  # what is passed on is passed on as it is


def _target(kubeconfig: Path) -> tuple[str, ssl.SSLContext, dict[str, str]]:
    """The server of a kubeconfig, and the certificate or token to come with."""
    content = yaml.safe_load(kubeconfig.read_text())
    cluster, user = content["clusters"][0]["cluster"], content["users"][0]["user"]
    tls = ssl.create_default_context(cadata=base64.b64decode(cluster["certificate-authority-data"]).decode())
    if "token" in user:
        return cluster["server"], tls, {"Authorization": f"Bearer {user['token']}"}
    with tempfile.NamedTemporaryFile() as pair:
        pair.write(base64.b64decode(user["client-certificate-data"]) + base64.b64decode(user["client-key-data"]))
        pair.flush()
        tls.load_cert_chain(pair.name)
    return cluster["server"], tls, {}
