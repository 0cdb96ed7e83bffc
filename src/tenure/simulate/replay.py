"""Replaying jobs on the real engine: the virtual clock jumps from one instant that matters to the next.

    next instant = min(next submission, next timer of the engine, next change of a pod)

At each, timers and pods come first, then submissions, and decisions are taken until nothing changes, as in a scenario.
The store keeps no history and pods are only bookkeeping, so a replay costs what is decided, not how long it lasts. Jobs
end when their real duration is over, whatever they declared.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from time import process_time

from msgspec import Struct

from tenure.api.budget import Budget
from tenure.api.core import Namespace, Node
from tenure.api.policy import Policy
from tenure.api.run import Run
from tenure.engine import Apply, Publish, SetPolicy
from tenure.engine.state import RunRow
from tenure.shell.custodian import SimulatedCustodian
from tenure.shell.home import Home
from tenure.shell.simulated import SimulatedExecutor
from tenure.shell.store import MemoryStore
from tenure.simulate.declare import Declare
from tenure.simulate.replay_promises import Promises
from tenure.simulate.replay_room import Fragmentation, Room
from tenure.simulate.replay_thrown import Thrown
from tenure.simulate.replay_watch import SHOWN_MAX, Audit, Cut, Watch
from tenure.simulate.replay_world import Machines, Pods, run_of
from tenure.simulate.stats import Summary, Tally, period_for
from tenure.simulate.trace import Job
from tenure.units import DAY, Instant, Micros, parse_duration, parse_time

START: Instant = parse_time("2025-11-01T00:00:00Z")
"""The instant at which every replay begins: what the windows of budgets are written against."""
Progress = Callable[[str, int, int], None]


class Setting(Struct, frozen=True, kw_only=True):
    """Jobs, by the flavor they run on, and the world they are replayed on."""

    jobs: Mapping[str, Sequence[Job]]
    nodes: tuple[Node, ...]
    objects: tuple[Budget | Namespace, ...]
    policy: Policy
    gpus: int
    declare: Declare = "true"
    pods: Pods = "any"

    def all_jobs(self) -> list[tuple[Job, str]]:
        """Jobs with their flavor, by submission."""
        pairs = [(job, flavor) for flavor in sorted(self.jobs) for job in self.jobs[flavor]]
        return sorted(pairs, key=lambda pair: pair[0].submit)


class Unstarted(Struct, frozen=True, rename="camel"):
    """Jobs that never started, by what the engine says about them."""

    reason: str
    jobs: int
    example: str


class Work(Struct, frozen=True, rename="camel", kw_only=True):
    """How much was done: in counts that do not depend on the machine, and in seconds of its time, which do."""

    turns: int
    """Instants at which something happened."""
    entries: int
    facts: int
    leases: int
    pods: int
    engine_seconds: float
    """Deciding, committing and simulating; neither auditing nor measuring is in it."""
    audit_seconds: float
    total_seconds: float


class Replayed(Struct, frozen=True, kw_only=True, rename="camel"):
    """What the engine made of a trace."""

    summary: Summary
    fragmentation: Fragmentation
    cuts: tuple[Cut, ...]
    thrown: Thrown
    promises: Promises
    unstarted: tuple[Unstarted, ...]
    refused: tuple[str, ...]
    """Why objects were not even taken in, the first few."""
    audit: Audit
    work: Work


class Replay:
    """One replay: made, and played once."""

    def __init__(self, setting: Setting, *, progress: Progress | None = None, audited: bool = True) -> None:
        """``audited``: the auditor reads along, which takes as long as the engine itself."""
        self.setting = setting
        self._progress = progress
        self._coming = deque(setting.all_jobs())
        self._total = len(self._coming)
        self._horizon = max((job.submit for job, _ in self._coming), default=0)
        # Jobs one after the other would be over by then; whatever still goes on is turning in circles.
        self._latest = START + self._horizon + 2 * sum(job.duration for job, _ in self._coming)
        self.watch = Watch(Tally("tenure", gpus=setting.gpus, horizon=self._horizon), start=START, audited=audited)
        self.room = Room(period=period_for(self._horizon))
        self._units = Machines(setting.nodes, setting.policy).units(setting.pods)
        self._lengths: dict[str, Micros] = {}
        self._refused: list[str] = []
        self._turns = 0
        self._room_seconds = 0.0
        self.home = Home(MemoryStore(keep=False), self._executor(), watch=self.watch)

    def _executor(self) -> SimulatedExecutor:
        policy = self.setting.policy
        executor = SimulatedExecutor(
            bind_delay=parse_duration(policy.bind_delay), stop_delay=parse_duration(policy.stop_delay)
        )
        executor.lengths = self._lengths
        return executor

    def play(self) -> Replayed:
        """All of it."""
        began = process_time()
        self._begin()
        swept = START
        for now in self._instants():
            self._measure(until=now - 1)  # what stood until now; what this instant brings counts from it on
            self._turn(now)
            if now - swept >= DAY:
                self.watch.sweep(now)
                swept = now
        self._measure(until=self.home.state.now)
        self.watch.sweep(self.home.state.now)
        return self._result(process_time() - began)

    # -- time --

    def _begin(self) -> None:
        self.home.handle(SetPolicy(self.setting.policy), now=START)
        custodian = SimulatedCustodian(self.setting.policy.draw_secret)
        self.home.custodians = (custodian,)
        self.home.handle(Publish(custodian.beacon, custodian.root), now=START)
        self.home.handle(Apply(self.setting.nodes), now=START)
        self._apply(self.setting.objects, now=START)
        self.home.drive(now=START)

    def _instants(self) -> Iterator[Instant]:
        """Until every job is over, or nothing will ever change again."""
        while self.watch.tally.over < self._total:
            coming = START + self._coming[0][0].submit if self._coming else None
            instants = [at for at in (coming, self.home.next_wake()) if at is not None]
            if not instants or min(instants) > self._latest:
                return
            yield min(instants)

    def _turn(self, now: Instant) -> None:
        self._turns += 1
        self.home.drive(now=now)
        jobs = dict(self._due(now))
        if jobs:
            self.watch.submitted({key: job for key, (job, _) in jobs.items()}, at=now)
            self._apply(tuple(run for _, run in jobs.values()), now=now)
            self.home.drive(now=now)
        if self._progress is not None:
            self._progress("job", self.watch.tally.over, self._total)

    def _due(self, now: Instant) -> Iterator[tuple[str, tuple[Job, Run]]]:
        """The runs of jobs that are submitted now, by key."""
        while self._coming and START + self._coming[0][0].submit <= now:
            job, flavor = self._coming.popleft()
            run = run_of(job, flavor, declare=self.setting.declare, unit=self._units.get(flavor))
            key = f"{run.metadata.namespace}/{run.metadata.name}"
            self._lengths[key] = job.duration
            yield key, (job, run)

    def _apply(self, objects: Sequence[Run | Budget | Namespace], *, now: Instant) -> None:
        """Hand objects in together; if they are refused, one by one, so that a bad one holds up nobody."""
        errors = self.home.handle(Apply(tuple(objects)), now=now)[0].refused if objects else ()
        if errors and len(objects) > 1:
            for one in objects:
                self._apply([one], now=now)
        else:
            self._refused += [error.sentence() for error in errors[: SHOWN_MAX - len(self._refused)]]

    def _measure(self, *, until: Instant) -> None:
        began = process_time()
        self.room.look(self.home.state.topology, until=until - START)
        self._room_seconds += process_time() - began

    # -- the answer --

    def _result(self, seconds: float) -> Replayed:
        watch, counts = self.watch, self.watch.counts
        return Replayed(
            summary=watch.tally.summary(),
            fragmentation=self.room.result(until=self._horizon),
            cuts=watch.cuts,
            thrown=watch.vain.result(),
            promises=watch.promised.result(),
            unstarted=tuple(self._unstarted()),
            refused=tuple(self._refused),
            audit=watch.audit,
            work=Work(
                turns=self._turns,
                entries=counts["entries"],
                facts=counts["facts"],
                leases=counts["leases"],
                pods=counts["pods"],
                engine_seconds=round(seconds - watch.audit_seconds - self._room_seconds, 3),
                audit_seconds=round(watch.audit_seconds, 3),
                total_seconds=round(seconds, 3),
            ),
        )

    def _unstarted(self) -> Iterator[Unstarted]:
        rows = self.home.state.runs
        by_reason: dict[str, list[RunRow]] = {}
        for key in self.watch.jobs:
            if key in rows:
                by_reason.setdefault(rows[key].life.reason, []).append(rows[key])
        for reason, waiting in sorted(by_reason.items()):
            yield Unstarted(reason, len(waiting), f"{waiting[0].key}: {waiting[0].life.message}")
