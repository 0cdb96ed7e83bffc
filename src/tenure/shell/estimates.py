"""When those who wait are likely to start: the pure replays of ``engine.estimate``, of the queues of a state (SPEC 7).

A queue is a flavor in a cluster. What it is made of is read from the state: free GPUs, who holds the others and until
when, promises by number, everybody else by age. How long runs really take is the ledger's to say. A run that may go
to several clusters is counted where least is ahead of it for each GPU.

Bands are for people: nothing here is a fact, and no decision reads it. They cost up to a second for ten thousand runs,
so they are kept for a minute. Until bands are stored and compared with real starts, every correction is the first one
(``Correction.learn`` of nothing), which stretches the far end only.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping
from typing import NamedTuple, Protocol

import msgspec

from tenure.api.run import Estimate
from tenure.engine import State
from tenure.engine.cover import Purse, walk
from tenure.engine.demand import Demand
from tenure.engine.estimate import (
    Band,
    Completed,
    Correction,
    History,
    Pool,
    Promised,
    Running,
    Waiting,
    estimate,
)
from tenure.engine.queue.order import WaitingClass, run_of
from tenure.engine.rows import bound_of
from tenure.engine.state import RunRow
from tenure.engine.words import is_hopeless
from tenure.facts import Reservation
from tenure.ledger import CompletedRow
from tenure.units import HOUR, MINUTE, Instant, format_time, parse_duration

KEPT = MINUTE
"""How old bands may be."""
_ALL = 1 << 40
"""More GPUs than there are."""


class Books(Protocol):
    """What is asked of a ledger."""

    def completed(self, owners: Collection[str], *, before: Instant) -> list[CompletedRow]: ...


class Shown(NamedTuple):
    """A band, and when it was made."""

    band: Band
    as_of: Instant

    def to_api(self) -> Estimate:
        """As a status has it, to the second."""
        band = self.band
        likely, latest = (None if at is None else _second(at) for at in (band.likely, band.latest))
        return Estimate(likely_start=likely, latest_likely=latest, as_of=_second(self.as_of), basis=band.basis)


class Estimates:
    """The bands of a fleet's waiting runs, up to a minute old."""

    def __init__(self, books: Books) -> None:
        self._books = books
        self._kept: dict[str, dict[str, Shown]] = {}
        """By flavor: the bands of all that waited for it, and when they were made."""
        self._made: dict[str, Instant] = {}

    def of(self, state: State, *, now: Instant, only: Collection[str] | None = None) -> Mapping[str, Shown]:
        """The bands of all that wait, or of some of them; those who are not free to start have none.

        ``only``: where bands have to be made, just these are made, which is cheaper, and they are not kept.
        """
        rows = None if only is None else [state.runs[key] for key in only if _is_estimated(state, key)]
        flavors = state.queue.flavors() if rows is None else sorted({row.demand.flavor for row in rows})
        found: dict[str, Shown] = {}
        for flavor in flavors:
            wanted = None if rows is None else {row.key for row in rows if row.demand.flavor == flavor}
            known = self._kept[flavor] if 0 <= now - self._made.get(flavor, now + 1) < KEPT else None
            if known is None or not (wanted is None or wanted <= known.keys()):
                known = self._estimate(state, flavor, now, wanted)
                if wanted is None:
                    self._kept[flavor], self._made[flavor] = known, now
            found |= known if wanted is None else {key: one for key, one in known.items() if key in wanted}
        return found

    def _estimate(self, state: State, flavor: str, now: Instant, only: set[str] | None) -> dict[str, Shown]:
        return ask(self._books, state, (flavor,), now=now, only=only).answer()


def _is_estimated(state: State, key: str) -> bool:
    """True of who is in line or holds a promise."""
    row = state.runs.get(key)
    if row is None or is_hopeless(row):
        return False
    return state.queue.is_in_line(key) or key in state.promises.get(row.demand.flavor, ())


