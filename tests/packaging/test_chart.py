"""The chart, rendered by the real helm: the objects of `tenure install --kube`, and an operator that can run."""

import itertools
import json
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from tenure import __version__
from tenure.cli.server.operator import command as operator
from tenure.kube.install import manifests
from tenure.kube.system import System
from tests.packaging.conftest import CHART, IMAGE, Manifest, Rendered
from tests.tidy.repository import ROOT
from tools.packaged import KEPT_POLICIES

Render = Callable[..., Rendered]
Helm = Callable[..., subprocess.CompletedProcess[str]]
KEEP = "helm.sh/resource-policy"
OWN = {"StatefulSet", "PodDisruptionBudget", "ConfigMap", "NetworkPolicy"}
"""Kinds that the chart has beyond what is installed by the command; and the service for metrics."""

WEBHOOKS = [{"enabled": False}, {"enabled": True}, {"enabled": True, "certManager": {"enabled": True}}]
METRICS: list[Manifest] = [
    {"metrics": {"enabled": False}},
    {},
    {"serviceMonitor": {"enabled": True, "labels": {"team": "a"}}, "prometheusRule": {"enabled": True},
     "dashboards": {"enabled": True}},
]  # fmt: skip
STORES = [{}, {"journal": {"persistent": False}, "replicas": 1}]
REST: list[Manifest] = [
    {},
    {"archive": {"existingClaim": "old"}, "custodian": {"existingClaim": "chain"}, "policy": {"backfill": {}},
     "networkPolicy": {"enabled": True, "apiServerCIDRs": ["10.0.0.0/8"]}, "gpuResource": "example.com/gpu",
     "operator": {"noBind": True, "binding": True, "extraArgs": ["--no-bind"]}, "nodeSelector": {"disk": "fast"},
     "tolerations": [{"operator": "Exists"}], "priorityClassName": "critical", "imagePullSecrets": [{"name": "x"}]},
]  # fmt: skip
COMBINATIONS = [
    {"webhook": webhook, **metrics, **stores, **rest}
    for webhook, metrics, stores, rest in itertools.product(WEBHOOKS, METRICS, STORES, REST)
]


def operator_of(found: Rendered) -> Manifest:
    spec: Manifest = found["StatefulSet", "tenure-operator"]["spec"]["template"]["spec"]
    return spec


def container_of(found: Rendered) -> Manifest:
    (only,) = operator_of(found)["containers"]
    return dict(only)


def test_helm_finds_nothing_wrong_with_it(helm: Helm) -> None:
    done = helm("lint", "--strict", str(CHART))
    assert done.returncode == 0, done.stdout + done.stderr
    assert "[WARNING]" not in done.stdout


@pytest.mark.parametrize("gpu_resource", ["nvidia.com/gpu", "example.com/gpu"])
def test_it_applies_what_the_command_installs(rendered: Render, gpu_resource: str) -> None:
    """Every object, field by field. What differs: no Namespace, and what `helm uninstall` leaves says so."""
    found = rendered(gpuResource=gpu_resource)
    installed = [each for each in manifests(System(gpu_resource=gpu_resource)) if each["kind"] != "Namespace"]
    for wanted in installed:
        there = found.pop((wanted["kind"], wanted["metadata"]["name"]))
        annotations = there["metadata"].pop("annotations", {})
        assert set(annotations) <= {KEEP}
        assert there == wanted
    assert {kind for kind, name in found if name != "tenure-metrics"} <= OWN


def test_the_books_and_their_guards_stay(rendered: Render) -> None:
    kept = {
        name.removeprefix("tenure-")
        for (kind, name), each in rendered().items()
        if (each["metadata"].get("annotations") or {}).get(KEEP) == "keep"
    }
    definitions = {each["metadata"]["name"] for each in manifests(System()) if each["kind"].startswith("CustomRes")}
    assert kept == definitions | set(KEPT_POLICIES)


@pytest.mark.parametrize("values", COMBINATIONS, ids=lambda values: str(COMBINATIONS.index(values)))
def test_every_combination_is_an_operator_that_can_run(rendered: Render, values: Manifest) -> None:
    """Its flags exist, its files are mounted, its ports are those that others call, and it may do nothing else."""
    found = rendered(**values)
    pod, container = operator_of(found), container_of(found)
    assert pod["serviceAccountName"] == "tenure-operator"
    assert container["image"] == f"{IMAGE}:{__version__}"
    known = {flag for parameter in operator.params for flag in parameter.opts}
    assert {each.partition("=")[0] for each in container["args"][1:]} <= known
    _check_files(found, container)
    _check_ports(found, container)
    for each in [container, *pod.get("initContainers", ())]:
        assert each["securityContext"] == {
            "allowPrivilegeEscalation": False, "readOnlyRootFilesystem": True, "capabilities": {"drop": ["ALL"]}
        }  # fmt: skip
    assert pod["securityContext"]["runAsNonRoot"] is True
    assert ("PodDisruptionBudget", "tenure-operator") in found or values.get("replicas") == 1


