"""The odds of each run to be cut: of being in the shortest prefix of a draw that makes enough room.

``enough(cut)`` says whether the plan binds once the runs in ``cut`` are gone. The lottery cuts one run after
another, an owner drawn uniformly and then one of its runs, and stops at the first set that is enough, so

    odds(run) = sum of P(set is reached) x P(run is drawn next | set), over the sets that are not yet enough

That sum is exact, in fractions, as long as few sets are reached: never more than 2^n for n runs, and far
fewer where the first cuts suffice. Beyond ``SETS_MAX`` sets it is estimated instead, by playing the real
lottery with seeds derived from one that is given, and the answer says how often it was played. Nobody is cut
at all where even cutting everybody would not do (SPEC 8), nor where nobody has to be.

>>> pool = [Token(id=i, owner=o, gpus=8) for i, o in (("a/1", "org:a"), ("a/2", "org:a"), ("b/1", "org:b"))]
>>> odds(pool, lambda cut: len(cut) >= 1, seed=b"").chances
{'a/1': Fraction(1, 4), 'a/2': Fraction(1, 4), 'b/1': Fraction(1, 2)}
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from fractions import Fraction
from itertools import islice

from msgspec import Struct

from tenure.draw import H, Token
from tenure.engine.lottery import by_owner, draws_by_owner

SETS_MAX = 1024
"""All sets of ten runs. Each costs one trial plan, and forecasts ask often."""
SAMPLES = 2000
"""Draws that an estimate takes: its standard error is then at most 0.012."""
SAMPLES_MIN, CUTS_MAX = 100, 200_000
"""A large pool is played less often: an estimate costs about ``CUTS_MAX`` cuts (``samples_for``)."""

Enough = Callable[[frozenset[str]], bool]
Victims = Callable[[Iterator[str]], Sequence[str]]
"""Takes as many ids from a drawn order as must be cut, and says which: none if even all would not do."""


class Odds(Struct, frozen=True, kw_only=True):
    """The chance of every run in the pool to be cut, in the order of ids."""

    chances: dict[str, Fraction]
    samples: int = 0
    """Draws that were played for an estimate; 0 if the chances are exact."""

    @property
    def exact(self) -> bool:
        return self.samples == 0


def odds(
    tokens: Sequence[Token],
    enough: Enough,
    *,
    seed: bytes,
    samples: int | None = None,
    sets_max: int = SETS_MAX,
) -> Odds:
    """Exact where few sets are reached, otherwise estimated from ``samples`` draws made from ``seed``.

    The estimate takes ``enough`` to be monotone: what is enough stays so when more is cut.
    """
    if enough(frozenset()) or not enough(frozenset(token.id for token in tokens)):
        return _odds(tokens, {})
    exact = exact_odds(tokens, enough, sets_max=sets_max)
    if exact is not None:
        return exact
    count = samples_for(len(tokens)) if samples is None else samples
    return estimated_odds(tokens, lambda order: _shortest(order, enough), seed=seed, samples=count)


def samples_for(tokens: int) -> int:
    """How often the lottery of so many runs is played for an estimate.

    >>> [samples_for(count) for count in (20, 400, 10_000)]
    [2000, 500, 100]
    """
    return max(SAMPLES_MIN, min(SAMPLES, CUTS_MAX // tokens))


def exact_odds(tokens: Sequence[Token], enough: Enough, *, sets_max: int = SETS_MAX) -> Odds | None:
    """The sum over all sets that are reached, one more run at a time; None if they are too many."""
    chances: dict[str, Fraction] = {}
    level, count = {frozenset[str](): Fraction(1)}, 1
    while level:
        following: dict[frozenset[str], Fraction] = {}
        for cut, reached in level.items():
            if enough(cut):
                continue
            for name, share in _next_cuts(tokens, cut):
                chances[name] = chances.get(name, Fraction(0)) + reached * share
                grown = cut | {name}
                following[grown] = following.get(grown, Fraction(0)) + reached * share
                if count + len(following) > sets_max:
                    return None
        level, count = following, count + len(following)
    return _odds(tokens, chances)


def estimated_odds(tokens: Sequence[Token], victims: Victims, *, seed: bytes, samples: int = SAMPLES) -> Odds:
    """How often each run was cut in so many draws of the real lottery. The same seed gives the same answer.

    ``victims`` may take an order step by step on a copy of the world, where to ask anew about each set would
    cost too much.
    """
    hits: dict[str, int] = {}
    rows = by_owner(tokens)
    for number in range(samples):
        for name in victims(draws_by_owner(rows, H(b"rq-odds/1", seed, number.to_bytes(8, "big")))):
            hits[name] = hits.get(name, 0) + 1
    return _odds(tokens, {name: Fraction(count, samples) for name, count in hits.items()}, samples)


def decimal(chance: Fraction, places: int = 4) -> str:
    """A chance as people write it, rounded to the nearest, never to certainty what is not certain.

    >>> decimal(Fraction(1, 3)), decimal(Fraction(1)), decimal(Fraction(99_999, 100_000))
    ('0.3333', '1.0000', '0.9999')
    """
    unit = 10**places
    parts = round(chance * unit)
    if 0 < chance < 1:
        parts = min(max(parts, 1), unit - 1)
    return f"{parts // unit}.{parts % unit:0{places}d}"


def _next_cuts(tokens: Sequence[Token], cut: frozenset[str]) -> Iterator[tuple[str, Fraction]]:
    left: dict[str, list[str]] = {}
    for token in tokens:
        if token.id not in cut:
            left.setdefault(token.owner, []).append(token.id)
    for names in left.values():
        share = Fraction(1, len(left) * len(names))
        yield from ((name, share) for name in names)


def _shortest(order: Iterator[str], enough: Enough) -> list[str]:
    """The prefix of a draw that is enough, found in few questions: double it until it is, then bisect."""
    cut: list[str] = []
    short, size = 0, 1
    while not enough(frozenset(cut)):
        short, size = len(cut), max(1, 2 * len(cut))
        cut.extend(islice(order, size - len(cut)))
    long = len(cut)
    while long - short > 1:
        middle = (short + long) // 2
        if enough(frozenset(cut[:middle])):
            long = middle
        else:
            short = middle
    return cut[:long]


def _odds(tokens: Sequence[Token], chances: dict[str, Fraction], samples: int = 0) -> Odds:
    names = sorted(token.id for token in tokens)
    return Odds(chances={name: chances.get(name, Fraction(0)) for name in names}, samples=samples)
