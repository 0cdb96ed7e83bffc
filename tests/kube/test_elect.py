"""Elections on a real API server: one leads, another follows when it goes, and a paused one finds out."""

from collections.abc import Callable, Iterator
from concurrent.futures import Future

import pytest

from tenure.kube.client import Client
from tenure.kube.config import Access, from_kubeconfig
from tenure.kube.elect import Elector
from tenure.kube.loop import IO
from tenure.testing.kube import ControlPlane, until
from tenure.testing.kube.proxy import FaultProxy

PATH = "/apis/coordination.k8s.io/v1/namespaces"
Stand = Callable[..., tuple[Elector, Future[None]]]


@pytest.fixture
def stand(io: IO, plane: ControlPlane, namespace: str) -> Iterator[Stand]:
    """Lets a candidate stand, quick to renew and quick to give others up."""
    clients, works = [], []

    def standing(name: str, access: Access | None = None) -> tuple[Elector, Future[None]]:
        clients.append(client := Client(access or from_kubeconfig(plane.admin), timeout=2.0))
        elector = Elector(client, name, namespace=namespace, duration=1.5, renew=0.1)
        works.append(work := io.start(elector.campaign()))
        return elector, work

    yield standing
    for work in works:
        work.cancel()
    for client in clients:
        io.run(client.close())


def test_one_leads_and_the_others_wait(stand: Stand, plane: ControlPlane, namespace: str) -> None:
    first, _ = stand("first")
    assert first.leading.wait(5)
    second, _ = stand("second")
    until(lambda: second.holder == "first")
    assert not second.leading.wait(2.5), "a leader that renews is not given up"
    spec = plane.api.get(f"{PATH}/{namespace}/leases/tenure-operator").must()["spec"]
    assert (spec["holderIdentity"], spec["leaseTransitions"]) == ("first", 1)


def test_who_steps_down_lets_the_next_in_at_once(stand: Stand) -> None:
    first, work = stand("first")
    assert first.leading.wait(5)
    second, _ = stand("second")
    until(lambda: second.holder == "first")
    work.cancel()
    assert second.leading.wait(1.4)
    assert not first.leading.is_set()


def test_a_leader_that_is_cut_off_gives_up_and_another_follows(stand: Stand, plane: ControlPlane) -> None:
    with FaultProxy.started(plane.admin) as proxy:
        first, work = stand("first", Access(server=proxy.server))
        assert first.leading.wait(5)
        second, _ = stand("second")
        proxy.fail("reset-before", times=10_000)
        assert second.leading.wait(10)
        until(lambda: not first.leading.is_set())
        proxy.heal()
        until(lambda: first.holder == "second")
        assert not first.leading.is_set()
        work.cancel()


def test_of_many_that_begin_at_once_one_leads(stand: Stand) -> None:
    electors = [stand(f"candidate-{number}")[0] for number in range(5)]
    until(lambda: any(one.leading.is_set() for one in electors))
    until(lambda: len({one.holder for one in electors}) == 1)
    assert [one.leading.is_set() for one in electors].count(True) == 1
