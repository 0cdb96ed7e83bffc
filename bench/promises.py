"""All benchmarks, by name, in the order in which they are measured and shown; every promise with what measures it."""

from __future__ import annotations

from pathlib import Path
from typing import Protocol

from msgspec import Struct

from bench import (
    admission,
    answers,
    commits,
    counted,
    earliest,
    estimates,
    evidence,
    exact,
    flood,
    growth,
    history,
    instructions,
    mix,
    reforecast,
    refusals,
    resolver,
    saturated,
    scan,
    slurm,
    startup,
    workloads,
)
from bench.kube import admit as kube_admit
from bench.kube import gang as kube_gang
from bench.kube import listing as kube_listing
from bench.kube import memory as kube_memory
from bench.kube import queue as kube_queue
from bench.result import Row, Scale
from bench.waiting import money as waiting_money
from bench.waiting import returns as waiting_returns
from bench.waiting import submissions as waiting_submissions
from bench.waiting import weight as waiting_weight


class Bench(Protocol):
    """A module that measures one promise; its docstring begins with the promise."""

    NAME: str
    __doc__: str | None

    def run(self, scale: Scale, folder: Path) -> list[Row]:
        """Measure, with files only in ``folder``."""
        ...


BENCHES: dict[str, Bench] = {
    bench.NAME: bench
    for bench in (
        admission,
        scan,
        history,
        exact,
        commits,
        startup,
        refusals,
        earliest,
        reforecast,
        saturated,
        waiting_submissions,
        waiting_returns,
        waiting_money,
        waiting_weight,
        answers,
        slurm,
        estimates,
        resolver,
        mix,
        workloads,
        kube_admit,
        kube_gang,
        kube_memory,
        kube_listing,
        kube_queue,
        flood,
        evidence,
        growth,
        counted,
        instructions,
    )
}


class Promised(Struct, frozen=True):
    """A number that an issue promises, and the command that shows whether it holds."""

    issue: int
    says: str
    by: str
    """A benchmark; or, with a blank in it, a command."""

    @property
    def command(self) -> str:
        return self.by if " " in self.by else f"python -m bench --only {self.by}"


PROMISED: tuple[Promised, ...] = (
    Promised(2, "an admission at 1,000,000 GPUs at most 2.5x of one at 1,000", "admission"),
    Promised(2, "at 100,000 GPUs at least 200x faster than a scan, placements identical", "scan"),
    Promised(2, "1,000,000 closed leases change admission, headroom, usage at most 1.2x", "history"),
    Promised(2, "incremental usage equals a fold from scratch, exactly", "exact"),
    Promised(2, "group commit at least 10x one commit per lease", "commits"),
    Promised(2, "a command's first byte within 150 ms (issue 5 again)", "startup"),
    Promised(2, "hostile input refused within 100 ms", "refusals"),
    Promised(3, "earliest start at 100,000 leases and 1,000 reservations at most 2x of 1,000 and 10", "earliest"),
    Promised(3, "a surprise breaks promises: behind 10,000 waiting runs at most 1.5x of 1,000", "reforecast"),
    Promised(18, "estimates: 45-65 % and 85-95 % start in time, error at most 0.4x of the plan", "estimates"),
    Promised(18, "estimates for 10,000 waiting runs within 1 s", "estimates"),
    Promised(3, "resolver: exponent at most 1.15 in its scope, not with the fleet", "resolver"),
    Promised(3, "mix of two traces: at most 0.45x FIFO, 1.25x EASY, nothing missed, 60 s", "mix"),
    Promised(18, "seven workloads: mean wait 1.05x EASY, wide 1.10x, longest 1.3x; none moved or missed", "workloads"),
    Promised(18, "a window 20 days off costs 1.1x; floods halve others' waits; 60 s, 120 s", "workloads"),
    Promised(4, "1,000 runs on 1,250 nodes at most 1.5x a bare client; pods + leases + 3 writes", "kube-admit"),
    Promised(4, "one run of 1,024 GPUs: p50 at most 2x the bare client", "kube-gang"),
    Promised(4, "operator at most 1 GiB, first decision within 30 s", "kube-memory"),
    Promised(4, "10,000 runs queued: decisions stay fast, nobody is starved", "kube-queue"),
    Promised(5, "`kubectl runs list` at most 2x `kubectl get`", "kube-list"),
    Promised(6, "behind 100,000 pending runs others' p99 decision at most 2x", "flood"),
    Promised(6, "metric series stay bounded; 24 virtual hours with flat memory", "flood"),
    Promised(6, "work counters and instruction counts within their ranges", "counted"),
    Promised(6, "instruction counts (callgrind)", "instructions"),
    Promised(6, "cost against fleet size, ledger size, backlog", "growth"),
    Promised(6, "what the commands below show, at the sizes that were promised", evidence.NAME),
    Promised(18, "an end behind 100 to 100,000 waiting: p50 5 ms, p99 25 ms, at most 1.5x, 24 facts", "saturated"),
    Promised(18, "the same with batches of equal age, and with all durations distinct: at most 1.2x", "saturated"),
    Promised(18, "submission: p50 1 ms, 1.2x behind 100,000; 10,000 in a second delay an end 0.5 s", "waiting-submit"),
    Promised(18, "128 nodes return behind 1,000 and 100,000: 5 ms a start, at most 1.2x", "waiting-return"),
    Promised(18, "behind 100,000 short of money: ends of others and own, 8 GPUs more, at most 1.2x", "waiting-money"),
    Promised(18, "`tenure up`, an end behind 100, 400 and 2,000 waiting: at most slurmctld's", "slurm"),
    Promised(18, "100,000 waiting: rebuilt within 10 s, decides alike, 8 KiB each", "waiting-rebuild"),
    Promised(18, "100,000 waiting: submit, describe, list of 20 at most 1.5x of 1,000; list of all 5 s", "answers"),
    Promised(18, "`list` with 1,000 waiting at most 1.5x of none; what else would help: 60 ms, p95 300 ms", "answers"),
    *(Promised(one.issue, one.says, one.command) for one in evidence.SHOWN),
)  # fmt: skip
"""Every number of the issues' "must hold"; a benchmark that is not in this list keeps no promise."""


def listed() -> str:
    """
    >>> listed().splitlines()[1]
    '2      an admission at 1,000,000 GPUs at most 2.5x of one at 1,000                              admission'
    """
    wide = max(len(one.says) for one in PROMISED)
    lines = [f"issue  {'promise':<{wide}}  measured by"]
    lines += [f"{one.issue:<5}  {one.says:<{wide}}  {one.by}" for one in PROMISED]
    return "\n".join(
        [*lines, "", "`python -m bench --only NAME` measures one; `evidence` runs the commands, one after the other."]
    )
