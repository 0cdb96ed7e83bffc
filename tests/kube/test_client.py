"""The client on a real API server: every verb, every refusal, and what is tried again."""

import asyncio
import socket
import ssl
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from tenure.kube.certs import Keeper, bundle
from tenure.kube.client import Client, WatchEvent
from tenure.kube.config import Access, from_kubeconfig
from tenure.kube.errors import ApiError
from tenure.kube.loop import IO
from tenure.kube.resources import CONFIG_MAPS, NAMESPACES, PODS, SERVICE_ACCOUNTS, resource_of
from tenure.testing.kube import ControlPlane, until
from tenure.testing.kube.proxy import FaultProxy
from tenure.testing.kube.waiting import PATIENCE

MAPS = "/configmaps"


@pytest.fixture
def client(plane: ControlPlane, connect: Callable[..., Client]) -> Client:
    return connect(from_kubeconfig(plane.admin))


@pytest.fixture
def proxy(plane: ControlPlane) -> Iterator[FaultProxy]:
    with FaultProxy.started(plane.admin) as proxy:
        yield proxy


@pytest.fixture
def faulty(proxy: FaultProxy, connect: Callable[..., Client]) -> Client:
    return connect(Access(server=proxy.server), timeout=PATIENCE)


def config_map(name: str, namespace: str, **data: str) -> dict[str, Any]:
    return CONFIG_MAPS.named(name, namespace, data=data)


def refusal(io: IO, work: Any) -> ApiError:
    with pytest.raises(ApiError) as caught:
        io.run(work)
    return caught.value


# --- verbs --------------------------------------------------------------------------------------------------------


def test_an_object_is_made_read_changed_and_deleted(io: IO, client: Client, namespace: str) -> None:
    made = io.run(client.create(CONFIG_MAPS, config_map("a", namespace, x="1")))
    assert io.run(client.get(CONFIG_MAPS, "a", namespace)) == made
    made["data"]["x"] = "2"
    replaced = io.run(client.replace(CONFIG_MAPS, made))
    assert replaced["data"] == {"x": "2"}
    merged = io.run(client.patch(CONFIG_MAPS, "a", {"data": {"y": "3"}}, namespace))
    assert merged["data"] == {"x": "2", "y": "3"}
    steps = [{"op": "remove", "path": "/data/x"}]
    assert io.run(client.patch(CONFIG_MAPS, "a", steps, namespace, kind="json"))["data"] == {"y": "3"}
    applied = config_map("a", namespace, z="4")
    assert io.run(client.patch(CONFIG_MAPS, "a", applied, namespace, kind="apply"))["data"] == {"y": "3", "z": "4"}
    managers = io.run(client.get(CONFIG_MAPS, "a", namespace))["metadata"]["managedFields"]
    assert {one["manager"] for one in managers} == {"tenure"}
    io.run(client.delete(CONFIG_MAPS, "a", namespace))
    assert refusal(io, client.get(CONFIG_MAPS, "a", namespace)).not_found


def test_a_dry_run_changes_nothing(io: IO, client: Client, namespace: str) -> None:
    io.run(client.create(CONFIG_MAPS, config_map("a", namespace), dry_run=True))
    assert refusal(io, client.get(CONFIG_MAPS, "a", namespace)).not_found


def test_refusals_are_values(io: IO, client: Client, namespace: str) -> None:
    made = io.run(client.create(CONFIG_MAPS, config_map("a", namespace)))
    again = refusal(io, client.create(CONFIG_MAPS, config_map("a", namespace)))
    assert (again.code, again.reason, again.exists, again.conflict) == (409, "AlreadyExists", True, False)
    io.run(client.replace(CONFIG_MAPS, {**made, "data": {"x": "1"}}))
    late = refusal(io, client.replace(CONFIG_MAPS, {**made, "data": {"x": "2"}}))
    assert (late.reason, late.conflict, late.exists, late.in_doubt) == ("Conflict", True, False, False)
    wrong = refusal(io, client.create(PODS, PODS.named("p", namespace, spec={})))
    assert (wrong.code, wrong.reason, wrong.transient) == (422, "Invalid", False)
    assert "spec.containers" in wrong.message
    uid = refusal(io, client.delete(CONFIG_MAPS, "a", namespace, uid="another"))
    assert uid.conflict


