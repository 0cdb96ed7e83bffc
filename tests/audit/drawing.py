"""Draws for ledgers written by hand: a chain of its own, and results as the engine's lottery finds them.

The engine is the second opinion here: the auditor draws again by its own code, and the two must agree.
"""

from __future__ import annotations

from typing import Any

from tenure.draw import VERSION, Beacon, Intent, ReservationRef, Result, Token
from tenure.engine.lottery import draw, simulated_chain
from tenure.facts import GENESIS, Fact, Published
from tenure.units import Instant, format_time

CHAIN = simulated_chain("audit", 9)


def published() -> list[Fact]:
    return [Published(beacon="operator", root=CHAIN[0].hex())]


def beacon(index: int = 1) -> Beacon:
    return Beacon(id="operator", index=index, previous=CHAIN[index - 1].hex())


def intent(subject: str, *tokens: Token, at: Instant, index: int = 1, **other: Any) -> Intent:
    """``subject`` is budget/envelope, or namespace/name of a reservation if ``namespace`` is given."""
    namespace = other.get("namespace", "")
    ref = ReservationRef(namespace=namespace, name=subject, uid=other.get("uid", ""))
    return Intent(
        version=VERSION,
        reservation=ref,
        activation=other.get("activation", 1),
        at=format_time(at),
        ledger_head=other.get("head", GENESIS),
        deficit=other.get("deficit", 8),
        tokens=tuple(sorted(tokens, key=lambda token: token.id)),
        beacons=(beacon(index),),
    )


def result(of: Intent, index: int = 1) -> Result:
    drawn = draw(of, {"operator": CHAIN[index].hex()})
    assert isinstance(drawn, Result)
    return drawn
