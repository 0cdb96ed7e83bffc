"""Promise: to take a run in costs at most 1 ms (p50), and behind 100,000 that wait at most 1.2 times what it costs
behind 100; when 10,000 come within one second, an end in their midst waits for at most 0.5 s of them.

The fleets are those of `saturated`. Single submissions come a moment apart and are taken back. Then as many as said
come within one second, all of one age, and a run ends in the middle of that second. They are decided on as a driver
does: it looks for ends before it takes the next portion of what has come, at most 64 runs (``tenure.kube.intake``). The
second is one of processor time: the driver does nothing else, and nobody disturbs it. The end waits for the portion
that is being taken in; the promise is held against the longest one, which is the worst instant to end, and the end's
own decision.

Not shown: clients that write to the ledger of an embedded fleet themselves, and wait for its lock; 10,000 runs in one
file, which are one decision; what the API server takes; runs that can start at once, of which there are few here.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from itertools import islice
from pathlib import Path

from msgspec import Struct

from bench.measure import still
from bench.result import Row, Scale
from bench.waiting.side import Side, enough, in_turns, part, ratio, rounded, row
from bench.waiting.world import World
from tenure.units import SECOND

NAME = "waiting-submit"
P50, FLAT, WAITS = 1.0, 1.2, 0.5
PORTION = 64


class Size(Struct, frozen=True):
    waiting: tuple[int, ...]
    settle: int
    rounds: int
    burst: int
    limit: float


SIZES = {
    "full": Size(waiting=(100, 1_000, 100_000), settle=100, rounds=400, burst=10_000, limit=300),
    "quick": Size(waiting=(100, 10_000), settle=30, rounds=100, burst=1_000, limit=60),
    "tiny": Size(waiting=(20, 50), settle=3, rounds=10, burst=20, limit=20),
}


class Burst(Struct, frozen=True):
    """Seconds."""

    waited: float
    longest: float
    end: float
    whole: float


def run(scale: Scale, folder: Path) -> list[Row]:
    size = SIZES[scale.name]
    sides = {f"{count:,} waiting": Side(partial(_world, size, count), size.limit) for count in size.waiting}
    found = in_turns(sides, _submitted, rounds=size.rounds)
    ms = {name: part((1000 * one for one in enough(some, size.rounds)), 0.5) for name, some in found.items()}
    least, most = (f"{size.waiting[which]:,} waiting" for which in (0, -1))
    rows = []
    for name, side in sides.items():
        worst = part((1000 * one for one in found[name]), 1.0)
        rows.append(row(NAME, f"{name}: to take one run in, p50", ms[name], side.limit, unit="ms", goal=P50,
                        detail=rounded(worst=worst)))  # fmt: skip
    rows.append(row(NAME, f"{size.waiting[-1]:,} waiting against {size.waiting[0]:,}: to take one run in, p50",
                    ratio(ms[most], ms[least]), sides[most].limit, goal=FLAT))  # fmt: skip
    for name in (least, most):
        rows += _burst_rows(name, size.burst, sides[name])
    return rows


def _world(size: Size, waiting: int) -> World:
    world = World()
    world.fill(waiting)
    world.settle(size.settle)
    return world


def _submitted(world: World, number: int) -> float:
    job = next(world.supply)
    took = world.submit(job)
    world.cancel(job)
    return took.cpu


def _burst_rows(name: str, count: int, side: Side) -> Iterator[Row]:
    with still():
        found = side.do(partial(burst, count=count))
    what, tell = f"{name}, {count:,} come in one second", partial(row, NAME, limit=side.limit, unit="ms")
    if found is None:
        worst, midst, each, detail = None, None, None, {}
    else:
        worst, midst, each = found.longest + found.end, found.waited + found.end, found.whole / count
        detail = rounded(longest_portion=1000 * found.longest, its_own=1000 * found.end)
    # The worst instant to end is held against the goal: where in a portion the middle of the second falls is luck.
    # With its own decision, so that nothing is gained by leaving to it what the portion should have decided.
    yield tell(f"{what}: an end in their midst, from report to decision, at the most", _ms(worst), goal=1000 * WAITS,
               detail=detail)  # fmt: skip
    yield tell(f"{what}: an end in their midst, from report to decision", _ms(midst))
    yield tell(f"{what}: to take all of them in, each", _ms(each))


def _ms(seconds: float | None) -> float | None:
    return None if seconds is None else 1000 * seconds


def burst(world: World, *, count: int) -> Burst:
    """So many come within one second. The clock stands while nothing is computed."""
    jobs, begun = list(islice(world.supply, count)), world.now
    created = begun - begun % SECOND
    clock = longest = whole = waited = end = 0.0
    done = 0
    while done < count:
        clock = max(clock, done / count)
        portion = jobs[done : min(done + PORTION, int(clock * count) + 1)]
        world.now = max(world.now, begun + int(clock * SECOND))
        took = world.submit_all(portion, created).cpu
        clock, longest, whole, done = clock + took, max(longest, took), whole + took, done + len(portion)
        if not end and clock >= 0.5:
            waited = clock - 0.5 if clock - took < 0.5 else 0.0
            end = world.end_of(next(iter(world.running))).took.cpu
            clock += end
    return Burst(waited, longest, end, whole)
