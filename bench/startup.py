"""Promise: a command answers at once: the first byte of ``kubectl runs list`` within 150 ms.

This is the one promise in seconds, because a person feels it. A busy machine can only add to it, never take away, so
the fastest of the repetitions is the command's own time and is judged; the median shows what the machine made of it.
Beside it stand the processor time of the command and the ratio to a Python that does nothing, which bear with
neighbours. Modules are compiled once, before, as they are wherever Tenure is installed.
"""

from __future__ import annotations

import os
import subprocess
import sys
from functools import partial
from importlib.util import find_spec
from pathlib import Path
from resource import RUSAGE_CHILDREN, getrusage
from time import perf_counter

from bench import fleet
from bench.measure import Took, in_turns
from bench.result import Row, Scale
from tenure.api.policy import Policy
from tenure.embedded.fleet import Fleet

NAME = "startup"
GOAL_MS = 150.0
ROUNDS = 40


def run(scale: Scale, folder: Path) -> list[Row]:
    if find_spec("tenure.cli.main") is None:
        return []  # there is no command line yet
    file = folder / "startup.db"
    with Fleet.create(file, nodes=fleet.nodes(fleet.plan_fleet(1_000)), policy=Policy()) as home:
        runs = [fleet.make_run(f"run-{index}", owner="org:f0", namespace="default", gpus=8) for index in range(20)]
        assert not home.apply(runs)
    environ = os.environ | {"PYTHONDONTWRITEBYTECODE": "", "PYTHONPYCACHEPREFIX": str(folder / "compiled")}
    command = [str(Path(sys.executable).with_name("kubectl-runs")), "--local", str(file), "list"]
    sides = {"command": partial(_first_byte, command, environ),
             "python": partial(_first_byte, [sys.executable, "-c", "print()"], environ)}  # fmt: skip
    times = in_turns(sides, rounds=min(ROUNDS, max(2, scale.rounds)))
    return [
        Row(bench=NAME, what="first byte of `kubectl runs list`", measured=times.fastest("command") * 1e3, unit="ms",
            goal=GOAL_MS, detail={"ms_median": round(times.median("command") * 1e3, 1)}),
        Row(bench=NAME, what="processor time of the whole command", unit="ms",
            measured=times.median("command", "cpu") * 1e3),
        Row(bench=NAME, what="the same against a Python that does nothing",
            measured=times.ratio("command", "python", "cpu")),
    ]  # fmt: skip


def _first_byte(command: list[str], environ: dict[str, str], _: int) -> Took:
    """The wall clock up to the first byte, the processor's time up to the end."""
    begin, before = perf_counter(), _children()
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, env=environ) as child:
        assert child.stdout is not None
        first = child.stdout.read(1)
        took = perf_counter() - begin
        trouble = child.communicate()[1]
    if not first or child.returncode:
        raise RuntimeError(f"{' '.join(command)} said: {trouble.decode()}")
    return Took(took, _children() - before)


def _children() -> float:
    """Seconds of processor time of all children that have ended."""
    used = getrusage(RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime
