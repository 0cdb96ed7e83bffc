"""When a run could start, by trying every instant: the known future (SPEC 7) written out plainly.

    replay = Replay(fleet)
    replay.earliest(wanted)     # the first instant at which a scan over everything would let it start, or None

Nothing is skipped. At each instant at which anything ends, begins or opens, the world is laid out anew for the whole
time that the run would last: what no lease and no reservation holds of each node, and what each envelope still has.
Then the scan of ``oracle`` is asked. The run that is asked about must be younger than all that wait.

- A lease ends when its run said so, or was let past others until, or when the money that pays for it will have run
  out, or what may be lent of it, if what is to end does. One that was asked to leave is expected to be gone within half
  a minute, and again half a minute later if it is not. One that is past its end is counted on to go for half a minute
  more, unless it was backfilled. One that overstays goes on for ever; if it was backfilled, it is the first to go when
  somebody needs its place, so a second replay may be asked for, without it.
- Hours: a lease that was asked to leave is charged up to now, any other with a declared end ahead up to that end, and
  else up to the instant in question, or to the last start that is promised on the same money; what is reserved is
  charged in full.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator
from functools import cache

from tenure.api.run import Run
from tenure.facts import Ending, Lease, Reservation, Segment, Slice
from tenure.testing import Fleet
from tenure.units import HOUR, SECOND, Instant, Micros, parse_duration, parse_time
from tests.engine import oracle

LEAVES_WITHIN: Micros = 30 * SECOND
Fund = tuple[str, str]


class Replay:
    """The future of a fleet, as it is known now. What was asked once is not worked out again."""

    def __init__(self, fleet: Fleet, *, evicted: bool = False) -> None:
        """``evicted``: as if backfilled runs that overstay had gone."""
        self.fleet = fleet
        self.evicted = evicted
        self.now = fleet.now
        self.policy = fleet.state.policy
        self.lookahead = max(1, parse_duration(self.policy.lookahead))
        self.leases = fleet.leases()
        self.closed = list(fleet.closed().values())
        self.asked = {f"{fact.namespace}/{name}": entry.at for entry in fleet.entries for fact in entry.facts
                      if isinstance(fact, Ending) for name in fact.leases}  # fmt: skip
        self.runs_out, self.lent_out = dict(self._runs_out()), dict(self._lent_out())
        self.ends = {lease.key: self._end(lease) for lease in self.leases}
        self.claims = [(one, self._plan(one)) for one in fleet.state.reservations.values()
                       if one.state in ("Pending", "Active") and one.plan.start is not None]  # fmt: skip
        self.instants = self._instants()
        self.free = cache(self._free)
        self.paid = cache(self._paid)
        self.hours = cache(self._hours)

    # -- what is known --

    def _end(self, lease: Lease) -> Instant | None:
        if lease.key in self.asked:
            late = (self.now - self.asked[lease.key]) // LEAVES_WITHIN
            return self.asked[lease.key] + LEAVES_WITHIN * (late + 1)
        declared = self._declared(lease)
        if declared is not None and declared <= self.now:
            backfilled = self.fleet.state.runs[lease.run_key].life.backfilled
            if self.evicted and backfilled:
                return self.now
            declared = None if backfilled or declared + LEAVES_WITHIN <= self.now else declared + LEAVES_WITHIN
        fund = (lease.budget, lease.envelope)
        ends = (declared, self.runs_out.get(fund), self.lent_out.get(fund) if lease.funding == "borrowed" else None)
        return min((end for end in ends if end is not None), default=None)

    def _declared(self, lease: Lease) -> Instant | None:
        """A duration is one of work: it counts from when the pods were bound, but for who was let past others. Who
        declares none, and was let past distant promises, is to be gone when the first of them begins."""
        row = self.fleet.state.runs[lease.run_key]
        lasts, life = row.run.spec.runtime.expected_duration, row.life
        if lease.until is None:
            return life.bound
        if not lasts or life.phase != "Running" or life.started is None or life.backfilled:
            return lease.until
        return max(lease.until, life.started + parse_duration(lasts))

    def _runs_out(self) -> Iterator[tuple[Fund, Instant]]:
        """Envelopes that will have no money left, and when: if what is to end does, or with their window."""
        if self.policy.on_budget_shortage != "Resolve":
            return
        for budget in self.fleet.state.budgets.values():
            caps = [(one.max_gpu_hours, one.envelopes) for one in budget.spec.aggregate_caps]
            for one in budget.spec.envelopes:
                ends = [self._spends(budget.metadata.name, one.max_gpu_hours, (one.name,))]
                ends += [self._spends(budget.metadata.name, hours, names) for hours, names in caps if one.name in names]
                ends.append(parse_time(one.end) if one.end else None)
                ahead = [end for end in ends if end is not None]
                if ahead and min(ahead) > self.now:
                    yield (budget.metadata.name, one.name), min(ahead)

    def _lent_out(self) -> Iterator[tuple[Fund, Instant]]:
        """Envelopes that will have lent all that they may."""
        if self.policy.on_budget_shortage != "Resolve":
            return
        for budget in self.fleet.state.budgets.values():
            for one in budget.spec.envelopes:
                if one.lending is not None and one.lending.allow:
                    end = self._spends(budget.metadata.name, one.lending.max_gpu_hours, (one.name,), lent=True)
                    if end is not None and end > self.now:
                        yield (budget.metadata.name, one.name), end

    def _spends(self, budget: str, hours: int | None, names: Iterable[str], *, lent: bool = False) -> Instant | None:
        """When these envelopes will together have spent so many hours, if only that goes on that is not to end."""
        if hours is None:
            return None
        spent = sum(len(one.lease.gpus) * (one.end - one.lease.start) for one in self.closed
                    for name in names if pays((budget, name), one.lease, lent=lent))  # fmt: skip
        mine = [lease for lease in self.leases for name in names if pays((budget, name), lease, lent=lent)]
        spent += sum(len(lease.gpus) * (self.now - lease.start) for lease in mine)
        since, left = self.now, hours * HOUR - spent
        while rate := sum(len(lease.gpus) for lease in mine if not self._is_over(lease, since)):
            until = min((end for lease in mine if (end := self._commits(lease)) and end > since), default=None)
            if until is None or rate * (until - since) >= left:
                return since - (-left // rate)
            left -= rate * (until - since)
            since = until
        return None

    def _is_over(self, lease: Lease, at: Instant) -> bool:
        """Whether a lease was to end by then, and later than now."""
        until = self._commits(lease)
        return until is not None and self.now < until <= at

    def _commits(self, lease: Lease) -> Instant | None:
        """The end up to which a lease has its hours: none, if it was asked to leave."""
        return None if lease.key in self.asked else lease.until

    def _plan(self, one: Reservation) -> Slice:
        start, until = one.plan.start, one.plan.until
        assert start is not None
        waits = one.state == "Active" or one.reason in ("NoCustodian", "DrawWaits", "EndsLate")
        by = start if one.by is None else one.by
        if waits or by <= self.now:
            start, until = by, None
            lasts = self.fleet.state.runs[one.run_key].run.spec.runtime.expected_duration
            if lasts and waits:  # it will start when others have left: half a minute is no delay; then it is given as
                leaves = LEAVES_WITHIN  # long as it is late, in steps that double
                while by + leaves < self.now:
                    leaves *= 2
                until = by + parse_duration(lasts) + (leaves if self.now > by + LEAVES_WITHIN else 0)
            elif lasts:  # it will start now, at the soonest
                until = self.now + parse_duration(lasts)
        return Slice(start=start, until=until, shares=one.plan.shares, segments=one.plan.segments)

    def _instants(self) -> list[Instant]:
        """Every instant, from now on, at which anything ends, begins or opens."""
        found: set[Instant | None] = {self.now, *self.ends.values()}
        for _, plan in self.claims:
            found |= {plan.start, plan.until}
        for budget in self.fleet.state.budgets.values():
            found |= {parse_time(one.start) for one in budget.spec.envelopes if one.start}
        return sorted(at for at in found if at is not None and at >= self.now)

    # -- the world at an instant, for some time --

    def moments(self, at: Instant, length: Micros | None) -> list[Instant]:
        """The instant, and all later ones of that time at which something changes."""
        return [at, *(one for one in self.instants if one > at and (length is None or one < at + length))]

    def held(self, at: Instant) -> Iterator[Lease]:
        return (lease for lease in self.leases if (end := self.ends[lease.key]) is None or end > at)

    def on(self, at: Instant) -> Iterator[Slice]:
        for _, plan in self.claims:
            assert plan.start is not None
            if plan.start <= at and (plan.until is None or plan.until > at):
                yield plan

    def _free(self, node: str, gpus: int, at: Instant, length: Micros | None) -> int:
        """GPUs of a node that are nobody's for the whole time."""
        return max(0, min(self._free_at(node, gpus, moment) for moment in self.moments(at, length)))

    def _free_at(self, node: str, gpus: int, at: Instant) -> int:
        """What happens on a node up to an instant, one thing after the other.

        Who was promised a start on cuts takes what is free, and the rest from whoever holds it: those are gone then,
        and do not end a second time. No more can be cut than is held then.
        """
        here = [lease for lease in self.leases if lease.node == node and lease.role != "Borrowed"]
        sizes = {lease.key: sum(ordinal < gpus for ordinal in lease.gpus) for lease in here}
        free, cut, held = gpus - sum(sizes.values()), 0, sum(len(lease.gpus) for lease in here)
        claims = [
            (one, plan, sum(share.gpus for share in plan.shares if share.node == node)) for one, plan in self.claims
        ]
        moments = {end for lease in here if (end := self.ends[lease.key]) is not None}
        moments |= {moment for _, plan, _ in claims for moment in (plan.start, plan.until) if moment is not None}
        for moment in sorted(one for one in moments if one <= at):
            ended = sum(sizes[lease.key] for lease in here if self.ends[lease.key] == moment)
            gone = min(cut, ended)
            cut -= gone
            held -= ended - gone
            free += ended - gone + sum(need for _, plan, need in claims if plan.until == moment)
            begins = [(one, need) for one, plan, need in claims if plan.start == moment]
            free -= sum(need for one, need in begins if not cuts(one))
            wanted = sum(need for one, need in begins if cuts(one))
            taken = min(wanted, max(0, free))
            more = min(wanted - taken, max(0, held))
            free -= wanted - more
            held -= more
            cut += more
        return free

    def _paid(self, fund: Fund, at: Instant, length: Micros | None, *, lent: bool) -> int:
        """The most GPUs that an envelope pays for at one instant of the time."""
        return max(
            sum(len(one.gpus) for one in self.held(moment) if pays(fund, one, lent=lent))
            + sum(one.gpus for plan in self.on(moment) for one in plan.segments if pays(fund, one, lent=lent))
            for moment in self.moments(at, length)
        )

    def last_start(self, funds: Collection[Fund], at: Instant, *, lent: bool = False) -> Instant:
        """An instant, or the last start that is promised on some money, if that is later."""
        starts = (plan.start or 0 for _, plan in self.claims
                  if any(pays(fund, one, lent=lent) for fund in funds for one in plan.segments))  # fmt: skip
        return max([at, *starts])

    def _hours(self, fund: Fund, at: Instant, *, lent: bool) -> int:
        """GPU-microseconds that an envelope will have spent and promised by then."""
        spent = sum(len(one.lease.gpus) * (one.end - one.lease.start) for one in self.closed
                    if pays(fund, one.lease, lent=lent))  # fmt: skip
        for lease in self.leases:
            if pays(fund, lease, lent=lent):
                until = self._commits(lease)
                declared = until if until is not None and until > self.now else None
                leaves = lease.key in self.asked or self.ends[lease.key] == self.now
                end = declared if declared is not None else self.now if leaves else at
                spent += len(lease.gpus) * (end - lease.start)
        for reservation, plan in self.claims:
            lasts = self.fleet.state.runs[reservation.run_key].run.spec.runtime.expected_duration
            period = parse_duration(lasts) if lasts else self.lookahead
            spent += sum(one.gpus * period for one in plan.segments if pays(fund, one, lent=lent))
        return spent

    # -- the answer --

    def starts(self, wanted: Run, at: Instant) -> bool:
        """Whether a scan over everything would let the run start then."""
        world, circles = World(self, wanted, at), ["owner", "family"]
        if wanted.spec.funding.allow_borrow:
            circles.append("everybody")
        return any(world.search(width, circle) is not None for width in world.widths() for circle in circles)

    def earliest(self, wanted: Run, *, since: Instant | None = None) -> Instant | None:
        first = self.now if since is None else since
        return next((at for at in sorted({first, *self.instants}) if at >= first and self.starts(wanted, at)), None)


