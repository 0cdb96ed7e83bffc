"""The joint plan (SPEC 4, 5, 6): who pays and where it runs, decided together.

Money is spent only where it was granted, so a plan is sought per *offer*: the nodes of one location that a set of
envelopes may pay for. Selectors that speak of region and cluster only decide a whole location; finer ones (a domain, a
rack) make an offer of their own with fewer nodes and more payers. Each group's payers match every node of that group.

Among offers that can pay all of it, the fewest borrowed GPUs win, then the most owned, then the placement's order:
fewest domains, domains in use, tightest fit, name. Only when no single offer carries the run with as few borrowed GPUs
are offers *of one cluster* combined, group by group: family money everywhere first, borrowed money for what remains.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterable, Iterator
from itertools import groupby

import msgspec
from msgspec import Struct

from tenure.engine.books import Books
from tenure.engine.cover import EVERYBODY, KIN, OWNER, Candidate, Purse, may_ever_pay, walk
from tenure.engine.demand import Demand, Selector, Shape
from tenure.engine.family import Family
from tenure.engine.future import Ahead, Future
from tenure.engine.node_sets import fund_place, place_of, selectors
from tenure.engine.pack import Filled, Group, fault, fill, left_after, unplaced
from tenure.engine.reasons import headline
from tenure.engine.topology import Location, Pool, PoolKind, Topology
from tenure.facts import Attempted, FundingClass, Reason, Segment, Verdict, Visit
from tenure.units import Instant, Micros

_Payer = tuple[str, str, FundingClass]
"""(budget, envelope, class)"""


class World(Struct, frozen=True):
    """What a plan reads: the present, or (with ``ahead``) some instant to come."""

    books: Books
    family: Family
    topology: Topology | Future
    lookahead: Micros
    ahead: Ahead | None = None
    payers: frozenset[tuple[str, str, str]] | None = None
    """(budget, envelope, funding): nobody else is asked; None: everybody."""

    @property
    def today(self) -> Instant | None:
        return None if self.ahead is None else self.ahead.now


class Part(Struct, frozen=True):
    """Groups of a plan and the money that pays for them, in the same order."""

    groups: tuple[Group, ...]
    segments: tuple[Segment, ...]


class Plan(Struct, frozen=True):
    shape: Shape
    parts: tuple[Part, ...]
    verdict: Verdict

    @property
    def segments(self) -> Iterator[Segment]:
        return (segment for part in self.parts for segment in part.segments)


class _Offer(Struct, frozen=True):
    location: Location
    selector: Selector
    payers: tuple[Candidate, ...]
    where: str


class _Found(Struct, frozen=True):
    """A complete way to run it."""

    parts: tuple[Part, ...]
    domains: tuple[str, ...]
    residue: int
    where: str

    @property
    def borrowed(self) -> int:
        return _sum((segment for part in self.parts for segment in part.segments), "borrowed")


class Holding(Struct, frozen=True):
    """What a run has already, when more is planned for it: borrowed GPUs, and domains in use at each location."""

    borrowed: int = 0
    domains: dict[Location, tuple[str, ...]] = {}


NOTHING = Holding()


def make_plan(world: World, demand: Demand, *, now: Instant, has: Holding = NOTHING) -> Plan | Verdict:
    """The best plan at the widest width that has one, or the verdict on why there is none.

    Opportunistic work that finds too few free GPUs may sit on other runs' spares besides.
    """
    planner = _Planner(world, demand, now=now, has=has)
    return planner.best() or planner.searches[max(planner.searches)].denial(demand.shape(demand.widths[-1]))


def find_plan(world: World, demand: Demand, *, now: Instant, has: Holding = NOTHING) -> Plan | None:
    """The same plan, for those who do not ask why there is none: to tell costs as much as to look."""
    return _Planner(world, demand, now=now, has=has).best()


class _Planner:
    """The searches of one demand, a circle of payers each, made when they are first needed.

    The circle widens only as far as it must: the owner's own money at one place beats everything, and a plan that
    borrows nothing beats any that does.
    """

    def __init__(self, world: World, demand: Demand, *, now: Instant, has: Holding, kind: PoolKind = "free") -> None:
        self.world = world
        self.demand = demand
        self.now = now
        self.has = has
        self.kind: PoolKind = kind
        self.searches: dict[int, _Search] = {}

    def best(self) -> Plan | None:
        plan, demand = self.widest(), self.demand
        width = 0 if plan is None else plan.shape.active
        if width == demand.widths[0] or not demand.fill:
            return plan
        filled = _Planner(self.world, demand, now=self.now, has=self.has, kind="fill").widest()
        return filled if filled is not None and filled.shape.active > width else plan

    def widest(self) -> Plan | None:
        """What fits at one width fits at every narrower one, so the widest that fits is found by halving."""
        found, last = self.at(0), len(self.demand.widths) - 1
        if found is not None or not last:
            return found
        found, fails, fits = self.at(last), 0, last
        while found is not None and fits - fails > 1:
            middle = (fails + fits) // 2
            plan = self.at(middle)
            if plan is None:
                fails = middle
            else:
                found, fits = plan, middle
        return found

    def at(self, index: int) -> Plan | None:
        """The best plan at one of the demand's widths."""
        shape, tried = self.demand.shape(self.demand.widths[index]), None
        for tier in (OWNER, KIN, EVERYBODY) if self.demand.borrow else (OWNER, KIN):
            search = self.searches.get(tier) or self._search(tier, tried)
            if search is tried and not search.may_combine(shape):
                continue  # nobody more to ask, and no other way to ask them
            plan = search.at_width(shape, combine=tier > OWNER)
            if plan is not None:
                return plan
            tried = search
        return None

    def _search(self, tier: int, before: _Search | None) -> _Search:
        """The search of a circle; that of the one before, if this one has nobody more."""
        if before is not None and tier == KIN and not self.world.family.has_kin(self.demand.owner):
            self.searches[tier] = before
            return before
        candidates = walk(
            self.world.books, self.world.family, self.demand, now=self.now, tier=tier, today=self.world.today
        )
        if self.world.payers is not None:
            candidates = [one for one in candidates if (*one.fund.key, one.funding) in self.world.payers]
        if before is None or len(candidates) > len(before.candidates):
            before = _Search(self.world, self.demand, candidates, now=self.now, has=self.has, kind=self.kind)
        self.searches[tier] = before
        return before


