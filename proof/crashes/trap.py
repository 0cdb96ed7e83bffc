"""Where a process may die: every write has a number and named points, and a trap springs at one of them.

A write is whatever outlives the process that makes it. Each kind has its points, in order, and each point is a
moment of the write: *before* it counts, *during* (it counts, and nobody has been told), or *after*:

    create    the ledger's files are made               ledger    an entry, or a pass that wrote none
    roll      the anchor follows, when opening          outbox    how far a receiver has come, beside the chain
    start     a pod is started                          stop      a pod is asked to leave
    reveal    a custodian writes its journal            send      a receiver takes letters

``BaseException``, because nothing on the way may take a death for an error that it knows what to do about.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Literal, NamedTuple

from tenure.ledger import CREATE_POINTS, WRITE_POINTS

Moment = Literal["before", "during", "after"]

LEDGER: dict[str, Moment] = {
    "begin": "before",
    "before-append": "before",
    "after-append": "before",
    "before-commit": "before",
    "after-commit": "during",
    "before-anchor": "during",
    "anchor-written": "during",
    "after-anchor": "after",
}
ORDER: dict[str, Moment] = {"before": "before", "during": "during", "after": "after"}
POINTS: dict[str, dict[str, Moment]] = {
    "create": {"anchor-made": "before", "file-built": "before", "file-linked": "during"},
    "ledger": {**LEDGER, "acknowledged": "after"},
    "roll": {"rolling": "before", "before-anchor": "before", "anchor-written": "during"},
    "outbox": {point: moment for point, moment in LEDGER.items() if "append" not in point and "anchor" not in point}
    | {"after-anchor": "after"},
    "start": ORDER,
    "stop": ORDER,
    "reveal": {"before": "before", "torn": "during", "during": "during", "after": "after"},
    "send": ORDER,
}
"""Every kind of write, its points in order, and the moment of each."""
assert tuple(LEDGER) == WRITE_POINTS
assert tuple(POINTS["create"]) == CREATE_POINTS

_FIRST = {"begin", "anchor-made", "rolling"}
"""Points of the ledger at which a write begins."""


class Crash(BaseException):
    """The process is dead, or (if it is to recover by itself) what it called has failed in its hands."""


class Place(NamedTuple):
    """A point of a write, counted from the beginning of a life."""

    write: int
    point: str

    def __str__(self) -> str:
        return f"{self.write}:{self.point}"


class Visit(NamedTuple):
    """A place that a life came by."""

    place: Place
    kind: str
    about: str

    @property
    def moment(self) -> Moment:
        return POINTS[self.kind][self.place.point]


class Trap:
    """Counts the writes of a life, remembers every place, and ends the life at one of them."""

    def __init__(self) -> None:
        self.visits: list[Visit] = []
        self.at_death: Callable[[], None] = lambda: None
        """Called at the very place, before anything unwinds."""
        self._last: Place | None = None
        self._writes = 0
        self._kind, self._about = "", ""
        self._idle = False

    def arm(self, last: Place | None) -> None:
        """A new life begins; it ends at ``last``, or by itself."""
        self.visits, self._writes, self._last = [], 0, last

    @property
    def missed(self) -> Place | None:
        """The place that was to be the last, and that nobody came by."""
        return self._last

    @contextmanager
    def idle(self) -> Iterator[None]:
        """Nothing is counted meanwhile: somebody else acts."""
        self._idle = True
        try:
            yield
        finally:
            self._idle = False

    def begin(self, kind: str, about: str = "") -> None:
        if not self._idle:
            self._writes += 1
            self._kind, self._about = kind, about

    def reach(self, point: str, *, dying: Callable[[], None] = lambda: None) -> None:
        """The life comes by a point; ``dying`` is what its death there leaves undone or half done."""
        if self._idle:
            return
        place = Place(self._writes, point)
        self.visits.append(Visit(place, self._kind, self._about))
        if place == self._last:
            self._last = None
            dying()
            self.at_death()
            raise Crash(f"write {place.write} ({self._kind}) at {point}")

    def hook(self, kind: str) -> Callable[[str], None]:
        """For a handle of the ledger, whose writes are of this kind."""

        def reached(point: str) -> None:
            if point in _FIRST:
                self.begin({"anchor-made": "create", "rolling": "roll"}.get(point, kind))
            self.reach(point)

        return reached