def _check_files(found: Rendered, container: Manifest) -> None:
    stateful = found["StatefulSet", "tenure-operator"]["spec"]
    volumes = {each["name"] for each in operator_of(found)["volumes"]}
    volumes |= {each["metadata"]["name"] for each in stateful.get("volumeClaimTemplates", ())}
    mounts = {each["mountPath"]: each["name"] for each in container["volumeMounts"]}
    assert set(mounts.values()) == volumes
    files = [text for each in container["args"] if (text := each.partition("=")[2]).startswith("/")]
    assert files
    for file in files:
        assert any(f"{file}/".startswith(f"{place}/") for place in mounts), file


def _check_ports(found: Rendered, container: Manifest) -> None:
    listening = {int(each.rpartition(":")[2]) for each in container["args"] if ":" in each.partition("=")[2]}
    ports = {each["name"]: each["containerPort"] for each in container["ports"]}
    assert set(ports.values()) == listening
    services = [each for (kind, _), each in found.items() if kind == "Service"]
    called = {port["targetPort"] for each in services for port in each["spec"]["ports"]}
    assert called <= {*ports, *ports.values()}
    labels = found["StatefulSet", "tenure-operator"]["spec"]["template"]["metadata"]["labels"]
    for each in services:
        assert each["spec"]["selector"].items() <= labels.items()


def test_without_cert_manager_nothing_of_it_is_there(rendered: Render) -> None:
    found = rendered()
    assert not {"Issuer", "Certificate"} & {kind for kind, _ in found}
    assert not [each for each in container_of(found)["args"] if "certificate" in each]


def test_with_cert_manager_it_makes_the_certificate_and_tells_whom_to_trust(rendered: Render) -> None:
    found = rendered(webhook={"certManager": {"enabled": True}})
    certificate = found["Certificate", "tenure-webhook"]["spec"]
    assert certificate["dnsNames"] == [System().webhook_host]
    assert certificate["issuerRef"] == {"name": "tenure-webhook", "kind": "Issuer"}
    for kind in ("MutatingWebhookConfiguration", "ValidatingWebhookConfiguration"):
        annotations = found[kind, "tenure"]["metadata"]["annotations"]
        assert annotations == {"cert-manager.io/inject-ca-from": "tenure-system/tenure-webhook"}
    (mounted,) = [each for each in operator_of(found)["volumes"] if each["name"] == "webhook-tls"]
    assert mounted["secret"]["secretName"] == certificate["secretName"]
    own = rendered(webhook={"certManager": {"enabled": True, "issuerRef": {"name": "corp", "kind": "ClusterIssuer"}}})
    assert ("Issuer", "tenure-webhook") not in own
    assert own["Certificate", "tenure-webhook"]["spec"]["issuerRef"] == {"name": "corp", "kind": "ClusterIssuer"}


def test_an_operator_elsewhere_is_called_there(rendered: Render) -> None:
    found = rendered(webhook={"url": "https://10.0.0.9:9443/"}, replicas=0)
    for wanted in manifests(System(webhook_url="https://10.0.0.9:9443")):
        if wanted["kind"].endswith("WebhookConfiguration"):
            assert found[wanted["kind"], "tenure"] == wanted


def test_rules_and_dashboards_are_those_that_are_tested(rendered: Render) -> None:
    """As they are written in deploy/; what Prometheus and Grafana fill in is left to them."""
    found = rendered(prometheusRule={"enabled": True, "labels": {"team": "a"}}, dashboards={"enabled": True})
    rule = found["PrometheusRule", "tenure"]
    assert rule["spec"] == yaml.safe_load((ROOT / "deploy" / "alerts" / "tenure.rules.yaml").read_text())
    assert "{{ $labels." in str(rule["spec"])
    assert rule["metadata"]["labels"]["team"] == "a"
    written = {f"tenure-dashboard-{path.stem}": path for path in (ROOT / "deploy" / "dashboards").glob("*.json")}
    shown = {name: each for (kind, name), each in found.items() if kind == "ConfigMap"}
    assert len(written) > 3
    assert set(shown) == set(written)
    for name, path in written.items():
        assert shown[name]["data"] == {f"tenure-{path.name}": path.read_text()}
        assert shown[name]["metadata"]["labels"]["grafana_dashboard"] == "1"


