"""What a waiting run waits for: why it cannot start now, and what its planned start rests on.

Both are asked of the state as it is, for people; nothing is changed, and no decision reads them.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Literal

from msgspec import Struct

from tenure.engine.aside import own_aside
from tenure.engine.plan import Plan
from tenure.engine.starts import safe_plan
from tenure.engine.state import RunRow, State
from tenure.facts import Lease, Reservation, Verdict
from tenure.units import Instant


class Rest(Struct, frozen=True, kw_only=True):
    """One thing that a planned start counts on, and when it is to happen."""

    kind: Literal["run-ends", "reservation-ends", "window-opens"]
    name: str
    """The run (``namespace/name``) or the envelope (``budget/envelope``)."""
    at: Instant
    gpus: int = 0
    """GPUs of the slice, or of its money, that come free by it."""


def verdict_of(state: State, row: RunRow, *, now: Instant) -> Verdict:
    """Why a run cannot start now beside what others were promised; or the plan by which it can."""
    with own_aside(state, row):
        plan = safe_plan(state, row.demand, now=now)
    return plan.verdict if isinstance(plan, Plan) else plan


def rests_on(state: State, one: Reservation, *, now: Instant) -> tuple[Rest, ...]:
    """What the start of a reservation counts on, in the order in which it is to happen.

    Work that is to end on its nodes, and what others were promised there before; if neither is in the way, work that is
    to end and spends the same money; and windows that open then.
    """
    start = one.plan.start
    if start is None or one.state != "Pending":
        return ()
    nodes = sorted({share.node for share in one.plan.shares})
    ends = dict(_ends([lease for node in nodes for lease in state.leases_on(node)], now=now, start=start))
    kept = [*_promised(state, one, set(nodes), now=now, start=start)]
    if not ends and not kept:
        paid = {(part.budget, part.envelope) for part in one.plan.segments}
        leases = [state.leases[key] for key in sorted(state.leases)]
        ends = dict(_ends([one for one in leases if (one.budget, one.envelope) in paid], now=now, start=start))
    found = [
        *(Rest(kind="run-ends", name=name, at=at, gpus=gpus) for (name, at), gpus in ends.items()),
        *kept,
        *_windows(state, one, now=now),
    ]
    return tuple(sorted(found, key=lambda rest: (rest.at, rest.kind, rest.name)))


def _ends(leases: list[Lease], *, now: Instant, start: Instant) -> Iterator[tuple[tuple[str, Instant], int]]:
    gpus: dict[tuple[str, Instant], int] = {}
    for lease in leases:
        if lease.until is not None and now <= lease.until <= start:
            key = (lease.run_key, lease.until)
            gpus[key] = gpus.get(key, 0) + len(lease.gpus)
    yield from gpus.items()


def _promised(state: State, one: Reservation, nodes: set[str], *, now: Instant, start: Instant) -> Iterator[Rest]:
    for key in sorted(state.timeline.claims):
        plan = state.timeline.claims[key].plan
        if key != one.run_key and plan.until is not None and now <= plan.until <= start:
            gpus = sum(share.gpus for share in plan.shares if share.node in nodes)
            if gpus:
                yield Rest(kind="reservation-ends", name=key, at=plan.until, gpus=gpus)


def _windows(state: State, one: Reservation, *, now: Instant) -> Iterator[Rest]:
    gpus: dict[tuple[str, str], int] = {}
    for part in one.plan.segments:
        gpus[part.budget, part.envelope] = gpus.get((part.budget, part.envelope), 0) + part.gpus
    for key in sorted(gpus):
        fund = state.books.funds.get(key)
        if fund is not None and now < fund.start <= (one.plan.start or 0):
            yield Rest(kind="window-opens", name=fund.label, at=fund.start, gpus=gpus[key])
