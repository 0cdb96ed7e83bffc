"""The table at the end: what was played, what went wrong on purpose and how often it did, and what Tenure did."""

from __future__ import annotations

from collections import Counter

TITLES = {
    "world": "worlds",
    "event": "events",
    "fault": "faults that took effect",
    "lost": "writes that were applied, and not answered",
    "seen": "seen in the ledgers",
}


def table(total: Counter[str], *, seeds: int, hours: int, seconds: float | None = None) -> str:
    """The counts by kind.

    >>> print(table(Counter({"fault/crash": 2, "seen/entry": 40}), seeds=1, hours=48))
    1 seed x 48 virtual hours
    <BLANKLINE>
    faults that took effect
      crash                                         2
    <BLANKLINE>
    seen in the ledgers
      entry                                        40
    """
    head = f"{seeds} seed{'s' if seeds != 1 else ''} x {hours} virtual hours"
    if seconds is not None:
        head += f" in {seconds:.1f} s: {seeds / max(seconds, 1e-9):.2f} seeds a second"
    lines = [head]
    width = max([38, *(len(key.partition("/")[2]) + 1 for key in total)])
    for group, title in TITLES.items():
        rows = sorted(
            (key.partition("/")[2], number) for key, number in total.items() if number and key.startswith(group + "/")
        )
        if rows:
            lines += ["", title, *(f"  {name:<{width}}{number:>9,}" for name, number in rows)]
    return "\n".join(lines)
