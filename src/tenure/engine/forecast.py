"""When a run can start: the first instant of the known future at which cover and pack both succeed (SPEC 7).

Nothing gets better but where something ends or opens, so only such instants are tried. Most of them are passed over by
what is known without a plan: the sums of the horizon say when a location, or enough of its domains, could have room at
all, and the lines of the envelopes when the money could suffice. What is left is planned for real, on the world as it
will be then. Claims that were promised earlier are part of that world; later ones must have been taken back.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator
from heapq import merge
from itertools import chain, islice

from msgspec import Struct

from tenure.engine.books import Fund
from tenure.engine.cover import Candidate, Purse, walk
from tenure.engine.demand import Demand
from tenure.engine.future import Ahead, Future
from tenure.engine.horizon import Place, both
from tenure.engine.levels import Profile
from tenure.engine.plan import NOTHING, Holding, Plan, World, fund_place, make_plan, place_of
from tenure.engine.rank import Size
from tenure.engine.state import State
from tenure.engine.topology import Location
from tenure.facts import Reason, Share, Slice, Verdict
from tenure.units import FOREVER, Instant, Micros, format_time, parse_duration

_TIGHTEST = 4
"""Domains that are tried alone, the tightest first, before all are tried together."""


class Start(Struct, frozen=True):
    """A run could start then, by this plan."""

    at: Instant
    plan: Plan
    aligned: bool
    """Whether it waits for a window to open."""


def world_at(
    state: State, *, now: Instant, at: Instant, length: Micros | None,
    domains: Collection[tuple[Location, str]] | None = None, nodes: Collection[str] | None = None,
    without: Collection[str] = (),
) -> World:  # fmt: skip
    """The world as it will be then, for so long; of some domains, or of some nodes, if they are given."""
    horizon = state.look_ahead(now)
    future = Future(state.topology, horizon, now=now, at=at, length=length, domains=domains, nodes=nodes,
                    without=without)  # fmt: skip
    ahead = Ahead(horizon, now=now, at=at, length=length)
    return World(state.books, state.family, future, parse_duration(state.policy.lookahead), ahead)


def safe_plan(state: State, demand: Demand, *, now: Instant, has: Holding = NOTHING) -> Plan | Verdict:
    """A plan to start now that delays no reservation. Without any the present is all there is to look at.

    If there is none, the verdict is that of the present; it may be that there only older runs are in the way.
    """
    if not state.horizon.claimed.get(demand.flavor):
        return make_plan(state.world, demand, now=now, has=has)
    found = Search(state, demand, now=now, has=has).plan_at(now)
    if found is not None:
        return found
    verdict = make_plan(state.world, demand, now=now, has=has)
    return _protected(state, demand, verdict) if isinstance(verdict, Plan) else verdict


def _protected(state: State, demand: Demand, plan: Plan) -> Verdict:
    """There is room, but it is promised: to whom, of those whose machines or money the plan would take."""
    nodes = {node for part in plan.parts for group in part.groups for node, _ in (*group.active, *group.spares)}
    paid = {(one.budget, one.envelope) for one in plan.segments}
    claims = [(key, one.plan) for key, one in state.horizon.claims.items() if one.flavor == demand.flavor]
    kept = [
        (claim.start or 0, key)
        for key, claim in claims
        if not nodes.isdisjoint(share.node for share in claim.shares)
        or not paid.isdisjoint((one.budget, one.envelope) for one in claim.segments)
    ] or [(claim.start or 0, key) for key, claim in claims]
    at, key = min(kept)
    reason = Reason(code="Protected", data={"run": key, "at": format_time(at)})
    return Verdict(outcome="wait", headline=reason, width=plan.verdict.width, visits=plan.verdict.visits,
                   tried=plan.verdict.tried)  # fmt: skip


def slice_of(plan: Plan, *, at: Instant, duration: Micros | None) -> Slice:
    """A plan as a reservation keeps it."""
    shares: dict[str, int] = {}
    for part in plan.parts:
        for group in part.groups:
            for node, gpus in (*group.active, *group.spares):
                shares[node] = shares.get(node, 0) + gpus
    places = [(*group.location, group.fabric) for part in plan.parts for group in part.groups]
    labels = {}
    for label, values in zip(("region", "cluster", "fabric.domain"), zip(*places, strict=True), strict=True):
        if len(set(values)) == 1:
            labels[label] = values[0]
    labels = dict(sorted(labels.items()))  # as the ledger gives them back
    return Slice(
        start=at, until=None if duration is None else at + duration, width=plan.shape.active,
        shares=tuple(Share(node=node, gpus=shares[node]) for node in sorted(shares)), domain=labels,
        domains=tuple(sorted(plan.verdict.domains)), segments=plan.verdict.segments,
    )  # fmt: skip


class Search:
    """The search of one demand; what is found holds for the facts of this instant."""

    def __init__(self, state: State, demand: Demand, *, now: Instant, has: Holding = NOTHING) -> None:
        self.has = has
        self.state = state
        self.demand = demand
        self.now = now
        self.shape = demand.shape(demand.widths[-1])
        self.length = demand.duration
        self.horizon = state.look_ahead(now)
        self.places = self._places()
        self._seen: tuple[Instant, list[tuple[int, tuple[Location, str]]]] | None = None
        """The instant that was looked at last, and what each domain would have then."""

    def earliest(self, *, since: Instant, limit: Instant | None) -> Start | None:
        """The first start, not before ``since`` and not after ``limit``."""
        at: Instant | None = since
        while at is not None and (limit is None or at <= limit):
            later = self._later(at)
            if later != at:
                at = later
                continue
            plan = self.plan_at(at)
            if plan is not None:
                return Start(at, plan, self._aligned(at, plan))
            at = self._next(at)
        return None

    def plan_at(self, at: Instant) -> Plan | None:
        """The plan of that instant. A fixed run that fits one domain is planned there, in the tightest that will do."""
        if len(self.demand.widths) > 1 or self.demand.fill or self.has is not NOTHING:
            return self._plan_now() if self._present(at) else self._plan_in(at, None)
        if self._present(at):
            if self._later(at) != at:
                return None
            alone = list(islice(self._tight_now(), _TIGHTEST))
        else:
            alone = self._tight(at)
        for domain in alone:
            plan = self._plan_in(at, (domain,))
            if plan is not None:
                return plan
        if self._present(at):
            return self._plan_now()
        rooms = self._rooms(at)
        self._seen = (at, rooms)
        if sum(room for room, _ in rooms) < self.shape.gpus:
            return None
        return self._plan_in(at, [domain for _, domain in rooms])

    def _present(self, at: Instant) -> bool:
        """Whether that is now, and everybody is there who is."""
        return at == self.now and not self.horizon.imagined

    def _plan_now(self) -> Plan | None:
        """The plan of this instant, anywhere: what is promised on claimed nodes is set aside from the live pools."""
        topology, now, end = self.state.topology, self.now, self._end(self.now)
        aside: dict[str, int] = {}
        for name in self.horizon.claimed_nodes(self.demand.flavor, before=end):
            row = topology.rows.get(name)
            if row is not None and row.open:
                free = row.size("free")
                aside[name] = free - max(0, free + self.horizon.low(name, now, end))
        try:
            for name, gpus in aside.items():
                topology.tentative(name, gpus)
            ahead = Ahead(self.horizon, now=now, at=now, length=self.length)
            lookahead = parse_duration(self.state.policy.lookahead)
            world = World(self.state.books, self.state.family, topology, lookahead, ahead)
            plan = make_plan(world, self.demand, now=now, has=self.has)
        finally:
            for name, gpus in aside.items():
                topology.tentative(name, -gpus)
        return plan if isinstance(plan, Plan) else None

    def _end(self, at: Instant) -> Instant | None:
        return None if self.length is None else at + self.length

    def _tight_now(self) -> Iterator[tuple[Location, str]]:
        """Domains that hold the run now and for the whole time, those that have the least room now first."""
        shape, end = self.shape, self._end(self.now)
        ranks = [self._sizes(place) for places in self.places.values() for place in places]
        for (_, free), location, fabric in merge(*ranks):
            if free >= shape.gpus:
                place = self.horizon.place(self.demand.flavor, location, shape.pod)
                if self._room(place, fabric, self.now, end) >= shape.gpus:
                    yield location, fabric

    def _sizes(self, place: Place) -> Iterator[tuple[Size, Location, str]]:
        _, _, finer = place_of(self.demand.selector, self.state.policy)
        rank = self.state.topology.pool(self.demand.flavor, place.location, finer).rank(self.shape.pod)
        for fabric, size in rank.up(self.shape.active):
            yield size, place.location, fabric

    def _tight(self, at: Instant) -> list[tuple[Location, str]]:
        """Domains that will hold the run then, the few tightest of them."""
        shape, end = self.shape, self._end(at)
        rooms = []
        for place in (place for places in self.places.values() for place in places):
            for first, fabric in place.firsts(shape.pod, shape.active, shape.gpus, now=self.now).rows:
                if first > at:
                    break
                if place.domain(fabric, shape.pod).low(at, end) >= shape.active:
                    rooms.append((place.domain(fabric, 1).low(at, end), place.location, fabric, place))
        rooms.sort(key=lambda one: one[:3])
        found = []
        for _, location, fabric, place in rooms:
            if self._room(place, fabric, at, end) >= shape.gpus:
                found.append((location, fabric))
                if len(found) == _TIGHTEST:
                    break
        return found

    def _room(self, place: Place, fabric: str, at: Instant, end: Instant | None) -> int:
        """What a domain will have for the whole time, node by node."""
        low = self.horizon.low
        return sum(
            max(0, row.size("free") + low(name, at, end)) for name, row in place.rows[fabric].items() if row.open
        )

    def _plan_in(self, at: Instant, domains: Collection[tuple[Location, str]] | None) -> Plan | None:
        world = world_at(self.state, now=self.now, at=at, length=self.length, domains=domains)
        plan = make_plan(world, self.demand, now=at, has=self.has)
        return plan if isinstance(plan, Plan) else None

    def _rooms(self, at: Instant) -> list[tuple[int, tuple[Location, str]]]:
        """What each domain that has anything will have for the whole time, node by node."""
        end = self._end(at)
        rooms = []
        for place in (place for places in self.places.values() for place in places):
            for fabric in place.rows:
                if place.domain(fabric, self.shape.pod).low(at, end) > 0:
                    room = self._room(place, fabric, at, end)
                    if room > 0:
                        rooms.append((room, (place.location, fabric)))
        return rooms

    def _later(self, at: Instant) -> Instant | None:
        """The same instant if it may do, else a later one before which nothing can; None if there is none."""
        for bound in (self._machines, self._money, self._groups):
            found = bound(at)
            if found != at:
                return found
        return at

    def _next(self, at: Instant) -> Instant | None:
        """The next instant at which anything gets better; if GPUs were missing, at which so many could have come."""
        if self._seen is not None and self._seen[0] == at:
            later = self._gained(at, self._seen[1])
            if later != at:
                return later
        instants = [place.rises.next_rise(at) for places in self.places.values() for place in places]
        instants += [rise for _, line in self._lines(at) for rise in (line.next_rise(at),)]
        instants += self._openings(at)
        return min((one for one in instants if one is not None), default=None)

    def _gained(self, at: Instant, rooms: list[tuple[int, tuple[Location, str]]]) -> Instant | None:
        """When the nodes of some cluster could have gained what is missing there: what a node has for a whole time
        grows by no more than what it gains until then."""
        bounds: list[Instant | None] = []
        for cluster, places in self.places.items():
            short = self.shape.gpus - sum(room for room, (location, _) in rooms if location[1] == cluster)
            if short <= 0:
                return at
            each = -(-short // len(places))
            bounds += [place.rises.first(place.rises.low(at, at + 1) + each, start=at, length=1) for place in places]
        return min((one for one in bounds if one is not None), default=None)

    def rises(self, after: Instant, count: int) -> list[Instant]:
        """The next instants at which some node gains something."""
        found: set[Instant] = set()
        for place in (place for places in self.places.values() for place in places):
            at = place.rises.next_rise(after)
            for _ in range(count):
                if at is not None:
                    found.add(at)
                    at = place.rises.next_rise(at)
        return sorted(found)[:count]

    def _aligned(self, at: Instant, plan: Plan) -> bool:
        funds = (self.state.books.funds[one.budget, one.envelope] for one in plan.segments)
        return at > self.now and any(fund.start == at for fund in funds)

    # -- machines --

    def _places(self) -> dict[str, list[Place]]:
        """The locations where the run may go and somebody may pay, if not now, by cluster: only within one may they be
        combined."""
        region, cluster, _ = place_of(self.demand.selector, self.state.policy)
        candidates = [one for one in self._candidates(self.now) if one.bar is None or one.bar.code == "WindowClosed"]
        found: dict[str, list[Place]] = {}
        for location in self.state.topology.locations(self.demand.flavor):
            if region in (None, location[0]) and cluster in (None, location[1]) and self._at(location, candidates):
                place = self.horizon.place(self.demand.flavor, location, self.shape.pod)
                found.setdefault(location[1], []).append(place)
        return found

    def _at(self, location: Location, candidates: list[Candidate]) -> list[Candidate]:
        """Who of these may pay at a location."""
        policy = self.state.policy
        places = ((one, one.fund.place or fund_place(one.fund, policy)) for one in candidates)
        return [one for one, (region, cluster, _) in places
                if region in (None, location[0]) and cluster in (None, location[1])]  # fmt: skip

    def pays(self, location: Location, at: Instant) -> bool:
        """Whether those who may pay at a location could pay for all of it then."""
        gpus = self.shape.gpus
        return self._purse(at).payable(self._at(location, self._payers(at)), gpus) == gpus

    def _machines(self, at: Instant) -> Instant | None:
        """When some cluster could have the GPUs at all, and in pods of the right width."""
        bounds = []
        for places in self.places.values():
            if len(places) > 1:
                bounds.append(at)
                continue
            bound = self._both(places[0].total(self.shape.pod), places[0].total(1), at)
            bounds += [] if bound is None else [bound]
        return min(bounds, default=None)

    def _both(self, pods: Profile, free: Profile, at: Instant, *, active: int = 0, gpus: int = 0) -> Instant | None:
        """When there is room for the pods and, with spares, for all GPUs."""
        active, gpus = active or self.shape.active, gpus or self.shape.gpus
        return both(pods, free, at=at, length=self.length, active=active, gpus=gpus)

    def _groups(self, at: Instant) -> Instant | None:
        """When enough groups could find a domain each."""
        bounds = []
        for places in self.places.values():
            bound = self._in_domains(places, at)
            bounds += [] if bound is None else [bound]
        return min(bounds, default=None)

    def _in_one(self, places: list[Place], at: Instant) -> Instant | None:
        """When some domain could hold all of it: those that could for an instant are asked in their order."""
        shape = self.shape
        best: Instant | None = None
        for place in places:
            for first, fabric in place.firsts(shape.pod, shape.active, shape.gpus, now=self.now).rows:
                if best is not None and (best == at or first >= best):
                    break
                found = self._both(place.domain(fabric, shape.pod), place.domain(fabric, 1), max(at, first))
                if found is not None and (best is None or found < best):
                    best = found
        return best

    def _in_domains(self, places: list[Place], at: Instant) -> Instant | None:
        shape = self.shape
        if not shape.spread or shape.groups == 1:
            return self._in_one(places, at)
        unit, whole, end = shape.unit, shape.unit + shape.spares, self._end(at)
        rows = merge(*(self._by_first(place, unit, whole) for place in places), key=lambda one: one[0])
        seen: list[tuple[Profile, Profile, int]] = []
        later: list[tuple[Instant, Profile, Profile]] = []
        left = shape.full
        for first, pods, free in rows:
            if first > at:  # from here on none has room for a group yet
                later.append((first, pods, free))
                break
            low = free.low(at, end)
            seen.append((pods, free, min((low if pods is free else pods.low(at, end)) // unit, low // whole)))
            left -= seen[-1][2]
            if left <= 0:
                return at
        more = -(-left // max(1, sum(len(place.rows) for place in places)))  # one has to gain at least so many groups

        def gains(pods: Profile, free: Profile, since: Instant, count: int) -> Instant:
            found = self._both(pods, free, since, active=unit * (count + more), gpus=whole * (count + more))
            return FOREVER if found is None else found

        best = min((gains(pods, free, at, count) for pods, free, count in seen), default=FOREVER)
        for first, pods, free in chain(later, rows):
            if first >= best:
                break
            best = min(best, gains(pods, free, first, 0))
        if unit == shape.pod:  # then a group comes only of what nodes gain
            best = max(best, self._gain_of(places, unit * left, at))
        return best if best < FOREVER else None

    def _gain_of(self, places: list[Place], gpus: int, at: Instant) -> Instant:
        """When the nodes of these places could have gained so many GPUs in whole pods."""
        each = -(-gpus // len(places))
        gains = [place.gains(self.shape.pod) for place in places]
        firsts = [one.first(one.low(at, at + 1) + each, start=at, length=1) for one in gains]
        return min((first for first in firsts if first is not None), default=FOREVER)

    def _by_first(self, place: Place, active: int, gpus: int) -> Iterator[tuple[Instant, Profile, Profile]]:
        pod = self.shape.pod
        for first, fabric in place.firsts(pod, active, gpus, now=self.now).rows:
            yield first, place.domain(fabric, pod), place.domain(fabric, 1)

    # -- money --

    def fundable(self, since: Instant) -> Instant | None:
        """The first instant from which the money could suffice, machines aside; None if none is in sight."""
        at: Instant | None = since
        while at is not None:
            later = self._money(at)
            if later == at:
                return at
            at = later
        return None

    def short(self, at: Instant) -> int:
        """GPUs of the narrowest width that nobody could pay for then."""
        return self.shape.gpus - self._purse(at).payable(self._payers(at), self.shape.gpus)

    def _money(self, at: Instant) -> Instant | None:
        short = self.short(at)
        if not short:
            return at
        lines = self._lines(at)
        each = -(-short // max(1, len(lines)))  # one of them has to give at least so much more
        end = None if self.length is None else at + self.length
        instants: list[Instant | None] = []
        for fund, line in lines:
            if fund.caps:
                instants.append(line.next_rise(at))
            else:
                instants.append(line.first(line.low(at, end) + each, start=at, length=self.length))
        return min((one for one in (*instants, *self._openings(at)) if one is not None and one > at), default=None)

    def _candidates(self, at: Instant) -> list[Candidate]:
        return walk(self.state.books, self.state.family, self.demand, now=at, today=self.now)

    def _payers(self, at: Instant) -> list[Candidate]:
        return [one for one in self._candidates(at) if one.bar is None]

    def _purse(self, at: Instant) -> Purse:
        ahead = Ahead(self.horizon, now=self.now, at=at, length=self.length)
        lookahead = parse_duration(self.state.policy.lookahead)
        return Purse(self.demand, now=at, lookahead=lookahead, borrowed=0, ahead=ahead)

    def _lines(self, at: Instant) -> list[tuple[Fund, Profile]]:
        """The lines of all envelopes that may pay then, and of those that share a cap with them."""
        out: dict[tuple[str, str, str], tuple[Fund, Profile]] = {}
        for one in self._payers(at):
            for fund in (one.fund, *(member for cap in one.fund.caps for member in cap.funds)):
                money = self.horizon.money.get(fund.key)
                if money is not None:
                    out[(*fund.key, "")] = (fund, money.total)
                    if one.funding == "borrowed":
                        out[(*fund.key, "lent")] = (fund, money.lent)
        return list(out.values())

    def _openings(self, at: Instant) -> Iterator[Instant]:
        """Windows of envelopes that this run may look at, and that open later."""
        yield from (one.fund.start for one in self._candidates(at) if one.bar is not None and one.fund.start > at)
