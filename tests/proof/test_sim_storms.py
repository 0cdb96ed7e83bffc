"""Real operators in bad weather: seeds that are quick and see much, and the single gusts that no seed is sure to bring.

``test_sim_cluster`` plays many more; these are the ones that planted bugs (``proof.mutants``) are tried on.
"""

import asyncio
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any

import aiohttp
import msgspec
import pytest

from proof.sim.api import Reply, Server
from proof.sim.api_client import PlainLink, VirtualClient
from proof.sim.failure import all_told
from proof.sim.generate import generate
from proof.sim.loop import VirtualIO, VirtualLoop
from proof.sim.play import play
from tenure.api.ledger_objects import HEAD, LedgerHeadSpec
from tenure.kube.client import Listing, WatchEvent
from tenure.kube.elect import Elector
from tenure.kube.errors import ApiError
from tenure.kube.heads import Fence, fence_of, first_head, swap
from tenure.kube.informer import Changes, Informer
from tenure.kube.pods import KubeExecutor
from tenure.kube.refusals import Code, StoreRefused
from tenure.kube.resources import LEDGER_ENTRIES, LEDGER_HEADS, NAMESPACES, PODS, SYSTEM_NAMESPACE
from tenure.kube.retention import Retention
from tenure.kube.store import KubeStore
from tenure.testing import START
from tenure.units import HOUR, SECOND
from tests.kube.test_pods import World as Pods

SEEDS = (0, 2, 9, 10, 13, 35, 36, 37, 54)
"""Of 24 hours each: lost answers, refusals, old lists, leaders that are paused, servers set back, old entries."""
SECONDS_MAX = 6.0
"""Of processor time; each takes less than one."""


@pytest.mark.parametrize("seed", SEEDS)
def test_a_day_of_bad_weather_holds(seed: int) -> None:
    played = play(generate(seed, home="cluster", hours=24), seconds=SECONDS_MAX)
    assert not played.failed, all_told([played])
    assert any(count for name, count in played.tally.items() if name.startswith("fault/")), "nothing has struck"
    assert played.tally["seen/run Completed"], "nothing was done"


@pytest.fixture
def loop() -> Iterator[VirtualLoop]:
    """Closed also where a test fails: what is left open would be another failure."""
    made = VirtualLoop()
    yield made
    made.drive(lambda: False, until=made.time())
    for task in asyncio.all_tasks(made):
        task.cancel()
    made.drive(lambda: False, until=made.time() + 60.0)  # who leads steps down
    made.close()


@pytest.fixture
def world() -> Iterator[Pods]:
    made = Pods()
    yield made
    made.loop.close()


# -- the head --


class Losing(PlainLink):
    """A wire on which the answers to so many writes of a method are lost, after they were carried out."""

    def __init__(self, method: str, times: int) -> None:
        self.method, self.times = method, times

    async def pass_back(self, request: Any, reply: Reply) -> Reply:
        if request.method == self.method and self.times:
            self.times -= 1
            raise aiohttp.ServerDisconnectedError
        return reply


def moved(fence: Fence, digest: str) -> LedgerHeadSpec:
    return msgspec.structs.replace(fence.spec, seq=fence.spec.seq + 1, hash=digest * 64, at=START)


def head_of(server: Server) -> Fence:
    item = server.get(LEDGER_HEADS, HEAD)
    assert item is not None
    return fence_of(item)


def test_a_swap_whose_answer_is_lost_is_found_to_have_happened(loop: VirtualLoop) -> None:
    server, link = Server(lambda: START), Losing("PUT", 0)
    io, client = VirtualIO(loop), VirtualClient(link, server)
    fence = io.run(first_head(client, "ours"))
    link.times = 1
    after = io.run(swap(client, fence, moved(fence, "a")))
    assert (link.times, after) == (0, head_of(server))
    assert after.spec == moved(fence, "a")
    assert io.run(swap(client, after, moved(after, "b"))) == head_of(server), "and goes on from there"


def test_who_comes_second_changes_nothing(loop: VirtualLoop) -> None:
    server = Server(lambda: START)
    io, client = VirtualIO(loop), VirtualClient(PlainLink(), server)
    fence = io.run(first_head(client, "ours"))
    won = io.run(swap(client, fence, moved(fence, "a")))
    with pytest.raises(StoreRefused) as refusal:
        io.run(swap(client, fence, moved(fence, "b")))
    assert refusal.value.code is Code.Outrun
    assert head_of(server) == won


# -- copies --


class Lagging:
    """A client whose lists are of these versions, one after the other, each with pods of these names; none of its
    watches can be resumed. What was told of before a list is forgotten."""

    def __init__(self, changes: Changes, *lists: tuple[str, str]) -> None:
        self.changes = changes
        self.lists = [Listing([PODS.named(name, "lab") for name in names.split()], version) for version, names in lists]

    async def list(self, resource: object, **_: object) -> Listing:
        if not self.lists:
            raise ApiError(0, "Unreachable", "it is away")
        self.changes.take()
        return self.lists.pop(0)

    async def watch(self, resource: object, **_: object) -> AsyncIterator[WatchEvent]:
        raise ApiError(410, "Expired", "too old")
        yield  # so that it is a generator


