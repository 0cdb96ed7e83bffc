"""Simulated pods: they take GPUs and time, and run nothing.

Time comes in by argument only, so the same executor serves the simulator's virtual clock and a daemon's
real one.
What happens to a pod is a pure function of what the engine recorded:

    Placed at t           -> Bound at t + bind_delay
    Bound at t            -> Succeeded at t + duration, if a duration is given
    asked to stop at t    -> Gone at t + stop_delay

so an executor that was made a moment ago gives the same answers as one that has watched from the
beginning. What comes next for each pod is kept, and by when in a heap: a call costs what changed or is due,
not what runs. Two things come from outside and are remembered until the engine drops the pod: the end that a
scenario orders (``finish``), and the silence of a pod whose node was lost (``lose_node``): nobody is left
there to report, and the engine ends it by fencing the node.

>>> from tenure.facts import Pod
>>> pod = Pod(namespace="rai", name="train-0", run="train", attempt=1, group=0, rank=0, node="a", gpus=(0,))
>>> executor = SimulatedExecutor(bind_delay=5, stop_delay=0)
>>> executor.reconcile([PodWork(pod=pod, known="Placed", since=100)], now=100), executor.next_wake()
([], 105)
>>> executor.reconcile([PodWork(pod=pod, known="Placed", since=100)], now=105)
[PodReport(key='rai/train-0', phase='Bound', code=None, message='', at=105)]
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from heapq import heappop, heappush
from typing import Literal

from msgspec import Struct

from tenure.shell.executor import PodReport, PodWork
from tenure.units import Instant, Micros

Outcome = Literal["succeed", "fail"]


class _Order(Struct, frozen=True, kw_only=True):
    """An end that was ordered from outside."""

    phase: Literal["Succeeded", "Failed"]
    code: int
    message: str
    at: Instant


class SimulatedExecutor:
    """An executor whose pods are only bookkeeping: it knows what comes next for each, and when the first is due."""

    def __init__(self, *, bind_delay: Micros = 0, stop_delay: Micros = 0) -> None:
        assert bind_delay >= 0
        assert stop_delay >= 0
        self._bind_delay = bind_delay
        self._stop_delay = stop_delay
        self._work: dict[str, PodWork] = {}
        self._orders: dict[str, _Order] = {}
        self._silent: set[str] = set()
        self._down: set[str] = set()
        self._coming: dict[str, PodReport] = {}
        self._heap: list[tuple[Instant, str]] = []
        self._due: set[str] = set()
        self._unseen: Instant | None = None
        self.open_ended: frozenset[str] = frozenset()
        """Runs (``namespace/name``) that end by an order only, whatever they declared."""
        self.lengths: Mapping[str, Micros] = {}
        """How long the work of a run (``namespace/name``) really takes, where that is not what it declared."""

    def reconcile(self, work: Sequence[PodWork], *, now: Instant) -> list[PodReport]:
        """Report what is due, in the order of the pods' names."""
        kept = {item.pod.key for item in work}
        return self.revise(work, dropped=[key for key in self._work if key not in kept], now=now)

    def revise(self, changed: Sequence[PodWork], *, dropped: Sequence[str], now: Instant) -> list[PodReport]:
        """The same, told of the difference only. A report is repeated until the engine has recorded it."""
        for key in dropped:
            self._forget(key)
        for item in changed:
            self._observe(item)
        self._unseen = None
        while (at := self._next_due()) is not None and at <= now:
            self._due.add(heappop(self._heap)[1])
        return [self._coming[key] for key in sorted(self._due)]

    def next_wake(self) -> Instant | None:
        """When the next pod changes by itself, or the instant of an order that no call has reported yet."""
        return self._next_due() if self._unseen is None else self._unseen

    def finish(
        self,
        run: str,
        outcome: Outcome,
        *,
        now: Instant,
        group: int | None = None,
        pod: str | None = None,
        code: int | None = None,
    ) -> list[str]:
        """End the live pods of a run (``namespace/name``), of one of its groups, or one pod of it by name.

        Returns the keys of the pods that it hit; none means that there was nothing alive to end. A pod that
        is not bound yet ends as soon as it is. Pods of a later attempt are not meant and go on.
        """
        hit = [
            key
            for key, item in sorted(self._work.items())
            if item.pod.run_key == run
            and group in (None, item.pod.group)
            and pod in (None, item.pod.name)
            and self._is_alive(item)
        ]
        order = _order(outcome, code=code, now=now)
        for key in hit:
            self._orders.setdefault(key, order)  # the first end counts: what has exited cannot exit again
            self._expect(self._work[key])
        self._unseen = now if hit else self._unseen
        return hit

    def lose_node(self, name: str) -> None:
        """The machine is gone, and its pods with it: they never report again."""
        self._down.add(name)
        for item in self._work.values():
            if item.pod.node == name:
                self._observe(item)

    def restore_node(self, name: str) -> None:
        """The machine is back, empty: pods placed there from now on live; those it lost stay silent."""
        self._down.discard(name)

    def _observe(self, item: PodWork) -> None:
        self._work[item.pod.key] = item
        if item.pod.node in self._down:
            self._silent.add(item.pod.key)
        self._expect(item)

    def _forget(self, key: str) -> None:
        self._work.pop(key, None)
        self._orders.pop(key, None)
        self._coming.pop(key, None)
        self._silent.discard(key)
        self._due.discard(key)

    def _is_alive(self, item: PodWork) -> bool:
        return item.known in ("Placed", "Bound") and not item.stop and item.pod.key not in self._silent

    # -- what comes next --

    def _expect(self, item: PodWork) -> None:
        """Note what happens next to a pod; what was expected of it before is void."""
        key, report = item.pod.key, self._next(item)
        if report == self._coming.get(key):
            return
        self._due.discard(key)
        if report is None:
            del self._coming[key]
            return
        self._coming[key] = report
        heappush(self._heap, (report.at, key))
        if len(self._heap) > 2 * len(self._coming) + 64:  # most are void: pods that were stopped before their end
            self._heap = sorted((one.at, key) for key, one in self._coming.items() if key not in self._due)

    def _next_due(self) -> Instant | None:
        """The instant of the first entry of the heap that still holds."""
        heap = self._heap
        while heap and not self._holds(*heap[0]):
            heappop(heap)
        return heap[0][0] if heap else None

    def _holds(self, at: Instant, key: str) -> bool:
        report = self._coming.get(key)
        return report is not None and report.at == at and key not in self._due

    def _next(self, item: PodWork) -> PodReport | None:
        """The next thing that happens to a pod, whenever that is."""
        key = item.pod.key
        if key in self._silent:
            return None
        if item.stop:
            return PodReport(key=key, phase="Gone", at=item.since + self._stop_delay)
        match item.known:
            case "Placed":
                return PodReport(key=key, phase="Bound", at=item.since + self._bind_delay)
            case "Bound":
                return self._end(item)
            case _:
                return None

    def _end(self, item: PodWork) -> PodReport | None:
        """How a bound pod ends: when its time is over or by an order, whichever comes first."""
        key, order = item.pod.key, self._orders.get(item.pod.key)
        natural = self._natural_end(item)
        if order is not None and (natural is None or order.at <= natural):
            at = max(order.at, item.since)
            return PodReport(key=key, phase=order.phase, code=order.code, message=order.message, at=at)
        return None if natural is None else PodReport(key=key, phase="Succeeded", code=0, at=natural)

    def _natural_end(self, item: PodWork) -> Instant | None:
        run = item.pod.run_key
        length = None if run in self.open_ended else self.lengths.get(run, item.duration)
        return None if length is None else item.since + length


def _order(outcome: Outcome, *, code: int | None, now: Instant) -> _Order:
    if outcome == "succeed":
        return _Order(phase="Succeeded", code=0, message="", at=now)
    code = 1 if code is None else code
    return _Order(phase="Failed", code=code, message=f"exited with code {code}", at=now)
