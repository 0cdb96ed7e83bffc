"""What containers wrote, streamed through the API server from the kubelets into files.

Files, because whoever prints logs reads files: from the end, line by line, or as they grow. A container that has not
started yet has an empty one. Logs go when their pods go; nothing here keeps them.
"""

from __future__ import annotations

import asyncio
from concurrent.futures import Future
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


class PodLogs:
    """The logs of one command's runs, in a folder of its own."""

    def __init__(self, io: IO, client: Client, folder: Path) -> None:
        self._io, self._client, self._folder = io, client, folder
        self._following: dict[Path, Future[None]] = {}

    def of(self, namespace: str, run: str, *, follow: bool) -> list[LogFile]:
        """The logs of all pods of a run that are there; with ``follow`` they go on growing. Raises ``ApiError``."""
        pods = self._io.run(self._client.list(PODS, namespace, labels=f"{LABEL_RUN}={run}")).items
        found = sorted((one for pod in pods for one in self._containers(pod)), key=lambda one: (one.attempt, one.rank))
        if follow:
            for one in found:
                if one.path not in self._following:
                    one.path.touch()
                    self._following[one.path] = self._io.start(self._stream(namespace, one, follow=True))
        else:
            self._io.run(self._fetch(namespace, found))
        return found

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

    async def _fetch(self, namespace: str, logs: list[LogFile]) -> None:
        slots = asyncio.Semaphore(AT_ONCE)

        async def fetch(one: LogFile) -> None:
            async with slots:
                await self._stream(namespace, one, follow=False)

        await asyncio.gather(*(fetch(one) for one in logs))

    async def _stream(self, namespace: str, one: LogFile, *, follow: bool) -> None:
        query = {"container": one.container, **({"follow": "true"} if follow else {})}
        with one.path.open("wb", buffering=0) as file:
            while True:
                try:
                    async for block in self._client.stream(PODS.path(namespace, one.pod, "log"), query=query):
                        file.write(block)
                    return
                except ApiError as error:
                    if error.not_found or (error.code == 400 and not follow):
                        return  # gone, or not started
                    if error.code != 400:
                        raise
                await asyncio.sleep(0.5)  # it waits to start
