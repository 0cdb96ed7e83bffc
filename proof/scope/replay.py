"""One path at length: every entry, everything the auditor can say, and the same ledger read again from its first entry.

A path is what a search prints: names of moves, with blanks in between. ``follow`` goes along it and keeps the entries;
``prove`` then does what would cost too much at every point of a search: the auditor's whole recount from scratch, and a
state folded from the entries alone, which must equal the live one byte for byte. ``same_future`` takes two paths that a
search took for one state, lets the same things happen to both, and insists that the same is decided.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from random import Random
from typing import NamedTuple

from proof.scope.expand import check, in_words, sentences
from proof.scope.point import Point, act, attempts_after, beginning, entry_of, freeze, key_of
from proof.scope.world import Move, moves
from tenure.audit import check_all
from tenure.engine import Outcome, State, dump, next_wake
from tenure.facts import Closed, Ending, Entry, Fact, Froze, Moved, Noted, Opened, Placed, Reserved, Resolved, Seen
from tenure.shell.home import fold_entry


class NoSuchMove(ValueError):
    """A path says something that cannot happen there."""


class Broken(Exception):
    """Something does not hold after a path: what a search would call a finding."""

    def __init__(self, path: Sequence[str], says: str) -> None:
        super().__init__(says)
        self.path, self.says = tuple(path), says


class Trail:
    """A state with all that led to it."""

    def __init__(self) -> None:
        self.state, self.auditor, self.entries = beginning()
        self.attempts: dict[str, int] = {}
        self.path: list[str] = []

    def moves(self) -> dict[str, Move]:
        return {move.name: move for move in moves(self.state, self.attempts)}

    def go(self, name: str) -> Outcome:
        """One move further, with all checks of the search."""
        outcome, entry = self.take(name)
        check(self.state, self.auditor, entry)
        return outcome

    def take(self, name: str) -> tuple[Outcome, Entry | None]:
        """One move further, unchecked: what was decided, and the entry for that."""
        plain, _, luck = name.partition("~")
        found = self.moves().get(plain)
        if found is None:
            raise NoSuchMove(f"{name!r} cannot happen after {' '.join(self.path) or 'nothing'!r}; "
                             f"what can: {' '.join(self.moves())}")  # fmt: skip
        self.path.append(name)
        outcome = act(self.state, found._replace(luck=int(luck or 0)))
        self.attempts = attempts_after(self.attempts, outcome.facts)
        entry = entry_of(self.state, outcome, len(self.entries) + 1)
        if entry is not None:
            self.entries.append(entry)
        return outcome, entry

    def point(self) -> Point:
        """Where it has come to, for a search to begin at."""
        key = key_of(self.state, dump(self.state), self.attempts)
        state, auditor = freeze(self.state), freeze(self.auditor)
        return Point(key, state, self.attempts, len(self.entries), tuple(self.path), auditor)

    def prove(self) -> None:
        """The whole ledger, audited and folded from its beginning."""
        wake = next_wake(self.state)
        settled = wake is None or wake > self.state.now
        found = check_all(self.entries, now=self.state.now, settled=settled)
        assert not found, sentences(found)
        folded = State(self.state.fleet)
        for entry in self.entries:
            fold_entry(folded, entry)
        folded.now = self.state.now
        assert dump(folded) == dump(self.state), "a state folded from the entries is another one"


def follow(path: Sequence[str]) -> Trail:
    trail = Trail()
    for name in path:
        trail.go(name)
    return trail


class Step(NamedTuple):
    """What one move of a path did, for people."""

    name: str
    after: int
    """Microseconds since the beginning."""
    says: list[str]


def story(path: Sequence[str]) -> Iterator[Step]:
    """A path move by move; raises ``Broken`` where something does not hold, once the move that breaks it is told."""
    trail = Trail()
    begun = trail.state.now
    try:
        for name in path:
            outcome, entry = trail.take(name)
            yield Step(name, trail.state.now - begun, [_text(fact) for fact in outcome.facts])
            check(trail.state, trail.auditor, entry)
        trail.prove()
    except NoSuchMove:
        raise
    except Exception as error:
        raise Broken(trail.path, in_words(error)) from error


def _text(fact: Fact) -> str:
    """A fact in one line."""
    match fact:
        case Opened(lease=one):
            where = f"{one.node} {','.join(map(str, one.gpus))}"
            return f"Opened {one.name}: {one.role} {where}, paid by {one.budget}/{one.envelope}, {one.reason}"
        case Ending() | Closed():
            return f"{type(fact).__name__} {' '.join(fact.leases) or 'no lease'}: {fact.reason}"
        case Placed(pod=pod):
            return f"Placed {pod.name}: {pod.node} {','.join(map(str, pod.gpus))}"
        case Seen():
            return f"Seen {fact.pod}: {fact.phase}"
        case Moved():
            return f"Moved {fact.run}: {fact.life.phase}, {fact.life.message}"
        case Reserved(reservation=one):
            return f"Reserved {one.run}: {one.state} {one.confidence} {one.reason}"
        case Resolved():
            cuts = ", ".join(f"{cut.kind} {cut.run} {cut.gpus}" for cut in fact.cuts)
            return f"Resolved {fact.subject} ({fact.trigger}): {cuts or 'nobody is cut'}"
        case Froze():
            return f"Froze {fact.subject}: {' '.join(token.id for token in fact.intent.tokens)}"
        case Noted():
            return f"Noted {fact.kind} {fact.object}: {fact.message}"
    return type(fact).__name__


def same_future(one: Sequence[str], other: Sequence[str], *, luck: Random, length: int) -> list[str]:
    """Let the same moves happen after two paths; returns them. AssertionError if anything differs."""
    left, right = follow(one), follow(other)
    assert dump(left.state) == dump(right.state), "they are not the same state"
    suffix: list[str] = []
    for _ in range(length):
        names = [*left.moves()]
        assert names == [*right.moves()], f"after {suffix}: not the same things can happen"
        if not names:
            break
        suffix.append(luck.choice(names))
        mine, theirs = left.go(suffix[-1]), right.go(suffix[-1])
        assert mine == theirs, f"after {suffix}: another decision"
        assert dump(left.state) == dump(right.state), f"after {suffix}: another state"
    return suffix
