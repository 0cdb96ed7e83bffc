"""What the kill tests are written in: a timeline on a virtual clock, the wrecks that kills leave, and life after them.

A timeline is played once, undisturbed, on a real ledger with simulated pods. At every named point of every write the
files are copied as they lie at that instant: that is what a process killed there leaves behind, because what it wrote
is the kernel's from then on and its locks are gone. Each such ``Wreck`` is then opened by a new process's worth of
objects (ledger, home, executor) and played to the end of the timeline.

What survives a kill besides the files is the world: pods that exited have exited, machines that burnt have burnt, and
a sender who got no answer asks again. ``World`` holds that, and nothing of it is Tenure's.
"""

from __future__ import annotations

import shutil
import subprocess
from collections.abc import Callable, Iterator
from functools import lru_cache
from pathlib import Path
from typing import NamedTuple

from msgspec.structs import replace

from tenure.api.policy import Policy
from tenure.audit import Auditor, settled_pass_wrote
from tenure.engine import Apply, Delete, Event, Publish, SetPolicy
from tenure.engine.intake import Applied
from tenure.facts import Fact, Lease, decode_entry
from tenure.ledger import Ledger
from tenure.shell.custodian import SimulatedCustodian
from tenure.shell.executor import PodReport, PodWork
from tenure.shell.home import Home
from tenure.shell.ledger_store import LedgerStore
from tenure.shell.simulated import Outcome, SimulatedExecutor
from tenure.testing import FENCE, START, at, node
from tenure.units import Instant, Micros, parse_duration

FLEET = "crash-test"
CUSTODIAN = SimulatedCustodian("crash-test")
"""Who reveals lives elsewhere: no kill of ours touches it, and asked again it answers the same."""
SUFFIXES = ("", "-wal", "-shm", ".anchor")


# --- the world, which no kill of ours touches ---------------------------------------------------------------------


class Order(NamedTuple):
    """A pod that exits by itself."""

    run: str
    pod: str
    outcome: Outcome
    at: Instant


class World(NamedTuple):
    exits: tuple[Order, ...] = ()
    broken: frozenset[str] = frozenset()
    """Pods (``namespace/name``) that cannot be started."""
    down: frozenset[str] = frozenset()
    """Machines that are gone."""


class Reality(SimulatedExecutor):
    """Simulated pods in a world that may end them: an executor made after a kill tells what the dead one would have."""

    def __init__(self, play: Play, policy: Policy) -> None:
        super().__init__(bind_delay=parse_duration(policy.bind_delay), stop_delay=parse_duration(policy.stop_delay))
        self._play = play
        for name in sorted(play.world.down):
            self.lose_node(name)

    def revise(self, changed: list[PodWork], *, dropped: list[str], now: Instant) -> list[PodReport]:  # type: ignore[override]
        reports = super().revise(changed, dropped=dropped, now=now)
        world = self._play.world
        hit = [self.finish(one.run, one.outcome, now=one.at, pod=one.pod) for one in world.exits]
        if any(hit):
            reports = super().revise([], dropped=[], now=now)
        return [
            replace(report, phase="Failed", message="no such image")
            if report.phase == "Bound" and report.key in world.broken
            else report
            for report in reports
        ]


# --- timelines ----------------------------------------------------------------------------------------------------


class Step(NamedTuple):
    """Something that happens at an instant, outside of the fleet's own decisions."""

    at: Instant
    act: Callable[[Play], None]


class Timeline(NamedTuple):
    name: str
    steps: tuple[Step, ...]
    until: Instant
    writes: int
    """How many writes it takes, at least: an enumeration that shrank to nothing must not pass."""
    policy: Policy = Policy()
    spends_hours: bool = False
    """Whether an envelope runs out. If nobody drives at that instant it is overdrawn, and the auditor says so."""


def send(offset: str, *events: Event) -> Step:
    """Somebody sends events to the process that drives, and repeats them if no answer comes."""

    def act(play: Play) -> None:
        play.home.handle(*events, now=play.now)

    return Step(at(offset), act)


def mistake(offset: str, *events: Event) -> Step:
    """The same with events that must be refused, and leave no trace."""

    def act(play: Play) -> None:
        outcomes = play.home.handle(*events, now=play.now)
        assert all(outcome.refused and not outcome.facts for outcome in outcomes)

    return Step(at(offset), act)


