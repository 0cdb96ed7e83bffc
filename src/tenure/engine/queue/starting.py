"""A run starts: its plan becomes leases and pods, and whoever was promised to it is released.

Who has no promise takes nothing that a promise needs. Who declares no end may start inside slices that are promised
further off than the policy's ``patience``: the first of these that then has too little is its bound.
"""

from __future__ import annotations

from collections.abc import Callable, Collection

from tenure.engine import promise
from tenure.engine.bind import Who, bind
from tenure.engine.future import Future
from tenure.engine.life import start
from tenure.engine.plan import Plan
from tenure.engine.state import RunRow, State
from tenure.engine.topology import PoolKind
from tenure.engine.turn import Turn
from tenure.facts import Decided, Reason
from tenure.units import Instant


def start_run(turn: Turn, row: RunRow, plan: Plan, *, aside: Collection[str] = ()) -> None:
    """Start a run by a plan. ``aside``: runs whose promises follow on its slice, and do not count against it."""
    state, now = turn.state, turn.now
    state.timeline.remove_claim(row.key)
    who = Who(row.namespace, row.name, row.run.metadata.uid, row.run.spec.owner, row.life.attempt + 1)
    until = None if row.demand.duration is None else now + row.demand.duration
    past, first = _starts_past(state, row), _first_in_the_way(state, row, plan, now=now) if until is None else None
    end = first if until is None else until
    bound = bind(plan.parts, who, state.topology, now=now, until=until, pod=row.demand.pod,
                 free=_free_of(turn, plan, aside, end=end) if row.demand.fill else None)  # fmt: skip
    turn.emit(Decided(namespace=row.namespace, run=row.name, verdict=plan.verdict))
    start(turn, row, bound, admitted(plan, len({lease.node for lease in bound.leases})),
          backfilled=past or first is not None, until=first)  # fmt: skip
    promise.release(turn, row)


def _free_of(turn: Turn, plan: Plan, aside: Collection[str], *, end: Instant | None) -> Callable[[str], int]:
    """How much of a node opportunistic work may take before it sits on spares: what nobody was promised until then."""
    timeline, now, topology = turn.state.look_ahead(turn.now), turn.now, turn.state.topology
    nodes = {node for part in plan.parts for group in part.groups for node, _ in (*group.active, *group.spares)}
    with timeline.set_aside(aside):
        future = Future(topology, timeline, now=now, at=now, length=None if end is None else end - now)
        return {node: future.size(topology.rows[node]) for node in nodes}.__getitem__


def _starts_past(state: State, row: RunRow) -> bool:
    """True if somebody still waits who was promised a start before this run was."""
    rank = state.rank(row)
    promises = state.promises.get(row.demand.flavor, {})
    return any(state.rank(state.runs[key]) < rank for key in promises if key != row.key)


def _first_in_the_way(state: State, row: RunRow, plan: Plan, *, now: Instant) -> Instant | None:
    """From when on a run that goes on for ever takes what somebody was promised; None if it never does."""
    taken: dict[str, int] = {}
    for part in plan.parts:
        for group in part.groups:
            for node, gpus in (*group.active, *group.spares):
                taken[node] = taken.get(node, 0) + gpus
    timeline, rows, found = state.timeline, state.topology.rows, list[Instant]()
    kind: PoolKind = "fill" if row.demand.fill else "free"
    for key, claim in timeline.claims.items():
        begin, end = claim.plan.start, claim.plan.until
        if key == row.key or claim.flavor != row.demand.flavor or begin is None or begin <= now:
            continue  # what is held by now the plan stays off
        for share in claim.plan.shares:
            gpus = taken.get(share.node, 0)
            if gpus and rows[share.node].size(kind) + timeline.low(share.node, begin, end) < gpus:
                found.append(begin)
        if _is_short(state, plan, begin, end, {(one.budget, one.envelope) for one in claim.plan.segments}):
            found.append(begin)
    return min(found, default=None)


def _is_short(
    state: State, plan: Plan, begin: Instant, end: Instant | None, funds: set[tuple[str, str]]
) -> bool:  # fmt: skip
    """True if an envelope, its cap or what it lends cannot pay for a plan beside all that is promised of it then."""
    money = state.timeline.money
    for part in plan.segments:
        fund = state.books.funds[part.budget, part.envelope]
        mates = {fund.key, *(mate.key for cap in fund.caps for mate in cap.funds)}
        if mates.isdisjoint(funds):
            continue
        held = -money[fund.key].total.low(begin, end) if fund.key in money else 0
        lent = -money[fund.key].lent.low(begin, end) if fund.key in money else 0
        if held + part.gpus > fund.concurrency:
            return True
        if part.funding == "borrowed" and fund.lending_max is not None and lent + part.gpus > fund.lending_max:
            return True
        for cap in fund.caps:
            used = sum(-money[mate.key].total.low(begin, end) for mate in cap.funds if mate.key in money)
            if cap.concurrency is not None and used + part.gpus > cap.concurrency:
                return True
    return False


def admitted(plan: Plan, nodes: int) -> Reason:
    payers = ", ".join(f"{one.budget}/{one.envelope} ({one.gpus} {one.funding})" for one in plan.verdict.segments)
    return Reason(code="Admitted", data={"gpus": plan.shape.gpus, "nodes": nodes, "payers": payers})
