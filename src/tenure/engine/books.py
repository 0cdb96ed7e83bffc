"""What every envelope has given, is giving and may still give (SPEC 3), read off its meters (``meters``).

An account is one (budget, envelope, window): a new window starts a new account, and what was charged to the old one
stays there.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Literal, NamedTuple, get_args

from tenure.api.budget import Budget, Envelope
from tenure.api.owners import matches as owner_matches
from tenure.engine.demand import Selector
from tenure.engine.meters import Commitments, Meter, reaches, runs_out
from tenure.facts import Lease, Warned
from tenure.units import FOREVER, HOUR, GpuMicros, Instant, parse_time

Place = tuple[str | None, str | None, Selector]
"""(region, cluster, the finer rest) of a selector: worked out by ``plan`` when first needed."""
FundKey = tuple[str, str]
"""(budget, envelope)"""
Limit = tuple[str, str, str]
"""(budget, "envelope", "lending" or "cap", its name)"""
LENDING = "/lending"
"""What the name of an envelope ends with where its loans are meant."""
Crossing = Literal["gpus", "hours", "time"]
"""Which limit was crossed; ``time``: its hours or its window, and by nothing but the passing of time."""
CROSSINGS: tuple[Crossing, ...] = get_args(Crossing)


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
        self.loans = Loans(self)
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

    def foreseen(self, now: Instant) -> list[Instant | None]:
        """When what it pays for ends, and what it lends, if what is to end before does: hours run out, its own or those
        of a cap, or its window. What is spent already may go on for a while, but not beyond the next of these."""
        caps = (runs_out(cap.hours, [(one.total, one.ahead) for one in cap.funds], now=now) for cap in self.caps)
        window = FOREVER if self.terms is None else self.end
        ends = (
            (runs_out(self.hours, [(self.total, self.ahead)], now=now), window, *caps),
            (runs_out(self.lending_hours, [(self.lent, self.lent_ahead)], now=now),),
        )
        return [min((end for end in some if now < end < FOREVER), default=None) for some in ends]

    @property
    def limit(self) -> Limit:
        return self.key[0], "envelope", self.key[1]

    @property
    def funds(self) -> list[Fund]:
        return [self]

    @property
    def own_limits(self) -> tuple[Fund | Loans, ...]:
        """Itself, and its loans if their hours are bounded."""
        return (self,) if self.lending_hours is None else (self, self.loans)

    @property
    def limits(self) -> tuple[AnyLimit, ...]:
        """What bounds it: the same, and its caps."""
        return *self.own_limits, *self.caps

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


class Loans:
    """The hours that an envelope lends: a bound on what others than its family use, of its account in force.

    To lower it ends nothing, as with everything that is said of lending; time that makes it run out does.
    """

    concurrency = None

    def __init__(self, fund: Fund) -> None:
        self.fund = fund
        self.key = fund.key
        self.label = f"{fund.label}{LENDING}"
        self.funds = [fund]
        self.lowered: Instant | None = None

    @property
    def limit(self) -> Limit:
        return self.key[0], "lending", self.key[1]

    @property
    def warned(self) -> set[str]:
        return self.fund.warned

    @property
    def hours(self) -> GpuMicros | None:
        return self.fund.lending_hours

    @property
    def bounds(self) -> Bounds:
        return Bounds(None, self.hours)

    @property
    def used(self) -> int:
        return self.fund.lent.rate

    def allowed(self, now: Instant) -> int:
        spent = self.hours is not None and self.fund.lent.used(now) >= self.hours
        return 0 if spent else self.used

    def short(self, now: Instant) -> int:
        return self.used - self.allowed(now) if self.used else 0

    def exhausts(self) -> Instant:
        return reaches(self.hours, self.fund.lent)


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


LENT = "lending-"
"""How the marks of notices about lent hours begin."""

AnyLimit = Fund | Cap | Loans
"""What may be short."""


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
        self.announced: set[Limit] = set()
        """Envelopes and caps of which something was said in the entry that is being made, or folded."""
        self.leaving: set[str] = set()
        """Leases that were asked to end."""

    # -- facts --

    def put(self, budget: Budget, *, at: Instant) -> list[Fund]:
        """Bring in a Budget or a new version of it; returns the funds whose terms may have changed."""
        name = budget.metadata.name
        before, caps = self._standing(name, budget, at=at), self.caps.get(name, [])
        old = (
            {envelope.name: envelope for envelope in self.budgets[name].spec.envelopes} if name in self.budgets else {}
        )
        touched = {fund.key: fund for fund in self._withdraw(name)}
        anew: set[FundKey] = set()
        self.budgets[name] = budget
        for envelope in budget.spec.envelopes:
            fund = self.funds.get((name, envelope.name)) or Fund((name, envelope.name))
            if fund.key in self.funds and fund.window != window_of(envelope):
                self._switch_account(fund, window_of(envelope), at=at)
                anew.add(fund.key)
            elif fund.key not in self.funds:
                self._resume_account(fund, window_of(envelope), at=at)
            if envelope.name not in old or old[envelope.name].max_gpu_hours != envelope.max_gpu_hours:
                fund.warned = set()  # 80 % of another limit is other news
            self.funds[fund.key] = fund
            fund.set_terms(envelope, owner=budget.spec.owner)
            self._of_owner.setdefault((fund.owner, fund.flavor), {})[fund.key] = fund
            touched[fund.key] = fund
        self._set_caps(budget)
        self._rename_caps(caps, self.caps[name], before)
        for cap in self.caps[name]:
            if any(fund.key in anew for fund in cap.funds):
                cap.warned.clear()  # as with envelopes: what is spent in another window is other news
        self._note_lowered((*touched.values(), *self.caps[name]), before, caps, at=at)
        return [touched[key] for key in sorted(touched)]

    def remove(self, name: str, *, at: Instant) -> list[Fund]:
        """Deleting a Budget lowers its limits to zero; its leases, and what they cost, stay."""
        before, caps = self._standing(name, at=at), self.caps.get(name, [])
        touched = self._withdraw(name)
        self._rename_caps(caps, [], before)
        self.budgets.pop(name, None)
        self._note_lowered(touched, before, caps, at=at)
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
        if lease.until is not None and lease.key not in self.leaving:
            for sums in _sums(fund, lease):
                sums.open(gpus, lease.until)

    def leave(self, lease: Lease) -> Fund:
        """A lease was asked to end: what it had declared is no longer held for it."""
        fund = self.funds[lease.budget, lease.envelope]
        if lease.key not in self.leaving:
            self.leaving.add(lease.key)
            for sums in _sums(fund, lease) if lease.until is not None else ():
                sums.close(len(lease.gpus), lease.until or 0)
        return fund

    def close(self, lease: Lease, *, end: Instant) -> Fund:
        fund = self.funds[lease.budget, lease.envelope]
        gpus = len(lease.gpus)
        for meter in _meters(fund, lease):
            meter.close(gpus, at=end)
        fund.leases.discard(lease.key)
        fund.borrowed -= gpus if lease.role == "Borrowed" else 0
        if lease.until is not None and lease.key not in self.leaving:
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
        if one is not None and fact.mark != "custodian":
            self.announced.add(one.loans.limit if isinstance(one, Fund) and fact.mark == "lending" else one.limit)
        if one is not None and fact.mark == "exhausted":
            ran_out = self.ran_out(one, at=at)
            if ran_out is not None:
                self.crossed[one.limit, "time"] = ran_out
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

    def bound_with(self, keys: Iterable[FundKey]) -> list[Fund]:
        """These envelopes, and those that share a cap with them."""
        funds = (self.funds[key] for key in keys)
        found = {one.key: one for fund in funds for one in (fund, *(some for cap in fund.caps for some in cap.funds))}
        return [found[key] for key in sorted(found)]

    # -- parts --

    def _standing(self, name: str, new: Budget | None = None, *, at: Instant) -> _Standing:
        """The bounds of a Budget's envelopes and caps, which of them are short, and which of those by time alone: asked
        before an edit. Those that were deleted and come again had limits of zero meanwhile."""
        both = (one for one in (self.budgets.get(name), new) if one is not None)
        keys = dict.fromkeys((name, envelope.name) for budget in both for envelope in budget.spec.envelopes)
        funds = [self.funds[key] for key in keys if key in self.funds]
        limits = (*funds, *(fund.loans for fund in funds), *self.caps.get(name, ()))
        return {(type(one), one.key): (one.short(at) > 0, one.bounds, self.ran_out(one, at=at)) for one in limits}

    def ran_out(self, one: AnyLimit, *, at: Instant) -> Instant | None:
        """Since when it is spent by the passing of time, if it is. What is known is kept: at another rate the hours
        would seem to have been spent at another instant."""
        if isinstance(one, Loans):
            return at if one.short(at) and one.lowered is None else None
        known = self.crossed.get((one.limit, "time"))
        if known is not None:
            return known
        ends = [one.bounds.end] if (one.limit, "hours") in self.crossed else [one.bounds.end, one.exhausts()]
        return min((end for end in ends if end <= at and (one.lowered is None or end > one.lowered)), default=None)

    def _note_lowered(
        self, limits: Iterable[Fund | Cap], before: _Standing, caps: list[Cap], *, at: Instant
    ) -> None:  # fmt: skip
        """What is short now and was not, or has less of what it lacks than it had, was lowered by this edit. What had
        run out, itself or one of the ``caps`` that it had, is due already, and no edit puts that off that leaves it
        so."""
        for one in limits:
            was_short, bounds, ran_out = before.get((type(one), one.key), (False, None, None))
            if isinstance(one, Fund):
                self._note_less_lent(one.loans, before, at=at)
                ends = [ran_out, *(before[Cap, cap.key][2] for cap in caps if one in cap.funds)]
                ran_out = min((end for end in ends if end is not None), default=None)
            if isinstance(one, Cap) and bounds is not None and bounds.hours != one.hours:
                one.warned.clear()  # as with envelopes: another limit is other news
            self._note_crossing(one, bounds, at=at)
            self.crossed.pop((one.limit, "time"), None)
            still_out = ran_out is not None and one.short(at) > 0 and one.allowed(at) == 0
            if ran_out is not None and still_out:
                self.crossed[one.limit, "time"] = ran_out
            if not one.short(at):
                one.lowered = None
            elif not was_short or bounds is None or _exceeded(one, at=at, ran_out=still_out).below(bounds):
                one.lowered = at
                one.warned -= {"lowered", "custodian"}
            self._keep_lowered(one)

    def _note_less_lent(self, one: Loans, before: _Standing, *, at: Instant) -> None:
        was_short, bounds, ran_out = before.get((Loans, one.key), (False, None, None))
        if bounds is not None and bounds.hours != one.hours:
            said = {mark for mark in one.fund.warned if mark == "lending" or mark.startswith(LENT)}
            one.fund.warned -= said  # another limit is other news
        if not one.short(at) or ran_out is not None:
            one.lowered = None
        elif not was_short or bounds is None or one.bounds.below(bounds):
            one.lowered = at

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

    def _keep_lowered(self, one: AnyLimit) -> None:
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

    def _rename_caps(self, old: list[Cap], new: list[Cap], before: _Standing) -> None:
        """A cap that is gone, and another over the same envelopes that was not there: one cap, by another name. It goes
        on as it stood, so that nobody puts off what is due by calling it something else."""
        gone = {
            frozenset(fund.key for fund in cap.funds): cap for cap in old if cap.key not in {one.key for one in new}
        }
        for cap in new:
            was = gone.get(frozenset(fund.key for fund in cap.funds))
            if was is not None and (Cap, cap.key) not in before:
                before[Cap, cap.key], cap.lowered = before[Cap, was.key], was.lowered
                for which in CROSSINGS:
                    if (was.limit, which) in self.crossed:
                        self.crossed[cap.limit, which] = self.crossed[was.limit, which]
        for cap in gone.values():
            self.cap_lowered.pop(cap.key, None)
            for which in CROSSINGS:
                self.crossed.pop((cap.limit, which), None)

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


_Standing = dict[tuple[type[AnyLimit], FundKey], tuple[bool, Bounds, Instant | None]]


def _exceeded(one: Fund | Cap, *, at: Instant, ran_out: bool) -> Bounds:
    """The bounds of what is short, less those that it keeps, and those of what had run out anyway."""
    gpus, hours, end = one.bounds
    is_spent = hours is not None and sum(fund.total.used(at) for fund in one.funds) >= hours
    return Bounds(
        gpus=gpus if gpus is not None and one.used > gpus else None,
        hours=hours if is_spent and not ran_out else None,
        end=end if end <= at and not ran_out else FOREVER,
    )


def window_of(envelope: Envelope) -> tuple[Instant, Instant]:
    start = parse_time(envelope.start) if envelope.start else 0
    end = parse_time(envelope.end) if envelope.end else FOREVER
    return start, end


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
