"""Faults of the ledger's file: what a disk, a kernel and a person with backups do to it. Of the embedded home only."""

from __future__ import annotations

from collections.abc import Callable
from random import Random

from proof.sim.events import Event, Mode, Plan
from tenure.ledger import WRITE_POINTS
from tenure.units import MINUTE, SECOND, Micros

KINDS = {
    "disk-full": "for lasts the file may not grow (number odd: the disk of the anchor is full)",
    "sync-fails": "the next commit fails in its sync: before it counts, after it, or at the anchor (number modulo 3)",
    "crash-in-write": "the next write is cut off by a kill at a named point (target), and nobody drives for lasts",
    "torn-write": "the same, with the unfinished tail of the WAL (or the slot of the anchor) cut or garbled at number",
    "backup-restored": "an old copy of the file is put in its place, under a running driver or not (number odd)",
}


def faults(luck: Random, *, hours: int, mode: Mode, plan: Plan, moment: Callable[[], Micros]) -> list[Event]:
    kinds = [kind for kind in KINDS if luck.random() < 0.5]
    return [_fault(luck, kind, moment()) for kind in kinds for _ in range(luck.choice((1, 2, 3)))]


def _fault(luck: Random, kind: str, at: Micros) -> Event:
    lasts = luck.choice((0, SECOND, 30 * SECOND, 20 * MINUTE))
    target = luck.choice(WRITE_POINTS) if kind == "crash-in-write" else ""
    if kind == "disk-full":
        lasts = luck.choice((SECOND, 30 * SECOND, 30 * MINUTE))
    return Event(at=at, kind=kind, target=target, number=luck.randrange(1_000_000), lasts=lasts)
