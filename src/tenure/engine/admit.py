"""Starting what can start: the pass over waiting runs (SPEC 4, 6, 7).

Waiting runs are considered oldest first. A run that changed is looked at alone; when something came free, all that
wait for that flavor are. Within a pass room only shrinks, so a refusal holds for every later run with an equal demand,
and a long queue of alike runs costs one plan.

An owner's own claim comes before the family's use of what is left: a plan that spends another owner's envelope first
lets that owner's waiting runs start on it.
"""

from __future__ import annotations

from tenure.engine.bind import Who, bind
from tenure.engine.demand import Demand
from tenure.engine.life import move, start
from tenure.engine.plan import Plan, make_plan
from tenure.engine.state import RunRow
from tenure.engine.turn import Turn
from tenure.facts import Decided, Reason, Verdict


def admit(turn: Turn) -> None:
    """Look at everything on the agenda, until nothing is left on it."""
    agenda = turn.state.agenda
    while agenda.flavors or agenda.runs:
        flavors, agenda.flavors = agenda.flavors, set()
        changed, agenda.runs = agenda.runs, set()
        rows = [turn.state.runs[key] for key in changed if key in turn.state.runs]
        work: dict[str, list[str]] = {flavor: turn.state.queue.waiting(flavor) for flavor in flavors}
        for row in sorted(rows, key=lambda row: row.order):
            if row.demand.flavor not in flavors:
                work.setdefault(row.demand.flavor, []).append(row.key)
        for flavor in sorted(work):
            _Pass(turn).run(work[flavor])


class _Pass:
    """One look at some waiting runs."""

    def __init__(self, turn: Turn) -> None:
        self.turn = turn
        self.refused: dict[Demand, Verdict] = {}
        self.done: set[str] = set()

    def run(self, keys: list[str]) -> None:
        for key in keys:
            row = self.turn.state.runs.get(key)
            if row is not None:
                self.consider(row)

    def consider(self, row: RunRow) -> None:
        if row.key in self.done or not self._may_start(row):
            return
        self.done.add(row.key)
        plan = self._plan(row)
        while isinstance(plan, Plan) and self._owners_first(row, plan):
            plan = self._plan(row)
        if isinstance(plan, Plan):
            self._start(row, plan)
        else:
            self.refused[row.demand] = plan
            refuse(self.turn, row, plan)

    def _may_start(self, row: RunRow) -> bool:
        life = row.life
        return life.phase == "Pending" and not life.deleting and life.not_before <= self.turn.now

    def _plan(self, row: RunRow) -> Plan | Verdict:
        known = self.refused.get(row.demand)
        if known is not None:
            return known
        return make_plan(self.turn.state.world, row.demand, now=self.turn.now)

    def _owners_first(self, row: RunRow, plan: Plan) -> bool:
        """Let the owners of other people's money in this plan start their own waiting runs on it; True if that decided
        anything.

        They in turn let the owners of what they would share come first; each run is considered once.
        """
        state = self.turn.state
        before = len(self.turn.facts)
        for owner in dict.fromkeys(one.payer for one in plan.segments if one.payer != row.demand.owner):
            spent = {(one.budget, one.envelope) for one in plan.segments if one.payer == owner}
            for key in state.queue.of_owner(row.demand.flavor, owner):
                other = state.runs[key]
                if key in self.done or not self._may_start(other):
                    continue
                claim = self._plan(other)
                if isinstance(claim, Plan) and spent & {
                    (one.budget, one.envelope) for one in claim.segments if one.funding == "owned"
                }:
                    self.consider(other)
        return len(self.turn.facts) > before

    def _start(self, row: RunRow, plan: Plan) -> None:
        turn = self.turn
        run, now = row.run, turn.now
        who = Who(row.namespace, row.name, run.metadata.uid, run.spec.owner, row.life.attempt + 1)
        until = None if row.demand.duration is None else now + row.demand.duration
        bound = bind(plan.parts, who, turn.state.topology, now=now, until=until, pod=row.demand.pod)
        turn.emit(Decided(namespace=row.namespace, run=row.name, verdict=plan.verdict))
        start(turn, row, bound, admitted(plan, len({lease.node for lease in bound.leases})))


def admitted(plan: Plan, nodes: int) -> Reason:
    payers = ", ".join(f"{one.budget}/{one.envelope} ({one.gpus} {one.funding})" for one in plan.verdict.segments)
    return Reason(code="Admitted", data={"gpus": plan.shape.gpus, "nodes": nodes, "payers": payers})


def refuse(turn: Turn, row: RunRow, verdict: Verdict) -> None:
    """Say why a run waits, when that is news: the code of the headline changed."""
    reason = verdict.headline
    assert reason is not None
    blocked = "True" if verdict.outcome == "never" else "False"
    now_blocked = next((mark.status for mark in row.life.marks if mark.type == "Blocked"), "False")
    if row.life.reason == reason.code and blocked == now_blocked:
        return
    turn.emit(Decided(namespace=row.namespace, run=row.name, verdict=verdict))
    move(turn, row, reason, marks={"Admitted": "False", "Blocked": blocked})
    turn.note("Waiting" if blocked == "False" else "Blocked", f"Run/{row.key}", reason)
