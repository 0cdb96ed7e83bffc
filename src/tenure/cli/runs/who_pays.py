"""`who-pays`: the split by payer and class, of a run that runs, is over, or was deleted."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from tenure.cli.lookup import run_argument, unknown
from tenure.cli.output import Format, Table, section, show
from tenure.cli.payers import split, table, total
from tenure.cli.port import Fleet, View
from tenure.cli.session import Session, output, verb
from tenure.cli.words import gpu_hours, moment, plural, safe
from tenure.ledger import LeaseRow
from tenure.units import format_time


@verb("who-pays", "Say who pays for a run, or paid.", namespaced=True)
@run_argument
@output()
def command(session: Session, output: Format, run: str) -> None:
    """Say who pays for a run, or paid: by payer and class (owned, shared, borrowed), in GPUs now and GPU-hours so
    far.

    It comes from the leases, so it is right for runs that are over and for runs that were deleted. Where several
    runs had the same name, each is shown by itself.

    JSON: {"run", "at", "incarnations": [{"uid", "phase", "gpuHours", "payers": [...]}]}. Names: the payers.
    """
    namespace, name = session.key(run)
    with session.fleet() as fleet:
        view = fleet.view()
        lives = _incarnations(fleet, namespace, name)
        if not lives and view.line(namespace, name) is None:
            raise unknown(session, view, namespace, name)
        show(
            output,
            tables=lambda: _parts(view, namespace, name, lives),
            data=lambda: {"run": f"{namespace}/{name}", "at": format_time(view.now),
                          "incarnations": [_record(view, namespace, name, uid, rows) for uid, rows in lives.items()]},
            names=lambda: sorted({row.lease.payer for rows in lives.values() for row in rows}),
            hint=session.command("leases", "--run", f"{namespace}/{name}"),
        )  # fmt: skip


def _incarnations(fleet: Fleet, namespace: str, name: str) -> dict[str, list[LeaseRow]]:
    lives: dict[str, list[LeaseRow]] = {}
    for row in fleet.find_leases(namespace=namespace, run=name):
        lives.setdefault(row.lease.uid, []).append(row)
    return lives


def _phase(view: View, namespace: str, name: str, uid: str) -> str:
    line = view.line(namespace, name)
    if line is None or view.run(namespace, name).metadata.uid != uid:
        return "deleted"
    return line.phase


def _parts(view: View, namespace: str, name: str, lives: dict[str, list[LeaseRow]]) -> Iterator[Table | str]:
    if not lives:
        yield f"Run/{namespace}/{name} has not held a GPU yet: nobody has paid anything."
    for uid, rows in lives.items():
        shares = split(rows, now=view.now)
        first, last = rows[0].lease, max(row.lease.attempt for row in rows)
        phase = _phase(view, namespace, name, uid)
        title = f"Run/{namespace}/{name} ({phase}), of {first.owner}, since {moment(first.start, view.now)}"
        yield section(title).lstrip() if uid == next(iter(lives)) else section(title)
        yield f"{gpu_hours(total(shares))} GPU-hours in {plural(last - first.attempt + 1, 'attempt')}"
        yield table(shares, empty=safe(f"no leases of {uid}"))


def _record(view: View, namespace: str, name: str, uid: str, rows: list[LeaseRow]) -> dict[str, Any]:
    shares = split(rows, now=view.now)
    return {
        "uid": uid,
        "phase": _phase(view, namespace, name, uid),
        "owner": rows[0].lease.owner,
        "since": format_time(rows[0].lease.start),
        "gpuHours": sum(share.record()["gpuHours"] for share in shares),
        "payers": [share.record() for share in shares],
    }
