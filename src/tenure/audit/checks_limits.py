"""I2: every limit holds at every instant, between entries too, unless there is an excuse (SPEC 3, 8, 13).

GPUs change only with entries, so they are looked at after each. Hours run and windows end by themselves:
for each limit the instant of the next crossing is kept in a queue, and an entry (or a check) first settles
the crossings that lie before it.

A limit is exceeded by the passing of time (hours used up, a window over) or by an edit that lowers it below use; a
Budget or an envelope that is removed is one that was lowered to nothing. Then whoever uses more than there is must
be asked to end (``Ending``), or be handed to another payer, by an instant that is *due*:

    passing of time     the crossing + LATE
    lowered             the edit + budgetGrace + LATE; until then GPUs may only fall (``Standing.ceiling``). An envelope
                        has one grace, and so has a cap: notice is given anew of all of it

What was asked to end may go on charging until its pods are gone. Nothing is due

- while a draw waits for its reveals, or was announced to be impossible since no custodian has published a chain: it is
  due LATE after that is over;
- of the Active leases of a run that could not be drawn yet: it is due LATE after the run has run for
  ``activationLead``;
- under policy Coast, if a notice that it has run out (``exhausted``, ``window``, ``lending``) was recorded before
  it was due, for the envelope, or for the cap or one of its envelopes. A lowered limit needs no notice;
- of a lending cap that was lowered: that cuts nothing.

An excuse ends when the limit holds again.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Container, Iterable, Iterator, Mapping
from dataclasses import dataclass
from enum import Enum
from heapq import heappop, heappush

from tenure.api.budget import Budget
from tenure.audit.accounts import EnvelopeKey
from tenure.audit.books import AT_WORK, Books, RunBook
from tenure.audit.invariants import LIMITS
from tenure.audit.limits import (
    Limit,
    LimitKey,
    Relief,
    crossing,
    gpus_held,
    is_over,
    limits_of,
    time_promised,
    time_used,
)  # fmt: skip
from tenure.audit.report import Violation, moment
from tenure.facts import Lease
from tenure.units import FOREVER, MINUTE, GpuMicros, Instant, Micros, parse_duration

NO_CUSTODIAN = "custodian"
"""The mark of the notice that a draw is needed and nobody can reveal."""
EXHAUSTED, WINDOW_OVER, LENDING_OVER = "exhausted", "window", "lending"
"""The marks of the notices that hours have run out, that a window has ended, and that lent hours have run out."""
LATE: Micros = MINUTE
"""How late what is due at an instant may come. A driver acts on a real clock, some milliseconds after its timer, and
what it decides is recorded later still; one that was away for longer let somebody have what was not theirs, and that
is a finding to be shown."""
_QUEUE_SLACK = 64
"""Outdated crossings that the queue may hold before it is built anew."""
Undeclared = Mapping[tuple[EnvelopeKey, bool], int]
_WORDS = {"gpus": "GPUs at once", "hours": "GPU-microseconds", "window": "window"}


@dataclass(slots=True)
class Standing:
    """What is known about one limit that is exceeded."""

    since: Instant
    """When it was crossed, or lowered."""
    due: Instant
    """By when what is above it must have been asked to end."""
    lowered: bool = False
    ceiling: int | None = None
    """GPUs that an edit left above the limit: they may fall, never rise."""
    excused: bool = False
    """It coasts."""
    reported: bool = False
    """It was due and not done, and that was said."""


class Answer(Enum):
    """What there is to say of a limit that is exceeded."""

    FINE = "not due, or everybody was asked to end"
    EXCUSED = "for as long as it is exceeded"
    DRAWING = "until the draw is resolved"
    BROKEN = "due, and not done"


class LimitWatch:
    """Watches the limits of all Budgets while the books are folded."""

    def __init__(self, books: Books) -> None:
        self._books = books
        self._limits: dict[str, tuple[Limit, ...]] = {}
        self._by_key: dict[LimitKey, Limit] = {}
        self._by_envelope: dict[EnvelopeKey, tuple[Limit, ...]] = {}
        self._standing: dict[LimitKey, Standing] = {}
        self._due: dict[LimitKey, tuple[Instant, Limit]] = {}
        self._queue: list[tuple[Instant, LimitKey]] = []
        self._deadlines: list[tuple[Instant, LimitKey]] = []
        self._drawing: set[LimitKey] = set()

    # --- edits ----------------------------------------------------------------------------------------------

    def over(self, budget: str, *, at: Instant) -> set[LimitKey]:
        """The limits of a Budget that are exceeded: asked before an edit, to know what the edit did."""
        return {limit.key for limit in self._limits.get(budget, ()) if is_over(limit, self._books.envelopes, at=at)}

    def replace(self, name: str, budget: Budget | None, *, were_over: set[LimitKey], at: Instant) -> None:
        """Watch the limits of an edited Budget. What is over now and was not before, the edit put there."""
        old = self._limits.pop(name, ())
        new = (*(limits_of(budget) if budget else ()), *self._dropped(old, budget))
        before = {limit.key: limit.bound for limit in old}
        for key in before:
            self._due.pop(key, None)
            self._by_key.pop(key, None)
        self._limits[name] = new
        self._by_key |= {limit.key: limit for limit in new}
        for key in before.keys() - {limit.key for limit in new}:
            self._standing.pop(key, None)
        self._index(old, new)
        for limit in new:
            was = before.get(limit.key)
            self._rejudge(limit, was_over=limit.key in were_over, is_lower=was is not None and limit.bound < was,
                          is_edited=was != limit.bound, at=at)  # fmt: skip
        self._give_notice_anew(new, at=at)

    def _give_notice_anew(self, limits: Iterable[Limit], *, at: Instant) -> None:
        """Whatever else of an envelope, or of a cap, was lowered earlier is due with what was lowered now."""
        lowered = {limit: one for limit in limits if (one := self._standing.get(limit.key)) and one.lowered}
        anew = {(limit.key.kind, limit.key.name) for limit, one in lowered.items() if one.since == at}
        for limit, one in lowered.items():
            if one.since < at and (limit.key.kind, limit.key.name) in anew:
                self._lower(limit, ceiling=one.ceiling, at=at)

    def _dropped(self, old: Iterable[Limit], budget: Budget | None) -> Iterator[Limit]:
        """Envelopes that are there no more and still pay: as if lowered to nothing."""
        kept = {envelope.name for envelope in budget.spec.envelopes} if budget else set()
        for key in sorted({limit.members[0] for limit in old if limit.key.kind == "envelope"}):
            book = self._books.envelopes.get(key)
            if key[1] not in kept and book is not None and book.gpus():
                yield Limit(LimitKey(key[0], "envelope", key[1], "gpus"), 0, (key,))

    def _rejudge(self, limit: Limit, *, was_over: bool, is_lower: bool, is_edited: bool, at: Instant) -> None:
        """What an edit lowers to just what was used is exceeded from the next instant on, and the edit's doing, too."""
        standing = self._standing.get(limit.key)
        if not is_over(limit, self._books.envelopes, at=at + (is_edited or standing is not None)):
            self._standing.pop(limit.key, None)
        elif not was_over or (is_lower and standing is not None and standing.lowered):
            self._lower(limit, ceiling=gpus_held(limit, self._books.envelopes), at=at)
        self._schedule(limit, now=at)

    def _lower(self, limit: Limit, *, ceiling: int | None, at: Instant) -> None:
        due = at + parse_duration(self._books.policy.budget_grace) + LATE
        self._stand(limit, Standing(since=at, due=due, lowered=True, ceiling=ceiling))

    def _stand(self, limit: Limit, standing: Standing) -> None:
        """A limit is exceeded; it is judged again when something is due."""
        self._standing[limit.key] = standing
        heappush(self._deadlines, (standing.due, limit.key))

    def _index(self, old: Iterable[Limit], new: Iterable[Limit]) -> None:
        for key in {key for limit in old for key in limit.members}:
            self._by_envelope.pop(key, None)
        for limit in new:
            for key in limit.members:
                self._by_envelope[key] = (*self._by_envelope.get(key, ()), limit)

    # --- the passing of time --------------------------------------------------------------------------------

    def advance(self, *, since: Instant, to: Instant, reliefs: Iterable[Relief] = ()) -> Iterator[Violation]:
        """Settle the crossings between the last entry and this one."""
        while self._queue and self._queue[0][0] <= to:
            instant, key = heappop(self._queue)
            due, limit = self._due.get(key, (None, None))
            if due != instant or limit is None:
                continue
            del self._due[key]
            at = crossing(limit, self._books.envelopes, since=since, reliefs=reliefs)
            if at is not None and at <= to and key not in self._standing:
                self._stand(limit, Standing(since=at, due=at + LATE))
        while self._deadlines and self._deadlines[0][0] < to:
            deadline, key = heappop(self._deadlines)
            standing = self._standing.get(key)
            if standing is not None and standing.due == deadline:
                gone = {relief.lease for relief in reliefs if relief.end <= deadline}
                yield from self._act(self._by_key[key], standing, at=deadline + 1, gone=gone)

    def resolved(self, *, at: Instant) -> None:
        """If draws can be made and none waits, what waited for one is due a moment later."""
        if self._books.draws or not self._books.custodians:
            return
        for key in sorted(self._drawing & self._standing.keys()):
            self._postpone(key, due=at + LATE)
        self._drawing.clear()

    def _postpone(self, key: LimitKey, *, due: Instant) -> None:
        self._standing[key].due = due
        heappush(self._deadlines, (due, key))

    def _act(self, limit: Limit, standing: Standing, *, at: Instant, gone: Container[str] = ()) -> Iterator[Violation]:
        """Judge what is due, and remember the answer."""
        answer = self._judge(limit, standing, at=at, gone=gone)
        if isinstance(answer, int):
            self._postpone(limit.key, due=answer)
        elif answer is Answer.DRAWING:
            self._drawing.add(limit.key)
        elif answer is Answer.EXCUSED:
            standing.excused = True
        elif answer is Answer.BROKEN and not standing.reported:
            standing.reported = True
            yield self._violation(limit, standing, at=standing.due if standing.lowered else standing.since)

    def _judge(self, limit: Limit, standing: Standing, *, at: Instant, gone: Container[str] = ()) -> Answer | Instant:
        """The answer at an instant, or the instant from which on something is due."""
        if standing.excused or at <= standing.due:
            return Answer.FINE
        grace = standing.since + parse_duration(self._books.policy.budget_grace) + LATE
        if standing.lowered and at <= grace:
            return grace  # the grace was made longer since
        staying = [key for key in self.staying(limit) if key not in gone]
        allowed = limit.bound if limit.key.measure == "gpus" else 0
        if sum(len(self._books.leases[key].lease.gpus) for key in staying) <= allowed:
            return Answer.FINE
        if self._coasts(limit, standing):
            return Answer.EXCUSED
        if self._books.draws or self._lacks_custodian(limit):
            return Answer.DRAWING
        due = self._enough(staying, allowed, at=at) + LATE
        return Answer.BROKEN if due < at else due

    def _enough(self, staying: list[str], allowed: int, *, at: Instant) -> Instant:
        """From when on cutting is owed: where nothing is allowed as soon as anything may be cut, else when enough may.

        Nobody is cut as long as those who may be cut would not be enough.
        """
        due = sorted((self._cuttable(key, at=at), len(self._books.leases[key].lease.gpus)) for key in staying)
        if not allowed:
            return due[0][0]
        left = sum(gpus for _, gpus in due)
        for instant, gpus in due:
            left -= gpus
            if left <= allowed:
                return instant
        return due[-1][0]

    def staying(self, limit: Limit) -> Iterator[str]:
        """Open leases that count against a limit, less those that were asked to end."""
        books = (self._books.envelopes[key] for key in limit.members if key in self._books.envelopes)
        return (lease for book in books for lease in book.staying_leases(lent=limit.counts_lent))

    def _cuttable(self, key: str, *, at: Instant) -> Instant:
        """From when on the resolver may end this lease: a run is drawn only after it has run for ``activationLead``."""
        lease, lead = self._books.leases[key].lease, parse_duration(self._books.policy.activation_lead)
        run = self._books.run(lease.run_key)
        if lease.role != "Active" or run.life.phase not in AT_WORK:
            return 0
        return (at if run.running_since is None else run.running_since) + lead

    def _coasts(self, limit: Limit, standing: Standing) -> bool:
        if standing.lowered and limit.key.kind == "lending":
            return True
        coasts = self._books.policy.on_budget_shortage == "Coast"
        return coasts and (standing.lowered or self._announced(limit, by=standing.due))

    def _lacks_custodian(self, limit: Limit) -> bool:
        """Whether nobody can be drawn, and that was said."""
        return not self._books.custodians and any(NO_CUSTODIAN in said for said in self._notices(limit))

    def _announced(self, limit: Limit, *, by: Instant) -> bool:
        marks = (EXHAUSTED, WINDOW_OVER) if limit.key.measure == "window" else (EXHAUSTED, LENDING_OVER)
        return any(said[mark] <= by for said in self._notices(limit) for mark in marks if mark in said)

    def _notices(self, limit: Limit) -> list[dict[str, Instant]]:
        envelopes, caps = self._books.envelopes, self._books.cap_notices
        notices = [envelopes[key].account.notices for key in limit.members if key in envelopes]
        return [*notices, caps.get((limit.key.budget, limit.key.name), {})]

    def _schedule(self, limit: Limit, *, now: Instant) -> None:
        """Queue the next crossing. A limit that is exceeded has none: it has been judged."""
        self._due.pop(limit.key, None)
        if limit.key.measure == "gpus" or is_over(limit, self._books.envelopes, at=now):
            return
        at = crossing(limit, self._books.envelopes, since=now)
        if at is not None:
            self._due[limit.key] = (at, limit)
            heappush(self._queue, (at, limit.key))
        if len(self._queue) > 2 * len(self._due) + _QUEUE_SLACK:
            self._queue = sorted((due, key) for key, (due, _) in self._due.items())

    # --- after an entry, and at any instant -----------------------------------------------------------------

    def settle(self, envelopes: Iterable[EnvelopeKey], *, at: Instant) -> Iterator[Violation]:
        """After an entry: the GPUs of the envelopes that it touched, and when they run out now."""
        for limit in self._touching(envelopes):
            if limit.key.measure == "gpus":
                yield from self._look_at_gpus(limit, at=at)
            standing = self._standing.get(limit.key)
            if not is_over(limit, self._books.envelopes, at=at + (standing is not None)):
                self._standing.pop(limit.key, None)
            elif standing is not None:
                yield from self._act(limit, standing, at=at)
            self._schedule(limit, now=at)

    def standing(self, *, now: Instant) -> Iterator[Violation]:
        """Every limit of every envelope that pays for something now."""
        paying = [key for key, book in sorted(self._books.envelopes.items()) if book.gpus()]
        for limit in self._touching(paying):
            if limit.key.measure == "gpus":
                yield from self._look_at_gpus(limit, at=now)
            standing = self._standing.get(limit.key)
            if standing is None and limit.key in self._due:
                crossed = self._due[limit.key][0]
                standing = Standing(since=crossed, due=crossed + LATE)
            if standing is None or not is_over(limit, self._books.envelopes, at=now):
                continue
            if standing.reported or self._judge(limit, standing, at=now) is Answer.BROKEN:
                yield self._violation(limit, standing, at=now)

    def on(self, envelope: EnvelopeKey, *, lent: bool) -> Iterator[Limit]:
        """The limits that bound what an envelope pays, as its owner's money or as a loan."""
        return (one for one in self._by_envelope.get(envelope, ()) if lent or not one.counts_lent)

    def runs_out(
        self, envelope: EnvelopeKey, *, lent: bool, now: Instant, without: Collection[str] = ()
    ) -> Instant:  # fmt: skip
        """When the hours or the window that pay run out, if what is to end does, and the work has to end: of those that
        are ahead. ``without``: leases that are left out."""
        if self._books.policy.on_budget_shortage == "Coast":
            return FOREVER
        dues = [self._due_of(limit, now, without) for limit in self.on(envelope, lent=lent) if limit.key in self._due]
        # A limit is crossed the instant after it is reached.
        return min((due - 1 for due in dues if due > now), default=FOREVER)

    def _due_of(self, limit: Limit, now: Instant, without: Collection[str]) -> Instant:
        due = self._due[limit.key][0]
        if limit.key.measure != "hours" or due <= now:
            return due
        leases = [self._books.leases[key].lease for key in self.staying(limit)]
        ends = Counter[Instant]()
        for lease in leases:
            if lease.until is not None and lease.until > now and lease.key not in without:
                ends[lease.until] += len(lease.gpus)
        rate = gpus_held(limit, self._books.envelopes) - sum(len(one.gpus) for one in leases if one.key in without)
        left, since = limit.bound - time_used(limit, self._books.envelopes, at=now), now
        for end in sorted(ends):
            if rate * (end - since) >= left:
                break
            left -= rate * (end - since)
            rate, since = rate - ends[end], end
        return since + left // rate + 1 if rate > 0 else FOREVER

    def held(self, limit: Limit) -> int:
        """GPUs at once, of those too that were asked to end."""
        return gpus_held(limit, self._books.envelopes)

    def spoken_for(self, limit: Limit, *, at: Instant) -> GpuMicros:
        """What was used of hours, and what leases that declared an end are still to use."""
        envelopes = self._books.envelopes
        return time_used(limit, envelopes, at=at) + time_promised(limit, envelopes, at=at)

    def _touching(self, envelopes: Iterable[EnvelopeKey]) -> list[Limit]:
        found = {limit.key: limit for key in envelopes for limit in self._by_envelope.get(key, ())}
        return [found[key] for key in sorted(found)]

    def _look_at_gpus(self, limit: Limit, *, at: Instant) -> Iterator[Violation]:
        standing = self._standing.get(limit.key)
        held = gpus_held(limit, self._books.envelopes)
        ceiling, allowed = ratchet(held, bound=limit.bound, ceiling=standing.ceiling if standing else None)
        if standing is not None:
            standing.ceiling = ceiling
        if not allowed:
            yield self._violation(limit, standing=None, at=at)

    def _violation(self, limit: Limit, standing: Standing | None, *, at: Instant) -> Violation:
        found: int | str
        expected: int | str = limit.bound
        match limit.key.measure:
            case "gpus":
                found = gpus_held(limit, self._books.envelopes)
            case "hours":
                found = time_used(limit, self._books.envelopes, at=at)
            case "window":
                held = gpus_held(limit, self._books.envelopes)
                expected, found = f"nothing held after {moment(limit.bound)}", f"{held} GPUs held"
        message = f"{limit.key.kind} {limit.key.name} exceeds its limit ({_WORDS[limit.key.measure]})"
        if standing is not None:
            why = "lowered" if standing.lowered else "crossed"
            message += f", {why} at {moment(standing.since)}, and what is above it was not asked to end in time"
        return _violation(f"Budget/{limit.key.budget}", message, at=at, expected=expected, found=found)

    # --- a claim --------------------------------------------------------------------------------------------

    def claim(self, lease: Lease, *, undeclared: Undeclared, at: Instant) -> Iterator[Violation]:
        """At an opening, after it was folded: hours are left for what is promised, and for one look-ahead.

        ``undeclared`` are the GPUs without a declared end that the same decision opened for the same run.
        """
        lookahead = parse_duration(self._books.policy.lookahead)
        for limit in self._touching([(lease.budget, lease.envelope)]):
            if limit.key.measure != "hours" or (limit.counts_lent and lease.funding != "borrowed"):
                continue
            needed = self.spoken_for(limit, at=at)
            needed += lookahead * _gpus_of(limit, undeclared)
            if needed > limit.bound:
                message = f"{limit.key.kind} {limit.key.name} has too few GPU-microseconds left for the claim"
                yield _violation(f"Lease/{lease.key}", message, at=at, expected=limit.bound, found=needed)


