"""One fact at a time: check it where it stands, fold it into the books, and note what it touched.

A fact that cannot be folded (a lease opened twice, a pod nobody placed) is reported and left out, so that
one bad fact does not hide the next.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field

from tenure.api.budget import Budget
from tenure.audit import checks_facts
from tenure.audit.accounts import EnvelopeKey
from tenure.audit.books import Books, SlotKey
from tenure.audit.checks_cuts import Acts, CutWatch
from tenure.audit.checks_limits import LimitWatch
from tenure.audit.checks_opening import Handed, continues, opening, predecessors
from tenure.audit.checks_promises import PromiseWatch
from tenure.audit.checks_runs import Turn
from tenure.audit.invariants import SUMS
from tenure.audit.report import Violation
from tenure.facts import (
    Cleared,
    Closed,
    Decided,
    Ending,
    Fact,
    Froze,
    Lease,
    Moved,
    Noted,
    Opened,
    Placed,
    Published,
    PutBudget,
    PutNamespace,
    PutNode,
    PutPolicy,
    PutRun,
    Removed,
    Reserved,
    Resolved,
    Seen,
    Warned,
)
from tenure.units import Instant


@dataclass(slots=True)
class Touched:
    """What one entry touched so far."""

    at: Instant
    runs: dict[str, Turn] = field(default_factory=dict)
    slots: set[SlotKey] = field(default_factory=set)
    envelopes: set[EnvelopeKey] = field(default_factory=set)
    decisions: list[Decided] = field(default_factory=list)
    handed: Handed = field(default_factory=dict)
    """Leases that the entry closes so that others go on in their place."""
    leaving: dict[str, str] = field(default_factory=dict)
    """Of those, the ones that were asked to end before: why."""
    acts: Acts = field(default_factory=Acts)

    def lease(self, lease: Lease) -> None:
        self.envelopes.add((lease.budget, lease.envelope))
        self.slots.update((lease.node, ordinal) for ordinal in lease.gpus)


@dataclass(frozen=True, slots=True)
class Watches:
    """Those who follow more than one fact."""

    limits: LimitWatch
    promises: PromiseWatch
    cuts: CutWatch


class Taker:
    """Takes facts into the books."""

    def __init__(self, books: Books, watches: Watches) -> None:
        self._books = books
        self._limits, self._promises, self._cuts = watches.limits, watches.promises, watches.cuts

    def take(self, fact: Fact, touched: Touched) -> list[Violation]:
        books, at = self._books, touched.at
        books.fact += 1
        if isinstance(fact, checks_facts.DATED):
            unreadable = list(checks_facts.unreadable(fact, at=at))
            if unreadable:
                return unreadable
        match fact:  # the most frequent first
            case Noted():
                pass
            case Moved():
                self._turn(f"{fact.namespace}/{fact.run}", touched)
                books.move(f"{fact.namespace}/{fact.run}", fact.life, at=at)
            case Decided():
                self._turn(f"{fact.namespace}/{fact.run}", touched)
                touched.decisions.append(fact)
            case Reserved():
                return self._promises.reserve(fact.reservation, at=at)
            case PutBudget():
                return list(self._edit(fact.object.metadata.name, fact.object, at=at))
            case PutRun():
                return self._put_run(fact, touched)
            case PutNamespace():
                books.namespaces[fact.object.metadata.name] = fact.object
            case PutNode():
                books.put_node(fact.object, at=at)
            case Removed():
                return self._remove(fact, touched)
            case PutPolicy():
                books.put_policy(fact.policy)
            case Opened():
                return self._open(fact.lease, touched)
            case Ending():
                return self._end(fact, touched)
            case Closed():
                return self._close(fact, touched)
            case Placed():
                return self._place(fact, touched)
            case Seen():
                return self._see(fact, touched)
            case Cleared():
                self._clear(fact, touched)
            case Warned():
                books.notice(fact.budget, fact.cap or fact.envelope, fact.mark, at=at)
                return list(checks_facts.notice(books, fact, at=at))
            case Published():
                self._cuts.publish(fact)
            case Froze():
                return list(self._cuts.freeze(fact, touched.acts, at=at))
            case Resolved():
                return list(self._cuts.resolve(fact, touched.acts, at=at))
        return []

    # --- objects --------------------------------------------------------------------------------------------

    def _edit(self, name: str, budget: Budget | None, *, at: Instant) -> Iterator[Violation]:
        """Put or remove a Budget. What was spent stays spent."""
        old = self._books.budgets.get(name)
        before = self._books.charges_of(old, at=at) if old else {}
        were_over = self._limits.over(name, at=at)
        if budget is None:
            self._books.remove_budget(name)
        else:
            self._books.put_budget(budget, at=at)
        self._limits.replace(name, budget, were_over=were_over, at=at)
        after = self._books.charges_of(old, at=at) if old else {}
        for key, charge in before.items():
            if after[key] != charge:
                yield Violation(
                    invariant=SUMS.name, at=at, object=f"Budget/{name}", expected=charge, found=after[key],
                    message=f"an edit changed what {key} had been charged, in GPU-microseconds",
                )  # fmt: skip

    def _put_run(self, fact: PutRun, touched: Touched) -> list[Violation]:
        found = list(checks_facts.run_edit(self._books, fact.object, at=touched.at))
        key = f"{fact.object.metadata.namespace}/{fact.object.metadata.name}"
        turn, book = self._turn(key, touched), self._books.run(key)
        life, bound = book.life, fact.object.spec.funding.max_borrow_gpus
        if bound is not None and book.borrowed > bound:
            book.borrowed_ceiling = book.borrowed
        self._books.put_run(fact.object)
        if book.life is not life:
            turn.phase_before = "Pending"
        return found

    def _remove(self, fact: Removed, touched: Touched) -> list[Violation]:
        match fact.kind:
            case "Budget":
                return list(self._edit(fact.name, None, at=touched.at))
            case "Namespace":
                self._books.namespaces.pop(fact.name, None)
            case "Node":
                self._books.nodes.pop(fact.name, None)
            case "Run":
                key = f"{fact.namespace}/{fact.name}"
                self._turn(key, touched).phase_before = "Pending"
                self._books.remove_run(key)
        return []

    # --- leases ---------------------------------------------------------------------------------------------

    def _open(self, lease: Lease, touched: Touched) -> list[Violation]:
        before = predecessors(lease, touched.handed)
        found = opening(self._books, lease, before=before, at=touched.at)
        turn = self._turn(lease.run_key, touched)
        turn.see(lease, self._books.run(lease.run_key))
        if lease.key in self._books.leases or lease.key in self._books.closed:
            return found
        self._books.open(lease, at=touched.at)
        touched.acts.open(lease, leaving={touched.leaving.get(one.key, "") for one in before})
        turn.opened.append(lease)
        if not before:
            turn.placed.add(lease.key)
        touched.lease(lease)
        if not continues(lease, before):
            found += self._limits.claim(lease, undeclared=turn.claim(lease), at=touched.at)
        return found

    def _end(self, fact: Ending, touched: Touched) -> list[Violation]:
        keys = [f"{fact.namespace}/{name}" for name in fact.leases]
        inherited = {key for key in keys if touched.acts.inherited.get(key) == fact.reason}
        found = list(checks_facts.ending(self._books, fact, inherited=inherited, at=touched.at))
        for key in keys:
            if key in self._books.leases:
                self._decide(key, fact.reason, touched)
                self._books.end(key, fact.reason)
                touched.leaving[key] = fact.reason
        self._books.ask_to_leave(f"{fact.namespace}/{name}" for name in fact.pods)
        return found

    def _close(self, fact: Closed, touched: Touched) -> list[Violation]:
        found = list(checks_facts.closing(self._books, fact, at=touched.at))
        for key in (f"{fact.namespace}/{name}" for name in fact.leases):
            if key in self._books.leases:
                lease = self._books.leases[key].lease
                self._turn(lease.run_key, touched)
                touched.lease(lease)
                self._decide(key, fact.reason, touched)
                self._books.close(key, reason=fact.reason, end=fact.end, at=touched.at)
        return found

    def _decide(self, key: str, reason: str, touched: Touched) -> None:
        """A lease is to end, and nobody had said so before."""
        holding = self._books.leases[key]
        if not holding.ending:
            touched.acts.end(holding.lease, reason, self._books.run(holding.lease.run_key))

    # --- pods -----------------------------------------------------------------------------------------------

    def _place(self, fact: Placed, touched: Touched) -> list[Violation]:
        pod = fact.pod
        found = list(checks_facts.placing(self._books, fact, at=touched.at))
        self._turn(pod.run_key, touched)
        if pod.key not in self._books.pods:
            touched.slots.update((pod.node, ordinal) for ordinal in pod.gpus)
            self._books.place(pod)
        return found

    def _see(self, fact: Seen, touched: Touched) -> list[Violation]:
        key = f"{fact.namespace}/{fact.pod}"
        found = list(checks_facts.seeing(self._books, fact, at=touched.at))
        if key in self._books.pods:
            pod = self._books.pods[key].pod
            touched.slots.update((pod.node, ordinal) for ordinal in pod.gpus)
            self._books.run(pod.run_key).touched = touched.at
            self._books.see(key, fact.phase)
        return found

    def _clear(self, fact: Cleared, touched: Touched) -> None:
        for key in (f"{fact.namespace}/{name}" for name in fact.pods):
            if key in self._books.pods:
                self._turn(self._books.pods[key].pod.run_key, touched)
                self._books.clear(key)

    def _turn(self, run: str, touched: Touched) -> Turn:
        """What this entry did to a run so far, begun with the phase the run was in."""
        if run not in touched.runs:
            book = self._books.run(run)
            book.touched, life = touched.at, book.life
            touched.runs[run] = Turn(phase_before=life.phase, grown_before=life.grown)
        return touched.runs[run]
