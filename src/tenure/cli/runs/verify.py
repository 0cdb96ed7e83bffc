"""`kubectl runs verify`: was a draw what its record says it was?"""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import click

from tenure.cli.drawn import Drawn, Finding, look_up, undrawn
from tenure.cli.exits import Exit
from tenure.cli.manifests import STDIN, read_text
from tenure.cli.output import Cell, Format, Table, columns, show
from tenure.cli.session import Session, output, verb
from tenure.cli.terminal import paint
from tenure.cli.trouble import Trouble
from tenure.cli.words import plural, safe, stamp
from tenure.engine.lottery import check
from tenure.units import format_time

_NOTHING = {
    "no draw": "the record has no draw (what gave way did so without a lottery), so there is nothing to verify",
    "waits for reveals": "the draw is frozen and has no result yet, so there is nothing to verify",
}
"""Why a record out of a file has nothing that could be wrong."""
_NAME = re.compile(r"[a-z0-9][a-z0-9-]*(/[a-z0-9.-]+(?<!\.json))?")
"""A reservation as `reservations -o name` prints it."""
_PUBLISHED = re.compile(r"([^=]+)=([0-9a-fA-F]{64})", re.ASCII)
_STYLES = {"right": "good", "wrong": "bad", "waits for reveals": "wait", "no draw": "dim"}


@verb("verify", "Check the record of a draw.", namespaced=True)
@click.argument("record", metavar="RECORD")
@click.option("--commit", metavar="HEX", help="For a file: the commit that the ledger recorded at the freeze.")
@click.option(
    "--published", multiple=True, metavar="BEACON=HEX", help="For a file: a custodian's published first value."
)
@output("table", "json", "yaml")
def command(session: Session, output: Format, record: str, commit: str | None, published: tuple[str, ...]) -> Exit:
    """Check the record of a draw: the seed, the reveals and the order are computed again.

    RECORD names what a draw was for, and the record is taken from the ledger: Reservation/NAME (in the namespace of
    -n), Reservation/NAMESPACE/NAME, Budget/NAME or Budget/NAME/ENVELOPE; a bare NAMESPACE/NAME, as `reservations -o
    name` prints it, is a reservation's. Then it is also checked that this very
    intent was frozen before, that the reveals are of the chains that custodians had published, and that those who
    were cut are the first of the order, less runs that were over by then. Otherwise RECORD is a file, {"intent",
    "result"} as JSON, or - for standard input; --commit and --published say what the ledger and the custodians hold.

    Exit code 0 means that every record is right, or holds no draw that could be wrong, 6 that something was found.
    docs/verify_draw.py does the same for a file without Tenure.

    JSON: {"ok", "findings": [{"code", "subject", "sentence"}]}; by name also "draws": [{"subject", "activation",
    "at", "entry", "state", "passedOver"}]; of a file also "state", if there is nothing to verify: "no draw" or
    "waits for reveals", or, if it is right, "untied": the beacons for which no --published was given.
    """
    subject = _subject(session, record)
    known, told = _published(published), None
    drawn: list[Drawn] = []
    state = ""
    if subject is None:
        told = _read(record)
        _must_hold_its_draw(told)
        state, findings = undrawn(told) if commit is None else ("", [])
        if not state:
            _aside(told)
            found = check(told, frozen=commit, published=known)
            findings = [Finding(code=one.code, subject=one.subject, sentence=one.sentence) for one in found]
    else:
        if commit or published:
            problem = f"--commit and --published are for files; {subject} is looked up in the ledger, which has both"
            raise Trouble(problem, next_step="leave them out")
        drawn = _look_up(session, subject)
        findings = [one for draw in drawn for one in draw.findings]
    untied = None
    if told is not None and not (state or findings):
        untied = [one["id"] for one in told["intent"]["beacons"] if one["id"] not in known]
    show(
        output,
        tables=lambda: _tables(drawn, findings, state, (known and untied) or []),
        data=lambda: _data(drawn, findings, state, untied, named=subject is not None),
        names=list,
        hint="" if untied is None else _hint(commit, untied),
    )
    if findings:
        raise Trouble(f"{plural(len(findings), 'finding')}: the record is not right", next_step="", exit=Exit.REFUSED)
    return Exit.OK


