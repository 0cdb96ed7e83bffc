"""`leases`: who holds which GPUs, and who held them at any instant of the past."""

from __future__ import annotations

from typing import Any

import click

from tenure.api.meta import to_wire
from tenure.api.tree import nearest
from tenure.cli.exits import Exit
from tenure.cli.lookup import check_past
from tenure.cli.output import Cell, Format, Table, columns, listing, show
from tenure.cli.port import Fleet
from tenure.cli.session import Session, output, verb
from tenure.cli.terminal import is_terminal, say
from tenure.cli.times import MOMENT
from tenure.cli.trouble import Trouble
from tenure.cli.words import gpu_hours, ordinals, span, stamp
from tenure.engine import render
from tenure.ledger import LeaseRow
from tenure.units import Instant

SCREEN_MAX = 200
"""On a terminal, without --limit, the newest so many are shown."""


@verb("leases", "Say who holds which GPUs, or held them.", listing=True)
@click.option("--run", metavar="RUN", help="Only of this run.")
@click.option("--node", metavar="NODE", help="Only on this machine.")
@click.option("--owner", metavar="OWNER", help="Only of runs of this owner.")
@click.option("--payer", metavar="OWNER", help="Only what this owner pays.")
@click.option("--at", type=MOMENT, metavar="TIME", help="Held at this instant.")
@click.option("--since", type=MOMENT, metavar="TIME", help="Held at or after this instant.")
@click.option("--until", type=MOMENT, metavar="TIME", help="Held before this instant.")
@click.option("--open", "open_only", is_flag=True, help="Only those that are open.")
@click.option("--limit", type=click.IntRange(min=0), metavar="N", help="The newest N; 0 for all.")
@output()
def command(session: Session, output: Format, run: str | None, limit: int | None, **question: Any) -> None:
    """Say who holds which GPUs, or held them; in all namespaces unless -n or --run says which.

    TIME is 2025-11-01T00:15:00Z, 2025-11-01, now, or 2h (that long ago).

    \b
    kubectl runs leases --open  # who holds what, now
    kubectl runs leases --node a-03 --at 2h  # who had this machine two hours ago
    kubectl runs leases --owner org:ai:rai --since 2025-11-01 --until 2025-12-01

    JSON: a List of Lease objects. Names: NAMESPACE/NAME.
    """
    since, until = question["since"], question["until"]
    if since is not None and until is not None and since >= until:
        raise Trouble(f"--since {stamp(since)} is not before --until {stamp(until)}", next_step="swap them")
    namespace, name = session.key(run) if run else (None if session.all_namespaces else session.namespace, None)
    shown = SCREEN_MAX if limit is None and is_terminal() else limit or None
    with session.fleet() as fleet:
        now = fleet.view().now
        check_past(question["at"], now)
        rows = fleet.find_leases(namespace=namespace, run=name, newest=True, limit=shown and shown + 1, **question)
        if not rows and question["node"]:
            _check_node(session, fleet, question["node"])
    cut, rows = bool(shown and len(rows) > shown), rows[:shown][::-1]
    show(
        output,
        tables=lambda: [table(rows, now=now, empty="no lease matches")],
        data=lambda: listing(to_wire(render.lease(row.lease, end=row.end, closure=row.closure)) for row in rows),
        names=lambda: (row.lease.key for row in rows),
        hint=session.command("who-pays", rows[-1].lease.run_key) if rows else session.command("list", "-A"),
    )
    if cut:
        say(f"these are the newest {shown}; --limit 0 shows all")


def _check_node(session: Session, fleet: Fleet, node: str) -> None:
    """A machine that is there, or was, may have no lease; one that never was is a mistake."""
    known = [line.name for line in fleet.view().nodes()]
    if node not in known and not fleet.find_leases(node=node, limit=1):
        like = nearest(node, tuple(known))
        step = (f"did you mean {like}? " if like else "") + f"Machines: {session.command('nodes')}"
        raise Trouble(f"Node/{node} does not exist, and no lease was ever on it", next_step=step, exit=Exit.NOT_FOUND)


def table(rows: list[LeaseRow], *, now: Instant, empty: str = "") -> Table:
    """Leases as a table, the oldest first."""
    heads = (
        "RUN", "NODE", "GPUS", "ROLE", "PAID-BY", "+CLASS", "START", "END", "+>LASTED", "+NAME", "+OWNER", "+PAYER",
        "+>GPU-HOURS", "+DOMAIN", "+OPENED", "CLOSED",
    )  # fmt: skip
    return Table(columns(*heads), [_row(row, now) for row in rows], empty)


def _row(row: LeaseRow, now: Instant) -> list[Cell]:
    lease = row.lease
    return [
        lease.run_key, lease.node, ordinals(lease.gpus), lease.role, f"{lease.budget}/{lease.envelope}", lease.funding,
        stamp(lease.start), ("open", "good") if row.end is None else stamp(row.end),
        span((row.end if row.end is not None else now) - lease.start), lease.name, lease.owner, lease.payer,
        gpu_hours(row.used(since=0, until=now)), lease.domain, lease.reason, row.closure or "-",
    ]  # fmt: skip
