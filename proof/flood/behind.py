"""One tenant's flood, and what the decisions about others' runs take behind it.

Two fleets are alike but for the flood, and are asked in turns: a small run of another tenant comes, fits and starts,
and half of them end early, which frees machines that nobody had foreseen; each decision is committed to a ledger on
disk. The p99 of the starts, and that of the ends, must not be more than twice as long behind the flood, with all that
they cause. Work is counted as well, which no neighbour on the machine disturbs: steps must keep the promise too, lines
are told (they leave out what the commit takes, so that they tell of more than people feel).

Beside the promise, what else the flood costs: a scrape, which reads the gauges on the driver's thread; taking the flood
in; the first early end after it; and an end of its own, which is the one decision that everybody else waits for.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from itertools import product
from pathlib import Path
from time import perf_counter, process_time

from msgspec import Struct

from bench.counters import counting, lines
from bench.measure import Clock, Stopwatch, Took
from bench.result import Row
from proof.flood.world import FLOOD, World, make_run
from tenure.engine import Apply, Delete
from tenure.observe.exposition import text
from tenure.observe.metrics import Metrics

NAME = "flood"
GOAL = 2.0
ROUNDS = 4
"""With so many the p99 of the ends is that of some 670, and not just the worst of a few."""
_CLOCKS: dict[Clock, str] = {"wall": "", "cpu": ", processor time"}
_FLAVORS = 200
"""Flavors that a hostile tenant invents, one run each."""
Tell = Callable[[str], None]
Pods = dict[str, list[str]]
"""By run: its pods."""


def quiet(_: str) -> None:
    """Tell nobody."""


def telling(line: str) -> None:
    if sys.stderr.isatty():
        print(f"\r  {line:<70}", end="", file=sys.stderr, flush=True)


class Pair:
    """The two fleets, and metrics of the flooded one."""

    def __init__(self, folder: Path | None, pending: int, *, tell: Tell = quiet) -> None:
        self.pending = pending
        self.calm = World(None if folder is None else folder / "calm.db")
        self.flooded = World(None if folder is None else folder / "flooded.db")
        self.series = {"empty": _series(self.flooded)}
        for world in (self.calm, self.flooded):
            _warm(world)
        begin, computed = perf_counter(), process_time()
        for done in self.flooded.flood(pending):
            tell(f"flood: {done:,} of {pending:,} runs are in")
            if done >= pending // 10 and "tenth" not in self.series:
                self.series["tenth"] = _series(self.flooded)
        self.seconds, self.computed = perf_counter() - begin, process_time() - computed
        self.series["all"] = _series(self.flooded)

    def close(self) -> None:
        self.calm.close()
        self.flooded.close()

    @property
    def behind(self) -> str:
        return f"behind {self.flooded.pending:,} runs"


def _warm(world: World) -> None:
    """Every sort of small run once, before anything is measured."""
    for number in range(16):
        _, pods = world.submit(number)
        world.bind(pods)
        world.end(pods)


def rows(folder: Path, pending: int, *, samples: int, tell: Tell = quiet) -> Iterator[Row]:
    pair = Pair(folder, pending, tell=tell)
    try:
        yield from decisions(pair, samples, tell=tell)
        yield from series(pair)
        detail = {"s": round(pair.seconds, 1), "waiting": pair.flooded.pending}
        yield Row(bench=NAME, what="to take in a run of the flood, on average, processor time", unit="ms",
                  measured=1000 * pair.computed / pending, detail=detail)  # fmt: skip
        yield own_end(pair)
    finally:
        pair.close()


# --- decisions ------------------------------------------------------------------------------------------------------


class Seen(Struct):
    """What decisions of one kind took in one of the fleets: of most the time, of the rest steps and lines."""

    took: list[Took] = []
    steps: list[int] = []
    lines: list[int] = []

    def add(self, decide: Callable[[], tuple[Took, Pods]], *, timed: bool) -> Pods:
        if timed:
            took, pods = decide()
            self.took.append(took)
        else:
            with counting() as work, lines() as executed:
                _, pods = decide()
            self.steps.append(work.total())
            self.lines.append(executed.count)
        return pods


KINDS = {"start": "a small run of others starts", "end": "a small run of others ends early"}


def decisions(pair: Pair, samples: int, *, tell: Tell = quiet) -> Iterator[Row]:
    """Small runs start, and half of them end early, in both fleets in turns. The first of them lie beside the
    flood, where its promises are. Before each round those end that stayed, so that none overstays. Every other of the
    first round is counted, and all others are timed."""
    worlds = {"empty": pair.calm, "full": pair.flooded}
    seen = {kind: {name: Seen() for name in worlds} for kind in KINDS}
    stay: dict[str, Pods] = {name: {} for name in worlds}
    first: dict[str, Took] = {}
    for each, number in product(range(ROUNDS), range(samples)):
        tell(f"flood: decision {each * samples + number} of {ROUNDS * samples}")
        for name in sorted(worlds, reverse=bool(number // 4 % 2)):
            world, timed = worlds[name], each > 0 or number % 4 < 2
            if number == 0:
                world.end(stay[name])
                stay[name] = {}
            world.tick()
            pods = seen["start"][name].add(partial(world.submit, number), timed=timed)
            world.bind(pods)
            world.tick()
            if name not in first:
                first[name] = world.end(pods)
            elif number // 8 % 2:
                seen["end"][name].add(partial(_ended, world, pods), timed=timed)
            else:
                stay[name] |= pods
    for name, world in worlds.items():
        world.end(stay[name])
    for kind, says in KINDS.items():
        yield from _compared(f"{says}, {pair.behind}, against an empty queue", seen[kind])
    ms = {f"ms_{name}": round(1000 * took.cpu, 3) for name, took in first.items()}
    yield Row(bench=NAME, what=f"the first of others to end early, {pair.behind}, processor time", unit="ms",
              measured=1000 * first["full"].cpu, detail=ms)  # fmt: skip


def _ended(world: World, pods: Pods) -> tuple[Took, Pods]:
    return world.end(pods), pods


def _compared(what: str, seen: dict[str, Seen]) -> Iterator[Row]:
    for clock, note in _CLOCKS.items():
        seconds = {name: sorted(getattr(took, clock) for took in one.took) for name, one in seen.items()}
        for part, goal in ((99, GOAL), (50, None)):
            found = {name: quantile(some, part / 100) for name, some in seconds.items()}
            worst = {f"ms_{name}_worst": round(1000 * some[-1], 3) for name, some in seconds.items()}
            yield Row(
                bench=NAME, what=f"{what}: p{part}{note}", goal=goal, measured=found["full"] / found["empty"],
                detail={f"ms_{name}": round(1000 * one, 3) for name, one in found.items()} | worst,
            )  # fmt: skip
    for unit in ("steps", "lines"):
        counts = {name: quantile(sorted(getattr(one, unit)), 0.99) for name, one in seen.items()}
        yield Row(bench=NAME, what=f"{what}: p99, counted {unit}", measured=counts["full"] / counts["empty"],
                  goal=GOAL if unit == "steps" else None, steady=True,
                  detail={f"{unit}_{name}": count for name, count in counts.items()})  # fmt: skip


def quantile(ordered: Sequence[float], part: float) -> float:
    """
    >>> quantile([1.0, 2.0, 3.0, 4.0], 0.5), quantile([1.0, 2.0], 0.99)
    (3.0, 2.0)
    """
    return ordered[min(len(ordered) - 1, int(len(ordered) * part))]


def own_end(pair: Pair) -> Row:
    """What is not promised: an end of the flood's own moves all that it was promised, and others wait for that."""
    took = pair.flooded.end_own()
    return Row(bench=NAME, what=f"a run of the flood itself ends late, {pair.behind}, for each of them, processor time",
               unit="us", measured=1e6 * took.cpu / pair.flooded.pending,
               detail={"s": round(took.wall, 2)})  # fmt: skip