class World(oracle.World):
    """The scan's world, with what will be free and left at some instant."""

    def __init__(self, replay: Replay, wanted: Run, at: Instant) -> None:
        state = replay.fleet.state
        nodes = [row.node for row in state.topology.rows.values()]
        super().__init__(nodes, [], list(state.budgets.values()), [], wanted, at, replay.policy)
        self.replay, self.at, self.today = replay, at, replay.now
        for one in self.machines:
            one.free = list(range(replay.free(one.name, one.gpus, at, self.duration)))
        for account in self.accounts:
            account.held = replay.paid(account.key, at, self.duration, lent=False)
            account.lent = replay.paid(account.key, at, self.duration, lent=True)
            account.used = replay.hours(account.key, replay.last_start([account.key], at), lent=False)
            account.lent_used = replay.hours(account.key, replay.last_start([account.key], at, lent=True), lent=True)

    def used_together(self, members: list[oracle.Account]) -> int:
        by = self.replay.last_start([one.key for one in members], self.at)
        return sum(self.replay.hours(one.key, by, lent=False) for one in members)

    def bar(self, account: oracle.Account, funding: str) -> str:
        """An envelope whose window has not opened yet may refuse to be reserved."""
        bar = super().bar(account, funding)
        reserves = self.today < min(self.now, account.start)
        return bar if not reserves or account.terms.pre_activation.allow_reservations else bar or "WindowClosed"


def cuts(one: Reservation) -> bool:
    """Whether others will have to go for a reservation."""
    return one.state == "Active" or one.confidence == "conservative"


def pays(fund: Fund, one: Lease | Segment, *, lent: bool) -> bool:
    return (one.budget, one.envelope) == fund and (not lent or one.funding == "borrowed")
