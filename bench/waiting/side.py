"""Worlds that are measured in turns, each within its limit, and the rows that are made of what they took.

A world that went over its limit in the middle of a decision is thrown away, and what it should have shown is told as
"none in so many seconds": such a row keeps no promise.
"""

from __future__ import annotations

import gc
from collections.abc import Callable, Iterable, Mapping, Sequence
from statistics import fmean
from typing import Any, Literal, TypeVar

from msgspec import UNSET

from bench.measure import still
from bench.result import Row
from bench.waiting.limit import Limit
from bench.waiting.world import World

T = TypeVar("T")
_ROUNDS = 64
"""After so many what has become garbage is collected, untimed; what was alive before the first is not looked at."""


class Side:
    """A world, and the processor time that it has for all that is done with it."""

    def __init__(self, make: Callable[[], World], seconds: float) -> None:
        self.limit = Limit(seconds)
        self._world: World | None = self.limit.run(make)

    def do(self, piece: Callable[[World], T]) -> T | None:
        """None if the limit is over."""
        world = self._world
        done = None if world is None else self.limit.run(lambda: piece(world))
        if self.limit.is_over:
            self._world = None
        return done

    @property
    def is_over(self) -> bool:
        return self.limit.is_over


def in_turns(sides: Mapping[str, Side], piece: Callable[[World, int], T], *, rounds: int) -> dict[str, list[T]]:
    """Do it so often with each world, every other round in the opposite order: what came of it before a limit."""
    found: dict[str, list[T]] = {name: [] for name in sides}
    with still():
        for number in range(rounds):
            if number % _ROUNDS == _ROUNDS - 1:
                gc.collect()
            for name in sorted(sides, reverse=bool(number % 2)):
                one = sides[name].do(lambda world, number=number: piece(world, number))  # type: ignore[misc]  # inferred
                if one is not None:
                    found[name].append(one)
    return found


def enough(found: Sequence[T], rounds: int) -> Sequence[T]:
    """What was measured before the limit, if it was a tenth of what was to be, so that there is something to say."""
    return found if len(found) >= max(1, rounds // 10) else ()


# --- rows -----------------------------------------------------------------------------------------------------------


def row(
    bench: str,
    what: str,
    measured: float | None,
    limit: Limit,
    *,
    unit: str = "x",
    goal: float | None = None,
    steady: bool = False,
    detail: Mapping[str, Any] | None = None,
    sense: Literal["at most", "at least"] = "at most",
) -> Row:
    """A number, or that there is none within the limit."""
    return Row(bench=bench, what=what, measured=measured or 0, unit=unit, goal=goal, steady=steady, sense=sense,
               beyond=str(limit) if measured is None else UNSET, detail=dict(detail or {}))  # fmt: skip


def ratio(one: float | None, other: float | None) -> float | None:
    """
    >>> ratio(3.0, 2.0), ratio(3.0, None), ratio(3.0, 0.0)
    (1.5, None, None)
    """
    return one / other if one is not None and other else None


def part(values: Iterable[float], which: float) -> float | None:
    """The value that this part of all is below; None of none.

    >>> part([3.0, 1.0, 2.0], 0.5), part([], 0.5)
    (2.0, None)
    """
    ordered = sorted(values)
    return ordered[min(len(ordered) - 1, int(len(ordered) * which))] if ordered else None


def mean(values: Iterable[float]) -> float | None:
    some = list(values)
    return fmean(some) if some else None


def rounded(**values: float | None) -> dict[str, float]:
    """What there is of it, for people."""
    return {name: round(value, 3) for name, value in values.items() if value is not None}
