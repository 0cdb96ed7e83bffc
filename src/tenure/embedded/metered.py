"""How receivers of notifications fare, as numbers: read by who serves them, from the ledger's file, through a handle
of its own."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from pathlib import Path
from time import time_ns

from tenure.ledger import Ledger
from tenure.observe.gauges import Sample
from tenure.units import SECOND, Instant


def _clock() -> Instant:
    return time_ns() // 1000


def receivers(
    path: Path, anchor: Path | None, names: Iterable[str], *, clock: Callable[[], Instant] = _clock
) -> Callable[[], list[Sample]]:
    """How far the receivers of notifications are behind: asked anew at each scrape."""
    wanted = frozenset(names)

    def read() -> list[Sample]:
        from tenure.notify.outbox import Outbox  # only where somebody is notified

        with Ledger.open(path, readonly=True, anchor=anchor) as ledger:
            states = [one for one in Outbox(ledger).states() if one.name in wanted]
        now = clock()
        delays = {one.name: 0 if one.oldest is None else max(0, now - one.oldest) for one in states}
        return [
            *(("notifier_outbox_events", (one.name,), float(one.behind)) for one in states),
            *(("notifier_delay_seconds", (name,), delay / SECOND) for name, delay in delays.items()),
            *(("notifier_dead_letters", (one.name,), float(one.dead)) for one in states),
        ]

    return read
