"""A cluster behind the port: questions are put to a copy of its ledger, what is told goes to the API server.

Opening a cluster brings the copy up to the LedgerHead; from then on a verb reads it as it reads an embedded fleet's
file. What is written are objects, as with ``kubectl apply``: the operator takes them in, and whoever wrote waits a
moment for its decision, to be able to tell it. Who may not read the ledger still sees and changes Runs, see
``objects.py``.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Coroutine, Iterable, Iterator, Sequence
from datetime import datetime
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, Self, TypeVar

import msgspec

from tenure.api.defaults import default
from tenure.api.errors import FieldError
from tenure.api.patch import difference
from tenure.api.run import Run
from tenure.cli.copied import DRIVE, Copied, opened
from tenure.cli.exits import Exit
from tenure.cli.handed import is_leaving, knows, machines, manifest
from tenure.cli.objects import ObjectsView
from tenure.cli.port import Made, Misshown, Rehearsal, Submitted, Telling, View
from tenure.cli.reach import access_to
from tenure.cli.recorded import Followed, Recorded
from tenure.cli.refused import field_errors, from_store, trouble
from tenure.cli.trouble import Trouble
from tenure.cli.untaken import Untaken, WholeView, in_turn, key_of
from tenure.cli.view import StateView
from tenure.embedded.fleet import Fleet, clock
from tenure.engine import Apply, State, Tick, intake, next_wake
from tenure.facts import Entry, Froze, Reason, Resolved
from tenure.kube.client import Client
from tenure.kube.errors import ApiError
from tenure.kube.informer import Informer
from tenure.kube.logs import PodLogs
from tenure.kube.loop import IO
from tenure.kube.marks import RESOLVE
from tenure.kube.rbac import ELECTION
from tenure.kube.reading import Copy
from tenure.kube.refusals import StoreRefused
from tenure.kube.resources import ELECTION_LEASES, LEDGER_HEADS, RUNS, SYSTEM_NAMESPACE
from tenure.kube.watching import Bell
from tenure.kube.writing import Put, put_all
from tenure.ledger import Note
from tenure.shell.logs import LogFile
from tenure.units import SECOND, Instant, format_time

T = TypeVar("T")
Object = dict[str, Any]
PATIENCE = 5.0
"""Seconds to wait for the operator to decide on what was just written."""
OVERDUE = 60 * SECOND
"""Something that is due for so long shows that nobody drives."""


class ClusterFleet(Recorded):
    """One process's hold on a cluster."""

    def __init__(self, io: IO, client: Client, copy: Copy | None, *, why: Exception) -> None:
        """``copy`` is None where there is no ledger to read; ``why`` then says so to who asks for it."""
        super().__init__(None if copy is None else Copied(copy.ledger))
        self._io, self._client, self._copy, self._why = io, client, copy, why
        self._logs: PodLogs | None = None
        self._folder: TemporaryDirectory[str] | None = None
        self._untaken = Untaken(io, client)
        if copy is not None:
            self._take_in(copy)

    @classmethod
    def open(cls, *, kubeconfig: Path | None, context: str | None, archive: Path | None, brief: bool = False) -> Self:
        """``brief``: only runs will be listed; see ``copied.opened``."""
        client, io = Client(access_to(kubeconfig, context)), IO()
        try:
            copy, why = opened(io, client, archive, brief=brief)
            return cls(io, client, copy, why=why)
        except BaseException:
            io.run(client.close())
            io.close()
            raise

    def close(self) -> None:
        if self._copy is not None:
            self._copy.close()
        self._io.run(self._client.close())
        self._io.close()
        if self._folder is not None:
            self._folder.cleanup()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    @property
    def _fleet(self) -> Fleet:
        if self._books is None:
            raise self._why
        return self._books

    @property
    def state_or_none(self) -> State | None:
        """The state at the head; None where the ledger cannot be read."""
        return self._state

    @property
    def name(self) -> str:
        access = self._client.access
        return f"{access.context} ({access.server})"

    @property
    def driven(self) -> bool:
        """Whether an operator is at work: as the election says, if there is one; else nothing may be overdue, and of
        the runs that were looked at, none may lie about that nobody has taken in."""
        if (elected := self._elected()) is not None:
            return elected
        if self._untaken.ignored(PATIENCE):
            return False
        wake = None if self._state is None else next_wake(self._state)
        return wake is None or clock() - wake < OVERDUE

    def _elected(self) -> bool | None:
        try:
            found = self._io.run(self._client.get(ELECTION_LEASES, ELECTION, SYSTEM_NAMESPACE))["spec"]
        except ApiError:
            return None
        if not found.get("holderIdentity") or not found.get("renewTime"):
            return False
        age = time.time() - datetime.fromisoformat(found["renewTime"]).timestamp()
        return age < 2 * int(found.get("leaseDurationSeconds") or 15)

    @property
    def drive_command(self) -> str:
        return DRIVE

    # -- asking --

    def view(self, at: Instant | None = None) -> View:
        if self._books is None and at is None:
            return ObjectsView(self._runs, now=clock(), unreadable=self._why)
        if at is not None:
            return super().view(at)
        assert self._state is not None, "it was taken in when the copy was opened"
        return WholeView(self._state, self._unknown, now=self._fleet.now(), estimates=self._estimates)

    def _unknown(self, namespace: str | None, name: str) -> list[Object]:
        """Runs that the ledger lacks, for who may see them."""
        assert self._state is not None
        return self._untaken.look(self._state.runs, namespace, name)

    def _runs(self, namespace: str | None, name: str) -> list[Object]:
        try:
            if name:
                return [self._io.run(self._client.get(RUNS, name, namespace))]
            return self._io.run(self._client.list(RUNS, namespace)).items
        except ApiError as error:
            if error.not_found and name:
                return []
            raise trouble(error) from error

    def follow(self) -> ClusterFollower:
        if self._copy is None:
            raise self._why
        return ClusterFollower(self._fleet, self._io, self._client, self._copy, self._untaken)

    def logs(self, namespace: str, run: str, *, follow: bool = False) -> list[LogFile]:
        if self._logs is None:
            self._folder = TemporaryDirectory(prefix="tenure-logs-")
            self._logs = PodLogs(self._io, self._client, Path(self._folder.name))
        try:
            found = self._logs.of(namespace, run, follow=follow)
        except ApiError as error:
            raise trouble(error, doing=f"the logs of Run/{namespace}/{run} cannot be read") from error
        if not found and not follow and self._had_pods(namespace, run):
            problem = f"the pods of Run/{namespace}/{run} are gone, and their logs with them"
            step = "look where the cluster's logs are collected; while pods run, logs -f follows them"
            raise Trouble(problem, next_step=step, exit=Exit.NOT_FOUND)
        return found

    def rehearse(self, objects: Sequence[Any] = (), *, only: str = "") -> Rehearsal:
        wrong = self._untaken.wrong(objects)
        return Rehearsal(refused=wrong) if wrong else super().rehearse(objects, only=only)

    def settle_logs(self) -> None:
        if self._logs is not None:
            try:
                self._logs.settle(PATIENCE)
            except ApiError as error:
                raise trouble(error, doing="the last of the logs cannot be read") from error

    def _had_pods(self, namespace: str, run: str) -> bool:
        """Whether a run has had pods, as its phase shows, or leases of its own that are closed."""
        line = self.view().line(namespace, run)
        if self._books is None or (line is not None and (line.over or not line.taken)):
            return line is not None and line.over
        before = 0 if line is None else self.attempts_before(namespace, run)
        rows = self.find_leases(namespace=namespace, run=run)
        return any(row.lease.attempt > before and not row.open for row in rows)

    def _asked(self, objects: tuple[Any, ...], only: str) -> Apply | Tick:
        assert self._state is not None, "who rehearses has looked at the ledger first"
        found = self._unknown(None, "")
        if only and only not in self._state.runs and only not in map(key_of, found):
            found += self._unknown(*only.split("/"))
        asked = in_turn(self._state, objects, found)
        return Apply(asked, named=True) if asked else Tick()

    def misshown(self, progress: Telling) -> Iterator[Misshown]:
        from tenure.cli.mirrored import Mirror

        try:
            yield from Mirror(self._io, self._client, self._fleet.ledger, self._refresh).differences(progress)
        except ApiError as error:
            raise trouble(error, doing="the Lease objects cannot be compared") from error

    # -- telling --

    def make_room(self, key: str) -> Made:
        """Write the wish on the Run, and wait for the operator's entry about it."""
        found = self.room_for(key)
        if isinstance(found, Reason):
            return Made(declined=found)
        namespace, _, name = key.partition("/")
        wish, begin = {"metadata": {"annotations": {RESOLVE: format_time(clock())}}}, self._fleet.ledger.head.seq
        self._run(self._client.patch(RUNS, name, wish, namespace))
        entry: list[Entry] = []

        def is_answered(state: State) -> bool:
            new = self._fleet.ledger.entries(after=begin)
            entry[:] = [one for one in new if one.cause == f"resolve {key}"]
            return bool(entry)

        if not self._await(is_answered):
            problem = f"the operator has not made room for Run/{key} within {PATIENCE:.0f} s"
            step = "things may have changed meanwhile: ask again with --dry-run"
            raise Trouble(problem, next_step=step, exit=Exit.REFUSED)
        mine = [fact for fact in entry[0].facts if isinstance(fact, Froze | Resolved) and fact.trigger == "Operator"]
        return Made(
            resolved=next((fact for fact in mine if isinstance(fact, Resolved)), None),
            froze=next((fact for fact in mine if isinstance(fact, Froze)), None),
        )

    def submit(self, objects: Iterable[Any], *, dry_run: bool = False) -> Submitted:
        given = tuple(objects)
        refused = machines(given) or self._checked(given)
        if refused:
            return Submitted(refused=tuple(refused))
        items = [manifest(self._defaulted(item, given)) for item in given]
        done = self._run(put_all(self._client, items, dry_run=dry_run))
        return self._told([*zip(map(intake.full_name, given), done, strict=True)], dry_run=dry_run)

    def amend(self, before: Run, after: Run, *, dry_run: bool = False) -> Submitted:
        if refused := self._checked((after,)):
            return Submitted(refused=tuple(refused))
        change = {"spec": difference(msgspec.to_builtins(before.spec), msgspec.to_builtins(after.spec))}
        meta = before.metadata
        try:
            work = self._client.patch(RUNS, meta.name, change, meta.namespace, dry_run=dry_run)
            found = Put("changed", self._run(work, raw=True), written=not dry_run)
        except ApiError as error:
            found = Put("unchanged", manifest(before), error)
        return self._told([(intake.full_name(before), found)], dry_run=dry_run)

    def cancel(self, keys: Sequence[tuple[str, str]], *, dry_run: bool = False) -> None:
        for trial in (True,) if dry_run else (True, False):
            for namespace, name in keys:
                try:
                    self._run(self._client.delete(RUNS, name, namespace, dry_run=trial), raw=True)
                except ApiError as error:
                    raise trouble(error, doing=f"Run/{namespace}/{name} was not deleted") from error
        if not dry_run and self._books is not None:
            self._await(lambda state: all(is_leaving(state, f"{space}/{name}") for space, name in keys))

    def _checked(self, objects: tuple[Any, ...]) -> list[FieldError]:
        """What the operator would say, in its own words, before anybody is asked; nothing if we cannot know."""
        return [] if self._state is None else intake.check(self._state, objects)

    def _defaulted(self, item: Any, given: tuple[Any, ...]) -> Any:
        if self._state is None:
            return item
        beside = {one.metadata.name: one for one in given if one.kind == "Namespace"}
        known = self._state.namespaces | beside
        return default(item, namespace=known.get(item.metadata.namespace or "default"))

    def _told(self, done: list[tuple[str, Put]], *, dry_run: bool) -> Submitted:
        errors = [error for name, put in done if put.error for error in field_errors(name, put.error)]
        written = [name for name, put in done if put.written]
        if errors and any(put.written for _, put in done):
            were = "was" if len(written) == 1 else "were"
            step = f"{', '.join(written)} {were} written before it; mend the rest and try again"
            raise Trouble(*(error.sentence() for error in errors), next_step=step)
        if errors:
            return Submitted(refused=tuple(errors))
        changes = tuple((name, put.change) for name, put in done)
        decided = dry_run or self._taken_in([put.object for _, put in done])
        return Submitted(changes=changes, decided=decided)

    def _taken_in(self, items: list[Object]) -> bool:
        """Wait until the operator has taken objects in; False if it has not in good time."""
        if self._books is None:
            return self._shown([item for item in items if item["kind"] == "Run"])
        if self._await(lambda state: all(knows(state, item) for item in items)):
            return True
        for item in items:
            self._check_status(item)
        return False

    def _shown(self, items: list[Object]) -> bool:
        deadline = time.monotonic() + PATIENCE
        while not all((self._again(item).get("status") or {}).get("phase") for item in items):
            if time.monotonic() > deadline:
                return False
            time.sleep(0.1)
        for item in items:
            self._check_status(item)
        return True

    def _again(self, item: Object) -> Object:
        meta = item["metadata"]
        return next(iter(self._runs(meta["namespace"], meta["name"])), {})

    def _check_status(self, item: Object) -> None:
        """Say what the operator said of an object that it could not take."""
        if item["kind"] != "Run":
            return
        marks = (self._again(item).get("status") or {}).get("conditions") or ()
        for mark in marks:
            if (mark["type"], mark["status"], mark["reason"]) == ("Blocked", "True", "Invalid"):
                step = "the object is kept as it is: mend it and submit it again, or cancel it"
                raise Trouble(mark.get("message", ""), next_step=step)

    def _await(self, so: Callable[[State], bool]) -> bool:
        """Read on until the ledger shows something; False if it does not in good time."""
        deadline, pause = time.monotonic() + PATIENCE, 0.02
        while True:
            self._refresh()
            assert self._state is not None
            if so(self._state):
                return True
            if time.monotonic() > deadline:
                return False
            time.sleep(pause)
            pause = min(0.2, pause * 1.5)

    def _refresh(self) -> None:
        assert self._copy is not None
        try:
            self._copy.refresh()
        except StoreRefused as refused:
            raise from_store(refused, folder=self._copy.folder) from refused
        self._take_in(self._copy)

    def _take_in(self, copy: Copy) -> None:
        """Fold what is new; an image of the state is kept with the copy now and then, as in an embedded fleet."""
        home = self._fleet.home
        if copy.grew:
            home.handle(now=home.state.now)
            copy.grew = False
        self._state = home.state

    def _run(self, work: Coroutine[Any, Any, T], *, raw: bool = False) -> T:
        try:
            return self._io.run(work)
        except ApiError as error:
            if raw:
                raise
            raise trouble(error) from error


