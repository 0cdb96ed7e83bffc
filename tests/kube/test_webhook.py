"""The webhook's server by itself: what it reads, what it refuses to read, and that it never stops answering."""

import asyncio
import json
import ssl
from collections.abc import Awaitable, Callable
from datetime import UTC, datetime, timedelta
from io import BytesIO
from typing import Any

import aiohttp
import pytest

from tenure.kube.certs import Keeper, bundle
from tenure.kube.client import ApiError
from tenure.kube.webhook import BODIES_MAX, BODY_BYTES_MAX, Webhook, keep_published
from tenure.testing.kube.waiting import PATIENCE
from tests.api.builders import FIXED, changed

Tree = dict[str, Any]
Client = aiohttp.ClientSession
HOST = "127.0.0.1"


def trusting(keeper: Keeper) -> ssl.SSLContext:
    return ssl.create_default_context(cadata=bundle(b"", keeper.authorities, now=datetime.now(UTC)).decode())


def served(work: Callable[[Client, Webhook], Awaitable[Any]], **settings: Any) -> Any:
    """Do something with a webhook that listens on loopback; the client trusts its authority alone."""

    async def go() -> Any:
        # Made five days ago: its certificate is good for two more, and due to be renewed.
        webhook = Webhook(Keeper([HOST], now=datetime.now(UTC) - timedelta(days=5)), **settings)
        await webhook.start(HOST, 0)
        try:
            connector = aiohttp.TCPConnector(ssl=trusting(webhook.keeper), force_close=True)
            async with Client(f"https://{HOST}:{webhook.port}", connector=connector) as client:
                return await work(client, webhook)
        finally:
            await webhook.stop()

    return asyncio.run(go())


def review(tree: Tree) -> bytes:
    kind = {"group": "rq.davidlangworthy.io", "version": "v1", "kind": tree["kind"]}
    request = {"uid": "u-1", "kind": kind, "operation": "CREATE", "object": tree, "namespace": "rai"}
    return json.dumps({"apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview", "request": request}).encode()


async def post(client: Client, body: Any, path: str = "/validate", form: str = "application/json") -> tuple[int, str]:
    data = BytesIO(body) if isinstance(body, bytes) else body
    async with client.post(path, data=data, headers={"Content-Type": form}) as answer:
        return answer.status, await answer.text()


@pytest.mark.parametrize("path", ["/mutate", "/validate"])
@pytest.mark.parametrize(("total", "allowed"), [(8, True), (0, False)])
def test_it_answers(path: str, total: int, allowed: bool) -> None:
    body = review(changed(FIXED, {"spec.resources.totalGPUs": total}))
    status, text = served(lambda client, _: post(client, body, path))
    assert status == 200
    assert json.loads(text)["response"]["allowed"] is allowed


def test_a_large_body_is_judged_too() -> None:
    large = changed(FIXED, {"spec.template.spec.x": "y" * 900_000})
    status, text = served(lambda client, _: post(client, review(large)))
    assert (status, json.loads(text)["response"]["allowed"]) == (200, True)


REFUSED: list[tuple[str, bytes, str, int]] = [
    ("not JSON", b"{", "application/json", 400),
    ("not UTF-8", b'{"apiVersion": "\xff"}', "application/json", 400),
    ("empty", b"", "application/json", 400),
    ("another kind", b'{"apiVersion": "v1", "kind": "Pod", "request": {"uid": "", "kind": {}, "operation": ""}}',
     "application/json", 400),
    ("an older version", review(FIXED).replace(b"admission.k8s.io/v1", b"admission.k8s.io/v1beta1"),
     "application/json", 400),
    ("no request", b'{"apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview"}', "application/json", 400),
    ("nested without end", b'{"request":' * 100_000, "application/json", 400),
    ("lists without end", b"[" * 1_000_000, "application/json", 400),
    ("too large", b" " * (BODY_BYTES_MAX + 1), "application/json", 413),
    ("a form", b"a=b", "application/x-www-form-urlencoded", 415),
]  # fmt: skip