def test_a_subresource_is_made(io: IO, client: Client, plane: ControlPlane, namespace: str) -> None:
    request = {"apiVersion": "authentication.k8s.io/v1", "kind": "TokenRequest", "spec": {}}
    made = io.run(client.create(SERVICE_ACCOUNTS, request, namespace, name="default", subresource="token"))
    assert made["status"]["token"].count(".") == 2


def test_lists_come_in_pages_of_one_instant(io: IO, client: Client, namespace: str) -> None:
    async def make_all() -> None:
        await asyncio.gather(*(client.create(CONFIG_MAPS, config_map(f"m{n:02}", namespace)) for n in range(40)))

    io.run(make_all())
    before = client.calls
    listing = io.run(client.list(CONFIG_MAPS, namespace, page=7))
    assert client.calls - before == 6
    assert [item["metadata"]["name"] for item in listing.items] == [f"m{n:02}" for n in range(40)]
    assert listing.resource_version.isdigit()
    assert io.run(client.get(CONFIG_MAPS, "m00", namespace)) == listing.items[0], "also its kind"
    chosen = io.run(client.list(CONFIG_MAPS, namespace, fields="metadata.name=m03"))
    assert [item["metadata"]["name"] for item in chosen.items] == ["m03"]
    bare = io.run(client.list(CONFIG_MAPS, namespace, metadata_only=True))
    assert (len(bare.items), "data" in bare.items[0]) == (40, False)
    io.run(client.delete_collection(CONFIG_MAPS, namespace, fields="metadata.name!=m00"))
    assert [item["metadata"]["name"] for item in io.run(client.list(CONFIG_MAPS, namespace)).items] == ["m00"]


def test_a_watch_tells_what_happened_since_and_ends_in_time(io: IO, client: Client, namespace: str) -> None:
    async def told(version: str, count: int) -> list[WatchEvent]:
        """Of the first watch that has told so many changes: the server is given a second for each."""
        while True:
            watch = client.watch(CONFIG_MAPS, namespace, resource_version=version, timeout_seconds=1)
            changes = [event async for event in watch if event.type != "BOOKMARK"]
            if len(changes) >= count:
                return changes

    listing = io.run(client.list(CONFIG_MAPS, namespace))
    io.run(client.create(CONFIG_MAPS, config_map("a", namespace, x="é" * 200_000)))
    io.run(client.patch(CONFIG_MAPS, "a", {"data": {"x": "2"}}, namespace))
    io.run(client.delete(CONFIG_MAPS, "a", namespace))
    events = io.run(told(listing.resource_version, 3), timeout=PATIENCE)
    changes = [(one.type, len(one.object["data"]["x"])) for one in events]
    assert changes == [("ADDED", 200_000), ("MODIFIED", 1), ("DELETED", 1)]


def test_kinds_are_known_by_their_objects() -> None:
    assert resource_of({"apiVersion": "v1", "kind": "ConfigMap"}) is CONFIG_MAPS
    with pytest.raises(KeyError):
        resource_of({"apiVersion": "v1", "kind": "Unheard"})


# --- who we are ---------------------------------------------------------------------------------------------------


def test_a_service_account_comes_with_its_token_and_a_new_one_when_that_is_refused(
    io: IO, client: Client, plane: ControlPlane, namespace: str, connect: Callable[..., Client], tmp_path: Path
) -> None:
    request = {"apiVersion": "authentication.k8s.io/v1", "kind": "TokenRequest", "spec": {}}
    made = io.run(client.create(SERVICE_ACCOUNTS, request, namespace, name="default", subresource="token"))
    file = tmp_path / "token"
    file.write_text("not a token")
    ca = from_kubeconfig(plane.admin).ca
    robot = connect(Access(server=plane.server, ca=ca, token_file=str(file)))
    refused = refusal(io, robot.list(CONFIG_MAPS, namespace))
    assert (refused.code, refused.reason) == (401, "Unauthorized")
    file.write_text(made["status"]["token"])
    forbidden = refusal(io, robot.list(CONFIG_MAPS, namespace))
    assert (forbidden.code, forbidden.reason) == (403, "Forbidden")
    assert f"system:serviceaccount:{namespace}:default" in forbidden.message


