"""An embedded fleet: its file, its disk, its driver, its clock, and what its ledger shows to be wrong."""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator
from pathlib import Path

from tenure.cli.doctor import world
from tenure.cli.doctor.report import Check, ok, problem, warning
from tenure.cli.server.ledger import mending
from tenure.cli.terminal import Progress
from tenure.cli.trouble import describe
from tenure.cli.words import plural
from tenure.embedded.fleet import Fleet, clock
from tenure.ledger import Ledger, LedgerRefused, companions, sidecar

LOW, VERY_LOW = 1 << 30, 64 << 20
"""Bytes of disk below which there is reason to look, and below which a commit may fail any moment."""
_LABEL = (
    "take kind, metadata, spec and status of {node} out of `kubectl runs nodes -o yaml`, write `{label}` into its "
    "labels, and: kubectl runs submit -f NODE.yaml"
)
_JOIN = "kubectl runs submit -f NODE.yaml, a manifest of kind Node: docs/howto/operators.md has one"


def examined(path: Path, anchor: Path | None) -> Iterator[Check]:
    """Everything, the file first: without it there is nothing else to ask."""
    try:
        ledger = Ledger.examine(path, anchor=anchor)
    except (LedgerRefused, OSError) as error:
        yield _refused("file", error)
        if path.is_file():
            yield from disk(path)
        return
    with ledger, Progress("examining") as progress:
        try:
            yield from _file(ledger, progress)
        except LedgerRefused as error:
            yield _refused("ledger", error)
        refused = ledger.refusal is not None
    yield from disk(path)
    yield from _rights(path, anchor)
    if not refused:
        try:
            with Fleet.open(path, anchor=anchor) as fleet:
                yield from _state(fleet)
        except LedgerRefused as error:
            yield _refused("ledger", error)


def _refused(check: str, error: LedgerRefused | OSError) -> Check:
    told = describe(error, command="doctor")
    return problem(check, told.problems[0], told.next_step)


def _file(ledger: Ledger, progress: Progress) -> Iterator[Check]:
    """SQLite's own integrity check, the chain of hashes, the tables derived from it, and the anchor."""
    report = ledger.verify(progress)
    refusal = ledger.refusal
    fix = refusal.next_step if refusal else mending(report)
    for one in report.findings[:10]:
        yield problem("ledger", f"{one.check}: {one.where}: {one.sentence}", fix)
    if report.ok:
        entries, leases = plural(report.entries, "entry", "entries"), plural(report.leases, "lease")
        yield ok("ledger", f"file, chain, tables and anchor are whole: {entries}, {leases}")


def disk(path: Path) -> Iterator[Check]:
    """Whether there is room to go on."""
    free = shutil.disk_usage(path.parent).free
    told = f"{free >> 20} MiB are free where {path} is"
    fix = "make room on that disk: a fleet that cannot write admits nothing"
    if free < VERY_LOW:
        yield problem("disk", f"only {told}", fix)
    elif free < max(LOW, 2 * path.stat().st_size):
        yield warning("disk", f"only {told}", fix)
    else:
        yield ok("disk", told)


def _rights(path: Path, anchor: Path | None) -> Iterator[Check]:
    """Who may read the ledger may keep a copy of it, and who may read its anchor can hold up every commit; who may not
    write it cannot submit."""
    files = (path, anchor or sidecar(path))
    for one in files:
        if not os.access(one, os.W_OK):
            yield warning("rights", f"you may not write {one}: you can ask this fleet, and tell it nothing",
                          f"ask who owns it: chown or chmod {one}")  # fmt: skip
            return
        if one.stat().st_mode & 0o002:
            yield problem("rights", f"everybody on this machine may write {one}", f"chmod o-w {one}")
            return
    if exposed := [one for one in (*files, *companions(path)) if _mode(one) & 0o004]:
        names = " ".join(map(str, exposed))
        yield warning("rights", f"everybody on this machine may read {names}: what runs are told in their environment "
                      "is in the ledger, and who reads the anchor can lock it", f"chmod o-r {names}")  # fmt: skip
        return
    yield ok("rights", "the file and its anchor can be written by you, and neither read nor written by everybody")


def _mode(path: Path) -> int:
    """What may be done with a file; nothing, if it was SQLite's and has just gone."""
    try:
        return path.stat().st_mode
    except FileNotFoundError:
        return 0


def _state(fleet: Fleet) -> Iterator[Check]:
    state, last = fleet.state(), fleet.ledger.head.at
    stands = fleet.ledger.stands_at
    if stands is None:
        yield from world.time_of_ledger(last, now=clock())
        drive = f"tenure up {fleet.path}"
        yield from world.progress(state, driven=fleet.driven, now=clock(), drive=drive)
    else:
        yield ok("clock", "this is the ledger of a scenario: its time stands where that ended")
    yield from world.machines(state, mend=_LABEL, join=_JOIN)
    yield from world.money(state)
    yield from world.draws(state)
