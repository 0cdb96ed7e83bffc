"""What there is to look at next: runs that changed, flavors where something came free, and instants to wake at.

The agenda is no fact, but follows from facts: each marks what it may have changed, a step that decides takes all marks
off, and so does folding an entry that was decided (``settle``). So a state that was rebuilt looks at the same things as
the one it is a copy of, at the same steps, and has the same to say about them.
"""

from __future__ import annotations

from heapq import heappop, heappush

from tenure.engine.books import Fund, FundKey, Limit
from tenure.units import FOREVER, Instant

Timer = tuple[Instant, str, str]
"""(when, what, which)"""


class Agenda:
    def __init__(self) -> None:
        self.flavors: set[str] = set()
        """Where something came free: every run that waits for it is looked at again."""
        self.runs: set[str] = set()
        self.elastic: set[str] = set()
        """Running runs whose width or spares changed."""
        self.timed: set[str] = set()
        """Running runs that wanted more, and for which a whole interval has passed."""
        self.wanting: dict[str, set[str]] = {}
        """By flavor, running runs that were last seen to want more than they have."""
        self.room: set[str] = set()
        """Flavors where those may look again: something came free, or fewer wait for it."""
        self.funds: dict[FundKey, Fund] = {}
        """Envelopes that may have something to announce. What was announced is a fact: to look again does no harm."""
        self.short: set[Limit] = set()
        """Envelopes and caps that pay for more than they may, and whose time to resolve that has come."""
        self._at: dict[tuple[str, str], Instant] = {}
        self._heap: list[Timer] = []

    @property
    def pending(self) -> bool:
        """Whether there is somebody for whom something is still to be decided."""
        return bool(self.flavors or self.runs or self.elastic or self.room)

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
