"""Finding the run that was meant, dead or alive, or saying which one might have been."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from tenure.cli.session import Function, Session, missing

if TYPE_CHECKING:
    from tenure.cli.port import RunLine, View


def run_argument(function: Function) -> Function:
    return click.argument("run", metavar="RUN")(function)


def find(session: Session, view: View, text: str) -> RunLine:
    """A run that is there."""
    namespace, name = session.key(text)
    line = view.line(namespace, name)
    if line is None:
        raise unknown(session, view, namespace, name)
    return line


def unknown(session: Session, view: View, namespace: str, name: str) -> Exception:
    """There is no such run; perhaps one like it."""
    keys = [line.key for line in view.lines()]
    return missing(session, f"Run/{namespace}/{name}", like=_like(keys, namespace, name))


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