class ClusterFollower(Followed):
    """A cluster as it changes: the LedgerHead is watched, and what it newly names is read."""

    def __init__(self, fleet: Fleet, io: IO, client: Client, copy: Copy, untaken: Untaken) -> None:
        self._copy, self._untaken = copy, untaken
        self._looked: dict[tuple[str | None, str], list[Object]] = {}
        self._bell = Bell()
        self._informer = Informer(client, LEDGER_HEADS, self._bell)
        self._task = io.start(self._informer.follow())
        super().__init__(fleet)

    def view(self) -> StateView:
        return WholeView(self._state, self._unknown, now=self._fleet.now(), estimates=self._estimates)

    def _unknown(self, namespace: str | None, name: str) -> list[Object]:
        """Runs that the ledger lacks: asked for once, and again while there are some."""
        asked = (namespace, name)
        if asked not in self._looked:
            self._looked[asked] = self._untaken.look(self._state.runs, namespace, name)
        return [item for item in self._looked[asked] if key_of(item) not in self._state.runs]

    def wait(self, seconds: float) -> list[Note] | None:
        self._looked = {asked: found for asked, found in self._looked.items() if not found}
        if not self._bell.await_ring(seconds):
            return None
        self._bell.take()
        try:
            self._copy.refresh()
        except StoreRefused as refused:
            if refused.transient:
                self._bell.ring()
                time.sleep(min(1.0, seconds))
                return None
            raise from_store(refused, folder=self._copy.folder) from refused
        return self.catch_up() if self._copy.head.seq > self._seq else None