def test_the_policy_is_what_the_operator_reads(rendered: Render) -> None:
    assert ("ConfigMap", "tenure-policy") not in rendered()
    found = rendered(policy={"backfill": {"x": 1}}, gpuResource="example.com/gpu")["ConfigMap", "tenure-policy"]
    assert yaml.safe_load(found["data"]["policy.yaml"]) == {"backfill": {"x": 1}, "gpuResource": "example.com/gpu"}
    twice = rendered(policy={"gpuResource": "example.com/gpu"}, gpuResource="example.com/gpu")
    assert yaml.safe_load(twice["ConfigMap", "tenure-policy"]["data"]["policy.yaml"]) == {
        "gpuResource": "example.com/gpu"
    }


def test_the_version_is_the_projects(helm: Helm) -> None:
    chart = yaml.safe_load((CHART / "Chart.yaml").read_text())
    assert (chart["version"], chart["appVersion"]) == (__version__, __version__)


REFUSED: list[tuple[Manifest, str]] = [
    ({"replica": 3}, "additional properties 'replica' not allowed"),
    ({"replicas": "3"}, "got string, want integer"),
    ({"replicas": -1}, "/replicas"),
    ({"image": {"repository": IMAGE, "tag": "latest"}}, "/image/tag"),
    ({"image": {"repository": IMAGE, "digest": "sha256:12"}}, "/image/digest"),
    ({"image": {"repository": ""}}, "name the image that you built and pushed"),
    ({"gpuResource": "gpu"}, "/gpuResource"),
    ({"gpuResource": "x.com/gpu' || true || '"}, "/gpuResource"),
    (
        {"policy": {"gpuResource": "amd.com/gpu"}},
        "policy.gpuResource is amd.com/gpu, but the admission policies would guard nvidia.com/gpu: set gpuResource",
    ),
    ({"gpuResource": "amd.com/gpu", "policy": {"gpuResource": "nvidia.com/gpu"}}, "would guard amd.com/gpu"),
    ({"policy": {"gpuResource": 7}}, "policy.gpuResource is 7"),
    ({"webhook": {"url": "http://h"}}, "/webhook/url"),
    ({"webhook": {"certManager": {"issuer": "x"}}}, "additional properties 'issuer' not allowed"),
    ({"operator": {"startTimeout": "soon"}}, "/operator/startTimeout"),
    ({"journal": {"size": "much"}}, "/journal/size"),
    ({"networkPolicy": {"apiServerCIDRs": ["here"]}}, "/networkPolicy/apiServerCIDRs/0"),
    (
        {"serviceMonitor": {"enabled": True}, "metrics": {"enabled": False}},
        "serviceMonitor.enabled needs metrics.enabled",
    ),
]


@pytest.mark.parametrize(("values", "said"), REFUSED, ids=lambda each: str(each)[:60])
def test_wrong_values_are_refused_with_a_word(helm: Helm, values: Manifest, said: str) -> None:
    done = helm("template", "tenure", str(CHART), values=values)
    assert done.returncode != 0
    assert said in done.stderr


def test_it_refuses_another_namespace(programs: dict[str, Path]) -> None:
    command = [str(programs["helm"]), "template", "tenure", str(CHART), "--namespace=elsewhere"]
    done = subprocess.run(
        [*command, f"--set=image.repository={IMAGE}"], capture_output=True, text=True, check=False
    )  # fmt: skip
    assert done.returncode != 0
    assert "Tenure lives in the namespace tenure-system, not in elsewhere" in done.stderr


def test_the_schema_knows_every_value_and_no_other() -> None:
    schema = json.loads((CHART / "values.schema.json").read_text())
    values = yaml.safe_load((CHART / "values.yaml").read_text())
    known, given = set(_leaves_of(schema)), set(_paths(values, schema))
    assert known - {("global",)} == given


def _leaves_of(schema: Manifest, path: tuple[str, ...] = ()) -> Iterator[tuple[str, ...]]:
    for name, part in schema.get("properties", {}).items():
        inner = list(_leaves_of(part, (*path, name))) if name != "issuerRef" else []
        yield from inner or [(*path, name)]


def _paths(values: Any, schema: Manifest, path: tuple[str, ...] = ()) -> Iterator[tuple[str, ...]]:
    """The values that can be set: as deep as the schema has names for them."""
    for name, value in values.items():
        part = schema["properties"].get(name, {})
        if isinstance(value, dict) and "properties" in part and name != "issuerRef":
            yield from _paths(value, part, (*path, name))
        else:
            yield (*path, name)
