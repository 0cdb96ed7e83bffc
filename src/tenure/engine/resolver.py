"""The resolver's facts (SPEC 8): a cut carried out, the record of it, and the freeze before a draw.

What is cut, and in which order, is found in ``cuts``; who asks is a reservation that starts (``activation``) or an
envelope that can no longer pay (``shortage``). The cuts of one resolution and its record stand in one entry. Where a
draw is needed, nothing is cut at the freeze: the intent is recorded, the custodians reveal, and the cuts are worked
out anew with the order that was drawn.
"""

from __future__ import annotations

from collections.abc import Iterable

from tenure.draw import VERSION, Beacon, Intent, ReservationRef, Result, Token
from tenure.engine.life import After, close, drop, end, full_name, move
from tenure.engine.state import RunRow, State
from tenure.engine.turn import Turn
from tenure.facts import Cut, Froze, Reason, Resolved, Trigger
from tenure.units import format_time

# --- cutting --------------------------------------------------------------------------------------------------------


def carry_out(turn: Turn, cuts: Iterable[Cut], *, subject: str, seed: str = "") -> None:
    """Make cuts, in order, but for those who sit on somebody's spares: they are sent away before any spare goes, whose
    place they would take under another name. ``subject`` is for whom (as in ``Resolved``), ``seed`` that of the draw if
    there was one."""
    for cut in sorted(cuts, key=lambda cut: cut.kind == "DropSpare" or not _is_guest(turn.state.runs[cut.run])):
        row = turn.state.runs[cut.run]
        reason = _reason(row, cut, subject, seed)
        turn.note("Cut", full_name(row), reason)
        match cut.kind:
            case "Reclaim":
                guests = [name for name in cut.leases if row.leases[name].role == "Borrowed"]
                close(turn, row, guests, "ReclaimedBySpare")  # spares are free of them at once, as in a swap
                _end(turn, row, "ReclaimedBySpare", reason)
            case "Overstay":
                _end(turn, row, "Overstay", reason)
            case "Lottery":
                _end(turn, row, f"RandomPreempt({seed})", reason)
            case "DropSpare":
                close(turn, row, list(cut.leases), "DropSpare")
                move(turn, row, reason, marks={})
            case "Shrink":
                drop(turn, row, {row.leases[name].group for name in cut.leases}, "Shrink", reason)


def record(
    turn: Turn,
    *,
    trigger: Trigger,
    subject: str,
    activation: int,
    cuts: Iterable[Cut],
    deficit: int,
    intent: Intent | None = None,
    result: Result | None = None,
) -> None:
    """Write down that the resolver ran, in the entry of the cuts themselves."""
    turn.emit(Resolved(trigger=trigger, subject=subject, activation=activation, cuts=tuple(cuts), deficit=deficit,
                       intent=intent, result=result))  # fmt: skip


def _end(turn: Turn, row: RunRow, closure: str, reason: Reason) -> None:
    """All of a run goes; it is queued again if it asked for that, and then cuts nobody in its turn."""
    requeue = row.run.spec.runtime.on_preemption == "Requeue"
    after: After = "Requeue" if requeue else "Failed"
    end(turn, row, closure, after, reason, cut=requeue)


def _is_guest(row: RunRow) -> bool:
    return any(lease.role == "Borrowed" for lease in row.leases.values())


def _reason(row: RunRow, cut: Cut, subject: str, seed: str) -> Reason:
    leases = [row.leases[name] for name in cut.leases]
    data: dict[str, int | str] = {"subject": subject, "gpus": cut.gpus}
    match cut.kind:
        case "Reclaim":
            node = min((lease.node for lease in leases if lease.role == "Borrowed"), default="?")
            return Reason(code="ReclaimedBySpare", data=data | {"node": node})
        case "Overstay":
            return Reason(code="CutOverstayed", data=data | {"until": format_time(row.life.until or 0)})
        case "DropSpare":
            return Reason(code="SpareDropped", data=data | {"node": leases[0].node})
        case "Shrink":
            return Reason(code="ShrunkByResolver", data=data | {"groups": len({lease.group for lease in leases})})
        case "Lottery":
            return Reason(code="CutByLottery", data=data | {"seed": seed})


# --- the freeze -----------------------------------------------------------------------------------------------------


def freeze(
    turn: Turn, *, trigger: Trigger, ref: ReservationRef, activation: int, deficit: int, tokens: tuple[Token, ...]
) -> Reason | None:
    """Write the intent of a draw down, before anybody can know its seed. The reason why not, if it cannot be.

    There is one draw at a time: what follows on a custodian's next value is known only when that is revealed.
    """
    state = turn.state
    hindered = hindrance(state, named(ref))
    if hindered is not None:
        return hindered
    beacons = tuple(
        Beacon(id=name, index=index + 1, previous=value) for name, (index, value) in sorted(state.beacons.items())
    )
    intent = Intent(version=VERSION, reservation=ref, activation=activation, at=format_time(turn.now),
                    ledger_head=state.head, deficit=deficit, tokens=tokens, beacons=beacons)  # fmt: skip
    froze = Froze(trigger=trigger, intent=intent)
    turn.emit(froze)
    data: dict[str, int | str] = {
        "tokens": len(tokens),
        "subject": froze.subject,
        "beacons": ", ".join(beacon.id for beacon in beacons),
    }
    turn.note("Draw", noted(froze), Reason(code="DrawFrozen", data=data))
    return None


def hindrance(state: State, subject: str) -> Reason | None:
    """Why nothing can be drawn by lot for ``subject`` now."""
    if not state.beacons:
        return Reason(code="NoCustodian", data={"subject": subject})
    if state.draws:
        return Reason(code="DrawWaits", data={"subject": min(state.draws)})
    return None


def noted(froze: Froze) -> str:
    """What a note about a draw is about: the reservation, or the Budget."""
    ref = froze.intent.reservation
    return named(ref) if ref.namespace else f"Budget/{ref.name.partition('/')[0]}"


def named(ref: ReservationRef) -> str:
    """The subject of a resolution: a reservation, or (without a namespace) an envelope or a cap."""
    return f"Reservation/{ref.namespace}/{ref.name}" if ref.namespace else f"Budget/{ref.name}"
