"""A process that delivers to one file or port and may die on the way: ``deliver_once.py PATH TARGET [KILL_ON]``.

It is killed after its events are sent and before (or while) the place is saved, at the n-th point named KILL_AT.
"""

from __future__ import annotations

import os
import signal
import sys
from pathlib import Path

from tenure.ledger import Ledger
from tests.notify.support import NOW, courier, http, receiver, to_file


def main(path: str, target: str, kill_at: str = "", kill_on: str = "1") -> None:
    reached = 0

    def hook(point: str) -> None:
        nonlocal reached
        reached += point == kill_at
        if point == kill_at and reached == int(kill_on):
            os.kill(os.getpid(), signal.SIGKILL)

    to = http(int(target)) if target.isdigit() else to_file(Path(target))
    with Ledger.open(path, hook=hook) as ledger:
        man = courier(ledger, receiver(to=to))
        while man.turn(NOW) == NOW:
            pass
        print("done", flush=True)


if __name__ == "__main__":
    main(*sys.argv[1:])
