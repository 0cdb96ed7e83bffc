"""One point, everything that may happen to it, and what must hold afterwards.

Of every transition: the engine takes it without an exception. Of every transition that leads to a new point: the
auditor, who has read all entries on the way there, finds nothing in the entry nor in all that is open; and where no
timer is due, one more pass writes nothing (I11). Of one point in ``REBUILT``: an engine that was built again from the
image decides every move exactly as this one does, and is then the same, byte for byte. A witness sees the rest.
"""

from __future__ import annotations

import traceback
from collections import Counter
from collections.abc import Callable, Iterable
from functools import partial
from pathlib import Path
from typing import Literal, NamedTuple, Protocol

import msgspec

from proof.scope.claims import Claims, Key
from proof.scope.point import Frozen, Point, act, attempts_after, entry_of, freeze, key_of
from proof.scope.rewind import Rewind
from proof.scope.tally import count
from proof.scope.world import CUSTODIAN, Move, head, moves
from tenure.audit import Auditor, Violation, settled_pass_wrote
from tenure.engine import Outcome, State, Tick, dump, load, next_wake, step
from tenure.engine.lottery import DrawRefused, draw
from tenure.facts import Entry, Froze
from tenure.units import Instant

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
        self.tried: Counter[int] = Counter()
        """Transitions, by the moves that they are from the beginning."""
        self.found: Counter[int] = Counter()
        """Points, by the least moves that lead to them."""
        self.rebuilt = 0
        """Transitions that a rebuilt engine decided as well."""
        self.proved = 0
        """Paths that were gone again, audited and folded from their first entry."""
        self.met = 0
        """Pairs of paths that met, and had the same future."""
        self.facts: Counter[str] = Counter()
        self.moves: Counter[str] = Counter()
        self.findings: list[Finding] = []

    @property
    def transitions(self) -> int:
        return self.tried.total()

    def add(self, other: Tallies) -> None:
        self.tried += other.tried
        self.found.update(other.found)  # which may be less than nothing, of a point that another worker had counted
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


Then = Literal["later", "now", "never"]
"""When the search goes on from points that are found: later, from what was kept of them; at once, while they are
there, and never from what is found then; never, they are the last."""


class _Live(NamedTuple):
    """A point that is there: moves happen to it, and are taken back."""

    key: Key
    state: State
    of_state: Rewind
    attempts: dict[str, int]
    entries: int
    path: tuple[str, ...]


class _Told(NamedTuple):
    """What an auditor is yet to hear of a point: the entry that led to it, whether nothing is due, and what comes after
    it. If the point is kept for later, that takes the auditor as it is then."""

    path: tuple[str, ...]
    entry: Entry | None
    at: Instant
    settled: bool
    after: list[_Told]
    keep: Callable[[Frozen], Point] | None


class Expansion:
    """Tries every move on points, and keeps what is found for later, if that is when the search goes on.

    The engine first decides on one point and all that is found from it; the auditor hears of that afterwards, all at
    once. Each is more code than a processor keeps at hand: in turns, move by move, they take a tenth longer.
    """

    def __init__(self, claims: Claims, tallies: Tallies, witness: Watching, *, then: Then) -> None:
        self._claims, self._tallies, self._witness, self._then = claims, tallies, witness, then
        self.found: list[Point] = []

    def of(self, point: Point) -> None:
        state = point.state.thaw()
        here = _Live(point.key, state, Rewind(state), point.attempts, point.entries, point.path)
        told = self._try_all(here, self._then)
        here.of_state.let_go()
        if told:
            self._tell(point.auditor.thaw(), told)

    def _tell(self, auditor: Auditor, told: list[_Told]) -> None:
        of_auditor = Rewind(auditor)
        for one in told:
            try:
                audit(auditor, one.entry, at=one.at, settled=one.settled)
            except Exception as error:  # whatever it is, it is a finding, with its path
                self._finds(one.path, error)
            else:
                if one.keep is not None:
                    self.found.append(one.keep(freeze(auditor)))
                if one.after:
                    self._tell(auditor, one.after)
            if one is not told[-1]:  # after that nobody asks it any more
                of_auditor.back()

    def _try_all(self, here: _Live, then: Then) -> list[_Told]:
        state, tallies = here.state, self._tallies
        sampled = int.from_bytes(here.key[:2]) % REBUILT == 0
        twin = load(dump(state)) if sampled else None
        of_twin = Rewind(twin)
        todo = moves(state, here.attempts)
        before = state.draws.keys() | set()
        told: list[_Told] = []
        for move in todo:  # which grows when a draw could fall otherwise
            path = (*here.path, move.name)
            tallies.tried[len(path)] += 1
            tallies.moves[move.name.partition(":")[0].partition("~")[0]] += 1
            try:
                outcome = act(state, move)
                count(outcome.facts, tallies.facts)
                after = dump(state)
                if twin is not None:
                    tallies.rebuilt += 1
                    _rebuilt(twin, of_twin, move, outcome, after)
                if move.luck == 0 and state.draws.keys() - before:
                    todo += _otherwise(state, move, before)
                told += self._arrive(here, outcome, after, path, then)
            except Exception as error:
                self._finds(path, error)
            if move is not todo[-1]:
                here.of_state.back()
        return told

    def _finds(self, path: tuple[str, ...], error: Exception) -> None:
        self._tallies.findings.append(Finding(path, in_words(error)))

    def _arrive(self, here: _Live, outcome: Outcome, image: bytes, path: tuple[str, ...], then: Then) -> list[_Told]:
        """Where a move has led to: checked if nobody was there, or if the search goes on from it on this path."""
        state = here.state
        attempts = attempts_after(here.attempts, outcome.facts)
        key = key_of(state, image, attempts)
        new = self._claims.claim(key)
        goes_on = then != "never" and self._claims.go_on(key)
        if self._witness.looks(key):
            (self._witness.new if new else self._witness.again)(key, path)
        if not (new or goes_on):
            return []
        self._tallies.found[len(path)] += 1
        if not new:
            self._tallies.found[len(path) + 1] -= 1  # it had been reached by one more move
        entry, settled, at = entry_of(state, outcome, here.entries + 1), once_more(state), state.now
        entries = here.entries + (entry is not None)
        keep, after = None, list[_Told]()
        if goes_on and then == "later":
            keep = partial(Point, key, freeze(state), attempts, entries, path)
        elif goes_on:
            after = self._try_all(_Live(key, state, Rewind(state), attempts, entries, path), "never")
        return [_Told(path, entry, at, settled, after, keep)]


