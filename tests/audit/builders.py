"""Small builders for ledgers written by hand: the auditor is tested on entries that no engine ever decided.

``History`` keeps the clock and the numbers; its verbs (``start``, ``bind``, ``finish``...) write the entries
that a correct engine would write, so that a test spells out only what it is about.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import msgspec

from tenure.api.budget import AggregateCap, Budget, BudgetSpec, Envelope, Lending
from tenure.api.core import Node, NodeCondition, NodeSpec, NodeStatus, Taint
from tenure.api.meta import ObjectMeta
from tenure.api.policy import Policy
from tenure.api.run import Funding, Locality, Malleable, Resources, Run, RunSpec, Runtime
from tenure.facts import (
    GENESIS,
    Cleared,
    Closed,
    Decided,
    Ending,
    Entry,
    Fact,
    Lease,
    Life,
    Moved,
    Opened,
    Placed,
    Pod,
    PutBudget,
    PutNode,
    PutPolicy,
    PutRun,
    Seen,
    Segment,
    Verdict,
    encode_entry,
    entry_hash,
)
from tenure.units import DAY, Instant, format_time, parse_duration, parse_time

T0: Instant = parse_time("2025-11-01T00:00:00Z")
SYS, NLP, RAI, AI, MM = "org:ai:rai:sys", "org:ai:rai:nlp", "org:ai:rai", "org:ai", "org:mm:vision"
FLAVOR = "H100-80GB"
FENCED = Taint(key="node.kubernetes.io/out-of-service", effect="NoExecute")


def time(offset: str) -> Instant:
    """An instant, as an offset from the beginning."""
    return T0 + parse_duration(offset)


def node(name: str, **other: Any) -> Node:
    """A ready node of 8 GPUs in the domain that its name begins with: ``a-0`` lies in A."""
    labels = {
        "region": "us-west",
        "cluster": "gpu-a",
        "fabric.domain": name[0].upper(),
        "gpu.flavor": FLAVOR,
        **other.get("labels", {}),
    }
    ready = NodeCondition(type="Ready", status=other.get("ready", "True"))
    return Node(
        metadata=ObjectMeta(name=name, labels={key: value for key, value in labels.items() if value}),
        spec=NodeSpec(unschedulable=other.get("cordoned", False), taints=other.get("taints", ())),
        status=NodeStatus(allocatable={"nvidia.com/gpu": str(other.get("gpus", 8))}, conditions=(ready,)),
    )


def envelope(name: str = "west", **other: Any) -> Envelope:
    fields = {"flavor": FLAVOR, "selector": {"region": "us-west"}, "concurrency": 64, **other}
    return Envelope(name=name, **fields)


def month() -> dict[str, str]:
    """A window of thirty days from the beginning."""
    return {"start": format_time(T0), "end": format_time(T0 + 30 * DAY)}


def lends(*to: str, **other: Any) -> Lending:
    return Lending(allow=True, to=to, **other)


def budget(
    name: str,
    owner: str,
    *envelopes: Envelope,
    parents: Sequence[str] = (),
    caps: Sequence[AggregateCap] = (),
) -> Budget:
    spec = BudgetSpec(
        owner=owner, parents=tuple(parents), envelopes=envelopes or (envelope(),), aggregate_caps=tuple(caps)
    )
    return Budget(metadata=ObjectMeta(name=name), spec=spec)


def cap(name: str, *envelopes: str, **other: Any) -> AggregateCap:
    return AggregateCap(name=name, flavor=FLAVOR, envelopes=envelopes, **other)


def run(name: str, gpus: int, **other: Any) -> Run:
    """A run of SYS in namespace rai; any field of its spec may be given by name."""
    malleable = other.get("malleable")
    spec = RunSpec(
        owner=other.get("owner", SYS),
        resources=Resources(gpu_type=other.get("flavor", FLAVOR), total_gpus=gpus, gpus_per_pod=other.get("per_pod")),
        locality=Locality(
            group_gpus=other.get("group"),
            allow_cross_group_spread=other.get("spread", True),
            selector=other.get("selector", {}),
        ),
        spares_per_group=other.get("spares", 0),
        malleable=Malleable(min_total_gpus=malleable[0], max_total_gpus=malleable[1], step_gpus=malleable[2])
        if malleable
        else None,
        funding=other.get("funding", Funding()),
        runtime=Runtime(expected_duration=other.get("duration")),
    )
    return Run(metadata=ObjectMeta(name=name, namespace="rai", uid=f"uid-{name}"), spec=spec)


def lease(of: Run, where: str, *, at: Instant, **other: Any) -> Lease:
    """``where`` is node:first-last, such as ``a-0:0-7``. Paid by SYS from sys/west unless told otherwise."""
    name, gpus = slots(where)
    group, attempt, role = other.get("group", 0), other.get("attempt", 1), other.get("role", "Active")
    source, payer, funding = other.get("paid", ("sys", SYS, "owned"))
    declared = of.spec.runtime.expected_duration
    return Lease(
        namespace="rai",
        name=f"{of.metadata.name}-a{attempt}-g{group}-{name}-{role}-{source}-{gpus[0]}",
        run=of.metadata.name,
        uid=of.metadata.uid,
        owner=of.spec.owner,
        attempt=attempt,
        group=group,
        domain=name[0].upper(),
        node=name,
        gpus=gpus,
        role=role,
        start=at,
        until=at + parse_duration(declared) if declared else None,
        budget=source,
        envelope=other.get("envelope", "west"),
        payer=payer,
        funding=funding,
        reason=other.get("reason", "Start"),
    )


def pod(of: Run, where: str, *, rank: int, group: int = 0, attempt: int = 1) -> Pod:
    name, gpus = slots(where)
    return Pod(
        namespace="rai",
        name=f"{of.metadata.name}-a{attempt}-{rank}",
        run=of.metadata.name,
        attempt=attempt,
        group=group,
        rank=rank,
        node=name,
        gpus=gpus,
    )


def slots(where: str) -> tuple[str, tuple[int, ...]]:
    name, _, ordinals = where.partition(":")
    first, _, last = ordinals.partition("-")
    return name, tuple(range(int(first), int(last or first) + 1))


def decided(of: Run, leases: Sequence[Lease]) -> Decided:
    segments = tuple(
        Segment(
            budget=item.budget,
            envelope=item.envelope,
            payer=item.payer,
            funding=item.funding,
            gpus=len(item.gpus),
        )
        for item in leases
    )
    return Decided(namespace="rai", run=of.metadata.name, verdict=Verdict(outcome="start", segments=segments))


class History:
    """A ledger that grows, with the leases and pods that each run holds in it."""

    def __init__(self) -> None:
        self.entries: list[Entry] = []
        self.now = T0
        self._lives: dict[str, Life] = {}
        self._leases: dict[str, list[Lease]] = {}
        self._pods: dict[str, list[Pod]] = {}

    def at(self, offset: str) -> History:
        self.now = time(offset)
        return self

    def add(self, *facts: Fact, at: Instant | None = None) -> History:
        number = len(self.entries) + 1
        when = self.now if at is None else at
        self.entries.append(Entry(seq=number, at=when, cause="by hand", facts=facts, prev=GENESIS))
        return self

    def fleet(self, *nodes: Node) -> History:
        return self.add(PutPolicy(policy=Policy()), *(PutNode(object=item) for item in nodes))

    def budgets(self, *budgets: Budget) -> History:
        return self.add(*(PutBudget(object=item) for item in budgets))

    # --- the life of a run ----------------------------------------------------------------------------------

    def start(self, of: Run, leases: Sequence[Lease], pods: Sequence[Pod]) -> History:
        """Admit a run: its leases open, its pods are placed."""
        name = of.metadata.name
        attempt = leases[0].attempt if leases else 1
        self._leases[name], self._pods[name] = list(leases), list(pods)
        opened = [Opened(lease=item) for item in leases]
        placed = [Placed(pod=item) for item in pods]
        moved = self.moved(name, phase="Starting", attempt=attempt, admitted=True)
        return self.add(PutRun(object=of), decided(of, leases), *opened, *placed, moved)

    def bind(self, name: str) -> History:
        seen = [Seen(namespace="rai", pod=item.name, phase="Bound") for item in self._pods[name]]
        return self.add(*seen, self.moved(name, phase="Running", started=self.now))

    def started(self, of: Run, leases: Sequence[Lease], pods: Sequence[Pod]) -> History:
        return self.start(of, leases, pods).bind(of.metadata.name)

    def grow(self, name: str, leases: Sequence[Lease], pods: Sequence[Pod]) -> History:
        self._leases[name] += leases
        self._pods[name] += pods
        return self.add(*(Opened(lease=item) for item in leases), *(Placed(pod=item) for item in pods))

    def stop(self, name: str, reason: str) -> History:
        """Decide a stop: pods are asked to leave."""
        ending = Ending(
            namespace="rai",
            run=name,
            leases=tuple(item.name for item in self._leases[name]),
            pods=tuple(item.name for item in self._pods[name]),
            reason=reason,
        )
        return self.add(ending, self.moved(name, phase="Stopping"))

    def gone(self, name: str, reason: str, phase: Any, *before: Fact, end: Instant | None = None) -> History:
        """The pods are gone: the leases close, and the run is what it becomes."""
        leases = tuple(item.name for item in self._leases.pop(name))
        pods = tuple(item.name for item in self._pods.pop(name))
        seen = [Seen(namespace="rai", pod=item, phase="Gone") for item in pods]
        closed = Closed(namespace="rai", leases=leases, end=self.now if end is None else end, reason=reason)
        cleared = Cleared(namespace="rai", pods=pods)
        return self.add(*before, *seen, closed, cleared, self.moved(name, phase=phase))

    def finish(self, name: str) -> History:
        return self.stop(name, "Completed").gone(name, "Completed", "Completed")

    def moved(self, name: str, **changes: Any) -> Moved:
        life = self._lives[name] = msgspec.structs.replace(self._lives.get(name, Life()), **changes)
        return Moved(namespace="rai", run=name, life=life)


def chained(entries: Sequence[Entry]) -> list[bytes]:
    """The entries as a ledger stores them, each with the hash of the one before."""
    bodies: list[bytes] = []
    before = GENESIS
    for entry in entries:
        bodies.append(encode_entry(msgspec.structs.replace(entry, prev=before)))
        before = entry_hash(bodies[-1])
    return bodies
