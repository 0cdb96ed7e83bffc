"""The taint of managed machines (SPEC 9): it keeps pods that are not Tenure's away from nodes with GPUs.

It is set by an administrator's hand (`tenure install --kube --taint-nodes`), not by the operator: whoever may patch
nodes may empty a cluster, and a taint that comes by itself would lock out a device plugin that does not tolerate it.
The operator only looks, and says which nodes lack it; the decision is docs/decisions/0021.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable
from typing import Any, Final

from msgspec import Struct

from tenure.engine.topology import MANAGED_TAINT
from tenure.kube.client import ApiError, Client
from tenure.kube.install import Applied
from tenure.kube.resources import NODES
from tenure.kube.translate import has_gpus

Object = dict[str, Any]

TAINT: Final = {"key": MANAGED_TAINT, "effect": "NoSchedule"}
COMMAND: Final = "tenure install --kube --taint-nodes"
AT_ONCE: Final = 16
TRIES_MAX: Final = 5
"""A node's heartbeat may come between reading and writing it."""
NAMED_MAX: Final = 3


def is_open(node: Object, resource: str) -> bool:
    """Whether a node has GPUs and lets in pods that do not tolerate our taint."""
    taints = (node.get("spec") or {}).get("taints") or ()
    kept = any(one.get("key") == MANAGED_TAINT and one.get("effect") in ("NoSchedule", "NoExecute") for one in taints)
    return has_gpus(node, resource) and not kept


def told(names: Iterable[str]) -> str:
    """That nodes lack the taint, in a sentence; empty if none does.

    >>> print(told(["b"]))
    Node/b has GPUs and takes pods that are not Tenure's: `tenure install --kube --taint-nodes` taints it
    """
    found = [f"Node/{name}" for name in sorted(names)]
    if not found:
        return ""
    more = len(found) - NAMED_MAX
    shown = [*found[:NAMED_MAX], *([f"{more} more"] if more > 0 else [])]
    listed = f"{', '.join(shown[:-1])} and {shown[-1]}" if shown[1:] else shown[0]
    one = len(found) == 1
    return (
        f"{listed} {'has' if one else 'have'} GPUs and {'takes' if one else 'take'} pods that are not Tenure's: "
        f"`{COMMAND}` taints {'it' if one else 'them'}"
    )


class _Metadata(Struct):
    name: str


class _Node(Struct):
    metadata: _Metadata
    spec: dict[str, Any] = {}
    status: dict[str, Any] = {}


async def open_nodes(client: Client, resource: str) -> list[str]:
    """The names of nodes with GPUs that lack the taint."""
    pages = client.pages(NODES, _Node)
    return [one.metadata.name async for page in pages for one in page if _is_open(one, resource)]


async def taint(client: Client, resource: str, *, dry_run: bool = False) -> list[Applied]:
    """Set the taint on every node with GPUs that lacks it; tells which those are."""
    hands = asyncio.Semaphore(AT_ONCE)

    async def one(name: str) -> Applied | None:
        async with hands:
            return await _taint(client, name, resource, dry_run=dry_run)

    done = await asyncio.gather(*map(one, await open_nodes(client, resource)))
    return [each for each in done if each is not None]


async def _taint(client: Client, name: str, resource: str, *, dry_run: bool) -> Applied | None:
    """Add the taint to whatever taints a node has; None if it is gone, or has it by now."""
    for number in range(1, TRIES_MAX + 1):
        try:
            node = await client.get(NODES, name)
            if not is_open(node, resource):
                return None
            taints = [*((node.get("spec") or {}).get("taints") or ()), TAINT]
            change = {"metadata": {"resourceVersion": node["metadata"]["resourceVersion"]}, "spec": {"taints": taints}}
            await client.patch(NODES, name, change, dry_run=dry_run)
            return Applied("Node", name, "", "changed")
        except ApiError as error:
            if error.not_found:
                return None
            if not error.conflict or number == TRIES_MAX:
                raise
    raise AssertionError("the last try returns or raises")


def _is_open(one: _Node, resource: str) -> bool:
    return is_open({"spec": one.spec, "status": one.status}, resource)
