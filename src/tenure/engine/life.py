"""The life of a run after it is admitted (SPEC 6, and the part of 9 that needs no spare).

    Pending -> Starting -> Running -> Completed
                  |           |-> Stopping -> Failed | Pending (restart, requeue) | gone (deleted)
                  |-> Stopping -> Pending (a start that failed: new attempt after a backoff)

Ending a run is two facts: a stop is decided (``Ending``), and each lease closes when the pods on its GPUs are gone. A
run leaves ``Stopping`` when its last lease is closed. Conditions are set here and nowhere else; the phase people see
follows.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, Literal

import msgspec

from tenure.engine import promise
from tenure.engine.bind import Bound, lease_name
from tenure.engine.groups import given_up, kept, width
from tenure.engine.reasons import sentence
from tenure.engine.state import PodRow, RunRow
from tenure.engine.turn import Turn
from tenure.facts import Cleared, Closed, Ending, Lease, Life, Mark, Moved, Opened, Placed, Reason, Removed, Seen
from tenure.units import Instant, Micros, parse_duration

After = Literal["Completed", "Failed", "Retry", "Requeue", "Canceled"]
_LIVE = ("Bound", "Succeeded")


# --- starting -----------------------------------------------------------------------------------------------------


def start(
    turn: Turn, row: RunRow, bound: Bound, reason: Reason, *, backfilled: bool = False, until: Instant | None = None
) -> None:  # fmt: skip
    """Open the leases, then place the pods: no GPU is ever used unrecorded. ``until``: it declares no end, and goes
    first from then on."""
    for lease in bound.leases:
        turn.emit(Opened(lease=lease))
    for pod in bound.pods:
        turn.emit(Placed(pod=pod))
    move(turn, row, reason, marks={"Admitted": "True", "Blocked": "False", "Running": "False"}, phase="Starting",
         attempt=bound.leases[0].attempt, admitted=True, started=None, deadline=None,
         until=until or bound.leases[0].until, backfilled=backfilled, bound=until, cut=False,
         width=row.active())  # fmt: skip
    turn.note("Admitted", full_name(row), reason)
    promise.tell_bound(turn, row)


def pod_seen(turn: Turn, pod: PodRow, seen: Seen) -> None:
    """A report about a pod of ours; what is known already changes nothing."""
    row = turn.state.runs[pod.pod.run_key]
    if seen.phase == "Gone":
        _gone(turn, row, pod, since=turn.now if seen.since is None else seen.since)
    elif seen.phase not in ("Placed", pod.phase) and pod.phase in ("Placed", "Bound") and not pod.stop:
        was_bound = pod.phase == "Bound"
        turn.emit(seen)
        if seen.phase == "Failed":
            _failed(turn, row, pod, was_bound=was_bound)
        else:
            progress(turn, row)


def progress(turn: Turn, row: RunRow) -> None:
    phases = {pod.phase for pod in row.pods.values()}
    if row.life.phase == "Starting" and phases <= set(_LIVE):
        reason = Reason(code="Started", data={"pods": len(row.pods)})
        move(turn, row, reason, marks={"Scheduled": "True", "Running": "True"}, phase="Running", failures=0,
             started=turn.now, grown=turn.now)  # fmt: skip
        turn.note("Started", full_name(row), reason)
    if row.life.phase == "Running" and phases == {"Succeeded"}:
        _complete(turn, row)


def _complete(turn: Turn, row: RunRow) -> None:
    reason = Reason(code="Completed", data={"pods": len(row.pods)})
    end = max(pod.since for pod in row.pods.values())
    _close_each(turn, row, [row.leases[name] for name in sorted(row.leases)], otherwise="Completed", end=end)
    turn.emit(Cleared(namespace=row.namespace, pods=tuple(sorted(row.pods))))
    move(turn, row, reason, marks={"Running": "False", "Completed": "True"}, phase="Completed")
    turn.note("Completed", full_name(row), reason)


# --- failing ------------------------------------------------------------------------------------------------------


def _failed(turn: Turn, row: RunRow, pod: PodRow, *, was_bound: bool) -> None:
    if row.life.phase not in ("Starting", "Running"):
        return
    if not was_bound:
        _not_started(turn, row, pod)
        return
    if pod.code is None:
        reason = Reason(code="PodLost", data={"pod": pod.pod.name, "detail": pod.message or "nobody knows why"})
    else:
        reason = Reason(code="WorkloadFailed", data={"pod": pod.pod.name, "code": pod.code})
    if row.life.restarts < row.run.spec.runtime.max_restarts:
        end(turn, row, "Fail", "Retry", reason, restarts=row.life.restarts + 1, failures=row.life.failures + 1)
    else:
        end(turn, row, "Fail", "Failed", reason)


def _not_started(turn: Turn, row: RunRow, pod: PodRow) -> None:
    """Without this pod the gang is not whole: a new attempt. An elastic run that runs does without the group."""
    data: dict[str, int | str] = {"pod": pod.pod.name, "node": pod.pod.node, "detail": pod.message or "no detail"}
    reason = Reason(code="StartFailed", data=data)
    gone = given_up(turn.state, row, {pod.pod.group}) if row.life.phase == "Running" else None
    if gone is None:
        end(turn, row, "Fail", "Retry", reason, failures=row.life.failures + 1)
    else:
        drop(turn, row, gone, "Fail", reason)


def expire(turn: Turn, row: RunRow) -> None:
    """A requeued run was not placed again in time."""
    window = row.run.spec.runtime.checkpoint or "0s"
    _terminal(turn, row, Reason(code="CheckpointExpired", data={"window": window}), "Failed")


# --- ending -------------------------------------------------------------------------------------------------------


def end(turn: Turn, row: RunRow, closure: str, after: After, reason: Reason, **changes: Any) -> None:
    """Decide to stop all of a run; its leases close with ``closure`` as its pods leave."""
    leases = tuple(name for name in sorted(row.leases) if row.leases[name].key not in turn.state.ending)
    pods = tuple(name for name in sorted(row.pods) if not row.pods[name].stop)
    turn.emit(Ending(namespace=row.namespace, run=row.name, leases=leases, pods=pods, reason=closure))
    move(turn, row, reason, marks={}, phase="Stopping", after=after, **changes)
    turn.note("Stopping", full_name(row), reason)
    close_idle(turn, row, [row.leases[name] for name in sorted(row.leases)])
    finish_if_over(turn, row)


def drop(turn: Turn, row: RunRow, groups: Iterable[int], closure: str, reason: Reason) -> None:
    """Stop some groups of a running run; the rest goes on."""
    gone = set(groups)
    leases = [lease for lease in kept(turn.state, row) if lease.group in gone]
    pods = tuple(sorted(name for name, pod in row.pods.items() if pod.pod.group in gone and not pod.stop))
    names = tuple(lease.name for lease in leases)
    turn.emit(Ending(namespace=row.namespace, run=row.name, leases=names, pods=pods, reason=closure))
    move(turn, row, reason, marks={}, width=width(turn.state, row))
    turn.note("Shrunk", full_name(row), reason)
    close_idle(turn, row, leases)


def cancel(turn: Turn, row: RunRow) -> None:
    """Delete a run: at once if it holds nothing, else when its last lease is closed."""
    reason = Reason(code="Canceled")
    if row.life.phase == "Stopping":
        move(turn, row, reason, marks={}, after="Canceled", deleting=True, deleted=turn.now)
    elif row.leases or row.pods:
        end(turn, row, "Canceled", "Canceled", reason, deleting=True, deleted=turn.now)
    else:
        _remove(turn, row)


def _gone(turn: Turn, row: RunRow, pod: PodRow, *, since: Instant) -> None:
    asked = pod.stop
    if pod.phase == "Succeeded" and not asked:
        return  # tidied away by somebody after its work was done
    turn.emit(Cleared(namespace=row.namespace, pods=(pod.pod.name,)))
    if not asked:
        data: dict[str, int | str] = {
            "pod": pod.pod.name,
            "node": pod.pod.node,
            "detail": "its pod was removed by somebody else",
        }
        pod.message = str(data["detail"])
        _failed(turn, row, pod, was_bound=pod.phase != "Placed")
        return
    # A pod may have ended by itself before it was asked to: its GPUs are free since then, those that it shared are not.
    ended = pod.since if pod.phase in ("Succeeded", "Failed") else since
    here = [lease for lease in turn.state.leases_on(pod.pod.node) if lease.run_key == row.key]
    shared = [lease for lease in here if not set(lease.gpus) <= set(pod.pod.gpus)]
    close_idle(turn, row, [lease for lease in here if lease not in shared], end=ended)
    close_idle(turn, row, shared, end=max(since, ended))
    if row.life.phase == "Running":
        progress(turn, row)
    finish_if_over(turn, row)


def close_idle(turn: Turn, row: RunRow, leases: list[Lease], *, end: Instant | None = None) -> None:
    """Close those ending leases on whose GPUs no pod is left."""
    busy = {(pod.pod.node, ordinal) for pod in row.pods.values() for ordinal in pod.pod.gpus}
    idle = [
        lease
        for lease in leases
        if lease.key in turn.state.ending and not any((lease.node, ordinal) in busy for ordinal in lease.gpus)
    ]
    _close_each(turn, row, idle, end=end)


def _close_each(
    turn: Turn, row: RunRow, leases: list[Lease], *, otherwise: str = "", end: Instant | None = None
) -> None:
    """Close leases for the reason that was decided for each, or else for the one given."""
    by_reason: dict[str, list[str]] = {}
    for lease in leases:
        by_reason.setdefault(turn.state.ending.get(lease.key, otherwise), []).append(lease.name)
    for closure, names in by_reason.items():
        close(turn, row, names, closure, end=end)


def close(
    turn: Turn, row: RunRow, names: list[str], closure: str, *, end: Instant | None = None, taken: bool = False
) -> None:
    """Close leases at the instant their GPUs came free: none before it began, never in the future.

    Nor before the account that pays was opened: what an edit of the window has put into the books stays in them. Each
    for itself: nobody pays for longer because somebody else's began later.
    Opportunistic work on spares that end for good keeps its GPUs; ``taken``: somebody else has them already.
    """
    if not names:
        return
    leases, ends = [row.leases[name] for name in names], dict[Instant, list[str]]()
    for one in leases:
        began = max(one.start, turn.state.books.funds[one.budget, one.envelope].since)
        ends.setdefault(turn.now if end is None else min(turn.now, max(end, began)), []).append(one.name)
    for when, some in ends.items():
        turn.emit(Closed(namespace=row.namespace, leases=tuple(some), end=when, reason=closure))
    if not taken:
        for node in sorted({lease.node for lease in leases if lease.role == "Spare"}):
            _hand_over(turn, node)


def _hand_over(turn: Turn, node: str) -> None:
    """Opportunistic work whose spare is gone for good goes on under Active leases, on the same GPUs (SPEC 9)."""
    spares = turn.state.topology.rows[node].spare
    for lease in list(turn.state.leases_on(node)):
        freed = tuple(gpu for gpu in lease.gpus if not spares >> gpu & 1)
        if lease.role == "Borrowed" and freed:
            _make_active(turn, turn.state.runs[lease.run_key], lease, freed)


def _make_active(turn: Turn, row: RunRow, lease: Lease, freed: tuple[int, ...]) -> None:
    """Split a lease at the GPUs that are nobody's spares any more. If it was to end, its parts are."""
    ending = turn.state.ending.get(lease.key)
    turn.emit(Closed(namespace=row.namespace, leases=(lease.name,), end=turn.now, reason="Refund"))
    rest = tuple(gpu for gpu in lease.gpus if gpu not in freed)
    names = []
    for gpus, role in ((freed, "Active"), (rest, "Borrowed")):
        if gpus:
            part = again(row, lease, gpus=gpus, role=role, start=turn.now, reason="Refund")
            turn.emit(Opened(lease=part))
            names.append(part.name)
    if ending is not None:
        turn.emit(Ending(namespace=row.namespace, run=row.name, leases=tuple(names), reason=ending))


