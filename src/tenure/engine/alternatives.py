"""What else a waiting run could ask for, and when it would start then (SPEC 7): answers to "what would fix it".

Each alternative is a changed demand, planned like any other behind everybody who waits: narrower, elsewhere, with a
sponsor's money, without spares, within the time that is left before older runs start, or simply later than patience
would have it. Only those are worth telling that start earlier than what was asked for (or, for the last, at all).
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Literal

import msgspec
from msgspec import Struct

from tenure.engine.demand import Demand
from tenure.engine.forecast import Search, slice_of
from tenure.engine.plan import Plan
from tenure.engine.starts import safe_plan
from tenure.engine.state import RunRow, State
from tenure.facts import Forecast, Reason, Slice
from tenure.units import FOREVER, HOUR, MINUTE, Instant, Micros, format_duration, parse_duration

Kind = Literal["narrower", "elsewhere", "borrow", "without-spares", "shorter", "later"]
NARROWER_MAX = 4
SPONSORS_MAX = 16
SHORTEST: Micros = MINUTE


class Outlook(Struct, frozen=True, kw_only=True):
    """What would become of a demand: when it would start, where, by whose money, and on what that rests."""

    at: Instant | None
    confidence: Literal["", "now", "projected", "window-aligned", "conservative"] = ""
    plan: Slice | None = None
    reason: Reason | None = None
    """Why not now."""
    forecast: Forecast = Forecast()

    @property
    def gpus(self) -> int:
        return 0 if self.plan is None else sum(share.gpus for share in self.plan.shares)

    @property
    def borrowed(self) -> int:
        return 0 if self.plan is None else sum(one.gpus for one in self.plan.segments if one.funding == "borrowed")


class Alternative(Struct, frozen=True, kw_only=True):
    """Another request, and what would become of it."""

    kind: Kind
    text: str
    at: Instant
    confidence: str
    gpus: int
    gpu_hours: int | None
    """What it would cost, rounded up; None if no duration is declared."""
    borrowed: int


def outlook(state: State, demand: Demand, *, now: Instant, patient: bool = False) -> Outlook:
    """When a demand would start that were made now, behind all that wait. ``patient``: however long it takes, without
    cuts."""
    plan = safe_plan(state, demand, now=now)
    if isinstance(plan, Plan):
        return Outlook(at=now, confidence="now", plan=slice_of(plan, at=now, duration=demand.duration))
    if plan.outcome == "never":
        return Outlook(at=None, reason=plan.headline)
    search = Search(state, demand, now=now)
    paid = search.fundable(now)
    if paid is None:
        return Outlook(at=None, reason=plan.headline, forecast=Forecast(short=search.short(now)))
    limit = None if patient else paid + parse_duration(state.policy.patience)
    found = search.earliest(since=paid, limit=limit)
    if found is None:
        start = max(paid, now + parse_duration(state.policy.activation_lead))
        return Outlook(
            at=None if patient else start, confidence="" if patient else "conservative", reason=plan.headline
        )
    slice_ = slice_of(found.plan, at=found.at, duration=demand.duration)
    return Outlook(at=found.at, confidence="window-aligned" if found.aligned else "projected", plan=slice_,
                   reason=plan.headline)  # fmt: skip


def alternatives(state: State, row: RunRow, *, now: Instant) -> list[Alternative]:
    """Other requests that would start earlier, the earliest first, then the cheapest."""
    one = state.reservations.get(row.key)
    planned = one.plan.start if one is not None else None
    before = FOREVER if planned is None else planned
    claim = state.timeline.remove_claim(row.key)  # it would ask for this instead
    try:
        found = list(
            _found(state, row, now=now, before=before, sure=one is not None and one.confidence != "conservative")
        )
    finally:
        if claim is not None:
            state.timeline.add_claim(row.key, claim.flavor, claim.plan, claim.period, cuts=claim.cuts)
    return sorted(found, key=lambda one: (one.at, one.gpu_hours or 0, one.borrowed, one.kind, one.text))


def _found(state: State, row: RunRow, *, now: Instant, before: Instant, sure: bool) -> Iterator[Alternative]:
    told: set[Kind] = set()
    for kind, text, demand in _changed(state, row.demand, now=now):
        if kind in told and kind != "borrow":
            continue  # the first that helps of a kind is the one nearest to what was asked
        seen = outlook(state, demand, now=now)
        if seen.at is not None and seen.plan is not None and seen.at < before:
            told.add(kind)
            yield _alternative(kind, text, demand, seen)
    if not sure:
        seen = outlook(state, row.demand, now=now, patient=True)
        if seen.at is not None and seen.plan is not None:
            yield _alternative("later", "wait until enough has ended by itself: nobody is cut", row.demand, seen)


def _alternative(kind: Kind, text: str, demand: Demand, seen: Outlook) -> Alternative:
    assert seen.at is not None
    hours = None if demand.duration is None else -(-seen.gpus * demand.duration // HOUR)
    return Alternative(kind=kind, text=text, at=seen.at, confidence=seen.confidence, gpus=seen.gpus, gpu_hours=hours,
                       borrowed=seen.borrowed)  # fmt: skip


def _changed(state: State, demand: Demand, *, now: Instant) -> Iterator[tuple[Kind, str, Demand]]:
    """Demands near to what was asked, the nearest of each kind first."""
    if demand.spares:
        yield "without-spares", "without spares", msgspec.structs.replace(demand, spares=0)
    if len(demand.widths) == 1:
        for width in _narrower(demand):
            widths = range(width, width - 1, -1)
            yield "narrower", f"{width} GPUs instead of {demand.widths[0]}", msgspec.structs.replace(
                demand, widths=widths)  # fmt: skip
    place = {key: value for key, value in demand.selector if key in ("region", "cluster")}
    if place:
        free = tuple((key, value) for key, value in demand.selector if key not in place)
        for region, cluster in state.topology.locations(demand.flavor):
            there = {"region": region, "cluster": cluster}
            if any(there[key] != value for key, value in place.items()):
                selector = tuple(sorted((*free, ("cluster", cluster), ("region", region))))
                yield "elsewhere", f"in {region}/{cluster}", msgspec.structs.replace(demand, selector=selector)
    for owner in _lenders(state, demand):
        sponsors = tuple(dict.fromkeys((*demand.sponsors, owner)))
        yield "borrow", f"with money of {owner}", msgspec.structs.replace(demand, borrow=True, sponsors=sponsors)
    for length in _shorter(state, demand, now=now):
        text = f"within {format_duration(length)}, before older runs start"
        yield "shorter", text, msgspec.structs.replace(demand, duration=length)


def _narrower(demand: Demand) -> Iterator[int]:
    unit = demand.group or demand.pod or 1
    width = demand.widths[0]
    for _ in range(NARROWER_MAX):
        width = width // 2 // unit * unit
        if width <= 0:
            return
        yield width


def _lenders(state: State, demand: Demand) -> list[str]:
    """Owners who would lend to this one, and are not asked yet."""
    owners = {
        fund.owner
        for fund in state.books.funds.values()
        if fund.flavor == demand.flavor and fund.owner != demand.owner and fund.lends(demand.owner)
    }
    asked = set(demand.sponsors) if demand.borrow else set()
    return sorted(owners - asked)[:SPONSORS_MAX]


def _shorter(state: State, demand: Demand, *, now: Instant) -> Iterator[Micros]:
    """Times that end just before an older run is to start, in whole minutes, the longest first."""
    claims = state.timeline.claims.values()
    starts = {one.plan.start for one in claims if one.flavor == demand.flavor and one.plan.start is not None}
    lengths = sorted({(start - now) // MINUTE * MINUTE for start in starts if start - now >= SHORTEST}, reverse=True)
    yield from [length for length in lengths if demand.duration is None or length < demand.duration][:NARROWER_MAX]
