"""`tenure custodian`: keep a chain of secrets for the lottery, and say where it stands."""

from __future__ import annotations

from pathlib import Path

import click

from tenure.api.meta import to_wire
from tenure.cli.exits import Exit
from tenure.cli.output import Format, fields, show
from tenure.cli.session import output
from tenure.cli.trouble import Trouble
from tenure.custodian import CustodianRefused, Status, open_custodian
from tenure.custodian import init as make
from tenure.custodian.refusals import Code

_FOLDER = click.argument("folder", type=click.Path(path_type=Path))


@click.group("custodian", short_help="Keep a hash chain for the lottery.")
def command() -> None:
    """Keep a hash chain for the lottery: values that were fixed in advance and are revealed one draw at a time."""


@command.command("init", short_help="Make a new chain in a new folder.")
@_FOLDER
@click.option("--beacon", required=True, metavar="NAME", help="The custodian's name in draw records.")
@click.option("--length", type=click.IntRange(min=1), default=100_000, show_default=True, metavar="N",
              help="How many draws it lasts for.")  # fmt: skip
@output("table", "json", "yaml")
def init(folder: Path, beacon: str, length: int, output: Format) -> Exit:
    """Make a new chain in a new folder, and print what must be published.

    JSON: {"beacon", "published", "length", "position", "latest"}.
    """
    _show(make(folder, beacon=beacon, length=length), output, hint="publish the first value where nobody can change it")
    return Exit.OK


@command.command("status", short_help="Say where a custodian stands.")
@_FOLDER
@output("table", "json", "yaml")
def status(folder: Path, output: Format) -> Exit:
    """Say where a custodian stands. Nothing that it prints is secret.

    JSON: {"beacon", "published", "length", "position", "latest", "commit"}.
    """
    found = open_custodian(folder)
    _show(found if isinstance(found, CustodianRefused) else found.status(), output, hint="")
    return Exit.OK


def _show(status: Status | CustodianRefused, output: Format, *, hint: str) -> None:
    if isinstance(status, CustodianRefused):
        code = Exit.NOT_FOUND if status.code is Code.NotFound else Exit.REFUSED
        raise Trouble(status.sentence, next_step=status.next_step, exit=code)
    rows = [
        ("Beacon", status.beacon),
        ("Published", status.published),
        ("Position", f"{status.position} of {status.length} ({status.remaining} left)"),
        ("Latest", status.latest),
    ]
    show(output, tables=lambda: [fields(rows)], data=lambda: to_wire(status), names=lambda: [status.beacon], hint=hint)
