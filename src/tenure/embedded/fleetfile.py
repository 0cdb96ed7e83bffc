"""The fleet file: of which machines an embedded fleet is made, by which policy, and how its pods run.

    kind: Fleet
    metadata: {name: lab}
    executor: process            # process (the default) | simulated
    policy: {activationLead: 5m} # any policy key
    nodes:                       # as in a scenario; or `nodes: local`, this machine by its NVIDIA driver
    - {name: "a-{i:02d}", count: 2, gpus: 8, labels: {region: us-west, ...}}

It is read when a fleet is created. From then on nodes and policy are facts in the ledger, and change by
``apply`` like everything else. Nodes of a simulated fleet carry an annotation that says so, which is how
their pods find the right executor; a manifest that does not name it leaves it.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Annotated, Any, Literal

from msgspec import Struct
from msgspec.structs import replace

from tenure.api.compile import shape_of
from tenure.api.core import Node
from tenure.api.errors import Faults, FieldError, escape
from tenure.api.meta import Name, Record, says
from tenure.api.policy import Policy
from tenure.api.shape import BAD
from tenure.api.text import parse
from tenure.api.validate import check_policy_rules
from tenure.embedded.nvml import local_node
from tenure.embedded.route import EXECUTOR_ANNOTATION, SIMULATED
from tenure.shell.nodes import Templates, check_templates, expand

ExecutorKind = Literal["process", "simulated"]
"""How pods run: as processes of this machine, or only as bookkeeping."""
LOCAL = "local"


class FleetMeta(Record, frozen=True, kw_only=True):
    """What the fleet is called."""

    name: Annotated[Name, says("The fleet's name.")]


class FleetFile(Record, frozen=True, kw_only=True):
    """The file as it is written, ``nodes: local`` aside."""

    kind: Annotated[Literal["Fleet"], says("Fleet.")]
    metadata: Annotated[FleetMeta, says("What the fleet is called.")]
    nodes: Templates
    policy: Annotated[Policy, says("Any policy key.")] = Policy()
    executor: Annotated[ExecutorKind, says("How pods run.")] = "process"


class Fleet(Struct, frozen=True, kw_only=True):
    """What a fleet file says. Its nodes are marked with their executor if that is the simulated one."""

    name: str
    nodes: tuple[Node, ...]
    policy: Policy
    executor: ExecutorKind


def read_fleet(
    text: str | bytes, *, source: str = "fleet file", local: Callable[[str], Node | None] = local_node
) -> tuple[Fleet | None, tuple[FieldError, ...]]:
    """The fleet that a file describes, or every error in it."""
    parsed = parse(text, source=source)
    if parsed.errors:
        return None, parsed.errors
    if len(parsed.trees) != 1:
        faults = Faults(escape(source))
        faults.add((), f"{len(parsed.trees)} documents", "write one, of kind Fleet")
        return None, tuple(faults.errors)
    return read_fleet_tree(parsed.trees[0], source=source, local=local)


def read_fleet_tree(
    tree: Any, *, source: str = "fleet file", local: Callable[[str], Node | None] = local_node
) -> tuple[Fleet | None, tuple[FieldError, ...]]:
    """The same from a tree that was parsed already."""
    faults = Faults(escape(source))
    is_local = isinstance(tree, dict) and tree.get("nodes") == LOCAL
    file = shape_of(FleetFile).read({**tree, "nodes": []} if is_local else tree, (), faults)
    if file is BAD:
        return None, tuple(faults.errors)
    assert isinstance(file, FleetFile)
    _check_policy(file.policy, faults)
    nodes = _this_machine(file, local, faults) if is_local else _templates(file, faults)
    if faults.errors:
        return None, tuple(faults.errors)
    marked = tuple(_marked(node, file.executor) for node in nodes)
    return Fleet(name=file.metadata.name, nodes=marked, policy=file.policy, executor=file.executor), ()


def _templates(file: FleetFile, faults: Faults) -> tuple[Node, ...]:
    check_templates(file.nodes, faults)
    return () if faults.errors else tuple(expand(file.nodes, file.policy.gpu_resource))


def _this_machine(file: FleetFile, local: Callable[[str], Node | None], faults: Faults) -> tuple[Node, ...]:
    node = local(file.policy.gpu_resource)
    if node is None:
        problem = "NVML finds no NVIDIA GPU on this machine"
        fix = "list the nodes instead; or install the driver and the extra: pip install '.[nvml]' in a clone of Tenure"
        faults.add(("nodes",), problem, fix, value=f'"{LOCAL}"')
    return () if node is None else (node,)


def _marked(node: Node, executor: ExecutorKind) -> Node:
    """A simulated node says so itself (``route.py``); a real one needs no mark."""
    if executor != SIMULATED:
        return node
    annotations = {**node.metadata.annotations, EXECUTOR_ANNOTATION: SIMULATED}
    return replace(node, metadata=replace(node.metadata, annotations=annotations))


def _check_policy(policy: Policy, faults: Faults) -> None:
    found = Faults(faults.name)
    check_policy_rules(policy, found, simulated=False)
    faults.errors.extend(replace(error, path=f"policy.{error.path}") for error in found.errors)
