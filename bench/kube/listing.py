"""Promise: ``kubectl runs list`` against 10,000 runs and 100,000 leases answers in at most twice the time that
``kubectl get`` needs for the same objects from the same server.

The cluster is the one of ``memory.py``, with a past. The commands are started as a person starts them, and are timed
until they end; in turns, so that what else the machine does concerns all of them. Ours is measured twice: on a computer
that has a copy of the ledger, and on one that has none. Modules are compiled before, as they are wherever Tenure is
installed.
"""

from __future__ import annotations

import os
import subprocess
import sys
from functools import partial
from pathlib import Path
from time import perf_counter

from bench.kube import left_out
from bench.kube.bed import Cluster, settle
from bench.kube.memory import SIZES
from bench.kube.memory import _furnish as furnish
from bench.measure import Took, in_turns
from bench.result import Row, Scale

NAME = "kube-list"
GOAL = 2.0
ROUNDS = {"full": 5, "quick": 5, "tiny": 2}


def run(scale: Scale, folder: Path) -> list[Row]:
    if told := left_out(NAME):
        return told
    nodes, opened, closed = SIZES[scale.name]
    with Cluster.started(folder, nodes=nodes, kwok=False) as cluster:
        with cluster.operator():  # it takes in the machines and the money
            settle(cluster)
        cluster.plane.controllers.stop()
        furnish(cluster, folder, nodes, opened=opened, closed=closed)
        environ = os.environ | {
            "KUBECONFIG": str(cluster.plane.admin), "TENURE_CACHE": str(folder / "cache"), "TENURE_LOCAL": "",
            "HOME": str(folder), "PYTHONDONTWRITEBYTECODE": "", "PYTHONPYCACHEPREFIX": str(folder / "compiled"),
        }  # fmt: skip
        program = str(Path(sys.executable).with_name("kubectl-runs"))
        ours = [program, "list", "-A"]
        theirs = [str(cluster.plane.programs["kubectl"]), "get", "runs.rq.davidlangworthy.io", "-A"]
        without = environ | {"TENURE_CACHE": str(folder / "nothing")}
        with cluster.operator():
            settle(cluster, 300.0)
            for command in ([program, "budgets", "usage"], theirs, ours):  # the copy, what kubectl discovers, modules
                subprocess.run(command, env=environ, capture_output=True, check=True)
            sides = {
                "copy": partial(_timed, ours, environ, opened),
                "none": partial(_timed, ours, without, opened),
                "get": partial(_timed, theirs, environ, opened),
            }
            times = in_turns(sides, rounds=ROUNDS[scale.name])
    what = f"{opened:,} runs, {opened + closed:,} leases"
    return [
        Row(bench=NAME, what=f"`kubectl runs list` against `kubectl get runs`, {how}: {what}", goal=GOAL,
            measured=times.ratio(side, "get"),
            detail={"s_list": round(times.median(side), 2), "s_get": round(times.median("get"), 2)})
        for side, how in (("copy", "with a copy of the ledger"), ("none", "without one"))
    ]  # fmt: skip


def _timed(command: list[str], environ: dict[str, str], runs: int, _: int) -> Took:
    """From the start of the command to its end; it must have listed everything."""
    begin = perf_counter()
    done = subprocess.run(command, env=environ, capture_output=True, text=True, check=False)
    took = perf_counter() - begin
    if done.returncode or done.stdout.count("\n") != runs + 1:
        raise RuntimeError(f"{' '.join(command)} told of {done.stdout.count(chr(10)) - 1} runs: {done.stderr}")
    return Took(took, 0.0)
