"""An embedded fleet behind the port: one file, read as it is now or as it was, and written through its own door.

Reading opens the file for reading only. A state is folded once per command; ``follow`` keeps folding what other
processes append, and notices it by SQLite's own counter, which costs one small query per look.
"""

from __future__ import annotations

import re
import time
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any

import msgspec
from msgspec.structs import replace

from tenure.api.errors import FieldError
from tenure.api.patch import difference, merge
from tenure.api.run import Run, RunSpec
from tenure.cli.port import TABLE, Change, Made, Misshown, Rehearsal, Submitted, Telling
from tenure.cli.recorded import Followed, Recorded, deleted
from tenure.embedded.fleet import Fleet
from tenure.engine import Apply, State
from tenure.facts import Froze, PutBudget, PutNamespace, PutNode, PutRun, Resolved
from tenure.ledger import Note
from tenure.shell.home import Asked
from tenure.shell.logs import LogFile

LOOK_EVERY = 0.1
"""Seconds between two looks at a file that is followed."""
_PUTS = (PutBudget, PutNamespace, PutNode, PutRun)


class LocalFleet(Recorded):
    """One process's hold on an embedded fleet."""

    @classmethod
    def open(cls, path: Path, *, write: bool, anchor: Path | None) -> LocalFleet:
        return cls(Fleet.open(path, readonly=not write, anchor=anchor))

    def close(self) -> None:
        self._fleet.close()

    def __enter__(self) -> LocalFleet:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    @property
    def name(self) -> str:
        return str(self._fleet.path)

    @property
    def driven(self) -> bool:
        return self._fleet.driven

    @property
    def drive_command(self) -> str:
        import shlex

        return f"tenure up {shlex.quote(self.name)}"

    # -- asking --

    def follow(self) -> LocalFollower:
        return LocalFollower(self._fleet)

    def logs(self, namespace: str, run: str, *, follow: bool = False) -> list[LogFile]:
        from tenure.embedded.folder import PodFolder, log_path
        from tenure.embedded.paths import pods_path

        root = pods_path(self._fleet.path, fleet=self._fleet.ledger.fleet)
        found = []
        for pod, attempt, rank in _pods_of(root / namespace, run):
            spec = PodFolder(root, namespace=namespace, pod=pod).spec()
            for container in (*spec.init, *spec.containers) if spec else ():
                group = int(container.env.get("TENURE_GROUP", 0))
                path = log_path(root, namespace=namespace, pod=pod, container=container.name)
                found.append(
                    LogFile(pod=pod, attempt=attempt, rank=rank, group=group, container=container.name, path=path)
                )
        return found

    def misshown(self, progress: Telling) -> Iterator[Misshown]:
        """The tables that most questions are answered from, and the states that decisions go on from, against the
        entries that they are derived from."""
        from tenure.cli.images import untrue

        ledger = self._fleet.ledger
        tables = (one for one in ledger.verify(progress).findings if one.check in ("derived", "schema"))
        for one in (*tables, *untrue(ledger, progress)):
            read = "decided by" if one.check == "snapshots" else "answered from"
            message = f"what questions are {read} is not what the entries say"
            found = one.sentence.rstrip(".")
            name = one.where if one.check == "schema" else f"{TABLE}{one.where}"
            yield Misshown(object=name, message=message, expected="what they give", found=found)

    def rehearse(self, objects: Sequence[Any] = (), *, only: str = "") -> Rehearsal:
        refused = self._cannot_run(objects)
        return Rehearsal(refused=refused) if refused else super().rehearse(objects, only=only)

    def _cannot_run(self, objects: Iterable[Any]) -> tuple[FieldError, ...]:
        """Runs whose pods no machine of this fleet could ever start: one that is simulated starts anything."""
        from tenure.embedded.launch import check_template
        from tenure.embedded.route import is_simulated

        runs = [item for item in objects if item.kind == "Run"]
        errors = tuple(error for run in runs for error in check_template(_full_name(run), run.spec.template))
        if not errors:
            return ()
        known = {name: row.node for name, row in self._fleet.state().topology.rows.items()}
        nodes = [*known.values(), *(one for one in objects if one.kind == "Node" and one.metadata.name not in known)]
        return () if nodes and all(map(is_simulated, nodes)) else errors

    # -- telling --

    def make_room(self, key: str) -> Made:
        outcome = self._fleet.resolve(key)
        self._state = self._fleet.home.state
        mine = [fact for fact in outcome.facts if isinstance(fact, Froze | Resolved) and fact.trigger == "Operator"]
        return Made(
            declined=outcome.declined,
            resolved=next((fact for fact in mine if isinstance(fact, Resolved)), None),
            froze=next((fact for fact in mine if isinstance(fact, Froze)), None),
        )

    def submit(self, objects: Iterable[Any], *, dry_run: bool = False) -> Submitted:
        objects = tuple(objects)
        if refused := self._cannot_run(objects):
            return Submitted(refused=refused)
        return self._submit(Apply(objects), objects, dry_run=dry_run)

    def _submit(self, asked: Asked, objects: tuple[Any, ...], *, dry_run: bool) -> Submitted:
        decided = self.driven
        if dry_run:
            _, outcome = self._fleet.rehearse(asked, now=self._fleet.now())
        else:
            outcome = self._fleet.tell(asked, decide=decided)
        if outcome.refused:
            return Submitted(refused=outcome.refused)
        if not dry_run:
            self._state = self._fleet.home.state
        puts = {_full_name(fact.object): fact.object for fact in outcome.facts if isinstance(fact, _PUTS)}
        changes = tuple((name, _change(puts.get(name))) for name in map(_full_name, objects))
        return Submitted(changes=changes, decided=decided)

    def amend(self, before: Run, after: Run, *, dry_run: bool = False) -> Submitted:
        change = difference(msgspec.to_builtins(before.spec), msgspec.to_builtins(after.spec))
        return self._submit(lambda state: Apply((_amended(state, before, change),)), (after,), dry_run=dry_run)

    def cancel(self, keys: Sequence[tuple[str, str]], *, dry_run: bool = False) -> None:
        if dry_run:
            return  # that they are there is all that it takes
        errors = self._fleet.cancel(keys)
        self._state = self._fleet.home.state
        if errors:  # somebody else was faster
            from tenure.cli.exits import Exit
            from tenure.cli.trouble import Trouble

            raise Trouble(
                *(error.sentence() for error in errors), next_step="the others were canceled", exit=Exit.NOT_FOUND
            )


