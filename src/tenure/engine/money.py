"""Budget notices and exhaustion (SPEC 3): seen coming, announced once, and never polled for.

For each envelope the next instant that matters is computed from its straight line: the window opens or ends, a share
of the hours is used up, the hours run out, or one of the last two is ``budgetGrace`` away. The same goes for the hours
that it lends, and for those of the caps that bound it. A mark is announced once per account, unless it turned out not
to be so (``notices``).

An envelope that pays for more than it may is short. Time alone makes it so when hours or a window run out: it has been
announced, and is due at that instant. An edit makes it so when a limit is lowered: that is announced then, and due
``budgetGrace`` later. What is due goes on the agenda, for ``shortage``; under ``onBudgetShortage: Coast`` it runs on,
admits nothing more, and shows as over its limit.
"""

from __future__ import annotations

from collections.abc import Iterator

from tenure.engine.books import LENT, AnyLimit, Cap, Fund, Loans
from tenure.engine.notices import cap_marks, marks
from tenure.engine.state import State
from tenure.engine.turn import Turn
from tenure.facts import Reason, Warned
from tenure.units import FOREVER, HOUR, Instant, format_time, parse_duration

_SPENT = "spent its hours"


def arm(turn: Turn) -> None:
    """Of every envelope whose rate or terms changed, announce what is due already, and set the timer."""
    agenda = turn.state.agenda
    while agenda.funds:
        funds, agenda.funds = agenda.funds, {}
        for key in sorted(funds):
            fund = funds[key]
            _announce_due(turn, fund)
            _set_timer(turn.state, fund, turn.now)


def settle(state: State, *, now: Instant) -> None:
    """Set the timers as ``arm`` does, of envelopes of which all is announced and resolved.

    What is short may still wait for runs that could not be drawn: it is looked at once more, and sets its own timer.
    """
    funds, state.agenda.funds = state.agenda.funds, {}
    for fund in funds.values():
        _set_timer(state, fund, now)
    for limit in state.agenda.short:
        state.agenda.wake(now, "short", "/".join(limit))
    state.agenda.short.clear()


def _set_timer(state: State, fund: Fund, now: Instant) -> None:
    ahead = [at for at, _ in marks(fund, state.policy) if at > now]
    ahead += [at for cap in fund.caps for at, _ in cap_marks(cap, state.policy) if at > now]
    ahead += _due(state, fund, now)
    state.agenda.wake(min([*ahead, *_window(fund, now)], default=FOREVER), "fund", fund.label)
    _foresee(state, fund, now)


def _foresee(state: State, fund: Fund, now: Instant) -> None:
    """Where money that runs out ends work, its machines come free then: those who wait count on it.

    Not at the present rate: what is to end before leaves the rest for longer, and nobody may count on money that ends
    work while hours are left.
    """
    if state.foresee(fund, now):
        state.came_free({fund.flavor})


def ring(turn: Turn, fund: Fund) -> None:
    """An instant of this envelope has come: look at who waits for it, and at what is to be announced."""
    turn.state.came_free({fund.flavor})
    for one in turn.state.books.bound_with((fund.key,)):
        turn.state.changes.gain_fund(one.key)
        turn.state.changes.lose_fund(one.key)
    turn.state.agenda.rearm(fund)


def _announce_due(turn: Turn, fund: Fund) -> None:
    for at, mark in sorted(marks(fund, turn.state.policy)):
        if at <= turn.now and fund.total.rate > 0 and mark not in fund.warned:
            _announce(turn, fund, mark)
    for cap in fund.caps:
        for at, mark in sorted(cap_marks(cap, turn.state.policy)):
            if at <= turn.now and mark not in cap.warned:
                warn(turn, cap, mark)
                turn.note("BudgetNotice", f"Budget/{cap.key[0]}", _cap_reason(cap, mark))
    for one in fund.limits:
        if isinstance(one, Loans):
            continue  # to lend less ends nothing
        if one.lowered is None or "lowered" in one.warned or (one.limit, "time") in turn.state.books.crossed:
            continue
        if one.short(turn.now):
            _announce_lowered(turn, one)


