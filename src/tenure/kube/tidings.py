"""Notes of the ledger as Events of the cluster: for ``kubectl describe`` and ``kubectl get events``.

Events are a courtesy. They go out last, and not without bound: a thousand runs that start at once have their conditions
to tell it, and an API server has better things to do than to store three thousand sentences. What is routine goes out
while there is plenty of room, a warning as long as there is any. Nothing is lost by it: the ledger has every note, and
the notifier delivers them all. An API server forgets an Event after a while: whoever takes over long after somebody
else has told something does not tell it again.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping

from tenure.api.errors import FieldError
from tenure.engine import State
from tenure.facts import Entry, Noted
from tenure.kube import shown
from tenure.kube.client import Client
from tenure.kube.desk import EVENT, Desk
from tenure.kube.errors import ApiError
from tenure.kube.intake import Mark
from tenure.kube.resources import EVENTS
from tenure.kube.translate import Object
from tenure.units import HOUR, Instant

REJECTED = "Rejected"
"""A kind of Event only: what was not taken is not in the ledger, and receivers of its notes never hear of it."""
BURST, PER_SECOND = 50.0, 3.0
_ROUTINE, _NEWS, _WARNING = 35.0, 10.0, 1.0
"""How much room there must be for what a condition tells as well, for other news, and for a warning."""


KEPT = HOUR
"""How long an API server keeps Events, if nobody has set it otherwise."""


class Tidings:
    """Tells what was noted, as far as there is room."""

    def __init__(
        self,
        client: Client,
        desk: Desk,
        *,
        reservations: Callable[[str], Object | None] = lambda key: None,
        reporter: str = "tenure",
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """``reservations`` finds one by ``namespace/name``: its uid is the API server's, which no entry knows."""
        self._client, self._desk, self._reporter, self._clock = client, desk, reporter, clock
        self._reservations = reservations
        self._room, self._since = BURST, clock()
        self.left_out = 0
        """Events for which there was no room."""

    def follow(self, entry: Entry, state: State) -> None:
        if state.now - entry.at > KEPT:
            return
        for index, fact in enumerate(entry.facts):
            if isinstance(fact, Noted):
                self._tell(fact, at=entry.at, name=f"{entry.seq}-{index}", uid=self._uid(fact.object, state))

    def refused(self, marks: Mapping[Mark, tuple[FieldError, ...]], *, now: Instant) -> None:
        """Objects that were not taken, and why."""
        for (kind, key), errors in sorted(marks.items()):
            told = " ".join(error.sentence() for error in errors[:3])
            note = Noted(kind=REJECTED, object=f"{kind}/{key}", reason="Invalid", message=told)
            self._tell(note, at=now, name=told)

    def _tell(self, note: Noted, *, at: Instant, name: str, uid: str = "") -> None:
        item = shown.event_object(note, at=at, name=name, uid=uid, reporter=self._reporter)
        now = self._clock()
        self._room, self._since = min(BURST, self._room + (now - self._since) * PER_SECOND), now
        news = _ROUTINE if note.kind in ("Admitted", "Started", "Completed") else _NEWS
        if self._room < (_WARNING if item["type"] == "Warning" else news):
            self.left_out += 1
            return
        self._room -= 1.0

        async def write() -> None:
            try:
                await self._client.create(EVENTS, item)
            except ApiError as error:
                if not error.exists and not error.not_found and error.code != 403:  # a namespace that is going
                    raise

        self._desk.put(f"Event/{item['metadata']['namespace']}/{item['metadata']['name']}", write, rank=EVENT)

    def _uid(self, subject: str, state: State) -> str:
        """By which `kubectl describe` finds what is told about an object."""
        kind, _, key = subject.partition("/")
        if kind == "Run" and key in state.runs:
            return state.runs[key].run.metadata.uid
        if kind == "Reservation" and (found := self._reservations(key)) is not None:
            return str(found["metadata"].get("uid", ""))
        if kind == "Budget" and key in state.budgets:
            return state.budgets[key].metadata.uid
        if kind == "Node" and key in state.topology.rows:
            return state.topology.rows[key].node.metadata.uid
        return ""
