"""`plan`: what would happen, with exit codes that a script can rely on."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from tenure.api.meta import to_wire
from tenure.cli import choices, queued
from tenure.cli.exits import Exit
from tenure.cli.explaining import cover_parts, needed, payers, placement_parts, places, remedy, verdict_record
from tenure.cli.lookup import other_flavor
from tenure.cli.manifests import files, read_objects
from tenure.cli.output import Format, Table, fields, show
from tenure.cli.port import Planned
from tenure.cli.promised import odds, planned
from tenure.cli.session import Session, output, verb
from tenure.cli.terminal import paint
from tenure.cli.trouble import Trouble, invalid
from tenure.cli.words import some
from tenure.engine import render
from tenure.engine.reasons import sentence
from tenure.facts import Verdict
from tenure.units import Instant, format_time

_EXITS = {"start": Exit.OK, "wait": Exit.WOULD_WAIT, "never": Exit.NEVER}
_WORDS = {
    "start": ("would start now", "good"),
    "wait": ("would wait", "wait"),
    "never": ("can never start as things are", "bad"),
}


@verb("plan", "Say what would happen to runs, and change nothing.", namespaced=True)
@files
@output("table", "wide", "json", "yaml", "name")
def command(session: Session, output: Format, filenames: tuple[str, ...], more: tuple[str, ...]) -> Exit:
    """Say what would happen to runs, and change nothing.

    All objects of the files are taken together, behind the runs that wait already: who would pay, on which
    machines, or why not (-o wide prints the whole search). The exit code is that of the run that fares worst: 0 it
    would start now, 3 it would wait, 4 it can never start as things are.

    A run that would wait is told when it would start, where and who would pay, on what that rests, who would have to
    give way with which odds, and what else could be asked for: narrower, elsewhere, with a sponsor's money, without
    spares, shorter, or later; each with its start and its cost.

    \b
    kubectl runs plan -f run.yaml && kubectl runs submit -f run.yaml

    JSON: {"runs": [{"run", "outcome", "plannedStart", "verdict", "leases", "reservation", "queue", "estimate",
    "restsOn", "alternatives"}]}.
    Names: the runs that would start.
    """
    objects = read_objects(session, "plan", filenames, more)
    if not any(item.kind == "Run" for item in objects):
        raise Trouble("there is no Run in these files", next_step="name a file with a Run in it")
    with session.fleet() as fleet:
        told = fleet.rehearse(objects)
        view = fleet.view()
        now = view.now
        others = {one.line.key: other_flavor(view, one.line.flavor) for one in told.runs}
    if told.refused:
        raise invalid(told.refused, next_step="mend what is listed above; submit would refuse it too")
    show(
        output,
        tables=lambda: _parts(session, told.runs, others, now=now, wide=output == "wide"),
        data=lambda: {"runs": [_record(one, now) for one in told.runs]},
        names=lambda: (one.line.key for one in told.runs if one.verdict and one.verdict.outcome == "start"),
        hint=_hint(session, told.runs),
    )
    return max((_EXITS[one.verdict.outcome] for one in told.runs if one.verdict), default=Exit.OK)


def _parts(
    session: Session, runs: tuple[Planned, ...], others: dict[str, str], *, now: Instant, wide: bool
) -> Iterator[Table | str]:
    for one in runs:
        name, verdict = f"Run/{one.line.key}", one.verdict
        if verdict is None:
            yield f"{name} is {one.line.phase} already: {one.line.message}"
            continue
        words, style = _WORDS[verdict.outcome]
        yield f"{name} {paint(words, style)}"
        yield _indented(fields([*_facts(session, one, verdict, now), ("Machines", others[one.line.key])]))
        yield from choices.parts(one.alternatives, now=now)
        if wide:
            yield from cover_parts(verdict)
            yield from placement_parts(verdict, need=needed(verdict, one.line))


def _facts(session: Session, one: Planned, verdict: Verdict, now: Instant) -> Iterator[tuple[str, str]]:
    if verdict.outcome == "start":
        yield "GPUs", f"{verdict.width} {one.line.flavor}"
        yield "Where", some(places(one.leases), 8) + f" in {some(list(verdict.domains))}"
        yield "Paid by", some(payers(verdict.segments))
    elif verdict.headline is not None:
        yield "Why", f"{sentence(verdict.headline)} [{verdict.headline.code}]"
        yield from queued.facts(one.line.queue, one.estimate if one.reservation is None else None, now)
        if one.reservation is not None:
            yield from planned(one.reservation, now, one.rests, one.estimate)
            yield "Odds", odds(one.reservation.forecast.odds)
        yield "Helps", remedy(session, verdict.headline, never=verdict.outcome == "never")


def _indented(text: str) -> str:
    return "\n".join(f"  {line}" for line in text.splitlines())


def _record(one: Planned, now: Instant) -> dict[str, Any]:
    return {
        "run": one.line.key,
        "outcome": one.verdict.outcome if one.verdict else "exists",
        "verdict": verdict_record(one.verdict) if one.verdict else None,
        "plannedStart": None if one.line.planned is None else format_time(one.line.planned),
        "leases": [to_wire(render.lease(lease)) for lease in one.leases],
        "reservation": None if one.reservation is None else to_wire(render.reservation(None, one.reservation, now=now)),
        "queue": to_wire(one.line.queue) if one.line.queue else None,
        "estimate": to_wire(one.estimate) if one.estimate else None,
        "restsOn": [choices.rest_record(rest) for rest in one.rests],
        "alternatives": [choices.record(other, now=now) for other in one.alternatives],
    }


def _hint(session: Session, runs: tuple[Planned, ...]) -> str:
    if all(one.verdict is None or one.verdict.outcome == "start" for one in runs):
        return session.command("submit", "-f", "...")
    return "add -o wide for the whole search"
