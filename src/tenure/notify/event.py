"""The letter: one note of the ledger, as a CloudEvent 1.0 in structured JSON.

An event is a pure function of what is stored, so sending it again sends the same bytes. Its id names the fleet, the
entry, the fact within the entry, and the beginning of the entry's hash: two ledgers that went different ways after a
backup was restored never give two events one id.

>>> letter = Letter(seq=7, idx=2, at=1761955210000000, kind="Started", object="Run/rai/train", reason="Bound",
...                 message="Every pod is bound.", hash="9f86d081", owner="org:ai:rai")
>>> json.loads(body(letter, fleet="lab"))["id"]
'lab.7.2.9f86d081'

Everything outside of printable ASCII is escaped: whatever a tenant got into a message, an event is one line that
neither a terminal nor a log obeys.
"""

from __future__ import annotations

import json
from typing import Final

from msgspec import Struct

from tenure.api.errors import UNSAFE
from tenure.api.meta import GROUP
from tenure.units import Instant, format_time

CONTENT_TYPE: Final = "application/cloudevents+json; charset=utf-8"
TYPE_PREFIX: Final = ".".join(reversed(GROUP.split(".")))
OPENING: Final = b'{"specversion":'
"""How every event begins, on a line of a file."""

KINDS: Final[dict[str, str]] = {
    "Admitted": "a run got its GPUs and its payers, and is starting",
    "Started": "every pod of a run is bound",
    "Waiting": "a run cannot start now, and why",
    "Blocked": "a run cannot start until somebody changes something",
    "Reserved": "a waiting run was promised a start",
    "StartMoved": "the planned start of a waiting run is another, and why",
    "Bounded": "a run that declares no end was let past promised starts: it goes first from then on",
    "Countdown": "a planned start comes near",
    "ReservationBlocked": "a waiting run has no planned start, and why",
    "Activated": "a planned start has come: the run starts, or room is made for it",
    "Released": "a reservation has done its work: its run has what was promised",
    "Swapped": "a pod was lost with its node, and another took its rank",
    "Grown": "an elastic run took a step up",
    "Shrunk": "an elastic run gave groups back, and why",
    "Cut": "a run gives way, all of it or a part, and for whom",
    "Stopping": "a run was told to stop, and why",
    "Completed": "a run has finished its work",
    "Failed": "a run has failed for good",
    "Deleted": "a run is gone, and its leases are closed",
    "BudgetNotice": "hours or a window run out, or have; a limit was lowered below use; somebody else pays now",
    "Draw": "a draw was frozen, or cannot be: who gives way is decided by lot",
    "Quarantined": "a machine takes no work because of its labels or its count of GPUs",
    "Accepted": "a person declared the ledger right as it stands",
}
"""What a note may be, as far as this release knows. Receivers without ``kinds`` get every note, known or not."""

OBJECTS: Final = {"Run": 3, "Reservation": 3, "Lease": 3, "Budget": 2, "Node": 2, "Namespace": 2, "Ledger": 2}
"""What a note may be about, and of how many segments its name consists: ``Run/rai/train`` has three."""

Place = tuple[int, int]
"""Where a note stands: the number of its entry, and which fact of it."""


class Letter(Struct, frozen=True, kw_only=True, gc=False):
    """A note, with what the ledger knows around it."""

    seq: int
    idx: int
    at: Instant
    kind: str
    object: str
    reason: str
    message: str
    hash: str
    """The beginning of the hash of its entry."""
    owner: str
    """Whose the object was then; empty if it was nobody's."""

    @property
    def place(self) -> Place:
        return self.seq, self.idx


def body(letter: Letter, *, fleet: str) -> bytes:
    """The event, on one line."""
    data = {
        "kind": letter.kind,
        "object": letter.object,
        "reason": letter.reason,
        "message": letter.message,
        "entry": letter.seq,
    }
    if letter.owner:
        data["owner"] = letter.owner
    event = {
        "specversion": "1.0",
        "id": f"{fleet}.{letter.seq}.{letter.idx}.{letter.hash}",
        "source": f"/tenure/fleets/{fleet}",
        "type": f"{TYPE_PREFIX}.{_plain(letter.kind)}",
        "subject": _plain(letter.object),
        "time": format_time(letter.at),
        "datacontenttype": "application/json",
        # Two extensions that CloudEvents documents: what must stay in order, and in which.
        "partitionkey": _plain(letter.object),
        "sequence": f"{letter.seq:016d}.{letter.idx:06d}",
        "data": data,
    }
    text = json.dumps(event, ensure_ascii=True, separators=(",", ":"))
    return text.replace("\x7f", "\\u007f").encode("ascii")


def _plain(text: str) -> str:
    """An attribute of an event may not hold a control character at all, not even an escaped one."""
    return UNSAFE.sub("?", text) or "?"
