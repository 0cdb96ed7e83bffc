"""Reservations for people: where and when a waiting run is to start, who is to pay, and what is in its way.

`reservations`, `describe` and `story` say it with these words; the remedies' sentences are the engine's.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from tenure.api.meta import to_wire
from tenure.cli import queued
from tenure.cli.explaining import payers
from tenure.cli.port import Fleet
from tenure.cli.words import moment, plural, some, stamp
from tenure.engine import render
from tenure.engine.remedies import remedies
from tenure.engine.rows import bound_of, claims
from tenure.engine.shown import OVER
from tenure.facts import Froze, Reservation, Resolved, Slice
from tenure.units import Instant

if TYPE_CHECKING:
    from tenure.api.run import Estimate
    from tenure.engine.waits import Rest

RESTS_ON = {
    "projected": "projected from declared ends",
    "window-aligned": "window-aligned: a budget's window decides",
    "conservative": "conservative: nothing known frees enough, so others are given notice",
}


def where(plan: Slice) -> list[str]:
    """The domains of a slice; without one, as much of the place as is known."""
    return list(plan.domains) or ["/".join(plan.domain.values())] * bool(plan.domain)


def in_the_way(one: Reservation) -> str:
    """What stands between a run and its start."""
    said, parts = one.forecast, []
    if said.deficit:
        ways = ", ".join(text for _, text in remedies(said))
        parts.append(f"{plural(said.deficit, 'GPU')} missing" + (f": {ways}" if ways else ""))
    if said.short:
        parts.append(f"{plural(said.short, 'GPU')} that nobody can pay for")
    return "; ".join(parts)


def why(one: Reservation) -> str:
    """The reservation's message, and what is in its way while it is live."""
    way = "" if one.state in OVER else in_the_way(one)
    return " ".join(text for text in (one.message, way and f"{way[0].upper()}{way[1:]}.") if text)


def facts(one: Reservation, now: Instant) -> Iterator[tuple[str, str]]:
    """A reservation on a few lines."""
    yield "Name", one.name
    yield "State", f"{one.state} [{one.reason}]" if one.reason else one.state
    yield "Why", one.message
    yield from planned(one, now)


def planned(
    one: Reservation, now: Instant, rests: Sequence[Rest] = (), likely: Estimate | None = None
) -> Iterator[tuple[str, str]]:  # fmt: skip
    """When and where a waiting run is to start, who is to pay, on what that rests, and what is in its way."""
    plan, promise = one.plan, one.promise
    yield "Start", moment(plan.start, now) if plan.start is not None else "none is planned"
    by = bound_of(one) if claims(one) else None
    yield "Bound", f"promised by {moment(by, now)}" if by is not None and by != plan.start else ""
    if likely is not None:
        yield from queued.facts(None, likely, now)
    moved = promise.start is not None and starts(one) != stamp(promise.start)
    yield "Promised", moment(promise.start, now) if moved else ""
    yield "Rests on", RESTS_ON.get(one.confidence, "")
    yield "Counts on", some([counts_on(rest, now) for rest in rests], 8, joint="; ")
    yield "Where", f"{some(where(plan))}: {some([share.node for share in plan.shares])}" if plan.shares else ""
    yield "Paid by", some(payers(plan.segments))
    yield "In the way", in_the_way(one)


_COUNTS = {
    "run-ends": "{name} ends {at}, {gpus}",
    "reservation-ends": "{name} is promised {gpus} before it and ends {at}",
    "window-opens": "the window of {name} opens {at}",
}


def counts_on(rest: Rest, now: Instant) -> str:
    """One thing that a planned start counts on."""
    return _COUNTS[rest.kind].format(name=rest.name, at=moment(rest.at, now), gpus=plural(rest.gpus, "GPU"))


def odds(chances: Mapping[str, str]) -> str:
    """The odds of those in a lottery, the likeliest first."""
    order = sorted(chances, key=lambda run: (-float(chances[run]), run))
    return some([f"{run} {percent(float(chances[run]))}" for run in order], 8)


def risk(told: Any, now: Instant) -> str:
    """The risk of a Run's status in words."""
    from tenure.units import parse_time

    if told is None:
        return ""
    why = f"for {told.reservation}" if told.reservation else f"when {told.envelope} can no longer pay"
    return f"{percent(told.cut_probability)} to be cut at {moment(parse_time(told.at), now)} {why}"


def percent(part: float) -> str:
    """
    >>> percent(0.125), percent(1.0), percent(0.0004)
    ('12.5 %', '100 %', '0.04 %')
    """
    return f"{100 * part:.3g} %"


def wire(fleet: Fleet, one: Reservation, *, now: Instant) -> Any:
    """The whole object, with what the resolver did for it."""
    return to_wire(render.reservation(None, one, now=now, resolution=resolution(fleet, one)))


def resolution(fleet: Fleet, one: Reservation) -> Froze | Resolved | None:
    """The last that the resolver froze or did for a reservation."""
    rows = [row for row in fleet.resolutions(f"Reservation/{one.key}") if row.uid == one.uid]
    return rows[-1].fact if rows else None


def starts(one: Reservation) -> str:
    return "-" if one.plan.start is None else stamp(one.plan.start)
