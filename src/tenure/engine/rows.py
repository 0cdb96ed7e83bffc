"""Rows of the state: a run with what it holds, a pod that is not gone yet, and the queue of those that wait."""

from __future__ import annotations

from bisect import bisect_left, insort
from collections.abc import Iterable, Mapping
from typing import Any

import msgspec

from tenure.api.run import Run
from tenure.engine.bind import Counters
from tenure.engine.demand import compile_demand
from tenure.engine.meters import Meter
from tenure.engine.news import News, QueueKey, is_late
from tenure.facts import Froze, Lease, Life, Pod, PodPhase, Reservation, Slice
from tenure.units import FOREVER, HOUR, MINUTE, SECOND, Instant, Micros, parse_time

GRACE: Micros = 30 * SECOND
"""How late an end may be that was declared, before somebody gives way: real work never ends to the second."""
MILESTONES: tuple[Micros, ...] = (HOUR, 5 * MINUTE)
"""How long before its start a waiting run is told that it comes near."""


class PodRow:
    """A pod that is wanted or not yet gone."""

    __slots__ = ("code", "message", "phase", "pod", "since", "stop")

    def __init__(self, pod: Pod, since: Instant) -> None:
        self.pod = pod
        self.phase: PodPhase = "Placed"
        self.since = since
        self.code: int | None = None
        self.message = ""
        self.stop = False


class RunRow:
    """A Run with its life, its open leases, its pods, and what it has used so far by (class, payer)."""

    __slots__ = ("counters", "demand", "key", "leases", "life", "meters", "name", "namespace", "order", "pods", "run")

    def __init__(self, run: Run, life: Life) -> None:
        created = run.metadata.creation_timestamp
        self.run = run
        self.namespace, self.name = run.metadata.namespace, run.metadata.name
        self.key = f"{self.namespace}/{self.name}"
        self.life = life
        self.demand = compile_demand(run)
        self.counters = Counters()
        self.leases: dict[str, Lease] = {}
        self.pods: dict[str, PodRow] = {}
        self.meters: dict[tuple[str, str], Meter] = {}
        self.order: QueueKey = (parse_time(created) if created else 0, self.namespace, self.name)

    @property
    def until(self) -> Instant | None:
        """When it is to end, if it said how long it takes: when it has worked for so long, so that what it took to bind
        its pods comes on top. But who started past others was let past them for so long and no longer."""
        life, lasts = self.life, self.demand.duration
        if life.until is None or life.started is None or lasts is None or life.backfilled:
            return life.until
        return max(life.until, life.started + lasts)

    def end_of(self, lease: Lease) -> Instant | None:
        """When one of its leases is to end, likewise: no sooner than the lease says, nor than the run does."""
        return None if lease.until is None else max(lease.until, self.until or 0)

    def overstays(self, now: Instant) -> bool:
        """Whether it started past others, and said it would be gone by now. What it took to bind its pods is not its
        fault, as long as that is a moment."""
        life = self.life
        if not life.backfilled or life.until is None:
            return False
        worked = life.until if life.started is None else life.started + (self.demand.duration or 0)
        return max(life.until, min(worked, life.until + GRACE)) <= now

    def active(self) -> int:
        """Width: open GPUs on which the run works; its spares stand by."""
        return sum(len(lease.gpus) for lease in self.leases.values() if lease.role != "Spare")


class Queue:
    """Waiting runs by flavor, oldest first, and by owner."""

    def __init__(self, news: News) -> None:
        """``news``: is told who waits."""
        self._news = news
        self._rows: dict[str, list[QueueKey]] = {}
        self._owners: dict[tuple[str, str], list[QueueKey]] = {}

    def add(self, row: RunRow) -> None:
        self._news.waits(row.key, row.demand.flavor)
        insort(self._rows.setdefault(row.demand.flavor, []), row.order)
        insort(self._owners.setdefault((row.demand.flavor, row.demand.owner), []), row.order)

    def remove(self, row: RunRow) -> None:
        self._news.gone(row.key)
        _discard(self._rows, row.demand.flavor, row.order)
        _discard(self._owners, (row.demand.flavor, row.demand.owner), row.order)

    def waiting(self, flavor: str, *, since: QueueKey | None = None, before: QueueKey | None = None) -> list[str]:
        """Runs that wait for a flavor: all, those from one on, or those before one."""
        rows = self._rows.get(flavor, [])
        first = 0 if since is None else bisect_left(rows, since)
        last = len(rows) if before is None else bisect_left(rows, before)
        return [f"{namespace}/{name}" for _, namespace, name in rows[first:last]]

    def waits(self, flavor: str) -> bool:
        return flavor in self._rows

    def count(self, flavor: str) -> int:
        return len(self._rows.get(flavor, ()))

    def oldest(self, flavor: str) -> Instant:
        """When the oldest run that waits for a flavor was submitted; there is one."""
        return self._rows[flavor][0][0]

    def of_owner(self, flavor: str, owner: str) -> list[str]:
        return [f"{namespace}/{name}" for _, namespace, name in self._owners.get((flavor, owner), ())]

    def flavors(self) -> list[str]:
        return sorted(self._rows)

    def depth(self) -> int:
        return sum(map(len, self._rows.values()))


def _discard(table: dict[Any, list[QueueKey]], key: Any, order: QueueKey) -> None:
    rows = table[key]
    at = bisect_left(rows, order)
    assert rows[at] == order
    del rows[at]
    if not rows:
        del table[key]


def spares_first(leases: Iterable[Lease]) -> list[Lease]:
    """An order in which leases can be held: what sits on a spare comes after it."""
    return sorted(leases, key=lambda lease: (lease.role == "Borrowed", lease.key))


def is_held(one: Reservation, draws: Mapping[str, Froze]) -> bool:
    """Whether what is held for a run is held against everybody: it is being started, and who gives way for it is known.
    While its draw waits for the custodians nothing was freed for it, and who was promised a start before it comes
    first."""
    return one.state == "Active" and not is_drawn_for(one, draws)


def is_drawn_for(one: Reservation, draws: Mapping[str, Froze]) -> bool:
    """Whether the draw of its present activation waits; one of an earlier activation makes room for nobody any more."""
    froze = draws.get(f"Reservation/{one.key}")
    return froze is not None and froze.intent.activation == one.activation


def held(one: Reservation, lasts: Micros | None, *, now: Instant) -> tuple[Slice, Instant]:
    """The slice that is held for a reservation, and until when it is held so: who has not started when it was to will
    end that much later, too.

    Who is being started waits for others to leave, and is given ``GRACE`` for it, and as long again whenever that was
    not enough: what is planned behind it is not in its way when it starts.
    """
    plan, waits = one.plan, is_late(one)
    if plan.start is None or not (waits or plan.start <= now):
        return plan, plan.until or FOREVER
    start = min(plan.start, one.activated) if one.state == "Active" and one.activated is not None else plan.start
    late, slack = max(0, now - start), GRACE
    while slack <= late:
        slack *= 2
    if not lasts:
        return msgspec.structs.replace(plan, start=start, until=None), FOREVER
    if waits:
        return msgspec.structs.replace(plan, start=start, until=start + slack + lasts), start + slack
    until = start + lasts * (late // lasts + 1)
    return msgspec.structs.replace(plan, start=start, until=until), until
