"""`story`: the life of a run, from its submission to its end, in plain sentences."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from tenure.cli.lookup import run_argument, unknown
from tenure.cli.output import Cell, Format, Table, columns, phase, section, show
from tenure.cli.session import Session, output, verb
from tenure.cli.telling import Life, lives
from tenure.cli.words import span, stamp
from tenure.units import format_time


@verb("story", "Tell the life of a run, from its submission to its end.", namespaced=True)
@run_argument
@output("table", "json", "yaml", "name")
def command(session: Session, output: Format, run: str) -> None:
    """Tell the life of a run, from its submission to its end: why it waited, what it was promised and why that moved,
    where it started and who paid, when somebody else paid from then on, how it grew, was swapped or was cut, and how it
    ended.

    All of it comes from the ledger, so it is there for runs that were deleted, too. Where several runs had the same
    name, each is told by itself.

    JSON: {"run", "incarnations": [{"uid", "owner", "submitted", "events": [{"at", "entry", "event", "text"}]}]}.
    Names: the events.
    """
    namespace, name = session.key(run)
    with session.fleet() as fleet:
        view = fleet.view()
        told = lives(fleet, namespace, name, now=view.now)
        if not told:
            raise unknown(session, view, namespace, name)
    show(
        output,
        tables=lambda: _parts(namespace, name, told),
        data=lambda: {"run": f"{namespace}/{name}", "incarnations": [_record(one) for one in told]},
        names=lambda: (event.kind for one in told for event in one.events),
        hint=session.about("explain", namespace, name) + " --history",
    )


def _parts(namespace: str, name: str, told: list[Life]) -> Iterator[Table | str]:
    for index, one in enumerate(told):
        title = section(f"Run/{namespace}/{name}, of {one.run.owner}, submitted {stamp(one.run.submitted)}")
        yield title if index else title.lstrip()
        rows: list[list[Cell]] = [
            [stamp(event.at), f"+{span(event.at - one.run.submitted)}", phase(event.kind), event.text]
            for event in one.events
        ]
        yield Table(columns("AT", ">AFTER", "EVENT", "STORY"), rows)
        if one.used:
            yield f"It used {one.used}."


def _record(one: Life) -> dict[str, Any]:
    return {
        "uid": one.run.uid,
        "owner": one.run.owner,
        "submitted": format_time(one.run.submitted),
        "events": [event.record() for event in one.events],
    }