def test_a_server_that_nobody_vouches_for_is_not_talked_to(
    io: IO, plane: ControlPlane, connect: Callable[..., Client]
) -> None:
    stranger = connect(Access(server=plane.server))
    refused = refusal(io, stranger.get(NAMESPACES, "default"))
    assert (refused.reason, stranger.calls) == ("Unreachable", 1)


# --- what is tried again ------------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", ["throttle", "error", "error-after", "reset-before", "reset-after"])
def test_a_read_is_tried_again(io: IO, faulty: Client, proxy: FaultProxy, namespace: str, kind: str) -> None:
    fault = proxy.fail(kind, method="GET", path=MAPS, times=2)
    assert io.run(faulty.list(CONFIG_MAPS, namespace)).items == []
    assert fault.hits == 2


@pytest.mark.parametrize(("times", "calls"), [(1, 2 + 7), (2, 4 + 1)])
def test_a_list_whose_pages_expire_is_begun_anew_and_at_last_taken_whole(
    io: IO, faulty: Client, client: Client, proxy: FaultProxy, namespace: str, times: int, calls: int
) -> None:
    for number in range(7):
        io.run(client.create(CONFIG_MAPS, config_map(f"m{number}", namespace)))
    proxy.fail("gone", method="GET", path="continue=", times=times)
    listing = io.run(faulty.list(CONFIG_MAPS, namespace, page=1))
    assert [item["metadata"]["name"] for item in listing.items] == [f"m{number}" for number in range(7)]
    assert len(proxy.log) == calls


def test_a_write_that_was_throttled_is_tried_again(
    io: IO, faulty: Client, proxy: FaultProxy, namespace: str, plane: ControlPlane
) -> None:
    proxy.fail("throttle", method="POST", path=MAPS, times=3)
    io.run(faulty.create(CONFIG_MAPS, config_map("a", namespace)))
    assert [one.fault for one in proxy.log] == ["throttle"] * 3 + [""]


@pytest.mark.parametrize(
    ("kind", "applied"),
    [("error", False), ("error-after", True), ("reset-before", False), ("reset-after", True), ("hang-after", True)],
)
def test_a_write_whose_answer_is_lost_is_not_repeated(
    io: IO, connect: Callable[..., Client], client: Client, proxy: FaultProxy, namespace: str, kind: str, applied: bool
) -> None:
    hasty = connect(Access(server=proxy.server), timeout=2.0 if kind == "hang-after" else PATIENCE)
    proxy.fail(kind, method="POST", path=MAPS, times=10)
    lost = refusal(io, hasty.create(CONFIG_MAPS, config_map("a", namespace)))
    assert lost.in_doubt
    assert len(proxy.log) == 1
    if applied:  # who does not wait for an answer may be ahead of it
        until(lambda: io.run(client.list(CONFIG_MAPS, namespace)).items)
    assert bool(io.run(client.list(CONFIG_MAPS, namespace)).items) is applied


@pytest.mark.parametrize("kind", ["error", "error-after", "reset-before", "reset-after"])
def test_what_is_ensured_is_there_or_worth_another_try(
    io: IO, faulty: Client, proxy: FaultProxy, namespace: str, kind: str
) -> None:
    proxy.fail(kind, method="POST", path=MAPS)
    try:
        found = io.run(faulty.ensure(CONFIG_MAPS, config_map("a", namespace, x="1")))
    except ApiError as error:
        assert (error.reason, error.transient) == ("Vanished", True)  # noqa: PT017 -- one of two right answers
        found = io.run(faulty.ensure(CONFIG_MAPS, config_map("a", namespace, x="1")))
    assert found["data"] == {"x": "1"}
    assert io.run(faulty.ensure(CONFIG_MAPS, config_map("a", namespace, x="2"))) == found


def test_an_answer_that_is_no_answer_is_an_error_like_others(
    io: IO, faulty: Client, proxy: FaultProxy, namespace: str
) -> None:
    proxy.fail("garbage", path=MAPS, times=100)
    for work in (
        faulty.list(CONFIG_MAPS, namespace),
        faulty.get(CONFIG_MAPS, "a", namespace),
        faulty.create(CONFIG_MAPS, config_map("a", namespace)),
        anext(faulty.pages(CONFIG_MAPS, dict)),
    ):
        assert refusal(io, _awaited(work)).reason == "AnswerLost"


