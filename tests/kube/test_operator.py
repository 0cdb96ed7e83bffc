"""A cluster from one end to the other: objects in, a gang running, its books right, and everything that goes wrong.

A real API server with RBAC and the admission policies on; the operator calls as its own service account. KWOK plays the
kubelets. Each test has a namespace and machines of its own, in a domain of its own.
"""

import itertools
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tenure.kube.marks import FINALIZER
from tenure.testing.kube import REJECTED, RUNS_FOR, STUCK, ControlPlane, Kwok, gpu_node, until
from tests.kube.operating import Running, installed, operating
from tests.kube.worlds import FLAVOR, World, budget

Object = dict[str, Any]
_NUMBERS = itertools.count()


@pytest.fixture(scope="module")
def cluster(programs: dict[str, Path], tmp_path_factory: pytest.TempPathFactory) -> Iterator[ControlPlane]:
    """A cluster of this module's own, with Tenure installed: there is one ledger in a cluster."""
    folder = tmp_path_factory.mktemp("operator")
    with ControlPlane.started(folder, programs) as plane, Kwok.started(programs["kwok"], plane.admin, folder):
        installed(plane, guarded=True)
        plane.api.create(budget()).must()
        yield plane


@pytest.fixture(scope="module")
def running(cluster: ControlPlane, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Running]:
    config = cluster.service_account("tenure-system", "tenure-operator")
    with operating(config, tmp_path_factory.mktemp("journal")) as running:
        yield running


@pytest.fixture
def world(cluster: ControlPlane, running: Running) -> World:
    number = next(_NUMBERS)
    world = World.made(cluster, f"w{number}")
    yield world
    for one in world.items("runs"):
        world.delete("runs", one["metadata"]["name"])
    until(lambda: not world.items("runs"))


def machines(world: World, count: int, gpus: int = 8, **status: Any) -> list[str]:
    """Machines that only this world's runs select."""
    labels = {"region": "us-west", "cluster": "gpu-a", "fabric.domain": world.namespace, "gpu.flavor": FLAVOR}
    names = [f"{world.namespace}-n{index}" for index in range(count)]
    world.api.create_all([gpu_node(name, gpus, labels, **status) for name in names])
    return names


def here(world: World, **rest: Any) -> Object:
    return {"locality": {"selector": {"fabric.domain": world.namespace}, **rest}}


def test_a_run_is_admitted_runs_and_completes(world: World) -> None:
    machines(world, 2)
    world.submit("train", 16, **here(world))
    run = world.is_phase("train", "Running")
    until(lambda: len(world.leases("train")) == 2)
    pods, leases = world.pods("train"), world.leases("train")
    assert [pod["status"]["phase"] for pod in pods] == ["Running", "Running"]
    assert {pod["spec"]["nodeName"] for pod in pods} == {f"{world.namespace}-n0", f"{world.namespace}-n1"}
    assert len(leases) == 2
    assert {lease["spec"]["runRef"]["uid"] for lease in leases} == {run["metadata"]["uid"]}
    until(lambda: FINALIZER in world.run("train")["metadata"].get("finalizers", []))
    assert world.condition("train", "Running")["status"] == "True"
    done = world.plane.kubectl("wait", "--for=condition=Running", "run/train", "-n", world.namespace, "--timeout=120s")
    assert "condition met" in done.stdout
    for pod in pods:
        world.note(pod["metadata"]["name"], exit_code="0")
    world.is_phase("train", "Completed")
    until(lambda: world.closures("train") == ["Completed"] and not world.open_leases("train"))
    until(lambda: not world.pods("train"))


def test_pods_find_one_another_and_the_books_own_nothing(world: World) -> None:
    machines(world, 2)
    world.submit("train", 16, **here(world))
    run = world.is_phase("train", "Running")
    for rank, pod in enumerate(world.pods("train")):
        env = {one["name"]: one.get("value") for one in pod["spec"]["containers"][0]["env"]}
        assert env["MASTER_ADDR"] == f"rank-0.run-train.{world.namespace}.svc"
        assert (env["WORLD_SIZE"], env["NNODES"], env["NODE_RANK"]) == ("16", "2", str(rank))
        assert "CUDA_VISIBLE_DEVICES" not in env
        assert pod["spec"]["hostname"] == f"rank-{rank}"
        assert pod["spec"]["subdomain"] == "run-train"
        assert pod["metadata"]["ownerReferences"][0]["uid"] == run["metadata"]["uid"]
        assert pod["spec"]["containers"][0]["resources"]["limits"]["nvidia.com/gpu"] == "8"
        assert any(one["key"] == "rq.davidlangworthy.io/managed" for one in pod["spec"]["tolerations"])
    (service,) = until(lambda: world.items("services", "train"))
    assert service["spec"]["clusterIP"] == "None"
    assert not [lease for lease in world.leases("train") if lease["metadata"].get("ownerReferences")]


