"""So much processor time and no more: what is not measured by then is said to be so, and holds nothing up.

Cost that grows with the queue is what is measured, so a decision may take hours instead of milliseconds. An alarm on
the process's own time stops it wherever it is; what it was about is then in no state that could be asked again.

>>> limit = Limit(0.05)
>>> limit.run(lambda: 7), limit.is_over
(7, False)
>>> limit.run(lambda: [None for _ in iter(int, 1)]), limit.is_over
(None, True)
>>> limit.run(lambda: 7) is None
True
"""

from __future__ import annotations

import signal
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from threading import current_thread, main_thread
from time import process_time
from types import FrameType
from typing import TypeVar

T = TypeVar("T")
_AGAIN = 0.5
"""Seconds until the alarm goes off again: Python throws away what is raised while an object is torn down, or while
somebody hears of a garbage collection."""


class OverLimit(BaseException):
    """It took too long. No ``Exception``: nobody on the way may take it for a fault of its own."""


class Limit:
    """Processor time that some work may take, piece by piece."""

    def __init__(self, seconds: float) -> None:
        self.seconds = self.left = seconds
        self.is_over = False

    def __str__(self) -> str:
        return f"{self.seconds:g} s of processor time"

    def run(self, piece: Callable[[], T]) -> T | None:
        """Do a piece of it; None if there is no time left, or not enough."""
        if self.is_over:
            return None
        before = process_time()
        try:
            with _alarm(self.left):
                return piece()
        except OverLimit:
            self.is_over = True
            return None
        finally:
            self.left -= process_time() - before
            self.is_over = self.is_over or self.left <= 0


@contextmanager
def _alarm(seconds: float) -> Iterator[None]:
    """Raise ``OverLimit`` after so much of this process's time. Only a main thread hears signals: others go on."""
    if current_thread() is not main_thread():
        yield
        return
    before, told = signal.signal(signal.SIGPROF, _stop), sys.unraisablehook

    def tell(thrown_away: sys.UnraisableHookArgs) -> None:
        if not isinstance(thrown_away.exc_value, OverLimit):  # of that nobody needs to hear: the alarm goes off again
            told(thrown_away)

    sys.unraisablehook = tell
    signal.setitimer(signal.ITIMER_PROF, seconds, _AGAIN)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_PROF, 0)
        signal.signal(signal.SIGPROF, before)
        sys.unraisablehook = told


def _stop(number: int, frame: FrameType | None) -> None:
    raise OverLimit
