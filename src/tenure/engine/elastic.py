"""Elastic runs (SPEC 10): one step up when machines and money allow, down when less is desired.

A run grows one step per ``growInterval``, the first one interval after it started, existing domains first, after every
waiting run had its chance, and never while a part of it is still leaving. It shrinks by whole groups: those that
borrowed money pays for first, then the highest index. Group indexes and ranks are never used twice in an attempt.

Whether money suffices for what is left of a declared duration depends on the clock. So that it does not depend on who
looks when, what is left is measured from the last whole interval, and a run that was refused is looked at again at the
next.
"""

from __future__ import annotations

from collections.abc import Iterable

import msgspec

from tenure.engine.bind import Who, bind
from tenure.engine.demand import Demand, Selector
from tenure.engine.groups import desired, shrink_order, width
from tenure.engine.life import drop, full_name, move
from tenure.engine.plan import Holding, Plan, make_plan
from tenure.engine.state import RunRow, State
from tenure.engine.topology import Location, Site
from tenure.engine.turn import Turn
from tenure.facts import Decided, Opened, Placed, Reason, Verdict
from tenure.units import Instant, Micros, parse_duration

# --- down -----------------------------------------------------------------------------------------------------------


def resize(turn: Turn) -> None:
    """Shrink the runs that are wider than desired; the others on the agenda may grow later in this turn."""
    for key in sorted(turn.state.agenda.elastic):
        row = turn.state.runs.get(key)
        if row is None or row.life.phase != "Running" or row.run.spec.malleable is None:
            continue
        if width(turn.state, row) > desired(row):
            shrink(turn, row, desired(row), Reason(code="ShrunkByOwner", data={"width": desired(row)}))


def shrink(turn: Turn, row: RunRow, target: int, reason: Reason) -> None:
    """Give groups back until the run is no wider than ``target``."""
    surplus = width(turn.state, row) - target
    count = -(-surplus // row.demand.group)
    drop(turn, row, shrink_order(turn.state, row)[:count], "Shrink", reason)


# --- up -------------------------------------------------------------------------------------------------------------


def due(turn: Turn) -> list[RunRow]:
    """Runs that may take more: those to which something happened, and those that want it where there may be room.

    Oldest first. Who is not satisfied by this turn is put down as wanting, see ``wants``.
    """
    agenda = turn.state.agenda
    keys, agenda.elastic, room, agenda.room = agenda.elastic, set(), agenda.room, set()
    keys = keys.union(*(agenda.wanting.pop(flavor, set()) for flavor in room))
    rows = [turn.state.runs[key] for key in keys if key in turn.state.runs]
    return sorted((row for row in rows if row.life.phase == "Running"), key=lambda row: row.order)


def wants(turn: Turn, row: RunRow) -> None:
    """A run wants more: it is looked at again when there may be room, or when time may have changed the answer."""
    turn.state.agenda.wanting.setdefault(row.demand.flavor, set()).add(row.key)
    since, interval = _since(turn, row), _interval(turn)
    if turn.now < since + interval or (row.life.until or 0) > turn.now:
        turn.state.agenda.wake(since + ((turn.now - since) // interval + 1) * interval, "grow", row.key)


def grow(turn: Turn, rows: Iterable[RunRow]) -> None:
    """Let each of these runs take one step, if it wants one, may take it now, and it fits."""
    for row in rows:
        if _wants_more(turn.state, row) and turn.now >= _since(turn, row) + _interval(turn):
            _step(turn, row)
        if _wants_more(turn.state, row):
            wants(turn, row)


def _wants_more(state: State, row: RunRow) -> bool:
    elastic = row.run.spec.malleable
    leaving = any(lease.key in state.ending for lease in row.leases.values())
    return elastic is not None and not leaving and width(state, row) + elastic.step_gpus <= desired(row)


def _step(turn: Turn, row: RunRow) -> None:
    assert row.run.spec.malleable is not None
    plan = _more(turn, row, row.run.spec.malleable.step_gpus)
    if not isinstance(plan, Plan):
        return
    bound = bind(plan.parts, who(row), turn.state.topology, now=turn.now, until=row.life.until,
                 pod=row.demand.pod, counters=row.counters, reason="Grow")  # fmt: skip
    turn.emit(Decided(namespace=row.namespace, run=row.name, verdict=plan.verdict))
    for lease in bound.leases:
        turn.emit(Opened(lease=lease))
    for pod in bound.pods:
        turn.emit(Placed(pod=pod))
    wide = width(turn.state, row)
    reason = Reason(code="Grown", data={"gpus": plan.shape.active, "width": wide})
    move(turn, row, reason, marks={}, grown=turn.now, width=wide)
    turn.note("Grown", full_name(row), reason)


def _more(turn: Turn, row: RunRow, gpus: int) -> Plan | Verdict | None:
    """A plan for more groups of a running run: in its cluster, and in the domain it has if it must stay there."""
    sites = _sites(turn.state, row)
    if not sites:
        return None  # its nodes have lost their labels: nobody can say what is near
    near = dict(row.demand.selector) | {"cluster": sites[0].cluster}
    selector = tuple(sorted(near.items())) if row.demand.spread else domain_selector(row.demand, sites[0])
    demand = msgspec.structs.replace(
        row.demand, widths=range(gpus, gpus - 1, -1), selector=selector, duration=left_to_pay(turn, row), fill=False
    )
    return make_plan(turn.state.world, demand, now=turn.now, has=holding(turn.state, row))


# --- whole intervals ------------------------------------------------------------------------------------------------


def left_to_pay(turn: Turn, row: RunRow) -> Micros | None:
    """How long the run said it would still take, at the last whole interval; None if it did not say, or is past it."""
    if row.life.until is None or row.life.until <= turn.now:
        return None
    return row.life.until - (turn.now - (turn.now - _since(turn, row)) % _interval(turn))


def _since(turn: Turn, row: RunRow) -> Instant:
    return turn.now if row.life.grown is None else row.life.grown


def _interval(turn: Turn) -> Micros:
    return max(1, parse_duration(turn.state.policy.grow_interval))


# --- what a run has -------------------------------------------------------------------------------------------------


def who(row: RunRow) -> Who:
    return Who(row.namespace, row.name, row.run.metadata.uid, row.run.spec.owner, row.life.attempt)


def holding(state: State, row: RunRow) -> Holding:
    domains: dict[Location, tuple[str, ...]] = {}
    for site in _sites(state, row):
        domains[site.location] = tuple(sorted({*domains.get(site.location, ()), site.fabric}))
    borrowed = sum(len(lease.gpus) for lease in row.leases.values() if lease.funding == "borrowed")
    return Holding(borrowed, domains)


def domain_selector(demand: Demand, site: Site) -> Selector:
    """The demand's own selector, narrowed to one fabric domain."""
    place = {"region": site.region, "cluster": site.cluster, "fabric.domain": site.fabric}
    return tuple(sorted((dict(demand.selector) | place).items()))


def _sites(state: State, row: RunRow) -> list[Site]:
    rows = (state.topology.rows.get(node) for node in sorted({lease.node for lease in row.leases.values()}))
    return [one.site for one in rows if one is not None and one.site is not None]
