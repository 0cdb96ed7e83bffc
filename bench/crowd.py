"""Fleets that are full, with work that says when it will end: where to measure the known future.

One location, one owner with money enough for itself and its teams, nodes of any width in domains of any size. As in
``fleet``, nothing is forged: machines, money, running and waiting runs come in through the engine's own events.

At most three quarters of the places in the queue (``promiseDepth``) are for one owner; the others are for owners that
hold none, as a team does whose namespace is its own.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence

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
        self.home.handle(Apply((_space(NAMESPACE, "org"), _budget(size))), now=NOW)
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

    def found_teams(self, names: Iterable[str], *, gpus: int = 0) -> None:
        """Teams that are there from now on, before anybody waits, and how many GPUs each may use of its own. One that
        may use none spends the crowd's money, and is dealt no place in the queue before what waits of the crowd's."""
        owners = {f"{NAMESPACE}-{name}": f"{OWNER}:{name}" for name in names}
        spaces = [_space(space, owner) for space, owner in owners.items()]
        budgets = [_team(space, owner, gpus) for space, owner in owners.items()]
        self.home.handle(Apply((*spaces, *budgets)), now=self.now)

    @property
    def promised(self) -> dict[str, Instant | None]:
        """Planned starts, of the runs that hold a promise."""
        return {key: one.plan.start for key, one in self.state.reservations.items()}

    def wait(self, runs: Iterable[Run]) -> None:
        """Runs that must all wait, with a promise or without; each is handed in a second after the one before."""
        for run in runs:
            self._submit(run)
            assert self.state.runs[_key(run)].life.phase == "Pending", f"{run.metadata.name} waits"

    def promise(self, runs: Iterable[Run]) -> None:
        """The same of runs that must all be promised a start."""
        for run in runs:
            self._submit(run)
            one = self.state.reservations.get(_key(run))
            assert one is not None, f"{run.metadata.name} holds a promise"
            assert one.plan.start is not None, f"{run.metadata.name} is promised a start"

    def _submit(self, run: Run) -> None:
        self.now += SECOND
        step(self.state, Apply((run,)), now=self.now)

    def take_back(self, run: Run) -> None:
        """Delete a run that waits."""
        step(self.state, Delete("Run", run.metadata.name, run.metadata.namespace), now=self.now)

    def set_open(self, names: Collection[str], *, is_open: bool) -> tuple[Node, ...]:
        """Nodes as they are when they take work, or take none."""
        some = [node for node in self.nodes if node.metadata.name in names]
        return tuple(replace(node, spec=replace(node.spec, unschedulable=not is_open)) for node in some)


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
    team: str = "",
) -> Run:
    """A run of the crowd, or of one of its teams; ``seconds``: how long it says it will take, ``domain``: where alone
    it may go."""
    return Run(
        metadata=ObjectMeta(name=name, namespace=f"{NAMESPACE}-{team}" if team else NAMESPACE),
        spec=RunSpec(
            owner=f"{OWNER}:{team}" if team else OWNER,
            resources=Resources(gpu_type=FLAVOR, total_gpus=gpus, gpus_per_pod=pod),
            locality=Locality(group_gpus=group, allow_cross_group_spread=spread,
                              selector={"fabric.domain": domain} if domain else {}),
            spares_per_group=spares,
            malleable=elastic,
            runtime=Runtime(expected_duration=None if seconds is None else f"{seconds}s"),
        ),
    )  # fmt: skip


def _key(run: Run) -> str:
    return f"{run.metadata.namespace}/{run.metadata.name}"


def _space(name: str, owner: str) -> Namespace:
    return Namespace(metadata=ObjectMeta(name=name, annotations={OWNER_ANNOTATION: owner}))


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


def _team(name: str, owner: str, gpus: int) -> Budget:
    """A budget has an envelope: without money for these machines, it is for others."""
    envelope = Envelope(name="own", flavor=FLAVOR if gpus else "other", selector=_PLACE, concurrency=gpus or 1)
    return Budget(metadata=ObjectMeta(name=name), spec=BudgetSpec(owner=owner, parents=(OWNER,), envelopes=(envelope,)))
