"""`cancel`: stop runs and delete them; what they used stays in the ledger."""

from __future__ import annotations

import click

from tenure.cli.lookup import find
from tenure.cli.manifests import dry_run
from tenure.cli.port import Fleet, RunLine, View
from tenure.cli.session import Session, verb
from tenure.cli.terminal import hint, say
from tenure.cli.trouble import Trouble
from tenure.cli.words import plural, safe


@verb("cancel", "Stop runs and delete them.", namespaced=True)
@click.argument("runs", nargs=-1, required=True, metavar="RUN...")
@dry_run
def command(session: Session, runs: tuple[str, ...], dry_run: bool) -> None:
    """Stop runs and delete them; all of those named, or none if one of them does not exist.

    Pods get SIGTERM and their grace period. A lease closes, and stops to bill, when its pods are gone; leases stay
    in the ledger, and `who-pays`, `leases` and `logs` go on answering. A run that is over is only taken off the
    list.
    """
    with session.fleet(write=True) as fleet:
        before = fleet.view()
        lines = list({line.key: line for line in (find(session, before, text) for text in runs)}.values())
        closed = {line.key: 0 if dry_run else _closed(fleet, line) for line in lines}
        fleet.cancel([(line.namespace, line.name) for line in lines], dry_run=dry_run)
        if dry_run:
            for line in lines:
                print(f"Run/{safe(line.key)}: deleted (server dry run)")
            return
        after = fleet.view()
        for line in lines:
            print(f"Run/{safe(line.key)}: {_fate(line, after, _closed(fleet, line) - closed[line.key])}")
        if any(after.line(line.namespace, line.name) for line in lines) and not fleet.driven:
            say(f"nothing drives this fleet, so its pods are not stopped yet: {fleet.drive_command}")
    if taken := [line for line in lines if line.taken]:
        hint(session.about("who-pays", taken[0].namespace, taken[0].name))


def _closed(fleet: Fleet, line: RunLine) -> int:
    """How many leases of runs of that name have ended; 0 for who may not read the ledger."""
    try:
        return sum(not row.open for row in fleet.find_leases(namespace=line.namespace, run=line.name))
    except Trouble:
        return 0


def _fate(line: RunLine, after: View, closed: int) -> str:
    """What has become of a run, of which so many leases ended meanwhile: pods may be gone before we look."""
    left = after.line(line.namespace, line.name)
    count = 0 if left is None else len(after.leases(line.namespace, line.name))
    if left is not None and (count or not closed):
        return f"stopping; its {_leases(count, 'closes', 'close')} when its pods are gone"
    fate = "deleted" if left is None else "stopping"
    if closed or line.held:
        return f"{fate}; its {_leases(closed, 'is closed', 'are closed')}"
    if not line.taken:
        return "deleted; nobody had taken it in yet"
    return "deleted; it was over" if line.over else "deleted; it held no GPU"


def _leases(count: int, one: str, many: str) -> str:
    return f"{plural(count, 'lease')} {one if count == 1 else many}" if count else f"leases {many}"
