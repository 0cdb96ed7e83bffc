"""What the frame drives: a world is one home of Tenure (embedded, cluster) with everything around it, in virtual time.

    plan   = generate(seed, home="embedded", mode="safety")     # data: the fleet, the money, and what happens when
    world  = EmbeddedWorld(plan)
    for event in plan.events:
        world.advance(event.at); world.do(event)                # one step
        world.violations()                                      # must be empty
    world.advance(plan.length); world.finish()                  # the end: must be empty too

A world has one thread and no clock of its own: the same plan gives the same entries, to the byte. Everything that
happens to it is an event of the plan, so a list of events that fails can be shrunk by leaving events out. Therefore an
event that no longer makes sense (its run was never submitted, its node is gone already) does nothing, and is never an
error.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from importlib import import_module
from importlib.util import find_spec
from typing import Protocol

from proof.sim.events import Event, Plan
from tenure.facts import Entry
from tenure.units import Micros

HOMES = {
    "embedded": "proof.sim.embedded:EmbeddedWorld",
    "cluster": "proof.sim.cluster:ClusterWorld",
}
"""Where each world lives: a class that is called with a plan."""


class World(Protocol):
    """One home under attack. Instants are microseconds since the beginning of the plan."""

    tally: Counter[str]
    """What really happened, by name: ``fault/KIND`` when a fault took effect (not when it was ordered), ``seen/WHAT``
    for what Tenure did (``proof.sim.seen`` counts that from entries), ``event/KIND``."""

    trace: Callable[[Entry], None] | None
    """Told of every entry as the auditor reads it, if somebody wants to watch."""

    def advance(self, until: Micros) -> None:
        """Let time pass up to ``until``: timers fire, pods begin and end, whatever is due happens."""
        ...

    def do(self, event: Event) -> None:
        """One event, now; then the home may settle."""
        ...

    def violations(self) -> list[str]:
        """What did not hold since this was last asked, in sentences."""
        ...

    def finish(self) -> list[str]:
        """The end: faults that are not for good stop, work ends, everybody who can run must have run; then the ledger
        verifies, a rebuilt engine equals the live one, and one more pass writes nothing. Sentences on what is not."""
        ...

    def close(self) -> None:
        """Let go of files. Called once, whatever happened."""
        ...


def homes() -> list[str]:
    """The homes whose worlds are there."""
    return [name for name, place in HOMES.items() if find_spec(place.partition(":")[0]) is not None]


class Made(Protocol):
    """How a world is made."""

    def __call__(self, plan: Plan) -> World: ...


def maker(home: str) -> Made:
    """The class of a home; imported only when it is wanted."""
    module, _, name = HOMES[home].partition(":")
    made: Made = getattr(import_module(module), name)
    return made
