"""Promise: for an end behind 100, 400 and 2,000 waiting runs ``tenure up`` computes no longer than slurmctld does.

A shell script that lies beside this checkout, as the traces do, sets Debian's Slurm up on loopback with an accounting
database, and a fleet of Tenure that runs processes: four nodes of 8 GPUs each. Either gets four runs that fill all of
them and so many that wait, of 1 to 8 GPUs or of whole nodes, the same ones with the same declared durations. Then a run
ends, long before its time; five seconds later the next, twelve times. What is compared is the processor time of the
two processes that decide, from the first end until five seconds after the last, whatever they did in it: noticing the
end, deciding, recording, letting others start, looking again.

To be installed first, which nothing here does: slurmctld, slurmd, slurm-client, slurmdbd, slurm-wlm-basic-plugins,
munge and mariadb-server (``apt-get install --no-install-recommends``). It needs root, and the cgroup hierarchy
``cpuacct`` (of version 1), which counts processor time. Nothing listens but on loopback, and all is taken down again.

Not shown: that both do the same. Slurm looks for starts after an end, but plans ahead (backfill) only every 30 seconds,
so that a start may come half a minute later (beside each ratio), and the window of an end is longer then; it keeps its
books in two other processes, which are not counted. Tenure decides at once, promises starts, and writes all of it
synced to its ledger, which is counted. Launching (slurmd, supervisors) is counted on neither side. One small fleet on
one machine, without real GPUs, an end every five seconds: not a cluster's network, nor a storm of ends, where Slurm
decides for many at once. Slurm is set up as Debian delivers it; tuned, it may cost less or more.
"""

from __future__ import annotations

import os
import shutil
import sys
from collections.abc import Iterator
from pathlib import Path

import msgspec
from msgspec import Struct

import tenure
from bench.evidence import ended
from bench.result import Row, Scale

NAME = "slurm"
SCRIPT = Path(__file__).resolve().parents[2] / "shared" / "bench" / "slurm-headtohead.sh"
"""The script lies beside the checkout."""
GROUPS = Path("/sys/fs/cgroup/cpuacct")
PROGRAMS = (
    "slurmctld", "slurmd", "slurmdbd", "sbatch", "sacctmgr", "munged", "mariadbd", "mariadb-install-db",
)  # fmt: skip
GOAL = 1.0
GAP_SECONDS = 5
_ENDS = {"full": 12, "quick": 4, "tiny": 2}


class Cell(Struct, frozen=True):
    """A queue behind which runs end."""

    waiting: int
    mixed: bool

    @property
    def name(self) -> str:
        return f"{self.waiting:,} waiting runs of {'1 to 8 GPUs' if self.mixed else 'whole nodes'}"

    def arguments(self, system: str, *, ends: int) -> list[str]:
        mixed = ["mixed"] if self.mixed else []
        return ["d", system, str(self.waiting), str(ends), str(GAP_SECONDS), *mixed]


CELLS = (Cell(100, mixed=True), Cell(400, mixed=True), Cell(2_000, mixed=False))


class Spread(Struct, frozen=True):
    """Seconds: the least, the one in the middle, the most."""

    min: float
    p50: float
    max: float


class Ends(Struct, frozen=True):
    """What one system took for some ends: a line of the script."""

    ends: int
    decider_mean: float
    """Seconds of processor time for each end, of the process that decides."""
    decider_per_end: Spread
    next_start: Spread
    """Seconds from an end to the first instruction of a run that starts for it."""


def run(scale: Scale, folder: Path) -> list[Row]:
    why = lacking()
    if why is not None:
        return [Row(bench=NAME, what=f"not measured: {why}", measured=0, unit="")]
    cells = CELLS if scale.name == "full" else CELLS[:1]
    return [row for cell in cells for row in _compared(cell, ends=_ENDS[scale.name])]


def lacking() -> str | None:
    """What is not there that this needs; None if all of it is."""
    if not SCRIPT.is_file():
        return "the script that sets Slurm up does not lie beside this checkout"
    if os.geteuid() != 0:
        return "Slurm's daemons are set up by root"
    absent = [name for name in PROGRAMS if shutil.which(name) is None]
    if absent:
        return f"Slurm is not installed (no {', '.join(absent)})"
    if not os.access(GROUPS / "cgroup.procs", os.W_OK):
        return "there is no cgroup hierarchy cpuacct (version 1) to count processor time with"
    return None


def _compared(cell: Cell, *, ends: int) -> Iterator[Row]:
    theirs, ours = (_measured(cell, system, ends=ends) for system in ("slurm", "tenure"))
    yield Row(
        bench=NAME, what=f"{cell.name}: processor time of an end against slurmctld's", goal=GOAL,
        measured=ours.decider_mean / theirs.decider_mean,
        detail={"ms_tenure": _ms(ours.decider_mean), "ms_slurmctld": _ms(theirs.decider_mean),
                "ms_tenure_median": _ms(ours.decider_per_end.p50),
                "ms_slurmctld_median": _ms(theirs.decider_per_end.p50),
                "s_to_the_next_start_tenure": round(ours.next_start.p50, 2),
                "s_to_the_next_start_slurm": round(theirs.next_start.p50, 2)},
    )  # fmt: skip


def _measured(cell: Cell, system: str, *, ends: int) -> Ends:
    # The script works in a folder of its own: what is measured is the code that this process has, wherever it lies.
    code_of = str(Path(tenure.__file__).resolve().parents[1])
    environ = os.environ | {"TENURE_BIN": str(Path(sys.executable).parent), "PYTHONPATH": code_of}
    code, out = ended([str(SCRIPT), *cell.arguments(system, ends=ends)], environ=environ)
    if code:
        raise RuntimeError(f"{SCRIPT.name} ended with {code}: {out[-2000:]}")
    return read(out, ends=ends)


def read(out: str, *, ends: int) -> Ends:
    """The line that tells of the ends, of all that the script prints.

    >>> line = '{"cell": "d", "ends": 2, "decider_mean": 0.02, "next_start": {"min": 0.1, "p50": 0.2, "max": 0.4}, '
    >>> line += '"decider_per_end": {"min": 0.01, "p50": 0.02, "max": 0.03}, "sys": "tenure"}'
    >>> read('{"cell": "d-fill", "n": 100}' + chr(10) + line, ends=2).decider_mean
    0.02
    """
    lines = [msgspec.json.decode(line) for line in out.splitlines() if line.startswith("{")]
    found = next((line for line in lines if line.get("cell") == "d"), None)
    if found is None:
        raise RuntimeError(f"no line tells of the ends: {out[-2000:]}")
    if found["ends"] != ends or any(line.get("cell") == "d-timeout" for line in lines):
        raise RuntimeError(f"after end {found['ends']} of {ends} nothing started any more: {out[-2000:]}")
    return msgspec.convert(found, Ends)


def _ms(seconds: float) -> float:
    return round(seconds * 1e3, 1)
