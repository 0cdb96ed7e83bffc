"""Promise: what a decision takes is counted, and a change that makes it take more is seen at once, on any machine.

Small beds of what the other benchmarks time: admissions in two sizes of fleet, questions about the earliest start,
promises that are planned again, one more run behind a long queue, promised a start or not, and behind a flood that
waits for money, an end that leaves the flood where it is, a dry run of the resolver, a read of all headroom. For each
the *steps* through the engine's indexes and prices are counted, and the *lines* of Tenure's code that are executed.
Both are the same whenever they are counted, so ranges are a few percent wide, and ``make test`` runs this too
(``python -m bench --counters``).

Counting is done in a process of its own with a fixed hash seed: where sets are walked, order must not matter to what is
decided, but it may to how soon a search can stop.
"""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path

import msgspec

from bench import reforecast
from bench.bed import Bed
from bench.counters import counting, lines
from bench.crowd import Size, ask
from bench.earliest import bed as future_bed
from bench.earliest import questions
from bench.load import MIXES, batch
from bench.resolver import Bed as Scope
from bench.result import Row, Scale
from proof.flood.world import World
from tenure.engine import render
from tenure.engine.forecast import Search

NAME = "counted"
ROOT = Path(__file__).resolve().parents[1]
Task = Callable[[], int]
"""Does some work, and tells how many decisions or answers that was."""


def run(scale: Scale, folder: Path) -> list[Row]:
    return msgspec.json.decode(in_a_process(), type=list[Row])


def in_a_process(*only: str) -> bytes:
    """What a process prints that counts everything, or only tasks whose names begin so."""
    environ = os.environ | {"PYTHONHASHSEED": "0"}
    command = [sys.executable, "-m", "bench.counted", *only]
    return subprocess.run(command, env=environ, cwd=ROOT, stdout=subprocess.PIPE, check=True).stdout


def rows(*only: str) -> Iterator[Row]:
    for what, make in tasks():
        if only and not what.startswith(only):
            continue
        task = make()
        task()  # what is made once, and kept
        with counting() as work:
            count = task()
        with lines() as seen:
            task()
        yield Row(bench=NAME, what=f"{what}: steps", measured=work.total() / count, unit="steps", steady=True,
                  detail=dict(work))  # fmt: skip
        yield Row(bench=NAME, what=f"{what}: lines", measured=seen.count / count, unit="lines", steady=True)


def tasks() -> Iterator[tuple[str, Callable[[], Task]]]:
    """What is counted, by name, and how its bed is made."""
    for gpus in (1_000, 4_000):
        yield f"an admission, {gpus:,} GPUs", partial(_admissions, gpus)
    yield "headroom of a budget", _headroom
    yield "the earliest start, 256 leases and 20 reservations", _earliest
    yield "a promised start planned again, with 47 others", _again
    yield "one more run promised a start behind 60", partial(_one_more, "team")
    yield "one more run without a promise behind 60", partial(_one_more, "")
    yield "a small run starts behind a flood of 500", _small
    yield "a run ends, and a flood of 500 stays where it is", _end
    yield "a dry run of the resolver, 100 groups", _dry_run


def _admissions(gpus: int) -> Task:
    bed = Bed.build(gpus)

    def task() -> int:
        asks = [batch(number) for number in range(len(MIXES))]
        for some in asks:
            bed.admit(some, bed.decided)
        return sum(map(len, asks))

    return task


def _headroom() -> Task:
    bed = Bed.build(1_000)

    def task() -> int:
        for name in sorted(bed.state.budgets):
            render.budget(bed.state, bed.state.budgets[name], now=bed.now)
        return len(bed.state.budgets)

    return task


def _earliest() -> Task:
    crowd, asked = future_bed(Size(domains=16, nodes=16, gpus=8), 256, 20), questions(unit=16)

    def task() -> int:
        for demand in asked.values():
            found = Search(crowd.state, demand, now=crowd.now).earliest(since=crowd.now, limit=None)
            assert found is not None
        return len(asked)

    return task


def _again() -> Task:
    """All nodes that are promised are closed and opened again: every promise is broken, and planned anew."""
    crowd = reforecast.bed(60)

    def task() -> int:
        reforecast.all_promised(crowd, 0)
        return len(crowd.promised)

    return task


def _one_more(team: str) -> Task:
    """A run comes and is taken back. Of a team that holds no promise, it is promised a start behind the queue; of whom
    the queue is, it has to wait without one."""
    crowd = reforecast.bed(60, teams=("team",))

    def task() -> int:
        for number in range(5):
            run = ask(f"more-{number}", 8, seconds=3_600, team=team)
            if team:
                crowd.promise([run])
            else:
                crowd.wait([run])
            crowd.take_back(run)
        return 5

    return task


def _small() -> Task:
    """What starts is left running: its end is counted apart."""
    world = _flooded()

    def task() -> int:
        for number in range(8):
            world.bind(world.submit(number)[1])
        return 8

    return task


def _flooded() -> World:
    world = World()
    for _ in world.flood(500):
        pass
    return world


def _end() -> Task:
    world = _flooded()

    def task() -> int:
        _, pods = world.submit(0)
        world.bind(pods)
        world.end(pods)
        return 1

    return task


def _dry_run() -> Task:
    scope = Scope(100)

    def task() -> int:
        scope.dry_run(0)
        return 1

    return task


if __name__ == "__main__":
    sys.stdout.buffer.write(msgspec.json.encode(list(rows(*sys.argv[1:]))))
