"""Fleets that are full, with work that says when it will end: where to measure the known future.

One location, one owner with money enough, nodes of any width in domains of any size. As in ``fleet``, nothing is
forged: machines, money, running and waiting runs come in through the engine's own events.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from msgspec import Struct
from msgspec.structs import replace

from bench.fleet import FLAVOR, NOW, placed
from tenure.api.budget import Budget, BudgetSpec, Envelope
from tenure.api.core import Namespace, Node, NodeStatus
from tenure.api.meta import OWNER_ANNOTATION, ObjectMeta
from tenure.api.policy import Policy
from tenure.api.run import Locality, Malleable, Resources, Run, RunSpec, Runtime
from tenure.engine import Apply, Delete, Report, SetPolicy, Sighting, State, step
from tenure.shell.home import Home
from tenure.shell.store import MemoryStore
from tenure.units import SECOND, Instant

OWNER, NAMESPACE = "org:crowd", "crowd"
_PLACE = {"region": "r", "cluster": "c"}
_CHUNK = 500


class Size(Struct, frozen=True):
    """How large a fleet is."""

    domains: int
    nodes: int
    """Of a domain."""
    gpus: int
    """Of a node."""

    @property
    def total(self) -> int:
        return self.domains * self.nodes * self.gpus


class Crowd:
    """One such fleet."""

    def __init__(self, size: Size, policy: Policy) -> None:
        self.size = size
        self.now: Instant = NOW
        self.home = Home(MemoryStore(keep=False))
        self.home.handle(SetPolicy(policy), now=NOW)
        space = Namespace(metadata=ObjectMeta(name=NAMESPACE, annotations={OWNER_ANNOTATION: "org"}))
        self.home.handle(Apply((space, _budget(size))), now=NOW)
        self.nodes = [_node(domain, slot, size.gpus) for domain in range(size.domains) for slot in range(size.nodes)]
        for first in range(0, len(self.nodes), _CHUNK):
            self.home.handle(Apply(tuple(self.nodes[first : first + _CHUNK])), now=NOW)

    @property
    def state(self) -> State:
        return self.home.state

    def start(self, runs: Sequence[Run]) -> None:
        """Runs that must all be running afterwards."""
        for first in range(0, len(runs), _CHUNK):
            some = runs[first : first + _CHUNK]
            pods = placed(self.home.handle(*(Apply((run,)) for run in some), now=self.now))
            assert len(pods) == len(some), "the fleet has room for all of them"
            self.home.handle(Report(tuple(Sighting(pod, "Bound") for key in pods for pod in pods[key])), now=self.now)

    def wait(self, runs: Iterable[Run]) -> None:
        """Runs that must all be promised a start; each is handed in a second after the one before."""
        for run in runs:
            self.now += SECOND
            step(self.state, Apply((run,)), now=self.now)
            one = self.state.reservations.get(f"{NAMESPACE}/{run.metadata.name}")
            promised = None if one is None else one.plan.start
            assert promised is not None, f"{run.metadata.name} is promised a start"

    def take_back(self, name: str) -> None:
        """Delete a run that waits."""
        step(self.state, Delete("Run", name, NAMESPACE), now=self.now)

    def open_node(self, index: int, *, is_open: bool) -> Node:
        node = self.nodes[index]
        return replace(node, spec=replace(node.spec, unschedulable=not is_open))


def ask(
    name: str,
    gpus: int,
    *,
    seconds: int | None = None,
    group: int | None = None,
    pod: int | None = None,
    spread: bool = True,
    spares: int = 0,
    elastic: Malleable | None = None,
    domain: str = "",
) -> Run:
    """A run of the crowd; ``seconds``: how long it says it will take, ``domain``: where alone it may go."""
    return Run(
        metadata=ObjectMeta(name=name, namespace=NAMESPACE),
        spec=RunSpec(
            owner=OWNER,
            resources=Resources(gpu_type=FLAVOR, total_gpus=gpus, gpus_per_pod=pod),
            locality=Locality(group_gpus=group, allow_cross_group_spread=spread,
                              selector={"fabric.domain": domain} if domain else {}),
            spares_per_group=spares,
            malleable=elastic,
            runtime=Runtime(expected_duration=None if seconds is None else f"{seconds}s"),
        ),
    )  # fmt: skip


def domain_name(index: int) -> str:
    return f"d{index:05d}"


def scattered(index: int, count: int) -> int:
    """A permutation of 0 ... count - 1 that puts neighbours far apart."""
    step = next(step for step in (7919, 104_729, 15_485_863, 1) if count % step)
    return index * step % count


def _node(domain: int, slot: int, gpus: int) -> Node:
    labels = {**_PLACE, "fabric.domain": domain_name(domain), "gpu.flavor": FLAVOR}
    meta = ObjectMeta(name=f"n{domain:05d}-{slot:04d}", labels=labels)
    return Node(metadata=meta, status=NodeStatus(allocatable={"nvidia.com/gpu": str(gpus)}))


def _budget(size: Size) -> Budget:
    envelope = Envelope(name="all", flavor=FLAVOR, selector=_PLACE, concurrency=2 * size.total)
    return Budget(metadata=ObjectMeta(name="crowd"), spec=BudgetSpec(owner=OWNER, envelopes=(envelope,)))
