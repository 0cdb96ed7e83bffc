"""What no crash of ours touches: pods that run, machines that are gone, letters that arrived, and what time it is.

The world knows which pods were really started, and judges by itself: no pod starts twice, none before its placement
was committed, none after it was asked to leave, and no two are ever alive on one GPU. ``Hands`` is the executor of one
life. What happens to a pod and when is ``SimulatedExecutor``'s rule; that it was started and stopped are orders, each
a write of its own, and a pod that nobody started never binds.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from proof.crashes.trap import Trap
from tenure.api.core import Node
from tenure.facts import Pod
from tenure.shell.executor import PodReport, PodWork
from tenure.shell.simulated import SimulatedExecutor
from tenure.simulate.scenario import Scenario
from tenure.units import Instant


class World:
    """One play's surroundings."""

    def __init__(self, scenario: Scenario) -> None:
        self.now: Instant = scenario.start
        self.away: list[tuple[Instant, Instant]] = []
        """When nobody drove, and the minute after that."""
        self.step = 0
        self.answered = False
        """Whether whoever took this step has the answer; if not, the step is asked for again."""
        self.nodes: dict[str, Node] = {node.metadata.name: node for node in scenario.nodes}
        self.snapshots: dict[str, Any] = {}
        self.orders: dict[str, Any] = {}
        self.silent: set[str] = set()
        self.down: set[str] = set()
        self.alive: dict[str, Pod] = {}
        self.started: set[str] = set()
        self.leaving: set[str] = set()
        """Pods that were asked to leave, whether they had started or not."""
        self.letters: list[bytes] = []
        self.wrongs: list[str] = []

    def start(self, pod: Pod, *, committed: bool) -> None:
        taken = [one.key for one in self.alive.values() if one.node == pod.node and set(one.gpus) & set(pod.gpus)]
        for wrong, what in (
            (pod.key in self.started, "is started a second time"),
            (pod.key in self.leaving, "is started after it was asked to leave"),
            (not committed, "is started, and its placement was never committed"),
            (bool(taken), f"is started on GPUs on which {', '.join(taken)} is alive"),
        ):
            if wrong:
                self.wrongs.append(f"pod {pod.key} {what}")
        self.started.add(pod.key)
        self.alive[pod.key] = pod

    def lose(self, node: str) -> None:
        self.alive = {key: pod for key, pod in self.alive.items() if pod.node != node}


class Hands(SimulatedExecutor):
    """The executor of one life, in a world that others may have changed before it."""

    def __init__(self, world: World, trap: Trap, *, bind_delay: int, stop_delay: int) -> None:
        super().__init__(bind_delay=bind_delay, stop_delay=stop_delay)
        self._orders, self._silent, self._down = world.orders, world.silent, world.down
        self.world, self.trap = world, trap
        self.is_committed: Callable[[str], bool] = lambda _: True

    def revise(self, changed: Sequence[PodWork], *, dropped: Sequence[str], now: Instant) -> list[PodReport]:
        reports = super().revise(changed, dropped=dropped, now=now)
        for report in reports:
            if report.phase != "Bound":
                self.world.alive.pop(report.key, None)
        return reports

    def lose_node(self, name: str) -> None:
        self.world.lose(name)
        super().lose_node(name)

    def _observe(self, item: PodWork) -> None:
        key, world = item.pod.key, self.world
        if item.pod.node in world.down:
            super()._observe(item)
        elif item.stop and key not in world.leaving:
            self._order("stop", item, lambda: world.leaving.add(key))
        elif item.known == "Placed" and not item.stop and key not in world.started:
            self._order("start", item, lambda: world.start(item.pod, committed=self.is_committed(key)))
        else:
            super()._observe(item)

    def _order(self, kind: str, item: PodWork, act: Callable[[], None]) -> None:
        self.trap.begin(kind, item.pod.key)
        self.trap.reach("before")
        act()
        self.trap.reach("during")
        super()._observe(item)
        self.trap.reach("after")

    def _next(self, item: PodWork) -> PodReport | None:
        if item.known == "Placed" and not item.stop and item.pod.key not in self.world.started:
            return None
        return super()._next(item)
