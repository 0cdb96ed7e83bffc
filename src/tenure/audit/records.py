"""The record of a reservation, one version after the other (SPEC 7): what must stay, and what a delay is."""

from __future__ import annotations

from collections.abc import Iterator

from tenure.audit.invariants import RESERVATION
from tenure.audit.promises import bound_of, claims
from tenure.audit.report import Value, Violation, moment
from tenure.facts import Reservation
from tenure.units import SECOND, Instant, Micros

SAME: Micros = SECOND
"""Times are shown in whole seconds, and hours that run out are rounded: what differs by less is the same time."""


def record(old: Reservation, new: Reservation, *, at: Instant) -> Iterator[Violation]:
    """A promise stays as it was made, and a run has one."""
    if old.uid != new.uid:
        message = "is a second reservation of its run"
        yield violation(new, message, at=at, expected=f"{old.key} Released or Canceled", found=old.state)
        return
    for name in ("name", "run_uid", "made", "promise"):
        if getattr(old, name) != getattr(new, name):
            yield violation(new, f"changes {name}", at=at, expected=str(getattr(old, name)), found=getattr(new, name))
    if is_later(old, new, at=at) and not new.reason:
        start = moment(new.plan.start or 0) if claims(new) else "no start"
        message = "is moved later without a reason"
        yield violation(new, message, at=at, expected=moment(bound_of(old)), found=start)


def is_later(old: Reservation, new: Reservation, *, at: Instant) -> bool:
    """Whether what was promised is later now, or gone. Who is late already is not moved later by being made now."""
    if not claims(old) or new.state in ("Released", "Canceled"):
        return False
    return not claims(new) or max(bound_of(new), new.plan.start or 0) > max(bound_of(old), at) + SAME


def violation(one: Reservation, message: str, *, at: Instant, expected: Value, found: object) -> Violation:
    return Violation(
        invariant=RESERVATION.name,
        at=at,
        object=f"Reservation/{one.key}",
        message=message,
        expected=expected,
        found=found if isinstance(found, int) else str(found),
    )
