"""The writing desk: everything that is to be written to the API server passes here, a bounded number at a time.

    desk.put("Lease/rai/train-a1-g00-n1-0", write, rank=LEASE)      # from any thread; returns at once

A write is a coroutine that makes one object what it should be, and says so by returning. For each object one write is
under way at most; a newer one replaces one that still waits, so that ten changes of a status are one write. Of those
that wait the lowest rank goes first: leases and pods before statuses, statuses before events. What fails for a passing
reason (throttling, a server that is away) is tried again, ever more slowly; what is refused is told once to ``trouble``
and given up, until somebody asks for it ``again``: a role that somebody was editing may be right by then. Pods are
not: whoever wants one looks what became of it, and decides anew.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Awaitable, Callable
from heapq import heappop, heappush
from itertools import count
from threading import Condition

from tenure.kube.errors import ApiError, NotTaken
from tenure.kube.loop import IO

HANDS = 32
"""Writes under way at a time."""
LEASE, POD, RUN, STATUS, WAITING, EVENT = range(6)
"""Ranks: what goes first. The statuses of those who wait come after the others': they may be ten thousand."""
_LASTING = (LEASE, RUN, STATUS, WAITING)
"""What stays to be written though it was refused."""
_BACKOFF = (0.1, 30.0)

Write = Callable[[], Awaitable[None]]


