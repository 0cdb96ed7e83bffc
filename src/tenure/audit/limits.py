"""The limits that a Budget sets, each as one number over one sum (SPEC 2, 3).

A limit adds up the open leases (all of them, or only what was lent) of its envelopes, and bounds one
measure of the sum:

    gpus     GPUs held at one instant               exceeded when gpus > bound
    hours    GPU-microseconds used in the window    exceeded when used > bound
    window   the instant at which the window ends   exceeded when anything is held after it

so that an envelope gives up to three limits, lending two and an aggregate cap two.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Literal, NamedTuple

from tenure.api.budget import AggregateCap, Budget, Envelope
from tenure.audit.accounts import EnvelopeBook, EnvelopeKey, window_of
from tenure.audit.meters import Piece, first_over
from tenure.units import HOUR, GpuMicros, Instant

Measure = Literal["gpus", "hours", "window"]
Envelopes = Mapping[EnvelopeKey, EnvelopeBook]


class LimitKey(NamedTuple):
    """Which limit: the same one before and after an edit of its bound."""

    budget: str
    kind: Literal["envelope", "lending", "cap"]
    name: str
    measure: Measure


class Limit(NamedTuple):
    key: LimitKey
    bound: int
    members: tuple[EnvelopeKey, ...]

    @property
    def counts_lent(self) -> bool:
        """Whether only lent GPUs count."""
        return self.key.kind == "lending"


class Relief(NamedTuple):
    """A lease that ended before the entry that told of it: from ``end`` on the rate was lower."""

    lease: str
    envelope: EnvelopeKey
    end: Instant
    gpus: int
    lent: bool


def limits_of(budget: Budget) -> tuple[Limit, ...]:
    """Every limit that a Budget sets."""
    name = budget.metadata.name
    limits = [limit for envelope in budget.spec.envelopes for limit in _of_envelope(name, envelope)]
    limits += [limit for cap in budget.spec.aggregate_caps for limit in _of_cap(name, cap)]
    return tuple(limits)


def _of_envelope(budget: str, envelope: Envelope) -> Iterator[Limit]:
    member = ((budget, envelope.name),)
    end = window_of(envelope)[1]
    lending = envelope.lending
    bounds: list[tuple[Literal["envelope", "lending"], Measure, int | None]] = [
        ("envelope", "gpus", envelope.concurrency),
        ("envelope", "hours", hours(envelope.max_gpu_hours)),
        ("envelope", "window", end),
        ("lending", "gpus", lending.max_concurrency if lending else None),
        ("lending", "hours", hours(lending.max_gpu_hours) if lending else None),
    ]
    for kind, measure, bound in bounds:
        if bound is not None:
            yield Limit(LimitKey(budget, kind, envelope.name, measure), bound, member)


def _of_cap(budget: str, cap: AggregateCap) -> Iterator[Limit]:
    # A cap that names an envelope twice still counts its use once.
    members = tuple((budget, name) for name in sorted(set(cap.envelopes)))
    if cap.max_concurrency is not None:
        yield Limit(LimitKey(budget, "cap", cap.name, "gpus"), cap.max_concurrency, members)
    if cap.max_gpu_hours is not None:
        yield Limit(LimitKey(budget, "cap", cap.name, "hours"), cap.max_gpu_hours * HOUR, members)


def hours(amount: int | None) -> GpuMicros | None:
    return None if amount is None else amount * HOUR


def gpus_held(limit: Limit, envelopes: Envelopes) -> int:
    return sum(book.gpus(lent=limit.counts_lent) for book in _books(limit, envelopes))


def time_used(limit: Limit, envelopes: Envelopes, *, at: Instant) -> GpuMicros:
    """What the accounts in force have been charged."""
    return sum(book.account.meter(lent=limit.counts_lent).read(at) for book in _books(limit, envelopes))


def time_promised(limit: Limit, envelopes: Envelopes, *, at: Instant) -> GpuMicros:
    return sum(book.promised(at, lent=limit.counts_lent) for book in _books(limit, envelopes))


def is_over(limit: Limit, envelopes: Envelopes, *, at: Instant) -> bool:
    """Whether the limit is exceeded at an instant, if nothing changes until then."""
    match limit.key.measure:
        case "gpus":
            return gpus_held(limit, envelopes) > limit.bound
        case "hours":
            return time_used(limit, envelopes, at=at) > limit.bound
        case "window":
            return at > limit.bound and gpus_held(limit, envelopes) > 0


def crossing(limit: Limit, envelopes: Envelopes, *, since: Instant, reliefs: Iterable[Relief] = ()) -> Instant | None:
    """The first instant from ``since`` on at which the mere passing of time exceeds the limit; or never."""
    own = [relief for relief in reliefs if relief.envelope in limit.members and (relief.lent or not limit.counts_lent)]
    held = gpus_held(limit, envelopes)
    if limit.key.measure == "window":
        in_time = sum(relief.gpus for relief in own if relief.end <= limit.bound)
        return max(limit.bound + 1, since) if held > in_time else None
    early = sum(relief.gpus * (since - relief.end) for relief in own if relief.end < since)
    used = time_used(limit, envelopes, at=since) - early
    return first_over(used=used, bound=limit.bound, pieces=_pieces(held, own, since=since))


def _pieces(held: int, reliefs: list[Relief], *, since: Instant) -> list[Piece]:
    """The rate from ``since`` on, falling at each relief."""
    pieces: list[Piece] = []
    for start in sorted({since} | {relief.end for relief in reliefs if relief.end > since}):
        gone = sum(relief.gpus for relief in reliefs if relief.end <= start)
        pieces.append((start, held - gone))
    return pieces


def _books(limit: Limit, envelopes: Envelopes) -> Iterator[EnvelopeBook]:
    return (envelopes[key] for key in limit.members if key in envelopes)
