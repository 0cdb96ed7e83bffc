"""Who reveals: the port to the custodians of draws (SPEC 8), and the simulator's own.

A custodian is asked with an intent that is committed, and answers with the next value of its chain, always the same
one for the same intent. It may be away; then the draw waits. A value that was revealed is spent on its intent, so all
custodians are asked first whether they can answer.
"""

from __future__ import annotations

from functools import lru_cache
from typing import Protocol

from tenure.draw import Intent
from tenure.engine.lottery import simulated_chain

LENGTH = 10_000
"""Draws that a simulated chain lasts for."""
SIMULATED = "simulator"
"""The beacon of the simulator's custodian."""


class Custodian(Protocol):
    """Whoever keeps a chain."""

    @property
    def beacon(self) -> str: ...
    def can_answer(self, intent: Intent) -> bool:
        """Whether ``answer`` would have a value now. Nothing is revealed by this."""
        ...

    def answer(self, intent: Intent) -> str | None:
        """The value that this intent asks of this custodian, as hex; None if there is no answer (yet)."""
        ...


class SimulatedCustodian:
    """The one custodian of a simulation: its chain comes from the policy key ``drawSecret``, so that draws repeat."""

    beacon = SIMULATED

    def __init__(self, secret: str) -> None:
        self._secret = secret

    @property
    def root(self) -> str:
        """c[0], to be published."""
        return _chain(self._secret)[0].hex()

    def can_answer(self, intent: Intent) -> bool:
        return self.answer(intent) is not None

    def answer(self, intent: Intent) -> str | None:
        index = next((beacon.index for beacon in intent.beacons if beacon.id == self.beacon), 0)
        return _chain(self._secret)[index].hex() if 0 < index <= LENGTH else None


@lru_cache(maxsize=8)
def _chain(secret: str) -> tuple[bytes, ...]:
    return simulated_chain(secret, LENGTH)
