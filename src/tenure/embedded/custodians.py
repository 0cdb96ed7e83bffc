"""Custodians of an embedded fleet: folders on this machine whose chains a driver may ask (SPEC 8).

A fleet for which nobody named any gets one of its own, beside the ledger, so that a single operator needs no ceremony.
It is honest only as far as the operator is: whoever can read the folder knows every draw in advance. One more chain,
kept by somebody else, is what makes draws proof against that.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

from tenure.custodian import Custodian, CustodianRefused, Status, init, open_custodian
from tenure.draw import Intent

OPERATOR = "operator"
"""The beacon of the custodian that a fleet makes for itself."""
Report = Callable[[str], None]


class FolderCustodian:
    """A custodian's folder behind the port that a home asks."""

    def __init__(self, custodian: Custodian, status: Status, *, report: Report | None = None) -> None:
        self._custodian = custodian
        self._report = report
        self._said = ""
        self.beacon = status.beacon
        self.root = status.published

    def can_answer(self, intent: Intent) -> bool:
        """Whether there would be a value for this intent now."""
        found = self._custodian.refusal(intent)
        if found is not None:
            self._tell(found)
        return found is None

    def answer(self, intent: Intent) -> str | None:
        """The value for this intent, or None: then the draw waits."""
        found = self._custodian.answer(intent)
        if not isinstance(found, CustodianRefused):
            return found.value
        self._tell(found)
        return None

    def _tell(self, refusal: CustodianRefused) -> None:
        """A refusal is reported once."""
        if self._report is not None and refusal.sentence != self._said:
            self._report(f"custodian {self.beacon}: {refusal.sentence} {refusal.next_step}")
        self._said = refusal.sentence


def open_folders(
    folders: Sequence[Path], *, known: Mapping[str, str], report: Report | None = None
) -> list[FolderCustodian] | CustodianRefused | UnfitChain:
    """The custodians in these folders. ``known``: the first values that the ledger has, by beacon."""
    found = []
    for folder in folders:
        custodian = open_custodian(folder)
        status = custodian if isinstance(custodian, CustodianRefused) else custodian.status()
        if isinstance(custodian, CustodianRefused):
            return custodian
        if isinstance(status, CustodianRefused):
            return status
        if status.position and known.get(status.beacon) != status.published:
            return UnfitChain(folder, status)
        found.append(FolderCustodian(custodian, status, report=report))
    return found


def make_operator(folder: Path) -> Status | CustodianRefused | UnfitChain:
    """A chain of the fleet's own: a new one, or one that was made for a fleet that never used it."""
    if not folder.exists():
        return init(folder, beacon=OPERATOR)
    found = open_custodian(folder)
    status = found if isinstance(found, CustodianRefused) else found.status()
    return UnfitChain(folder, status) if isinstance(status, Status) and status.position else status


class UnfitChain:
    """A chain that the ledger does not know and that has revealed values already: others know them."""

    def __init__(self, folder: Path, status: Status) -> None:
        self.sentence = (
            f"the chain in {folder} has revealed {status.position} values, and not to this fleet: what was revealed "
            "can be known to anybody"
        )
        self.next_step = f"put {folder} away and begin a new chain: each serves one fleet"
