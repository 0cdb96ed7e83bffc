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
        return self.told(row)[1]

    def told(self, row: RunRow) -> tuple[str, str]:
        """What is to be said about a run, as a code and as a sentence.

        Who waits is told what its reservation says: that is kept up with its plan, while the run's own reason is as it
        was when its code last changed.
        """
        life, one = row.life, self._state.reservations.get(row.key)
        if one is None or not one.reason or not self._waits(row):
            return life.reason, self.fresh(row, life.reason, life.message)
        return one.reason, self.fresh(row, one.reason, one.message)

    def fresh(self, row: RunRow, code: str, text: str) -> str:
        """The sentence of a reason why a run waits in the numbers of now, if it still is the reason."""
        rule = RULES.get(code)
        if rule is None or rule.precedence > _SEARCHED or not self._waits(row):
            return text
        found = self._search(row.demand)
        return text if found is None or found.code != code else sentence(found)

    def _waits(self, row: RunRow) -> bool:
        return row.life.phase == "Pending" and row.life.not_before <= self._now

    def _search(self, demand: Demand) -> Reason | None:
        if demand not in self._found:
            plan = make_plan(self._state.world, demand, now=self._now)
            self._found[demand] = None if isinstance(plan, Plan) else plan.headline
        return self._found[demand]
