"""The thread on which all talk with the API server happens, so that everybody else may stay synchronous.

    with IO() as io:
        client = io.run(open_client(access))
        pods = io.run(client.list(PODS))          # blocks this thread only; other calls and watches go on
        task = io.start(informer.follow())        # runs until it ends or is cancelled

The engine's thread decides and waits; the loop's thread sends, receives and keeps watches alive meanwhile.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Coroutine
from concurrent.futures import Future
from types import TracebackType
from typing import Any, Self, TypeVar

T = TypeVar("T")
_GOODBYES = 100
"""Hundredths of a second in which connections may say goodbye to a slow server."""


class IO:
    """One asyncio loop on a thread of its own."""

    def __init__(self, name: str = "tenure-io") -> None:
        self.loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._serve, name=name, daemon=True)
        self._thread.start()

    def start(self, work: Coroutine[Any, Any, T]) -> Future[T]:
        """Begin something; its future tells how it ended, and may be cancelled."""
        return asyncio.run_coroutine_threadsafe(work, self.loop)

    def run(self, work: Coroutine[Any, Any, T], timeout: float | None = None) -> T:
        """Do something and wait for it. Whoever is interrupted while waiting takes the work back."""
        if threading.current_thread() is self._thread:
            work.close()
            raise RuntimeError("the loop's own thread cannot wait for the loop: await instead")
        future = self.start(work)
        try:
            return future.result(timeout)
        except BaseException:
            future.cancel()
            raise

    def close(self) -> None:
        """Cancel what still runs, let it clean up, and end the thread. Closing twice is harmless."""
        if self.loop.is_closed():
            return
        asyncio.run_coroutine_threadsafe(_wind_up(), self.loop).result()
        self.loop.call_soon_threadsafe(self.loop.stop)
        self._thread.join()
        self.loop.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def _serve(self) -> None:
        asyncio.set_event_loop(self.loop)
        self.loop.run_forever()


async def _wind_up() -> None:
    others = [task for task in asyncio.all_tasks() if task is not asyncio.current_task()]
    for task in others:
        task.cancel()
    await asyncio.gather(*others, return_exceptions=True)
    await asyncio.get_running_loop().shutdown_asyncgens()
    for _ in range(_GOODBYES):  # connections are closed by the loop, after those who held them
        await asyncio.sleep(0.01)
        if _connections() == 0:
            return
    await hang_up()


async def hang_up() -> None:
    """End connections whose other end has not said goodbye yet: a busy server may take its time, or never do it."""
    for transport in list(getattr(asyncio.get_running_loop(), "_transports", {}).values()):
        transport.abort()
    await asyncio.sleep(0.01)


def _connections() -> int:
    """How many the running loop still has, as far as it tells: beside them it only listens to itself."""
    selector = getattr(asyncio.get_running_loop(), "_selector", None)
    return 0 if selector is None else max(0, len(selector.get_map()) - 1)
