"""The reservation of a waiting run: made, moved, blocked, activated, released, canceled (SPEC 7).

A waiting run has at most one. What was promised first stays as it was; the plan beside it changes in place, and a start
that moves later says why. A promise has a number and a date from its making on, and a bound: the planned start, and
``promiseSlack`` of the time from its making to it. Everything here writes one ``Reserved`` and tells people; what to
plan is decided elsewhere.
"""

from __future__ import annotations

from typing import Any

import msgspec

from tenure.engine.moved import cause
from tenure.engine.names import object_uid
from tenure.engine.reasons import sentence
from tenure.engine.state import RunRow
from tenure.engine.turn import Turn
from tenure.facts import Forecast, Reason, Reservation, Reserved, Slice
from tenure.units import SECOND, Instant, Micros, format_duration, format_time

NOWHERE = Slice()
NO_FORECAST = Forecast()


def of(turn: Turn, row: RunRow) -> Reservation | None:
    return turn.state.reservations.get(row.key)


def plan(
    turn: Turn, row: RunRow, slice_: Slice, confidence: Any, reason: Reason, *, forecast: Forecast = NO_FORECAST,
    why: str = "", on_cuts: bool = False,
) -> None:  # fmt: skip
    """Promise a start, or change the one that was promised. What is as it was is only claimed again."""
    assert slice_.start is not None
    old = of(turn, row)
    number, dated, wait = _making(turn, old, slice_.start)
    changes = {"turn": number, "dated": dated, "wait": wait, "by": _bound(turn, slice_.start, dated, confidence),
               "state": "Pending", "reason": reason.code, "message": sentence(reason), "plan": slice_,
               "confidence": confidence, "forecast": forecast, "on_cuts": on_cuts}  # fmt: skip
    if old is None:
        _put(turn, msgspec.structs.replace(_new(turn, row, slice_), **changes))
        _tell(turn, row, slice_, confidence)
        return
    # The numbers of a sentence are those of when its reason was found; a new number alone is no news.
    same = msgspec.structs.replace(old, **{**changes, "message": old.message})
    if same == old:
        turn.state.claim(old)
        return
    _put(turn, msgspec.structs.replace(old, **changes))
    if old.plan.start is None:
        _tell(turn, row, slice_, confidence)
    elif _second(old.plan.start) != _second(slice_.start):  # how long a pod took to start is no news
        _moved(turn, row, old, slice_.start, why)


def _tell(turn: Turn, row: RunRow, slice_: Slice, confidence: str) -> None:
    said = {"at": _second(slice_.start or 0), "where": where(slice_), "confidence": confidence}
    turn.note("Reserved", f"Run/{row.key}", Reason(code="Reserved", data=dict(said)))


def block(turn: Turn, row: RunRow, reason: Reason, *, short: int = 0) -> None:
    """Nothing can be promised: there is no money in sight, or what the plan stood on is gone."""
    old = of(turn, row) or _new(turn, row, NOWHERE)
    forecast = Forecast(short=short)
    if (old.state, old.reason, old.forecast) == ("Blocked", reason.code, forecast):
        return  # its sentence is shown with the numbers of now by whoever shows it
    none: dict[str, Any] = {"dated": None, "wait": 0, "by": None, "on_cuts": False, "plan": NOWHERE, "confidence": ""}
    _put(turn, msgspec.structs.replace(old, state="Blocked", reason=reason.code, message=sentence(reason),
                                       forecast=forecast, **none))  # fmt: skip
    if (old.state, old.reason) != ("Blocked", reason.code):
        turn.note("ReservationBlocked", f"Run/{row.key}", reason)


def activate(turn: Turn, row: RunRow, slice_: Slice, forecast: Forecast) -> Reservation:
    """Hold what is being freed for this run, so that nobody takes it in between."""
    old = of(turn, row)
    assert old is not None, "what is activated has a reservation"
    number, dated, wait = _making(turn, old, turn.now)
    active = msgspec.structs.replace(old, turn=number, dated=dated, wait=wait, by=slice_.start, state="Active",
                                     reason="Activated", plan=slice_, forecast=forecast, activated=turn.now,
                                     activation=old.activation + 1)  # fmt: skip
    reason = Reason(code="Activated", data={"run": row.key, "where": where(slice_)})
    active = msgspec.structs.replace(active, message=sentence(reason))
    _put(turn, active)
    turn.note("Activated", f"Run/{row.key}", reason)
    return active


def hold(turn: Turn, one: Reservation, slice_: Slice) -> Reservation:
    """An Active reservation holds this slice."""
    held = msgspec.structs.replace(one, plan=slice_, by=slice_.start)
    if held == one:
        turn.state.claim(one)
    else:
        _put(turn, held)
    return held


