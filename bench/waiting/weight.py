"""Promise: with 100,000 runs that wait, a fleet is rebuilt within 10 s, from its entries or from an image, and decides
alike from then on; each of them takes at most 8 KiB of memory.

The fleet of `saturated`, on a ledger on disk, with an entry for each run that came. Processes that have done nothing
else open it: one folds every entry, one takes the newest image and what came since. Told is what they computed, and how
much more memory they have than before, garbage collected, for each run that waits; those that run, and machines, are
counted in. Then the fleet itself and what both ways give are asked the same: runs end, and others come.

Not shown: the templates of pods, which are as large as tenants write them; finished runs, which are deleted here; what
a cluster's operator keeps beside the engine (`kube-memory`); the peak while it is rebuilt.
"""

from __future__ import annotations

import gc
import os
import re
import subprocess
import sys
from collections.abc import Iterator, Sequence
from functools import partial
from itertools import islice
from pathlib import Path
from typing import Literal

import msgspec
from msgspec import Struct

from bench.measure import Stopwatch
from bench.result import Row, Scale
from bench.waiting.limit import Limit
from bench.waiting.side import Side, row
from bench.waiting.world import World
from tenure.engine import Apply, Event, Report, Sighting, State, dump, load, step
from tenure.facts import Fact, Placed
from tenure.ledger import Ledger
from tenure.shell.home import fold_entry, rebuild
from tenure.shell.ledger_store import LedgerStore
from tenure.units import MINUTE

NAME = "waiting-rebuild"
SECONDS, KIB = 10.0, 8.0
ROOT = Path(__file__).resolve().parents[2]
_STATUS = Path("/proc/self/status")
Way = Literal["entries", "image"]
WAYS: tuple[Way, ...] = ("entries", "image")


class Size(Struct, frozen=True):
    waiting: int
    settle: int
    asked: int
    limit: float


SIZES = {
    "full": Size(waiting=100_000, settle=100, asked=100, limit=900),
    "quick": Size(waiting=10_000, settle=30, asked=50, limit=120),
    "tiny": Size(waiting=50, settle=3, asked=5, limit=20),
}


class Weighed(Struct, frozen=True):
    """What a process found that opened the fleet."""

    seconds: float
    bytes: int


def run(scale: Scale, folder: Path) -> list[Row]:
    if not _STATUS.is_file():
        return [Row(bench=NAME, what="not measured: this system has no /proc/self/status", measured=0, unit="")]
    size, file = SIZES[scale.name], folder / "queue.db"
    ledger = Ledger.create(file, fleet="queue")
    with ledger:
        side = Side(partial(_world, size, ledger), size.limit)
        return [*_opened(size, file, side), *_alike(size, side)]


def _world(size: Size, ledger: Ledger) -> World:
    world = World(store=LedgerStore(ledger))
    world.fill(size.waiting, one_by_one=True)
    world.settle(size.settle)
    with world.home.store.write() as tx:
        tx.save_snapshot(dump(world.home.state))
    return world


# --- opened by others -----------------------------------------------------------------------------------------------


def _opened(size: Size, file: Path, side: Side) -> Iterator[Row]:
    for way in WAYS:
        found = None if side.is_over else _in_a_process(file, way, size.limit)
        seconds, kib = (None, None) if found is None else (found.seconds, found.bytes / size.waiting / 1024)
        tell = partial(row, NAME, limit=side.limit)
        yield tell(f"{size.waiting:,} waiting: rebuilt from {_SAYS[way]}", seconds, unit="s", goal=SECONDS)
        yield tell(f"{size.waiting:,} waiting: memory of each, rebuilt from {_SAYS[way]}", kib, unit="KiB", goal=KIB)


_SAYS: dict[Way, str] = {"entries": "all entries", "image": "an image"}


def _in_a_process(file: Path, way: Way, limit: float) -> Weighed | None:
    command = [sys.executable, "-m", "bench.waiting.weight", str(file), way, f"{limit:g}"]
    told = subprocess.run(command, cwd=ROOT, env=os.environ | {"PYTHONHASHSEED": "0"}, stdout=subprocess.PIPE,
                          check=True).stdout  # fmt: skip
    return msgspec.json.decode(told, type=Weighed | None)


def weigh(file: Path, way: Way) -> Weighed:
    """Open the fleet in this process, which has nothing else in memory."""
    store = LedgerStore(Ledger.open(file))
    before = _resident()
    with Stopwatch() as watch:
        state = from_entries(store) if way == "entries" else rebuild(store)[0]
    gc.collect()
    after = _resident()
    assert state.runs, "the fleet is there"
    return Weighed(watch.took.cpu, after - before)


def from_entries(store: LedgerStore) -> State:
    """The state that all entries give, whatever images there are."""
    state = State(store.fleet)
    for entry in store.entries():
        fold_entry(state, entry)
    return state


def _resident() -> int:
    found = re.search(r"^VmRSS:\s+(\d+) kB", _STATUS.read_text(), re.MULTILINE)
    assert found is not None
    return int(found[1]) * 1024


# --- asked the same -------------------------------------------------------------------------------------------------


def _alike(size: Size, side: Side) -> Iterator[Row]:
    found = side.do(partial(alike, asked=size.asked))
    for way in WAYS:
        yield row(NAME, f"{size.waiting:,} waiting: decisions alike, rebuilt from {_SAYS[way]}",
                  None if found is None else found[way], side.limit, unit="%", goal=100, sense="at least")  # fmt: skip


def alike(world: World, *, asked: int) -> dict[Way, float]:
    """Per cent of decisions that are the same, fact by fact, in the fleet and in what was rebuilt of it."""
    store = world.home.store
    assert isinstance(store, LedgerStore)
    states = [world.home.state, from_entries(store), load(dump(world.home.state))]
    same = dict.fromkeys(WAYS, 0)
    events = 0
    for number in range(asked):
        world.now += MINUTE
        for event in _events(world, number):
            facts = [_decided(world, state, event) for state in states]
            events += 1
            for way, those in zip(WAYS, facts[1:], strict=True):
                same[way] += those == facts[0]
    return {way: 100 * count / events for way, count in same.items()}


def _events(world: World, number: int) -> Iterator[Event]:
    """One that runs ends, and another one comes."""
    key = next(iter(world.running))
    yield Report(tuple(Sighting(pod.key, "Succeeded", 0) for pod in world.running.pop(key)))
    for job in islice(world.supply, 1):
        world.jobs[job.key] = job
        yield Apply((job.run(world.now),), named=True)


def _decided(world: World, state: State, event: Event) -> Sequence[Fact]:
    """The engine alone; pods bind at once. The store falls behind, and is of no use afterwards."""
    state.head = world.home.store.head.hash
    facts = step(state, event, now=world.now).facts
    placed = tuple(Sighting(fact.pod.key, "Bound") for fact in facts if isinstance(fact, Placed))
    return (*facts, *step(state, Report(placed), now=world.now).facts) if placed else facts


if __name__ == "__main__":
    path, chosen, seconds = sys.argv[1:]
    assert chosen in WAYS
    weighed = Limit(float(seconds)).run(lambda: weigh(Path(path), "entries" if chosen == "entries" else "image"))
    print(msgspec.json.encode(weighed).decode())
