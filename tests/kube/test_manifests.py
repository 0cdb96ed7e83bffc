"""Pods and Services as they are written, from what the engine placed."""

from typing import Any

from tenure.engine import render
from tenure.kube.manifests import pod_manifest, service_manifest
from tenure.testing import Fleet, budget, elastic, nodes, run

GPU = "nvidia.com/gpu"
Object = dict[str, Any]
TEMPLATE: Object = {
    "metadata": {"labels": {"team": "a"}, "annotations": {"note": "kept"}},
    "spec": {
        "priorityClassName": "urgent",
        "tolerations": [{"key": "spot", "operator": "Exists"}],
        "terminationGracePeriodSeconds": 0,
        "initContainers": [{"name": "prepare", "resources": {"limits": {GPU: "8", "cpu": "1"}}}],
        "containers": [
            {
                "name": "main",
                "image": "i",
                "env": [{"name": "MINE", "value": "1"}, {"name": "WORLD_SIZE", "value": "9"}],
            },
            {"name": "side", "image": "i", "resources": {"limits": {GPU: "4"}, "requests": {GPU: "4"}}},
        ],
    },
}


def made(fleet: Fleet, key: str, *, bind: bool = False) -> list[Object]:
    row = fleet.state.runs[key]
    return [
        pod_manifest(
            render.to_manifest(render.pod(row, pod, GPU)), pod.pod, row, fleet="f", seq=7, resource=GPU, bind=bind
        )
        for pod in sorted(row.pods.values(), key=lambda pod: pod.pod.rank)
    ]


def fleet(**rest: Any) -> Fleet:
    found = Fleet(*nodes("a", 3), budget("rai"))
    found.apply(run("train", 16, owner="org:rai", template=TEMPLATE, **rest))
    return found


def env(pod: Object, container: int = 0) -> dict[str, str]:
    return {item["name"]: item["value"] for item in pod["spec"]["containers"][container]["env"]}


def test_what_the_template_says_is_kept_and_what_is_ours_is_added() -> None:
    first, second = made(fleet(), "lab/train")
    spec = first["spec"]
    assert (spec["priorityClassName"], spec["restartPolicy"]) == ("urgent", "Never")
    assert [one["key"] for one in spec["tolerations"]] == ["spot", "rq.davidlangworthy.io/managed"]
    assert {pod["spec"]["nodeName"] for pod in (first, second)} == {"a0", "a1"}
    labels = first["metadata"]["labels"]
    assert labels["team"] == "a"
    assert {labels[f"rq.davidlangworthy.io/{key}"] for key in ("run", "group", "rank", "attempt")} == {
        "train",
        "0",
        "1",
    }
    assert first["metadata"]["annotations"]["note"] == "kept"
    assert first["metadata"]["annotations"]["rq.davidlangworthy.io/entry"] == "7"
    assert "uid" not in first["metadata"]
    assert spec["terminationGracePeriodSeconds"] == 1  # with 0 the object goes before its containers do


def test_gpus_go_to_the_first_container_and_to_no_other() -> None:
    spec = made(fleet(), "lab/train")[0]["spec"]
    assert spec["containers"][0]["resources"] == {"limits": {GPU: "8"}, "requests": {GPU: "8"}}
    assert spec["containers"][1]["resources"] == {"limits": {}, "requests": {}}
    assert spec["initContainers"][0]["resources"] == {"limits": {"cpu": "1"}}


def test_a_gang_finds_itself_by_rank() -> None:
    first, second = made(fleet(), "lab/train")
    for rank, pod in enumerate((first, second)):
        found = env(pod)
        assert pod["spec"]["hostname"] == f"rank-{rank}"
        assert pod["spec"]["subdomain"] == "run-train"
        assert found["MASTER_ADDR"] == "rank-0.run-train.lab.svc"
        assert (found["NODE_RANK"], found["WORLD_SIZE"], found["NNODES"], found["MINE"]) == (str(rank), "16", "2", "1")
        assert "CUDA_VISIBLE_DEVICES" not in found  # the device plugin's business


def test_an_elastic_run_meets_at_the_lowest_rank_that_stays() -> None:
    found = fleet(group=8, elastic=elastic(8, 16, 8))
    assert env(made(found, "lab/train")[1])["TENURE_RDZV_ENDPOINT"] == "rank-0.run-train.lab.svc:29500"
    found.bind("lab/train")
    first = found.pods("lab/train")[0]
    found.state.runs["lab/train"].pods[first.name].stop = True  # as while it leaves
    assert env(made(found, "lab/train")[1])["MASTER_ADDR"] == "rank-1.run-train.lab.svc"


def test_a_pod_that_is_bound_later_has_no_node_yet() -> None:
    (first, _) = made(fleet(), "lab/train", bind=True)
    assert "nodeName" not in first["spec"]
    assert first["spec"]["schedulerName"] == "tenure"


def test_the_run_owns_its_pods_and_its_service() -> None:
    found = fleet()
    row = found.state.runs["lab/train"]
    owners = [*made(found, "lab/train"), service_manifest("lab", row, fleet="f")]
    for item in owners:
        (owner,) = item["metadata"]["ownerReferences"]
        assert (owner["kind"], owner["name"], owner["uid"]) == ("Run", "train", row.run.metadata.uid)
    assert owners[-1]["spec"]["selector"] == {"rq.davidlangworthy.io/run": "train"}
    assert owners[-1]["spec"]["publishNotReadyAddresses"]
