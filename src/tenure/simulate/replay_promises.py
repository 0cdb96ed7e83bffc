"""What was promised to waiting runs in a replay, and what came of it: read off the ledger, like everything else.

A reservation is *made* when its run is first told that it waits; most name a start. It is *moved later* if its planned
start ever moved back, and *missed* if its run started after the start that was promised first. The forecast error is
the real start less that first promise (``shell/forecasts``): late above zero, early below.
"""

from __future__ import annotations

from msgspec import Struct

from tenure.facts import Reservation
from tenure.shell.forecasts import CONFIDENCES, Errors, errors
from tenure.units import HOUR, Instant, Micros


class ForecastError(Struct, frozen=True, kw_only=True, rename="camel"):
    """Real start less first promise, in hours."""

    starts: int
    mean: float
    mean_absolute: float
    p50: float
    p90: float
    max: float


class Promises(Struct, frozen=True, kw_only=True, rename="camel"):
    """All reservations of a replay."""

    made: int = 0
    moved_later: int = 0
    missed: int = 0
    kept: int = 0
    """Runs that started no later than was promised first."""
    canceled: int = 0
    error_hours: dict[str, ForecastError] = {}
    """By what the first promise rested on; ``all`` stands for every one."""


class Promised:
    """Follows reservations, record by record."""

    def __init__(self) -> None:
        self._open: dict[str, tuple[str, Instant | None]] = {}
        """By uid: the confidence of the first promise, and the start that was planned last."""
        self._moved: set[str] = set()
        self._errors: list[tuple[str, Micros]] = []
        self._made = self._canceled = 0

    def saw(self, one: Reservation) -> None:
        """A reservation was made or has changed."""
        known = self._open.pop(one.uid, None)
        if known is None:
            self._made += 1
        confidence, before = known or (one.confidence, one.plan.start)
        start = before if one.plan.start is None else one.plan.start
        if start is not None and before is not None and start > before:
            self._moved.add(one.uid)
        if one.state == "Released":
            if one.promise.start is not None and one.released is not None:
                self._errors.append((confidence, one.released - one.promise.start))
        elif one.state == "Canceled":
            self._canceled += 1
        else:
            self._open[one.uid] = (confidence, start)

    def result(self) -> Promises:
        groups = {"all": [error for _, error in self._errors]}
        for name in CONFIDENCES:
            groups[name] = [error for confidence, error in self._errors if confidence == name]
        late = sum(error > 0 for _, error in self._errors)
        return Promises(
            made=self._made,
            moved_later=len(self._moved),
            missed=late,
            kept=len(self._errors) - late,
            canceled=self._canceled,
            error_hours={name: _hours(found) for name, group in groups.items() if (found := errors(group)) is not None},
        )


def _hours(found: Errors) -> ForecastError:
    return ForecastError(
        starts=found.count, mean=found.mean / HOUR, mean_absolute=found.mean_absolute / HOUR, p50=found.p50 / HOUR,
        p90=found.p90 / HOUR, max=found.max / HOUR,
    )  # fmt: skip
