"""What a driver tells its metrics, in an embedded fleet and in a cluster alike. Nothing of it can stop the driver.

The driver's own thread counts entries and, when a scrape waits for them, reads the gauges between two turns of its
loop. Everything else happens in the threads that serve. Of several operators only the one that decides shows the
state, and counts what is committed from then on: what the others show adds up to one fleet, not to two.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from typing import Protocol

from tenure.engine.state import State
from tenure.facts import Entry
from tenure.observe.metrics import Metrics
from tenure.units import Instant


class StoreLike(Protocol):
    def entries(self, after: int = 0, until: int | None = None) -> Iterable[Entry]: ...


class HomeLike(Protocol):
    """As much of a home as is looked at."""

    @property
    def state(self) -> State: ...
    @property
    def seq(self) -> int: ...
    @property
    def store(self) -> StoreLike: ...


class Meter:
    """The driver's side."""

    def __init__(self, metrics: Metrics, clock: Callable[[], Instant]) -> None:
        self.metrics = metrics
        self._clock = clock
        self._begun = False

    def begin(self, home: HomeLike) -> None:
        """Driving begins, or goes on after the ledger was opened again: then entries may have been missed."""
        if not self._begun:
            self.metrics.begin(home.state, head=home.seq)
            self._begun = True
        else:
            for entry in home.store.entries(self.metrics.head, home.seq):
                self.saw(entry)

    def saw(self, entry: Entry) -> None:
        """An entry counts. One that was there when driving began does not."""
        with self._safely():
            if entry.seq > self.metrics.head:
                self.metrics.saw(entry, now=self._clock())

    def took(self, deciding: float, committing: float) -> None:
        self.metrics.took("decision_seconds", deciding)
        self.metrics.took("ledger_commit_seconds", committing)

    def refused(self, *, outrun: bool = False) -> None:
        """A decision could not be committed; ``outrun``: because somebody else was faster, which is no trouble."""
        self.metrics.refused(outrun=outrun)

    def look(self, home: HomeLike) -> None:
        """Between two turns, all being well: read the gauges if a scrape waits for them."""
        self.metrics.ready = True
        if self.metrics.wanted:
            with self._safely():
                self.metrics.collect(home.state, now=max(self._clock(), home.state.now))

    def rest(self) -> None:
        """Somebody else decides: what is shown here would be shown twice."""
        self._begun, self.metrics.ready = False, True
        self.metrics.clear()

    @contextmanager
    def _safely(self) -> Iterator[None]:
        """What goes wrong with a number is counted, and is no reason to stop a fleet."""
        try:
            yield
        except Exception:
            self.metrics.failed()
