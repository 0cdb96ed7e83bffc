"""Reservations as people and programs see them, and the risk that they are to running work.

A Reservation's spec is the promise as it was first made, its status the plan as it stands. What it means for others is
found once for all that are shown together (``Risks``), beside what runs short of money: the odds of a run are looked
up, never searched for. An object has to fit into an API server: of very many cuts and odds the first are shown, a very
large draw not at all. The ledger has all of it.
"""

from __future__ import annotations

from collections.abc import Iterator

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
from tenure.engine.rows import bound_of
from tenure.engine.state import State
from tenure.engine.threats import all_limits, threats
from tenure.engine.words import Words
from tenure.facts import Cut, Froze, Resolved, Slice
from tenure.facts import Reservation as ReservationFact
from tenure.units import SECOND, Instant, format_time

OVER = ("Released", "Canceled")
SHOWN_MAX = 1024
"""Cuts, remedies and odds that a status shows, each."""
ROOM_BYTES = 1 << 19
"""How large all cuts may be together, and a draw too: an API server takes objects of 1.5 MiB, with all their parts."""


def reservation(
    state: State | None,
    fact: ReservationFact,
    *,
    now: Instant,
    resolution: Froze | Resolved | None = None,
) -> Reservation:
    """A Reservation with its status. ``resolution`` is what the ledger holds about it; a draw that waits for its
    reveals is in the state."""
    if state is not None:
        resolution = resolution or state.draws.get(f"Reservation/{fact.key}")
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
            promised_by=None if fact.plan.start is None else _time(bound_of(fact)),
            planned_slice=_slice(fact.plan) if fact.plan.shares or fact.plan.domain else None,
            countdown_seconds=countdown(fact, now),
            activated_at=_time(fact.activated),
            released_at=_time(fact.released),
            forecast=_forecast(fact),
            resolution=None if resolution is None else drawn(resolution),
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
        remedies=_remedies(fact),
        confidence=fact.confidence or None,
        cut_probabilities=likeliest(said.odds),
    )


def _remedies(fact: ReservationFact) -> tuple[Remedy, ...]:
    """The first of them, and the last: if there is a lottery, it is that."""
    found = list(remedies(fact.forecast))
    if len(found) > SHOWN_MAX:
        found = [*found[: SHOWN_MAX - 1], found[-1]]
    return tuple(Remedy(kind=cut.kind, run=cut.run, gpus=cut.gpus, text=text) for cut, text in found)


def likeliest(odds: dict[str, str]) -> dict[str, str]:
    """As many odds as a status shows."""
    if len(odds) <= SHOWN_MAX:
        return odds
    likely = sorted(odds, key=lambda run: (-float(odds[run]), run))[:SHOWN_MAX]
    return {run: odds[run] for run in sorted(likely)}


def drawn(fact: Froze | Resolved, *, room: int = ROOM_BYTES) -> Resolution:
    """A draw and its cuts, as far as there is room for each."""
    result, cuts = (None, ()) if isinstance(fact, Froze) else (fact.result, fact.cuts)
    shown = tuple(to_wire(cut) for cut in _first(cuts, room))
    if fact.intent is not None and _size(fact.intent) + _size(result) > room:
        return Resolution(draw_left_out=True, cuts=shown)
    intent, what = (None if one is None else msgspec.to_builtins(one) for one in (fact.intent, result))
    return Resolution(intent=intent, result=what, cuts=shown)


def _first(cuts: tuple[Cut, ...], room: int) -> Iterator[Cut]:
    """As many cuts as there is room for, each with all its leases."""
    for cut in cuts[:SHOWN_MAX]:
        room -= _size(cut)
        if room < 0:
            return
        yield cut


def _size(one: object) -> int:
    return len(msgspec.json.encode(one))


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
