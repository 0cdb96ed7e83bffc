"""What was promised to waiting runs in a replay, and what came of it: read off the ledger, like everything else.

A reservation is *made* when its run is first told that it waits; most name a start. What a run may count on is the
bound of its promise (``by``), or, where there is none, the planned start. A reservation was *moved later* if that ever
moved back, and *missed* if its run started after the bound that was promised first. The forecast error is the real
start less the start that was promised first (``shell/forecasts``): late above zero, early below.
"""

from __future__ import annotations

from msgspec import Struct
from msgspec.structs import replace

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
    """Reservations that were; one that was moved later twice counts once."""
    moves_later: int = 0
    """How often they were."""
    missed: int = 0
    kept: int = 0
    """Runs that started no later than was promised first."""
    canceled: int = 0
    error_hours: dict[str, ForecastError] = {}
    """By what the first promise rested on; ``all`` stands for every one."""


class _Open(Struct, frozen=True, kw_only=True):
    """A reservation that has not come to its end. Instants are unknown while no start is promised."""

    confidence: str = ""
    start: Instant | None = None
    """As promised first."""
    bound: Instant | None = None
    """As promised first."""
    stands: Instant | None = None
    """The bound that was promised last."""


class Promised:
    """Follows reservations, record by record."""

    def __init__(self) -> None:
        self._open: dict[str, _Open] = {}
        """By uid."""
        self._moved: set[str] = set()
        self._errors: list[tuple[str, Micros]] = []
        self._made = self._canceled = self._moves = self._missed = 0

    def saw(self, reservation: Reservation) -> None:
        """A reservation was made or has changed."""
        uid = reservation.uid
        known = self._open.pop(uid, None)
        if known is None:
            known = _Open()
            self._made += 1
        promise = self._follow(known, reservation)
        if reservation.state == "Released":
            if promise.start is not None and promise.bound is not None and reservation.released is not None:
                self._errors.append((promise.confidence, reservation.released - promise.start))
                self._missed += reservation.released > promise.bound
        elif reservation.state == "Canceled":
            self._canceled += 1
        else:
            self._open[uid] = promise

    def _follow(self, known: _Open, reservation: Reservation) -> _Open:
        start = reservation.plan.start
        if start is None:  # blocked for now: what was promised before still counts
            return known
        bound = start if reservation.by is None else reservation.by
        if known.stands is None:
            return _Open(confidence=reservation.confidence, start=start, bound=bound, stands=bound)
        if bound > known.stands:
            self._moved.add(reservation.uid)
            self._moves += 1
        return replace(known, stands=bound)

    def result(self) -> Promises:
        groups = {"all": [error for _, error in self._errors]}
        for name in CONFIDENCES:
            groups[name] = [error for confidence, error in self._errors if confidence == name]
        return Promises(
            made=self._made,
            moved_later=len(self._moved),
            moves_later=self._moves,
            missed=self._missed,
            kept=len(self._errors) - self._missed,
            canceled=self._canceled,
            error_hours={name: _hours(found) for name, group in groups.items() if (found := errors(group)) is not None},
        )


def _hours(found: Errors) -> ForecastError:
    return ForecastError(
        starts=found.count, mean=found.mean / HOUR, mean_absolute=found.mean_absolute / HOUR, p50=found.p50 / HOUR,
        p90=found.p90 / HOUR, max=found.max / HOUR,
    )  # fmt: skip
