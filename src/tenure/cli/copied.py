"""Opening the copy of a cluster's ledger, and what to say where there is none to read."""

from __future__ import annotations

from pathlib import Path

from tenure.cli.exits import Exit
from tenure.cli.refused import from_store, trouble, unreadable
from tenure.cli.trouble import Trouble
from tenure.embedded.fleet import Fleet, clock
from tenure.kube.client import Client
from tenure.kube.errors import ApiError
from tenure.kube.loop import IO
from tenure.kube.reading import Copy, NotInstalled, cache_folder
from tenure.kube.refusals import Code, StoreRefused
from tenure.ledger import LedgerRefused
from tenure.units import Instant

DRIVE = "tenure operator --journal FOLDER"


class Copied(Fleet):
    """The copy as a fleet: its clock is ours, unless the operator's is ahead."""

    def now(self) -> Instant:
        return max(clock(), self.ledger.head.at)


def opened(io: IO, client: Client, archive: Path | None) -> tuple[Copy | None, Exception]:
    """The copy of the ledger, or what to say to who would need it."""
    nothing = Trouble(
        "this cluster has no ledger yet: no operator has run in it",
        next_step=f"have somebody run one: {DRIVE}",
        exit=Exit.NOT_FOUND,
    )
    folder = cache_folder()
    try:
        return Copy.of(io, client, folder, archive=archive), nothing
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
