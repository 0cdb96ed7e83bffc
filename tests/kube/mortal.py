"""A client that dies: at its n-th write, before it is sent or after it was applied, and from then on for good."""

from __future__ import annotations

import threading
from typing import Any, Literal

from tenure.kube.client import Client

Moment = Literal["before", "after"]


class Killed(BaseException):
    """The process is dead. Nothing catches it but the test."""


class MortalClient(Client):
    """Counts writes from the moment it is armed, and dies at one of them; reads and watches die with it."""

    def __init__(self, *arguments: Any, **rest: Any) -> None:
        super().__init__(*arguments, **rest)
        self.sent: list[str] = []
        """The writes, in words for whoever wonders about their number."""
        self.dead = threading.Event()
        self._last: int | None = None
        self._moment: Moment = "before"

    def arm(self, last: int, moment: Moment) -> None:
        """Die at the ``last``-th write from now on."""
        self.sent, self._last, self._moment = [], last, moment

    @property
    def writes(self) -> int:
        return len(self.sent)

    async def call(self, method: str, path: str, **rest: Any) -> bytes:
        if self.dead.is_set():
            raise Killed
        if method == "GET" or self._last is None:
            return await super().call(method, path, **rest)
        self.sent.append(f"{method} {path} {rest.get('body')}"[:300])
        if self.writes < self._last:
            return await super().call(method, path, **rest)
        if self._moment == "after" and self.writes == self._last:
            await super().call(method, path, **rest)
        self.dead.set()
        raise Killed
