"""Promise: a thousand runs of 8 GPUs that are submitted at once to 1,250 nodes run, all leases and pods written, in at
most 1.5 times what a bare client needs for the same writes; an admitted run costs at most its pods, its leases and
three more writes.

Both sides begin with the submission (32 in flight) and end when the last pod runs and the last status is told. The bare
client writes for each run what the operator wrote for one: the run, its lease, its pod, its finalizer, its status, run
after run with 32 in hand; the ledger it does not write. Each round has a cluster of its own, and every other round
begins with the other side.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable
from pathlib import Path
from statistics import median

from msgspec import Struct

from bench.kube import left_out
from bench.kube.bare import Seen, at_once
from bench.kube.bed import GPUS, Cluster, make_run, settle
from bench.kube.pattern import Pattern
from bench.result import Row, Scale
from tenure.testing.kube import until

NAME = "kube-admit"
GOAL, WRITES = 1.5, 3
SIZES = {"full": (1_000, 1_250, 2), "quick": (200, 250, 2), "tiny": (4, 5, 1)}
"""Runs, nodes, rounds."""
PATTERN = "pattern-00000"


class Round(Struct):
    """What one cluster showed."""

    bare: float = 0.0
    bare_bound: float = 0.0
    """Until the last pod was written: what KWOK takes to run them is not in it."""
    operator: float = 0.0
    operator_bound: float = 0.0
    computed: float = 0.0
    writes: dict[str, int] = {}


def run(scale: Scale, folder: Path) -> list[Row]:
    if told := left_out(NAME):
        return told
    runs, nodes, rounds = SIZES[scale.name]
    found = [_round(folder / f"round-{number}", runs, nodes, bare_first=number % 2 == 0) for number in range(rounds)]
    extra = median(sum(one.writes.values()) / runs for one in found) - 2  # one pod and one lease each
    seconds = {"s_operator": median(one.operator for one in found), "s_bare": median(one.bare for one in found),
               "s_operator_computed": median(one.computed for one in found)}  # fmt: skip
    return [
        Row(bench=NAME, what=f"{runs:,} runs of {GPUS} GPUs, against the bare client's writes", goal=GOAL,
            measured=median(one.operator / one.bare for one in found), detail=seconds),
        Row(bench=NAME, what="the same until the last pod is bound, whatever KWOK takes to run it",
            measured=median(one.operator_bound / one.bare_bound for one in found)),
        Row(bench=NAME, what="writes for an admitted run beside its pods and leases", unit="writes", goal=WRITES,
            measured=max(extra, 0.01), detail=dict(found[-1].writes)),
    ]  # fmt: skip


def _round(folder: Path, runs: int, nodes: int, *, bare_first: bool) -> Round:
    folder.mkdir(parents=True)
    one = Round()
    with Cluster.started(folder, nodes=nodes) as cluster:
        pattern = _pattern(cluster)
        for side in (_bare, _operator) if bare_first else (_operator, _bare):
            side(cluster, pattern, runs, one)
            cluster.wipe("pods", "runs", "leases")
    return one


def _pattern(cluster: Cluster) -> Pattern:
    """What is written for one run, and everything warm."""
    with cluster.operator():
        cluster.api.create(make_run(PATTERN, GPUS)).must()
        until(lambda: cluster.is_running(PATTERN), 120)
        settle(cluster)
        pattern = Pattern.of(cluster, PATTERN, GPUS)
        cluster.api.delete(cluster.path("runs", PATTERN)).must()
        until(lambda: not cluster.items("runs") and not cluster.items("pods"))
    return pattern


def _operator(cluster: Cluster, pattern: Pattern, runs: int, one: Round) -> None:
    names = [f"admit-{number:07d}" for number in range(runs)]
    with cluster.operator() as worker:
        before, computed = settle(cluster), worker.processor()

        async def go() -> None:
            await cluster.admin.written(pattern.submit(cluster, name) for name in names)

        one.operator, one.operator_bound = timed(cluster, go, runs)
        one.computed = worker.processor() - computed
        one.writes = dict(settle(cluster) - before)
    leased = {item["spec"]["runRef"]["name"] for item in cluster.items("leases")}
    assert leased >= set(names), "every run has its lease"


def _bare(cluster: Cluster, pattern: Pattern, runs: int, one: Round) -> None:
    async def write(number: int) -> None:
        name = f"plain-{number:07d}"
        uid = (await cluster.admin.sent(pattern.submit(cluster, name))).metadata.uid
        for request in pattern.gang(cluster, name, uid, number):
            await cluster.bare.sent(request)
        await cluster.bare.sent(pattern.finalize(cluster, name))
        await cluster.bare.sent(pattern.tell(cluster, name, uid))

    async def go() -> None:
        await at_once(write(number) for number in range(runs))

    one.bare, one.bare_bound = timed(cluster, go, runs)


def timed(cluster: Cluster, work: Callable[[], Awaitable[None]], runs: int) -> tuple[float, float]:
    """Seconds until the work is done, all pods run and all runs say so; and until the last pod was written."""
    bound: dict[str, float] = {}

    def is_running(item: Seen) -> bool:
        if item.spec.node_name:
            bound.setdefault(item.metadata.name, time.perf_counter())
        return item.status.phase == "Running"

    async def go() -> tuple[float, float]:
        plurals = ("pods", "runs")
        begun = [asyncio.Event() for _ in plurals]
        watches = [
            asyncio.ensure_future(cluster.admin.until(cluster.path(plural), is_running, runs, begun=event))
            for plural, event in zip(plurals, begun, strict=True)
        ]
        await asyncio.gather(*(event.wait() for event in begun))
        begin = time.perf_counter()
        await work()
        await asyncio.gather(*watches)
        return time.perf_counter() - begin, max(bound.values()) - begin

    return cluster.loop.run_until_complete(go())