class _Search:
    """One search: offers are listed once, then tried at each width."""

    def __init__(
        self, world: World, demand: Demand, candidates: list[Candidate], *, now: Instant, has: Holding, kind: PoolKind
    ) -> None:
        self.world = world
        self.demand = demand
        self.candidates = candidates
        self.now = now
        self.has = has
        self.kind: PoolKind = kind
        self.tried: list[Attempted] = []
        self.place = place_of(demand.selector, world.topology.policy)
        self.payable = [candidate for candidate in candidates if candidate.bar is None]
        self.offers = list(self._offers(self.payable))
        self.reach = {_identity(one) for offer in self.offers for one in offer.payers}
        """Who may pay where the run may go."""

    def purse(self, *, rested: bool = False) -> Purse:
        return Purse(
            self.demand, now=self.now, lookahead=self.world.lookahead, borrowed=self.has.borrowed, rested=rested,
            ahead=self.world.ahead,
        )  # fmt: skip

    def at_width(self, shape: Shape, *, combine: bool) -> Plan | None:
        self.tried = []
        found = self._single(shape)
        if combine and (found is None or found.borrowed) and self.may_combine(shape):
            combined = self._combined(shape)
            if combined is not None and (found is None or combined.borrowed < found.borrowed):
                found = combined
        return None if found is None else self._plan(shape, found)

    def may_combine(self, shape: Shape) -> bool:
        """Whether groups may be spread over several offers."""
        return shape.spread and len(self.offers) > 1

    # -- one offer --

    def _single(self, shape: Shape) -> _Found | None:
        paid = []
        for offer in self.offers:
            segments, unpaid = self.purse().pay(offer.payers, shape.gpus)
            if unpaid:
                self._try(offer, segments)
            else:
                paid.append((_sum(segments, "borrowed"), -_sum(segments, "owned"), offer, segments))
        paid.sort(key=lambda row: (row[0], row[1], row[2].where))
        for _, equals in groupby(paid, key=lambda row: row[:2]):
            fits = [found for row in equals if (found := self._place(shape, row[2], row[3]))]
            if fits:
                return min(fits, key=lambda found: (self._new_domains(found), found.residue, found.where))
        return None

    def _new_domains(self, found: _Found) -> int:
        used = {"/".join((*at, fabric)) for at, fabrics in self.has.domains.items() for fabric in fabrics}
        return len(set(found.domains) - used)

    def _place(self, shape: Shape, offer: _Offer, segments: list[Segment]) -> _Found | None:
        pool = self._pool(offer)
        if pool.free < shape.gpus or unplaced(pool, shape) is not None:
            self._try(offer, segments, fault=fault(pool, shape, offer.where))
            return None
        filled = self._fill(offer, shape, used=self.has.domains.get(offer.location, ()))
        self._try(offer, segments, domains=len(filled.domains))
        return _Found((Part(filled.groups, tuple(segments)),), filled.domains, filled.residue, offer.where)

    def _fill(self, offer: _Offer, shape: Shape, used: tuple[str, ...] = ()) -> Filled:
        pool = self.world.topology.pool
        free = pool(self.demand.flavor, offer.location, offer.selector) if self.kind == "fill" else None
        return fill(self._pool(offer), shape, used=used, first=free)

    def _pool(self, offer: _Offer) -> Pool:
        return self.world.topology.pool(self.demand.flavor, offer.location, offer.selector, self.kind)

    def _try(self, offer: _Offer, segments: list[Segment], *, domains: int = 0, fault: Reason | None = None) -> None:
        self.tried.append(
            Attempted(
                where=offer.where, owned=_sum(segments, "owned"), shared=_sum(segments, "shared"),
                borrowed=_sum(segments, "borrowed"), free=self._pool(offer).free, fault=fault, domains=domains,
            )
        )  # fmt: skip

    # -- several offers of one cluster --

    def _combined(self, shape: Shape) -> _Found | None:
        by_cluster: dict[str, list[_Offer]] = {}
        for offer in self.offers:
            by_cluster.setdefault(offer.location[1], []).append(offer)
        found = [
            combined
            for cluster, offers in sorted(by_cluster.items())
            if len(offers) > 1 and (combined := self._in_cluster(shape, cluster, offers)) is not None
        ]
        return min(found, key=lambda one: (one.borrowed, len(one.domains), one.residue, one.where), default=None)

    def _in_cluster(self, shape: Shape, cluster: str, offers: list[_Offer]) -> _Found | None:
        """Payers in the order of the walk; if that cannot do without borrowing, once more thriftily."""
        plain = self._combine(shape, cluster, offers, thrifty=False)
        if plain is not None and not plain.borrowed:
            return plain
        thrifty = self._combine(shape, cluster, offers, thrifty=True)
        if plain is None and thrifty is None:
            self._note_shortage(shape, cluster, offers)
        return min((one for one in (plain, thrifty) if one), key=lambda one: one.borrowed, default=None)

    def _combine(self, shape: Shape, cluster: str, offers: list[_Offer], *, thrifty: bool) -> _Found | None:
        """Fill one offer after the other. ``thrifty``: money that is of no use in a later offer is spent first."""
        purse = self.purse()
        ordered = sorted((offer for offer in offers if self._pool(offer).free), key=self._preference(shape))
        parts: list[Part] = []
        filled: list[Filled] = []
        left: Shape | None = shape
        for borrowing in (False, True):
            for index, offer in enumerate(ordered):
                if left is not None:
                    payers = [one for one in offer.payers if borrowing or one.funding != "borrowed"]
                    later = ordered[index + 1 :] if thrifty else []
                    left = self._fill_part(left, offer, payers, purse, parts, filled, later)
        for part in parts:
            self._set_aside(part.groups, -1)
        if left is not None:
            return None
        domains = tuple(dict.fromkeys(name for one in filled for name in one.domains))
        return _Found(tuple(parts), domains, sum(one.residue for one in filled), f"{cluster} (combined)")

    def _note_shortage(self, shape: Shape, cluster: str, offers: list[_Offer]) -> None:
        """Say that machines were short, if the money of all offers together would have sufficed."""
        if self.purse().payable(self._together(offers, self.payable), shape.gpus) == shape.gpus:
            widest = [offer for offer in offers if not any(_contains(other, offer) for other in offers)]
            where, free = f"{cluster} (combined)", sum(self._pool(offer).free for offer in widest)
            largest = max(self._pool(offer).rank(shape.pod).largest() for offer in offers)
            data: dict[str, int | str] = {"where": where, "free": free, "need": shape.gpus, "largest": largest}
            code = "NoCapacity" if free < shape.gpus else "Fragmented"
            reason = Reason(code=code, data=data | {"shape": shape.describe()})
            self.tried.append(Attempted(where=where, free=free, fault=reason))

    @staticmethod
    def _together(offers: list[_Offer], walk: list[Candidate]) -> list[Candidate]:
        """The payers of some offers, each once, in the order of the walk."""
        here = {_identity(one) for offer in offers for one in offer.payers}
        return [one for one in walk if _identity(one) in here]

    def _preference(self, shape: Shape) -> Callable[[_Offer], tuple[int, int, int, str]]:
        def key(offer: _Offer) -> tuple[int, int, int, str]:
            segments, _ = self.purse().pay(offer.payers, shape.gpus)
            owned, shared, borrowed = (_sum(segments, kind) for kind in ("owned", "shared", "borrowed"))
            return -owned, -shared, -borrowed, offer.where

        return key

    def _fill_part(
        self, left: Shape, offer: _Offer, payers: list[Candidate], purse: Purse, parts: list[Part],
        filled: list[Filled], later: list[_Offer],
    ) -> Shape | None:  # fmt: skip
        """Put as many of the groups that are left into one offer as its nodes hold and its money pays for."""
        part = left.affordable(purse.payable(payers, left.gpus))
        if part is None:
            return left
        here = self._fill(offer, part)
        if here.left is not None and here.left.full and part.tail:
            here = self._fill(offer, msgspec.structs.replace(part, tail=0))  # the smaller group comes last
        if not here.groups:
            return left
        gpus = sum(group.gpus for group in here.groups)
        self._set_aside(here.groups, 1)
        frugal = self._frugally(payers, later) if later else payers
        segments, unpaid = purse.pay(frugal if purse.payable(frugal, gpus) == gpus else payers, gpus)
        assert not unpaid, "what was payable is paid"
        parts.append(Part(here.groups, tuple(segments)))
        filled.append(here)
        return left_after(left, here.groups)

    def _frugally(self, payers: list[Candidate], later: list[_Offer]) -> list[Candidate]:
        """Payers in order, those first that are of no use where there is still room."""
        wanted = {_identity(one) for offer in later if self._pool(offer).free for one in offer.payers}
        return sorted(payers, key=lambda one: (one.funding == "borrowed", _identity(one) in wanted))

    def _set_aside(self, groups: Iterable[Group], sign: int) -> None:
        for group in groups:
            for node, gpus in (*group.active, *group.spares):
                self.world.topology.tentative(node, sign * gpus)

    # -- offers --

    def _locations(self) -> list[Location]:
        """Where the run may go."""
        region, cluster, _ = self.place
        return [
            location
            for location in self.world.topology.locations(self.demand.flavor)
            if region in (None, location[0]) and cluster in (None, location[1])
        ]

    def _offers(self, payable: list[Candidate]) -> Iterator[_Offer]:
        policy, (_, _, wanted) = self.world.topology.policy, self.place
        payers = [(one, one.fund.place or fund_place(one.fund, policy)) for one in payable]
        for location in self._locations():
            here = [
                (one, finer)
                for one, (at_region, at_cluster, finer) in payers
                if at_region in (None, location[0]) and at_cluster in (None, location[1])
            ]
            for selector in selectors(wanted, [finer for _, finer in here]) if here else ():
                able = tuple(one for one, finer in here if not finer or set(finer) <= set(selector))
                if able:
                    yield _Offer(location, selector, able, _where(location, selector))

    # -- the answer --

    def _plan(self, shape: Shape, found: _Found) -> Plan:
        segments = [segment for part in found.parts for segment in part.segments]
        taken: dict[_Payer, int] = {}
        for one in segments:
            payer = (one.budget, one.envelope, one.funding)
            taken[payer] = taken.get(payer, 0) + one.gpus
        verdict = Verdict(
            outcome="start", width=shape.active, segments=tuple(_merged(segments)), domains=found.domains,
            visits=tuple(self._visits(shape.gpus, taken)), tried=tuple(self.tried), plan_hash=_hash(found.parts),
        )  # fmt: skip
        return Plan(shape, found.parts, verdict)

    def _visits(self, asked: int, taken: dict[_Payer, int]) -> Iterator[Visit]:
        """The walk as it went: envelopes up to the last that was needed."""
        left, purse = asked, self.purse()
        for candidate in self.candidates:
            if left <= 0:
                return
            visit = purse.visit(candidate, left, elsewhere=self._elsewhere(candidate))
            got = taken.get((visit.budget, visit.envelope, visit.funding), 0)
            left -= got
            yield msgspec.structs.replace(visit, taken=got)

    def _refusals(self, shape: Shape) -> list[Visit]:
        """The whole walk of a refused request. Envelopes that could pay together are asked for what is left."""
        here, left, purse, untouched = self._richest(shape), shape.gpus, self.purse(), self.purse()
        visits = []
        for candidate in self.candidates:
            elsewhere = self._elsewhere(candidate)
            if _identity(candidate) not in here:
                visits.append(untouched.visit(candidate, shape.gpus, elsewhere=elsewhere))
            elif left:  # else the money suffices: it is machines that are short
                visits.append(purse.visit(candidate, left, elsewhere=elsewhere))
                _, left = purse.pay((candidate,), left)
        return visits

    def _richest(self, shape: Shape) -> set[_Payer]:
        """Of the payers that may pay together (one cluster, or one offer), those who could pay most now."""
        wallets = _wallets(self.offers, shape)
        circles = [self._together(wallets[name], self.payable) for name in sorted(wallets)]
        if len(circles) > 1:
            purse = self.purse()
            circles = [max(circles, key=lambda payers: purse.payable(payers, shape.gpus))]
        return {_identity(one) for payers in circles for one in payers}

    def _elsewhere(self, candidate: Candidate) -> bool:
        """Whether an envelope could pay, but not where this run may go."""
        return candidate.bar is None and _identity(candidate) not in self.reach

    def denial(self, shape: Shape) -> Verdict:
        """Why there is no plan even at this, the narrowest, width."""
        visits = tuple(self._refusals(shape))
        faults = [one.fault for one in self.tried if one.fault is not None]
        never = self._never(shape, visits)
        if never is not None:
            reason: Reason | None = never
        elif faults:
            reason = headline(faults)
        else:
            reason = headline(visit.limit for visit in visits if visit.limit is not None)
        reason = reason or self._no_envelope(shape)
        return Verdict(
            outcome="wait" if never is None else "never", headline=reason, width=shape.active, visits=visits,
            tried=tuple(self.tried),
        )  # fmt: skip

    def _never(self, shape: Shape, visits: tuple[Visit, ...]) -> Reason | None:
        """The reason why no envelope, or no node, could ever serve it; None if waiting may help."""
        hopeful = [one for one in self.candidates if may_ever_pay(one, self.demand, now=self.now)]
        offers = self.offers if hopeful == self.payable else list(self._offers(hopeful))
        wallets = _wallets(offers, shape)
        if not any(self._could_pay(shape, self._together(here, hopeful)) for here in wallets.values()):
            return self._never_paid(shape, hopeful, visits)
        rooms = []
        for offer in offers:
            pool = self.world.topology.pool(self.demand.flavor, offer.location, offer.selector, "empty")
            if unplaced(pool, shape) is None:
                return None
            rooms.append(self._room_of(pool, shape, offer))
        if shape.spread and self._fits_empty_together(shape, offers):
            return None
        if self._fits_whoever_pays(shape):
            return Reason(code="PayersApart", data={"shape": shape.describe()})
        room, where = max(rooms)
        return Reason(
            code="TooLarge", data={"need": shape.gpus, "shape": shape.describe(), "where": where, "room": room}
        )

    @staticmethod
    def _room_of(pool: Pool, shape: Shape, offer: _Offer) -> tuple[int, str]:
        """How much an empty place has, and its name: of one domain, where everything must be in one."""
        rank = pool.rank(shape.pod)
        largest = rank.largest()
        if shape.spread or not largest:
            return pool.free, offer.where
        return largest, f"{offer.where}/{rank.first(largest)}"

    def _fits_whoever_pays(self, shape: Shape) -> bool:
        """Whether some empty location could hold it, if money were good everywhere."""
        pools = [
            self.world.topology.pool(self.demand.flavor, location, self.place[2], "empty")
            for location in self._locations()
        ]
        return any(pool.free >= shape.gpus and unplaced(pool, shape) is None for pool in pools)

    def _could_pay(self, shape: Shape, payers: list[Candidate]) -> bool:
        return self.purse(rested=True).payable(payers, shape.gpus) == shape.gpus

    def _fits_empty_together(self, shape: Shape, offers: list[_Offer]) -> bool:
        """Whether the offers of some cluster could hold it together, if their nodes were empty."""
        left: dict[str, Shape | None] = {}
        for offer in offers:
            cluster = offer.location[1]
            rest = left.setdefault(cluster, shape)
            if rest is not None and not any(_contains(other, offer) for other in offers):
                pool = self.world.topology.pool(self.demand.flavor, offer.location, offer.selector, "empty")
                left[cluster] = unplaced(pool, rest)
        return None in left.values()

    def _never_paid(self, shape: Shape, hopeful: list[Candidate], visits: tuple[Visit, ...]) -> Reason:
        if not self._locations() and any(self.purse(rested=True).payable((one,), 1) for one in hopeful):
            return Reason(code="NoNodes", data={"flavor": self.demand.flavor})
        limits = [visit.limit for visit in visits if visit.limit is not None]
        return headline(limits) or self._no_envelope(shape)

    def _no_envelope(self, shape: Shape) -> Reason:
        demand = self.demand
        return Reason(code="NoEnvelope", data={"asked": shape.gpus, "flavor": demand.flavor, "owner": demand.owner})


