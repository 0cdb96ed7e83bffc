"""Instructions of one decision, counted by callgrind: the one measure of time that no neighbour can disturb. It has no
goal, but a range of a few percent in which it was before.

A child process under valgrind builds a fleet and admits some batches, engine alone; another builds the same fleet and
admits none. The difference, shared out over the admissions, is what one takes, with all that Python, SQLite and msgspec
do in C. Valgrind is some fifty times slower, so the fleets are small. Where it is not installed, a row says so.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path
from shutil import which

from bench.bed import Bed
from bench.load import batch
from bench.result import Row, Scale

NAME = "instructions"
SIZES = (1_000, 4_000)
_BATCHES = 4
ROOT = Path(__file__).resolve().parents[1]


def run(scale: Scale, folder: Path) -> list[Row]:
    if which("valgrind") is None:
        why = "not measured: there is no valgrind on the PATH (the package valgrind has it)"
        return [Row(bench=NAME, what=why, measured=0, unit="")]
    asks = sum(len(batch(number)) for number in range(_BATCHES))
    counts = {gpus: (count(gpus, _BATCHES) - count(gpus, 0)) / asks for gpus in SIZES}
    small, large = SIZES
    return [
        *(
            Row(bench=NAME, what=f"an admission at {gpus:,} GPUs, engine alone", measured=counts[gpus] / 1000,
                unit="thousand instructions", steady=True)
            for gpus in SIZES
        ),
        Row(bench=NAME, what=f"{large:,} against {small:,} GPUs", measured=counts[large] / counts[small], steady=True),
    ]  # fmt: skip


def count(gpus: int, batches: int) -> int:
    """Instructions of a whole process."""
    command = ["valgrind", "--tool=callgrind", "--callgrind-out-file=/dev/null",
               sys.executable, "-m", "bench.instructions", str(gpus), str(batches)]  # fmt: skip
    environ = os.environ | {"PYTHONHASHSEED": "0"}
    child = subprocess.run(command, env=environ, cwd=ROOT, capture_output=True, text=True, check=False)
    found = re.search(r"Collected : (\d+)", child.stderr)
    if child.returncode or found is None:
        raise RuntimeError(f"{' '.join(command)} said: {child.stderr[-2000:]}")
    return int(found[1])


def _child(gpus: int, batches: int) -> None:
    bed = Bed.build(gpus)
    for number in range(batches):
        bed.admit(batch(number), bed.decided)


if __name__ == "__main__":
    _child(int(sys.argv[1]), int(sys.argv[2]))
