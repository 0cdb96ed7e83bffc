"""A ledger behind the port, wherever it comes from: every question that a verb asks, answered from one file.

An embedded fleet's file is the truth itself; a cluster's is a copy of what its API server keeps. Questions do not know
the difference. What is told to a fleet does: ``local.py`` and ``cluster.py`` add that.
"""

from __future__ import annotations

import gc
from collections.abc import Iterator, Sequence
from functools import cached_property
from typing import TYPE_CHECKING, Any, Unpack

from msgspec.structs import replace

from tenure.cli.exits import Exit
from tenure.cli.port import Misshown, Planned, Rehearsal, RunLine, Telling, View
from tenure.cli.trouble import Trouble
from tenure.cli.view import StateView, run_line
from tenure.embedded.fleet import Fleet
from tenure.engine import Apply, State, Tick
from tenure.engine.shown import of_now
from tenure.engine.state import RunRow
from tenure.engine.words import Words
from tenure.facts import Decided, Noted, Opened, PutRun, Reason
from tenure.ledger import (
    Charge,
    CutRow,
    Decision,
    LeaseRow,
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
from tenure.units import GpuMicros, Instant, parse_time

if TYPE_CHECKING:
    from tenure.engine import Outcome
    from tenure.engine.asked import Room
    from tenure.ledger import Head, Link
    from tenure.ledger.queries import Which
    from tenure.shell.estimates import Estimates, Shown


class Recorded:
    """What a ledger answers."""

    def __init__(self, books: Fleet | None) -> None:
        self._books = books
        self._state: State | None = None

    @cached_property
    def _estimates(self) -> Estimates:
        return _estimates(self._fleet)

    @property
    def _fleet(self) -> Fleet:
        assert self._books is not None
        return self._books

    def view(self, at: Instant | None = None) -> View:
        if at is not None:
            return StateView(self._fleet.state_at(at), now=at, estimates=_estimates(self._fleet))
        if self._state is None:
            self._state = self._fleet.state()
        return StateView(self._state, now=self._fleet.now(), estimates=self._estimates)

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
        return [self._dated(row) for row in self._fleet.ledger.submissions(namespace, run)]

    def _dated(self, row: Submission) -> Submission:
        put = self._put(row)
        created = None if put is None else put.object.metadata.creation_timestamp
        return row if created is None else replace(row, created=parse_time(created))

    def _put(self, row: Submission) -> PutRun | None:
        """How it was written down."""
        entry = next(self._fleet.ledger.entries(row.seq - 1, row.seq))
        puts = (fact for fact in entry.facts if isinstance(fact, PutRun))
        return next((fact for fact in puts if fact.object.metadata.uid == row.uid), None)

    def attempts_before(self, namespace: str, run: str) -> int:
        rows = [] if self._books is None else self._fleet.ledger.submissions(namespace, run)
        put = self._put(rows[-1]) if rows else None
        return 0 if put is None else put.attempts

    def settle_logs(self) -> None:
        """Who writes into files itself has written when it is over."""

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

    @property
    def head(self) -> Head:
        return self._fleet.ledger.head

    def links(self, until: int) -> Iterator[Link]:
        return self._fleet.ledger.links(until=until)

    def misshown(self, progress: Telling) -> Iterator[Misshown]:
        return iter(())

    # -- what if --

    def rehearse(self, objects: Sequence[Any] = (), *, only: str = "") -> Rehearsal:
        now = self._fleet.now()
        state, outcome = self._fleet.rehearse(self._asked(tuple(objects), only), now=now)
        if outcome.refused:
            return Rehearsal(refused=outcome.refused)
        if only and only not in state.runs:
            raise deleted(only)
        keys = [only] if only else [_key(item) for item in objects if item.kind == "Run"]
        bands = _estimates(self._fleet).of(state, now=now, only=keys)
        return Rehearsal(runs=tuple(_planned(state, state.runs[key], outcome, now, bands.get(key)) for key in keys))

    def _asked(self, objects: tuple[Any, ...], only: str) -> Apply | Tick:
        """What is to be decided on besides the runs that wait."""
        return Apply(objects) if objects else Tick()

    def room_for(self, key: str) -> Room | Reason:
        from tenure.engine.asked import look

        now = self._fleet.now()
        state, _ = self._fleet.rehearse(Tick(), now=now)
        if key not in state.runs:
            raise deleted(key)
        return look(state, state.runs[key], now=now)


class Followed:
    """A ledger as it grows: the state, kept up with the entries that were not folded yet."""

    def __init__(self, fleet: Fleet) -> None:
        gc.enable()  # this may go on for days
        self._fleet, self._ledger = fleet, fleet.ledger
        self._state, self._seq = rebuild(LedgerStore(self._ledger))
        self._estimates = _estimates(fleet)

    def view(self) -> StateView:
        return StateView(self._state, now=self._fleet.now(), estimates=self._estimates)

    def since(self, line: RunLine) -> Instant:
        """Since when a run stands as it does: the last that was told of it, or its submission."""
        told = [note.at for note in self._ledger.notes(f"Run/{line.key}") if note.kind != "Countdown"]
        return max((*told[-1:], line.created or 0))

    def catch_up(self) -> list[Note]:
        """Fold what is new; answers the events in it."""
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


def _planned(state: State, row: RunRow, outcome: Outcome, now: Instant, band: Shown | None) -> Planned:
    """What the rehearsal decided about a run; if it decided nothing new, what it would say now."""
    facts = outcome.facts
    said = [
        fact.verdict
        for fact in facts
        if isinstance(fact, Decided) and (fact.namespace, fact.run) == (row.namespace, row.name)
    ]
    leases = tuple(fact.lease for fact in facts if isinstance(fact, Opened) and fact.lease.run_key == row.key)
    verdict = said[-1] if said else None
    line = run_line(state, row, now, Words(state, now=now), fresh=True)
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
        estimate=None if band is None else band.to_api(),
    )


def _estimates(fleet: Fleet) -> Estimates:
    from tenure.shell.estimates import Estimates

    return Estimates(fleet.ledger)


def deleted(key: str) -> Trouble:
    """Others go on while somebody asks."""
    step = f"what is left of it is in the ledger: who-pays {key}, story {key}"
    return Trouble(f"Run/{key} was deleted while it was looked at", next_step=step, exit=Exit.NOT_FOUND)


def _key(item: Any) -> str:
    return f"{item.metadata.namespace}/{item.metadata.name}"
