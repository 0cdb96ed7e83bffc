"""Work that a replay did in vain, read off its ledger: a job saves nothing on the way, so one that is cut begins anew.

What a run holds from the moment it leaves the queue until it is back in it, or fails, is one attempt. If a closure for
somebody else's sake ended it whole (``WHOLE_CUTS``), all that the attempt held was in vain, in leases that had gone
over into others before too. A run that shrinks or loses a spare goes on and has lost nothing. A spare does no work; who
works on a borrowed one does.
"""

from __future__ import annotations

from collections import Counter

from msgspec import Struct

from tenure.facts import Closed, Lease, Moved, Resolved
from tenure.units import GpuMicros, gpu_hours

WHOLE_CUTS = ("RandomPreempt", "Overstay", "ReclaimedBySpare")
"""Closures for somebody else's sake that end a run whole (SPEC 8)."""
_OVER = ("Pending", "Completed", "Failed")


class Thrown(Struct, frozen=True, rename="camel", kw_only=True):
    """Work that was thrown away, and for whom lots were drawn."""

    draws: int
    """Lotteries that cut somebody."""
    runs_drawn: int
    """Runs that lost one; a run that lost two counts twice."""
    runs_cut: int
    """Runs that were ended whole for somebody else's sake, by lot or not; again, each time counts."""
    gpu_hours: float
    """What these had held until then, since they last left the queue."""


class Vain:
    """Follows leases, fact by fact."""

    def __init__(self) -> None:
        self._open: dict[str, Lease] = {}
        self._spent: Counter[str] = Counter()
        """What the present attempt of a run held in leases that are over, by the key of the run."""
        self._ended: set[str] = set()
        """Runs whose present attempt was ended whole for somebody else's sake."""
        self._draws = self._drawn = self._cut = 0
        self._thrown: GpuMicros = 0

    def opened(self, lease: Lease) -> None:
        if lease.role != "Spare":
            self._open[lease.key] = lease

    def closed(self, fact: Closed) -> None:
        cut = fact.reason.partition("(")[0] in WHOLE_CUTS
        for name in fact.leases:
            lease = self._open.pop(f"{fact.namespace}/{name}", None)
            if lease is not None:
                self._spent[lease.run_key] += len(lease.gpus) * (fact.end - lease.start)
                if cut:
                    self._ended.add(lease.run_key)

    def moved(self, fact: Moved) -> None:
        """In some phases a run holds nothing: the attempt before is over."""
        if fact.life.phase not in _OVER:
            return
        key = f"{fact.namespace}/{fact.run}"
        spent = self._spent.pop(key, 0)
        if key in self._ended:
            self._ended.remove(key)
            self._cut += 1
            self._thrown += spent

    def resolved(self, fact: Resolved) -> None:
        drawn = {cut.run for cut in fact.cuts if cut.kind == "Lottery"}
        self._drawn += len(drawn)
        self._draws += bool(drawn)

    def result(self) -> Thrown:
        return Thrown(draws=self._draws, runs_drawn=self._drawn, runs_cut=self._cut, gpu_hours=gpu_hours(self._thrown))
