"""Objects as they are written into the API server: made from the state and the facts, never read back. Pure.

Some numbers of a status run with the clock (hours used, a countdown): they are right when they are written, and no
reason to write. ``same`` says whether two statuses differ in anything else.
"""

from __future__ import annotations

import hashlib
from typing import Any

from tenure.api.errors import FieldError
from tenure.api.meta import GROUP, to_wire
from tenure.engine import State, render
from tenure.engine.shown import Risks
from tenure.engine.words import Words
from tenure.facts import Froze, Lease, Noted, Reservation, Resolved
from tenure.kube.marks import CONTROLLER, FLEET, UID
from tenure.kube.resources import EVENTS, LEASES, RESERVATIONS
from tenure.observe.log import is_warning
from tenure.units import Instant, format_time

Object = dict[str, Any]

NOTE_MAX = 1000
"""Characters of an Event's note; the API server takes 1024."""
_RUNS_ON = frozenset(
    {"ownedGPUHours", "sharedGPUHours", "borrowedGPUHours", "gpuHours", "usedGPUHours", "committedGPUHours",
     "countdownSeconds", "lastTransitionTime", "asOf"}
)  # fmt: skip


def run_status(
    state: State, key: str, *, now: Instant, words: Words, risks: Risks, errors: tuple[FieldError, ...] = ()
) -> Object:
    """The status of a Run that the engine knows; ``errors``: why its present spec was not taken."""
    status: Object = to_wire(render.run(state, state.runs[key], now=now, words=words, risks=risks).status)
    return _with_refusal(status, errors, now) if errors else status


def refused_status(errors: tuple[FieldError, ...], *, now: Instant) -> Object:
    """The status of an object that was never taken."""
    return _with_refusal({"conditions": []}, errors, now)


def refused_run_status(errors: tuple[FieldError, ...], *, now: Instant) -> Object:
    told = " ".join(error.sentence() for error in errors[:5])
    return {"phase": "Pending", "message": told, **refused_status(errors, now=now)}


def budget_status(state: State, name: str, *, now: Instant, errors: tuple[FieldError, ...] = ()) -> Object:
    status: Object = to_wire(render.budget(state, state.budgets[name], now=now).status)
    return _with_refusal(status, errors, now) if errors else status


def _with_refusal(status: Object, errors: tuple[FieldError, ...], now: Instant) -> Object:
    told = " ".join(error.sentence() for error in errors[:5])
    kept = [one for one in status.get("conditions") or () if one["type"] != "Blocked"]
    blocked = {"type": "Blocked", "status": "True", "reason": "Invalid", "message": told[:4096],
               "lastTransitionTime": format_time(now)}  # fmt: skip
    return {**status, "conditions": [*kept, blocked]}


def lease_object(fact: Lease, *, fleet: str, end: Instant | None = None, closure: str | None = None) -> Object:
    """A Lease: nobody owns it, so nothing but retention ever removes it."""
    out: Object = to_wire(render.lease(fact, end=end, closure=closure))
    out["apiVersion"], out["kind"] = LEASES.api_version, LEASES.kind
    out["metadata"]["annotations"] = {FLEET: fleet}
    return out


def reservation_object(
    state: State, fact: Reservation, *, now: Instant, fleet: str, resolution: Froze | Resolved | None
) -> Object:
    out: Object = to_wire(render.reservation(state, fact, now=now, resolution=resolution))
    meta = out["metadata"]
    out["apiVersion"], out["kind"] = RESERVATIONS.api_version, RESERVATIONS.kind
    out["metadata"] = {
        "name": meta["name"],
        "namespace": meta["namespace"],
        "labels": meta.get("labels", {}),
        "annotations": {FLEET: fleet, UID: fact.uid},
    }
    return out


def event_object(note: Noted, *, at: Instant, name: str, uid: str = "", reporter: str = "tenure") -> Object:
    """A note of the ledger as an Event. The same note gives the same name, so that it is told once."""
    kind, _, key = note.object.partition("/")
    namespace, _, short = key.rpartition("/")
    about = {
        "kind": kind,
        "name": short,
        **({"namespace": namespace} if namespace else {}),
        **({"uid": uid} if uid else {}),
    }
    about["apiVersion"] = f"{GROUP}/v1" if kind in ("Run", "Budget", "Reservation", "Lease") else "v1"
    digest = hashlib.sha256(f"{note.object}\n{name}".encode()).hexdigest()[:16]
    return {
        "apiVersion": EVENTS.api_version,
        "kind": EVENTS.kind,
        "metadata": {"name": f"{short[:200]}.{digest}", "namespace": namespace or "default"},
        "eventTime": micro_time(at),
        "reportingController": CONTROLLER,
        "reportingInstance": reporter[:128],
        "action": (note.reason or note.kind)[:128],
        "reason": note.kind[:128],
        "regarding": about,
        "note": note.message[:NOTE_MAX],
        "type": "Warning" if is_warning(note.kind, note.reason) else "Normal",
    }


def micro_time(at: Instant) -> str:
    """As the API server spells times of events and elections: always with six digits."""
    text = format_time(at)
    whole, _, rest = text.removesuffix("Z").partition(".")
    return f"{whole}.{rest:0<6}Z"


def same(old: Any, new: Any) -> bool:
    """Whether two statuses say the same, but for what runs with the clock; what is absent is empty.

    >>> same({"phase": "Running", "funding": {"ownedGPUHours": 1.0}}, {"phase": "Running", "funding": {}, "leases": []})
    True
    >>> same({"phase": "Running"}, {"phase": "Completed"})
    False
    """
    if isinstance(old, dict) and isinstance(new, dict):
        return all(same(old.get(key), new.get(key)) for key in (old.keys() | new.keys()) - _RUNS_ON)
    if isinstance(old, list) and isinstance(new, list):
        return len(old) == len(new) and all(map(same, old, new))
    return bool(old == new) or (not _says(old) and not _says(new))


def _says(value: Any) -> bool:
    """Whether a value says anything at all."""
    if isinstance(value, dict):
        return any(_says(item) for key, item in value.items() if key not in _RUNS_ON)
    return value not in (None, "", 0, False, [])


def is_off(old: Object, new: Object) -> bool:
    """Whether a countdown has run on so far that it should be told anew: by a minute, or a tenth of what is left.

    >>> is_off({"countdownSeconds": 36_000}, {"countdownSeconds": 33_000}), is_off({}, {"countdownSeconds": 5})
    (False, True)
    """
    was, left = old.get("countdownSeconds"), new.get("countdownSeconds")
    if was is None or left is None:
        return bool(was != left)
    return abs(int(was) - int(left)) > max(60, int(left) // 10)


def covers(seen: Any, wanted: Any) -> bool:
    """Whether an object says at least what is wanted of it: a server adds defaults of its own."""
    if isinstance(wanted, dict):
        return isinstance(seen, dict) and all(
            covers(seen.get(key), value) for key, value in wanted.items() if _says(value)
        )
    if isinstance(wanted, list):
        return isinstance(seen, list) and len(seen) == len(wanted) and all(map(covers, seen, wanted))
    return bool(seen == wanted)


def steady(old: Object | None, new: Object) -> Object:
    """Conditions keep the time of their last turn where they did not turn."""
    since = {(one["type"], one["status"]): one.get("lastTransitionTime") for one in (old or {}).get("conditions") or ()}
    conditions = [
        {**one, "lastTransitionTime": since.get((one["type"], one["status"])) or one["lastTransitionTime"]}
        for one in new.get("conditions") or ()
    ]
    return {**new, "conditions": conditions} if conditions else new
