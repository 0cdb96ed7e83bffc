"""What containers wrote, streamed through the API server from the kubelets into files.

Files, because whoever prints logs reads files: from the end, line by line, or as they grow. A container that has not
started yet has an empty one. Logs go when their pods go; nothing here keeps them.

Who follows asks for lines with their times, and a stream that breaks off is taken up again where it broke, see
``_Tape``: connections end long before runs do.
"""

from __future__ import annotations

import asyncio
import re
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable
from concurrent import futures
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from typing import Any

from tenure.api.meta import LABEL_GROUP, LABEL_RUN
from tenure.kube.client import Client
from tenure.kube.errors import ApiError
from tenure.kube.loop import IO
from tenure.kube.marks import LABEL_ATTEMPT, LABEL_RANK
from tenure.kube.resources import PODS
from tenure.shell.logs import LogFile

Object = dict[str, Any]
AT_ONCE = 16
PAUSE = 0.5
"""Seconds before a stream that ended, or has not begun, is asked for again."""
_STAMP = re.compile(rb"(\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d)(?:\.\d+)?(Z|[+-]\d\d:\d\d) ")
_PIECE = re.compile(rb"[-+:.\dTZ]{,35}")
"""The beginning of a line's time."""


class PodLogs:
    """The logs of one command's runs, in a folder of its own."""

    def __init__(self, io: IO, client: Client, folder: Path) -> None:
        self._io, self._client, self._folder = io, client, folder
        self._following: dict[Path, futures.Future[None]] = {}
        self._writing: set[Path] = set()
        """Logs of containers that may still write, as of the last look."""
        self._ending = False

    def of(self, namespace: str, run: str, *, follow: bool) -> list[LogFile]:
        """The logs of all pods of a run that are there; with ``follow`` they go on growing, and an API server that
        does not answer is waited for. Raises ``ApiError``, also for what was refused meanwhile."""
        try:
            pods = self._io.run(self._client.list(PODS, namespace, labels=f"{LABEL_RUN}={run}")).items
        except ApiError as error:
            if not (self._following and error.transient):
                raise
            return []
        logs = [(pod, one) for pod in pods for one in self._containers(pod)]
        found = sorted((one for _, one in logs), key=lambda one: (one.attempt, one.rank))
        if follow:
            self._writing = {one.path for pod, one in logs if not _is_over(pod, one.container)}
            self._follow(namespace, [one for one in found if one.path not in self._following])
        else:
            self._io.run(_few_at_once(partial(self._fetch, namespace, one) for one in found))
        return found

    def settle(self, seconds: float) -> None:
        """Wait until what is followed has come to its end, so long at most. Raises ``ApiError``."""
        self._ending = True
        futures.wait(self._following.values(), seconds)
        self._check()

    def _follow(self, namespace: str, logs: list[LogFile]) -> None:
        """Go on with logs that are new: at the first look, what there is is there at once."""
        self._check()
        tapes = [_Tape(one.path) for one in logs]
        if not self._following:
            begun = (partial(self._begin, namespace, *each) for each in zip(logs, tapes, strict=True))
            self._io.run(_few_at_once(begun))
        for one, tape in zip(logs, tapes, strict=True):
            self._following[one.path] = self._io.start(self._go_on(namespace, one, tape))

    def _check(self) -> None:
        for one in self._following.values():
            if one.done():
                one.result()

    def _containers(self, pod: Object) -> list[LogFile]:
        meta, spec = pod["metadata"], pod["spec"]
        labels = meta.get("labels") or {}
        numbers = [int(text) if (text := labels.get(key, "")).isdigit() else 0
                   for key in (LABEL_ATTEMPT, LABEL_RANK, LABEL_GROUP)]  # fmt: skip
        return [
            LogFile(
                pod=meta["name"], attempt=numbers[0], rank=numbers[1], group=numbers[2], container=one["name"],
                path=self._folder / f"{meta['uid']}-{one['name']}.log",
            )
            for one in (*(spec.get("initContainers") or ()), *spec["containers"])
        ]  # fmt: skip

    async def _fetch(self, namespace: str, one: LogFile) -> None:
        """A log as it is now, byte for byte."""
        with one.path.open("wb", buffering=0) as file:
            try:
                async for block in self._stream(namespace, one):
                    file.write(block)
            except ApiError as error:
                if not (error.not_found or error.code == 400):
                    raise  # else it is gone, or has not started

    async def _begin(self, namespace: str, one: LogFile, tape: _Tape) -> None:
        """What there is of a log that will be followed; what fails in passing is left to who goes on."""
        try:
            await self._record(namespace, one, tape)
        except ApiError as error:
            if not (error.not_found or error.code == 400 or error.transient):
                raise

    async def _go_on(self, namespace: str, one: LogFile, tape: _Tape) -> None:
        """Follow a log until its container is over, whatever its streams do."""
        unknown = False
        try:
            while True:
                try:
                    await self._record(namespace, one, tape, follow="true")
                    unknown = False
                    if self._ending or one.path not in self._writing:
                        return
                except ApiError as error:
                    waits = error.code == 400  # it has not started
                    if error.not_found or (waits and self._ending):
                        return
                    # A token that has expired is renewed by who looks at the pods; a kubelet's refusal stays.
                    again = error.code == 401 and not unknown
                    if not (waits or again or error.transient):
                        raise
                    unknown = again
                await asyncio.sleep(PAUSE)
        finally:
            tape.end()

    async def _record(self, namespace: str, one: LogFile, tape: _Tape, **query: str) -> None:
        query |= {"timestamps": "true", **tape.missing()}
        begun = False
        async for block in self._stream(namespace, one, **query):
            if not begun:
                tape.splice()
            begun = True
            tape.put(block)

    def _stream(self, namespace: str, one: LogFile, **query: str) -> AsyncIterator[bytes]:
        query["container"] = one.container
        return self._client.stream(PODS.path(namespace, one.pod, "log"), query=query)


