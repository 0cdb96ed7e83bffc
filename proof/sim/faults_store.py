"""Faults of the embedded home: what disks, kernels and people with backups do to its file, and a custodian away."""

from __future__ import annotations

from collections.abc import Callable
from random import Random

from proof.sim.events import FOR_GOOD, Event, Mode, Plan
from tenure.ledger import WRITE_POINTS
from tenure.units import HOUR, MINUTE, SECOND, Micros

KINDS = {
    "disk-full": "for lasts the file may not grow (number odd: the disk of the anchor is full)",
    "sync-fails": "the next commit fails in its sync: before it counts, after it, or at the anchor (number modulo 3)",
    "crash-in-write": "the next write is cut off by a kill at a named point (target), and nobody drives for lasts",
    "torn-write": "the same, with the unfinished tail of the WAL (or the slot of the anchor) cut or garbled at number",
    "custodian-away": "whoever reveals draws does not answer for lasts",
    "backup-restored": "an old copy of the file is put in its place, under a running driver or not (number odd)",
}


def faults(luck: Random, *, hours: int, mode: Mode, plan: Plan, moment: Callable[[], Micros]) -> list[Event]:
    kinds = [kind for kind in KINDS if luck.random() < 0.5]
    out = [_fault(luck, kind, moment()) for kind in kinds for _ in range(luck.choice((1, 2, 3)))]
    if mode == "liveness" and luck.random() < 0.5:
        out.append(Event(at=moment(), kind="custodian-away", lasts=FOR_GOOD))
    return out


def _fault(luck: Random, kind: str, at: Micros) -> Event:
    lasts = luck.choice((0, SECOND, 30 * SECOND, 20 * MINUTE))
    target = luck.choice(WRITE_POINTS) if kind == "crash-in-write" else ""
    if kind == "disk-full":
        lasts = luck.choice((SECOND, 30 * SECOND, 30 * MINUTE))
    if kind == "custodian-away":
        lasts = luck.choice((10 * MINUTE, 5 * HOUR))
    return Event(at=at, kind=kind, target=target, number=luck.randrange(1_000_000), lasts=lasts)
