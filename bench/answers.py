"""Promise: answers while many wait. With 100,000 runs waiting in an embedded fleet, `submit`, `describe` of a run and
`list` of a namespace of 20 runs cost at most 1.5 times what they cost with 1,000, and `list` of all of them takes at
most 5 s. `list` with 1,000 waiting runs, no two of which ask for the same, costs at most 1.5 times what it costs with
none. What else a waiting run could ask for is answered in 60 ms (p50) and 300 ms (p95), with 1,000 waiting.

The fleets are those of `saturated`, in files of their own, with an image of the state as it is at the end. The commands
are processes as people start them, one after the other, on a fleet that is driven (what is submitted is decided on at
once), and all their processor time counts: Python, its modules (compiled before), the file, the answer. Each command
asks anew; none finds anything that another one has left.

None waiting means as many runs of 1 GPU that all run: the list is as long (it has 5 % more lines where 1,000 wait,
those of the runs that they wait for). Both lists are tables of all namespaces. They are compared twice: in a new fleet,
and where half a hundred runs have ended, so that estimates have a history to learn from and replay the queue 16 times.

What else a run could ask for (`tenure.engine.alternatives`, which `plan` and `explain` print) is asked of the engine
alone, of waiting runs of all ages.

Not shown: what is done once a minute or less (images of the state, which a writer makes after so many entries);
entries since the last image, which whoever opens the file takes in first; `-o json`; clusters; more than one flavor;
money that is short; the disk.
"""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from itertools import islice
from pathlib import Path
from time import perf_counter

import msgspec
from msgspec import Struct
from msgspec.structs import replace

from bench.measure import Stopwatch, Times, Took, in_turns, still
from bench.result import Row, Scale
from bench.waiting.limit import Limit
from bench.waiting.side import Side, part, rounded, row
from bench.waiting.world import AMPLE, Load, World, jobs
from tenure.api.meta import to_wire
from tenure.api.run import Run
from tenure.embedded.driver import DriverLock
from tenure.engine import dump
from tenure.engine.alternatives import alternatives
from tenure.ledger import Ledger
from tenure.shell.ledger_store import LedgerStore

NAME = "answers"
FLAT, SECONDS, LISTED, P50, P95 = 1.5, 5.0, 1.5, 60.0, 300.0
SMALL, RUNS = "eve", 20
"""The namespace that is listed, and how many runs it has."""
COMMANDS = ("submit", "describe", "list")


class Size(Struct, frozen=True):
    waiting: tuple[int, int]
    listed: int
    """Runs that wait, or none of which waits, where lists of the same length are compared."""
    asked: int
    """Waiting runs that are asked what else they could do."""
    settle: int
    rounds: int
    limit: float
    """Seconds of processor time to make a fleet."""


SIZES = {
    "full": Size(waiting=(1_000, 100_000), listed=1_000, asked=250, settle=50, rounds=7, limit=300),
    "quick": Size(waiting=(1_000, 10_000), listed=1_000, asked=100, settle=50, rounds=3, limit=60),
    "tiny": Size(waiting=(30, 60), listed=30, asked=10, settle=5, rounds=1, limit=20),
}


def run(scale: Scale, folder: Path) -> list[Row]:
    size = SIZES[scale.name]
    environ = os.environ | {"PYTHONDONTWRITEBYTECODE": "", "PYTHONPYCACHEPREFIX": str(folder / "compiled")}
    return [*_behind(size, folder, environ), *_listed(size, folder, environ), *_elsewise(size)]


# --- many and few ---------------------------------------------------------------------------------------------------


