"""Reading a replay off its ledger: every entry is counted, audited, and told to the tally.

Nothing here asks the engine. What is reported of a replay is what its entries say, fact by fact (``_FOLDS``), and the
independent auditor reads the same entries; so a number in a report is as good as the ledger that it was read from.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from time import process_time
from typing import Any

from msgspec import Struct

from tenure.audit import Auditor
from tenure.facts import Closed, Entry, Moved, Opened, Placed, Reserved, Resolved
from tenure.simulate.replay_promises import Promised
from tenure.simulate.replay_thrown import Vain
from tenure.simulate.stats import Tally
from tenure.simulate.trace import Job
from tenure.units import Instant

SHOWN_MAX = 20
"""Violations that are kept in words; all are counted."""
CUTS = ("RandomPreempt", "Shrink", "DropSpare", "Overstay", "ReclaimedBySpare")
"""Closures by which a lease ends for somebody else's sake (SPEC 8)."""


class Cut(Struct, frozen=True, rename="camel"):
    """Leases that ended for somebody else's sake."""

    reason: str
    leases: int
    gpus: int


class Audit(Struct, frozen=True, rename="camel"):
    """What the auditor looked at, and what it found."""

    entries: int
    sweeps: int
    """Looks at everything that is open: once in a virtual day, and at the end."""
    violations: int
    examples: tuple[str, ...]


class Watch:
    """Follows the entries of one replay, which began at ``start``."""

    def __init__(self, tally: Tally, *, start: Instant, audited: bool = True) -> None:
        self.tally = tally
        self.start = start
        self.jobs: dict[str, Job] = {}
        """Jobs that have not started yet, by the key of their run."""
        self.counts: Counter[str] = Counter()
        self.audit_seconds = 0.0
        self.promised = Promised()
        self.vain = Vain()
        self._held: dict[str, int] = {}
        self._cuts: Counter[str] = Counter()
        self._cut_gpus: Counter[str] = Counter()
        self._auditor = Auditor() if audited else None
        self._violations: list[str] = []

    def submitted(self, jobs: dict[str, Job], *, at: Instant) -> None:
        """Jobs that are about to be handed in, by the key of their run."""
        self.jobs.update(jobs)
        self.tally.submit(len(jobs), at=at - self.start)

    def __call__(self, entry: Entry) -> None:
        self.counts["entries"] += 1
        self.counts["facts"] += len(entry.facts)
        for fact in entry.facts:
            fold = _FOLDS.get(type(fact))
            if fold is not None:
                fold(self, fact, entry.at)
        if self._auditor is not None:
            began = process_time()
            self._found([violation.sentence() for violation in self._auditor.feed(entry)])
            self.audit_seconds += process_time() - began

    def sweep(self, now: Instant) -> None:
        """Have the auditor look at everything that is open."""
        if self._auditor is not None:
            began = process_time()
            self.counts["sweeps"] += 1
            self._found([violation.sentence() for violation in self._auditor.check(now, settled=True)])
            self.audit_seconds += process_time() - began

    @property
    def audit(self) -> Audit:
        counts = self.counts
        if self._auditor is None:
            return Audit(0, 0, 0, ())
        return Audit(counts["entries"], counts["sweeps"], counts["violations"], tuple(self._violations))

    @property
    def cuts(self) -> tuple[Cut, ...]:
        return tuple(Cut(reason, self._cuts[reason], self._cut_gpus[reason]) for reason in sorted(self._cuts))

    def _found(self, violations: list[str]) -> None:
        self.counts["violations"] += len(violations)
        self._violations += violations[: SHOWN_MAX - len(self._violations)]

    # -- facts --

    def _opened(self, fact: Opened, at: Instant) -> None:
        self.counts["leases"] += 1
        lease = fact.lease
        self.vain.opened(lease)
        if lease.role != "Borrowed":  # it sits on GPUs that are held already
            self._held[lease.key] = len(lease.gpus)
            self.tally.hold(len(lease.gpus), at=at - self.start)

    def _closed(self, fact: Closed, at: Instant) -> None:
        reason = fact.reason.partition("(")[0]
        for name in fact.leases:
            gpus = self._held.pop(f"{fact.namespace}/{name}", 0)
            self.tally.hold(-gpus, at=at - self.start)
            if reason in CUTS:
                self._cuts[reason] += 1
                self._cut_gpus[reason] += gpus
        self.vain.closed(fact)

    def _placed(self, fact: Placed, at: Instant) -> None:
        self.counts["pods"] += 1

    def _moved(self, fact: Moved, at: Instant) -> None:
        phase = fact.life.phase
        key = f"{fact.namespace}/{fact.run}"
        if phase == "Running" and key in self.jobs:
            self.tally.start(self.jobs.pop(key), at=at - self.start)
        elif phase in ("Completed", "Failed"):
            self.tally.end(completed=phase == "Completed", at=at - self.start)
        self.vain.moved(fact)

    def _resolved(self, fact: Resolved, at: Instant) -> None:
        self.vain.resolved(fact)

    def _reserved(self, fact: Reserved, at: Instant) -> None:
        self.promised.saw(fact.reservation)


_FOLDS: dict[type, Callable[[Watch, Any, Instant], None]] = {
    Opened: Watch._opened,
    Closed: Watch._closed,
    Placed: Watch._placed,
    Moved: Watch._moved,
    Reserved: Watch._reserved,
    Resolved: Watch._resolved,
}
