"""A point of the search: an engine's state and the auditor who has read the entries that led to it.

A point is kept *frozen*, as bytes, and thawed when its turn comes. Facts and objects are immutable records: the copies
share them (``_Freezer`` writes a number in their place), so what is copied is what may change. Two points are the same
when the images of their states are, byte for byte, and the ledger knows the same last attempts of runs that are gone:
an engine decides by nothing else (SPEC 1), which ``replay.same_future`` puts to the test.
"""

from __future__ import annotations

import pickle
from copyreg import __newobj__  # type: ignore[attr-defined]
from hashlib import sha256
from io import BytesIO
from types import FunctionType
from typing import Any, NamedTuple

from msgspec import Struct

from proof.scope.claims import WIDTH, Key
from proof.scope.rewind import RULES, rule
from proof.scope.world import SETUP, Move, head
from tenure.audit import Auditor
from tenure.engine import Outcome, State, step
from tenure.facts import GENESIS, Entry, Fact, Opened
from tenure.testing.builders import START


class _Freezer(pickle.Pickler):
    """Writes what may change, and numbers of what cannot: records, classes, functions."""

    def __init__(self, into: BytesIO, table: list[object]) -> None:
        super().__init__(into, protocol=5)
        self._table = table

    def reducer_override(self, item: Any) -> Any:
        kind = type(item)
        save, put, names, *_ = RULES.get(kind) or rule(item)
        if save is None:
            if item is _record or not (kind is type or kind is FunctionType or isinstance(item, Struct)):
                return NotImplemented
            self._table.append(item)
            return _record, (len(self._table) - 1,)
        if not names:
            return NotImplemented
        assert not kind.__dictoffset__ or len(vars(item)) == len(names), f"{kind} has other attributes than before"
        return __newobj__, (kind,), save(item), None, None, put


_records: list[object] = []
"""Those of what is being thawed."""


def _record(number: int) -> object:
    return _records[number]


class Frozen(NamedTuple):
    """An object as bytes, and what it shares with its copies."""

    body: bytes
    table: list[object]

    def thaw(self) -> Any:
        """A copy."""
        global _records  # noqa: PLW0603  # an Unpickler with a method in Python is slower
        _records = self.table
        return pickle.loads(self.body)


def freeze(item: object) -> Frozen:
    into, table = BytesIO(), list[object]()
    _Freezer(into, table).dump(item)
    return Frozen(into.getvalue(), table)


class Point(NamedTuple):
    """A frozen point, and how it was reached: by these moves, in this many entries."""

    key: Key
    state: Frozen
    attempts: dict[str, int]
    entries: int
    path: tuple[str, ...]
    auditor: Frozen


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
    return sha256(image + repr(gone).encode() if gone else image).digest()[:WIDTH]


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
