"""Who pays (SPEC 4): the walk over envelopes, what each can give, and why it cannot give more.

``walk`` lists the candidates for a demand in the order of the tiers; ``Purse`` then pays for one plan out of them,
counting what the plan itself has already taken, so the same headroom is never spent twice. A candidate that cannot pay
at all (window, sharing, ACL) is kept with its reason: the whole walk is the explanation.

    room(envelope) = min(concurrency left, hours left / period, the same for its caps, and for its lending when
    borrowed)

where hours left = limit - used - committed and period is the declared duration, or the policy's look-ahead.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

import msgspec
from msgspec import Struct

from tenure.engine.books import Books, Cap, Fund, FundKey
from tenure.engine.demand import Demand
from tenure.engine.family import Family, Step
from tenure.engine.future import Ahead
from tenure.engine.reasons import headline
from tenure.facts import FundingClass, Reason, Segment, Visit
from tenure.units import FOREVER, HOUR, SECOND, GpuMicros, Instant, Micros, format_duration, format_time

UNLIMITED = 2**53
OWNER, KIN, EVERYBODY = 1, 2, 6
"""The circles of payers, by their outermost tier."""


class Candidate(Struct, frozen=True):
    """An envelope that a demand may look at, in which tier, and what bars it for good (or for now)."""

    tier: int
    relation: str
    fund: Fund
    funding: FundingClass
    bar: Reason | None


def walk(
    books: Books, family: Family, demand: Demand, *, now: Instant, tier: int = EVERYBODY, today: Instant | None = None
) -> list[Candidate]:
    """Candidates in the order of the tiers, up to one. Tier 3 is tiers 1 and 2 at other locations: see ``plan``.

    ``today``: when the question is asked, if it is about a later instant: some envelopes take no reservations before
    their window opens.
    """
    out: list[Candidate] = []
    visited: set[FundKey] = set()
    for step in _steps(family, demand, tier):
        for fund in _ordered(books, step, demand.flavor):
            if fund.key in visited:
                continue
            candidate = _candidate(fund, step, demand, now=now)
            if candidate.bar is None and today is not None and today < min(now, fund.start) and not fund.reservable:
                candidate = msgspec.structs.replace(candidate, bar=_closed(fund, demand, now=now))
            out.append(candidate)
            # A relative that does not share may still lend, as a sponsor: it may be visited again.
            if candidate.bar is None or candidate.bar.code != "SharingOptOut":
                visited.add(fund.key)
    return out


def _steps(family: Family, demand: Demand, tier: int) -> Iterator[Step]:
    yield Step(1, "owner", (demand.owner,))
    if tier > OWNER:
        yield from family.kin(demand.owner)
    if tier > KIN and demand.borrow:
        yield from family.lenders(demand.owner, demand.sponsors)


def _ordered(books: Books, step: Step, flavor: str) -> list[Fund]:
    funds = [fund for owner in step.owners for fund in books.of_owner(owner, flavor)]
    return sorted(funds, key=lambda fund: (fund.end, fund.key)) if len(funds) > 1 else funds


def _candidate(fund: Fund, step: Step, demand: Demand, *, now: Instant) -> Candidate:
    if step.tier >= 4:
        return Candidate(step.tier, step.relation, fund, "borrowed", _lending_bar(fund, demand, now=now))
    if step.relation == "owner":
        return Candidate(step.tier, step.relation, fund, "owned", _window_bar(fund, demand, now=now))
    bar = None if fund.shares else Reason(code="SharingOptOut", data={"envelope": fund.label})
    return Candidate(step.tier, step.relation, fund, "shared", bar or _window_bar(fund, demand, now=now))


def _lending_bar(fund: Fund, demand: Demand, *, now: Instant) -> Reason | None:
    if not fund.lends(demand.owner):
        return Reason(code="ACLDenied", data={"envelope": fund.label, "owner": demand.owner})
    return _window_bar(fund, demand, now=now)


def _window_bar(fund: Fund, demand: Demand, *, now: Instant) -> Reason | None:
    is_open = fund.open_at(now) and now + (demand.duration or 0) <= fund.end
    return None if is_open else _closed(fund, demand, now=now)


def _closed(fund: Fund, demand: Demand, *, now: Instant) -> Reason:
    lasts = now + (demand.duration or 0)
    window = f"from {format_time(fund.start)}" if fund.start else ""
    window += f" until {format_time(fund.end)}" if fund.end < FOREVER else " on"
    needed = f"{_second(now)} to {_second(lasts)}" if demand.duration else _second(now)
    return Reason(code="WindowClosed", data={"envelope": fund.label, "window": window.strip(), "needed": needed})


def _second(at: Instant) -> str:
    """An instant in a sentence: nobody reads microseconds."""
    return format_time(at - at % SECOND)


class Purse:
    """The money of one plan: candidates and what has been taken from them so far.

    A ``rested`` purse is paid as if nobody else held or had planned anything: what could be paid at best, some day.
    Hours that were used are gone for good; concurrency, commitments and loans come back.
    """

    def __init__(
        self, demand: Demand, *, now: Instant, lookahead: Micros, borrowed: int, rested: bool = False,
        ahead: Ahead | None = None,
    ) -> None:  # fmt: skip
        self.now = now
        self._ahead = None if rested else ahead
        self.period = demand.duration or max(1, lookahead)
        self.max_borrow = UNLIMITED if demand.max_borrow is None else demand.max_borrow
        self.held = borrowed
        """Borrowed GPUs that the run holds already, or that this plan has taken."""
        self._busy = 0 if rested else 1
        self._taken: dict[FundKey, int] = {}
        self._lent: dict[FundKey, int] = {}

    def room(self, candidate: Candidate) -> int:
        if candidate.bar and self._busy:
            return 0
        least = UNLIMITED
        for _, room in self._limits(candidate):
            if room <= 0:
                return 0
            least = min(least, room)
        return least

    def payable(self, payers: Iterable[Candidate], gpus: int) -> int:
        """How many of so many GPUs these could pay for together; nothing is taken."""
        held, taken, lent = self.held, self._taken.copy(), self._lent.copy()
        _, unpaid = self.pay(payers, gpus)
        self.held, self._taken, self._lent = held, taken, lent
        return gpus - unpaid

    def pay(self, payers: Iterable[Candidate], gpus: int) -> tuple[list[Segment], int]:
        """Take money in order; returns the segments and the GPUs that nobody pays for."""
        segments = []
        for candidate in payers:
            if not gpus:
                break
            take = min(gpus, self.room(candidate))
            if take:
                self._take(candidate, take)
                gpus -= take
                fund = candidate.fund
                segments.append(Segment(budget=fund.key[0], envelope=fund.key[1], payer=fund.owner,
                                        funding=candidate.funding, gpus=take))  # fmt: skip
        return segments, gpus

    def visit(self, candidate: Candidate, asked: int, *, elsewhere: bool = False) -> Visit:
        """What one envelope could give towards ``asked``, and the most decisive limit that keeps it from more."""
        room = 0 if elsewhere else self.room(candidate)
        fund = candidate.fund
        limit = candidate.bar
        if limit is None and elsewhere:
            limit = Reason(code="NoEnvelope", data={"asked": asked, "flavor": fund.flavor, "envelope": fund.label})
        elif limit is None and room < asked:
            short: dict[str, int] = {}
            for code, left in self._limits(candidate):  # two limits may share a code: the tighter one decides
                if left < short.get(code, asked):
                    short[code] = _at_least_none(code, left)
            limit = headline(self._reason(code, candidate, asked=asked, room=left) for code, left in short.items())
        return Visit(
            tier=candidate.tier if not elsewhere or candidate.tier > 3 else 3, relation=candidate.relation,
            owner=fund.owner, budget=fund.key[0], envelope=fund.key[1], funding=candidate.funding,
            offered=min(room, asked), limit=limit,
        )  # fmt: skip

    def _take(self, candidate: Candidate, gpus: int) -> None:
        fund = candidate.fund
        self._taken[fund.key] = self._taken.get(fund.key, 0) + gpus
        if candidate.funding == "borrowed":
            self._lent[fund.key] = self._lent.get(fund.key, 0) + gpus
            self.held += gpus

    def _limits(self, candidate: Candidate) -> Iterator[tuple[str, int]]:
        """Each limit by its code, as GPUs that it leaves for this claim."""
        fund, now, taken, busy = candidate.fund, self.now, self._taken, self._busy
        if candidate.funding == "borrowed":
            lent = self._lent.get(fund.key, 0)
            yield "BorrowLimit", self.max_borrow - self.held
            if fund.lending_max is not None:
                yield "LendingCapExceeded", fund.lending_max - busy * self._lent_out(fund) - lent
            if fund.lending_hours is not None:
                spent = self._lent_spent(fund) if busy else fund.lent.used(now)
                yield "LendingCapExceeded", (fund.lending_hours - spent) // self.period - lent
        for cap in fund.caps:
            provisional = sum(taken.get(member.key, 0) for member in cap.funds) if taken else 0
            if cap.concurrency is not None:
                used = sum(self._held(member) for member in cap.funds) if self._ahead else cap.used
                yield "AggregateCapExceeded", cap.concurrency - busy * used - provisional
            if cap.hours is not None:
                spent = self._all_spent(cap) if busy else sum(one.total.used(now) for one in cap.funds)
                yield "AggregateCapExceeded", (cap.hours - spent) // self.period - provisional
        if fund.hours is not None:
            spent = self._spent(fund) if busy else fund.total.used(now)
            yield "IntegralCapExceeded", (fund.hours - spent) // self.period - taken.get(fund.key, 0)
        yield "ConcurrencyCapExceeded", fund.concurrency - busy * self._held(fund) - taken.get(fund.key, 0)

    def _held(self, fund: Fund) -> int:
        return fund.total.rate if self._ahead is None else self._ahead.held(fund)

    def _lent_out(self, fund: Fund) -> int:
        return fund.lent.rate if self._ahead is None else self._ahead.lent(fund)

    def _spent(self, fund: Fund, by: Instant | None = None) -> GpuMicros:
        """Used and committed."""
        if self._ahead is None:
            return fund.total.used(self.now) + fund.ahead.ahead(self.now)
        return self._ahead.spent(fund, by)

    def _all_spent(self, cap: Cap) -> GpuMicros:
        by = None if self._ahead is None else self._ahead.by(cap.funds)
        return sum(self._spent(fund, by) for fund in cap.funds)

    def _lent_spent(self, fund: Fund) -> GpuMicros:
        if self._ahead is None:
            return fund.lent.used(self.now) + fund.lent_ahead.ahead(self.now)
        return self._ahead.lent_spent(fund)

    def _reason(self, code: str, candidate: Candidate, *, asked: int, room: int) -> Reason:
        fund = candidate.fund
        data: dict[str, int | str] = {"envelope": fund.label, "asked": asked, "room": room, "short": asked - room}
        if code == "ConcurrencyCapExceeded":
            data |= {"limit": fund.concurrency, "used": self._held(fund)}
        elif code == "IntegralCapExceeded":
            assert fund.hours is not None
            left = max(0, fund.hours - self._spent(fund))
            data |= {"hours": left // HOUR, "period": format_duration(self.period)}
        elif code == "AggregateCapExceeded":
            data |= {"envelope": min(fund.caps, key=lambda cap: (self._cap_room(cap.key, fund), cap.key)).label}
        elif code == "BorrowLimit":
            data |= {"limit": self.max_borrow, "held": self.held}
        return Reason(code=code, data=data)

    def _cap_room(self, key: FundKey, fund: Fund) -> int:
        cap = next(cap for cap in fund.caps if cap.key == key)
        rooms = [UNLIMITED]
        if cap.concurrency is not None:
            rooms.append(cap.concurrency - sum(map(self._held, cap.funds)))
        if cap.hours is not None:
            rooms.append((cap.hours - self._all_spent(cap)) // self.period)
        return min(rooms)


def _at_least_none(code: str, left: int) -> int:
    """What a limit leaves, for its sentence: a cap that was lowered below use leaves nothing, not less than that.

    The two that tell what is in use say how far they are over.
    """
    return left if code in ("ConcurrencyCapExceeded", "BorrowLimit") else max(0, left)


def may_ever_pay(candidate: Candidate, demand: Demand, *, now: Instant) -> bool:
    """Whether waiting can help: a window that has not opened yet will; one that is over, or too short, never helps."""
    fund = candidate.fund
    lasts = (now if fund.early else max(now, fund.start)) + (demand.duration or 0)
    return (candidate.bar is None or candidate.bar.code == "WindowClosed") and now < fund.end and lasts <= fund.end
