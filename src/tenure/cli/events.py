"""What happened, one line an event: `watch`, `describe` and `tenure up` print the same."""

from __future__ import annotations

from collections.abc import Iterable

from tenure.cli.output import PHASE_STYLES, Cell, Table, columns, phase
from tenure.cli.terminal import paint
from tenure.cli.words import safe, span, stamp
from tenure.ledger import Note
from tenure.units import Instant, format_time


def line(at: Instant, kind: str, subject: str, message: str) -> str:
    """An event as a line: when, what, about whom, in words."""
    styled = paint(kind.ljust(12), PHASE_STYLES.get(kind, ""))
    return f"{stamp(at)}  {styled}  {safe(subject)}  {safe(message)}"


def record(note: Note) -> dict[str, str]:
    """An event as SPEC 15 writes it."""
    return {
        "at": format_time(note.at),
        "kind": note.kind,
        "object": note.object,
        "reason": note.reason,
        "message": note.message,
    }


def table(notes: Iterable[Note], *, now: Instant, empty: str = "") -> Table:
    rows: list[list[Cell]] = [
        [stamp(note.at), span(now - note.at), phase(note.kind), note.reason, note.message] for note in notes
    ]
    return Table(columns("AT", ">AGO", "EVENT", "REASON", "MESSAGE"), rows, empty)
