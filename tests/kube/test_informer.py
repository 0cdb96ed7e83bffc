"""Informers on a real API server: whatever goes wrong, the copy ends up right, and every change is told."""

import asyncio
import time
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from tenure.kube.client import Client
from tenure.kube.config import Access, from_kubeconfig
from tenure.kube.informer import Changes, Informer, Informers
from tenure.kube.loop import IO
from tenure.kube.resources import CONFIG_MAPS, NAMESPACES
from tenure.testing.kube import ControlPlane, until
from tenure.testing.kube.proxy import FaultProxy
from tenure.testing.kube.waiting import PATIENCE

MAPS = "/configmaps"


@pytest.fixture
def proxy(plane: ControlPlane) -> Iterator[FaultProxy]:
    with FaultProxy.started(plane.admin) as proxy:
        yield proxy


class World:
    """Config maps of one namespace, the copy of them, and what was told of them."""

    def __init__(self, io: IO, plane: ControlPlane, namespace: str, server: str, **how: Any) -> None:
        self.io, self.plane, self.namespace = io, plane, namespace
        self.changes = Changes()
        self.client = Client(Access(server=server), timeout=3.0)
        self.copy = Informer(
            self.client, CONFIG_MAPS, self.changes, namespace=namespace, **{"watch_seconds": 2, "silence": 0.5, **how}
        )
        self.all = Informers(io, [self.copy])

    def path(self, name: str) -> str:
        return f"/api/v1/namespaces/{self.namespace}/configmaps/{name}"

    def put(self, name: str, value: str) -> None:
        item = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": name, "namespace": self.namespace}}
        self.plane.api.apply({**item, "data": {"x": value}}).must()

    def delete(self, name: str) -> None:
        self.plane.api.delete(self.path(name)).must()

    def really(self) -> dict[str, str]:
        items = self.plane.api.get(self.path("")).must()["items"]
        return {item["metadata"]["name"]: item["data"]["x"] for item in items}

    def seen(self) -> dict[str, str]:
        return {item["metadata"]["name"]: item["data"]["x"] for item in self.copy.values()}

    def settle(self) -> list[str]:
        """Wait until the copy is right; what was told meanwhile."""
        until(lambda: self.seen() == self.really())
        self.io.run(asyncio.sleep(0))  # the loop tells of a change after the copy shows it
        return [key.split("/")[1] for key in self.changes.take().get(CONFIG_MAPS, [])]


@pytest.fixture
def world(io: IO, plane: ControlPlane, namespace: str, proxy: FaultProxy) -> Iterator[World]:
    world = World(io, plane, namespace, proxy.server)
    world.put("a", "1")
    world.put("b", "1")
    world.all.start()
    assert world.all.wait(PATIENCE) == []
    world.settle()
    yield world
    world.all.stop()
    io.run(world.client.close())


def test_it_begins_with_all_and_hears_of_everything(
    io: IO, plane: ControlPlane, namespace: str, proxy: FaultProxy
) -> None:
    world = World(io, plane, namespace, proxy.server)
    world.put("a", "1")
    assert not world.copy.synced.is_set()
    world.all.start()
    assert world.settle() == ["a"]
    assert world.copy.get(f"{namespace}/a")["data"] == {"x": "1"}  # type: ignore[index]  # it is there
    assert "managedFields" not in world.copy.values()[0]["metadata"]
    world.put("b", "1")
    assert world.settle() == ["b"]
    world.put("a", "2")
    assert world.settle() == ["a"]
    world.delete("a")
    assert world.settle() == ["a"]
    assert (world.copy.get(f"{namespace}/a"), len(world.copy), world.copy.keys()) == (None, 1, [f"{namespace}/b"])
    world.all.stop()
    io.run(world.client.close())


def test_a_watch_that_ends_in_time_is_resumed_without_a_list(world: World, proxy: FaultProxy) -> None:
    watches = len(proxy.log)
    until(lambda: len(proxy.log) >= watches + 2)
    world.put("a", "2")
    assert world.settle() == ["a"]
    assert (world.copy.lists, world.copy.failures) == (1, 0)


@pytest.mark.parametrize("kind", ["drop", "silent"])
def test_a_watch_that_breaks_or_falls_silent_loses_nothing(world: World, proxy: FaultProxy, kind: str) -> None:
    proxy.fail(kind, path=MAPS, times=3)
    until(lambda: proxy.log[-1].fault == kind)
    world.put("c", "1")
    world.put("a", "2")
    world.delete("b")
    assert sorted(world.settle()) == ["a", "b", "c"]
    assert world.copy.lists == 1, "it was resumed, not listed again"


def test_a_watch_that_expired_is_replaced_by_a_list(world: World, proxy: FaultProxy) -> None:
    proxy.fail("drop", path=MAPS)  # while it is away things change
    proxy.fail("expire", path=MAPS, skip=1)
    world.put("c", "1")
    world.put("a", "2")
    world.delete("b")
    assert sorted(world.settle()) == ["a", "b", "c"]
    until(lambda: world.copy.lists == 2)
    assert world.seen() == world.really()


def test_a_server_whose_watches_expire_at_once_is_asked_ever_more_slowly(world: World, proxy: FaultProxy) -> None:
    """Lists work and no watch does: everything is read again and again, but not as fast as the server answers."""
    fault, failures = proxy.fail("expire", path=MAPS, times=4), []
    until(lambda: failures.append(world.copy.failures) or fault.hits == 4, every=0.001)
    assert max(failures) >= 2, "a list that succeeds is no end of the trouble"
    until(lambda: world.copy.failures == 0)
    world.put("c", "1")
    assert world.settle() == ["c"]


