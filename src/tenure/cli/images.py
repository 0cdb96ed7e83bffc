"""Saved states against the entries: whoever opens a ledger goes on from the newest, so each must be what they give.

A snapshot's own digest shows that it is undamaged, not that it is true. Its state is compared part by part, as this
release would save it; parts that the release which saved it did not know are left aside. Somebody may have looked, and
found nothing to do, after the last entry: then it is later in the snapshot, though not than in the entry that follows.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import msgspec

from tenure.cli.port import Telling
from tenure.engine import State, dump, load
from tenure.facts import Entry
from tenure.ledger import Ledger
from tenure.ledger.verify import Finding, kept_snapshots
from tenure.shell.home import fold_entry

_BY_THE_CLOCK = ("now", "departed")
"""What is otherwise once it is later, and nothing has happened."""


def untrue(ledger: Ledger, progress: Telling) -> Iterator[Finding]:
    """Snapshots that are not what the entries up to theirs give, folded again."""
    with ledger.beside(writing=False) as db:
        kept = dict(kept_snapshots(db))
    state, last = State(ledger.fleet), max(kept, default=0)
    for entry in ledger.entries(0, last):
        try:
            fold_entry(state, entry)
        except Exception as error:  # whatever a forged entry leads to
            yield _finding(f"entry {entry.seq}", f"Entry {entry.seq} cannot be folded: {type(error).__name__}")
            return
        progress("snapshots", entry.seq, last)
        if entry.seq in kept and (why := _difference(kept[entry.seq], state, next(ledger.entries(entry.seq), None))):
            yield _finding(f"snapshot {entry.seq}", f"The snapshot at entry {entry.seq} {why}")


def _difference(body: bytes, state: State, after: Entry | None) -> str:
    try:
        image = load(body)
        said, right = _parts(dump(image)), _parts(dump(state))
    except Exception as error:  # whatever a forged state leads to
        return f"cannot be loaded: {type(error).__name__}"
    is_later = state.now < image.now and (after is None or image.now <= after.at)
    parts = sorted(part for part in _parts(body) if said.get(part) != right.get(part))
    found = [part for part in parts if not (is_later and part in _BY_THE_CLOCK)]
    return f"is not the state that the entries give: {', '.join(found)}" if found else ""


def _parts(body: bytes) -> dict[str, Any]:
    return msgspec.json.decode(body, type=dict[str, Any])


def _finding(where: str, sentence: str) -> Finding:
    return Finding(check="snapshots", where=where, sentence=f"{sentence}.")
