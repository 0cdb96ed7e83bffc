"""What every envelope has given, is giving and may still give (SPEC 3).

A meter is a straight line: ``used(t) = offset + rate * t`` in GPU-microseconds. Opening a lease of g GPUs at s adds
the line ``g * (t - s)``, closing it at e freezes that line at ``g * (e - s)``. So a reading is exact at any instant,
does not depend on when anybody looked, and costs two additions however long the history is.

What running claims with a declared end may still use is a second sum, ``sum(g * until) - sum(g) * t`` over the claims
whose declared end is ahead. An account is one (budget, envelope, window): a new window starts a new account, and what
was charged to the old one stays there.

>>> meter = Meter(); meter.open(8, at=100); meter.close(8, at=160); meter.open(2, at=200)
>>> meter.used(150), meter.used(210)
(380, 500)
"""

from __future__ import annotations

from collections.abc import Iterable
from heapq import heappop, heappush
from typing import Literal, NamedTuple

from tenure.api.budget import Budget, Envelope
from tenure.api.owners import matches as owner_matches
from tenure.engine.demand import Selector
from tenure.facts import Lease, Warned
from tenure.units import FOREVER, HOUR, GpuMicros, Instant, parse_time

Place = tuple[str | None, str | None, Selector]
"""(region, cluster, the finer rest) of a selector: worked out by ``plan`` when first needed."""
FundKey = tuple[str, str]
"""(budget, envelope)"""
Limit = tuple[str, str, str]
"""(budget, "envelope" or "cap", its name)"""
Crossing = Literal["gpus", "hours"]
"""Which limit was crossed."""


class Meter:
    """GPUs held now, and GPU-microseconds used so far."""

    __slots__ = ("offset", "rate")

    def __init__(self, offset: GpuMicros = 0, rate: int = 0) -> None:
        self.offset = offset
        self.rate = rate

    def open(self, gpus: int, *, at: Instant) -> None:
        self.rate += gpus
        self.offset -= gpus * at

    def close(self, gpus: int, *, at: Instant) -> None:
        self.rate -= gpus
        self.offset += gpus * at

    def used(self, at: Instant) -> GpuMicros:
        return self.offset + self.rate * at

    def split(self, at: Instant, into: Meter) -> None:
        """Stop here and go on in another meter at the same rate."""
        into.rate += self.rate
        into.offset -= self.rate * at
        self.offset, self.rate = self.used(at), 0


class Commitments:
    """What claims with a declared end may still use.

    Ends that nobody claims any more are forgotten at once, also where nobody ever asks (an envelope without a limit of
    hours): what is kept grows with what is open, and not with what ever was.
    """

    __slots__ = ("_ends", "_heap", "_past", "_until", "gpus")

    def __init__(self) -> None:
        self._ends: dict[Instant, int] = {}
        self._heap: list[Instant] = []
        self._past: Instant = -1
        self.gpus = 0
        self._until = 0

    def open(self, gpus: int, until: Instant) -> None:
        if until <= self._past:
            return
        if until not in self._ends:
            heappush(self._heap, until)
        self._ends[until] = self._ends.get(until, 0) + gpus
        self.gpus += gpus
        self._until += gpus * until

    def close(self, gpus: int, until: Instant) -> None:
        if until <= self._past:
            return
        self._ends[until] -= gpus
        if not self._ends[until]:
            self._forget(until)
        self.gpus -= gpus
        self._until -= gpus * until

    def _forget(self, until: Instant) -> None:
        del self._ends[until]
        if len(self._heap) > 2 * len(self._ends) + 64:
            self._heap = sorted(self._ends)

    def ahead(self, now: Instant) -> GpuMicros:
        while self._heap and self._heap[0] <= now:
            self._past = heappop(self._heap)
            gpus = self._ends.pop(self._past, 0)
            self.gpus -= gpus
            self._until -= gpus * self._past
        return self._until - self.gpus * now


class Bounds(NamedTuple):
    """What lowering a limit lowers. An edit that puts an envelope, or a cap, below its use leaves it a grace."""

    gpus: int | None
    hours: GpuMicros | None
    end: Instant = FOREVER

    def below(self, other: Bounds) -> bool:
        pairs = zip(self, other, strict=True)
        return any(new is not None and (old is None or new < old) for new, old in pairs)


