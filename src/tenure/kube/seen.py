"""A pod of ours as the API server shows it, and what that is news of: pure.

Pending                      nothing yet, whatever runs of it: an init container, a side-car (if that lasts too long, it
                             did not start)
Running                      Bound: the kubelet took it; being assigned to a node is only a wish
Succeeded                    Bound if that was not known, then Succeeded
Failed, containers ran       Bound if that was not known, then Failed with the exit code
Failed, none ever ran        Failed alone: the kubelet rejected it
deleted by somebody          nothing until it is really gone, then Gone
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from msgspec import Struct

from tenure.api.errors import escape
from tenure.shell.executor import PodReport, PodWork
from tenure.units import SECOND, Instant, Micros, parse_time

MESSAGE_MAX = 400
STALE: Micros = 10 * SECOND
"""A time in a status is told to the second by another clock: it counts only if it is older than this."""

Object = dict[str, Any]


class PodSeen(Struct, frozen=True, gc=False):
    """What is kept of a pod object."""

    uid: str
    node: str
    phase: str
    leaving: bool
    fleet: str
    seq: int
    started: bool
    code: int | None
    message: str
    ended: Instant | None
    gpus: int = 0


def look(pod: Object, *, fleet_key: str, entry_key: str, gpus: int = 0) -> PodSeen:
    """What is kept of a pod object."""
    meta, status = pod["metadata"], pod.get("status") or {}
    notes = meta.get("annotations") or {}
    every = [*(status.get("initContainerStatuses") or ()), *(status.get("containerStatuses") or ())]
    phase = status.get("phase") or "Pending"
    containers = [] if phase == "Pending" else every  # a side-car may run, and the work's image never come
    ends = [ended for one in containers if (ended := (one.get("state") or {}).get("terminated"))]
    bad = next((one for one in ends if one.get("exitCode")), None)
    entry = str(notes.get(entry_key, ""))
    return PodSeen(
        uid=str(meta.get("uid", "")),
        node=str((pod.get("spec") or {}).get("nodeName") or ""),
        phase=phase,
        leaving=bool(meta.get("deletionTimestamp")),
        fleet=str(notes.get(fleet_key, "")),
        seq=int(entry) if entry.isdigit() else 0,
        started=phase in ("Running", "Succeeded") or bool(ends) or any(_runs(one) for one in containers),
        code=_code(phase, bad),
        message=_message(phase, status, every, bad),
        ended=max((at for one in ends if (at := _time(one.get("finishedAt"))) is not None), default=None),
        gpus=gpus,
    )


def news(item: PodWork, seen: PodSeen | None, *, now: Instant) -> Iterator[PodReport]:
    """What the engine does not know yet of a pod that is there, or (``seen`` is None) really is not any more.

    A pod that is being deleted and whose containers have ended is gone: its GPUs are free, whatever keeps the object.
    """
    key = item.pod.key
    if seen is None or (seen.leaving and seen.phase in ("Succeeded", "Failed")):
        if item.stop or item.known in ("Placed", "Bound"):
            yield PodReport(key=key, phase="Gone", at=now)
        return
    if item.stop or item.known not in ("Placed", "Bound"):
        return
    if seen.started and item.known == "Placed":
        yield PodReport(key=key, phase="Bound", at=now)
    if seen.phase == "Succeeded":
        yield PodReport(key=key, phase="Succeeded", code=0, at=_when(seen, item, now))
    elif seen.phase == "Failed":
        yield PodReport(key=key, phase="Failed", code=seen.code, message=seen.message, at=_when(seen, item, now))


def _when(seen: PodSeen, item: PodWork, now: Instant) -> Instant:
    """When it ended: now, unless the operator was away for a while and the kubelet says so."""
    if seen.ended is None or seen.ended > now - STALE:
        return now
    return max(seen.ended, min(item.since, now))


def _runs(status: Object) -> bool:
    return bool((status.get("state") or {}).get("running")) or bool(status.get("lastState"))


def _code(phase: str, bad: Object | None) -> int | None:
    if bad is not None:
        return int(bad["exitCode"])
    return 0 if phase == "Succeeded" else None


def _message(phase: str, status: Object, containers: list[Object], bad: Object | None) -> str:
    """Why, in words that nobody can dress up: what kubelets and workloads say is quoted with care."""
    if phase == "Failed" and bad is not None and not status.get("reason"):
        return f"exited with code {bad['exitCode']}"
    said = [status.get("reason"), status.get("message")]
    if phase == "Pending":
        waits = [waiting for one in containers if (waiting := (one.get("state") or {}).get("waiting"))]
        said += [word for one in waits[:1] for word in (one.get("reason"), one.get("message"))]
    return escape(": ".join(str(word) for word in said if word))[:MESSAGE_MAX]


def _time(text: Any) -> Instant | None:
    try:
        return parse_time(str(text))
    except ValueError:
        return None
