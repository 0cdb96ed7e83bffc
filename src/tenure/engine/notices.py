"""What is said ahead of money that runs out (SPEC 3): when, and what need not be believed any more.

A notice goes out once, and its mark is kept with the account. When work ends for good, hours last longer than they
seemed to, or were never used: what was said of them and is not so is taken back, and said anew when it is.
"""

from __future__ import annotations

from collections.abc import Iterator

from tenure.api.policy import Policy
from tenure.engine.books import LENT, Books, Cap, Fund
from tenure.engine.meters import Meter, reaches
from tenure.units import FOREVER, GpuMicros, Instant, parse_duration


def marks(fund: Fund, policy: Policy) -> Iterator[tuple[Instant, str]]:
    """Instants at which something is to be said, at the present rate."""
    if fund.terms is None:
        return
    grace = parse_duration(policy.budget_grace)
    ends = fund.exhausts()
    yield from _shares(fund.hours, policy, fund.total)
    soon = min(ends, fund.end)
    if soon < FOREVER:
        yield soon - grace, "soon"
    if ends < FOREVER:
        yield ends, "exhausted"
    if fund.end < FOREVER:
        yield fund.end, "window"
    for at, percent in _shares(fund.lending_hours, policy, fund.lent):
        yield at, f"{LENT}{percent}"
    lent = fund.loans.exhausts()
    if lent < FOREVER:
        yield lent - grace, f"{LENT}soon"
        yield lent, "lending"


def cap_marks(cap: Cap, policy: Policy) -> Iterator[tuple[Instant, str]]:
    yield from _shares(cap.hours, policy, *(fund.total for fund in cap.funds))
    ends = cap.exhausts()
    if ends < FOREVER:
        yield ends - parse_duration(policy.budget_grace), "soon"
        yield ends, "exhausted"


def _shares(limit: GpuMicros | None, policy: Policy, *meters: Meter) -> Iterator[tuple[Instant, str]]:
    """When so many per cent of the hours are used up: of an envelope, of what it lends, of a cap."""
    for percent in policy.notices:
        if limit is not None and percent < 100:
            yield reaches(limit * percent // 100, *meters), str(percent)


# --- taking back ----------------------------------------------------------------------------------------------------


def take_back(books: Books, fund: Fund, policy: Policy, *, now: Instant) -> None:
    """A lease ended for good, perhaps long ago: forget what was said of its envelope's hours and is not so."""
    limits: tuple[Fund | Cap, ...] = (fund, *fund.caps)
    for one in limits:
        if not one.warned or (isinstance(one, Fund) and one.terms is None):
            continue
        untrue = one.warned & set(_untrue(one, policy, now))
        one.warned -= untrue
        if "exhausted" in untrue:
            books.crossed.pop((one.limit, "time"), None)
            books.crossed.pop((one.limit, "hours"), None)


def _untrue(one: Fund | Cap, policy: Policy, now: Instant) -> Iterator[str]:
    end = one.end if isinstance(one, Fund) else FOREVER
    yield from _not_yet("", one.hours, [fund.total for fund in one.funds], policy, end=end, now=now)
    if isinstance(one, Fund):
        yield from _not_yet(LENT, one.lending_hours, [one.lent], policy, end=FOREVER, now=now)


def _not_yet(
    kind: str, limit: GpuMicros | None, meters: list[Meter], policy: Policy, *, end: Instant, now: Instant
) -> Iterator[str]:  # fmt: skip
    """What is not to be said now of hours: those of an envelope or a cap, or of what is lent (``kind``)."""
    if limit is None:
        return
    used = sum(meter.used(now) for meter in meters)
    yield from (f"{kind}{percent}" for percent in policy.notices if used < limit * percent // 100)
    if used < limit:
        yield "lending" if kind else "exhausted"
        if min(reaches(limit, *meters), end) - parse_duration(policy.budget_grace) > now:
            yield f"{kind}soon"
