"""`submit`: hand in objects, and say at once what became of each run."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from tenure.cli.explaining import remedy
from tenure.cli.lookup import other_flavor
from tenure.cli.manifests import dry_run, files, read_objects
from tenure.cli.output import Format, show
from tenure.cli.port import Fleet, RunLine, Submitted, View
from tenure.cli.promised import RESTS_ON
from tenure.cli.session import Session, output, verb
from tenure.cli.terminal import fold, paint, say
from tenure.cli.trouble import Trouble, invalid
from tenure.cli.words import moment, safe
from tenure.engine.reasons import RULES
from tenure.facts import Reason
from tenure.units import format_time

_STARTED = ("Admitted", "Started")


@verb("submit", "Hand in runs, budgets and namespaces: all of them or none.", namespaced=True)
@files
@dry_run
@output("table", "json", "yaml", "name")
def command(session: Session, output: Format, filenames: tuple[str, ...], more: tuple[str, ...], dry_run: bool) -> None:
    """Hand in runs, budgets and namespaces: all of them or none.

    Objects are created, or changed if they exist. While somebody drives the fleet the decision is taken at once,
    and each run is answered with what became of it: it starts, or it waits and why.

    \b
    kubectl runs submit -f run.yaml
    kubectl runs submit -n rai -f budgets.yaml -f runs.yaml
    kubectl runs submit -f run.yaml --dry-run=server

    JSON: {"decided": ..., "objects": [{"object", "change", "phase", "reason", "message", "plannedStart"}]}. Names: the
    runs.
    """
    objects = read_objects(session, "submit", filenames, more)
    with session.fleet(write=True) as fleet:
        done = fleet.submit(objects, dry_run=dry_run)
        if done.refused:
            raise invalid(done.refused, next_step="mend what is listed above and try again; nothing was changed")
        if dry_run:
            _tell_trial(session, output, done)
            return
        view = fleet.view()
        show(
            output,
            tables=lambda: _lines(session, done, view),
            data=lambda: {"decided": done.decided, "objects": list(_records(done, view))},
            names=lambda: (line.key for _, _, line in _with_lines(done, view) if line),
            hint=_hint(session, done, view),
        )
        _remark(fleet, done, view)


def _tell_trial(session: Session, output: Format, done: Submitted) -> None:
    """What would be written; nothing was."""
    show(
        output,
        tables=lambda: (fold(f"{safe(name)} {change} (server dry run)") for name, change in done.changes),
        data=lambda: {"decided": False, "objects": [{"object": name, "change": one} for name, one in done.changes]},
        names=lambda: (name.removeprefix("Run/") for name, _ in done.changes if name.startswith("Run/")),
        hint=session.command("plan", "-f", "..."),
    )


def _with_lines(done: Submitted, view: View) -> Iterator[tuple[str, str, RunLine | None]]:
    for name, change in done.changes:
        kind, *where = name.split("/")
        yield name, change, view.line(where[0], where[1]) if kind == "Run" else None


def _lines(session: Session, done: Submitted, view: View) -> Iterator[str]:
    for name, change, line in _with_lines(done, view):
        said = "" if not name.startswith("Run/") else f": {_fate(session, done, line)}{_promised(view, line)}"
        if line is not None and line.blocked and (other := other_flavor(view, line.flavor)):
            said += f" {safe(other)}"
        yield fold(f"{safe(name)} {change}{said}")


def _fate(session: Session, done: Submitted, line: RunLine | None) -> str:
    """What becomes of a run, in words."""
    if line is None or (not done.decided and line.phase == "Pending"):
        return paint("recorded", "wait") + "; nothing drives this fleet yet"
    if line.reason in _STARTED:
        if line.phase == "Pending":
            return paint("starts", "good") + f" with {safe(line.message)}"
        return paint("runs", "good") + f": {safe(line.message)}"
    if line.phase != "Pending":
        return f"{line.phase}: {safe(line.message)}"
    how = paint("can never start as things are", "bad") if line.blocked else paint("waits", "wait")
    helps = remedy(session, Reason(code=line.reason), never=line.blocked) if line.reason in RULES else ""
    return f"{how}: {safe(line.message)}" + (f" {helps}" if helps else "")


def _promised(view: View, line: RunLine | None) -> str:
    """When a run that waits is to start, and what that rests on, for who may read it."""
    if line is None or line.phase != "Pending" or not line.taken or line.planned is None:
        return ""
    try:
        one = view.reservation(line.namespace, line.name)
    except Trouble:
        one = None
    rests = f", {RESTS_ON[one.confidence]}" if one is not None and one.confidence in RESTS_ON else ""
    return f" Planned start: {moment(line.planned, view.now)}{rests}."


def _records(done: Submitted, view: View) -> Iterator[dict[str, Any]]:
    for name, change, line in _with_lines(done, view):
        fate = {} if line is None else {"phase": line.phase, "reason": line.reason, "message": line.message}
        planned = {} if line is None or line.planned is None else {"plannedStart": format_time(line.planned)}
        yield {"object": name, "change": change, **fate, **planned}


def _remark(fleet: Fleet, done: Submitted, view: View) -> None:
    runs = [line for name, _, line in _with_lines(done, view) if name.startswith("Run/")]
    waiting = any(line is None or line.phase == "Pending" for line in runs)
    if waiting and not done.decided:
        say(f"nothing drives this fleet, so nothing starts yet: {fleet.drive_command}")


def _hint(session: Session, done: Submitted, view: View) -> str:
    for _, _, line in _with_lines(done, view):
        if line is not None:
            verb = "explain" if line.phase == "Pending" and line.reason not in _STARTED else "watch"
            return session.about(verb, line.namespace, line.name)
    return session.command("budgets", "usage")