def _subject(session: Session, text: str) -> str | None:
    """What a draw was for, if it was named and is no file."""
    kind, slash, rest = text.partition("/")
    if kind.lower() not in ("reservation", "budget") or not slash:
        named = _NAME.fullmatch(text) and not Path(text).exists()
        return "/".join(("Reservation", *session.key(text))) if named else None
    return f"Budget/{rest}" if kind.lower() == "budget" else "/".join(("Reservation", *session.key(rest)))


def _look_up(session: Session, subject: str) -> list[Drawn]:
    with session.fleet() as fleet:
        drawn = look_up(fleet, subject)
    if not drawn:
        step = f"see {session.command('reservations', '-A', '--all')}; a file of that name is ./{subject}"
        raise Trouble(f"the resolver never ran for {subject}", next_step=step, exit=Exit.NOT_FOUND)
    return drawn


def _tables(drawn: list[Drawn], findings: list[Finding], state: str, untied: list[str]) -> list[Table | str]:
    parts: list[Table | str] = []
    if drawn:
        rows: list[list[Cell]] = [
            [one.row.subject, str(one.row.activation), stamp(one.row.at), str(one.row.seq),
             (one.state, _STYLES[one.state])]
            for one in drawn
        ]  # fmt: skip
        parts.append(Table(columns("SUBJECT", ">ACTIVATION", "AT", ">ENTRY", "RECORD"), rows))
    parts += [
        f"{safe(name)} was drawn and passed over: by the reveals it was over, had begun anew, or held nothing there"
        for one in drawn
        for name in one.passed_over
    ]
    if findings:
        told: list[list[Cell]] = [[(one.code, "bad"), one.subject, one.sentence] for one in findings]
        parts.append(Table(columns("CODE", "SUBJECT", "FINDING"), told))
    if state and not findings:
        return [f"{paint(state, _STYLES[state])}: {_NOTHING[state]}"]
    without = f", without what {safe(', '.join(untied))} published" if untied else ""
    return parts or [f"{paint('right', 'good')}{without}"]


def _data(
    drawn: list[Drawn], findings: list[Finding], state: str, untied: list[str] | None, *, named: bool
) -> dict[str, Any]:
    data: dict[str, Any] = {"ok": not findings, "findings": [one.record() for one in findings]}
    if state:
        data["state"] = state
    if untied is not None:
        data["untied"] = untied
    if named:
        data["draws"] = [
            {"subject": one.row.subject, "activation": one.row.activation, "at": format_time(one.row.at),
             "entry": one.row.seq, "state": one.state, "passedOver": list(one.passed_over)}
            for one in drawn
        ]  # fmt: skip
    return data


def _published(given: tuple[str, ...]) -> dict[str, str]:
    """What custodians published, by beacon."""
    known: dict[str, str] = {}
    for one in given:
        found = _PUBLISHED.fullmatch(one)
        if found is None or found[1] in known:
            problem = f"--published {one}: " + ("not BEACON=HEX" if found is None else "the beacon is given twice")
            raise Trouble(problem, next_step="give each beacon once, as NAME=HEX, 64 digits, that it published")
        known[found[1]] = found[2].lower()
    return known


def _hint(commit: str | None, untied: list[str]) -> str:
    """What would tie a record to more than itself."""
    steps = ["--commit ties it to the ledger"] if commit is None else []
    steps += [f"--published ties it to the chain of {safe(', '.join(untied))}"] if untied else []
    return "; ".join(steps)


def _read(name: str) -> Any:
    """A record out of a file."""
    from tenure.api.text import parse

    parsed = parse(read_text(name), source="standard input" if name == STDIN else name)
    if len(parsed.trees) != 1:
        problem = parsed.errors[0].sentence() if parsed.errors else f"it holds {len(parsed.trees)} documents"
        raise Trouble(f"this is not JSON: {problem}", next_step="give a file with one JSON object")
    return parsed.trees[0]


def _must_hold_its_draw(record: Any) -> None:
    """A draw among very many is not in the Reservation's status: that is no record without a draw."""
    if isinstance(record, dict) and record.get("drawLeftOut"):
        step = "name the reservation, and the record is taken from the ledger: verify Reservation/NAMESPACE/NAME"
        raise Trouble("the draw is too large for an object, and not in this record", next_step=step, exit=Exit.INVALID)


def _aside(record: Any) -> None:
    """What a Reservation's status holds besides the draw is left aside."""
    if isinstance(record, dict):
        record.pop("cuts", None)
