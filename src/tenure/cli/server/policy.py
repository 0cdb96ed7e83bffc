"""`tenure policy`: the knobs of a fleet, as they are in effect and recorded in its ledger."""

from __future__ import annotations

from pathlib import Path

import click

from tenure.api.meta import to_wire
from tenure.api.policy import Policy
from tenure.cli.exits import Exit
from tenure.cli.manifests import read_text
from tenure.cli.output import Cell, Format, Table, columns, show
from tenure.cli.session import Function, embedded_options, output
from tenure.cli.terminal import hint
from tenure.cli.trouble import Trouble, invalid


@click.group("policy", short_help="Show or set a fleet's policy.")
def command() -> None:
    """Show or set a fleet's policy."""


def _which(local: Path | None) -> Path:
    if local is None:
        raise Trouble("no fleet was chosen", next_step="name one: --local fleet.db, or export TENURE_LOCAL=fleet.db")
    return local


def _command(name: str, short: str) -> Function:
    return command.command(name, short_help=short)


@_command("show", "Show the policy in effect.")
@embedded_options
@output("table", "json", "yaml")
def show_policy(local: Path | None, anchor: Path | None, output: Format) -> None:
    """Show the policy in effect; what differs from the defaults is marked.

    JSON and YAML: a policy file, which `policy set` reads.
    """
    from tenure.embedded.fleet import Fleet

    with Fleet.open(_which(local), anchor=anchor) as fleet:
        policy = fleet.state().policy
    show(
        output,
        tables=lambda: [_table(policy)],
        data=lambda: {key: value for key, value in to_wire(policy).items() if value != "" or key != "drawSecret"},
        names=list,
        hint="with -o yaml it is a file: edit it, and tenure policy set -f FILE",
    )


def _table(policy: Policy) -> Table:
    defaults = to_wire(Policy())
    rows: list[list[Cell]] = [
        [key, _text(value), "-" if value == defaults[key] else f"default {_text(defaults[key])}"]
        for key, value in to_wire(policy).items()
    ]
    return Table(columns("KEY", "VALUE", "CHANGED"), rows)


def _text(value: object) -> str:
    if isinstance(value, list):
        return ",".join(map(str, value)) or "-"
    if isinstance(value, dict):
        return ",".join(f"{key}={one}" for key, one in value.items()) or "-"
    return {True: "true", False: "false"}.get(value, str(value)) if isinstance(value, bool) else str(value) or "-"


@_command("set", "Set the policy from a file.")
@embedded_options
@click.option(
    "-f", "--filename", required=True, metavar="FILE", help="The policy file, YAML or JSON; - is standard input."
)
def set_policy(local: Path | None, anchor: Path | None, filename: str) -> Exit:
    """Set the policy from a file: keys that it leaves out have their defaults, unknown keys are errors.

    The change is recorded in the ledger. A driver that runs follows it, the delays of simulated pods (bindDelay,
    stopDelay) aside: those count from its next start.
    """
    from tenure.api.decode import read_policy
    from tenure.embedded.fleet import Fleet

    path = _which(local)
    policy, errors = read_policy(read_text(filename), source=filename)
    if errors:
        raise invalid(errors, next_step=f"mend {filename} and try again; nothing was changed")
    with Fleet.open(path, readonly=False, anchor=anchor) as fleet:
        before = fleet.state().policy
        if refused := fleet.set_policy(policy):
            raise invalid(refused, next_step="nothing was changed")
    old, new = to_wire(before), to_wire(policy)
    changed = [f"{key}: {_text(old[key])} -> {_text(new[key])}" for key in new if old[key] != new[key]]
    print("\n".join(changed) if changed else "unchanged")
    hint(f"tenure policy show --local {path}")
    return Exit.OK
