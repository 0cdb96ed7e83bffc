"""What the ledger's tests are written in: small facts, copies of files, and what came of opening them."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

from tenure.facts import Closed, Decided, Fact, Lease, Noted, Opened, Verdict
from tenure.ledger import Code, Ledger, LedgerRefused
from tenure.units import SECOND

WRITER = Path(__file__).with_name("writer.py")
SUFFIXES = ("", "-wal", "-shm", ".anchor")


def lease(name: str, **other: object) -> Lease:
    """A lease of which only what matters to the test needs to be said."""
    usual: dict[str, object] = {
        "namespace": "rai", "name": name, "run": "train", "uid": "u-1", "owner": "org:ai:rai", "attempt": 1,
        "group": 0, "domain": "us-west/gpu-a/A", "node": "n1", "gpus": (0, 1), "role": "Active", "start": 0,
        "budget": "rai", "envelope": "west", "payer": "org:ai:rai", "funding": "owned", "reason": "Start",
    }  # fmt: skip
    return Lease(**(usual | other))  # type: ignore[arg-type]


def opened(name: str, **other: object) -> Opened:
    return Opened(lease=lease(name, **other))


def closed(*names: str, end: int, reason: str = "Completed") -> Closed:
    return Closed(namespace="rai", leases=names, end=end, reason=reason)


def noted(message: str, about: str = "Run/rai/train") -> Noted:
    return Noted(kind="Normal", object=about, reason="Started", message=message)


def decided(run: str, plan: str) -> Decided:
    return Decided(namespace="rai", run=run, verdict=Verdict(outcome="start", plan_hash=plan))


def decision(number: int, *, over: Sequence[str] = ()) -> list[Fact]:
    """What a typical entry holds: a lease opens, those before it close, somebody is told."""
    at = number * SECOND
    facts: list[Fact] = [
        opened(f"l{number}", start=at, node=f"n{number % 3}"),
        noted(f"step {number}"),
        decided("train", f"p{number}"),
    ]
    return [closed(*over, end=at), *facts] if over else facts


def append(ledger: Ledger, count: int = 1) -> list[str]:
    """Append so many entries, each in a commit of its own; the hashes, all of them acknowledged."""
    return [_append_one(ledger) for _ in range(count)]


def _append_one(ledger: Ledger) -> str:
    with ledger.write() as tx:
        number = tx.head.seq + 1
        over = [row.lease.name for row in ledger.leases(open_only=True)]
        tx.append(at=number * SECOND, cause=f"step {number}", facts=decision(number, over=over))
    return tx.head.hash


def hashes(path: Path, **options: object) -> list[str]:
    """Open, read every entry with its checks, close."""
    with Ledger.open(path, **options) as ledger:  # type: ignore[arg-type]
        return [link.hash for link in ledger.links()]


def outcome(path: Path) -> list[str] | Code:
    """All entries, or the code of the refusal. Anything else that is raised fails the test."""
    try:
        return hashes(path)
    except LedgerRefused as refusal:
        return refusal.code


def copy(path: Path, folder: Path) -> Path:
    """Copy a ledger's files as they are right now, also in the middle of a transaction.

    By another process: closing a descriptor of the file here would drop the locks that SQLite holds.
    """
    folder.mkdir(parents=True, exist_ok=True)
    there = [path.with_name(path.name + suffix) for suffix in SUFFIXES]
    subprocess.run(["cp", *(str(file) for file in there if file.exists()), str(folder)], check=True)
    return folder / path.name


def companion(path: Path, suffix: str) -> Path:
    return path.with_name(path.name + suffix)


def start_writer(path: Path, *arguments: str) -> subprocess.Popen[str]:
    """A process that appends to the ledger and prints ``ack SEQ HASH`` after each acknowledgement."""
    command = [sys.executable, str(WRITER), str(path), *arguments]
    return subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)


def acknowledged(lines: Sequence[str]) -> list[str]:
    """The hashes in a writer's output; a line cut off by its death was never said."""
    return [line.split()[2] for line in lines if line.startswith("ack ") and line.endswith("\n")]
