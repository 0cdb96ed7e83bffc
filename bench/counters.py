"""Counting work instead of seconds: how often the steps that could grow with the fleet are taken.

Seconds swing on a shared machine, counts do not. Each counter is a method that every search, every change of an index
or every price goes through; it is replaced by one that counts, for as long as the block lasts.

    with counting() as work:
        home.handle(...)
    work["Buckets.move"]
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from functools import wraps
from typing import Any

from tenure.engine.buckets import Buckets
from tenure.engine.cover import Purse
from tenure.engine.meters import Meter
from tenure.engine.state import State
from tenure.engine.topology import Domain, Pool, Row, Topology

Work = Counter[str]
"""Steps taken, by class and method."""

COUNTED: tuple[tuple[type, str], ...] = (
    (Buckets, "move"),
    (Buckets, "at_least"),
    (Buckets, "largest"),
    (Buckets, "below"),
    (Buckets, "first"),
    (Buckets, "names"),
    (Buckets, "copy"),
    (Domain, "__init__"),
    (Meter, "used"),
    (Pool, "__init__"),
    (Pool, "_reread"),
    (Purse, "room"),
    (Row, "free"),
    (State, "fold"),
    (Topology, "pool"),
)
"""Where work is counted, by class and method."""


@contextmanager
def counting() -> Iterator[Work]:
    """Count calls of every method in ``COUNTED``."""
    work: Work = Counter()
    with ExitStack() as stack:
        for owner, name in COUNTED:
            stack.enter_context(_counted(owner, name, work))
        yield work


@contextmanager
def _counted(owner: type, name: str, work: Work) -> Iterator[None]:
    plain: Callable[..., Any] = getattr(owner, name)
    label = f"{owner.__name__}.{name}"

    @wraps(plain)
    def counted(*args: Any, **kwargs: Any) -> Any:
        work[label] += 1
        return plain(*args, **kwargs)

    setattr(owner, name, counted)
    try:
        yield
    finally:
        setattr(owner, name, plain)


def growth(small: Work, large: Work) -> float:
    """How many times as many steps were taken in all.

    >>> growth(Counter(a=2, b=2), Counter(a=5, b=1))
    1.5
    """
    return large.total() / small.total()
