"""Is a promise tenable: will it have its nodes and its money when it is due, beside all that counts before it? (SPEC 7)

A promise is looked at for what it takes, half a minute late at most, beside leases until their known ends, and beside
the promises before it. Who is due and has not started will be there for that much longer.
"""

from __future__ import annotations

from collections.abc import Iterator

import msgspec

from tenure.engine import shortage
from tenure.engine.books import Fund, FundKey
from tenure.engine.cover import Purse, walk
from tenure.engine.future import Ahead
from tenure.engine.rows import RunRow, bound_of, late_since, named
from tenure.engine.state import State
from tenure.engine.timeline.timeline import GRACE
from tenure.engine.topology import matches
from tenure.facts import Reservation, Slice
from tenure.units import FOREVER, Instant, parse_duration


class Tenable:
    """Looks at the promises of one flavor, at one instant."""

    def __init__(self, state: State, flavor: str, *, now: Instant) -> None:
        self.state, self.flavor, self.now = state, flavor, now

    def overspent(self, standing: list[tuple[RunRow, Reservation]]) -> set[FundKey]:
        """Envelopes whose hours, or those of a cap or of what they lend, do not suffice any more for what is promised
        of them: work that declares no end has spent them since."""
        books, ahead = self.state.books, Ahead(self.state.timeline, now=self.now, at=self.now, length=None)
        keys = {(part.budget, part.envelope) for _, one in standing for part in one.plan.segments}
        with self.state.timeline.as_promised():
            return {key for key in keys if key in books.funds and _is_overspent(books.funds[key], ahead)}

    def broken(
        self, standing: list[tuple[RunRow, Reservation]], doubtful: set[str]
    ) -> Iterator[tuple[RunRow, Reservation]]:  # fmt: skip
        """Those of the doubtful that do not fit any more beside leases, the promises before them that stand, and those
        that are due: who is late holds its slice for as much longer."""
        timeline = self.state.timeline
        last = max(index for index, (row, _) in enumerate(standing) if row.key in doubtful)
        due = [(row, one) for row, one in standing if is_due(one, self.now)]
        to_come = [(row, one) for row, one in standing[: last + 1] if not is_due(one, self.now)]
        later = [row.key for row, one in standing[last + 1 :] if not is_due(one, self.now)]
        broken: list[tuple[RunRow, Reservation]] = []
        with timeline.set_aside(later):
            claims = {row.key: timeline.remove_claim(row.key) for row, _ in (*due, *to_come)}
            for row, one in (*due, *to_come):
                if row.key in doubtful and not self.still_fits(row, one):
                    broken.append((row, one))
                elif (claim := claims[row.key]) is not None:
                    plan = self._as_it_counts(row, one, claim.plan)
                    timeline.add_claim(row.key, claim.flavor, plan, claim.period, cuts=claim.cuts)
        for row, one in (*due, *to_come):  # those that are broken as well, until they are planned anew
            if claims[row.key] is not None:
                self.state.claim(one)
        return iter(broken)

    def _as_it_counts(self, row: RunRow, one: Reservation, plan: Slice) -> Slice:
        """What a promise takes from those who are looked at after it: half a minute later than it is due, which breaks
        nothing, and, if it is late, for about as much longer as if it were made now."""
        if plan.start is None:
            return plan
        due = max(plan.start, self.now)
        late = row.demand.duration is not None and is_due(one, self.now)
        until = late_since(one, now=self.now) + (row.demand.duration or 0) if late else plan.until
        start = due + GRACE if until is None or due + GRACE < until else due
        return msgspec.structs.replace(plan, start=start, until=until)

    def still_fits(self, row: RunRow, one: Reservation) -> bool:
        """The same; who was backfilled and overstays goes first, but for a run that was itself cut."""
        timeline, overdue = self.state.timeline, self.state.overdue_before(row, now=self.now)
        with timeline.without(overdue), timeline.as_promised():
            return self.fits(row, one)

    def fits_now(self, row: RunRow, one: Reservation) -> bool:
        """True if what a start that is due was promised is there beside all who begin as well by now, or have not left
        yet."""
        timeline, overdue = self.state.timeline, self.state.overdue_before(row, now=self.now)
        with timeline.without(overdue), timeline.as_promised():
            return self._has_all(row, one, at=self.now + GRACE, until=self.now + GRACE + 1)

    def fits(self, row: RunRow, one: Reservation) -> bool:
        """True if what is promised to a run, and is not laid, is there when its bound comes, half a minute late at
        most: on each of its nodes, and from each of its payers."""
        by = bound_of(one)
        if by is None or one.confidence == "conservative":
            return self._fits_after_cuts(row, one)
        until = None if row.demand.duration is None else by + max(row.demand.duration, GRACE + 1)
        return self._has_all(row, one, at=by + GRACE, until=until)

    def _has_all(self, row: RunRow, one: Reservation, *, at: Instant, until: Instant | None) -> bool:
        state, timeline = self.state, self.state.timeline
        rows, named = state.topology.rows, self._named(one, at)
        for share in one.plan.shares:
            node = rows.get(share.node)
            if node is None or not node.open or node.site is None or not self._is_place(row, one, share.node):
                return False
            gone = [lease.key for lease in state.leases_on(share.node)
                    if lease.key not in state.ending
                    and (lease.run_key in named or shortage.is_unpaid(state, lease, now=self.now))]  # fmt: skip
            if timeline.room_beside(share.node, row.key, at, until, gone, share.gpus) < share.gpus:
                return False
        return self._is_paid(row, one, at, until)

    def _named(self, one: Reservation, at: Instant) -> set[str]:
        """Runs that promises which are due by an instant may cut: they are not in the way of those behind these."""
        found = set[str]()
        for each in self.state.promises.get(self.flavor, {}).values():
            if each.run_key != one.run_key and max(bound_of(each) or 0, self.now) < at:
                found |= named(each, self.state.draws)
        return found

    def _is_place(self, row: RunRow, one: Reservation, node: str) -> bool:
        """True if a node lies in one of the promised domains, and is what the run asks for."""
        found = self.state.topology.rows[node]
        site = found.site
        assert site is not None
        name = "/".join((*site.location, site.fabric))
        return (
            site.flavor == row.demand.flavor and name in one.plan.domains and matches(row.demand.selector, found.labels)
        )

    def _is_paid(self, row: RunRow, one: Reservation, at: Instant, until: Instant | None) -> bool:
        """True if each of those who were to pay can, from an instant on; whether others would is not asked."""
        state, start = self.state, max(one.plan.start or at, self.now)
        rest = None if until is None else until - at
        walked = walk(state.books, state.family, row.demand, now=start, today=self.now)
        able = {(*each.fund.key, each.funding): each for each in walked if each.bar is None}
        ahead = Ahead(state.timeline, now=self.now, at=max(at, self.now), length=rest)
        lookahead = parse_duration(state.policy.lookahead)
        purse = Purse(row.demand, now=start, lookahead=lookahead, borrowed=0, ahead=ahead)
        for part in one.plan.segments:
            payer = able.get((part.budget, part.envelope, part.funding))
            if payer is None or purse.pay((payer,), part.gpus)[1]:
                return False
            nodes = ((state.topology.rows[share.node], share.gpus) for share in one.plan.shares)
            if sum(gpus for node, gpus in nodes if matches(payer.fund.selector, node.labels)) < part.gpus:
                return False
        return True

    def _fits_after_cuts(self, row: RunRow, one: Reservation) -> bool:
        """True if a start that takes cuts still finds its nodes, beside what others are promised there then; who is to
        go is found when it comes."""
        state, start = self.state, one.plan.start or 0
        for share in one.plan.shares:
            node = state.topology.rows.get(share.node)
            if node is None or not node.open or node.site is None or not self._is_place(row, one, share.node):
                return False
            until = FOREVER if row.demand.duration is None else start + row.demand.duration
            there = [(begin, FOREVER if end is None else end, gpus)
                     for begin, end, gpus in state.timeline.claims_on(share.node).values()
                     if begin < until and (end is None or end > start + GRACE)]  # fmt: skip
            at_once = (sum(gpus for begin, end, gpus in there if begin <= at < end)
                       for at in (start, *(begin for begin, _, _ in there if begin > start)))  # fmt: skip
            if max(at_once) + share.gpus > node.gpus:
                return False
        over = None if row.demand.duration is None else start + max(row.demand.duration, GRACE + 1)
        return one.plan.start is None or self._is_paid(row, one, start + GRACE, over)

    def stood_on_cuts(self, one: Reservation) -> bool:
        """True if a projected start counted on what an earlier promise was to cut, and somebody who was there when it
        was made, and did not say that it would end by then, is in the way."""
        state, by, made = self.state, bound_of(one) or 0, self.now if one.dated is None else one.dated
        for share in one.plan.shares:
            for lease in state.leases_on(share.node) if one.on_cuts else ():
                if lease.taken <= made and lease.key not in state.ending and (lease.until is None or lease.until > by):
                    return True
        return False


def is_due(one: Reservation, now: Instant) -> bool:
    """True if a promise's bound has come, or what it needs is being freed for it."""
    by = bound_of(one)
    return one.state == "Active" or (one.state == "Pending" and by is not None and by <= now)


def _is_overspent(fund: Fund, ahead: Ahead) -> bool:
    caps = (cap for cap in fund.caps if cap.hours is not None)
    return (
        (fund.hours is not None and ahead.spent(fund) > fund.hours)
        or (fund.lending_hours is not None and ahead.lent_spent(fund) > fund.lending_hours)
        or any(sum(map(ahead.spent, cap.funds)) > (cap.hours or 0) for cap in caps)
    )