def begin(policy: Policy, *objects: Applied) -> Step:
    """A fleet is made: its policy and its machines in one write, as ``Fleet.create`` does it."""
    return send("0s", SetPolicy(policy), Publish(CUSTODIAN.beacon, CUSTODIAN.root), Apply(objects))


def record(offset: str, *events: Event) -> Step:
    """The same through another process, while nobody drives: recorded, to be decided later."""

    def act(play: Play) -> None:
        with Ledger.open(play.path, hook=play.reached) as ledger:
            Home(LedgerStore(ledger)).handle(*events, now=play.now, decide=False)

    return Step(at(offset), act)


def decide(offset: str, *events: Event) -> Step:
    """The same through another process while somebody drives: decided there, carried out by the driver."""

    def act(play: Play) -> None:
        with Ledger.open(play.path, hook=play.reached) as ledger:
            Home(LedgerStore(ledger)).handle(*events, now=play.now)

    return Step(at(offset), act)


def apply(*objects: Applied) -> Apply:
    return Apply(objects)


def cancel(name: str) -> Delete:
    return Delete(kind="Run", namespace="lab", name=name)


def exits(offset: str, pod: str, outcome: Outcome = "fail") -> Step:
    """A pod of the lab exits by itself."""
    run = f"lab/{pod.rsplit('-a', 1)[0]}"
    order = Order(run, pod, outcome, at(offset))

    def act(play: Play) -> None:
        play.world = play.world._replace(exits=(*play.world.exits, order))

    return Step(at(offset), act)


def breaks(offset: str, *pods: str) -> Step:
    """From here on these pods of the lab cannot be started."""

    def act(play: Play) -> None:
        play.world = play.world._replace(broken=play.world.broken | {f"lab/{pod}" for pod in pods})

    return Step(at(offset), act)


def burns(offset: str, name: str) -> Step:
    """A machine is gone, and an operator fences it."""

    def act(play: Play) -> None:
        play.world = play.world._replace(down=play.world.down | {name})
        play.executor.lose_node(name)
        play.home.handle(apply(node(name, taints=[FENCE])), now=play.now)

    return Step(at(offset), act)


# --- playing ------------------------------------------------------------------------------------------------------


class Cursor(NamedTuple):
    """How far a timeline was played, by the calendar of the world."""

    step: int = 0
    answered: bool = False
    """Whether whoever took this step has his answer."""
    now: Instant = START
    world: World = World()


BEGINNING = Cursor()


class Wreck(NamedTuple):
    """What a process killed at a point of a write left behind."""

    path: Path
    write: int
    point: str
    cursor: Cursor
    acknowledged: tuple[str, ...]
    """The hashes of all entries that somebody had been told of."""

    def __str__(self) -> str:
        return f"killed in write {self.write} at {self.point}"


class Play:
    """One process's life with a fleet: from its start to the end of the timeline, unless it is wrecked on the way."""

    def __init__(
        self,
        timeline: Timeline,
        path: Path,
        cursor: Cursor = BEGINNING,
        *,
        wreck: Callable[[Play, str], None] | None = None,
    ) -> None:
        self.timeline = timeline
        self.path = path
        self.step, self.answered, self.now, self.world = cursor
        self.write = 0
        self.acknowledged: tuple[str, ...] = ()
        self._wreck = wreck
        self.ledger = Ledger.open(path, hook=self.reached)
        self.executor = Reality(self, timeline.policy)
        self.home = Home(LedgerStore(self.ledger), self.executor, custodians=(CUSTODIAN,))
        self._acknowledge()

    def __enter__(self) -> Play:
        return self

    def __exit__(self, *_: object) -> None:
        self.ledger.close()

    @property
    def cursor(self) -> Cursor:
        return Cursor(self.step, self.answered, self.now, self.world)

    def to_the_end(self) -> None:
        self._settle()
        while self.step < len(self.timeline.steps):
            step = self.timeline.steps[self.step]
            self._advance(step.at)
            if not self.answered:
                step.act(self)
                self._acknowledge()
                self.answered = True
            self._settle()
            self.step, self.answered = self.step + 1, False
        self._advance(self.timeline.until)

    def reached(self, point: str) -> None:
        """The hook of every ledger handle of this play."""
        self.write += point == "begin"
        if self._wreck is not None:
            self._wreck(self, point)

    def _advance(self, until: Instant) -> None:
        while (wake := self.home.next_wake()) is not None and wake <= until:
            self.now = max(self.now, wake)
            self._settle()
        self.now = max(self.now, until)
        self._settle()

    def _settle(self) -> None:
        self.home.drive(now=self.now)
        self._acknowledge()

    def _acknowledge(self) -> None:
        """Everything up to the present head has been said by a call that came back."""
        known = len(self.acknowledged)
        self.acknowledged += tuple(link.hash for link in self.ledger.links(after=known))


