"""Fleet files and the fleets made from them: shared by `init` and `up`."""

from __future__ import annotations

from pathlib import Path

import click

from tenure.cli.exits import Exit
from tenure.cli.manifests import read_text
from tenure.cli.session import ANCHOR_VARIABLE, LOCAL_VARIABLE, Function
from tenure.cli.terminal import hint
from tenure.cli.trouble import Trouble, invalid
from tenure.cli.words import plural
from tenure.custodian import Status


def fleet_argument(function: Function) -> Function:
    """FILE, the fleet's ledger, and where its anchor is."""
    anchor = click.option(
        "--anchor", type=click.Path(path_type=Path), envvar=ANCHOR_VARIABLE, metavar="FILE",
        help="Where the ledger's anchor is, if not beside it.",
    )  # fmt: skip
    argument = click.argument("file", type=click.Path(path_type=Path), envvar=LOCAL_VARIABLE, metavar="FILE")
    return argument(anchor(function))


THIS_MACHINE = b"{kind: Fleet, metadata: {name: local}, nodes: local}"


def is_created(path: Path, *, anchor: Path | None) -> bool:
    """Whether a fleet is there. What is left of a creation that was cut short is none yet, and gets finished."""
    from tenure.embedded.fleet import is_unfinished

    return path.exists() and not is_unfinished(path, anchor=anchor)


def create(path: Path, source: str | None, *, anchor: Path | None) -> str:
    """Make a fleet from a fleet file, or of this machine; answers what it is, in words."""
    from tenure.embedded.custodians import make_operator
    from tenure.embedded.fleet import Fleet
    from tenure.embedded.fleetfile import read_fleet
    from tenure.embedded.paths import custodian_path

    if is_created(path, anchor=anchor):
        step = f"use it as it is (`tenure up {path}`), or choose another path: a ledger is never overwritten"
        raise Trouble(f"{path} exists already", next_step=step, exit=Exit.REFUSED)
    text = THIS_MACHINE if source is None else read_text(source)
    described, errors = read_fleet(text, source=source or "this machine")
    if described is None:
        step = f"mend {source} and try again" if source else "give a fleet file: --fleet examples/fleet.yaml"
        raise invalid(errors, next_step=f"{step}; nothing was created")
    own = custodian_path(path)
    made = make_operator(own)
    if not isinstance(made, Status):
        raise Trouble(made.sentence, next_step=made.next_step, exit=Exit.REFUSED)
    with Fleet.create(path, nodes=described.nodes, policy=described.policy, anchor=anchor) as fleet:
        fleet.publish(made.beacon, made.published)
    hint(f"keep {own} secret: it is the custodian of this fleet's draws, and knows them in advance")
    gpus = sum(int(node.status.allocatable.get(described.policy.gpu_resource, "0")) for node in described.nodes)
    return (
        f"fleet {described.name}: {plural(len(described.nodes), 'machine')}, {plural(gpus, 'GPU')}, "
        f"pods run as {'processes' if described.executor == 'process' else 'simulated pods'}"
    )
