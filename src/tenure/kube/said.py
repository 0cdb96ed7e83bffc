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
"""How long a status that somebody else overwrites again and again stays as they left it."""
AT_ONCE = 2
"""How often the same is said without waiting: what one person has overwritten once is made right at once."""


class Said:
    """The statuses that were written in the last seconds, by object (its uid: of a new one of its name all is news)."""

    def __init__(self, clock: Callable[[], float]) -> None:
        self._clock = clock
        self._last: dict[str, tuple[float, int, Object]] = {}
        """Since when, how often and what; the oldest first."""

    def check(self, item: Object, status: Object) -> None:
        """Raise, so that the desk tries later, if just this was written just now and is to be written yet again."""
        since, times = self._saying(item, status)
        if times >= AT_ONCE:
            name, left = item["metadata"]["name"], since + AGAIN_SECONDS - self._clock()
            raise ApiError(409, "Contradicted", f"the status of {name} is written by somebody else", retry_after=left)

    def note(self, item: Object, status: Object) -> None:
        """It was written now."""
        since, times = self._saying(item, status)
        uid = item["metadata"]["uid"]
        if not times:
            self._last.pop(uid, None)
        self._last[uid] = (since, times + 1, status)
        while self._is_old(oldest := next(iter(self._last))):
            del self._last[oldest]

    def _saying(self, item: Object, status: Object) -> tuple[float, int]:
        """Since when just this is being said, and how often it was; now and never, if it is news."""
        uid = item["metadata"]["uid"]
        if uid in self._last and not self._is_old(uid) and shown.same(self._last[uid][2], status):
            return self._last[uid][:2]
        return self._clock(), 0

    def _is_old(self, uid: str) -> bool:
        return self._clock() - self._last[uid][0] >= AGAIN_SECONDS