class Fund:
    """One envelope: its terms (compiled), and its meters. Terms change with the Budget; meters only with leases."""

    def __init__(self, key: FundKey) -> None:
        self.key = key
        self.total = Meter()
        self.lent = Meter()
        self.spare = Meter()
        self.borrowed = 0
        self.ahead = Commitments()
        self.lent_ahead = Commitments()
        self.warned: set[str] = set()
        self.since: Instant = 0
        """When the account in force was opened: what is charged to it did not happen before."""
        self.leases: set[str] = set()
        """Keys of the open leases that it pays for."""
        self.lowered: Instant | None = None
        """When an edit put its limits below what it pays for."""
        self.caps: tuple[Cap, ...] = ()
        self.set_terms(None, owner="")

    @property
    def label(self) -> str:
        return "/".join(self.key)

    @property
    def window(self) -> tuple[Instant, Instant]:
        return self.start, self.end

    def set_terms(self, envelope: Envelope | None, *, owner: str) -> None:
        """Take the terms of a spec; without one (the Budget is gone) every limit is zero."""
        self.terms = envelope
        self.owner = owner or getattr(self, "owner", "")
        lending = envelope.lending if envelope else None
        self.flavor = envelope.flavor if envelope else getattr(self, "flavor", "")
        self.place: Place | None = None
        self.selector: Selector = tuple(sorted(envelope.selector.items())) if envelope else ()
        self.concurrency = envelope.concurrency if envelope else 0
        self.hours = _hours(envelope.max_gpu_hours) if envelope else 0
        self.start, self.end = window_of(envelope) if envelope else (0, FOREVER)
        self.shares = bool(envelope and envelope.sharing == "Family")
        self.early = bool(envelope and envelope.pre_activation.allow_admission)
        self.reservable = bool(envelope and envelope.pre_activation.allow_reservations)
        self.lends_to: tuple[str, ...] = ()
        self.lending_max: int | None = None
        self.lending_hours: GpuMicros | None = None
        if lending is not None and lending.allow:
            self.lends_to = lending.to
            self.lending_max = lending.max_concurrency
            self.lending_hours = _hours(lending.max_gpu_hours)

    def lends(self, owner: str) -> bool:
        return any(owner_matches(pattern, owner) for pattern in self.lends_to)

    def open_at(self, now: Instant) -> bool:
        return (self.start <= now or self.early) and now < self.end

    def exhausts(self) -> Instant:
        """The instant at which the hours run out at the present rate; FOREVER if they do not."""
        return reaches(self.hours, self.total)

    @property
    def limit(self) -> Limit:
        return self.key[0], "envelope", self.key[1]

    @property
    def funds(self) -> list[Fund]:
        return [self]

    @property
    def limits(self) -> tuple[Fund | Cap, ...]:
        """What bounds it: itself, and its caps."""
        return self, *self.caps

    @property
    def used(self) -> int:
        return self.total.rate

    @property
    def bounds(self) -> Bounds:
        return Bounds(self.concurrency, self.hours, self.end)

    def allowed(self, now: Instant) -> int:
        """GPUs that it may pay for: none once its hours are spent, or its window is over."""
        spent = self.hours is not None and self.total.used(now) >= self.hours
        return 0 if spent or now >= self.end else self.concurrency

    def short(self, now: Instant) -> int:
        """GPUs that it pays for and may not."""
        return max(0, self.used - self.allowed(now)) if self.used else 0


