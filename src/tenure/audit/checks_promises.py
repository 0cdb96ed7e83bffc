"""I8: nothing but the world moves a promise (SPEC 7, 13.8).

A promise is what a Reservation that is Pending or Active says: so many GPUs of these nodes, paid by these envelopes,
from its bound on. Whether it is *tenable* is asked of the world at one instant (``outlook``), which holds the whole
rule; here is only when it is asked. Of each promise that was tenable just before an entry, by the entry's time:

    made untenable          it still stands, is not tenable any more, and the entry opens a lease by ``Start`` or
                            ``Grow``, or lays another promise, on a node or a limit that it takes from
    delayed without cause   its bound is later now, or it is Blocked (or Canceled, and its run was promised a later one)

unless the entry changes the world that it stands on:

- one of its nodes, any Budget, the policy, its run (its spec, its namespace, or where it is in its life);
- or what the entry does to leases would have broken it by itself: with the leases that it opens by ``Start`` or
  ``Grow`` left out, and beside the promises of before, less those that it moves later or ends, the promise as it was is
  not tenable. So a slot that a failure takes (``Swap``), money that is handed over (``Refund``) or lasts longer
  because somebody ended early, and an end that is moved, are causes; and who is behind a promise that the world broke,
  or that needs no cuts any more, may have counted on these.

What an entry only records (``decided`` is false) is a cause for the next one that decides. Who is late is not moved
later by being made now. And on a settled world no promise is Pending whose bound is past, unless a draw is waited for.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field

from tenure.audit.books import Books
from tenure.audit.checks_limits import LATE, LimitWatch
from tenure.audit.outlook import Lack, Outlook, Pot
from tenure.audit.promises import Promise, bound_of, claims, promise_of
from tenure.audit.records import is_later, record, violation
from tenure.audit.report import Violation, moment
from tenure.facts import (
    Entry,
    Fact,
    Lease,
    Life,
    Moved,
    Opened,
    PutBudget,
    PutNamespace,
    PutNode,
    PutPolicy,
    PutRun,
    Removed,
    Reservation,
    Reserved,
)
from tenure.units import Instant

HINDERED = ("NoCustodian", "DrawWaits", "EndsLate")
"""Reasons in the record of a start that is due and not made yet."""
LET_IN = ("Start", "Grow")


@dataclass(slots=True)
class Change:
    """What entries changed of the world, but for leases."""

    everything: bool = False
    nodes: set[str] = field(default_factory=set)
    runs: set[str] = field(default_factory=set)
    namespaces: set[str] = field(default_factory=set)

    def concerns(self, one: Promise) -> bool:
        is_run = one.run in self.runs or one.run.partition("/")[0] in self.namespaces
        return self.everything or is_run or not self.nodes.isdisjoint(one.nodes)


@dataclass(slots=True)
class Before:
    """What was promised before an entry, and what of it was tenable that the entry may touch."""

    promises: dict[str, Promise] = field(default_factory=dict)
    records: dict[str, Reservation] = field(default_factory=dict)
    """The Reservations that it writes anew, as they were."""
    tenable: list[Promise] = field(default_factory=list)


class PromiseWatch:
    """Follows the reservations that are neither Released nor Canceled."""

    def __init__(self, books: Books, limits: LimitWatch) -> None:
        self._books, self._limits = books, limits
        self._promises: dict[str, Promise] = {}
        self._over: dict[str, int] = {}
        """Reservations (by uid) that were Released or Canceled: the entry that did."""
        self._change, self._is_decided = Change(), True
        self._before = Before()

    # --- a record ---------------------------------------------------------------------------------------------

    def reserve(self, new: Reservation, *, at: Instant) -> list[Violation]:
        """Take a record that was made or changed; whether it moves the start is looked at after the entry."""
        key, old = new.run_key, self._books.reservations.get(new.run_key)
        found = list(record(old, new, at=at)) if old else []
        if self._over.get(new.uid, -1) >= self._books.run(key).came:  # a run of that name may come anew
            found.append(violation(new, "goes on after it was over", at=at, expected="another one", found=new.state))
        if new.state in ("Released", "Canceled"):
            self._over[new.uid] = self._books.entry
            self._books.reservations.pop(key, None)
            self._books.reservations_by_name.pop(new.key, None)
        else:
            self._books.reservations[key] = new
            self._books.reservations_by_name[new.key] = key
        if claims(new):
            self._promises[key] = promise_of(new, fact=self._books.fact)
        else:
            self._promises.pop(key, None)
        return found

    # --- before an entry --------------------------------------------------------------------------------------

    def expect(self, entry: Entry, *, at: Instant) -> None:
        """Before an entry is folded: what it changes of the world, and which promises that it may touch are tenable."""
        self._change = Change() if self._is_decided else self._change
        self._is_decided = entry.decided
        for fact in entry.facts:
            self._note(fact)
        written = {fact.reservation.run_key for fact in entry.facts if isinstance(fact, Reserved)}
        opened = [fact.lease for fact in entry.facts if isinstance(fact, Opened) and fact.lease.reason in LET_IN]
        self._before = Before()
        if not self._promises or not (written or opened):
            return
        self._before.promises = dict(self._promises)
        self._before.records = {run: self._books.reservations[run] for run in written & self._promises.keys()}
        view = self._outlook(self._promises, at=at)
        laid = (promise_of(fact.reservation, fact=0) for fact in entry.facts
                if isinstance(fact, Reserved) and claims(fact.reservation))  # fmt: skip
        touched = {pot for lease in opened for pot in view.pots_of(lease)}
        touched |= {pot for one in laid for pot in view.pots(one)}
        self._before.tenable = [
            one
            for run, one in sorted(self._promises.items())
            if (run in written or not touched.isdisjoint(view.pots(one))) and view.lack(one) is None
        ]

    def _note(self, fact: Fact) -> None:
        """What a fact changes of the world. One that says what was known changes nothing."""
        books, change = self._books, self._change
        match fact:
            case PutNode() if books.node(fact.object.metadata.name) != fact.object:
                change.nodes.add(fact.object.metadata.name)
            case PutBudget():
                old = books.budgets.get(fact.object.metadata.name)
                change.everything |= old is None or old.spec != fact.object.spec
            case PutPolicy():
                change.everything |= books.policy != fact.policy
            case PutNamespace() if books.namespaces.get(fact.object.metadata.name) != fact.object:
                change.namespaces.add(fact.object.metadata.name)
            case PutRun():
                key = f"{fact.object.metadata.namespace}/{fact.object.metadata.name}"
                if key not in books.runs or books.runs[key].run != fact.object:
                    change.runs.add(key)
            case Moved():
                key = f"{fact.namespace}/{fact.run}"
                if key not in books.runs or _place(books.runs[key].life) != _place(fact.life):
                    change.runs.add(key)
            case Removed():
                change.everything |= fact.kind == "Budget"
                {"Node": change.nodes, "Namespace": change.namespaces}.get(fact.kind, set()).add(fact.name)
                if fact.kind == "Run":
                    change.runs.add(f"{fact.namespace}/{fact.name}")

    # --- after an entry, and on a settled world ---------------------------------------------------------------

    def after(self, opened: Iterable[Lease], *, at: Instant) -> Iterator[Violation]:
        """What the entry did to the promises that were tenable before."""
        before, books = self._before, self._books
        if not before.tenable:
            return
        view = self._outlook(self._promises, at=at)
        new = [one for one in opened if one.key in books.leases and one.reason in LET_IN]
        taken = {pot for lease in new if not books.leases[lease.key].ending for pot in view.pots_of(lease)}
        for one in before.tenable:
            reservation, lack = books.reservations.get(one.run), None
            if reservation is None:
                continue
            delayed = one.run in before.records and is_later(before.records[one.run], reservation, at=at)
            if not delayed and one.run in self._promises:
                lack = self._lack(self._promises[one.run], view, taken)
            if (delayed or lack) and not self._is_broken(one, {lease.key for lease in new}, at=at):
                yield from _said(before.records.get(one.run, reservation), reservation, lack, at=at)

    def _lack(self, one: Promise, view: Outlook, taken: set[Pot]) -> Lack | None:
        """What it will not have, if somebody was let in on one of its pots, or was promised something there."""
        pots = view.pots(one)
        laid = (other for run, other in self._promises.items()
                if run != one.run and other != self._before.promises.get(run))  # fmt: skip
        is_touched = not pots.isdisjoint(taken) or any(not pots.isdisjoint(view.pots(other)) for other in laid)
        return view.lack(one) if is_touched else None

    def _is_broken(self, one: Promise, opened: set[str], *, at: Instant) -> bool:
        """Whether the entry changed what a promise stood on, by something else than whom it let in."""
        if self._change.concerns(one):
            return True
        promises = {run: self._as_it_cuts(other)
                    for run, other in self._before.promises.items()
                    if run == one.run or not self._has_lost(run, at=at)}  # fmt: skip
        return not self._outlook(promises, at=at, without=opened).stands(one)

    def _has_lost(self, run: str, *, at: Instant) -> bool:
        """Whether the entry moves a promise later, or ends it though its run has not started."""
        old, new = self._before.records.get(run), self._books.reservations.get(run)
        if old is None:
            return False
        book = self._books.runs.get(run)
        return (book is None or not book.leases) if new is None else is_later(old, new, at=at)

    def _as_it_cuts(self, one: Promise) -> Promise:
        """A promise as it was, but for whom it names: those whom it names before the entry and after it. Who needs
        nobody cut any more, or starts, cuts nobody, and who is being started those alone who are in its draw."""
        if one.run not in self._before.records:
            return one
        after = self._promises.get(one.run)
        if after is None:
            return one._replace(names=frozenset())
        return one._replace(names=one.names & after.names, draw=after.draw)

    def standing(self, *, now: Instant) -> Iterator[Violation]:
        for one in self._books.reservations.values():
            is_late = one.state == "Pending" and claims(one) and bound_of(one) + LATE < now
            if is_late and not self._is_hindered(one):
                message = "was to start, and was neither activated nor moved"
                yield violation(one, message, at=now, expected=moment(bound_of(one)), found="Pending")

    def _is_hindered(self, one: Reservation) -> bool:
        """Whether a draw is waited for: its own, or somebody else's, and then its record says so."""
        draws = self._books.draws
        return bool(draws) and (one.reason in HINDERED or f"Reservation/{one.key}" in draws)

    def _outlook(self, promises: Mapping[str, Promise], *, at: Instant, without: Iterable[str] = ()) -> Outlook:
        return Outlook(self._books, self._limits, promises, now=at, without=frozenset(without))


def _said(old: Reservation, new: Reservation, lack: Lack | None, *, at: Instant) -> Iterator[Violation]:
    if lack is not None:
        message = f"is made untenable by what the entry lets in: {lack}, for {moment(max(bound_of(new), at))}"
        yield violation(new, message, at=at, expected=lack.holds, found=lack.needed)
    else:
        found = moment(bound_of(new)) if claims(new) else new.state
        yield violation(old, "is delayed without a cause", at=at, expected=moment(bound_of(old)), found=found)


def _place(life: Life) -> tuple[object, ...]:
    """Where a run is in its life."""
    return life.phase, life.attempt, life.not_before, life.deadline, life.cut, life.deleting
