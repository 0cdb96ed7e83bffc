"""Random histories as killers: the state machines of the tests without their twins, a fixed seed each.

The auditor looks at every entry, and a watch at every pass: the world comes to rest (I11, as ``tenure.audit`` judges
what was written), and no promise is written down again that is there already. At every fifth step the books are counted
from scratch, and a rebuilt state must have nothing more to write. What the twins add (a rebuilt state decides alike)
costs half the time and finds bugs of rebuilding alone; those have tests of their own.
"""

from __future__ import annotations

from random import Random

from proof.mutants.seeds import CHECK_EVERY, STEPS
from tenure.audit import settled_pass_wrote
from tenure.engine import Event, Outcome, Tick
from tenure.facts import Reservation, Reserved
from tests.engine.machine import KINDS, World
from tests.engine.test_failures_machine import KINDS as FAILING_KINDS
from tests.engine.test_failures_machine import Failing
from tests.engine.test_reservations_machine import KINDS as WAITING_KINDS
from tests.engine.test_reservations_machine import Waiting

PASSES_MAX = 32
"""Passes at one instant, with nothing from outside in between, after which a world has come to rest."""


class _Bare(World):
    """A world without twins, and with an eye on what is written in vain."""

    def __init__(self, seed: int) -> None:
        super().__init__(seed)
        self._passes, self._at = 0, self.fleet.now
        self._promised: dict[str, Reservation] = {}
        self._handle, self.fleet.handle = self.fleet.handle, self._watched  # type: ignore[method-assign]  # to look on

    def _watched(self, event: Event, *, decide: bool = True) -> Outcome:
        outcome, now = self._handle(event, decide=decide), self.fleet.state.now
        self._passes = self._passes + 1 if isinstance(event, Tick) and now == self._at else 0
        self._at = now
        if self._passes > PASSES_MAX:
            raise AssertionError(f"the world does not come to rest {settled_pass_wrote(outcome.facts, at=now)}")
        for one in (fact.reservation for fact in outcome.facts if isinstance(fact, Reserved)):
            assert self._promised.get(one.run_key) != one, f"a promise is written that is there already: {one}"
            self._promised[one.run_key] = one
        return outcome

    def act(self, kind: str, luck: Random) -> None:
        event = self._event(kind, luck)
        if event is not None:
            decide = luck.random() < 0.8
            self.fleet.handle(event, decide=decide)
            assert not decide or not self.fleet.state.agenda.pending, f"{kind}: something was not decided on"
            self.settled = False
            if not decide and luck.random() < 0.5:
                return
        self.settle()


class _BareFailing(Failing, _Bare):
    pass


class _BareWaiting(Waiting, _Bare):
    pass


def live(name: str) -> None:
    """One history; AssertionError at the first thing that does not hold."""
    kind, _, number = name.rpartition("-")
    makes, kinds = {
        "anything": (_Bare, KINDS),
        "failing": (_BareFailing, FAILING_KINDS),
        "waiting": (_BareWaiting, WAITING_KINDS),
    }[kind]
    luck = Random(f"mutants {name}")
    world = makes(int(number))
    world.check()
    for index in range(STEPS):
        begins = kind == "failing" and index < 12
        world.act(("submit", "submit", "bind")[index % 3] if begins else luck.choice(kinds), Random(f"{name} {index}"))
        if index % CHECK_EVERY == CHECK_EVERY - 1:
            world.check()
