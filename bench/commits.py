"""Promise: group commit records leases at least 10 times as fast as one commit for each.

Leases are recorded one to a commit, and many to a commit, each a ledger entry of its own either way; every commit is
synced to disk (``synchronous=FULL``) and moves the anchor. Both go to the same ledger, in turns. What is saved is the
syncs, so the slower the disk, the larger the ratio (22 and 160 were seen): too large is nothing, too small is.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from pathlib import Path

from bench.fleet import NOW
from bench.measure import Stopwatch, Took, in_turns
from bench.result import Row, Scale
from tenure.facts import Lease, Opened
from tenure.ledger import Ledger

NAME = "commits"
GOAL = 10.0
ALONE, TOGETHER = 8, 256
"""Leases that one repetition records: each in a commit of its own, and all in one."""


def run(scale: Scale, folder: Path) -> list[Row]:
    with Ledger.create(folder / "commits.db", fleet="commits") as ledger:
        names = _names()
        sides = {"alone": partial(_alone, ledger, names), "together": partial(_together, ledger, names)}
        times = in_turns(sides, rounds=scale.rounds)
    per_second = {f"leases_per_second_{name}": round(1 / times.median(name)) for name in sides}
    what = f"leases recorded in a second, {TOGETHER} to a commit against one"
    return [
        Row(bench=NAME, what=what, measured=times.ratio("alone", "together"), goal=GOAL, sense="at least",
            detail=per_second)
    ]  # fmt: skip


def _alone(ledger: Ledger, names: Iterator[str], _: int) -> Took:
    with Stopwatch() as watch:
        for _ in range(ALONE):
            with ledger.write() as tx:
                tx.append(at=NOW, cause="one lease", facts=[_opened(next(names))])
    return watch.took.over(ALONE)


def _together(ledger: Ledger, names: Iterator[str], _: int) -> Took:
    with Stopwatch() as watch, ledger.write() as tx:
        for _ in range(TOGETHER):
            tx.append(at=NOW, cause="one lease of many", facts=[_opened(next(names))])
    return watch.took.over(TOGETHER)


def _names() -> Iterator[str]:
    number = 0
    while True:
        yield f"run-{number:06d}"
        number += 1


def _opened(run: str) -> Opened:
    node = f"n{run[-5:-2]}-{run[-2:]}"
    return Opened(
        lease=Lease(
            namespace="f0", name=f"{run}-a1-g00-{node}-0", run=run, uid=f"uid-{run}", owner="org:f0", attempt=1,
            group=0, domain="d0", node=node, gpus=tuple(range(8)), role="Active", start=NOW, budget="org-f0",
            envelope="e00", payer="org:f0", funding="owned", reason="Start",
        )
    )  # fmt: skip
