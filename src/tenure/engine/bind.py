"""From a plan to leases and pods (SPEC 6): leases follow payment, pods follow placement.

The money of a part is spent over its groups in order, a group's active GPUs before its spares, so the envelopes of the
first tiers pay for the first groups and borrowed money sits in the last ones. One lease is one (attempt, group, node,
role, payer). Pods are numbered by rank over groups and nodes in the order of the plan.

A lease is named ``<run>-a<attempt>-g<group>-<node>-<n>``; n counts the leases of that group on that node.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterable, Iterator

from msgspec import Struct

from tenure.api.lease import OpenReason, Role
from tenure.engine.plan import Part
from tenure.engine.topology import Topology
from tenure.facts import Lease, Pod, Segment
from tenure.units import Instant

NAME_MAX = 253


class Who(Struct, frozen=True):
    """The run that is bound, and the attempt."""

    namespace: str
    run: str
    uid: str
    owner: str
    attempt: int


class Counters:
    """What an attempt has numbered so far. Indexes, ranks and names are never used twice within one."""

    __slots__ = ("attempt", "groups", "ranks", "replaced", "serials")

    def __init__(self, attempt: int = 0) -> None:
        self.attempt = attempt
        self.groups = 0
        self.ranks = 0
        self.serials: dict[tuple[int, str], int] = {}
        """Leases that a group has had on a node."""
        self.replaced: dict[int, int] = {}
        """How often the pod of a rank was replaced."""

    def opened(self, lease: Lease) -> None:
        if lease.attempt > self.attempt:  # a new attempt counts from the beginning
            self.attempt, self.groups, self.ranks, self.serials, self.replaced = lease.attempt, 0, 0, {}, {}
        self.groups = max(self.groups, lease.group + 1)
        self.serials[lease.group, lease.node] = self.serials.get((lease.group, lease.node), 0) + 1

    def placed(self, pod: Pod) -> None:
        if pod.rank < self.ranks:
            self.replaced[pod.rank] = self.replaced.get(pod.rank, 0) + 1
        self.ranks = max(self.ranks, pod.rank + 1)


class Bound(Struct, frozen=True):
    leases: tuple[Lease, ...]
    pods: tuple[Pod, ...]


def bind(
    parts: Iterable[Part],
    who: Who,
    topology: Topology,
    *,
    now: Instant,
    until: Instant | None,
    pod: int,
    counters: Counters | None = None,
    reason: OpenReason = "Start",
    group: int | None = None,
    free: Callable[[str], int] | None = None,
) -> Bound:
    """Leases and pods for placed and paid groups, each pod of ``pod`` GPUs (0: one per group and node).

    Groups are numbered from where the attempt's counters stand, or all belong to the ``group`` given. Nothing is
    changed yet. ``free``: how many of a node's free GPUs are for the taking, if not all; the rest are others' spares.
    """
    desk = _Desk(who, topology, now=now, until=until, pod=pod, counters=counters or Counters(), reason=reason,
                 free=free)  # fmt: skip
    if group is not None:
        desk.group = group
    for part in parts:
        money = _Money(part.segments)
        for one in part.groups:
            for node, gpus in one.active:
                desk.place(money, one.fabric, node, gpus, "Active")
            for node, gpus in one.spares:
                desk.place(money, one.fabric, node, gpus, "Spare")
            desk.group += 1 if group is None else 0
        assert not money.left(), "segments sum to GPUs"
    return Bound(tuple(desk.leases), tuple(desk.pods))


def pod_name(run: str, attempt: int, rank: int, replaced: int = 0) -> str:
    return f"{run}-a{attempt}-{rank}" + (f"-{replaced}" if replaced else "")


def lease_name(run: str, attempt: int, group: int, node: str, count: int) -> str:
    name = f"{run}-a{attempt}-g{group:02d}-{node}-{count}"
    if len(name) <= NAME_MAX:
        return name
    digest = hashlib.sha256(name.encode()).hexdigest()[:16]
    return f"{name[: NAME_MAX - 17]}-{digest}"


class _Money:
    """Segments spent one after the other."""

    def __init__(self, segments: tuple[Segment, ...]) -> None:
        self._segments = list(segments)
        self._spent = 0

    def spend(self, gpus: int) -> Iterator[tuple[Segment, int]]:
        while gpus:
            segment = self._segments[0]
            take = min(gpus, segment.gpus - self._spent)
            self._spent += take
            gpus -= take
            yield segment, take
            if self._spent == segment.gpus:
                self._segments.pop(0)
                self._spent = 0

    def left(self) -> bool:
        return bool(self._segments)


class _Desk:
    """Where leases and pods are written out, group after group."""

    def __init__(
        self, who: Who, topology: Topology, *, now: Instant, until: Instant | None, pod: int, counters: Counters,
        reason: OpenReason, free: Callable[[str], int] | None,
    ) -> None:  # fmt: skip
        self._free = free
        self._free_taken: dict[str, int] = {}
        self.who, self.topology, self.now, self.until, self.pod = who, topology, now, until, pod
        self.reason = reason
        self.leases: list[Lease] = []
        self.pods: list[Pod] = []
        self.group = counters.groups
        self._rank = counters.ranks
        self._serials = dict(counters.serials)
        self._taken: dict[str, int] = {}

    def place(self, money: _Money, fabric: str, node: str, gpus: int, role: Role) -> None:
        ordinals, free = self._ordinals(node, gpus)
        first = 0
        for segment, take in money.spend(gpus):
            # What is beyond the free GPUs of the node sits on somebody's spares.
            own, lent = ordinals[first : min(first + take, free)], ordinals[max(first, free) : first + take]
            if own:
                self._lease(segment, fabric, node, own, role)
            if lent:
                self._lease(segment, fabric, node, lent, "Borrowed")
            first += take
        if role == "Active":
            width = self.pod or gpus
            for start in range(0, gpus, width):
                self._pod(node, ordinals[start : start + width])

    def _ordinals(self, node: str, gpus: int) -> tuple[tuple[int, ...], int]:
        """The lowest free ordinals, then those of spares that may be filled; and how many of them are free."""
        row, taken = self.topology.rows[node], self._taken.get(node, 0)
        free = min(gpus, (((1 << row.gpus) - 1) & ~(row.held | taken)).bit_count())
        if self._free is not None:
            free = min(free, max(0, self._free(node) - self._free_taken.get(node, 0)))
            self._free_taken[node] = self._free_taken.get(node, 0) + free
        ordinals = row.lowest_free(free, taken) + row.lowest_spare(gpus - free, taken)
        self._taken[node] = taken | sum(1 << ordinal for ordinal in ordinals)
        return ordinals, free

    def _lease(self, segment: Segment, fabric: str, node: str, ordinals: tuple[int, ...], role: Role) -> None:
        who, serial = self.who, self._serials.get((self.group, node), 0)
        self._serials[self.group, node] = serial + 1
        self.leases.append(
            Lease(
                namespace=who.namespace, name=lease_name(who.run, who.attempt, self.group, node, serial),
                run=who.run, uid=who.uid, owner=who.owner, attempt=who.attempt, group=self.group, domain=fabric,
                node=node, gpus=ordinals, role=role, start=self.now, until=self.until, budget=segment.budget,
                envelope=segment.envelope, payer=segment.payer, funding=segment.funding, reason=self.reason,
            )
        )  # fmt: skip

    def _pod(self, node: str, ordinals: tuple[int, ...]) -> None:
        who, rank = self.who, self._rank
        self._rank += 1
        self.pods.append(
            Pod(
                namespace=who.namespace, name=pod_name(who.run, who.attempt, rank), run=who.run, attempt=who.attempt,
                group=self.group, rank=rank, node=node, gpus=ordinals,
            )
        )  # fmt: skip