def again(row: RunRow, lease: Lease, **changes: Any) -> Lease:
    """A lease that goes on as another: the next of its group on its node."""
    moved: Lease = msgspec.structs.replace(lease, since=lease.taken, **changes)
    serial = row.counters.serials.get((moved.group, moved.node), 0)
    return msgspec.structs.replace(moved, name=lease_name(row.name, moved.attempt, moved.group, moved.node, serial))


def finish_if_over(turn: Turn, row: RunRow) -> None:
    life = row.life
    if row.leases or row.pods or life.phase != "Stopping":
        return
    reason = Reason(code=life.reason)
    if life.after == "Canceled":
        _remove(turn, row)
    elif life.after in ("Retry", "Requeue"):
        not_before = turn.now + backoff(turn, life) if life.after == "Retry" else turn.now
        move(turn, row, reason, marks={"Running": "False", "Scheduled": "False", "Admitted": "False"}, phase="Pending",
             after="", not_before=not_before, width=0, message=life.message)  # fmt: skip
    else:
        _terminal(turn, row, reason, "Failed", message=life.message)


def backoff(turn: Turn, life: Life) -> Micros:
    policy = turn.state.policy
    base, most = parse_duration(policy.retry_backoff), parse_duration(policy.retry_backoff_max)
    return min(most, base << min(max(0, life.failures - 1), 40))


