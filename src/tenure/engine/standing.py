"""Promises that stand: whether anything happened that could make a planned start earlier, or break it.

A start that was found by a full search is the earliest one. As long as nothing changes that the run could use before
then, and nothing that its slice rests on, a new search would find the same. So a change is looked at first: a node that
gained something matters to a run only if it could hold a pod of it, for the whole time, from some instant before its
start, beside all that was promised earlier. Who has money enough does not care about envelopes at all. Whatever is in
doubt is searched for anew; this never decides anything but that a search would be in vain.
"""

from __future__ import annotations

from tenure.engine.cover import Candidate, Purse
from tenure.engine.forecast import Search
from tenure.engine.future import Ahead
from tenure.engine.levels import Profile
from tenure.engine.lines import Line
from tenure.engine.news import Known, Rank, claims
from tenure.engine.plan import place_of
from tenure.engine.rooms import INSTANT
from tenure.engine.rows import is_held
from tenure.engine.state import HINDERED, RunRow, State
from tenure.engine.topology import matches
from tenure.facts import Reservation, Segment, Slice
from tenure.units import Instant, parse_duration

NOWHERE = Slice()
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
    state.news.found(row.key, row.demand.flavor,
                     Known(0, nodes, search.funds(), search.now if state.horizon.overdue else paid, rich))  # fmt: skip


class Fleetwide:
    """GPUs of a flavor that will be free anywhere, as each waiting run sees them: behind those that were promised a
    start before it. Never less than there will be."""

    def __init__(self, state: State, flavor: str, promised: list[tuple[Rank, str]]) -> None:
        """``promised``: whose claims are laid, and are behind one another."""
        self._state, self._flavor, self._promised = state, flavor, promised
        self._news = -1

    def _read(self) -> None:
        state, horizon = self._state, self._state.horizon
        self._news = state.news.gains(self._flavor)
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

    def behind(self, rank: Rank) -> Profile:
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


def concerned(
    state: State, row: RunRow, fleetwide: Fleetwide, *, now: Instant, since: Instant, last: bool
) -> bool:  # fmt: skip
    """Whether something happened that may concern the promise of a run, so that it has to be looked at.

    ``since``: it is known that it cannot start before. ``last``: nothing is laid of what it stands before.
    """
    one, known = state.reservations.get(row.key), state.news.known(row.key)
    if known is None or one is None or one.plan.start is None or not may_stand(row, one, now=now):
        return True
    marks = state.news.since(row.demand.flavor, known)
    if not marks:
        return False
    rank = state.rank(row)
    gained, lost, spent = set(), set(), False
    for node, fund, gain, behind in marks:
        if behind >= rank:
            continue
        if fund is None:
            if gain:
                gained.add(node)
            elif node in known.nodes:
                lost.add(node)
        elif fund in known.funds:
            if gain and not known.rich:
                return True
            spent = spent or not gain
    behind_it = _Behind(state, row, now, last=last)
    if spent and not all(behind_it.pays(part, one) for part in one.plan.segments):  # they may share a cap
        return True
    if any(not behind_it.keeps(share.node, share.gpus, one) for share in one.plan.shares if share.node in lost):
        return True
    since = max(now, since, known.paid)
    if since >= one.plan.start or not gained:
        return False
    gpus = row.demand.shape(row.demand.widths[-1]).gpus
    first = fleetwide.behind(rank).first(gpus, start=since, length=row.demand.duration)
    if first is None or first >= one.plan.start:
        return False
    return len(gained) > NODES_MAX or any(behind_it.holds(node, since, one.plan.start) for node in sorted(gained))


class _Behind:
    """The known future as one run sees it: behind those that were promised a start before it."""

    def __init__(self, state: State, row: RunRow, now: Instant, *, last: bool) -> None:
        self._state, self._row, self._now = state, row, now
        self._as_laid = last and not state.horizon.overdue
        self._rank = state.rank(row)
        self._shape = row.demand.shape(row.demand.widths[-1])
        self._place = place_of(row.demand.selector, state.policy)

    def _line(self, node: str) -> Line:
        horizon = self._state.horizon
        return horizon.line(node) if self._as_laid else horizon.among(node, self._counts)

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
        line = self._line(node)
        first = line.first(self._shape.pod, since=since, length=self._row.demand.duration)
        return first is not None and first < before

    def keeps(self, node: str, gpus: int, one: Reservation) -> bool:
        """Whether a node will still have what it is to give."""
        row = self._state.topology.rows.get(node)
        line = self._line(node)
        return row is not None and row.open and line.base + line.low(one.plan.start or 0, one.plan.until) >= gpus

    def pays(self, part: Segment, one: Reservation) -> bool:
        """Whether an envelope has so much to spare, beside all that is promised, that it can pay as planned."""
        state, start = self._state, one.plan.start or 0
        fund = state.books.funds[part.budget, part.envelope]
        ahead = Ahead(state.horizon, now=self._now, at=start, length=None, since=self._now)
        lookahead = parse_duration(state.policy.lookahead)
        purse = Purse(self._row.demand, now=start, lookahead=lookahead, borrowed=0, ahead=ahead)
        return purse.room(Candidate(1, "owner", fund, part.funding, None)) >= part.gpus
