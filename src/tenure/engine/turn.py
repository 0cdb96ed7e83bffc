"""One turn of the engine: facts are decided one after the other, and each is so for the decisions after it."""

from __future__ import annotations

from tenure.engine.reasons import sentence
from tenure.engine.state import State
from tenure.facts import Fact, Noted, Reason
from tenure.units import Instant


class Turn:
    """The facts of one decision, as they are made."""

    def __init__(self, state: State, *, now: Instant) -> None:
        self.state = state
        self.now = now
        self.facts: list[Fact] = []

    def emit(self, fact: Fact) -> None:
        self.state.fold(fact, self.now)
        self.facts.append(fact)

    def note(self, kind: str, subject: str, reason: Reason, message: str = "") -> None:
        """Tell people: becomes an Event and a notification."""
        self.emit(Noted(kind=kind, object=subject, reason=reason.code, message=message or sentence(reason)))
