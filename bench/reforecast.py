"""Promise: to plan 10,000 waiting runs again takes at most 12 times as long as for 1,000.

A fleet of 4,096 GPUs is full of work that said when it will end, and a queue waits for it, in sixty kinds of demand:
numbers of GPUs, groups, pods of 8 and one domain, in several sizes and lengths. Then a node is closed and opened again,
which nobody had foreseen: in each of these steps every waiting run is planned anew, oldest first.

Not shown: runs that end before they said (`saturated`). Here nobody ends at all: a closed node is the only surprise.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

from bench.crowd import Crowd, Size, ask, scattered
from bench.measure import Stopwatch, Took, in_turns
from bench.result import Row, Scale
from tenure.api.policy import Policy
from tenure.api.run import Run
from tenure.engine import Apply, step
from tenure.units import SECOND

NAME = "reforecast"
GOAL = 12.0
_PATIENT = Policy(patience="87600h")
_SIZE = Size(domains=64, nodes=8, gpus=8)
_LONG = {"full": 10_000, "quick": 10_000, "tiny": 200}
_HOUR = 3_600


def run(scale: Scale, folder: Path) -> list[Row]:
    long = _LONG[scale.name]
    short = long // 10
    beds = {count: bed(count) for count in (short, long)}
    sides = {str(count): partial(_again, crowd) for count, crowd in beds.items()}
    times = in_turns(sides, rounds=2 if scale.name == "tiny" else 3)
    ratio = times.ratio(str(long), str(short), "cpu")
    each = {f"us_a_run_of_{count}": round(times.median(str(count), "cpu") / count * 1e6, 1) for count in (short, long)}
    return [
        Row(bench=NAME, what=f"{long:,} waiting runs against {short:,}, on {_SIZE.total:,} GPUs", measured=ratio,
            goal=GOAL, detail=each)
    ]  # fmt: skip


def bed(waiting: int) -> Crowd:
    """A full fleet, and so many runs that were promised a start."""
    crowd = Crowd(_SIZE, _PATIENT)
    count = _SIZE.domains * _SIZE.nodes
    crowd.start([ask(f"run-{index:05d}", 8, pod=8, seconds=4 * _HOUR + 60 * scattered(index, count))
                 for index in range(count)])  # fmt: skip
    crowd.wait(_waiting(waiting))
    return crowd


def _waiting(count: int) -> Iterator[Run]:
    kinds: list[dict[str, Any]] = [{"gpus": gpus} for gpus in (1, 2, 4, 8, 16, 64)]
    kinds += [{"gpus": gpus, "pod": 8} for gpus in (8, 16, 32)]
    kinds += [{"gpus": 32, "group": 16}, {"gpus": 64, "group": 32}, {"gpus": 48, "spread": False}]
    for index in range(count):
        kind = kinds[index % len(kinds)]
        yield ask(f"wait-{index:05d}", **kind, seconds=(1, 2, 4, 8, 24)[index % 5] * _HOUR)


def _again(crowd: Crowd, number: int) -> Took:
    """Close a node and open it again; each makes the whole queue be planned anew."""
    crowd.now += SECOND
    before = {key: one.plan.start for key, one in crowd.state.reservations.items()}
    with Stopwatch() as watch:
        for is_open in (False, True):
            step(crowd.state, Apply((crowd.open_node(0, is_open=is_open),)), now=crowd.now)
    after = {key: one.plan.start for key, one in crowd.state.reservations.items()}
    assert before.keys() == after.keys(), "nobody starts, and nobody is left without a start"
    return watch.took.over(2)