class Cap:
    """An aggregate cap: a bound on the sum over some envelopes of one Budget."""

    def __init__(self, budget: str, name: str, funds: list[Fund], concurrency: int | None, hours: int | None) -> None:
        self.key: FundKey = (budget, name)
        self.label = f"{budget}/{name}"
        self.funds = funds
        self.concurrency = concurrency
        self.hours = _hours(hours)
        self.warned: set[str] = set()
        self.lowered: Instant | None = None

    @property
    def limit(self) -> Limit:
        return self.key[0], "cap", self.key[1]

    @property
    def bounds(self) -> Bounds:
        return Bounds(self.concurrency, self.hours)

    def allowed(self, now: Instant) -> int:
        """GPUs that its envelopes may pay for together."""
        if self.hours is not None and sum(fund.total.used(now) for fund in self.funds) >= self.hours:
            return 0
        return self.used if self.concurrency is None else self.concurrency

    def short(self, now: Instant) -> int:
        used = self.used
        return max(0, used - self.allowed(now)) if used else 0

    def exhausts(self) -> Instant:
        """The instant at which the hours of all its envelopes together run out at the present rate."""
        return reaches(self.hours, *(fund.total for fund in self.funds))

    @property
    def used(self) -> int:
        return sum(fund.total.rate for fund in self.funds)

    def spent(self, now: Instant) -> GpuMicros:
        """Used and committed together."""
        return sum(fund.total.used(now) + fund.ahead.ahead(now) for fund in self.funds)


