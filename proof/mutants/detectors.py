"""Who spoke up when a killer saw a planted bug: the columns of the report.

A killer (a scenario, a world, a test) fails because something in it objects: the auditor by the name of an invariant,
the source by an assertion of its own, a count from scratch, the page of what must come out. An invariant is credited
only with what ``tenure.audit`` itself reported under its name; a phrase of a harness is credited to the harness.
"""

from __future__ import annotations

import re
from pathlib import Path
from types import TracebackType

from msgspec import Struct

from proof.mutants.mutant import SOURCE

INVARIANTS = tuple(f"I{number}" for number in range(1, 13))
DETECTORS = {
    **dict.fromkeys(INVARIANTS, "the auditor (`tenure.audit`), under the name of this invariant"),
    "anew": "everything is looked at anew, as after a restart, and something would start or stop: the half of I12 that "
    "no ledger shows (`tests/engine/machine.py`, `tenure.testing.scenarios`)",
    "source": "an assertion or an exception of the source itself",
    "count": "money, GPUs and runs counted from scratch differ from what the engine keeps (`tests/engine/machine.py`)",
    "state": "something is left undecided, does not come to rest, or a rebuilt state is another one (the same)",
    "page": "a scenario comes out otherwise than its page says (`tests/scenarios/*.expect.yaml`)",
    "test": "what a test of the bug's area asserts by itself",
    "time": "it does not end",
}
"""In the order of the columns, and what each is. I11 is judged by ``tenure.audit.settled_pass_wrote``, of the facts
that a harness hands to it."""
ENDLESS = "it does not end"

_VIOLATION = re.compile(r"Violation\(invariant='(I\d+)-")


class Sight(Struct, frozen=True, kw_only=True):
    """What one killer saw."""

    killer: str
    detectors: tuple[str, ...]
    words: str
    seconds: float


def sight(killer: str, words: str, seconds: float, *, file: str = "", function: str = "") -> Sight:
    """What was said, in short, and who said it: where it was raised tells, if the auditor did not."""
    found = tuple(sorted(set(_VIOLATION.findall(words)), key=INVARIANTS.index))
    detectors = found or (_speaker(killer, words, Path(file), function),)
    return Sight(
        killer=killer, detectors=detectors, words=" ".join(words.split())[:240], seconds=round(seconds, 2)
    )  # fmt: skip


def _speaker(killer: str, words: str, file: Path, function: str) -> str:
    if words.endswith(ENDLESS):
        return "time"
    if "looked at anew" in words:
        return "anew"
    if function.startswith("_count_"):
        return "count"
    if file.is_relative_to(SOURCE) and file.relative_to(SOURCE).parts[0] not in ("audit", "testing"):
        return "source"
    if killer.startswith("test "):
        return "test"
    return "page" if function == "_play" else "state"


def raised_at(trace: TracebackType | None) -> tuple[str, str]:
    """The file and the function of the innermost frame."""
    while trace is not None and trace.tb_next is not None:
        trace = trace.tb_next
    return ("", "") if trace is None else (trace.tb_frame.f_code.co_filename, trace.tb_frame.f_code.co_name)
