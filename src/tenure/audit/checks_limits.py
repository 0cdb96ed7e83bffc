"""I2: every limit holds at every instant, between entries too, unless there is an excuse (SPEC 3, 13).

GPUs change only with entries, so they are looked at after each. Hours run and windows end by themselves:
for each limit the instant of the next crossing is kept in a queue, and an entry (or a check) first settles
the crossings that lie before it.

The excuses. An edit that lowers a limit below use: GPUs may then stay, and only fall
(``Standing.ceiling``); hours may run on. Policy Coast at the crossing. Until the resolver lands: a notice
``exhausted`` (or ``window``, for a window) at or before the crossing, for the envelope, or for the cap or one
of its envelopes. An excuse ends when the limit holds again.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from heapq import heappop, heappush

from tenure.api.budget import Budget
from tenure.audit.accounts import EnvelopeKey
from tenure.audit.books import Books, RunBook
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
from tenure.units import Instant, parse_duration

EXHAUSTED, WINDOW_OVER, LENDING_OVER = "exhausted", "window", "lending"
"""The marks of the notices that hours have run out, and that a window has ended."""
_QUEUE_SLACK = 64
"""Outdated crossings that the queue may hold before it is built anew."""
Undeclared = Mapping[tuple[EnvelopeKey, bool], int]
_WORDS = {"gpus": "GPUs at once", "hours": "GPU-microseconds", "window": "window"}


@dataclass(slots=True)
class Standing:
    """What is known about one limit that is exceeded."""

    ceiling: int | None = None
    """GPUs that an edit left above the limit: they may fall, never rise."""
    excused: bool = False
    """Hours or window: exceeded with an excuse."""
    reported: bool = False
    """Hours or window: exceeded without one, and said so."""


class LimitWatch:
    """Watches the limits of all Budgets while the books are folded."""

    def __init__(self, books: Books) -> None:
        self._books = books
        self._limits: dict[str, tuple[Limit, ...]] = {}
        self._by_envelope: dict[EnvelopeKey, tuple[Limit, ...]] = {}
        self._standing: dict[LimitKey, Standing] = {}
        self._due: dict[LimitKey, tuple[Instant, Limit]] = {}
        self._queue: list[tuple[Instant, LimitKey]] = []

    # --- edits ----------------------------------------------------------------------------------------------

    def over(self, budget: str, *, at: Instant) -> set[LimitKey]:
        """The limits of a Budget that are exceeded: asked before an edit, to know what the edit did."""
        return {limit.key for limit in self._limits.get(budget, ()) if is_over(limit, self._books.envelopes, at=at)}

    def replace(self, name: str, budget: Budget | None, *, were_over: set[LimitKey], at: Instant) -> None:
        """Watch the limits of an edited Budget. What is over now and was not before, the edit put there."""
        old = self._limits.pop(name, ())
        new = self._limits[name] = limits_of(budget) if budget else ()
        for limit in old:
            self._due.pop(limit.key, None)
            if budget is None:
                self._standing.pop(limit.key, None)
        self._index(old, new)
        for limit in new:
            self._rejudge(limit, was_over=limit.key in were_over, at=at)

    def _rejudge(self, limit: Limit, *, was_over: bool, at: Instant) -> None:
        if not is_over(limit, self._books.envelopes, at=at):
            self._standing.pop(limit.key, None)
        elif not was_over:
            self._standing[limit.key] = Standing(ceiling=gpus_held(limit, self._books.envelopes), excused=True)
        self._schedule(limit, now=at)

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
            if at is not None and at <= to:
                yield from self._crossed(limit, at=at, said_by=to)

    def _crossed(self, limit: Limit, *, at: Instant, said_by: Instant) -> Iterator[Violation]:
        """Judge a crossing. A timer rings a moment late on a real clock: a notice in the first entry after counts."""
        standing = self._standing.setdefault(limit.key, Standing())
        if standing.excused or self._is_excused(limit, at=said_by):
            standing.excused = True
        elif not standing.reported:
            standing.reported = True
            yield self._violation(limit, at=at)

    def _is_excused(self, limit: Limit, *, at: Instant) -> bool:
        if self._books.policy.on_budget_shortage == "Coast":
            return True
        envelopes, caps = self._books.envelopes, self._books.cap_notices
        notices = [envelopes[key].account.notices for key in limit.members if key in envelopes]
        notices.append(caps.get((limit.key.budget, limit.key.name), {}))
        marks = (EXHAUSTED, WINDOW_OVER) if limit.key.measure == "window" else (EXHAUSTED, LENDING_OVER)
        return any(said[mark] <= at for said in notices for mark in marks if mark in said)

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
                yield from self._judge_gpus(limit, at=at)
            elif not is_over(limit, self._books.envelopes, at=at):
                self._standing.pop(limit.key, None)
            self._schedule(limit, now=at)

    def standing(self, *, now: Instant) -> Iterator[Violation]:
        """Every limit of every envelope that pays for something now."""
        paying = [key for key, book in sorted(self._books.envelopes.items()) if book.gpus()]
        for limit in self._touching(paying):
            if limit.key.measure == "gpus":
                yield from self._judge_gpus(limit, at=now)
            elif is_over(limit, self._books.envelopes, at=now) and not self._stands_excused(limit, now=now):
                yield self._violation(limit, at=now)

    def _stands_excused(self, limit: Limit, *, now: Instant) -> bool:
        standing = self._standing.get(limit.key, Standing())
        crossed = self._due.get(limit.key, (now, limit))[0]
        return standing.excused or (not standing.reported and self._is_excused(limit, at=crossed))

    def _touching(self, envelopes: Iterable[EnvelopeKey]) -> list[Limit]:
        found = {limit.key: limit for key in envelopes for limit in self._by_envelope.get(key, ())}
        return [found[key] for key in sorted(found)]

    def _judge_gpus(self, limit: Limit, *, at: Instant) -> Iterator[Violation]:
        standing = self._standing.setdefault(limit.key, Standing())
        held = gpus_held(limit, self._books.envelopes)
        standing.ceiling, allowed = ratchet(held, bound=limit.bound, ceiling=standing.ceiling)
        if not allowed:
            yield self._violation(limit, at=at)

    def _violation(self, limit: Limit, *, at: Instant) -> Violation:
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
        return _violation(f"Budget/{limit.key.budget}", message, at=at, expected=expected, found=found)

    # --- a claim --------------------------------------------------------------------------------------------

    def claim(self, lease: Lease, *, undeclared: Undeclared, at: Instant) -> Iterator[Violation]:
        """At an opening, after it was folded: hours are left for what is promised, and for one look-ahead.

        ``undeclared`` are the GPUs without a declared end that the same decision opened for the same run.
        """
        lookahead, envelopes = parse_duration(self._books.policy.lookahead), self._books.envelopes
        for limit in self._touching([(lease.budget, lease.envelope)]):
            if limit.key.measure != "hours" or (limit.counts_lent and lease.funding != "borrowed"):
                continue
            needed = time_used(limit, envelopes, at=at) + time_promised(limit, envelopes, at=at)
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
