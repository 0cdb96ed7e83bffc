"""What is set aside while a start is planned: what was promised to the run itself, and to those behind it."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager, nullcontext

import msgspec

from tenure.engine.rows import is_held
from tenure.engine.state import GRACE, RunRow, State
from tenure.engine.topology import Location
from tenure.facts import Reservation, Slice
from tenure.units import FOREVER

Domains = frozenset[tuple[Location, str]]
TARGETS_MAX = 16
"""Domains that are tried for the cheapest cuts."""

STARTS_MAX = 8
"""Later instants that are tried for a start after cuts."""


@contextmanager
def alone(state: State, row: RunRow, one: Reservation) -> Iterator[None]:
    """The same future for a start that is due, as far as it is the first: promises behind it by number are aside, and
    those before it that follow on its slice or its money are put off by as much as it is late."""
    claims = state.timeline.claims
    others = [key for key in claims if key != row.key and not is_held(state.reservations[key], state.draws)]
    behind = [key for key in others if state.reservations[key].turn > one.turn]
    follow = [key for key in others if key not in behind and follows(claims[key].plan, one.plan)]
    end = FOREVER if row.demand.duration is None else state.now + row.demand.duration
    with state.timeline.set_aside(behind), state.timeline.put_off(follow, end), state.timeline.as_promised():
        yield


@contextmanager
def own_aside(
    state: State, row: RunRow, *, behind: Slice | None = None, cutting: bool = False
) -> Iterator[None]:  # fmt: skip
    """Take back what was promised to a run while it is planned; and what is planned ``behind`` what is held for it, on
    the same nodes or money: that moves with it. ``cutting``: also what later promises are to have by cuts."""
    claims, lasts = state.timeline.claims, row.demand.duration
    aside = [key for key in claims if key == row.key or (cutting and _gives_way(state, row, key))]
    later = [
        key
        for key, claim in claims.items()
        if behind is not None
        and key != row.key  # the money of who is aside moves as well
        and not is_held(state.reservations[key], state.draws)
        and follows(claim.plan, behind)
    ]
    for key in aside:
        claim = state.timeline.remove_claim(key)
        if claim is not None and key != row.key:  # its cuts it can have elsewhere, its money stays promised
            state.timeline.add_claim(key, claim.flavor, msgspec.structs.replace(claim.plan, shares=()), claim.period)
    is_due = nullcontext() if behind is None else state.timeline.as_promised()
    try:
        with state.timeline.put_off(later, FOREVER if lasts is None else state.now + lasts), is_due:
            yield
    finally:
        for key in aside:
            if key in state.reservations:
                state.claim(state.reservations[key])


def _gives_way(state: State, row: RunRow, other: str) -> bool:
    """True if a promise was made on cuts, after that of a run: it can have its cuts elsewhere."""
    one = state.reservations[other]
    later = state.rank(state.runs[other]) > state.rank(row)
    return later and one.confidence == "conservative" and one.state == "Pending"


def follows(plan: Slice, other: Slice) -> bool:
    """Whether a plan begins when another is over, on some of the same nodes or money."""
    if plan.start is None or other.until is None or plan.start + GRACE < other.until:
        return False
    nodes, payers = ({one.node for one in other.shares}, {(one.budget, one.envelope) for one in other.segments})
    return any(one.node in nodes for one in plan.shares) or any(
        (one.budget, one.envelope) in payers for one in plan.segments
    )