class LocalFollower(Followed):
    """A fleet as it changes."""

    def __init__(self, fleet: Fleet) -> None:
        self._version = fleet.ledger.data_version()
        super().__init__(fleet)

    def wait(self, seconds: float) -> list[Note] | None:
        deadline = time.monotonic() + seconds
        while (version := self._ledger.data_version()) == self._version:
            left = deadline - time.monotonic()
            if left <= 0:
                return None
            time.sleep(min(LOOK_EVERY, left))
        self._version = version
        return self.catch_up()


def _pods_of(folder: Path, run: str) -> list[tuple[str, int, int]]:
    """Pods of a run that have a folder: (name, attempt, rank). The engine names them ``RUN-aATTEMPT-RANK``."""
    pattern = re.compile(rf"{re.escape(run)}-a(\d+)-(\d+)", re.ASCII)
    try:
        names = [entry.name for entry in folder.iterdir()]
    except (FileNotFoundError, NotADirectoryError):
        return []
    found = [(name, match) for name in names if (match := pattern.fullmatch(name))]
    return sorted(((name, int(match[1]), int(match[2])) for name, match in found), key=lambda pod: pod[1:])


def _amended(state: State, before: Run, change: Any) -> Run:
    """A run as it is by now, with a change of its spec."""
    meta = before.metadata
    row = state.runs.get(f"{meta.namespace}/{meta.name}")
    if row is None or row.run.metadata.uid != meta.uid:
        raise deleted(f"{meta.namespace}/{meta.name}")
    spec = merge(msgspec.to_builtins(row.run.spec), change)
    return replace(row.run, spec=msgspec.convert(spec, RunSpec))


def _full_name(item: Any) -> str:
    from tenure.api.validate import object_name

    return object_name(item.kind, item.metadata.namespace, item.metadata.name)


def _change(put: Any) -> Change:
    if put is None:
        return "unchanged"
    return "created" if put.metadata.generation == 1 else "changed"