class World(NamedTuple):
    """One flavor in one cluster."""

    cluster: str
    pool: Pool
    running: list[Running]
    promised: list[Promised]
    waiting: list[Waiting]

    @property
    def keys(self) -> set[str]:
        """Who waits there."""
        return {run.key for run in self.promised} | {run.key for run in self.waiting}

    @property
    def owners(self) -> set[str]:
        of = [run.owner for run in self.running], [run.owner for run in self.promised]
        return {*of[0], *of[1], *(run.owner for run in self.waiting)}


class Question(NamedTuple):
    """All that bands follow from: plain records, which nobody changes. So it may be answered in another thread."""

    queues: list[World]
    history: History
    now: Instant
    only: Collection[str] | None = None

    def answer(self) -> dict[str, Shown]:
        correction = Correction.learn([], self.now)
        found: dict[str, Shown] = {}
        for one in self.queues:
            bands = estimate(one.pool, one.running, one.promised, one.waiting, self.history, self.now,
                             correction=correction, only=self.only)  # fmt: skip
            found |= {key: Shown(band, self.now) for key, band in bands.items()}
        return found


def ask(
    books: Books, state: State, flavors: Iterable[str], *, now: Instant, only: set[str] | None = None
) -> Question:  # fmt: skip
    """What is to be answered about all who wait for some flavors, or about some of them."""
    queues = [one for flavor in flavors for one in worlds(state, flavor, now=now)
              if only is None or not only.isdisjoint(one.keys)]  # fmt: skip
    owners = {owner for one in queues for owner in one.owners}
    rows = books.completed(sorted(owners), before=now) if owners else []
    return Question(queues, History(Completed(row.owner, row.declared, row.real) for row in rows), now, only)


def worlds(state: State, flavor: str, *, now: Instant) -> Iterator[World]:
    """What is known of each cluster that has GPUs of a flavor."""
    free: dict[str, int] = {}
    for location in state.topology.locations(flavor):
        free[location[1]] = free.get(location[1], 0) + state.topology.pool(flavor, location, ()).free
    holders = _holders(state, flavor)
    promises = sorted(state.promises.get(flavor, {}).values(), key=lambda one: one.turn)
    held = {key: gpus for runs in holders.values() for key, gpus in runs.items()}
    cuts = _cuts(promises, held)
    running = {cluster: list(_running(state, runs, cuts)) for cluster, runs in holders.items()}
    promised: dict[str, list[Promised]] = {}
    for one in promises:
        promised.setdefault(_cluster_of(one), []).append(_promised(state.runs[one.run_key], one))
    size = {cluster: count + sum(run.gpus for run in running.get(cluster, ())) for cluster, count in free.items()}
    lined = [row for age in state.queue.lined(flavor) if not is_hopeless(row := state.runs[run_of(age)])]
    waiting = _dealt(state, lined, size, promised, now=now)
    patience = parse_duration(state.policy.patience)
    for cluster in sorted(free):
        here, there = promised.get(cluster, []), waiting.get(cluster, [])
        yield World(cluster, Pool(free[cluster], patience), running.get(cluster, []), here, there)


# --- who holds GPUs -------------------------------------------------------------------------------------------------


def _holders(state: State, flavor: str) -> dict[str, dict[str, int]]:
    """By cluster: the runs that hold GPUs, and how many. Who sits on a spare holds what is held already."""
    found: dict[str, dict[str, int]] = {}
    rows = state.topology.rows
    for lease in state.leases.values():
        site = rows[lease.node].site if lease.node in rows else None
        if site is not None and site.flavor == flavor and lease.role != "Borrowed":
            runs = found.setdefault(site.cluster, {})
            runs[lease.run_key] = runs.get(lease.run_key, 0) + len(lease.gpus)
    return found


