"""Starting what can start, and promising a start to the rest: the pass over waiting runs (SPEC 4, 6, 7).

Waiting runs are considered oldest first. Each is planned on what is free now and on what others were promised before
it was, so nobody who starts delays them; who cannot start gets a reservation, and claims its slice before the next is
considered. When something changed that nobody had foreseen, all that wait for that flavor are looked at, and those whom
it may concern are planned again (``standing``); a run that is new is planned alone, and one that changed with those
that were promised a start after it. A promise stands as it is if there is no earlier start and its slice is there.

Within a pass room only shrinks, so a refusal holds for every later run with an equal demand, and none of these can
start before the one that was planned last.

An owner's own claim comes before the family's use of what is left: a plan that spends another owner's envelope first
lets that owner's waiting runs start on it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from heapq import heapify, heappop, heappush

from tenure.engine import activation, promise, standing
from tenure.engine.activation import follows, may_cut
from tenure.engine.bind import Who, bind
from tenure.engine.demand import Demand
from tenure.engine.forecast import Search, Start, safe_plan, slice_of, world_at
from tenure.engine.future import Future
from tenure.engine.later import Later
from tenure.engine.life import move, start
from tenure.engine.news import EVERYBODY, QueueKey, is_late
from tenure.engine.plan import Plan, find_plan
from tenure.engine.reasons import is_money
from tenure.engine.rows import is_held
from tenure.engine.standing import Fleetwide
from tenure.engine.state import GRACE, Rank, RunRow
from tenure.engine.turn import Turn
from tenure.facts import Decided, Reason, Reservation, Slice, Verdict
from tenure.units import FOREVER, Instant, parse_duration

SWEEPS_MAX = 4


def admit(turn: Turn) -> None:
    """Look at everything on the agenda, until nothing is left on it."""
    agenda = turn.state.agenda
    turn.state.hold_late(turn.now)
    turn.state.look_ahead(turn.now)
    while agenda.flavors or agenda.runs:
        flavors, agenda.flavors = agenda.flavors, set()
        changed, agenda.runs = agenda.runs, set()
        some: dict[str, list[RunRow]] = {}
        for row in sorted(
            (turn.state.runs[key] for key in changed if key in turn.state.runs), key=lambda row: row.order
        ):
            turn.state.news.forget(row.key)
            some.setdefault(row.demand.flavor, []).append(row)
        for flavor in sorted({*flavors, *some}):
            one = _Pass(turn, flavor)
            if flavor in flavors:
                one.over_all()
            else:
                one.over(some[flavor])


class _Pass:
    """One look at the waiting runs of a flavor, or at some of them."""

    def __init__(self, turn: Turn, flavor: str) -> None:
        self.turn = turn
        self.state = turn.state
        self.flavor = flavor
        self.refused: dict[Demand, tuple[Rank, Verdict]] = {}
        self.cursor: dict[tuple[Demand, bool], tuple[Rank, Instant]] = {}
        """Where the search for an equal demand ended: a younger run cannot start before. Who was cut before counts on
        less than others do."""
        self.floor: dict[str, Instant] = {}
        """Of runs that were looked at, the instant before which they cannot start."""
        self.done: set[str] = set()
        self.behind: Rank | None = None
        """All who are promised a start behind that are planned anew, if it concerns them, and all who are not."""
        self.chosen: set[str] = set()
        """And these, in any case; all others stay as they are."""
        self._later = Later(turn.state, list)
        self._fleetwide = Fleetwide(turn.state, flavor, self._later)
        self._before: dict[str, tuple[QueueKey, Rank, Slice | None]] = {}
        """Of runs that were looked at: what they were promised before."""
        self._moved: dict[str, list[str]] = {}
        """Of runs that start though it is late: who was planned behind them, and moves with them."""

    def over_all(self) -> None:
        self._start_due()
        if self._sweep([], EVERYBODY):
            self.state.news.settled(self.flavor)

    def _start_due(self) -> None:
        """First start those whose time has come, where they were promised to, in the order of the promises: with what
        is there by now others may pay for them than was planned, and who has no promise is to find that taken."""
        state, now = self.state, self.turn.now
        promised = ((key, state.reservations.get(key)) for key in state.news.starting(self.flavor, before=now + 1))
        rows = [state.runs[key] for key, one in promised if one is not None and _due(one, now)]
        for row in sorted(filter(self._waits, rows), key=state.rank):
            if not self._starts_as_planned(row) and not self._waits_a_moment(row):
                return

    def over(self, rows: list[RunRow]) -> None:
        """Some runs changed. Those that start where they were promised to leave all others as they are; so does one
        without a promise, which takes nobody's. Another plan for one that has a promise may be in the way of later
        ones."""
        rest, anew = list[RunRow](), False
        for row in sorted(filter(self._waits, rows), key=self.state.rank):
            if anew or not self._starts_as_planned(row):  # who was promised a start later waits for who is planned anew
                rest.append(row)
                anew = anew or not self._waits_a_moment(row)
        if not rest:
            return
        first = min(map(self.state.rank, rest))
        starts = {row.key: self._start_of(row) for row in rest}
        self._sweep(rest, first if first[0] < FOREVER else None)
        if any(self._waits(row) and self._start_of(row) > starts[row.key] for row in rest):
            self.state.agenda.flavors.add(self.flavor)  # what it no longer claims may be of use to earlier ones

    def _sweep(self, rows: list[RunRow], behind: Rank | None) -> bool:
        """Consider runs, and all behind a rank whom anything concerns, oldest first; each is planned on what others
        were promised before it was.

        Where an older run was promised its start later than a younger one, it may gain by what that one leaves: then
        all are considered once more. False if that has not come to an end.
        """
        self.behind, self.chosen = behind, {row.key for row in rows}
        for _ in range(SWEEPS_MAX):
            self._later = Later(self.state, self._swept)
            self._fleetwide = Fleetwide(self.state, self.flavor, self._later)
            self._before = {}
            for row in self._woken():
                self.consider(row)
            self._later.lay()
            changed = any(self._changed(key) for key in self._before)
            if not changed or self._in_order():
                return True
            self.done, self.refused, self.cursor, self.floor = set(), {}, {}, {}
        return False

    def _woken(self) -> Iterator[RunRow]:
        """Who is to be considered, oldest first: also those whom it concerns what becomes of others before them.

        To ask whom costs as much as it names. Once it has named as many as wait, all are considered.
        """
        state, last, left = self.state, (0, "", ""), self.state.queue.count(self.flavor)
        marks: int | None = None
        ahead = [(row.order, row.key) for row in (state.runs[key] for key in self.chosen if key in state.runs)]
        heapify(ahead)
        while True:
            if self.behind is not None and left >= 0:
                some, marks = state.news.woken(self.flavor, now=self.turn.now, after=marks)
                left -= len(some)
                if left < 0:
                    some = set(state.queue.waiting(self.flavor, since=last))
                for row in (state.runs[key] for key in some - self.chosen):
                    if row.order > last and state.rank(row) > self.behind:
                        heappush(ahead, (row.order, row.key))
            while ahead and ahead[0][0] <= last:
                heappop(ahead)
            if not ahead:
                return
            last, key = heappop(ahead)
            if key in state.runs:
                yield state.runs[key]

    def _is_swept(self, row: RunRow) -> bool:
        return row.key in self.chosen or (self.behind is not None and self.state.rank(row) > self.behind)

    def _swept(self) -> list[RunRow]:
        """All whose plans may change."""
        runs, all_wait = self.state.runs, self.behind is not None
        rows = [runs[key] for key in (self.state.queue.waiting(self.flavor) if all_wait else self.chosen & runs.keys())]
        return [row for row in rows if self._waits(row) and self._is_swept(row)]

    def _changed(self, key: str) -> bool:
        row = self.state.runs.get(key)
        return row is None or not self._waits(row) or self._planned(row) != self._before[key][2]

    def _in_order(self) -> bool:
        """Whether all were promised their starts in the order of the queue, before the sweep."""
        rows = [(row.order, self.state.rank(row)) for row in self._swept() if row.key not in self._before]
        ranks = [rank for _, rank in sorted([*rows, *((order, rank) for order, rank, _ in self._before.values())])]
        return ranks == sorted(ranks)

    def _start_of(self, row: RunRow) -> Instant:
        plan = self._planned(row)
        return FOREVER if plan is None or plan.start is None else plan.start

    def _planned(self, row: RunRow) -> Slice | None:
        one = promise.of(self.turn, row)
        return None if one is None else one.plan

    def _starts_as_planned(self, row: RunRow) -> bool:
        one = promise.of(self.turn, row)
        if one is None or not _due(one, self.turn.now) or not self._may_start(row):
            return False
        claim = self.state.horizon.retract(row.key)
        plan = self._in_slice(row, one)
        if plan is not None:
            self.done.add(row.key)
            self._start(row, plan)
            return True
        if claim is not None:
            self.state.horizon.lay(row.key, claim.flavor, claim.plan, claim.period, cuts=claim.cuts)
        return False

    def consider(self, row: RunRow) -> None:
        if row.key in self.done or not self._waits(row):
            return
        self._before.setdefault(row.key, (row.order, self.state.rank(row), self._planned(row)))
        if not self._may_start(row):
            self._claim_again(row)
            return
        self.done.add(row.key)
        if self._waits_a_moment(row):
            self._claim_again(row)
            return
        self._later.reach(row)
        since = self._cursor(row, self.turn.now)
        if not standing.concerned(self.state, row, self._fleetwide, now=self.turn.now, since=since):
            self._ends_at(row, self._start_of(row))
            return
        self._later.plan(row)
        if self._stands(row):
            self._later.planned(row)
            return
        plan = self._plan(row)
        while isinstance(plan, Plan) and self._owners_first(row, plan):
            self._later.plan(row)
            plan = self._plan(row)
        if isinstance(plan, Plan):
            self._start(row, plan)
        else:
            self.refused[row.demand] = (self.state.rank(row), plan)
            refuse(self.turn, row, plan)
            self._promise(row, plan)
        self._later.planned(row)

    def _stands(self, row: RunRow) -> bool:
        """Whether a promise stays as it is: no start is earlier, and the slice is there when its start comes."""
        one = promise.of(self.turn, row)
        if one is None or one.plan.start is None or not standing.may_stand(row, one, now=self.turn.now):
            return False
        search = Search(self.state, row.demand, now=self.turn.now)
        patient = not may_cut(row)  # it may have been promised a start beyond all patience
        paid, earlier = self._earliest(row, search, one, patient=patient, before=one.plan.start)
        if paid is None:
            return False
        limit = self._limit(row, paid)
        self.floor[row.key] = earlier.at if earlier is not None else min(one.plan.start, limit + 1)
        if earlier is not None or (may_cut(row) and one.plan.start > limit):
            return False
        horizon = self.state.horizon
        if not self._as_planned(row, one, one.plan.start):
            with horizon.without(tuple(horizon.overdue)):
                if not horizon.overdue or row.life.cut or not self._as_planned(row, one, one.plan.start):
                    return False
        self.state.claim(one)
        standing.found(self.state, row, search, paid)
        self._ends_at(row, one.plan.start)
        return True

    def _as_planned(self, row: RunRow, one: Reservation, start: Instant) -> bool:
        """Whether the run fits its nodes then, in the same domains and paid by the same, and each has its share."""
        shares, lasts = {share.node: share.gpus for share in one.plan.shares}, row.demand.duration
        world = world_at(self.state, now=self.turn.now, at=start, length=lasts, nodes=shares.keys())
        plan = find_plan(world, row.demand, now=start)
        if plan is None:
            return False
        again, rows, low = slice_of(plan, at=start, duration=lasts), self.state.topology.rows, self.state.horizon.low
        if (again.width, again.domains, again.segments) != (one.plan.width, one.plan.domains, one.plan.segments):
            return False
        return all(rows[node].size("free") + low(node, start, one.plan.until) >= shares[node] for node in shares)

    # -- now --

    def _waits(self, row: RunRow) -> bool:
        return row.life.phase == "Pending" and not row.life.deleting

    def _may_start(self, row: RunRow) -> bool:
        return self._waits(row) and row.life.not_before <= self.turn.now

    def _waits_a_moment(self, row: RunRow) -> bool:
        """Whether its start has come, and somebody who ends late has a moment more: until that is over it starts where
        it was promised to, or not at all. To plan it anew, all behind it as well, costs far more than the moment."""
        one, now = promise.of(self.turn, row), self.turn.now
        return one is not None and one.reason == "EndsLate" and now < (one.plan.start or 0) + GRACE and _due(one, now)

    def _claim_again(self, row: RunRow) -> None:
        one = promise.of(self.turn, row)
        if one is not None:
            self.state.claim(one)

    def _plan(self, row: RunRow) -> Plan | Verdict:
        one = promise.of(self.turn, row)
        if one is not None and _due(one, self.turn.now):
            plan = self._in_slice(row, one)
            if plan is not None:
                return plan
        known = self.refused.get(row.demand)
        if known is not None and known[0] <= self.state.rank(row):
            return known[1]
        return safe_plan(self.state, row.demand, now=self.turn.now)

    def _in_slice(self, row: RunRow, one: Reservation) -> Plan | None:
        """A plan on the very nodes that the run was promised.

        What is held for a run that is being started is its own: of others that are, those that were promised a start
        later were planned around it, and do not take of it while they wait for theirs. Who is planned behind it moves
        with it, if it is made a moment late.
        """
        plan = self._on_nodes(row, one)
        if plan is not None or one.state != "Active":
            return plan
        state, rank, freed = self.state, self.state.rank(row), is_held(one, self.state.draws)
        others = [(key, state.reservations[key]) for key in state.horizon.claims]
        later = [key for key, other in others
                 if (other.state == "Active" and state.rank(state.runs[key]) > rank)
                 or (freed and not is_held(other, state.draws) and follows(other.plan, one.plan))]  # fmt: skip
        with state.horizon.set_aside(later) as any_claim:
            plan = self._on_nodes(row, one) if any_claim else None
        if plan is None or slice_of(plan, at=self.turn.now, duration=None).shares != one.plan.shares:
            return None
        self._moved[row.key] = later
        return plan

    def _on_nodes(self, row: RunRow, one: Reservation) -> Plan | None:
        nodes = {share.node for share in one.plan.shares}
        now = self.turn.now
        world = world_at(self.state, now=now, at=now, length=row.demand.duration, nodes=nodes)
        plan = find_plan(world, row.demand, now=now)
        return plan if plan is not None and plan.shape.active >= one.plan.width else None

    def _owners_first(self, row: RunRow, plan: Plan, *, later: bool = False) -> bool:
        """Let the owners of other people's money in this plan start (or plan) their own waiting runs on it; True if
        there were any.

        They in turn let the owners of what they would share come first; each run is considered once. A start that was
        promised stands: who was there then came first then, and who came later does not.
        """
        state, one = self.state, promise.of(self.turn, row)
        if one is not None and one.plan.start is not None:
            return False
        considered = False
        for owner in dict.fromkeys(one.payer for one in plan.segments if one.payer != row.demand.owner):
            spent = {(one.budget, one.envelope) for one in plan.segments if one.payer == owner}
            for key in state.queue.of_owner(row.demand.flavor, owner):
                other = state.runs[key]
                if key in self.done or not self._is_swept(other) or not self._may_start(other):
                    continue
                claim = self._plan(other)
                if later or (
                    isinstance(claim, Plan)
                    and spent & {(one.budget, one.envelope) for one in claim.segments if one.funding == "owned"}
                ):
                    self.consider(other)
                    considered = True
        return considered

    def _start(self, row: RunRow, plan: Plan) -> None:
        turn = self.turn
        run, now = row.run, turn.now
        who = Who(row.namespace, row.name, run.metadata.uid, run.spec.owner, row.life.attempt + 1)
        until = None if row.demand.duration is None else now + row.demand.duration
        bound = bind(plan.parts, who, turn.state.topology, now=now, until=until, pod=row.demand.pod,
                     free=self._free_of(row, plan) if row.demand.fill else None)  # fmt: skip
        past, one = self._starts_past(row), promise.of(turn, row)
        turn.emit(Decided(namespace=row.namespace, run=row.name, verdict=plan.verdict))
        start(turn, row, bound, admitted(plan, len({lease.node for lease in bound.leases})), backfilled=past)
        promise.release(turn, row)
        if one is not None and is_late(one):
            self.state.agenda.flavors.add(self.flavor)  # it was held for longer, as nobody knew when it would start

    def _free_of(self, row: RunRow, plan: Plan) -> Callable[[str], int]:
        """How much of a node opportunistic work may take before it sits on spares: what nobody was promised, but those
        who move with it."""
        horizon, now, topology = self.state.look_ahead(self.turn.now), self.turn.now, self.state.topology
        nodes = {node for part in plan.parts for group in part.groups for node, _ in (*group.active, *group.spares)}
        with horizon.set_aside(self._moved.get(row.key, ())):
            future = Future(topology, horizon, now=now, at=now, length=row.demand.duration)
            return {node: future.size(topology.rows[node]) for node in nodes}.__getitem__

    def _starts_past(self, row: RunRow) -> bool:
        """Whether somebody who was promised a start before this run was still waits."""
        rank, claims = self.state.rank(row), self.state.horizon.claims
        return any(claim.flavor == self.flavor and self.state.rank(self.state.runs[key]) < rank
                   for key, claim in claims.items() if key != row.key)  # fmt: skip

    # -- later --

    def _promise(self, row: RunRow, verdict: Verdict) -> None:
        """Plan a start for a run that cannot start now, or say what it waits for."""
        turn, now, reason = self.turn, self.turn.now, verdict.headline
        assert reason is not None
        one = promise.of(turn, row)
        if verdict.outcome == "never":
            if one is not None:
                promise.block(turn, row, reason, short=Search(self.state, row.demand, now=now).short(now))
            return
        if one is not None and one.state == "Active" and activation.is_awaited(turn, one):
            self.state.claim(one)  # what gives way to it has not left yet
            return
        search = Search(self.state, row.demand, now=now)
        due = one is not None and one.state == "Pending" and _due(one, now)  # who was Active gives notice once more
        if one is not None and due and self._starts_late(row, one, search):
            return
        paid, found = self._earliest(row, search, one)
        while found is not None and self._owners_first(row, found.plan, later=True):
            self._later.plan(row)
            paid, found = self._earliest(row, search, one)
        if paid is None:
            self._lacks_money(row, reason, short=search.short(now))
            return
        stands = one is not None and one.state == "Pending" and one.confidence == "conservative"
        if (
            found is not None
            and stands
            and activation.promise_cuts(turn, row, reason, search, paid=paid, before=found.at)
        ):
            return  # what was promised on cuts is not put off because something else would do, later
        if found is None:
            if activation.promise_cuts(turn, row, reason, search, paid=paid):
                return
            if search.limited:
                _, found = self._earliest(row, search, one, patient=True)
        if found is None and search.short(paid):
            self._lacks_money(row, reason, short=search.short(now))  # what there is may not be spent where it may go
            return
        if found is None:
            promise.block(turn, row, Reason(code="NoStartInSight" if may_cut(row) else "CutsNobody"))
            return
        self._ends_at(row, found.at)
        slice_ = slice_of(found.plan, at=found.at, duration=row.demand.duration)
        promise.plan(turn, row, slice_, "window-aligned" if found.aligned else "projected", reason)
        if not may_cut(row) or found.at <= self._limit(row, paid):
            standing.found(self.state, row, search, paid)

    def _starts_late(self, row: RunRow, one: Reservation, search: Search) -> bool:
        """The start has come: let others give way for it, or let it wait for who is about to."""
        fundable = self._fundable(search)
        if fundable and activation.fall_due(self.turn, row, one):
            return True
        if activation.awaits_draw(self.turn, row, one):
            return True
        return not fundable and activation.awaits_money(self.turn, row, one, search)

    def _lacks_money(self, row: RunRow, reason: Reason, *, short: int) -> None:
        """Nothing can be promised for want of money: that is told, also where machines are lacking as well."""
        scarce = Reason(code="NoMoneyInSight", data={"short": short})
        promise.block(self.turn, row, reason if is_money(reason) or not short else scarce, short=short)

    def _fundable(self, search: Search) -> bool:
        """Whether the money suffices now, once those have gone who are overdue."""
        horizon, now = self.state.horizon, self.turn.now
        with horizon.without(tuple(horizon.overdue)):
            return search.fundable(now) == now

    def _limit(self, row: RunRow, paid: Instant) -> Instant:
        """How far ahead a start is acceptable before others are asked to give way."""
        return max(row.order[0], paid) + parse_duration(self.state.policy.patience)

    def _earliest(
        self, row: RunRow, search: Search, one: Reservation | None, *, patient: bool = False,
        before: Instant | None = None,
    ) -> tuple[Instant | None, Start | None]:  # fmt: skip
        """When the money suffices, and when the run can start; only ``before`` some instant, if that is given.

        Who was backfilled and is overdue goes first when a start comes, so that it delays none that stands; who is
        promised one only now gives it the notice that everybody gets. A run that was cut itself has nobody sent away.
        ``patient``: however long that takes.
        """
        now, horizon = self.turn.now, self.state.horizon
        paid, found = self._since(row, search, now, patient=patient, before=before)
        if not horizon.overdue or row.life.cut:
            return paid, found
        start = now + parse_duration(self.state.policy.activation_lead)
        if one is not None and one.plan.start is not None and one.plan.start > now:
            start = min(start, one.plan.start)
        with horizon.without(tuple(horizon.overdue)):
            other_paid, other = self._since(row, search, start, patient=patient, before=before)
        if other is not None and (found is None or other.at < found.at):
            return other_paid, other
        return other_paid if paid is None else paid, found

    def _since(
        self, row: RunRow, search: Search, since: Instant, *, patient: bool, before: Instant | None
    ) -> tuple[Instant | None, Start | None]:  # fmt: skip
        paid = search.fundable(since)
        if paid is None:
            return None, None
        limit = None if patient else self._limit(row, paid)
        if before is not None:
            limit = before - 1 if limit is None else min(limit, before - 1)
        return paid, search.earliest(since=max(paid, self._cursor(row, since)), limit=limit)

    def _cursor(self, row: RunRow, since: Instant) -> Instant:
        """An instant before which a run cannot start: it was looked for, or one with an equal demand cannot that comes
        before it."""
        rank, cursor = self.cursor.get((row.demand, row.life.cut), (None, since))
        since = max(since, self.floor.get(row.key, since))
        return since if rank is None or rank > self.state.rank(row) else max(since, cursor)

    def _ends_at(self, row: RunRow, start: Instant) -> None:
        self.cursor[row.demand, row.life.cut] = (self.state.rank(row), start)


def _due(one: Reservation, now: Instant) -> bool:
    """Whether a reservation's start has come, or what it needs is being freed for it."""
    return one.state == "Active" or (one.state == "Pending" and one.plan.start is not None and one.plan.start <= now)


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
