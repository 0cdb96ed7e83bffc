"""The record of a draw, `rq-draw/1` (SPEC 8), and the two functions all of its hashes are made of.

    canon(x) = JSON, keys sorted, no spaces, ASCII, integers and strings only
    H(p1, p2, ...) = SHA-256 over each part prefixed by its length as 4 bytes, big-endian
    commit = H("rq-draw/1", canon(intent))
    link(c[k]) = SHA-256(c[k]) = c[k-1]

An ``Intent`` is what is frozen in the ledger before anybody knows the seed; a ``Result`` is what follows
from it and the custodians' reveals. The engine draws (``engine/lottery.py``), a custodian reveals
(``tenure.custodian``); both stand on this page and on nothing of each other's. Both records are written
whole: no field is left out because it holds a default, so that an outsider's JSON library hashes the same
bytes.

>>> canon({"b": 1, "a": ["ä"]})
b'{"a":["\\\\u00e4"],"b":1}'
>>> H(b"ab", b"c") == H(b"a", b"bc")
False
"""

from __future__ import annotations

import hashlib
from typing import Annotated, Final, dataclass_transform

import msgspec
from msgspec import Meta, Struct

from tenure.units import INTEGER_MAX

VERSION: Final = "rq-draw/1"
CHAIN_LENGTH_MAX = 10_000_000
"""The longest chain there is: to walk one back to its beginning stays a matter of seconds."""

Hex = Annotated[str, Meta(pattern="^[0-9a-f]{64}$", max_length=64)]
"""32 bytes as lower-case hex: one spelling only, since spelled otherwise they would hash otherwise."""
Text = Annotated[str, Meta(max_length=1024)]
Word = Annotated[str, Meta(min_length=1, max_length=1024)]
Whole = Annotated[int, Meta(ge=0, le=INTEGER_MAX)]
Count = Annotated[int, Meta(ge=1, le=INTEGER_MAX)]


@dataclass_transform(frozen_default=True, field_specifiers=(msgspec.field,))
class _Part(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A part of the record: immutable, its names on the wire exactly those of SPEC 8."""


class ReservationRef(_Part, kw_only=True):
    """For whom room is made. Without a Reservation the three name what ran short instead."""

    namespace: Text
    name: Text
    uid: Text


class Token(_Part, kw_only=True, gc=False):
    """One whole run in the pool: ``ns/run``, its owner, and the Active GPUs it holds in scope."""

    id: Word
    owner: Word
    gpus: Count


class Beacon(_Part, kw_only=True, gc=False):
    """A custodian's chain: the value with this index is revealed next, and hashes to ``previous``."""

    id: Word
    index: Annotated[int, Meta(ge=1, le=CHAIN_LENGTH_MAX)]
    previous: Hex


class Intent(_Part, kw_only=True, rename={"ledger_head": "ledgerHead"}):
    """What is frozen before the draw. Tokens are sorted by id; beacons stand in the order of the hash."""

    version: Text
    reservation: ReservationRef
    activation: Count
    at: Text
    ledger_head: Hex
    deficit: Whole
    tokens: tuple[Token, ...]
    beacons: tuple[Beacon, ...]


class Result(_Part, kw_only=True):
    """What was drawn: everything in it follows from the intent and the reveals."""

    commit: Hex
    reveals: dict[Word, Hex]
    seed: Hex
    order: tuple[Word, ...]


def canon(value: object) -> bytes:
    """The one way to write a value down; TypeError if there is more in it than integers and strings."""
    import json

    _refuse_others(value)
    return json.dumps(value, sort_keys=True, separators=(",", ":"), ensure_ascii=True).encode("ascii")


def H(*parts: bytes) -> bytes:  # noqa: N802 - SPEC 8 calls it so
    """SHA-256 over the parts, each after its length: no two lists of parts are the same bytes."""
    return hashlib.sha256(b"".join(len(part).to_bytes(4, "big") + part for part in parts)).digest()


def link(value: bytes) -> bytes:
    """One step down a custodian's chain: ``c[k]`` gives ``c[k-1]``. Nobody can go the other way."""
    return hashlib.sha256(value).digest()


def commit(intent: Intent) -> bytes:
    """What the ledger holds at the freeze, as 32 bytes: whoever changes the intent changes this."""
    return H(VERSION.encode(), canon(msgspec.to_builtins(intent)))


def _refuse_others(value: object) -> None:
    # bool is an int to Python, and `true` to JSON: exactly what "integers and strings only" keeps out.
    if type(value) in (int, str):
        return
    if isinstance(value, dict):
        for key, part in value.items():
            if type(key) is not str:
                raise TypeError(f"a key of a canonical record is a string, not {type(key).__name__}")
            _refuse_others(part)
    elif isinstance(value, list | tuple):
        for part in value:
            _refuse_others(part)
    else:
        raise TypeError(f"a canonical record holds integers and strings only, not {type(value).__name__}")
