"""`version`: which release this is."""

from __future__ import annotations

import click

from tenure import __version__
from tenure.cli.output import Format, show
from tenure.cli.session import output


@click.command("version", short_help="Print the version.")
@output("table", "json", "yaml")
def command(output: Format) -> None:
    """Print the version.

    JSON: {"version": ...}.
    """
    show(
        output,
        tables=lambda: [f"tenure {__version__}"],
        data=lambda: {"version": __version__},
        names=lambda: [__version__],
    )
