"""Promise: behind ten thousand runs in the queue, a run of another tenant that fits is bound, at p50, within twice the
time that it takes with an empty queue, and before any of those that wait.

Of the flood most wait for money, and every tenth for machines, a gang behind a gang, so that every decision passes over
both. First tenants of other namespaces submit small runs one after the other while nothing waits; then the flood is
submitted, and taken in; then the same tenants submit as many again. A run's time is from its submission to its pod on
its node, as the API server tells it. Some are also submitted while the flood comes in.
"""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from statistics import median
from typing import Any

from bench.kube import left_out
from bench.kube.bare import Request, Seen
from bench.kube.bed import FLAVOR, GPUS, Cluster, Worker, settle
from bench.result import Row, Scale
from tenure.api.meta import API_VERSION, OWNER_ANNOTATION
from tenure.testing.kube import until

NAME = "kube-queue"
GOAL = 2.0
SIZES = {"full": (10_000, 64, 20), "quick": (1_000, 64, 10), "tiny": (20, 8, 2)}
"""Runs of the flood, nodes, small runs of others."""
TENANTS = ("ann", "bob", "cleo", "dan")
EVERY = 10
"""One in so many waits for machines."""
POOR, LARGE = "poor", "large"
"""The namespaces of the flood: where money is short, and where machines are."""
WAIT = 1_800.0

Object = dict[str, Any]


def run(scale: Scale, folder: Path) -> list[Row]:
    if told := left_out(NAME):
        return told
    return measure(*SIZES[scale.name], folder=folder)


def measure(flood: int, nodes: int, small: int, *, folder: Path) -> list[Row]:
    with Cluster.started(folder, nodes=nodes) as cluster, cluster.operator() as worker:
        _let_in(cluster, nodes * GPUS)
        settle(cluster)
        _timed(cluster, worker, "warm", small)
        empty, computed_empty = _timed(cluster, worker, "empty", small)
        begun, computed = time.perf_counter(), worker.processor()
        meanwhile = cluster.loop.run_until_complete(_flooded(cluster, flood, nodes * GPUS, small))
        settle(cluster, WAIT)
        seconds, computed = time.perf_counter() - begun, worker.processor() - computed
        started = _started(cluster)
        full, computed_full = _timed(cluster, worker, "full", small)
        assert _started(cluster) == started, "nobody of the flood started meanwhile"
        memory = worker.memory()[1] / 2**20
    waiting = flood - len(started)
    behind = f"behind {waiting:,} runs"
    return [
        Row(bench=NAME, what=f"submit to bound, {behind}, against an empty queue, p50", goal=GOAL,
            measured=median(full) / median(empty),
            detail={"ms_full": 1000 * median(full), "ms_empty": 1000 * median(empty), "ms_full_worst": 1000 * max(full),
                    "ms_empty_worst": 1000 * max(empty)}),
        Row(bench=NAME, what=f"what the operator computes for one, {behind}, against an empty queue",
            measured=computed_full / max(computed_empty, 0.01),
            detail={"ms_full": 1000 * computed_full / small, "ms_empty": 1000 * computed_empty / small}),
        Row(bench=NAME, what="submit to bound, while the flood comes in, against an empty queue, p50",
            measured=median(meanwhile) / median(empty),
            detail={"ms": 1000 * median(meanwhile), "ms_worst": 1000 * max(meanwhile)}),
        Row(bench=NAME, what=f"to take in {flood:,} runs", unit="s", measured=seconds,
            detail={"s_computed": computed, "mib": memory}),
    ]  # fmt: skip


# --- who is there ---------------------------------------------------------------------------------------------------


def _let_in(cluster: Cluster, total: int) -> None:
    """Everybody's namespace and money: a little for who is poor, enough for the others."""
    for name in (POOR, LARGE, *TENANTS):
        cluster.plane.namespace(name, **{OWNER_ANNOTATION: f"org:{name}"})
        gpus = _share(total) if name == POOR else total
        envelope = {"name": "main", "flavor": FLAVOR, "selector": {"region": "us-west"}, "concurrency": gpus}
        spec = {"owner": f"org:{name}", "envelopes": [envelope]}
        cluster.plane.ensure({"apiVersion": API_VERSION, "kind": "Budget", "metadata": {"name": name}, "spec": spec})


def _share(total: int) -> int:
    return total // 8


def _asked(name: str, namespace: str, gpus: int, lasts: str) -> Request:
    main = {"name": "main", "image": "train:1", "command": ["python", "train.py"]}
    spec = {"resources": {"gpuType": FLAVOR, "totalGPUs": gpus}, "runtime": {"expectedDuration": lasts},
            "template": {"spec": {"containers": [main]}}}  # fmt: skip
    meta = {"name": name, "namespace": namespace}
    body = {"apiVersion": API_VERSION, "kind": "Run", "metadata": meta, "spec": spec}
    return "POST", f"/apis/{API_VERSION}/namespaces/{namespace}/runs", json.dumps(body).encode()


