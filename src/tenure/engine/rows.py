"""Rows of the state: a run with what it holds, a pod that is not gone yet, and what a reservation holds."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

import msgspec

from tenure.api.run import Run
from tenure.engine.bind import Counters
from tenure.engine.demand import compile_demand
from tenure.engine.meters import Meter
from tenure.engine.timeline.timeline import GRACE
from tenure.facts import Froze, Lease, Life, Pod, PodPhase, Reservation, Slice
from tenure.units import FOREVER, HOUR, MINUTE, Instant, Micros, parse_time

HINDERED = ("NoCustodian", "DrawWaits", "EndsLate")
"""Reasons why a start that is due is not made yet."""
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

    __slots__ = (
        "asked", "counters", "demand", "key", "leases", "life", "meters", "name", "namespace", "order", "pods", "run",
    )  # fmt: skip

    def __init__(self, run: Run, life: Life, *, asked: Instant | None = None) -> None:
        """``asked``: since when it asks for what it asks for, if that is not what it was created with."""
        self.run = run
        self.namespace, self.name = run.metadata.namespace, run.metadata.name
        self.key = f"{self.namespace}/{self.name}"
        self.life = life
        self.demand = compile_demand(run)
        self.counters = Counters()
        self.leases: dict[str, Lease] = {}
        self.pods: dict[str, PodRow] = {}
        self.meters: dict[tuple[str, str], Meter] = {}
        self.ask_since(asked)

    def ask_since(self, asked: Instant | None) -> None:
        """A changed demand counts from its change."""
        created = self.run.metadata.creation_timestamp
        since = asked if asked is not None else parse_time(created) if created else 0
        self.asked, self.order = asked, (since, self.namespace, self.name)
        """The age of the run in the queue."""

    @property
    def until(self) -> Instant | None:
        """When it is to end, if it said how long it takes: when it has worked for so long, so that what it took to bind
        its pods comes on top. But who started past others was let past them for so long and no longer."""
        life, lasts = self.life, self.demand.duration
        if life.until is None or life.started is None or lasts is None or life.backfilled:
            return life.until
        return max(life.until, life.started + lasts)

    @property
    def declared(self) -> Instant | None:
        """The end that its leases are given: none, if it declares none and was let past others for so long."""
        return None if self.life.bound is not None else self.life.until

    def end_of(self, lease: Lease) -> Instant | None:
        """When one of its leases is to end, likewise: no sooner than the lease says, nor than the run does."""
        return self.life.bound if lease.until is None else max(lease.until, self.until or 0)

    def overstays(self, now: Instant) -> bool:
        """Whether it started past others, and said it would be gone by now. What it took to bind its pods is not its
        fault, as long as that is a moment."""
        life = self.life
        if life.bound is not None:
            return life.bound <= now
        if not life.backfilled or life.until is None:
            return False
        worked = life.until if life.started is None else life.started + (self.demand.duration or 0)
        return max(life.until, min(worked, life.until + GRACE)) <= now

    def active(self) -> int:
        """Width: open GPUs on which the run works; its spares stand by."""
        leases = self.leases.values()
        return sum([len(lease.gpus) for lease in leases if lease.role != "Spare"]) if leases else 0


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

    Who is being started waits for others to leave. ``GRACE`` of that breaks nothing; who is later is given twice as
    long, and as long again whenever that was not enough: what is planned behind it is not in its way when it starts.
    """
    plan, waits, by = one.plan, is_late(one), bound_of(one)
    if plan.start is None or by is None:
        return plan, plan.until or FOREVER
    if not (waits or by <= now):
        until = by + lasts if lasts else None
        same = (by, until) == (plan.start, plan.until)
        return plan if same else msgspec.structs.replace(plan, start=by, until=until), by + 1
    late, slack = max(0, now - by), _slack(now - by)
    if not lasts:
        return msgspec.structs.replace(plan, start=by, until=None), FOREVER
    if waits:
        until = by + lasts + (slack if late > GRACE else 0)
        return msgspec.structs.replace(plan, start=by, until=until), by + slack
    return msgspec.structs.replace(plan, start=by, until=now + lasts), now + 1


def late_since(one: Reservation, *, now: Instant) -> Instant:
    """As of when a start that is due counts for those behind it: as if it were made when its slice was last held for
    longer, so that they are judged alike until it is held for longer again."""
    by = bound_of(one) or now
    if not is_late(one):
        return max(by, now)
    slack = _slack(now - by)
    return by + (slack // 2 if slack > GRACE else 0)


def _slack(late: Micros) -> Micros:
    """The first of ``GRACE``, twice that, twice that again, and so on that is more than so much."""
    slack = GRACE
    while slack <= late:
        slack *= 2
    return slack


def bound_of(one: Reservation) -> Instant | None:
    """When a promise is due at the latest."""
    return one.plan.start if one.by is None else one.by


def claims(one: Reservation) -> bool:
    """True if a reservation protects something: a promise."""
    return one.state in ("Pending", "Active") and one.plan.start is not None


def names(one: Reservation) -> set[str]:
    """Runs that may be cut for a promise."""
    is_cutting = one.confidence == "conservative" or one.state == "Active"
    return {*one.forecast.odds, *(cut.run for cut in one.forecast.remedies)} if is_cutting else set()


def named(one: Reservation, draws: Mapping[str, Froze]) -> set[str]:
    """Those of them who count as gone for whoever is planned behind it: all until its start is made, and those in its
    draw while that waits. Of a start that is made without a draw nobody goes but who was told to."""
    counts = (one.confidence, one.state) == ("conservative", "Pending") or is_drawn_for(one, draws)
    return names(one) if counts else set()


def is_late(one: Reservation) -> bool:
    """True if a start is due and waits for others to leave: what is held for it lasts for longer than was planned."""
    return one.state == "Active" or one.reason in HINDERED