@pytest.mark.parametrize("kind", ["error", "throttle", "reset-before", "reset-after", "error-after"])
def test_a_list_that_fails_is_asked_again(world: World, proxy: FaultProxy, kind: str) -> None:
    fault = proxy.fail(kind, method="GET", path=f"{MAPS}?limit", times=7)
    proxy.fail("expire", path=MAPS)
    until(lambda: world.copy.lists == 2)
    world.put("c", "1")
    assert world.settle() == ["c"]
    assert fault.hits == 7


def test_a_stale_list_does_not_turn_back_time(world: World, proxy: FaultProxy) -> None:
    world.put("a", "2")
    world.delete("b")
    world.settle()
    stale = proxy.fail("stale", method="GET", path=f"{MAPS}?limit", times=2)
    proxy.fail("expire", path=MAPS)
    until(lambda: world.copy.lists == 4)
    assert stale.hits == 2
    assert world.settle() == [], "nothing old was believed, so nothing seemed to change"
    assert world.seen() == {"a": "2"}


def test_a_list_that_insists_on_the_past_is_believed(world: World, proxy: FaultProxy) -> None:
    """etcd was set back: then the past is the present, and whoever waits for the future waits for ever."""
    world.put("a", "2")
    world.settle()
    stale = proxy.fail("stale", method="GET", path=f"{MAPS}?limit", times=6)
    proxy.fail("expire", path=MAPS)
    until(lambda: stale.hits == 6 and world.changes.wait(0))
    assert world.settle() == ["a"], "it went back to 1, and then the present was heard of again"


def test_a_server_that_was_restarted_is_followed_again(io: IO, new_plane: Callable[[], ControlPlane]) -> None:
    """Its watch cache begins anew, so what was seen before is too old to resume from: a real 410."""
    plane = new_plane()
    namespace = plane.namespace("restarted")
    changes = Changes()
    client = Client(from_kubeconfig(plane.admin), timeout=5.0)
    maps = Informer(client, CONFIG_MAPS, changes, namespace=namespace, watch_seconds=3)
    others = Informer(client, NAMESPACES, changes, watch_seconds=3)
    both = Informers(io, [maps, others])
    both.start()
    assert both.wait(PATIENCE) == []
    plane.apiserver.stop()
    silent = time.monotonic()
    until(lambda: maps.failures > 0)
    plane.restart_server()
    world = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "new", "namespace": namespace}}
    until(lambda: plane.api.create(world).status in (201, 409))
    until(lambda: maps.get(f"{namespace}/new"))
    until(lambda: both.silent_seconds() < time.monotonic() - silent)
    until(lambda: maps.failures == 0)
    both.stop()
    io.run(client.close())


def test_progress_stands_still_while_the_server_says_nothing(world: World, proxy: FaultProxy) -> None:
    until(lambda: world.all.silent_seconds() < 1.0)
    proxy.fail("silent", path=MAPS, times=1000)
    proxy.fail("reset-before", method="GET", path=MAPS, times=1000)
    until(lambda: world.all.silent_seconds() > 3.0)
    proxy.heal()
    until(lambda: world.all.silent_seconds() < 1.0)


def test_what_is_trimmed_off_wakes_nobody_up(io: IO, plane: ControlPlane, namespace: str, proxy: FaultProxy) -> None:
    def names(item: dict[str, Any]) -> dict[str, Any] | None:
        name = item["metadata"]["name"]
        return None if name == "hidden" else {"metadata": {"name": name, "namespace": namespace}, "data": {"x": "-"}}

    world = World(io, plane, namespace, proxy.server, keep=names)
    world.all.start()
    assert world.all.wait(PATIENCE) == []
    for name in ("a", "hidden", "b"):
        world.put(name, "1")
    world.put("a", "2")
    world.put("last", "1")
    until(lambda: len(world.copy) == 3)
    io.run(asyncio.sleep(0))
    assert world.changes.take() == {CONFIG_MAPS: [f"{namespace}/{name}" for name in ("a", "b", "last")]}
    world.all.stop()
    io.run(world.client.close())


def test_a_bug_of_the_reader_is_no_reason_to_grow_old(
    io: IO, plane: ControlPlane, namespace: str, proxy: FaultProxy
) -> None:
    broken = [True]

    def keep(item: dict[str, Any]) -> dict[str, Any]:
        if broken:
            broken.pop()
            raise KeyError("a bug")
        return item

    world = World(io, plane, namespace, proxy.server, keep=keep)
    world.put("a", "1")
    world.all.start()
    assert world.settle() == ["a"]
    world.all.stop()
    io.run(world.client.close())


def test_regression_a_server_that_was_away_for_hours_is_followed_again(
    io: IO, plane: ControlPlane, namespace: str, proxy: FaultProxy, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The pause doubled without bound: after 1,024 failures in a row it was no number any more, and the task ended."""
    monkeypatch.setattr("tenure.kube.informer._BACKOFF_SECONDS", (0.1, 0.1))
    world = World(io, plane, namespace, proxy.server)
    world.put("a", "1")
    world.copy.failures = 2000
    away = proxy.fail("conflict", method="GET", path=MAPS, times=3)
    world.all.start()
    assert world.settle() == ["a"]
    assert away.hits == 3
    world.all.stop()
    io.run(world.client.close())


def test_who_waits_for_changes_is_woken() -> None:
    changes = Changes()
    assert not changes.wait(0.01)
    changes.add(CONFIG_MAPS, ["a", "b"])
    changes.add(CONFIG_MAPS, ["a"])
    changes.add(NAMESPACES, [])
    assert changes.wait(0)
    assert changes.take() == {CONFIG_MAPS: ["a", "b"]}
    assert changes.take() == {}
