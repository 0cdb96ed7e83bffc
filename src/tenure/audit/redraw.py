"""A draw, drawn again from its record: the auditor's own reading of `rq-draw/1` (SPEC 8).

    seed = H(commit, reveal 1, reveal 2, ...)          # raw bytes, in the order of the intent's beacons
    below(n): x = SHA-256(seed + counter as 8 bytes), counter += 1; accept if x < 2^256 - 2^256 mod n; x mod n
    until no token is left: an owner of those left, then one of its tokens left, both sorted, both by below()

>>> from tenure.draw import Token
>>> redrawn([Token(id="a/x", owner="a", gpus=8), Token(id="b/y", owner="b", gpus=8)], bytes(32))
('b/y', 'a/x')
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from hashlib import sha256
from itertools import count

from tenure.draw import VERSION, H, Intent, Result, Token, commit, link


def result_faults(intent: Intent, result: Result) -> Iterator[tuple[str, str, str]]:
    """(what, expected, found) for each part of a result that does not follow from its intent."""
    beacons = [beacon.id for beacon in intent.beacons]
    if sorted(result.reveals) != sorted(beacons):
        yield "has not one reveal of each beacon", ", ".join(beacons), ", ".join(sorted(result.reveals))
        return
    for beacon in intent.beacons:
        found = _hashed(result.reveals[beacon.id])
        if found != beacon.previous:
            yield f"has a reveal of {beacon.id} that is not of its chain", beacon.previous, found
    committed = commit(intent)
    if result.commit != committed.hex():
        yield "is of another intent", committed.hex(), result.commit
    seed = H(committed, *(_bytes(result.reveals[name]) for name in beacons))
    if result.seed != seed.hex():
        yield "has a seed that does not follow", seed.hex(), result.seed
    order = redrawn(intent.tokens, seed)
    if result.order != order:
        yield "has an order that does not follow", ", ".join(order), ", ".join(result.order)


def intent_faults(intent: Intent) -> Iterator[tuple[str, str, str]]:
    """(what, expected, found) for what is wrong with an intent by itself."""
    ids, beacons = [token.id for token in intent.tokens], [beacon.id for beacon in intent.beacons]
    if intent.version != VERSION:
        yield "is of another version", VERSION, intent.version
    if ids != sorted(set(ids)):
        yield "does not name each token once, sorted by id", ", ".join(sorted(set(ids))), ", ".join(ids)
    if not beacons or len(set(beacons)) != len(beacons):
        yield "does not name each beacon once", "one beacon or more, each once", ", ".join(beacons) or "none"


def redrawn(tokens: Iterable[Token], seed: bytes) -> tuple[str, ...]:
    """The order in which these tokens are drawn."""
    numbers, order = _numbers(seed), []
    left: dict[str, list[str]] = {}
    for token in sorted(tokens, key=lambda token: (token.owner, token.id)):
        left.setdefault(token.owner, []).append(token.id)
    while left:
        owner = list(left)[_below(len(left), numbers)]
        order.append(left[owner].pop(_below(len(left[owner]), numbers)))
        if not left[owner]:
            del left[owner]
    return tuple(order)


def _below(choices: int, numbers: Iterator[int]) -> int:
    fair = 2**256 - 2**256 % choices
    return next(x for x in numbers if x < fair) % choices


def _numbers(seed: bytes) -> Iterator[int]:
    for counter in count():
        yield int.from_bytes(sha256(seed + counter.to_bytes(8, "big")).digest(), "big")


def _hashed(reveal: str) -> str:
    return link(_bytes(reveal)).hex()


def _bytes(text: str) -> bytes:
    """Nothing for what is no hex: it then hashes to something else than it should."""
    try:
        return bytes.fromhex(text)
    except ValueError:
        return b""
