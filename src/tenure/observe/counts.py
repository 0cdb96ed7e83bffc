"""What entries say, counted: each fact of each committed entry once, in order.

Little is remembered between entries: when runs that wait were submitted, and what the first promise of a waiting run
rested on. Both are forgotten when the run starts or goes; ``begin`` finds them for runs that were there before.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from tenure.audit.checks_limits import LATE
from tenure.engine.reasons import headline
from tenure.engine.rows import HINDERED
from tenure.engine.state import State
from tenure.facts import Closed, Decided, Entry, Noted, Opened, PutRun, Removed, Reservation, Reserved, Resolved, Visit
from tenure.observe.table import METRICS, OTHER
from tenure.observe.tally import Count, Spread
from tenure.units import SECOND, Instant, Micros, parse_time

_ENDS = {"Completed": "completed", "Failed": "failed", "Deleted": "deleted"}
_SHRINKS = {"ShrunkByOwner": "owner", "ShrunkByFailure": "failure", "ShrunkByResolver": "resolver"}
_PROMISES = {"Reserved": "made", "ReservationBlocked": "blocked", "Activated": "activated"}
_MOVES = {"MovedEarlier": "earlier", "MovedLater": "later"}


class Counts:
    """All counters and histograms; changed by ``saw`` alone, and by who measures how long things take."""

    def __init__(self) -> None:
        self.counts = {
            metric.name: Count(metric) for metric in METRICS.values() if metric.kind == "counter" and not metric.read
        }
        self.spreads = {metric.name: Spread(metric) for metric in METRICS.values() if metric.kind == "histogram"}
        self.head = 0
        self._submitted: dict[str, Instant] = {}
        """Runs that have not been admitted yet, and when they were submitted."""
        self._rested: dict[str, str] = {}
        """By uid of a reservation that is open: the confidence of its first promise."""
        self._spare_taken = False

    def begin(self, state: State, *, head: int) -> None:
        """Start from a state that others brought about."""
        self.head = head
        self._submitted = {key: row.order[0] for key, row in state.runs.items() if not row.life.admitted}
        self._rested = {one.uid: one.confidence for one in state.reservations.values()}

    def saw(self, entry: Entry) -> None:
        self.head = entry.seq
        self._add("ledger_entries_total")
        for fact in entry.facts:
            take = _FACTS.get(type(fact))
            if take is not None:
                take(self, fact, entry.at)

    def took(self, name: str, seconds: float) -> None:
        """Something without labels was measured."""
        self.spreads[name].add(value=seconds)

    # -- facts --

    def _put_run(self, fact: PutRun, at: Instant) -> None:
        meta = fact.object.metadata
        if meta.generation == 1:  # an edit is no submission
            created = parse_time(meta.creation_timestamp) if meta.creation_timestamp else at
            self._submitted[f"{meta.namespace}/{meta.name}"] = created

    def _removed(self, fact: Removed, at: Instant) -> None:
        if fact.kind == "Run":
            self._submitted.pop(f"{fact.namespace}/{fact.name}", None)

    def _opened(self, fact: Opened, at: Instant) -> None:
        self._add("leases_opened_total", fact.lease.reason)

    def _closed(self, fact: Closed, at: Instant) -> None:
        self._add("leases_closed_total", fact.reason.partition("(")[0], by=len(fact.leases))
        self._spare_taken = self._spare_taken or fact.reason == "Swap"

    def _resolved(self, fact: Resolved, at: Instant) -> None:
        self._add("resolver_runs_total", fact.trigger)
        for cut in fact.cuts:
            self._add("resolver_cuts_total", cut.kind)
            self._add("resolver_cut_gpus_total", cut.kind, by=cut.gpus)
        if fact.result is not None:
            self._add("resolver_draws_total")

    def _decided(self, fact: Decided, at: Instant) -> None:
        asked = [visit for visit in fact.verdict.visits if visit.funding == "borrowed"]
        if not asked:
            return
        self._add("borrowing_attempts_total")
        if fact.verdict.outcome != "start" and not any(visit.taken for visit in asked):
            self._add("borrowing_denied_total", _denial(asked))

    def _reserved(self, fact: Reserved, at: Instant) -> None:
        one = fact.reservation
        if one.state == "Released":
            self._add("reservation_events_total", "released")
            self._started(one, self._rested.pop(one.uid, one.confidence))
        elif one.state == "Canceled":
            self._add("reservation_events_total", "canceled")
            self._rested.pop(one.uid, None)
        elif one.promise.start is not None:
            self._rested.setdefault(one.uid, one.confidence)

    def _started(self, one: Reservation, first: str) -> None:
        """A run that had a reservation starts: how good was what it had been told?"""
        assert one.released is not None
        for against, promised, confidence in (
            ("promise", one.promise.start, first),
            ("plan", one.plan.start, one.confidence),
        ):
            if promised is not None and confidence:
                self._missed_by(one.released - promised, against, confidence)

    def _missed_by(self, error: Micros, against: str, confidence: str) -> None:
        """A driver acts some milliseconds after its timer: what an auditor lets pass as kept is exact here, too."""
        direction = "late" if error > LATE else "early" if error < -LATE else "exact"
        self.spreads["forecast_error_seconds"].add(against, confidence, direction, value=abs(error) / SECOND)

    def _noted(self, fact: Noted, at: Instant) -> None:
        kind = fact.kind
        if kind == "Admitted":
            self._add("run_admissions_total", "success")
            self._admitted(fact.object.removeprefix("Run/"), at)
        elif kind in ("Waiting", "Blocked") and fact.reason not in HINDERED:  # a start that is due was told before
            self._add("run_admissions_total", "failure")
        elif kind in _ENDS:
            self._add("runs_ended_total", _ENDS[kind])
        elif kind == "Grown":
            self._add("elastic_grows_total")
        elif kind == "Shrunk" and fact.reason in _SHRINKS:
            self._add("elastic_shrinks_total", _SHRINKS[fact.reason])
        elif kind == "Swapped":
            self._add("spare_swaps_total", "spare" if self._spare_taken else "free")
            self._spare_taken = False
        elif kind == "Stopping" and fact.reason == "ReclaimedBySpare":
            self._add("filler_preemptions_total")
        elif kind == "BudgetNotice":
            self._add("budget_notices_total", fact.reason)
        elif kind in _PROMISES:
            self._add("reservation_events_total", _PROMISES[kind])
        elif kind == "StartMoved" and fact.reason in _MOVES:
            self._add("reservation_events_total", _MOVES[fact.reason])

    def _admitted(self, key: str, at: Instant) -> None:
        submitted = self._submitted.pop(key, None)
        if submitted is not None:
            self.took("run_admission_latency_seconds", max(0, at - submitted) / SECOND)

    def _add(self, name: str, *labels: str, by: float = 1) -> None:
        self.counts[name].add(*labels, by=by)


def _denial(asked: list[Visit]) -> str:
    """The most decisive of the sponsors' refusals."""
    reason = headline(visit.limit for visit in asked if visit.limit is not None)
    return OTHER if reason is None else reason.code


_FACTS: dict[type, Callable[[Counts, Any, Instant], None]] = {
    PutRun: Counts._put_run,
    Removed: Counts._removed,
    Opened: Counts._opened,
    Closed: Counts._closed,
    Resolved: Counts._resolved,
    Decided: Counts._decided,
    Reserved: Counts._reserved,
    Noted: Counts._noted,
}
