"""What may happen, as data: events, and the plan of a whole world. A plan is JSON, so a failure is a file.

One shape serves every kind, also those that only one home knows; ``kind`` says how the other fields are read. The table
below is the list of kinds that both homes know.
"""

from __future__ import annotations

from typing import Any, Literal

import msgspec
from msgspec import Struct

from tenure.units import HOUR, Micros

Mode = Literal["safety", "liveness"]
FOR_GOOD: Micros = -1
"""``lasts`` of a fault that never ends (liveness mode)."""

KINDS = {
    # what people do
    "submit": "a Run is submitted (object); lasts: how long its pods really take, if not as declared",
    "cancel": "a run is deleted (target)",
    "resize": "the owner of an elastic run desires number GPUs (target)",
    "sponsors": "the owner of a run asks others for money, or none any more (target; object: its funding)",
    "budget": "a Budget is created or edited (object)",
    "drop-budget": "a Budget is deleted (target)",
    "policy": "the policy is changed (object)",
    # what pods do by themselves
    "pod-exits": "a pod of a run exits well (target; number: which of its live pods, modulo how many there are)",
    "pod-fails": "a pod of a run exits badly (target, number)",
    "pod-breaks": "pods of a run cannot be started (target; lasts: for how long)",
}
FAULTS = {
    # nodes
    "node-fail": "a machine burns, with its pods (target); an operator fences it, and it comes back after lasts",
    "node-reboot": "a machine restarts: its pods are gone, it is not ready for lasts (target)",
    "node-unready": "a machine is not ready for lasts, its pods run on (target)",
    "node-cordon": "a machine is cordoned for lasts (target)",
    "node-lie": "a machine reports number GPUs for lasts (target)",
    "pods-lie": "pods on a machine are said to be gone that are there, or said nothing of for lasts (target)",
    # clocks
    "clock-skew": "the clock of whoever decides is number microseconds off, for lasts",
    "clock-step": "the clock jumps by number microseconds and stays there until the next step",
    "clock-freeze": "the clock stands still for lasts",
    # processes
    "crash": "whoever decides dies now, and another comes after lasts",
    "two-leaders": "for lasts, two processes both believe that they decide",
}
"""Faults that both homes inject; each home adds its own (``proof.sim.faults_store``, ``proof.sim.faults_api``)."""


class Event(Struct, frozen=True, omit_defaults=True, kw_only=True):
    """One thing that happens."""

    at: Micros
    """Since the beginning of the plan."""
    kind: str
    target: str = ""
    """Of a run its name (namespace ``lab``), of a node or a budget its name, of a fault what it is about."""
    number: int = 0
    lasts: Micros = 0
    object: dict[str, Any] = {}
    """A manifest, as JSON has it."""


class Plan(Struct, frozen=True, kw_only=True):
    """A world before anything has happened, and what will."""

    seed: int
    home: str
    mode: Mode = "safety"
    hours: int = 48
    policy: dict[str, Any] = {}
    nodes: tuple[dict[str, Any], ...] = ()
    budgets: tuple[dict[str, Any], ...] = ()
    events: tuple[Event, ...] = ()
    """In order of time; events of one instant in the order listed."""

    @property
    def length(self) -> Micros:
        return self.hours * HOUR


def manifest(item: Struct) -> dict[str, Any]:
    """An object as a file has it."""
    made: dict[str, Any] = msgspec.json.decode(msgspec.json.encode(item))
    return made