# --- metrics --------------------------------------------------------------------------------------------------------


def series(pair: Pair) -> Iterator[Row]:
    """Series that a scrape shows; ten times the flood, and names that a tenant invents, add none."""
    world, found = pair.flooded, pair.series
    for number in range(_FLAVORS):
        run = make_run(f"odd-{number:03d}", FLOOD, 1, seconds=60, flavor=f"invented-{number:03d}")
        world.handle(Apply((run,)))
    invented = _series(world)
    metrics = Metrics()
    with Stopwatch() as watch:
        metrics.collect(world.state, now=world.now)
    world.handle(*(Delete("Run", f"odd-{number:03d}", FLOOD) for number in range(_FLAVORS)))
    counts = {f"series_{name}": one for name, one in found.items()}
    yield Row(bench=NAME, what=f"series of the metrics, {pair.behind}, against a tenth of them", goal=1.0, steady=True,
              measured=found["all"] / found["tenth"], detail=counts)  # fmt: skip
    yield Row(bench=NAME, what=f"series that {_FLAVORS} invented flavors add, at the most", unit="series", goal=4,
              measured=max(0, invented - found["all"]), steady=True, detail={"series": invented})  # fmt: skip
    yield Row(bench=NAME, what=f"one scrape reads the gauges, {pair.behind}, for each run", unit="us",
              measured=1e6 * watch.took.cpu / max(1, pair.flooded.pending),
              detail={"ms": round(1000 * watch.took.wall, 1)})  # fmt: skip


def _series(world: World) -> int:
    """Lines of the exposition that hold a value."""
    metrics = Metrics()
    metrics.begin(world.state, head=world.home.seq)
    metrics.collect(world.state, now=world.now)
    return sum(1 for line in text(metrics).splitlines() if line and not line.startswith("#"))