class _Tape:
    """A log that is written down in whole lines as its streams bring them, each of them once.

    A stream is taken up at the second of the newest line: API servers tell kubelets no finer time. It then begins with
    lines of that second which are there already, and these are known by their times, to the nanosecond.
    """

    def __init__(self, path: Path) -> None:
        self._path = path
        path.touch()
        self._newest: datetime | None = None
        self._had: Counter[bytes] = Counter()
        """Times of the lines that are there, of the newest second."""
        self._again: Counter[bytes] = Counter()
        """Of these, the ones that the stream has still to repeat."""
        self._part = b""

    def missing(self) -> dict[str, str]:
        """How to ask for what is not there yet."""
        return {} if self._newest is None else {"sinceTime": f"{self._newest:%Y-%m-%dT%H:%M:%SZ}"}

    def splice(self) -> None:
        """What comes next is the beginning of such an answer: it also has the line that was broken off."""
        self._again, self._part = self._had.copy(), b""

    def put(self, block: bytes) -> None:
        *whole, self._part = (self._part + block).split(b"\n")
        self._write(b"".join(text + b"\n" for line in whole if (text := self._text(line)) is not None))

    def end(self) -> None:
        """Nothing more comes: the last line has no end."""
        if not _PIECE.fullmatch(self._part):
            self._write(self._text(self._part) or b"")

    def _write(self, text: bytes) -> None:
        with self._path.open("ab") as file:
            file.write(text)

    def _text(self, line: bytes) -> bytes | None:
        """What was written; None if it is there already."""
        if (found := _STAMP.match(line)) is None:
            return line
        second = datetime.fromisoformat((found[1] + found[2]).decode()).astimezone(UTC)
        if self._newest is None or second > self._newest:
            self._newest, self._had, self._again = second, Counter(), Counter()
        if second == self._newest:
            if self._again[found[0]] > 0:
                self._again[found[0]] -= 1
                return None
            self._had[found[0]] += 1
        return line[found.end() :]


def _is_over(pod: Object, container: str) -> bool:
    status = pod.get("status") or {}
    told = (*(status.get("initContainerStatuses") or ()), *(status.get("containerStatuses") or ()))
    ended = {one["name"] for one in told if (one.get("state") or {}).get("terminated")}
    return container in ended or status.get("phase") in ("Succeeded", "Failed")


async def _few_at_once(works: Iterable[Callable[[], Awaitable[None]]]) -> None:
    slots = asyncio.Semaphore(AT_ONCE)

    async def one(work: Callable[[], Awaitable[None]]) -> None:
        async with slots:
            await work()

    await asyncio.gather(*map(one, works))
