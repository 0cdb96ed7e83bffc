"""Elections on a real API server: one leads, another follows when it goes, and a paused one finds out."""

import time
from collections.abc import Callable, Iterator
from concurrent.futures import Future
from typing import Any

import pytest

from tenure.kube.client import Client
from tenure.kube.config import Access, from_kubeconfig
from tenure.kube.elect import Elector
from tenure.kube.loop import IO
from tenure.kube.resources import CONFIG_MAPS
from tenure.testing.kube import ControlPlane, until
from tenure.testing.kube.proxy import FaultProxy
from tenure.testing.kube.waiting import PATIENCE

PATH = "/apis/coordination.k8s.io/v1/namespaces"
Stand = Callable[..., tuple[Elector, Future[None]]]


@pytest.fixture
def stand(io: IO, plane: ControlPlane, namespace: str) -> Iterator[Stand]:
    """Lets a candidate stand, quick to renew; it gives others up who have not renewed for ``duration`` seconds."""
    clients, works = [], []

    def standing(
        name: str, access: Access | None = None, *, duration: float, renew: float = 0.1, **rest: Any
    ) -> tuple[Elector, Future[None]]:
        clients.append(client := Client(access or from_kubeconfig(plane.admin), timeout=duration))
        elector = Elector(client, name, namespace=namespace, duration=duration, renew=renew, **rest)
        works.append(work := io.start(elector.campaign()))
        return elector, work

    yield standing
    for work in works:
        work.cancel()
    for client in clients:
        io.run(client.close())


def test_one_leads_and_the_others_wait(stand: Stand, plane: ControlPlane, namespace: str) -> None:
    """By the clock of who waits: most of the duration passes each time that it has seen a renewal."""
    duration, waited = 2 * PATIENCE, 0.0
    first, _ = stand("first", duration=duration)
    assert first.leading.wait(PATIENCE)
    second, _ = stand("second", duration=duration, clock=lambda: waited)
    until(lambda: second.holder == "first")

    def has_looked() -> bool:
        return second.leading.is_set() or second._seen[2] == waited

    for _ in range(5):
        waited += 0.9 * duration
        until(has_looked)
    assert not second.leading.is_set(), "a leader that renews is not given up"
    spec = plane.api.get(f"{PATH}/{namespace}/leases/tenure-operator").must()["spec"]
    assert (spec["holderIdentity"], spec["leaseTransitions"]) == ("first", 1)


def test_who_steps_down_lets_the_next_in_at_once(stand: Stand) -> None:
    first, work = stand("first", duration=2 * PATIENCE)
    assert first.leading.wait(PATIENCE)
    second, _ = stand("second", duration=2 * PATIENCE)
    until(lambda: second.holder == "first")
    work.cancel()
    assert second.leading.wait(PATIENCE), "long before it would have been given up"
    assert not first.leading.is_set()


def test_who_steps_down_while_the_record_changes_lets_the_next_in_at_once(stand: Stand, plane: ControlPlane) -> None:
    with FaultProxy.started(plane.admin) as proxy:
        first, work = stand("first", Access(server=proxy.server), duration=3 * PATIENCE, renew=PATIENCE)
        assert first.leading.wait(PATIENCE)
        second, _ = stand("second", duration=3 * PATIENCE)
        until(lambda: second.holder == "first")
        fault = proxy.fail("conflict", method="PUT", times=2)  # as after a renewal that was given up half way
        work.cancel()
        assert second.leading.wait(PATIENCE), "long before it would have been given up"
        assert fault.hits == 2


def test_when_a_resignation_returns_the_next_may_come_in(
    io: IO, stand: Stand, plane: ControlPlane, namespace: str
) -> None:
    first, _ = stand("first", duration=2 * PATIENCE)
    assert first.leading.wait(PATIENCE)
    io.run(first.resign())
    assert not first.leading.is_set()
    assert plane.api.get(f"{PATH}/{namespace}/leases/tenure-operator").must()["spec"]["holderIdentity"] == ""
    io.run(first.resign())  # who has left already may say so


def test_a_resignation_does_not_wait_long_for_a_server_that_is_away(io: IO, stand: Stand, plane: ControlPlane) -> None:
    duration = 15.0
    with FaultProxy.started(plane.admin) as proxy:
        first, _ = stand("first", Access(server=proxy.server), duration=duration)
        assert first.leading.wait(PATIENCE)
        proxy.fail("hold", times=10_000)
        began = time.monotonic()
        io.run(first.resign())
        assert time.monotonic() - began < duration, "after as long as that others come in by themselves"
        assert not first.leading.is_set()
        proxy.heal()


def test_regression_who_stands_does_not_queue_behind_what_its_client_has_under_way(
    io: IO, plane: ControlPlane, namespace: str, connect: Callable[..., Client]
) -> None:
    """Retention deletes by the hundred: a renewal that waited for all that was given up, and the leader with it."""
    with FaultProxy.started(plane.admin) as proxy:
        client = connect(Access(server=proxy.server), in_flight=1, timeout=2 * PATIENCE)
        held = proxy.fail("hold", path="/configmaps/")
        other = io.start(client.get(CONFIG_MAPS, "another", namespace))
        until(lambda: held.hits == 1)
        elector = Elector(client, "first", namespace=namespace, duration=6.0, renew=0.1)
        io.start(elector.campaign())
        assert elector.leading.wait(PATIENCE)
        io.run(elector.resign())
        assert not other.done()
        proxy.heal()
        until(other.done)


def test_a_leader_that_is_cut_off_gives_up_and_another_follows(stand: Stand, plane: ControlPlane) -> None:
    with FaultProxy.started(plane.admin) as proxy:
        first, work = stand("first", Access(server=proxy.server), duration=4.0)
        assert first.leading.wait(PATIENCE)
        second, _ = stand("second", duration=4.0)
        proxy.fail("reset-before", times=10_000)
        assert second.leading.wait(PATIENCE)
        until(lambda: not first.leading.is_set())
        proxy.heal()
        until(lambda: first.holder == "second")
        assert not first.leading.is_set()
        work.cancel()


def test_of_many_that_begin_at_once_one_leads(stand: Stand) -> None:
    electors = [stand(f"candidate-{number}", duration=2 * PATIENCE)[0] for number in range(5)]
    until(lambda: any(one.leading.is_set() for one in electors))
    until(lambda: len({one.holder for one in electors}) == 1)
    assert [one.leading.is_set() for one in electors].count(True) == 1
