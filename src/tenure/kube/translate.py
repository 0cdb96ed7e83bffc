"""Objects of the API server as the engine knows them, and nothing else of them: pure, one function per kind.

An API server's objects carry heartbeats, bookkeeping and notes of other tools. What the engine does not read is left
out here, so that a heartbeat is no news and the ledger holds only what decisions rest on. An object that is not what it
should be comes back as errors, for its own status and nobody else's trouble.
"""

from __future__ import annotations

from typing import Any

from tenure.api.core import Namespace, Node, NodeCondition, NodeSpec, NodeStatus, Taint
from tenure.api.decode import Reading, read_tree
from tenure.api.formats import FORMATS
from tenure.api.meta import GROUP, OWNER_ANNOTATION, ObjectMeta
from tenure.api.tree import text_problem
from tenure.kube.marks import RESOLVE

LABEL_COUNT_MAX = 64
"""Labels of one object that are kept: as many as a manifest may have."""
_CHATTER = ("feature.node.kubernetes.io/", "beta.kubernetes.io/", "node.alpha.kubernetes.io/")
"""Labels that describe a machine's innards by the hundred: no money and no run is bound to them."""
_EFFECTS = ("NoSchedule", "PreferNoSchedule", "NoExecute")
_OVER = ("Succeeded", "Failed")

Object = dict[str, Any]


def key_of(item: Object) -> str:
    """``namespace/name``, or ``name`` where there is no namespace."""
    meta = item["metadata"]
    return f"{meta['namespace']}/{meta['name']}" if meta.get("namespace") else str(meta["name"])


def is_leaving(item: Object) -> bool:
    """Somebody asked for its deletion."""
    return bool(item["metadata"].get("deletionTimestamp"))


# --- what people write --------------------------------------------------------------------------------------------


def read_object(item: Object, *, simulated: bool = False) -> Reading:
    """A Budget or a Run, with the identity that the API server gave it, or what is wrong with it."""
    meta = item["metadata"]
    kept = {key: meta[key] for key in ("name", "namespace", "uid", "creationTimestamp") if meta.get(key)}
    tree = {
        "apiVersion": item.get("apiVersion"),
        "kind": item.get("kind"),
        "metadata": {**kept, **_notes(meta)},
        "spec": item.get("spec"),
    }
    name = f"{item.get('kind')}/{key_of(item)}"
    return read_tree(tree, source=name, simulated=simulated)


def to_namespace(item: Object) -> Namespace:
    """A namespace: its owner is all that counts."""
    meta = item["metadata"]
    owner = (meta.get("annotations") or {}).get(OWNER_ANNOTATION)
    notes = {OWNER_ANNOTATION: owner} if owner is not None else {}
    return Namespace(metadata=_identity(meta, annotations=notes))


def _notes(meta: Object) -> Object:
    """Labels, and of the annotations our own: other tools' are theirs, and long."""
    notes = meta.get("annotations") or {}
    ours = {key: text for key, text in notes.items() if key.startswith(f"{GROUP}/") and key != RESOLVE}
    labels = dict(sorted((meta.get("labels") or {}).items())[:LABEL_COUNT_MAX])
    return {**({"labels": labels} if labels else {}), **({"annotations": ours} if ours else {})}


def _identity(meta: Object, **rest: Any) -> ObjectMeta:
    return ObjectMeta(
        name=meta["name"], uid=meta.get("uid", ""), creation_timestamp=meta.get("creationTimestamp"), **rest
    )


# --- machines -----------------------------------------------------------------------------------------------------


def has_gpus(item: Object, resource: str) -> bool:
    """Whether a node says anything about GPUs, be it that it has none at present."""
    return resource in ((item.get("status") or {}).get("allocatable") or {})


def to_node(item: Object, resource: str, *, taken: int = 0, topology: tuple[str, ...] = ()) -> Node:
    """A machine. ``taken``: GPUs that pods hold which are none of ours; ``topology``: labels that must not be lost."""
    spec, status = item.get("spec") or {}, item.get("status") or {}
    ready = [mark for mark in status.get("conditions") or () if mark.get("type") == "Ready"]
    offered = str((status.get("allocatable") or {}).get(resource, "0"))
    return Node(
        metadata=_identity(item["metadata"], labels=_labels(item["metadata"].get("labels") or {}, topology)),
        spec=NodeSpec(
            unschedulable=bool(spec.get("unschedulable")),
            taints=tuple(
                Taint(key=one["key"], effect=one["effect"], value=one.get("value", ""))
                for one in (spec.get("taints") or ())[:LABEL_COUNT_MAX]
                if one.get("effect") in _EFFECTS and not _is_cordon(one)
            ),
        ),
        status=NodeStatus(
            allocatable={resource: str(max(0, int(offered) - taken)) if offered.isdigit() else offered[:32]},
            conditions=tuple(NodeCondition(type="Ready", status=mark["status"]) for mark in ready[:1]),
        ),
    )


def _is_cordon(taint: Object) -> bool:
    """What ``unschedulable`` and the Ready condition say already, said again by the node controller."""
    return taint["key"] in (
        "node.kubernetes.io/unschedulable",
        "node.kubernetes.io/not-ready",
        "node.kubernetes.io/unreachable",
    )


def _labels(labels: dict[str, str], topology: tuple[str, ...]) -> dict[str, str]:
    def order(key: str) -> tuple[bool, str]:
        return key not in topology, key

    kept = [key for key in labels if not key.startswith(_CHATTER) and not _problem(key, labels[key])]
    return {key: labels[key] for key in sorted(sorted(kept, key=order)[:LABEL_COUNT_MAX])}


def _problem(key: str, value: str) -> bool:
    return bool(text_problem(key, FORMATS["label-key"]) or text_problem(value, FORMATS["label-value"]))


# --- pods of anybody ----------------------------------------------------------------------------------------------


def gpus_of(pod: Object, resource: str) -> int:
    """GPUs that a pod holds on its node: 0 if it is over, or not on any."""
    spec = pod.get("spec") or {}
    if not spec.get("nodeName") or (pod.get("status") or {}).get("phase") in _OVER:
        return 0
    return requested(spec, resource)


def requested(spec: Object, resource: str) -> int:
    """GPUs that a pod needs: all containers together, or the hungriest of those that run before them.

    >>> requested({"containers": [{"resources": {"limits": {"g": "4"}}}, {}], "initContainers": [
    ...     {"resources": {"limits": {"g": "8"}}}]}, "g")
    8
    """
    together = sum(_asks(one, resource) for one in spec.get("containers") or ())
    before, beside = 0, 0
    for one in spec.get("initContainers") or ():
        if one.get("restartPolicy") == "Always":  # a side-car stays
            beside += _asks(one, resource)
        before = max(before, beside + (0 if one.get("restartPolicy") == "Always" else _asks(one, resource)))
    whole = ((spec.get("resources") or {}).get("limits") or {}).get(resource)
    return max(together + beside, before, _count(whole))


def _asks(container: Object, resource: str) -> int:
    asked = container.get("resources") or {}
    return max(_count((asked.get(field) or {}).get(resource)) for field in ("limits", "requests"))


def _count(quantity: Any) -> int:
    text = str(quantity or "0")
    return int(text) if text.isdigit() else 0
