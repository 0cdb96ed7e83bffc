"""Objects on their way to an API server, and whether the ledger says the same of them yet. Pure."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import msgspec

from tenure.api.defaults import default
from tenure.api.errors import FieldError, escape
from tenure.api.meta import OWNER_ANNOTATION
from tenure.engine import State
from tenure.kube.translate import read_object

Object = dict[str, Any]


def manifest(item: Any) -> Object:
    """An object as it is handed to an API server: what a person wrote, and nothing that only the system says."""
    meta = item.metadata
    kept = {"name": meta.name, "namespace": meta.namespace, "labels": meta.labels, "annotations": meta.annotations}
    out: Object = {"apiVersion": item.api_version, "kind": item.kind,
                   "metadata": {key: value for key, value in kept.items() if value}}  # fmt: skip
    return out if item.kind == "Namespace" else {**out, "spec": msgspec.to_builtins(item.spec)}


def machines(objects: Iterable[Any]) -> list[FieldError]:
    return [
        FieldError(object=f"Node/{escape(item.metadata.name)}", path="kind", value="Node",
                   problem="the machines of a cluster join it by themselves",
                   fix="label the Node with kubectl, as docs/guide/kubernetes.md says")
        for item in objects if item.kind == "Node"
    ]  # fmt: skip


def knows(state: State, item: Object) -> bool:
    """Whether the ledger says of an object what the API server says."""
    name = item["metadata"]["name"]
    if item["kind"] == "Namespace":
        known = state.namespaces.get(name)
        notes = item["metadata"].get("annotations") or {}
        mine = {key: text for key, text in notes.items() if key == OWNER_ANNOTATION}
        return not mine or (known is not None and known.metadata.annotations == mine)
    reading = read_object(item, simulated=True)
    if reading.errors:
        return False
    (wanted,) = reading.objects
    if item["kind"] == "Budget":
        budget = state.budgets.get(name)
        return budget is not None and budget.spec == wanted.spec  # type: ignore[union-attr]  # a Budget
    space = item["metadata"]["namespace"]
    row = state.runs.get(f"{space}/{name}")
    full = default(wanted, namespace=state.namespaces.get(space))
    return row is not None and row.run.metadata.uid == item["metadata"]["uid"] and row.run.spec == full.spec  # type: ignore[union-attr]  # a Run


def is_leaving(state: State, key: str) -> bool:
    row = state.runs.get(key)
    return row is None or row.life.deleting
