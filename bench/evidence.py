"""Promise: what ``python -m proof`` shows holds, at the sizes that were promised.

Worlds with faults, crashes at every write, planted bugs, damaged ledgers, hostile input and all interleavings of a
small world are programs of their own, which tell what they tried and fail if something does not hold. Here they are
run as they stand, one after the other, so that one table has everything that was promised; what each said last is
beside it.
"""

from __future__ import annotations

import shlex
import subprocess
import sys
from pathlib import Path
from time import perf_counter

from msgspec import Struct

from bench.result import Row, Scale

NAME = "evidence"
_ROOT = Path(__file__).parents[1]


class Shown(Struct, frozen=True):
    """A promise that a command shows: as it was promised, and of a size that only shows that it runs."""

    issue: int
    says: str
    command: str
    small: str


SHOWN: tuple[Shown, ...] = (
    Shown(3, "earliest start equal to brute force on every random small case",
          "python -m pytest -q tests/engine/test_forecast.py",
          "python -m pytest -q -n0 tests/engine/test_forecast.py::"
          "test_the_earliest_start_is_that_of_a_replay_of_every_instant[0]"),
    Shown(6, "1,000 seeds x 48 virtual hours", "python -m proof sim --seeds 1000 --home embedded --no-shrink",
          "python -m proof sim --seeds 2 --home embedded --no-shrink --jobs 1"),
    Shown(6, "10,000 crash schedules and more, 0 violations", "python -m proof crashes --every 10",
          "python -m proof crashes --scenario start-and-complete --every 40"),
    Shown(6, "at least 95 % of planted bugs caught", "python -m proof mutants --quick",
          "python -m proof mutants --quick --no-control --only cordon-ignored"),
    Shown(6, "5,000 damaged images: the acknowledged prefix or a refusal", "python -m proof damage",
          "python -m proof damage --images 20"),
    Shown(6, "24 classes x 50 hostile manifests on three ways in", "python -m proof hostile",
          "python -m proof hostile --variants 1 --no-processes"),
    Shown(6, "a small world: at least 1,000,000 distinct states in 10 minutes", "python -m proof scope",
          "python -m proof scope --depth 3 --jobs 1"),
)  # fmt: skip


def run(scale: Scale, folder: Path) -> list[Row]:
    return [_tried(one.small, f"only tried: {one.small}") if scale.name == "tiny" else _tried(one.command, one.says)
            for one in SHOWN]  # fmt: skip


def _tried(command: str, says: str) -> Row:
    """Whether a command ends well; what it measured it tells itself, last of all."""
    program, *rest = shlex.split(command)
    assert program == "python"
    begin = perf_counter()
    done = subprocess.run([sys.executable, *rest], cwd=_ROOT, stdout=subprocess.PIPE, text=True, check=False)
    seconds = perf_counter() - begin
    said = [line for line in done.stdout.splitlines() if line.strip()]
    if done.returncode:
        print(f"{command} ended with {done.returncode}:", *said[-30:], sep="\n", file=sys.stderr)
    last = said[-1].strip() if said else ""
    return Row(bench=NAME, what=says, measured=int(done.returncode == 0), unit="of 1", goal=1, sense="at least",
               steady=True, detail={"by": command, "said": last, "seconds": round(seconds)})  # fmt: skip