def test_deleting_a_run_closes_its_leases_before_it_goes(world: World) -> None:
    machines(world, 1)
    world.submit("train", 8, **here(world), notes={STUCK: ""})
    world.is_phase("train", "Running")
    world.delete("runs", "train")
    until(lambda: all(pod["metadata"].get("deletionTimestamp") for pod in world.pods("train")))
    time.sleep(0.5)
    assert world.phase("train") == "Running"  # its pod is still there, so its lease is open
    assert world.open_leases("train")
    (pod,) = world.pods("train")
    world.delete("pods", pod["metadata"]["name"], grace=0)
    world.is_phase("train", "Gone")
    assert world.closures("train") == ["Canceled"]  # the books first, then the run
    assert not world.open_leases("train")


def test_a_run_is_deleted_while_it_waits(world: World) -> None:
    machines(world, 1)
    world.submit("wide", 16, **here(world))
    until(lambda: world.condition("wide", "Admitted").get("status") == "False")
    world.delete("runs", "wide")
    world.is_phase("wide", "Gone")
    assert not world.leases("wide")


def test_a_pod_deleted_by_hand_is_a_failure_of_the_run(world: World) -> None:
    machines(world, 2)
    world.submit("train", 16, **here(world))
    world.is_phase("train", "Running")
    world.delete("pods", world.pods("train")[0]["metadata"]["name"])
    world.is_phase("train", "Failed")
    until(lambda: world.closures("train") == ["Fail"] and not world.open_leases("train"))
    until(lambda: not world.pods("train"))


def test_a_workload_that_fails_is_started_again_as_often_as_it_may(world: World) -> None:
    machines(world, 1)
    world.submit("train", 8, **here(world), runtime={"maxRestarts": 1})
    world.is_phase("train", "Running")
    (first,) = world.pods("train")
    world.note(first["metadata"]["name"], exit_code="3")
    until(lambda: [pod["metadata"]["name"] for pod in world.pods("train")] not in ([], [first["metadata"]["name"]]))
    until(lambda: world.run("train")["status"]["restarts"] == 1 and world.phase("train") == "Running")
    (second,) = world.pods("train")
    world.note(second["metadata"]["name"], exit_code="3")
    world.is_phase("train", "Failed")
    assert "code 3" in world.run("train")["status"]["message"]


def test_what_a_kubelet_rejects_is_tried_again_and_is_not_a_failure_of_the_work(world: World) -> None:
    machines(world, 1)
    world.submit("train", 8, **here(world), notes={REJECTED: "UnexpectedAdmissionError"})
    until(lambda: "Fail" in world.closures("train"))
    run = until(lambda: (one := world.run("train")).get("status") and one)
    assert run["status"]["phase"] == "Pending"
    assert run["status"]["restarts"] == 0
    until(lambda: len(world.leases("train")) >= 2)  # the next attempt, after a backoff


def test_a_spare_takes_over_when_a_node_is_fenced(world: World) -> None:
    nodes = machines(world, 3)
    world.submit("train", 16, **here(world, groupGPUs=16), sparesPerGroup=8)
    world.is_phase("train", "Running")
    (spare,) = until(lambda: [lease for lease in world.leases("train") if lease["spec"]["slice"]["role"] == "Spare"])
    victim = next(pod["spec"]["nodeName"] for pod in world.pods("train"))
    fence(world, victim)
    free = spare["spec"]["slice"]["nodes"][0]
    until(lambda: {pod["spec"]["nodeName"] for pod in world.pods("train")} == set(nodes) - {victim})
    assert free in {pod["spec"]["nodeName"] for pod in world.pods("train")}
    until(lambda: world.closures("train") == ["NodeFailure", "Swap"])
    assert world.phase("train") == "Running"
    until(lambda: len(world.pods("train")) == 2)  # what was on the dead node was taken away by force


def test_a_deleted_node_is_a_failed_one(world: World) -> None:
    nodes = machines(world, 2)
    world.submit("train", 8, **here(world), runtime={"checkpoint": "30m"})
    world.is_phase("train", "Running")
    (pod,) = world.pods("train")
    world.api.delete(f"/api/v1/nodes/{pod['spec']['nodeName']}").must()
    other = next(name for name in nodes if name != pod["spec"]["nodeName"])
    until(lambda: [one["spec"]["nodeName"] for one in world.pods("train")] == [other])
    world.is_phase("train", "Running")
    until(lambda: world.closures("train") == ["NodeFailure"])


def test_cordoned_and_unready_nodes_take_nothing_new(world: World) -> None:
    (node,) = machines(world, 1)
    world.submit("first", 4, **here(world))
    world.is_phase("first", "Running")
    world.api.patch(f"/api/v1/nodes/{node}", {"spec": {"unschedulable": True}}).must()
    world.submit("second", 4, **here(world))
    until(lambda: world.condition("second", "Admitted").get("status") == "False")
    assert world.phase("first") == "Running"
    world.api.patch(f"/api/v1/nodes/{node}", {"spec": {"unschedulable": False}}).must()
    world.is_phase("second", "Running")