@pytest.mark.parametrize(("body", "form", "code"), [row[1:] for row in REFUSED], ids=[row[0] for row in REFUSED])
def test_what_is_no_review_is_refused_and_the_next_one_is_answered(body: bytes, form: str, code: int) -> None:
    async def work(client: Client, webhook: Webhook) -> tuple[int, int]:
        first, _ = await post(client, body, form=form)
        second, _ = await post(client, review(FIXED))
        return first, second

    assert served(work) == (code, 200)


@pytest.mark.parametrize(("method", "path", "code"), [("GET", "/validate", 405), ("POST", "/elsewhere", 404)])
def test_other_doors_are_closed(method: str, path: str, code: int) -> None:
    async def work(client: Client, webhook: Webhook) -> int:
        async with client.request(method, path) as answer:
            return answer.status

    assert served(work) == code


def test_bodies_that_never_end_hold_up_nobody_for_long() -> None:
    """As many slow senders as there are places, and one honest one after them."""

    async def slow() -> Any:
        yield b"{"
        await asyncio.sleep(30)

    async def work(client: Client, webhook: Webhook) -> tuple[list[int], int]:
        stuck = [asyncio.create_task(post(client, slow())) for _ in range(BODIES_MAX)]
        await asyncio.sleep(0.1)
        honest, _ = await asyncio.wait_for(post(client, review(FIXED)), PATIENCE)
        found = await asyncio.gather(*stuck, return_exceptions=True)
        return [each[0] if isinstance(each, tuple) else 0 for each in found], honest

    codes, honest = served(work, body_seconds=0.5)
    assert honest == 200
    # The sender is told, or finds the door closed while it is still sending.
    assert set(codes) <= {408, 0}


def test_a_new_certificate_is_shown_without_a_restart() -> None:
    async def shown(webhook: Webhook) -> bytes:
        _, writer = await asyncio.open_connection(HOST, webhook.port, ssl=trusting(webhook.keeper))
        found: bytes = writer.get_extra_info("ssl_object").getpeercert(binary_form=True)
        writer.close()
        return found

    async def work(client: Client, webhook: Webhook) -> tuple[bytes, bytes, int]:
        first = await shown(webhook)
        # A connection that is open goes on as it was.
        async with client.post("/validate", data=review(FIXED), headers={"Content-Type": "application/json"}) as answer:
            webhook.keeper.turn(datetime.now(UTC), published=True)
            status = answer.status
        return first, await shown(webhook), status

    first, second, status = served(work)
    assert status == 200
    assert first != second


def test_stopping_twice_is_harmless() -> None:
    async def work(client: Client, webhook: Webhook) -> None:
        await webhook.stop()
        await webhook.stop()

    served(work)


def test_an_object_of_a_stranger_is_not_trusted() -> None:
    async def work(client: Client, webhook: Webhook) -> None:
        stranger = Keeper([HOST], now=datetime.now(UTC))
        with pytest.raises(ssl.SSLCertVerificationError):
            await asyncio.open_connection(HOST, webhook.port, ssl=trusting(stranger))

    served(work)


class Absent:
    """A cluster where nothing is installed."""

    def __init__(self) -> None:
        self.asked = 0

    async def get(self, *words: Any) -> Any:
        self.asked += 1
        raise ApiError(404, "NotFound", "there are no webhooks called tenure")


def test_where_nothing_is_installed_it_says_so_once_and_goes_on(
    caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tenure.kube.webhook.AGAIN_SECONDS", 0.01)
    cluster: Any = Absent()
    keeper = Keeper([HOST], now=datetime.now(UTC) - timedelta(days=5))
    first = keeper.serving

    async def go() -> None:
        task = asyncio.create_task(keep_published(cluster, keeper))
        while cluster.asked < 5:
            await asyncio.sleep(0.01)
        task.cancel()

    asyncio.run(go())
    assert len([each for each in caplog.records if "could not be published" in each.message]) == 1
    assert keeper.serving != first
