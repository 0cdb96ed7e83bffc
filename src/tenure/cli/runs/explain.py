"""`explain`: why a run waits, computed now; or why it started as it did, as it was recorded then."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import click
from msgspec import Struct

from tenure.cli.explaining import cover_parts, needed, payers, placement_parts, remedy, summary, verdict_record
from tenure.cli.lookup import run_argument, unknown
from tenure.cli.output import Cell, Format, Table, columns, fields, phase, show
from tenure.cli.port import Fleet, RunLine, View
from tenure.cli.session import Session, output, verb
from tenure.cli.terminal import paint
from tenure.cli.words import age, moment, safe, some, stamp
from tenure.engine.reasons import sentence
from tenure.facts import Verdict
from tenure.ledger import Decision
from tenure.units import Instant, format_time

_WORDS = {"start": ("starts", "good"), "wait": ("waits", "wait"), "never": ("can never start as things are", "bad")}


_EVENTS = {"start": "Admitted", "wait": "Waiting", "never": "Blocked"}


class _Answer(Struct, frozen=True, kw_only=True):
    """A verdict, and where it comes from."""

    key: str
    line: RunLine | None
    verdict: Verdict
    at: Instant
    recorded: bool
    seq: int | None = None


@verb("explain", "Say why a run waits, or why it started as it did.", namespaced=True)
@run_argument
@click.option("--cover", is_flag=True, help="Only who could pay.")
@click.option("--placement", is_flag=True, help="Only where it could go.")
@click.option("--recorded", is_flag=True, help="The decision in the ledger, also for a run that waits.")
@click.option("--history", is_flag=True, help="Every decision that was recorded about it.")
@output("table", "json", "yaml", "name")
def command(
    session: Session, output: Format, run: str, cover: bool, placement: bool, recorded: bool, history: bool
) -> None:
    """Say why a run waits, or why it started as it did.

    The whole search: every envelope that was visited, in which tier, what it offered, what was taken and why not
    more; every place that was tried and how it fell out. For a run that waits it is computed now, by a dry run; for
    one that started, is over, or was deleted, it is what was recorded then.

    JSON: {"run", "at", "recorded", "verdict"}; with --history {"run", "decisions": [...]}. Names: the reason's code.
    """
    namespace, name = session.key(run)
    with session.fleet() as fleet:
        view = fleet.view()
        line = view.line(namespace, name)
        decisions = fleet.decisions(namespace, name)
        if line is None and not decisions:
            raise unknown(session, view, namespace, name)
        if history:
            _show_history(session, output, f"{namespace}/{name}", decisions, view)
            return
        answer = _answer(fleet, view, line, f"{namespace}/{name}", decisions, recorded=recorded)
        show(
            output,
            tables=lambda: _parts(session, fleet, view, answer, cover=cover, placement=placement),
            data=lambda: _record(answer),
            names=lambda: [answer.verdict.headline.code if answer.verdict.headline else "Admitted"],
            hint=_hint(session, namespace, name, answer),
        )


def _answer(
    fleet: Fleet, view: View, line: RunLine | None, key: str, decisions: list[Decision], *, recorded: bool
) -> _Answer:
    waits = line is not None and line.phase == "Pending" and not line.held and not line.stopping
    if (waits and not recorded) or not decisions:
        planned = fleet.rehearse(only=key).runs[0]
        assert planned.verdict is not None, "a waiting run has a verdict"
        return _Answer(key=key, line=line, verdict=planned.verdict, at=view.now, recorded=False)
    started = [one for one in decisions if one.verdict.outcome == "start"]
    chosen = (started if started and not waits else decisions)[0]
    return _Answer(key=key, line=line, verdict=chosen.verdict, at=chosen.at, recorded=True, seq=chosen.seq)


def _parts(
    session: Session, fleet: Fleet, view: View, answer: _Answer, *, cover: bool, placement: bool
) -> Iterator[Table | str]:
    verdict, line = answer.verdict, answer.line
    yield _title(fleet, answer)
    yield fields(_facts(session, view, answer))
    if not cover and not placement:
        cover = placement = True
    if cover:
        yield from cover_parts(verdict)
    if placement:
        yield from placement_parts(verdict, need=needed(verdict, line))


def _title(fleet: Fleet, answer: _Answer) -> str:
    words, style = _WORDS[answer.verdict.outcome]
    if answer.recorded:
        words = {"start": "started", "wait": "had to wait"}.get(answer.verdict.outcome, words)
    elif not fleet.driven:
        then = words.replace("starts", "would start").replace("waits", "would wait")
        words = f"waits for a driver ({safe(fleet.drive_command)}); if it were driven now, it {then}"
    elif answer.line is not None and answer.line.retry_at is not None:
        words = "waits for its next try"
    return f"Run/{answer.key} {paint(words, style)}"


def _facts(session: Session, view: View, answer: _Answer) -> Iterator[tuple[str, str]]:
    verdict, line = answer.verdict, answer.line
    if verdict.headline is not None:
        yield "Why", f"{sentence(verdict.headline)} [{verdict.headline.code}]"
        yield "Helps", remedy(session, verdict.headline, never=verdict.outcome == "never")
    if verdict.segments:
        yield "GPUs", f"{verdict.width} in {some(list(verdict.domains))}"
        yield "Paid by", some(payers(verdict.segments), 8)
    if line is not None and line.retry_at is not None:
        yield "Last try", line.message
        yield "Next try", moment(line.retry_at, view.now)
    source = f"recorded in entry {answer.seq}, {moment(answer.at, view.now)}" if answer.recorded else "computed now"
    yield "Decision", source + (f", plan {verdict.plan_hash[:12]}" if verdict.plan_hash else "")
    if line is None:
        yield "Now", "the run was deleted"
    elif line.phase != "Pending":
        yield "Now", f"{line.phase}: {line.message}"


def _record(answer: _Answer) -> dict[str, Any]:
    return {
        "run": answer.key,
        "at": format_time(answer.at),
        "recorded": answer.recorded,
        "verdict": verdict_record(answer.verdict),
    }


def _hint(session: Session, namespace: str, name: str, answer: _Answer) -> str:
    if answer.verdict.outcome == "start":
        return session.about("who-pays", namespace, name)
    code = answer.verdict.headline.code if answer.verdict.headline else ""
    machines = code in ("NoCapacity", "Fragmented", "SpreadForbidden", "TooLarge", "NoNodes")
    return session.command("nodes", "--slots") if machines else session.command("budgets", "usage")


def _show_history(session: Session, output: Format, key: str, decisions: list[Decision], view: View) -> None:
    rows: list[list[Cell]] = [
        [
            stamp(one.at), age(one.at, view.now), str(one.seq), phase(_EVENTS[one.verdict.outcome]),
            one.verdict.headline.code if one.verdict.headline else "Admitted", summary(one.verdict),
        ]
        for one in reversed(decisions)
    ]  # fmt: skip
    table = Table(
        columns("AT", ">AGO", ">ENTRY", "OUTCOME", "REASON", "MESSAGE"), rows, f"no decision about Run/{key} yet"
    )
    show(
        output,
        tables=lambda: [table],
        data=lambda: {"run": key, "decisions": list(map(_decision_record, decisions))},
        names=lambda: [str(one.seq) for one in decisions],
        hint=session.command("explain", key, "--recorded"),
    )


def _decision_record(one: Decision) -> dict[str, Any]:
    return {"at": format_time(one.at), "entry": one.seq, "verdict": verdict_record(one.verdict)}
