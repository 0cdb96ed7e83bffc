"""The webhook's server: HTTPS in front of ``review``, and its authority kept in the webhook configurations.

    with serving(io, client, "0.0.0.0", WEBHOOK_PORT, names=[system.webhook_host], known=lambda: home.state):
        ...                                      # certificates are renewed, and the caBundle is kept right

It may be away at any time: the API server then goes on without it (``failurePolicy: Ignore``), and nothing unsafe
follows (see ``review``). It is careful with what it reads: bodies are bounded in size, number and time, and whatever is
not an AdmissionReview is refused with a plain 4xx.
"""

from __future__ import annotations

import asyncio
import base64
import binascii
import logging
import ssl
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from datetime import UTC, datetime
from typing import Any, Final, Protocol

import msgspec
from aiohttp import web

from tenure.kube.certs import Keeper, bundle
from tenure.kube.client import ApiError, Client
from tenure.kube.loop import IO
from tenure.kube.provided import Provided, keep_read
from tenure.kube.rbac import WEBHOOKS
from tenure.kube.resources import MUTATING_WEBHOOKS, VALIDATING_WEBHOOKS
from tenure.kube.review import Known, Review, answer, nothing_known

MUTATE: Final = "/mutate"
VALIDATE: Final = "/validate"
BODY_BYTES_MAX: Final = 4 * 1024 * 1024
"""An object of 1 MiB, the one before it, and what the API server says about them."""
BODIES_MAX: Final = 16
"""Bodies read and judged at a time; more wait."""
BODY_SECONDS_MAX: Final = 10.0
AGAIN_SECONDS: Final = 2.0
"""How soon a bundle that could not be written is tried again."""
GOODBYE_SECONDS: Final = 0.1
"""TLS says goodbye to those who are connected: that takes a few turns of the loop."""
_LARGE: Final = 32 * 1024
"""Larger bodies are judged beside the loop, so that nobody's watch waits for somebody's megabyte."""

log = logging.getLogger(__name__)
_decoder = msgspec.json.Decoder(Review)


def _now() -> datetime:
    return datetime.now(UTC)


class Certified(Protocol):
    """Who has the certificate: ``Keeper`` makes it, ``Provided`` reads it."""

    context: ssl.SSLContext


class Webhook:
    """The server. ``port`` is known after ``start``."""

    def __init__(
        self, keeper: Certified, *, known: Known = nothing_known, body_seconds: float = BODY_SECONDS_MAX
    ) -> None:
        self.keeper = keeper
        self.port = 0
        self._known = known
        self._body_seconds = body_seconds
        self._slots = asyncio.Semaphore(BODIES_MAX)
        self._runner: web.AppRunner | None = None

    async def start(self, host: str, port: int) -> None:
        app = web.Application(client_max_size=BODY_BYTES_MAX)
        app.router.add_post(MUTATE, self._mutate)
        app.router.add_post(VALIDATE, self._validate)
        self._runner = web.AppRunner(app, access_log=None)
        await self._runner.setup()
        await web.TCPSite(self._runner, host, port, ssl_context=self.keeper.context).start()
        self.port = self._runner.addresses[0][1]

    async def stop(self) -> None:
        """Finish what is under way, and close. Stopping twice is harmless."""
        if self._runner is not None:
            await self._runner.cleanup()
            await asyncio.sleep(GOODBYE_SECONDS)
            self._runner = None

    async def _mutate(self, request: web.Request) -> web.Response:
        return await self._answer(request, patching=True)

    async def _validate(self, request: web.Request) -> web.Response:
        return await self._answer(request, patching=False)

    async def _answer(self, request: web.Request, *, patching: bool) -> web.Response:
        if request.content_type != "application/json":
            raise web.HTTPUnsupportedMediaType(text="send an AdmissionReview as application/json\n")
        async with self._slots:
            try:
                async with asyncio.timeout(self._body_seconds):
                    body = await request.read()
            except TimeoutError:
                raise web.HTTPRequestTimeout(text="the body did not come in time\n") from None
            if len(body) > _LARGE:
                return await asyncio.to_thread(self._judged, body, patching=patching)
            return self._judged(body, patching=patching)

    def _judged(self, body: bytes, *, patching: bool) -> web.Response:
        try:
            review = _decoder.decode(body)
        except (msgspec.MsgspecError, RecursionError, UnicodeDecodeError):
            raise web.HTTPBadRequest(text="not an AdmissionReview\n") from None
        if review.api_version != "admission.k8s.io/v1" or review.kind != "AdmissionReview":
            raise web.HTTPBadRequest(text="not an AdmissionReview of admission.k8s.io/v1\n")
        found = answer(review, known=self._known, patching=patching)
        return web.Response(body=msgspec.json.encode(found), content_type="application/json")


@contextmanager
def serving(
    io: IO,
    client: Client,
    host: str,
    port: int,
    *,
    names: Sequence[str],
    known: Known = nothing_known,
    provided: Provided | None = None,
) -> Iterator[Webhook]:
    """A webhook for the length of a block, known to the API server under these names.

    ``provided``: its certificate comes from elsewhere, and whoever makes it tells the API server whom to trust.
    """
    keeper = Keeper(names, now=_now()) if provided is None else provided
    webhook = Webhook(keeper, known=known)
    io.run(webhook.start(host, port))
    keeping = io.start(keep_published(client, keeper) if isinstance(keeper, Keeper) else keep_read(keeper))
    try:
        yield webhook
    finally:
        keeping.cancel()
        io.run(webhook.stop())


# --- the authority, where API servers look for it -------------------------------------------------------------------


async def publish(client: Client, keeper: Keeper, *, now: datetime) -> bool:
    """Have both webhook configurations trust the keeper's authorities. False if somebody else wrote meanwhile."""
    done = True
    for resource in (MUTATING_WEBHOOKS, VALIDATING_WEBHOOKS):
        found = await client.get(resource, WEBHOOKS)
        changed = False
        for hook in found.get("webhooks") or []:
            config = hook["clientConfig"]
            wanted = bundle(_decoded(config.get("caBundle", "")), keeper.authorities, now=now)
            if _decoded(config.get("caBundle", "")) != wanted:
                config["caBundle"], changed = base64.b64encode(wanted).decode(), True
        if changed:
            done = await _replaced(client, resource, found) and done
    return done


async def _replaced(client: Client, resource: Any, found: dict[str, Any]) -> bool:
    try:
        await client.replace(resource, found)
    except ApiError as error:
        if not error.conflict:
            raise
        return False
    return True


def _decoded(text: str) -> bytes:
    try:
        return base64.b64decode(text, validate=True)
    except (binascii.Error, ValueError):
        return b""


async def keep_published(
    client: Client, keeper: Keeper, *, every: float = 60.0, clock: Callable[[], datetime] = _now
) -> None:
    """Renew and publish, for ever. A cluster that cannot be reached is tried again; work goes on meanwhile."""
    said = ""
    while True:
        published, trouble = False, ""
        try:
            published = await publish(client, keeper, now=clock())
        except ApiError as error:
            trouble = str(error)
            if trouble != said:
                log.warning("the webhook's authority could not be published: %s", trouble)
        said = trouble
        keeper.turn(clock(), published=published)
        await asyncio.sleep(every if published else min(every, AGAIN_SECONDS))
