"""Waiting for what a cluster does by itself: ask again until it is so."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import TypeVar

T = TypeVar("T")


PATIENCE = 120.0
"""Longer than anything takes on a machine that is busy with other things: it is there to end what would hang."""


def until(ask: Callable[[], T], seconds: float = PATIENCE, *, every: float = 0.05) -> T:
    """Ask until the answer is true, and return it; raises TimeoutError with the last answer.

    >>> answers = iter([None, "", "bound"])
    >>> until(lambda: next(answers), every=0)
    'bound'
    """
    deadline = time.monotonic() + seconds
    while not (answer := ask()):
        if time.monotonic() > deadline:
            raise TimeoutError(f"not within {seconds:.0f} s; the last answer was {answer!r}")
        time.sleep(every)
    return answer
