"""A process that writes to a ledger and may die on the way: ``writer.py PATH [options]``."""

from __future__ import annotations

import argparse
import os
import signal

from tenure.facts import Noted
from tenure.ledger import Ledger


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("path")
    parser.add_argument("--name", default="w")
    parser.add_argument("--writes", type=int, default=5)
    parser.add_argument("--batch", type=int, default=1, help="entries in each commit")
    parser.add_argument("--create", action="store_true")
    parser.add_argument("--kill-at", default="", help="the hook to die at ...")
    parser.add_argument("--kill-on", type=int, default=1, help="... when it is reached for the n-th time")
    parser.add_argument("--wait", action="store_true", help="begin when a line arrives on standard input")
    asked = parser.parse_args()
    reached = 0

    def hook(point: str) -> None:
        nonlocal reached
        reached += point == asked.kill_at
        if point == asked.kill_at and reached == asked.kill_on:
            os.kill(os.getpid(), signal.SIGKILL)

    if asked.wait:
        print("ready", flush=True)
        input()
    if asked.create:
        ledger = Ledger.create(asked.path, fleet="lab", hook=hook)
    else:
        ledger = Ledger.open(asked.path, busy_timeout=60, hook=hook)
    for number in range(asked.writes):
        write(ledger, asked.name, number, asked.batch)
    ledger.close()


def write(ledger: Ledger, name: str, number: int, batch: int) -> None:
    said = []
    with ledger.write() as tx:
        for part in range(batch):
            fact = Noted(kind="Normal", object="Test/x", reason="Wrote", message=f"{name} {number}.{part}")
            tx.append(at=tx.head.at + 1, cause=name, facts=[fact])
            said.append(f"ack {tx.head.seq} {tx.head.hash}\n")
    os.write(1, "".join(said).encode())


if __name__ == "__main__":
    main()
