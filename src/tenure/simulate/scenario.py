"""Scenario files (SPEC 15): what one may say, read with all errors at once.

Times are offsets from ``start``. What is wrong with the file itself is a list of errors; the objects in it are judged
when they are applied, as they would be in a real fleet.
"""

from __future__ import annotations

from typing import Annotated, Any, Literal

import msgspec
from msgspec import Meta

from tenure.api.compile import shape_of
from tenure.api.core import Node
from tenure.api.decode import read_policy
from tenure.api.errors import Faults, FieldError
from tenure.api.meta import Count, Duration, Labels, Record, Time
from tenure.api.policy import Policy
from tenure.api.shape import BAD
from tenure.api.text import parse
from tenure.shell.nodes import expand_nodes
from tenure.units import Instant, Micros, parse_duration, parse_time

Objects = Annotated[tuple[dict[str, Any], ...], Meta(max_length=10_000)]
ACTIONS = ("apply", "patch", "delete", "node", "workload", "snapshot")


class Patch(Record, frozen=True, kw_only=True):
    """A JSON merge patch (RFC 7396) of one object."""

    kind: Literal["Budget", "Run", "Namespace", "Node"]
    name: str
    namespace: str = ""
    merge: dict[str, Any]


class Deletion(Record, frozen=True, kw_only=True):
    kind: Literal["Budget", "Run", "Namespace", "Node"]
    name: str
    namespace: str = ""


class NodeAct(Record, frozen=True, kw_only=True):
    """Something that happens to a machine."""

    name: str
    do: Literal["fail", "restore", "cordon", "uncordon", "delete", "unready", "ready", "add"]
    gpus: Count | None = None
    labels: Labels = {}


class WorkloadAct(Record, frozen=True, kw_only=True):
    """The work of a run ends: all of it, one group, or one pod (by name)."""

    run: str
    do: Literal["succeed", "fail"]
    group: Annotated[int, Meta(ge=0)] | None = None
    pod: str | None = None


class Entry(Record, frozen=True, kw_only=True):
    """One entry of the timeline: an instant and one thing that happens."""

    at: Duration
    apply: Objects | None = None
    patch: Patch | None = None
    delete: Deletion | None = None
    node: NodeAct | None = None
    workload: WorkloadAct | None = None
    snapshot: str | None = None


class ScenarioName(Record, frozen=True, kw_only=True):
    name: str


class ScenarioFile(Record, frozen=True, kw_only=True):
    api_version: str = ""
    kind: Literal["Scenario"]
    metadata: ScenarioName
    start: Time
    policy: dict[str, Any] = {}
    nodes: Objects = ()
    objects: Objects = ()
    timeline: Annotated[tuple[Entry, ...], Meta(max_length=10_000)] = ()
    until: Duration


class Step(msgspec.Struct, frozen=True):
    """An entry of the timeline, with its offset read."""

    at: Micros
    action: str
    body: Any


class Scenario(msgspec.Struct, frozen=True):
    """A scenario, ready to be played."""

    name: str
    start: Instant
    until: Micros
    policy: Policy
    nodes: tuple[Node, ...]
    objects: tuple[dict[str, Any], ...]
    steps: tuple[Step, ...]


def read_scenario(text: str | bytes, *, source: str = "<input>") -> tuple[Scenario | None, list[FieldError]]:
    """A scenario, or all that is wrong with the file."""
    parsed = parse(text, source=source)
    if parsed.errors:
        return None, list(parsed.errors)
    faults = Faults(source)
    if len(parsed.trees) != 1:
        faults.add((), f"{len(parsed.trees)} documents", "write one Scenario")
        return None, faults.errors
    return scenario_of(parsed.trees[0], source=source)


def scenario_of(tree: Any, *, source: str = "<input>") -> tuple[Scenario | None, list[FieldError]]:
    faults = Faults(source)
    file = shape_of(ScenarioFile).read(_lenient(tree), (), faults)
    if file is BAD or faults.errors:
        return None, faults.errors
    policy, policy_errors = read_policy(file.policy, source=f"{source}: policy", simulated=True)
    nodes, node_errors = expand_nodes(list(file.nodes), policy.gpu_resource)
    steps = [_step(entry, index, faults) for index, entry in enumerate(file.timeline)]
    errors = [*faults.errors, *policy_errors, *node_errors]
    if errors:
        return None, errors
    ordered = sorted((step for step in steps if step is not None), key=lambda step: step.at)
    return (
        Scenario(
            name=file.metadata.name,
            start=parse_time(file.start),
            until=parse_duration(file.until),
            policy=policy,
            nodes=tuple(nodes),
            objects=file.objects,
            steps=tuple(ordered),
        ),
        [],
    )


def _lenient(tree: Any) -> Any:
    """A bare 0 is a duration to everybody who writes one."""
    if isinstance(tree, dict) and tree.get("until") == 0:
        tree = {**tree, "until": "0s"}
    if isinstance(tree, dict) and isinstance(tree.get("timeline"), list):
        timeline = [
            {**entry, "at": "0s"} if isinstance(entry, dict) and entry.get("at") == 0 else entry
            for entry in tree["timeline"]
        ]
        return {**tree, "timeline": timeline}
    return tree


def _step(entry: Entry, index: int, faults: Faults) -> Step | None:
    said = [action for action in ACTIONS if getattr(entry, action) is not None]
    if len(said) != 1:
        faults.add(("timeline", index), f"{len(said)} actions", f"write exactly one of {', '.join(ACTIONS)}")
        return None
    return Step(parse_duration(entry.at), said[0], getattr(entry, said[0]))
