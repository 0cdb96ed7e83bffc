"""For how long there is room from now on: bounds that spare a plan for who cannot start anyway.

Two bounds hold together. A run that was refused needs a node that gained something since, with room for a pod of it for
as long as the run takes. And all nodes together need room for the whole run for that long:

    room(t) = sum over nodes of the least that a node has free in [now, now + t)

The room never grows with t, so the longest time for which it suffices is found by walking along the instants at which
it falls. Only nodes that have something free now count: few, where the fleet is full, which is when many wait.
"""

from __future__ import annotations

from collections import Counter
from typing import NamedTuple

from tenure.engine.demand import Demand, Shape
from tenure.engine.state import State
from tenure.facts import Share
from tenure.units import FOREVER, Instant, Micros, parse_duration

NODES_MAX = 64
"""If more nodes than that have gained something, a plan is as quick as to look at each."""

FREE_MAX = 64
"""The same for nodes that have something free: where there are more, the room is not summed up."""


class _Room(NamedTuple):
    """The room of some nodes: of now, and how much of it is gone after so long."""

    now: int
    falls: list[tuple[Micros, int]]

    def suffices_for(self, need: int) -> Micros:
        """For how long so much is there: 0 if it is not there now."""
        left = self.now
        if left < need:
            return 0
        for after, gpus in self.falls:
            left -= gpus
            if left < need:
                return after
        return FOREVER


class Holes:
    """Bounds of one flavor at one instant. Within a pass room only shrinks where somebody starts, so what was found
    bounds what is, until something is gained."""

    def __init__(self, state: State, flavor: str, *, now: Instant) -> None:
        self._state, self._flavor, self._now = state, flavor, now
        self._count = state.changes.count
        self._found: dict[tuple[int, int], Micros] = {}
        self._rooms: dict[tuple[int, bool], list[_Room] | None] = {}
        self._longest: dict[tuple[int, bool, int], Micros] = {}
        self._free: int | None = None

    def _forget_what_grew(self) -> None:
        if self._count != self._state.changes.count:
            self._count = self._state.changes.count
            self._found.clear()
            self._rooms.clear()
            self._longest.clear()
            self._free = None

    # -- all nodes --

    def may_fit(self, demand: Demand) -> bool:
        """True if the GPUs of the flavor that nobody holds could be enough; they are counted only if somebody asks."""
        self._forget_what_grew()
        if self._free is None:
            self._free = free_gpus(self._state, self._flavor)
        return may_fit(demand, self._free)

    def suffices(self, demand: Demand, *, own: tuple[Share, ...] = ()) -> Micros:
        """The longest time for which there could be room for all of a demand from now on. ``own``: what is promised to
        it already, and does not stand in its way."""
        if demand.fill:
            return FOREVER
        self._forget_what_grew()
        shape = demand.shape(demand.widths[-1])
        need = shape.gpus - sum(self._free_on(share) for share in own)
        key = _pod(shape), _is_whole(shape), need
        if key not in self._longest:
            rooms = self._rooms_of(*key[:2])
            self._longest[key] = (
                FOREVER if rooms is None else max((room.suffices_for(need) for room in rooms), default=0)
            )
        return self._longest[key]

    def _free_on(self, share: Share) -> int:
        """How much of a promised share nobody holds now."""
        row = self._state.topology.rows.get(share.node)
        return 0 if row is None else min(share.gpus, row.size("free"))

    def _rooms_of(self, pod: int, whole: bool) -> list[_Room] | None:
        """The room of each domain (``whole``), or of each cluster; None if too many nodes have something free."""
        if (pod, whole) not in self._rooms:
            self._rooms[pod, whole] = self._sum_up(pod, whole=whole)
        return self._rooms[pod, whole]

    def _sum_up(self, pod: int, *, whole: bool) -> list[_Room] | None:
        topology, flavor = self._state.topology, self._flavor
        pools = [(location, topology.pool(flavor, location, ())) for location in topology.locations(flavor)]
        if sum(pool.free_nodes for _, pool in pools) > FREE_MAX:
            return None
        now: Counter[tuple[str, ...]] = Counter()
        falls: dict[tuple[str, ...], Counter[Micros]] = {}
        for location, pool in pools:
            for fabric, domain in pool.domains.items():
                place = (*location, fabric) if whole else (location[1],)
                gone = falls.setdefault(place, Counter())
                for _, name in domain.seen:
                    now[place] += self._add_node(name, pod, gone)
        return [_Room(now[place], sorted(gone.items())) for place, gone in falls.items()]

    def _add_node(self, name: str, pod: int, gone: Counter[Micros]) -> int:
        """The room of a node now, in whole pods; count how much less it has after how long."""
        times, levels = self._state.timeline.line(name).free((self._now, FOREVER))
        least = room = levels[0] // pod * pod
        for at, level in zip(times, levels, strict=True):
            if level < least:
                gone[at - self._now] += least - level // pod * pod
                least = level // pod * pod
            if not least:
                break
        return room

    # -- nodes that gained something --

    def longest(self, demand: Demand, since: int) -> Micros:
        """The longest time that a pod of a demand could have on a node that gained something since a refusal; 0 if it
        has none."""
        self._forget_what_grew()
        if demand.fill or self._state.changes.all_gained(self._flavor, since):
            return FOREVER
        pod = demand.shape(demand.widths[-1]).pod
        if (since, pod) not in self._found:
            self._found[since, pod] = self._longest_of_gained(pod, since)
        return self._found[since, pod]

    def _longest_of_gained(self, pod: int, since: int) -> Micros:
        longest = 0
        for number, node in enumerate(self._state.changes.nodes_gained(self._flavor, since)):
            if number >= NODES_MAX:
                return FOREVER
            longest = max(longest, self.of_node(node, pod))
            if longest == FOREVER:
                break
        return longest

    def of_node(self, node: str, pod: int) -> Micros:
        """For how long a node has room for a pod from now on."""
        state, row = self._state, self._state.topology.rows.get(node)
        if row is None or not row.open or row.size("free") < pod:
            return 0
        times, levels = state.timeline.line(node).free((self._now, FOREVER))
        for at, level in zip(times, levels, strict=True):
            if level < pod:
                return at - self._now
        return FOREVER


def needs(state: State, demand: Demand) -> Micros:
    """The time for which a run has to have room at the least, to start now: who declares no end may pass promises that
    are further off than the policy's patience."""
    return max(1, parse_duration(state.policy.patience)) if demand.duration is None else demand.duration


def free_gpus(state: State, flavor: str) -> int:
    """GPUs of a flavor that nobody holds now."""
    pools = (state.topology.pool(flavor, location, ()) for location in state.topology.locations(flavor))
    return sum(pool.free for pool in pools)


def may_fit(demand: Demand, free: int) -> bool:
    """True if so many free GPUs could be enough."""
    return demand.fill or demand.shape(demand.widths[-1]).gpus <= free


def _pod(shape: Shape) -> int:
    """The width in which room counts: spares need no pod's room."""
    return 1 if shape.spares or shape.tail else shape.pod


def _is_whole(shape: Shape) -> bool:
    """True if one domain has to hold all of it."""
    return not shape.spread or shape.groups == 1
