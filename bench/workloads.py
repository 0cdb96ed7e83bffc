"""Promise: on seven workloads of real jobs the mean wait is on average at most 1.05 times that of EASY on the same
declarations, and on none above 1.35; wide runs wait at most 1.10 times as long, the longest wait is at most 1.3 times
EASY's; no promise is moved later or missed; 30 days of the mix take at most 60 seconds of the engine's time with
durations declared twice too long, and 60 days of MetaCentrum at most 120.

The seven are those of ``estimates``: the mix (philly-vc, and kalos-llm three times as fast, on 28 domains of 8 nodes of
8 GPUs) with true durations, twice as much, a random ratio (a run takes 5 to 100 % of what it declares) and steps of
1 h, 2 h, 4 h and so on; MetaCentrum (on 15 domains of 10 nodes of 8) with what its users requested, true durations and
twice as much. The whole engine plays them, node by node, with a budget for each owner. Each is played several times
with submissions moved by up to an hour at random, and every figure is held against EASY in the same replica, since
single traces hang on a few wide runs. The first replica is audited.

Beside these: a promise for a window 20 days off, as number 1 of the mix; an owner who floods the mix with 20,000 runs
on day 14, against places that are dealt by age alone.

Not shown: cuts. ``patience`` outlasts the traces, so that nobody is cut: by the default of a day, and by what decides
on cuts today, thousands would be drawn. Faults and money that is short. EASY knows one number of GPUs, no machines
and no money. Wide are runs of 256 GPUs and more (mix), of 64 (MetaCentrum).
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from concurrent.futures import ProcessPoolExecutor
from contextlib import contextmanager
from multiprocessing import get_context
from pathlib import Path
from statistics import fmean
from typing import Any

from msgspec import Struct
from msgspec.structs import replace

from bench import mix
from bench.estimates import META, MIX, WORKLOADS, Workload, declare, scattered
from bench.result import Row, Scale
from tenure.api.budget import Budget
from tenure.api.policy import Policy
from tenure.engine import admit
from tenure.simulate.reference import count, easy
from tenure.simulate.replay import START, Replay, Setting
from tenure.simulate.replay_world import Machines, ample_budgets, uniform_nodes
from tenure.simulate.trace import Job, merge, read_trace
from tenure.units import DAY, HOUR, Instant, Micros, format_time

NAME = "workloads"
JOBS = 2
"""Processes at a time."""
FLEETS = {1_792: "28x8x8", 1_200: "15x10x8"}
WIDE = {1_792: 256, 1_200: 64}
PATIENT = Policy(patience="8760h")
MEAN, WORST, WIDE_MEAN, LONGEST = 1.05, 1.35, 1.10, 1.3
SECONDS = {"mix, x2": 60.0, "metacentrum, requested": 120.0}
DISTANT, FLOODED = 1.1, 0.5
WINDOW, FLOOD_AT, FLOOD, AFTERWARDS = 20 * DAY, 14 * DAY, 20_000, 3 * DAY
_REPLICAS = {"full": 8, "quick": 2, "tiny": 1}
_UNTIL: dict[str, Instant] = {"full": 400 * DAY, "quick": 400 * DAY, "tiny": DAY}

Wait = tuple[Job, Micros]


class Played(Struct, frozen=True):
    """One replica, by Tenure and by EASY: hours, and what came of promises."""

    mean: float
    mean_easy: float
    wide: float
    wide_easy: float
    longest: float
    longest_easy: float
    promises: int
    moved: int
    missed: int
    facts: int
    seconds: float
    entries: int
    """Those that the auditor looked at."""
    violations: int
    jobs: int
    unstarted: int


def run(scale: Scale, folder: Path) -> list[Row]:
    if not all((mix.TRACES / name).is_file() for name in (*MIX, *META)):
        return [Row(bench=NAME, what="not measured: the traces do not lie beside this checkout", measured=0, unit="")]
    replicas, until = _REPLICAS[scale.name], _UNTIL[scale.name]
    asked = [(workload, number, until) for workload in WORKLOADS for number in range(replicas)]
    with ProcessPoolExecutor(JOBS, get_context("spawn")) as pool:
        others = [
            pool.submit(distant, until),
            *(pool.submit(flooded, until, by_age=by_age) for by_age in (False, True)),
        ]
        played = list(pool.map(_play, asked))
        window, *flood = (other.result() for other in others)
    found = {
        workload.name: played[index * replicas : (index + 1) * replicas] for index, workload in enumerate(WORKLOADS)
    }
    return [*_rows(found), _window(*window), _flood(*flood)]


# --- rows -----------------------------------------------------------------------------------------------------------


def _rows(found: dict[str, list[Played]]) -> Iterator[Row]:
    ratios = {name: fmean(_ratio(one.mean, one.mean_easy) for one in some) for name, some in found.items()}
    wide = [fmean(_ratio(one.wide, one.wide_easy) for one in some) for some in found.values()]
    longest = [fmean(_ratio(one.longest, one.longest_easy) for one in some) for some in found.values()]
    yield _steady("mean wait against EASY, average of the seven", fmean(ratios.values()), MEAN)
    yield _steady("mean wait against EASY, the worst of the seven", max(ratios.values()), WORST)
    yield _steady("wide runs: mean wait against EASY, average of the seven", fmean(wide), WIDE_MEAN)
    yield _steady("longest wait against EASY, average of the seven", fmean(longest), LONGEST)
    for (name, some), wider, longer in zip(found.items(), wide, longest, strict=True):
        detail = {"h": _mean(one.mean for one in some), "h_easy": _mean(one.mean_easy for one in some),
                  "wide": round(wider, 2), "longest": round(longer, 2), "replicas": len(some),
                  "from": round(min(_ratio(one.mean, one.mean_easy) for one in some), 2),
                  "to": round(max(_ratio(one.mean, one.mean_easy) for one in some), 2)}  # fmt: skip
        yield _steady(f"{name}: mean wait against EASY", ratios[name], None, detail=detail)
        made = sum(one.promises for one in some)
        yield _share(f"{name}: promises that were never moved later", sum(one.moved for one in some), made)
        yield _share(f"{name}: promises that were not missed", sum(one.missed for one in some), made)
        yield _share(f"{name}: jobs that started", sum(one.unstarted for one in some), sum(one.jobs for one in some))
        yield _share(f"{name}: entries of the first replica without a violation", some[0].violations, some[0].entries)
        yield Row(bench=NAME, what=f"{name}: engine, the slowest replica", measured=max(one.seconds for one in some),
                  unit="s", goal=SECONDS.get(name), detail={"facts": max(one.facts for one in some)})  # fmt: skip


def _steady(what: str, measured: float, goal: float | None, **other: Any) -> Row:
    """Played, not timed: the same on every machine."""
    return Row(bench=NAME, what=what, measured=measured, goal=goal, steady=True, **other)


def _share(what: str, bad: int, of: int) -> Row:
    share = 100 * (of - bad) / of if of else 100.0
    return Row(bench=NAME, what=f"{what}, of {of:,}", measured=share, unit="%", goal=100, sense="at least")


def _window(without: float, beside: float) -> Row:
    what = "a promise for a window 20 days off, as number 1 of the mix: mean wait against without"
    return _steady(what, _ratio(beside, without), DISTANT, detail={"h": beside, "h_without": without})


def _flood(dealt: float, by_age: float) -> Row:
    what = f"{FLOOD:,} runs of one owner on day 14: others' mean wait for 3 days, against places by age"
    return _steady(what, _ratio(dealt, by_age), FLOODED, detail={"h": dealt, "h_by_age": by_age})


def _ratio(one: float, other: float) -> float:
    return one / other if other else 1.0


def _mean(values: Iterable[float]) -> float:
    return round(fmean(values), 2)


# --- worlds ---------------------------------------------------------------------------------------------------------


def jobs_of(workload: Workload, number: int, *, until: Instant = 400 * DAY) -> list[Job]:
    """The jobs of a replica, which ask for what they are to declare."""
    traces = []
    for name, scale in workload.files.items():
        with (mix.TRACES / name).open(encoding="utf-8", newline="") as file:
            traces.append(read_trace(file, source=name, scale=scale))
    return [
        replace(job, submit=job.submit + scattered(f"{number}/{job.name}", HOUR),
                requested=declare(job, workload.declares))
        for job in merge(traces) if job.submit <= until
    ]  # fmt: skip


def setting_of(jobs: list[Job], gpus: int, *, objects: tuple[Budget, ...] = ()) -> Setting:
    """The fleet of so many GPUs, with ample money for all but those whose budgets are given."""
    nodes = uniform_nodes(FLEETS[gpus])
    assert nodes is not None
    machines = Machines(nodes, PATIENT)
    kept, left_out = machines.sort(jobs)
    assert not left_out, "every job fits the fleet"
    owners = {job.owner for job in jobs} - {budget.spec.owner for budget in objects}
    return Setting(jobs=kept, nodes=nodes, objects=(*ample_budgets(owners, machines), *objects), policy=PATIENT,
                   gpus=machines.total, declare="requested")  # fmt: skip


def _play(asked: tuple[Workload, int, Instant]) -> Played:
    workload, number, until = asked
    jobs = jobs_of(workload, number, until=until)
    replay = Replay(setting_of(jobs, workload.gpus), audited=number == 0)
    found, waits = replay.play(), replay.watch.tally.waits
    stays = easy(jobs, workload.gpus, declare="requested")
    theirs = count("easy", stays, gpus=workload.gpus, horizon=0).waits
    least = WIDE[workload.gpus]
    return Played(
        mean=hours(waits), mean_easy=hours(theirs), wide=hours(waits, least), wide_easy=hours(theirs, least),
        longest=max(wait for _, wait in waits) / HOUR, longest_easy=max(wait for _, wait in theirs) / HOUR,
        promises=found.promises.made, moved=found.promises.moved_later, missed=found.promises.missed,
        facts=found.work.facts, seconds=found.work.engine_seconds,
        entries=found.audit.entries, violations=found.audit.violations, jobs=len(jobs),
        unstarted=len(jobs) - len(waits),
    )  # fmt: skip


def hours(waits: Iterable[Wait], least: int = 0) -> float:
    """The mean wait of the runs that are at least so wide."""
    some = [wait for job, wait in waits if job.gpus >= least]
    return round(fmean(some) / HOUR, 3) if some else 0.0


def distant(until: Instant) -> tuple[float, float]:
    """The mean wait on the mix without, and beside, a run of 64 GPUs whose money opens in 20 days."""
    workload = WORKLOADS[0]
    jobs = jobs_of(workload, 0, until=until)
    first = Job(id="window", name="window", owner="window", submit=0, duration=HOUR, requested=HOUR, gpus=64)
    (ample,) = ample_budgets({"window"}, Machines(uniform_nodes(FLEETS[workload.gpus]) or (), PATIENT))
    opens = tuple(replace(one, start=format_time(START + WINDOW)) for one in ample.spec.envelopes)
    late = replace(ample, spec=replace(ample.spec, envelopes=opens))
    found = []
    for setting in (setting_of(jobs, workload.gpus), setting_of([first, *jobs], workload.gpus, objects=(late,))):
        replay = Replay(setting, audited=False)
        replay.play()
        found.append(hours(wait for wait in replay.watch.tally.waits if wait[0].owner != "window"))
    return found[0], found[1]


def flooded(until: Instant, *, by_age: bool) -> float:
    """How long others wait who come in the three days after a flood."""
    workload = WORKLOADS[0]
    size = FLOOD if until > FLOOD_AT else 0
    some = [Job(id=f"flood-{n}", name=f"flood-{n}", owner="flood", submit=FLOOD_AT, duration=4 * HOUR,
                requested=4 * HOUR, gpus=1) for n in range(size)]  # fmt: skip
    jobs = [*jobs_of(workload, 0, until=min(until, FLOOD_AT + AFTERWARDS)), *some]
    with _dealt_by_age(by_age):
        replay = Replay(setting_of(jobs, workload.gpus), audited=False)
        replay.play()
    after = (wait for wait in replay.watch.tally.waits if wait[0].owner != "flood" and wait[0].submit >= FLOOD_AT)
    return hours(after)


@contextmanager
def _dealt_by_age(by_age: bool) -> Iterator[None]:
    """No quarter of the places for owners that hold none: all are dealt by age."""
    usual = admit.SCARCE
    if by_age:
        admit.SCARCE = 10**9
    try:
        yield
    finally:
        admit.SCARCE = usual
