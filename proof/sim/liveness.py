"""I12, the half that no ledger shows: when everything is over, whoever still waits could not run alone either.

A run that waits is taken to a fleet of its own: the same machines as they are now, the same budgets with what the
auditor counts as left of their hours, less what somebody still holds who can never be told to be gone, and nobody else.
If it starts there, it waits in the real one for nothing.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping

import msgspec

from tenure.api.budget import AggregateCap, Budget, Envelope
from tenure.engine import Apply, SetPolicy, State, step
from tenure.units import HOUR, GpuMicros, Instant, parse_time

Held = Counter[tuple[str, str]]
Charges = Mapping[tuple[str, str, Instant | None, Instant | None], GpuMicros]
BUSY = ("Starting", "Running", "Stopping")


def still_busy(state: State) -> list[str]:
    """Runs that are not over though everything should be."""
    return [
        f"I12-liveness: {key} is still {row.life.phase} ({row.life.reason})"
        for key, row in sorted(state.runs.items())
        if row.life.phase in BUSY
    ]


def left_waiting(state: State, charges: Charges, *, now: Instant) -> list[str]:
    """Runs that wait and would run alone, in sentences."""
    waiting = [(key, row) for key, row in sorted(state.runs.items()) if row.life.phase == "Pending"]
    if not waiting:
        return []
    nodes = tuple(row.node for _, row in sorted(state.topology.rows.items()))
    held: Held = Counter()
    for lease in state.leases.values():
        held[lease.budget, lease.envelope] += len(lease.gpus)
    budgets = tuple(_left(one, charges, held) for _, one in sorted(state.budgets.items()))
    spaces = tuple(state.namespaces.values())
    out = []
    for key, row in waiting:
        alone = State("alone")
        step(alone, SetPolicy(state.policy), now=now)
        furnished = step(alone, Apply((*spaces, *nodes, *budgets)), now=now)
        assert not furnished.refused, furnished.refused
        outcome = step(alone, Apply((row.run,)), now=now)
        if key in alone.runs and alone.runs[key].life.phase != "Pending":
            out.append(
                f"I12-liveness: {key} waits ({row.life.reason}: {row.life.message}) with nobody before it, and would "
                f"start alone with {len(alone.runs[key].pods)} pods"
            )
        assert not outcome.refused, outcome.refused
    return out


def _left(budget: Budget, charges: Charges, held: Held) -> Budget:
    """The budget with the hours and the GPUs that are left; what lends by the hour is taken to lend nothing."""
    name = budget.metadata.name
    envelopes = tuple(_rest(name, one, charges, held[name, one.name]) for one in budget.spec.envelopes)
    caps = tuple(_capped(name, one, charges, held) for one in budget.spec.aggregate_caps)
    spec = msgspec.structs.replace(budget.spec, envelopes=envelopes, aggregate_caps=caps)
    return msgspec.structs.replace(budget, spec=spec)


def _capped(budget: str, cap: AggregateCap, charges: Charges, held: Held) -> AggregateCap:
    if cap.max_concurrency is not None:
        busy = sum(held[budget, each] for each in cap.envelopes)
        cap = msgspec.structs.replace(cap, max_concurrency=max(1, cap.max_concurrency - busy))
    if cap.max_gpu_hours is None:
        return cap
    used = sum(hours for (name, each, *_), hours in charges.items() if name == budget and each in cap.envelopes)
    return msgspec.structs.replace(cap, max_gpu_hours=max(0, cap.max_gpu_hours * HOUR - used) // HOUR)


def _rest(budget: str, one: Envelope, charges: Charges, held: int) -> Envelope:
    if held or (one.lending is not None and one.lending.max_gpu_hours is not None):
        one = msgspec.structs.replace(one, lending=None)
    if held:
        one = msgspec.structs.replace(one, concurrency=max(1, one.concurrency - held))
    if one.max_gpu_hours is None:
        return one
    start, end = (None if text is None else parse_time(text) for text in (one.start, one.end))
    used = charges.get((budget, one.name, start, end), 0)
    left = max(0, one.max_gpu_hours * HOUR - used) // HOUR
    return msgspec.structs.replace(one, max_gpu_hours=left)
