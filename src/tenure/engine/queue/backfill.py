"""Who can start now though others were promised a start before: the oldest of each class that fits a hole (SPEC 7).

A class that was refused can start only on something that was gained since, on a node or from an envelope. How long the
nodes that gained something have room for one pod bounds how long a run may take, and the class knows its oldest run
that takes no longer. Only that one is planned for real; a refusal holds for all that take as long, or longer.
"""

from __future__ import annotations

from tenure.engine.demand import Demand
from tenure.engine.queue.changes import NEVER
from tenure.engine.queue.order import ALL, WaitingClass
from tenure.engine.state import State
from tenure.units import FOREVER, Instant, Micros, parse_duration

NODES_MAX = 64
"""If more nodes than that have gained something, a plan is as quick as to look at each."""


class Holes:
    """How long the nodes that gained something have room for one pod, from now on; asked for each width of a pod once.

    Within a pass room only shrinks where somebody starts, so what was found bounds what is.
    """

    def __init__(self, state: State, flavor: str, *, now: Instant) -> None:
        self._state, self._flavor, self._now = state, flavor, now
        self._found: dict[tuple[int, int, int], Micros] = {}
        self._free: tuple[int, int] | None = None
        """GPUs that nobody holds, and the number of changes when they were counted."""

    def may_fit(self, demand: Demand) -> bool:
        """True if the GPUs of the flavor that nobody holds could be enough; they are counted only if somebody asks."""
        return may_fit(demand, self._free_gpus())

    def _free_gpus(self) -> int:
        count = self._state.changes.count
        if self._free is None or self._free[1] != count:
            self._free = free_gpus(self._state, self._flavor), count
        return self._free[0]

    def longest(self, demand: Demand, since: int) -> Micros:
        """The longest time that a pod of a demand could have on a node that gained something since a refusal; 0 if it
        has none."""
        if demand.fill or self._state.changes.all_gained(self._flavor, since):
            return FOREVER
        pod = demand.shape(demand.widths[-1]).pod
        key = since, pod, self._state.changes.count
        if key not in self._found:
            self._found[key] = self._longest(pod, since)
        return self._found[key]

    def _longest(self, pod: int, since: int) -> Micros:
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
        if row is None or not row.open:
            return 0
        line = state.timeline.line(node)
        free = row.size("free")
        if free < pod:
            return 0
        times, levels = line.free((self._now, FOREVER))
        for at, level in zip(times, levels, strict=True):
            if level < pod:
                return at - self._now
        return FOREVER


def money_gained(state: State, kind: WaitingClass, since: int) -> bool:
    """True if an envelope that might pay for a class has more than it had."""
    if kind.funds is None:
        return True
    return any(state.changes.fund_number(fund) > since for fund in kind.funds)


def free_gpus(state: State, flavor: str) -> int:
    """GPUs of a flavor that nobody holds now."""
    pools = (state.topology.pool(flavor, location, ()) for location in state.topology.locations(flavor))
    return sum(pool.free for pool in pools)


def hole_for(state: State, kind: WaitingClass, holes: Holes) -> Micros:
    """How long a run of a class may take to be worth planning; 0 if none is."""
    since = kind.asked
    if state.changes.all_gained(kind.demand.flavor, since):
        kind.forget()
    paid_anew = money_gained(state, kind, since)
    if paid_anew:
        kind.unpaid_from = ALL
    elif kind.line.oldest(within=kind.unpaid_from - 1) is None:
        return kind.unpaid_from - 1  # all that are in line wait for money: machines are not looked at
    if not holes.may_fit(kind.demand):
        kind.refused_from = 1
        return 0
    if paid_anew or kind.asked == NEVER:
        return FOREVER
    longest = holes.longest(kind.demand, since)
    if not kind.declares and longest > parse_duration(state.policy.patience):
        longest = FOREVER  # it starts past promises that are so far off
    return min(longest, kind.unpaid_from - 1)


def may_fit(demand: Demand, free: int) -> bool:
    """True if so many free GPUs could be enough."""
    return demand.fill or demand.shape(demand.widths[-1]).gpus <= free


def settle(state: State, kind: WaitingClass, within: Micros, refused: Micros | None) -> None:
    """A class was looked at: who takes as long as the shortest that was refused cannot start now; of who takes no
    longer than the hole, nobody is left but those. What was refused before says nothing of those whom the hole fits."""
    if refused is not None:
        kind.refused_from = refused
    elif within:
        kind.refused_from = max(kind.refused_from, within + 1)
    kind.asked = state.changes.count


def is_refused(state: State, kind: WaitingClass, lasts: Micros) -> bool:
    """True if it is known that a run of a class that takes so long cannot start now."""
    since, flavor = kind.asked, kind.demand.flavor
    return (
        lasts >= kind.refused_from
        and not state.changes.all_gained(flavor, since)
        and not any(True for _ in state.changes.nodes_gained(flavor, since))
        and not money_gained(state, kind, since)
    )
