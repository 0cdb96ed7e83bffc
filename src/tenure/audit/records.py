"""The record of a reservation, one version after the other (SPEC 7): what must stay, and what a delay is."""

from __future__ import annotations

from collections.abc import Iterator

from tenure.audit.checks_limits import LATE
from tenure.audit.claims import CLAIMING
from tenure.audit.invariants import RESERVATION
from tenure.audit.report import Value, Violation, moment
from tenure.facts import Reservation
from tenure.units import Instant


def record(old: Reservation, new: Reservation, *, at: Instant) -> Iterator[Violation]:
    """A promise stays as it was made, and a run has one."""
    if old.uid != new.uid:
        message = "is a second reservation of its run"
        yield violation(new, message, at=at, expected=f"{old.key} Released or Canceled", found=old.state)
        return
    for name in ("name", "run_uid", "made", "promise"):
        if getattr(old, name) != getattr(new, name):
            yield violation(new, f"changes {name}", at=at, expected=str(getattr(old, name)), found=getattr(new, name))
    if is_delayed(old, new) and not new.reason:
        start = "no start" if new.plan.start is None else moment(new.plan.start)
        message = "is moved later without a reason"
        yield violation(new, message, at=at, expected=moment(old.plan.start or 0), found=start)


def is_delayed(old: Reservation, new: Reservation) -> bool:
    """Whether a start that was promised is later now, or gone. An activation may come a moment late."""
    if old.state not in CLAIMING or old.plan.start is None or new.state in ("Released", "Canceled"):
        return False
    late = LATE if new.state == "Active" else 0
    return new.state == "Blocked" or new.plan.start is None or new.plan.start > old.plan.start + late


def violation(one: Reservation, message: str, *, at: Instant, expected: Value, found: object) -> Violation:
    return Violation(
        invariant=RESERVATION.name,
        at=at,
        object=f"Reservation/{one.key}",
        message=message,
        expected=expected,
        found=found if isinstance(found, int) else str(found),
    )
