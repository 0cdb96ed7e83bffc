"""What is so, whatever anybody believes: machines, pods, and how long work really takes. No crash of Tenure touches it.

``Pods`` is the executor of a driver: the simulated pods of ``tenure.shell`` in a reality that may end them, hide them,
or tell lies about them. Any number of drivers may look at one reality, and one that is new sees the same.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence

import msgspec

from tenure.api.core import Node, NodeCondition
from tenure.api.policy import Policy
from tenure.shell.executor import PodReport, PodWork
from tenure.shell.simulated import Outcome, SimulatedExecutor
from tenure.testing import FENCE
from tenure.units import Instant, Micros, parse_duration

_NOT_READY = (NodeCondition(type="Ready", status="False"),)


class Machine:
    """A node: what it is, and the troubles it has now, each under a number of its own."""

    def __init__(self, node: Node) -> None:
        self.node = node
        self.troubles: dict[int, tuple[str, int]] = {}

    def has(self, *kinds: str) -> bool:
        return any(kind in kinds for kind, _ in self.troubles.values())

    @property
    def is_down(self) -> bool:
        return self.has("down")

    def shown(self) -> Node:
        """The Node object that its kubelet, or an operator, would write."""
        node, spec, status = self.node, self.node.spec, self.node.status
        if self.has("fence"):
            spec = msgspec.structs.replace(spec, taints=(*spec.taints, FENCE))
        if self.has("cordon"):
            spec = msgspec.structs.replace(spec, unschedulable=True)
        if self.has("unready", "down"):
            status = msgspec.structs.replace(status, conditions=_NOT_READY)
        lies = [number for kind, number in self.troubles.values() if kind == "lie"]
        if lies:
            status = msgspec.structs.replace(status, allocatable={"nvidia.com/gpu": str(lies[-1])})
        return msgspec.structs.replace(node, spec=spec, status=status)


class Reality:
    """Everything outside of Tenure."""

    def __init__(self, nodes: Iterable[Node], tally: Counter[str]) -> None:
        self.machines = {node.metadata.name: Machine(node) for node in nodes}
        self.tally = tally
        self.lengths: dict[str, Micros] = {}
        """How long the pods of a run take, where that is not what it declared."""
        self.ends: dict[str, tuple[str, Outcome, Instant]] = {}
        """Pods that ended by themselves: run, how, when."""
        self.gone: set[str] = set()
        """Pods that are said to be gone."""
        self.silent: Counter[str] = Counter()
        """Machines whose pods nothing is heard of."""
        self.broken: Counter[str] = Counter()
        """Runs whose pods cannot be started."""


class Pods(SimulatedExecutor):
    """A driver's view of the pods."""

    def __init__(self, reality: Reality, policy: Policy) -> None:
        super().__init__(bind_delay=parse_duration(policy.bind_delay), stop_delay=parse_duration(policy.stop_delay))
        self._reality = reality
        self.lengths = reality.lengths
        for name, machine in reality.machines.items():
            if machine.is_down:
                self.lose_node(name)

    def revise(self, changed: Sequence[PodWork], *, dropped: Sequence[str], now: Instant) -> list[PodReport]:
        reality = self._reality
        reports = super().revise(changed, dropped=dropped, now=now)
        for key in dropped:
            reality.ends.pop(key, None)
            reality.gone.discard(key)
        ordered = [
            self.finish(run, how, now=at, pod=key.partition("/")[2])
            for key, (run, how, at) in sorted(reality.ends.items())
            if key in self._work and key not in self._orders
        ]
        if any(ordered):
            reports = super().revise([], dropped=[], now=now)
        return self._told(reports, now) if reality.silent or reality.broken or reality.gone else reports

    def _told(self, reports: list[PodReport], now: Instant) -> list[PodReport]:
        """What is heard: less than there is, or something else."""
        reality = self._reality
        out = []
        for report in reports:
            pod = self._work[report.key].pod
            if report.key in reality.gone:
                continue
            if reality.silent[pod.node]:
                reality.tally["fault/pods-lie"] += 1
            elif report.phase == "Bound" and reality.broken[pod.run_key]:
                out.append(msgspec.structs.replace(report, phase="Failed", message="no such image"))
            else:
                out.append(report)
        for key in sorted(reality.gone & self._work.keys()):
            reality.tally["fault/pods-lie"] += 1
            out.append(PodReport(key=key, phase="Gone", at=now))
        return sorted(out, key=lambda report: report.key)
