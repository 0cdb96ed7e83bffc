"""Exit codes, once: programs rely on them, the reference page prints them, and every verb uses them by name."""

from __future__ import annotations

from enum import IntEnum


class Exit(IntEnum):
    """How a command ended."""

    OK = 0
    UNEXPECTED = 1
    INVALID = 2
    WOULD_WAIT = 3
    NEVER = 4
    NOT_FOUND = 5
    REFUSED = 6
    FINDINGS = 7
    INTERRUPTED = 130
    PIPE_CLOSED = 141


MEANINGS: dict[Exit, str] = {
    Exit.OK: "Done. For `plan`: every run would start now.",
    Exit.UNEXPECTED: "Something that should not happen: a bug, or a machine in trouble. `TENURE_DEBUG=1` shows where.",
    Exit.INVALID: "Wrong usage, or input that is not valid. Nothing was changed.",
    Exit.WOULD_WAIT: "`plan`: a run would wait.",
    Exit.NEVER: "`plan`: a run can never start as things are.",
    Exit.NOT_FOUND: "There is no such run, node, budget, pod or fleet.",
    Exit.REFUSED: "The ledger refused, `ledger verify` found something, `resolve` finds no room, or another drives.",
    Exit.FINDINGS: "`audit` found an invariant that does not hold, or `doctor` something that is not right.",
    Exit.INTERRUPTED: "Stopped by Ctrl-C (128 + SIGINT). Commands that follow something end with 0 instead.",
    Exit.PIPE_CLOSED: "The reader of the output went away (128 + SIGPIPE), as with `| head`.",
}
