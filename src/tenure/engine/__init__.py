"""The pure decision engine: facts and a clock reading in, facts with reasons out. No clock, no I/O, no chance.

    state = State(fleet="lab")
    outcome = step(state, Apply(objects=(budget, node, run)), now=now)

``step`` is the only way in, ``State.fold`` the only way facts get in again; everything else here may change.
"""

from tenure.engine.image import dump, load
from tenure.engine.plan import Plan, make_plan
from tenure.engine.reasons import sentence
from tenure.engine.settle import settle
from tenure.engine.state import State
from tenure.engine.step import (
    Apply,
    Delete,
    Event,
    Outcome,
    Publish,
    Report,
    Resolve,
    Reveal,
    SetPolicy,
    Sighting,
    Tick,
    next_wake,
    step,
)

__all__ = [
    "Apply",
    "Delete",
    "Event",
    "Outcome",
    "Plan",
    "Publish",
    "Report",
    "Resolve",
    "Reveal",
    "SetPolicy",
    "Sighting",
    "State",
    "Tick",
    "dump",
    "load",
    "make_plan",
    "next_wake",
    "sentence",
    "settle",
    "step",
]
