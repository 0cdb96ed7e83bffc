"""What an embedded fleet adds to a pod's manifest: where its pods meet, and which GPUs its processes see."""

from __future__ import annotations

from typing import Any

from tenure.embedded.rendezvous import at_home
from tests.embedded.pods import container, manifest, pod


def env(one: dict[str, Any]) -> dict[str, str]:
    """A container's variables; none is there twice."""
    names = [item["name"] for item in one["env"]]
    assert len(names) == len(set(names))
    return {item["name"]: item["value"] for item in one["env"]}


def test_init_containers_see_the_gpus_of_their_pod_whatever_the_template_says() -> None:
    said = [
        {"name": "CUDA_VISIBLE_DEVICES", "value": "0,1,2,3,4,5,6,7"},
        {"name": "CUDA_DEVICE_ORDER", "value": "FASTEST_FIRST"},
        {"name": "STAGE", "value": "fetch"},
    ]
    inits = [container("true", name="one", env=said), container("true", name="two"), container("true", env=None)]
    tree = at_home(manifest(container("true"), initContainers=inits), pod("p"), fleet="f")
    ours = {"CUDA_DEVICE_ORDER": "PCI_BUS_ID", "CUDA_VISIBLE_DEVICES": "0,1"}
    assert [env(one) for one in tree["spec"]["initContainers"]] == [{"STAGE": "fetch"} | ours, ours, ours]
    assert inits[0]["env"] == said, "the template is as it was"


def test_the_pods_of_one_attempt_meet_at_this_machine() -> None:
    given = [{"name": "MASTER_ADDR", "value": "a-00"}, {"name": "MASTER_PORT", "value": "29500"}]
    trees = [at_home(manifest(container("true", env=given)), pod(name), fleet="f") for name in ("p", "q")]
    first, second = (env(tree["spec"]["containers"][0]) for tree in trees)
    assert first == second
    assert first["MASTER_ADDR"] == "127.0.0.1"
    assert first["MASTER_PORT"] != "29500"


def test_a_pod_that_is_only_watched_has_no_manifest_to_add_to() -> None:
    assert at_home({}, pod("p"), fleet="f") == {}
