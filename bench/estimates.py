"""Promise: by the likely start 45-65 % of the runs have started, by the latest likely 85-95 %; the mean error is at
most 0.4 times that of the plan from declarations; and estimates for 10,000 waiting runs take at most a second.

Seven workloads are made of two traces (``shared/traces``): the mix (philly-vc, and kalos-llm three times as fast, on
1,792 GPUs) and metacentrum (1,200). They declare the true run times, twice as much, a random ratio (the run takes 5 to
100 % of it), steps of 1 h, 2 h, 4 h and so on, or what the users requested. Each is played by a small queue of SPEC 7
(``queued``); now and then a run that was just submitted and has to wait asks for its estimate, with the history of
that instant and a correction learned from the bands before. Real starts say later how good it was.

Where declarations are true, two things differ. The plan from them errs only by who comes later, which nobody can
know: an estimate cannot be 2.5 times better there, and has to be no worse. And half of the starts are exactly as
estimated, so those count on either side: at least 45 % by the likely start, at most 65 % before it.

Not shown: topology, money, failures, cuts, work that declares nothing, and histories of other fleets. The
shares that the correction aims at (``coverage``) were chosen on these seven.
"""

from __future__ import annotations

from collections.abc import Iterator
from fractions import Fraction
from hashlib import blake2b
from pathlib import Path
from time import process_time
from typing import Literal

from msgspec import Struct

from bench import mix
from bench.queued import Ask, Queue
from bench.result import Row, Scale
from tenure.engine.estimate import (
    Band,
    Completed,
    Correction,
    Coverage,
    History,
    Past,
    Pool,
    Promised,
    Running,
    Waiting,
    estimate,
)
from tenure.simulate.trace import Job, merge, read_trace
from tenure.units import DAY, FOREVER, HOUR, Instant, Micros

NAME = "estimates"
MIX = {"philly-vc.csv": Fraction(1), "kalos-llm.csv": Fraction(3)}
META = {"metacentrum.csv": Fraction(1)}
_EVERY = {"full": 15, "quick": 50, "tiny": 50}
_UNTIL: dict[str, Instant] = {"full": FOREVER, "quick": FOREVER, "tiny": 20 * DAY}
_WAITING = {"full": 10_000, "quick": 10_000, "tiny": 500}
_STEPS = [hours * HOUR for hours in (1, 2, 4, 8, 12, 24, 48, 96, 168, 336, 720, 1440)]


ENOUGH = 100
"""Estimates from which on shares of them are judged."""
Sense = Literal["at most", "at least"]


class Workload(Struct, frozen=True):
    """A trace, what its jobs declare, and the fleet that plays them."""

    name: str
    files: dict[str, Fraction]
    gpus: int
    declares: str


WORKLOADS = (
    *(Workload(f"mix, {how}", MIX, 1_792, how) for how in ("true", "x2", "random", "rounded")),
    *(Workload(f"metacentrum, {how}", META, 1_200, how) for how in ("requested", "true", "x2")),
)


class Told(Struct, frozen=True):
    """One estimate, and what the declarations alone said."""

    key: str
    asked: Instant
    band: Band
    planned: Instant


def run(scale: Scale, folder: Path) -> list[Row]:
    rows = [_speed(_WAITING[scale.name])]
    if not all((mix.TRACES / name).is_file() for name in (*MIX, *META)):
        return [*rows, Row(bench=NAME, what="not measured: the traces do not lie beside this checkout", measured=0,
                           unit="")]  # fmt: skip
    for workload in WORKLOADS:
        told, started = play(workload, every=_EVERY[scale.name], until=_UNTIL[scale.name])
        rows += _rows(workload, told, started) if len(told) >= 20 else ()
    return rows


def _rows(workload: Workload, told: list[Told], started: dict[str, Instant]) -> Iterator[Row]:
    real = [started[one.key] for one in told]
    shown = [(one.band.likely or 0, one.band.latest or 0, at) for one, at in zip(told, real, strict=True)]
    kept, count = Coverage.measure(shown), max(1, len(told))
    before = sum(at < likely for likely, _, at in shown)
    errors = sum(abs(one.planned - at) for one, at in zip(told, real, strict=True))
    ratio = kept.sum_of_errors / errors if errors else 0.0
    detail = {"estimates": len(told), "exactly_then": kept.by_likely - before,
              "h_error": round(kept.sum_of_errors / count / HOUR, 2),
              "h_error_of_plan": round(errors / count / HOUR, 2)}  # fmt: skip
    # Played, not timed: the same on every machine.
    yield Row(bench=NAME, what=f"{workload.name}: mean error against the plan from declarations", measured=ratio,
              goal=1.0 if workload.declares == "true" else 0.4, steady=True, detail=detail)  # fmt: skip
    limits: tuple[tuple[str, int, Sense, int], ...]
    early = before if workload.declares == "true" else kept.by_likely
    limits = (
        ("by the likely start, at least", kept.by_likely, "at least", 45),
        ("by the likely start, at most", early, "at most", 65),
        ("by the latest start, at least", kept.by_latest, "at least", 85),
        ("by the latest start, at most", kept.by_latest, "at most", 95),
    )
    for by, share, sense, goal in limits:
        yield Row(bench=NAME, what=f"{workload.name}: started {by}", measured=100 * share / count, unit="% of them",
                  goal=goal if len(told) >= ENOUGH else None, sense=sense, steady=True)  # fmt: skip


