"""An embedded fleet behind the port: one file, read as it is now or as it was, and written through its own door.

Reading opens the file for reading only. A state is folded once per command; ``follow`` keeps folding what other
processes append, and notices it by SQLite's own counter, which costs one small query per look.
"""

from __future__ import annotations

import re
import time
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Unpack

from tenure.cli.port import (
    Change,
    LogFile,
    Made,
    Planned,
    Rehearsal,
    Submitted,
)
from tenure.cli.view import StateView, run_line
from tenure.embedded.fleet import Fleet, clock
from tenure.engine import Apply, State, Tick
from tenure.engine.shown import of_now
from tenure.engine.state import RunRow
from tenure.engine.words import Words
from tenure.facts import Decided, Froze, Noted, Opened, PutBudget, PutNamespace, PutNode, PutRun, Reason, Resolved
from tenure.ledger import (
    Charge,
    CutRow,
    Decision,
    LeaseRow,
    Ledger,
    Note,
    PlanRow,
    PromiseRow,
    ReservationRow,
    ResolutionRow,
    UsageKey,
)
from tenure.ledger import RunRow as Submission
from tenure.shell.home import fold_entry, rebuild
from tenure.shell.ledger_store import LedgerStore
from tenure.units import GpuMicros, Instant

if TYPE_CHECKING:
    from tenure.engine import Outcome
    from tenure.engine.asked import Room
    from tenure.ledger.queries import Which

LOOK_EVERY = 0.1
"""Seconds between two looks at a file that is followed."""
_PUTS = (PutBudget, PutNamespace, PutNode, PutRun)


class LocalFleet:
    """One process's hold on an embedded fleet."""

    def __init__(self, fleet: Fleet) -> None:
        self._fleet = fleet
        self._state: State | None = None

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

    def view(self, at: Instant | None = None) -> StateView:
        if at is not None:
            return StateView(self._fleet.state_at(at), now=at)
        if self._state is None:
            self._state = self._fleet.state()
        return StateView(self._state, now=clock())

    def follow(self) -> LocalFollower:
        return LocalFollower(self._fleet.ledger)

    def find_leases(self, **question: Any) -> list[LeaseRow]:
        return self._fleet.ledger.leases(**question)

    def usage(self, *, by: UsageKey, since: Instant, until: Instant, **which: Unpack[Which]) -> dict[str, GpuMicros]:
        return self._fleet.ledger.usage(by=by, since=since, until=until, **which)

    def charges(self, *, since: Instant, until: Instant, **which: Unpack[Which]) -> list[Charge]:
        return self._fleet.ledger.charges(since=since, until=until, **which)

    def notes(self, subject: str) -> list[Note]:
        return self._fleet.ledger.notes(subject)

    def decisions(self, namespace: str, run: str, limit: int | None = None) -> list[Decision]:
        return self._fleet.ledger.decisions(namespace, run, limit)

    def submissions(self, namespace: str, run: str) -> list[Submission]:
        return self._fleet.ledger.submissions(namespace, run)

    def find_reservations(self, **question: Any) -> list[ReservationRow]:
        return self._fleet.ledger.reservations(**question)

    def plans(self, namespace: str, run: str) -> list[PlanRow]:
        return self._fleet.ledger.plans(namespace, run)

    def resolutions(self, subject: str) -> list[ResolutionRow]:
        return self._fleet.ledger.resolutions(subject)

    def cuts(self, namespace: str, run: str) -> list[CutRow]:
        return self._fleet.ledger.cuts(namespace, run)

    def beacons(self, at_seq: int) -> dict[str, str]:
        return self._fleet.ledger.beacons(at_seq)

    def promises(self, *, since: Instant, until: Instant) -> list[PromiseRow]:
        return self._fleet.ledger.promises(since=since, until=until)

    def logs(self, namespace: str, run: str) -> list[LogFile]:
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

    # -- what if --

    def rehearse(self, objects: Sequence[Any] = (), *, only: str = "") -> Rehearsal:
        now = clock()
        state, outcome = self._fleet.rehearse(Apply(tuple(objects)) if objects else Tick(), now=now)
        if outcome.refused:
            return Rehearsal(refused=outcome.refused)
        keys = [only] if only else [_key(item) for item in objects if item.kind == "Run"]
        return Rehearsal(runs=tuple(_planned(state, state.runs[key], outcome, now) for key in keys))

    def room_for(self, key: str) -> Room | Reason:
        from tenure.engine.asked import look

        now = clock()
        state, _ = self._fleet.rehearse(Tick(), now=now)
        return look(state, state.runs[key], now=now)

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

    def submit(self, objects: Iterable[Any]) -> Submitted:
        objects, decided = tuple(objects), self.driven
        outcome = self._fleet.submit(objects, decide=decided)
        if outcome.refused:
            return Submitted(refused=outcome.refused)
        self._state = self._fleet.home.state
        puts = {_full_name(fact.object): fact.object for fact in outcome.facts if isinstance(fact, _PUTS)}
        changes = tuple((name, _change(puts.get(name))) for name in map(_full_name, objects))
        return Submitted(changes=changes, decided=decided)

    def cancel(self, keys: Sequence[tuple[str, str]]) -> None:
        errors = self._fleet.cancel(keys)
        self._state = self._fleet.home.state
        if errors:  # somebody else was faster
            from tenure.cli.exits import Exit
            from tenure.cli.trouble import Trouble

            raise Trouble(
                *(error.sentence() for error in errors), next_step="the others were canceled", exit=Exit.NOT_FOUND
            )


