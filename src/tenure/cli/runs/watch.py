"""`watch`: runs as they change. A terminal is redrawn in place; a pipe gets a line for each event.

Nothing is busy: the fleet's file is asked for its change counter ten times a second, and is only read when that has
moved.
"""

from __future__ import annotations

import sys
from collections import deque
from collections.abc import Callable
from typing import Any

import click

from tenure.cli import events
from tenure.cli.exits import Exit
from tenure.cli.lookup import find
from tenure.cli.output import Column, Format, Table, rich_table, to_json_line
from tenure.cli.port import Follower, RunLine, View
from tenure.cli.runs.list import table, why
from tenure.cli.session import Session, output, verb
from tenure.cli.terminal import hint, is_terminal, say
from tenure.cli.words import plural, safe, stamp
from tenure.ledger import Note

REDRAW_EVERY = 1.0
"""Seconds after which a screen is drawn anew though nothing happened: ages grow."""
EVENTS_SHOWN = 8


@verb("watch", "Follow runs as they change.", listing=True)
@click.argument("run", required=False, metavar="[RUN]")
@output("table", "json")
def command(session: Session, output: Format, run: str | None) -> Exit:
    """Follow runs as they change, until Ctrl-C; with RUN, until that run is over.

    On a terminal the list is redrawn in place, with the latest events below. In a pipe, and with -o json, each
    event is a line: first how every run stands, and since when, then what happens.

    JSON: a line for each event, {"at", "kind", "object", "reason", "message"}.
    """
    with session.fleet() as fleet:
        follower = fleet.follow()
        line = find(session, follower.view(), run) if run else None
        watched = _Watched(session, line)
        if not fleet.driven and not watched.over(follower.view()):
            say(f"nothing drives this fleet, so nothing changes by itself: {fleet.drive_command}")
        try:
            if is_terminal() and output == "table":
                _redraw(watched, follower)
            else:
                _print_lines(watched, follower, output)
        except KeyboardInterrupt:
            say("")
    if line is not None:
        hint(session.about("describe", line.namespace, line.name))
    return Exit.OK


class _Watched:
    """Which runs, and whether there is anything left to wait for."""

    def __init__(self, session: Session, line: RunLine | None) -> None:
        self.session, self.line = session, line
        self.promised = ""
        """The reservation that the run had last: what happens to it concerns who watches the run."""

    def lines(self, view: View) -> list[RunLine]:
        if self.line is None:
            return view.lines(self.session.scope)
        now = view.line(self.line.namespace, self.line.name)
        if (promised := view.reservation(self.line.namespace, self.line.name)) is not None:
            self.promised = f"Reservation/{promised.key}"
        return [] if now is None else [now]

    def over(self, view: View) -> bool:
        return self.line is not None and all(line.over for line in self.lines(view))

    def concerns(self, note: Note) -> bool:
        """Events of other kinds of objects concern everybody."""
        kind, _, rest = note.object.partition("/")
        if self.line is not None:
            return note.object in (f"Run/{self.line.key}", self.promised)
        return kind not in ("Run", "Reservation") or self.session.scope in (None, rest.partition("/")[0])


def _print_lines(watched: _Watched, follower: Follower, output: Format) -> None:
    put = _put_json if output == "json" else _put_text
    view = follower.view()
    for line in watched.lines(view):
        put(
            Note(
                seq=0,
                at=follower.since(line),
                kind=line.phase,
                object=f"Run/{line.key}",
                reason=line.reason,
                message=why(line, view),
            )
        )
    sys.stdout.flush()
    while not watched.over(follower.view()):
        for note in follower.wait(REDRAW_EVERY) or ():
            if watched.concerns(note):
                put(note)
        sys.stdout.flush()


def _put_text(note: Note) -> None:
    print(events.line(note.at, note.kind, note.object, note.message))


def _put_json(note: Note) -> None:
    print(to_json_line(events.record(note)))


def _redraw(watched: _Watched, follower: Follower) -> None:
    """Draw, wait for a change or a second, draw again over it."""
    from rich.console import Console
    from rich.live import Live

    latest: deque[Note] = deque(maxlen=EVENTS_SHOWN)
    console = Console(highlight=False, markup=False, emoji=False)
    with Live(console=console, auto_refresh=False, vertical_overflow="ellipsis") as live:
        draw: Callable[[], None] = lambda: live.update(_screen(watched, follower.view(), latest), refresh=True)  # noqa: E731
        draw()
        while not watched.over(follower.view()):
            latest.extend(note for note in follower.wait(REDRAW_EVERY) or () if watched.concerns(note))
            draw()


def _screen(watched: _Watched, view: View, latest: deque[Note]) -> Any:
    from rich.console import Group
    from rich.text import Text

    lines = watched.lines(view)
    many = watched.session.all_namespaces
    likely = view.estimates() if any(line.phase == "Pending" for line in lines) else {}
    shown = table(lines, view, likely, all_namespaces=many).narrowed(wide=False)
    listed: Any = rich_table(shown) if lines else Text("no runs")
    running = sum(line.phase == "Running" for line in lines)
    held = plural(sum(line.held for line in lines), "GPU")
    waiting = sum(line.phase == "Pending" for line in lines)
    state = f"{plural(len(lines), 'run')}, {running} running, {waiting} waiting, {held} held. Ctrl-C ends."
    happened = Table((Column("LATEST EVENTS"),), [[_event(note)] for note in latest])
    return Group(listed, Text(""), *([rich_table(happened), Text("")] if latest else []), Text(state, style="dim"))


def _event(note: Note) -> str:
    return f"{stamp(note.at)[11:]}  {note.kind:10}  {safe(note.object)}  {note.message}"
