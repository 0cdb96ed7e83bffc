"""Promise: an operator of 5,000 nodes with 10,000 open leases, and 100,000 closed ones in retention, holds at most
1 GiB of memory, and decides within 30 s of its start.

The past is written by the ledger's own means (runs that came and went), the present by the engine: it places the runs,
and what it placed is Running. Then all of it is put into etcd as the API server would have stored it, since a hundred
thousand requests would take long and are not what is measured; the API server is left in peace until it has taken in
what appeared there. A run is submitted while no operator is there; the clock
runs from the start of the process until a decision is committed. Memory is the most that the process ever held.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec

from bench.kube import left_out
from bench.kube.bed import FLAVOR, GPUS, NAMESPACE, OWNER, Cluster, Worker, make_run, settle
from bench.result import Row, Scale
from tenure.api.meta import GROUP, ObjectMeta
from tenure.api.run import Resources, Run, RunSpec
from tenure.engine import Apply, Report, Sighting, State, dump, render
from tenure.engine.shown import Risks
from tenure.engine.words import Words
from tenure.facts import Closed, Fact, Lease, Opened, PutRun, Removed
from tenure.kube import shown
from tenure.kube.client import Client
from tenure.kube.config import from_kubeconfig
from tenure.kube.loop import IO
from tenure.kube.manifests import pod_manifest
from tenure.kube.marks import FINALIZER
from tenure.kube.store import KubeStore
from tenure.shell.home import Home
from tenure.testing.kube import until
from tenure.units import Instant, format_time

NAME = "kube-memory"
MEMORY, SECONDS = 1024.0, 30.0
SIZES = {"full": (5_000, 10_000, 100_000), "quick": (500, 1_000, 10_000), "tiny": (16, 16, 100)}
"""Nodes, open leases, closed leases."""
HELD = 5
"""Leases of a past run."""
SMALL = 2
"""GPUs of a present one: each has one lease and one pod, so there are as many runs as open leases."""
MORE = 8
"""Runs that are submitted afterwards."""
MILLISECOND = 1_000
_AT_ONCE = 100

Object = dict[str, Any]
TEMPLATE = {"spec": {"containers": [{"name": "main", "image": "train:1", "command": ["python", "train.py"]}]}}


def run(scale: Scale, folder: Path) -> list[Row]:
    if told := left_out(NAME):
        return told
    nodes, opened, closed = SIZES[scale.name]
    with Cluster.started(folder, nodes=nodes, kwok=False) as cluster:
        with cluster.operator():  # it takes in the machines and the money
            settle(cluster)
        cluster.plane.controllers.stop()  # they would look for the owner of each pod that appears from nowhere
        _furnish(cluster, folder, nodes, opened=opened, closed=closed)
        cluster.rest()
        before, written = _seq(cluster), cluster.writes()
        cluster.api.create(make_run("first", GPUS)).must()
        began = time.perf_counter()
        with Worker.started(cluster.config, folder, wait=False) as worker:
            while _seq(cluster) == before:
                assert worker.child.poll() is None, worker.log.read_text()[-2000:]
                time.sleep(0.25)  # who asks too often is what it waits for
            first, computed = time.perf_counter() - began, worker.processor()
            wrote = settle(cluster, 300.0) - written
            for number in range(MORE):
                cluster.api.create(make_run(f"more-{number}", GPUS)).must()
            settle(cluster, 300.0)
            _check(cluster, opened)
            now, most = worker.memory()
    what = f"{nodes:,} nodes, {opened:,} open and {closed:,} closed leases"
    mib = 1024.0 * 1024.0
    return [
        Row(bench=NAME, what=f"memory: {what}", unit="MiB", measured=most / mib, goal=MEMORY,
            detail={"mib_afterwards": round(now / mib)}),
        Row(bench=NAME, what=f"from the start to the first decision: {what}", unit="s", measured=first, goal=SECONDS,
            detail={"s_computed": round(computed, 1), "writes": wrote.total()}),
    ]  # fmt: skip


def _seq(cluster: Cluster) -> int:
    return int(cluster.api.get(f"/apis/{GROUP}/v1/ledgerheads/head").must()["spec"]["seq"])


def _check(cluster: Cluster, opened: int) -> None:
    """What was open still is, and what was submitted has a lease each."""
    path = f"{cluster.path('leases')}?fieldSelector=status.closed!%3Dtrue"
    wanted = {"first", *(f"more-{number}" for number in range(MORE))}

    def found() -> list[str]:
        return [item["spec"]["runRef"]["name"] for item in cluster.api.get(path).must()["items"]]

    until(lambda: {name for name in found() if not name.startswith("open-")} == wanted, 120, every=2)
    assert sum(name.startswith("open-") for name in found()) == opened, "nothing was closed"


# --- a cluster with a past ------------------------------------------------------------------------------------------


def _furnish(cluster: Cluster, folder: Path, nodes: int, *, opened: int, closed: int) -> None:
    with IO() as io:
        client = Client(from_kubeconfig(cluster.config))
        with KubeStore.open(io, client, folder / "journal" / "journal.db", fleet="bench") as store:
            put = _Putter(cluster)
            names = [f"node-{number:04d}" for number in range(nodes)]
            for lease, end in _live(store, names, closed // HELD):
                put(
                    f"{GROUP}/leases/{lease.key}",
                    _stored(shown.lease_object(lease, fleet=store.fleet, end=end, closure="Completed")),
                )
            home = Home(store)
            _fill(home, opened)
            for key, item in _present(home.state, store.fleet, home.seq):
                put(key, item)
            put.flush()
            with store.write() as tx:
                tx.save_snapshot(dump(home.state))
        io.run(client.close())


def _live(store: KubeStore, nodes: list[str], runs: int) -> Iterator[tuple[Lease, Instant]]:
    """Let runs come and go; tells their leases and when each ended."""
    at = store.spec.at
    for first in range(0, runs, _AT_ONCE):
        with store.write() as tx:
            stays = []
            for number in range(first, min(first + _AT_ONCE, runs)):
                at += MILLISECOND
                run, leases, end = _stay(number, nodes, at)
                stays += [(lease, end) for lease in leases]
                tx.append(at=end, cause="a run that came and went", facts=list(_facts(run, leases, end)))
        yield from stays


def _stay(number: int, nodes: list[str], at: Instant) -> tuple[Run, list[Lease], Instant]:
    run = _run(f"past-{number:06d}", HELD * GPUS, GPUS, at)
    leases = [_past_lease(run, nodes[(number + index) % len(nodes)], index, at) for index in range(HELD)]
    return run, leases, at + MILLISECOND // 2


def _facts(run: Run, leases: list[Lease], end: Instant) -> Iterator[Fact]:
    yield PutRun(object=run)
    yield from (Opened(lease=lease) for lease in leases)
    yield Closed(namespace=NAMESPACE, leases=tuple(one.name for one in leases), end=end, reason="Completed")
    yield Removed(kind="Run", namespace=NAMESPACE, name=run.metadata.name)


def _past_lease(run: Run, node: str, index: int, at: Instant) -> Lease:
    meta = run.metadata
    return Lease(
        namespace=NAMESPACE, name=f"{meta.name}-a1-g00-{node}-{index}", run=meta.name, uid=meta.uid, owner=OWNER,
        attempt=1, group=0, domain="domain-00", node=node, gpus=tuple(range(GPUS)), role="Active", start=at,
        budget="lab", envelope="main", payer=OWNER, funding="owned", reason="Start",
    )  # fmt: skip


def _run(name: str, gpus: int, pod: int, at: Instant) -> Run:
    meta = ObjectMeta(name=name, namespace=NAMESPACE, uid=f"uid-{name}", creation_timestamp=format_time(at))
    resources = Resources(gpu_type=FLAVOR, total_gpus=gpus, gpus_per_pod=pod)
    return Run(metadata=meta, spec=RunSpec(owner=OWNER, resources=resources, template=TEMPLATE))


def _fill(home: Home, runs: int) -> None:
    """Let the engine place runs, and see their pods bound."""
    for first in range(0, runs, _AT_ONCE):
        now = time.time_ns() // 1000
        wanted = [_run(f"open-{number:06d}", SMALL, SMALL, now) for number in range(first, min(first + _AT_ONCE, runs))]
        home.handle(Apply(tuple(wanted)), now=now)
        new = [key for key, pod in home.state.pods.items() if pod.phase == "Placed"]
        home.handle(Report(tuple(Sighting(key, "Bound") for key in new)), now=now)


def _present(state: State, fleet: str, seq: int) -> Iterator[tuple[str, Object]]:
    """Everything that is open, as the API server holds it."""
    now = state.now
    words, risks = Words(state, now=now), Risks(state, now=now)
    for key, lease in state.leases.items():
        yield f"{GROUP}/leases/{key}", _stored(shown.lease_object(lease, fleet=fleet))
    for key, row in state.runs.items():
        item = make_run(row.name, SMALL)
        item["spec"]["resources"]["gpusPerPod"] = SMALL
        item["metadata"] |= {"uid": row.run.metadata.uid, "finalizers": [FINALIZER],
                             "creationTimestamp": row.run.metadata.creation_timestamp}  # fmt: skip
        item["status"] = shown.run_status(state, key, now=now, words=words, risks=risks)
        yield f"{GROUP}/runs/{key}", _stored(item)
        for pod in row.pods.values():
            made = render.to_manifest(render.pod(row, pod, state.policy.gpu_resource))
            body = pod_manifest(
                made, pod.pod, row, fleet=fleet, seq=seq, resource=state.policy.gpu_resource, bind=False
            )
            yield f"pods/{pod.pod.key}", _stored({**body, "status": {"phase": "Running"}})


def _stored(item: Object) -> Object:
    """With what the API server adds of its own, as large as it usually is."""
    meta = item["metadata"]
    fields = {
        "f:metadata": {"f:annotations": {".": {}, "f:rq.davidlangworthy.io/fleet": {}}},
        "f:spec": {f"f:{key}": {} for key in item["spec"]},
    }
    managed = {
        "manager": "tenure",
        "operation": "Update",
        "apiVersion": item["apiVersion"],
        "fieldsType": "FieldsV1",
        "fieldsV1": fields,
    }
    added = {
        "uid": f"uid-{meta['name']}",
        "creationTimestamp": "2026-01-01T00:00:00Z",
        "generation": 1,
        "managedFields": [managed],
    }
    return {**item, "metadata": {**added, **meta}}


class _Putter:
    """Puts objects into etcd, many at a time."""

    def __init__(self, cluster: Cluster) -> None:
        self._cluster, self._waiting = cluster, list[tuple[str, Object]]()

    def __call__(self, key: str, item: Object) -> None:
        self._waiting.append((key, item))
        if len(self._waiting) >= _AT_ONCE:
            self.flush()

    def flush(self) -> None:
        if self._waiting:
            self._cluster.put({f"/registry/{key}": msgspec.json.encode(item) for key, item in self._waiting})
            self._waiting.clear()
