"""KWOK plays the kubelets: a pod that is bound runs, and its annotations say how it ends."""

from collections.abc import Iterator
from typing import Any

import pytest

from tenure.testing.kube import (
    EXIT_CODE,
    HOLD,
    REJECTED,
    RUNS_FOR,
    STUCK,
    ControlPlane,
    Kwok,
    gpu_node,
    gpu_nodes,
    until,
)
from tenure.testing.kube.api import path_of

Object = dict[str, Any]
GPUS = "nvidia.com/gpu"
pytestmark = pytest.mark.usefixtures("kwok")


@pytest.fixture(scope="module")
def node(plane: ControlPlane, kwok: Kwok) -> Iterator[str]:
    """A node with GPUs, and a kubelet that pretends."""
    plane.api.create(gpu_node("kwok-tests", 8, {"region": "us-west"})).must()
    yield "kwok-tests"
    plane.api.delete("/api/v1/nodes/kwok-tests").must()


def bound(plane: ControlPlane, namespace: str, node: str, annotations: dict[str, str] | None = None) -> str:
    """The path of a new pod that is bound to a node."""
    room = {"requests": {GPUS: "2"}, "limits": {GPUS: "2"}}
    pod = {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"generateName": "pod-", "namespace": namespace, "annotations": annotations or {}},
        "spec": {"nodeName": node, "containers": [{"name": "main", "image": "x", "resources": room}]},
    }
    made = plane.api.create(pod).must()
    return f"/api/v1/namespaces/{namespace}/pods/{made['metadata']['name']}"


def annotated(plane: ControlPlane, path: str, name: str, value: str) -> None:
    plane.api.patch(path, {"metadata": {"annotations": {name: value}}}).must()


def becomes(plane: ControlPlane, path: str, phase: str) -> Object:
    """The status of a pod once it is in a phase."""
    status = lambda: plane.api.get(path).must()["status"]  # noqa: E731
    return until(lambda: found if (found := status())["phase"] == phase else None)


def code_of(status: Object) -> int:
    (container,) = status["containerStatuses"]
    return int(container["state"]["terminated"]["exitCode"])


def test_a_bound_pod_runs(plane: ControlPlane, namespace: str, node: str) -> None:
    status = becomes(plane, bound(plane, namespace, node), "Running")
    assert {"type": "Ready", "status": "True"}.items() <= status["conditions"][-1].items()
    assert status["podIP"]
    done = plane.kubectl("wait", "--for=condition=Ready", "pod", "--all", "-n", namespace, "--timeout=120s")
    assert "condition met" in done.stdout


def test_a_pod_that_is_not_bound_stays_pending(plane: ControlPlane, namespace: str, node: str) -> None:
    """There is no scheduler here but ours; a pod beside it shows that KWOK was at work meanwhile."""
    waiting = bound(plane, namespace, "")
    becomes(plane, bound(plane, namespace, node), "Running")
    assert plane.api.get(waiting).must()["status"]["phase"] == "Pending"


def test_a_pod_succeeds_in_its_time(plane: ControlPlane, namespace: str, node: str) -> None:
    path = bound(plane, namespace, node)
    becomes(plane, path, "Running")
    annotated(plane, path, RUNS_FOR, "200ms")
    assert code_of(becomes(plane, path, "Succeeded")) == 0


@pytest.mark.parametrize(("code", "phase"), [("0", "Succeeded"), ("1", "Failed"), ("137", "Failed")])
def test_a_pod_ends_when_told(plane: ControlPlane, namespace: str, node: str, code: str, phase: str) -> None:
    path = bound(plane, namespace, node)
    becomes(plane, path, "Running")
    annotated(plane, path, EXIT_CODE, code)
    assert code_of(becomes(plane, path, phase)) == int(code)


def test_a_kubelet_refuses_a_pod(plane: ControlPlane, namespace: str, node: str) -> None:
    path = bound(plane, namespace, node, {REJECTED: "OutOfgpu"})
    assert becomes(plane, path, "Failed")["reason"] == "OutOfgpu"


def test_a_pod_is_held(plane: ControlPlane, namespace: str, node: str) -> None:
    held = bound(plane, namespace, node, {HOLD: ""})
    becomes(plane, bound(plane, namespace, node), "Running")
    assert plane.api.get(held).must()["status"]["phase"] == "Pending"
    plane.api.patch(held, {"metadata": {"annotations": {HOLD: None}}}).must()
    becomes(plane, held, "Running")


def test_a_deleted_pod_goes(plane: ControlPlane, namespace: str, node: str) -> None:
    path = bound(plane, namespace, node)
    becomes(plane, path, "Running")
    plane.api.delete(path).must()
    until(lambda: plane.api.get(path).status == 404)


def test_a_stuck_pod_stays(plane: ControlPlane, namespace: str, node: str) -> None:
    stuck, other = bound(plane, namespace, node, {STUCK: ""}), bound(plane, namespace, node)
    for path in (stuck, other):
        becomes(plane, path, "Running")
        plane.api.delete(path).must()
    until(lambda: plane.api.get(other).status == 404)
    assert plane.api.get(stuck).must()["metadata"]["deletionTimestamp"]
    plane.api.delete(stuck, grace=0).must()
    until(lambda: plane.api.get(stuck).status == 404)


def test_a_fleet_is_made_at_once(plane: ControlPlane) -> None:
    fleet = gpu_nodes(64, prefix="fleet", per_domain=16)
    plane.api.create_all(fleet)
    found = plane.api.get("/api/v1/nodes?labelSelector=fabric.domain%3Ddomain-03").must()["items"]
    assert [each["metadata"]["name"] for each in found] == [f"fleet-{number:04d}" for number in range(48, 64)]
    assert {each["status"]["allocatable"][GPUS] for each in found} == {"8"}
    done = plane.kubectl("get", "nodes", "-l", "fabric.domain=domain-03", "--no-headers")
    assert [row.split()[1] for row in done.stdout.splitlines()] == ["Ready"] * 16
    for each in fleet:
        plane.api.delete(path_of(each)).must()
