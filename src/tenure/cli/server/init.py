"""`tenure init`: a new embedded fleet, from a fleet file."""

from __future__ import annotations

from pathlib import Path

import click

from tenure.cli.server.fleets import create, fleet_argument
from tenure.cli.terminal import hint
from tenure.cli.words import safe


@click.command("init", short_help="Create an embedded fleet.")
@fleet_argument
@click.option(
    "--fleet", "source", metavar="FLEET.YAML",
    help="The fleet file: machines, policy, executor. Left out: this machine and its NVIDIA GPUs.",
)  # fmt: skip
def command(file: Path, source: str | None, anchor: Path | None) -> None:
    """Create an embedded fleet in FILE from a fleet file. An existing FILE is never overwritten.

    Machines in a fleet file may be made up: pods run as processes of this machine, GPU or not. See examples/fleet.yaml.
    """
    print(f"created {safe(str(file))}: {create(file, source, anchor=anchor)}")
    hint(f"export TENURE_LOCAL={file}; kubectl-runs nodes; tenure up {file}")
