"""One point, everything that may happen to it, and what must hold afterwards.

Of every transition: the engine takes it without an exception. Of every transition that leads to a new point: the
auditor, who has read all entries on the way there, finds nothing in the entry nor in all that is open; and where no
timer is due, one more pass writes nothing (I11). Of one point in ``REBUILT``: an engine that was built again from the
image decides every move exactly as this one does, and is then the same, byte for byte. A witness sees the rest.
"""

from __future__ import annotations

from collections import Counter
from typing import Literal, NamedTuple, Protocol

import msgspec

from proof.scope.claims import Claims, Key
from proof.scope.point import Point, act, attempts_after, entry_of, freeze, key_of
from proof.scope.rewind import Rewind, graph
from proof.scope.tally import count
from proof.scope.world import CUSTODIAN, Move, head, moves
from tenure.audit import Auditor, settled_pass_wrote
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
    auditor: Auditor
    of_auditor: Rewind
    attempts: dict[str, int]
    entries: int
    path: tuple[str, ...]


class _Last(NamedTuple):
    """A point from which nobody goes on, and what its auditor is yet to hear: the entry, and whether nothing is due."""

    path: tuple[str, ...]
    entry: Entry | None
    at: Instant
    settled: bool


class Expansion:
    """Tries every move on points, and keeps what is found for later, if that is when the search goes on."""

    def __init__(self, claims: Claims, tallies: Tallies, witness: Watching, *, then: Then) -> None:
        self._claims, self._tallies, self._witness, self._then = claims, tallies, witness, then
        self.found: list[Point] = []

    def of(self, point: Point) -> None:
        state, of_state = point.state.thaw_to_rewind()
        auditor, of_auditor = point.auditor.thaw_to_rewind()
        here = _Live(point.key, state, of_state, auditor, of_auditor, point.attempts, point.entries, point.path)
        self._try_all(here, self._then)
        of_state.let_go()
        of_auditor.let_go()

    def _try_all(self, here: _Live, then: Then) -> None:
        state, tallies = here.state, self._tallies
        sampled = int.from_bytes(here.key[:2]) % REBUILT == 0
        twin = load(dump(state)) if sampled else None
        of_twin = Rewind(() if twin is None else graph(twin))
        todo = moves(state, here.attempts)
        before = state.draws.keys() | set()
        last: list[_Last] = []
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
                self._arrive(here, outcome, after, path, then, last)
            except Exception as error:  # whatever it is, it is a finding, with its path
                self._finds(here, path, error)
            if move is not todo[-1]:  # after that nobody looks at it any more
                here.of_state.back()
        for one in last:
            try:
                audit(here.auditor, one.entry, at=one.at, settled=one.settled)
                here.of_auditor.back()
            except Exception as error:
                self._finds(here, one.path, error)

    def _finds(self, here: _Live, path: tuple[str, ...], error: Exception) -> None:
        self._tallies.findings.append(Finding(path, f"{type(error).__name__}: {error}"))
        here.of_auditor.back()

    def _arrive(
        self, here: _Live, outcome: Outcome, after: bytes, path: tuple[str, ...], then: Then, last: list[_Last]
    ) -> None:
        """Where a move has led to: checked if nobody was there, or if the search goes on from it on this path. Of the
        ``last`` points the auditor hears later, of all of them at once: so a processor has its code at hand."""
        state, auditor = here.state, here.auditor
        attempts = attempts_after(here.attempts, outcome.facts)
        key = key_of(state, after, attempts)
        new = self._claims.claim(key)
        goes_on = then != "never" and self._claims.go_on(key)
        if new or goes_on:
            entry = entry_of(state, outcome, here.entries + 1)
            settled = once_more(state)
            if goes_on:
                audit(auditor, entry, at=state.now, settled=settled)
            else:
                last.append(_Last(path, entry, state.now, settled))
            self._tallies.found[len(path)] += 1
            if not new:
                self._tallies.found[len(path) + 1] -= 1  # it had been reached by one more move
        if self._witness.looks(key):
            (self._witness.new if new else self._witness.again)(key, path)
        if goes_on:
            entries = here.entries + (entry is not None)
            if then == "later":
                self.found.append(Point(key, freeze(state), freeze(auditor), attempts, entries, path))
            else:
                of = Rewind(graph(state)), Rewind(graph(auditor))
                self._try_all(_Live(key, state, of[0], auditor, of[1], attempts, entries, path), "never")
            here.of_auditor.back()


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
        assert not found, "\n".join(map(str, found))
        assert not again.looked, "I11-settled: there was something left to decide on"
    return settled


def audit(auditor: Auditor, entry: Entry | None, *, at: Instant, settled: bool) -> None:
    """What the auditor says of an entry, and of all that is open after it."""
    found = auditor.feed(entry) if entry is not None else []
    found += auditor.check(at, settled=settled)
    assert not found, "\n".join(map(str, found))


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
