"""Two executors behind one port: each pod goes to the kind of node that it was placed on.

A node says with an annotation whether it is simulated; the fleet file sets it, the ledger keeps it. So a fleet cannot
be started by mistake with another executor than the one its pods began with.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from msgspec.structs import replace

from tenure.api.core import Node
from tenure.api.meta import GROUP
from tenure.embedded.rendezvous import at_home
from tenure.shell.executor import Attentive, PodReport, PodWork
from tenure.units import Instant

EXECUTOR_ANNOTATION = f"{GROUP}/executor"
SIMULATED = "simulated"


class RoutedExecutor:
    """Simulated nodes to one executor, real ones to the other."""

    def __init__(
        self, *, simulated: Attentive, real: Attentive, find_node: Callable[[str], Node | None], fleet: str
    ) -> None:
        self._fleet = fleet
        self._simulated = simulated
        self._real = real
        self._find_node = find_node

    def reconcile(self, work: Sequence[PodWork], *, now: Instant) -> list[PodReport]:
        real, simulated = self._sorted(work)
        return self._real.reconcile(real, now=now) + self._simulated.reconcile(simulated, now=now)

    def revise(self, changed: Sequence[PodWork], *, dropped: Sequence[str], now: Instant) -> list[PodReport]:
        """To each what changed in its part; what left both parts is in neither, so each is told of all of that."""
        real, simulated = self._sorted(changed)
        return [
            *self._real.revise(real, dropped=[*dropped, *_keys(simulated)], now=now),
            *self._simulated.revise(simulated, dropped=[*dropped, *_keys(real)], now=now),
        ]

    def _sorted(self, work: Sequence[PodWork]) -> tuple[list[PodWork], list[PodWork]]:
        """Those that really run, as this machine runs them, and the simulated ones."""
        parts: tuple[list[PodWork], list[PodWork]] = ([], [])
        for item in work:
            parts[self._is_simulated(item.pod.node)].append(item)
        real = [replace(item, manifest=at_home(item.manifest, item.pod, fleet=self._fleet)) for item in parts[0]]
        return real, parts[1]

    def next_wake(self) -> Instant | None:
        wakes = [self._real.next_wake(), self._simulated.next_wake()]
        return min((at for at in wakes if at is not None), default=None)

    def _is_simulated(self, name: str) -> bool:
        node = self._find_node(name)
        return node is not None and is_simulated(node)


def _keys(work: Sequence[PodWork]) -> list[str]:
    return [item.pod.key for item in work]


def is_simulated(node: Node) -> bool:
    return node.metadata.annotations.get(EXECUTOR_ANNOTATION) == SIMULATED
