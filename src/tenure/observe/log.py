"""Structured logs: what was committed, one record for each thing that people want to hear of, with its cause and ids.

The engine logs nothing. A record is made from an entry after it counts, so a log never tells of a decision that was
lost, and whoever reads the same ledger writes the same records. Every entry gives at least one record, so a gap in
``entry`` is a gap in the log. ``seq`` and ``hash`` of an entry are those that ``tenure ledger`` and ``audit`` show.

    {"time":"2025-11-01T00:00:10Z","level":"info","event":"Admitted","object":"Run/rai/train","run":"rai/train",
     "reason":"Admitted","message":"...","entry":7,"hash":"9f86...","cause":"apply Run/rai/train",
     "plan":{"outcome":"start","gpus":8,"payers":[{"budget":"rai","envelope":"west","gpus":8,"funding":"owned"}]},
     "leases":{"opened":1,"closed":0}}
"""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Iterator
from typing import Any

from tenure.facts import Closed, Decided, Entry, Froze, Noted, Opened, Resolved
from tenure.units import Instant, format_time

Record = dict[str, Any]

WARNINGS = frozenset(
    {"Blocked", "Cut", "Failed", "Quarantined", "Rejected", "ReservationBlocked", "Shrunk", "Stopping", "Swapped"}
)
"""Kinds of notes that somebody may have to act on: warnings in logs, and as Events of a cluster."""


def is_warning(kind: str, reason: str) -> bool:
    """Whether somebody may have to act on a note: by its kind, or because a draw waits that nobody can make."""
    return kind in WARNINGS or reason == "NoCustodian"


_LEASE = re.compile(r"(?P<run>.+)-a\d+-g\d+-")


def records(entry: Entry, *, hash: str) -> Iterator[Record]:  # noqa: A002 -- the field's name
    """What an entry has to say."""
    ids = {"entry": entry.seq, "hash": hash, "cause": entry.cause}
    runs, told = _by_run(entry), False
    for fact in entry.facts:
        if isinstance(fact, Noted):
            about = runs.get(fact.object.removeprefix("Run/"), {})
            yield _opening(entry.at, fact.kind, fact.object, fact.reason, fact.message) | ids | about
        elif isinstance(fact, Resolved):
            yield _opening(entry.at, "Resolved", fact.subject, fact.trigger) | ids | _resolution(fact)
        elif isinstance(fact, Froze):
            draw = {"draw": {"deficit": fact.intent.deficit, "runs": [token.id for token in fact.intent.tokens]}}
            yield _opening(entry.at, "Frozen", fact.subject, fact.trigger) | ids | draw
        else:
            continue
        told = True
    if not told:
        facts = Counter(type(fact).__name__ for fact in entry.facts)
        yield {"time": format_time(entry.at), "level": "debug", "event": "Entry"} | ids | {"facts": dict(facts)}


def said(text: str, *, at: Instant, level: str = "info", event: str = "Process") -> Record:
    """Something that is in no entry: a trouble, or a word about the process itself."""
    return {"time": format_time(at), "level": level, "event": event, "message": text}


def line(record: Record) -> str:
    """A record as one line of JSON. Everything outside of printable ASCII is escaped: whatever a tenant got into a
    message, a record is one line that neither a terminal nor a collector obeys.

    >>> line({"message": "a\\nb \\x9b31m"})
    '{"message":"a\\\\nb \\\\u009b31m"}'
    """
    return json.dumps(record, separators=(",", ":"), ensure_ascii=True).replace("\x7f", "\\u007f")


def _opening(at: Instant, event: str, about: str, reason: str, message: str = "") -> Record:
    kind, _, key = about.partition("/")
    level = "warning" if is_warning(event, reason) or event == "Resolved" else "info"
    opening: Record = {"time": format_time(at), "level": level, "event": event, "object": about}
    opening |= {"run": key} if kind == "Run" else {}
    return opening | {"reason": reason} | ({"message": message} if message else {})


def _by_run(entry: Entry) -> dict[str, Record]:
    """What the entry decided about each run: who pays, and what became of its leases."""
    plans = {f"{one.namespace}/{one.run}": _plan(one) for one in entry.facts if isinstance(one, Decided)}
    opened = Counter(one.lease.run_key for one in entry.facts if isinstance(one, Opened))
    closed = Counter(
        f"{one.namespace}/{found['run']}"
        for one in entry.facts
        if isinstance(one, Closed)
        for name in one.leases
        if (found := _LEASE.match(name)) is not None
    )
    about: dict[str, Record] = {run: {"plan": plan} for run, plan in plans.items()}
    for run in opened.keys() | closed.keys():
        about.setdefault(run, {})["leases"] = {"opened": opened[run], "closed": closed[run]}
    return about


def _plan(fact: Decided) -> Record:
    verdict = fact.verdict
    plan: Record = {"outcome": verdict.outcome, "gpus": verdict.width}
    if verdict.headline is not None:
        plan["headline"] = {"code": verdict.headline.code, **verdict.headline.data}
    if verdict.segments:
        plan["payers"] = [
            {"budget": one.budget, "envelope": one.envelope, "gpus": one.gpus, "funding": one.funding}
            for one in verdict.segments
        ]
    return plan


def _resolution(fact: Resolved) -> Record:
    found: Record = {"activation": fact.activation, "deficit": fact.deficit}
    found["cuts"] = [{"kind": one.kind, "run": one.run, "gpus": one.gpus} for one in fact.cuts]
    if fact.result is not None:
        found["draw"] = {"commit": fact.result.commit, "seed": fact.result.seed, "order": list(fact.result.order)}
    return found
