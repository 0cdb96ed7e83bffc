"""What there is to look at next: runs that changed, flavors where something came free, and instants to wake at.

The agenda is no fact, but follows from facts: each marks what it may have changed, a step that decides takes all marks
off, and so does folding an entry that was decided (``settle``). So a state that was rebuilt looks at the same things as
the one it is a copy of, at the same steps, and has the same to say about them.
"""

from __future__ import annotations

from collections.abc import Hashable
from heapq import heappop, heappush
from typing import Generic, TypeVar

from tenure.engine.books import Fund, FundKey, Limit
from tenure.units import FOREVER, Instant

Timer = tuple[Instant, str, str]
"""(when, what, which)"""
Thing = TypeVar("Thing", bound=Hashable)


class Timers(Generic[Thing]):
    """One instant for each of some things; what was replaced is thrown away before it is more than what counts."""

    def __init__(self) -> None:
        self._at: dict[Thing, Instant] = {}
        self._heap: list[tuple[Instant, Thing]] = []

    def set(self, at: Instant, thing: Thing) -> None:
        """Set the one timer of this thing; a later call replaces it."""
        if at >= FOREVER:
            self._at.pop(thing, None)
        elif self._at.get(thing) != at:
            self._at[thing] = at
            heappush(self._heap, (at, thing))
            if len(self._heap) > 2 * len(self._at) + 64:
                self._heap = sorted((at, thing) for thing, at in self._at.items())

    def due(self, now: Instant) -> list[tuple[Instant, Thing]]:
        """Timers up to ``now``, in their order; each is returned once."""
        out = []
        while (at := self.next()) is not None and at <= now:
            timer = heappop(self._heap)
            del self._at[timer[1]]
            out.append(timer)
        return out

    def next(self) -> Instant | None:
        heap = self._heap
        while heap and self._at.get(heap[0][1]) != heap[0][0]:
            heappop(heap)
        return heap[0][0] if heap else None


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
        self.put_off: set[str] = set()
        """Flavors in which nobody is let in before the next step: some of their money is short, and that was news."""
        self._timers: Timers[tuple[str, str]] = Timers()

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
        self._timers.set(at, (what, which))

    def due(self, now: Instant) -> list[Timer]:
        """Timers up to ``now``, in their order; each is returned once."""
        return [(at, *thing) for at, thing in self._timers.due(now)]

    def next(self) -> Instant | None:
        return self._timers.next()
