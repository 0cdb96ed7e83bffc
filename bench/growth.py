"""How costs grow, point by point: with the fleet, with the ledger, and with the queue (the promises are the others').

The promises compare two sizes; these are the sizes between, for the plots of ``docs/performance.md``. Each size is
measured in turns with the smallest, and drawn as so many times that one: a machine that was slow for a while bends no
curve. Time is processor time; beside it stand the counted steps of the engine, which bend for nobody.

    fleet     an admission, engine alone, in fleets nine tenths full
    ledger    an admission, committed, on ledgers with so many closed leases
    backlog   one more run, of a team that holds no promise, is promised a start behind a queue; and of the 48 promises
              of that queue, all planned again after a surprise, the share of one

Not shown: a shorter queue, where fewer hold a promise; who comes behind it and is promised nothing (`waiting-submit`).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path

from msgspec import Struct, to_builtins

from bench import history, reforecast
from bench.bed import Bed
from bench.counters import counting
from bench.crowd import Crowd, ask
from bench.load import batch
from bench.measure import Side, Stopwatch, Took, in_turns
from bench.result import Row, Scale

NAME = "growth"
FLEETS = {
    "full": (1_000, 10_000, 100_000, 300_000, 1_000_000),
    "quick": (1_000, 4_000, 10_000, 100_000),
    "tiny": (1_000, 4_000),
}
LEDGERS = {
    "full": (1_000, 10_000, 100_000, 1_000_000),
    "quick": (1_000, 10_000, 30_000, 100_000),
    "tiny": (1_000, 2_000),
}
BACKLOGS = {"full": (100, 300, 1_000, 3_000, 10_000), "quick": (100, 300, 1_000), "tiny": (60, 180)}
_TEAMS = tuple(f"team-{number}" for number in range(8))
"""Whose runs one repetition adds to a queue, one each, and takes back."""


class Point(Struct, frozen=True):
    at: int
    ms: float
    steps: float


class Curve(Struct, frozen=True):
    """What is drawn: of each series a point for every size."""

    axis: str
    title: str
    unit: str
    """What the sizes count."""
    series: dict[str, list[Point]]


def run(scale: Scale, folder: Path) -> list[Row]:
    curves = [fleet(FLEETS[scale.name], scale.rounds), ledger(LEDGERS[scale.name], scale.rounds, folder),
              backlog(BACKLOGS[scale.name], scale.rounds)]  # fmt: skip
    return [row for curve in curves for row in _rows(curve)]


def _rows(curve: Curve) -> Iterator[Row]:
    for name, points in curve.series.items():
        few, many = points[0], points[-1]
        where = f"{many.at:,} against {few.at:,} {curve.unit}: {name}"
        # The whole curve goes with the first row: results keep what the plots are drawn from.
        detail = {"curve": to_builtins(curve)} if name == next(iter(curve.series)) else {}
        yield Row(bench=NAME, what=where, measured=many.ms / few.ms, detail=detail)
        yield Row(bench=NAME, what=f"{where}, steps", measured=many.steps / few.steps, steady=True)


Made = tuple[Side, Callable[[], float], Callable[[], None]]
"""What is timed, what counts the steps of one decision, and what puts the bed away."""


def _points(sizes: tuple[int, ...], make: Callable[[int], Made], rounds: int) -> list[Point]:
    """Every size in turns with the smallest, one large bed at a time."""
    small, count, put_away = make(sizes[0])
    base: float | None = None
    points = []
    for size in sizes[1:]:
        large, its_count, its_end = make(size)
        times = in_turns({"small": small, "large": large}, rounds=rounds)
        if base is None:
            base = 1000 * times.median("small", "cpu")
            points.append(Point(sizes[0], base, count()))
        points.append(Point(size, base * times.ratio("large", "small", "cpu"), its_count()))
        its_end()
    put_away()
    return points


# --- fleet and ledger -----------------------------------------------------------------------------------------------


def fleet(sizes: tuple[int, ...], rounds: int) -> Curve:
    def make(gpus: int) -> Made:
        bed = Bed.build(gpus)
        return lambda number: bed.admit(batch(number), bed.decided), partial(_steps, bed), bed.close

    points = _points(sizes, make, max(2, rounds // 4))
    return Curve("fleet", "An admission, by the size of the fleet", "GPUs", {"an admission, engine alone": points})


def ledger(sizes: tuple[int, ...], rounds: int, folder: Path) -> Curve:
    def make(leases: int) -> Made:
        bed = history._bed(leases, folder / f"growth-{leases}.db")
        return lambda number: bed.admit(batch(number), bed.committed), partial(_steps, bed), bed.close

    points = _points(sizes, make, max(2, rounds // 4))
    return Curve("ledger", "An admission, by the length of the ledger", "closed leases",
                 {"an admission, committed": points})  # fmt: skip


def _steps(bed: Bed) -> float:
    asks = batch(0)
    with counting() as work:
        bed.admit(asks, bed.committed)
    return work.total() / len(asks)


# --- backlog --------------------------------------------------------------------------------------------------------


def backlog(sizes: tuple[int, ...], rounds: int) -> Curve:
    beds: dict[int, Crowd] = {}

    def more(waiting: int) -> Made:
        crowd = beds.get(waiting) or beds.setdefault(waiting, reforecast.bed(waiting, teams=_TEAMS))
        return partial(_more, crowd), partial(_more_steps, crowd), lambda: None

    def again(waiting: int) -> Made:
        crowd = beds[waiting]
        return partial(_again, crowd), partial(_again_steps, crowd), lambda: None

    one = _points(sizes, more, max(2, rounds // 10))
    each = _points(sizes, again, 1)
    return Curve("backlog", "A decision, by the runs that wait", "waiting runs",
                 {"one more run is promised a start": one, "a promised start is planned again": each})  # fmt: skip


def _more(crowd: Crowd, number: int) -> Took:
    runs = [ask(f"more-{index}", (1, 8, 16, 32)[index % 4], seconds=3_600, team=team)
            for index, team in enumerate(_TEAMS)]  # fmt: skip
    with Stopwatch() as watch:
        crowd.promise(runs)
    for run in runs:
        crowd.take_back(run)
    return watch.took.over(len(runs))


def _more_steps(crowd: Crowd) -> float:
    run = ask("counted", 8, seconds=3_600, team=_TEAMS[0])
    with counting() as work:
        crowd.promise([run])
    crowd.take_back(run)
    return float(work.total())


def _again(crowd: Crowd, number: int) -> Took:
    """All nodes that are promised are closed, and opened again: the share of one promise in either."""
    return reforecast.all_promised(crowd, number).over(len(crowd.promised))


def _again_steps(crowd: Crowd) -> float:
    with counting() as work:
        reforecast.all_promised(crowd, 0)
    return work.total() / (2 * len(crowd.promised))
