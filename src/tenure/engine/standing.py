"""Promises that stand: whether anything happened that could make a planned start earlier, or break it.

A start that was found by a full search is the earliest one. As long as nothing changes that the run could use before
then, and nothing that its slice rests on, a new search would find the same. So a change is looked at first: a node that
gained something matters to a run only if it could hold a pod of it, for the whole time, from some instant before its
start, beside all that was promised earlier. Who has money enough does not care about envelopes at all. Whatever is in
doubt is searched for anew; this never decides anything but that a search would be in vain.
"""

from __future__ import annotations

from collections.abc import Callable
from itertools import islice
from typing import Protocol

from tenure.engine.books import Fund
from tenure.engine.cover import Candidate, Purse
from tenure.engine.forecast import Search
from tenure.engine.future import Ahead
from tenure.engine.levels import Profile
from tenure.engine.lines import Line
from tenure.engine.news import Rank, claims
from tenure.engine.plan import place_of
from tenure.engine.rooms import INSTANT
from tenure.engine.rows import is_held
from tenure.engine.state import HINDERED, RunRow, State
from tenure.engine.topology import matches
from tenure.engine.watch import Known
from tenure.facts import Reservation, Segment, Slice
from tenure.units import FOREVER, Instant, parse_duration

NOWHERE = Slice()
FEW = 128
"""As long as less than one in so many was asked about, it is not worth while to look at all that is promised."""
NODES_MAX = 16
"""If more nodes than that have gained something, a search is as quick as to look at each."""


def may_stand(row: RunRow, one: Reservation, *, now: Instant) -> bool:
    """Whether a promise is of the kind that stands until something changes: a start to come, of the full width, for
    which nobody has to give way."""
    return (
        one.state == "Pending"
        and one.confidence in ("projected", "window-aligned")
        and one.reason not in HINDERED
        and one.plan.start is not None
        and one.plan.start > now
        and one.plan.width == row.demand.widths[0]
        and not row.demand.fill
    )


def found(state: State, row: RunRow, search: Search, paid: Instant) -> None:
    """Keep what a full search has just found of a promise: it starts as early as can be."""
    one = state.reservations.get(row.key)
    if one is None or not may_stand(row, one, now=search.now):
        return
    start = one.plan.start or 0
    rich = paid <= search.now and search.rich(start)
    nodes = frozenset(share.node for share in one.plan.shares)
    funds = search.funds()
    if state.horizon.overdue:
        paid = search.now  # there is more money, or room, as soon as those go
    hours = any(map(_bounds_hours, (state.books.funds[key] for key in funds)))
    state.news.found(row.key, Known(0, start, nodes, funds, paid, rich, hours))


def _bounds_hours(fund: Fund) -> bool:
    return any(hours is not None for hours in (fund.hours, fund.lending_hours, *(cap.hours for cap in fund.caps)))


class Later(Protocol):
    """The claims of runs that are yet to be considered."""

    def promised(self) -> list[tuple[Rank, str]]:
        """Whose claims are laid, and are behind one another."""

    def is_last(self, row: RunRow) -> bool:
        """Whether nothing is laid of what a run stands before."""


