"""What was said last of an object, so that nobody is contradicted without end.

Two operators may both believe to lead for a while, and one of them may know less of the ledger or have another clock:
then each finds the status of an object wrong that the other has just written, and makes it right. That is harmless, but
as fast as the API server answers it is a fight. Who has said the same a moment ago waits before saying it again; what
is news is said at once.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from tenure.kube import shown
from tenure.kube.errors import ApiError

Object = dict[str, Any]

AGAIN_SECONDS = 10.0
"""How long a status that somebody else has overwritten stays as they left it."""


class Said:
    """The statuses that were written in the last seconds, by object (its uid: of a new one of its name all is news)."""

    def __init__(self, clock: Callable[[], float]) -> None:
        self._clock = clock
        self._last: dict[str, tuple[float, Object]] = {}
        """When, and what; the oldest first."""

    def check(self, item: Object, status: Object) -> None:
        """Raise, so that the desk tries later, if just this was written just now and yet is to be written again."""
        at, said = self._last.get(item["metadata"]["uid"], (0.0, None))
        left = at + AGAIN_SECONDS - self._clock()
        if said is not None and left > 0 and shown.same(said, status):
            name = item["metadata"]["name"]
            raise ApiError(409, "Contradicted", f"the status of {name} is written by somebody else", retry_after=left)

    def note(self, item: Object, status: Object) -> None:
        """It was written now."""
        now, uid = self._clock(), item["metadata"]["uid"]
        self._last.pop(uid, None)
        self._last[uid] = (now, status)
        while now - self._last[oldest := next(iter(self._last))][0] > AGAIN_SECONDS:
            del self._last[oldest]
