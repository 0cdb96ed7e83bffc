"""The life of a run as the ledger has it: every event in a sentence, in order, for runs that are there and that were.

A name may have belonged to several runs, one after the other: each is a life of its own. What people were told (notes)
is told again as it was, in the order in which it was told. Reservations and cuts have records of their own: what these
say is told even if nobody was told then, and what they say besides is added. Of several reasons to wait in one entry
the last is the one that stood.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator
from math import inf
from typing import Any

import msgspec
from msgspec import Struct

from tenure.cli.explaining import payers, places
from tenure.cli.payers import split
from tenure.cli.port import Fleet
from tenure.cli.promised import where
from tenure.cli.words import gpu_hours, plural, some, span, stamp
from tenure.engine.reasons import for_whom, sentence
from tenure.engine.remedies import did
from tenure.facts import Froze, Reason, Slice
from tenure.ledger import CutRow, LeaseRow, Note, PlanRow, ResolutionRow, RunRow
from tenure.units import SECOND, Instant, format_time

LATE = 60 * SECOND
"""A run that was taken in so long after it was submitted waited for somebody to look at it."""
_TOO_OFTEN = ("Countdown",)
"""Notes that are no part of a story."""
_WAITS = ("Waiting", "Blocked")
_AFTER = {"Draw": "Activated", "Resolved": "Activated"}
"""What is told right after something else of the same entry; where that is missing, at its beginning."""


class Event(Struct, frozen=True, kw_only=True):
    """Something that happened to a run."""

    at: Instant
    seq: int
    kind: str
    text: str
    place: float = -1
    """Where it stands in its entry."""

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
        mine = list(_once(sorted(mine, key=lambda one: (one.seq, one.place))))
        shares = split((row for row in self.leases if row.lease.uid == run.uid), now=now)
        paid = [f"{one.budget}/{one.envelope} ({gpu_hours(one.used)} {one.funding})" for one in shares]
        total = gpu_hours(sum(one.used for one in shares))
        return Life(run=run, events=tuple(mine), used=f"{total} GPU-hours, paid by {some(paid, 8)}" if paid else "")

    def _events(self, run: RunRow) -> Iterator[Event]:
        asked = f"{run.owner or 'nobody'} asked for {run.gpus} {run.flavor} GPU{'' if run.gpus == 1 else 's'}."
        late = f" It was taken in {span(run.at - run.submitted)} later." if run.at - run.submitted > LATE else ""
        yield Event(at=run.submitted, seq=run.seq, kind="Submitted", text=asked + late)
        heard = _Heard(note for note in self.notes if note.kind not in _TOO_OFTEN)
        for row in self.cuts:
            yield heard.place(_cut(row))[0]
        resolved = ((_resolved(row), "") for row in self.resolutions if row.uid in self.reservations)
        for event, more in (*self._promised(), *resolved):
            placed, note = heard.place(event)
            words = placed.text if note is None else note.message
            yield msgspec.structs.replace(placed, text=" ".join(text for text in (words, more) if text))
        for place, note in heard.rest():
            yield msgspec.structs.replace(self._noted(note), place=place)
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
                yield Event(at=after[0].lease.start, seq=seq, kind="HandedOver", text=text, place=inf)

    def _noted(self, note: Note) -> Event:
        """A note as people heard it; where GPUs were taken, also which, and who pays."""
        text = note.message
        if note.kind in ("Admitted", "Grown", "Swapped"):
            opened = [row for row in self.leases if row.seq == note.seq]
            if opened:
                text += f" It took {some(places(row.lease for row in opened))} in {_domains(opened)}"
                text += "." if note.kind == "Admitted" else f", paid by {_payers(opened)}."
        return Event(at=note.at, seq=note.seq, kind=note.kind, text=text)


class _Heard:
    """What people were told, by entry; each note tells of one event."""

    def __init__(self, notes: Iterable[Note]) -> None:
        self._notes: dict[int, list[Note]] = {}
        for note in notes:
            self._notes.setdefault(note.seq, []).append(note)
        self._told: set[int] = set()
        self._last: dict[tuple[int, str], float] = {}

    def place(self, event: Event) -> tuple[Event, Note | None]:
        """An event with its place in its entry, and the note that told of it, if one did."""
        notes = self._notes.get(event.seq, [])
        kinds = [note.kind for note in notes]
        own = next((note for note in notes if note.kind == event.kind and id(note) not in self._told), None)
        if own is not None:
            self._told.add(id(own))
        place = self._last.get((event.seq, event.kind), -0.5)
        if own is not None:
            place = next(at for at, note in enumerate(notes) if note is own)
        if (before := _AFTER.get(event.kind)) in kinds:
            place = kinds.index(str(before)) + 0.25
        elif event.kind == "Released" and "Admitted" in kinds:
            place = kinds.index("Admitted") - 0.5
        self._last[event.seq, event.kind] = place
        return msgspec.structs.replace(event, place=place), own

    def rest(self) -> Iterator[tuple[int, Note]]:
        """Notes that no record of its own tells of."""
        for notes in self._notes.values():
            yield from ((at, note) for at, note in enumerate(notes) if id(note) not in self._told)


def _once(events: list[Event]) -> Iterator[Event]:
    """Of one entry: the same is told once, and of what it waits for only what stood in the end."""
    count = Counter((one.seq, one.kind, one.text) for one in events)
    waits = {one.seq: one for one in events if one.kind in _WAITS}
    told = set()
    for one in events:
        wait = one.kind in _WAITS
        key = (one.seq, *_WAITS) if wait else (one.seq, one.kind, one.text)
        if key not in told:
            told.add(key)
            times = count[one.seq, one.kind, one.text]
            more = f" ({times} times)" if times > 1 else ""
            yield waits[one.seq] if wait else msgspec.structs.replace(one, text=one.text + more)


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
    if before is None or before.start is None:
        return "Reserved", f"It is to start at {stamp(row.start)}{because}"
    way = "later" if row.start > before.start else "earlier"
    moved = f"from {stamp(before.start)} to {stamp(row.start)}, {span(row.start - before.start)} {way}"
    waits = f" {row.message}" if row.message else ""
    return "StartMoved", f"Its start moved {moved}.{waits}"


def _first(promise: Slice) -> str:
    """Where it was promised to start, and who was to pay."""
    if promise.start is None:
        return ""
    place = f" on {plural(len(promise.shares), 'node')} of {some(where(promise))}" if promise.shares else ""
    paid = f", paid by {some(payers(promise.segments))}" if promise.segments else ""
    spare = sum(one.gpus for one in promise.segments) - promise.width
    gpus = plural(promise.width, "GPU") + (f" and {spare} of spare" if spare > 0 else "")
    return f"The promise: {gpus}{place}{paid}."


def _cut(row: CutRow) -> Event:
    """What it lost, for whom, and by which record."""
    check = f": verify {row.subject}" if row.cut.kind == "Lottery" else ""
    whom = for_whom(row.subject)
    text = f"It gave way: {did(row.cut)}. {whom[0].upper()}{whom[1:]}, activation {row.activation}{check}."
    return Event(at=row.at, seq=row.seq, kind="Cut", text=text)


def _resolved(row: ResolutionRow) -> Event:
    if isinstance(row.fact, Froze):
        pool = plural(len(row.fact.intent.tokens), "run")
        text = f"To make room, a draw among {pool} was frozen; nobody knew its seed yet."
        return Event(at=row.at, seq=row.seq, kind="Draw", text=text)
    gave = "; ".join(did(cut) for cut in row.fact.cuts)
    text = f"Room was made: {gave}." if gave else "Room was looked for, and nobody had to give way."
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
