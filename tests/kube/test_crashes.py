"""The operator dies at every write of an admission, a completion, a swap, a shrink and a deletion, and the next one
rolls forward: the gang is whole or gone, nothing is charged twice, nothing is left over, and the end is the same.

Death is at a write, before it was sent or after it was applied and before anybody heard of it. The next operator has
the dead one's journal in every other schedule, and none in the others.
"""

import itertools
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from tenure.audit import Auditor
from tenure.facts import encode_entry
from tenure.kube.operator import Options, clock
from tenure.testing.kube import ControlPlane, Kwok, gpu_node, until
from tests.kube.mortal import Moment, MortalClient
from tests.kube.operating import Running, installed
from tests.kube.worlds import FLAVOR, World, budget

Object = dict[str, Any]
_NUMBERS = itertools.count()
WRITES_MAX, PARTS = 60, 3
"""Every write is somebody's last, in one of three parts."""
OPTIONS = Options(hold=0.05)


@pytest.fixture(scope="module")
def cluster(programs: dict[str, Path], tmp_path_factory: pytest.TempPathFactory) -> Iterator[ControlPlane]:
    folder = tmp_path_factory.mktemp("crashes")
    with ControlPlane.started(folder, programs) as plane, Kwok.started(programs["kwok"], plane.admin, folder):
        installed(plane, guarded=True)
        plane.api.create(budget()).must()
        hasty = {"policy.yaml": "activationLead: 1s\nretryBackoff: 100ms\n"}
        meta = {"name": "tenure-policy", "namespace": "tenure-system"}
        plane.api.create({"apiVersion": "v1", "kind": "ConfigMap", "metadata": meta, "data": hasty}).must()
        yield plane


class Stage:
    """What an operation needs before, what it is, and what must be so after it."""

    machines = 3

    def __init__(self, world: World) -> None:
        self.world = world
        labels = {"region": "us-west", "cluster": "gpu-a", "fabric.domain": world.namespace, "gpu.flavor": FLAVOR}
        self.nodes = [f"{world.namespace}-n{index}" for index in range(self.machines)]
        world.api.create_all([gpu_node(name, 8, labels) for name in self.nodes])

    def submit(self, gpus: int = 16, **rest: Any) -> None:
        where = {"selector": {"fabric.domain": self.world.namespace}, **rest.pop("locality", {})}
        self.world.submit("train", gpus, locality=where, **rest)

    def is_running(self, pods: int = 2) -> bool:
        world = self.world
        return (
            world.phase("train") == "Running"
            and [pod["status"]["phase"] for pod in world.pods("train")] == ["Running"] * pods
            and sum(len(one["spec"]["slice"]["gpus"]) for one in _active(world)) == 8 * pods
        )


def _active(world: World) -> list[Object]:
    return [one for one in world.open_leases("train") if one["spec"]["slice"]["role"] == "Active"]


class Admission(Stage):
    def before(self) -> None: ...

    def do(self) -> None:
        self.submit()

    def is_done(self) -> bool:
        return self.is_running()


class Completion(Stage):
    def before(self) -> None:
        self.submit()
        until(self.is_running)

    def do(self) -> None:
        for pod in self.world.pods("train"):
            self.world.note(pod["metadata"]["name"], exit_code="0")

    def is_done(self) -> bool:
        world = self.world
        return (
            world.phase("train") == "Completed"
            and world.closures("train") == ["Completed"]
            and not world.open_leases("train")
            and not world.pods("train")
        )


class Swap(Stage):
    def before(self) -> None:
        self.submit(locality={"groupGPUs": 16}, sparesPerGroup=8)
        until(self.is_running)

    def do(self) -> None:
        taint = {"key": "node.kubernetes.io/out-of-service", "value": "nodeshutdown", "effect": "NoExecute"}
        self.victim = self.world.pods("train")[0]["spec"]["nodeName"]
        self.world.api.patch(f"/api/v1/nodes/{self.victim}", {"spec": {"taints": [taint]}}).must()

    def is_done(self) -> bool:
        world = self.world
        rest = set(self.nodes) - {self.victim}
        return (
            self.is_running()
            and {pod["spec"]["nodeName"] for pod in world.pods("train")} == rest
            and world.closures("train") == ["NodeFailure", "Swap"]
            and len(world.open_leases("train")) == 2
        )


class Shrink(Stage):
    def before(self) -> None:
        self.submit(locality={"groupGPUs": 8}, malleable={"minTotalGPUs": 8, "maxTotalGPUs": 16, "stepGPUs": 8})
        until(self.is_running)

    def do(self) -> None:
        change = {"spec": {"malleable": {"desiredTotalGPUs": 8}}}
        self.world.api.patch(self.world.path("runs", "train"), change).must()

    def is_done(self) -> bool:
        return self.is_running(pods=1) and self.world.closures("train") == ["Shrink"]