def _announce_lowered(turn: Turn, one: Fund | Cap) -> None:
    warn(turn, one, "lowered")
    data: dict[str, int | str] = {"envelope": one.label, "used": one.used, "limit": one.allowed(turn.now)}
    code = "OverBudget"
    if turn.state.policy.on_budget_shortage == "Resolve":
        code, data["at"] = "Lowered", format_time(due(turn.state, one))
    turn.note("BudgetNotice", f"Budget/{one.key[0]}", Reason(code=code, data=data))


def warn(turn: Turn, one: AnyLimit, mark: str) -> None:
    """Remember that something was said."""
    budget, name = one.key
    if isinstance(one, Cap):
        turn.emit(Warned(budget=budget, cap=name, mark=mark))
    else:
        turn.emit(Warned(budget=budget, envelope=name, mark=mark, used=one.funds[0].total.used(turn.now)))


def due(state: State, one: AnyLimit) -> Instant:
    """From when on a shortage is to be resolved: at once, unless an edit brought it about, and time has not since."""
    if one.lowered is None:
        return 0
    if isinstance(one, Loans):
        return FOREVER
    grace = one.lowered + parse_duration(state.policy.budget_grace)
    ran_out = state.books.crossed.get((one.limit, "time"))
    if ran_out is not None:
        return min(grace, ran_out)
    return min([grace, *(end for end in (one.exhausts(), one.bounds.end) if end > one.lowered)])


def _due(state: State, fund: Fund, now: Instant) -> Iterator[Instant]:
    """Put what is short and due on the agenda, and no timer for what is not short; yields when the rest will be due."""
    for one in fund.limits:
        at = due(state, one)
        if one.short(now) and at > now:
            yield at
        elif one.short(now):
            state.agenda.short.add(one.limit)
        else:
            state.agenda.wake(FOREVER, "short", "/".join(one.limit))


def _window(fund: Fund, now: Instant) -> Iterator[Instant]:
    yield from (at for at in fund.window if at > now)


def _cap_reason(cap: Cap, mark: str) -> Reason:
    limit = (cap.hours or 0) // HOUR
    if mark == "soon":
        data = {"envelope": cap.label, "at": format_time(cap.exhausts()), "done": _SPENT}
        return Reason(code="ExhaustsSoon", data=dict(data))
    if mark == "exhausted":
        return Reason(code="Exhausted", data={"envelope": cap.label, "limit": limit})
    return Reason(code="HoursNotice", data={"envelope": cap.label, "percent": mark, "limit": limit})


def _announce(turn: Turn, fund: Fund, mark: str) -> None:
    reason = _reason(fund, mark)
    warn(turn, fund.loans if mark == "lending" else fund, mark)
    turn.note("BudgetNotice", f"Budget/{fund.key[0]}", reason)


def _reason(fund: Fund, mark: str) -> Reason:
    limit = 0 if fund.hours is None else fund.hours // HOUR
    if mark == "soon":
        done = _SPENT if fund.exhausts() <= fund.end else "reached the end of its window"
        data = {"envelope": fund.label, "at": format_time(min(fund.exhausts(), fund.end)), "done": done}
        return Reason(code="ExhaustsSoon", data=dict(data))
    if mark == "exhausted":
        return Reason(code="Exhausted", data={"envelope": fund.label, "limit": limit})
    lent = (fund.lending_hours or 0) // HOUR
    if mark == f"{LENT}soon":
        at = format_time(fund.loans.exhausts())
        return Reason(code="LendingExhaustsSoon", data={"envelope": fund.label, "limit": lent, "at": at})
    if mark == "lending":
        return Reason(code="LendingExhausted", data={"envelope": fund.label, "limit": lent})
    if mark == "window":
        return Reason(code="WindowOver", data={"envelope": fund.label})
    if mark.startswith(LENT):
        percent = mark.removeprefix(LENT)
        return Reason(code="LendingNotice", data={"envelope": fund.label, "percent": percent, "limit": lent})
    return Reason(code="HoursNotice", data={"envelope": fund.label, "percent": mark, "limit": limit})
