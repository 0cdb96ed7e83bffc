"""Instructions of one admission, counted by callgrind: the one measure of time that no neighbour can disturb.

A child process under valgrind builds a fleet and admits some batches, engine alone; another builds the same fleet and
admits none. The difference, shared out over the admissions, is what one takes. Valgrind is some fifty times slower, so
the fleets are small; run it with ``--callgrind``.
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
SIZES = (1_000, 10_000)
_BATCHES = 8


def run(scale: Scale, folder: Path) -> list[Row]:
    if which("valgrind") is None:
        raise SystemExit("--callgrind needs valgrind on the PATH: install the package valgrind")
    asks = sum(len(batch(number)) for number in range(_BATCHES))
    counts = {gpus: (_count(gpus, _BATCHES) - _count(gpus, 0)) // asks for gpus in SIZES}
    small, large = SIZES
    return [
        Row(
            bench=NAME, what=f"{large:,} against {small:,} GPUs: instructions of an admission, engine alone",
            measured=counts[large] / counts[small], detail={f"at_{gpus}": count for gpus, count in counts.items()},
        )
    ]  # fmt: skip


def _count(gpus: int, batches: int) -> int:
    command = ["valgrind", "--tool=callgrind", "--callgrind-out-file=/dev/null",
               sys.executable, "-m", "bench.instructions", str(gpus), str(batches)]  # fmt: skip
    child = subprocess.run(
        command, env=os.environ | {"PYTHONHASHSEED": "0"}, capture_output=True, text=True, check=True
    )
    found = re.search(r"Collected : (\d+)", child.stderr)
    assert found is not None, child.stderr
    return int(found[1])


def _child(gpus: int, batches: int) -> None:
    bed = Bed.build(gpus)
    for number in range(batches):
        bed.admit(batch(number), bed.decided)


if __name__ == "__main__":
    _child(int(sys.argv[1]), int(sys.argv[2]))
