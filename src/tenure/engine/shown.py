"""Reservations as people and programs see them, and the risk that they are to running work.

A Reservation's spec is the promise as it was first made, its status the plan as it stands. What it means for others is
found once for all that are shown together (``Risks``), beside what runs short of money: the odds of a run are looked
up, never searched for.
"""

from __future__ import annotations

import msgspec

from tenure.api.meta import LABEL_RUN, ObjectMeta, RunRef, to_wire
from tenure.api.reservation import (
    Forecast,
    IntendedSlice,
    PayingEnvelope,
    Remedy,
    Reservation,
    ReservationSpec,
    ReservationStatus,
    Resolution,
)
from tenure.api.run import Risk
from tenure.engine.remedies import remedies
from tenure.engine.state import State
from tenure.engine.threats import all_limits, threats
from tenure.engine.words import Words
from tenure.facts import Froze, Resolved, Slice
from tenure.facts import Reservation as ReservationFact
from tenure.units import SECOND, Instant, format_time

OVER = ("Released", "Canceled")


def reservation(
    state: State | None,
    fact: ReservationFact,
    *,
    now: Instant,
    resolution: Froze | Resolved | None = None,
    words: Words | None = None,
) -> Reservation:
    """A Reservation with its status. ``resolution`` is what the ledger holds about it; a draw that waits for its
    reveals is in the state, and so are the numbers of now for the reason it gives."""
    if state is not None:
        resolution = resolution or state.draws.get(f"Reservation/{fact.key}")
        fact = of_now(state, fact, words or Words(state, now=now))
    return Reservation(
        metadata=ObjectMeta(
            name=fact.name, namespace=fact.namespace, uid=fact.uid, labels={LABEL_RUN: fact.run},
            creation_timestamp=format_time(fact.made),
        ),
        spec=ReservationSpec(
            run_ref=RunRef(name=fact.run, uid=fact.run_uid),
            intended_slice=_slice(fact.promise),
            paying_envelopes=_payers(fact.promise),
            earliest_start=_time(fact.promise.start),
        ),
        status=ReservationStatus(
            state=fact.state,
            reason=fact.reason,
            message=fact.message,
            planned_start=_time(fact.plan.start),
            planned_slice=_slice(fact.plan) if fact.plan.shares or fact.plan.domain else None,
            countdown_seconds=countdown(fact, now),
            activated_at=_time(fact.activated),
            released_at=_time(fact.released),
            forecast=_forecast(fact),
            resolution=_resolution(resolution),
        ),
    )  # fmt: skip


def of_now(state: State, fact: ReservationFact, words: Words) -> ReservationFact:
    """The same with its message in the numbers of now, where the run still waits for what the reservation says."""
    row = state.runs.get(fact.run_key)
    if row is None or fact.state in OVER:
        return fact
    return msgspec.structs.replace(fact, message=words.fresh(row, fact.reason, fact.message))


def countdown(fact: ReservationFact, now: Instant) -> int | None:
    """Whole seconds until the planned start, 0 once it is there; None if it has none, or is over."""
    if fact.plan.start is None or fact.state in OVER:
        return None
    return max(0, -((now - fact.plan.start) // SECOND))


def _slice(plan: Slice) -> IntendedSlice:
    return IntendedSlice(nodes=tuple(sorted({share.node for share in plan.shares})), domain=plan.domain)


def _payers(plan: Slice) -> tuple[PayingEnvelope, ...]:
    gpus: dict[tuple[str, str], int] = {}
    for one in plan.segments:
        gpus[one.budget, one.envelope] = gpus.get((one.budget, one.envelope), 0) + one.gpus
    return tuple(PayingEnvelope(budget=key[0], envelope=key[1], gpus=count) for key, count in gpus.items())


def _forecast(fact: ReservationFact) -> Forecast:
    said = fact.forecast
    return Forecast(
        deficit_gpus=said.deficit,
        short_gpus=said.short,
        scope=said.scope,
        remedies=tuple(Remedy(kind=cut.kind, run=cut.run, gpus=cut.gpus, text=text) for cut, text in remedies(said)),
        confidence=fact.confidence or None,
        cut_probabilities=said.odds,
    )


def _resolution(fact: Froze | Resolved | None) -> Resolution | None:
    if fact is None:
        return None
    intent = None if fact.intent is None else msgspec.to_builtins(fact.intent)
    if isinstance(fact, Froze):
        return Resolution(intent=intent)
    result = None if fact.result is None else msgspec.to_builtins(fact.result)
    return Resolution(intent=intent, result=result, cuts=tuple(to_wire(cut) for cut in fact.cuts))


def _time(at: Instant | None) -> str | None:
    return None if at is None else format_time(at)


class Risks:
    """What threatens each running run: the reservation by which it is most likely to be cut, from the live ones, or the
    envelope that runs short."""

    def __init__(self, state: State, *, now: Instant) -> None:
        self._worst: dict[str, Risk] = {}
        for threat in threats(state, all_limits(state), now=now):
            for run, odds in threat.odds.items():
                self._add(run, Risk(cut_probability=float(odds), envelope=threat.label, at=format_time(threat.at)))
        for key in sorted(state.reservations):
            one = state.reservations[key]
            if one.plan.start is not None:
                for run, odds in one.forecast.odds.items():
                    self._add(
                        run, Risk(cut_probability=float(odds), reservation=one.key, at=format_time(one.plan.start))
                    )

    def _add(self, run: str, risk: Risk) -> None:
        """Of equals the first to come counts, then the name."""
        known = self._worst.get(run)
        if risk.cut_probability and (known is None or _rank(risk) < _rank(known)):
            self._worst[run] = risk

    def of(self, run: str) -> Risk | None:
        return self._worst.get(run)


def _rank(risk: Risk) -> tuple[float, str, str]:
    return -risk.cut_probability, risk.at, risk.reservation or risk.envelope
