"""The known future: when what is held comes free, and what is promised to waiting runs (SPEC 7).

For each node, with ``free`` the free GPUs of now:

    free at t = free + GPUs of leases that end by t - GPUs claimed by reservations that are on at t

A lease ends when its run said so, when it was asked to leave, or when the money that pays for it runs out, whichever
comes first. One that overstays its declared end is not counted on any more. A backfilled one is *overdue* then: it is
the first to go when somebody needs its place, so who plans a start to come may look at the world ``without`` it. The
same is kept for every envelope. Views of a location tell a search where it need not look; they are brought
up to date when they are read.

Claims are laid in the order in which they were promised: whoever plans a run has taken back those that were promised
later, so that no plan depends on them.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from contextlib import contextmanager
from functools import partial
from heapq import heappop, heappush

from msgspec.structs import replace

from tenure.engine.books import FundKey
from tenure.engine.demand import Selector
from tenure.engine.meters import Commitments
from tenure.engine.queue.changes import Changes
from tenure.engine.timeline.capacity_index import INSTANT, WindowCapacity
from tenure.engine.timeline.entries import Claim, EnvelopeTimeline, Held, LocationTimeline
from tenure.engine.timeline.node_timeline import Domain, NodeTimeline, Shown
from tenure.engine.timeline.step_trace import ALWAYS, Read, Span, StepTrace, both, differ, part, rises
from tenure.engine.topology import Location, Row, Topology, matches
from tenure.facts import Lease, Slice
from tenure.units import SECOND, Instant, Micros

GRACE: Micros = 30 * SECOND
"""How late an end may be that was declared, before nobody counts on it any more: real work never ends to the second."""

LEAVING: Micros = 30 * SECOND
"""How long pods that were asked to leave are expected to take."""

VIEWS_MAX = 32
"""Views of one location that are kept up to date."""

NEVER_FREE: Read = ([0], [0])


class Timeline:
    """Leases that will end, and claims on what they leave."""

    def __init__(self, topology: Topology, changes: Changes) -> None:
        self.topology = topology
        self.changes = changes
        self.lines: dict[str, NodeTimeline] = {}
        self.money: dict[FundKey, EnvelopeTimeline] = {}
        self.claims: dict[str, Claim] = {}
        self.claimed: dict[str, int] = {}
        """Claims by flavor: where there are none, the present is all there is to look at."""
        self.claimed_nodes: dict[str, None] = {}
        """Nodes of which somebody is promised something."""
        self.overdue: dict[str, None] = {}
        """Leases of backfilled runs that have overstayed."""
        self.imagined = False
        """Whether the future is being looked at without some of those."""
        self.as_spent = False
        """Whether what goes on without an end is looked at as if it spent no more than it has."""
        self._held: dict[str, Held] = {}
        self._of_fund: dict[FundKey, dict[str, None]] = {}
        self._fund_ends: dict[FundKey, tuple[Instant | None, Instant | None]] = {}
        """When an envelope's money will have run out, and when that which it lends."""
        self._due: list[tuple[Instant, str]] = []
        self._places: dict[tuple[str, Location], LocationTimeline] = {}
        self._stale: dict[str, Span] = {}

    # -- leases --

    def opened(self, lease: Lease) -> None:
        held = self._held[lease.key] = Held(lease)
        key = (lease.budget, lease.envelope)
        self._of_fund.setdefault(key, {})[lease.key] = None
        self._pay(lease, 0, -1)
        end = self._end_of(held)
        if lease.reason in ("Swap", "Refund"):  # whoever starts or grows leaves alone what is promised
            self._mark(lease, gain=False)
        row = self.topology.rows.get(lease.node)
        if lease.role == "Spare" and row is not None and row.site is not None:
            self.changes.gain_node(row.site.flavor, lease.node)  # for who may sit on it
        self._move_end(held, end)
        self._touch(lease.node)

    def closed(self, lease: Lease, end: Instant) -> bool:
        """Take a lease out; True if it ended just when it had said it would."""
        held = self._held.pop(lease.key)
        if held.spared:
            self._spare(lease, -1)
        self.overdue.pop(lease.key, None)
        on_time = held.end == held.declared == end
        self._mark(lease, gain=True)
        key = (lease.budget, lease.envelope)
        del self._of_fund[key][lease.key]
        if not self._of_fund[key]:
            del self._of_fund[key]
        self._move_end(held, None)
        self._pay(lease, 0, 1)
        self._touch(lease.node)
        return on_time

    def declare(self, lease: str, end: Instant) -> bool:
        """A lease is now expected to end then, if it is left to end by itself; True if that is news."""
        held = self._held[lease]
        if held.declared == end:
            return False
        held.declared, held.late, held.overstays = end, False, False
        if held.lease.until is not None:  # from then on what it uses is committed no more, though it may go on
            heappush(self._due, (held.lease.until, lease))
        self.overdue.pop(lease, None)
        return self._set_end(held)

    def leaving(self, lease: Lease, at: Instant) -> None:
        held = self._held[lease.key]
        if not held.spared:
            held.spared = True  # it spends no hours until a start to come
            self._spare(lease, 1)
        held.asked, held.leaving = at, at + LEAVING
        self.overdue.pop(lease.key, None)
        self._set_end(held)

    def asked(self, lease: str) -> Instant:
        """When a lease that is leaving was asked to."""
        return self._held[lease].asked or 0

    def fund_ends(self, fund: FundKey, end: Instant | None, lent: Instant | None = None) -> bool:
        """The money of an envelope will have run out by then, and what it lends by then; True if that changes when
        something comes free."""
        if self._fund_ends.get(fund, (None, None)) == (end, lent):
            return False
        self._fund_ends[fund] = (end, lent)
        if end is lent is None:
            del self._fund_ends[fund]
        changed = [self._set_end(self._held[key]) for key in self._of_fund.get(fund, ())]
        return any(changed)

    @contextmanager
    def without(self, leases: Iterable[str]) -> Iterator[None]:
        """The same future, as if these leases had ended; those that are not overdue are left alone."""
        gone = [self._held[key] for key in leases if key in self.overdue]
        ends = [held.end for held in gone]
        for held in gone:
            self._move_end(held, 0)
            self._spare(held.lease, 1)
        self._refresh()
        before, self.imagined = self.imagined, self.imagined or bool(gone)
        try:
            yield
        finally:
            self.imagined = before
            for held, end in zip(gone, ends, strict=True):
                self._move_end(held, end)
                self._spare(held.lease, -1)
            self._refresh()

    @contextmanager
    def unpaid(self, leases: Iterable[str], *, late: Iterable[str] = ()) -> Iterator[None]:
        """The same future, as if nobody paid for these any more, of those that are overdue; nor for those that are only
        ``late``. Their machines stay as they are: whoever tries out what cuts would free has laid those out already."""
        gone = [self._held[key] for key in leases if key in self.overdue]
        gone += [self._held[key] for key in late if key not in self.overdue]
        for held in gone:
            self._pay_until(held, 0)
            self._spare(held.lease, 1)
        try:
            yield
        finally:
            for held in gone:
                self._pay_until(held, 0, sign=-1)
                self._spare(held.lease, -1)

    @contextmanager
    def as_promised(self) -> Iterator[None]:
        """The same future, as a start sees it that is due: it was promised its hours, and what others without an end
        may spend until later starts are due is for those to miss."""
        before, self.as_spent = self.as_spent, True
        try:
            yield
        finally:
            self.as_spent = before

    @contextmanager
    def paid_by(self, lease: str, *others: Lease) -> Iterator[None]:
        """The same future, as if nobody paid for a lease that was taken out of the books; or others, from now until it
        ends, in its stead."""
        held = self._held[lease]
        self._pay_until(held, 0)
        self._pay_instead(held, others, -1)
        try:
            yield
        finally:
            self._pay_instead(held, others, 1)
            self._pay_until(held, 0, sign=-1)

    def _pay_instead(self, held: Held, others: Iterable[Lease], sign: int) -> None:
        for other in others:
            self._pay(other, 0, sign)
            if held.end is not None:
                self._pay(other, held.end, -sign)

    def _spare(self, lease: Lease, sign: int) -> None:
        money = self._money(lease.budget, lease.envelope)
        money.spared += sign * len(lease.gpus)
        money.lent_spared += sign * len(lease.gpus) if lease.funding == "borrowed" else 0

    def pass_time(self, now: Instant, *, backfilled: Callable[[Lease], bool]) -> set[FundKey]:
        """Ends that should have come by now did not: who overstays is no longer counted on. Returns who pays for it,
        and for what goes on past the end that its lease gave because its pods were late."""
        late: set[FundKey] = set()
        while self._due and self._due[0][0] <= now:
            at, key = heappop(self._due)
            held = self._held.get(key)
            if held is None:
                continue
            if at in (held.lease.until, held.declared):
                late.add((held.lease.budget, held.lease.envelope))
            if key in self.overdue and held.declared is not None and at == held.declared + GRACE:
                self._mark(held.lease, gain=False)  # for those who have nobody sent away, and counted on its end
            if held.end != at:
                if held.lease.until == at:
                    self.changes.lose_fund((held.lease.budget, held.lease.envelope))
                continue
            if held.leaving is not None:
                held.leaving = at + LEAVING * ((now - at) // LEAVING + 1)
            elif held.declared == at and backfilled(held.lease):
                held.overstays = True
                self.overdue[key] = None
                heappush(self._due, (at + GRACE, key))
                self._mark(held.lease, gain=True)  # for those who may count on its going
                self._move_end(held, self._end_of(held))
                continue
            elif held.declared == at and not held.late:  # half a minute breaks no promise: nobody is looked at for it
                held.late = True
                self._move_end(held, self._end_of(held))
                continue
            elif held.late and held.declared is not None and at == held.declared + GRACE:
                held.overstays = True
            else:
                self._fund_ends.pop((held.lease.budget, held.lease.envelope), None)
            self._set_end(held)
        return late

    def _end_of(self, held: Held) -> Instant | None:
        lease = held.lease
        paid, lent = self._fund_ends.get((lease.budget, lease.envelope), (None, None))
        declared = None if held.overstays or held.declared is None else held.declared + (GRACE if held.late else 0)
        ends = [declared, paid, lent if lease.funding == "borrowed" else None]
        ends = ends if held.leaving is None else [held.leaving]
        return min((at for at in ends if at is not None), default=None)

    def _set_end(self, held: Held) -> bool:
        end = self._end_of(held)
        if end != held.end:
            self._mark(held.lease, gain=end is not None and (held.end is None or end < held.end))
        return self._move_end(held, end)

    def _mark(self, lease: Lease, *, gain: bool) -> None:
        """A lease ends otherwise than foreseen, or ended: its node and its envelope have more, or less."""
        row, fund = self.topology.rows.get(lease.node), (lease.budget, lease.envelope)
        if row is not None and row.site is not None:
            (self.changes.gain_node if gain else self.changes.lose_node)(row.site.flavor, lease.node)
        (self.changes.gain_fund if gain else self.changes.lose_fund)(fund)

    def _move_end(self, held: Held, end: Instant | None) -> bool:
        if held.end == end:
            return False
        lease = held.lease
        self._pay_until(held, end)
        if end:
            heappush(self._due, (end, lease.key))
        if lease.role != "Borrowed":
            gpus = len(lease.gpus)
            span = self.line(lease.node).release(lease.key, end, gpus)
            self._touch(lease.node, span, lasting=gpus if held.end is None else -gpus if end is None else 0)
        held.end = end
        return True

    def _pay_until(self, held: Held, end: Instant | None, *, sign: int = 1) -> None:
        """It is paid for until then, instead of until its end."""
        if held.end is not None:
            self._pay(held.lease, held.end, -sign)
        if end is not None:
            self._pay(held.lease, end, sign)

    def _pay(self, lease: Lease, at: Instant, sign: int) -> None:
        money = self._money(lease.budget, lease.envelope)
        money.total.add(at, sign * len(lease.gpus))
        if lease.funding == "borrowed":
            money.lent.add(at, sign * len(lease.gpus))

    # -- claims --

    def add_claim(self, run: str, flavor: str, plan: Slice, period: Micros, *, cuts: bool = False) -> None:
        """Claim a slice for a waiting run, instead of what it had claimed before.

        ``cuts``: whoever is in the way will have to go.
        """
        self.remove_claim(run)
        if plan.start is None:
            return
        self.claims[run] = Claim(flavor, plan, period, cuts)
        self.claimed[flavor] = self.claimed.get(flavor, 0) + 1
        for share in plan.shares:
            span = self.line(share.node).claim(run, plan.start, plan.until, share.gpus, cuts=cuts)
            self.claimed_nodes[share.node] = None
            self._touch(share.node, span)
        self._promise(plan, period, -1)

    def remove_claim(self, run: str) -> Claim | None:
        claim = self.claims.pop(run, None)
        if claim is None:
            return None
        self.claimed[claim.flavor] -= 1
        for share in claim.plan.shares:
            line = self.line(share.node)
            span = line.unclaim(run)
            if not line.claims:
                self.claimed_nodes.pop(share.node, None)
            self._touch(share.node, span)
        self._promise(claim.plan, claim.period, 1)
        return claim

    @contextmanager
    def set_aside(self, runs: Iterable[str]) -> Iterator[bool]:
        """The same future, without what these runs were promised; whether that is anything."""
        claims = {run: claim for run in runs if (claim := self.remove_claim(run)) is not None}
        try:
            yield bool(claims)
        finally:
            for run, claim in claims.items():
                self.add_claim(run, claim.flavor, claim.plan, claim.period, cuts=claim.cuts)

    @contextmanager
    def put_off(self, runs: Iterable[str], until: Instant) -> Iterator[bool]:
        """The same future, with what these runs were promised from an instant on at the earliest, for as long; whether
        that is anything."""
        claims = {run: claim for run in runs if (claim := self.remove_claim(run)) is not None}
        for run, claim in claims.items():
            self.add_claim(run, claim.flavor, _later(claim.plan, until), claim.period, cuts=claim.cuts)
        try:
            yield bool(claims)
        finally:
            for run, claim in claims.items():
                self.add_claim(run, claim.flavor, claim.plan, claim.period, cuts=claim.cuts)

    def _promise(self, plan: Slice, period: Micros, sign: int) -> None:
        assert plan.start is not None
        for one in plan.segments:
            money = self._money(one.budget, one.envelope)
            lines = [money.total, money.lent] if one.funding == "borrowed" else [money.total]
            for line in lines:
                line.add(plan.start, sign * one.gpus)
                if plan.until is not None:
                    line.add(plan.until, -sign * one.gpus)
            money.hours -= sign * one.gpus * period
            begin = Commitments.open if sign < 0 else Commitments.close
            begin(money.starts, one.gpus, plan.start)
            if one.funding == "borrowed":
                money.lent_hours -= sign * one.gpus * period
                begin(money.lent_starts, one.gpus, plan.start)

    def claims_on(self, node: str) -> Mapping[str, tuple[Instant, Instant | None, int]]:
        """Runs that are promised something of a node: from when, until when, how much."""
        line = self.lines.get(node)
        return {} if line is None else line.claims

    # -- nodes --

    def touch(self, node: str) -> None:
        """Something on a node changed, or the node itself."""
        self.line(node).fresh = False
        self._touch(node, ALWAYS)

    def _touch(self, node: str, span: Span | None = None, *, lasting: int = 0) -> None:
        """A node may have other free GPUs now, and in a span others relative to those: from its begin on by so many for
        ever after (``lasting``). What is taken now and given back then changes nothing from then on."""
        line, free = self.line(node), self._free(node)
        line.held = self._held_on(node)
        gain = free - line.base
        if gain:
            line.base = free
            line.fresh = line.fresh and not line.cutting
            span = (0, span[0]) if span is not None and line.fresh and gain == -lasting else ALWAYS
        if span is not None:
            self._stale[node] = both(self._stale.get(node), span)

    def _free(self, node: str) -> int:
        row = self.topology.rows.get(node)
        return 0 if row is None else row.balance()

    def _held_on(self, node: str) -> int:
        row = self.topology.rows.get(node)
        return 0 if row is None else row.held.bit_count()

    def room(self, node: str, start: Instant, end: Instant | None, without: Collection[str]) -> int:
        """What a node will have for a whole time, if these leases had ended."""
        gone = sum(len(self._held[key].lease.gpus) for key in without if self._held[key].lease.role != "Borrowed")
        base = self._free(node) + gone
        line = self.line(node)
        return base + (line.less(without, base) if gone else line).low(start, end)

    def room_beside(
        self, node: str, run: str, start: Instant, end: Instant | None, without: Collection[str], gpus: int
    ) -> int:
        """The same for a run that is to have so much of it and has laid no claim: who makes room there by cuts takes
        what is free first, and is to leave it that."""
        line = self.line(node)
        if not line.cutting:
            return self.room(node, start, end, without)
        line.claim(run, start, end, gpus, cuts=False)
        try:
            return self.room(node, start, end, without) + gpus
        finally:
            line.unclaim(run)

    def line(self, node: str) -> NodeTimeline:
        """The future of a node, with all that is claimed of it."""
        line = self.lines.get(node)
        if line is None:
            line = self.lines[node] = NodeTimeline()
        return line

    def _money(self, budget: str, envelope: str) -> EnvelopeTimeline:
        money = self.money.get((budget, envelope))
        if money is None:
            money = self.money[budget, envelope] = EnvelopeTimeline()
        return money

    # -- questions --

    def low(self, node: str, start: Instant, end: Instant | None, without: Collection[str] = ()) -> int:
        """How much less (or more) a node has, at the worst, in ``[start, end)`` than it has free now.

        ``without``: leases whose end is not counted on, because it is counted already. What is free may be more than
        the line was read with, while cuts are tried out: who cuts takes of that first.
        """
        line = self.lines.get(node)
        if line is None:
            return 0
        ended = any(key in without for key in line.releases) if without else False
        if ended or (line.cutting and line.base != self._free(node)):
            line = line.less(without, self._free(node))
        return line.low(start, end) + min(0, self._free(node))

    def left_for_guests(self, row: Row, start: Instant, end: Instant | None, without: Collection[str] = ()) -> int:
        """How much of a node, spares included, opportunistic work may have for a whole time: when the spare under it
        goes it stays, so what others were promised of that is not for it; also where they were promised it on cuts."""
        line = self.lines.get(row.name)
        if line is None:
            return row.size("fill")
        spares = [key for key in line.releases if self._held[key].lease.role == "Spare"]
        if spares or without or line.cutting:
            line = line.less({*without, *spares}, self._free(row.name))
            line.cutting = set()
        return max(0, row.size("fill") + min(0, line.low(start, end) + min(0, row.balance())))

    def gpus(self, lease: str) -> int:
        """How many an open lease holds."""
        return len(self._held[lease].lease.gpus)

    def places(self, flavor: str) -> list[LocationTimeline]:
        """All locations that have, or had, nodes of a flavor."""
        self._refresh()
        return [place for (name, _), place in self._places.items() if name == flavor]

    def place(self, flavor: str, location: Location) -> LocationTimeline:
        """A location as it is now and will be."""
        self._refresh()
        found = self._places.get((flavor, location))
        return LocationTimeline(location) if found is None else found

    def view(self, place: LocationTimeline, window: Micros, pod: int, selector: Selector = ()) -> WindowCapacity:
        """The room of a location for one window, in pods of one width, on the nodes with these labels."""
        self._refresh()
        key = (window, pod, selector)
        found = place.views.pop(key, None)
        if found is None:
            if window == INSTANT:
                found = self.exactly(place, INSTANT, pod, selector)
                found.look_at(name for rows in place.rows.values() for name in rows)
            else:
                claimed = (share.node for claim in self.claims.values() for share in claim.plan.shares)
                found = self.view(place, INSTANT, pod, selector).derive(window, claimed)
            while len(place.views) >= VIEWS_MAX:
                del place.views[next(iter(place.views))]
        place.views[key] = found
        return place.bring_up(found)

    def exactly(self, place: LocationTimeline, length: Micros, pod: int, selector: Selector) -> WindowCapacity:
        """A view for one length, of none of the nodes yet."""
        return WindowCapacity(length, pod, partial(self._look, place, selector))

    def _look(self, place: LocationTimeline, selector: Selector, name: str) -> tuple[str, Read] | None:
        """Where a node of a place is, and its free GPUs from each instant on; None if it is not one of these."""
        line = self.lines.get(name)
        shown = None if line is None else line.shown
        if shown is None or self._places[shown.where[:2]] is not place or not matches(selector, shown.labels):
            return None
        return shown.where[2], shown.free.read()

    def _refresh(self) -> None:
        if self._stale:
            stale, self._stale = self._stale, {}
            for name, span in stale.items():
                self._reread(name, span)

    def _reread(self, name: str, span: Span) -> None:
        line, row = self.line(name), self.topology.rows.get(name)
        if row is None and not line.releases and not line.claims:
            del self.lines[name]
        shown, where = line.shown, None
        if row is not None and row.site is not None:
            where = (row.site.flavor, row.site.location, row.site.fabric)
            self._place(where).rows.setdefault(row.site.fabric, {})[name] = row
        if shown is not None and shown.where != where:
            self._forget(name, shown.where)
            self._show(name, shown.where, [(at, -step) for at, step in rises(0, shown.free.read())], ALWAYS)
            shown = line.shown = None
        if where is None or row is None:
            return
        is_other = shown is None or shown.labels != row.labels
        if shown is None or is_other:
            shown = line.shown = Shown(where, row.labels, StepTrace() if shown is None else shown.free)
            span = ALWAYS
        before, old, new = shown.free.put(*span, *(line.free(span) if row.open else part(NEVER_FREE, span)))
        if is_other or old != new:
            self._show(name, where, differ(rises(before, new), rises(before, old)), span)

    def _forget(self, name: str, where: Domain) -> None:
        rows = self._place(where).rows
        rows[where[2]].pop(name, None)
        if not rows[where[2]]:
            del rows[where[2]]

    def _place(self, where: Domain) -> LocationTimeline:
        key = where[:2]
        place = self._places.get(key)
        if place is None:
            place = self._places[key] = LocationTimeline(where[1])
        return place

    def _show(self, name: str, where: Domain, gains: Iterable[tuple[Instant, int]], span: Span) -> None:
        place = self._place(where)
        for at, step in gains:
            place.rises.add(at, step)
        place.change(name, span)


def _later(plan: Slice, at: Instant) -> Slice:
    """A slice from an instant on, for as long, if it was to begin before."""
    by = 0 if plan.start is None else max(0, at - plan.start)
    return replace(plan, start=(plan.start or 0) + by, until=None if plan.until is None else plan.until + by)
