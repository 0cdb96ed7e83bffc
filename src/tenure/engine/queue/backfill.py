"""Who can start now though others were promised a start before: the oldest of each class that fits a hole (SPEC 7).

A class that was refused can start only on something that was gained since, on a node or from an envelope. How long the
nodes that gained something have room for one pod bounds how long a run may take, and the class knows its oldest run
that takes no longer. Only that one is planned for real; a refusal holds for all that take as long, or longer.
"""

from __future__ import annotations

from tenure.engine.queue.changes import NEVER
from tenure.engine.queue.holes import Holes, needs
from tenure.engine.queue.order import ALL, WaitingClass
from tenure.engine.state import State
from tenure.units import FOREVER, Micros


def money_gained(state: State, kind: WaitingClass, since: int) -> bool:
    """True if an envelope that might pay for a class has more than it had."""
    if kind.funds is None:
        return True
    return any(state.changes.fund_number(fund) > since for fund in kind.funds)


def hole_for(state: State, kind: WaitingClass, holes: Holes) -> Micros:
    """How long a run of a class may take to be worth planning; 0 if none is."""
    since = kind.asked
    if state.changes.all_gained(kind.demand.flavor, since):
        kind.forget()
    paid_anew = money_gained(state, kind, since)
    if paid_anew:
        kind.unpaid_from = ALL
    elif kind.line.oldest(within=kind.unpaid_from - 1) is None:
        return kind.unpaid_from - 1  # all that are in line wait for money: machines are not looked at
    if not holes.may_fit(kind.demand):
        kind.refused_from = 1
        return 0
    longest = holes.suffices(kind.demand)
    if not paid_anew and kind.asked != NEVER:
        longest = min(longest, holes.longest(kind.demand, since), kind.unpaid_from - 1)
    if not kind.declares and longest >= needs(state, kind.demand):
        longest = FOREVER  # it starts past promises that are so far off
    return longest


def settle(state: State, kind: WaitingClass, within: Micros, refused: Micros | None) -> None:
    """A class was looked at: who takes as long as the shortest that was refused cannot start now; of who takes no
    longer than the hole, nobody is left but those. What was refused before says nothing of those whom the hole fits."""
    if refused is not None:
        kind.refused_from = refused
    elif within:
        kind.refused_from = max(kind.refused_from, within + 1)
    kind.asked = state.changes.count


def is_refused(state: State, kind: WaitingClass, lasts: Micros) -> bool:
    """True if it is known that a run of a class that takes so long cannot start now."""
    since, flavor = kind.asked, kind.demand.flavor
    return (
        lasts >= kind.refused_from
        and not state.changes.all_gained(flavor, since)
        and not any(True for _ in state.changes.nodes_gained(flavor, since))
        and not money_gained(state, kind, since)
    )
