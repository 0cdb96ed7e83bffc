"""`grow`: have an elastic run desire more GPUs."""

from __future__ import annotations

from tenure.cli.resizing import arguments, resize
from tenure.cli.session import Session, verb


@verb("grow", "Have an elastic run take more GPUs.", namespaced=True)
@arguments
def command(session: Session, run: str, gpus: int, dry_run: bool) -> None:
    """Have an elastic run take more GPUs: GPUS is the width it is to reach.

    It grows by one step per growInterval when machines and money allow, never before a waiting run that could start.

    \b
    kubectl runs grow rai/train 160
    kubectl runs grow rai/train 160 --dry-run=server
    """
    resize(session, run, gpus, direction="grow", dry_run=dry_run)
