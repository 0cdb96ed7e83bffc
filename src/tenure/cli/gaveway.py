"""What a run gave up for others, out of the ledger: why, for whom, by which record, and how to check it."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from msgspec import Struct

from tenure.cli.output import Cell, Table, columns, section
from tenure.cli.port import Fleet
from tenure.cli.session import Session
from tenure.cli.words import moment, stamp
from tenure.engine.remedies import did
from tenure.facts import Resolved
from tenure.ledger import CutRow, ResolutionRow
from tenure.units import Instant, format_time

_TRIGGERS = {
    "Activation": "its planned start had come and machines were short",
    "Shortage": "its money ran short, or its limit was lowered",
    "Operator": "an operator asked for room",
}


class GaveWay(Struct, frozen=True, kw_only=True):
    """One cut, with the record that it stands in."""

    row: CutRow
    whom: str
    """``namespace/name`` of the run that needed room; empty for a shortage of money."""
    trigger: str
    seed: str
    """Of the draw, if one decided."""

    @property
    def why(self) -> str:
        return _TRIGGERS.get(self.trigger, self.trigger)


def look_up(fleet: Fleet, namespace: str, name: str, *, since: Instant) -> list[GaveWay]:
    """Everything that a run gave up from an instant on, in order."""
    rows = [row for row in fleet.cuts(namespace, name) if row.at >= since]
    subjects = sorted({row.subject for row in rows})
    records = {subject: fleet.resolutions(subject) for subject in subjects}
    whom = {subject: _whom(fleet, subject) for subject in subjects}
    return [_found(row, records[row.subject], whom[row.subject]) for row in rows]


def _found(row: CutRow, records: list[ResolutionRow], whom: str) -> GaveWay:
    facts = [one.fact for one in records if one.seq == row.seq and one.activation == row.activation]
    fact = next((one for one in facts if isinstance(one, Resolved)), None)
    drawn = row.cut.kind == "Lottery" and fact is not None and fact.result is not None
    seed = fact.result.seed if drawn and fact is not None and fact.result is not None else ""
    return GaveWay(row=row, whom=whom, trigger=fact.trigger if fact else "", seed=seed)


def _whom(fleet: Fleet, subject: str) -> str:
    kind, _, rest = subject.partition("/")
    namespace, _, name = rest.partition("/")
    if kind != "Reservation":
        return ""
    found = fleet.find_reservations(namespace=namespace, name=name)
    return found[-1].reservation.run_key if found else ""


def facts(session: Session, one: GaveWay, now: Instant) -> Iterator[tuple[str, str]]:
    """A cut on a few lines: what, for whom and why, the record, and what to type to check it."""
    yield "Gave way", f"{did(one.row.cut)}, {moment(one.row.at, now)}"
    yield "For", f"{one.whom or one.row.subject}: {one.why}"
    yield "Record", f"{one.row.subject}, activation {one.row.activation}, entry {one.row.seq}"
    yield "Seed", one.seed
    yield "Check", session.command("verify", one.row.subject)


def parts(found: Sequence[GaveWay]) -> Iterator[Table | str]:
    """All of it as a table; nothing if it gave up at most one thing, which the few lines tell."""
    if len(found) > 1:
        rows: list[list[Cell]] = [
            [stamp(one.row.at), one.whom or "-", one.row.subject, str(one.row.activation), str(one.row.seq),
             did(one.row.cut)]
            for one in found
        ]  # fmt: skip
        yield section(f"What it gave up for others: {len(found)} times")
        yield Table(columns("AT", "FOR", "RECORD", ">ACTIVATION", ">ENTRY", "WHAT"), rows)


def record(session: Session, one: GaveWay) -> dict[str, Any]:
    row = one.row
    return {
        "at": format_time(row.at), "entry": row.seq, "kind": row.cut.kind, "gpus": row.cut.gpus, "text": did(row.cut),
        "for": one.whom, "trigger": one.trigger, "subject": row.subject, "activation": row.activation,
        "seed": one.seed, "verify": session.command("verify", row.subject),
    }  # fmt: skip
