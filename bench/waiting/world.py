"""A fleet that is full, a queue of any length before it, and time that passes from one end to the next.

1,024 GPUs in 16 domains of 8 nodes; four owners with money for all of it. Runs are 1 to 64 GPUs wide, declare 1 to 24
hours, and really take 5 to 100 % of that: nobody knows when one ends. Whoever ended is deleted, and replaced by a new
submission, so that as many wait as before. As everywhere in ``bench`` nothing is forged, and only the engine's public
face is used: events go in through a ``Home``, and what came of them is read from the facts of its entries. Time between
two ends passes as for a driver, which wakes whenever something is due.

How runs come is the ``Load``: each at an instant of its own, or so many within one second; declaring a few lengths of
time, or each a different one.
"""

from __future__ import annotations

import heapq
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import islice
from random import Random

from msgspec import Struct
from msgspec.structs import replace

from bench.fleet import FLAVOR, NOW
from bench.measure import Stopwatch, Took
from tenure.api.budget import Budget, BudgetSpec, Envelope
from tenure.api.core import Namespace, Node, NodeStatus
from tenure.api.meta import OWNER_ANNOTATION, ObjectMeta
from tenure.api.policy import Policy
from tenure.api.run import Locality, Resources, Run, RunSpec, Runtime
from tenure.engine import Apply, Delete, Event, Report, SetPolicy, Sighting
from tenure.facts import Ending, Entry, Placed, Pod
from tenure.shell.home import Home
from tenure.shell.store import MemoryStore, Store
from tenure.units import SECOND, Instant, Micros, format_time

DOMAINS, NODES, GPUS = 16, 8, 8
TOTAL = DOMAINS * NODES * GPUS
OWNERS = ("ann", "bob", "cleo", "dan")
AMPLE = 4 * TOTAL
WIDTHS = (1, 1, 1, 2, 4, 8, 8, 16, 32, 64)
HOURS = (1, 2, 4, 8, 24)
SHORTEST, LONGEST = 0.05, 1.0
"""What runs really take, as a part of what they declare."""
_PLACE = {"region": "r", "cluster": "c"}
_CHUNK = 500
_MOMENT = SECOND // 100
"""Between two submissions that nothing else lies between."""


class Load(Struct, frozen=True):
    """How runs come."""

    at_once: int = 1
    """So many are of equal age."""
    distinct: bool = False
    """Whether all declare another length of time."""


class Job(Struct, frozen=True):
    """One run, and how long it will really take, which only the world knows."""

    name: str
    owner: str
    gpus: int
    declared: Micros
    real: Micros

    @property
    def key(self) -> str:
        return f"{self.owner}/{self.name}"

    def run(self, created: Instant | None = None) -> Run:
        return Run(
            metadata=ObjectMeta(name=self.name, namespace=self.owner,
                                creation_timestamp=None if created is None else format_time(created)),
            spec=RunSpec(
                owner=f"org:{self.owner}",
                resources=Resources(gpu_type=FLAVOR, total_gpus=self.gpus),
                locality=Locality(allow_cross_group_spread=True),
                runtime=Runtime(expected_duration=f"{self.declared // 1000}ms"),
            ),
        )  # fmt: skip