def followed(loop: VirtualLoop, *lists: tuple[str, str]) -> tuple[list[str], set[str]]:
    """What an informer shows after these lists, and what it told of after the last."""
    changes = Changes()
    client = Lagging(changes, *lists)
    informer = Informer(client, PODS, changes, clock=loop.time)  # type: ignore[arg-type]  # as much as it needs
    work = VirtualIO(loop).start(informer.follow())
    assert loop.drive(lambda: not client.lists, until=60.0)
    loop.drive(lambda: False, until=loop.time() + 1.0)
    work.cancel()
    return sorted(informer.keys()), {key for keys in changes.take().values() for key in keys}


def test_a_list_of_a_server_that_lags_behind_is_not_believed(loop: VirtualLoop) -> None:
    assert followed(loop, ("20", "a b"), ("10", "a")) == (["lab/a", "lab/b"], set())


def test_what_is_missing_in_a_new_list_is_gone_and_told_of(loop: VirtualLoop) -> None:
    assert followed(loop, ("20", "a b"), ("30", "a c")) == (["lab/a", "lab/c"], {"lab/b", "lab/c"})


# -- who leads --


class Cut(PlainLink):
    """A wire that may be cut."""

    whole = True

    async def pass_on(self, request: Any) -> Reply | None:
        await super().pass_on(request)
        return None if self.whole else Reply(503, b'{"kind":"Status","reason":"ServiceUnavailable","code":503}')


def test_a_leader_that_is_cut_off_leads_only_for_its_time_and_is_not_pushed_out_before(loop: VirtualLoop) -> None:
    server, links = Server(lambda: START), (Cut(), Cut())
    server.handle("POST", NAMESPACES.path(), {}, msgspec.json.encode(NAMESPACES.named(SYSTEM_NAMESPACE)))
    turns: list[tuple[str, bool]] = []

    def stands(name: str, link: Cut) -> Any:
        elector = Elector(
            VirtualClient(link, server), name, duration=15.0, renew=2.0, clock=loop.time,
            now=lambda: START + round(loop.time() * SECOND), on_change=lambda leading: turns.append((name, leading)),
        )  # fmt: skip
        return VirtualIO(loop).start(elector.campaign())

    work = [stands("first", links[0])]
    loop.drive(lambda: bool(turns), until=5.0)
    work.append(stands("second", links[1]))
    loop.drive(lambda: False, until=120.0)
    assert turns == [("first", True)], "who renews is left alone"
    links[0].whole = False
    loop.drive(lambda: False, until=240.0)
    assert turns == [("first", True), ("first", False), ("second", True)], "one has given up before another begins"


# -- pods --


class Late:
    """An informer that has not shown anything yet."""

    def get(self, key: str) -> dict[str, Any] | None:
        return None

    def keys(self) -> list[str]:
        return []

    def passed(self, version: str) -> bool:
        return False


def test_pods_that_another_operator_made_first_are_left_as_they_are(world: Pods) -> None:
    world.ask()
    world.later(5)
    made = {pod["metadata"]["name"]: pod["metadata"]["uid"] for pod in world.server.all(PODS)}
    world.executor = KubeExecutor(
        VirtualClient(PlainLink(), world.server), world.desk, Late(), fleet="ours", state=lambda: world.fleet.state,
        seq=lambda: 5,
    )  # fmt: skip
    world.ask()
    world.later(5)
    assert len(made) == 2
    assert {pod["metadata"]["name"]: pod["metadata"]["uid"] for pod in world.server.all(PODS)} == made


# -- what leaves --


def test_nothing_leaves_that_the_archive_would_not_take(loop: VirtualLoop, tmp_path: Path) -> None:
    server = Server(lambda: START)
    (tmp_path / "archive").write_text("no folder")
    io, client = VirtualIO(loop), VirtualClient(PlainLink(), server)
    with KubeStore.open(io, client, tmp_path / "journal", fleet="ours", archive=tmp_path / "archive") as store:  # type: ignore[arg-type]
        for number in range(3):
            with store.write() as tx:
                tx.append(at=START + number, cause="a test", facts=[], decided=True)
        before = sorted(item["metadata"]["name"] for item in server.all(LEDGER_ENTRIES))
        retention = Retention(store, keep=HOUR, worth=0, ticks=loop.time)

        def go_on() -> None:
            for _ in range(20):
                retention.step(START + 2 * HOUR)
                loop.drive(lambda: False, until=loop.time() + 1.0)

        with pytest.raises(StoreRefused) as refusal:
            go_on()
        assert refusal.value.code is Code.ArchiveRefuses
        assert len(before) == 3
        assert sorted(item["metadata"]["name"] for item in server.all(LEDGER_ENTRIES)) == before
