"""Promise: from the submission of one run of 1,024 GPUs to an idle operator until its last pod is bound takes, at p50,
at most twice what a bare client needs for the same writes.

The operator reads the run, decides, commits the decision to the ledger, and then writes 128 leases and 128 pods; the
bare client writes the run, the leases, the Service and the pods, as many at a time. What is bound is seen by a watch.
Sides take turns; the operator is stopped while the bare client writes, and has come to rest before it is measured.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable
from pathlib import Path
from statistics import median

from bench.kube import left_out
from bench.kube.bare import Seen
from bench.kube.bed import Cluster, make_run, settle
from bench.kube.pattern import Pattern
from bench.result import Row, Scale
from tenure.testing.kube import until

NAME = "kube-gang"
GOAL = 2.0
SIZES = {"full": (1_024, 1_250, 7), "quick": (1_024, 250, 3), "tiny": (16, 5, 1)}
"""GPUs, nodes, rounds."""
PATTERN = "pattern-00000"


def run(scale: Scale, folder: Path) -> list[Row]:
    if told := left_out(NAME):
        return told
    gpus, nodes, rounds = SIZES[scale.name]
    took: dict[str, list[float]] = {"operator": [], "bare": []}
    with Cluster.started(folder, nodes=nodes) as cluster:
        pattern = _pattern(cluster, gpus)
        sides = {"bare": _bare, "operator": _operator}
        for number in range(rounds):
            for name in sorted(sides, reverse=bool(number % 2)):
                took[name].append(sides[name](cluster, pattern, number))
    p50 = {name: median(seconds) for name, seconds in took.items()}
    ratios = [one / other for one, other in zip(took["operator"], took["bare"], strict=True)]
    return [
        Row(bench=NAME, what=f"submit to last pod bound of {gpus:,} GPUs, against the bare client", goal=GOAL,
            measured=median(ratios), detail={f"ms_{name}": round(p50[name] * 1e3) for name in p50}),
    ]  # fmt: skip


def _pattern(cluster: Cluster, gpus: int) -> Pattern:
    with cluster.operator():
        cluster.api.create(make_run(PATTERN, gpus)).must()
        until(lambda: cluster.is_running(PATTERN), 120)
        settle(cluster)
        pattern = Pattern.of(cluster, PATTERN, gpus)
        _end(cluster, PATTERN)
    return pattern


def _operator(cluster: Cluster, pattern: Pattern, number: int) -> float:
    name = f"gang-{number:08d}"
    with cluster.operator():
        settle(cluster)

        async def go() -> None:
            await cluster.admin.written([pattern.submit(cluster, name)])

        took = _timed(cluster, go, len(pattern.pods))
        until(lambda: cluster.is_running(name), 120)
        _end(cluster, name)
    return took


def _bare(cluster: Cluster, pattern: Pattern, number: int) -> float:
    name = f"bare-{number:08d}"

    async def go() -> None:
        (made,) = await cluster.admin.written([pattern.submit(cluster, name)])
        await cluster.bare.written(pattern.gang(cluster, name, made.metadata.uid))

    took = _timed(cluster, go, len(pattern.pods))
    cluster.wipe("pods", "services", "runs")
    cluster.forget("leases", name)
    return took


def _end(cluster: Cluster, name: str) -> None:
    """Delete a run, and wait until everything of it is over."""
    cluster.api.delete(cluster.path("runs", name)).must()
    until(lambda: not cluster.items("runs") and not cluster.items("pods"), 120)
    settle(cluster)


def _timed(cluster: Cluster, work: Callable[[], Awaitable[None]], pods: int) -> float:
    """Seconds until the work is done and all pods are bound."""

    def is_bound(item: Seen) -> bool:
        return bool(item.spec.node_name)

    async def go() -> float:
        begun = asyncio.Event()
        watch = asyncio.ensure_future(cluster.admin.until(cluster.path("pods"), is_bound, pods, begun=begun))
        await begun.wait()
        begin = time.perf_counter()
        await work()
        await watch
        return time.perf_counter() - begin

    return cluster.loop.run_until_complete(go())
