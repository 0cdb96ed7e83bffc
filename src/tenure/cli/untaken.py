"""Runs of a cluster that its ledger does not know: nobody has taken them in yet, or the operator could not.

They are objects like others, and whoever may read the ledger must see them too, however lively the operator is. Names
are compared first, which is cheap; whole objects are read only of the runs that the ledger lacks.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Container, Iterable
from datetime import datetime
from typing import TYPE_CHECKING, Any

from msgspec.structs import replace

from tenure.api.errors import FieldError
from tenure.api.run import Run
from tenure.cli.exits import Exit
from tenure.cli.objects import Remembered, line_of, to_run
from tenure.cli.port import RunLine, SponsorLine
from tenure.cli.refused import trouble
from tenure.cli.session import Session
from tenure.cli.trouble import Trouble
from tenure.cli.view import StateView
from tenure.engine import State
from tenure.engine.intake import check
from tenure.facts import Lease
from tenure.kube.client import Client
from tenure.kube.errors import ApiError
from tenure.kube.loop import IO
from tenure.kube.resources import RUNS
from tenure.kube.translate import is_leaving, read_object
from tenure.units import Instant

if TYPE_CHECKING:
    from tenure.shell.estimates import Estimates

Object = dict[str, Any]
Fetch = Callable[[str | None, str], list[Object]]
"""The Runs of a namespace (of all, if None) that the ledger lacks, or the one of a name."""
FEW = 20
"""So many are read one by one; more of them, in one list."""


class WholeView(StateView):
    """A state, and the Runs that are not in it."""

    def __init__(self, state: State, fetch: Fetch, *, now: Instant, estimates: Estimates | None = None) -> None:
        super().__init__(state, now=now, estimates=estimates)
        self._fetch = Remembered(fetch)

    def lines(self, namespace: str | None = None) -> list[RunLine]:
        new = [line_of(to_run(item), taken=False) for item in self._fetch(namespace, "")]
        return sorted([*super().lines(namespace), *new], key=lambda line: (line.namespace, line.name))

    def line(self, namespace: str, name: str) -> RunLine | None:
        found = super().line(namespace, name)
        new = [] if found else self._fetch(namespace, name)
        return found or next((line_of(to_run(item), taken=False) for item in new), None)

    def run(self, namespace: str, name: str) -> Run:
        new = next(iter([] if self._knows(namespace, name) else self._fetch(namespace, name)), None)
        return super().run(namespace, name) if new is None else to_run(new)

    def leases(self, namespace: str, name: str) -> list[Lease]:
        return super().leases(namespace, name) if self._knows(namespace, name) else []

    def sponsors(self, namespace: str, name: str) -> list[SponsorLine]:
        return super().sponsors(namespace, name) if self._knows(namespace, name) else []

    def _knows(self, namespace: str, name: str) -> bool:
        return f"{namespace}/{name}" in self._state.runs


def not_taken_in(session: Session, namespace: str, name: str) -> Trouble:
    """What to say where only the ledger could answer."""
    step = f"whether an operator is there, and what it would decide: {session.about('explain', namespace, name)}"
    problem = f"Run/{namespace}/{name} has not been taken in yet: the ledger knows nothing of it"
    return Trouble(problem, next_step=step, exit=Exit.NOT_FOUND)


def in_turn(state: State, objects: tuple[Any, ...], found: list[Object]) -> tuple[Any, ...]:
    """What an operator would decide on if it came now: these objects, and the Runs that it ``found`` written.

    Each has the time at which it was written, so that who asked first is asked first; of objects in a file that is now,
    whatever the file says. What is wrong with a Run that somebody else wrote is not told here: it would be left out.
    """
    written = {key_of(item): one for item in found for one in _sound(item)}
    own = {f"{one.metadata.namespace}/{one.metadata.name}" for one in objects if one.kind == "Run"}
    others = [
        run for key, run in sorted(written.items())
        if key not in own and not any(wrong.object == f"Run/{key}" for wrong in check(state, (*objects, run)))
    ]  # fmt: skip
    return (*(_dated(one, written) for one in objects), *others)


def _sound(item: Object) -> list[Any]:
    """A Run as it would be taken in; nothing if it would not."""
    return [] if is_leaving(item) else list(read_object(item).objects)


def _dated(item: Any, written: dict[str, Any]) -> Any:
    known = written.get(f"{item.metadata.namespace}/{item.metadata.name}") if item.kind == "Run" else None
    made = known.metadata.creation_timestamp if known else None
    meta = replace(item.metadata, uid=known.metadata.uid if known else "", creation_timestamp=made)
    return replace(item, metadata=meta)


class Untaken:
    """Looks for Runs that a ledger lacks, and remembers which it saw."""

    def __init__(self, io: IO, client: Client) -> None:
        self._io, self._client = io, client
        self._seen: dict[str, Object] = {}

    def look(self, known: Container[str], namespace: str | None, name: str) -> list[Object]:
        """Those of a namespace (of all, if None), or the one of a name; none for somebody who may not see Runs."""
        try:
            found = [item for item in self._io.run(self._read(known, namespace, name)) if key_of(item) not in known]
        except ApiError as error:
            if error.code == 403:
                return []
            raise trouble(error) from error
        self._seen |= {key_of(item): item for item in found}
        return found

    async def _read(self, known: Container[str], namespace: str | None, name: str) -> list[Object]:
        if name:
            return await self._one(namespace, name)
        listed = (await self._client.list(RUNS, namespace, metadata_only=True)).items
        new = [item["metadata"] for item in listed if key_of(item) not in known]
        if len(new) > FEW:
            return (await self._client.list(RUNS, namespace)).items
        return [item for meta in new for item in await self._one(meta["namespace"], meta["name"])]

    async def _one(self, namespace: str | None, name: str) -> list[Object]:
        try:
            return [await self._client.get(RUNS, name, namespace)]
        except ApiError as error:
            if error.not_found:
                return []
            raise

    def wrong(self, objects: Iterable[Any]) -> tuple[FieldError, ...]:
        """What keeps those of these objects from being taken in that were seen and cannot be read."""
        runs = [one.metadata for one in objects if one.kind == "Run"]
        seen = [(meta, self._seen.get(f"{meta.namespace}/{meta.name}")) for meta in runs]
        same = [item for meta, item in seen if item is not None and item["metadata"]["uid"] == meta.uid]
        return tuple(error for item in same for error in read_object(item).errors)

    def ignored(self, seconds: float) -> bool:
        """Whether one of those that were seen is older than this, and no operator has said anything about it."""
        return any(_age(item) > seconds for item in self._seen.values() if not (item.get("status") or {}).get("phase"))


def key_of(item: Object) -> str:
    return f"{item['metadata']['namespace']}/{item['metadata']['name']}"


def _age(item: Object) -> float:
    return time.time() - datetime.fromisoformat(item["metadata"]["creationTimestamp"]).timestamp()
