"""Why the ledger in the API server said no: one closed list of codes, each with its sentence and what to do next.

``transient`` ones pass by themselves: read again, decide again. The others stand until a person has looked; nothing is
admitted meanwhile, and running work goes on (SPEC 12).

>>> print(refused(Code.Behind, head=812, seen=840, what="this operator's journal").sentence)
The LedgerHead says that the ledger ends at entry 812, but this operator's journal knows entry 840: the API server was
restored from an old copy, and at least 28 committed entries are missing.
"""

from __future__ import annotations

from enum import StrEnum

GUIDE = "docs/operate/kubernetes-ledger.md"


class Code(StrEnum):
    """Every way to be refused."""

    Outrun = "Outrun"
    InDoubt = "InDoubt"
    Unreachable = "Unreachable"
    NotAllowed = "NotAllowed"
    NoHead = "NoHead"
    OtherFleet = "OtherFleet"
    Behind = "Behind"
    Forked = "Forked"
    EntryMissing = "EntryMissing"
    EntryDamaged = "EntryDamaged"
    ArchiveNeeded = "ArchiveNeeded"
    ArchiveRefuses = "ArchiveRefuses"


TRANSIENT = frozenset({Code.Outrun, Code.InDoubt, Code.Unreachable})
_RESTORE = f"See {GUIDE} for how to restore the ledger from a journal or an archive."

_TEXTS: dict[Code, tuple[str, str]] = {
    Code.Outrun: (
        "Somebody else has moved the LedgerHead since it was read, so this decision was not committed.",
        "Nothing has to be done: what was written is read, and everything is decided again.",
    ),
    Code.InDoubt: (
        "The API server did not say whether it moved the LedgerHead to entry {seq} ({why}).",
        "Nothing has to be done: the LedgerHead is read again before anything else is decided.",
    ),
    Code.Unreachable: (
        "The ledger in the API server cannot be reached ({why}); nothing of this decision was committed.",
        "Nothing has to be done once the API server answers again.",
    ),
    Code.NotAllowed: (
        "The API server refused a write to the ledger: {why}",
        "Check that the CRDs, roles and policies of this release are installed (`tenure install --kube`).",
    ),
    Code.NoHead: (
        "The API server has no LedgerHead, but {what} knows entry {seen}.",
        f"It was deleted, or this is another cluster. {_RESTORE}",
    ),
    Code.OtherFleet: (
        "The LedgerHead is of fleet {fleet}, but {what} is of fleet {ours}.",
        "Check that the journal belongs to this cluster; give each cluster a folder of its own.",
    ),
    Code.Behind: (
        (
            "The LedgerHead says that the ledger ends at entry {head}, but {what} knows entry {seen}: the API server "
            "was restored from an old copy, and at least {missing} committed entries are missing."
        ),
        f"{_RESTORE} Nothing is admitted until then; running work goes on.",
    ),
    Code.Forked: (
        "The API server and {what} have different entries {seq}: the ledger was written on from an old copy.",
        f"Keep both, and decide which of them is right. {_RESTORE}",
    ),
    Code.EntryMissing: (
        "The LedgerEntry {name} is missing: entry {seq} is part of the ledger and cannot be read.",
        f"It was deleted by force. {_RESTORE}",
    ),
    Code.EntryDamaged: (
        "The LedgerEntry {name} does not hold what the chain says: {why}.",
        _RESTORE,
    ),
    Code.ArchiveNeeded: (
        "Entries up to {seq} were moved to the archive, and {why}.",
        f"Give the operator its journal, or the folder of the archive. {_RESTORE}",
    ),
    Code.ArchiveRefuses: (
        "The archive {folder} cannot be written ({why}): entries from {seq} on stay in the API server.",
        "Make room there, or let the operator write to it. Nothing is lost; it is tried again every few minutes.",
    ),
}


class StoreRefused(Exception):
    """The ledger in the API server said no: ``code``, one ``sentence`` why, and the ``next_step``."""

    def __init__(self, code: Code, sentence: str, next_step: str) -> None:
        super().__init__(code, sentence, next_step)
        self.code = code
        self.sentence = sentence
        self.next_step = next_step

    @property
    def transient(self) -> bool:
        """Whether it passes by itself."""
        return self.code in TRANSIENT

    def __str__(self) -> str:
        return f"{self.code}: {self.sentence} {self.next_step}"


def refused(code: Code, **numbers: object) -> StoreRefused:
    """The refusal with its sentences filled in."""
    if code is Code.Behind:
        numbers["missing"] = int(str(numbers["seen"])) - int(str(numbers["head"]))
    sentence, next_step = _TEXTS[code]
    return StoreRefused(code, sentence.format(**numbers), next_step.format(**numbers))
