"""Why a custodian said no: one closed list of codes, each with its sentence and what to do next.

>>> print(refused(Code.OtherCommit, index=7, first="ab12", commit="cd34").sentence)
c[7] was revealed for commit ab12; it is not revealed again for cd34.
"""

from __future__ import annotations

from enum import StrEnum

from msgspec import Struct


class Code(StrEnum):
    """Every way to be refused."""

    Exists = "Exists"
    NotFound = "NotFound"
    Damaged = "Damaged"
    Exposed = "Exposed"
    Unavailable = "Unavailable"
    BadRequest = "BadRequest"
    NotAsked = "NotAsked"
    OtherChain = "OtherChain"
    OtherCommit = "OtherCommit"
    OutOfTurn = "OutOfTurn"
    Exhausted = "Exhausted"


_RESTORE = "A chain cannot be mended: begin a new one, and publish its c[0], unless you hold an exact copy"

_TEXTS: dict[Code, tuple[str, str]] = {
    Code.Exists: (
        "There is something at {path} already.",
        "Choose another folder: a chain is never overwritten.",
    ),
    Code.NotFound: (
        "There is no custodian at {path}.",
        "Check the path, or make one with `tenure custodian init`.",
    ),
    Code.Damaged: (
        "{path} cannot be relied on: {why}.",
        f"{_RESTORE}.",
    ),
    Code.Exposed: (
        "{path} may be read by others (mode {mode}): whoever has it knows every draw in advance.",
        "If nobody has read it, take the permission away (`chmod go=`); otherwise begin a new chain.",
    ),
    Code.Unavailable: (
        "{path} could not be read or written: {why}.",
        "Nothing was revealed. See to the disk or the permissions, then ask again.",
    ),
    Code.BadRequest: (
        "This is no request a custodian can answer: {why}.",
        "Ask with the intent as it stands in the ledger.",
    ),
    Code.NotAsked: (
        "The intent does not name beacon {beacon}.",
        "Ask the custodians that it names.",
    ),
    Code.OtherChain: (
        "The intent goes on from {found} at c[{index}]; this chain has another value there.",
        "Check that this custodian's published c[0] is the one the fleet was set up with.",
    ),
    Code.OtherCommit: (
        "c[{index}] was revealed for commit {first}; it is not revealed again for {commit}.",
        "Draw with the intent it was revealed for; a new intent takes the next index.",
    ),
    Code.OutOfTurn: (
        "c[{index}] is not due: the next to be revealed is c[{due}].",
        (
            "Freeze an intent with that index first: values are revealed in order, one for each freeze. If the ledger "
            "has c[{due}] already, the journal of this custodian was cut short or is an old copy: put the newest back."
        ),
    ),
    Code.Exhausted: (
        "The chain ends at c[{length}]; there is no c[{index}].",
        "Begin a new chain, publish its c[0], and let the fleet go on with that.",
    ),
}


class CustodianRefused(Struct, frozen=True):
    """The custodian said no: ``code``, one ``sentence`` why, and the ``next_step``. Nothing was revealed."""

    code: Code
    sentence: str
    next_step: str


def refused(code: Code, **numbers: object) -> CustodianRefused:
    """The refusal with its sentences filled in."""
    sentence, next_step = _TEXTS[code]
    return CustodianRefused(code, sentence.format(**numbers), next_step.format(**numbers))