def _running(state: State, held: Mapping[str, int], cuts: Mapping[str, Instant]) -> Iterator[Running]:
    for key, gpus in held.items():
        row = state.runs[key]
        started = row.life.started
        if started is None:
            started = min(lease.start for lease in row.leases.values())
        ends = (row.life.bound, cuts.get(key))
        cut_at = min((at for at in ends if at is not None), default=None)
        yield Running(key, row.demand.owner, gpus, started, row.until, cut_at)


def _cuts(promises: Iterable[Reservation], held: Mapping[str, int]) -> dict[str, Instant]:
    """Who will be gone, and when, for promises that are made by cuts: the likeliest to be drawn, as many as needed."""
    found: dict[str, Instant] = {}
    for one in promises:
        by, missing, odds = bound_of(one), one.forecast.deficit, one.forecast.odds
        if one.confidence != "conservative" or by is None:
            continue
        for run in sorted(odds, key=lambda run: (-float(odds[run]), run)):
            if missing > 0 and run in held and run not in found:
                found[run] = by
                missing -= held[run]
    return found


# --- who waits ------------------------------------------------------------------------------------------------------


def _promised(row: RunRow, one: Reservation) -> Promised:
    gpus = sum(share.gpus for share in one.plan.shares)
    by, start = bound_of(one) or 0, one.plan.start or 0
    opens = start if one.confidence == "window-aligned" else 0
    return Promised(row.key, row.demand.owner, gpus, by, row.demand.duration, opens)


def _dealt(
    state: State, lined: list[RunRow], size: Mapping[str, int], promised: Mapping[str, list[Promised]], *, now: Instant
) -> dict[str, list[Waiting]]:  # fmt: skip
    """Those without a promise, by age, each in the cluster that has least ahead of it for each GPU."""
    work = {cluster: sum(run.gpus * (run.lasts or HOUR) for run in promised.get(cluster, ())) for cluster in size}
    limits: dict[Demand, int] = {}
    alike: dict[WaitingClass, tuple[int, list[str], int]] = {}
    """Of those that differ in how long they take: GPUs, clusters, GPUs that can be paid for."""
    found: dict[str, list[Waiting]] = {}
    for row in lined:
        demand, kind = row.demand, state.queue.class_of(row.key)
        known = alike.get(kind)
        if known is None:
            gpus = demand.need
            places = _places(demand, gpus, size)
            known = alike[kind] = gpus, places, _limit(state, demand, limits, now=now) if places else 0
        gpus, places, limit = known
        if not places:
            continue
        cluster = places[0] if len(places) == 1 else min(places, key=lambda one: work[one] // max(1, size[one]))
        work[cluster] += gpus * (demand.duration or HOUR)
        found.setdefault(cluster, []).append(
            Waiting(row.key, demand.owner, gpus, demand.duration, limit if limit < size[cluster] else None)
        )
    return found


def _places(demand: Demand, gpus: int, size: Mapping[str, int]) -> list[str]:
    """The clusters in which a demand may wait: those that are large enough, if any is."""
    named = dict(demand.selector).get("cluster")
    places = sorted(size) if named is None else [named] if named in size else []
    return [one for one in places if gpus <= size[one]] or places


def _limit(state: State, demand: Demand, known: dict[Demand, int], *, now: Instant) -> int:
    """GPUs that can be paid for at one instant if nobody else spends anything."""
    alike = msgspec.structs.replace(
        demand, widths=range(0), group=0, spares=0, pod=0, duration=None, spread=True, fill=False, selector=()
    )
    if alike not in known:
        payers = [one for one in walk(state.books, state.family, alike, now=now) if one.bar is None]
        purse = Purse(alike, now=now, lookahead=parse_duration(state.policy.lookahead), borrowed=0, rested=True)
        known[alike] = purse.payable(payers, _ALL)
    return known[alike]


def _cluster_of(one: Reservation) -> str:
    return one.plan.domains[0].split("/", 2)[1] if one.plan.domains else ""


def _second(at: Instant) -> str:
    return format_time(at - at % 1_000_000)
