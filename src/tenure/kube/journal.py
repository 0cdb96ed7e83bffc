"""The journal: this operator's own copy of the ledger, a file on its disk.

It is what the engine is rebuilt from, what questions about the past are put to, and a witness: an API server that was
restored from an old copy shows an end of the chain that the journal knows more than. Its anchor may lie on yet another
disk; a journal that is lost is built again from the API server and the archive, and must then reach what the anchor
has seen.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from itertools import islice
from pathlib import Path

from tenure.api.ledger_objects import LedgerHeadSpec
from tenure.kube.entries import Line
from tenure.kube.refusals import Code, refused
from tenure.ledger import Ledger, sidecar
from tenure.ledger.anchor import read as read_anchor

_CHUNK = 1000
Fill = Callable[[Ledger], None]


def open_journal(path: Path, *, anchor: Path | None, head: LedgerHeadSpec, fill: Fill) -> Ledger:
    """The journal of a ledger, opened, or made if there is none yet. ``fill`` brings a new one up to the head."""
    anchor = anchor or sidecar(path)
    if path.exists():
        journal = Ledger.open(path, anchor=anchor)
        if journal.fleet != head.fleet:
            journal.close()
            raise refused(Code.OtherFleet, fleet=head.fleet, ours=journal.fleet, what=f"the journal {path}")
        return journal
    path.parent.mkdir(parents=True, exist_ok=True)
    if not anchor.exists():
        return Ledger.create(path, fleet=head.fleet, anchor=anchor)
    mark = read_anchor(anchor, ledger=path, timeout=5.0).mark
    if mark.fleet != head.fleet:
        raise refused(Code.OtherFleet, fleet=head.fleet, ours=mark.fleet, what=f"the anchor {anchor}")
    if mark.seq > head.seq:
        raise refused(Code.Behind, head=head.seq, seen=mark.seq, what=f"the anchor {anchor}")
    _build_beside(path, fleet=head.fleet, fill=fill)
    return Ledger.open(path, anchor=anchor)  # refuses if it has other entries than the anchor saw


def seen(path: Path, anchor: Path | None) -> tuple[str, int] | None:
    """What is known on this disk of a ledger that the API server knows nothing of, and up to which entry."""
    anchor = anchor or sidecar(path)
    if path.exists():
        with Ledger.open(path, anchor=anchor) as journal:
            return (f"the journal {path}", journal.head.seq) if journal.head.seq else None
    if anchor.exists():
        mark = read_anchor(anchor, ledger=path, timeout=5.0).mark
        return (f"the anchor {anchor}", mark.seq) if mark.seq else None
    return None


def take_all(journal: Ledger, lines: Iterable[Line]) -> None:
    """Append lines that follow from the journal's head, many to a transaction."""
    rest = iter(lines)
    while chunk := list(islice(rest, _CHUNK)):
        with journal.write() as tx:
            for line in chunk:
                tx.take(line.body)


def _build_beside(path: Path, *, fleet: str, fill: Fill) -> None:
    """Build a new journal under another name, with an anchor of its own, and put it in its place when it is whole."""
    draft = path.with_name(path.name + ".rebuilding")
    for old in (draft, sidecar(draft), *(draft.with_name(draft.name + end) for end in ("-wal", "-shm"))):
        old.unlink(missing_ok=True)
    with Ledger.create(draft, fleet=fleet) as journal:
        fill(journal)
    draft.rename(path)
    sidecar(draft).unlink()