class LocalFollower:
    """A fleet as it changes."""

    def __init__(self, ledger: Ledger) -> None:
        self._ledger = ledger
        self._version = ledger.data_version()
        self._state, self._seq = rebuild(LedgerStore(ledger))

    def view(self) -> StateView:
        return StateView(self._state, now=clock())

    def wait(self, seconds: float) -> list[Note] | None:
        deadline = time.monotonic() + seconds
        while (version := self._ledger.data_version()) == self._version:
            left = deadline - time.monotonic()
            if left <= 0:
                return None
            time.sleep(min(LOOK_EVERY, left))
        self._version = version
        return self._catch_up()

    def _catch_up(self) -> list[Note]:
        notes = []
        for entry in self._ledger.entries(after=self._seq):
            fold_entry(self._state, entry)
            self._seq = entry.seq
            notes += [
                Note(
                    seq=entry.seq,
                    at=entry.at,
                    kind=fact.kind,
                    object=fact.object,
                    reason=fact.reason,
                    message=fact.message,
                )
                for fact in entry.facts
                if isinstance(fact, Noted)
            ]
        return notes


def _pods_of(folder: Path, run: str) -> list[tuple[str, int, int]]:
    """Pods of a run that have a folder: (name, attempt, rank). The engine names them ``RUN-aATTEMPT-RANK``."""
    pattern = re.compile(rf"{re.escape(run)}-a(\d+)-(\d+)", re.ASCII)
    try:
        names = [entry.name for entry in folder.iterdir()]
    except (FileNotFoundError, NotADirectoryError):
        return []
    found = [(name, match) for name in names if (match := pattern.fullmatch(name))]
    return sorted(((name, int(match[1]), int(match[2])) for name, match in found), key=lambda pod: pod[1:])


def _planned(state: State, row: RunRow, outcome: Outcome, now: Instant) -> Planned:
    """What the rehearsal decided about a run; if it decided nothing new, what it would say now."""
    facts = outcome.facts
    said = [
        fact.verdict
        for fact in facts
        if isinstance(fact, Decided) and (fact.namespace, fact.run) == (row.namespace, row.name)
    ]
    leases = tuple(fact.lease for fact in facts if isinstance(fact, Opened) and fact.lease.run_key == row.key)
    verdict = said[-1] if said else None
    line = run_line(state, row, now, Words(state, now=now))
    if row.life.phase != "Pending":
        return Planned(line=line, verdict=verdict, leases=leases)
    from tenure.engine.alternatives import alternatives
    from tenure.engine.waits import rests_on, verdict_of

    one = state.reservations.get(row.key)
    return Planned(
        line=line,
        verdict=verdict or verdict_of(state, row, now=now),
        leases=leases,
        reservation=None if one is None else of_now(state, one, Words(state, now=now)),
        rests=() if one is None else rests_on(state, one, now=now),
        alternatives=tuple(alternatives(state, row, now=now)),
    )


def _key(item: Any) -> str:
    return f"{item.metadata.namespace}/{item.metadata.name}"


def _full_name(item: Any) -> str:
    from tenure.api.validate import object_name

    return object_name(item.kind, item.metadata.namespace, item.metadata.name)


def _change(put: Any) -> Change:
    if put is None:
        return "unchanged"
    return "created" if put.metadata.generation == 1 else "changed"
