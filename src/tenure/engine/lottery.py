"""The attested lottery (SPEC 8, `rq-draw/1`): freeze first, reveal later, never draw twice.

The records and their hashes are in ``tenure.draw``. From a frozen intent and the custodians' reveals follows
one order of all tokens, and nobody chose it:

    seed = H(commit, reveal 1, reveal 2, ...)          # reveals in the order of the intent's beacons
    below(n): x = SHA-256(seed + counter as 8 bytes), counter += 1; accept if x < 2^256 - 2^256 mod n; x mod n
    until no token is left: an owner of those left, then one of its tokens left, both sorted, both by below()

Who is cut is the shortest prefix of that order after which the plan binds; that is the resolver's business,
and so is the freeze. Ids and owners are compared as plain strings, code point by code point, which is also
the order of their UTF-8 bytes.

``draw`` refuses, as a value, to go on without every reveal; ``verify`` names everything that is wrong with a
record, by drawing again.

>>> chain = simulated_chain("demo", 10)
>>> intent = Intent(
...     version=VERSION, reservation=ReservationRef(namespace="rai", name="train", uid="u1"), activation=1,
...     at="2025-11-01T00:15:00Z", ledger_head="0" * 64, deficit=8,
...     tokens=(Token(id="a/x", owner="org:a", gpus=8), Token(id="b/y", owner="org:b", gpus=8)),
...     beacons=(Beacon(id="operator", index=1, previous=chain[0].hex()),))
>>> draw(intent, {}).sentence
'The reveal of beacon "operator" is missing: the draw waits for c[1].'
>>> result = draw(intent, {"operator": chain[1].hex()})
>>> result.order, verify(intent, result)
(('a/x', 'b/y'), [])
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from hashlib import sha256
from itertools import pairwise, zip_longest
from typing import Literal

import msgspec
from msgspec import Struct

from tenure.api.errors import escape, show
from tenure.draw import VERSION, Beacon, H, Intent, ReservationRef, Result, Token, commit, link
from tenure.units import parse_time

__all__ = [
    "VERSION",
    "Beacon",
    "Dice",
    "DrawRefused",
    "Finding",
    "Intent",
    "ReservationRef",
    "Result",
    "Token",
    "by_owner",
    "check",
    "commit",
    "draw",
    "draws",
    "draws_by_owner",
    "simulated_chain",
    "verify",
]

_SPAN = 1 << 256
_HEX = re.compile(r"[0-9a-f]{64}", re.ASCII)

Code = Literal[
    "Malformed", "WrongVersion", "TokensUnsorted", "TokenTwice", "NoBeacon", "BeaconTwice",
    "CommitMismatch", "NotFrozen", "MissingReveal", "UnknownBeacon", "WrongReveal", "ForeignChain", "BeaconLeftOut",
    "SeedMismatch", "OrderTwice", "OrderStranger", "OrderIncomplete", "OrderMismatch",
]  # fmt: skip

_SENTENCES: dict[Code, str] = {
    "Malformed": "The {subject} is not one of rq-draw/1: {found}.",
    "WrongVersion": "The record is of version {found}; this is {expected}.",
    "TokensUnsorted": "Token {subject} stands after {found}: tokens are sorted by id.",
    "TokenTwice": "Token {subject} is in the pool more than once.",
    "NoBeacon": "The intent names no beacon: its seed could be computed by anyone, in advance.",
    "BeaconTwice": "Beacon {subject} is named more than once.",
    "CommitMismatch": "The result is of commit {found}, but this intent has {expected}.",
    "NotFrozen": "Another intent was frozen: the ledger holds commit {expected}, this one has {found}.",
    "MissingReveal": "The reveal of beacon {subject} is missing: the draw waits for c[{expected}].",
    "UnknownBeacon": "There is a reveal of {subject}, which is no beacon of this draw.",
    "WrongReveal": "The reveal of beacon {subject} hashes to {found}; the chain goes on from {expected}.",
    "ForeignChain": "The reveal of beacon {subject} does not lead back to the c[0] it published, {expected}.",
    "BeaconLeftOut": "Beacon {subject}, which published {expected}, has no part in this draw.",
    "SeedMismatch": "The seed is {expected}; the result says {found}.",
    "OrderTwice": "The order names {subject} more than once.",
    "OrderStranger": "The order names {subject}, which is not in the pool.",
    "OrderIncomplete": "The order leaves out {subject}.",
    "OrderMismatch": "Place {subject} of the order is {expected}; the result says {found}.",
}
"""Most decisive first: a record is told by its first finding."""


class Finding(Struct, frozen=True, kw_only=True):
    """One thing that is wrong with a record: its code, and what was expected and found. Safe to print."""

    code: Code
    subject: str = ""
    expected: str = ""
    found: str = ""

    @property
    def sentence(self) -> str:
        return _SENTENCES[self.code].format(subject=self.subject, expected=self.expected, found=self.found)


class DrawRefused(Struct, frozen=True):
    """There is no draw from this: why, the most decisive first."""

    findings: tuple[Finding, ...]

    @property
    def waiting(self) -> bool:
        """True if nothing is wrong except that reveals have yet to come."""
        return all(finding.code == "MissingReveal" for finding in self.findings)

    @property
    def sentence(self) -> str:
        return self.findings[0].sentence


class Dice:
    """Uniform numbers from a seed, by hashing it with a counter. All of its state is the counter."""

    def __init__(self, seed: bytes) -> None:
        self._seed = sha256(seed)
        self._counter = 0

    def below(self, n: int) -> int:
        """One of 0 .. n-1, each exactly as likely: what would favour the small ones is thrown away."""
        accepted = _SPAN - _SPAN % n
        while True:
            hashed = self._seed.copy()
            hashed.update(self._counter.to_bytes(8, "big"))
            self._counter += 1
            x = int.from_bytes(hashed.digest(), "big")
            if x < accepted:
                return x % n


def draws(tokens: Iterable[Token], seed: bytes) -> Iterator[str]:
    """The ids of all tokens in the order they are drawn, one at a time: whoever has enough stops asking."""
    return draws_by_owner(by_owner(tokens), seed)


def by_owner(tokens: Iterable[Token]) -> list[list[str]]:
    """The ids of each owner, sorted; the owners sorted."""
    rows: dict[str, list[str]] = {}
    for token in sorted(tokens, key=lambda token: (token.owner, token.id)):
        rows.setdefault(token.owner, []).append(token.id)
    return list(rows.values())


def draws_by_owner(rows: Iterable[Iterable[str]], seed: bytes) -> Iterator[str]:
    """``draws`` for a pool that ``by_owner`` has sorted once, for many seeds."""
    dice = Dice(seed)
    left = [list(row) for row in rows]
    while left:
        place = dice.below(len(left))
        ids = left[place]
        yield ids.pop(dice.below(len(ids)))
        if not ids:
            del left[place]


def draw(intent: Intent, reveals: Mapping[str, str]) -> Result | DrawRefused:
    """The one result of an intent and its reveals (hex, by beacon), or why there is none."""
    faults = [*_intent_faults(intent), *_reveal_faults(intent, reveals)]
    if faults:
        return DrawRefused(tuple(faults))
    return _result(intent, reveals)


def verify(
    intent: Intent, result: Result, *, frozen: str | None = None, published: Mapping[str, str] | None = None
) -> list[Finding]:
    """Everything that is wrong with a record; an empty list if it holds.

    A record by itself shows that its result follows from its intent. That the intent is the one that was
    frozen, and the reveals are those of the custodians' own chains, only what others hold can show:
    ``frozen`` is the commit in the ledger, ``published`` the c[0] of beacons that must all have had a part in it.
    """
    malformed = [*_shape_faults("intent", intent, Intent), *_shape_faults("result", result, Result)]
    if malformed:
        return malformed
    faults = [*_intent_faults(intent), *_commit_faults(intent, result, frozen)]
    reveal_faults = list(_reveal_faults(intent, result.reveals))
    faults += reveal_faults or _chain_faults(intent, result.reveals, published or {})
    if all(beacon.id in result.reveals for beacon in intent.beacons):
        faults += _draw_faults(result, _result(intent, result.reveals))
    return faults


def check(record: object, *, frozen: str | None = None, published: Mapping[str, str] | None = None) -> list[Finding]:
    """``verify`` for a record as JSON gave it: ``{"intent": ..., "result": ...}``, and nothing else."""
    if isinstance(record, dict):
        record = {key: value for key, value in record.items() if key != "cuts"}  # what the resolver made of it
    if not isinstance(record, dict) or sorted(record) != ["intent", "result"]:
        return [Finding(code="Malformed", subject="record", found="it holds an intent and a result, no more")]
    faults = [
        *_shape_faults("intent", record["intent"], Intent),
        *_shape_faults("result", record["result"], Result),
    ]
    if faults:
        return faults
    intent, result = msgspec.convert(record["intent"], Intent), msgspec.convert(record["result"], Result)
    return verify(intent, result, frozen=frozen, published=published)


def simulated_chain(secret: str, length: int) -> tuple[bytes, ...]:
    """The simulator's custodian: c[0] .. c[length], all from the policy key ``drawSecret``.

    c[length] = H("tenure-simulated-chain", secret in UTF-8), and c[k-1] = SHA-256(c[k]) down to c[0]. Whoever
    knows the secret knows every draw in advance: this is for scenarios, which must repeat, and nothing else.
    """
    values = [H(b"tenure-simulated-chain", secret.encode())]
    for _ in range(length):
        values.append(link(values[-1]))
    return tuple(reversed(values))


def _result(intent: Intent, reveals: Mapping[str, str]) -> Result:
    committed = commit(intent)
    used = {beacon.id: reveals[beacon.id] for beacon in intent.beacons}
    # By beacon, not by the dict: a beacon that was named twice is hashed twice.
    seed = H(committed, *(bytes.fromhex(reveals[beacon.id]) for beacon in intent.beacons))
    order = tuple(draws(intent.tokens, seed))
    return Result(commit=committed.hex(), reveals=used, seed=seed.hex(), order=order)


def _shape_faults(name: str, value: object, shape: type[Intent | Result]) -> Iterator[Finding]:
    try:
        read = msgspec.convert(msgspec.to_builtins(value), shape)
        if isinstance(read, Intent):
            parse_time(read.at)
    except (msgspec.ValidationError, TypeError, ValueError) as fault:
        yield Finding(code="Malformed", subject=name, found=escape(str(fault), limit=200))


def _intent_faults(intent: Intent) -> Iterator[Finding]:
    if intent.version != VERSION:
        yield Finding(code="WrongVersion", expected=show(VERSION), found=show(intent.version))
    for before, after in pairwise(token.id for token in intent.tokens):
        if before == after:
            yield Finding(code="TokenTwice", subject=show(after))
        elif before > after:
            yield Finding(code="TokensUnsorted", subject=show(after), found=show(before))
    if not intent.beacons:
        yield Finding(code="NoBeacon")
    for beacon in _repeated(beacon.id for beacon in intent.beacons):
        yield Finding(code="BeaconTwice", subject=show(beacon))


def _commit_faults(intent: Intent, result: Result, frozen: str | None) -> Iterator[Finding]:
    committed = commit(intent).hex()
    if result.commit != committed:
        yield Finding(code="CommitMismatch", expected=committed, found=result.commit)
    if frozen is not None and frozen != committed:
        yield Finding(code="NotFrozen", expected=escape(frozen), found=committed)


def _reveal_faults(intent: Intent, reveals: Mapping[str, str]) -> Iterator[Finding]:
    for name in sorted(set(reveals) - {beacon.id for beacon in intent.beacons}):
        yield Finding(code="UnknownBeacon", subject=show(name))
    for beacon in intent.beacons:
        if beacon.id not in reveals:
            yield Finding(code="MissingReveal", subject=show(beacon.id), expected=str(beacon.index))
        else:
            yield from _link_faults(beacon, reveals[beacon.id])


def _link_faults(beacon: Beacon, reveal: str) -> Iterator[Finding]:
    if not _HEX.fullmatch(reveal):
        why = f"a reveal is 64 digits of lower-case hex, not {show(reveal)}"
        yield Finding(code="Malformed", subject=f"reveal of {show(beacon.id)}", found=why)
    elif (found := link(bytes.fromhex(reveal)).hex()) != beacon.previous:
        yield Finding(code="WrongReveal", subject=show(beacon.id), expected=beacon.previous, found=found)


def _chain_faults(intent: Intent, reveals: Mapping[str, str], published: Mapping[str, str]) -> Iterator[Finding]:
    for beacon in intent.beacons:
        root = published.get(beacon.id)
        if root is not None and not _leads_back(reveals[beacon.id], beacon.index, root):
            yield Finding(code="ForeignChain", subject=show(beacon.id), expected=escape(root))
    for name in sorted(published.keys() - {beacon.id for beacon in intent.beacons}):
        yield Finding(code="BeaconLeftOut", subject=show(name), expected=escape(published[name]))


def _leads_back(reveal: str, index: int, root: str) -> bool:
    value = bytes.fromhex(reveal)
    for _ in range(index):
        value = link(value)
    return value.hex() == root


def _draw_faults(said: Result, right: Result) -> Iterator[Finding]:
    if said.seed != right.seed:
        yield Finding(code="SeedMismatch", expected=right.seed, found=said.seed)
    if said.order == right.order:
        return
    yield from (Finding(code="OrderTwice", subject=show(name)) for name in _repeated(said.order))
    strangers, absent = set(said.order) - set(right.order), set(right.order) - set(said.order)
    yield from (Finding(code="OrderStranger", subject=show(name)) for name in sorted(strangers))
    yield from (Finding(code="OrderIncomplete", subject=show(name)) for name in sorted(absent))
    for place, (mine, theirs) in enumerate(zip_longest(right.order, said.order), 1):
        if mine != theirs:
            yield Finding(code="OrderMismatch", subject=str(place), expected=show(mine), found=show(theirs))
            return


def _repeated(names: Iterable[str]) -> Sequence[str]:
    ordered = sorted(names)
    return sorted({before for before, after in pairwise(ordered) if before == after})
