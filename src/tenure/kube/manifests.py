"""What is written for a run: its pods and its headless Service, as manifests. Pure; the engine's pod with what only
a cluster needs.

The engine says where a pod runs, with how many GPUs and which place in the gang. Here it gets its owner (the Run, so
that nothing of it outlives the Run by accident; leases have none, so that nothing deletes the ledger), the toleration
of managed nodes, and names under which the gang finds itself. Which physical GPUs it gets is the device plugin's
choice, so the ordinals of the embedded fleet are not in its environment.
"""

from __future__ import annotations

from typing import Any

from tenure.api.meta import LABEL_RUN
from tenure.engine.render import MASTER_PORT
from tenure.engine.rows import RunRow
from tenure.engine.topology import MANAGED_TAINT
from tenure.facts import Pod
from tenure.kube.marks import (
    ENTRY,
    FLEET,
    LABEL_ATTEMPT,
    LABEL_RANK,
    SCHEDULER,
    address,
    host_name,
    service_name,
)
from tenure.kube.resources import RUNS

Object = dict[str, Any]

_DEVICES = ("CUDA_DEVICE_ORDER", "CUDA_VISIBLE_DEVICES")
_TOLERATION = {"key": MANAGED_TAINT, "operator": "Exists"}


def pod_manifest(made: Object, fact: Pod, row: RunRow, *, fleet: str, seq: int, resource: str, bind: bool) -> Object:
    """A pod as it is created. ``made`` is the engine's; with ``bind`` it gets its node by a Binding afterwards."""
    meta, spec = made["metadata"], made["spec"]
    marks = {LABEL_RANK: str(fact.rank), LABEL_ATTEMPT: str(fact.attempt)}
    out: Object = {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {
            "name": fact.name,
            "namespace": fact.namespace,
            "labels": {**meta.get("labels", {}), **marks},
            "annotations": {**meta.get("annotations", {}), FLEET: fleet, ENTRY: str(seq)},
            "ownerReferences": [owner(row)],
        },
        "spec": {
            **spec,
            "containers": [
                _container(one, fact, row, resource=resource, first=index == 0)
                for index, one in enumerate(spec["containers"])
            ],
            "hostname": host_name(fact.rank),
            "subdomain": service_name(fact.run),
            "tolerations": _tolerations(spec.get("tolerations") or []),
        },
    }
    if spec.get("terminationGracePeriodSeconds") == 0:
        out["spec"]["terminationGracePeriodSeconds"] = 1  # with 0 the object is gone before its containers are
    if spec.get("initContainers"):
        out["spec"]["initContainers"] = [_without(one, resource) for one in spec["initContainers"]]
    if bind:
        out["spec"].pop("nodeName", None)
        out["spec"]["schedulerName"] = SCHEDULER
    return out


def service_manifest(namespace: str, row: RunRow, *, fleet: str) -> Object:
    """The headless Service by which a run's pods find one another, also those that are not ready yet."""
    return {
        "apiVersion": "v1",
        "kind": "Service",
        "metadata": {
            "name": service_name(row.name),
            "namespace": namespace,
            "labels": {LABEL_RUN: row.name},
            "annotations": {FLEET: fleet},
            "ownerReferences": [owner(row)],
        },
        "spec": {
            "clusterIP": "None",
            "publishNotReadyAddresses": True,
            "selector": {LABEL_RUN: row.name},
            "ports": [{"name": "rendezvous", "port": MASTER_PORT}],
        },
    }


def binding_manifest(fact: Pod) -> Object:
    return {
        "apiVersion": "v1",
        "kind": "Binding",
        "metadata": {"name": fact.name, "namespace": fact.namespace},
        "target": {"apiVersion": "v1", "kind": "Node", "name": fact.node},
    }


def owner(row: RunRow) -> Object:
    """The Run. It holds up nobody: what the Run waits for is its finalizer."""
    return {
        "apiVersion": RUNS.api_version,
        "kind": RUNS.kind,
        "name": row.name,
        "uid": row.run.metadata.uid,
        "controller": True,
        "blockOwnerDeletion": False,
    }


def master_rank(row: RunRow) -> int:
    """The pod where the gang meets: the lowest rank of those that stay."""
    return min(row.pods.values(), key=lambda pod: (pod.stop, pod.pod.rank)).pod.rank


def _container(container: Object, fact: Pod, row: RunRow, *, resource: str, first: bool) -> Object:
    master = address(fact.namespace, fact.run, master_rank(row))
    ours = {"MASTER_ADDR": master, "TENURE_RDZV_ENDPOINT": f"{master}:{MASTER_PORT}"}
    env = [
        {**item, "value": ours[item["name"]]} if item["name"] in ours else item
        for item in container.get("env") or ()
        if item["name"] not in _DEVICES
    ]
    out = {**container, "env": env}
    return out if first else _without(out, resource)


def _without(container: Object, resource: str) -> Object:
    """A container that gets no GPUs, whatever it asked for: they would be used unrecorded."""
    asked = container.get("resources")
    if not asked:
        return container
    kept = {
        field: {key: value for key, value in given.items() if key != resource} if isinstance(given, dict) else given
        for field, given in asked.items()
    }
    return {**container, "resources": kept}


def _tolerations(given: list[Object]) -> list[Object]:
    return given if _TOLERATION in given else [*given, dict(_TOLERATION)]
