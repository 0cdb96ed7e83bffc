"""Whether a run can start now, beside all that is promised to others, and if not, why."""

from __future__ import annotations

from tenure.engine.demand import Demand
from tenure.engine.forecast import Search
from tenure.engine.plan import NOTHING, Holding, Plan, find_plan, make_plan
from tenure.engine.state import State
from tenure.facts import Reason, Verdict
from tenure.units import SECOND, Instant, format_time, parse_duration


def safe_plan(
    state: State, demand: Demand, *, now: Instant, has: Holding = NOTHING, for_good: bool = False
) -> Plan | Verdict:  # fmt: skip
    """A plan to start now that delays no reservation. Without any the present is all there is to look at.

    If there is none, the verdict is that of the present; it may be that there only older runs are in the way.
    ``for_good``: it stays out of everything that is promised, also where it is to be over before.
    """
    if not state.timeline.claimed.get(demand.flavor):
        return make_plan(state.world, demand, now=now, has=has)
    found = Search(state, demand, now=now, has=has, for_good=for_good).plan_at(now)
    if found is not None:
        return found
    verdict = make_plan(state.world, demand, now=now, has=has)
    return _protected(state, demand, verdict) if isinstance(verdict, Plan) else verdict


def plan_now(state: State, demand: Demand, *, now: Instant) -> Plan | None:
    """The same plan, for those who do not ask why there is none; who declares no end may also pass promises that are
    further off than the policy's patience."""
    if not state.timeline.claimed.get(demand.flavor):
        return find_plan(state.world, demand, now=now)
    found = Search(state, demand, now=now).plan_at(now)
    if found is None and demand.duration is None:
        patience = parse_duration(state.policy.patience)
        found = Search(state, demand, now=now, lasts=max(1, patience)).plan_at(now)
    return found


def why_not_now(state: State, demand: Demand, *, now: Instant) -> Verdict | Plan:
    """Why a demand cannot start now, of which it is known that it cannot."""
    verdict = make_plan(state.world, demand, now=now)
    if isinstance(verdict, Plan) and state.timeline.claimed.get(demand.flavor):
        return _protected(state, demand, verdict)
    return verdict


def _protected(state: State, demand: Demand, plan: Plan) -> Verdict:
    """There is room, but it is promised: to whom, of those whose machines or money the plan would take."""
    nodes = {node for part in plan.parts for group in part.groups for node, _ in (*group.active, *group.spares)}
    paid = {(one.budget, one.envelope) for one in plan.segments}
    claims = [(key, one.plan) for key, one in state.timeline.claims.items() if one.flavor == demand.flavor]
    kept = [
        (claim.start or 0, key)
        for key, claim in claims
        if not nodes.isdisjoint(share.node for share in claim.shares)
        or not paid.isdisjoint((one.budget, one.envelope) for one in claim.segments)
    ] or [(claim.start or 0, key) for key, claim in claims]
    at, key = min(kept)
    reason = Reason(code="Protected", data={"run": key, "at": format_time(at - at % SECOND)})
    return Verdict(outcome="wait", headline=reason, width=plan.verdict.width, visits=plan.verdict.visits,
                   tried=plan.verdict.tried)  # fmt: skip
