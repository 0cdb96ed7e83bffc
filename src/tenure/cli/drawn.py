"""Records of draws out of the ledger: each with the intent that was frozen for it, and what custodians had published.

A record by itself shows that its result follows from its intent. The ledger shows more: that this very intent was
frozen before anybody could know the seed, that the reveals are of the chains that were published, of all of them and
of no other, and that those who were cut are the first of the order, nobody else. Who of the order was over by then is
passed over; that takes the whole ledger, which is read only where the order alone does not explain the cuts.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import zip_longest
from typing import Any

import msgspec
from msgspec import Struct

from tenure.api.errors import show
from tenure.audit import Auditor
from tenure.cli.port import Fleet
from tenure.engine.lottery import check, commit
from tenure.facts import Froze, Resolved
from tenure.ledger import ResolutionRow


class Finding(Struct, frozen=True, kw_only=True):
    """One thing that is wrong with a record."""

    code: str
    subject: str
    sentence: str

    def record(self) -> dict[str, str]:
        return {"code": self.code, "subject": self.subject, "sentence": self.sentence}


class Drawn(Struct, frozen=True, kw_only=True):
    """One resolution, and what is wrong with it."""

    row: ResolutionRow
    state: str
    """``right``, ``wrong``, ``waits for reveals``, or ``no draw``."""
    findings: tuple[Finding, ...] = ()
    passed_over: tuple[str, ...] = ()
    """Runs that come before others that were cut, and were over, or had begun anew, when the draw was resolved."""


def look_up(fleet: Fleet, subject: str) -> list[Drawn]:
    """Everything that the resolver did for a reservation or a budget, each checked."""
    rows = fleet.resolutions(subject)
    done = {(row.subject, row.uid, row.activation) for row in rows if isinstance(row.fact, Resolved)}
    frozen = [row for row in rows if isinstance(row.fact, Froze)]
    found = [_checked(fleet, row, row.fact, frozen) for row in rows if isinstance(row.fact, Resolved)]
    waits = [row for row in frozen if (row.subject, row.uid, row.activation) not in done]
    return sorted([*found, *(Drawn(row=row, state="waits for reveals") for row in waits)], key=lambda one: one.row.seq)


def _checked(fleet: Fleet, row: ResolutionRow, fact: Resolved, frozen: list[ResolutionRow]) -> Drawn:
    if fact.intent is None:
        findings = [_stray(cut.run, "there was no draw") for cut in fact.cuts if cut.kind == "Lottery"]
        return Drawn(row=row, state="wrong" if findings else "no draw", findings=tuple(findings))
    stray, passed = _cut_of_order(fleet, row, fact)
    findings = [*_findings(fleet, row, fact, frozen), *stray]
    return Drawn(row=row, state="wrong" if findings else "right", findings=tuple(findings), passed_over=passed)


def undrawn(record: Any) -> tuple[str, list[Finding]]:
    """What is to be said of a record, as a status shows it, that has no draw (yet): its state, and who was cut by lot
    all the same; no state if it is for ``check`` to judge."""
    if not isinstance(record, dict) or record.get("result") is not None:
        return "", []
    if record.get("intent") is not None:
        return ("waits for reveals", []) if "cuts" not in record else ("", [])
    cuts = record.get("cuts")
    if not isinstance(cuts, list):
        return "", []
    lots = [cut.get("run", "?") for cut in cuts if isinstance(cut, dict) and cut.get("kind") == "Lottery"]
    return "no draw", [_stray(str(name), "there was no draw") for name in lots]


def _findings(fleet: Fleet, row: ResolutionRow, fact: Resolved, frozen: list[ResolutionRow]) -> Iterator[Finding]:
    key = (row.subject, row.uid, row.activation)
    before = [one for one in frozen if (one.subject, one.uid, one.activation) == key and one.seq < row.seq]
    if not before:
        sentence = "The ledger holds no freeze of this draw before its result."
        yield Finding(code="NeverFrozen", subject=row.subject, sentence=sentence)
    if len(before) > 1:
        sentence = f"This draw was frozen {len(before)} times: somebody may have chosen among results."
        yield Finding(code="FrozenTwice", subject=row.subject, sentence=sentence)
    first = before[0] if before else row
    intent = before[0].fact.intent if before else fact.intent
    assert intent is not None, "only draws come here"
    record = {"intent": msgspec.to_builtins(fact.intent), "result": msgspec.to_builtins(fact.result)}
    published = fleet.beacons(first.seq)
    for one in check(record, frozen=commit(intent).hex(), published=published):
        yield Finding(code=one.code, subject=one.subject, sentence=one.sentence)
    for name in sorted({beacon.id for beacon in intent.beacons} - published.keys()):
        sentence = f"Beacon {show(name)} had published no chain when this draw was frozen."
        yield Finding(code="BeaconUnpublished", subject=show(name), sentence=sentence)


def _cut_of_order(fleet: Fleet, row: ResolutionRow, fact: Resolved) -> tuple[list[Finding], tuple[str, ...]]:
    """The first who was cut and was not drawn, if there is one; and who was passed over."""
    order = fact.result.order if fact.result else ()
    cut = tuple(dict.fromkeys(one.run for one in fact.cuts if one.kind == "Lottery"))
    if cut == order[: len(cut)]:
        return [], ()
    gone = set(_passed_over(fleet, row))
    there = [name for name in order if name not in gone]
    for name, drawn in zip_longest(cut, there[: len(cut)], fillvalue=""):
        if name != drawn:
            return [_stray(name, f"the draw says {drawn}" if drawn else "the draw has nobody left")], ()
    last = order.index(cut[-1])
    return [], tuple(name for name in order[:last] if name in gone)


def _passed_over(fleet: Fleet, row: ResolutionRow) -> list[str]:
    auditor = Auditor()
    for link in fleet.links(row.seq):
        auditor.feed_raw(link.body)
    return auditor.passed_over(row.subject, row.activation)


def _stray(name: str, why: str) -> Finding:
    return Finding(code="CutNotDrawn", subject=name, sentence=f"{name} was cut by lot, but {why}.")
