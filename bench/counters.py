"""Counting work instead of seconds: how often the steps that could grow with the fleet are taken.

Seconds swing on a shared machine, counts do not. There are two kinds:

*Steps*: each counter is a method that every search, every change of an index or every price goes through; it is
replaced by one that counts, for as long as the block lasts.

    with counting() as work:
        home.handle(...)
    work["Buckets.move"]

*Lines*: every line of Tenure's own code that is executed, whatever it is called. A scan that comes back somewhere
shows here even if it goes through none of those methods. It costs some twenty times the time; what is done inside C
(sorting, hashing, JSON) is in neither, and is counted by callgrind (``instructions``).

    with lines() as seen:
        home.handle(...)
    seen.count

Beside both: *calls* of what has a name, such as searches for a plan, however the engine's rooms are cut.
"""

from __future__ import annotations

import sys
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from functools import wraps
from pathlib import Path
from types import FrameType
from typing import Any

import tenure
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


class Lines:
    """How many lines were executed."""

    def __init__(self) -> None:
        self.count = 0


_SOURCE = str(Path(tenure.__file__).parent)


@contextmanager
def lines() -> Iterator[Lines]:
    """Count lines of Tenure's code that this thread executes. A debugger or a coverage tool stands aside meanwhile."""
    seen = Lines()

    def line(frame: FrameType, event: str, _: Any) -> Any:
        if event == "line":
            seen.count += 1
        return line

    def call(frame: FrameType, event: str, _: Any) -> Any:
        return line if frame.f_code.co_filename.startswith(_SOURCE) else None

    before = sys.gettrace()
    sys.settrace(call)
    try:
        yield seen
    finally:
        sys.settrace(before)


@contextmanager
def calls(*names: str) -> Iterator[Work]:
    """Count calls of the functions and methods of Tenure that are called so."""
    work: Work = Counter()

    def seen(frame: FrameType, event: str, _: Any) -> None:
        code = frame.f_code
        if event == "call" and code.co_name in names and code.co_filename.startswith(_SOURCE):
            work[code.co_name] += 1

    before = sys.getprofile()
    sys.setprofile(seen)
    try:
        yield work
    finally:
        sys.setprofile(before)


def growth(small: Work, large: Work) -> float:
    """How many times as many steps were taken in all.

    >>> growth(Counter(a=2, b=2), Counter(a=5, b=1))
    1.5
    """
    return large.total() / small.total()