# --- the workloads --------------------------------------------------------------------------------------------------


def play(workload: Workload, *, every: int, until: Instant = FOREVER) -> tuple[list[Told], dict[str, Instant]]:
    """Play a workload; every so many submissions one is estimated, if it has to wait. Answers who has started."""
    queue, history = Queue(workload.gpus), History()
    told: list[Told] = []
    numbers = iter(range(1, 10**9))

    def submitted(ask: Ask) -> None:
        if next(numbers) % every == 0 and ask.key not in queue.started:
            correction = Correction.learn([_past(one, queue.started) for one in told], queue.now)
            band = estimate(*world(queue), history, queue.now, correction=correction, only=[ask.key])[ask.key]
            told.append(Told(ask.key, queue.now, band, queue.planned(ask.key)))

    def ended(ask: Ask) -> None:
        history.add(Completed(ask.owner, ask.declared, ask.real))

    queue.play(asks(workload), submitted=submitted, ended=ended, until=until)
    return [one for one in told if one.key in queue.started], queue.started


def world(queue: Queue) -> tuple[Pool, list[Running], list[Promised], list[Waiting]]:
    """What an estimate is made from."""
    return (
        Pool(queue.free),
        [Running(ask.key, ask.owner, ask.gpus, start, start + ask.declared) for ask, start in queue.running.values()],
        [Promised(one.ask.key, one.ask.owner, one.ask.gpus, one.start, one.ask.declared) for one in queue.promises],
        [Waiting(ask.key, ask.owner, ask.gpus, ask.declared) for ask in queue.waiting],
    )


def asks(workload: Workload) -> list[Ask]:
    traces = []
    for name, scale in workload.files.items():
        with (mix.TRACES / name).open(encoding="utf-8", newline="") as file:
            traces.append(read_trace(file, source=name, scale=scale))
    return [
        Ask(job.name, job.owner, job.gpus, job.submit, declare(job, workload.declares), job.duration)
        for job in merge(traces)
    ]


def declare(job: Job, how: str) -> Micros:
    """How long a job says that it runs; never less than it does."""
    if how == "x2":
        return 2 * job.duration
    if how == "random":
        return job.duration * 100 // (5 + scattered(job.name, 96))
    if how == "rounded":
        return next((step for step in _STEPS if step >= job.duration), job.duration)
    return max(job.duration, job.requested or 0) if how == "requested" else job.duration


def _past(told: Told, started: dict[str, Instant]) -> Past:
    assert told.band.replayed is not None, "everything in these traces declares an end"
    return Past(told.asked, *told.band.replayed, started=started.get(told.key))


def scattered(text: str, below: int) -> int:
    return int.from_bytes(blake2b(text.encode(), digest_size=8).digest(), "big") % below


# --- how long it takes ----------------------------------------------------------------------------------------------


def _speed(count: int) -> Row:
    """The slowest of five queues of so many runs, behind 1,024 full GPUs."""
    found = {}
    for name, crowd in crowds(count).items():
        start = process_time()
        bands = estimate(*crowd, now=100 * HOUR)
        found[f"s_{name}"] = round(process_time() - start, 2)
        assert len(bands) >= count, "everybody is told something"
    return Row(bench=NAME, what=f"estimates for {count:,} waiting runs: processor time, the slowest of five queues",
               measured=max(found.values()), unit="s", goal=1.0, detail=found)  # fmt: skip


Crowd = tuple[Pool, list[Running], list[Promised], list[Waiting], History]


def crowds(count: int) -> dict[str, Crowd]:
    """Queues that differ in what costs: declared lengths that repeat, that never do, that are all true; nothing
    declared; and everybody short of money."""
    widths, hours = (1, 1, 1, 2, 4, 8, 8, 16, 32, 64), (1, 2, 4, 8, 24)
    now = 100 * HOUR
    real = History(
        Completed(f"org:{n % 20}", hours[n % 5] * HOUR, hours[n % 5] * HOUR * (5 + scattered(f"real-{n}", 96)) // 100)
        for n in range(2_000)
    )
    shapes = [
        (f"wait-{n}", f"org:{scattered(f'owner-{n}', 20)}", widths[scattered(f"width-{n}", 10)],
         hours[scattered(f"hours-{n}", 5)] * HOUR, scattered(f"less-{n}", 30) * HOUR // 60)
        for n in range(count)
    ]  # fmt: skip
    running = [
        Running(f"run-{n}", f"org:{n % 20}", 8, now - scattered(f"run-{n}", 60) * HOUR // 60, now + (n % 23) * HOUR)
        for n in range(128)
    ]
    undeclared = [one._replace(ends=None) for one in running]
    some = Pool(free=0)
    return {
        "repeated": (some, running, [], [Waiting(*shape[:4]) for shape in shapes], real),
        "distinct": (some, running, [], [Waiting(*shape[:3], shape[3] - shape[4]) for shape in shapes], real),
        "true": (some, running, [], [Waiting(*shape[:4]) for shape in shapes], History()),
        "undeclared": (some, undeclared, [], [Waiting(*shape[:3], None) for shape in shapes], real),
        "money": (some, running, [], [Waiting(*shape[:4], limit=96) for shape in shapes], real),
    }
