"""Measuring two things in turns, so that the noise of a shared machine falls on both alike.

A *side* does one repetition and tells what its timed part took; whatever it needs before and after (fresh input,
undoing what it did) is its own business and not timed. Sides take turns, every other round in the opposite order, so
that neither always comes second. A ratio is the median over the rounds of the ratio within a round.

Two clocks are read: ``wall`` is what a user waits, ``cpu`` is what this process computed. Waiting for the disk is in
the first alone; neighbours on the machine disturb the second least.

>>> times = Times({"a": [Took(1.0, 1.0), Took(1.0, 1.0), Took(9.0, 1.0)], "b": [Took(2.0, 1.0)] * 3})
>>> times.ratio("b", "a"), times.ratio("b", "a", "cpu")
(2.0, 1.0)
"""

from __future__ import annotations

import gc
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from statistics import median
from time import perf_counter, thread_time
from typing import Literal

from msgspec import Struct

Clock = Literal["wall", "cpu"]


class Took(Struct, frozen=True):
    """Seconds by both clocks."""

    wall: float
    cpu: float

    def over(self, count: int, *, plus: float = 0.0) -> Took:
        """The share of one in so many, and what is to be added to each."""
        return Took(self.wall / count + plus, self.cpu / count + plus)


class Stopwatch:
    """Measures its block."""

    def __enter__(self) -> Stopwatch:
        self.took = Took(0.0, 0.0)
        self._cpu, self._wall = thread_time(), perf_counter()
        return self

    def __exit__(self, *_: object) -> None:
        wall, cpu = perf_counter() - self._wall, thread_time() - self._cpu
        self.took = Took(wall, cpu)


Side = Callable[[int], Took]
"""Does the repetition of this number; tells what its timed part took."""


class Times(Struct, frozen=True):
    """What each side took, round by round."""

    took: dict[str, list[Took]]

    def seconds(self, side: str, clock: Clock = "wall") -> list[float]:
        return [getattr(one, clock) for one in self.took[side]]

    def median(self, side: str, clock: Clock = "wall") -> float:
        return median(self.seconds(side, clock))

    def fastest(self, side: str) -> float:
        """The least by the wall clock: what it takes when nobody is in the way."""
        return min(self.seconds(side))

    def ratio(self, side: str, base: str, clock: Clock = "wall") -> float:
        """How many times as long as ``base`` a side takes."""
        pairs = zip(self.seconds(side, clock), self.seconds(base, clock), strict=True)
        return median(one / other for one, other in pairs)


@contextmanager
def still() -> Iterator[None]:
    """No garbage collection inside, and what is alive already is never looked at again."""
    gc.collect()
    gc.freeze()
    gc.disable()
    try:
        yield
    finally:
        gc.enable()
        gc.unfreeze()


def in_turns(sides: Mapping[str, Side], *, rounds: int, warm: int = 1) -> Times:
    """Let all sides do ``rounds`` repetitions each, after some that do not count."""
    took: dict[str, list[Took]] = {name: [] for name in sides}
    with still():
        for number in range(-warm, rounds):
            for name in sorted(sides, reverse=bool(number % 2)):
                one = sides[name](number)
                if number >= 0:
                    took[name].append(one)
    return Times(took)
