"""Verdicts for people: one printer for `plan`, `explain`, `submit` and `describe`, from the engine's own data.

Nothing is explained twice: the sentence and the remedy come from ``engine/reasons``, the walk and the search from the
verdict. Here they are only laid out.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator
from typing import Any

from tenure.api.meta import to_wire
from tenure.cli.output import Cell, Table, columns, section
from tenure.cli.port import RunLine
from tenure.cli.session import Session
from tenure.cli.words import ordinals, plural, some
from tenure.engine import reasons
from tenure.engine.reasons import RULES, sentence
from tenure.facts import Attempted, Lease, Reason, Segment, Verdict

_CLASSES = ("owned", "shared", "borrowed")


def reason_record(reason: Reason | None) -> dict[str, Any] | None:
    """A reason for programs: the code, its numbers, and what people read."""
    if reason is None:
        return None
    rule = RULES[reason.code]
    return {
        "code": reason.code,
        "data": reason.data,
        "sentence": sentence(reason),
        "remedy": rule.remedy,
        "waitingHelps": rule.waiting_helps,
    }


def verdict_record(verdict: Verdict) -> dict[str, Any]:
    """A verdict for programs: the whole search."""
    record: dict[str, Any] = to_wire(verdict)
    record["headline"] = reason_record(verdict.headline)
    for visit, wire in zip(verdict.visits, record["visits"], strict=True):
        wire["limit"] = reason_record(visit.limit)
    for tried, wire in zip(verdict.tried, record["tried"], strict=True):
        wire["fault"] = reason_record(tried.fault)
    return record


def remedy(session: Session, reason: Reason, *, never: bool = False, line: RunLine | None = None) -> str:
    """What helps, with commands as this user would type them; of a run, with its name."""
    text = reasons.remedy(reason, never=never)
    logs = "" if line is None else session.about("logs", line.namespace, line.name)
    return spoken(session, text.replace("kubectl runs logs", logs) if logs else text)


def spoken(session: Session, text: str) -> str:
    """A text of the engine, in which commands are called as this user calls them."""
    return text.replace("kubectl runs", session.command())


def needed(verdict: Verdict, line: RunLine | None) -> int:
    """GPUs that a verdict is about, spares included."""
    return sum(segment.gpus for segment in verdict.segments) or (line.need if line else verdict.width)


def payers(segments: Iterable[Segment]) -> list[str]:
    return [f"{one.budget}/{one.envelope} ({one.gpus} {one.funding}, {one.payer})" for one in segments]


def places(leases: Iterable[Lease]) -> list[str]:
    """Nodes with their ordinals, spares marked."""
    nodes: dict[tuple[str, str], list[int]] = {}
    for lease in leases:
        nodes.setdefault((lease.node, lease.role), []).extend(lease.gpus)
    return [
        f"{node}[{ordinals(gpus)}]" + ("" if role == "Active" else f" {role.lower()}")
        for (node, role), gpus in sorted(nodes.items(), key=lambda item: (item[0][1], item[0][0]))
    ]


# --- the walk -------------------------------------------------------------------------------------------------------


def cover_parts(verdict: Verdict) -> Iterator[Table | str]:
    """Every envelope visited, in order."""
    rows: list[list[Cell]] = [
        [
            str(visit.tier), visit.relation, f"{visit.budget}/{visit.envelope}", visit.owner, visit.funding,
            str(visit.offered), (str(visit.taken), "good" if visit.taken else ""),
            sentence(visit.limit) if visit.limit else "",
        ]
        for visit in verdict.visits
    ]  # fmt: skip
    taken = sum(visit.taken for visit in verdict.visits)
    end = f"; {plural(taken, 'GPU')} {'was' if taken == 1 else 'were'} taken" if taken else ""
    yield section(f"Who could pay: {plural(len(rows), 'envelope')} visited{end}")
    if rows:
        yield Table(
            columns("TIER", "RELATION", "ENVELOPE", "OWNER", "CLASS", ">OFFERED", ">TAKEN", "WHY NOT MORE"), rows
        )
    else:
        yield "No envelope of this GPU type belongs to the owner, its family, or a sponsor it may borrow from."


# --- the search -----------------------------------------------------------------------------------------------------


def placement_parts(verdict: Verdict, *, need: int) -> Iterator[Table | str]:
    """Where it was tried, and how each place fell out."""
    yield section("Where it could go")
    yield histogram(verdict.tried, need=need)
    rows: list[list[Cell]] = [
        [
            one.where, str(one.free), str(one.owned), str(one.shared), str(one.borrowed), str(one.domains or "-"),
            _outcome(one, need),
        ]
        for one in verdict.tried
    ]  # fmt: skip
    if rows:
        yield Table(columns("PLACE", ">FREE", ">OWNED", ">SHARED", ">BORROWED", ">DOMAINS", "OUTCOME"), rows)


def histogram(tried: Iterable[Attempted], *, need: int) -> str:
    """The search in one line: how many places fit, and what was wrong with the others."""
    tried = list(tried)
    fits = sum(1 for one in tried if one.domains)
    if not tried:
        return "No place was tried: nobody could pay anywhere for GPUs of this type."
    counts = Counter(_short(one, need) for one in tried if not one.domains)
    why = ", ".join(f"{count} {what}" for what, count in sorted(counts.items()))
    places = "1 place fits" if len(tried) == 1 else f"{len(tried)} places fit"
    return f"{fits} of {places}" + (f": {why}." if why else ".")


def _short(one: Attempted, need: int) -> str:
    if one.fault is None:
        return f"not paid in full (at most {_paid(one)} of {need} GPUs)"
    words = {
        "NoCapacity": "too full ({free} free of {need})",
        "Fragmented": "fragmented (largest hole {largest} GPUs)",
        "SpreadForbidden": "without one domain that holds it all (largest {largest})",
    }
    return words.get(one.fault.code, one.fault.code).format_map(one.fault.data)


def _outcome(one: Attempted, need: int) -> Cell:
    if one.fault is not None:
        return sentence(one.fault), "wait"
    if one.domains:
        return "fits", "good"
    return f"money for {_paid(one)} of {need} GPUs", "wait"


def _paid(one: Attempted) -> int:
    return sum(getattr(one, kind) for kind in _CLASSES)


def summary(verdict: Verdict, leases: Iterable[Lease] = ()) -> str:
    """A verdict in a sentence."""
    if verdict.outcome != "start":
        return sentence(verdict.headline) if verdict.headline else "no reason was recorded"
    where = some(places(leases)) or some(list(verdict.domains))
    return f"{plural(verdict.width, 'GPU')} on {where}; paid by {some(payers(verdict.segments))}"
