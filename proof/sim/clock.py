"""A process's clock: the true time, an offset, and perhaps it stands."""

from __future__ import annotations

from collections.abc import Callable

from tenure.units import Instant, Micros

Told = Callable[[], None]


class Clock:
    """What a process takes for now.

    >>> true = 100
    >>> clock = Clock(lambda: true)
    >>> clock.step(-30); clock.now(), clock.when(90)
    (70, 120)

    Who does something to it may ask to be ``told`` when somebody has read another time for it:

    >>> clock.freeze(lambda: print("read"))
    >>> clock.now()
    70
    >>> true = 130
    >>> clock.shows
    70
    >>> clock.now()
    read
    70
    """

    def __init__(self, true: Callable[[], Instant]) -> None:
        self._true = true
        self.offset: Micros = 0
        self._frozen: list[Instant] = []
        self._stepped: list[Told] = []
        self._stopped: list[Told] = []
        """Who is to be told, and was not yet, that somebody has read it."""

    @property
    def shows(self) -> Instant:
        """What is on its face, for those who only judge."""
        return self._frozen[0] if self._frozen else self._true() + self.offset

    def now(self) -> Instant:
        """Somebody reads it."""
        shown = self.shows
        if self._frozen and self._stopped and shown != self._true() + self.offset:
            self._stopped = _tell(self._stopped)
        elif self._stepped and not self._frozen:
            self._stepped = _tell(self._stepped)
        return shown

    def when(self, reading: Instant) -> Instant | None:
        """The true instant at which this clock will show a reading; None while it stands before that."""
        if self._frozen:
            return self._true() if self._frozen[0] >= reading else None
        return reading - self.offset

    def step(self, by: Micros, told: Told | None = None) -> None:
        self.offset += by
        if told is not None:
            self._stepped.append(told)

    def freeze(self, told: Told | None = None) -> None:
        self._frozen.append(self.shows)
        if told is not None:
            self._stopped.append(told)

    def thaw(self) -> None:
        self._frozen.pop()

    def over(self, told: Told) -> None:
        """What was done is undone; if nobody has noticed by now, nobody ever will."""
        self._stepped = [one for one in self._stepped if one is not told]
        self._stopped = [one for one in self._stopped if one is not told]


def _tell(them: list[Told]) -> list[Told]:
    for told in them:
        told()
    return []
