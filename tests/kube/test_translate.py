"""Objects of the API server as the engine knows them; no server is needed for that."""

from typing import Any

import pytest

from tenure.api.meta import OWNER_ANNOTATION
from tenure.kube.translate import gpus_of, has_gpus, read_object, requested, to_namespace, to_node
from tenure.kube.watching import keep_node, keep_pod
from tests.kube.worlds import budget, run

GPU = "nvidia.com/gpu"
Object = dict[str, Any]


def node(**rest: Any) -> Object:
    return {
        "metadata": {"name": "n1", "uid": "u1", "labels": {"region": "us-west", "feature.node.kubernetes.io/cpu": "x"},
                     "annotations": {"tool/note": "long"}, "creationTimestamp": "2025-11-01T00:00:00Z"},
        "spec": {"podCIDR": "10.0.0.0/24", "taints": [
            {"key": "node.kubernetes.io/unschedulable", "effect": "NoSchedule"},
            {"key": "node.kubernetes.io/out-of-service", "value": "nodeshutdown", "effect": "NoExecute",
             "timeAdded": "2025-11-01T00:00:00Z"}], "unschedulable": True},
        "status": {"allocatable": {"cpu": "192", GPU: "8"}, "conditions": [
            {"type": "MemoryPressure", "status": "False"},
            {"type": "Ready", "status": "Unknown", "lastHeartbeatTime": "2025-11-01T00:00:00Z"}], "images": [1, 2]},
        **rest,
    }  # fmt: skip


def test_of_a_node_only_what_decisions_rest_on_is_kept() -> None:
    found = to_node(node(), GPU)
    assert found.metadata.uid == "u1"
    assert found.metadata.labels == {"region": "us-west"}
    assert not found.metadata.annotations
    assert found.spec.unschedulable
    assert [taint.key for taint in found.spec.taints] == ["node.kubernetes.io/out-of-service"]
    assert [(mark.type, mark.status) for mark in found.status.conditions] == [("Ready", "Unknown")]
    assert found.status.allocatable == {GPU: "8"}


def test_a_heartbeat_is_no_news() -> None:
    later = node()
    later["status"]["conditions"][1]["lastHeartbeatTime"] = "2025-11-01T00:05:00Z"
    later["metadata"]["resourceVersion"] = "77"
    assert keep_node(later) == keep_node(node())


@pytest.mark.parametrize(("taken", "left"), [(0, "8"), (3, "5"), (9, "0")])
def test_gpus_that_others_hold_are_not_offered(taken: int, left: str) -> None:
    assert to_node(node(), GPU, taken=taken).status.allocatable == {GPU: left}


def test_an_odd_count_is_passed_on_for_the_engine_to_complain_about() -> None:
    odd = node(status={"allocatable": {GPU: "eight"}})
    assert to_node(odd, GPU, taken=2).status.allocatable == {GPU: "eight"}


def test_a_node_with_hundreds_of_labels_keeps_those_of_the_topology() -> None:
    labels = {f"a-{index:03d}": "x" for index in range(200)} | {"zone-of-ours": "z1"}
    found = to_node(node(metadata={"name": "n1", "labels": labels}), GPU, topology=("zone-of-ours",))
    assert len(found.metadata.labels) == 64
    assert found.metadata.labels["zone-of-ours"] == "z1"


def test_a_node_that_says_nothing_of_gpus_has_none() -> None:
    assert has_gpus(node(), GPU)
    assert not has_gpus(node(status={"allocatable": {"cpu": "1"}}), GPU)


def test_a_namespace_is_its_owner() -> None:
    notes = {OWNER_ANNOTATION: "org:lab", "kubectl.kubernetes.io/last-applied-configuration": "{...}"}
    found = to_namespace({"metadata": {"name": "lab", "uid": "u", "annotations": notes}})
    assert found.metadata.annotations == {OWNER_ANNOTATION: "org:lab"}
    assert not to_namespace({"metadata": {"name": "lab"}}).metadata.annotations


def test_a_run_keeps_the_identity_that_the_server_gave_it() -> None:
    item = run("train", 8, namespace="lab")
    item["metadata"] |= {"uid": "u7", "creationTimestamp": "2025-11-01T00:00:00Z", "resourceVersion": "9",
                         "managedFields": [{}], "generation": 3, "finalizers": ["x/y"]}  # fmt: skip
    item["status"] = {"phase": "Running"}
    (found,) = read_object(item).objects
    assert (found.metadata.uid, found.metadata.creation_timestamp) == ("u7", "2025-11-01T00:00:00Z")
    assert found.metadata.namespace == "lab"


def test_what_is_wrong_names_the_object_and_the_field() -> None:
    item = budget()
    item["spec"]["envelopes"][0]["concurrency"] = 0
    (error,) = read_object(item).errors
    assert (error.object, error.path) == ("Budget/lab", "spec.envelopes[0].concurrency")


def pod(*limits: int, phase: str = "Running", node: str = "n1", **rest: Any) -> Object:
    containers = [{"resources": {"limits": {GPU: str(one), "cpu": "1"}}} if one else {} for one in limits]
    return {"metadata": {"name": "p", "namespace": "x"}, "spec": {"nodeName": node, "containers": containers, **rest},
            "status": {"phase": phase}}  # fmt: skip


@pytest.mark.parametrize(
    ("item", "gpus"),
    [
        (pod(4, 2, 0), 6),
        (pod(4, phase="Succeeded"), 0),
        (pod(4, phase="Failed"), 0),
        (pod(4, phase="Pending"), 4),
        (pod(4, node=""), 0),
        (pod(2, initContainers=[{"resources": {"requests": {GPU: "8"}}}]), 8),
        (pod(2, initContainers=[{"restartPolicy": "Always", "resources": {"limits": {GPU: "1"}}}]), 3),
    ],
)
def test_gpus_of_anybodys_pod(item: Object, gpus: int) -> None:
    assert gpus_of(item, GPU) == gpus
    kept = keep_pod(item)
    assert kept is not None
    assert gpus_of(kept, GPU) == gpus  # also of what an informer keeps of it


def test_pods_that_ask_for_no_device_are_not_kept() -> None:
    assert keep_pod(pod(0)) is None


def test_a_request_of_the_whole_pod_counts() -> None:
    assert requested({"containers": [{}], "resources": {"limits": {GPU: "2"}}}, GPU) == 2