def create(timeline: Timeline, folder: Path) -> Path:
    folder.mkdir(parents=True)
    path = folder / "fleet.db"
    Ledger.create(path, fleet=FLEET).close()
    return path


def wrecks_of(
    timeline: Timeline,
    path: Path,
    cursor: Cursor = BEGINNING,
    *,
    pick: Callable[[int], bool] = lambda count: True,
) -> list[Wreck]:
    """Play to the end, and keep what a kill would have left at each point of each write, or at those picked."""
    found: list[Wreck] = []
    count = 0

    def wreck(play: Play, point: str) -> None:
        nonlocal count
        count += 1
        if pick(count):
            there = copy(path, path.parent / f"{count:04d}")
            found.append(Wreck(there, play.write, point, play.cursor, play.acknowledged))

    with Play(timeline, path, cursor, wreck=wreck) as play:
        play.to_the_end()
    return found


def copy(path: Path, folder: Path) -> Path:
    """The files as they are right now, in the middle of a write or not.

    By another process: closing a descriptor of the database here would drop the locks that SQLite holds.
    """
    folder.mkdir()
    files = [str(path.with_name(path.name + suffix)) for suffix in SUFFIXES]
    there = [file for file in files if Path(file).exists()]
    subprocess.run(["cp", *there, str(folder)], check=True, close_fds=False)
    return folder / path.name


def remove(path: Path) -> None:
    shutil.rmtree(path.parent)


# --- judging ------------------------------------------------------------------------------------------------------


class Book(NamedTuple):
    """A ledger as it is in the end."""

    bodies: tuple[bytes, ...]
    """Every entry, to the letter."""
    facts: tuple[Fact, ...]
    """All that was ever recorded, explanations included."""
    leases: tuple[tuple[Lease, Instant | None, str | None], ...]
    """Every lease there ever was, with its end and its closure, by name."""
    lives: tuple[tuple[object, ...], ...]
    """Every run that is left, with its phase, attempt, restarts and failures."""


def book(play: Play) -> Book:
    links = list(play.ledger.links())
    rows = sorted(play.ledger.leases(), key=lambda row: row.lease.key)
    lives = [(key, row.life) for key, row in sorted(play.home.state.runs.items())]
    return Book(
        bodies=tuple(link.body for link in links),
        facts=tuple(fact for link in links for fact in link.entry.facts),
        leases=tuple((row.lease, row.end, row.closure) for row in rows),
        lives=tuple((key, life.phase, life.attempt, life.restarts, life.failures) for key, life in lives),
    )


def violations(play: Play) -> list[str]:
    """Whatever the auditor has to say about the whole ledger, and what one more pass would write."""
    return [*audit(play.ledger, now=play.now), *_one_more_pass(play)]


def audit(ledger: Ledger, *, now: Instant, settled: bool = True) -> list[str]:
    """The auditor's view of every entry and of what is open at the end; and the ledger's of itself."""
    bodies = tuple(link.body for link in ledger.links())
    return [*_audited(bodies, now, settled), *(str(one) for one in ledger.verify().findings)]


@lru_cache(maxsize=64)
def _audited(bodies: tuple[bytes, ...], now: Instant, settled: bool) -> list[str]:
    """Remembered, because most kills end in the very same bytes, and of those there is one opinion."""
    auditor = Auditor()
    found = [violation for body in bodies for violation in auditor.feed_raw(body)]
    found += auditor.check(now, settled=settled)
    found += auditor.recheck([decode_entry(body) for body in bodies], now=now)
    return [one.sentence() for one in found]


def _one_more_pass(play: Play) -> Iterator[str]:
    before = play.ledger.head.seq
    play.home.drive(now=play.now)
    for entry in play.ledger.entries(after=before):
        yield from (one.sentence() for one in settled_pass_wrote(entry.facts, at=play.now))


def later(cursor: Cursor, delay: Micros) -> Cursor:
    """The same, but the next process comes only after a while."""
    return cursor._replace(now=cursor.now + delay)
