"""How good forecasts were: promised start against real start, from what the ledger kept of both.

    error = real start - promised start        positive: late; negative: early

Each start out of a reservation counts three times: against the promise as first made, against the plan as it stood
last, and against that plan's bound: what starts after it came later than was promised. Percentiles are of the nearest
rank, so that each of them is an error that really happened.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from msgspec import Struct

from tenure.engine.timeline.timeline import GRACE
from tenure.ledger import PromiseRow
from tenure.units import Micros

CONFIDENCES = ("projected", "window-aligned", "conservative")


class Errors(Struct, frozen=True, kw_only=True):
    """Errors in numbers; microseconds."""

    count: int
    mean: Micros
    mean_absolute: Micros
    p50: Micros
    p90: Micros
    max: Micros
    """The latest start, or, where all were early, the least early."""


class Measured(Struct, frozen=True, kw_only=True):
    """All of it, and by what the first promise rested on."""

    promise: dict[str, Errors]
    """By confidence; ``all`` stands for every one."""
    plan: dict[str, Errors]
    bound: dict[str, Errors]
    kept: int
    """Starts by their bound, or half a minute after it: so much lateness breaks nothing."""
    worst: tuple[PromiseRow, ...]
    """Those whose first promise was furthest off."""


def measure(rows: Sequence[PromiseRow], *, worst: int = 5) -> Measured:
    promised = [(row.confidence, row.started - row.promised) for row in rows if row.promised is not None]
    planned = [(row.confidence, row.started - row.planned) for row in rows if row.planned is not None]
    bounds = [(row.confidence, row.started - row.bound) for row in rows if row.bound is not None]
    off = [row for row in rows if row.promised is not None and row.promised != row.started]
    off.sort(key=lambda row: (-abs(row.started - (row.promised or 0)), row.started, row.namespace, row.run))
    return Measured(
        promise=_by_confidence(promised), plan=_by_confidence(planned), bound=_by_confidence(bounds),
        kept=sum(error <= GRACE for _, error in bounds), worst=tuple(off[:worst]),
    )  # fmt: skip


def errors(values: Iterable[Micros]) -> Errors | None:
    """
    >>> found = errors([10, -20, 30])
    >>> found.count, found.mean, found.mean_absolute, found.p50, found.p90, found.max
    (3, 6, 20, 10, 30, 30)
    """
    ordered = sorted(values)
    count = len(ordered)
    if not count:
        return None
    return Errors(
        count=count, mean=_mean(sum(ordered), count), mean_absolute=_mean(sum(map(abs, ordered)), count),
        p50=ordered[-(-count * 50 // 100) - 1], p90=ordered[-(-count * 90 // 100) - 1], max=ordered[-1],
    )  # fmt: skip


def _mean(total: int, count: int) -> int:
    """Towards zero, so that what is late by a little is not more than what is early by a little."""
    return total // count if total >= 0 else -(-total // count)


def _by_confidence(values: list[tuple[str, Micros]]) -> dict[str, Errors]:
    groups = {"all": [error for _, error in values]}
    for name in CONFIDENCES:
        groups[name] = [error for confidence, error in values if confidence == name]
    return {name: found for name, group in groups.items() if (found := errors(group)) is not None}
