"""What the operator watches, and what it keeps of it: only what it reads, so that a heartbeat wakes nobody.

A cluster has many pods that are nobody's business here. Kept are those that carry our mark, and those that ask for
devices on some node, with nothing but what tells how many.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable
from threading import Event
from typing import Any

from msgspec import Struct

from tenure.api.meta import GROUP
from tenure.kube.client import Client
from tenure.kube.errors import ApiError
from tenure.kube.informer import Changes, Informer
from tenure.kube.marks import FLEET, POLICY_NAME
from tenure.kube.resources import (
    BUDGETS,
    CONFIG_MAPS,
    LEASES,
    LEDGER_HEADS,
    NAMESPACES,
    NODES,
    PODS,
    RESERVATIONS,
    RUNS,
    SYSTEM_NAMESPACE,
    Resource,
)

Object = dict[str, Any]

LISTS_MAX = 3
"""How often a list that takes so long that its pages expire is begun."""
OPEN, CLOSED = "status.closed!=true", "status.closed=true"
"""Leases are watched as long as they are open: nothing happens to closed ones, and there are very many."""


class _Metadata(Struct, gc=False):
    name: str
    namespace: str = ""


class _Named(Struct, gc=False):
    metadata: _Metadata


async def names(client: Client, resource: Resource, *, fields: str) -> set[str]:
    """``namespace/name`` of all that match, and nothing else of them, however many they are."""
    for number in range(LISTS_MAX):
        try:
            pages = client.pages(resource, _Named, fields=fields, metadata_only=True)
            return {f"{one.metadata.namespace}/{one.metadata.name}" async for page in pages for one in page}
        except ApiError as error:
            if not error.expired or number == LISTS_MAX - 1:
                raise
    raise AssertionError("the last try returns or raises")


class Bell(Changes):
    """What changed, and a bell that rings until somebody has come: a ring between two looks is not lost."""

    def __init__(self) -> None:
        super().__init__()
        self._rung = Event()

    def add(self, resource: Resource, keys: Iterable[str]) -> None:
        super().add(resource, keys)
        self._rung.set()

    def ring(self) -> None:
        """Somebody should look, though no object changed."""
        self._rung.set()

    def await_ring(self, seconds: float) -> bool:
        """Wait for the bell; it is silent again afterwards."""
        rung = self._rung.wait(seconds)
        self._rung.clear()
        return rung


def informers(
    client: Client, changes: Changes, *, watch_seconds: int = 60, clock: Callable[[], float] = time.monotonic
) -> dict[str, Informer]:
    """Copies of everything that decisions rest on, and of what is written from them, by kind."""

    def one(resource: Resource, **rest: Any) -> Informer:
        return Informer(client, resource, changes, watch_seconds=watch_seconds, clock=clock, **rest)

    policy = {"namespace": SYSTEM_NAMESPACE, "fields": f"metadata.name={POLICY_NAME}"}
    found = [
        one(CONFIG_MAPS, **policy),
        one(NAMESPACES, keep=keep_namespace),
        one(BUDGETS, keep=keep_ours),
        one(NODES, keep=keep_node),
        one(RUNS, keep=keep_ours),
        one(PODS, keep=keep_pod),
        one(LEASES, keep=keep_lease, fields=OPEN),
        one(RESERVATIONS, keep=keep_ours),
        one(LEDGER_HEADS),
    ]
    return {each.resource.kind: each for each in found}


def keep_ours(item: Object) -> Object | None:
    """A Run, a Budget or a Reservation: without who set which field, and what other tools noted on it."""
    return {**item, "metadata": _meta(item["metadata"])}


def keep_lease(item: Object) -> Object | None:
    """A Lease that is open: what it says. There are many, and their metadata is of no interest."""
    meta = item["metadata"]
    kept = {key: meta[key] for key in ("name", "namespace") if key in meta}
    return {"metadata": kept, "spec": item.get("spec") or {}, "status": item.get("status") or {}}


def keep_namespace(item: Object) -> Object | None:
    return {"metadata": _meta(item["metadata"])}


def keep_node(item: Object) -> Object | None:
    """A node: what it offers and whether it works, not what it last said about itself."""
    spec, status = item.get("spec") or {}, item.get("status") or {}
    marks = [
        {"type": mark["type"], "status": mark["status"]}
        for mark in status.get("conditions") or ()
        if mark["type"] == "Ready"
    ]
    taints = [
        {key: taint[key] for key in ("key", "value", "effect") if key in taint} for taint in spec.get("taints") or ()
    ]
    meta = item["metadata"]
    kept = {key: meta[key] for key in ("name", "uid", "labels", "creationTimestamp") if key in meta}
    return {
        "metadata": kept,
        "spec": {"unschedulable": bool(spec.get("unschedulable")), "taints": taints},
        "status": {"allocatable": _devices(status.get("allocatable")), "conditions": marks},
    }


def keep_pod(item: Object) -> Object | None:
    """A pod of ours, or one that asks for devices; of the others nothing."""
    meta, spec = item["metadata"], item.get("spec") or {}
    asking = {
        field: [{"resources": {"limits": given}, "restartPolicy": one.get("restartPolicy")} for one, given in found]
        for field in ("containers", "initContainers")
        if (found := [(one, given) for one in spec.get(field) or () if (given := _asked(one))])
    }
    if not asking and FLEET not in (meta.get("annotations") or {}):
        return None
    status = item.get("status") or {}
    told = ("phase", "reason", "message", "containerStatuses", "initContainerStatuses")
    return {
        "metadata": _meta(meta, ("name", "namespace", "uid", "deletionTimestamp")),
        "spec": {"nodeName": spec.get("nodeName"), **asking},
        "status": {
            key: _states(status[key]) if key.endswith("Statuses") else status[key] for key in told if key in status
        },
    }


def _states(statuses: list[Object]) -> list[Object]:
    return [{key: one[key] for key in ("name", "state", "lastState") if key in one} for one in statuses]


def _asked(container: Object) -> Object:
    """Extended resources of a container, by whichever field names them."""
    asked = container.get("resources") or {}
    return {**_devices(asked.get("requests")), **_devices(asked.get("limits"))}


def _devices(resources: Object | None) -> Object:
    """Extended resources: those with a domain in their name."""
    return {key: str(value) for key, value in (resources or {}).items() if "/" in key}


_META = ("name", "namespace", "uid", "resourceVersion", "generation", "creationTimestamp", "deletionTimestamp",
         "finalizers", "labels")  # fmt: skip


def _meta(meta: Object, fields: tuple[str, ...] = _META) -> Object:
    notes = {key: text for key, text in (meta.get("annotations") or {}).items() if key.startswith(f"{GROUP}/")}
    return {key: meta[key] for key in fields if key in meta} | ({"annotations": notes} if notes else {})
