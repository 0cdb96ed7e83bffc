"""Who of several operators decides: a ``coordination.k8s.io`` Lease that one of them holds and keeps renewing.

This only saves work. Two operators that both believe to be the leader are harmless, since only one of them wins each
swap of the LedgerHead; they would be busy losing. So a leader that is paused may go on believing for a moment, and
nothing depends on clocks: a holder counts as gone when its record has not changed for ``duration`` on our own clock,
wherever its own clock stands.
"""

from __future__ import annotations

import asyncio
import logging
import random
import threading
import time
from collections.abc import Callable
from typing import Any

from tenure.kube.client import Client, Object, urgently
from tenure.kube.errors import ApiError
from tenure.kube.resources import ELECTION_LEASES, SYSTEM_NAMESPACE
from tenure.kube.shown import micro_time
from tenure.units import Instant

_LOOKS_MAX = 3
"""How often a leader whose renewal meets a conflict looks who holds the record, before it takes that for trouble."""

log = logging.getLogger(__name__)


class Elector:
    """One candidate. ``leading`` may be read, and waited for, on any thread."""

    def __init__(
        self,
        client: Client,
        identity: str,
        *,
        name: str = "tenure-operator",
        namespace: str = SYSTEM_NAMESPACE,
        duration: float = 15.0,
        renew: float = 2.0,
        clock: Callable[[], float] = time.monotonic,
        now: Callable[[], Instant] = lambda: time.time_ns() // 1000,
        on_change: Callable[[bool], None] = lambda leading: None,
    ) -> None:
        self.identity = identity
        self.leading = threading.Event()
        self.holder = ""
        """Who led when we last looked."""
        self._client = client
        self._name, self._namespace = name, namespace
        self._duration, self._renew = duration, renew
        self._clock, self._now = clock, now
        self._on_change = on_change
        self._seen: tuple[str, Any, float] = ("", None, 0.0)
        """Version of the record that was seen last, whose it was, and since when it has not changed."""
        self._renewed = 0.0
        self._campaign: asyncio.Task[Any] | None = None

    async def campaign(self) -> None:
        """Try to lead, and go on leading, until cancelled; then step down."""
        self._campaign = asyncio.current_task()
        try:
            while True:
                await self._try_once()
                await asyncio.sleep(self._renew * (0.8 + random.random() * 0.4))
        finally:
            if self.leading.is_set():
                await asyncio.shield(self._step_down())

    async def resign(self) -> None:
        """End the campaign. Whoever waits for this has stepped down, and may then let go of the client."""
        if self._campaign is not None:
            self._campaign.cancel()
            await asyncio.wait({self._campaign})

    async def _try_once(self) -> None:
        try:
            won = await asyncio.wait_for(urgently(self._claim()), timeout=self._duration / 3)
        except (ApiError, TimeoutError) as error:
            log.info("the election could not be asked: %s", error)
            won = self.leading.is_set() and self._clock() - self._renewed < self._duration * 2 / 3
        self._lead(won)

    def _lead(self, leading: bool) -> None:
        if leading == self.leading.is_set():
            return
        if leading:
            self.leading.set()
        else:
            self.leading.clear()
        self._on_change(leading)

    async def _claim(self) -> bool:
        """Take or renew the record; True if it is ours. Who holds it and is told that it has changed looks again: it
        may have been a label, and nobody else comes before the holder's time is over."""
        for number in range(1, _LOOKS_MAX + 1):
            try:
                return await self._claimed()
            except ApiError as error:
                if not error.conflict and not error.exists:
                    raise
                if not self.leading.is_set():
                    break  # somebody was faster
                if number == _LOOKS_MAX:
                    raise
        return False

    async def _claimed(self) -> bool:
        """One attempt; False if somebody else holds the record."""
        began = self._clock()
        try:
            found = await self._client.get(ELECTION_LEASES, self._name, self._namespace)
        except ApiError as error:
            if not error.not_found:
                raise
            found = ELECTION_LEASES.named(self._name, self._namespace, spec={})
        self.holder = found["spec"].get("holderIdentity") or ""
        if self.holder not in ("", self.identity) and not self._gone(found):
            return False
        await self._write(found)
        self.holder, self._renewed = self.identity, began
        return True

    def _gone(self, found: Object) -> bool:
        """Whether the holder has let its time pass, as we have seen it."""
        version, now = found["metadata"]["resourceVersion"], self._clock()
        if self._seen[0] != version:
            self._seen = (version, self.holder, now)
        return now - self._seen[2] >= self._duration

    async def _write(self, found: Object) -> None:
        spec, now = found["spec"], micro_time(self._now())
        fresh = spec.get("holderIdentity") != self.identity
        new = {
            "holderIdentity": self.identity,
            "leaseDurationSeconds": max(1, round(self._duration)),
            "acquireTime": now if fresh else spec.get("acquireTime", now),
            "renewTime": now,
            "leaseTransitions": int(spec.get("leaseTransitions") or 0) + (1 if fresh else 0),
        }
        body = {**found, "spec": new}
        if "resourceVersion" in found["metadata"]:
            await self._client.replace(ELECTION_LEASES, body)
        else:
            await self._client.create(ELECTION_LEASES, body)

    async def _step_down(self) -> None:
        """Let the next one in at once; but whoever is to stop does not wait long for a server that is away."""
        self._lead(False)
        try:
            await asyncio.wait_for(urgently(self._release()), timeout=self._duration / 3)
        except (ApiError, TimeoutError) as error:
            log.info("the election could not be told that we left: %s", error)

    async def _release(self) -> None:
        """Take our name off the record. Our last renewal, given up half way, may come in between: then once more."""
        for number in range(1, _LOOKS_MAX + 1):
            try:
                found = await self._client.get(ELECTION_LEASES, self._name, self._namespace)
                if found["spec"].get("holderIdentity") == self.identity:
                    found["spec"]["holderIdentity"] = ""
                    await self._client.replace(ELECTION_LEASES, found)
                return
            except ApiError as error:
                if not error.conflict or number == _LOOKS_MAX:
                    raise
