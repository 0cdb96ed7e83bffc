"""What happened on the way: so that nobody takes a search in which nothing happened for a proof.

Every fact of every transition is counted under a word: how leases open and close, what becomes of reservations, why
runs wait. ``MUST`` lists what a search deep enough has to have seen.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable
from typing import Any

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

_WORDS: dict[type, Callable[[Any], str]] = {
    Opened: lambda fact: f"opened {fact.lease.reason}",
    Closed: lambda fact: f"closed {fact.reason.partition('(')[0]}",
    Moved: lambda fact: f"run {fact.life.phase}",
    Reserved: lambda fact: f"reservation {fact.reservation.state}",
    Decided: lambda fact: "" if fact.verdict.headline is None else f"waits {fact.verdict.headline.code}",
    Froze: lambda _: "draw frozen",
    Resolved: lambda fact: f"resolved {fact.trigger}",
    Warned: lambda fact: f"notice {fact.mark}",
}


def count(facts: Iterable[Fact], into: Counter[str]) -> None:
    """Count facts under their words."""
    for fact in facts:
        word = _WORDS.get(type(fact), _none)(fact)
        if word:
            into[word] += 1
        if isinstance(fact, Reserved) and fact.reservation.state == "Pending":
            into[f"promise {fact.reservation.confidence}"] += 1


def _none(fact: Fact) -> str:
    return ""


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
