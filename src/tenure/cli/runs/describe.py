"""`describe`: everything about one run on one screen."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from tenure.api.meta import to_wire
from tenure.api.run import Run
from tenure.cli import events, payers, queued
from tenure.cli.exits import Exit
from tenure.cli.explaining import remedy
from tenure.cli.lookup import find, run_argument
from tenure.cli.output import Cell, Format, Table, columns, fields, or_say, section, show
from tenure.cli.port import Fleet, RunLine, View
from tenure.cli.promised import facts, risk, wire
from tenure.cli.runs import leases as lease_verb
from tenure.cli.runs import pods as pod_verb
from tenure.cli.runs.list import why
from tenure.cli.session import Session, output, verb
from tenure.cli.trouble import Trouble
from tenure.cli.words import moment, plural
from tenure.engine import render
from tenure.engine.reasons import RULES
from tenure.facts import Reason
from tenure.ledger import LeaseRow, Note
from tenure.units import parse_time

EVENTS_SHOWN = 12


@verb("describe", "Tell everything about a run.", namespaced=True)
@run_argument
@output("table", "wide", "json", "yaml", "name")
def command(session: Session, output: Format, run: str) -> None:
    """Tell everything about a run: how it stands and why, who pays, its leases and pods, and what happened lately.

    JSON: {"run": Run, "reservations": [Reservation...], "leases": [Lease...], "pods": [Pod...], "payers": [...],
    "events": [...]}.
    """
    with session.fleet() as fleet:
        view = fleet.view()
        _check_deleted(session, fleet, view, run)
        line = find(session, view, run)
        told = _Told(session, fleet, view, line)
        show(
            output,
            tables=told.parts,
            data=told.record,
            names=lambda: [line.key],
            hint=session.about("logs" if line.started else "explain", line.namespace, line.name),
        )


def _check_deleted(session: Session, fleet: Fleet, view: View, run: str) -> None:
    """A run that was deleted is not there to be described, but its records are."""
    namespace, name = session.key(run)
    if view.line(namespace, name) is None and fleet.find_leases(namespace=namespace, run=name, limit=1):
        step = f"its records stay: {session.about('who-pays', namespace, name)}, or story, leases, explain, logs"
        raise Trouble(f"Run/{namespace}/{name} was deleted", next_step=step, exit=Exit.NOT_FOUND)


class _Told:
    """What is known about one run."""

    def __init__(self, session: Session, fleet: Fleet, view: View, line: RunLine) -> None:
        self.session, self.fleet, self.view, self.line = session, fleet, view, line
        self.run: Run = view.run(line.namespace, line.name)
        uid = self.run.metadata.uid
        self.rows: list[LeaseRow] = [
            row for row in fleet.find_leases(namespace=line.namespace, run=line.name) if row.lease.uid == uid
        ]
        self.pods = view.pods(line.namespace, line.name)
        self.promised = view.reservation(line.namespace, line.name)

    def notes(self) -> list[Note]:
        """Its own events, not those of an earlier run of the same name."""
        born = self.line.created or 0
        return [note for note in self.fleet.notes(f"Run/{self.line.key}") if note.at >= born]

    def parts(self) -> Iterator[Table | str]:
        now = self.view.now
        yield fields(self._facts())
        if self.promised is not None:
            yield section("Reservation")
            yield fields(facts(self.promised, now))
        yield section("Conditions")
        yield or_say(self._conditions())
        yield section("Who pays")
        yield or_say(payers.table(payers.split(self.rows, now=now), empty="nobody has paid anything yet"))
        opened = [row for row in self.rows if row.open]
        yield section(f"Leases: {len(opened)} open, {len(self.rows) - len(opened)} closed")
        yield or_say(lease_verb.table(opened or self.rows[-4:], now=now, empty="none yet"))
        yield section("Pods")
        yield or_say(pod_verb.table(self.pods, self.view, empty="none now"))
        yield section("Events")
        yield or_say(events.table(self.notes()[-EVENTS_SHOWN:], now=now, empty="none yet"))

    def _facts(self) -> Iterator[tuple[str, str]]:
        line, spec, now = self.line, self.run.spec, self.view.now
        yield "Run", line.key
        yield "Owner", line.owner
        yield "Phase", "Stopping" if line.stopping else f"{line.phase}{', blocked' if line.blocked else ''}"
        yield "Why", why(line, self.view)
        yield from queued.facts(line.queue, self.run.status.estimate, now)
        yield "Helps", self._remedy()
        yield "GPUs", f"{line.held} of {line.gpus} {line.flavor}" + self._shape()
        used = f"{line.restarts} of {plural(spec.runtime.max_restarts, 'restart')} used"
        yield "Attempt", f"a{line.attempt} ({used})" if line.attempt else ""
        yield "Created", moment(line.created, now)
        yield "Started", moment(line.started, now) if line.started else ""
        yield "Expected", self._expected()
        yield "Risk", risk(self.run.status.risk, now)
        yield "Taken in", "" if line.taken else "not yet: the ledger knows nothing of it"
        yield "Driven", "" if self.fleet.driven else f"no: nothing starts or stops until {self.fleet.drive_command}"

    def _remedy(self) -> str:
        waits = self.line.phase in ("Pending", "Failed") and self.line.reason in RULES
        return (
            remedy(self.session, Reason(code=self.line.reason), never=self.line.blocked, line=self.line)
            if waits
            else ""
        )

    def _shape(self) -> str:
        spec = self.run.spec
        parts = []
        if spec.locality.group_gpus:
            parts.append(f"groups of {spec.locality.group_gpus}")
        if spec.spares_per_group:
            parts.append(f"{spec.spares_per_group} spare per group")
        if spec.resources.gpus_per_pod:
            parts.append(f"pods of {spec.resources.gpus_per_pod}")
        if spec.malleable:
            parts.append(
                f"{spec.malleable.min_total_gpus} to {spec.malleable.max_total_gpus} by {spec.malleable.step_gpus}"
            )
        return f" ({', '.join(parts)})" if parts else ""

    def _expected(self) -> str:
        declared = self.run.spec.runtime.expected_duration
        if declared is None:
            return ""
        until = min((row.lease.until for row in self.rows if row.open and row.lease.until is not None), default=None)
        return declared if until is None else f"{declared}, until {moment(until, self.view.now)}"

    def _conditions(self) -> Table:
        rows: list[list[Cell]] = [
            [
                one.type,
                one.status,
                one.reason,
                moment(parse_time(one.last_transition_time), self.view.now).split(" ")[0],
                one.message,
            ]
            for one in self.run.status.conditions
        ]
        return Table(columns("TYPE", "STATUS", "REASON", "SINCE", "MESSAGE"), rows, "none yet: nobody has looked at it")

    def record(self) -> dict[str, Any]:
        line, uid = self.line, self.run.metadata.uid
        promised = [row.reservation for row in self.fleet.find_reservations(namespace=line.namespace, run=line.name)]
        return {
            "run": to_wire(self.run),
            "reservations": [wire(self.fleet, one, now=self.view.now) for one in promised if one.run_uid == uid],
            "leases": [to_wire(render.lease(row.lease, end=row.end, closure=row.closure)) for row in self.rows],
            "pods": [to_wire(self.view.pod(pod.namespace, pod.name)) for pod in self.pods],
            "payers": [share.record() for share in payers.split(self.rows, now=self.view.now)],
            "events": [events.record(note) for note in self.notes()],
        }
