"""When a run can start: the first instant of the known future at which cover and pack both succeed (SPEC 7).

Nothing gets better but where something ends or opens, so only such instants are tried. Most of them are passed over by
what is known without a plan: the views of a location say when it could have room for enough groups, and
the lines of the envelopes when the money could suffice. What is left is planned for real, on the world as it will be
then, on the nodes that have something. Claims that were promised earlier are part of that world; later ones must have
been taken back.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator
from heapq import merge
from itertools import islice
from typing import NamedTuple

from msgspec import Struct

from tenure.engine.books import Fund, FundKey
from tenure.engine.cover import Candidate, Purse, walk
from tenure.engine.demand import Demand
from tenure.engine.future import Ahead, Future
from tenure.engine.node_sets import fund_place, place_of
from tenure.engine.plan import NOTHING, Holding, Plan, World, find_plan
from tenure.engine.rank import Size
from tenure.engine.state import State
from tenure.engine.timeline.capacity_index import INSTANT, DomainTree, WindowCapacity, window_of
from tenure.engine.timeline.entries import LocationTimeline
from tenure.engine.timeline.step_function import StepFunction
from tenure.engine.timeline.step_trace import differ
from tenure.engine.topology import Location, Pool
from tenure.facts import Share, Slice
from tenure.units import FOREVER, Instant, Micros, parse_duration

NOTHING_LESS = StepFunction()

_FEW, _CALM = 32, 4_096
"""So many domains, in which so much will come free, are looked at closely where they matter; for more it pays to keep
views of what lasts."""

_CLOSE_MAX = 64
"""Domains that are looked at closely at one instant."""

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
    timeline = state.look_ahead(now)
    future = Future(state.topology, timeline, now=now, at=at, length=length, domains=domains, nodes=nodes,
                    without=without)  # fmt: skip
    ahead = Ahead(timeline, now=now, at=at, length=length)
    return World(state.books, state.family, future, parse_duration(state.policy.lookahead), ahead)


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


def _first(
    line: StepFunction, less: StepFunction, need: int, *, start: Instant, length: Micros | None
) -> Instant | None:  # fmt: skip
    """The first instant from which a level is high enough for so long, and is so by ``less`` than it seems, then."""
    at: Instant | None = start
    while at is not None:
        found = line.first(need, start=at, length=length)
        at = None if found is None else _corrected(line, less, need, start=found)
        if at == found:
            break
    return at


def _corrected(line: StepFunction, less: StepFunction, need: int, *, start: Instant) -> Instant | None:
    at: Instant | None = start
    while at is not None:
        found, change = line.first(need - less.level(at), start=at, length=1), less.next_change(at)
        if found is not None and (change is None or found < change):
            return found
        at = change
    return None


class _Room(NamedTuple):
    """What one domain will have for a whole time."""

    gpus: int
    location: Location
    nodes: list[str]


class _Closer:
    """Domains of a place that were looked at closely, since its view is of a shorter time: what they will have for
    exactly the time that is asked for, and how much less that is than it seemed."""

    def __init__(self, pods: WindowCapacity, free: WindowCapacity) -> None:
        self.pods, self.free = pods, free
        self.less = StepFunction()
        self.fabrics: set[str] = set()


class Search:
    """The search of one demand; what is found holds for the facts of this instant."""

    def __init__(
        self, state: State, demand: Demand, *, now: Instant, has: Holding = NOTHING, for_good: bool = False,
        lasts: Micros | None = None,
    ) -> None:  # fmt: skip
        """``lasts``: as if it took so long, whatever it declares."""
        self.has = has
        self.state = state
        self.demand = demand
        self.now = now
        self.shape = demand.shape(demand.widths[-1])
        self.length = None if for_good else demand.duration if lasts is None else lasts
        self.timeline = state.look_ahead(now)
        self._walks: dict[Instant, list[Candidate]] = {}
        _, _, self.finer = place_of(demand.selector, state.policy)
        self.places = self._places()
        all_places = [place for places in self.places.values() for place in places]
        few = (
            sum(len(place.rows) for place in all_places) <= _FEW and sum(len(one.rises) for one in all_places) <= _CALM
        )
        self.window = INSTANT if few else window_of(self.length)
        self._closer: dict[Location, _Closer] = {}
        self._seen: tuple[Instant, list[_Room]] | None = None
        """The instant that was looked at last, and what each domain would have then."""
        self.limited = False
        """Whether some search for the first start ended at its limit: one without might find a later one."""

    def earliest(self, *, since: Instant, limit: Instant | None) -> Start | None:
        """The first start, not before ``since`` and not after ``limit``."""
        at: Instant | None = since
        while at is not None:
            if limit is not None and at > limit:
                self.limited = True
                return None
            later = self._later(at)
            if later != at:
                at = later
                continue
            plan = self.plan_at(at)
            if plan is not None:
                return Start(at, plan, self._aligned(at, plan))
            if not self._looked_closer(at):
                at = self._next(at)
        return None

    def plan_at(self, at: Instant) -> Plan | None:
        """The plan of that instant. A fixed run that fits one domain is planned there, in the tightest that will do."""
        if len(self.demand.widths) > 1 or self.demand.fill or self.has is not NOTHING:
            return self._plan_now() if self._present(at) else self._plan_in(at, None)
        if self._present(at):
            if self._later(at, window=INSTANT) != at:
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
        if self._alone and len(alone) < _TIGHTEST:
            return None
        rooms = self._rooms(at)
        self._seen = (at, rooms)
        shape, whole = self.shape, self.shape.unit + self.shape.spares
        if sum(one.gpus // whole for one in rooms) < shape.full or sum(one.gpus for one in rooms) < shape.gpus:
            return None
        return self._plan_in(at, nodes={name for one in rooms for name in one.nodes})

    @property
    def _alone(self) -> bool:
        """Whether one domain has to hold all of it."""
        return not self.shape.spread or self.shape.groups == 1

    def _present(self, at: Instant) -> bool:
        """Whether that is now, and everybody is there who is."""
        return at == self.now and not self.timeline.imagined

    def _plan_now(self) -> Plan | None:
        """The plan of this instant, anywhere: what is promised on claimed nodes is set aside from the live pools."""
        topology, now = self.state.topology, self.now
        aside = self._kept_for_guests() if self.demand.fill else self._kept()
        if aside is None:
            return None
        try:
            for name, gpus in aside.items():
                topology.tentative(name, gpus)
            ahead = Ahead(self.timeline, now=now, at=now, length=self.length)
            lookahead = parse_duration(self.state.policy.lookahead)
            world = World(self.state.books, self.state.family, topology, lookahead, ahead)
            return find_plan(world, self.demand, now=now, has=self.has)
        finally:
            for name, gpus in aside.items():
                topology.tentative(name, -gpus)

    def _kept_for_guests(self) -> dict[str, int]:
        """What others are promised of what is free, or on a spare, by node."""
        end, aside = self._end(self.now), dict[str, int]()
        for name in self.timeline.claimed_nodes:
            row = self.state.topology.rows.get(name)
            if row is not None and row.open:
                kept = row.size("fill") - self.timeline.left_for_guests(row, self.now, end)
                aside |= {name: kept} if kept else {}
        return aside

    def _kept(self) -> dict[str, int] | None:
        """What others are promised of what is free, by node; None if what is left cannot be enough anywhere."""
        topology, now, end = self.state.topology, self.now, self._end(self.now)
        aside: dict[str, int] = {}
        enough = False
        for places in self.places.values():
            left = 0
            for place in places:
                pool = topology.pool(self.demand.flavor, place.location, ())
                left += pool.free
                for name, free in self._free_and_claimed(pool):
                    kept = free - max(0, free + self.timeline.low(name, now, end))
                    if kept:
                        aside[name] = kept
                        left -= kept
            enough = enough or left >= self.shape.gpus
        return aside if enough or self.has is not NOTHING else None

    def _free_and_claimed(self, pool: Pool) -> Iterator[tuple[str, int]]:
        """The nodes that have something free now, of which others are promised something; whichever are fewer are
        looked through."""
        rows, claimed = self.state.topology.rows, self.timeline.claimed_nodes
        if pool.free_nodes <= len(claimed):
            for domain in pool.domains.values():
                yield from ((name[1], free) for name, free in domain.seen.items() if name[1] in claimed)
            return
        for name in claimed:
            row = rows.get(name)
            if (
                row is not None
                and row.open
                and row.site is not None
                and row.site.location == pool.location
                and row.size("free")
            ):
                yield name, row.size("free")

    def _end(self, at: Instant) -> Instant | None:
        return None if self.length is None else at + self.length

    def _tight_now(self) -> Iterator[tuple[Location, str]]:
        """Domains that hold the run now and for the whole time, those that have the least room now first."""
        shape = self.shape
        ranks = [self._sizes(place) for places in self.places.values() for place in places]
        for (_, free), location, fabric in merge(*ranks):
            if free >= shape.gpus:
                place = self.timeline.place(self.demand.flavor, location)
                if self._room(place, fabric, self.now, window=INSTANT).gpus >= shape.gpus:
                    yield location, fabric

    def _sizes(self, place: LocationTimeline) -> Iterator[tuple[Size, Location, str]]:
        rank = self.state.topology.pool(self.demand.flavor, place.location, self.finer).rank(self.shape.pod)
        for fabric, size in rank.up(self.shape.active):
            yield size, place.location, fabric

    def _tight(self, at: Instant) -> list[tuple[Location, str]]:
        """Domains that will hold the run then, the few tightest of them."""
        shape = self.shape
        rooms = []
        for place in (place for places in self.places.values() for place in places):
            free = self._view(place, 1).sums.domains
            rooms += [
                (free[fabric].level(at), place.location, fabric, place)
                for _, fabric in self._holding(place, at, all_of_it=True)
            ]
        rooms.sort(key=lambda one: one[:3])
        found = []
        for _, location, fabric, place in rooms:
            if self._room(place, fabric, at).gpus >= shape.gpus:
                found.append((location, fabric))
                if len(found) == _TIGHTEST:
                    break
        return found

    def _room(self, place: LocationTimeline, fabric: str, at: Instant, *, window: Micros | None = None) -> _Room:
        """What a domain will have for the whole time, node by node."""
        rows, low, end, gpus, nodes = place.rows[fabric], self.timeline.low, self._end(at), 0, []
        for name, first in self._view(place, 1, window=window).firsts.get(fabric, {}).items():
            free = rows[name].size("free") + low(name, at, end) if first <= at else 0
            if free > 0:
                gpus += free
                nodes.append(name)
        return _Room(gpus, place.location, nodes)

    def _plan_in(
        self, at: Instant, domains: Collection[tuple[Location, str]] | None = None, nodes: Collection[str] | None = None
    ) -> Plan | None:
        world = world_at(self.state, now=self.now, at=at, length=self.length, domains=domains, nodes=nodes)
        return find_plan(world, self.demand, now=at, has=self.has)

    def _rooms(self, at: Instant) -> list[_Room]:
        """What each domain that can hold a group will have for the whole time, node by node."""
        shape = self.shape
        least = shape.spares + (min(shape.unit, shape.tail) if shape.tail else shape.unit)
        rooms = (
            self._room(place, fabric, at)
            for places in self.places.values()
            for place in places
            for _, fabric in self._holding(place, at)
        )
        return [room for room in rooms if room.gpus >= least]

    def _holding(self, place: LocationTimeline, at: Instant, *, all_of_it: bool = False) -> Iterator[tuple[int, str]]:
        """Domains that could hold a group then, or all of them; a smaller last one goes where there is a pod's room."""
        shape = self.shape
        if self._plain or (shape.tail and not self._alone and not all_of_it):
            return self._view(place).sums.holding(shape.active if all_of_it else shape.pod, at)
        return self._sums(place, self.window).holding(self._need if all_of_it else 1, at)

    def _later(self, at: Instant, *, window: Micros | None = None) -> Instant | None:
        """The same instant if it may do, else a later one before which nothing can; None if there is none."""
        found = self._machines(at, window or self.window)
        return self._money(at) if found == at else found

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

    def _gained(self, at: Instant, rooms: list[_Room]) -> Instant | None:
        """When the nodes of some cluster could have gained what is missing there: what a node has for a whole time
        grows by no more than what it gains until then. A group that is missing may be missing a single GPU."""
        bounds: list[Instant | None] = []
        whole = self.shape.unit + self.shape.spares
        for cluster, places in self.places.items():
            short = self.shape.full - sum(one.gpus // whole for one in rooms if one.location[1] == cluster)
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

    def _places(self) -> dict[str, list[LocationTimeline]]:
        """The locations where the run may go and somebody may pay, if not now, by cluster: only within one may they be
        combined."""
        region, cluster, _ = place_of(self.demand.selector, self.state.policy)
        candidates = [one for one in self._candidates(self.now) if one.bar is None or one.bar.code == "WindowClosed"]
        found: dict[str, list[LocationTimeline]] = {}
        for location in self.state.topology.locations(self.demand.flavor):
            if region in (None, location[0]) and cluster in (None, location[1]) and self._at(location, candidates):
                place = self.timeline.place(self.demand.flavor, location)
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

    def _machines(self, at: Instant, window: Micros) -> Instant | None:
        """When some cluster could have room for all of it, in pods of the right width."""
        bounds = (self._in_cluster(places, at, window) for places in self.places.values())
        return min((bound for bound in bounds if bound is not None), default=None)

    def _in_cluster(self, places: list[LocationTimeline], at: Instant, window: Micros) -> Instant | None:
        """When the domains of these places could hold enough groups, each place for itself or all together."""
        lines, need = [(self._line(place, window), self._less(place, window)) for place in places], self._need
        if len(lines) == 1 or self._alone:
            rest = 1 if window == FOREVER else None if self.length is None else max(0, self.length - window) + 1
            firsts = [_first(line, less, need, start=at, length=rest) for line, less in lines]
            return min((first for first in firsts if first is not None), default=None)
        has = [line.level(at) + less.level(at) for line, less in lines]
        if sum(has) >= need:
            return at
        each = -(-(need - sum(has)) // len(lines))  # one of them has to gain at least so much
        firsts = [_first(*pair, level + each, start=at, length=1) for pair, level in zip(lines, has, strict=True)]
        return min((first for first in firsts if first is not None), default=None)

    def _less(self, place: LocationTimeline, window: Micros) -> StepFunction:
        closer = self._closer.get(place.location) if window == self.window else None
        return NOTHING_LESS if closer is None else closer.less

    def _looked_closer(self, at: Instant) -> bool:
        """Look closer at domains that seemed to hold something at an instant; False if that tells nothing new."""
        exact = FOREVER if self.length is None else self.length
        if self.window == exact or self._present(at):
            return False
        found = False
        for place in (place for places in self.places.values() for place in places):
            closer = self._closer.get(place.location)
            if closer is None:
                pods, free = (self.timeline.exactly(place, exact, pod, self.finer) for pod in (self.shape.pod, 1))
                closer = self._closer[place.location] = _Closer(pods, free if self.shape.pod > 1 else pods)
            some = [
                fabric for _, fabric in islice(self._holding(place, at), _CLOSE_MAX) if fabric not in closer.fabrics
            ]
            found = found or bool(some)
            self._look_closer(place, closer, some)
        return found

    def _look_closer(self, place: LocationTimeline, closer: _Closer, fabrics: list[str]) -> None:
        closer.fabrics.update(fabrics)
        names = [name for fabric in fabrics for name in place.rows[fabric]]
        for view in {closer.pods, closer.free}:
            view.look_at(names)
            view.refresh()
        seems, really = self._sums(place, self.window), self._sums_of(closer.pods, closer.free)
        for fabric in fabrics:
            now = really.domains[fabric].steps() if fabric in really.domains else ()
            for at, step in differ(now, seems.domains[fabric].steps()):
                closer.less.add(at, step)

    @property
    def _need(self) -> int:
        """What has to be there, as the lines count: GPUs if any pod will do, else groups."""
        if self._alone:
            return 1
        return self.shape.full * (self.shape.unit if self._plain else 1)

    @property
    def _plain(self) -> bool:
        """Whether it is enough to count pods."""
        return not self._alone and self.shape.unit == self.shape.pod and not self.shape.spares

    def _line(self, place: LocationTimeline, window: Micros) -> StepFunction:
        """What a place has of what is needed, from each instant on."""
        return self._sums(place, window).total

    def _sums(self, place: LocationTimeline, window: Micros) -> DomainTree:
        pods = self._view(place, window=window)
        return self._sums_of(pods, pods if self._plain else self._view(place, 1, window=window))

    def _sums_of(self, pods: WindowCapacity, free: WindowCapacity) -> DomainTree:
        """What has to be counted: GPUs in pods, or groups; all of it counts as one, if it has to be in one domain."""
        if self._plain:
            return pods.sums
        shape = self.shape
        unit, whole = (shape.active, shape.gpus) if self._alone else (shape.unit, shape.unit + shape.spares)
        return pods.counts(unit, whole, free).sums

    def _view(self, place: LocationTimeline, pod: int | None = None, *, window: Micros | None = None) -> WindowCapacity:
        return self.timeline.view(place, window or self.window, pod or self.shape.pod, self.finer)

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
        """GPUs of the narrowest width that nobody could pay for then, where the run may go: in the cluster that lacks
        the least."""
        payers = self._payers(at)
        wallets = [
            [one for one in payers if any(self._at(place.location, [one]) for place in places)]
            for places in self.places.values()
        ]
        return min((self._lacks(at, wallet) for wallet in wallets), default=self._lacks(at, payers))

    def _lacks(self, at: Instant, payers: list[Candidate]) -> int:
        return self.shape.gpus - self._purse(at).payable(payers, self.shape.gpus)

    def rich(self, start: Instant) -> bool:
        """Whether the first envelope in its order is the owner's own and suffices, wherever the run may go, at any
        instant from now until it ends that starts then: then no other envelope matters. One that opens by then may come
        first."""
        end = FOREVER if self.length is None else start + self.length
        ahead = Ahead(self.timeline, now=self.now, at=start, length=self.length, since=self.now)
        purse = Purse(self.demand, now=start, lookahead=parse_duration(self.state.policy.lookahead), borrowed=0,
                      ahead=ahead)  # fmt: skip
        payers = [one for one in self._candidates(self.now) if one.bar is None or self.now < one.fund.start <= start]
        firsts = (self._at(place.location, payers)[:1] for places in self.places.values() for place in places)
        return all(
            one
            and one[0].bar is None
            and one[0].funding == "owned"
            and one[0].fund.end >= end
            and purse.room(one[0]) >= self.shape.gpus
            for one in firsts
        )

    def funds(self) -> frozenset[FundKey]:
        """Envelopes that might pay some day, and those that share a cap with them."""
        funds = [one.fund for one in self._candidates(self.now)]
        return frozenset(fund.key for one in funds for fund in (one, *(some for cap in one.caps for some in cap.funds)))

    def _money(self, at: Instant) -> Instant | None:
        short = self._lacks(at, self._payers(at))
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
        """Who may be asked then: that follows from Budgets alone, and none is edited while somebody searches."""
        found = self._walks.get(at)
        if found is None:
            found = walk(self.state.books, self.state.family, self.demand, now=at, today=self.now)
            self._walks[at] = found
        return found

    def _payers(self, at: Instant) -> list[Candidate]:
        return [one for one in self._candidates(at) if one.bar is None]

    def _purse(self, at: Instant) -> Purse:
        ahead = Ahead(self.timeline, now=self.now, at=at, length=self.length)
        lookahead = parse_duration(self.state.policy.lookahead)
        return Purse(self.demand, now=at, lookahead=lookahead, borrowed=0, ahead=ahead)

    def _lines(self, at: Instant) -> list[tuple[Fund, StepFunction]]:
        """The lines of all envelopes that may pay then, and of those that share a cap with them."""
        out: dict[tuple[str, str, str], tuple[Fund, StepFunction]] = {}
        for one in self._payers(at):
            for fund in (one.fund, *(member for cap in one.fund.caps for member in cap.funds)):
                money = self.timeline.money.get(fund.key)
                if money is not None:
                    out[(*fund.key, "")] = (fund, money.total)
                    if one.funding == "borrowed":
                        out[(*fund.key, "lent")] = (fund, money.lent)
        return list(out.values())

    def _openings(self, at: Instant) -> Iterator[Instant]:
        """Windows of envelopes that this run may look at, and that open later."""
        yield from (one.fund.start for one in self._candidates(at) if one.bar is not None and one.fund.start > at)