def _behind(size: Size, folder: Path, environ: Mapping[str, str]) -> Iterator[Row]:
    few, many = size.waiting
    limit = Limit(size.limit)
    files = {count: folder / f"waiting-{count}.db" for count in size.waiting}
    made = limit.run(lambda: [make(files[count], count, settle=size.settle) for count in size.waiting])
    tell = partial(row, NAME, limit=limit)
    times, whole = None, None
    if made is not None:
        with DriverLock(files[few]), DriverLock(files[many]):
            sides = {f"{verb} {count}": partial(_asked, verb, files[count], folder, environ)
                     for verb in COMMANDS for count in size.waiting}  # fmt: skip
            times = in_turns(sides, rounds=size.rounds)
            whole = in_turns({"all": partial(_took, _command(files[many], "list", "-A"), environ)},
                             rounds=max(1, size.rounds // 2), warm=0)  # fmt: skip
    for verb, what in zip(COMMANDS, ("`submit`", "`describe` of a run", f"`list` of {RUNS}"), strict=True):
        ratio, detail = _against(times, f"{verb} {many}", f"{verb} {few}")
        yield tell(f"{many:,} waiting against {few:,}: {what}", ratio, goal=FLAT, detail=detail)
        yield tell(f"{few:,} waiting: {what}", detail.get("ms_few"), unit="ms")
    yield tell(f"{many:,} waiting: `list` of all", whole and whole.median("all", "cpu"), unit="s", goal=SECONDS)


def make(file: Path, waiting: int, *, settle: int) -> None:
    """A fleet in a file, with so many waiting, some of them in a namespace of their own, and an image of it all."""
    with Ledger.create(file, fleet="answers") as ledger:
        world = World(store=LedgerStore(ledger), concurrency={SMALL: AMPLE})
        world.fill(waiting - RUNS)
        world.settle(settle)
        for job in islice(jobs(Load(), owners=(SMALL,), seed=2), RUNS):
            world.submit(job)
        _close(world, ledger)


def _close(world: World, ledger: Ledger) -> None:
    """The fleet stands at this instant, also for commands, and is opened from an image."""
    with world.home.store.write() as tx:
        tx.save_snapshot(dump(world.home.state))
    ledger.stop_clock(world.now)


def _asked(verb: str, file: Path, folder: Path, environ: Mapping[str, str], number: int) -> Took:
    words = {"describe": ("describe", "-n", SMALL, f"run-{RUNS - 1:07}"), "list": ("list", "-n", SMALL)}
    if verb != "submit":
        return _took(_command(file, *words[verb]), environ)
    manifest = folder / "run.json"
    manifest.write_bytes(msgspec.json.encode(to_wire(_new(number + 1))))
    return _took(_command(file, "submit", "-f", str(manifest)), environ)


def _new(number: int) -> Run:
    """What is submitted: one of the same runs, with a program, as people write it."""
    job = next(islice(jobs(Load(), owners=(SMALL,), seed=3), number, None))
    run = job.run()
    spec = replace(run.spec, template={"spec": {"containers": [{"name": "main", "command": ["sleep", "1"]}]}})
    return replace(run, metadata=replace(run.metadata, name=f"new-{number}"), spec=spec)


# --- none waiting ---------------------------------------------------------------------------------------------------


def _listed(size: Size, folder: Path, environ: Mapping[str, str]) -> Iterator[Row]:
    for name, ended in (("new", 0), ("old", size.settle)):
        limit = Limit(size.limit)
        files = {"waiting": folder / f"{name}-waiting.db", "none": folder / f"{name}-none.db"}
        made = limit.run(lambda files=files, ended=ended: _both(files, size.listed, ended))  # type: ignore[misc]  # inferred
        times = None
        if made is not None:
            with DriverLock(files["waiting"]), DriverLock(files["none"]):
                sides = {side: partial(_took, _command(file, "list", "-A"), environ) for side, file in files.items()}
                times = in_turns(sides, rounds=2 * size.rounds)
        ratio, detail = _against(times, "waiting", "none")
        yield row(NAME, f"{size.listed:,} waiting against none, {_ENDED[name]}: `list`, distinct demands", ratio, limit,
                  goal=LISTED, detail=detail)  # fmt: skip


_ENDED = {"new": "in a new fleet", "old": "where others have ended"}


def _both(files: Mapping[str, Path], count: int, ended: int) -> bool:
    make_distinct(files["waiting"], count, ended=ended)
    make_running(files["none"], count, ended=ended)
    return True


def make_distinct(file: Path, waiting: int, *, ended: int) -> None:
    """So many wait, each for another length of time."""
    with Ledger.create(file, fleet="answers") as ledger:
        world = World(store=LedgerStore(ledger), load=Load(distinct=True))
        world.fill(waiting)
        world.settle(ended)
        _close(world, ledger)


def make_running(file: Path, running: int, *, ended: int) -> None:
    """So many run, and none waits; as many have ended before as where they wait."""
    with Ledger.create(file, fleet="answers") as ledger:
        world = World(store=LedgerStore(ledger))
        world.supply = jobs(Load(distinct=True), widths=(1,))
        world.submit_all([*islice(world.supply, running)], world.now)
        world.settle(ended)
        assert not world.waiting
        _close(world, ledger)


# --- what else ------------------------------------------------------------------------------------------------------


def _elsewise(size: Size) -> Iterator[Row]:
    side = Side(partial(_world, size), size.limit)
    with still():
        found = side.do(partial(asked_else, count=size.asked))
    ms = [] if found is None else [1000 * one for one in found]
    tell, what = (
        partial(row, NAME, limit=side.limit, unit="ms"),
        f"{size.listed:,} waiting: what else one could ask for",
    )
    yield tell(f"{what}, p50", part(ms, 0.5), goal=P50, detail=rounded(worst=part(ms, 1.0)))
    yield tell(f"{what}, p95", part(ms, 0.95), goal=P95)


def _world(size: Size) -> World:
    world = World()
    world.fill(size.listed)
    world.settle(3 * size.settle)
    return world


def asked_else(world: World, *, count: int) -> list[float]:
    """Seconds of each question; the runs are those that wait, of all ages alike."""
    state = world.home.state
    rows = sorted((row for row in state.runs.values() if row.life.phase == "Pending"), key=lambda row: row.order)
    took = []
    for one in rows[:: max(1, len(rows) // count)]:
        with Stopwatch() as watch:
            alternatives(state, one, now=world.now)
        took.append(watch.took.cpu)
    return took


# --- commands -------------------------------------------------------------------------------------------------------


def _command(file: Path, *words: str) -> list[str]:
    return [str(Path(sys.executable).with_name("kubectl-runs")), "--local", str(file), *words]


def _took(command: Sequence[str], environ: Mapping[str, str], _: int = 0) -> Took:
    """What a command took until it was over; that it answered is checked."""
    begin = perf_counter()
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, env=environ) as child:
        assert child.stdout is not None
        said = child.stdout.read()
        _, status, used = os.wait4(child.pid, 0)
        child.returncode = os.waitstatus_to_exitcode(status)
    if child.returncode or not said:
        raise RuntimeError(f"{' '.join(command)} said: {said.decode()[-1000:]}")
    return Took(perf_counter() - begin, used.ru_utime + used.ru_stime)


def _against(times: Times | None, many: str, few: str) -> tuple[float | None, dict[str, float]]:
    """How many times as much processor time, and how much that is."""
    if times is None:
        return None, {}
    ms = rounded(ms_few=1000 * times.median(few, "cpu"), ms_many=1000 * times.median(many, "cpu"))
    return times.ratio(many, few, "cpu"), ms
