"""What the state says at one instant, as numbers. Nothing is remembered, so a series is gone when its object is.

The cost is that of one look at everything open: whoever owns the state pays it once for each scrape.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator

from tenure.engine.books import Cap, Fund, FundKey
from tenure.engine.groups import desired, width
from tenure.engine.state import State
from tenure.engine.topology import slots
from tenure.observe.table import OTHER, SERIES_MAX, Labels
from tenure.units import HOUR, LATEST, SECOND, GpuMicros, Instant

Sample = tuple[str, Labels, float]
"""(metric, values of its labels, value)"""


def samples(state: State, *, now: Instant) -> Iterator[Sample]:
    """Every gauge, and what is counted in the state itself."""
    for part in _PARTS:
        yield from part(state, now)


def _reservations(state: State, now: Instant) -> Iterator[Sample]:
    flavor = _flavors(state)
    states = Counter(one.state for one in state.reservations.values())
    for name in ("Pending", "Blocked", "Active"):
        yield "reservation_backlog", (name,), states[name]
    starts: dict[str, list[Instant]] = {}
    for key, one in state.reservations.items():
        if one.plan.start is not None:
            starts.setdefault(state.runs[key].demand.flavor, []).append(one.plan.start)
    shown: dict[str, list[Instant]] = {}
    for name, some in starts.items():
        shown.setdefault(flavor(name), []).extend((min(some), max(some)))
    for name, some in sorted(shown.items()):
        yield "reservation_countdown_seconds", (name, "next"), max(0, min(some) - now) / SECOND
        yield "reservation_countdown_seconds", (name, "last"), max(0, max(some) - now) / SECOND


def _runs(state: State, now: Instant) -> Iterator[Sample]:
    flavor, phases = _flavors(state), Counter(row.life.phase for row in state.runs.values())
    for phase in ("Pending", "Starting", "Running", "Stopping", "Completed", "Failed"):
        yield "runs", (phase,), phases[phase]
    depth = dict.fromkeys(state.topology.flavors(), 0)
    oldest = dict.fromkeys(depth, now)
    for name in state.queue.flavors():
        shown = flavor(name)
        depth[shown] = depth.get(shown, 0) + state.queue.count(name)
        oldest[shown] = min(oldest.get(shown, now), state.queue.oldest(name))
    for name, count in sorted(depth.items()):
        yield "run_queue_depth", (name,), count
        yield "run_queue_age_seconds", (name,), max(0, now - oldest[name]) / SECOND


def _leases(state: State, now: Instant) -> Iterator[Sample]:
    flavor, roles = _flavors(state), ("Active", "Spare", "Borrowed")
    gpus: Counter[tuple[str, str]] = Counter()
    lent: Counter[Labels] = Counter()
    count: Counter[str] = Counter()
    for lease in state.leases.values():
        count[lease.role] += 1
        gpus[flavor(state.runs[lease.run_key].demand.flavor), lease.role] += len(lease.gpus)
        if lease.funding == "borrowed":
            lent[lease.payer, lease.owner] += len(lease.gpus)
    for role in roles:
        yield "leases_open", (role,), count[role]
    for name in sorted({*state.topology.flavors(), *(name for name, _ in gpus)}):
        for role in roles:
            yield "gpus_leased", (name, role), gpus[name, role]
        yield "spare_gpus_allocated", (name,), gpus[name, "Spare"]
        yield "spare_gpus_active", (name,), gpus[name, "Borrowed"]
    for labels, held in bounded(lent).items():
        yield "borrowed_gpus_current", labels, held


def _elastic(state: State, now: Instant) -> Iterator[Sample]:
    flavor = _flavors(state)
    total: Counter[tuple[str, str]] = Counter()
    for key in (key for keys in state.takers.values() for key in keys):
        row = state.runs[key]
        if row.run.spec.malleable is not None:
            name = flavor(row.demand.flavor)
            total[name, "min"] += row.run.spec.malleable.min_total_gpus
            total[name, "allocated"] += width(state, row)
            total[name, "desired"] += desired(row)
    for name in sorted({*state.topology.flavors(), *(name for name, _ in total)}):
        for which in ("min", "allocated", "desired"):
            yield "elastic_width_gpus", (name, which), total[name, which]


def _machines(state: State, now: Instant) -> Iterator[Sample]:
    rows = state.topology.rows.values()
    standing = Counter("quarantined" if row.fault else "open" if row.open else "closed" for row in rows)
    for name in ("open", "closed", "quarantined"):
        yield "nodes", (name,), standing[name]
    capacity = dict.fromkeys(state.topology.flavors(), 0)
    for row in rows:
        if row.site is not None and row.open and not row.fault:
            capacity[row.site.flavor] += row.gpus
    for name, gpus in capacity.items():
        yield "gpus_capacity", (name,), gpus
        yield from _slots(state, name)


def _slots(state: State, flavor: str) -> Iterator[Sample]:
    """Sums over the domains of a location; sizes that no domain has room for have no series."""
    for location in state.topology.locations(flavor):
        fit: Counter[int] = Counter()
        ideal: Counter[int] = Counter()
        for sizes in slots(state.topology.pool(flavor, location, ())).values():
            for one in sizes:
                fit[one.size] += one.fit
                ideal[one.size] += one.ideal
        for size in sorted(ideal):
            yield "slots_fit", (flavor, *location, str(size)), fit[size]
            yield "slots_ideal", (flavor, *location, str(size)), ideal[size]


def _budgets(state: State, now: Instant) -> Iterator[Sample]:
    committed: Counter[FundKey] = Counter()
    for lease in state.leases.values():
        if lease.until is not None:
            committed[lease.budget, lease.envelope] += len(lease.gpus) * max(0, lease.until - now)
    for key, fund in sorted(state.books.funds.items()):
        if fund.terms is not None or fund.used:  # one that was taken back shows as long as it pays for something
            yield from _fund(fund, committed[key], now)
    for _, caps in sorted(state.books.caps.items()):
        for cap in caps:
            yield from _cap(cap, now)


def _fund(fund: Fund, committed: GpuMicros, now: Instant) -> Iterator[Sample]:
    labels, used = (*fund.key, fund.flavor), fund.total.used(now)
    yield "budget_gpus_used", labels, fund.used
    yield "budget_gpus_limit", labels, fund.concurrency
    yield "budget_gpus_headroom", labels, fund.concurrency - fund.used
    yield "budget_gpu_hours_used", labels, used / HOUR
    yield "budget_gpu_hours_committed", labels, committed / HOUR
    if fund.hours is not None:
        yield "budget_gpu_hours_limit", labels, fund.hours / HOUR
        yield "budget_gpu_hours_headroom", labels, max(0, fund.hours - used - committed) / HOUR
    ends = min(fund.exhausts(), fund.end)
    if fund.used and ends <= LATEST:
        yield "budget_exhausts_seconds", labels, max(0, ends - now) / SECOND
    if fund.lends_to or fund.lent.used(now):
        yield "borrowed_gpu_hours_total", labels, fund.lent.used(now) / HOUR


def _cap(cap: Cap, now: Instant) -> Iterator[Sample]:
    labels = (*cap.key, cap.funds[0].flavor)
    yield "budget_cap_gpus_used", labels, cap.used
    if cap.concurrency is not None:
        yield "budget_cap_gpus_limit", labels, cap.concurrency
    yield "budget_cap_gpu_hours_used", labels, sum(fund.total.used(now) for fund in cap.funds) / HOUR
    if cap.hours is not None:
        yield "budget_cap_gpu_hours_limit", labels, cap.hours / HOUR


def _draws(state: State, now: Instant) -> Iterator[Sample]:
    yield "resolver_draws_waiting", (), len(state.draws)


_PARTS: tuple[Callable[[State, Instant], Iterable[Sample]], ...] = (
    _reservations, _runs, _leases, _machines, _draws, _elastic, _budgets
)  # fmt: skip


def _flavors(state: State) -> Callable[[str], str]:
    """A flavor as a label: runs may ask for anything, so only those that nodes or envelopes have are told apart."""
    known = {*state.topology.flavors(), *(fund.flavor for fund in state.books.funds.values())}
    return lambda name: name if name in known else OTHER


def bounded(values: Counter[Labels], most: int = SERIES_MAX) -> dict[Labels, int]:
    """The largest of them, and the rest as one.

    >>> bounded(Counter({("a", "x"): 5, ("b", "y"): 2, ("c", "z"): 1}), most=2)
    {('a', 'x'): 5, ('other', 'other'): 3}
    """
    if len(values) <= most:
        return dict(values)
    ranked = sorted(values.items(), key=lambda item: (-item[1], item[0]))
    kept = dict(ranked[: most - 1])
    rest = (OTHER,) * len(ranked[0][0])
    kept[rest] = kept.get(rest, 0) + sum(value for _, value in ranked[most - 1 :])
    return kept
