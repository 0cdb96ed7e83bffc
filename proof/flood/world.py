"""A fleet that several tenants share: four with work that fits and money for it, and one that submits without end.

The flood's tenant may use an eighth of the fleet at once, and asks for far more: what it submits is in mixed sizes and
lengths, all declared, and waits for its own money. The others' runs are small and fit. As everywhere in ``bench``
nothing is forged: machines, money and runs come in through the engine's own events, and decisions are committed to a
ledger, on disk if there is a file.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from itertools import islice
from pathlib import Path

from bench.bed import Bed
from bench.fleet import FLAVOR, NOW, placed, remove
from bench.measure import Stopwatch, Took
from tenure.api.budget import Budget, BudgetSpec, Envelope
from tenure.api.core import Namespace, Node, NodeStatus
from tenure.api.meta import OWNER_ANNOTATION, ObjectMeta
from tenure.api.policy import Policy
from tenure.api.run import Locality, Resources, Run, RunSpec, Runtime
from tenure.engine import Apply, Event, Report, SetPolicy, Sighting, Tick
from tenure.ledger import Ledger
from tenure.shell.home import Home
from tenure.shell.ledger_store import LedgerStore
from tenure.shell.store import MemoryStore
from tenure.units import FOREVER, SECOND

FLOOD, TENANTS = "flood", ("ann", "bob", "cleo", "dan")
DOMAINS, NODES, GPUS = 16, 8, 8
TOTAL = DOMAINS * NODES * GPUS
SHARE = TOTAL // 8
"""GPUs that the flood's tenant may use at once."""
SIZES = ((1, None), (2, None), (4, None), (8, None), (16, 8))
LENGTHS = (1_800, 3_600, 4 * 3_600)
STEP = SECOND // 4
"""Between two decisions: so short that no run of the flood comes to its end, which nobody would report here."""
LATE = 2 * SECOND
"""After its time a run of the flood ends: none does to the microsecond."""
_PLACE = {"region": "r", "cluster": "c"}
_CHUNK = 500


class World(Bed):
    """One such fleet, and what is running there of the others."""

    def __init__(self, file: Path | None = None) -> None:
        store = MemoryStore(keep=False) if file is None else LedgerStore(Ledger.create(file, fleet=file.stem))
        super().__init__(Home(store))
        self.now = NOW
        self.pending = 0
        """Runs of the flood that wait."""
        self._numbers = iter(range(10**9))
        self.home.handle(SetPolicy(Policy()), now=NOW)
        self.home.handle(Apply(tuple(_tenants())), now=NOW)
        self.home.handle(Apply(tuple(_nodes())), now=NOW)

    def flood(self, count: int) -> Iterator[int]:
        """Let so many runs of one tenant come, by the hundreds; yields how many have come. All but those that its money
        pays for at once must wait afterwards."""
        runs = (flood_run(number) for number in range(count))
        done = 0
        while some := list(islice(runs, _CHUNK)):
            self.now += SECOND
            outcomes = self.home.handle(*(Apply((run,)) for run in some), now=self.now)
            assert not any(one.refused for one in outcomes)
            self.bind(placed(outcomes))
            done += len(some)
            yield done
        self.pending = self.state.queue.depth()
        assert count - self.pending <= SHARE, "only what its money pays for has started"

    def bind(self, pods: dict[str, list[str]]) -> None:
        if pods:
            self.home.handle(Report(tuple(Sighting(pod, "Bound") for key in pods for pod in pods[key])), now=self.now)

    def tick(self) -> None:
        """What is due by the next step happens, as it does for a driver that wakes at its time: the flood's own
        countdowns and starts are nothing that others' decisions cause."""
        self.home.handle(Tick(), now=self.now + STEP)

    # -- the others --

    def submit(self, number: int) -> tuple[Took, dict[str, list[str]]]:
        """Another tenant's run comes, and must start: what the decision took, and its pods."""
        run = small_run(next(self._numbers), number)
        self.now += STEP
        with Stopwatch() as watch:
            outcomes = self.home.handle(Apply((run,)), now=self.now)
        pods = placed(outcomes)
        assert pods, f"{run.metadata.namespace}/{run.metadata.name} fits, and starts"
        return watch.took, pods

    def end(self, pods: dict[str, list[str]]) -> Took:
        """They are done, at once and early: what the decision took. Then they are deleted."""
        self.now += STEP
        ends = tuple(Sighting(pod, "Succeeded", 0) for key in pods for pod in pods[key])
        with Stopwatch() as watch:
            self.home.handle(Report(ends), now=self.now)
        self.home.handle(*remove(pods, {}), now=self.now)
        return watch.took

    # -- the flood --

    def end_own(self) -> Took:
        """The first run of the flood that was to end does, a moment late: what the decision took, in which everybody
        else waits."""
        running = (row for row in self.state.runs.values() if row.namespace == FLOOD and row.pods)
        first = min(running, key=lambda row: (row.until or FOREVER, row.key))
        assert first.until is not None, "all of the flood is declared"
        self.now = max(self.now, first.until)
        self.handle(Tick())
        self.now += LATE
        ends = tuple(Sighting(row.pod.key, "Succeeded", 0) for row in first.pods.values())
        with Stopwatch() as watch:
            self.home.handle(Report(ends), now=self.now)
        return watch.took

    def handle(self, *events: Event) -> None:
        self.home.handle(*events, now=self.now)


def _tenants() -> Iterator[Namespace | Budget]:
    for name in (FLOOD, *TENANTS):
        owner = f"org:{name}"
        yield Namespace(metadata=ObjectMeta(name=name, annotations={OWNER_ANNOTATION: owner}))
        envelope = Envelope(name="main", flavor=FLAVOR, selector=_PLACE,
                            concurrency=SHARE if name == FLOOD else TOTAL)  # fmt: skip
        yield Budget(metadata=ObjectMeta(name=name), spec=BudgetSpec(owner=owner, envelopes=(envelope,)))


def _nodes() -> Iterable[Node]:
    for domain in range(DOMAINS):
        for slot in range(NODES):
            labels = {**_PLACE, "fabric.domain": f"d{domain:02d}", "gpu.flavor": FLAVOR}
            meta = ObjectMeta(name=f"n{domain:02d}-{slot:02d}", labels=labels)
            yield Node(metadata=meta, status=NodeStatus(allocatable={"nvidia.com/gpu": str(GPUS)}))


def flood_run(number: int) -> Run:
    gpus, group = SIZES[number % len(SIZES)]
    return make_run(f"flood-{number:06d}", FLOOD, gpus, group=group, seconds=LENGTHS[number % len(LENGTHS)])


def small_run(number: int, turn: int) -> Run:
    return make_run(f"small-{number:06d}", TENANTS[turn % len(TENANTS)], (1, 2, 1, 4)[turn // 4 % 4], seconds=600)


def make_run(
    name: str, tenant: str, gpus: int, *, seconds: int | None, group: int | None = None, flavor: str = FLAVOR
) -> Run:
    return Run(
        metadata=ObjectMeta(name=name, namespace=tenant),
        spec=RunSpec(
            owner=f"org:{tenant}",
            resources=Resources(gpu_type=flavor, total_gpus=gpus),
            locality=Locality(group_gpus=group, allow_cross_group_spread=True),
            runtime=Runtime(expected_duration=None if seconds is None else f"{seconds}s"),
        ),
    )
