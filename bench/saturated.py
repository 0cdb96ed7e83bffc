"""Promise: the end of a run costs at most 5 ms (p99 25 ms) and writes some 24 facts, however many runs wait for
machines: behind 100,000 at most 1.5 times what it costs behind 100.

1,024 GPUs are full, and what runs really take is 5 to 100 % of what they declared, so that every end is one that nobody
had foreseen; whoever ends is replaced (``waiting/world.py``). The world settles before anything is measured. Beside the
plain load stand two that have been slow: batches of 50 that are of equal age, as what comes within one second is in
Kubernetes, and lengths of time that are all different. An end is the decision on its report, with all that it starts
and moves, committed to memory. Everything from one end to the next is told as well (timers, pods that bind, deletions,
who comes): nothing is saved by putting it off. Every tenth end is counted instead of timed.

After some eighty virtual hours starts lie beyond ``patience``, and who is dealt a place is first sought a start by
cuts: only the full scale comes that far, and its p99 is of those stretches.

Not shown: the disk, and everything around the engine (`make bench` has other rows for them); garbage collection, which
is off while anything is measured; undeclared ends; faults; more than one flavor; money that is short
(`waiting-money`). Runs are whole numbers of GPUs without groups or pods of their own.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from pathlib import Path

from msgspec import Struct

from bench.counters import calls, counting
from bench.result import Row, Scale
from bench.waiting.side import Side, enough, in_turns, mean, part, ratio, rounded, row
from bench.waiting.world import End, Load, World

NAME = "saturated"
P50, P99, FLAT, ALIKE = 5.0, 25.0, 1.5, 1.2
FACTS, FACTS_P99, FACTS_FLAT = 24.0, 60.0, 1.1
PLANS = ("make_plan", "find_plan", "earliest")
"""Searches for a plan, for now or for later, by what they are called."""
_EVERY = 10
"""One end in so many is counted."""


class Size(Struct, frozen=True):
    waiting: tuple[int, ...]
    settle: int
    ends: int
    limit: float
    """Seconds of processor time of one world."""


SIZES = {
    "full": Size(waiting=(100, 1_000, 10_000, 100_000), settle=150, ends=1_000, limit=300),
    "quick": Size(waiting=(100, 1_000, 10_000), settle=50, ends=200, limit=60),
    "tiny": Size(waiting=(20, 50), settle=3, ends=20, limit=20),
}
LOADS = {"batches of 50 of equal age": Load(at_once=50), "durations all distinct": Load(distinct=True)}


class Counts(Struct, frozen=True):
    plans: int
    steps: int


class Seen(Struct, frozen=True):
    """The ends of one world."""

    ends: list[End]
    counted: list[Counts]

    def ms(self, which: float) -> float | None:
        return part((1000 * end.took.cpu for end in self.ends), which)

    @property
    def facts(self) -> list[int]:
        return [end.facts for end in self.ends]


def run(scale: Scale, folder: Path) -> list[Row]:
    size = SIZES[scale.name]
    loads = {f"{count:,} waiting": (count, Load()) for count in size.waiting}
    middle = size.waiting[1]
    loads |= {f"{middle:,} waiting, {name}": (middle, load) for name, load in LOADS.items()}
    sides = {name: Side(partial(_world, size, *one), size.limit) for name, one in loads.items()}
    seen = measure(sides, size.ends)
    return [*_rows(size, sides, seen)]


def _world(size: Size, waiting: int, load: Load) -> World:
    world = World(load=load)
    world.fill(waiting)
    world.settle(size.settle)
    return world


def measure(sides: dict[str, Side], ends: int) -> dict[str, Seen]:
    found = in_turns(sides, _end, rounds=ends)
    seen = {}
    for name, some in found.items():
        those = enough(some, ends)
        seen[name] = Seen([one for one in those if isinstance(one, End)],
                          [one for one in those if isinstance(one, Counts)])  # fmt: skip
    return seen


def _end(world: World, number: int) -> End | Counts:
    if number % _EVERY:
        return world.end()
    with calls(*PLANS) as plans, counting() as steps:
        world.end()
    return Counts(plans.total(), steps.total())


def _rows(size: Size, sides: dict[str, Side], seen: dict[str, Seen]) -> Iterator[Row]:
    few, many = size.waiting[0], size.waiting[-1]
    least, most, plain = (f"{count:,} waiting" for count in (few, many, size.waiting[1]))
    for name, its in seen.items():
        yield from _of_one(name, sides[name], its)
    against, limit = f"{many:,} waiting against {few:,}", sides[most].limit
    for which, goal in ((0.5, FLAT), (0.99, None)):
        found = ratio(seen[most].ms(which), seen[least].ms(which))
        yield row(NAME, f"{against}: an end, p{100 * which:g}", found, limit, goal=goal,
                  detail=rounded(ms_few=seen[least].ms(which), ms_many=seen[most].ms(which)))  # fmt: skip
    yield row(NAME, f"{against}: facts of an end", ratio(mean(seen[most].facts), mean(seen[least].facts)), limit,
              goal=FACTS_FLAT, steady=True)  # fmt: skip
    for name in (f"{plain}, {load}" for load in LOADS):
        found = ratio(seen[name].ms(0.5), seen[plain].ms(0.5))
        yield row(NAME, f"{name}, against {plain}: an end, p50", found, sides[name].limit, goal=ALIKE)
        found = ratio(mean(seen[name].facts), mean(seen[plain].facts))
        yield row(NAME, f"{name}, against {plain}: facts of an end", found, sides[name].limit, steady=True)


def _of_one(name: str, side: Side, its: Seen) -> Iterator[Row]:
    """Absolute figures: goals of the plain load alone, because the others are held against it."""
    is_plain = not any(load in name for load in LOADS)
    goal = {"p50": P50, "p99": P99, "facts": FACTS, "most": FACTS_P99} if is_plain else {}
    tell = partial(row, NAME, limit=side.limit)
    yield tell(f"{name}: an end, p50", its.ms(0.5), unit="ms", goal=goal.get("p50"),
               detail=rounded(ends=len(its.ends), mean=mean(1000 * end.took.cpu for end in its.ends),
                              worst=its.ms(1.0)))  # fmt: skip
    yield tell(f"{name}: an end, p99", its.ms(0.99), unit="ms", goal=goal.get("p99"))
    yield tell(f"{name}: facts of an end, on average", mean(its.facts), unit="facts", goal=goal.get("facts"),
               steady=True)  # fmt: skip
    yield tell(f"{name}: facts of an end, p99", part(its.facts, 0.99), unit="facts", goal=goal.get("most"), steady=True)
    yield tell(
        f"{name}: from one end to the next, on average", mean(1000 * end.whole.cpu for end in its.ends), unit="ms"
    )
    yield tell(f"{name}: searches for a plan, of an end and who comes for it, on average",
               mean(one.plans for one in its.counted), unit="plans", steady=True,
               detail=rounded(steps=mean(one.steps for one in its.counted)))  # fmt: skip
