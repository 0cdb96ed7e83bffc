"""The independent auditor: checks the invariants of SPEC 13 from the ledger alone.

>>> from tenure.audit import Auditor
>>> Auditor().check(now=0, settled=True)
[]
"""

from tenure.audit.auditor import Auditor, check_all, settled_pass_wrote
from tenure.audit.checks_limits import EXHAUSTED, LATE, WINDOW_OVER
from tenure.audit.invariants import INVARIANTS, Invariant, invariants_markdown
from tenure.audit.recount import Recount, recount
from tenure.audit.report import Violation

__all__ = [
    "EXHAUSTED",
    "INVARIANTS",
    "LATE",
    "WINDOW_OVER",
    "Auditor",
    "Invariant",
    "Recount",
    "Violation",
    "check_all",
    "invariants_markdown",
    "recount",
    "settled_pass_wrote",
]
