"""Why a start that was promised comes later (SPEC 7): what became of the plan that stood.

Asked when the plan has moved already; the first that is so, of: its nodes, what is still on them, its money, and else
those who were promised a start before it. What is asked for or granted anew by hand is not looked for here: that is an
edit, and who made it knows.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import chain

from tenure.engine.reasons import because
from tenure.engine.state import State
from tenure.facts import Lease, Reservation
from tenure.units import SECOND, Instant, format_time


def cause(state: State, old: Reservation, *, now: Instant) -> str:
    """Why the start of a reservation, as it was planned, is not kept; in words."""
    return next(chain(_nodes(state, old, now), _money(state, old, now)), because("others-first"))


def _nodes(state: State, old: Reservation, now: Instant) -> Iterator[str]:
    for share in old.plan.shares:
        row = state.topology.rows.get(share.node)
        if row is None or not row.open:
            yield because("node-closed", node=share.node)
        for lease in state.leases_on(share.node):
            if lease.run_key != old.run_key and (why := _stays(state, old, lease, now)):
                yield why


def _stays(state: State, old: Reservation, lease: Lease, now: Instant) -> str:
    """Why a lease is still, or again, where the plan counted on room; empty if it is not in the way."""
    run, start = state.runs[lease.run_key], old.plan.start or now
    data = {"run": lease.run_key, "node": lease.node}
    if lease.key in state.ending:
        return because("leaving", **data)
    ends = run.end_of(lease)
    if ends is not None and ends <= now:
        return because("overstays", **data)
    if lease.until is not None and lease.until <= start and ends is not None and ends > start:
        return because("ends-later", at=format_time(ends - ends % SECOND), **data)
    if ends is not None and ends <= start:
        return ""
    if lease.start > old.made:
        return because("swapped" if lease.reason == "Swap" else "went-first", **data)
    if old.confidence == "conservative" and run.life.phase == "Starting":
        return because("starting", **data)
    return ""


def _money(state: State, old: Reservation, now: Instant) -> Iterator[str]:
    for one in old.plan.segments:
        fund = state.books.funds[one.budget, one.envelope]
        if fund.terms is None or not fund.open_at(max(now, old.plan.start or now)):
            yield because("unpaid", envelope=fund.label)
        elif fund.concurrency < one.gpus:
            yield because("lowered", envelope=fund.label, limit=fund.concurrency)
