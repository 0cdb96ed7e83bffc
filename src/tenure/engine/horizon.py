"""The known future: when what is held comes free, and what is promised to waiting runs (SPEC 7).

For each node, with ``free`` the free GPUs of now:

    free at t = free + GPUs of leases that end by t - GPUs claimed by reservations that are on at t

A lease ends when its run said so, when it was asked to leave, or when the money that pays for it runs out, whichever
comes first. One that overstays its declared end is not counted on any more. A backfilled one is *overdue* then: it is
the first to go when somebody needs its place, so who plans a start to come may look at the world ``without`` it. The
same is kept for every envelope. Sums over domains and locations, for each pod
width that was ever asked for, tell a search where it need not look; they are brought up to date when they are read.

Claims are laid in the order in which they were promised: whoever plans a run has taken back those that were promised
later, so that no plan depends on them.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right, insort
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from contextlib import contextmanager
from heapq import heappop, heappush

from tenure.engine.books import FundKey
from tenure.engine.levels import Profile
from tenure.engine.topology import Location, Row, Topology
from tenure.facts import Lease, Slice
from tenure.units import SECOND, Instant, Micros

LEAVING: Micros = 30 * SECOND
"""How long pods that were asked to leave are expected to take."""

FIRSTS_MAX = 32
"""Shapes for which a location keeps its domains in order."""

Steps = list[tuple[Instant, int]]
Domain = tuple[str, Location, str]
"""(flavor, location, fabric)"""

Shown = tuple[Domain, dict[int, Steps]]
"""Where a node is, and the steps of its level in whole pods by their width."""


class Line:
    """The future of one node: levels relative to what is free now, from each instant on."""

    __slots__ = ("base", "claims", "cutting", "fresh", "levels", "releases", "shown", "times")

    def __init__(self) -> None:
        self.releases: dict[str, tuple[Instant, int]] = {}
        self.claims: dict[str, tuple[Instant, Instant | None, int]] = {}
        self.cutting: set[str] = set()
        """Claims for which whoever is in the way will be cut: afterwards it is not there any more."""
        self.base = 0
        """What is free now."""
        self.times: list[Instant] = [0]
        self.levels: list[int] = [0]
        self.fresh = True
        self.shown: Shown | None = None
        """What this node adds to the sums."""

    def low(self, start: Instant, end: Instant | None) -> int:
        """The lowest level in ``[start, end)``."""
        if not self.fresh:
            self._read()
        times, levels = self.times, self.levels
        index = bisect_right(times, start) - 1
        lowest = levels[index]
        for later in range(index + 1, len(times)):
            if end is not None and times[later] >= end:
                break
            lowest = min(lowest, levels[later])
        return lowest

    def read(self) -> tuple[list[Instant], list[int]]:
        if not self.fresh:
            self._read()
        return self.times, self.levels

    def less(self, without: Collection[str]) -> Line:
        line = Line()
        line.releases = {key: release for key, release in self.releases.items() if key not in without}
        line.claims, line.cutting, line.base, line.fresh = self.claims, self.cutting, self.base, False
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
    """The future of one location: of all its nodes, and of each domain, by pod width."""

    def __init__(self, location: Location) -> None:
        self.location = location
        self.rows: dict[str, dict[str, Row]] = {}
        """By fabric domain: its nodes."""
        self._gains: dict[int, Profile] = {}
        self.totals: dict[int, Profile] = {}
        self.domains: dict[tuple[str, int], Profile] = {}
        self._firsts: dict[tuple[int, int, int], Firsts] = {}

    def total(self, pod: int) -> Profile:
        return self.totals.setdefault(pod, Profile())

    def gains(self, pod: int) -> Profile:
        """What nodes have gained by an instant, each for itself: what others lose does not count against it."""
        return self._gains.setdefault(pod, Profile())

    @property
    def rises(self) -> Profile:
        return self.gains(1)

    def domain(self, fabric: str, pod: int) -> Profile:
        found = self.domains.get((fabric, pod))
        if found is None:
            found = self.domains[fabric, pod] = Profile()
        return found

    def firsts(self, pod: int, active: int, gpus: int, *, now: Instant) -> Firsts:
        """Domains in the order in which they could have so many GPUs in pods, and so many in all."""
        key = (pod, active, gpus)
        found = self._firsts.pop(key, None)
        if found is None:
            found = Firsts(self, pod, active, gpus)
            while len(self._firsts) >= FIRSTS_MAX:
                del self._firsts[next(iter(self._firsts))]
        self._firsts[key] = found
        found.refresh(now)
        return found

    def changed(self, fabric: str) -> None:
        for firsts in self._firsts.values():
            firsts.stale.add(fabric)


class Firsts:
    """Domains by the first instant at which they could hold a shape alone, were it for an instant only: a run need not
    look at a domain before. The instants are those of when a domain last changed, so they never come too late."""

    def __init__(self, place: Place, pod: int, active: int, gpus: int) -> None:
        self.place, self.pod, self.active, self.gpus = place, pod, active, gpus
        self.rows: list[tuple[Instant, str]] = []
        self.stale: set[str] = set(place.rows)
        self._at: dict[str, Instant] = {}

    def refresh(self, now: Instant) -> None:
        many = len(self.stale) > len(self.rows) // 8
        for fabric in self.stale:
            old = self._at.pop(fabric, None)
            if old is not None and not many:
                del self.rows[bisect_left(self.rows, (old, fabric))]
            first = self._first(fabric, now) if fabric in self.place.rows else None
            if first is not None:
                self._at[fabric] = first
                if not many:
                    insort(self.rows, (first, fabric))
        if many:
            self.rows = sorted((at, fabric) for fabric, at in self._at.items())
        self.stale.clear()

    def _first(self, fabric: str, now: Instant) -> Instant | None:
        pods, free = self.place.domain(fabric, self.pod), self.place.domain(fabric, 1)
        return both(pods, free, at=now, length=1, active=self.active, gpus=self.gpus)


def both(pods: Profile, free: Profile, *, at: Instant, length: Micros | None, active: int, gpus: int) -> Instant | None:
    """The first instant with room for the pods and, with spares, for all GPUs."""
    if pods is free:
        return free.first(max(active, gpus), start=at, length=length)
    found: Instant | None = at
    while found is not None:
        first = pods.first(active, start=found, length=length)
        found = None if first is None else free.first(gpus, start=first, length=length)
        if found == first:
            return found
    return None


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

    def __init__(self, topology: Topology) -> None:
        self.topology = topology
        self.lines: dict[str, Line] = {}
        self.money: dict[FundKey, Money] = {}
        self.claims: dict[str, Claim] = {}
        self.claimed: dict[str, int] = {}
        """Claims by flavor: where there are none, the present is all there is to look at."""
        self.overdue: dict[str, None] = {}
        """Leases of backfilled runs that have overstayed."""
        self.imagined = False
        """Whether the future is being looked at without some of those."""
        self._held: dict[str, _Held] = {}
        self._of_fund: dict[FundKey, dict[str, None]] = {}
        self._fund_ends: dict[FundKey, Instant] = {}
        self._due: list[tuple[Instant, str]] = []
        self._places: dict[tuple[str, Location], Place] = {}
        self._pods: dict[str, set[int]] = {}
        self._stale: dict[str, None] = {}

    # -- leases --

    def opened(self, lease: Lease) -> None:
        held = self._held[lease.key] = _Held(lease)
        key = (lease.budget, lease.envelope)
        self._of_fund.setdefault(key, {})[lease.key] = None
        self._pay(lease, 0, -1)
        self._set_end(held)
        self.touch(lease.node)

    def closed(self, lease: Lease, end: Instant) -> bool:
        """Take a lease out; True if it ended just when it had said it would."""
        held = self._held.pop(lease.key)
        self.overdue.pop(lease.key, None)
        on_time = held.end == held.declared == end
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
            else:
                self._fund_ends.pop((held.lease.budget, held.lease.envelope), None)
            self._set_end(held)

    def _set_end(self, held: _Held) -> bool:
        lease = held.lease
        ends = [held.leaving] if held.leaving is not None else [
            held.declared, self._fund_ends.get((lease.budget, lease.envelope))]  # fmt: skip
        end = min((at for at in ends if at is not None), default=None)
        return self._move_end(held, end)

    def _move_end(self, held: _Held, end: Instant | None) -> bool:
        if held.end == end:
            return False
        lease = held.lease
        if held.end is not None:
            self._pay(lease, held.end, -1)
        if end is not None:
            self._pay(lease, end, 1)
            if end:
                heappush(self._due, (end, lease.key))
        if lease.role != "Borrowed":
            line = self._line(lease.node)
            if end is None:
                line.releases.pop(lease.key, None)
            else:
                line.releases[lease.key] = (end, len(lease.gpus))
            self.touch(lease.node)
        held.end = end
        return True

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
            line = self._line(share.node)
            line.claims[run] = (plan.start, plan.until, share.gpus)
            (line.cutting.add if cuts else line.cutting.discard)(run)
            self.touch(share.node)
        self._promise(plan, period, -1)

    def retract(self, run: str) -> Claim | None:
        claim = self.claims.pop(run, None)
        if claim is None:
            return None
        self.claimed[claim.flavor] -= 1
        for share in claim.plan.shares:
            self._line(share.node).claims.pop(run, None)
            self._line(share.node).cutting.discard(run)
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

    def claimed_nodes(self, flavor: str, *, before: Instant | None) -> Iterable[str]:
        """Nodes that somebody is promised from some instant before this one on."""
        nodes: dict[str, None] = {}
        for claim in self.claims.values():
            plan = claim.plan
            if claim.flavor == flavor and (before is None or (plan.start or 0) < before):
                nodes.update((share.node, None) for share in plan.shares)
        return nodes

    def claims_on(self, node: str) -> Mapping[str, tuple[Instant, Instant | None, int]]:
        """Runs that are promised something of a node: from when, until when, how much."""
        line = self.lines.get(node)
        return {} if line is None else line.claims

    # -- nodes --

    def touch(self, node: str) -> None:
        """Something on a node changed, or the node itself."""
        line, row = self._line(node), self.topology.rows.get(node)
        line.base = row.free() if row is not None and row.open else 0
        line.fresh = False
        self._stale[node] = None

    def _line(self, node: str) -> Line:
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

    def low(self, node: str, start: Instant, end: Instant | None, without: Collection[str] = ()) -> int:
        """How much less (or more) a node has, at the worst, in ``[start, end)`` than it has free now.

        ``without``: leases whose end is not counted on, because it is counted already.
        """
        line = self.lines.get(node)
        if line is None:
            return 0
        if without and any(key in without for key in line.releases):
            line = line.less(without)
        return line.low(start, end)

    def place(self, flavor: str, location: Location, pod: int) -> Place:
        """The sums over a location, for pods of one width."""
        pods = self._pods.setdefault(flavor, {1})
        if pod not in pods:
            pods.add(pod)
            for name, row in self.topology.rows.items():
                if row.site is not None and row.site.flavor == flavor:
                    self._stale[name] = None
        self._refresh()
        found = self._places.get((flavor, location))
        return Place(location) if found is None else found

    def _refresh(self) -> None:
        for name in self._stale:
            self._reread(name)
        self._stale.clear()

    def _reread(self, name: str) -> None:
        line, row = self._line(name), self.topology.rows.get(name)
        old, line.shown = line.shown, None
        if row is not None and row.site is not None:
            site = row.site
            where: Domain = (site.flavor, site.location, site.fabric)
            base = row.free() if row.open else None
            line.shown = (where, _sums(line, base, self._pods.get(site.flavor, {1})))
            self._place(where).rows.setdefault(site.fabric, {})[name] = row
        elif row is None and not line.releases and not line.claims:
            del self.lines[name]
        if old is not None and line.shown is not None and old[0] == line.shown[0]:
            self._show(line.shown, less=old)
            return
        if old is not None:
            self._show((old[0], {}), less=old)
            self._forget(name, old[0])
        if line.shown is not None:
            self._show(line.shown, less=(line.shown[0], {}))

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

    def _show(self, shown: Shown, *, less: Shown) -> None:
        """Enter in the sums what a node shows now instead of what it showed before: only what differs is touched."""
        where, sums = shown
        place = self._place(where)
        for pod in sums.keys() | less[1].keys():
            total, domain = place.total(pod), place.domain(where[2], pod)
            for at, step in _differ(sums.get(pod, ()), less[1].get(pod, ())):
                total.add(at, step)
                domain.add(at, step)
            for at, step in _differ(_gains(sums.get(pod, ())), _gains(less[1].get(pod, ()))):
                place.gains(pod).add(at, step)
        place.changed(where[2])


def _gains(steps: Iterable[tuple[Instant, int]]) -> Iterator[tuple[Instant, int]]:
    return ((at, step) for at, step in steps if at and step > 0)


def _differ(new: Iterable[tuple[Instant, int]], old: Iterable[tuple[Instant, int]]) -> Iterator[tuple[Instant, int]]:
    steps = dict(new)
    for at, step in old:
        left = steps.pop(at, 0) - step
        if left:
            yield at, left
    yield from steps.items()


def _sums(line: Line, base: int | None, pods: set[int]) -> dict[int, Steps]:
    """What a node adds to the sums: for each pod width the steps of its level in whole pods."""
    if base is None:
        return {}
    times, levels = line.read()
    sums: dict[int, Steps] = {pod: [] for pod in pods}
    was = dict.fromkeys(pods, 0)
    for at, level in zip(times, levels, strict=True):
        free = max(0, base + level)
        for pod in pods:
            whole = free // pod * pod
            if whole != was[pod]:
                sums[pod].append((at, whole - was[pod]))
                was[pod] = whole
    return sums
