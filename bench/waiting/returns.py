"""Promise: when 128 nodes return, each run that starts on them costs at most 5 ms, and behind 100,000 that wait at most
1.2 times what it costs behind 1,000.

The fleets are those of `saturated`, with as many domains again that are closed. These are opened with one event, which
is what the return of a switch or of a power line looks like; what that takes is shared out over the runs that start.
Then they are closed again and the runs on them end, untimed, one after the other.

Not shown: nodes that fail with work on them; nodes that return one after the other, each of which is like an end; what
the pods take to bind.
"""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import Any

from msgspec import Struct

from bench.result import Row, Scale
from bench.waiting.side import Side, in_turns, part, ratio, rounded, row
from bench.waiting.world import NODES, World, node_closed
from tenure.engine import Apply

NAME = "waiting-return"
EACH, FLAT = 5.0, 1.2


class Size(Struct, frozen=True):
    waiting: tuple[int, int]
    domains: int
    settle: int
    rounds: int
    limit: float


SIZES = {
    "full": Size(waiting=(1_000, 100_000), domains=16, settle=100, rounds=7, limit=300),
    "quick": Size(waiting=(1_000, 10_000), domains=16, settle=30, rounds=3, limit=60),
    "tiny": Size(waiting=(20, 50), domains=1, settle=3, rounds=2, limit=20),
}


class Returned(Struct, frozen=True):
    ms: float
    starts: int


def run(scale: Scale, folder: Path) -> list[Row]:
    size = SIZES[scale.name]
    sides = {f"{count:,} waiting": Side(partial(_world, size, count), size.limit) for count in size.waiting}
    found = in_turns(sides, _returned, rounds=size.rounds)
    nodes, (few, many) = NODES * size.domains, size.waiting
    each, rows = {}, []
    for name, side in sides.items():
        each[name] = part((one.ms / one.starts for one in found[name]), 0.5)
        detail: dict[str, Any] = rounded(starts=part((one.starts for one in found[name]), 0.5))
        rows.append(row(NAME, f"{name}: {nodes} nodes return, each run that starts", each[name], side.limit, unit="ms",
                        goal=EACH, detail=detail))  # fmt: skip
    rows.append(row(NAME, f"{many:,} waiting against {few:,}: {nodes} nodes return, each run that starts",
                    ratio(each[f"{many:,} waiting"], each[f"{few:,} waiting"]), sides[f"{many:,} waiting"].limit,
                    goal=FLAT))  # fmt: skip
    return rows


def _world(size: Size, waiting: int) -> World:
    world = World(away=size.domains)
    world.fill(waiting)
    world.settle(size.settle)
    return world


def _returned(world: World, number: int) -> Returned:
    before = world.starts
    took = world.handle(Apply(tuple(world.away)))
    starts = world.starts - before
    assert starts, "some of those that wait fit on what returned"
    world.handle(Apply(tuple(map(node_closed, world.away))))
    away = {node.metadata.name for node in world.away}
    for key in [key for key, pods in world.running.items() if any(pod.node in away for pod in pods)]:
        world.end_of(key)
    return Returned(1000 * took.cpu, starts)
