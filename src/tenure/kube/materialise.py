"""What was decided, made visible: Lease and Reservation objects, and the statuses of Runs, Budgets and Reservations.

Entries say what changed (``follow``); ``flush`` turns that into writes, each of which makes one object what it should
be and writes nothing if it is. So the same entry may be followed twice, by one operator after a crash or by two at
once, and the same objects come out. What somebody changed or deleted is made right when the informer shows it
(``saw``); after a restart everything is compared once (``resync``). Statuses wait a moment, so that a run which is
admitted and starts is one write.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Mapping
from functools import cache
from typing import Any, Protocol

from tenure.api.errors import FieldError
from tenure.engine import State
from tenure.engine.shown import OVER, Risks
from tenure.engine.words import Words
from tenure.facts import (
    Closed,
    Ending,
    Entry,
    Froze,
    Lease,
    Moved,
    Opened,
    Placed,
    PutBudget,
    PutRun,
    Removed,
    Reservation,
    Reserved,
    Resolved,
    Warned,
)
from tenure.kube import shown
from tenure.kube.books import Books, Leased
from tenure.kube.client import Client
from tenure.kube.desk import RUN, STATUS, WAITING, Desk
from tenure.kube.errors import ApiError
from tenure.kube.intake import Cache, Kind, Mark
from tenure.kube.likely import Likely
from tenure.kube.marks import FINALIZER
from tenure.kube.resources import BUDGETS, RUNS, Resource
from tenure.kube.said import Said
from tenure.kube.translate import is_leaving
from tenure.units import MINUTE, Instant

Object = dict[str, Any]

HOLD_SECONDS = 1.0
"""How long a status may wait for more to happen: that of a budget which was written just now."""
_STARTING = 5.0
"""How many times as long a run that is starting waits: it will say that it runs; who does not start says so in time."""
AT_ONCE = 200
"""How many statuses are made in one go: while ten thousand runs are told that they wait, others are decided on."""
_CROWDED = 10.0
"""And one that is starting or waits, while so much is to be written that its status would only add to it."""


class History(Protocol):
    """What the ledger keeps of reservations: see ``KubeStore.promises``."""

    def promises(
        self, *, since: Instant | None, also: Iterable[str] = ()
    ) -> Iterable[tuple[Reservation, Froze | Resolved | None]]: ...


class Materialiser:
    """The objects that follow from the state."""

    def __init__(
        self,
        client: Client,
        desk: Desk,
        caches: Mapping[str, Cache],
        *,
        fleet: str,
        refused: Mapping[Mark, tuple[FieldError, ...]],
        likely: Likely | None = None,
        hold: float = HOLD_SECONDS,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._client, self._desk, self._caches = client, desk, caches
        self._fleet, self._refused, self._hold, self._clock = fleet, refused, hold, clock
        self._said = Said(clock)
        self._likely = likely
        self._books = Books(client, desk, caches, fleet=fleet, said=self._said)
        self._runs: dict[str, float] = {}
        """Runs whose status is to be written, and since when."""
        self._holding: set[str] = set()
        """Runs that have got leases."""
        self._next: float | None = None
        self._budgets: dict[str, float] = {}
        self._reserved: dict[str, Reservation] = {}
        self._resolved: dict[str, Froze | Resolved] = {}
        self._wrote = _Wrote()
        self._told: dict[str, float] = {}
        """Budgets and when each was written last."""
        self._counted: dict[str, Instant] = {}
        """Reservations that stand and when each was last rendered, with its countdown."""
        self._holders: dict[str, str] = {}
        """Reservations that stand, and the run of each."""
        self._doubted: dict[str, float] = {}
        """Reservations that do not stand and are shown as if they did, and since when."""
        self._history: History | None = None

    # -- what happened --

    def follow(self, entry: Entry) -> None:
        """Note what an entry touches."""
        now = self._clock()
        for fact in entry.facts:
            match fact:
                case Opened():
                    self._books.opened(fact.lease)
                    self._holding.add(fact.lease.run_key)
                    self._touch(fact.lease.run_key, fact.lease.budget, now)
                case Closed():
                    for lease in self._books.closed(fact):
                        self._touch(lease.run_key, lease.budget, now)
                case Moved() | Ending():
                    self._runs.setdefault(f"{fact.namespace}/{fact.run}", now)
                case Placed():
                    self._runs.setdefault(fact.pod.run_key, now)
                case PutRun():
                    meta = fact.object.metadata
                    self._runs.setdefault(f"{meta.namespace}/{meta.name}", now)
                case Removed() if fact.kind == "Run":
                    self._runs.setdefault(f"{fact.namespace}/{fact.name}", now)
                case PutBudget():
                    self._budgets.setdefault(fact.object.metadata.name, now)
                case Warned():
                    self._budgets.setdefault(fact.budget, now)
                case Reserved():
                    self._reserve(fact.reservation, now)
                case Froze() | Resolved():
                    self._resolve(fact, now)
                case _:
                    pass

    def _touch(self, run: str, budget: str, now: float) -> None:
        self._runs.setdefault(run, now)
        self._budgets.setdefault(budget, now)

    def _reserve(self, fact: Reservation, now: float) -> None:
        before = self._reserved.get(fact.key)
        self._reserved[fact.key] = fact
        self._runs.setdefault(fact.run_key, now)
        for run in fact.forecast.odds.keys() | (before.forecast.odds.keys() if before else set()):
            self._runs.setdefault(run, now)

    def _resolve(self, fact: Froze | Resolved, now: float) -> None:
        kind, _, key = fact.subject.partition("/")
        if kind == "Budget":
            self._budgets.setdefault(key.partition("/")[0], now)
        else:
            self._resolved[key] = fact

    def saw(self, kind: str, key: str, state: State) -> None:
        """The informer has news of an object that we write: if it is not what it should be, it is made so."""
        if kind == "Lease":
            self._books.saw(key, state)
        elif kind == "Reservation":
            if (fact := self._promise(key, state)) is not None:
                self._reserved.setdefault(key, fact)
            elif self._is_shown_standing(key):
                self._doubted.setdefault(key, self._clock())
        elif kind == "Run":
            self._runs.setdefault(key, self._clock())
        elif kind == "Budget":
            self._budgets.setdefault(key, self._clock())

    def refusals(self, marks: Iterable[Mark]) -> None:
        """Objects that were refused, or are no longer."""
        for kind, key in marks:
            (self._runs if kind == "Run" else self._budgets).setdefault(key, 0.0) if kind in ("Run", "Budget") else None

    def resync(self, state: State, history: History, *, since: Instant | None = None) -> None:
        """Compare everything: at the beginning, and after the state was built anew; closed leases in ``compare``.

        What was over before ``since`` may have been retired: it is not made again.
        """
        self._runs = dict.fromkeys((*state.runs, *self._caches["Run"].keys()), 0.0)
        self._budgets = dict.fromkeys((*state.budgets, *self._caches["Budget"].keys()), 0.0)
        self._books.resync(state)
        self._history = history
        standing = [key for key in list(self._caches["Reservation"].keys()) if self._is_shown_standing(key)]
        for fact, resolution in history.promises(since=since, also=standing):
            self._recall(fact, resolution)

    def _recall(self, fact: Reservation, resolution: Froze | Resolved | None) -> None:
        self._reserved[fact.key] = fact
        if resolution is not None:
            self._resolved[fact.key] = resolution
        else:
            self._resolved.pop(fact.key, None)

    def compare(self, missing: Iterable[tuple[Lease, Instant | None, str | None]]) -> None:
        """Closed leases of which no object says so."""
        self._books.compare(missing)

    # -- what is written --

    def next_flush(self) -> float | None:
        """Seconds until something that is held back is due; None if nothing is."""
        return None if self._next is None else max(0.0, self._next - self._clock())

    def flush(self, state: State, *, now: Instant, all_of_it: bool = False) -> None:
        """Write what is to be written and has waited long enough."""
        self._books.flush(now=now)
        words, risks = Words(state, now=now), cache(lambda: Risks(state, now=now))
        for key in self._holding:
            self._hold_fast(state, key)
        self._holding.clear()
        ripe = float("inf") if all_of_it else self._clock()
        crowded = self._desk.crowded
        runs = {key: since + self._hold * _patience(state, key, crowded) for key, since in self._runs.items()}
        budgets = {key: max(since, self._told.get(key, 0.0)) + self._hold for key, since in self._budgets.items()}
        due_now = sorted((key for key, due in runs.items() if due <= ripe), key=lambda key: _waits(state, key))
        most = None if all_of_it else AT_ONCE
        for key in due_now[:most]:
            del self._runs[key]
            self._write_run(state, key, now=now, words=words, risks=risks)
        for key in [key for key, due in budgets.items() if due <= ripe]:
            del self._budgets[key]
            self._write_budget(state, key, now=now)
        if self._likely is not None:
            self._likely.look(state, now=now)
            for key in self._likely.take_due(state, now=now):
                self._write_run(state, key, now=now, words=words, risks=risks)
        self._look_up_doubted(ripe, now)
        for key in sorted(self._reserved)[:most]:
            self._write_reservation(state, self._reserved.pop(key), now=now)
        doubted = [since + self._hold for since in self._doubted.values()]
        self._next = min((due for due in (*runs.values(), *budgets.values(), *doubted) if due > ripe), default=None)
        if self._likely is not None and (wait := self._likely.next()) is not None:
            self._next = min(self._clock() + wait, float("inf") if self._next is None else self._next)
        if self._reserved or len(due_now) > AT_ONCE:
            self._next = self._clock()  # the rest, as soon as something else had a turn

    def _look_up_doubted(self, ripe: float, now: Instant) -> None:
        """A leader that knew less may have written last that a reservation stands which is over: nobody would look at
        it again. What was on its way has come by now; of the rest the ledger knows what became of it."""
        due = [key for key, since in self._doubted.items() if since + self._hold <= ripe]
        for key in due:
            del self._doubted[key]
        wrong = {key for key in due if key not in self._reserved and self._is_shown_standing(key)}
        if wrong and self._history is not None:
            for fact, resolution in self._history.promises(since=now, also=sorted(wrong)):
                if fact.key in wrong:
                    self._recall(fact, resolution)

    def _is_shown_standing(self, key: str) -> bool:
        item = self._caches["Reservation"].get(key)
        return item is not None and (item.get("status") or {}).get("state") not in OVER

    def refresh(self, state: State, *, now: Instant) -> None:
        """Numbers that run with the clock: of budgets, which are few, and of promises whose countdown is off by much.

        There may be ten thousand promises. Those far away are told anew seldom, so that they cost next to nothing.
        """
        for name in state.budgets:
            self._budgets.setdefault(name, 0.0)
            self._told.pop(name, None)
        for one in state.reservations.values():
            start, told = one.plan.start, self._counted.get(one.key, 0)
            if start is not None and now - told > max(MINUTE, (start - now) // 10):
                self._reserved.setdefault(one.key, one)

    def _write_run(self, state: State, key: str, *, now: Instant, words: Words, risks: Callable[[], Risks]) -> None:
        item = self._caches["Run"].get(key)
        if item is None:
            return
        row, errors = state.runs.get(key), self._refused.get(("Run", key), ())
        if row is None or row.run.metadata.uid != item["metadata"]["uid"]:
            if is_leaving(item) and FINALIZER in (item["metadata"].get("finalizers") or ()):
                if self._books.is_closing(key):
                    self._runs[key] = self._clock()  # first the ends of its leases are written
                else:
                    self._finalize(key, item, present=False)
            elif errors and not is_leaving(item):
                self._status(RUNS, key, shown.refused_run_status(errors, now=now))
            return
        self._hold_fast(state, key)
        status = shown.run_status(state, key, now=now, words=words, risks=risks(), errors=errors)
        if self._likely is not None:
            status = self._likely.told(state, key, status, item.get("status") or {})
        self._status(RUNS, key, status, rank=WAITING if _waits(state, key) else STATUS)

    def _hold_fast(self, state: State, key: str) -> None:
        """See to it that a Run which holds leases has our finalizer."""
        item, row = self._caches["Run"].get(key), state.runs.get(key)
        if item is None or row is None or not row.leases or row.run.metadata.uid != item["metadata"]["uid"]:
            return
        if FINALIZER not in (item["metadata"].get("finalizers") or ()) and not is_leaving(item):
            self._finalize(key, item, present=True)

    def _write_budget(self, state: State, key: str, *, now: Instant) -> None:
        errors = self._refused.get(("Budget", key), ())
        if self._caches["Budget"].get(key) is None:
            return
        self._told[key] = self._clock()
        if key in state.budgets:
            self._status(BUDGETS, key, shown.budget_status(state, key, now=now, errors=errors))
        elif errors:
            self._status(BUDGETS, key, shown.refused_status(errors, now=now))

    def _status(self, resource: Resource, key: str, wanted: Object, *, rank: int = STATUS) -> None:
        """Write a status, unless it says that already."""
        namespace, _, name = key.rpartition("/")

        async def write() -> None:
            item = self._caches[resource.kind].get(key)
            if item is None:
                return
            seen = self._wrote.known(f"{resource.kind}/{key}", item)
            if not shown.same(seen, wanted):
                self._said.check(item, wanted)
                status = shown.steady(seen, wanted)
                found = await _set_status(self._client, resource, name, namespace or None, status)
                self._wrote.note(f"{resource.kind}/{key}", found)
                self._said.note(item, wanted)

        self._desk.put(f"{resource.kind}/{key}", write, rank=rank)

    def _finalize(self, key: str, item: Object, *, present: bool) -> None:
        """Put our finalizer on a Run, or take it off."""
        namespace, _, name = key.partition("/")

        async def write() -> None:
            found = self._caches["Run"].get(key)
            try:
                for _ in range(2):
                    if found is None or found["metadata"]["uid"] != item["metadata"]["uid"]:
                        return
                    change = _finalizers(found, present=present)
                    if change is None:
                        return
                    try:
                        await self._client.patch(RUNS, name, change, namespace, kind="json")
                        return
                    except ApiError as error:
                        if not error.conflict and error.code != 422:  # a test that failed
                            raise
                    found = await self._client.get(RUNS, name, namespace)
                raise ApiError(409, "Conflict", f"Run {key} changes faster than it can be written")
            except ApiError as error:
                if not error.not_found:
                    raise

        self._desk.put(f"Run/{key}/finalizer", write, rank=RUN)

    def _promise(self, key: str, state: State) -> Reservation | None:
        """The live reservation of a name, if there is one; one that was never written is about to be."""
        found = state.reservations.get(self._holders.get(key, ""))
        return found if found is not None and found.key == key else None

    def _write_reservation(self, state: State, fact: Reservation, *, now: Instant) -> None:
        wanted = shown.reservation_object(
            state, fact, now=now, fleet=self._fleet, resolution=self._resolved.get(fact.key)
        )
        self._counted[fact.key], self._holders[fact.key] = now, fact.run_key
        if fact.state in OVER:
            for known in (self._counted, self._holders, self._resolved):
                known.pop(fact.key, None)
        self._books.reserve(fact.key, wanted)


def leased(row: tuple[Lease, Instant | None, str | None]) -> Leased:
    return Leased(*row)


def _waits(state: State, key: str) -> bool:
    """Whether a run waits: what there is to tell of it can wait too."""
    row = state.runs.get(key)
    return row is not None and row.life.phase == "Pending"


def _patience(state: State, key: str, crowded: bool) -> float:
    """How long a run's status may wait for more to happen, in holds: longest while its pods are about to start and the
    API server is busy with those. One that waits says why at once, if there is room for it."""
    row = state.runs.get(key)
    phase = "" if row is None else row.life.phase
    if phase == "Starting":
        return _CROWDED if crowded else _STARTING
    return _CROWDED if crowded and phase == "Pending" else 0.0


def _finalizers(item: Object, *, present: bool) -> list[Object] | None:
    """The change that puts our finalizer on an object or takes it off; None if that is so already.

    It stands on the finalizers alone: that somebody wrote a status meanwhile is no conflict.
    """
    known = item["metadata"].get("finalizers")
    if (FINALIZER in (known or ())) == present:
        return None
    wanted = [*(known or ()), FINALIZER] if present else [one for one in known or () if one != FINALIZER]
    path = "/metadata/finalizers"
    return [{"op": "test", "path": path, "value": known}, {"op": "add", "path": path, "value": wanted}]


async def _set_status(
    client: Client, resource: Resource, name: str, namespace: str | None, status: Object
) -> Object | None:
    try:
        change = [{"op": "add", "path": "/status", "value": status}]
        return await client.patch(resource, name, change, namespace, kind="json", subresource="status")
    except ApiError as error:
        if not error.not_found:
            raise
        return None


class _Wrote:
    """What we wrote and an informer has not shown yet: a slow watch is no reason to write the same again."""

    def __init__(self) -> None:
        self._items: dict[str, tuple[int, Object]] = {}

    def note(self, key: str, found: Object | None) -> None:
        version = "" if found is None else str(found["metadata"].get("resourceVersion", ""))
        if found is not None and version.isdigit():
            self._items[key] = (int(version), found.get("status") or {})

    def known(self, key: str, item: Object) -> Object:
        """The newest status that we know of an object."""
        version = str(item["metadata"].get("resourceVersion", ""))
        wrote = self._items.get(key)
        if wrote is not None and version.isdigit() and int(version) < wrote[0]:
            return wrote[1]
        self._items.pop(key, None)
        status: Object = item.get("status") or {}
        return status


__all__ = ["HOLD_SECONDS", "History", "Kind", "Materialiser"]
