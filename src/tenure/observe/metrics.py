"""Metrics of one home: told every committed entry, and shown the state when somebody wants to know.

Two threads meet here. The one that owns the state calls ``saw``, ``took`` and ``answer``; those that serve scrapes call
``ask`` and ``families``, and never touch the state: it belongs to a decision until that is made. A scrape asks, the
owner answers at its next turn, and if it does not in time the scrape gets the numbers of last time, with their age.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from threading import Condition
from time import monotonic

from msgspec import Struct

from tenure import __version__
from tenure.engine.state import State
from tenure.facts import Entry
from tenure.observe import gauges
from tenure.observe.counts import Counts
from tenure.observe.gauges import Sample
from tenure.observe.table import METRICS, SERIES_MAX, Labels, Metric
from tenure.units import SECOND, Instant

Source = Callable[[], Iterable[Sample]]
"""Gauges that are read elsewhere, by the thread that serves them."""


class Family(Struct, frozen=True):
    """A metric with all its series at one instant: plain values, or buckets with their sum."""

    metric: Metric
    values: tuple[tuple[Labels, float], ...] = ()
    spreads: tuple[tuple[Labels, list[tuple[float, int]], float], ...] = ()


class Metrics:
    """Counters, and the gauges as they were last read."""

    def __init__(self, *, sources: Iterable[Source] = ()) -> None:
        self._counts = Counts()
        self._sources = tuple(sources)
        self._gauges: dict[str, list[tuple[Labels, float]]] = {}
        self._turn = Condition()
        self._asked = False
        self._read: float | None = None
        self.ready = False
        """Whether the driver decides and its ledger can be written; or would, if it were its turn."""
        self.called: Callable[[], None] = lambda: None
        """Called when a scrape waits for the gauges, by who serves it: wakes a driver that sleeps."""

    # -- for the thread that owns the state --

    def begin(self, state: State, *, head: int = 0) -> None:
        """Before the first entry: what was there already."""
        with self._turn:
            self._counts.begin(state, head=head)

    def saw(self, entry: Entry, *, now: Instant | None = None) -> None:
        """An entry counts. ``now`` is the clock of who took it in, to tell how far behind it is."""
        with self._turn:
            self._counts.saw(entry)
            if now is not None:
                self._counts.took("watch_lag_seconds", max(0, now - entry.at) / SECOND)

    def took(self, name: str, seconds: float) -> None:
        with self._turn:
            self._counts.took(name, seconds)

    def failed(self) -> None:
        """Something about metrics went wrong, and was left out."""
        with self._turn:
            self._counts.counts["metrics_failures_total"].add()

    def refused(self, *, outrun: bool) -> None:
        """A decision was not committed."""
        with self._turn:
            self.ready = self.ready and outrun
            self._counts.counts["ledger_refusals_total"].add("outrun" if outrun else "refused")

    def add(self, source: Source) -> None:
        """One more place to read from."""
        self._sources += (source,)

    @property
    def head(self) -> int:
        """The number of the last entry that was counted, or was there before."""
        return self._counts.head

    @property
    def wanted(self) -> bool:
        """Whether a scrape waits for the gauges."""
        return self._asked

    def collect(self, state: State, *, now: Instant) -> None:
        """Read the gauges. Costs one look at everything open, so it is done when they are wanted."""
        found = None
        try:
            found = _by_name(gauges.samples(state, now=now))
        finally:
            with self._turn:
                if found is not None:
                    self._gauges, self._read = found, monotonic()
                self._asked = False
                self._turn.notify_all()

    def clear(self) -> None:
        """Somebody else owns the state from now on: nothing is shown of it here."""
        with self._turn:
            self._gauges, self._read, self._asked = {}, None, False
            self._turn.notify_all()

    # -- for those that serve --

    def ask(self, *, patience: float) -> None:
        """Have the gauges read anew, and wait for it, but no longer than so many seconds."""
        with self._turn:
            self._asked = True
            self.called()
            self._turn.wait_for(lambda: not self._asked, timeout=patience)

    def families(self) -> list[Family]:
        """Everything that is known now, in the order of the table."""
        elsewhere = self._elsewhere()
        with self._turn:
            known = self._gauges | elsewhere
            known["ledger_head"] = [((), self._counts.head)]
            known["controller_ready"] = [((), float(self.ready))]
            known["tenure_build_info"] = [((__version__,), 1)]
            if self._read is not None:
                known["metrics_age_seconds"] = [((), monotonic() - self._read)]
            known |= {name: list(count.values.items()) for name, count in self._counts.counts.items()}
            known, dropped = _capped(known)
            known["metrics_series_dropped"] = [((), dropped)]
            spreads = {name: tuple(spread.series()) for name, spread in self._counts.spreads.items()}
        return [
            Family(metric, tuple(known.get(name, ())), spreads.get(name, ())) for name, metric in METRICS.items()
        ]  # fmt: skip

    def _elsewhere(self) -> dict[str, list[tuple[Labels, float]]]:
        found: dict[str, list[tuple[Labels, float]]] = {}
        for source in self._sources:
            try:
                found |= _by_name(source())
            except Exception:  # whatever it is, the rest can be told, and that something is missing is counted
                self.failed()
        return found


def _capped(known: dict[str, list[tuple[Labels, float]]]) -> tuple[dict[str, list[tuple[Labels, float]]], int]:
    """No metric with more series than there may be, and how many were left out. Those that stay are the first by their
    labels: the same in all metrics about the same things, and at every scrape."""
    over = {name: series for name, series in known.items() if len(series) > SERIES_MAX}
    kept = {name: sorted(series)[:SERIES_MAX] for name, series in over.items()}
    return known | kept, sum(len(series) - SERIES_MAX for series in over.values())


def _by_name(samples: Iterable[Sample]) -> dict[str, list[tuple[Labels, float]]]:
    found: dict[str, list[tuple[Labels, float]]] = {}
    for name, labels, value in samples:
        metric = METRICS[name]
        assert len(labels) == len(metric.labels), f"{name} has the labels {[*metric.labels]}, not {labels}"
        found.setdefault(name, []).append((labels, value))
    return found
