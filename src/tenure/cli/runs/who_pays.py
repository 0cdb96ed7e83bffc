"""`who-pays`: the split by payer and class, of a run that runs, is over, or was deleted; now or at any instant."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import click

from tenure.cli.exits import Exit
from tenure.cli.lookup import run_argument, unknown, view_at
from tenure.cli.output import Format, Table, section, show
from tenure.cli.payers import class_records, class_summary, split, table, total
from tenure.cli.port import Fleet, View
from tenure.cli.session import Session, output, verb
from tenure.cli.times import MOMENT
from tenure.cli.trouble import Trouble
from tenure.cli.words import moment, plural, safe, stamp
from tenure.ledger import LeaseRow
from tenure.units import HOUR, Instant, format_time


@verb("who-pays", "Say who pays for a run, or paid.", namespaced=True)
@run_argument
@click.option("--at", type=MOMENT, metavar="TIME", help="As it was at this instant.")
@output()
def command(session: Session, output: Format, run: str, at: Instant | None) -> None:
    """Say who pays for a run, or paid: by payer and class (owned, shared, borrowed), in GPUs now and GPU-hours so
    far.

    It comes from the leases, so it is right for runs that are over, for runs that were deleted, and, with --at, for
    any instant of the past. Where several runs had the same name, each is shown by itself.

    \b
    kubectl runs who-pays rai/train
    kubectl runs who-pays rai/train --at 2025-11-01T12:00:00Z

    TIME is 2025-11-01T00:15:00Z, 2025-11-01, now, or 2h (that long ago).

    JSON: {"run", "at", "incarnations": [{"uid", "phase", "owner", "since", "gpuMicroseconds", "gpuHours", "classes":
    {"owned", "shared", "borrowed"}, "payers": [...]}]}. Names: the payers.
    """
    namespace, name = session.key(run)
    with session.fleet() as fleet:
        view = view_at(fleet, at)
        lives = _incarnations(fleet, namespace, name, view.now)
        if not lives and view.line(namespace, name) is None:
            raise _missing(session, fleet, view, namespace, name, at)
        show(
            output,
            tables=lambda: _parts(view, namespace, name, lives, past=at is not None),
            data=lambda: {"run": f"{namespace}/{name}", "at": format_time(view.now),
                          "incarnations": [_record(view, namespace, name, uid, rows) for uid, rows in lives.items()]},
            names=lambda: sorted({row.lease.payer for rows in lives.values() for row in rows}),
            hint=session.command("leases", "--run", f"{namespace}/{name}"),
        )  # fmt: skip


def _missing(session: Session, fleet: Fleet, view: View, namespace: str, name: str, at: Instant | None) -> Exception:
    """It was not there; perhaps it was later."""
    first = fleet.find_leases(namespace=namespace, run=name, limit=1) if at is not None else []
    if not first:
        return unknown(session, view, namespace, name)
    problem = f"Run/{namespace}/{name} held nothing before {stamp(first[0].lease.start)}"
    return Trouble(problem, next_step="ask for a later instant", exit=Exit.NOT_FOUND)


def _incarnations(fleet: Fleet, namespace: str, name: str, now: Instant) -> dict[str, list[LeaseRow]]:
    """The leases that were there by then, of each run that had this name."""
    lives: dict[str, list[LeaseRow]] = {}
    for row in fleet.find_leases(namespace=namespace, run=name, until=now + 1):
        lives.setdefault(row.lease.uid, []).append(row)
    return lives


def _phase(view: View, namespace: str, name: str, uid: str) -> str:
    line = view.line(namespace, name)
    if line is None or view.run(namespace, name).metadata.uid != uid:
        return "deleted"
    return line.phase


def _parts(
    view: View, namespace: str, name: str, lives: dict[str, list[LeaseRow]], *, past: bool
) -> Iterator[Table | str]:
    if past:
        yield f"As of {stamp(view.now)}:"
    if not lives:
        yield f"Run/{namespace}/{name} has not held a GPU yet: nobody has paid anything."
    for uid, rows in lives.items():
        shares = split(rows, now=view.now)
        first, last = rows[0].lease, max(row.lease.attempt for row in rows)
        phase = _phase(view, namespace, name, uid)
        title = f"Run/{namespace}/{name} ({phase}), of {first.owner}, since {moment(first.start, view.now)}"
        yield section(title).lstrip() if uid == next(iter(lives)) else section(title)
        yield f"{class_summary(shares)}; {plural(last - first.attempt + 1, 'attempt')}"
        yield table(shares, empty=safe(f"no leases of {uid}"))


def _record(view: View, namespace: str, name: str, uid: str, rows: list[LeaseRow]) -> dict[str, Any]:
    shares = split(rows, now=view.now)
    return {
        "uid": uid,
        "phase": _phase(view, namespace, name, uid),
        "owner": rows[0].lease.owner,
        "since": format_time(rows[0].lease.start),
        "gpuMicroseconds": total(shares),
        "gpuHours": total(shares) / HOUR,
        "classes": class_records(shares),
        "payers": [share.record() for share in shares],
    }
