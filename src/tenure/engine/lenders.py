"""Who would lend to a run, and how much an envelope could still lend: cover's answers, asked of one lender at a time.

A plan asks the lenders one after the other and takes no more than it needs. Borrowers and lenders want to know before
that what each could give by itself, and what keeps it from more. The limits are those of ``cover``; none is restated
here. What one lender would give, the next may not be asked for, so the numbers do not add up to a plan.
"""

from __future__ import annotations

import msgspec
from msgspec import Struct

from tenure.engine.books import Fund
from tenure.engine.cover import Candidate, Purse, walk
from tenure.engine.demand import Demand
from tenure.engine.elastic import holding
from tenure.engine.groups import desired
from tenure.engine.state import RunRow, State
from tenure.engine.topology import matches
from tenure.facts import Reason, Visit
from tenure.units import Instant, parse_duration

_REFUSALS = ("ACLDenied", "SharingOptOut")
_FIELDS = {"ConcurrencyCapExceeded": "concurrency", "IntegralCapExceeded": "maxGPUHours", "WindowClosed": "window"}


class Prospect(Struct, frozen=True, kw_only=True):
    """A lender that a run would ask, and what it would answer now."""

    place: int | None
    """Its place among the sponsors, from 1; None: it is asked after them, because it is an ancestor or a cousin."""
    owner: str
    visit: Visit | None
    """One of its envelopes, as cover sees it; None: it has none of the flavor."""
    room: int = 0
    """GPUs that this envelope could give now, if it were the only one to be asked."""

    @property
    def lends(self) -> bool:
        """Whether it would pay for this owner at all, if it could."""
        limit = self.visit.limit if self.visit else None
        return self.visit is not None and (limit is None or limit.code not in _REFUSALS)


class Capacity(Struct, frozen=True, kw_only=True):
    """What an envelope could lend now, and which of its limits leaves no more."""

    room: int
    bound: str
    """A field of the envelope, or the label of an aggregate cap."""


def prospects(state: State, row: RunRow, *, now: Instant) -> list[Prospect]:
    """The run's sponsors in their order, then the ancestors and cousins that are asked after them."""
    demand, borrowed = _where_it_is(state, row)
    candidates = walk(state.books, state.family, msgspec.structs.replace(demand, borrow=True), now=now)
    known: dict[str, list[Candidate]] = {}
    for one in candidates:
        known.setdefault(one.fund.owner, []).append(one)
    ask = _Asker(state, demand, borrowed=borrowed, now=now)
    ask.want(_wanted(row), candidates)
    listed = dict.fromkeys(demand.sponsors)
    out = [one for place, owner in enumerate(listed, 1) for one in ask.all_of(place, owner, known.get(owner, []))]
    later = [one for owner in known for one in known[owner] if one.tier > 4 and owner not in listed]
    return out + [ask.one(None, candidate) for candidate in sorted(later, key=lambda one: one.tier)]


def capacity(fund: Fund, *, now: Instant, lookahead: str) -> Capacity:
    """What an envelope could lend to somebody on its list who says nothing about how long it takes."""
    if not fund.lends_to:
        return Capacity(room=0, bound="lending.to" if _allows(fund) else "lending.allow")
    bar = None if fund.open_at(now) else Reason(code="WindowClosed")
    candidate = Candidate(4, "sponsor", fund, "borrowed", bar)
    purse = Purse(_anybody(fund.flavor), now=now, lookahead=parse_duration(lookahead), borrowed=0)
    room = purse.room(candidate)
    limit = purse.visit(candidate, room + 1).limit
    assert limit is not None, "every envelope bounds its concurrency"
    return Capacity(room=room, bound=_field(fund, limit, room))


def _allows(fund: Fund) -> bool:
    return bool(fund.terms and fund.terms.lending and fund.terms.lending.allow)


def _field(fund: Fund, limit: Reason, room: int) -> str:
    if limit.code == "AggregateCapExceeded":
        return str(limit.data["envelope"])
    if limit.code == "LendingCapExceeded":
        at_once = fund.lending_max is not None and fund.lending_max - fund.lent.rate <= room
        return "lending.maxConcurrency" if at_once else "lending.maxGPUHours"
    return _FIELDS[limit.code]


def _anybody(flavor: str) -> Demand:
    return Demand(owner="", flavor=flavor, selector=(), widths=range(1, 0, -1), group=0, spares=0, pod=0, spread=True,
                  duration=None, borrow=True, max_borrow=None, sponsors=())  # fmt: skip


def _where_it_is(state: State, row: RunRow) -> tuple[Demand, int]:
    """What it asks for (a run that runs takes nothing outside its cluster), and what it has borrowed already."""
    has = holding(state, row)
    if not has.domains:
        return row.demand, has.borrowed
    cluster = min(has.domains)[1]
    selector = tuple(sorted((dict(row.demand.selector) | {"cluster": cluster}).items()))
    return msgspec.structs.replace(row.demand, selector=selector), has.borrowed


def _wanted(row: RunRow) -> int:
    """GPUs that it still wants, spares included."""
    width = desired(row) if row.run.spec.malleable is not None else row.demand.widths[0]
    return max(0, row.demand.shape(width).gpus - sum(len(lease.gpus) for lease in row.leases.values()))


class _Asker:
    """One run that asks around."""

    def __init__(self, state: State, demand: Demand, *, borrowed: int, now: Instant) -> None:
        self.demand = demand
        self.wanted = 1
        self.purse = Purse(demand, now=now, lookahead=parse_duration(state.policy.lookahead), borrowed=borrowed)
        nodes = state.topology.rows.values()
        self.labels = [node.labels for node in nodes if node.site is not None and node.site.flavor == demand.flavor]

    def want(self, gpus: int, candidates: list[Candidate]) -> None:
        """So many GPUs are wanted, of which lenders are asked for what the family cannot pay; one GPU at least."""
        family = [one for one in candidates if one.funding != "borrowed" and self._reaches(one.fund)]
        self.wanted = max(1, gpus - self.purse.payable(family, gpus))

    def all_of(self, place: int, owner: str, candidates: list[Candidate]) -> list[Prospect]:
        """Each envelope of a sponsor once: as a lender, if it does not share as a relative."""
        chosen = {one.fund.key: one for one in candidates}
        if not chosen:
            return [Prospect(place=place, owner=owner, visit=None)]
        return [self.one(place, one) for one in chosen.values()]

    def one(self, place: int | None, candidate: Candidate) -> Prospect:
        elsewhere = candidate.bar is None and not self._reaches(candidate.fund)
        visit = self.purse.visit(candidate, self.wanted, elsewhere=elsewhere)
        room = 0 if elsewhere else self.purse.room(candidate)
        return Prospect(place=place, owner=candidate.fund.owner, visit=visit, room=room)

    def _reaches(self, fund: Fund) -> bool:
        """Whether there is a node on which this money may be spent and the run may go."""
        both = (*self.demand.selector, *fund.selector)
        return any(matches(both, labels) for labels in self.labels)
