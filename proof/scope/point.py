"""A point of the search: an engine's state and the auditor who has read the entries that led to it.

A point is kept *frozen*, as bytes, and thawed once for each move that is tried on it. Facts and objects are immutable
records: the copies share them (``_Freezer`` writes a number in their place), so what is copied is what may change. Two
points are the same when the images of their states are, byte for byte, and the ledger knows the same last attempts of
runs that are gone: an engine decides by nothing else (SPEC 1), which ``replay.same_future`` puts to the test.
"""

from __future__ import annotations

import pickle
from hashlib import blake2b
from io import BytesIO
from typing import Any, NamedTuple

from msgspec import Struct

from proof.scope.world import SETUP, Move, head
from tenure.audit import Auditor
from tenure.engine import Outcome, State, step
from tenure.facts import GENESIS, Entry, Fact, Opened
from tenure.testing.builders import START

Key = bytes
"""16 bytes that stand for all that decides a point's future."""


class _Freezer(pickle.Pickler):
    """Writes mutable things, and numbers of immutable ones."""

    def __init__(self, into: BytesIO, table: list[Struct]) -> None:
        super().__init__(into, protocol=5)
        self._table = table

    def persistent_id(self, item: Any) -> int | None:
        if isinstance(item, Struct):
            self._table.append(item)
            return len(self._table) - 1
        return None


class Frozen(NamedTuple):
    """An object as bytes, and the records that it shares with its copies."""

    body: bytes
    table: list[Struct]

    def thaw(self) -> Any:
        reader = pickle.Unpickler(BytesIO(self.body))
        reader.persistent_load = self.table.__getitem__  # type: ignore[method-assign]  # the table itself answers
        return reader.load()


def freeze(item: object) -> Frozen:
    into, table = BytesIO(), list[Struct]()
    _Freezer(into, table).dump(item)
    return Frozen(into.getvalue(), table)


class Point(NamedTuple):
    """A frozen point, and how it was reached: by these moves, in this many entries."""

    key: Key
    state: Frozen
    auditor: Frozen
    attempts: dict[str, int]
    entries: int
    path: tuple[str, ...]


def act(state: State, move: Move) -> Outcome:
    """Let a move happen."""
    state.head = head(move.luck)
    return step(state, move.event, now=state.now + move.later)


def entry_of(state: State, outcome: Outcome, number: int) -> Entry | None:
    """The entry that a ledger would hold; None if there is nothing to write."""
    if not (outcome.facts or outcome.looked):
        return None
    return Entry(seq=number, at=state.now, cause=outcome.cause, facts=outcome.facts, prev=GENESIS)


def key_of(state: State, image: bytes, attempts: dict[str, int]) -> Key:
    gone = [(name, attempts[name]) for name in sorted(attempts) if f"lab/{name}" not in state.runs]
    return blake2b(image + repr(gone).encode() if gone else image, digest_size=16).digest()


def attempts_after(attempts: dict[str, int], facts: tuple[Fact, ...]) -> dict[str, int]:
    made = {fact.lease.run: fact.lease.attempt for fact in facts if isinstance(fact, Opened)}
    return {**attempts, **made} if made else attempts


def beginning() -> tuple[State, Auditor, list[Entry]]:
    """The world before the first move."""
    state, auditor, entries = State("scope"), Auditor(), list[Entry]()
    state.now = START
    for event in SETUP:
        entry = entry_of(state, act(state, Move("", event)), len(entries) + 1)
        assert entry is not None
        assert not auditor.feed(entry)
        entries.append(entry)
    return state, auditor, entries
