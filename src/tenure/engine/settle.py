"""After a decision: what is on the agenda of a state that took it over from the ledger (SPEC 1).

Whoever decided has looked at everything that was marked, and told what was worth telling. Looking again would repeat
no decision, but it may find a better reason for a run that waits on, and so write what the other did not.
"""

from __future__ import annotations

from tenure.engine import elastic, money, shortage
from tenure.engine.state import State


def settle(state: State) -> None:
    """Leave the agenda as a step of this instant leaves it that has decided what was folded."""
    agenda = state.agenda
    _fired(state)
    money.settle(state, now=state.now)
    agenda.flavors, agenda.runs = set(), set()
    rows, _ = elastic.due(state)
    elastic.put_down(state, rows, now=state.now)
    agenda.put_off = shortage.put_off(state, now=state.now)
    state.books.announced.clear()
    state.settled = state.now


def _fired(state: State) -> None:
    """Timers that were due have fired. Deadlines and nodes stay: theirs may have been set by the very step, and what
    they bring about can happen only once."""
    agenda = state.agenda
    for at, what, which in agenda.due(state.now):
        if what == "fund":
            budget, _, envelope = which.partition("/")
            agenda.rearm(state.books.funds[budget, envelope])
        elif what == "grow":
            agenda.timed.add(which)
        elif what in ("activate", "countdown"):
            if which in state.reservations:
                state.arm(state.reservations[which])
        elif what == "retry":
            if which in state.runs:
                state.line_up(state.runs[which])
        elif what == "bound":
            pass
        else:
            agenda.wake(at, what, which)
