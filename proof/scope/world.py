"""The small world, and everything that may happen next in it.

Two owners with a Budget each, two nodes of two GPUs, three runs that want up to eight of the four GPUs there are:

    a   org:a   a gang of two; says that it lasts 4 minutes, and waits 3 for another node when its own fails
    b   org:b   elastic, one or two GPUs, each with a spare; is restarted once
    c   org:b   three GPUs, open-ended; borrows from org:a beside b; queues again when it is cut

So whoever comes last has to wait, gets a reservation, and in the end somebody gives way. ``moves`` lists what may
happen to a state, in a fixed order; a move is a name, an event, and how long it takes. Nothing is listed that the world
around the engine would not do: pods report once and in order, a pod that must wait for another is not bound, machines
that are down are silent.
"""

from __future__ import annotations

from functools import cache
from hashlib import sha256
from typing import NamedTuple

from tenure.api.core import Node
from tenure.api.policy import Policy
from tenure.engine import (
    Apply,
    Delete,
    Event,
    Publish,
    Report,
    Resolve,
    Reveal,
    SetPolicy,
    Sighting,
    State,
    Tick,
    next_wake,
)
from tenure.engine.state import PodRow
from tenure.facts import Froze
from tenure.shell.custodian import SimulatedCustodian
from tenure.testing.builders import FENCE, budget, elastic, envelope, node, run
from tenure.units import MINUTE, Micros

POLICY = Policy(
    activation_lead="2m", budget_grace="2m", grow_interval="2m", lookahead="10m", patience="3m", retry_backoff="30s"
)
CUSTODIAN = SimulatedCustodian("scope")
RUNS = {
    "a": run("a", 2, owner="org:a", lasts="4m", checkpoint="3m"),
    "b": run("b", 1, owner="org:b", elastic=elastic(1, 2, 1), spares=1, restarts=1),
    "c": run("c", 3, owner="org:b", sponsors=("org:a",), on_preemption="Requeue"),
}
MONEY = budget("a", envelope("main", 4, lends_to=("org:b",), lends=3), owner="org:a")
LESS = budget("a", envelope("main", 1, lends_to=("org:b",), lends=1), owner="org:a")
OTHERS = budget("b", envelope("main", 4), owner="org:b")
NODES = ("n0", "n1")
CORDONED = "n1"
"""The node that people drain now and then; the other one fails and returns."""
CANCELED = "c"
"""The run that people cancel, and submit again."""
CLUMSY = "a"
"""The run whose pods may fail before they have started, too."""


def _node(name: str, *, fenced: bool = False, cordoned: bool = False) -> Node:
    return node(name, 2, taints=(FENCE,) if fenced else (), cordoned=cordoned)


SETUP: tuple[Event, ...] = (
    SetPolicy(POLICY),
    Publish(CUSTODIAN.beacon, CUSTODIAN.root),
    Apply((MONEY, OTHERS, *(_node(name) for name in NODES))),
)
"""What has happened before the first move."""


class Move(NamedTuple):
    """Something that may happen: the clock is set ``later``, then the event comes."""

    name: str
    event: Event
    later: Micros = 0
    luck: int = 0
    """Which of several ledger heads a draw would be frozen on: so that each owner is drawn on some path."""


@cache
def head(luck: int) -> str:
    """A hash of the ledger. The true one holds the whole history, and would make each path a world of its own."""
    return sha256(f"scope {luck}".encode()).hexdigest()


_LOOKS = {
    (name, fenced, cordoned): Apply((_node(name, fenced=fenced, cordoned=cordoned),))
    for name in NODES
    for fenced in (False, True)
    for cordoned in (False, True)
}
_LOWER, _RESTORE = Move("lower", Apply((LESS,))), Move("restore", Apply((MONEY,)))
_CANCEL = Move(f"-{CANCELED}", Delete("Run", CANCELED, "lab"))
_ROOM = Move(f"room:{CANCELED}", Resolve(f"lab/{CANCELED}"))
_SUBMIT: dict[tuple[str, int], Move] = {}


def moves(state: State, attempts: dict[str, int]) -> list[Move]:
    """All that may happen next. ``attempts``: the last attempt of each run's name, which the ledger knows."""
    out = [move for name in RUNS if (move := _person(state, name, attempts.get(name, 0)))]
    if (one := state.reservations.get(f"lab/{CANCELED}")) is not None and one.state == "Pending":
        out.append(_ROOM)
    for key in sorted(state.pods):
        out += _pod(state, key, state.pods[key])
    out += [_machine(state, name) for name in NODES]
    out.append(_LOWER if state.budgets["a"].spec.envelopes[0].concurrency == 4 else _RESTORE)
    for subject, froze in sorted(state.draws.items()):
        out.append(Move(f"reveal:{froze.intent.reservation.name.split('-')[0]}", _answer(subject, froze)))
    return out + _time(state)


def _person(state: State, name: str, attempts: int) -> Move | None:
    """Somebody submits a run, or cancels it."""
    row = state.runs.get(f"lab/{name}")
    if row is not None:
        return _CANCEL if name == CANCELED and not row.life.deleting else None
    if (name, attempts) not in _SUBMIT:
        _SUBMIT[name, attempts] = Move(f"+{name}", Apply((RUNS[name],), {f"lab/{name}": attempts}))
    return _SUBMIT[name, attempts]


def _pod(state: State, key: str, row: PodRow) -> list[Move]:
    """What pods do: start, end well, end badly, and leave when they were asked to."""
    if row.stop:
        return [_seen("gone", key, "Gone")]
    match row.phase:
        case "Placed" if not state.must_wait(row):
            fails = [_seen("bad", key, "Failed")] if row.pod.run == CLUMSY else []
            return [_seen("bound", key, "Bound"), *fails]
        case "Bound":
            return [_seen("ok", key, "Succeeded"), _seen("bad", key, "Failed")]
    return []


_CODES = {"Succeeded": 0, "Failed": 1}
_SEEN: dict[tuple[str, str], Move] = {}


def _seen(word: str, key: str, phase: str) -> Move:
    if (word, key) not in _SEEN:
        sighting = Sighting(key, phase, _CODES.get(phase))  # type: ignore[arg-type]  # a PodPhase
        _SEEN[word, key] = Move(f"{word}:{key.partition('/')[2]}", Report((sighting,)))
    return _SEEN[word, key]


def _machine(state: State, name: str) -> Move:
    """One node fails and returns; the other is cordoned and let in again."""
    spec = state.topology.rows[name].node.spec
    fenced, cordoned = bool(spec.taints), spec.unschedulable
    if name == CORDONED:
        return Move(f"{'uncordon' if cordoned else 'cordon'}:{name}", _LOOKS[name, fenced, not cordoned])
    return Move(f"{'up' if fenced else 'down'}:{name}", _LOOKS[name, not fenced, cordoned])


def _answer(subject: str, froze: Froze) -> Reveal:
    return Reveal(subject, {CUSTODIAN.beacon: CUSTODIAN.answer(froze.intent) or ""})


def _time(state: State) -> list[Move]:
    """The engine's next timer rings; or a minute passes, and none does."""
    wake = next_wake(state)
    out = [] if wake is None else [Move("tick", Tick(), max(0, wake - state.now))]
    if wake is None or wake > state.now + MINUTE:
        out.append(Move("minute", Tick(), MINUTE))
    return out