class Books:
    """All envelopes and caps, found by key and by (owner, flavor)."""

    def __init__(self) -> None:
        self.budgets: dict[str, Budget] = {}
        self.funds: dict[FundKey, Fund] = {}
        self.caps: dict[str, list[Cap]] = {}
        self.cap_warned: dict[FundKey, set[str]] = {}
        self.cap_lowered: dict[FundKey, Instant] = {}
        self._of_owner: dict[tuple[str, str], dict[FundKey, Fund]] = {}
        self.accounts: dict[tuple[FundKey, tuple[Instant, Instant]], tuple[int, int, int, set[str]]] = {}
        """What was spent in windows that are no longer in force: total, lent, spare, and the notices that went out."""
        self.crossed: dict[tuple[Limit, Crossing], Instant] = {}
        """Since when an envelope or a cap has been above its limit; it counts for as long as it is."""

    # -- facts --

    def put(self, budget: Budget, *, at: Instant) -> list[Fund]:
        """Bring in a Budget or a new version of it; returns the funds whose terms may have changed."""
        name = budget.metadata.name
        before = self._standing(name, at=at)
        old = (
            {envelope.name: envelope for envelope in self.budgets[name].spec.envelopes} if name in self.budgets else {}
        )
        touched = {fund.key: fund for fund in self._withdraw(name)}
        self.budgets[name] = budget
        for envelope in budget.spec.envelopes:
            fund = self.funds.get((name, envelope.name)) or Fund((name, envelope.name))
            if fund.key in self.funds and fund.window != window_of(envelope):
                self._switch_account(fund, window_of(envelope), at=at)
            elif fund.key not in self.funds:
                self._resume_account(fund, window_of(envelope), at=at)
            if envelope.name not in old or old[envelope.name].max_gpu_hours != envelope.max_gpu_hours:
                fund.warned = set()  # 80 % of another limit is other news
            self.funds[fund.key] = fund
            fund.set_terms(envelope, owner=budget.spec.owner)
            self._of_owner.setdefault((fund.owner, fund.flavor), {})[fund.key] = fund
            touched[fund.key] = fund
        self._set_caps(budget)
        self._note_lowered((*touched.values(), *self.caps[name]), before, at=at)
        return [touched[key] for key in sorted(touched)]

    def remove(self, name: str, *, at: Instant) -> list[Fund]:
        """Deleting a Budget lowers its limits to zero; its leases, and what they cost, stay."""
        before = self._standing(name, at=at)
        touched = self._withdraw(name)
        self.budgets.pop(name, None)
        self._note_lowered(touched, before, at=at)
        return touched

    def open(self, lease: Lease) -> Fund:
        fund = self.funds[lease.budget, lease.envelope]
        gpus = len(lease.gpus)
        for meter in _meters(fund, lease):
            meter.open(gpus, at=lease.start)
        self.commit(lease)
        return fund

    def commit(self, lease: Lease) -> None:
        """Count a lease wherever time does not matter: declared ends, and GPUs on other runs' spares."""
        fund = self.funds[lease.budget, lease.envelope]
        gpus = len(lease.gpus)
        fund.leases.add(lease.key)
        fund.borrowed += gpus if lease.role == "Borrowed" else 0
        if lease.until is not None:
            for sums in _sums(fund, lease):
                sums.open(gpus, lease.until)

    def close(self, lease: Lease, *, end: Instant) -> Fund:
        fund = self.funds[lease.budget, lease.envelope]
        gpus = len(lease.gpus)
        for meter in _meters(fund, lease):
            meter.close(gpus, at=end)
        fund.leases.discard(lease.key)
        fund.borrowed -= gpus if lease.role == "Borrowed" else 0
        if lease.until is not None:
            for sums in _sums(fund, lease):
                sums.close(gpus, lease.until)
        return fund

    def relieved(self, fund: Fund, *, at: Instant) -> None:
        """A lease ended for good: what is not short any more was never lowered."""
        for one in fund.limits:
            if one.lowered is not None and not one.short(at):
                one.lowered = None
                self._keep_lowered(one)

    def warned(self, fact: Warned, *, at: Instant) -> Fund | None:
        """A notice went out. That hours are spent was so when they were, however late it is said."""
        one: Fund | Cap | None
        if fact.cap:
            self.cap_warned.setdefault((fact.budget, fact.cap), set()).add(fact.mark)
            one = next((cap for cap in self.caps.get(fact.budget, ()) if cap.key[1] == fact.cap), None)
        else:
            one = self.funds[fact.budget, fact.envelope]
            one.warned.add(fact.mark)
        if one is not None and fact.mark == "exhausted":
            since = max(fund.since for fund in one.funds)
            self.crossed.setdefault((one.limit, "hours"), min(at, max(one.exhausts(), since)))
        return one if isinstance(one, Fund) else None

    def reopen(self, lease: Lease, *, at: Instant) -> None:
        """Take back that a lease was closed at this instant: a question was asked in between, and nothing happened."""
        fund = self.funds[lease.budget, lease.envelope]
        for meter in _meters(fund, lease):
            meter.open(len(lease.gpus), at=at)
        self.commit(lease)

    # -- questions --

    def of_owner(self, owner: str, flavor: str) -> Iterable[Fund]:
        return self._of_owner.get((owner, flavor), {}).values()

    # -- parts --

    def _standing(self, name: str, *, at: Instant) -> _Standing:
        """The bounds of a Budget's envelopes and caps, and which of them are short: asked before an edit."""
        budget = self.budgets.get(name)
        funds = [self.funds[name, envelope.name] for envelope in budget.spec.envelopes] if budget else []
        return {(type(one), one.key): (one.short(at) > 0, one.bounds) for one in (*funds, *self.caps.get(name, ()))}

    def _note_lowered(self, limits: Iterable[Fund | Cap], before: _Standing, *, at: Instant) -> None:
        """What is short now and was not, or has less than it had, was lowered by this edit."""
        for one in limits:
            was_short, bounds = before.get((type(one), one.key), (False, None))
            if isinstance(one, Cap) and bounds is not None and bounds.hours != one.hours:
                one.warned.clear()  # as with envelopes: another limit is other news
            self._note_crossing(one, bounds, at=at)
            if not one.short(at):
                one.lowered = None
            elif not was_short or bounds is None or one.bounds.below(bounds):
                one.lowered = at
                one.warned -= {"lowered", "custodian"}
            self._keep_lowered(one)

    def _note_crossing(self, one: Fund | Cap, before: Bounds | None, *, at: Instant) -> None:
        """An edit puts a limit below its use, or leaves it there, or takes it above."""
        gpus = one.concurrency
        if gpus is None or one.used <= gpus:
            self.crossed.pop((one.limit, "gpus"), None)
        elif before is not None and (before.gpus is None or one.used <= before.gpus):
            self.crossed[one.limit, "gpus"] = at
        else:
            self.crossed.setdefault((one.limit, "gpus"), at)
        if one.hours is None or sum(fund.total.used(at) for fund in one.funds) <= one.hours:
            self.crossed.pop((one.limit, "hours"), None)
        elif before is None or before.hours is None or (one.limit, "hours") not in self.crossed:
            self.crossed[one.limit, "hours"] = at

    def over(self, one: Fund | Cap, which: Crossing, *, now: Instant) -> Instant:
        """Since when it has been over a limit that it is over now."""
        found = self.crossed.get((one.limit, which))
        if found is not None:
            return found
        return min(now, one.exhausts()) if which == "hours" else now  # nobody has driven since

    def _keep_lowered(self, one: Fund | Cap) -> None:
        if isinstance(one, Cap) and one.lowered is not None:
            self.cap_lowered[one.key] = one.lowered
        elif isinstance(one, Cap):
            self.cap_lowered.pop(one.key, None)

    def restore_lowered(self, key: FundKey, since: Instant) -> None:
        """An image says that a cap was lowered."""
        self.cap_lowered[key] = since
        for cap in self.caps.get(key[0], ()):
            cap.lowered = since if cap.key == key else cap.lowered

    def _withdraw(self, name: str) -> list[Fund]:
        """Take a Budget's present terms out of the indexes."""
        budget = self.budgets.get(name)
        touched = []
        for envelope in budget.spec.envelopes if budget else ():
            fund = self.funds[name, envelope.name]
            del self._of_owner[fund.owner, fund.flavor][fund.key]
            if not self._of_owner[fund.owner, fund.flavor]:
                del self._of_owner[fund.owner, fund.flavor]
            window = fund.window
            fund.set_terms(None, owner=fund.owner)
            fund.start, fund.end = window  # the account goes on: what it paid for is still running
            fund.caps = ()
            touched.append(fund)
        self.caps.pop(name, None)
        return touched

    def _set_caps(self, budget: Budget) -> None:
        name = budget.metadata.name
        caps = [
            Cap(
                name, cap.name, [self.funds[name, one] for one in cap.envelopes], cap.max_concurrency, cap.max_gpu_hours
            )
            for cap in budget.spec.aggregate_caps
        ]
        for cap in caps:
            cap.warned = self.cap_warned.setdefault(cap.key, cap.warned)
            cap.lowered = self.cap_lowered.get(cap.key)
        self.caps[name] = caps
        for fund in (self.funds[name, envelope.name] for envelope in budget.spec.envelopes):
            fund.caps = tuple(cap for cap in caps if fund in cap.funds)

    def _switch_account(self, fund: Fund, window: tuple[Instant, Instant], *, at: Instant) -> None:
        meters = [Meter(), Meter(), Meter()]
        for old, new in zip((fund.total, fund.lent, fund.spare), meters, strict=True):
            old.split(at, new)
        self.accounts[fund.key, fund.window] = (
            fund.total.offset, fund.lent.offset, fund.spare.offset, fund.warned,
        )  # fmt: skip
        fund.total, fund.lent, fund.spare = meters
        fund.warned = set()
        fund.since = at
        self._resume_account(fund, window, at=at)

    def _resume_account(self, fund: Fund, window: tuple[Instant, Instant], *, at: Instant) -> None:
        """A window that was in force before goes on with what was spent in it: spent is spent."""
        total, lent, spare, warned = self.accounts.pop((fund.key, window), (0, 0, 0, set()))
        fund.total.offset += total
        fund.lent.offset += lent
        fund.spare.offset += spare
        fund.warned |= warned
        fund.start, fund.end = window


_Standing = dict[tuple[type[Fund | Cap], FundKey], tuple[bool, Bounds]]


def window_of(envelope: Envelope) -> tuple[Instant, Instant]:
    start = parse_time(envelope.start) if envelope.start else 0
    end = parse_time(envelope.end) if envelope.end else FOREVER
    return start, end


def reaches(limit: GpuMicros | None, *meters: Meter) -> Instant:
    """The first instant at which the meters together have used the limit, at their present rates."""
    rate = sum(meter.rate for meter in meters)
    if limit is None or rate <= 0:
        return FOREVER
    return -((sum(meter.offset for meter in meters) - limit) // rate)


def _hours(hours: int | None) -> GpuMicros | None:
    return None if hours is None else hours * HOUR


def _meters(fund: Fund, lease: Lease) -> list[Meter]:
    meters = [fund.total]
    if lease.funding == "borrowed":
        meters.append(fund.lent)
    if lease.role == "Spare":
        meters.append(fund.spare)
    return meters


def _sums(fund: Fund, lease: Lease) -> list[Commitments]:
    return [fund.ahead, fund.lent_ahead] if lease.funding == "borrowed" else [fund.ahead]
