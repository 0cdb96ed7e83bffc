"""`tenure notify`: how far each receiver of notifications has come, and what it would not take."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import click

from tenure.cli.exits import Exit
from tenure.cli.manifests import read_text
from tenure.cli.output import Cell, Format, Table, columns, section, show
from tenure.cli.server.fleets import fleet_argument
from tenure.cli.session import output
from tenure.cli.terminal import hint
from tenure.cli.trouble import Trouble, invalid
from tenure.cli.words import plural, stamp
from tenure.ledger import Ledger
from tenure.notify import DeadLetter, NotifyConfig, Outbox, ReceiverState, missing, read_notify
from tenure.notify.outbox import COUNTED_MAX
from tenure.notify.progress import Lag

SHOWN = 20
"""Dead letters shown for each receiver, the newest first."""


def read_receivers(name: str) -> NotifyConfig:
    """The receivers that a notify file names; trouble if it is not right, or not yet."""
    folder = Path() if name == "-" else Path(name).parent
    config, errors = read_notify(read_text(name), source=name, folder=folder)
    if config is None:
        raise invalid(errors, next_step=f"mend {name} and try again; docs/guide/notifications.md explains every field")
    if absent := missing(config, environ=os.environ, source=name):
        raise invalid(absent, next_step="provide what is listed above and try again")
    return config


@click.group("notify", short_help="Show how notifications fare, or send dead letters again.")
def command() -> None:
    """Show how notifications fare, or send dead letters again. `tenure up --notify NOTIFY.YAML` delivers them."""


@command.command("status", short_help="Show how far each receiver has come.")
@fleet_argument
@output("table", "json", "yaml", "name")
def status(file: Path, output: Format, anchor: Path | None) -> None:
    """Show how far each receiver has come, what it waits for, and its dead letters: events that it refused for good.

    JSON: {"receivers": [{"name", "sent", "behind", "fails", "nextTry", "problem", "lagging": [{"object", "entry",
    "tries", "nextTry", "problem"}], "deadLetters", "dead": [{"entry", "index", "kind", "object", "at", "refusals",
    "problem"}]}]}.
    """
    with Ledger.open(file, readonly=True, anchor=anchor) as ledger:
        outbox = Outbox(ledger)
        found = [(state, outbox.dead_letters(state.name, limit=SHOWN)) for state in outbox.states()]
    dead = [letter for _, letters in found for letter in letters]
    show(
        output,
        tables=lambda: _tables([state for state, _ in found], dead),
        data=lambda: {"receivers": [_record(state, letters) for state, letters in found]},
        names=lambda: [state.name for state, _ in found],
        hint=f"tenure notify retry {file} {dead[0].receiver}" if dead else "",
    )


@command.command("retry", short_help="Have a receiver's dead letters sent again.")
@fleet_argument
@click.argument("receiver")
def retry(file: Path, receiver: str, anchor: Path | None) -> Exit:
    """Have a receiver's dead letters sent again, once each, by the driver that runs or the next one.

    They come late, and out of the order of their objects; their `sequence` tells where they belong.
    """
    with Ledger.open(file, anchor=anchor) as ledger:
        outbox = Outbox(ledger)
        names = [state.name for state in outbox.states()]
        if receiver not in names:
            step = f"there are {', '.join(names)}" if names else "none was ever named to `tenure up --notify`"
            raise Trouble(f"there is no receiver {receiver}", next_step=step, exit=Exit.NOT_FOUND)
        count = outbox.revive(receiver)
    print(f"{plural(count, 'event')} will be sent to {receiver} again")
    hint(f"tenure notify status {file}")
    return Exit.OK


def _tables(states: list[ReceiverState], dead: list[DeadLetter]) -> Iterator[Table | str]:
    yield _receivers(states)
    if dead:
        yield section("Dead letters")
        yield _dead(dead)


def _receivers(states: list[ReceiverState]) -> Table:
    rows: list[list[Cell]] = [
        [
            state.name,
            _word(state),
            str(state.progress.sent),
            _behind(state),
            str(len(state.progress.lags)),
            (str(state.dead), "bad" if state.dead else ""),
            _problem(state),
        ]
        for state in states
    ]
    empty = "no receiver was ever named: tenure up FILE --notify NOTIFY.YAML"
    return Table(columns("RECEIVER", "STATE", ">SENT", ">BEHIND", ">LAGGING", ">DEAD", "PROBLEM"), rows, empty)


def _word(state: ReceiverState) -> Cell:
    if state.progress.fails:
        return "away", "bad"
    return ("lags", "wait") if state.progress.lags else ("well", "good")


def _behind(state: ReceiverState) -> str:
    return f"{state.behind}+" if state.behind >= COUNTED_MAX else str(state.behind)


def _problem(state: ReceiverState) -> str:
    """What the receiver, or else its oldest object, waits for."""
    progress = state.progress
    if progress.fails:
        return f"{progress.why}; {progress.fails} times; next try {stamp(progress.not_before)}"
    if progress.lags:
        lag = progress.lags[0]
        return f"{lag.object}: {lag.why or 'is catching up'}; next try {stamp(lag.not_before)}"
    return "-"


def _dead(letters: list[DeadLetter]) -> Table:
    rows: list[list[Cell]] = [
        [one.receiver, str(one.seq), stamp(one.at), one.kind, one.object, f"{one.why}, {plural(one.refusals, 'time')}"]
        for one in letters
    ]
    return Table(columns("RECEIVER", ">ENTRY", "GIVEN UP", "EVENT", "OBJECT", "PROBLEM"), rows)


def _record(state: ReceiverState, letters: list[DeadLetter]) -> dict[str, Any]:
    progress = state.progress
    return {
        "name": state.name,
        "sent": progress.sent,
        "behind": state.behind,
        "fails": progress.fails,
        "nextTry": stamp(progress.not_before) if progress.fails else None,
        "problem": progress.why,
        "lagging": [_lag_record(lag) for lag in progress.lags],
        "deadLetters": state.dead,
        "dead": [_dead_record(letter) for letter in letters],
    }


def _lag_record(lag: Lag) -> dict[str, Any]:
    waits = {"tries": lag.tries, "nextTry": stamp(lag.not_before), "problem": lag.why}
    return {"object": lag.object, "entry": lag.seq, **waits}


def _dead_record(letter: DeadLetter) -> dict[str, Any]:
    what = {"entry": letter.seq, "index": letter.idx, "kind": letter.kind, "object": letter.object}
    return {**what, "at": stamp(letter.at), "refusals": letter.refusals, "problem": letter.why}
