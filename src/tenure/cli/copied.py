"""Opening the copy of a cluster's ledger, and what to say where there is none to read."""

from __future__ import annotations

import sys
from pathlib import Path

from tenure.api.ledger_objects import HEAD
from tenure.cli.exits import Exit
from tenure.cli.refused import from_store, trouble, unreadable
from tenure.cli.terminal import is_terminal, say
from tenure.cli.trouble import Trouble
from tenure.embedded.fleet import Fleet, clock
from tenure.kube.client import Client
from tenure.kube.errors import ApiError
from tenure.kube.loop import IO
from tenure.kube.reading import LEDGER, Copy, NotInstalled, cache_folder
from tenure.kube.refusals import Code, StoreRefused
from tenure.kube.resources import LEDGER_HEADS
from tenure.ledger import Ledger, LedgerRefused
from tenure.units import Instant

FAR_BEHIND = 500
"""Entries that a copy may lack and still be filled for a list."""
DRIVE = "tenure operator --journal FOLDER"


class Copied(Fleet):
    """The copy as a fleet: its clock is ours, unless the operator's is ahead."""

    def now(self) -> Instant:
        return max(clock(), self.ledger.head.at)


def opened(io: IO, client: Client, archive: Path | None, *, brief: bool = False) -> tuple[Copy | None, Exception]:
    """The copy of the ledger, or what to say to who would need it.

    ``brief``: runs are to be listed and nothing else; where the copy would have to be filled first, that is left out.
    """
    nothing = Trouble(
        "this cluster has no ledger yet: no operator has run in it",
        next_step=f"have somebody run one: {DRIVE}",
        exit=Exit.NOT_FOUND,
    )
    folder = cache_folder()
    try:
        if brief and _is_far_behind(io, client, folder):
            return None, Trouble("the copy of the ledger was not asked for", next_step="this is a bug: report it")
        return Copy.of(io, client, folder, archive=archive, told=_announced), nothing
    except NotInstalled as error:
        step = "tenure install --kube, or choose another cluster with --context"
        raise Trouble("Tenure is not installed in this cluster", next_step=step, exit=Exit.NOT_FOUND) from error
    except ApiError as error:
        if error.code != 403:
            raise trouble(error) from error
        return None, unreadable(error)
    except StoreRefused as refused:
        cause = refused.__cause__
        if refused.code is Code.NotAllowed and isinstance(cause, ApiError) and cause.code == 403:
            return None, unreadable(cause)
        if refused.code is Code.ArchiveNeeded:  # the cluster is well; who only submits need not know its past
            return None, from_store(refused, folder=folder)
        raise from_store(refused, folder=folder) from refused
    except LedgerRefused as refused:
        step = f"it is only a copy: remove {folder} and try again"
        raise Trouble(f"{refused.code}: {refused.sentence}", next_step=step, exit=Exit.REFUSED) from refused


def _announced(behind: int) -> None:
    """Somebody who looks on should know what takes so long, and that it does so once."""
    if behind > FAR_BEHIND and is_terminal(sys.stderr):
        say(f"copying {behind} entries of the cluster's ledger to this computer; the next time only what is new")


def _is_far_behind(io: IO, client: Client, folder: Path) -> bool:
    """Whether filling the copy would keep somebody waiting who only wants a list."""
    try:
        head = io.run(client.get(LEDGER_HEADS, HEAD))
    except ApiError:
        return False  # the usual way says what is the matter
    path = folder / str(head["metadata"]["uid"]) / LEDGER
    if not path.exists():
        return int(head["spec"]["seq"]) > FAR_BEHIND
    with Ledger.open(path, readonly=True) as copy:
        return int(head["spec"]["seq"]) - copy.head.seq > FAR_BEHIND