def _contains(wide: _Offer, narrow: _Offer) -> bool:
    """Whether all nodes of one offer are among those of another, wider one."""
    return wide.location == narrow.location and set(wide.selector) < set(narrow.selector)


def _where(location: Location, selector: Selector) -> str:
    extra = ",".join([f"{key}={value}" for key, value in selector])
    return "/".join(location) + (f" [{extra}]" if extra else "")


def _wallets(offers: list[_Offer], shape: Shape) -> dict[str, list[_Offer]]:
    """Offers whose payers may pay together: those of a cluster if groups may be spread, else each alone."""
    wallets: dict[str, list[_Offer]] = {}
    for offer in offers:
        wallets.setdefault(offer.location[1] if shape.spread else offer.where, []).append(offer)
    return wallets


def _identity(candidate: Candidate) -> _Payer:
    return (*candidate.fund.key, candidate.funding)


def _sum(segments: Iterable[Segment], funding: str) -> int:
    return sum([segment.gpus for segment in segments if segment.funding == funding])


def _merged(segments: list[Segment]) -> Iterator[Segment]:
    totals: dict[_Payer, Segment] = {}
    for one in segments:
        key = (one.budget, one.envelope, one.funding)
        seen = totals.get(key)
        totals[key] = one if seen is None else msgspec.structs.replace(seen, gpus=seen.gpus + one.gpus)
    yield from totals.values()


def _hash(parts: tuple[Part, ...]) -> str:
    return hashlib.sha256(msgspec.json.encode(parts)).hexdigest()
