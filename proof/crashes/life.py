"""One process's life with a fleet: a real ledger, a home, hands, a custodian's folder, a courier with its outbox.

A life plays a scenario from where the world stands to the end, unless it meets the trap. ``Player`` says what each
step does; what is added here is that one may begin anywhere: with the step whose sender has no answer yet, at the
instant that it is. Recovery takes no time by the world's clock, so nothing at all is allowed to come out otherwise.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

from proof.crashes.trap import Trap
from proof.crashes.world import Hands, World
from tenure.api.errors import FieldError
from tenure.custodian import Custodian, CustodianRefused, open_custodian
from tenure.custodian.journal import WIDTH
from tenure.custodian.keeper import JOURNAL
from tenure.draw import Intent
from tenure.embedded.custodians import FolderCustodian
from tenure.engine import Apply, Event, Outcome, Publish, SetPolicy
from tenure.facts import Entry, Placed
from tenure.ledger import Code, Ledger, LedgerRefused
from tenure.ledger.chain import Head
from tenure.ledger.store import Hook
from tenure.notify.config import Receiver, Stdout
from tenure.notify.deliver import Courier
from tenure.notify.outbox import Outbox
from tenure.notify.progress import Answer, Dead, Delivered, Pace
from tenure.shell.home import Home
from tenure.shell.ledger_store import LedgerStore
from tenure.shell.simulated import SimulatedExecutor
from tenure.simulate.player import Player
from tenure.simulate.scenario import Scenario
from tenure.units import SECOND, Instant, Micros, parse_duration

FLEET = "simulator"
FILE = "fleet.db"
WIDE = 4
"""Letters that are sent together: few, so that a page is several sends."""
RECEIVER = Receiver(
    name="desk", to=Stdout(), pace=Pace(attempts=3, backoff=SECOND, backoff_max=60 * SECOND), history=True
)


class MortalLedger(Ledger):
    """Whose opening has points, too: that the anchor is rolled forward is a write."""

    def _anchor(self, head: Head, *, hook: Hook) -> None:
        if hook is not self._hook:
            self._hook("rolling")
        super()._anchor(head, hook=self._hook)

    @property
    def is_in_doubt(self) -> bool:
        try:
            return self.head is None
        except LedgerRefused as refused:
            return refused.code is Code.Unconfirmed


class MortalHome(Home):
    """Who may die after a decision counts and before anything is done about it."""

    trap: Trap

    def handle(self, *events: Event, now: Instant, decide: bool = True) -> list[Outcome]:
        outcomes = super().handle(*events, now=now, decide=decide)
        self.trap.reach("acknowledged")
        return outcomes


class Keeper(FolderCustodian):
    """A custodian's folder: that it writes down what it reveals is a write, and may be cut short."""

    def __init__(self, folder: Path, trap: Trap) -> None:
        custodian = open_custodian(folder)
        assert isinstance(custodian, Custodian), custodian
        status = custodian.status()
        assert not isinstance(status, CustodianRefused), status
        super().__init__(custodian, status)
        self.journal, self.trap = folder / JOURNAL, trap

    def answer(self, intent: Intent) -> str | None:
        self.trap.begin("reveal", self.beacon)
        self.trap.reach("before")
        size = self.journal.stat().st_size
        value = super().answer(intent)
        self.trap.reach("torn", dying=lambda: self._tear(size))
        self.trap.reach("during")
        self.trap.reach("after")
        return value

    def _tear(self, size: int) -> None:
        """Half a line is what a power cut leaves of one that was being written."""
        if self.journal.stat().st_size > size:
            os.truncate(self.journal, size + WIDTH // 2)


class Desk:
    """Where letters arrive."""

    width = WIDE

    def __init__(self, world: World, trap: Trap) -> None:
        self.world, self.trap = world, trap

    def send(self, bodies: Sequence[bytes]) -> Answer:
        self.trap.begin("send", f"{len(bodies)} letters")
        self.trap.reach("before")
        self.world.letters += bodies
        self.trap.reach("during")
        return Delivered()

    def rest(self) -> None:
        pass


class MortalCourier(Courier):
    sink: Desk

    def _heard(self, answer: Answer, dead: Dead | None) -> None:
        super()._heard(answer, dead)
        self.sink.trap.reach("after")


class Life(Player):
    """From opening the files to the end of the scenario, or of the process."""

    def __init__(
        self, scenario: Scenario, world: World, folder: Path, custodian: Path, trap: Trap, *, clients: bool = False
    ) -> None:
        self.world, self.trap, self.path, self.clients = world, trap, folder / FILE, clients
        self.told: list[int] = []
        """Entries that whoever watches was told of."""
        self._placed: set[str] = set()
        self._read = 0
        self._posted = -1
        """The last entry that the courier has seen to."""
        self._handles: list[Ledger] = []
        now = world.now
        try:
            self.ledger = self._open("ledger")
            super().__init__(scenario, self._made)
            self.now = now
            self.executor = self._hands
            self.custodian = Keeper(custodian, trap)  # type: ignore[assignment]  # it has the same face
            self.home.custodians = (self.custodian,)
            self.nodes, self.snapshots = world.nodes, world.snapshots
            self.first = self.home.seq
            self.courier = MortalCourier(RECEIVER, Outbox(self._open("outbox")), Desk(world, trap))
        except BaseException:
            self.close()
            raise

    @property
    def now(self) -> Instant:
        return self.world.now

    @now.setter
    def now(self, value: Instant) -> None:
        self.world.now = value

    def close(self) -> None:
        for ledger in self._handles:
            ledger.close()

    def recover(self) -> None:
        """The same process goes on: what it holds in doubt it opens again, all else it keeps."""
        self._posted = -1
        if self.ledger.is_in_doubt:
            self.ledger = self._open("ledger")
            self.home.store = LedgerStore(self.ledger)
        if self.courier.outbox.ledger.is_in_doubt:  # type: ignore[attr-defined]  # it is a MortalLedger
            self.courier.outbox = Outbox(self._open("outbox"))

    def go_on(self, *, settled: Callable[[], None] = lambda: None) -> None:
        """To the end of the scenario; ``settled`` is called once, when this life has first done all it found to do."""
        world, acts = self.world, list(self._acts())
        self._settle()
        settled()
        while world.step < len(acts):
            at, act = acts[world.step]
            self._advance(self.scenario.start + at)
            if not world.answered:
                act()
                world.answered = True
            self._settle()
            world.step, world.answered = world.step + 1, False
        self._advance(self.scenario.start + self.scenario.until)

    def _acts(self) -> Iterator[tuple[Micros, Callable[[], Any]]]:
        scenario, root = self.scenario, self.custodian.root
        yield 0, lambda: self._handle(SetPolicy(scenario.policy))
        yield 0, lambda: self._handle(Publish(self.custodian.beacon, root))
        yield 0, lambda: self._handle(Apply(scenario.nodes))
        yield 0, lambda: self._apply(scenario.objects)
        for step in scenario.steps:
            if step.at <= scenario.until:
                yield step.at, lambda step=step: self._do(step)  # type: ignore[misc]

    def _advance(self, until: Instant) -> None:
        """As ever; but it may be later than the step that comes next."""
        super()._advance(max(self.now, until))

    def _settle(self) -> None:
        self.home.drive(now=self.now)
        if self.home.seq == self._posted:
            return
        while (wake := self.courier.turn(self.now)) is not None and wake <= self.now:
            pass
        self._posted = self.home.seq

    def _handle(self, event: Event) -> list[FieldError]:
        """With ``clients``, what people want comes in through a process of its own, which decides, and ends."""
        if not self.clients:
            return super()._handle(event)
        with self._open("ledger") as ledger:
            outcomes = self._mortal(ledger).handle(event, now=self.now)
        return [error for outcome in outcomes for error in outcome.refused]

    def _watch(self, entry: Entry) -> None:
        self.told.append(entry.seq)

    def _open(self, kind: str) -> MortalLedger:
        hook = self.trap.hook(kind)
        if self.path.exists():
            ledger = MortalLedger.open(self.path, hook=hook)
        else:
            ledger = MortalLedger.create(self.path, fleet=FLEET, hook=hook)
        self._handles.append(ledger)
        return ledger

    def _made(self, simulated: SimulatedExecutor) -> Home:
        policy = self.scenario.policy
        self._hands = Hands(
            self.world,
            self.trap,
            bind_delay=parse_duration(policy.bind_delay),
            stop_delay=parse_duration(policy.stop_delay),
        )
        self._hands.open_ended = simulated.open_ended
        self._hands.is_committed = self._is_committed
        return self._mortal(self.ledger, self._hands)

    def _mortal(self, ledger: Ledger, hands: Hands | None = None) -> MortalHome:
        home = MortalHome(LedgerStore(ledger), hands)
        home.trap = self.trap
        return home

    def _is_committed(self, pod: str) -> bool:
        """Whether the stored entries place a pod; asked between two writes, so that what is read is what counts."""
        for entry in self.ledger.entries(after=self._read):
            self._placed.update(fact.pod.key for fact in entry.facts if isinstance(fact, Placed))
            self._read = entry.seq
        return pod in self._placed


def copy_files(folder: Path, to: Path) -> None:
    """The ledger's files as they lie right now, which is what a process killed here leaves behind.

    Read by this very process, though that drops the locks that SQLite holds in it: all handles are this process's own,
    and among those SQLite does not ask the kernel. What it mapped (``-shm``) is made anew by whoever opens first.
    """
    to.mkdir()
    for suffix in ("", "-wal", ".anchor", ".creating"):
        with suppress(FileNotFoundError):
            shutil.copyfile(folder / (FILE + suffix), to / (FILE + suffix))
