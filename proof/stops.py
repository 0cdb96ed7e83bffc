"""Who is stopped, by Ctrl-C or by SIGTERM: all commands tidy up, say how far they came, and end with a code for it."""

from __future__ import annotations

import signal
from types import FrameType


class Terminated(KeyboardInterrupt):
    """Asked to end by SIGTERM: whoever tidies up after Ctrl-C does so now, too."""


def listen() -> None:
    """From now on SIGTERM is heard like Ctrl-C."""
    signal.signal(signal.SIGTERM, _terminate)


def number(stop: KeyboardInterrupt) -> signal.Signals:
    """The signal that was sent.

    >>> number(Terminated()).name, 128 + number(KeyboardInterrupt())
    ('SIGTERM', 130)
    """
    return signal.SIGTERM if isinstance(stop, Terminated) else signal.SIGINT


def _terminate(number: int, frame: FrameType | None) -> None:
    raise Terminated