class Fleetwide:
    """GPUs of a flavor that will be free anywhere, as each waiting run sees them: behind those that were promised a
    start before it. Never less than there will be."""

    def __init__(self, state: State, flavor: str, later: Later) -> None:
        self._state, self._flavor, self._later = state, flavor, later
        self._promised: list[tuple[Rank, str]] = []
        self._news = -1
        self._asked = 0

    def is_last(self, row: RunRow) -> bool:
        """Whether nothing is laid of what a run stands before."""
        return self._later.is_last(row)

    def _read(self) -> None:
        state, horizon = self._state, self._state.horizon
        self._news, self._promised = state.news.gains(self._flavor), self._later.promised()[:]
        self._free = Profile()
        for place in horizon.places(self._flavor):
            for at, step in horizon.view(place, INSTANT, 1).sums.total.steps():
                self._free.add(at, step)
        self._free.add(0, sum(map(horizon.gpus, horizon.overdue)))
        self._known: dict[str, tuple[Reservation | None, Slice]] = {}
        self._passed: list[Slice] = []
        for _, key in self._promised:
            claim = horizon.claims.get(key)
            if claim is not None:
                self._known[key] = (state.reservations.get(key), claim.plan)
                self._add(claim.plan, 1)

    def holds(self, row: RunRow, rank: Rank, *, since: Instant, before: Instant) -> bool:
        """Whether there will be enough for a run behind those of a lower rank, for the whole time, from some instant
        before another one. For a few runs it is enough to look at what is to happen until then."""
        self._asked += 1
        length, gpus = row.demand.duration, row.demand.shape(row.demand.widths[-1]).gpus
        few = self._asked * FEW < self._state.queue.count(self._flavor)
        free = self._until(rank, since, before + length) if few and length is not None else self._behind(rank)
        first = free.first(gpus, start=since, length=length)
        return first is not None and first < before

    def _until(self, rank: Rank, since: Instant, end: Instant) -> Profile:
        """The same for a span; of what comes after it says nothing."""
        state, horizon = self._state, self._state.horizon
        free = Profile()
        for place in horizon.places(self._flavor):
            level = 0
            for at, now in horizon.view(place, INSTANT, 1).sums.total.part(since, end):
                free.add(at, now - level)
                level = now
        free.add(since, sum(map(horizon.gpus, horizon.overdue)))
        for key in state.news.starting(self._flavor, before=end):
            claim, one = horizon.claims.get(key), state.reservations.get(key)
            if claim is None or one is None or is_held(one, state.draws):
                continue
            if state.rank(state.runs[key]) >= rank:
                gpus = sum(share.gpus for share in claim.plan.shares)
                free.add(max(since, claim.plan.start or 0), gpus)
                if claim.plan.until is not None:
                    free.add(max(since, claim.plan.until), -gpus)
        return free

    def _behind(self, rank: Rank) -> Profile:
        """What is free behind those of a lower rank."""
        if self._news != self._state.news.gains(self._flavor):
            self._read()  # for the first time, or because somebody was cut, or left
        promised, passed = self._promised, self._passed
        while passed and promised[len(passed) - 1][0] >= rank:
            self._add(passed.pop(), 1)
        while len(passed) < len(promised) and promised[len(passed)][0] < rank:
            passed.append(self._plan(promised[len(passed)][1]))
            self._add(passed[-1], -1)
        return self._free

    def _plan(self, key: str) -> Slice:
        one, (known, plan) = self._state.reservations.get(key), self._known.get(key, (None, NOWHERE))
        if one is None:
            return NOWHERE
        return plan if one is known else one.plan if claims(one) else NOWHERE

    def _add(self, plan: Slice, sign: int) -> None:
        gpus = sign * sum(share.gpus for share in plan.shares)
        if plan.start is not None:
            self._free.add(plan.start, gpus)
            if plan.until is not None:
                self._free.add(plan.until, -gpus)


def concerned(state: State, row: RunRow, fleetwide: Fleetwide, *, now: Instant, since: Instant) -> bool:
    """Whether something happened that may concern the promise of a run, so that it has to be looked at.

    ``since``: it is known that it cannot start before.
    """
    one, known = state.reservations.get(row.key), state.news.known(row.key)
    if known is None or one is None or one.plan.start is None or not may_stand(row, one, now=now):
        return True
    rank, marks = state.rank(row), state.news.marks(row.demand.flavor, known)
    if not marks:
        return False
    spent = False
    for fund in known.funds:
        if not known.rich and (mark := marks.get(("", fund, True))) is not None and mark.concerns(known, rank):
            return True
        if (mark := marks.get(("", fund, False))) is not None and mark.concerns(known, rank):
            spent = spent or known.hours or known.start < mark.before
    lost = set[str]()
    for node in known.nodes:
        if (mark := marks.get((node, None, False))) is not None and mark.concerns(known, rank):
            lost.update((node,) if known.start < mark.before else ())
    gained = list(islice(state.news.gained(row.demand.flavor, known, rank), NODES_MAX + 1))
    if not (gained or lost or spent):
        return False
    behind_it = _Behind(state, row, now, fleetwide.is_last)
    if spent and not all(behind_it.pays(part, one) for part in one.plan.segments):  # they may share a cap
        return True
    if any(not behind_it.keeps(share.node, share.gpus, one) for share in one.plan.shares if share.node in lost):
        return True
    since = max(now, since, known.paid)
    if since >= one.plan.start or not gained:
        return False
    if not fleetwide.holds(row, rank, since=since, before=one.plan.start):
        return False
    return len(gained) > NODES_MAX or any(behind_it.holds(node, since, one.plan.start) for node in sorted(gained))


