"""What a benchmark says: rows of one table, and whether each keeps its promise.

A row with a goal is a promise; a row without one is told beside it, because it explains the others. Both are compared
with what was measured before (``ranges``).
"""

from __future__ import annotations

import re
from typing import Any, Literal

from msgspec import UNSET, Struct, UnsetType

_COUNTED = re.compile(r",? (?:of|behind) [\d,]+(?: runs)?(?=,|$)")


class Machine(Struct, frozen=True):
    """Where and when the numbers come from."""

    at: str
    commit: str
    python: str
    system: str
    cores: int
    load: float
    """Processes that wanted a core when it was over: above ``cores``, wall clocks were disturbed."""


class Row(Struct, frozen=True, kw_only=True):
    """One number: what was measured, and what was promised of it."""

    bench: str
    """The promise it belongs to, as ``--only`` names it."""
    what: str
    measured: float
    unit: str = "x"
    """``x``: how many times; otherwise what the number counts."""
    goal: float | None = None
    sense: Literal["at most", "at least"] = "at most"
    steady: bool = False
    """Counted, not timed: the same on every machine, so that a few percent more are news."""
    beyond: str | UnsetType = UNSET
    """The limit that was over before there was a number: then ``measured`` is none, and no goal is kept."""
    detail: dict[str, Any] = {}
    """Absolute figures and work counters behind the number; they may differ from machine to machine."""

    @property
    def key(self) -> str:
        """The row's name without what differs from run to run.

        >>> Row(bench="mix", what="entries without a violation, of 15,710", measured=100.0).key
        'entries without a violation'
        """
        return _COUNTED.sub("", self.what)

    @property
    def ratio(self) -> float | None:
        """What was measured, as a part of what was promised."""
        return self.measured / self.goal if self.goal and not self.beyond else None

    @property
    def ok(self) -> bool:
        if self.goal is None:
            return True
        if self.beyond:
            return False
        return self.measured <= self.goal if self.sense == "at most" else self.measured >= self.goal

    @property
    def promised(self) -> str:
        return "" if self.goal is None else f"{self.sense} {number(self.goal)} {self.unit}".rstrip()

    @property
    def found(self) -> str:
        """
        >>> Row(bench="saturated", what="an end", measured=0, unit="ms", goal=5, beyond="60 s").found
        'none in 60 s'
        """
        if self.beyond:
            return f"none in {self.beyond}"
        return f"{number(self.measured)} {self.unit}".rstrip()


class Scale(Struct, frozen=True, kw_only=True):
    """How large a benchmark is: a promise speaks of the full scale."""

    name: Literal["full", "quick", "tiny"]
    small: int = 1_000
    large: int
    """GPUs of the two fleets that are compared."""
    scan: int
    """GPUs of the fleet that the oracle scans."""
    batches: int
    """Batches of requests put to the scan."""
    leases: int
    """Closed leases of the long history; the short one has 1,000."""
    rounds: int
    """Repetitions of a side, at most."""
    steps: int
    """Steps of random history."""


FULL = Scale(name="full", large=1_000_000, scan=100_000, batches=4, leases=1_000_000, rounds=100, steps=2_000)
QUICK = Scale(name="quick", large=100_000, scan=100_000, batches=4, leases=100_000, rounds=40, steps=500)
TINY = Scale(name="tiny", large=10_000, scan=1_000, batches=1, leases=2_000, rounds=2, steps=20)


def number(value: float) -> str:
    """
    >>> [number(value) for value in (1.3596, 29.96, 412.7, 1_000_000)]
    ['1.36', '30.0', '413', '1,000,000']
    """
    if value >= 100 or value == int(value):
        return f"{value:,.0f}"
    return f"{value:.1f}" if value >= 10 else f"{value:.2f}"
