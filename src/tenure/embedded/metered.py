"""What a driver tells its metrics, and the server they are scraped from. Nothing of it can stop the driver.

The driver's own thread counts entries and, when a scrape waits for them, reads the gauges between two turns of its
loop. Everything else happens in the server's threads; how receivers of notifications fare is read there, from the
ledger's file, through a handle of its own.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path

from tenure.embedded.fleet import clock
from tenure.facts import Entry
from tenure.ledger import Ledger
from tenure.observe import Metrics
from tenure.observe.gauges import Sample
from tenure.shell.home import Home


class Metered:
    """The driver's side."""

    def __init__(self, metrics: Metrics) -> None:
        self.metrics = metrics
        self._begun = False

    def begin(self, home: Home) -> None:
        """Driving begins, or goes on after the ledger was opened again: then entries may have been missed."""
        if not self._begun:
            self.metrics.begin(home.state, head=home.seq)
            self._begun = True
        else:
            for entry in home.store.entries(self.metrics.head, home.seq):
                self.saw(entry)

    def saw(self, entry: Entry) -> None:
        with self._safely():
            self.metrics.saw(entry, now=clock())

    def took(self, deciding: float, committing: float) -> None:
        self.metrics.took("decision_seconds", deciding)
        self.metrics.took("ledger_commit_seconds", committing)

    def look(self, home: Home) -> None:
        """Between two turns: read the gauges if a scrape waits for them."""
        if self.metrics.wanted:
            with self._safely():
                self.metrics.collect(home.state, now=max(clock(), home.state.now))

    @contextmanager
    def _safely(self) -> Iterator[None]:
        """What goes wrong with a number is counted, and is no reason to stop a fleet."""
        try:
            yield
        except Exception:
            self.metrics.failed()


def receivers(path: Path, anchor: Path | None, names: Iterable[str]) -> Callable[[], list[Sample]]:
    """How far the receivers of notifications are behind: asked anew at each scrape."""
    wanted = frozenset(names)

    def read() -> list[Sample]:
        from tenure.notify.outbox import Outbox  # only where somebody is notified

        with Ledger.open(path, readonly=True, anchor=anchor) as ledger:
            states = [one for one in Outbox(ledger).states() if one.name in wanted]
        return [
            *(("notifier_outbox_events", (one.name,), float(one.behind)) for one in states),
            *(("notifier_dead_letters", (one.name,), float(one.dead)) for one in states),
        ]

    return read
