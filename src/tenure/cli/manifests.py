"""Files that people hand in: read together, checked together, taken together or not at all."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import click
from msgspec.structs import replace

from tenure.api.errors import Faults, FieldError, escape
from tenure.cli.session import Function, Session
from tenure.cli.trouble import Trouble, invalid
from tenure.cli.words import safe

STDIN = "-"
_MEND = "mend what is listed above and try again; nothing was changed"


def files(function: Function) -> Function:
    """``-f FILE``, as often as needed; further files may simply follow."""
    more = click.argument("more", nargs=-1, metavar="[FILE]...")
    return click.option(
        "-f", "--filename", "filenames", multiple=True, metavar="FILE",
        help="A file of objects, YAML or JSON; - is standard input. May be repeated.",
    )(more(function))  # fmt: skip


def dry_run(function: Function) -> Function:
    """``--dry-run=server``, as kubectl spells it."""
    return click.option(
        "--dry-run", is_flag=False, flag_value="server", type=click.Choice(["server"]), default=None,
        callback=lambda _context, _option, value: value is not None,
        help="Have everything checked where it would be written, and write nothing.",
    )(function)  # fmt: skip


def read_objects(session: Session, verb: str, filenames: Sequence[str], more: Sequence[str]) -> list[Any]:
    """All objects of all files, in their order; raises every error of all of them."""
    names = [*filenames, *more]
    if not names:
        raise Trouble("no file was given", next_step=session.command(verb, "-f", "run.yaml"))
    from tenure.api.decode import read

    objects: list[Any] = []
    errors: list[FieldError] = []
    for name in dict.fromkeys(names):
        source = "standard input" if name == STDIN else name
        reading = read(read_text(name), source=source)
        objects += reading.objects
        errors += [_placed(error, source, several=len(names) > 1) for error in reading.errors]
    placed = [_in_namespace(session, item, errors) for item in objects]
    _check_unique(placed, errors)
    if errors:
        raise invalid(errors, next_step=_MEND)
    return placed


def read_text(name: str) -> bytes:
    """The bytes of a file or of standard input, no more of them than are ever read."""
    from tenure.api.text import TEXT_BYTES_MAX

    if name == STDIN:
        return sys.stdin.buffer.read(TEXT_BYTES_MAX + 1)
    try:
        with Path(name).open("rb") as file:
            return file.read(TEXT_BYTES_MAX + 1)
    except OSError as error:
        problem = f"{name} cannot be read: {(error.strerror or str(error)).lower()}"
        raise Trouble(problem, next_step="check the path; - reads standard input") from None


def _placed(error: FieldError, source: str, *, several: bool) -> FieldError:
    """With several files an error says in which."""
    if not several or error.object == escape(source):
        return error
    return replace(error, object=f"{safe(source)}: {error.object}")


def _in_namespace(session: Session, item: Any, errors: list[FieldError]) -> Any:
    """The object in the namespace that -n says, unless it names one itself; both must not disagree."""
    from tenure.api.validate import NAMESPACED, check_rules, object_name

    if item.kind not in NAMESPACED:
        return item
    given = item.metadata.namespace
    if given and session.namespace is not None and given != session.namespace:
        errors.append(
            FieldError(
                object=object_name(item.kind, given, item.metadata.name), path="metadata.namespace", value=given,
                problem=f"-n says {escape(session.namespace)}", fix="leave one of them out",
            )
        )  # fmt: skip
    placed = replace(item, metadata=replace(item.metadata, namespace=given or session.place))
    if not given:
        faults = Faults(object_name(item.kind, session.place, item.metadata.name))
        check_rules(placed, faults, simulated=False)
        errors += faults.errors
    return placed


def _check_unique(objects: list[Any], errors: list[FieldError]) -> None:
    from tenure.api.validate import object_name

    seen: set[tuple[str, str, str]] = set()
    for item in objects:
        named = item.kind, item.metadata.namespace, item.metadata.name
        if named in seen:
            errors.append(
                FieldError(object=object_name(*named), path="", problem="given twice", fix="keep one of them")
            )
        seen.add(named)
