"""`shrink`: have an elastic run desire fewer GPUs."""

from __future__ import annotations

from tenure.cli.resizing import arguments, resize
from tenure.cli.session import Session, verb


@verb("shrink", "Have an elastic run give GPUs back.", namespaced=True)
@arguments
def command(session: Session, run: str, gpus: int, dry_run: bool) -> None:
    """Have an elastic run give GPUs back: GPUS is the width it is to keep.

    Whole groups leave: those that borrowed money pays for first, then those with the highest index. The rest runs on.
    Leases close, and stop to bill, when the pods are gone. It does not go below minTotalGPUs.

    \b
    kubectl runs shrink rai/train 96
    kubectl runs shrink rai/train 96 --dry-run=server
    """
    resize(session, run, gpus, direction="shrink", dry_run=dry_run)
