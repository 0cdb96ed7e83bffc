"""The Kustomize base and its overlays, built by the real kubectl: the same as the chart makes."""

from collections.abc import Callable

import pytest

from tenure.kube.install import manifests
from tenure.kube.system import System
from tests.packaging.conftest import IMAGE, Manifest, Rendered

Build = Callable[[str], Rendered]
OVERLAYS = ("base", "overlays/dev", "overlays/ha")


@pytest.mark.parametrize("folder", OVERLAYS)
def test_each_has_what_the_command_installs(kustomized: Build, folder: str) -> None:
    """Unchanged; the namespace besides takes only pods of the restricted standard."""
    found = kustomized(folder)
    for wanted in manifests(System()):
        there = found[wanted["kind"], wanted["metadata"]["name"]]
        if wanted["kind"] == "Namespace":
            assert there["metadata"]["labels"].pop("pod-security.kubernetes.io/enforce") == "restricted"
        assert there == wanted


def test_the_base_is_what_the_chart_makes_by_default(kustomized: Build, rendered: Callable[..., Rendered]) -> None:
    """Up to labels that name the tool, what helm is told to keep, the Namespace, and the image's name."""
    base, chart = kustomized("base"), rendered()
    del base["Namespace", "tenure-system"]
    assert {key: plain(each) for key, each in base.items()} == {key: plain(each) for key, each in chart.items()}


def plain(found: Manifest) -> Manifest:
    told = ("app.kubernetes.io/version", "app.kubernetes.io/managed-by", "app.kubernetes.io/part-of")
    text = {key: value for key, value in found.items() if key != "metadata"}
    metadata = {key: value for key, value in found["metadata"].items() if key not in ("labels", "annotations")}
    if found["kind"] == "StatefulSet":
        template = text["spec"]["template"]
        for key in told:
            template["metadata"]["labels"].pop(key, None)
        (container,) = template["spec"]["containers"]
        assert container.pop("image").partition(":")[0] in ("tenure", IMAGE)
    return {**text, "metadata": metadata}


def operator_of(found: Rendered) -> Manifest:
    spec: Manifest = found["StatefulSet", "tenure-operator"]["spec"]
    return spec


def test_dev_is_one_operator_that_needs_no_disk(kustomized: Build) -> None:
    found = kustomized("overlays/dev")
    spec = operator_of(found)
    assert spec["replicas"] == 1
    assert "volumeClaimTemplates" not in spec
    assert ("PodDisruptionBudget", "tenure-operator") not in found
    assert {"name": "journal", "emptyDir": {}} in spec["template"]["spec"]["volumes"]


def test_ha_is_three_apart_with_one_custodian(kustomized: Build, rendered: Callable[..., Rendered]) -> None:
    """The pods are those of the chart with both claims; only where they may stand is said besides."""
    found = kustomized("overlays/ha")
    spec = operator_of(found)
    assert spec["replicas"] == 3
    pod = spec["template"]["spec"]
    assert {each["topologyKey"] for each in pod.pop("topologySpreadConstraints")} == {
        "topology.kubernetes.io/zone", "kubernetes.io/hostname"
    }  # fmt: skip
    claims = {"archive": {"existingClaim": "tenure-archive"}, "custodian": {"existingClaim": "tenure-custodian"}}
    chart = operator_of(rendered(**claims))["template"]["spec"]
    for each in (pod, chart):
        for container in [*each["containers"], *each["initContainers"]]:
            del container["image"]
            container["volumeMounts"].sort(key=lambda one: str(one["name"]))
        each["volumes"].sort(key=lambda one: str(one["name"]))
    assert pod == chart
    for name in ("tenure-archive", "tenure-custodian"):
        assert found["PersistentVolumeClaim", name]["spec"]["accessModes"] == ["ReadWriteMany"]
