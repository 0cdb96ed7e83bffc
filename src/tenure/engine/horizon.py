"""The known future: when what is held comes free, and what is promised to waiting runs (SPEC 7).

For each node, with ``free`` the free GPUs of now:

    free at t = free + GPUs of leases that end by t - GPUs claimed by reservations that are on at t

A lease ends when its run said so, when it was asked to leave, or when the money that pays for it runs out, whichever
comes first. One that overstays its declared end is not counted on any more. A backfilled one is *overdue* then: it is
the first to go when somebody needs its place, so who plans a start to come may look at the world ``without`` it. The
same is kept for every envelope. Views of a location (``rooms``) tell a search where it need not look; they are brought
up to date when they are read.

Claims are laid in the order in which they were promised: whoever plans a run has taken back those that were promised
later, so that no plan depends on them.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from contextlib import contextmanager
from functools import partial
from heapq import heappop, heappush
from itertools import accumulate
from typing import NamedTuple

from tenure.engine.books import FundKey
from tenure.engine.demand import Selector
from tenure.engine.levels import Profile
from tenure.engine.news import News
from tenure.engine.rooms import INSTANT, Read, Steps, View, differ
from tenure.engine.topology import Location, Row, Topology, matches
from tenure.facts import Lease, Slice
from tenure.units import SECOND, Instant, Micros

LEAVING: Micros = 30 * SECOND
"""How long pods that were asked to leave are expected to take."""

VIEWS_MAX = 32
"""Views of one location that are kept up to date."""

Domain = tuple[str, Location, str]
"""(flavor, location, fabric)"""

NEVER_FREE: Read = ([0], [0])


class Shown(NamedTuple):
    """What a node adds to its place: where it is, and its free GPUs from each instant on."""

    where: Domain
    labels: dict[str, str]
    read: Read

    def gains(self) -> Steps:
        times, free = self.read
        return [(at, is_ - was) for at, was, is_ in zip(times[1:], free, free[1:], strict=False) if is_ > was]


class Line:
    """The future of one node: levels relative to what is free now, from each instant on."""

    __slots__ = ("base", "claims", "cutting", "fresh", "lasting", "levels", "releases", "shown", "times")

    def __init__(self) -> None:
        self.releases: dict[str, tuple[Instant, int]] = {}
        self.claims: dict[str, tuple[Instant, Instant | None, int]] = {}
        self.cutting: set[str] = set()
        """Claims for which whoever is in the way will be cut: afterwards it is not there any more."""
        self.base = 0
        """What is free now."""
        self.times: list[Instant] = [0]
        self.levels: list[int] = [0]
        self.lasting: list[int] = [0]
        """The least that comes after."""
        self.fresh = True
        self.shown: Shown | None = None

    def low(self, start: Instant, end: Instant | None) -> int:
        """The lowest level in ``[start, end)``."""
        if not self.fresh:
            self._read()
        times = self.times
        index = bisect_right(times, start) - 1
        if end is None:
            return self.lasting[index]
        return min(self.levels[index : bisect_left(times, end, index + 1)])

    def first(self, need: int, *, since: Instant, length: Micros | None) -> Instant | None:
        """The first instant from which so much is free for so long."""
        times, free = self.free()
        index = bisect_right(times, since) - 1
        at: Instant | None = None
        for begin, level in zip(times[index:], free[index:], strict=True):
            if level >= need:
                at = max(begin, since) if at is None else at
            elif at is not None and length is not None and begin - at >= length:
                return at
            else:
                at = None
        return at

    def free(self) -> Read:
        """What is free from each instant on."""
        if not self.fresh:
            self._read()
        return self.times, [max(0, self.base + level) for level in self.levels]

    def less(self, without: Collection[str], base: int) -> Line:
        """The same with so much free now, because these have ended."""
        line = Line()
        line.releases = {key: release for key, release in self.releases.items() if key not in without}
        line.claims, line.cutting, line.base, line.fresh = self.claims, self.cutting, base, False
        return line

    def _read(self) -> None:
        ends: dict[Instant, int] = {0: 0}
        steps: dict[Instant, int] = {}
        taken: dict[Instant, int] = {}
        for at, gpus in self.releases.values():
            ends[at] = ends.get(at, 0) + gpus
        for run, (start, end, gpus) in self.claims.items():
            if run in self.cutting:
                taken[start] = taken.get(start, 0) + gpus
            else:
                steps[start] = steps.get(start, 0) - gpus
            if end is not None:
                steps[end] = steps.get(end, 0) + gpus
        self.times = sorted({*ends, *steps, *taken})
        self.levels, level, cut = [], 0, 0
        for at in self.times:
            gone = min(cut, ends.get(at, 0))  # who was cut does not end a second time
            cut -= gone
            level += ends.get(at, 0) - gone + steps.get(at, 0)
            if at in taken:  # what is free first, and then what others hold
                free = min(taken[at], max(0, self.base + level))
                level -= free
                cut += taken[at] - free
            self.levels.append(level)
        self.lasting = list(accumulate(reversed(self.levels), min))[::-1]
        self.fresh = True


class Money:
    """The future of one envelope: GPUs that it pays, as a negative level, and hours that are promised."""

    __slots__ = ("hours", "lent", "lent_hours", "lent_spared", "spared", "total")

    def __init__(self) -> None:
        self.total = Profile()
        self.lent = Profile()
        self.hours = 0
        self.lent_hours = 0
        self.spared = 0
        """GPUs that are looked at as if they were not paid for any more."""
        self.lent_spared = 0


class Place:
    """The future of one location: its nodes by domain, when any of them gains something, and views of their room."""

    def __init__(self, location: Location) -> None:
        self.location = location
        self.rows: dict[str, dict[str, Row]] = {}
        """By fabric domain: its nodes."""
        self.rises = Profile()
        """What nodes have gained by an instant, each for itself: what others lose does not count against it."""
        self.views: dict[tuple[Micros, int, Selector], View] = {}
        self.changes: dict[str, int] = {}
        """Nodes that ever changed, the latest last, and the number of their last change."""
        self.version = 0

    def change(self, name: str) -> None:
        self.version += 1
        self.changes.pop(name, None)
        self.changes[name] = self.version

    def bring_up(self, view: View) -> View:
        """Let a view show what changed since it was read last."""
        for name in reversed(self.changes):
            if self.changes[name] <= view.version:
                break
            view.stale.add(name)
        view.version = self.version
        return view.refresh()


class _Held:
    """When an open lease is expected to end, and from what."""

    __slots__ = ("asked", "declared", "end", "lease", "leaving")

    def __init__(self, lease: Lease) -> None:
        self.lease = lease
        self.declared = lease.until
        self.asked: Instant | None = None
        self.leaving: Instant | None = None
        self.end: Instant | None = None


class Claim:
    """What is promised to a waiting run; ``period`` is the time for which hours are set aside, ``cuts`` whether others
    will have to go for it."""

    __slots__ = ("cuts", "flavor", "period", "plan")

    def __init__(self, flavor: str, plan: Slice, period: Micros, cuts: bool) -> None:
        self.flavor, self.plan, self.period, self.cuts = flavor, plan, period, cuts


class Horizon:
    """Leases that will end, and claims on what they leave."""

    def __init__(self, topology: Topology, news: News) -> None:
        self.topology = topology
        self.news = news
        self.lines: dict[str, Line] = {}
        self.money: dict[FundKey, Money] = {}
        self.claims: dict[str, Claim] = {}
        self.claimed: dict[str, int] = {}
        """Claims by flavor: where there are none, the present is all there is to look at."""
        self.claimed_nodes: dict[str, None] = {}
        """Nodes of which somebody is promised something."""
        self.overdue: dict[str, None] = {}
        """Leases of backfilled runs that have overstayed."""
        self.imagined = False
        """Whether the future is being looked at without some of those."""
        self._held: dict[str, _Held] = {}
        self._of_fund: dict[FundKey, dict[str, None]] = {}
        self._fund_ends: dict[FundKey, Instant] = {}
        self._due: list[tuple[Instant, str]] = []
        self._places: dict[tuple[str, Location], Place] = {}
        self._stale: dict[str, None] = {}

    # -- leases --

    def opened(self, lease: Lease) -> None:
        held = self._held[lease.key] = _Held(lease)
        key = (lease.budget, lease.envelope)
        self._of_fund.setdefault(key, {})[lease.key] = None
        self._pay(lease, 0, -1)
        self._mark(lease, gain=False)
        self._set_end(held)
        self.touch(lease.node)

    def closed(self, lease: Lease, end: Instant) -> bool:
        """Take a lease out; True if it ended just when it had said it would."""
        held = self._held.pop(lease.key)
        self.overdue.pop(lease.key, None)
        on_time = held.end == held.declared == end
        if not on_time:
            self._mark(lease, gain=True)
        key = (lease.budget, lease.envelope)
        del self._of_fund[key][lease.key]
        if not self._of_fund[key]:
            del self._of_fund[key]
        self._move_end(held, None)
        self._pay(lease, 0, 1)
        self.touch(lease.node)
        return on_time

    def declare(self, lease: str, end: Instant) -> bool:
        """A lease is now expected to end then, if it is left to end by itself; True if that is news."""
        held = self._held[lease]
        if held.declared == end:
            return False
        held.declared = end
        self.overdue.pop(lease, None)
        return self._set_end(held)

    def leaving(self, lease: Lease, at: Instant) -> None:
        held = self._held[lease.key]
        held.asked, held.leaving = at, at + LEAVING
        self.overdue.pop(lease.key, None)
        self._set_end(held)

    def asked(self, lease: str) -> Instant:
        """When a lease that is leaving was asked to."""
        return self._held[lease].asked or 0

    def fund_ends(self, fund: FundKey, end: Instant | None) -> bool:
        """The money of an envelope will have run out by then; True if that changes when something comes free."""
        if self._fund_ends.get(fund) == end:
            return False
        if end is None:
            self._fund_ends.pop(fund, None)
        else:
            self._fund_ends[fund] = end
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
    def unpaid(self, leases: Iterable[str]) -> Iterator[None]:
        """The same future, as if nobody paid for these any more, of those that are overdue. Their machines stay as they
        are: whoever tries out what cuts would free has laid those out already."""
        gone = [self._held[key] for key in leases if key in self.overdue]
        for held in gone:
            self._pay_until(held, 0)
            self._spare(held.lease, 1)
        try:
            yield
        finally:
            for held in gone:
                self._pay_until(held, 0, sign=-1)
                self._spare(held.lease, -1)

    def _spare(self, lease: Lease, sign: int) -> None:
        money = self._money(lease.budget, lease.envelope)
        money.spared += sign * len(lease.gpus)
        money.lent_spared += sign * len(lease.gpus) if lease.funding == "borrowed" else 0

    def pass_time(self, now: Instant, *, backfilled: Callable[[Lease], bool]) -> None:
        """Ends that should have come by now did not: who overstays is no longer counted on."""
        while self._due and self._due[0][0] <= now:
            at, key = heappop(self._due)
            held = self._held.get(key)
            if held is None or held.end != at:
                continue
            if held.leaving is not None:
                held.leaving = at + LEAVING * ((now - at) // LEAVING + 1)
            elif held.declared == at:
                held.declared = None
                if backfilled(held.lease):
                    self.overdue[key] = None
                    self._mark(held.lease, gain=True)  # for those who may count on its going
            else:
                self._fund_ends.pop((held.lease.budget, held.lease.envelope), None)
            self._set_end(held)

    def _set_end(self, held: _Held) -> bool:
        lease = held.lease
        ends = [held.leaving] if held.leaving is not None else [
            held.declared, self._fund_ends.get((lease.budget, lease.envelope))]  # fmt: skip
        end = min((at for at in ends if at is not None), default=None)
        if end != held.end:
            self._mark(lease, gain=end is not None and (held.end is None or end < held.end))
        return self._move_end(held, end)

    def _mark(self, lease: Lease, *, gain: bool) -> None:
        """A lease opened, or ends otherwise than foreseen."""
        row = self.topology.rows.get(lease.node)
        if row is not None and row.site is not None:
            self.news.node(row.site.flavor, lease.node, gain=gain)
            self.news.fund(row.site.flavor, (lease.budget, lease.envelope), gain=gain)

    def _move_end(self, held: _Held, end: Instant | None) -> bool:
        if held.end == end:
            return False
        lease = held.lease
        self._pay_until(held, end)
        if end:
            heappush(self._due, (end, lease.key))
        if lease.role != "Borrowed":
            line = self.line(lease.node)
            if end is None:
                line.releases.pop(lease.key, None)
            else:
                line.releases[lease.key] = (end, len(lease.gpus))
            self.touch(lease.node)
        held.end = end
        return True

    def _pay_until(self, held: _Held, end: Instant | None, *, sign: int = 1) -> None:
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

    def lay(self, run: str, flavor: str, plan: Slice, period: Micros, *, cuts: bool = False) -> None:
        """Claim a slice for a waiting run, instead of what it had claimed before.

        ``cuts``: whoever is in the way will have to go.
        """
        self.retract(run)
        if plan.start is None:
            return
        self.claims[run] = Claim(flavor, plan, period, cuts)
        self.claimed[flavor] = self.claimed.get(flavor, 0) + 1
        for share in plan.shares:
            line = self.line(share.node)
            line.claims[run] = (plan.start, plan.until, share.gpus)
            self.claimed_nodes[share.node] = None
            (line.cutting.add if cuts else line.cutting.discard)(run)
            self.touch(share.node)
        self._promise(plan, period, -1)

    def retract(self, run: str) -> Claim | None:
        claim = self.claims.pop(run, None)
        if claim is None:
            return None
        self.claimed[claim.flavor] -= 1
        for share in claim.plan.shares:
            line = self.line(share.node)
            line.claims.pop(run, None)
            line.cutting.discard(run)
            if not line.claims:
                self.claimed_nodes.pop(share.node, None)
            self.touch(share.node)
        self._promise(claim.plan, claim.period, 1)
        return claim

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
            money.lent_hours -= sign * one.gpus * period if one.funding == "borrowed" else 0

    def claims_on(self, node: str) -> Mapping[str, tuple[Instant, Instant | None, int]]:
        """Runs that are promised something of a node: from when, until when, how much."""
        line = self.lines.get(node)
        return {} if line is None else line.claims

    # -- nodes --

    def touch(self, node: str) -> None:
        """Something on a node changed, or the node itself."""
        line = self.line(node)
        line.base, line.fresh = self._free(node), False
        self._stale[node] = None

    def _free(self, node: str) -> int:
        row = self.topology.rows.get(node)
        return row.free() if row is not None and row.open else 0

    def line(self, node: str) -> Line:
        """The future of a node, with all that is claimed of it."""
        line = self.lines.get(node)
        if line is None:
            line = self.lines[node] = Line()
        return line

    def _money(self, budget: str, envelope: str) -> Money:
        money = self.money.get((budget, envelope))
        if money is None:
            money = self.money[budget, envelope] = Money()
        return money

    # -- questions --

    def among(self, node: str, counts: Callable[[str], bool]) -> Line:
        """The future of a node with only those claims that count, and without those who are overdue."""
        line, some = self.line(node), Line()
        gone = [self._held[key].lease for key in self.overdue] if self.overdue else []
        some.releases = line.releases
        some.claims = {run: claim for run, claim in line.claims.items() if counts(run)}
        some.cutting = line.cutting
        some.base = self._free(node) + sum(len(lease.gpus) for lease in gone if lease.node == node)
        some.fresh = False
        return some

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
        return line.low(start, end)

    def gpus(self, lease: str) -> int:
        """How many an open lease holds."""
        return len(self._held[lease].lease.gpus)

    def places(self, flavor: str) -> list[Place]:
        """All locations that have, or had, nodes of a flavor."""
        self._refresh()
        return [place for (name, _), place in self._places.items() if name == flavor]

    def place(self, flavor: str, location: Location) -> Place:
        """A location as it is now and will be."""
        self._refresh()
        found = self._places.get((flavor, location))
        return Place(location) if found is None else found

    def view(self, place: Place, window: Micros, pod: int, selector: Selector = ()) -> View:
        """The room of a location for one window, in pods of one width, on the nodes with these labels."""
        self._refresh()
        key = (window, pod, selector)
        found = place.views.pop(key, None)
        if found is None:
            if window == INSTANT:
                found = self.exactly(place, INSTANT, pod, selector)
                found.stale.update(name for rows in place.rows.values() for name in rows)
            else:
                claimed = (share.node for claim in self.claims.values() for share in claim.plan.shares)
                found = self.view(place, INSTANT, pod, selector).derive(window, claimed)
            while len(place.views) >= VIEWS_MAX:
                del place.views[next(iter(place.views))]
        place.views[key] = found
        return place.bring_up(found)

    def exactly(self, place: Place, length: Micros, pod: int, selector: Selector) -> View:
        """A view for one length, of none of the nodes yet."""
        return View(length, pod, partial(self._look, place, selector))

    def _look(self, place: Place, selector: Selector, name: str) -> tuple[str, Read] | None:
        """Where a node of a place is, and its free GPUs from each instant on; None if it is not one of these."""
        line = self.lines.get(name)
        shown = None if line is None else line.shown
        if shown is None or self._places[shown.where[:2]] is not place or not matches(selector, shown.labels):
            return None
        return shown.where[2], shown.read

    def _refresh(self) -> None:
        for name in self._stale:
            self._reread(name)
        self._stale.clear()

    def _reread(self, name: str) -> None:
        line, row = self.line(name), self.topology.rows.get(name)
        old, new = line.shown, None
        if row is not None and row.site is not None:
            site = row.site
            new = Shown((site.flavor, site.location, site.fabric), row.labels, line.free() if row.open else NEVER_FREE)
            self._place(new.where).rows.setdefault(site.fabric, {})[name] = row
        elif row is None and not line.releases and not line.claims:
            del self.lines[name]
        if new == old:
            return
        line.shown = new
        if old is not None and (new is None or new.where != old.where):
            self._forget(name, old.where)
            self._show(name, old.where, [(at, -step) for at, step in old.gains()])
            old = None
        if new is not None:
            self._show(name, new.where, differ(new.gains(), () if old is None else old.gains()))

    def _forget(self, name: str, where: Domain) -> None:
        rows = self._place(where).rows
        rows[where[2]].pop(name, None)
        if not rows[where[2]]:
            del rows[where[2]]

    def _place(self, where: Domain) -> Place:
        key = where[:2]
        place = self._places.get(key)
        if place is None:
            place = self._places[key] = Place(where[1])
        return place

    def _show(self, name: str, where: Domain, gains: Iterable[tuple[Instant, int]]) -> None:
        place = self._place(where)
        for at, step in gains:
            place.rises.add(at, step)
        place.change(name)