def ratchet(use: int, *, bound: int, ceiling: int | None) -> tuple[int | None, bool]:
    """The ceiling from now on, and whether this use is allowed: within the bound, or excused and not risen.

    >>> ratchet(8, bound=8, ceiling=None), ratchet(9, bound=8, ceiling=None)
    ((None, True), (None, False))
    >>> ratchet(9, bound=8, ceiling=12), ratchet(10, bound=8, ceiling=9)
    ((9, True), (9, False))
    """
    if use <= bound:
        return None, True
    if ceiling is not None and use <= ceiling:
        return use, True
    return ceiling, False


def borrowing(key: str, book: RunBook, *, at: Instant) -> Iterator[Violation]:
    """``maxBorrowGPUs`` bounds what a run borrows at any moment; lowering it below use cuts nothing."""
    bound = book.run.spec.funding.max_borrow_gpus if book.run else None
    if bound is None:
        return
    book.borrowed_ceiling, allowed = ratchet(book.borrowed, bound=bound, ceiling=book.borrowed_ceiling)
    if not allowed:
        yield _violation(f"Run/{key}", "borrows more than maxBorrowGPUs", at=at, expected=bound, found=book.borrowed)


def _gpus_of(limit: Limit, undeclared: Undeclared) -> int:
    kinds = (True,) if limit.counts_lent else (True, False)
    return sum(undeclared.get((key, lent), 0) for key in limit.members for lent in kinds)


def _violation(thing: str, message: str, *, at: Instant, expected: int | str, found: int | str) -> Violation:
    return Violation(invariant=LIMITS.name, at=at, object=thing, message=message, expected=expected, found=found)
