"""What a running run holds, by group (SPEC 9, 10): what it is to keep, how wide that is, and which group goes first.

A group that was asked to leave still has leases until its pods are gone; it no longer counts here. Widths are Active
GPUs (those on somebody's spare included), never the run's own spares.
"""

from __future__ import annotations

from tenure.engine.state import RunRow, State
from tenure.facts import Lease


def kept(state: State, row: RunRow) -> list[Lease]:
    """Open leases that are not on their way out, by name."""
    leases = (row.leases[name] for name in sorted(row.leases))
    return [lease for lease in leases if lease.key not in state.ending]


def width(state: State, row: RunRow) -> int:
    return sum(len(lease.gpus) for lease in kept(state, row) if lease.role != "Spare")


def spare_gpus(state: State, row: RunRow) -> dict[int, int]:
    """Spare GPUs of each group, groups without any included."""
    gpus: dict[int, int] = {}
    for lease in kept(state, row):
        gpus[lease.group] = gpus.get(lease.group, 0) + (len(lease.gpus) if lease.role == "Spare" else 0)
    return dict(sorted(gpus.items()))


def wants_spares(state: State, row: RunRow) -> bool:
    """Whether a group of the run lacks spares."""
    return any(have < row.run.spec.spares_per_group for have in spare_gpus(state, row).values())


def desired(row: RunRow) -> int:
    """The width an elastic run is to have."""
    elastic = row.run.spec.malleable
    assert elastic is not None
    return elastic.desired_total_gpus or elastic.max_total_gpus


def shrink_order(state: State, row: RunRow) -> list[int]:
    """Groups in the order in which they are given up: borrowed money first, then the highest index, as a number."""
    leases = kept(state, row)
    borrowed = {lease.group for lease in leases if lease.funding == "borrowed"}
    return sorted({lease.group for lease in leases}, key=lambda group: (group not in borrowed, -group))


def given_up(state: State, row: RunRow, groups: set[int]) -> set[int] | None:
    """These groups and whatever else has to go with them until the width is legal again.

    None if the run is fixed, or would fall below its minimum. All groups of an elastic run are of one size, so the
    width is counted in groups: one that just lost a pod, and is about to get another, counts in full.
    """
    elastic = row.run.spec.malleable
    if elastic is None:
        return None
    gone, order = set(groups), shrink_order(state, row)
    left = row.demand.group * sum(group not in gone for group in order)
    for group in order:
        if (left - elastic.min_total_gpus) % elastic.step_gpus and group not in gone:
            gone.add(group)
            left -= row.demand.group
    return gone if left >= elastic.min_total_gpus else None
