"""The driver of an embedded fleet (``tenure up``): lets time pass, runs what was decided, and tells what happens.

The loop looks for entries of other processes, for timers, and for pods that changed; then it sleeps until the next
instant that matters, or until the bell rings (``bell.py``): somebody committed, or a pod ended. It never sleeps longer
than a second, and where the bell cannot hear the file not longer than a tenth of one. If the ledger cannot be written,
running work goes on and nothing is admitted; the loop says so once and tries again.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import closing, contextmanager, suppress
from pathlib import Path
from threading import Event, Thread
from typing import TYPE_CHECKING

from tenure.embedded.bell import Bell
from tenure.embedded.custodians import FolderCustodian
from tenure.embedded.driver import DriverLock
from tenure.embedded.fleet import clock
from tenure.embedded.paths import pods_path
from tenure.embedded.process import ProcessExecutor
from tenure.embedded.route import RoutedExecutor
from tenure.engine import Publish
from tenure.facts import Entry
from tenure.ledger import Ledger, LedgerRefused
from tenure.shell.home import Home
from tenure.shell.ledger_store import LedgerStore
from tenure.shell.simulated import SimulatedExecutor
from tenure.shell.store import Store
from tenure.units import SECOND, Instant, parse_duration

if TYPE_CHECKING:
    from tenure.notify import NotifyConfig
    from tenure.observe.meter import Meter

RETRY = 1.0
"""Seconds until a refused write is tried again."""


class Daemon:
    """Drives one fleet until told to stop. Work that runs then goes on running; the next driver finds it again."""

    def __init__(
        self,
        path: Path,
        *,
        anchor: Path | None = None,
        watch: Callable[[Entry], None] | None = None,
        trouble: Callable[[LedgerRefused], None] | None = None,
        notify: NotifyConfig | None = None,
        report: Callable[[str], None] | None = None,
        custodians: Sequence[FolderCustodian] = (),
        metered: Meter | None = None,
    ) -> None:
        self.path = path
        self.metered = metered
        self.custodians = tuple(custodians)
        """Who reveals when a draw is frozen; what they have not published yet is published when driving begins."""
        self.anchor = anchor
        self.watch = watch
        self.trouble = trouble
        self.notify = notify
        self.report = report
        """Told, in a sentence, when a receiver of notifications goes away, comes back, or refuses for good."""
        self.stopping = Event()
        self._bell: Bell | None = None
        self._executor: ProcessExecutor | None = None
        self._attested = False
        """The ledger's tables were found to be right: asked once, when driving begins."""

    def run(self, *, until_idle: bool = False) -> None:
        """Drive; with ``until_idle`` only until nothing waits, runs or stops any more."""
        with DriverLock(self.path), self._notifying():
            ledger, home = self._opened()
            executor = self._real(ledger.fleet)
            with closing(executor), Bell(ledger.anchor_path) as self._bell:
                self._bell.heed(executor.descriptor())
                while not self._driven_to_the_end(ledger, home, self._bell, until_idle=until_idle):
                    ledger, home = self._reopened()

    @contextmanager
    def _notifying(self) -> Iterator[None]:
        """Deliver notifications meanwhile, in threads with ledger handles of their own, and the last ones after it."""
        if self.notify is None:
            yield
            return
        from tenure.notify import Deliverer  # only where somebody wants to be told

        deliverer = Deliverer(self.path, self.notify, anchor=self.anchor, report=self.report)
        done = Event()
        thread = Thread(target=deliverer.run, args=(done,), name="notify", daemon=True)
        thread.start()
        try:
            yield
        finally:
            done.set()
            thread.join()

    def _driven_to_the_end(self, ledger: Ledger, home: Home, bell: Bell, *, until_idle: bool) -> bool:
        """Drive until told to stop, or until the ledger refuses: then False, and only what is stored can be trusted."""
        with ledger:
            while not self.stopping.is_set():
                try:
                    home.drive(now=clock())
                except LedgerRefused as refused:
                    if self.metered is not None:
                        self.metered.refused()
                    self._report(refused)
                    return self.stopping.wait(RETRY)
                if self.metered is not None:
                    self.metered.look(home)
                if until_idle and is_idle(home):
                    return True
                bell.wait(_pause(home.next_wake(), clock(), longest=bell.longest()))
        return True

    def _opened(self) -> tuple[Ledger, Home]:
        ledger = Ledger.open(self.path, anchor=self.anchor)
        try:
            return ledger, self._home(ledger)
        except BaseException:
            ledger.close()
            raise

    def _reopened(self) -> tuple[Ledger, Home]:
        while True:
            try:
                return self._opened()
            except LedgerRefused as refused:
                self._report(refused)
                if self.stopping.wait(RETRY):
                    raise

    def _report(self, refused: LedgerRefused) -> None:
        if self.trouble is not None:
            with suppress(OSError):  # a log on the same full disk must not stop the fleet
                self.trouble(refused)

    def stop(self) -> None:
        self.stopping.set()
        if self._bell is not None:
            self._bell.ring()

    def _home(self, ledger: Ledger) -> Home:
        home = Home(self._store(ledger), custodians=self.custodians, watch=self._saw)
        if not self._attested:
            ledger.attest(home.state.leases.values(), at=home.seq)
            self._attested = True
        if self.metered is not None:
            self.metered.begin(home)
        for one in self.custodians:
            home.handle(Publish(one.beacon, one.root), now=clock(), decide=False)
        policy = home.state.policy
        simulated = SimulatedExecutor(
            bind_delay=parse_duration(policy.bind_delay), stop_delay=parse_duration(policy.stop_delay)
        )
        home.executor = RoutedExecutor(
            simulated=simulated,
            fleet=ledger.fleet,
            real=self._real(ledger.fleet),
            find_node=lambda name: row.node if (row := home.state.topology.rows.get(name)) else None,
        )
        return home

    def _store(self, ledger: Ledger) -> Store:
        if self.metered is None:
            return LedgerStore(ledger)
        from tenure.shell.timed_store import TimedStore  # only where somebody wants to know

        return TimedStore(LedgerStore(ledger), self.metered.took)

    def _saw(self, entry: Entry) -> None:
        if self.metered is not None:
            self.metered.saw(entry)
        if self.watch is not None:
            self.watch(entry)

    def _real(self, fleet: str) -> ProcessExecutor:
        """The same one also after the ledger was opened again: it has children to bury."""
        if self._executor is None:
            self._executor = ProcessExecutor(pods_path(self.path, fleet=fleet))
        return self._executor


def is_idle(home: Home) -> bool:
    """Nothing runs, starts or stops, and nothing that waits could start by itself."""
    busy = ("Starting", "Running", "Stopping")
    return not any(row.life.phase in busy or row.life.not_before > home.state.now for row in home.state.runs.values())


def _pause(wake: Instant | None, now: Instant, *, longest: float) -> float:
    return longest if wake is None else min(longest, max(0.0, (wake - now) / SECOND))