class _Behind:
    """The known future as one run sees it: behind those that were promised a start before it."""

    def __init__(self, state: State, row: RunRow, now: Instant, is_last: Callable[[RunRow], bool]) -> None:
        self._state, self._row, self._now = state, row, now
        self._is_last = is_last
        self._rank = state.rank(row)
        self._shape = row.demand.shape(row.demand.widths[-1])
        self._place = place_of(row.demand.selector, state.policy)

    def _line(self, node: str, before: Instant) -> Line:
        """A node, as far as it will be looked at."""
        horizon = self._state.horizon
        as_laid = not horizon.overdue and self._is_last(self._row)
        return horizon.line(node) if as_laid else horizon.among(node, self._counts, before=before)

    def _counts(self, run: str) -> bool:
        state = self._state
        if run == self._row.key:
            return False
        return is_held(state.reservations[run], state.draws) or state.rank(state.runs[run]) < self._rank

    def holds(self, node: str, since: Instant, before: Instant) -> bool:
        """Whether a node could hold a pod for the whole time, from some instant before the planned start."""
        row, (region, cluster, finer) = self._state.topology.rows.get(node), self._place
        if row is None or not row.open or row.site is None or row.site.flavor != self._row.demand.flavor:
            return False
        if region not in (None, row.site.location[0]) or cluster not in (None, row.site.location[1]):
            return False
        if not matches(finer, row.labels):
            return False
        length = self._row.demand.duration
        line = self._line(node, FOREVER if length is None else before + length)
        first = line.first(self._shape.pod, since=since, length=length)
        return first is not None and first < before

    @property
    def _is_laid(self) -> bool:
        """Whether what it is promised is laid, and so all that was promised before."""
        return self._row.key in self._state.horizon.claims

    def keeps(self, node: str, gpus: int, one: Reservation) -> bool:
        """Whether a node will still have what it is to give: it does if it has enough for all, whoever was promised it
        later included."""
        row, start, until = self._state.topology.rows.get(node), one.plan.start or 0, one.plan.until
        if row is None or not row.open:
            return False
        line, overdue = self._state.horizon.line(node), self._state.horizon.overdue
        gone = sum(map(self._state.horizon.gpus, overdue.keys() & row.leases)) if overdue else 0
        if self._is_laid and not line.cutting and line.base + gone + line.low(start, until) >= 0:
            return True
        line = self._line(node, FOREVER if until is None else until)
        return line.base + line.low(start, until) >= gpus

    def pays(self, part: Segment, one: Reservation) -> bool:
        """Whether an envelope has so much to spare, beside all that is promised, that it can pay as planned."""
        state, start = self._state, one.plan.start or 0
        fund = state.books.funds[part.budget, part.envelope]
        simple = part.funding != "borrowed" and not fund.caps and not _bounds_hours(fund)
        if (
            simple
            and self._is_laid
            and fund.concurrency >= -state.horizon.money[fund.key].total.low(start, one.plan.until)
        ):
            return True  # also for all who were promised something later
        ahead = Ahead(state.horizon, now=self._now, at=start, length=None, since=self._now)
        lookahead = parse_duration(state.policy.lookahead)
        purse = Purse(self._row.demand, now=start, lookahead=lookahead, borrowed=0, ahead=ahead)
        return purse.room(Candidate(1, "owner", fund, part.funding, None)) >= part.gpus
