"""The auditor: reads a ledger entry by entry, keeps its own books, and says what does not hold.

    auditor = Auditor()
    for body in bodies:
        violations += auditor.feed_raw(body)      # feed(entry) where the bytes are not at hand
    violations += auditor.check(now, settled=True)

``feed`` costs what the entry holds. It settles the time since the last entry, takes the facts one by one,
and looks at everything the entry touched once it is folded whole: an entry is effective at one instant, so
what happens between its facts happened nowhere. ``check`` looks at all that is open; ``rest`` adds what holds of runs
that no entry touched for so long, and ``settled`` what holds only between decisions.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

import msgspec

from tenure.audit import checks_facts
from tenure.audit.accounts import AccountKey
from tenure.audit.books import Books
from tenure.audit.checks_cuts import CutWatch
from tenure.audit.checks_limits import LimitWatch, borrowing
from tenure.audit.checks_opening import handed
from tenure.audit.checks_promises import PromiseWatch
from tenure.audit.checks_runs import all_standing, run_after
from tenure.audit.checks_slots import all_slots, slots
from tenure.audit.invariants import IMMUTABLE, SETTLED
from tenure.audit.limits import Relief
from tenure.audit.recount import books_agree, recount, sums_agree, totals_agree
from tenure.audit.report import Value, Violation, moment
from tenure.audit.taking import Taker, Touched, Watches
from tenure.facts import GENESIS, Closed, Entry, Fact, decode_entry, entry_hash
from tenure.units import FOREVER, GpuMicros, Instant, Micros


class Auditor:
    """An independent reader of one ledger."""

    def __init__(self) -> None:
        self._books = Books()
        self._limits = LimitWatch(self._books)
        self._promises = PromiseWatch(self._books, self._limits)
        self._cuts = CutWatch(self._books)
        self._taker = Taker(self._books, Watches(self._limits, self._promises, self._cuts))
        self._at: Instant = 0
        self._seq: int | None = None
        self._hash: str | None = GENESIS
        self._head: str | None = None
        """The hash of the entry before the one that is read, where it is known."""

    # --- what callers ask -----------------------------------------------------------------------------------

    def feed_raw(self, body: bytes) -> list[Violation]:
        """Fold one entry as it is stored, and check its link to the one before."""
        before = self._head = self._hash
        self._hash = entry_hash(body)
        try:
            entry = decode_entry(body)
        except msgspec.DecodeError as error:
            self._seq = (self._seq or 0) + 1
            return [self._violation("an entry cannot be read", expected="an entry", found=str(error))]
        return [*self._link(entry, before), *self._feed(entry)]

    def feed(self, entry: Entry) -> list[Violation]:
        """Fold one entry. Without its bytes the hashes cannot be followed; its number and time can."""
        self._hash = self._head = None
        return self._feed(entry)

    def check(self, now: Instant, *, settled: bool = False, rest: Micros = FOREVER) -> list[Violation]:
        """Everything that is open, at an instant not before the last entry."""
        now, books = max(now, self._at), self._books
        rested = now if settled else now - rest
        found = list(all_slots(books, at=now, rested=rested, settled=settled))
        found += self._limits.standing(now=now)
        found += all_standing(books, at=now, rested=rested, settled=settled)
        for key in sorted(books.engaged):
            found += borrowing(key, books.runs[key], at=now)
        found += totals_agree(books, at=now)
        if settled:
            found += self._promises.standing(now=now)
        return found

    def charges(self, now: Instant) -> dict[AccountKey, GpuMicros]:
        """GPU-microseconds charged to each (budget, envelope, start, end) that was ever charged."""
        return self._books.charges(max(now, self._at))

    def passed_over(self, subject: str, activation: int) -> list[str]:
        """Who of a draw's order was over, or had begun anew, when it was resolved, and gave nothing up."""
        return self._cuts.passed_over.get((subject, activation), [])

    def recheck(self, entries: Iterable[Entry], *, now: Instant) -> list[Violation]:
        """I10 from scratch: recount the entries that were fed, and compare these books with the count."""
        now = max(now, self._at)
        count = recount(entries, now=now)
        return [*sums_agree(count, at=now), *books_agree(self._books, count, at=now)]

    # --- one entry ------------------------------------------------------------------------------------------

    def _feed(self, entry: Entry) -> list[Violation]:
        found = list(self._order(entry))
        since, self._at = self._at, max(self._at, entry.at)
        self._seq = entry.seq
        found += self._limits.advance(since=since, to=self._at, reliefs=self._reliefs(entry))
        self._books.fact = self._books.entry = self._books.fact + 1
        touched = Touched(at=self._at, handed=handed(self._books, entry.facts))
        touched.leaving = {one.key: self._books.leases[one.key].ending for one in touched.handed.values()}
        self._promises.expect(entry, at=self._at)
        for fact in entry.facts:
            found += self._taker.take(fact, touched)
        found += self._after(touched)
        return found

    def _order(self, entry: Entry) -> Iterator[Violation]:
        """Entries are numbered densely, from 0 or from 1, and time does not run back."""
        is_first = self._seq is None and entry.seq in (0, 1)
        expected = entry.seq if is_first else (self._seq or 0) + 1
        if entry.seq != expected:
            yield self._violation("entries are not numbered densely", expected=expected, found=entry.seq)
        if entry.at < self._at:
            yield self._violation("time runs back", expected=moment(self._at), found=moment(entry.at))

    def _link(self, entry: Entry, before: str | None) -> Iterator[Violation]:
        if before is not None and entry.prev != before:
            message = f"entry {entry.seq} does not follow from the one before"
            yield self._violation(message, expected=before, found=entry.prev)

    def _reliefs(self, entry: Entry) -> list[Relief]:
        """Leases that ended before this entry told of it."""
        closings = [fact for fact in entry.facts if isinstance(fact, Closed) and fact.end < self._at]
        ends = {f"{fact.namespace}/{name}": fact.end for fact in closings for name in fact.leases}
        reliefs = []
        for key in sorted(ends.keys() & self._books.leases.keys()):
            lease, since = self._books.leases[key].lease, self._books.leases[key].since
            lent, end = lease.funding == "borrowed", max(ends[key], since)
            payer = (lease.budget, lease.envelope)
            reliefs.append(Relief(key, payer, end=end, gpus=len(lease.gpus), lent=lent))
        return reliefs

    def _after(self, touched: Touched) -> Iterator[Violation]:
        """What must hold now that the entry is folded whole."""
        at, runs = self._at, self._books.runs
        yield from slots(self._books, touched.slots, at=at)
        self._limits.resolved(at=at)
        yield from self._limits.settle(sorted(touched.envelopes), at=at)
        for key, turn in sorted(touched.runs.items()):
            if key in runs:
                yield from run_after(key, runs[key], turn, policy=self._books.policy, at=at)
                yield from borrowing(key, runs[key], at=at)
        yield from self._promises.after(touched.acts.opened, at=at)
        yield from self._cuts.after(touched.acts, head=self._head, at=at)
        for fact in touched.decisions:
            opened = touched.runs[f"{fact.namespace}/{fact.run}"].decided()
            if opened and fact.verdict.outcome == "start":
                yield from checks_facts.decision(fact, opened, at=at)

    def _violation(self, message: str, *, expected: Value, found: Value) -> Violation:
        return Violation(
            invariant=IMMUTABLE.name,
            at=self._at,
            object="Ledger",
            message=message,
            expected=expected,
            found=found,
        )


def check_all(entries: Iterable[Entry], *, now: Instant, settled: bool = False) -> list[Violation]:
    """A whole ledger at once: every entry, the state at ``now``, and the recount from scratch."""
    auditor, entries = Auditor(), list(entries)
    found = [violation for entry in entries for violation in auditor.feed(entry)]
    return [*found, *auditor.check(now, settled=settled), *auditor.recheck(entries, now=now)]


def settled_pass_wrote(facts: Iterable[Fact], *, at: Instant) -> list[Violation]:
    """I11: what one more pass over a settled world wrote. It should have been nothing."""
    message = "one more pass over a settled world wrote something"
    return [
        Violation(
            invariant=SETTLED.name,
            at=at,
            object="Ledger",
            message=message,
            expected="nothing",
            found=str(fact),
        )
        for fact in facts
    ]
