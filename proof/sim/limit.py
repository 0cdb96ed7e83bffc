"""A limit for what might never end: processor time, so that a busy machine makes nobody fail."""

from __future__ import annotations

import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType

SECONDS_MAX = 120.0
"""Of processor time, for one world: the slowest that anybody has seen takes ten, on a slow machine twice that."""
AGAIN_SECONDS = 5.0
"""It is said again after so long: once may be lost, where a finalizer runs, which may raise nothing."""


class Unending(KeyboardInterrupt):
    """It goes on for ever, as far as anybody cares. A kind of Ctrl-C, because that is what everything in between lets
    through: event loops keep all else for whoever asks for the result, and nobody ever would."""


@contextmanager
def limited(seconds: float) -> Iterator[None]:
    """Raise ``Unending`` in what takes longer. Only the main thread can be interrupted; elsewhere there is no limit.

    This is not the timer that ``proof.mutants`` sets around whole tests, so that each may be inside the other.
    """
    if threading.current_thread() is not threading.main_thread():
        yield
        return

    def over(number: int, frame: FrameType | None) -> None:
        raise Unending(f"did not end within {seconds:g} s of processor time")

    before = signal.signal(signal.SIGVTALRM, over)
    signal.setitimer(signal.ITIMER_VIRTUAL, max(seconds, 0.001), AGAIN_SECONDS)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_VIRTUAL, 0)
        signal.signal(signal.SIGVTALRM, before)
