"""The life of a run as the ledger has it: every event in a sentence, in order, for runs that are there and that were.

A name may have belonged to several runs, one after the other: each is a life of its own. What people were told (notes)
is told again as it was. Reservations and cuts have records of their own: what these say is told even if nobody was told
then, and what they say besides is added.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator
from typing import Any

import msgspec
from msgspec import Struct

from tenure.cli.explaining import payers, places
from tenure.cli.payers import split
from tenure.cli.port import Fleet
from tenure.cli.promised import where
from tenure.cli.words import gpu_hours, plural, some, span, stamp
from tenure.engine.reasons import sentence
from tenure.engine.remedies import did
from tenure.facts import Froze, Reason, Slice
from tenure.ledger import CutRow, LeaseRow, Note, PlanRow, ResolutionRow, RunRow
from tenure.units import SECOND, Instant, format_time

LATE = 60 * SECOND
"""A run that was taken in so long after it was submitted waited for somebody to look at it."""
_TOO_OFTEN = ("Countdown",)
"""Notes that are no part of a story."""
_FIRST = ("Submitted", "Waiting", "Blocked", "Activated", "Draw", "Resolved", "Released", "Cut")
"""What comes first within one entry; the rest as it comes."""


class Event(Struct, frozen=True, kw_only=True):
    """Something that happened to a run."""

    at: Instant
    seq: int
    kind: str
    text: str

    def record(self) -> dict[str, Any]:
        return {"at": format_time(self.at), "entry": self.seq, "event": self.kind, "text": self.text}


class Life(Struct, frozen=True, kw_only=True):
    """One run that had the name."""

    run: RunRow
    events: tuple[Event, ...]
    used: str
    """What it used, in words; empty if nothing."""


def lives(fleet: Fleet, namespace: str, name: str, *, now: Instant) -> list[Life]:
    """Every run that ever had a name, the oldest first."""
    runs = fleet.submissions(namespace, name)
    told = _Told(fleet, namespace, name)
    ends = [*(run.seq for run in runs[1:]), None]
    return [told.life(run, before=ends[index], now=now) for index, run in enumerate(runs)]


class _Told:
    """Everything the ledger has about a name."""

    def __init__(self, fleet: Fleet, namespace: str, name: str) -> None:
        self.notes = fleet.notes(f"Run/{namespace}/{name}")
        self.leases = fleet.find_leases(namespace=namespace, run=name)
        self.plans = fleet.plans(namespace, name)
        self.cuts = fleet.cuts(namespace, name)
        found = [row.reservation for row in fleet.find_reservations(namespace=namespace, run=name)]
        self.reservations = {one.uid: one for one in found}
        self.notes += [note for one in found for note in fleet.notes(f"Reservation/{one.key}")]
        self.resolutions = [row for one in found for row in fleet.resolutions(f"Reservation/{one.key}")]

    def life(self, run: RunRow, *, before: int | None, now: Instant) -> Life:
        mine = [one for one in self._events(run) if run.seq <= one.seq and (before is None or one.seq < before)]
        mine.sort(key=lambda one: (one.seq, _FIRST.index(one.kind) if one.kind in _FIRST else len(_FIRST)))
        shares = split((row for row in self.leases if row.lease.uid == run.uid), now=now)
        paid = [f"{one.budget}/{one.envelope} ({gpu_hours(one.used)} {one.funding})" for one in shares]
        total = gpu_hours(sum(one.used for one in shares))
        return Life(run=run, events=tuple(mine), used=f"{total} GPU-hours, paid by {some(paid, 8)}" if paid else "")

    def _events(self, run: RunRow) -> Iterator[Event]:
        asked = f"{run.owner or 'nobody'} asked for {run.gpus} {run.flavor} GPUs."
        late = f" It was taken in {span(run.at - run.submitted)} later." if run.at - run.submitted > LATE else ""
        yield Event(at=run.submitted, seq=run.seq, kind="Submitted", text=asked + late)
        notes = [note for note in self.notes if note.kind not in _TOO_OFTEN]
        said = {(note.seq, note.kind): note.message for note in notes}
        known = {(row.seq, "Cut") for row in self.cuts}
        yield from map(_cut, self.cuts)
        resolved = ((_resolved(row), "") for row in self.resolutions if row.uid in self.reservations)
        for event, more in (*self._promised(), *resolved):
            words = said.get((event.seq, event.kind), event.text)
            known.add((event.seq, event.kind))
            yield msgspec.structs.replace(event, text=" ".join(text for text in (words, more) if text))
        yield from (self._noted(note) for note in notes if (note.seq, note.kind) not in known)
        yield from self._handed_over()

    def _promised(self) -> Iterator[tuple[Event, str]]:
        """What it was promised, and how that changed."""
        last: dict[str, PlanRow] = {}
        for row in self.plans:
            kind, text = _planned(row, last.get(row.uid))
            more = "" if row.uid in last else _first(self.reservations[row.uid].promise)
            last[row.uid] = row
            if kind:
                yield Event(at=row.at, seq=row.seq, kind=kind, text=text), more

    def _handed_over(self) -> Iterator[Event]:
        """Where somebody else pays from then on: leases that were closed and opened again, on the same GPUs."""
        for seq in sorted({row.seq for row in self.leases if row.lease.reason == "Refund"}):
            after = [row for row in self.leases if row.seq == seq and row.lease.reason == "Refund"]
            closed = [row for row in self.leases if row.closed_by == seq and row.closure == "Refund"]
            before, now = _paid(closed), _paid(after)
            gone, come = before - now, now - before
            if come:
                data: dict[str, int | str] = {
                    "gpus": come.total(),
                    "envelope": some(sorted(gone)),
                    "payers": _counted(come),
                }
                text = sentence(Reason(code="HandedOver", data=data))
                yield Event(at=after[0].lease.start, seq=seq, kind="HandedOver", text=text)

    def _noted(self, note: Note) -> Event:
        """A note as people heard it; where GPUs were taken, also which, and who pays."""
        text = note.message
        if note.kind in ("Admitted", "Grown", "Swapped"):
            opened = [row for row in self.leases if row.seq == note.seq]
            if opened:
                text += f" It took {some(places(row.lease for row in opened))} in {_domains(opened)}"
                text += "." if note.kind == "Admitted" else f", paid by {_payers(opened)}."
        return Event(at=note.at, seq=note.seq, kind=note.kind, text=text)


_STATES = {
    "Blocked": ("ReservationBlocked", "Its reservation has no start"),
    "Active": ("Activated", "Its planned start has come"),
    "Released": ("Released", "Its reservation was kept"),
    "Canceled": ("Canceled", "Its reservation was canceled"),
}


def _planned(row: PlanRow, before: PlanRow | None) -> tuple[str, str]:
    """What a change of a reservation is, in a word and in a sentence; no word if there is nothing to say."""
    because = f": {row.message}" if row.message else "."
    if row.state in _STATES and (before is None or row.state != before.state):
        kind, text = _STATES[row.state]
        return kind, text + because
    if row.start is None or (before is not None and row.start == before.start):
        return "", ""
    if before is None:
        return "Reserved", f"It is to start at {stamp(row.start)}{because}"
    if before.start is None:
        return "StartMoved", f"Its start is planned for {stamp(row.start)}{because}"
    way = "later" if row.start > before.start else "earlier"
    moved = f"from {stamp(before.start)} to {stamp(row.start)}, {span(row.start - before.start)} {way}"
    return "StartMoved", f"Its start moved {moved}{because}"


def _first(promise: Slice) -> str:
    """Where it was promised to start, and who was to pay."""
    if promise.start is None:
        return ""
    place = f" on {plural(len(promise.shares), 'node')} of {some(where(promise))}" if promise.shares else ""
    paid = f", paid by {some(payers(promise.segments))}" if promise.segments else ""
    return f"The promise: {plural(promise.width, 'GPU')}{place}{paid}."


def _cut(row: CutRow) -> Event:
    """What it lost, for whom, and by which record."""
    check = f": verify {row.subject}" if row.cut.kind == "Lottery" else ""
    text = f"It gave way: {did(row.cut)}. For {row.subject}, activation {row.activation}{check}."
    return Event(at=row.at, seq=row.seq, kind="Cut", text=text)


def _resolved(row: ResolutionRow) -> Event:
    if isinstance(row.fact, Froze):
        pool = plural(len(row.fact.intent.tokens), "run")
        text = f"To make room, a draw among {pool} was frozen; nobody knew its seed yet."
        return Event(at=row.at, seq=row.seq, kind="Draw", text=text)
    gave = "; ".join(did(cut) for cut in row.fact.cuts)
    text = f"Room was made: {gave}." if gave else "The resolver looked, and cut nothing."
    return Event(at=row.at, seq=row.seq, kind="Resolved", text=text)


def _domains(rows: Iterable[LeaseRow]) -> str:
    names = sorted({row.lease.domain for row in rows})
    return f"domain{'' if len(names) == 1 else 's'} {some(names)}"


def _paid(rows: Iterable[LeaseRow]) -> Counter[str]:
    """GPUs by ``budget/envelope``."""
    paid: Counter[str] = Counter()
    for row in rows:
        paid[f"{row.lease.budget}/{row.lease.envelope}"] += len(row.lease.gpus)
    return paid


def _counted(payers: Counter[str]) -> str:
    return some([f"{name} ({gpus})" for name, gpus in sorted(payers.items())], 8)


def _payers(rows: Iterable[LeaseRow]) -> str:
    return some(sorted({f"{row.lease.budget}/{row.lease.envelope}" for row in rows}))