def hinder(turn: Turn, row: RunRow, reason: Reason) -> None:
    """The start is due, and something keeps it from being made: it is tried again when that is gone."""
    old = of(turn, row)
    assert old is not None, "what is due was promised"
    if old.reason == reason.code:
        turn.state.claim(old)
        return
    _put(turn, msgspec.structs.replace(old, reason=reason.code, message=sentence(reason)))
    turn.note("Waiting", f"Run/{row.key}", reason)


def release(turn: Turn, row: RunRow) -> None:
    """The run starts: the promise is kept, and stays for audit."""
    old = of(turn, row)
    if old is None:
        return
    reason = Reason(code="Released", data={"when": _punctual(turn.now, old)})
    turn.emit(Reserved(reservation=msgspec.structs.replace(
        old, state="Released", reason=reason.code, message=sentence(reason), released=turn.now,
        activated=turn.now if old.activated is None else old.activated)))  # fmt: skip
    turn.note("Released", f"Run/{row.key}", reason)


def _punctual(now: Instant, one: Reservation) -> str:
    """How a start compares to what was promised: first, or, if there was nothing to promise at first, last."""
    promised, which = (one.promise.start, "first") if one.promise.start is not None else (one.plan.start, "last")
    if promised is None:
        return "as soon as it could: no start was promised"
    late = (now - promised) // SECOND * SECOND
    if not late:
        return "as promised"
    return f"{format_duration(abs(late))} {'after' if late > 0 else 'before'} the start promised {which}"


def cancel(turn: Turn, row: RunRow, reason: Reason) -> None:
    """Nothing is promised any more: the run is gone, or asks for something else."""
    old = of(turn, row)
    if old is not None:
        turn.emit(Reserved(reservation=msgspec.structs.replace(
            old, state="Canceled", reason=reason.code, message=sentence(reason), released=turn.now)))  # fmt: skip


def milestone(turn: Turn, row: RunRow) -> None:
    """The start of a waiting run comes near."""
    one = of(turn, row)
    if one is not None and one.state == "Pending" and one.plan.start is not None and one.plan.start > turn.now:
        left = format_duration(one.plan.start - turn.now)
        turn.note("Countdown", f"Run/{row.key}", Reason(code="Countdown", data={"run": row.key, "left": left}))
        turn.state.arm(one)


def where(slice_: Slice) -> str:
    return ", ".join(slice_.domains[:3]) + (f" and {len(slice_.domains) - 3} more" if len(slice_.domains) > 3 else "")


def _making(turn: Turn, old: Reservation | None, start: Instant) -> tuple[int, Instant, Micros]:
    """The number of a promise, its date, and what was to be waited then: its own if it stands, else new ones."""
    if old is None or old.plan.start is None:
        return turn.state.promised + 1, turn.now, max(0, start - turn.now)
    return old.turn, turn.now if old.dated is None else old.dated, old.wait


def _bound(turn: Turn, start: Instant, dated: Instant, confidence: str) -> Instant:
    """The bound of a start; one that is made by cuts, or waits for a window, has no slack."""
    percent = int(turn.state.policy.promise_slack.rstrip("%")) if confidence == "projected" else 0
    return start + max(0, start - dated) * percent // 100


def slack_of(turn: Turn, old: Reservation | None, start: Instant) -> Micros:
    """By how much a projected start could be later than planned."""
    return _bound(turn, start, _making(turn, old, start)[1], "projected") - start


def tell_bound(turn: Turn, row: RunRow) -> None:
    """A run was let past distant promises: it goes first from then on. Said at its start, and again ahead of it."""
    if row.life.bound is not None and row.life.phase in ("Starting", "Running"):
        data: dict[str, int | str] = {"run": row.key, "at": _second(row.life.bound)}
        turn.note("Bounded", f"Run/{row.key}", Reason(code="Bounded", data=data))


def _put(turn: Turn, one: Reservation) -> None:
    turn.emit(Reserved(reservation=one))


def _moved(turn: Turn, row: RunRow, old: Reservation, start: Instant, why: str) -> None:
    before = old.plan.start
    data: dict[str, int | str] = {"old": "none" if before is None else _second(before), "new": _second(start)}
    if before is None or start < before:
        turn.note("StartMoved", f"Run/{row.key}", Reason(code="MovedEarlier", data=data))
    else:
        why = why or cause(turn.state, old, now=turn.now)
        turn.note("StartMoved", f"Run/{row.key}", Reason(code="MovedLater", data=data | {"why": why}))


def _new(turn: Turn, row: RunRow, slice_: Slice) -> Reservation:
    meta = row.run.metadata
    uid = object_uid(turn.state.fleet, f"Reservation/{row.key}", meta.uid, str(meta.generation),
                     str(row.life.attempt), str(turn.now))  # fmt: skip
    name = f"{row.name[:200]}-{uid[:8]}"
    return Reservation(namespace=row.namespace, name=name, uid=uid, run=row.name, run_uid=meta.uid, made=turn.now,
                       promise=slice_, plan=slice_)  # fmt: skip


def _second(at: Instant) -> str:
    return format_time(at - at % SECOND)
