"""What happened on the way: so that nobody takes a search in which nothing happened for a proof.

Every fact of every transition is counted under a word: how leases open and close, what becomes of reservations, why
runs wait. ``MUST`` lists what a search deep enough has to have seen.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable

from tenure.facts import Closed, Decided, Fact, Froze, Moved, Opened, Reserved, Resolved, Warned

MUST: tuple[str, ...] = (
    "opened Start", "opened Swap", "opened Grow",
    "closed Completed", "closed Fail", "closed NodeFailure", "closed Swap", "closed Canceled", "closed Shrink",
    "closed DropSpare", "closed RandomPreempt",
    "reservation Pending", "reservation Active", "reservation Released", "reservation Canceled",
    "promise conservative", "promise projected",
    "draw frozen", "resolved Activation", "resolved Shortage",
    "notice lowered", "run Running", "run Completed", "run Failed", "run Stopping", "waits ConcurrencyCapExceeded",
)  # fmt: skip


def count(facts: Iterable[Fact], into: Counter[str]) -> None:
    """Count facts under their words."""
    for fact in facts:
        match fact:
            case Opened():
                into[f"opened {fact.lease.reason}"] += 1
            case Closed():
                into[f"closed {fact.reason.partition('(')[0]}"] += 1
            case Moved():
                into[f"run {fact.life.phase}"] += 1
            case Reserved():
                into[f"reservation {fact.reservation.state}"] += 1
                if fact.reservation.state == "Pending":
                    into[f"promise {fact.reservation.confidence}"] += 1
            case Decided() if fact.verdict.headline is not None:
                into[f"waits {fact.verdict.headline.code}"] += 1
            case Froze():
                into["draw frozen"] += 1
            case Resolved():
                into[f"resolved {fact.trigger}"] += 1
            case Warned():
                into[f"notice {fact.mark}"] += 1


def missing(seen: Counter[str]) -> list[str]:
    return [word for word in MUST if not seen[word]]


def lines(seen: Counter[str], width: int = 110) -> list[str]:
    """The counts as text, one line for each first word."""
    out: list[str] = []
    for group in dict.fromkeys(word.partition(" ")[0] for word in sorted(seen)):
        parts = [f"{word.partition(' ')[2]} {seen[word]:,}" for word in sorted(seen) if word.startswith(group + " ")]
        line = f"  {group:<12}"
        for part in parts:
            if len(line) + len(part) > width:
                out.append(line.rstrip(", ") + ",")
                line = " " * 14
            line += f"{part}, "
        out.append(line.rstrip(", "))
    return out
