"""Why a run waits, in the numbers of this instant.

The ledger keeps the reason as it was when its code last changed (docs/decisions/0010). Whoever shows a run asks here:
the same search is made again, once per distinct demand, and if the reason is the same, its numbers of now are shown.
"""

from __future__ import annotations

from tenure.engine.demand import Demand
from tenure.engine.plan import Plan, make_plan
from tenure.engine.reasons import RULES, sentence
from tenure.engine.state import RunRow, State
from tenure.facts import Reason
from tenure.units import Instant

_SEARCHED = RULES["SpreadForbidden"].precedence
"""Reasons up to this one come from the search for money and machines."""


class Words:
    """What to say about waiting runs at one instant."""

    def __init__(self, state: State, *, now: Instant) -> None:
        self._state = state
        self._now = now
        self._found: dict[Demand, Reason | None] = {}

    def of(self, row: RunRow) -> str:
        """The run's message: of now if it waits, else as it was recorded."""
        life = row.life
        rule = RULES.get(life.reason)
        if life.phase != "Pending" or life.not_before > self._now or rule is None or rule.precedence > _SEARCHED:
            return life.message
        found = self._search(row.demand)
        return life.message if found is None or found.code != life.reason else sentence(found)

    def _search(self, demand: Demand) -> Reason | None:
        if demand not in self._found:
            plan = make_plan(self._state.world, demand, now=self._now)
            self._found[demand] = None if isinstance(plan, Plan) else plan.headline
        return self._found[demand]