async def _awaited(work: Any) -> Any:
    return await work


def test_a_server_that_is_not_there_is_asked_a_few_times(io: IO, connect: Callable[..., Client]) -> None:
    nobody = connect(Access(server="http://127.0.0.1:9"))
    lost = refusal(io, nobody.create(CONFIG_MAPS, config_map("a", "default")))
    assert (lost.reason, lost.in_doubt, lost.transient) == ("Unreachable", False, True)
    assert nobody.calls == 6


def test_no_more_calls_than_allowed_are_under_way(
    io: IO, proxy: FaultProxy, connect: Callable[..., Client], namespace: str
) -> None:
    client = connect(Access(server=proxy.server), in_flight=3, timeout=PATIENCE)
    proxy.fail("hold", method="POST", path=MAPS, times=9)

    async def make_all() -> int:
        works = [asyncio.create_task(client.create(CONFIG_MAPS, config_map(f"m{n}", namespace))) for n in range(9)]
        while len(proxy.log) < 3:
            await asyncio.sleep(0.01)
        await asyncio.sleep(0.3)
        under_way = len(proxy.log)
        proxy.heal()
        await asyncio.gather(*works)
        return under_way

    assert io.run(make_all()) == 3
    assert len(proxy.log) == 9


@pytest.mark.parametrize(("kind", "after"), [("drop", 0), ("drop", 1), ("silent", 1)])
def test_a_watch_that_breaks_or_falls_silent_ends_with_an_error(
    io: IO, faulty: Client, client: Client, proxy: FaultProxy, namespace: str, kind: str, after: int
) -> None:
    told: list[WatchEvent] = []

    async def follow(version: str) -> None:
        watch = faulty.watch(CONFIG_MAPS, namespace, resource_version=version, timeout_seconds=5, silence=0.5)
        async for event in watch:
            told.append(event)  # noqa: PERF401 -- what was told before the error counts

    version = io.run(client.list(CONFIG_MAPS, namespace)).resource_version
    for name in "ab":
        io.run(client.create(CONFIG_MAPS, config_map(name, namespace)))
    proxy.fail(kind, path=MAPS, after=after)
    assert refusal(io, follow(version)).reason == "AnswerLost"
    assert len(told) == after


# --- the loop -----------------------------------------------------------------------------------------------------


def test_the_loop_serves_many_threads_and_not_itself(io: IO) -> None:
    async def nested() -> None:
        io.run(asyncio.sleep(0))

    with pytest.raises(RuntimeError, match="cannot wait for the loop"):
        io.run(nested())


def test_who_stops_waiting_takes_the_work_back() -> None:
    ended: list[str] = []

    async def work() -> None:
        try:
            await asyncio.sleep(60)
        except asyncio.CancelledError:
            ended.append("cancelled")
            raise

    with IO() as io:
        while not ended:  # what had not even begun in that time is taken back, too, and says nothing
            with pytest.raises(TimeoutError):
                io.run(work(), timeout=0.05)
            io.run(asyncio.sleep(0.05))
        assert ended == ["cancelled"]
        io.start(work())
        io.run(asyncio.sleep(0))
    assert ended == ["cancelled", "cancelled"], "closing ends what still runs"
    io.close()


def test_a_server_that_does_not_say_goodbye_is_left_all_the_same() -> None:
    """A connection that stays open is a warning of some later moment: in tests, the failure of another one."""
    keeper = Keeper(["127.0.0.1"], now=datetime.now(UTC))
    trust = ssl.create_default_context(cadata=bundle(b"", keeper.authorities, now=datetime.now(UTC)).decode())
    over = threading.Event()

    def serve(listener: socket.socket) -> None:
        with keeper.context.wrap_socket(listener.accept()[0], server_side=True):
            over.wait(PATIENCE)

    async def hang_up(port: int) -> socket.socket:
        _, writer = await asyncio.open_connection("127.0.0.1", port, ssl=trust)
        writer.close()
        found: socket.socket = writer.get_extra_info("socket")
        return found

    with socket.create_server(("127.0.0.1", 0)) as listener, ThreadPoolExecutor(1) as pool:
        serving = pool.submit(serve, listener)
        with IO() as io:
            connection = io.run(hang_up(listener.getsockname()[1]))
        assert connection.fileno() == -1
        over.set()
        serving.result()