def check(state: State, auditor: Auditor, entry: Entry | None) -> None:
    """All that can be said of a state and of the entry that led to it."""
    audit(auditor, entry, at=state.now, settled=once_more(state))


def once_more(state: State) -> bool:
    """Whether nothing is due; if so, one more pass writes nothing."""
    wake = next_wake(state)
    settled = wake is None or wake > state.now
    if settled:
        again = step(state, Tick(), now=state.now)
        found = settled_pass_wrote(again.facts, at=state.now)
        assert not found, sentences(found)
        assert not again.looked, "I11-settled: there was something left to decide on"
    return settled


def audit(auditor: Auditor, entry: Entry | None, *, at: Instant, settled: bool) -> None:
    """What the auditor says of an entry, and of all that is open after it."""
    found = auditor.feed(entry) if entry is not None else []
    found += auditor.check(at, settled=settled)
    assert not found, sentences(found)


def sentences(found: Iterable[Violation]) -> str:
    """What an auditor found, for people; each once."""
    return "\n".join(dict.fromkeys(one.sentence() for one in found))


def in_words(error: Exception) -> str:
    """What does not hold: as it was said, or else what was raised and where."""
    if isinstance(error, AssertionError) and str(error):
        return str(error)
    last = traceback.extract_tb(error.__traceback__)[-1]
    return f"{type(error).__name__}: {error} ({last.name}, {Path(last.filename).name}:{last.lineno})"


def _rebuilt(twin: State, of_twin: Rewind, move: Move, outcome: Outcome, after: bytes) -> None:
    try:
        same = act(twin, move)
        assert same == outcome, f"an engine rebuilt from the image decides otherwise:\n{_differ(outcome, same)}"
        assert dump(twin) == after, "an engine rebuilt from the image is another one afterwards"
    finally:
        of_twin.back()


def _differ(one: Outcome, other: Outcome) -> str:
    """The facts that only one of two outcomes has."""
    here = [f"  live    {fact}" for fact in one.facts if fact not in other.facts]
    there = [f"  rebuilt {fact}" for fact in other.facts if fact not in one.facts]
    return "\n".join([*here, *there]) or f"  live    looked={one.looked}\n  rebuilt looked={other.looked}"


def _otherwise(state: State, move: Move, before: set[str]) -> list[Move]:
    """The same move on another head of the ledger, on which the draw begins with somebody else."""
    for subject in sorted(state.draws.keys() - before):
        if len(state.draws[subject].intent.tokens) == 1:
            continue  # on every head it begins with the only one there is
        first = _first(state.draws[subject], 0)
        for luck in range(1, LUCKS):
            if _first(state.draws[subject], luck) != first:
                return [move._replace(name=f"{move.name}~{luck}", luck=luck)]
    return []


def _first(froze: Froze, luck: int) -> str:
    intent = msgspec.structs.replace(froze.intent, ledger_head=head(luck))
    result = draw(intent, {CUSTODIAN.beacon: CUSTODIAN.answer(intent) or ""})
    return "" if isinstance(result, DrawRefused) else result.order[0]
