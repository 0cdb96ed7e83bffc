"""What a promise takes, from when, and for how long (SPEC 7): a Reservation as I8 reads it.

    due(now) = max(by, now)        who is late holds its slice for as much longer
    on at t  = due < t < due + lasts
    seen at  = due + 30 s          so much lateness breaks nothing; but while it lasts

>>> one = Promise(run="ns/a", turn=1, start=90, by=100, lasts=50, nodes={"n": 8}, money={}, names=frozenset(),
...               draw=None, fact=1)
>>> one.due(0), one.due(130)
(100, 130)
>>> [one.is_on(at, now=0) for at in (100, 101, 150)], one.is_on(170, now=130), one.seen_at(0)
([False, True, False], True, 149)
"""

from __future__ import annotations

from collections import Counter
from typing import NamedTuple

from tenure.audit.accounts import EnvelopeKey
from tenure.facts import FundingClass, Reservation
from tenure.units import FOREVER, SECOND, Instant, Micros

CLAIMING = ("Pending", "Active")
LENIENCY: Micros = 30 * SECOND
"""So much lateness breaks nothing: pods take their time to be bound, and to leave."""


class Promise(NamedTuple):
    """What one waiting run was promised."""

    run: str
    turn: int
    start: Instant
    by: Instant
    lasts: Micros
    """FOREVER, where its run declares no end."""
    nodes: dict[str, int]
    money: dict[tuple[EnvelopeKey, FundingClass], int]
    """GPUs by envelope, and as what it pays them."""
    names: frozenset[str]
    """Runs that may be cut for it."""
    draw: tuple[str, int] | None
    """Of a start that is being made: what its draw is for, and the number of that activation. Who was not drawn stays,
    and nobody is drawn any more for an earlier one."""
    fact: int
    """The number of the fact that says so: who leaves the queue after it is not among those whom it names."""

    def due(self, now: Instant) -> Instant:
        return max(self.by, now)

    def seen_at(self, now: Instant) -> Instant:
        """The instant at which it is asked whether it has what it takes: whoever comes after a short run is not in its
        way."""
        return self.due(now) + min(LENIENCY, self.lasts - 1)

    def is_on(self, at: Instant, *, now: Instant) -> bool:
        return self.due(now) < at < self.due(now) + self.lasts


def bound_of(one: Reservation) -> Instant:
    """The instant from which on a promise protects what it takes. Old records name no bound: it is the start."""
    return (one.plan.start or 0) if one.by is None else one.by


def claims(one: Reservation) -> bool:
    return one.state in CLAIMING and one.plan.start is not None


def promise_of(one: Reservation, *, fact: int) -> Promise:
    """What a Reservation claims that is Pending or Active and has a start."""
    plan, forecast = one.plan, one.forecast
    nodes, money = Counter[str](), Counter[tuple[EnvelopeKey, FundingClass]]()
    for share in plan.shares:
        nodes[share.node] += share.gpus
    for segment in plan.segments:
        money[(segment.budget, segment.envelope), segment.funding] += segment.gpus
    cut = {*forecast.odds, *(remedy.run for remedy in forecast.remedies)}
    return Promise(
        run=one.run_key,
        turn=one.turn,
        start=plan.start or 0,
        by=bound_of(one),
        lasts=FOREVER if plan.until is None else plan.until - (plan.start or 0),
        nodes=dict(nodes),
        money=dict(money),
        names=frozenset(cut if one.confidence == "conservative" or one.state == "Active" else ()),
        draw=(f"Reservation/{one.key}", one.activation) if one.state == "Active" else None,
        fact=fact,
    )
