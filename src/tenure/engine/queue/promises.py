"""Promised starts: whose is due, which one is kept as early as possible, who gets a free place, and repair (SPEC 7).

A promise is broken by the world, never by another promise: whoever is planned, here or anywhere, is planned around all
that stand. Only the first of each line is moved earlier; the others stand until they are first, or can start now.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping

import msgspec

from tenure.engine import activation, promise
from tenure.engine.activation import may_cut
from tenure.engine.aside import alone, follows
from tenure.engine.cover import Purse, walk
from tenure.engine.demand import Demand
from tenure.engine.forecast import Search, Start, slice_of, world_at
from tenure.engine.plan import Plan, find_plan
from tenure.engine.queue.changes import NEVER
from tenure.engine.queue.holes import Holes, needs
from tenure.engine.queue.starting import start_run
from tenure.engine.queue.tenable import Tenable, is_due
from tenure.engine.reasons import is_money
from tenure.engine.rows import RunRow, bound_of, is_held, is_late
from tenure.engine.starts import plan_now, why_not_now
from tenure.engine.state import State
from tenure.engine.timeline.timeline import GRACE
from tenure.engine.turn import Turn
from tenure.facts import Reason, Reservation, Verdict
from tenure.units import FOREVER, Instant, Micros, parse_duration

LineKey = tuple[str, frozenset[str], str]
"""(cluster, the nodes that a selector matches there, the owner if it waits for money)"""


class Promises:
    """The promises of one flavor, in one pass."""

    def __init__(self, turn: Turn, flavor: str) -> None:
        self.turn, self.state, self.flavor, self.now = turn, turn.state, flavor, turn.now
        self.tenable = Tenable(turn.state, flavor, now=turn.now)
        self._paid: dict[tuple[Demand, int], bool] = {}
        """Whether the money of a demand is there, at some number of changes."""

    def standing(self) -> list[tuple[RunRow, Reservation]]:
        """The promises by number."""
        found = self.state.promises.get(self.flavor, {})
        return sorted(((self.state.runs[key], one) for key, one in found.items()), key=lambda pair: pair[1].turn)

    # -- starts --

    def start_all(self, holes: Holes) -> bool:
        """Start those that can start now, by number; True if any did."""
        started = False
        for row, _ in self.standing():
            if row.key not in self.state.reservations:
                continue
            started = self.start(row, self.state.reservations[row.key], holes) or started
        return started

    def start_due(self, *, plan_anew: bool = False) -> bool:
        """The same for those whose bound has come, before anybody behind them is looked at. ``plan_anew``: also those
        that cannot start, nor wait for anybody."""
        started = False
        due = [(row, one) for row, one in self.standing() if is_due(one, self.now)]
        for row, _ in due:
            if row.key in self.state.reservations:
                started = self.start(row, self.state.reservations[row.key], plan_anew=plan_anew) or started
        return started

    def start(self, row: RunRow, one: Reservation, holes: Holes | None = None, *, plan_anew: bool = True) -> bool:
        """Start a run whose promise can be kept now. True if it started, or what is promised to it has changed."""
        state, now = self.state, self.now
        if row.life.not_before > now or not _waits(row):
            return False
        due = is_due(one, now)
        if not due and holes is not None and not self._may_gain(row, holes):
            return False
        claim = state.timeline.remove_claim(row.key)
        plan, aside = self.in_slice(row, one) if due else (None, ())
        if plan is None and not waits_a_moment(one, now):
            plan = plan_now(state, row.demand, now=now)
        if plan is not None:
            start_run(self.turn, row, plan, aside=aside)
            return True
        changed = due and not waits_a_moment(one, now) and self._is_late(row, one, plan_anew=plan_anew)
        if row.key in state.reservations and row.key not in state.timeline.claims:
            if not changed and claim is not None:
                state.timeline.add_claim(row.key, claim.flavor, claim.plan, claim.period, cuts=claim.cuts)
            else:
                state.claim(state.reservations[row.key])
        state.promise_asked[row.key] = state.changes.count
        return changed

    def _may_gain(self, row: RunRow, holes: Holes) -> bool:
        """True if something was gained since a promise was last looked at that could let it start now."""
        if self._is_known_unpaid(row):  # a node is of no use to it
            return False
        since = self.state.promise_asked.get(row.key, -1)
        demand = row.demand
        own = self.state.reservations[row.key].plan.shares
        if not holes.may_fit(demand) or holes.suffices(demand, own=own) < needs(self.state, demand):
            return False
        if self.state.changes.all_gained(self.flavor, since):
            return True
        funds = self._funds(row)
        if any(self.state.changes.fund_number(fund) > since for fund in funds):
            return True
        lasts = FOREVER if demand.duration is None else demand.duration
        return self._own_hole(row, holes, since, lasts)

    def _own_hole(self, row: RunRow, holes: Holes, since: int, lasts: Micros) -> bool:
        """True if a node that gained something could hold a pod of a run, beside what others were promised."""
        own = {share.node for share in self.state.reservations[row.key].plan.shares}
        nodes = list(self.state.changes.nodes_gained(self.flavor, since))
        if len(nodes) > 64 or any(node in own for node in nodes):
            return bool(nodes)
        pod = row.demand.shape(row.demand.widths[-1]).pod
        return any(holes.of_node(node, pod) >= lasts for node in nodes)

    def _funds(self, row: RunRow) -> frozenset[tuple[str, str]]:
        """Envelopes that might pay for a run some day."""
        state = self.state
        number, funds = state.promise_funds.get(row.key, (NEVER, frozenset[tuple[str, str]]()))
        if state.changes.all_gained(self.flavor, number):
            funds = Search(state, row.demand, now=self.now).funds()
            state.promise_funds[row.key] = state.changes.count, funds
        return funds

    def in_slice(self, row: RunRow, one: Reservation) -> tuple[Plan | None, Collection[str]]:
        """A plan on the very nodes that a run was promised, and whose promises do not count against it: those that were
        planned behind it move with it. On just what it was promised nobody's do who begin later, and who begins now has
        room beside it."""
        plan = self._on_nodes(row, one)
        if plan is not None:
            return plan, ()
        state, now = self.state, self.now
        others = [key for key in state.timeline.claims
                  if key != row.key and not is_held(state.reservations[key], state.draws)]  # fmt: skip
        later = [key for key in others if follows(state.timeline.claims[key].plan, one.plan)]
        end = FOREVER if row.demand.duration is None else now + row.demand.duration
        shares = {share.node: share.gpus for share in one.plan.shares}
        with state.timeline.put_off(later, end) as any_claim:
            plan = self._on_nodes(row, one, shares) if any_claim else None
        if plan is not None:
            return plan, later
        if not self.tenable.fits_now(row, one):
            return None, ()
        everybody = [key for key in state.timeline.claims if key != row.key]
        with state.timeline.set_aside(everybody):
            plan = self._on_nodes(row, one, shares, as_paid=True)
        same = plan is not None and slice_of(plan, at=now, duration=None).segments == one.plan.segments
        return (plan, everybody) if same else (None, ())

    def _on_nodes(
        self, row: RunRow, one: Reservation, shares: Mapping[str, int] | None = None, *, as_paid: bool = False
    ) -> Plan | None:
        """A plan on the promised nodes; ``shares``: on no more of each than was promised; ``as_paid``: nobody else is
        asked for money."""
        now, nodes = self.now, shares or {share.node for share in one.plan.shares}
        world = world_at(self.state, now=now, at=now, length=row.demand.duration, nodes=nodes)
        if as_paid:
            payers = frozenset((part.budget, part.envelope, part.funding) for part in one.plan.segments)
            world = msgspec.structs.replace(world, payers=payers)
        with self.state.timeline.as_promised():
            plan = find_plan(world, row.demand, now=now)
        return plan if plan is not None and plan.shape.active >= one.plan.width else None

    # -- a start that is due --

    def _is_late(self, row: RunRow, one: Reservation, *, plan_anew: bool) -> bool:
        """A start is due and cannot be made: wait a moment, let others give way, or plan it anew."""
        turn, state = self.turn, self.state
        if one.state == "Active" and activation.is_awaited(turn, one):
            return False
        before = state.reservations.get(row.key)
        pending, fundable = one.state == "Pending", self.fundable(row, one)
        if (
            (pending and activation.awaits_ends(turn, row, one))
            or (fundable and (pending or f"Reservation/{one.key}" in state.void) and activation.resolve(turn, row, one))
            or (pending and activation.awaits_ends(turn, row, one, leaving=True))
            or (pending and activation.awaits_draw(turn, row, one))
        ):
            return state.reservations.get(row.key) != before
        if plan_anew:
            self.plan_anew(row, one)
        return state.reservations.get(row.key) != before

    def fundable(self, row: RunRow, one: Reservation) -> bool:
        """True if the money of a start that is due suffices now, once those have gone who are overdue."""
        timeline = self.state.timeline
        with (
            timeline.set_aside((row.key,)),
            alone(self.state, row, one),
            timeline.without(self.state.overdue_before(row, now=self.now)),
        ):
            return Search(self.state, row.demand, now=self.now).fundable(self.now) == self.now

    # -- repair --

    def repair(self) -> bool:
        """Look at the promises on what was taken, by number: who still fits stands, the others are planned anew around
        all that stand by then; True if any was."""
        state, facts = self.state, len(self.turn.facts)
        if not state.promises.get(self.flavor):
            return False
        own = {key for key, fund in state.books.funds.items() if fund.flavor == self.flavor}
        nodes, funds, doubted = state.changes.take_losses(self.flavor, own)
        standing = self.standing()
        funds |= self.tenable.overspent(standing)
        if not nodes and not funds and not doubted:
            return False
        broken = [
            (row, one)
            for row, one in standing
            if (doubted or _rests_on(one, nodes, funds)) and not is_due(one, self.now)
        ]
        if not broken:
            return False
        broken = list(self.tenable.broken(standing, {row.key for row, _ in broken}))
        for row, _ in broken:
            state.timeline.remove_claim(row.key)
        for row, one in broken:
            if not self._cut_for_itself(row, one):
                self.plan_anew(row, one)
        return len(self.turn.facts) > facts

    def _cut_for_itself(self, row: RunRow, one: Reservation) -> bool:
        """Give a promise that takes cuts, or stood where others were to cut, a slice by cuts at its own start; False if
        there is none."""
        state, start = self.state, one.plan.start or 0
        on_cuts = one.confidence == "conservative" or self.tenable.stood_on_cuts(one)
        if not on_cuts or one.state != "Pending" or start <= self.now or not may_cut(row):
            return False
        with state.timeline.as_promised():
            way = activation.cheapest(state, row, one, now=self.now, start=start, paid=one.plan)
        if way is None:
            return False
        slice_ = slice_of(way.plan, at=start, duration=row.demand.duration)
        forecast = activation.forecast_of(state, row, way, slice_, one, now=self.now, start=start)
        promise.plan(self.turn, row, slice_, "conservative", Reason(code=one.reason), forecast=forecast)
        return True

    def plan_anew(self, row: RunRow, one: Reservation) -> None:
        """Plan a broken promise around all that stand, as early as possible; it keeps its number."""
        turn, state = self.turn, self.state
        state.timeline.remove_claim(row.key)
        verdict = why_not_now(state, row.demand, now=self.now)
        if isinstance(verdict, Plan):  # there may be room by now: it is tried when starts are
            plan = plan_now(state, row.demand, now=self.now)
            if plan is not None and row.life.not_before <= self.now:
                start_run(turn, row, plan)
                return
            reason = Reason(code=one.reason, data={}) if one.reason else Reason(code="NoStartInSight")
        else:
            reason = verdict.headline or Reason(code="NoStartInSight")
            if verdict.outcome == "never":
                promise.block(turn, row, reason, short=Search(state, row.demand, now=self.now).short(self.now))
                return
        if not self.promise(row, reason):
            why = reason if is_money(reason) else Reason(code="NoStartInSight" if may_cut(row) else "CutsNobody")
            promise.block(turn, row, why, short=Search(state, row.demand, now=self.now).short(self.now))

    # -- the first of each line --

    def improve(self) -> bool:
        """Move the first promise of each line earlier, if by a tenth of what was to be waited when it was made; True if
        any was moved."""
        state, moved, seen = self.state, False, set[LineKey]()
        for row, one in self.standing():
            line = self._line_of(row, one)
            if line in seen:
                continue
            seen.add(line)
            is_to_come = one.state == "Pending" and not is_late(one) and not is_due(one, self.now)
            if is_to_come and self._may_move(row, one):
                moved = self._moves_earlier(row, one) or moved
                state.promise_moved[row.key] = state.changes.count
        return moved

    def _line_of(self, row: RunRow, one: Reservation) -> LineKey:
        cluster = cluster_of(one)
        waits_for = "" if self._is_paid_now(row) else self.state.place_owner(row)
        return cluster, self.state.topology.matching(self.flavor, cluster, row.demand.selector), waits_for

    def _is_known_unpaid(self, row: RunRow) -> bool:
        """True if the money of a promise was not there when somebody asked, and none of those who might pay has had
        more since."""
        changes, since = self.state.changes, self.state.promise_unpaid.get(row.key)
        if since is None or changes.all_gained(self.flavor, since):
            return False
        return not any(changes.fund_number(fund) > since for fund in self._funds(row))

    def _is_paid_now(self, row: RunRow) -> bool:
        """True if the money of a run is there now, machines and what is promised aside."""
        if self._is_known_unpaid(row):
            return False
        paid = self._finds_payers(row.demand)
        if not paid and row.key in self.state.promises.get(self.flavor, ()):
            self.state.promise_unpaid[row.key] = self.state.changes.count
        return paid

    def _finds_payers(self, demand: Demand) -> bool:
        state, key = self.state, (demand, self.state.changes.count)
        if key not in self._paid:
            candidates = walk(state.books, state.family, demand, now=self.now)
            purse = Purse(demand, now=self.now, lookahead=parse_duration(state.policy.lookahead), borrowed=0)
            gpus = demand.shape(demand.widths[-1]).gpus
            self._paid[key] = purse.payable([one for one in candidates if one.bar is None], gpus) == gpus
        return self._paid[key]

    def _may_move(self, row: RunRow, one: Reservation) -> bool:
        """True if something was gained that could let a promise start earlier than planned."""
        changes, since = self.state.changes, self.state.promise_moved.get(row.key, -1)
        if changes.all_gained(self.flavor, since):
            return True
        if any(changes.fund_number(fund) > since for fund in self._funds(row)):
            return True
        pod, before = row.demand.shape(row.demand.widths[-1]).pod, self._limit_of_move(one)
        for number, node in enumerate(changes.nodes_gained(self.flavor, since)):
            found = self.state.timeline.line(node).first(pod, since=self.now, length=row.demand.duration)
            if number >= 64 or (found is not None and found <= before) or _is_on(one, node):
                return True
        return False

    def _limit_of_move(self, one: Reservation) -> Instant:
        """The latest start that is worth moving to."""
        return (one.plan.start or 0) - max(1, one.wait // 10)

    def _moves_earlier(self, row: RunRow, one: Reservation) -> bool:
        limit = self._limit_of_move(one)
        if limit <= self.now:
            return False
        state = self.state
        claim = state.timeline.remove_claim(row.key)
        found = self._earliest(row, limit=limit, one=one)[1]
        if found is None:
            if claim is not None:
                state.timeline.add_claim(row.key, claim.flavor, claim.plan, claim.period, cuts=claim.cuts)
            return False
        self._plan(row, found, Reason(code=one.reason))
        return True

    # -- a new promise --

    def promise(
        self, row: RunRow, reason: Reason, *, clusters: Collection[str] | None = None,
        first: Callable[[Plan], bool] | None = None,
    ) -> bool:  # fmt: skip
        """Promise the earliest start around all that stand; False if none is known. Its own claim is not laid.

        ``first``: lets others have what a plan would take, who come first. If it did, that is all: the plan is stale.
        """
        turn, one = self.turn, promise.of(self.turn, row)
        dated = self.now if one is None or one.dated is None else one.dated
        limit = dated + parse_duration(self.state.policy.patience)
        for demand in self._within(row.demand, clusters):
            search = Search(self.state, demand, now=self.now)
            paid, found = self._earliest(row, limit=max(limit, self.now), one=one, demand=demand)
            if paid is None:
                continue
            if found is None:
                if activation.promise_cuts(turn, row, reason, search, paid=paid):
                    return True
                paid, found = self._earliest(row, limit=None, one=one, demand=demand)
            if found is not None and first is not None and first(found.plan):
                return True
            if found is not None:
                self._plan(row, found, reason)
                return True
        return False

    def _within(self, demand: Demand, clusters: Collection[str] | None) -> Iterator[Demand]:
        """A demand, or that of each cluster that is left, if not all are."""
        there = {location[1] for location in self.state.topology.locations(demand.flavor)}
        if clusters is None or there <= set(clusters):
            yield demand
            return
        asked = dict(demand.selector)
        for cluster in sorted(there & set(clusters)):
            if asked.get("cluster", cluster) == cluster:
                yield msgspec.structs.replace(demand, selector=tuple(sorted({**asked, "cluster": cluster}.items())))

    def _plan(self, row: RunRow, found: Start, reason: Reason) -> None:
        slice_ = slice_of(found.plan, at=found.at, duration=row.demand.duration)
        on_cuts = any(self.state.timeline.line(share.node).cutting for share in slice_.shares)
        promise.plan(self.turn, row, slice_, "window-aligned" if found.aligned else "projected", reason,
                     on_cuts=on_cuts)  # fmt: skip

    def _earliest(
        self, row: RunRow, *, limit: Instant | None, one: Reservation | None, demand: Demand | None = None
    ) -> tuple[Instant | None, Start | None]:  # fmt: skip
        """When the money suffices, and the first start by then.

        Who was backfilled and is overdue goes first when a start comes; who is promised one only now gives it the
        notice that everybody gets. A run that was cut itself has nobody sent away.
        """
        now, timeline, demand = self.now, self.state.timeline, demand or row.demand
        paid, found = self._since(row, demand, now, limit=limit, one=one)
        overdue = self.state.overdue_before(row, now=now)
        if not overdue:
            return paid, found
        start = now + parse_duration(self.state.policy.activation_lead)
        if one is not None and one.plan.start is not None and one.plan.start > now:
            start = min(start, one.plan.start)
        with timeline.without(overdue):
            other_paid, other = self._since(row, demand, start, limit=limit, one=one)
        if other is not None and (found is None or other.at < found.at):
            return other_paid, other
        return other_paid if paid is None else paid, found

    def _since(
        self, row: RunRow, demand: Demand, since: Instant, *, limit: Instant | None, one: Reservation | None
    ) -> tuple[Instant | None, Start | None]:  # fmt: skip
        """The same from an instant on. With slack a start is sought that has its slice until it ends by the bound."""
        search = Search(self.state, demand, now=self.now)
        paid = search.fundable(since)
        if paid is None:
            return None, None
        found = search.earliest(since=paid, limit=limit)
        while found is not None and demand.duration is not None:
            lasts = demand.duration + promise.slack_of(self.turn, one, found.at)
            if found.aligned or lasts <= (search.length or 0):
                break
            search = Search(self.state, demand, now=self.now, lasts=lasts)
            found = search.earliest(since=found.at, limit=limit)
        return paid, found


# --- small questions ------------------------------------------------------------------------------------------------


def waits_a_moment(one: Reservation, now: Instant) -> bool:
    """True if a start is due, and somebody who ends late has a moment more: until that is over it starts where it was
    promised to, or not at all."""
    by = bound_of(one)
    return one.reason == "EndsLate" and by is not None and by <= now < by + GRACE


def cluster_of(one: Reservation) -> str:
    """The cluster of a promise's slice."""
    return one.plan.domains[0].split("/", 2)[1] if one.plan.domains else ""


def _waits(row: RunRow) -> bool:
    return row.life.phase == "Pending" and not row.life.deleting


def _is_on(one: Reservation, node: str) -> bool:
    return any(share.node == node for share in one.plan.shares)


def _rests_on(one: Reservation, nodes: Collection[str], funds: Collection[tuple[str, str]]) -> bool:
    return any(share.node in nodes for share in one.plan.shares) or any(
        (part.budget, part.envelope) in funds for part in one.plan.segments
    )


def verdict_reason(verdict: Verdict | Plan) -> Reason:
    """The headline of a verdict, or that nothing is known."""
    headline = None if isinstance(verdict, Plan) else verdict.headline
    return headline or Reason(code="NoStartInSight")


def owners_with_places(state: State, flavor: str) -> dict[str, set[str]]:
    """By cluster: the owners that hold a promise there."""
    found: dict[str, set[str]] = {}
    for key, one in state.promises.get(flavor, {}).items():
        found.setdefault(cluster_of(one), set()).add(state.place_owner(state.runs[key]))
    return found