class Deletion(Stage):
    def before(self) -> None:
        self.submit()
        until(self.is_running)

    def do(self) -> None:
        self.world.delete("runs", "train")

    def is_done(self) -> bool:
        world = self.world
        return (
            world.phase("train") == "Gone"
            and world.closures("train") == ["Canceled"]
            and not world.open_leases("train")
            and not world.pods("train")
        )


class Resolution(Stage):
    """Somebody's start has come, nothing is free, and the lot falls on the only run there is."""

    machines = 1

    def before(self) -> None:
        where = {"selector": {"fabric.domain": self.world.namespace}}
        self.world.submit("unlucky", 8, locality=where)
        until(lambda: self.world.phase("unlucky") == "Running")

    def do(self) -> None:
        self.submit(8)

    def is_done(self) -> bool:
        world = self.world
        return (
            self.is_running(pods=1)
            and world.phase("unlucky") == "Failed"
            and [reason.partition("(")[0] for reason in world.closures("unlucky")] == ["RandomPreempt"]
            and not world.open_leases("unlucky")
            and not world.pods("unlucky")
            and [one["status"]["state"] for one in world.items("reservations", "train")] == ["Released"]
            and bool(world.items("reservations", "train")[0]["status"]["resolution"]["result"])
        )


class Theatre:
    """Operators one after the other on one cluster, with journals in one folder."""

    def __init__(self, plane: ControlPlane, folder: Path) -> None:
        self.plane, self.folder = plane, folder
        self.current: Running | None = None
        """The heir of the last schedule, who is the next one's victim."""
        self.config = plane.service_account("tenure-system", "tenure-operator")

    def operator(self) -> Running:
        running = Running(self.config, self.folder / "journal", OPTIONS, make=MortalClient)
        until(lambda: running.operator.ready or running.failed)
        assert running.failed is None, running.failed
        return running

    def play(self, stage: Callable[[World], Stage], last: int, moment: Moment, *, forget: bool) -> bool:
        """One schedule; False if the operation had fewer writes than that."""
        act = stage(World.made(self.plane, f"c{next(_NUMBERS)}"))
        victim, self.current = self.current or self.operator(), None
        act.before()
        victim.settled()
        victim.client.arm(last, moment)
        act.do()
        until(lambda: victim.client.dead.is_set() or (act.is_done() and victim.operator.desk.idle))
        died = victim.client.dead.is_set()
        victim.bury()
        if forget:
            shutil.rmtree(self.folder / "journal")
        heir = self.current = self.operator()
        until(act.is_done)
        heir.settled()
        self.check(heir, act)
        self.clean(act.world)
        return died

    def close(self) -> None:
        if self.current is not None:
            self.current.stop()

    def check(self, heir: Running, act: Stage) -> None:
        assert act.is_done()
        assert not heir.troubles, heir.troubles
        auditor = Auditor()
        entries = list(heir.store.entries())
        found = [violation for entry in entries for violation in auditor.feed_raw(encode_entry(entry))]
        found += auditor.check(clock(), settled=True)
        assert not found, "\n".join(map(str, found))
        written = {lease["metadata"]["name"] for lease in act.world.leases()}
        decided = {lease.name for lease, _, _ in heir.store.lease_history() if lease.namespace == act.world.namespace}
        assert written == decided
        calls = heir.client.calls
        heir.settled()
        assert heir.client.calls - calls <= 20, "a settled world is written no more"

    def clean(self, world: World) -> None:
        for one in world.items("runs"):
            world.delete("runs", one["metadata"]["name"])
        until(lambda: not world.items("runs"))
        for node in world.api.get("/api/v1/nodes").must()["items"]:
            if node["metadata"]["name"].startswith(f"{world.namespace}-"):
                world.api.delete(f"/api/v1/nodes/{node['metadata']['name']}").must()


STAGES = {
    "admission": Admission,
    "completion": Completion,
    "swap": Swap,
    "shrink": Shrink,
    "deletion": Deletion,
}
HASTY = {**STAGES, "resolution": Resolution}
"""With those that need a policy without patience."""


@pytest.mark.parametrize("first", range(1, PARTS + 1))
@pytest.mark.parametrize("moment", ["before", "after"])
@pytest.mark.parametrize("name", HASTY)
def test_the_next_operator_rolls_forward_whenever_the_last_one_died(
    name: str,
    moment: Moment,
    first: int,
    cluster: ControlPlane,
    tmp_path: Path,
    record_testsuite_property: Callable[[str, object], None],
) -> None:
    theatre = Theatre(cluster, tmp_path)
    deaths = 0
    try:
        for last in range(first, WRITES_MAX, PARTS):
            if not theatre.play(HASTY[name], last, moment, forget=bool(last % 2)):
                break
            deaths += 1
    finally:
        theatre.close()
    record_testsuite_property(f"schedules of {name}, {moment}, part {first}", deaths)
    assert deaths >= 2, "an operation has more writes than that"
