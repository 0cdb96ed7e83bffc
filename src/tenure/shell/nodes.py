"""Nodes from templates: the ``nodes:`` of a fleet file and of a scenario (SPEC 15), in one reading.

A template stands for ``count`` machines that differ by a number. In the name, ``{i}`` counts from 0, and
``{i:02d}`` does so with leading zeros; nothing else in braces means anything, since a name comes from
outside and a format string can reach further than a name should.

>>> fleet, errors = expand_nodes([{"name": "a-{i:02d}", "count": 3, "gpus": 8, "labels": {"rack": "r1"}}])
>>> [(node.metadata.name, node.status.allocatable) for node in fleet][2], errors
(('a-02', {'nvidia.com/gpu': '8'}), ())
>>> print(expand_nodes([{"name": "a-{i.real}", "gpus": 8}])[1][0].sentence())
nodes: nodes[0].name is "a-{i.real}": {i.real} means nothing; write {i}, or {i:02d} for leading zeros
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from typing import Annotated, Any

from msgspec import Meta, field

from tenure.api.compile import shape_of
from tenure.api.core import Node, NodeStatus
from tenure.api.errors import Faults, FieldError, Path, escape, show
from tenure.api.formats import FORMATS, LABEL_LENGTH_MAX
from tenure.api.meta import Labels, ObjectMeta, Record, says
from tenure.api.shape import BAD
from tenure.api.tree import text_problem

NODE_COUNT_MAX = 200_000
"""Nodes in one file: more than a million GPUs, eight to a node."""
TEMPLATE_COUNT_MAX = 10_000
GPUS_PER_NODE_MAX = 1024

_NUMBER = re.compile(r"\{i(?::0?([1-9])d)?\}", re.ASCII)
_BRACES = re.compile(r"\{[^{}]*\}|[{}]")


class NodeTemplate(Record, frozen=True, kw_only=True):
    """Machines of one kind."""

    name: Annotated[str, says("The node's name; with {i} or {i:02d} in it if there are several.")]
    count: Annotated[int, Meta(ge=1, le=NODE_COUNT_MAX), says("How many; {i} counts from 0.")] = 1
    gpus: Annotated[int, Meta(ge=0, le=GPUS_PER_NODE_MAX), says("GPUs on each.")]
    labels: Annotated[Labels, says("Labels of each: region, cluster, fabric.domain, gpu.flavor, rack.")] = field(
        default_factory=dict
    )

    def node_name(self, index: int) -> str:
        """The name of one of them."""
        return _NUMBER.sub(lambda found: str(index).zfill(int(found.group(1) or 0)), self.name)

    def node(self, index: int, *, gpu_resource: str) -> Node:
        """One of them, as an object."""
        return Node(
            metadata=ObjectMeta(name=self.node_name(index), labels=self.labels),
            status=NodeStatus(allocatable={gpu_resource: str(self.gpus)}),
        )


Templates = Annotated[tuple[NodeTemplate, ...], Meta(max_length=TEMPLATE_COUNT_MAX), says("The machines.")]


class _Holder(Record, frozen=True, kw_only=True):
    nodes: Templates


def expand_nodes(
    tree: Any, gpu_resource: str = "nvidia.com/gpu", *, source: str = "nodes"
) -> tuple[list[Node], tuple[FieldError, ...]]:
    """The nodes that a list of templates stands for, or every error in it. Paths begin with ``nodes``."""
    faults = Faults(escape(source))
    holder = shape_of(_Holder).read({"nodes": tree}, (), faults)
    if holder is not BAD:
        check_templates(holder.nodes, faults)
    nodes = [] if faults.errors else list(expand(holder.nodes, gpu_resource))
    return nodes, tuple(faults.errors)


def expand(templates: Sequence[NodeTemplate], gpu_resource: str) -> Iterator[Node]:
    """The nodes of templates that were checked."""
    for template in templates:
        yield from (template.node(index, gpu_resource=gpu_resource) for index in range(template.count))


def check_templates(templates: Sequence[NodeTemplate], faults: Faults) -> None:
    """The rules that a template's types cannot say: names that are names, and each only once."""
    for index, template in enumerate(templates):
        _check_name(template, ("nodes", index, "name"), faults)
    if faults.errors:
        return  # counts may be anything yet
    total = sum(template.count for template in templates)
    if total > NODE_COUNT_MAX:
        faults.add(("nodes",), f"{total} nodes", f"write at most {NODE_COUNT_MAX}")
    else:
        _check_unique(templates, faults)


def _check_name(template: NodeTemplate, at: Path, faults: Faults) -> None:
    value = show(template.name)
    for found in _BRACES.finditer(template.name):
        if not _NUMBER.fullmatch(found.group()):
            problem = f"{found.group()[:32]} means nothing"
            faults.add(at, problem, "write {i}, or {i:02d} for leading zeros", value=value)
            return
    if template.count > 1 and not _NUMBER.search(template.name):
        problem = f"{template.count} nodes would have the same name"
        faults.add(at, problem, "put {i} into it", value=value)
    longest = template.node_name(template.count - 1)
    problem = text_problem(longest, FORMATS["name"])
    if not problem and len(longest) > LABEL_LENGTH_MAX:
        problem = f"longer than {LABEL_LENGTH_MAX} characters"
    if problem:
        faults.add(at, problem, f"write {FORMATS['name'].right}", value=value)


def _check_unique(templates: Sequence[NodeTemplate], faults: Faults) -> None:
    first: dict[str, int] = {}
    for index, template in enumerate(templates):
        for number in range(template.count):
            name = template.node_name(number)
            if name in first:
                problem = f"{name} is a node of nodes[{first[name]}] already"
                at = ("nodes", index, "name")
                faults.add(at, problem, "give it another name", value=show(template.name))
                break
            first[name] = index