def _terminal(turn: Turn, row: RunRow, reason: Reason, phase: Literal["Failed"], message: str = "") -> None:
    message = message or sentence(reason)
    promise.cancel(turn, row, reason)
    move(turn, row, reason, marks={"Running": "False", "Failed": "True"}, phase=phase, after="", message=message,
         width=0, deadline=None)  # fmt: skip
    turn.note("Failed", full_name(row), reason, message)


def _remove(turn: Turn, row: RunRow) -> None:
    promise.cancel(turn, row, Reason(code="Canceled"))
    turn.note("Deleted", full_name(row), Reason(code="Canceled"))
    turn.emit(Removed(kind="Run", namespace=row.namespace, name=row.name))


# --- the record ---------------------------------------------------------------------------------------------------


def move(turn: Turn, row: RunRow, reason: Reason, *, marks: dict[str, str], message: str = "", **changes: Any) -> None:
    """Write the run's life anew: the changes, the reason in words, and the conditions that turned."""
    text = message or sentence(reason)
    kept = {mark.type: mark for mark in row.life.marks}
    for kind, status in marks.items():
        old = kept.get(kind)
        if old is None and status == "False" and kind != "Admitted":
            continue
        if old is None or (old.status, old.reason) != (status, reason.code):
            at = old.at if old is not None and old.status == status else turn.now
            kept[kind] = Mark(type=kind, status=status, reason=reason.code, message=text, at=at)  # type: ignore[arg-type]  # "True" or "False"
    life = msgspec.structs.replace(
        row.life, reason=reason.code, message=text, marks=tuple(kept[kind] for kind in sorted(kept)), **changes
    )
    turn.emit(Moved(namespace=row.namespace, run=row.name, life=life))


def full_name(row: RunRow) -> str:
    return f"Run/{row.key}"
