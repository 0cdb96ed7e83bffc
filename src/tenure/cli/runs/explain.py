"""`explain`: how a run stands and why, when it starts if it waits, what would help, and what it gave up for others."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import click
from msgspec import Struct

from tenure.api.meta import to_wire
from tenure.api.run import Run
from tenure.cli import choices, gaveway, queued
from tenure.cli.explaining import (
    cover_parts,
    needed,
    payers,
    placement_parts,
    places,
    remedy,
    summary,
    verdict_record,
)
from tenure.cli.lookup import other_flavor, run_argument, unknown
from tenure.cli.output import Cell, Format, Table, columns, fields, phase, show
from tenure.cli.port import Fleet, Planned, RunLine, View
from tenure.cli.promised import odds, planned, risk
from tenure.cli.session import Session, output, verb
from tenure.cli.standing import OUTCOMES, Outcome, held, outcome_of, start_of
from tenure.cli.terminal import paint
from tenure.cli.trouble import invalid
from tenure.cli.words import age, moment, plural, safe, some, stamp
from tenure.engine import render
from tenure.engine.reasons import RULES, is_money, sentence
from tenure.facts import Reason, Reservation, Verdict
from tenure.ledger import Decision, LeaseRow
from tenure.units import Instant, format_time

_EVENTS = {"start": "Admitted", "wait": "Waiting", "never": "Blocked"}


class _Answer(Struct, frozen=True, kw_only=True):
    """How a run stands, and the decision that explains it."""

    key: str
    line: RunLine | None
    outcome: Outcome
    verdict: Verdict
    at: Instant
    recorded: bool
    seq: int | None = None
    steps: int = 0
    """Decisions since it started: how often it grew."""
    planned: Planned | None = None
    """Of a run that waits: what it is promised, and what else it could ask for."""
    run: Run | None = None
    rows: tuple[LeaseRow, ...] = ()
    """Leases of its last attempt."""
    gave: tuple[gaveway.GaveWay, ...] = ()

    @property
    def promised(self) -> Reservation | None:
        return self.planned.reservation if self.planned else None


@verb("explain", "Say how a run stands and why: why it waits, until when, and what would help.", namespaced=True)
@run_argument
@click.option("--cover", is_flag=True, help="Only who could pay.")
@click.option("--placement", is_flag=True, help="Only where it could go.")
@click.option("--recorded", is_flag=True, help="The decision in the ledger, also for a run that waits.")
@click.option("--history", is_flag=True, help="Every decision that was recorded about it.")
@output("table", "json", "yaml", "name")
def command(
    session: Session, output: Format, run: str, cover: bool, placement: bool, recorded: bool, history: bool
) -> None:
    """Say how a run stands and why: why it waits, until when, and what would help.

    Of a run that waits, computed now by a dry run: why it cannot start, its planned start and what that counts on, who
    would have to give way, and what else could be asked for. Of one that runs: where it is, who pays, and what
    threatens it. Of one that gave way to another: why, for whom, the record, and what to type to check it.

    Then the whole search: every envelope that was visited, in which tier, what it offered, what was taken and why not
    more; every place that was tried and how it fell out. Of a run that started, is over, or was deleted, that is what
    was recorded when it started.

    JSON: {"run", "outcome", "phase", "message", "at", "recorded", "verdict", "reservation", "queue", "estimate",
    "restsOn", "alternatives", "leases", "risk", "cuts"}; with --history {"run", "decisions": [...]}. Names: the
    reason's code.
    """
    namespace, name = session.key(run)
    with session.fleet() as fleet:
        view = fleet.view()
        line = view.line(namespace, name)
        decisions = _decisions(fleet, namespace, name) if line is None or line.taken else []
        if line is None and not decisions:
            raise unknown(session, view, namespace, name)
        if line is not None and not line.taken and (wrong := fleet.rehearse([view.run(namespace, name)]).refused):
            step = f"{session.about('cancel', namespace, name)}, mend it and submit it again"
            raise invalid(wrong, next_step=step)
        if history:
            _show_history(session, output, f"{namespace}/{name}", decisions, view)
            return
        answer = _answer(fleet, view, line, f"{namespace}/{name}", decisions, recorded=recorded)
        show(
            output,
            tables=lambda: _parts(session, fleet, view, answer, cover=cover, placement=placement),
            data=lambda: _record(session, view, answer),
            names=lambda: [answer.verdict.headline.code if answer.verdict.headline else "Admitted"],
            hint=_hint(session, namespace, name, answer),
        )


def _decisions(fleet: Fleet, namespace: str, name: str) -> list[Decision]:
    """What was decided about the run that has this name, or had it last: nothing about an earlier one."""
    born = max((one.seq for one in fleet.submissions(namespace, name)), default=0)
    return [one for one in fleet.decisions(namespace, name) if one.seq >= born]


def _answer(
    fleet: Fleet, view: View, line: RunLine | None, key: str, decisions: list[Decision], *, recorded: bool
) -> _Answer:
    namespace, _, name = key.partition("/")
    waits = line is not None and line.phase == "Pending" and not line.held and not line.stopping
    run = None if line is None else view.run(namespace, name)
    uid, born = _identity(fleet, line, run, key)
    rows = [row for row in fleet.find_leases(namespace=namespace, run=name) if row.lease.uid == uid]
    last = max((row.lease.attempt for row in rows), default=0)
    rows = [row for row in rows if row.lease.attempt == last]
    gave = gaveway.look_up(fleet, namespace, name, since=born)
    known: dict[str, Any] = {"key": key, "line": line, "run": run, "rows": tuple(rows), "gave": tuple(gave)}
    if (waits and not recorded) or not decisions:
        told = fleet.rehearse(only=key).runs[0]
        if told.verdict is None:  # it has started since it was looked at
            return _answer(fleet, view, told.line, key, _decisions(fleet, namespace, name), recorded=True)
        return _Answer(outcome=outcome_of(line, told.verdict, told.reservation), verdict=told.verdict, at=view.now,
                       recorded=False, planned=told, **known)  # fmt: skip
    chosen, steps = (decisions[0], 0) if waits else start_of(decisions, rows)
    return _Answer(outcome=outcome_of(line, chosen.verdict), verdict=chosen.verdict, at=chosen.at, recorded=True,
                   seq=chosen.seq, steps=steps, **known)  # fmt: skip


def _identity(fleet: Fleet, line: RunLine | None, run: Run | None, key: str) -> tuple[str, Instant]:
    """The uid of a run and since when it is there; of one that was deleted, of the last that had its name."""
    if line is not None and run is not None:
        return run.metadata.uid, line.created or 0
    last = fleet.submissions(*key.split("/"))[-1]
    return last.uid, last.at


def _parts(
    session: Session, fleet: Fleet, view: View, answer: _Answer, *, cover: bool, placement: bool
) -> Iterator[Table | str]:
    verdict, line = answer.verdict, answer.line
    yield _title(fleet, answer)
    yield fields(_facts(session, view, answer))
    if not cover and not placement:
        cover = placement = True
        yield from gaveway.parts(answer.gave)
        yield from choices.parts(answer.planned.alternatives if answer.planned else (), now=view.now)
    if cover:
        yield from cover_parts(verdict)
    if placement:
        yield from placement_parts(verdict, need=needed(verdict, line))


def _title(fleet: Fleet, answer: _Answer) -> str:
    words, style = OUTCOMES[answer.outcome]
    if answer.recorded and answer.outcome in ("waiting", "protected", "short-of-money"):
        words = "had to wait"
    elif not answer.recorded and not fleet.driven:
        words = f"waits for a driver ({safe(fleet.drive_command)}); if it were driven now, it {_would(answer, words)}"
    elif answer.line is not None and not answer.line.taken:
        words = f"has not been taken in yet; an operator is there, and by its rules it {_would(answer, words)}"
    elif answer.line is not None and answer.line.retry_at is not None:
        words = "waits for its next try"
    return f"Run/{answer.key} {paint(words, style)}"


def _would(answer: _Answer, words: str) -> str:
    if answer.verdict.outcome == "start":
        return "would start"
    return words if answer.outcome == "never" else "would wait"


def _facts(session: Session, view: View, answer: _Answer) -> Iterator[tuple[str, str]]:
    verdict, line, now = answer.verdict, answer.line, view.now
    if verdict.headline is not None:
        yield "Why", f"{sentence(verdict.headline)} [{verdict.headline.code}]"
        yield from _promised(answer, now)
        yield "Could pay", _could_pay(answer)
        yield "Helps", remedy(session, _trouble(answer, verdict.headline), never=verdict.outcome == "never")
        yield "Machines", "" if line is None else other_flavor(view, line.flavor)
    elif answer.rows and any(row.open for row in answer.rows):
        yield from _standing(view, answer)
    elif verdict.segments:
        yield "GPUs", f"{verdict.width} in {some(list(verdict.domains))}"
        yield "Paid by", some(payers(verdict.segments), 8)
    if line is not None and line.retry_at is not None:
        yield "Last try", line.message
        yield "Next try", moment(line.retry_at, now)
    if answer.gave:
        yield from gaveway.facts(session, answer.gave[-1], now)
    yield "Decision", _source(answer, now)
    yield from _now(session, answer)


def _trouble(answer: _Answer, headline: Reason) -> Reason:
    """What has to be helped: machines may be short now, but money is what is in the way."""
    money = answer.outcome == "short-of-money" and not is_money(headline)
    return Reason(code="NoMoneyInSight") if money else headline


def _could_pay(answer: _Answer) -> str:
    """Of a run that waits for money: what each envelope that was asked could pay."""
    if answer.outcome != "short-of-money" or answer.line is None:
        return ""
    visits, need = answer.verdict.visits, needed(answer.verdict, answer.line)
    promised = ", less what older runs were promised" if sum(visit.offered for visit in visits) >= need else ""
    offers = some([f"{visit.budget}/{visit.envelope} {visit.offered}" for visit in visits], 8)
    return f"{offers} of {need}{promised}" if offers else "nobody"


def _promised(answer: _Answer, now: Instant) -> Iterator[tuple[str, str]]:
    if answer.planned is None:
        return
    likely, one = answer.planned.estimate, answer.promised
    yield from queued.facts(answer.planned.line.queue, likely if one is None else None, now)
    if one is None:
        return
    waits_for = answer.verdict.headline is not None and one.reason != answer.verdict.headline.code
    yield "Waits for", f"{one.message} [{one.reason}]" if waits_for else ""
    yield from planned(one, now, answer.planned.rests, likely)
    yield "Odds", odds(one.forecast.odds)


def _standing(view: View, answer: _Answer) -> Iterator[tuple[str, str]]:
    """A run that holds GPUs, as it stands: whatever steps it took to get there."""
    now = view.now
    leases = [row.lease for row in answer.rows if row.open]
    active = sum(len(lease.gpus) for lease in leases if lease.role != "Spare")
    spare = sum(len(lease.gpus) for lease in leases if lease.role == "Spare")
    of = f" of {answer.line.gpus}" if answer.line is not None and answer.line.gpus != active else ""
    nodes = {lease.node for lease in leases}
    domains = sorted({f"{one.region}/{one.cluster}/{one.domain}" for one in view.nodes() if one.name in nodes})
    yield "GPUs", f"{active}{of}{f' and {spare} spare' if spare else ''} in {some(domains)}"
    yield "Where", some(places(leases), 8)
    yield "Paid by", some(payers(held(leases)), 8)
    until = min((lease.until for lease in leases if lease.until is not None), default=None)
    yield "Ends", "" if until is None else f"{moment(until, now)}, as it declared"
    yield "Risk", risk(answer.run.status.risk if answer.run else None, now)


def _source(answer: _Answer, now: Instant) -> str:
    plan = f", plan {answer.verdict.plan_hash[:12]}" if answer.verdict.plan_hash else ""
    if not answer.recorded:
        return "computed now" + plan
    grew = f"; it grew {plural(answer.steps, 'time')} since" if answer.steps else ""
    return f"recorded in entry {answer.seq}, {moment(answer.at, now)}{plan}{grew}"


def _now(session: Session, answer: _Answer) -> Iterator[tuple[str, str]]:
    line = answer.line
    if line is None:
        yield "Now", "the run was deleted"
    elif line.phase != "Pending" or line.held or line.stopping:
        yield "Now", f"{'Stopping' if line.stopping else line.phase}: {line.message}"
        if line.phase == "Failed" and line.reason in RULES:
            yield "Helps", remedy(session, Reason(code=line.reason), line=line)
    elif line.requeued:
        yield "Now", "queued again after it was cut; nobody is cut for it in turn"


def _record(session: Session, view: View, answer: _Answer) -> dict[str, Any]:
    line, told, one = answer.line, answer.planned, answer.promised
    return {
        "run": answer.key,
        "outcome": answer.outcome,
        "phase": None if line is None else line.phase,
        "message": "the run was deleted" if line is None else line.message,
        "at": format_time(answer.at),
        "recorded": answer.recorded,
        "verdict": verdict_record(answer.verdict),
        "reservation": None if one is None else to_wire(render.reservation(None, one, now=view.now)),
        "queue": to_wire(told.line.queue) if told and told.line.queue else None,
        "estimate": to_wire(told.estimate) if told and told.estimate else None,
        "restsOn": [choices.rest_record(rest) for rest in told.rests] if told else [],
        "alternatives": [choices.record(other, now=view.now) for other in told.alternatives] if told else [],
        "leases": [to_wire(render.lease(row.lease)) for row in answer.rows if row.open],
        "risk": to_wire(answer.run.status.risk) if answer.run and answer.run.status.risk else None,
        "cuts": [gaveway.record(session, one) for one in answer.gave],
    }


def _hint(session: Session, namespace: str, name: str, answer: _Answer) -> str:
    if answer.outcome in ("cut", "requeued") and answer.gave:
        return session.command("verify", answer.gave[-1].row.subject)
    if answer.outcome == "failed":
        return session.about("logs", namespace, name)
    if answer.verdict.outcome == "start":
        return session.about("who-pays", namespace, name)
    code = answer.verdict.headline.code if answer.verdict.headline else ""
    machines = code in ("NoCapacity", "Fragmented", "SpreadForbidden", "TooLarge", "NoNodes")
    if machines and answer.promised is not None and answer.promised.plan.start is not None:
        return f"{session.about('resolve', namespace, name)} --dry-run"
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
