"""Finding what was meant: the run, dead or alive, or which one it might have been; the instant, if it has come."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from tenure.cli.session import Function, Session, missing
from tenure.cli.trouble import Trouble
from tenure.cli.words import some, stamp

if TYPE_CHECKING:
    from tenure.cli.port import Fleet, RunLine, View
    from tenure.units import Instant


def run_argument(function: Function) -> Function:
    return click.argument("run", metavar="RUN")(function)


def view_at(fleet: Fleet, at: Instant | None) -> View:
    """Everything as it is now, or as it was at an instant of the past."""
    now = fleet.view()
    check_past(at, now.now)
    return now if at is None else fleet.view(at)


def check_past(at: Instant | None, now: Instant) -> None:
    """Nobody knows what will be."""
    if at is not None and at > now:
        raise Trouble(f"{stamp(at)} is in the future", next_step="ask for an instant of the past")


def find(session: Session, view: View, text: str) -> RunLine:
    """A run that is there."""
    namespace, name = session.key(text)
    line = view.line(namespace, name)
    if line is None:
        raise unknown(session, view, namespace, name)
    return line


def unknown(session: Session, view: View, namespace: str, name: str) -> Exception:
    """There is no such run; perhaps one like it."""
    if view.line(namespace, name) is not None:  # its object is there, and the ledger knows nothing of it
        from tenure.cli.untaken import not_taken_in

        return not_taken_in(session, namespace, name)
    keys = [line.key for line in everywhere(view)]
    return missing(session, f"Run/{namespace}/{name}", like=_like(keys, namespace, name))


def everywhere(view: View) -> list[RunLine]:
    """The runs of all namespaces, to hint at: none for somebody who may not look there."""
    try:
        return view.lines()
    except Trouble:
        return []


def _like(keys: list[str], namespace: str, name: str) -> str:
    """The same name elsewhere, or a name that differs little."""
    elsewhere = [key for key in keys if key.split("/")[1] == name]
    if elsewhere:
        return elsewhere[0]
    from tenure.api.tree import nearest

    here = {key.split("/")[1]: key for key in reversed(keys)} | {
        key.split("/")[1]: key for key in keys if key.startswith(f"{namespace}/")
    }
    return here.get(nearest(name, tuple(sorted(here))) or "", "")


def other_flavor(view: View, flavor: str) -> str:
    """Of a kind of GPU that no machine has: which was meant, or which there are; for who may see machines."""
    try:
        known = sorted({line.flavor for line in view.nodes() if line.flavor})
    except Trouble:
        return ""
    if flavor in known or not known:
        return ""
    from tenure.api.tree import nearest

    longer = next((one for one in known if one.lower().startswith(flavor.lower())), "")
    meant = longer or nearest(flavor, tuple(known))
    return f"No machine has gpuType {flavor}" + (f": did you mean {meant}?" if meant else f"; there are {some(known)}.")
