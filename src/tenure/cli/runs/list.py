"""`list`: the runs there are, one a line."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import click

from tenure.cli.lookup import everywhere
from tenure.cli.output import Cell, Format, Table, columns, listing, phase, show
from tenure.cli.queued import standing
from tenure.cli.session import Session, output, verb
from tenure.cli.words import age, plural, stamp

TYPE_CHECKING = False
if TYPE_CHECKING:
    from tenure.api.run import Estimate
    from tenure.cli.port import RunLine, View

PHASES = ("Pending", "Running", "Completed", "Failed")
SHOWN = ("Blocked", "Stopping")
"""What the list says in the place of a phase: waiting in vain, and on its way out."""
_ORDER: dict[str, Callable[[RunLine], Any]] = {
    "name": lambda line: (line.namespace, line.name),
    "age": lambda line: (-(line.created or 0), line.namespace, line.name),
    "oldest": lambda line: (line.created or 0, line.namespace, line.name),
    "gpus": lambda line: (-line.gpus, line.namespace, line.name),
    "owner": lambda line: (line.owner, line.namespace, line.name),
    "phase": lambda line: (PHASES.index(line.phase), line.namespace, line.name),
}


@verb("list", "List runs.", listing=True)
@click.option(
    "--phase",
    "wanted",
    type=click.Choice((*PHASES, *SHOWN), case_sensitive=False),
    multiple=True,
    help="Only runs in this phase, as the list shows it; Pending is every run that waits.",
)
@click.option("--owner", metavar="OWNER", help="Only runs of this owner and of owners below it.")
@click.option(
    "--sort",
    type=click.Choice(tuple(_ORDER)),
    default="name",
    show_default=True,
    help="By what to sort; age: the youngest first, oldest: the oldest; gpus: the largest.",
)
@output()
def command(session: Session, output: Format, wanted: tuple[str, ...], owner: str | None, sort: str) -> None:
    """List runs.

    WHY says how a run waits, and what became of one that is over. Of one that waits: by when its start is promised, or
    its place among those without a promise, how many are ahead of it and whether machines or money are short; and when
    it is likely to start, by half and by nine tenths of the chances (UTC). STARTS-IN is how long until the start that
    its reservation plans: now if it is due, none if no start is in sight. -o wide adds attempts and times.

    JSON: a List of Run objects, whole. Names: NAMESPACE/NAME.
    """
    with session.fleet(brief=output in ("table", "name")) as fleet:
        view = fleet.view()
        lines = [
            line
            for line in view.lines(session.scope)
            if (not wanted or line.phase in wanted or _shown(line) in wanted)
            and (owner is None or _is_under(line.owner, owner))
        ]
        if sort != "name":  # they come by name
            lines.sort(key=_ORDER[sort])
        likely = _likely(session, view, lines, output)
        empty = "" if lines else _empty(session, view)
        show(
            output,
            tables=lambda: [
                table(lines, view, likely, all_namespaces=session.all_namespaces, empty=empty, wide=output == "wide")
            ],
            data=lambda: listing(_objects(lines, view)),
            names=lambda: (line.key for line in lines),
            hint=_hint(session, lines, driven=fleet.driven, drive=fleet.drive_command)
            if output in ("table", "wide")
            else "",
        )


def _likely(session: Session, view: View, lines: list[RunLine], output: Format) -> Mapping[str, Estimate]:
    """When those that wait are likely to start. Of some it is cheaper to ask for these; but who shows whole objects
    asks for each of them again, and all are known then."""
    if output == "name" or not any(line.phase == "Pending" for line in lines):
        return {}
    if session.all_namespaces or output not in ("table", "wide"):
        return view.estimates()
    return view.estimates([line.key for line in lines if line.phase == "Pending"])


def _is_under(owner: str, wanted: str) -> bool:
    return owner == wanted or owner.startswith(f"{wanted}:")


def table(
    lines: list[RunLine], view: View, likely: Mapping[str, Estimate] | None = None, *, all_namespaces: bool,
    empty: str = "", wide: bool = True,
) -> Table:  # fmt: skip
    """Runs as a table; `watch` draws the same. Unless it is ``wide``, columns that are only then shown stay empty."""
    likely = likely or {}
    heads = [
        "NAME",
        "PHASE",
        ">GPUS",
        "OWNER",
        ">AGE",
        "+TYPE",
        "+>ATTEMPT",
        "+>RESTARTS",
        "+CREATED",
        "+STARTED",
        "WHY",
    ]
    promised = any(line.promise for line in lines)
    if promised:
        heads = [*heads[:5], ">STARTS-IN", "+PLANNED", *heads[5:]]
    if all_namespaces:
        heads = ["NAMESPACE", *heads]
    rows: list[list[Cell]] = [
        [
            *((line.namespace,) if all_namespaces else ()), *_first(line, view),
            *(_planned(line, view, wide=wide) if promised else ()), *(_more(line) if wide else _NO_MORE),
            standing(line, likely.get(line.key), view.now) or why(line, view),
        ]
        for line in lines
    ]  # fmt: skip
    return Table(columns(*heads), rows, empty)


def _shown(line: RunLine) -> str:
    """The phase as the list says it."""
    return "Blocked" if line.blocked else "Stopping" if line.stopping else line.phase


def _first(line: RunLine, view: View) -> tuple[Cell, ...]:
    shown = ("Blocked", "bad") if line.blocked else phase(_shown(line))
    return line.name, shown, f"{line.held}/{line.gpus}", line.owner, age(line.created, view.now)


def _more(line: RunLine) -> tuple[Cell, ...]:
    attempt = "-" if line.attempt is None else str(line.attempt)
    return line.flavor, attempt, str(line.restarts), stamp(line.created), stamp(line.started)


_NO_MORE = ("",) * 5


def _planned(line: RunLine, view: View, *, wide: bool) -> tuple[Cell, ...]:
    """When a run that waits is planned to start."""
    if line.planned is None:
        return ("none", "bad") if line.promise else "", "-"
    due = line.promise == "Active" or line.planned <= view.now
    exact = stamp(line.planned) if wide else ""
    return ("now", "good") if due else age(view.now, line.planned), exact


def why(line: RunLine, view: View) -> str:
    """What there is to say about a run."""
    if line.retry_at is not None:
        return f"{line.message.rstrip('.')}. Next try in {age(view.now, line.retry_at)}."
    return line.message or "waits for a driver to look at it"


def _objects(lines: list[RunLine], view: View) -> list[Any]:
    from tenure.api.meta import to_wire

    return [to_wire(view.run(line.namespace, line.name)) for line in lines]


def _empty(session: Session, view: View) -> str:
    elsewhere = len(everywhere(view)) if not session.all_namespaces else 0
    here = "" if session.all_namespaces else f" in namespace {session.place}"
    more = f"; {plural(elsewhere, 'run')} in all namespaces: {session.command('list', '-A')}" if elsewhere else ""
    return f"no runs{here}{more}"


def _hint(session: Session, lines: list[RunLine], *, driven: bool, drive: str) -> str:
    waiting = next((line for line in lines if line.phase == "Pending"), None)
    if not driven and not all(line.over for line in lines):
        return f"nothing drives this fleet: {drive}"
    if waiting is not None:
        return f"why does it wait? {session.about('explain', waiting.namespace, waiting.name)}"
    return (
        session.about("describe", lines[0].namespace, lines[0].name)
        if lines
        else session.command("submit", "-f", "run.yaml")
    )
