"""Elastic runs (SPEC 10): one step up when machines and money allow, down when less is desired.

A run grows one step per ``growInterval``, the first one interval after it started, existing domains first, after every
waiting run had its chance, and never while a part of it is still leaving. It shrinks by whole groups: those that
borrowed money pays for first, then the highest index. Group indexes and ranks are never used twice in an attempt.

Whether money suffices for what is left of a declared duration depends on the clock. So that it does not depend on who
looks when, what is left is measured from the last whole interval, and a run that was refused is looked at again at the
next. So is a run whose declared end has come in between: nothing is left of what it was let past others for.
"""

from __future__ import annotations

from collections.abc import Iterable

import msgspec

from tenure.engine.bind import Who, bind
from tenure.engine.demand import Demand, Selector
from tenure.engine.groups import desired, shrink_order, wants_spares, width
from tenure.engine.life import drop, full_name, move
from tenure.engine.plan import Holding, Plan
from tenure.engine.starts import safe_plan
from tenure.engine.state import RunRow, State
from tenure.engine.topology import Location, Site
from tenure.engine.turn import Turn
from tenure.facts import Decided, Opened, Placed, Reason, Verdict
from tenure.units import FOREVER, Instant, Micros, parse_duration

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


def due(state: State) -> tuple[list[RunRow], set[str]]:
    """Runs that may take more, oldest first: those to which something happened, those that want it where there may be
    room, and those for which a whole interval has passed; and which of them have no other cause than that.

    They are off the agenda then: who is not satisfied is to be put down again.
    """
    agenda = state.agenda
    keys, agenda.elastic, room, agenda.room = agenda.elastic, set(), agenda.room, set()
    keys = keys.union(*(agenda.wanting.pop(flavor, set()) for flavor in room))
    timed, agenda.timed = agenda.timed - keys, set()
    rows = (state.runs[key] for key in keys | timed if key in state.runs)
    return sorted((row for row in rows if row.life.phase == "Running"), key=lambda row: row.order), timed


def put_down(state: State, rows: Iterable[RunRow], *, now: Instant) -> None:
    """Who of these wants more is looked at again when there may be room, or when time may have changed the answer."""
    for row in rows:
        wake = FOREVER
        if wants_spares(state, row) or _wants_more(state, row):
            state.agenda.wanting.setdefault(row.demand.flavor, set()).add(row.key)
            last = _last(state, row, now=now)
            if last == row.life.grown or (row.until or 0) > last:
                wake = last + _interval(state)
        state.agenda.wake(wake, "grow", row.key)


def grow(turn: Turn, rows: Iterable[RunRow]) -> None:
    """Let each of these runs take one step, if it wants one, may take it now, and it fits."""
    for row in (one for one in rows if not ended_since(turn, one)):
        if _wants_more(turn.state, row) and _last(turn.state, row, now=turn.now) != row.life.grown:
            _step(turn, row)


def _wants_more(state: State, row: RunRow) -> bool:
    elastic = row.run.spec.malleable
    leaving = any(lease.key in state.ending for lease in row.leases.values())
    return elastic is not None and not leaving and width(state, row) + elastic.step_gpus <= desired(row)


def _step(turn: Turn, row: RunRow) -> None:
    assert row.run.spec.malleable is not None
    plan = _more(turn, row, row.run.spec.malleable.step_gpus)
    if not isinstance(plan, Plan):
        return
    bound = bind(plan.parts, who(row), turn.state.topology, now=turn.now, until=row.declared,
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
    """A plan for more groups of a running run: in its cluster, and in the domain it has if it must stay there. It never
    grows into what somebody was promised (SPEC 10), on machines or on money: it may overstay, and would have to go."""
    sites = _sites(turn.state, row)
    if not sites:
        return None  # its nodes have lost their labels: nobody can say what is near
    near = dict(row.demand.selector) | {"cluster": sites[0].cluster}
    selector = tuple(sorted(near.items())) if row.demand.spread else domain_selector(row.demand, sites[0])
    demand = msgspec.structs.replace(
        row.demand, widths=range(gpus, gpus - 1, -1), selector=selector, duration=left_to_pay(turn, row), fill=False
    )
    return safe_plan(turn.state, demand, now=turn.now, has=holding(turn.state, row), for_good=True)


# --- whole intervals ------------------------------------------------------------------------------------------------


def left_to_pay(turn: Turn, row: RunRow) -> Micros | None:
    """How long the run was to take still, at the last whole interval; None if it did not say, or was past it."""
    last = _last(turn.state, row, now=turn.now)
    return None if row.until is None or row.until <= last else row.until - last


def ended_since(turn: Turn, row: RunRow) -> bool:
    """Whether the end that the run declared has come since the last whole interval."""
    return _last(turn.state, row, now=turn.now) < (row.until or 0) <= turn.now


def _last(state: State, row: RunRow, *, now: Instant) -> Instant:
    """The last whole interval since the run grew or started."""
    return now - (now - (row.life.grown or 0)) % _interval(state)


def _interval(state: State) -> Micros:
    return max(1, parse_duration(state.policy.grow_interval))


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
