"""Playing a scenario: a virtual clock, simulated pods, and the same decisions as everywhere else.

At each instant timers that are due fire first, then the timeline's entries in order; after each, decisions are taken
until nothing changes, so a snapshot sees a settled world. The player drives any ``Home``: the simulator's, kept in
memory, or one on a real ledger.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import msgspec

from tenure.api.core import Node, NodeCondition, NodeStatus, Taint
from tenure.api.decode import read_tree
from tenure.api.errors import FieldError
from tenure.api.meta import ObjectMeta, to_wire
from tenure.api.patch import merge
from tenure.api.validate import ApiObject
from tenure.engine import Apply, Delete, Event, Publish, SetPolicy
from tenure.engine.topology import FENCE_TAINT
from tenure.facts import Entry, Noted
from tenure.shell.custodian import SimulatedCustodian
from tenure.shell.home import Home
from tenure.shell.simulated import SimulatedExecutor
from tenure.shell.view import snapshot
from tenure.simulate.scenario import Deletion, NodeAct, Patch, Scenario, Step, WorkloadAct
from tenure.units import Instant, format_time, parse_duration

_FIXED = ("kind", "metadata.name", "metadata.namespace", "metadata.uid", "metadata.creationTimestamp", "status")
"""What a patch leaves alone: an identity, and what is derived."""
_FENCE = Taint(key=FENCE_TAINT, effect="NoExecute", value="nodeshutdown")


class Player:
    """One scenario on one home."""

    def __init__(
        self,
        scenario: Scenario,
        make_home: Callable[[SimulatedExecutor], Home],
        *,
        settled: Callable[[Home, Instant], None] | None = None,
    ) -> None:
        self.scenario = scenario
        self.executor = SimulatedExecutor(
            bind_delay=parse_duration(scenario.policy.bind_delay), stop_delay=parse_duration(scenario.policy.stop_delay)
        )
        self.executor.open_ended = frozenset(
            step.body.run if "/" in step.body.run else f"default/{step.body.run}"
            for step in scenario.steps
            if isinstance(step.body, WorkloadAct)
        )
        self.custodian = SimulatedCustodian(scenario.policy.draw_secret)
        self.home = make_home(self.executor)
        self.home.custodians = (self.custodian,)
        self.home.watch = self._watch
        self.settled = settled
        self.now = scenario.start
        self.events: list[dict[str, str]] = []
        self.snapshots: dict[str, Any] = {}
        self.nodes = {node.metadata.name: node for node in scenario.nodes}

    def play(self) -> dict[str, Any]:
        """All of it; returns what SPEC 15 prints."""
        self._begin()
        for step in self.scenario.steps:
            if step.at > self.scenario.until:
                break
            self._advance(self.scenario.start + step.at)
            self._do(step)
            self._settle()
        self._advance(self.scenario.start + self.scenario.until)
        return {
            "scenario": self.scenario.name,
            "snapshots": self.snapshots,
            "final": snapshot(self.home, now=self.now),
            "events": self.events,
        }

    # -- time --

    def _begin(self) -> None:
        self._handle(SetPolicy(self.scenario.policy))
        self._handle(Publish(self.custodian.beacon, self.custodian.root))
        self._handle(Apply(self.scenario.nodes))
        self._apply(self.scenario.objects)
        self._settle()

    def _advance(self, until: Instant) -> None:
        """Let everything happen that time alone brings, up to and including ``until``."""
        while (wake := self.home.next_wake()) is not None and wake <= until:
            self.now = max(self.now, wake)
            self._settle()
        self.now = until
        self._settle()

    def _settle(self) -> None:
        self.home.drive(now=self.now)
        if self.settled is not None:
            self.settled(self.home, self.now)

    def _handle(self, event: Event) -> list[FieldError]:
        return [error for outcome in self.home.handle(event, now=self.now) for error in outcome.refused]

    def _watch(self, entry: Entry) -> None:
        for fact in entry.facts:
            if isinstance(fact, Noted):
                self._event(entry.at, fact.kind, fact.object, fact.reason, fact.message)

    def _event(self, at: Instant, kind: str, subject: str, reason: str, message: str) -> None:
        self.events.append(
            {"at": format_time(at), "kind": kind, "object": subject, "reason": reason, "message": message}
        )

    def _reject(self, errors: list[FieldError]) -> None:
        for error in errors:
            self._event(self.now, "Rejected", error.object, "Invalid", error.sentence())

    # -- what the timeline may do --

    def _do(self, step: Step) -> None:
        match step.body:
            case Patch():
                self._patch(step.body)
            case Deletion():
                self._delete(step.body)
            case NodeAct():
                self._node(step.body)
            case WorkloadAct():
                self._workload(step.body)
            case str():
                self.snapshots[step.body] = snapshot(self.home, now=self.now)
            case _:
                self._apply(step.body)

    def _apply(self, trees: tuple[dict[str, Any], ...]) -> None:
        """Apply objects together; those that are refused are left out, and said so."""
        objects: list[ApiObject] = []
        for index, tree in enumerate(trees):
            reading = read_tree(tree, source=f"object {index + 1}", simulated=True)
            self._reject(list(reading.errors))
            objects += reading.objects
        self._apply_objects(objects)

    def _apply_objects(self, objects: list[ApiObject]) -> None:
        while objects:
            errors = self._handle(Apply(tuple(objects)))  # type: ignore[arg-type]  # the kinds that people write
            if not errors:
                break
            self._reject(errors)
            refused = {error.object for error in errors}
            kept = [item for item in objects if _name(item) not in refused]
            objects = kept if len(kept) < len(objects) else []

    def _patch(self, patch: Patch) -> None:
        found = self._find(patch.kind, patch.namespace, patch.name)
        if found is None:
            self._missing(patch.kind, patch.namespace, patch.name)
            return
        before, after = to_wire(found), merge(to_wire(found), patch.merge)
        fixed = [path for path in _FIXED if _at(before, path) != _at(after, path)]
        for path in fixed:
            self._event(self.now, "Rejected", _name(found), "Invalid", f"{_name(found)}: {path} cannot be patched")
        if not fixed:
            self._apply((after,))

    def _delete(self, body: Deletion) -> None:
        namespace = (body.namespace or "default") if body.kind == "Run" else ""
        self._reject(self._handle(Delete(kind=body.kind, name=body.name, namespace=namespace)))

    def _find(self, kind: str, namespace: str, name: str) -> ApiObject | None:
        state = self.home.state
        if kind == "Run":
            row = state.runs.get(f"{namespace or 'default'}/{name}")
            return row.run if row else None
        if kind == "Budget":
            return state.budgets.get(name)
        if kind == "Namespace":
            return state.namespaces.get(name)
        node = state.topology.rows.get(name)
        return node.node if node else None

    def _missing(self, kind: str, namespace: str, name: str) -> None:
        subject = f"{kind}/{namespace or 'default'}/{name}" if kind == "Run" else f"{kind}/{name}"
        self._event(self.now, "Rejected", subject, "NotFound", f"{subject} does not exist")

    def _node(self, act: NodeAct) -> None:
        if act.do == "add":
            labels = act.labels
            resource = self.scenario.policy.gpu_resource
            self.nodes[act.name] = Node(
                metadata=ObjectMeta(name=act.name, labels=labels),
                status=NodeStatus(allocatable={resource: str(act.gpus or 0)}),
            )
        node = self._find("Node", "", act.name)
        if act.do == "add" or (act.do == "restore" and node is None):
            node = self.nodes.get(act.name)
        if not isinstance(node, Node):
            self._missing("Node", "", act.name)
            return
        if act.do in ("fail", "delete"):
            self.executor.lose_node(act.name)
        elif act.do in ("restore", "add"):
            self.executor.restore_node(act.name)
        if act.do == "delete":
            self._handle(Delete(kind="Node", name=act.name))
        else:
            self._reject(self._handle(Apply((_changed(node, act.do),))))

    def _workload(self, act: WorkloadAct) -> None:
        run = act.run if "/" in act.run else f"default/{act.run}"
        hit = self.executor.finish(run, act.do, now=self.now, group=act.group, pod=act.pod)
        if not hit:
            self._event(self.now, "Rejected", f"Run/{act.run}", "NoPods", f"Run/{act.run} has no live pod to {act.do}")


def _at(tree: Any, path: str) -> Any:
    for key in path.split("."):
        tree = tree.get(key) if isinstance(tree, dict) else None
    return tree


def _name(item: ApiObject) -> str:
    meta = item.metadata
    return (
        f"{item.kind}/{meta.namespace or 'default'}/{meta.name}" if item.kind == "Run" else f"{item.kind}/{meta.name}"
    )


def _changed(node: Node, do: str) -> Node:
    spec, status = node.spec, node.status
    others = tuple(taint for taint in spec.taints if taint.key != FENCE_TAINT)
    if do == "fail":
        spec = msgspec.structs.replace(spec, taints=(*others, _FENCE))
    elif do == "restore":
        spec = msgspec.structs.replace(spec, taints=others)
        status = msgspec.structs.replace(status, conditions=())
    elif do in ("cordon", "uncordon"):
        spec = msgspec.structs.replace(spec, unschedulable=do == "cordon")
    elif do in ("unready", "ready"):
        ready = NodeCondition(type="Ready", status="True" if do == "ready" else "False")
        status = msgspec.structs.replace(status, conditions=(ready,))
    return msgspec.structs.replace(node, spec=spec, status=status)
