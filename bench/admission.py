"""Promise: a full admission at 1,000,000 GPUs takes at most 2.5 times what it takes at 1,000.

Full admission is funding, placing, binding and the commit to a ledger on disk, of runs that can start and of runs that
cannot, in fleets that are nine tenths full. Some of those get a reservation: a start among the ends that running work
declared, or (where nobody is as patient as that) a start on cuts, after a dry run of the resolver and with the odds of
all whom it may hit. The same requests go to both fleets in turns, some twenty to a commit.
What an image of the state costs (there is one in so many entries) is shared out over those entries and added.

The disk takes its time at any size, which makes the ratio by the wall clock look good; so the processor's time alone
must keep the promise too.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from bench.bed import Bed, Decide
from bench.counters import Work, counting, growth
from bench.load import ANSWERS, MIXES, Answer, batch
from bench.measure import Clock, Side, Times, in_turns
from bench.result import Row, Scale
from tenure.api.policy import Policy

NAME = "admission"
GOAL = 2.5
_SORTS: dict[str, tuple[Answer, ...]] = {
    "all runs": ANSWERS,
    "runs that can start": ("start",),
    "runs that cannot": ("wait", "never"),
}
_CLOCKS: dict[Clock, str] = {"wall": "", "cpu": ", processor time"}


def run(scale: Scale, folder: Path) -> list[Row]:
    beds = {gpus: Bed.build(gpus, file=folder / f"fleet-{gpus}.db") for gpus in (scale.small, scale.large)}
    try:
        return [
            *_images(beds), *_committed(beds, scale), *_on_cuts(beds, scale), *_engine_alone(beds, scale),
            *_counted(beds, scale),
        ]  # fmt: skip
    finally:
        for bed in beds.values():
            bed.close()


def _images(beds: dict[int, Bed]) -> list[Row]:
    share = {gpus: bed.measure_images() for gpus, bed in beds.items()}
    return [
        Row(bench=NAME, what=f"images of the state at {gpus:,} GPUs, shared out over entries", unit="us an entry",
            measured=share[gpus] * 1e6)
        for gpus in beds
    ]  # fmt: skip


def _committed(beds: dict[int, Bed], scale: Scale) -> Iterator[Row]:
    for sort, answers in _SORTS.items():
        sides = {str(gpus): _side(bed, bed.committed, answers) for gpus, bed in beds.items()}
        times = in_turns(sides, rounds=scale.rounds)
        for clock, note in _CLOCKS.items():
            yield _row(times, scale, f"{sort}, committed{note}", clock=clock, goal=GOAL)


def _on_cuts(beds: dict[int, Bed], scale: Scale) -> Iterator[Row]:
    """Waiting runs under a policy that is too impatient for declared ends."""
    for bed in beds.values():
        bed.set_policy(Policy(patience="1h"))
    sides = {str(gpus): _side(bed, bed.committed, ("wait",)) for gpus, bed in beds.items()}
    yield _row(in_turns(sides, rounds=max(2, scale.rounds // 10)), scale,
               "runs that wait for cuts, committed, processor time", clock="cpu", goal=GOAL)  # fmt: skip
    for bed in beds.values():
        bed.set_policy(Policy())


def _engine_alone(beds: dict[int, Bed], scale: Scale) -> Iterator[Row]:
    """Last, because it leaves the ledgers behind the states."""
    for sort, answers in _SORTS.items():
        sides = {str(gpus): _side(bed, bed.decided, answers) for gpus, bed in beds.items()}
        yield _row(in_turns(sides, rounds=scale.rounds), scale, f"{sort}, engine alone", clock="cpu")


def _side(bed: Bed, decide: Decide, answers: tuple[Answer, ...]) -> Side:
    return lambda number: bed.admit(batch(number, answers=answers), decide)


def _row(times: Times, scale: Scale, what: str, *, clock: Clock, goal: float | None = None) -> Row:
    small, large = str(scale.small), str(scale.large)
    micros = {f"us_at_{side}": round(times.median(side, clock) * 1e6, 1) for side in (small, large)}
    return Row(
        bench=NAME, what=f"{scale.large:,} against {scale.small:,} GPUs: {what}", goal=goal, detail=micros,
        measured=times.ratio(large, small, clock),
    )  # fmt: skip


# --- counted work ---------------------------------------------------------------------------------------------------


def work(bed: Bed) -> Work:
    """What is counted for one batch of each mix, in a fleet that has seen them before."""
    for number in range(len(MIXES)):
        bed.admit(batch(number), bed.decided)
    with counting() as seen:
        for number in range(len(MIXES)):
            bed.admit(batch(number), bed.decided)
    return seen


def _counted(beds: dict[int, Bed], scale: Scale) -> Iterator[Row]:
    small, large = work(beds[scale.small]), work(beds[scale.large])
    yield Row(
        bench=NAME, what=f"{scale.large:,} against {scale.small:,} GPUs: counted steps of the engine",
        measured=growth(small, large), goal=GOAL, detail={"small": dict(small), "large": dict(large)},
    )  # fmt: skip
