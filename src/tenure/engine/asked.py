"""An operator asks for room now for a run that waits (SPEC 8): what that would take, or why it cannot be.

    found = look(state, row, now=now)       # a dry run: nothing is changed
    declined = ask(turn, "lab/train")       # for real; a Reason if it is not done

Everything is as at a planned start, only sooner: the same steps in the same order, in the domains of one slice, with
the same freeze before a draw. What is promised to others earlier is not touched, and whoever has only just started is
in no draw. A run that could start without a cut is simply looked at again.
"""

from __future__ import annotations

from msgspec import Struct

from tenure.draw import Token
from tenure.engine import activation, aside, resolver
from tenure.engine.activation import Way, may_cut
from tenure.engine.cuts import Trial
from tenure.engine.forecast import Search, slice_of
from tenure.engine.plan import Plan
from tenure.engine.starts import safe_plan
from tenure.engine.state import RunRow, State
from tenure.engine.turn import Turn
from tenure.facts import Cut, Reason, Reservation, Slice
from tenure.units import SECOND, Instant, format_time

_PHASES = {"Starting": "starting", "Running": "running", "Stopping": "stopping", "Completed": "over, completed",
           "Failed": "over, failed"}  # fmt: skip


class Room(Struct, frozen=True, kw_only=True):
    """Room that could be made: who gives way in order, who would be in the draw, and the plan that then binds."""

    subject: str
    """For what: ``Reservation/<namespace>/<name>``."""
    deficit: int
    cuts: tuple[Cut, ...]
    """What gives way without a draw."""
    tokens: tuple[Token, ...] = ()
    """Who is in the draw, if one is needed."""
    odds: dict[str, str] = {}
    """Of each of them to be drawn, as decimal text."""
    victims: tuple[Cut, ...] = ()
    """The fewest that would have to be drawn."""
    freed: int
    """GPUs that come free where the run is to go: with a draw, if it falls on those."""
    plan: Slice


def look(state: State, row: RunRow, *, now: Instant) -> Room | Reason:
    """What the resolver would do for a run now. Nothing is changed."""
    found = _way(state, row, now=now)
    if isinstance(found, Reason):
        return found
    one, way = found
    if isinstance(way, Plan):
        plan = slice_of(way, at=now, duration=row.demand.duration)
        return Room(subject=f"Reservation/{one.key}", deficit=0, cuts=(), freed=0, plan=plan)
    slice_ = slice_of(way.plan, at=now, duration=row.demand.duration)
    with aside.own_aside(state, row, cutting=True):
        forecast = activation.forecast_of(state, row, way, slice_, None, now=now, start=now)
        freed = _freed(state, way)
    return Room(
        subject=f"Reservation/{one.key}", deficit=way.deficit, cuts=way.proposal.cuts, tokens=way.proposal.tokens,
        odds=forecast.odds, victims=way.proposal.victims, freed=freed, plan=slice_,
    )  # fmt: skip


def ask(turn: Turn, key: str) -> Reason | None:
    """Make room for a run now; the reason why not, if it cannot be, and then nobody is cut."""
    state = turn.state
    row = state.runs.get(key)
    if row is None:
        return Reason(code="NotWaiting", data={"run": key, "phase": "not there"})
    found = _way(state, row, now=turn.now)
    if isinstance(found, Reason):
        return found
    one, way = found
    if isinstance(way, Plan):
        state.agenda.run_changed(key)
        return None
    with aside.own_aside(state, row, cutting=True):
        hindered = activation.make_room(turn, row, one, way, trigger="Operator")
    state.agenda.flavors.add(row.demand.flavor)  # who was promised a start later may have counted on what this takes
    return hindered


def _way(state: State, row: RunRow, *, now: Instant) -> tuple[Reservation, Way | Plan] | Reason:
    """How room can be made, or the plan by which the run can start as things are, or why neither can be."""
    life, data = row.life, {"run": row.key}
    if life.phase != "Pending" or life.deleting:
        phase = "being deleted" if life.deleting else _PHASES.get(life.phase, life.phase)
        return Reason(code="NotWaiting", data={**data, "phase": phase})
    if life.not_before > now:
        return Reason(code="Backoff", data={"at": format_time(life.not_before - life.not_before % SECOND)})
    one = state.reservations.get(row.key)
    if one is None:
        return Reason(code="CutBefore" if life.cut else "NoReservation", data={**data})
    if one.state == "Active":
        return Reason(code="MadeAlready", data={**data})
    with aside.own_aside(state, row):
        plan = safe_plan(state, row.demand, now=now)
    if isinstance(plan, Plan):
        return one, plan
    if life.cut:
        return Reason(code="CutBefore", data={**data})
    timeline = state.look_ahead(now)
    with aside.own_aside(state, row), timeline.without(tuple(timeline.overdue)):
        search = Search(state, row.demand, now=now)
        if search.fundable(now) != now:
            return Reason(code="MoneyFirst", data={**data, "short": search.short(now)})
    way = activation.way_now(state, row, one, now=now)
    if way is None:
        return Reason(code="NothingIsEnough", data={**data}) if may_cut(row) else Reason(code="CutsNobody")
    hindered = resolver.hindrance(state, f"Reservation/{one.key}") if way.proposal.tokens else None
    return hindered or (one, way)


def _freed(state: State, way: Way) -> int:
    with Trial(state, way.scope) as trial:
        before = trial.freed
        trial.cuts.extend((*way.proposal.cuts, *way.proposal.victims))
        trial.go(len(trial.cuts))
        return trial.freed - before
