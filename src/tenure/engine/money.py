"""Budget notices and exhaustion (SPEC 3): seen coming, announced once, and never polled for.

For each envelope the next instant that matters is computed from its straight line: the window opens or ends, a share
of the hours is used up, the hours run out, or one of the last two is ``budgetGrace`` away. A mark is announced once
per account. Until the resolver is there, an exhausted envelope is announced, admits nothing more, and shows as over
its limit.
"""

from __future__ import annotations

from collections.abc import Iterator

from tenure.api.policy import Policy
from tenure.engine.books import Fund, reaches
from tenure.engine.turn import Turn
from tenure.facts import Reason, Warned
from tenure.units import FOREVER, HOUR, Instant, format_time, parse_duration


def arm(turn: Turn) -> None:
    """Of every envelope whose rate or terms changed, announce what is due already, and set the timer."""
    agenda = turn.state.agenda
    while agenda.funds:
        funds, agenda.funds = agenda.funds, {}
        for key in sorted(funds):
            fund = funds[key]
            _announce_due(turn, fund)
            ahead = [at for at, _ in _marks(fund, turn.state.policy) if at > turn.now]
            ahead += [at for cap in fund.caps if (at := cap.exhausts()) > turn.now]
            agenda.wake(min([*ahead, *_window(fund, turn.now)], default=FOREVER), "fund", fund.label)


def ring(turn: Turn, fund: Fund) -> None:
    """An instant of this envelope has come: announce what is due, and look at who waits for it."""
    _announce_due(turn, fund)
    turn.state.agenda.machines_changed({fund.flavor})
    turn.state.agenda.rearm(fund)


def _announce_due(turn: Turn, fund: Fund) -> None:
    for at, mark in sorted(_marks(fund, turn.state.policy)):
        if at <= turn.now and fund.total.rate > 0 and mark not in fund.warned:
            _announce(turn, fund, mark)
    for cap in fund.caps:
        if cap.exhausts() <= turn.now and "exhausted" not in cap.warned:
            turn.emit(Warned(budget=fund.key[0], cap=cap.key[1], mark="exhausted"))
            limit = (cap.hours or 0) // HOUR
            turn.note(
                "BudgetNotice",
                f"Budget/{fund.key[0]}",
                Reason(code="Exhausted", data={"envelope": cap.label, "limit": limit}),
            )


def _window(fund: Fund, now: Instant) -> Iterator[Instant]:
    yield from (at for at in fund.window if at > now)


def _marks(fund: Fund, policy: Policy) -> Iterator[tuple[Instant, str]]:
    """Instants at which something is to be said, at the present rate."""
    if fund.terms is None:
        return
    grace = parse_duration(policy.budget_grace)
    ends = fund.exhausts()
    for percent in policy.notices:
        if fund.hours is not None and percent < 100:
            yield reaches(fund.hours * percent // 100, fund.total), str(percent)
    soon = min(ends, fund.end)
    if soon < FOREVER:
        yield soon - grace, "soon"
    if ends < FOREVER:
        yield ends, "exhausted"
    if fund.end < FOREVER:
        yield fund.end, "window"
    lent = reaches(fund.lending_hours, fund.lent)
    if lent < FOREVER:
        yield lent, "lending"


def _announce(turn: Turn, fund: Fund, mark: str) -> None:
    reason = _reason(fund, mark)
    turn.emit(Warned(budget=fund.key[0], envelope=fund.key[1], mark=mark, used=fund.total.used(turn.now)))
    turn.note("BudgetNotice", f"Budget/{fund.key[0]}", reason)


def _reason(fund: Fund, mark: str) -> Reason:
    limit = 0 if fund.hours is None else fund.hours // HOUR
    if mark == "soon":
        data = {"envelope": fund.label, "at": format_time(min(fund.exhausts(), fund.end))}
        return Reason(code="ExhaustsSoon", data=dict(data))
    if mark == "exhausted":
        return Reason(code="Exhausted", data={"envelope": fund.label, "limit": limit})
    if mark == "lending":
        lent = (fund.lending_hours or 0) // HOUR
        return Reason(code="LendingExhausted", data={"envelope": fund.label, "limit": lent})
    if mark == "window":
        return Reason(code="WindowOver", data={"envelope": fund.label})
    return Reason(code="HoursNotice", data={"envelope": fund.label, "percent": mark, "limit": limit})