def test_an_elastic_run_shrinks_and_grows_as_its_owner_wants(world: World) -> None:
    machines(world, 2)
    world.submit(
        "elastic", 16, **here(world, groupGPUs=8),
        malleable={"minTotalGPUs": 8, "maxTotalGPUs": 16, "stepGPUs": 8},
    )  # fmt: skip
    world.is_phase("elastic", "Running")
    assert len(world.pods("elastic")) == 2
    change = {"spec": {"malleable": {"desiredTotalGPUs": 8}}}
    world.api.patch(world.path("runs", "elastic"), change).must()
    until(lambda: len(world.pods("elastic")) == 1)
    until(lambda: world.closures("elastic") == ["Shrink"])
    until(lambda: world.run("elastic")["status"]["width"]["allocated"] == 8)


def test_foreign_pods_with_gpus_count(world: World, running: Running) -> None:
    (node,) = machines(world, 1)
    other = world.plane.namespace(f"{world.namespace}-other")
    limits = {"resources": {"limits": {"nvidia.com/gpu": "4"}}}
    body = {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "raw", "namespace": other},
            "spec": {"nodeName": node, "containers": [{"name": "main", "image": "busybox", **limits}]}}  # fmt: skip
    world.api.create(body).must()
    known = running.operator.home.state.topology.rows
    until(lambda: node in known and known[node].gpus == 4)
    world.submit("train", 8, **here(world))
    until(lambda: world.condition("train", "Admitted").get("status") == "False")
    world.submit("half", 4, **here(world), runtime={"expectedDuration": "1s"}, notes={RUNS_FOR: "1s"})
    world.is_phase("half", "Completed")
    world.api.delete(f"/api/v1/namespaces/{other}/pods/raw", grace=0).must()
    world.is_phase("train", "Running")


def test_a_run_that_cannot_start_has_a_reservation(world: World, running: Running) -> None:
    machines(world, 1)
    world.submit("first", 8, **here(world), runtime={"expectedDuration": "1h"})
    world.is_phase("first", "Running")
    world.submit("second", 8, **here(world))
    (held,) = until(lambda: world.items("reservations", "second"))
    held = until(lambda: (one := world.items("reservations", "second")[0]).get("status") and one)
    assert held["spec"]["runRef"]["name"] == "second"
    assert held["status"]["state"] == "Pending"
    until(lambda: world.run("second").get("status", {}).get("earliestStart") == held["status"]["plannedStart"])
    _a_countdown_is_told_anew_when_it_is_off_by_much(world, held, running)
    world.note(world.pods("first")[0]["metadata"]["name"], exit_code="0")
    world.is_phase("second", "Running")
    until(lambda: world.items("reservations", "second")[0]["status"]["state"] == "Released")


def _a_countdown_is_told_anew_when_it_is_off_by_much(world: World, held: Object, running: Running) -> None:
    """Not whenever it has run on: what we wrote would be a reason to write again, for ever."""
    path = world.path("reservations", held["metadata"]["name"])
    token = world.plane.token("tenure-system", "tenure-operator")
    left = held["status"]["countdownSeconds"]

    def tell(seconds: int) -> None:
        world.plane.bearer(token).patch(f"{path}/status", {"status": {"countdownSeconds": seconds}}).must()

    def told() -> int:
        return int(world.api.get(path).must()["status"]["countdownSeconds"])

    tell(left - 30)
    running.settled()
    assert told() == left - 30
    tell(left * 2)
    until(lambda: told() <= left)


def test_kubectl_shows_useful_columns(world: World) -> None:
    machines(world, 1)
    world.submit("train", 8, **here(world))
    world.is_phase("train", "Running")
    told = world.plane.kubectl("get", "runs", "-n", world.namespace).stdout
    assert "PHASE" in told
    assert "Running" in told
    until(lambda: "lab" in world.plane.kubectl("get", "leases.rq.davidlangworthy.io", "-n", world.namespace).stdout)
    heading = world.plane.kubectl("get", "budgets").stdout.splitlines()[0]
    assert heading.split() == ["NAME", "OWNER", "ENVELOPES", "GPUS", "USED", "AGE"]
    until(lambda: int(world.plane.kubectl("get", "budgets").stdout.splitlines()[1].split()[4]) >= 8)


def fence(world: World, node: str) -> None:
    taint = {"key": "node.kubernetes.io/out-of-service", "value": "nodeshutdown", "effect": "NoExecute"}
    world.api.patch(f"/api/v1/nodes/{node}", {"spec": {"taints": [taint]}}).must()


def test_a_namespace_goes_with_everything_in_it_and_the_books_stay(world: World, running: Running) -> None:
    other = World.made(world.plane, f"{world.namespace}-going")
    machines(other, 1)
    other.submit("train", 8, **here(other))
    other.is_phase("train", "Running")
    other.submit("waiting", 8, **here(other))
    until(lambda: other.items("reservations", "waiting"))
    world.api.delete(f"/api/v1/namespaces/{other.namespace}").must()
    until(lambda: world.api.get(f"/api/v1/namespaces/{other.namespace}").status == 404)
    rows = [row for row in running.store.lease_history() if row[0].namespace == other.namespace]
    assert [closure for _, _, closure in rows] == ["Canceled"]
    running.settled()
    assert not running.troubles
