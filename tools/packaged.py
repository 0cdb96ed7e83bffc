"""What the chart and the Kustomize base are made of: the objects of `tenure install --kube`, as files.

One source. ``tenure.kube.install.manifests`` says what a cluster needs; here it is written down for tools that apply
files, and nothing is added but what those tools want to be told:

- the chart makes no Namespace (``helm install --create-namespace`` does), and has the webhooks in a file of their own,
  since cert-manager wants an annotation on them;
- what keeps the books, and what guards them, carries ``helm.sh/resource-policy: keep``: `helm uninstall` leaves it.

docs/decisions/0024 says why.
"""

from __future__ import annotations

from typing import Any

import yaml

from tenure import __version__
from tenure.kube.install import manifests
from tenure.kube.system import System

Manifest = dict[str, Any]
GPU_RESOURCE = "@GPU_RESOURCE@"
"""Stands in the chart's files for the value ``gpuResource``."""
KEPT_POLICIES = ("ledger", "leases", "reservations", "definitions")
"""The policies that guard what stays after `helm uninstall`. The others would only stand in people's way."""
KEEP = {"helm.sh/resource-policy": "keep"}
_HEADER = "# Written by `make generate` from src/tenure/kube/install.py; edit what is there.\n"
_POLICIES = ("ValidatingAdmissionPolicy", "ValidatingAdmissionPolicyBinding")
_WEBHOOKS = ("MutatingWebhookConfiguration", "ValidatingWebhookConfiguration")
_WEBHOOK_PARTS = (*_WEBHOOKS, "Service")


def chart_manifest() -> str:
    """Chart.yaml: the version is the project's."""
    content = {
        "apiVersion": "v2",
        "name": "tenure",
        "version": __version__,
        "appVersion": __version__,
        "type": "application",
        "description": "Schedules GPU work for organisations that share a fleet: who holds which GPU, until when, "
        "and who pays.",
        "kubeVersion": ">=1.32.0-0",
        "keywords": ["gpu", "scheduling", "budgets", "ledger"],
        "annotations": {"licenses": "Apache-2.0"},
    }
    return f"# Written by `make generate`; the version is said in src/tenure/__init__.py.\n{_dump([content])}"


def chart_objects() -> str:
    """files/install.yaml of the chart: everything but the namespace and the webhooks."""
    return _HEADER + _dump([each for each in _for_chart() if each["kind"] not in _WEBHOOK_PARTS])


def chart_webhooks() -> str:
    """files/webhooks.yaml of the chart: the service and the two configurations."""
    return _HEADER + _dump([each for each in _for_chart() if each["kind"] in _WEBHOOK_PARTS])


def kustomize_objects() -> str:
    """install.yaml of the Kustomize base: everything, as `tenure install --kube` applies it."""
    return _HEADER + _dump(manifests(System()))


def _for_chart() -> list[Manifest]:
    found = manifests(System(gpu_resource=GPU_RESOURCE))
    return [_kept(each) if stays(each) else each for each in found if each["kind"] != "Namespace"]


def stays(manifest: Manifest) -> bool:
    """Whether `helm uninstall` leaves an object: the kinds, whose objects are the books, and what guards these."""
    if manifest["kind"] == "CustomResourceDefinition":
        return True
    return manifest["kind"] in _POLICIES and manifest["metadata"]["name"].removeprefix("tenure-") in KEPT_POLICIES


def _kept(manifest: Manifest) -> Manifest:
    return {**manifest, "metadata": {**manifest["metadata"], "annotations": dict(KEEP)}}


class _Plain(yaml.SafeDumper):
    """Without anchors: objects that share a part each spell it out."""

    def ignore_aliases(self, data: Any) -> bool:
        return True


def _dump(found: list[Manifest]) -> str:
    return yaml.dump_all(found, Dumper=_Plain, sort_keys=False, width=110)
