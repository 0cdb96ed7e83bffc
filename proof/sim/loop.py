"""A loop whose time is made up: when nothing is ready, it is at once as late as the next timer says.

    loop = VirtualLoop()
    loop.drive(lambda: loop.time() >= 3600.0)     # an hour, in no time

One thread does everything. Those who wait for the loop (an operator's turn that commits) drive it themselves until
they have what they wait for, and whatever else is due happens meanwhile, another operator's turn included: so turns
lie inside one another as deep as there are operators, and each of them may find, when it goes on, that the world has
changed. Only plain callbacks may drive, never a task: asyncio runs no task inside another.
"""

from __future__ import annotations

import asyncio
import sys
from asyncio import events
from collections.abc import Callable, Coroutine
from concurrent.futures import Future
from contextlib import contextmanager
from heapq import heappop
from typing import Any, TypeVar

T = TypeVar("T")
RESTLESS = 200_000
"""So many callbacks at one and the same instant are a loop that will never rest."""
STEPS_MAX = 1_000_000
"""And so many in all are a world in which somebody is busy without end: a usual one takes fifty thousand."""


ROUNDS = 5
"""What is cancelled may begin something to clean up, which is cancelled too, and so on."""


class Restless(AssertionError):
    """Somebody keeps the loop busy for ever without time passing."""


class Stuck(AssertionError):
    """Somebody waits for what will never come."""


class Killed(BaseException):
    """The process is dead. Nothing catches it but who killed it."""


class VirtualLoop(asyncio.BaseEventLoop):
    """Callbacks and timers in one order, the same every time."""

    def __init__(self) -> None:
        super().__init__()
        self._seconds = 0.0
        self._still = 0
        self.steps = 0
        self.depth = 0
        """How many turns lie inside one another now."""

    def time(self) -> float:
        return self._seconds

    def _write_to_self(self) -> None:
        """Nobody sleeps that would have to be woken."""

    def run_in_executor(self, executor: Any, func: Callable[..., T], *args: Any) -> asyncio.Future[T]:  # type: ignore[override]
        """There is no other thread: it is done at once."""
        future: asyncio.Future[T] = self.create_future()
        try:
            future.set_result(func(*args))
        except Exception as error:
            future.set_exception(error)
        return future

    @contextmanager
    def entered(self) -> Any:
        """Be the loop that runs, as ``asyncio`` knows it."""
        outer = events._get_running_loop()
        if outer is self:
            yield
            return
        before = sys.get_asyncgen_hooks()
        sys.set_asyncgen_hooks(firstiter=self._asyncgen_firstiter_hook, finalizer=self._asyncgen_finalizer_hook)
        events._set_running_loop(self)
        try:
            yield
        finally:
            events._set_running_loop(outer)
            sys.set_asyncgen_hooks(*before)

    def drive(self, done: Callable[[], bool], *, until: float | None = None) -> bool:
        """Go on until something is so (True), or it is ``until`` and is not (False)."""
        with self.entered():
            while not done():
                if not self._step(until):
                    if until is None:
                        raise Stuck("nobody will ever wake this up")
                    self._seconds = max(self._seconds, until)
                    return done()
            return True

    def _step(self, until: float | None) -> bool:
        """One callback; False if there is none before ``until``."""
        if not self._ready:
            self._drop_cancelled()
            if not self._scheduled or (until is not None and self._scheduled[0]._when > until):
                return False
            timer = heappop(self._scheduled)
            timer._scheduled = False
            if timer._when > self._seconds:
                self._seconds, self._still = timer._when, 0
            self._ready.append(timer)
        handle = self._ready.popleft()
        self._still += 1
        if self._still > RESTLESS or self.steps > STEPS_MAX:
            raise Restless(f"at {self._seconds:.6f} s: {handle!r}")
        if not handle._cancelled:
            self.steps += 1
            handle._run()
        return True

    def _drop_cancelled(self) -> None:
        while self._scheduled and self._scheduled[0]._cancelled:
            self._timer_cancelled_count -= 1
            heappop(self._scheduled)._scheduled = False

    def close(self) -> None:
        """Cancel what still runs, let it clean up, and be gone: also a loop that was found restless, or what is left in
        it would be collected, and go on, in the middle of another world."""
        if self.is_closed():
            return
        self.steps = self._still = 0
        try:
            for _ in range(ROUNDS):
                for task in asyncio.all_tasks(self):
                    task.cancel()
                self.drive(lambda: not asyncio.all_tasks(self), until=self._seconds + 60.0)
        finally:
            super().close()


class VirtualIO:
    """``tenure.kube.loop.IO`` for one process of a simulation: its talk ends when the process dies."""

    def __init__(self, loop: VirtualLoop) -> None:
        self.loop = loop
        self.dead = False
        self._begun: dict[asyncio.Task[Any], None] = {}

    def start(self, work: Coroutine[Any, Any, T]) -> Future[T]:
        """Begin something."""
        future: Future[T] = Future()
        if self.dead:
            work.close()
            future.cancel()
            return future
        task = self._task(work)
        task.add_done_callback(lambda done: _tell(done, future))
        future.add_done_callback(lambda done: task.cancel() if done.cancelled() else None)
        return future

    def run(self, work: Coroutine[Any, Any, T], timeout: float | None = None) -> T:
        """Do something and wait for it, while everybody else goes on."""
        if self.dead:
            work.close()
            raise Killed
        with self.loop.entered():
            task = self._task(work)
            until = None if timeout is None else self.loop.time() + timeout
            self.loop.drive(lambda: task.done() or self.dead, until=until)
        if self.dead:
            task.cancel()
            raise Killed
        if not task.done():
            task.cancel()
            raise TimeoutError
        return task.result()

    def wait(self, done: Callable[[], bool], seconds: float) -> bool:
        """Wait for something to become so; False if it did not in that time."""
        self.loop.drive(lambda: done() or self.dead, until=self.loop.time() + seconds)
        if self.dead:
            raise Killed
        return done()

    def kill(self) -> None:
        """The process dies: whatever it was about to do does not happen."""
        self.dead = True
        for task in list(self._begun):
            task.cancel()

    def _task(self, work: Coroutine[Any, Any, T]) -> asyncio.Task[T]:
        task = self.loop.create_task(work)
        self._begun[task] = None
        task.add_done_callback(lambda done: self._begun.pop(done, None))
        return task


def _tell(task: asyncio.Task[T], future: Future[T]) -> None:
    if future.cancelled():
        if not task.cancelled():
            task.exception()
        return
    if task.cancelled():
        future.cancel()
    elif (error := task.exception()) is not None:
        future.set_exception(error)
    else:
        future.set_result(task.result())
