"""What Tenure did, counted from its entries: the proof that a simulation was about something."""

from __future__ import annotations

from collections import Counter

from tenure.facts import Closed, Entry, Froze, Moved, Opened, Reserved, Resolved


def count(entry: Entry, tally: Counter[str]) -> None:
    """Add an entry's doings to a tally, under ``seen/``."""
    tally["seen/entry"] += 1
    if not entry.decided:
        tally["seen/recorded only"] += 1
    for fact in entry.facts:
        match fact:
            case Opened():
                lease = fact.lease
                tally[f"seen/lease opened: {lease.reason}"] += 1
                if lease.funding == "borrowed":
                    tally["seen/lease on borrowed money"] += 1
                if lease.role != "Active":
                    tally[f"seen/lease {lease.role}"] += 1
            case Closed():
                tally[f"seen/lease closed: {fact.reason.partition(chr(40))[0]}"] += len(fact.leases)
            case Moved():
                tally[f"seen/run {fact.life.phase}"] += 1
            case Reserved() if fact.reservation.state == "Pending":
                tally["seen/promise"] += 1
            case Froze():
                tally["seen/draw frozen"] += 1
            case Resolved():
                for cut in fact.cuts:
                    tally[f"seen/cut: {cut.kind}"] += 1
            case _:
                pass