def jobs(load: Load, *, owners: Sequence[str] = OWNERS, widths: Sequence[int] = WIDTHS, seed: int = 1) -> Iterator[Job]:
    """Runs without end, the same for the same seed.

    >>> first, second = islice(jobs(Load()), 2)
    >>> first.declared % (3600 * SECOND), first.real < first.declared, first.key != second.key
    (0, True, True)
    """
    luck, number = Random(seed), 0
    while True:
        declared = luck.choice(HOURS) * 3_600 * SECOND + (number * SECOND // 1_000 if load.distinct else 0)
        real = max(SECOND, int(declared * luck.uniform(SHORTEST, LONGEST)))
        yield Job(f"run-{number:07d}", luck.choice(owners), luck.choice(widths), declared, real)
        number += 1


class End(Struct, frozen=True):
    """What one end of a run took, and what was written for it."""

    took: Took
    facts: int
    whole: Took
    """The same with what fell due before it, the binding of what it started, its deletion, and who came for it."""


class World:
    """One such fleet."""

    def __init__(
        self,
        *,
        load: Load | None = None,
        concurrency: Mapping[str, int] | None = None,
        away: int = 0,
        store: Store | None = None,
    ) -> None:
        """``concurrency``: the money of more owners, or of these if it is not ample; ``away``: domains that are closed
        at first."""
        self.load = load or Load()
        self.now: Instant = NOW
        self.jobs: dict[str, Job] = {}
        """Everybody who waits or runs."""
        self.running: dict[str, list[Pod]] = {}
        self.starts = 0
        self._news: list[Entry] = []
        self._ends: list[tuple[Instant, int, str]] = []
        self._created: tuple[Instant, int] = (0, 0)
        """Of the batch that is coming: its age, and how many are still to be of it."""
        self.supply = jobs(self.load)
        self.home = Home(MemoryStore(keep=False) if store is None else store, watch=self._news.append)
        self.money = dict.fromkeys(OWNERS, AMPLE) | dict(concurrency or {})
        self.nodes = [_node(domain, slot) for domain in range(DOMAINS + away) for slot in range(NODES)]
        self.away = self.nodes[DOMAINS * NODES :]
        closed = [node_closed(node) for node in self.away]
        self.handle(SetPolicy(Policy()))
        self.handle(Apply((*_spaces(self.money), *(budget(*one) for one in self.money.items()))))
        self.handle(Apply((*self.nodes[: DOMAINS * NODES], *closed)))

    @property
    def waiting(self) -> int:
        return len(self.jobs) - len(self.running)

    # -- events --

    def handle(self, *events: Event) -> Took:
        """Decide on events now: what that took. Then the pods that were placed bind, and those that must leave go."""
        with Stopwatch() as watch:
            self.home.handle(*events, now=self.now)
        self._follow()
        return watch.took

    def _follow(self) -> None:
        while self._news:
            seen: list[Sighting] = []
            for fact in [fact for entry in self._news for fact in entry.facts]:
                if isinstance(fact, Placed):
                    seen.append(Sighting(fact.pod.key, "Bound"))
                    self._started(fact.pod)
                elif isinstance(fact, Ending) and fact.pods:
                    seen += [Sighting(f"{fact.namespace}/{pod}", "Gone") for pod in fact.pods]
                    self.running.pop(f"{fact.namespace}/{fact.run}", None)
            self._news.clear()
            if seen:
                self.home.handle(Report(tuple(seen)), now=self.now)

    def _started(self, pod: Pod) -> None:
        if pod.run_key not in self.running:
            self.running[pod.run_key] = []
            self.starts += 1
            heapq.heappush(self._ends, (self.now + self.jobs[pod.run_key].real, self.starts, pod.run_key))
        self.running[pod.run_key].append(pod)

    # -- the queue --

    def fill(self, waiting: int, *, one_by_one: bool = False, supply: Iterator[Job] | None = None) -> Took:
        """Let runs come until so many wait, many with one event: what that took. ``one_by_one``: an entry for each."""
        supply, took = supply or self.supply, Took(0.0, 0.0)
        age = self.now - (waiting + TOTAL) * SECOND
        while (missing := waiting - self.waiting) > 0:
            runs = []
            for job in islice(supply, min(_CHUNK, missing)):
                created = age + len(self.jobs) // self.load.at_once * SECOND
                self.jobs[job.key] = job
                runs.append(job.run(created))
            events = [Apply((run,), named=True) for run in runs] if one_by_one else [Apply(tuple(runs), named=True)]
            one = self.handle(*events)
            took = Took(took.wall + one.wall, took.cpu + one.cpu)
        return took

    def submit(self, job: Job | None = None) -> Took:
        """One more run comes, a moment later."""
        job = job or next(self.supply)
        self._pass_time(self.now + _MOMENT)
        at, left = self._created
        self._created = (at, left - 1) if left else (self.now, self.load.at_once - 1)
        return self.submit_all([job], self._created[0])

    def submit_all(self, some: Sequence[Job], created: Instant) -> Took:
        """These come now, with one event and of one age."""
        self.jobs |= {job.key: job for job in some}
        return self.handle(Apply(tuple(job.run(created) for job in some), named=True))

    def cancel(self, job: Job) -> None:
        """It is deleted, and what it had is gone."""
        pods = self.running.pop(job.key, [])
        self.handle(Delete("Run", job.name, job.owner), Report(tuple(Sighting(pod.key, "Gone") for pod in pods)))
        del self.jobs[job.key]

    # -- time --

    def settle(self, ends: int) -> None:
        """Let so many runs end, so that those that run are of the load, and started at different times."""
        for _ in range(ends):
            self.end()

    def end(self) -> End:
        """The next run ends, and another one comes for it."""
        with Stopwatch() as watch:
            took = None
            while took is None:
                took = self._ended(*self._next())
        return End(*took, watch.took)

    def end_of(self, key: str, successor: Job | None = None) -> End:
        """This run ends a moment later, and this one comes for it, or any."""
        with Stopwatch() as watch:
            took = self._ended(self.now + _MOMENT, key, successor)
        assert took is not None, "nobody has to leave within a moment"
        return End(*took, watch.took)

    def _ended(self, at: Instant, key: str, successor: Job | None = None) -> tuple[Took, int] | None:
        """What its end took, and how many facts were written; None if it had to leave before."""
        self._pass_time(at)
        if key not in self.running:
            return None
        job, pods = self.jobs[key], self.running.pop(key)
        report = Report(tuple(Sighting(pod.key, "Succeeded", 0) for pod in pods))
        with Stopwatch() as watch:
            self.home.handle(report, now=self.now)
        facts = sum(len(entry.facts) for entry in self._news)
        self._follow()
        self.cancel(job)
        self.submit(successor)
        return watch.took, facts

    def _next(self) -> tuple[Instant, str]:
        while True:
            at, _, key = heapq.heappop(self._ends)
            if key in self.running and at >= self.now:
                return at, key
            if key in self.running:  # due while something else was measured
                return self.now, key

    def _pass_time(self, to: Instant) -> None:
        """What falls due until then happens when it is due."""
        last = None
        while (wake := self.home.next_wake()) is not None and wake <= to and wake != last:
            last, self.now = wake, max(self.now, wake)
            self.home.drive(now=self.now)
            self._follow()
        self.now = max(self.now, to)


# --- who is there ---------------------------------------------------------------------------------------------------


def node_closed(node: Node) -> Node:
    return replace(node, spec=replace(node.spec, unschedulable=True))


def budget(owner: str, concurrency: int) -> Budget:
    envelope = Envelope(name="main", flavor=FLAVOR, selector=_PLACE, concurrency=concurrency)
    return Budget(metadata=ObjectMeta(name=owner), spec=BudgetSpec(owner=f"org:{owner}", envelopes=(envelope,)))


def _spaces(owners: Iterable[str]) -> Iterator[Namespace]:
    for owner in owners:
        yield Namespace(metadata=ObjectMeta(name=owner, annotations={OWNER_ANNOTATION: f"org:{owner}"}))


def _node(domain: int, slot: int) -> Node:
    labels = {**_PLACE, "fabric.domain": f"d{domain:02d}", "gpu.flavor": FLAVOR}
    return Node(
        metadata=ObjectMeta(name=f"n{domain:02d}-{slot:02d}", labels=labels),
        status=NodeStatus(allocatable={"nvidia.com/gpu": str(GPUS)}),
    )