def _runs_of(namespace: str) -> str:
    return f"/apis/{API_VERSION}/namespaces/{namespace}/runs"


# --- what is measured -----------------------------------------------------------------------------------------------


class Bindings:
    """When pods were seen on their nodes, by the run whose name theirs begins with."""

    def __init__(self, runs: list[str]) -> None:
        self.times: dict[str, float] = {}
        self._events = {name: asyncio.Event() for name in runs}

    def see(self, pod: Seen) -> bool:
        name = next((name for name in self._events if pod.metadata.name.startswith(f"{name}-")), "")
        if not name or not pod.spec.node_name:
            return False
        self.times.setdefault(name, time.perf_counter())
        self._events[name].set()
        return True

    async def of(self, name: str) -> float:
        await asyncio.wait_for(self._events[name].wait(), WAIT)
        return self.times[name]


@asynccontextmanager
async def _watched(cluster: Cluster, names: list[str]) -> AsyncIterator[Bindings]:
    found, begun = Bindings(names), asyncio.Event()
    watch = asyncio.ensure_future(cluster.admin.until("/api/v1/pods", found.see, len(names), begun=begun))
    await begun.wait()
    try:
        yield found
        await watch
    finally:
        watch.cancel()


def _timed(cluster: Cluster, worker: Worker, what: str, count: int) -> tuple[list[float], float]:
    """Seconds from submission to binding of small runs, one after the other, and what the operator computed for all of
    them. They are gone afterwards."""
    names = [f"{what}-{number:03d}" for number in range(count)]

    async def go() -> list[float]:
        async with _watched(cluster, names) as bound:
            return [await _submitted(cluster, bound, name, number) for number, name in enumerate(names)]

    computed = worker.processor()
    seconds = cluster.loop.run_until_complete(go())
    computed = worker.processor() - computed
    _remove(cluster, names)
    return seconds, computed


async def _submitted(cluster: Cluster, bound: Bindings, name: str, number: int) -> float:
    begin = time.perf_counter()
    await cluster.admin.sent(_asked(name, _tenant(number), 1, "10m"))
    return await bound.of(name) - begin


def _tenant(number: int) -> str:
    return TENANTS[number % len(TENANTS)]


def _remove(cluster: Cluster, names: list[str]) -> None:
    paths = [f"{_runs_of(_tenant(number))}/{name}" for number, name in enumerate(names)]
    for path in paths:
        cluster.api.delete(path).must()
    until(lambda: all(cluster.api.get(path).status == 404 for path in paths), WAIT)
    settle(cluster, WAIT)


async def _flooded(cluster: Cluster, count: int, total: int, small: int) -> list[float]:
    """Submit the flood, and small runs of others all the while; until every run of it was told that it waits, or
    started. Returns the small ones' seconds."""
    poor, large = list[Request](), list[Request]()
    for number in range(count):
        if number % EVERY:
            poor.append(_asked(f"poor-{number:06d}", POOR, min(GPUS, _share(total)), "1h"))
        else:
            large.append(_asked(f"large-{number:06d}", LARGE, total * 3 // 4, "1h"))
    names = [f"meanwhile-{number:03d}" for number in range(small)]
    begun = [asyncio.Event() for _ in range(2)]
    watches = [
        asyncio.ensure_future(
            cluster.admin.until(_runs_of(namespace), lambda run: bool(run.status.phase), len(wanted), begun=event)
        )
        for namespace, wanted, event in zip((POOR, LARGE), (poor, large), begun, strict=True)
    ]
    await asyncio.gather(*(event.wait() for event in begun))
    share = EVERY - 1
    mixed = [one for at, gang in enumerate(large) for one in (gang, *poor[at * share : (at + 1) * share])]
    assert len(mixed) == count
    async with _watched(cluster, names) as bound:
        coming = asyncio.ensure_future(cluster.admin.written(mixed))
        seconds = [await _submitted(cluster, bound, name, number) for number, name in enumerate(names)]
        await coming
    await asyncio.gather(*watches)
    await asyncio.to_thread(_remove, cluster, names)
    return seconds


def _started(cluster: Cluster) -> set[str]:
    """Who of the flood has a pod."""
    pods = [
        item for name in (POOR, LARGE) for item in cluster.api.get(f"/api/v1/namespaces/{name}/pods").must()["items"]
    ]
    return {str(item["metadata"]["labels"]["rq.davidlangworthy.io/run"]) for item in pods}
