"""`kubectl runs verify`: was a draw what its record says it was?"""

from __future__ import annotations

import json
from typing import Any, TextIO

import click

from tenure.cli.exits import Exit
from tenure.cli.output import Cell, Format, Table, columns, show
from tenure.cli.session import output
from tenure.cli.terminal import paint
from tenure.cli.trouble import Trouble
from tenure.cli.words import plural
from tenure.engine.lottery import check


@click.command("verify", short_help="Check the record of a draw.")
@click.argument("file", type=click.File("r"))
@click.option("--commit", metavar="HEX", help="The commit that the ledger recorded at the freeze.")
@click.option("--published", multiple=True, metavar="BEACON=HEX", help="A custodian's published first value.")
@output("table", "json", "yaml")
def command(file: TextIO, commit: str | None, published: tuple[str, ...], output: Format) -> Exit:
    """Check the record of a draw, {"intent", "result"} as JSON (- reads standard input): the seed, the reveals and the
    order are computed again.

    Exit code 0 means that the record is right, 6 that something was found. docs/verify_draw.py does the same without
    Tenure.

    JSON: {"ok", "findings": [{"code", "subject", "sentence"}]}.
    """
    findings = check(_read(file), frozen=commit, published=dict(one.split("=", 1) for one in published if "=" in one))
    rows: list[list[Cell]] = [[(one.code, "bad"), one.subject, one.sentence] for one in findings]
    show(
        output,
        tables=lambda: [Table(columns("CODE", "SUBJECT", "FINDING"), rows)] if rows else [paint("right", "good")],
        data=lambda: {
            "ok": not findings,
            "findings": [{"code": one.code, "subject": one.subject, "sentence": one.sentence} for one in findings],
        },
        names=list,
        hint="" if rows else "give --commit and --published to tie it to the ledger and to the custodians",
    )
    if findings:
        raise Trouble(f"{plural(len(findings), 'finding')}: the record is not right", next_step="", exit=Exit.REFUSED)
    return Exit.OK


def _read(file: TextIO) -> Any:
    try:
        return json.loads(file.read(1 << 20))
    except ValueError as error:
        step = "give a file with one JSON object"
        raise Trouble(f"this is not JSON: {error}", next_step=step, exit=Exit.INVALID) from error
