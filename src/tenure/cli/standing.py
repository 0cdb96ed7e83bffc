"""How a run stands, in one word: the outcomes that `explain` tells apart, and what it holds as it stands."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Literal

from tenure.cli.port import RunLine
from tenure.engine.reasons import RULES
from tenure.facts import FundingClass, Lease, Reservation, Segment, Verdict
from tenure.ledger import Decision, LeaseRow

Outcome = Literal[
    "starts", "waiting", "protected", "short-of-money", "never", "requeued", "starting", "running", "stopping",
    "completed", "failed", "cut", "deleted",
]  # fmt: skip

OUTCOMES: dict[Outcome, tuple[str, str]] = {
    "starts": ("starts", "good"),
    "waiting": ("waits", "wait"),
    "protected": ("waits, though there is room", "wait"),
    "short-of-money": ("waits for money", "wait"),
    "never": ("can never start as things are", "bad"),
    "requeued": ("was cut, and waits to start again", "wait"),
    "starting": ("is starting", "info"),
    "running": ("runs", "good"),
    "stopping": ("is stopping", "wait"),
    "completed": ("is over: it completed", "dim"),
    "failed": ("is over: it failed", "bad"),
    "cut": ("is over: it was cut", "bad"),
    "deleted": ("was deleted", "dim"),
}
"""In words, and how to paint them."""

_CUT = ("CutByLottery", "CutOverstayed", "ReclaimedBySpare")
_MONEY = RULES["NoEnvelope"].precedence
"""Reasons up to this one are about money."""


def outcome_of(line: RunLine | None, verdict: Verdict, promised: Reservation | None = None) -> Outcome:
    if line is None:
        return "deleted"
    if line.stopping:
        return "stopping"
    if line.phase == "Failed":
        return "cut" if line.reason in _CUT else "failed"
    if line.phase in ("Running", "Completed"):
        return "running" if line.phase == "Running" else "completed"
    if line.held:
        return "starting"
    return _waiting(line, verdict, promised)


def _waiting(line: RunLine, verdict: Verdict, promised: Reservation | None) -> Outcome:
    code = verdict.headline.code if verdict.headline else ""
    if verdict.outcome == "never":
        return "never"
    if line.requeued:
        return "requeued"
    if not code:
        return "starts"
    if code == "Protected":
        return "protected"
    short = promised is not None and promised.forecast.short > 0
    return "short-of-money" if short or RULES[code].precedence <= _MONEY else "waiting"


def start_of(decisions: Sequence[Decision], rows: Iterable[LeaseRow]) -> tuple[Decision, int]:
    """The decision by which an attempt with these leases started, and how many steps it took since; the newest come
    first. Of a run that never started, the last decision about it."""
    opened = {row.seq: row.lease.reason for row in rows}
    mine = [one for one in decisions if one.seq in opened and one.verdict.outcome == "start"]
    if not mine:
        started = [one for one in decisions if one.verdict.outcome == "start"]
        return (started or decisions)[0], 0
    return mine[-1], len(mine) - 1


def held(leases: Iterable[Lease]) -> list[Segment]:
    """Who pays for leases, by envelope and class."""
    gpus: dict[tuple[str, str, str, FundingClass], int] = {}
    for one in leases:
        key = (one.budget, one.envelope, one.payer, one.funding)
        gpus[key] = gpus.get(key, 0) + len(one.gpus)
    return [
        Segment(budget=budget, envelope=envelope, payer=payer, funding=funding, gpus=count)
        for (budget, envelope, payer, funding), count in gpus.items()
    ]
