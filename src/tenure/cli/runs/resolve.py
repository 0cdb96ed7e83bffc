"""`resolve`: an operator has others give way now to a run that waits, or asks who would."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import click

from tenure.api.meta import to_wire
from tenure.cli.exits import Exit
from tenure.cli.explaining import payers, reason_record, remedy
from tenure.cli.lookup import find, run_argument, unknown
from tenure.cli.output import Cell, Format, Table, columns, fields, section, show
from tenure.cli.port import Fleet, Made, RunLine
from tenure.cli.promised import percent, where
from tenure.cli.session import Session, output, verb
from tenure.cli.terminal import paint
from tenure.cli.trouble import Trouble
from tenure.cli.words import plural, some
from tenure.engine.reasons import sentence
from tenure.engine.remedies import did, would
from tenure.facts import Cut, Reason, Slice
from tenure.units import format_time

if TYPE_CHECKING:
    from tenure.engine.asked import Room


@verb("resolve", "Have others give way now to a run that waits.", namespaced=True)
@run_argument
@click.option("--dry-run", is_flag=True, help="Only say who would give way; nothing is changed.")
@output("table", "json", "yaml", "name")
def command(session: Session, output: Format, run: str, dry_run: bool) -> Exit:
    """Have others give way now to a run that waits and has a reservation, without waiting for its planned start.

    The resolver does what it would do at the planned start: opportunistic work on spares and overstayed backfill go
    first, then spares, then elastic runs shrink, then whole runs are drawn by lot; only where the run is to go, in this
    order, and no more than it takes. A draw is frozen first, and nobody is cut before its custodians have revealed.
    What was promised to others before is not touched, and nothing is cut at all if it would not be enough.

    \b
    kubectl runs resolve rai/train --dry-run  # who would give way, and the odds
    kubectl runs resolve rai/train

    JSON: {"run", "dryRun", "declined", "subject", "deficitGPUs", "freedGPUs", "cuts": [{"kind", "run", "owner", "gpus",
    "text"}], "tokens": [{"id", "owner", "gpus", "cutProbability"}], "plan", "started"}. Names: the runs that give way,
    or are in the draw. The exit code is 6 if room cannot be made: then `declined` says why, and nothing was changed.
    """
    with session.fleet(write=not dry_run) as fleet:
        line = find(session, fleet.view(), run)
        if not line.taken:
            raise unknown(session, fleet.view(), line.namespace, line.name)
        if dry_run:
            found = fleet.room_for(line.key)
            if isinstance(found, Reason):
                return _declined(session, output, line, found, dry_run=True)
            show(
                output,
                tables=lambda: _would(line, found),
                data=lambda: _room_record(line, found),
                names=lambda: (*(cut.run for cut in found.cuts), *(token.id for token in found.tokens)),
                hint=session.about("resolve", line.namespace, line.name),
            )
            return Exit.OK
        _check_driven(fleet)
        made = fleet.make_room(line.key)
        if made.declined is not None:
            return _declined(session, output, line, made.declined, dry_run=False)
        after = fleet.view().line(line.namespace, line.name) or line
        plan = fleet.view().reservation(line.namespace, line.name)
        show(
            output,
            tables=lambda: _did(session, after, made),
            data=lambda: _made_record(after, made, None if plan is None else plan.plan),
            names=lambda: (
                *(cut.run for cut in (made.resolved.cuts if made.resolved else ())),
                *(token.id for token in (made.froze.intent.tokens if made.froze else ())),
            ),
            hint=session.about("watch", line.namespace, line.name),
        )
    return Exit.OK


def _check_driven(fleet: Fleet) -> None:
    if not fleet.driven:
        problem = "nothing drives this fleet: nobody would leave, and nothing would start"
        raise Trouble(problem, next_step=f"{fleet.drive_command}, or add --dry-run", exit=Exit.REFUSED)


def _declined(session: Session, output: Format, line: RunLine, reason: Reason, *, dry_run: bool) -> Exit:
    """Room cannot be made: told as a refusal, to people and to programs."""
    if output not in ("json", "yaml"):
        step = remedy(session, reason) or session.about("explain", line.namespace, line.name)
        raise Trouble(sentence(reason).rstrip("."), next_step=step, exit=Exit.REFUSED)
    record = {"run": line.key, "dryRun": dry_run, "declined": reason_record(reason)}
    show(output, tables=lambda: (), data=lambda: record, names=lambda: ())
    return Exit.REFUSED


# --- who would ------------------------------------------------------------------------------------------------------


def _would(line: RunLine, room: Room) -> Iterator[Table | str]:
    if not room.cuts and not room.tokens:
        yield f"Run/{line.key} {paint('could start now', 'good')}: nobody has to give way"
    else:
        yield f"Run/{line.key} {paint('could start when others have given way', 'wait')}; nothing was changed"
    yield fields(_room_facts(room))
    if room.cuts:
        yield section("Who would give way, in this order")
        yield _cuts(room.cuts)
    if room.tokens:
        yield section(f"Who would be in the draw: {plural(len(room.tokens), 'run')}")
        yield _tokens(room)


def _room_facts(room: Room) -> Iterator[tuple[str, str]]:
    plan = room.plan
    yield "For", room.subject
    yield "Missing", plural(room.deficit, "GPU")
    yield "Frees", f"{plural(room.freed, 'GPU')}{' at least, as the draw falls' if room.tokens else ''}"
    yield "Then", f"{plural(plan.width, 'GPU')} on {some([share.node for share in plan.shares])} of {some(where(plan))}"
    yield "Paid by", some(payers(plan.segments))


def _cuts(cuts: tuple[Cut, ...]) -> Table:
    rows: list[list[Cell]] = [
        [str(place), cut.kind, cut.run, cut.owner, str(cut.gpus), would(cut)] for place, cut in enumerate(cuts, 1)
    ]
    return Table(columns(">ORDER", "KIND", "RUN", "OWNER", ">GPUS", "WHAT"), rows)


def _tokens(room: Room) -> Table:
    rows: list[list[Cell]] = [
        [token.id, token.owner, str(token.gpus), percent(float(room.odds.get(token.id, "0")))] for token in room.tokens
    ]
    return Table(columns("RUN", "OWNER", ">GPUS", ">ODDS"), rows)


def _room_record(line: RunLine, room: Room) -> dict[str, Any]:
    return {
        "run": line.key,
        "dryRun": True,
        "declined": None,
        "subject": room.subject,
        "deficitGPUs": room.deficit,
        "freedGPUs": room.freed,
        "cuts": [_cut_record(cut, would(cut)) for cut in room.cuts],
        "tokens": [
            {"id": one.id, "owner": one.owner, "gpus": one.gpus, "cutProbability": room.odds.get(one.id, "0")}
            for one in room.tokens
        ],
        "plan": _plan_record(room.plan),
        "started": False,
    }


def _cut_record(cut: Cut, text: str) -> dict[str, Any]:
    return {"kind": cut.kind, "run": cut.run, "owner": cut.owner, "gpus": cut.gpus, "text": text}


def _plan_record(plan: Slice) -> dict[str, Any]:
    return {
        "start": None if plan.start is None else format_time(plan.start),
        "gpus": plan.width,
        "nodes": [{"name": share.node, "gpus": share.gpus} for share in plan.shares],
        "domains": list(plan.domains),
        "payers": [to_wire(one) for one in plan.segments],
    }


# --- who did --------------------------------------------------------------------------------------------------------


def _did(session: Session, line: RunLine, made: Made) -> Iterator[Table | str]:
    name = f"Run/{line.key}"
    if made.froze is not None:
        tokens = made.froze.intent.tokens
        beacons = some([beacon.id for beacon in made.froze.intent.beacons])
        yield f"{name}: a draw among {plural(len(tokens), 'run')} is frozen; {beacons} will reveal who gives way"
        yield f"afterwards, check it: {session.command('verify', made.froze.subject)}"
        return
    for cut in made.resolved.cuts if made.resolved else ():
        yield did(cut)
    if line.held:
        yield f"{name} {paint('starts', 'good')}" + ("" if made.resolved else ": nobody had to give way")
    else:
        yield f"{name} {paint('starts when these have left', 'wait')}; their place is held for it"


def _made_record(line: RunLine, made: Made, plan: Slice | None) -> dict[str, Any]:
    done, froze = made.resolved, made.froze
    return {
        "run": line.key,
        "dryRun": False,
        "declined": None,
        "subject": froze.subject if froze else done.subject if done else None,
        "deficitGPUs": froze.intent.deficit if froze else done.deficit if done else 0,
        "freedGPUs": sum(cut.gpus for cut in done.cuts) if done else 0,
        "cuts": [_cut_record(cut, did(cut)) for cut in done.cuts] if done else [],
        "tokens": [{"id": one.id, "owner": one.owner, "gpus": one.gpus} for one in froze.intent.tokens]
        if froze
        else [],
        "plan": None if plan is None else _plan_record(plan),
        "started": bool(line.held),
    }
