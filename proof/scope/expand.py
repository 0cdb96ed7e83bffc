"""One point, everything that may happen to it, and what must hold afterwards.

Of every transition: the engine takes it without an exception. Of every transition that leads to a new point: the
auditor, who has read all entries on the way there, finds nothing in the entry nor in all that is open; and where no
timer is due, one more pass writes nothing (I11). Of one point in ``REBUILT``: an engine that was built again from the
image decides every move exactly as this one does, and is then the same, byte for byte. A witness sees the rest.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from typing import NamedTuple, Protocol

import msgspec

from proof.scope.point import Key, Point, act, attempts_after, entry_of, freeze, key_of
from proof.scope.tally import count
from proof.scope.world import CUSTODIAN, Move, head, moves
from tenure.audit import Auditor, settled_pass_wrote
from tenure.engine import Outcome, State, Tick, dump, load, next_wake, step
from tenure.engine.lottery import DrawRefused, draw
from tenure.facts import Entry, Froze

REBUILT = 64
LUCKS = 16
"""Ledger heads that are tried for one on which somebody else is drawn."""


class Finding(NamedTuple):
    """Something that does not hold, and the shortest path to it that was found."""

    path: tuple[str, ...]
    says: str


class Tallies:
    """What a search has seen."""

    def __init__(self) -> None:
        self.transitions = 0
        self.rebuilt = 0
        """Transitions that a rebuilt engine decided as well."""
        self.proved = 0
        """Paths that were gone again, audited and folded from their first entry."""
        self.met = 0
        """Pairs of paths that met, and had the same future."""
        self.facts: Counter[str] = Counter()
        self.moves: Counter[str] = Counter()
        self.findings: list[Finding] = []

    def add(self, other: Tallies) -> None:
        self.transitions += other.transitions
        self.rebuilt += other.rebuilt
        self.proved += other.proved
        self.met += other.met
        self.facts += other.facts
        self.moves += other.moves
        self.findings += other.findings


class Watching(Protocol):
    """Whoever looks closer at some points."""

    def looks(self, key: Key) -> bool: ...
    def new(self, key: Key, path: tuple[str, ...]) -> None: ...
    def again(self, key: Key, path: tuple[str, ...]) -> None: ...


def expand(
    point: Point, known: set[Key], tallies: Tallies, witness: Watching, *, last: bool
) -> Iterator[tuple[Key, Point | None]]:
    """Try every move; yields the points that were not known, frozen unless this is the ``last`` level."""
    state: State | None = point.state.thaw()
    assert state is not None
    image = dump(state) if int.from_bytes(point.key[:2]) % REBUILT == 0 else None
    todo = moves(state, point.attempts)
    for move in todo:  # which grows when a draw could fall otherwise
        state = point.state.thaw() if state is None else state
        path = (*point.path, move.name)
        tallies.transitions += 1
        tallies.moves[move.name.partition(":")[0].partition("~")[0]] += 1
        try:
            before = state.draws.keys() | set()
            outcome = act(state, move)
            count(outcome.facts, tallies.facts)
            if image is not None:
                tallies.rebuilt += 1
                _rebuilt(image, move, outcome, dump(state))
            if move.luck == 0 and state.draws.keys() - before:
                todo += _otherwise(state, move, before)
            after = dump(state)
            attempts = attempts_after(point.attempts, outcome.facts)
            key = key_of(state, after, attempts)
            if key not in known:
                known.add(key)
                auditor = point.auditor.thaw()
                entry = entry_of(state, outcome, point.entries + 1)
                check(state, auditor, entry)
                if witness.looks(key):
                    witness.new(key, path)
                entries = point.entries + (entry is not None)
                yield key, None if last else Point(key, freeze(state), freeze(auditor), attempts, entries, path)
            elif witness.looks(key):
                witness.again(key, path)
        except Exception as error:  # whatever it is, it is a finding, with its path
            tallies.findings.append(Finding(path, f"{type(error).__name__}: {error}"))
        state = None


def check(state: State, auditor: Auditor, entry: Entry | None) -> None:
    """All that can be said of a state and of the entry that led to it."""
    wake = next_wake(state)
    settled = wake is None or wake > state.now
    found = auditor.feed(entry) if entry is not None else []
    found += auditor.check(state.now, settled=settled)
    if settled:
        again = step(state, Tick(), now=state.now)
        found += settled_pass_wrote(again.facts, at=state.now)
        assert not again.looked, "I11-settled: there was something left to decide on"
    assert not found, "\n".join(map(str, found))


def _rebuilt(image: bytes, move: Move, outcome: Outcome, after: bytes) -> None:
    twin = load(image)
    same = act(twin, move)
    assert same == outcome, f"an engine rebuilt from the image decides otherwise:\n{_differ(outcome, same)}"
    assert dump(twin) == after, "an engine rebuilt from the image is another one afterwards"


def _differ(one: Outcome, other: Outcome) -> str:
    """The facts that only one of two outcomes has."""
    here = [f"  live    {fact}" for fact in one.facts if fact not in other.facts]
    there = [f"  rebuilt {fact}" for fact in other.facts if fact not in one.facts]
    return "\n".join([*here, *there]) or f"  live    looked={one.looked}\n  rebuilt looked={other.looked}"


def _otherwise(state: State, move: Move, before: set[str]) -> list[Move]:
    """The same move on another head of the ledger, on which the draw begins with somebody else."""
    for subject in sorted(state.draws.keys() - before):
        first = _first(state.draws[subject], 0)
        for luck in range(1, LUCKS):
            if _first(state.draws[subject], luck) != first:
                return [move._replace(name=f"{move.name}~{luck}", luck=luck)]
    return []


def _first(froze: Froze, luck: int) -> str:
    intent = msgspec.structs.replace(froze.intent, ledger_head=head(luck))
    result = draw(intent, {CUSTODIAN.beacon: CUSTODIAN.answer(intent) or ""})
    return "" if isinstance(result, DrawRefused) else result.order[0]
