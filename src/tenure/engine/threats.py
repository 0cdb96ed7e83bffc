"""Money that will run short, seen from before (SPEC 3, 8): when, by how much, and the odds of each run to be cut then.

An envelope or a cap is a threat from when its exhaustion is announced, ``budgetGrace`` ahead, or a limit was lowered,
until the shortage is resolved. The odds come from a dry run of what ``shortage`` will do: work that said it would be
over by then is gone, others take over what they could pay for as of now, and the rest gives way by the steps of
``cuts``. Where nothing is allowed any more everybody goes, the just started ones a little later. Nothing is recorded:
whoever shows a run or a budget asks, and pays for it only when something is announced.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import ExitStack, contextmanager
from fractions import Fraction

import msgspec
from msgspec import Struct

from tenure.engine import cuts
from tenure.engine.books import AnyLimit, Fund, Loans
from tenure.engine.cuts import Proposal, Scope, Trial
from tenure.engine.money import due
from tenure.engine.odds import decimal
from tenure.engine.shortage import Handing, newest_first, subject
from tenure.engine.state import State
from tenure.facts import Lease
from tenure.units import FOREVER, Instant, parse_duration


class Threat(Struct, frozen=True):
    """A shortage that is coming, or waits for its draw."""

    label: str
    """``budget/envelope``, or ``budget/cap``."""
    at: Instant
    short: int
    """GPUs that it pays for then, may not, and nobody else would."""
    odds: dict[str, str]
    """Of each run that may be cut whole, as decimal text."""


def threats(state: State, limits: Iterable[AnyLimit], *, now: Instant) -> Iterator[Threat]:
    """What is announced about these envelopes and caps."""
    if state.policy.on_budget_shortage != "Resolve":
        return
    for one in limits:
        if one.used:
            threat = _threat(state, one, now)
            if threat is not None:
                yield threat


def all_limits(state: State) -> list[AnyLimit]:
    funds, caps = state.books.funds, state.books.caps
    own = (one for key in sorted(funds) for one in funds[key].own_limits)
    return [*own, *(cap for name in sorted(caps) for cap in caps[name])]


def _threat(state: State, one: AnyLimit, now: Instant) -> Threat | None:
    grace = parse_duration(state.policy.budget_grace)
    soonest = min(one.exhausts(), one.end) if isinstance(one, Fund) else one.exhausts()
    if not one.short(now) and soonest - grace > now:  # work that ends before then only puts it off
        return None
    leases = newest_first(state, one)
    ends = {lease.key: _end(state, lease, now) for lease in leases}
    runs_out = _runs_out(one, leases, ends, now)
    at = max(now, due(state, one)) if one.short(now) else runs_out
    if at - grace > now:
        return None
    staying = [lease for lease in leases if ends[lease.key] > at]
    used = sum(len(lease.gpus) for lease in staying)
    allowed = 0 if at >= runs_out else used if one.concurrency is None else one.concurrency
    left = _not_handed_over(state, one, staying, used - allowed, now)
    short = used - allowed - (used - sum(left.values()))
    if short <= 0:
        return None
    return Threat(one.label, at, short, _odds(state, one, left, short, now=now, at=at, all_go=allowed == 0))


def _end(state: State, lease: Lease, now: Instant) -> Instant:
    """When a lease is to end, if that is known: a declared duration is one of work (``State.expect``)."""
    end = state.runs[lease.run_key].end_of(lease)
    return end if end is not None and end > now else FOREVER  # who is past it may go on for ever


def _runs_out(one: AnyLimit, leases: list[Lease], ends: dict[str, Instant], now: Instant) -> Instant:
    """When its hours or its window run out, if work ends as it said."""
    window = one.end if isinstance(one, Fund) else FOREVER
    if one.hours is None:
        return max(now, window)
    meters = [one.fund.lent] if isinstance(one, Loans) else [fund.total for fund in one.funds]
    left = one.hours - sum(meter.used(now) for meter in meters)
    rate, since = sum(len(lease.gpus) for lease in leases), now
    for lease in sorted(leases, key=lambda lease: ends[lease.key]):
        end = min(ends[lease.key], window)
        if left <= rate * (end - since) or end == window:
            break
        left -= rate * (end - since)
        rate, since = rate - len(lease.gpus), end
    spent = since - (-left // rate) if rate > 0 else FOREVER
    return max(now, min(spent, window))


def _not_handed_over(
    state: State, one: AnyLimit, leases: list[Lease], wanted: int, now: Instant
) -> dict[str, int]:  # fmt: skip
    """By lease, the GPUs that nobody else would pay for: tried on the books and on the future, and taken back."""
    left = {lease.key: len(lease.gpus) for lease in leases}
    handing, borrowed = Handing(state, one, now=now), dict[str, int]()
    with ExitStack() as tried:
        for lease in leases:
            segments = handing.others(lease, wanted, borrowed=borrowed.get(lease.run_key, 0))
            if not segments:
                continue
            gpus = sum(segment.gpus for segment in segments)
            lent = sum(segment.gpus for segment in segments if segment.funding == "borrowed")
            lent -= gpus if lease.funding == "borrowed" else 0
            borrowed[lease.run_key] = borrowed.get(lease.run_key, 0) + lent
            left[lease.key] -= gpus
            wanted -= gpus
            parts = [
                msgspec.structs.replace(
                    lease, name=f"{lease.name}?{index}", gpus=lease.gpus[: segment.gpus], start=now,
                    budget=segment.budget, envelope=segment.envelope, payer=segment.payer, funding=segment.funding)
                for index, segment in enumerate(segments)
            ]  # fmt: skip
            parts.append(msgspec.structs.replace(lease, name=f"{lease.name}?", gpus=lease.gpus[gpus:], start=now))
            tried.enter_context(_paid_by(state, lease, parts, now))
    return left


@contextmanager
def _paid_by(state: State, lease: Lease, parts: list[Lease], now: Instant) -> Iterator[None]:
    """The same books and the same future, with these in the place of a lease."""
    state.books.close(lease, end=now)
    for part in parts:
        state.books.open(part)
    try:
        with state.timeline.paid_by(lease.key, *parts):
            yield
    finally:
        for part in parts:
            state.books.close(part, end=now)
        state.books.reopen(lease, at=now)


def _odds(
    state: State, one: AnyLimit, left: dict[str, int], short: int, *, now: Instant, at: Instant, all_go: bool
) -> dict[str, str]:  # fmt: skip
    """Of each run that loses all with some chance: as for reservations, exact where few runs are in the draw."""
    scope = Scope(leases=frozenset(key for key, gpus in left.items() if gpus))
    lead = 0 if all_go else parse_duration(state.policy.activation_lead)

    def freed(trial: Trial) -> int:
        return sum(left.get(key, 0) for key in trial.gone)

    if all_go:
        with Trial(state, scope) as trial:
            cuts.lay_all(trial, now=at, lead=lead, today=now)
            short = min(short, freed(trial))

    def enough(trial: Trial) -> bool:
        return freed(trial) >= short

    found = cuts.resolve(state, scope, enough, now=at, lead=lead, today=now)
    if found is None:
        return {}
    found = _as_frozen(state, one, found)
    sure = {cut.run: decimal(Fraction(1)) for cut in found.cuts if cut.kind in ("Reclaim", "Overstay")}
    if not found.tokens:
        return sure
    chances = cuts.chances(state, scope, found, enough, seed=one.label.encode(), rough=at > now).chances
    return dict(sorted((sure | {run: decimal(chance) for run, chance in chances.items() if chance}).items()))


def _as_frozen(state: State, one: AnyLimit, found: Proposal) -> Proposal:
    """Once a draw is frozen, it is among those that were in it."""
    froze = state.draws.get(subject(one))
    if froze is None:
        return found
    frozen = {token.id for token in froze.intent.tokens}
    return msgspec.structs.replace(found, tokens=tuple(token for token in found.tokens if token.id in frozen))
