"""Starting what can start, and promising a start to some of the rest: the pass over a flavor (SPEC 4, 6, 7).

A pass goes in this order: repair of what the world broke; promises that can start, by number; the first promise of each
line, kept as early as possible; free places, oldest first; then all others who can start now, oldest first. Whoever is
planned is planned around all promises that stand, so nobody who starts delays one. What an end or a submission costs
follows what it gave, and how many kinds of demand wait; never how many runs do.

An owner's own claim comes before the family's use of what is left: a plan that spends another owner's envelope first
lets that owner's waiting runs start on it.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from functools import partial
from heapq import heapify, heappop, heappush

from tenure.engine import promise
from tenure.engine.forecast import Search
from tenure.engine.life import move
from tenure.engine.plan import Plan
from tenure.engine.queue import backfill
from tenure.engine.queue.age import Age
from tenure.engine.queue.holes import Holes, free_gpus, may_fit, needs
from tenure.engine.queue.order import ALL, WaitingClass, run_of
from tenure.engine.queue.promises import Promises, cluster_of, owners_with_places, waits_a_moment
from tenure.engine.queue.starting import start_run
from tenure.engine.queue.tenable import is_due
from tenure.engine.reasons import is_machines, is_money
from tenure.engine.starts import plan_now, why_not_now
from tenure.engine.state import RunRow
from tenure.engine.turn import Turn
from tenure.engine.words import is_hopeless
from tenure.facts import Decided, Reason, Verdict
from tenure.units import FOREVER, Micros

SCARCE = 4
"""From three of so many places on, only owners that hold none get one."""


def admit(turn: Turn) -> None:
    """Look at everything on the agenda, until nothing is left on it."""
    agenda = turn.state.agenda
    turn.state.hold_late(turn.now)
    turn.state.look_ahead(turn.now)
    while agenda.flavors or agenda.runs:
        flavors, agenda.flavors = agenda.flavors, set()
        changed, agenda.runs = agenda.runs, set()
        some: dict[str, list[RunRow]] = {}
        rows = (turn.state.runs[key] for key in changed if key in turn.state.runs)
        for row in sorted(rows, key=lambda row: row.order):
            turn.state.line_up(row, turn.now)
            some.setdefault(row.demand.flavor, []).append(row)
        for flavor in sorted({*flavors, *some}):
            one = _Pass(turn, flavor)
            if flavor in flavors:
                one.over_all()
            one.over(some.get(flavor, []))


class _Pass:
    """One look at the waiting runs of a flavor."""

    def __init__(self, turn: Turn, flavor: str) -> None:
        self.turn, self.state, self.flavor = turn, turn.state, flavor
        self.promises = Promises(turn, flavor)
        self.holes = Holes(turn.state, flavor, now=turn.now)
        self._undealt: dict[WaitingClass, Micros] = {}
        """Of classes: no start is known of who takes as long as this, or longer."""
        self._asked: set[str] = set()
        """Runs that are to start, and let others have their own money first."""
        self._first: set[WaitingClass] = set()
        """Classes of which somebody was asked already before the family may spend the owner's money."""

    # -- some --

    def over(self, rows: list[RunRow]) -> None:
        """Some runs are new, or changed, or their time has come."""
        if self._keep_promises():
            self.state.agenda.flavors.add(self.flavor)
        for row in rows:
            one = promise.of(self.turn, row)
            if not self._waits(row) or row.key not in self.state.runs:
                continue
            if row.key in self.state.promises.get(self.flavor, ()):
                assert one is not None
                if self.promises.start(row, one):
                    self.state.agenda.flavors.add(self.flavor)
            elif self.state.queue.is_in_line(row.key):
                self._enter(row)

    def _enter(self, row: RunRow) -> None:
        """A run came to stand in line: it starts, or is told why not, and gets a place if one is free."""
        kind = self.state.queue.class_of(row.key)
        lasts = self.state.queue.lasts(row.key)
        plan = None
        if not backfill.is_refused(self.state, kind, lasts):
            plan = self._plan(row)
            if plan is not None and self._starts(row, plan):
                return
        if not self.state.queue.is_in_line(row.key):
            return
        verdict = why_not_now(self.state, row.demand, now=self.turn.now)
        if isinstance(verdict, Plan):  # somebody with a better claim took what there was a moment ago
            return
        refuse(self.turn, row, verdict)
        if verdict.outcome == "never":
            one = promise.of(self.turn, row)
            if one is not None:
                assert verdict.headline is not None
                short = Search(self.state, row.demand, now=self.turn.now).short(self.turn.now)
                promise.block(self.turn, row, verdict.headline, short=short)
            return
        if self.state.has_place(self.flavor):
            self._deal()
        elif is_money(verdict.headline or Reason(code="")):
            self._say_unpaid(row, verdict)

    def _say_unpaid(self, row: RunRow, verdict: Verdict) -> bool:
        """The oldest run of an owner that nobody can pay for, now or at any time that is known, says so for all of
        them. True if money is not in sight."""
        saying = self.state.unpaid.get(self.flavor, {}).get(self.state.place_owner(row))
        if saying and row.key not in saying:
            return False
        search = Search(self.state, row.demand, now=self.turn.now)
        paid = search.fundable(self.turn.now)
        if paid is not None and not search.short(paid):
            return False
        short = search.short(self.turn.now)
        reason = verdict.headline if is_money(verdict.headline or Reason(code="")) or not short else None
        promise.block(self.turn, row, reason or Reason(code="NoMoneyInSight", data={"short": short}), short=short)
        return True

    # -- all --

    def over_all(self) -> None:
        """Something came free for the flavor, or was taken from it."""
        again = True
        while again:
            again = self._keep_promises()
            again = self.promises.start_all(self.holes) or again
            again = self.promises.improve() or again
            again = self._deal() or again
        self._backfill()

    def _keep_promises(self) -> bool:
        """Start those that are due, repair what the world broke, and only then plan anew who is due and cannot start:
        what was in its way may have been broken itself. True if anything changed."""
        changed = self.promises.start_due()
        changed = self.promises.repair() or changed
        return self.promises.start_due(plan_anew=True) or changed

    def _free(self) -> int:
        return free_gpus(self.state, self.flavor)

    # -- places --

    def _deal(self) -> bool:
        """Deal free places, oldest first; True if anybody got one, or started instead."""
        dealt = False
        while (found := self._next_place()) is not None:
            row, clusters = found
            if self._gets_place(row, clusters):
                dealt = True
            elif self.state.queue.is_in_line(row.key):
                kind = self.state.queue.class_of(row.key)
                self._undealt[kind] = self.state.queue.lasts(row.key)
        return dealt

    def _gets_place(self, row: RunRow, clusters: set[str]) -> bool:
        """Promise a run a start, or start it; False if no start is known."""
        if self._starts_instead(row):
            return True
        verdict = why_not_now(self.state, row.demand, now=self.turn.now)
        if isinstance(verdict, Plan):
            return False
        refuse(self.turn, row, verdict)
        if verdict.outcome == "never":
            return False
        reason = verdict.headline or Reason(code="NoStartInSight")
        if self.promises.promise(row, reason, clusters=clusters, first=partial(self._owners_dealt_first, row)):
            return True
        self._say_unpaid(row, verdict)
        return False

    def _owners_dealt_first(self, row: RunRow, plan: Plan) -> bool:
        """Let the owners of other people's money in a plan have a place for it first, where one is free for them; True
        if any got one: then it is asked anew who is next."""
        queue, facts = self.state.queue, len(self.turn.facts)
        for owner in dict.fromkeys(one.payer for one in plan.segments if one.payer != row.demand.owner):
            kinds = [kind for kind in queue.classes(self.flavor) if kind.demand.owner == owner]
            ages = (kind.line.oldest(within=self._dealable(kind)) for kind in kinds if kind not in self._first)
            oldest = min((age for age in ages if age is not None), default=None)
            if oldest is not None:
                other = self.state.runs[run_of(oldest)]
                kind = queue.class_of(other.key)
                self._first.add(kind)
                open_places = self._open_places()
                if open_places is not None and (open_to := open_places(kind.owner)):
                    self._gets_place(other, open_to)
        return len(self.turn.facts) > facts

    def _starts_instead(self, row: RunRow) -> bool:
        kind, lasts = self.state.queue.class_of(row.key), self.state.queue.lasts(row.key)
        if backfill.is_refused(self.state, kind, lasts):
            return False
        plan = self._plan(row)
        return plan is not None and self._starts(row, plan)

    def _next_place(self) -> tuple[RunRow, set[str]] | None:
        """Who gets the next place, and in which clusters one is free: of the oldest run's owner those that ran before
        come first. Where three quarters of the places are taken, only owners that hold none get one."""
        state = self.state
        if not state.queue.lined(self.flavor):
            return None
        open_places = self._open_places()
        if open_places is None:
            return None
        by_owner: dict[str, list[WaitingClass]] = {}
        for kind in state.queue.classes(self.flavor):
            by_owner.setdefault(kind.owner, []).append(kind)
        best: tuple[Age, str, set[str]] | None = None
        for owner, kinds in by_owner.items():
            open_to = open_places(owner)
            if not open_to:
                continue
            ages = (kind.line.oldest(within=self._dealable(kind)) for kind in kinds)
            oldest = min((age for age in ages if age is not None), default=None)
            if oldest is not None and (best is None or oldest < best[0]):
                best = oldest, owner, open_to
        if best is None:
            return None
        oldest, owner, open_to = best
        ran = [age for kind in by_owner[owner] for age in kind.ran
               if state.queue.lasts(run_of(age)) <= self._dealable(kind)]  # fmt: skip
        return state.runs[run_of(min(ran, default=oldest))], open_to

    def _open_places(self) -> Callable[[str], set[str]] | None:
        """The clusters in which a place is free for an owner, as things stand; None if all are taken."""
        state, depth = self.state, self.state.policy.promise_depth
        taken = Counter(cluster_of(one) for one in state.promises.get(self.flavor, {}).values())
        holders = owners_with_places(state, self.flavor)
        clusters = {location[1] for location in state.topology.locations(self.flavor)}
        free = {cluster for cluster in clusters if taken[cluster] < depth}
        if not free:
            return None
        ample = {cluster for cluster in free if SCARCE * taken[cluster] < (SCARCE - 1) * depth}
        return lambda owner: ample | {cluster for cluster in free if owner not in holders.get(cluster, ())}

    def _dealable(self, kind: WaitingClass) -> Micros:
        """How long a run of a class may take, to be dealt a place in this pass."""
        return min(FOREVER, self._undealt.get(kind, ALL) - 1)

    # -- everybody else --

    def _backfill(self) -> None:
        """Start all others who can start now, oldest first."""
        state, queue = self.state, self.state.queue
        holes: dict[WaitingClass, Micros] = {}
        refused: dict[WaitingClass, Micros] = {}
        heap: list[tuple[Age, WaitingClass]] = []

        def put(kind: WaitingClass) -> None:
            within = min(holes[kind], refused.get(kind, ALL) - 1)
            age = kind.line.oldest(within=within) if within > 0 else None
            if age is not None:
                heap.append((age, kind))

        kinds = list(queue.classes(self.flavor))
        for kind in kinds:
            holes[kind] = backfill.hole_for(state, kind, self.holes)
            put(kind)
        heapify(heap)
        while heap:
            age, kind = heappop(heap)
            row = state.runs[run_of(age)]
            if not queue.is_in_line(row.key):
                continue
            self._starts_now(row, kind, refused)
            tail = len(heap)
            put(kind)
            if len(heap) > tail:
                heappush(heap, heap.pop())
        for kind in kinds:
            if kind.line:
                backfill.settle(state, kind, holes[kind], refused.get(kind))

    def _starts_now(self, row: RunRow, kind: WaitingClass, refused: dict[WaitingClass, Micros]) -> None:
        """Start a run if it can; else keep what is refused to its class."""
        lasts = self.state.queue.lasts(row.key)
        if not may_fit(row.demand, self._free()):
            refused[kind] = 1
            return
        if kind.funds is None:
            kind.funds = Search(self.state, row.demand, now=self.turn.now).funds()
        plan = self._plan(row)
        if plan is not None and self._starts(row, plan):
            return
        if plan is None or not self.state.queue.is_in_line(row.key):
            refused[kind] = min(lasts, refused.get(kind, ALL))
            if not self.promises._is_paid_now(row):
                kind.unpaid_from = min(kind.unpaid_from, lasts)

    # -- one run --

    def _waits(self, row: RunRow) -> bool:
        return row.life.phase == "Pending" and not row.life.deleting

    def _plan(self, row: RunRow) -> Plan | None:
        if self.holes.suffices(row.demand) < needs(self.state, row.demand):
            return None
        return plan_now(self.state, row.demand, now=self.turn.now)

    def _starts(self, row: RunRow, plan: Plan | None) -> bool:
        """Start a run, after the owners of other people's money in its plan; True if it did."""
        self._asked.add(row.key)
        while plan is not None and self._owners_first(row, plan):
            plan = self._plan(row)
        self._asked.discard(row.key)
        if plan is None:
            return False
        start_run(self.turn, row, plan)
        return True

    def _owners_first(self, row: RunRow, plan: Plan) -> bool:
        """Let the owners of other people's money in this plan start their own waiting runs on it; True if any did, or
        somebody whose money was in their plans: this one is stale then."""
        state, facts = self.state, len(self.turn.facts)
        for owner in dict.fromkeys(one.payer for one in plan.segments if one.payer != row.demand.owner):
            spent = {(one.budget, one.envelope) for one in plan.segments if one.payer == owner}
            kinds = [kind for kind in state.queue.classes(self.flavor) if kind.demand.owner == owner]
            for age in sorted(age for kind in kinds if (age := kind.line.oldest()) is not None):
                other = state.runs[run_of(age)]
                claim = None if other.key in self._asked else self._plan(other)
                if claim is not None and spent & {
                    (one.budget, one.envelope) for one in claim.segments if one.funding == "owned"
                }:
                    self._starts(other, claim)
                    return len(self.turn.facts) > facts
        return False


def refuse(turn: Turn, row: RunRow, verdict: Verdict) -> None:
    """Say why a run waits, when that is news: the code of the headline changed, and not from one lack of machines to
    another, which comes and goes with every start of others."""
    reason, told = verdict.headline, row.life.reason
    assert reason is not None
    never = verdict.outcome == "never"
    same = told == reason.code or (is_machines(told) and is_machines(reason.code))
    if same and never == is_hopeless(row):
        return
    turn.emit(Decided(namespace=row.namespace, run=row.name, verdict=verdict))
    move(turn, row, reason, marks={"Admitted": "False", "Blocked": "True" if never else "False"})
    turn.note("Blocked" if never else "Waiting", f"Run/{row.key}", reason)


__all__ = ["admit", "is_due", "refuse", "waits_a_moment"]
