"""A process's clock: the true time, an offset, and perhaps it stands."""

from __future__ import annotations

from collections.abc import Callable

from tenure.units import Instant, Micros


class Clock:
    """What a process takes for now.

    >>> true = 100
    >>> clock = Clock(lambda: true)
    >>> clock.step(-30); clock.now(), clock.when(90)
    (70, 120)
    """

    def __init__(self, true: Callable[[], Instant]) -> None:
        self._true = true
        self.offset: Micros = 0
        self._frozen: list[Instant] = []

    def now(self) -> Instant:
        return self._frozen[0] if self._frozen else self._true() + self.offset

    def when(self, reading: Instant) -> Instant | None:
        """The true instant at which this clock will show a reading; None while it stands before that."""
        if self._frozen:
            return self._true() if self._frozen[0] >= reading else None
        return reading - self.offset

    def step(self, by: Micros) -> None:
        self.offset += by

    def freeze(self) -> None:
        self._frozen.append(self.now())

    def thaw(self) -> None:
        self._frozen.pop()
