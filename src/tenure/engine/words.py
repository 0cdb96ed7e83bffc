"""Why a run waits: as it was recorded, where it stands in the queue, and, for who asks about one run, in the numbers of
this instant.

The ledger keeps the reason as it was when its code last changed (docs/decisions/0010). Lists show that, and the place
in the queue: both cost next to nothing for each run. Whoever looks at a single run has the same search made again
(``fresh``), and if the reason is the same, its numbers of now are shown.
"""

from __future__ import annotations

from tenure.api.run import QueuePlace
from tenure.engine.cover import Purse, walk
from tenure.engine.demand import Demand
from tenure.engine.node_sets import fund_place, place_of
from tenure.engine.plan import Plan, make_plan
from tenure.engine.reasons import RULES, sentence
from tenure.engine.state import RunRow, State
from tenure.units import Instant, Micros, parse_duration

_SEARCHED = RULES["SpreadForbidden"].precedence
"""Reasons up to this one come from the search for money and machines."""
_MONEY = range(RULES["BorrowLimit"].precedence, RULES["NoEnvelope"].precedence + 1)
_ALL = 1 << 40
"""More GPUs than anybody pays for."""


NO_TIMES = {
    "machines": "Nobody can know when: what is in the way declares no end, and history says nothing.",
    "money": "Nobody can know when: no money for it is in sight.",
}
"""Why the estimate of a run that waits for either has no times."""


def is_hopeless(row: RunRow) -> bool:
    """True if no envelope or no node could ever serve a run, as things are."""
    for mark in row.life.marks:  # noqa: SIM110 -- asked twice of each run of a long list, and half as dear
        if mark.type == "Blocked" and mark.status == "True":
            return True
    return False


class Words:
    """What to say about waiting runs at one instant; shared by who shows many."""

    def __init__(self, state: State, *, now: Instant) -> None:
        self._state = state
        self._now = now
        self._purses: dict[tuple[object, ...], list[tuple[Micros, int]]] = {}
        """By what of a demand its money depends on, width and duration aside: (duration, GPUs that can be paid for so
        long)."""

    def told(self, row: RunRow) -> tuple[str, str]:
        """What is to be said about a run, as a code and as a sentence, as it was recorded.

        Who waits is told what its reservation says: that is kept up with its plan, while the run's own reason is as it
        was when its code last changed.
        """
        life, one = row.life, self._state.reservations.get(row.key)
        if one is None or not one.reason or not self._waits(row):
            return life.reason, life.message
        return one.reason, one.message

    def queue(self, row: RunRow) -> QueuePlace | None:
        """The place of a run that waits without a promise; None for all others: for who is not free to start, and for
        who can never start as things are."""
        state, flavor = self._state, row.demand.flavor
        if not self._waits(row) or not state.queue.is_in_line(row.key) or is_hopeless(row):
            return None
        position = state.queue.position(row.key)
        paid = self.is_paid(row.demand)
        return QueuePlace(
            position=position,
            ahead=position - 1 + len(state.promises.get(flavor, ())),
            waits_for="machines" if paid else "money",
            reason=self._lacks(row, paid=paid),
        )

    def is_paid(self, demand: Demand) -> bool:
        """Whether there is money for a demand now, machines and promises aside.

        Who asks for longer is paid for no more GPUs, so one answer serves many demands that differ in how long they
        take and how wide they are.
        """
        need, lasts = demand.need, demand.duration or 0
        known = self._purses.setdefault(
            (demand.owner, demand.flavor, demand.selector, demand.borrow, demand.max_borrow, demand.sponsors,
             not demand.duration), [],
        )  # fmt: skip
        for asked, gpus in known:
            if asked >= lasts and gpus >= need:
                return True
            if asked <= lasts and gpus < need:
                return False
        gpus = self._payable(demand)
        known.append((lasts, gpus))
        return gpus >= need

    def _payable(self, demand: Demand) -> int:
        """GPUs that can be paid for now, for as long as a demand takes, in the cluster where that is most."""
        state, now = self._state, self._now
        region, cluster, _ = place_of(demand.selector, state.policy)
        payers = [one for one in walk(state.books, state.family, demand, now=now) if one.bar is None]
        places = [(one, one.fund.place or fund_place(one.fund, state.policy)) for one in payers]
        purse = Purse(demand, now=now, lookahead=parse_duration(state.policy.lookahead), borrowed=0)
        found: dict[tuple[int, ...], int] = {}
        for location in state.topology.locations(demand.flavor):
            if region in (None, location[0]) and cluster in (None, location[1]):
                there = [number for number, (_, place) in enumerate(places)
                         if place[0] in (None, location[0]) and place[1] in (None, location[1])]  # fmt: skip
                if tuple(there) not in found:
                    found[tuple(there)] = purse.payable([places[number][0] for number in there], _ALL)
        return max(found.values(), default=0)

    def _lacks(self, row: RunRow, *, paid: bool) -> str:
        """What a run waits for, in words that stay the same for as long as it is so."""
        one, life, demand = self._state.reservations.get(row.key), row.life, row.demand
        if one is not None and one.state == "Blocked" and not paid:
            return one.message
        need = demand.need
        gpus = f"{need} {demand.flavor} GPU{'' if need == 1 else 's'}"
        if not paid:
            rule = RULES.get(life.reason)
            says_so = rule is not None and rule.precedence in _MONEY
            return life.message if says_so else f"Nobody can pay for {gpus} of {demand.owner} now."
        return f"It starts when {gpus} {'comes' if need == 1 else 'come'} free that nobody before it needs."

    # -- one run, in the numbers of now --

    def fresh(self, row: RunRow, code: str, text: str) -> str:
        """The sentence of a reason why a run waits in the numbers of now, if it still is the reason: a dry plan."""
        rule = RULES.get(code)
        if rule is None or rule.precedence > _SEARCHED or not self._waits(row):
            return text
        plan = make_plan(self._state.world, row.demand, now=self._now)
        found = None if isinstance(plan, Plan) else plan.headline
        return text if found is None or found.code != code else sentence(found)

    def told_freshly(self, row: RunRow) -> tuple[str, str]:
        """What is to be said about one run that somebody asks for, in the numbers of now."""
        code, text = self.told(row)
        return code, self.fresh(row, code, text)

    def _waits(self, row: RunRow) -> bool:
        return row.life.phase == "Pending" and row.life.not_before <= self._now
