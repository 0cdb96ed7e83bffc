"""Those who wait as columns, in lines by width and declared length; and the fast way through what is deep in a queue.

A replay reads columns of integers rather than records, since it reads them a million times. A line holds runs of one
width whose declared lengths lie within a quarter of one another, by age: who may pass is found by looking at the heads.

What a replay leaves is *poured*: by age, each run into the GPUs that come free next. That is ten times as fast and
knows no backfill; it is for what is so deep in a queue that little but its order is known anyway.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from heapq import heapify, heappop, heappush
from typing import NamedTuple

from tenure.engine.estimate.world import Promised, Waiting
from tenure.units import DAY, FOREVER, Instant, Micros


class Runs(NamedTuple):
    """All that wait, as columns: who holds a promise by number, then the others by age."""

    gpus: list[int]
    lasts: list[Micros]
    """Declared lengths; ``FOREVER`` for none."""
    owners: list[str]
    limits: list[int | None]
    promised: list[tuple[Instant, Instant]]
    """(bound, not before) of the first so many runs: the others have no promise."""
    lines: list[tuple[int, Micros, list[int]]]
    """Of those without a promise: (GPUs, the least length, runs by age), by GPUs and length."""


class Held(NamedTuple):
    """A run that holds GPUs when the replay begins."""

    gpus: int
    owner: str
    declared: Instant
    """Its declared end, or ``FOREVER``."""


def line_up(promised: Sequence[Promised], waiting: Sequence[Waiting]) -> Runs:
    """All that wait as columns, and those without a promise in lines by width and declared length."""
    everybody: list[Promised | Waiting] = [*promised, *waiting]
    lasts = [FOREVER if run.lasts is None else run.lasts for run in everybody]
    lines: dict[tuple[int, int], list[int]] = {}
    for place in range(len(promised), len(everybody)):
        lines.setdefault((everybody[place].gpus, size_class(lasts[place])), []).append(place)
    return Runs(
        gpus=[run.gpus for run in everybody],
        lasts=lasts,
        owners=[run.owner for run in everybody],
        limits=[*(None for _ in promised), *(run.limit for run in waiting)],
        promised=[(run.by, run.opens) for run in promised],
        lines=[(gpus, min(lasts[run] for run in line), line) for (gpus, _), line in sorted(lines.items())],
    )


def size_class(lasts: Micros) -> int:
    """The class of a length: four to each doubling.

    >>> [size_class(minutes) for minutes in (60, 64, 79, 80, 120, 127, 128)]
    [23, 24, 24, 25, 27, 27, 28]
    """
    bits = max(lasts, 4).bit_length()
    return 4 * bits + (max(lasts, 4) >> (bits - 3)) - 8 if lasts else 0


def pour(starts: list[Instant], lanes: list[tuple[Instant, int]], runs: Runs, length_of: Callable[[int], Micros],
         *, now: Instant) -> None:  # fmt: skip
    """Give everybody a start who has none; ``lanes``: (instant, GPUs) of what comes free.

    A run starts when it has the last GPU that it needs. Others use the first ones until then, so they count as taken
    only from the mean of when they came free: no work is lost, and none done twice. Who waits for money goes by that.
    """
    heapify(lanes)
    room = sum(gpus for _, gpus in lanes)
    spent: dict[str, int] = {}
    for run, start in enumerate(starts):
        gpus, limit = runs.gpus[run], runs.limits[run]
        if start < FOREVER or gpus > room:
            continue
        length = length_of(run)
        if limit is not None:
            before = spent.get(runs.owners[run], 0)
            starts[run] = now + before // limit
            spent[runs.owners[run]] = before + gpus * min(length, DAY)
            continue
        left, sum_of_waits, at = gpus, 0, now
        while left > 0:
            at, width = heappop(lanes)
            sum_of_waits += min(left, width) * (at - now)
            left -= width
        if left < 0:
            heappush(lanes, (at, -left))
        starts[run] = min(at, runs.promised[run][0]) if run < len(runs.promised) else at
        if length < FOREVER:
            heappush(lanes, (now + sum_of_waits // gpus + length, gpus))
        else:
            room -= gpus
