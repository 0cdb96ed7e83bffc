"""How receivers of notifications fare, as numbers: read by who serves them, from the ledger's file, through a handle
of its own."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from pathlib import Path

from tenure.ledger import Ledger
from tenure.observe.gauges import Sample


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
