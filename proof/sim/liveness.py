"""I12, the half that no ledger shows: when everything is over, whoever still waits could not run alone either.

A run that waits is taken to a fleet of its own: the same machines as they are now, the same budgets with what the
auditor counts as left of their hours, and nobody else. If it starts there, it waits in the real one for nothing.
"""

from __future__ import annotations

from collections.abc import Mapping

import msgspec

from tenure.api.budget import Budget, Envelope
from tenure.engine import Apply, SetPolicy, State, step
from tenure.units import HOUR, GpuMicros, Instant, parse_time

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
    budgets = tuple(_left(one, charges) for _, one in sorted(state.budgets.items()))
    spaces = tuple(state.namespaces.values())
    out = []
    for key, row in waiting:
        alone = State("alone")
        step(alone, SetPolicy(state.policy), now=now)
        step(alone, Apply((*spaces, *nodes, *budgets)), now=now)
        outcome = step(alone, Apply((row.run,)), now=now)
        if key in alone.runs and alone.runs[key].life.phase != "Pending":
            out.append(
                f"I12-liveness: {key} waits ({row.life.reason}: {row.life.message}) with nobody before it, and would "
                f"start alone with {len(alone.runs[key].pods)} pods"
            )
        assert not outcome.refused, outcome.refused
    return out


def _left(budget: Budget, charges: Charges) -> Budget:
    """The budget with the hours that are left; what lends by the hour is taken to lend nothing."""
    envelopes = tuple(_rest(budget.metadata.name, one, charges) for one in budget.spec.envelopes)
    spec = msgspec.structs.replace(budget.spec, envelopes=envelopes)
    return msgspec.structs.replace(budget, spec=spec)


def _rest(budget: str, one: Envelope, charges: Charges) -> Envelope:
    if one.lending is not None and one.lending.max_gpu_hours is not None:
        one = msgspec.structs.replace(one, lending=None)
    if one.max_gpu_hours is None:
        return one
    start, end = (None if text is None else parse_time(text) for text in (one.start, one.end))
    used = charges.get((budget, one.name, start, end), 0)
    left = max(0, one.max_gpu_hours * HOUR - used) // HOUR
    return msgspec.structs.replace(one, max_gpu_hours=left)
