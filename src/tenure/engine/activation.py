"""When the start of a reservation has come and machines are short: who gives way for it (SPEC 7, 8).

A reservation that nothing known would serve in time is planned on cuts: the slice that a dry run of the resolver frees
most cheaply, after the notice of one activation lead. When its start comes, the same resolver runs for real, in the
domains of that slice only. What suffices without a lottery is cut at once, and held for the run until it can start; a
lottery is frozen first and drawn when its custodians have revealed. Nothing is cut if all of it would not be enough.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from fractions import Fraction
from heapq import nsmallest
from itertools import chain, islice

import msgspec
from msgspec import Struct

from tenure.draw import ReservationRef, Result
from tenure.engine import cuts, promise, resolver, shortage
from tenure.engine.aside import alone, own_aside
from tenure.engine.books import FundKey
from tenure.engine.cuts import Proposal, Scope, Trial
from tenure.engine.forecast import Search, slice_of, world_at
from tenure.engine.future import Future
from tenure.engine.node_sets import place_of
from tenure.engine.odds import decimal
from tenure.engine.pack import unplaced
from tenure.engine.plan import Plan, World, find_plan
from tenure.engine.reasons import because
from tenure.engine.rows import HINDERED, bound_of, is_drawn_for, is_held, names
from tenure.engine.state import GRACE, RunRow, State
from tenure.engine.timeline.entries import LocationTimeline
from tenure.engine.topology import Location
from tenure.engine.turn import Turn
from tenure.facts import Cut, Forecast, Froze, Lease, Reason, Reservation, Share, Slice, Trigger
from tenure.units import FOREVER, SECOND, Instant, Micros, format_time, parse_duration

Domains = frozenset[tuple[Location, str]]
TARGETS_MAX = 16
"""Domains that are tried for the cheapest cuts."""

STARTS_MAX = 8
"""Later instants that are tried for a start after cuts."""


def may_cut(row: RunRow) -> bool:
    """Whether others may be cut for a run: not for one that was cut, nor for work that gives way to everybody. For
    that, too, backfill goes that overstays: it was let past the run for so long and no longer."""
    return not row.life.cut and not row.run.spec.opportunistic


class Way(Struct, frozen=True):
    """A way to make room: where, what would be cut, the plan that then binds, and what was missing."""

    domains: Domains
    scope: Scope
    proposal: Proposal
    plan: Plan
    deficit: int

    @property
    def price(self) -> tuple[int, int, list[tuple[Location, str]]]:
        """Fewest cuts, then fewest GPUs cut, then name."""
        all_cuts = (*self.proposal.cuts, *self.proposal.victims)
        return len(all_cuts), sum(cut.gpus for cut in all_cuts), sorted(self.domains)


class Target:
    """A run that needs room in some domains, at some instant."""

    def __init__(
        self, state: State, row: RunRow, domains: Domains, *, now: Instant, at: Instant, paid: Slice | None = None,
        mild: bool = False,
    ) -> None:  # fmt: skip
        self.state, self.row, self.domains, self.now, self.at = state, row, domains, now, at
        self.shape = row.demand.shape(row.demand.widths[-1])
        state.look_ahead(now)  # before anything is laid out: what time brings is not to be mistaken for what is tried
        self.here = here = frozenset(_nodes(state, row.demand.flavor, domains))
        own = {share.node for share in paid.shares} if paid else set()
        nodes = frozenset(node for node in here if node in own or not _spoken_for(state, row, node, at=at))
        self.scope = Scope(nodes=nodes, spare=frozenset((row.key,)), mild=mild, near=here,
                           also=frozenset(_overdue(state, paid, here, at=at) if paid else ()))  # fmt: skip
        self._laid: tuple[Trial, World] | None = None
        self._plan: Plan | None = None

    def enough(self, trial: Trial) -> bool:
        """Whether the run fits and can be paid. That its groups find room is asked first: it costs much less."""
        plan = self.plan(trial) if self.deficit(trial) == 0 else None
        self._plan = plan or self._plan
        return plan is not None

    @property
    def found(self) -> Plan:
        """The plan with which it was enough the last time: whoever looks for the first point that is enough ends there.
        Asked anew it would have to be the same; nobody needs to rely on that."""
        assert self._plan is not None, "something was enough"
        return self._plan

    def deficit(self, trial: Trial | None = None) -> int:
        """GPUs of groups that find no room in these domains."""
        world = self._world(trial)
        _, _, finer = place_of(self.row.demand.selector, self.state.policy)
        left = self.shape
        for location in sorted({location for location, _ in self.domains}):
            pool = world.topology.pool(self.row.demand.flavor, location, finer)
            rest = unplaced(pool, left)
            if rest is None:
                return 0
            left = rest
        return left.gpus

    def plan(self, trial: Trial | None = None) -> Plan | None:
        with self.state.timeline.unpaid(trial.gone if trial else ()):  # who is overdue gives its money back as well
            return find_plan(self._world(trial), self.row.demand, now=self.at)

    def _world(self, trial: Trial | None) -> World:
        """The world of a trial is made once, and then follows what the trial lays out and takes back."""
        if trial is None or self._laid is None or self._laid[0] is not trial:
            world = world_at(self.state, now=self.now, at=self.at, length=self.row.demand.duration,
                             domains=self.domains, without=trial.gone if trial else {})  # fmt: skip
            self._laid = None if trial is None else (trial, world)
        else:
            world = self._laid[1]
            assert isinstance(world.topology, Future)
            world.topology.look_again(trial.touched)
        if trial is not None:
            trial.touched.clear()
        return world

    def _most(self) -> int:
        """GPUs that these domains could have at best. A node that has shrunk counts for what is still held there."""
        rows = map(self.state.topology.rows.__getitem__, self.here)
        return sum(max(row.gpus, row.held.bit_count()) for row in rows if row.open)

    def way(self, *, lead: Micros) -> Way | None:
        """What the resolver would cut here; None if nothing would be enough."""
        if self._most() < self.shape.gpus:
            return None  # nor if nobody were left: that is known without a trial
        proposal = cuts.resolve(self.state, self.scope, self.enough, now=self.at, lead=lead, today=self.now)
        if proposal is None:
            return None
        return Way(self.domains, self.scope, proposal, self.found, self.deficit())


# --- planning on cuts -----------------------------------------------------------------------------------------------


def promise_cuts(
    turn: Turn, row: RunRow, reason: Reason, search: Search, *, paid: Instant, before: Instant = FOREVER
) -> bool:  # fmt: skip
    """Promise a start after the notice that others get before cuts; False if none would help, or this run may not ask
    for any. Once promised it does not recede.

    Older reservations may be in the way for a while, and are not to be cut: then it is when they are over, if somebody
    has to give way even then.
    """
    old = promise.of(turn, row)
    stands = old if old is not None and (old.confidence, old.state) == ("conservative", "Pending") else None
    for start in () if not may_cut(row) else _starts(turn, row, stands, search, paid=paid):
        way = None if start >= before else cheapest(turn.state, row, stands, now=turn.now, start=start, search=search,
                                                    paid=stands.plan if stands else None)  # fmt: skip
        if way is not None and stands is None and not (way.proposal.cuts or way.proposal.tokens):
            return False  # nobody has to give way for it: a projection, however far ahead
        if way is not None:
            slice_ = slice_of(way.plan, at=start, duration=row.demand.duration)
            forecast = forecast_of(turn.state, row, way, slice_, old, now=turn.now, start=start)
            short = stands is not None and start < turn.now + _lead(turn)
            promise.plan(turn, row, slice_, "conservative", reason, forecast=forecast,
                         why=because("too-young") if short else "")  # fmt: skip
            return True
    return False


def _starts(
    turn: Turn, row: RunRow, stands: Reservation | None, search: Search, *, paid: Instant
) -> Iterator[Instant]:  # fmt: skip
    """Instants to try: what was promised, the end of the notice, and those after it at which something comes free;
    these are looked for only if nothing else would do."""
    soonest = max(paid, turn.now + _lead(turn))
    promised = None if stands is None else stands.plan.start
    starts = [promised] if promised is not None and max(paid, turn.now + 1) <= promised < soonest else []
    if promised is not None and promised <= turn.now:  # the notice was given; who is to give way must have run for it
        starts += [at for at in _ripe(turn, row) if max(paid, turn.now + 1) <= at < soonest]
    yield from (*starts, soonest)
    yield from search.rises(soonest, STARTS_MAX)


def _ripe(turn: Turn, row: RunRow) -> list[Instant]:
    """When runs of the flavor will have run long enough to be drawn."""
    rows = (one for one in turn.state.runs.values() if one.demand.flavor == row.demand.flavor)
    began = {one.life.started for one in rows if one.life.phase == "Running" and one.life.started is not None}
    return sorted(at + _lead(turn) for at in began if at + _lead(turn) > turn.now)[:STARTS_MAX]


def cheapest(
    state: State, row: RunRow, old: Reservation | None, *, now: Instant, start: Instant, paid: Slice | None = None,
    search: Search | None = None, mild: bool = False,
) -> Way | None:  # fmt: skip
    """The slice that the resolver would free most cheaply: one domain, or as many as it takes.

    A reservation that stands keeps its domains as long as they will do.
    """
    lead = _least_work(state)

    def way(domains: Domains) -> Way | None:
        return Target(state, row, domains, now=now, at=start, paid=paid, mild=mild).way(lead=lead)

    if old is not None and old.plan.domains:
        found = way(parse_domains(old.plan.domains))
        if found is not None:
            return found
    search = Search(state, row.demand, now=now) if search is None else search
    ways = [found for one in _targets(state, row, search, now=now, start=start)
            if (found := way(frozenset((one,)))) is not None]  # fmt: skip
    if not ways and row.demand.spread and search.shape.groups > 1:
        several = _together(_targets(state, row, search, now=now, start=start, alone=False))
        ways = [found for some in several if (found := way(some)) is not None][:1]
    return min(ways, key=lambda found: found.price, default=None)


def _targets(
    state: State, row: RunRow, search: Search, *, now: Instant, start: Instant, alone: bool = True
) -> list[tuple[Location, str]]:  # fmt: skip
    """Domains where the run may go, those that lack the least first.

    ``alone``: a few that may hold all of it: those with the most room now, where all of it can be paid.
    """
    places = [place for some in search.places.values() for place in some]
    places = [place for place in places if search.pays(place.location, start)] if alone else places
    domains = [
        (place.location, fabric)
        for place in places
        for fabric in (_roomiest(state, row, place, TARGETS_MAX // len(places) + 1) if alone else sorted(place.rows))
    ]
    if len(domains) < 2:
        return domains
    lack = {one: Target(state, row, frozenset((one,)), now=now, at=start).deficit() for one in domains}
    return sorted(lack, key=lambda domain: (lack[domain], domain))


def _roomiest(state: State, row: RunRow, place: LocationTimeline, count: int) -> list[str]:
    """Domains of a place that have the most room now; of those that are full, the first by name."""
    demand = row.demand
    _, _, finer = place_of(demand.selector, state.policy)
    rank = state.topology.pool(demand.flavor, place.location, finer).rank(demand.shape(demand.widths[-1]).pod)
    some = [fabric for fabric in islice(rank.down(), count) if fabric in place.rows]
    full = nsmallest(count - len(some), place.rows.keys() - set(some)) if len(some) < count else []
    return [*some, *full]


def _together(targets: list[tuple[Location, str]]) -> Iterator[Domains]:
    """More and more domains of one cluster, those that lack the least first: twice as many each time."""
    clusters: dict[str, list[tuple[Location, str]]] = {}
    for location, fabric in targets:
        clusters.setdefault(location[1], []).append((location, fabric))
    size = 2
    while any(size // 2 < len(some) for some in clusters.values()):
        for cluster in sorted(clusters):
            if size // 2 < len(clusters[cluster]):
                yield frozenset(clusters[cluster][:size])
        size *= 2


def forecast_of(
    state: State, row: RunRow, way: Way, slice_: Slice, old: Reservation | None, *, now: Instant, start: Instant
) -> Forecast:
    """What a way means for others: who gives way, and the odds if a draw decides. What is known is not worked out."""
    proposal = way.proposal
    remedies = tuple(msgspec.structs.replace(cut, leases=()) for cut in (*proposal.cuts, *proposal.victims))
    forecast = Forecast(deficit=way.deficit, scope=slice_.domain, remedies=remedies,
                        pool=sum(token.gpus for token in proposal.tokens))  # fmt: skip
    sure = {cut.run: decimal(Fraction(1)) for cut in proposal.cuts if cut.kind in ("Reclaim", "Overstay")}
    forecast = msgspec.structs.replace(forecast, odds=dict(sorted(sure.items())))
    if not proposal.tokens:
        return forecast
    rough = start > now
    pool = sorted({*sure, *(one.id for one in proposal.tokens)})
    same = old is not None and sorted(old.forecast.odds) == pool
    if rough and same and old is not None and old.plan.start == start:
        known = msgspec.structs.replace(forecast, odds=old.forecast.odds)
        if known == old.forecast:
            return known  # the same pool, for the same room: the same odds
    target = Target(state, row, way.domains, now=now, at=start)
    seed = row.run.metadata.uid.encode()
    chances = cuts.chances(state, way.scope, proposal, lambda trial: target.deficit(trial) == 0, seed=seed,
                           rough=rough)  # fmt: skip
    odds = sure | {name: decimal(one) for name, one in chances.chances.items()}
    return msgspec.structs.replace(forecast, odds=dict(sorted(odds.items())))


# --- at the start ---------------------------------------------------------------------------------------------------


def awaits_ends(turn: Turn, row: RunRow, one: Reservation, *, leaving: bool = False) -> bool:
    """True if a start has come, and all who are in its way were to end just now, or were told to leave: who was gets a
    moment, real work never ends to the second. What is held for the run itself is not laid. ``leaving``: also if
    everybody was told to."""
    state, late = turn.state, _late(turn, one)
    if not late or (not leaving and all(key in state.ending for key in late)):
        return False
    with alone(state, row, one):
        cuts = one.confidence == "conservative"
        is_short = cuts and bool(Search(state, row.demand, now=turn.now).short(turn.now))
        if cuts and not is_short and not leaving:
            return False
        gone = {**late, **_to_be_cut(turn, one)} if cuts else late
        with state.timeline.without(state.overdue_before(row, now=turn.now)):
            has_room = (_has_room(turn, share, gone, row.demand.duration) for share in one.plan.shares)
            if not is_short and not all(has_room):  # nodes are made free by cuts; what it waits for is money
                return False
            with state.timeline.unpaid((), late=late):
                if Search(state, row.demand, now=turn.now).fundable(turn.now) != turn.now:
                    return False
    first = late[min(late)]
    end = state.runs[first.run_key].end_of(first) or turn.now
    data: dict[str, int | str] = {"run": first.run_key, "until": format_time(end - end % SECOND)}
    promise.hinder(turn, row, Reason(code="EndsLate", data=data))
    return True


def _late(turn: Turn, one: Reservation) -> dict[str, Lease]:
    """Leases in the slice, or on its money, that were told to leave, or whose declared end came only just now."""
    state = turn.state
    funds = sorted(_payers(state, one.plan))
    there = [lease for share in one.plan.shares for lease in state.leases_on(share.node)]
    there += [state.leases[key] for fund in funds for key in state.books.funds[fund].leases]
    leaving = (lease for lease in there if lease.key in state.ending)
    return {lease.key: lease for lease in (*leaving, *_just_over(turn, one, there))}


def _to_be_cut(turn: Turn, one: Reservation) -> dict[str, Lease]:
    """Leases in the slice whose runs may be cut for the start: they are, when those have ended who cannot be."""
    named, there = names(one), (lease for share in one.plan.shares for lease in turn.state.leases_on(share.node))
    return {lease.key: lease for lease in there if lease.run_key in named}


def _has_room(turn: Turn, share: Share, gone: dict[str, Lease], lasts: Micros | None) -> bool:
    """True if a node would have its share for the whole time, if these leases were gone."""
    state, row = turn.state, turn.state.topology.rows.get(share.node)
    if row is None or not row.open:
        return False
    here = {key: lease for key, lease in gone.items() if lease.node == share.node and lease.role != "Borrowed"}
    end = None if lasts is None else turn.now + lasts
    return state.timeline.room(share.node, turn.now, end, here) >= share.gpus


def _just_over(turn: Turn, one: Reservation, leases: Iterable[Lease]) -> Iterator[Lease]:
    """Those of these leases whose declared end came only just now, or comes within the moment, if the start did. Who
    was backfilled had to be gone by then, unless its pods took their time to be bound."""
    state, now, cuts_nobody = turn.state, turn.now, turn.state.runs[one.run_key].life.cut
    by = bound_of(one)
    if by is None:
        return
    for lease in leases:
        row = state.runs[lease.run_key]
        end = row.end_of(lease)
        if end is None or lease.key in state.ending or (row.overstays(now) and not cuts_nobody):
            continue
        has_more = row.life.backfilled and not row.overstays(now)
        if by - GRACE <= end <= by + GRACE and (now < by + GRACE or has_more):
            yield lease


def awaits_draw(turn: Turn, row: RunRow, one: Reservation) -> bool:
    """The start has come, and somebody is in the slice, or on its money, whose own money has run out: who goes is being
    drawn, and that is waited for. So is a draw that an earlier start there waits for."""
    state, hindered = turn.state, resolver.hindrance(turn.state, f"Reservation/{one.key}")
    rows = [state.topology.rows.get(share.node) for share in one.plan.shares]
    if hindered is None or not state.draws or not all(node is not None and node.open for node in rows):
        return False  # nobody draws, or it would not help
    there = (lease for share in one.plan.shares for lease in state.leases_on(share.node))
    paid = (state.leases[key] for fund in sorted(_payers(state, one.plan)) for key in state.books.funds[fund].leases)
    there_too = (state.reservations[key] for share in one.plan.shares for key in state.timeline.claims_on(share.node))
    earlier = (other for other in there_too if other.turn < one.turn)  # who comes later cannot be waited for
    waits = any(other.reason in HINDERED or is_drawn_for(other, state.draws) for other in earlier)
    if not waits and not any(shortage.is_unpaid(state, lease, now=turn.now) for lease in chain(there, paid)):
        return False
    promise.hinder(turn, row, hindered)
    return True


def resolve(turn: Turn, row: RunRow, one: Reservation) -> bool:
    """The start has come, and there is no room: make it. False if that cannot be, or is not for this run to ask."""
    domains = parse_domains(one.plan.domains)
    if row.life.cut or not domains:
        return False
    return any(_makes_room(turn, row, one, cutting=cutting) for cutting in (False, True))


def _makes_room(turn: Turn, row: RunRow, one: Reservation, *, cutting: bool) -> bool:
    """The same by a draw that leaves alone what is promised to those behind it; ``cutting``: by any cuts, also of what
    those behind it are to have by cuts, who can have others."""
    state, domains = turn.state, parse_domains(one.plan.domains)
    with own_aside(state, row, behind=one.plan, cutting=cutting):
        target = Target(state, row, domains, now=turn.now, at=turn.now, paid=one.plan, mild=not may_cut(row))
        way = _narrowed(state, row, one, target.way(lead=_least_work(state)), now=turn.now)
        if way is None or not (cutting or way.proposal.tokens):
            return False
        hindered = make_room(turn, row, one, way, trigger="Activation")
    if hindered is not None:
        promise.hinder(turn, row, hindered)
    return True


def make_room(turn: Turn, row: RunRow, one: Reservation, way: Way, *, trigger: Trigger) -> Reason | None:
    """Cut what is in the way, or freeze the draw that decides it; what is freed is held for the run from now on.

    The reason why not, if a draw is needed and cannot be made: then nothing is changed.
    """
    if way.proposal.tokens:
        ref = ReservationRef(namespace=one.namespace, name=one.name, uid=one.uid)
        hindered = resolver.freeze(turn, trigger=trigger, ref=ref, activation=one.activation + 1, deficit=way.deficit,
                                   tokens=way.proposal.tokens)  # fmt: skip
        if hindered is not None:
            return hindered
    start = turn.now if one.state != "Active" else one.plan.start or turn.now  # a draw that is void moves nothing
    slice_ = slice_of(way.plan, at=start, duration=row.demand.duration)
    forecast = forecast_of(turn.state, row, way, slice_, one, now=turn.now, start=turn.now)
    active = promise.activate(turn, row, slice_, forecast)
    if not way.proposal.tokens:
        _carry_out(turn, active, way.proposal.cuts, trigger=trigger, deficit=way.deficit)
    return None


def way_now(state: State, row: RunRow, one: Reservation, *, now: Instant) -> Way | None:
    """The room that could be made for a waiting run at this instant: where it is planned, or where it costs least."""
    with own_aside(state, row, cutting=True):
        way = cheapest(state, row, one, now=now, start=now, paid=one.plan, mild=not may_cut(row))
        return _narrowed(state, row, one, way, now=now)


def _narrowed(state: State, row: RunRow, one: Reservation, way: Way | None, *, now: Instant) -> Way | None:
    """What is cut is cut in the domains that the plan then uses, and nowhere else."""
    lead, mild = _least_work(state), way is not None and way.scope.mild
    while way is not None and (used := parse_domains(way.plan.verdict.domains)) != way.domains:
        way = Target(state, row, used, now=now, at=now, paid=one.plan, mild=mild).way(lead=lead)
    return way


def drawn(turn: Turn, froze: Froze, result: Result) -> None:
    """The draw for a reservation: the shortest prefix of its order after which the plan binds gives way."""
    state, ref = turn.state, froze.intent.reservation
    named = (one for one in state.reservations.values() if (one.namespace, one.name) == (ref.namespace, ref.name))
    one = next(named, None)
    if one is None or one.state != "Active" or one.activation != froze.intent.activation:
        return  # its run is gone, or was planned anew: the draw is spent, and nobody gives way
    row = state.runs[one.run_key]
    with own_aside(state, row, behind=one.plan, cutting=True):
        target = Target(state, row, parse_domains(one.plan.domains), now=turn.now, at=turn.now, paid=one.plan)
        found = cuts.outcome(state, target.scope, result.order, target.enough, now=turn.now, lead=_least_work(state),
                             drawn=msgspec.structs.replace(target.scope, nodes=target.here))  # fmt: skip
    if found is None:
        start, lasts = turn.now + _lead(turn), row.demand.duration
        later = msgspec.structs.replace(one.plan, start=start, until=None if lasts is None else start + lasts)
        promise.plan(turn, row, later, "conservative", Reason(code="NoStartInSight"), why=because("drawn-too-little"))
        state.agenda.run_changed(row.key)
        return
    held = promise.hold(turn, one, slice_of(target.found, at=turn.now, duration=row.demand.duration))
    _carry_out(turn, held, found, trigger=froze.trigger, deficit=froze.intent.deficit, froze=froze, result=result)


def _carry_out(
    turn: Turn, one: Reservation, found: tuple[Cut, ...], *, trigger: Trigger, deficit: int,
    froze: Froze | None = None, result: Result | None = None,
) -> None:  # fmt: skip
    """Make the cuts and write them down, in one entry with the promise; the run starts when all have left."""
    subject = f"Reservation/{one.key}"
    resolver.record(turn, trigger=trigger, subject=subject, activation=one.activation, cuts=found, deficit=deficit,
                    intent=froze.intent if froze else None, result=result)  # fmt: skip
    resolver.carry_out(turn, found, subject=subject, seed=result.seed if result else "")
    turn.state.agenda.run_changed(one.run_key)


def _lead(turn: Turn) -> Micros:
    """The notice that others get; a start is never planned for this very instant."""
    return max(SECOND, parse_duration(turn.state.policy.activation_lead))


def _least_work(state: State) -> Micros:
    """For how long a run has worked before it is drawn for a start: for as long as the notice, but for the moment that
    its pods may take to be bound."""
    return max(0, parse_duration(state.policy.activation_lead) - GRACE)


def is_awaited(turn: Turn, one: Reservation) -> bool:
    """Whether an Active reservation still waits for its draw, or for those who gave way to leave. A draw that
    was frozen by an earlier entry is waited for as long as it could make room."""
    state, subject = turn.state, f"Reservation/{one.key}"
    if is_drawn_for(one, state.draws):
        frozen_now = any(isinstance(fact, Froze) and fact.subject == subject for fact in turn.facts)
        return frozen_now or _would_help(turn, one)
    if any(lease.key in state.ending for share in one.plan.shares for lease in state.leases_on(share.node)):
        return True
    payers = _payers(state, one.plan)  # who overstayed elsewhere gave way as well, for its money
    gone = (state.leases[key] for key, reason in state.ending.items() if reason == "Overstay")
    return any((lease.budget, lease.envelope) in payers for lease in gone)


def _would_help(turn: Turn, one: Reservation) -> bool:
    """Whether a draw could still make room for an Active reservation."""
    state, row, domains = turn.state, turn.state.runs[one.run_key], parse_domains(one.plan.domains)
    with own_aside(state, row, behind=one.plan, cutting=True):
        target = Target(state, row, domains, now=turn.now, at=turn.now, paid=one.plan)
        return target.way(lead=_least_work(state)) is not None


# --- places ---------------------------------------------------------------------------------------------------------


def parse_domains(texts: tuple[str, ...]) -> Domains:
    """Domains as a slice names them: ``region/cluster/fabric``."""
    parts = (name.split("/", 2) for name in texts)
    return frozenset(((region, cluster), fabric) for region, cluster, fabric in parts)


def _overdue(state: State, plan: Slice, here: frozenset[str], *, at: Instant) -> Iterator[str]:
    """Backfilled runs that overstay on what a plan counts on: its money, or its nodes, of these. Also where others hold
    GPUs of the same node: who overstays is protected by nobody, and what is theirs is left to them."""
    nodes = here & {share.node for share in plan.shares}
    payers = _payers(state, plan)
    found = (state.leases[key] for key in state.timeline.overdue)
    leases = (lease for lease in found if state.runs[lease.run_key].overstays(at))
    yield from (one.run_key for one in leases if one.node in nodes or (one.budget, one.envelope) in payers)


def _payers(state: State, plan: Slice) -> set[FundKey]:
    """The envelopes that a plan counts on, and those that share a cap with them."""
    funds = [state.books.funds[one.budget, one.envelope] for one in plan.segments]
    return {fund.key for one in funds for fund in (one, *(member for cap in one.caps for member in cap.funds))}


def _spoken_for(state: State, row: RunRow, node: str, *, at: Instant) -> bool:
    """True if a node is in the slice of an earlier promise, or of one that is being started: nobody cuts there who will
    not be over by then. What is promised there later is left alone by the plan that then binds."""
    lasts, rank = row.demand.duration, state.rank(row)
    return any(
        key != row.key
        and (lasts is None or at + lasts > start)
        and (until is None or at < until)
        and (is_held(state.reservations[key], state.draws) or state.rank(state.runs[key]) < rank)
        for key, (start, until, _) in state.timeline.claims_on(node).items()
    )


def _nodes(state: State, flavor: str, domains: Domains) -> Iterator[str]:
    for location, fabric in domains:
        yield from state.timeline.place(flavor, location).rows.get(fabric, ())