class Desk:
    """Writes that wait and writes under way."""

    def __init__(self, io: IO, *, hands: int = HANDS, trouble: Callable[[str, Exception], None] | None = None) -> None:
        self._io = io
        self._hands = hands
        self._trouble = trouble or (lambda key, error: None)
        self._lock = Condition()
        self._order = count()
        self._heap: list[tuple[int, int, str]] = []
        self._waiting: dict[str, tuple[int, int, Write]] = {}
        self._busy: set[str] = set()
        self._tries: dict[str, int] = {}
        self._sleeping: dict[str, asyncio.TimerHandle] = {}
        self._refused: dict[str, tuple[int, Write, str]] = {}
        """Writes that were given up, in case they are to be tried again, and why they were."""
        self._disowned: set[str] = set()
        """Of what is under way: that which nobody wants any more, and which is not tried again."""
        self._tasks: set[asyncio.Future[None]] = set()
        self._called = False
        """The loop has been called and has not come yet: a thousand writes are one call."""
        self._closed = False
        self.done = 0
        """Writes that have succeeded."""
        self.refused = 0
        """Writes that were refused, and given up or not."""
        self.changed: Callable[[], None] = lambda: None
        """Called when a write was done."""

    # -- from any thread --

    def put(self, key: str, write: Write, *, rank: int) -> None:
        """Have something written; in place of what waits under the same key."""
        with self._lock:
            if self._closed:
                return
            self._put(key, write, rank)

    def _put(self, key: str, write: Write, rank: int) -> None:
        order = next(self._order)
        self._waiting[key] = (rank, order, write)
        if key not in self._busy and key not in self._sleeping:
            heappush(self._heap, (rank, order, key))
            if not self._called:
                self._called = True
                self._io.loop.call_soon_threadsafe(self._come)

    def again(self) -> None:
        """Try once more what was given up, unless there is something newer to write."""
        with self._lock:
            for key, (rank, write, _) in () if self._closed else self._refused.items():
                if key not in self._waiting and key not in self._busy:
                    self._put(key, write, rank)

    def drop(self, key: str) -> bool:
        """Take back what waits under a key; False if it is under way."""
        with self._lock:
            self._waiting.pop(key, None)
            self._refused.pop(key, None)
            return key not in self._busy

    def drop_all(self) -> None:
        """Take back everything that waits or was given up. What is under way ends by itself, and is not tried again."""
        with self._lock:
            for sleeping in self._sleeping.values():
                self._io.loop.call_soon_threadsafe(sleeping.cancel)
            for known in (self._waiting, self._heap, self._refused, self._tries, self._sleeping):
                known.clear()
            self._disowned |= self._busy
            if not self._busy:
                self._lock.notify_all()

    def holds(self, key: str) -> bool:
        """Whether something waits or is under way under a key."""
        with self._lock:
            return (key in self._busy and key not in self._disowned) or key in self._waiting

    @property
    def waiting(self) -> int:
        """Writes that wait for a hand, or to be tried again."""
        return len(self._waiting)

    @property
    def crowded(self) -> bool:
        """Whether more waits than hands could take up at once: what can wait should not be added."""
        return len(self._waiting) > self._hands

    @property
    def idle(self) -> bool:
        with self._lock:
            return not self._busy and not self._waiting

    def wait(self, timeout: float) -> bool:
        """Until nothing is left to be written; False if that takes longer."""
        with self._lock:
            return self._lock.wait_for(lambda: self._closed or (not self._busy and not self._waiting), timeout)

    def close(self) -> None:
        """Take nothing more; what is under way ends by itself."""
        with self._lock:
            self._closed = True
            self._waiting.clear()
            self._heap.clear()
            self._lock.notify_all()

    # -- on the loop --

    def _come(self) -> None:
        with self._lock:
            self._called = False
        self._begin()

    def _begin(self) -> None:
        """Take up as many writes as there are hands."""
        while (taken := self._take()) is not None:
            task = asyncio.ensure_future(self._carry_out(*taken))
            self._tasks.add(task)
            task.add_done_callback(self._tasks.discard)

    def _take(self) -> tuple[str, int, Write] | None:
        with self._lock:
            while self._heap and len(self._busy) < self._hands:
                rank, order, key = heappop(self._heap)
                found = self._waiting.get(key)
                if found is not None and found[1] == order and key not in self._busy:
                    del self._waiting[key]
                    self._busy.add(key)
                    return key, rank, found[2]
        return None

    async def _carry_out(self, key: str, rank: int, write: Write) -> None:
        pause: float | None = None
        try:
            await write()
            self._tries.pop(key, None)
            self._refused.pop(key, None)
            self.done += 1
        except ApiError as error:
            if error.transient or error.conflict:
                if isinstance(error, NotTaken) and key not in self._tries:
                    self.refused += 1
                    self._trouble(key, error)
                pause = self._pause(key, error)
            else:
                self._give_up(key, rank, write, error)
        except Exception as error:  # one bad write never holds up another
            self._give_up(key, rank, write, error)
        finally:
            self._put_down(key, rank, write, pause)
        self.changed()
        self._begin()

    def _give_up(self, key: str, rank: int, write: Write, error: Exception) -> None:
        self._tries.pop(key, None)
        self.refused += 1
        with self._lock:
            told = self._refused.get(key, (rank, write, ""))[2] == str(error)
            if rank in _LASTING and key not in self._disowned:
                self._refused[key] = (rank, write, str(error))
        if not told:
            self._trouble(key, error)

    def _put_down(self, key: str, rank: int, write: Write, pause: float | None) -> None:
        with self._lock:
            self._busy.discard(key)
            if key in self._disowned:
                self._disowned.discard(key)
                pause = None
            if pause is not None and not self._closed:
                self._waiting.setdefault(key, (rank, next(self._order), write))
                self._sleeping[key] = self._io.loop.call_later(pause, self._wake, key)
            elif key in self._waiting:
                again, order, _ = self._waiting[key]
                heappush(self._heap, (again, order, key))
            if not self._busy and not self._waiting:
                self._lock.notify_all()

    def _wake(self, key: str) -> None:
        with self._lock:
            self._sleeping.pop(key, None)
            if key in self._waiting:
                rank, order, _ = self._waiting[key]
                heappush(self._heap, (rank, order, key))
        self._begin()

    def _pause(self, key: str, error: ApiError) -> float:
        tries = self._tries[key] = self._tries.get(key, 0) + 1
        first, most = _BACKOFF
        return error.retry_after or min(most, first * 2.0 ** min(tries - 1, 16)) * random.uniform(0.5, 1.0)
