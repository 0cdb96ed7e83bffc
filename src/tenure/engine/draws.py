"""Custodians at work (SPEC 8): a chain is published, and what it reveals decides a draw that was frozen.

A reveal that does not fit changes nothing, and neither does one that comes twice: the draw it was for is over then.
Whatever is cut in the end, an index that was revealed is spent, so every draw that is revealed leaves its record.
"""

from __future__ import annotations

from collections.abc import Mapping

from tenure.engine import activation, shortage
from tenure.engine.lottery import DrawRefused, draw
from tenure.engine.resolver import record
from tenure.engine.turn import Turn
from tenure.facts import Published


def publish(turn: Turn, beacon: str, root: str) -> None:
    """From now on all draws use this chain; a chain that is in use already is not begun again."""
    if turn.state.roots.get(beacon) != root:
        turn.emit(Published(beacon=beacon, root=root))


def reveal(turn: Turn, subject: str, reveals: Mapping[str, str]) -> None:
    """The custodians' answers to the draw that was frozen for ``subject``."""
    froze = turn.state.draws.get(subject)
    if froze is None:
        return
    result = draw(froze.intent, reveals)
    if isinstance(result, DrawRefused):
        return
    (shortage if subject.startswith("Budget/") else activation).drawn(turn, froze, result)
    if subject in turn.state.draws:
        intent = froze.intent
        record(turn, trigger=froze.trigger, subject=subject, activation=intent.activation, cuts=(),
               deficit=intent.deficit, intent=intent, result=result)  # fmt: skip
