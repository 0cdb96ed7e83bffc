"""Promise: what ``python -m proof`` shows holds, at the sizes that were promised.

Worlds with faults, crashes at every write, planted bugs, damaged ledgers, hostile input and all interleavings of a
small world are programs of their own, which tell what they tried and fail if something does not hold. Here they are
run as they stand, one after the other, so that one table has everything that was promised: how much each says that it
tried, and beside it what it said last.
"""

from __future__ import annotations

import re
import shlex
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from time import perf_counter

from msgspec import Struct

from bench.result import Row, Scale
from proof import stops

NAME = "evidence"
_ROOT = Path(__file__).parents[1]
TIDIES_SECONDS = 30
"""How long a command may take to end when it is asked to."""


class Shown(Struct, frozen=True):
    """A promise that a command shows: as it was promised, and of a size that only shows that it runs."""

    issue: int
    says: str
    command: str
    small: str
    counts: str
    """Where the command says how much it tried, or how much of how much (a second group): then it is a percentage."""
    least: int
    unit: str


SHOWN: tuple[Shown, ...] = (
    Shown(3, "earliest start equal to brute force on every random small case",
          "python -m pytest -q tests/engine/test_forecast.py",
          "python -m pytest -q -n0 tests/engine/test_forecast.py::"
          "test_the_earliest_start_is_that_of_a_replay_of_every_instant[0]", r"(\d+) passed", 4, "tests"),
    Shown(6, "1,000 seeds x 48 virtual hours of an embedded fleet",
          "python -m proof sim --seeds 1000 --home embedded --no-shrink",
          "python -m proof sim --seeds 2 --home embedded --no-shrink --jobs 1", r"All (\d+) seeds hold", 1_000,
          "seeds"),
    Shown(6, "100 seeds x 48 virtual hours of a cluster", "python -m proof sim --seeds 100 --home cluster --no-shrink",
          "python -m proof sim --seeds 1 --home cluster --no-shrink --jobs 1", r"All (\d+) seeds hold", 100, "seeds"),
    Shown(6, "10,000 crash schedules and more (one in nine of all, pairs too), 0 violations, the same end",
          "python -m proof crashes --all --every 9",
          "python -m proof crashes --scenario start-and-complete --every 40", r"the ([\d,]+) ends that are compared",
          10_000, "schedules"),
    Shown(6, "at least 95 % of planted bugs caught", "python -m proof mutants --quick",
          "python -m proof mutants --quick --no-control --only cordon-ignored", r"(\d+) of (\d+) bugs caught", 95, "%"),
    Shown(6, "5,000 damaged images: the acknowledged prefix or a refusal", "python -m proof damage",
          "python -m proof damage --images 20", r"([\d,]+) damaged images", 5_000, "images"),
    Shown(6, "24 classes x 50 hostile manifests on three ways in", "python -m proof hostile",
          "python -m proof hostile --variants 1 --no-processes", r"([\d,]+) manifests, .*on three surfaces", 1_200,
          "manifests"),
    Shown(6, "a small world: at least 1,000,000 distinct states in 10 minutes", "python -m proof scope",
          "python -m proof scope --depth 3 --jobs 1", r"distinct states +([\d,]+)", 1_000_000, "states"),
)  # fmt: skip


def run(scale: Scale, folder: Path) -> list[Row]:
    return [_tried(one, small=scale.name == "tiny") for one in SHOWN]


def _tried(one: Shown, *, small: bool) -> Row:
    """How much a command says that it tried, if it ended well; what it said last is beside that."""
    command = one.small if small else one.command
    program, *rest = shlex.split(command)
    assert program == "python"
    begin = perf_counter()
    code, out = ended([sys.executable, *rest])
    seconds = perf_counter() - begin
    said = [line for line in out.splitlines() if line.strip()]
    if code:
        print(f"{command} ended with {code}:", *said[-30:], sep="\n", file=sys.stderr)
    last = said[-1].strip() if said else ""
    return Row(bench=NAME, what=f"only tried: {command}" if small else one.says, unit=one.unit, sense="at least",
               measured=0 if code else counted(one, out), goal=1 if small else one.least,
               detail={"by": command, "said": last, "seconds": round(seconds)})  # fmt: skip


def ended(words: list[str], environ: Mapping[str, str] | None = None) -> tuple[int, str]:
    """How a command ended, and what it printed. Who stops us stops it as well, and it has children and folders of its
    own to tidy up: to kill it would leave those behind."""
    with subprocess.Popen(words, cwd=_ROOT, env=environ, stdout=subprocess.PIPE, text=True) as child:
        try:
            out, _ = child.communicate()
        except KeyboardInterrupt as stop:
            if isinstance(stop, stops.Terminated):  # Ctrl-C is heard by all that run in a terminal
                child.terminate()
            try:
                child.communicate(timeout=TIDIES_SECONDS)
            except subprocess.TimeoutExpired:
                child.kill()
            raise
        return child.returncode, out


def counted(one: Shown, said: str) -> float:
    """
    >>> counted(SHOWN[4], "117 of 118 bugs caught"), counted(SHOWN[5], "5,000 damaged images"), counted(SHOWN[5], "")
    (99.15254237288136, 5000.0, 0)
    """
    found = re.search(one.counts, said)
    if found is None:
        return 0
    some, *of = (float(number.replace(",", "")) for number in found.groups())
    return 100 * some / of[0] if of else some
