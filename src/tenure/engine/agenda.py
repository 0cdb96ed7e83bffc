"""What there is to look at next: runs that changed, flavors where something came free, and instants to wake at.

The agenda is no fact. It may be longer than needed (a settled world looked at again decides nothing), never shorter; a
state that was rebuilt starts with everything on it.
"""

from __future__ import annotations

from collections.abc import Iterable
from heapq import heappop, heappush

from tenure.engine.books import Fund, FundKey
from tenure.units import FOREVER, Instant

Timer = tuple[Instant, str, str]
"""(when, what, which)"""


class Agenda:
    def __init__(self) -> None:
        self.flavors: set[str] = set()
        self.runs: set[str] = set()
        self.elastic: set[str] = set()
        """Running runs whose width or spares changed, or whose next step is due."""
        self.wanting: dict[str, set[str]] = {}
        """By flavor, running runs that were last seen to want more than they have."""
        self.room: set[str] = set()
        """Flavors where those may look again."""
        self.funds: dict[FundKey, Fund] = {}
        self._at: dict[tuple[str, str], Instant] = {}
        self._heap: list[Timer] = []

    def machines_changed(self, flavors: Iterable[str]) -> None:
        """Machines or money of these flavors may have come free: every waiting run of them is looked at again."""
        self.flavors.update(flavors)
        self.room.update(self.flavors)

    def run_changed(self, key: str) -> None:
        self.runs.add(key)

    def rearm(self, fund: Fund) -> None:
        """The rate or the terms of an envelope changed, and with them the instants at which it runs out."""
        self.funds[fund.key] = fund
        self.funds.update((member.key, member) for cap in fund.caps for member in cap.funds)

    def wake(self, at: Instant, what: str, which: str) -> None:
        """Set the one timer of this thing; a later call replaces it."""
        if at >= FOREVER:
            self._at.pop((what, which), None)
        elif self._at.get((what, which)) != at:
            self._at[what, which] = at
            heappush(self._heap, (at, what, which))
            if len(self._heap) > 2 * len(self._at) + 64:
                self._heap = sorted((at, *key) for key, at in self._at.items())

    def due(self, now: Instant) -> list[Timer]:
        """Timers up to ``now``, in their order; each is returned once."""
        out = []
        while (at := self.next()) is not None and at <= now:
            timer = heappop(self._heap)
            del self._at[timer[1], timer[2]]
            out.append(timer)
        return out

    def next(self) -> Instant | None:
        heap = self._heap
        while heap and self._at.get((heap[0][1], heap[0][2])) != heap[0][0]:
            heappop(heap)
        return heap[0][0] if heap else None
