"""The suite that every executor passes (tests/contract), with the pods of a real API server and KWOK for kubelets.

What a pod's work does is told to KWOK by the pod's annotations, which it has from its template; nothing else here has
a say in what becomes of it.
"""

from collections.abc import Callable, Iterator
from contextlib import ExitStack
from typing import Any

import msgspec
import pytest

from tenure.api import crd
from tenure.api.meta import API_VERSION
from tenure.engine import Apply, State
from tenure.kube.client import Client
from tenure.kube.config import Access, from_kubeconfig
from tenure.kube.desk import Desk
from tenure.kube.informer import Informer, Informers
from tenure.kube.loop import IO
from tenure.kube.pods import KubeExecutor
from tenure.kube.resources import PODS, RUNS
from tenure.kube.watching import Bell, keep_pod
from tenure.shell.executor import PodReport
from tenure.testing import Fleet, budget, nodes, run
from tenure.testing.builders import TEMPLATE
from tenure.testing.kube import EXIT_CODE, ControlPlane, Kwok, gpu_node, until
from tenure.testing.kube.waiting import PATIENCE
from tests.contract.test_executor import *  # noqa: F403 -- all of it, so that a test added there is run here, too
from tests.contract.test_executor import SCRIPTS, Rig, Work

FLEET = "contract"
ENDS: dict[Work, dict[str, str]] = {"endless": {}, "succeeds": {EXIT_CODE: "0"}, "fails": {EXIT_CODE: "3"}}
_PATIENCE = 1.0


class Eyes:
    """An executor of its own process: its own informer, its own desk."""

    def __init__(self, io: IO, client: Client, namespace: str, state: Callable[[], State], *, bind: bool) -> None:
        self.bell = Bell()
        self.cache = cache = Informer(client, PODS, self.bell, namespace=namespace, keep=keep_pod)
        self.informers = Informers(io, [cache])
        self.informers.start()
        assert not self.informers.wait(PATIENCE)
        self.desk = Desk(io)
        self.executor = KubeExecutor(
            client, self.desk, cache, fleet=FLEET, state=state, seq=lambda: 1, bind=bind, changed=self.bell.ring
        )
        self.desk.changed = self.bell.ring

    def relist(self) -> None:
        """Go on after a pause that no watch can be resumed after."""
        self.cache._version = ""
        self.informers.start()

    def close(self) -> None:
        self.desk.close()
        self.informers.stop()


class KubeRig(Rig):
    """Pods of one namespace. They belong to Runs that are there: what belongs to nobody is collected as garbage."""

    executor: KubeExecutor

    def __init__(self, make: Callable[[], Eyes], namespace: str, node: str, *, told: bool) -> None:
        self.namespace, self.node = namespace, node
        self._make, self._opened = make, ExitStack()
        super().__init__(self._open, told=told)

    def _open(self) -> KubeExecutor:
        self._opened.close()  # the one before died
        self.eyes = self._make()
        self._opened.callback(self.eyes.close)
        return self.eyes.executor

    def manifest(self, work: Work) -> dict[str, Any]:
        container = {"name": "main", "image": "busybox", "command": ["sh", "-c", SCRIPTS[work]]}
        return {
            "metadata": {"annotations": ENDS[work]},
            "spec": {"nodeName": self.node, "containers": [container], "terminationGracePeriodSeconds": 1},
        }

    def ask(self) -> list[PodReport]:
        self.executor.saw(self.eyes.bell.take().get(PODS, ()))
        return super().ask()

    def pause(self) -> None:
        """It is rung for when there is news; until a pod that hangs is given up it would wait for minutes."""
        self.eyes.bell.await_ring(_PATIENCE)

    def close(self) -> None:
        super().close()
        self._opened.close()


@pytest.fixture(scope="module")
def machine(plane: ControlPlane, kwok: Kwok) -> Iterator[str]:
    """A machine, in a cluster that knows Runs."""
    plane.ensure(crd.manifest("Run"))
    until(lambda: plane.api.get(RUNS.path()).ok)
    plane.api.create(gpu_node("executor-tests")).must()
    yield "executor-tests"
    plane.api.delete("/api/v1/nodes/executor-tests").must()


@pytest.fixture
def state(plane: ControlPlane, namespace: str, machine: str) -> State:
    """What an engine knows of a run for each kind of work, with the identity that the API server gave it."""
    fleet = Fleet(*nodes("m", len(SCRIPTS)), budget("rai"))
    for work in SCRIPTS:
        spec = {"owner": "org:rai", "resources": {"gpuType": "H100-80GB", "totalGPUs": 2}, "template": TEMPLATE}
        meta = {"name": work, "namespace": namespace}
        made = plane.api.create({"apiVersion": API_VERSION, "kind": "Run", "metadata": meta, "spec": spec}).must()
        known = run(work, 2, owner="org:rai", namespace=namespace)
        metadata = msgspec.structs.replace(known.metadata, uid=made["metadata"]["uid"])
        outcome = fleet.handle(Apply((msgspec.structs.replace(known, metadata=metadata),), named=True))
        assert not outcome.refused
    return fleet.state


@pytest.fixture(params=["kube", "kube, told", "kube, bound by Binding"])
def rig(
    request: pytest.FixtureRequest, plane: ControlPlane, machine: str, namespace: str, state: State, io: IO,
    connect: Callable[[Access], Client],
) -> Iterator[Rig]:  # fmt: skip
    """Instead of the suite's own, which makes the other executors."""
    client, bind = connect(from_kubeconfig(plane.admin)), request.param.endswith("Binding")
    rig = KubeRig(
        lambda: Eyes(io, client, namespace, lambda: state, bind=bind), namespace, machine, told=request.param != "kube"
    )
    yield rig
    rig.close()


def test_pods_are_what_the_api_server_shows(rig: KubeRig, plane: ControlPlane) -> None:
    """The suite above is about this server: what it reported started is there, runs, and on its node."""
    rig.place("a", "endless")
    rig.until("a", "Bound")
    found = plane.api.get(PODS.path(rig.namespace, "a")).must()
    assert (found["spec"]["nodeName"], found["status"]["phase"]) == (rig.node, "Running")
    rig.stop("a")
    rig.until("a", "Gone")
    assert plane.api.get(PODS.path(rig.namespace, "a")).status == 404


def test_regression_a_pod_that_came_and_went_while_nothing_was_watched_is_gone(
    rig: KubeRig, plane: ControlPlane
) -> None:
    """A watch had expired when it was made, and the list that came next was of after its end: nobody ever told of it,
    it counted as there for ever, and so did its GPUs."""
    path = PODS.path(rig.namespace, "a")
    rig.eyes.informers.stop()
    rig.place("a", "endless")
    until(lambda: rig.ask() or plane.api.get(path).ok)
    until(lambda: rig.eyes.desk.idle)
    plane.api.delete(path).must()  # by somebody else: our own delete, sent twice, would hear that there is nothing
    until(lambda: plane.api.get(path).status == 404)
    assert rig.ask() == []  # nobody has told
    rig.eyes.relist()
    rig.until("a", "Gone")
