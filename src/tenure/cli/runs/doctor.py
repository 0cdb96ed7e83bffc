"""`doctor`: is this installation as it should be, and how is what is not mended?"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from tenure.cli.doctor.report import STYLES, Check
from tenure.cli.exits import Exit
from tenure.cli.output import Cell, Format, Table, columns, show
from tenure.cli.session import Session, kubernetes, output, verb
from tenure.cli.trouble import Trouble
from tenure.cli.words import plural

if TYPE_CHECKING:
    from collections.abc import Sequence


@verb("doctor", "Check an installation, and say how to mend what is not right.")
@output("table", "json", "yaml")
def command(session: Session, output: Format) -> Exit:
    """Check an installation, and say how to mend what is not right. Nothing is changed.

    Of a cluster: the API server, clocks, kinds, admission policies and whether they are enforced, roles, the webhook
    and its certificate, the ledger against the copy on this computer, the operator and its leadership, labels and
    taints of GPU nodes, namespaces and their owners, budgets, custodians. Of an embedded fleet: the file, its chain and
    its anchor, disk and rights, clock, driver, machines, budgets, custodians.

    A problem keeps something from working or from being safe; a warning is yours to judge; unknown says which right it
    takes to look. Exit code 0 means that there is no problem, 7 that there is one.

    \b
    kubectl runs doctor --context prod
    kubectl runs doctor --local fleet.db -o json

    JSON: {"ok", "checks": [{"check", "result", "finding", "fix"}]}.
    """
    checks = list(_examined(session))
    counts = Counter(one.result for one in checks)
    show(
        output,
        tables=lambda: [_table(checks)],
        data=lambda: {"ok": not counts["problem"], "checks": [_record(one) for one in checks]},
        names=list,
        hint="" if counts["problem"] else session.command("audit"),
    )
    if not counts["problem"]:
        return Exit.OK
    more = f" and {plural(counts['warning'], 'warning')}" if counts["warning"] else ""
    problem = f"{plural(counts['problem'], 'problem')}{more}"
    raise Trouble(problem, next_step="mend what is listed above, from the top; then call the doctor again",
                  exit=Exit.FINDINGS)  # fmt: skip


def _examined(session: Session) -> Iterator[Check]:
    if session.local is not None:
        from tenure.cli.doctor import local

        return local.examined(session.local, session.anchor)
    with kubernetes():
        from tenure.cli.doctor import cluster

    return cluster.examined(session.kubeconfig, session.context, session.archive)


def _table(checks: Sequence[Check]) -> Table:
    rows: list[list[Cell]] = [
        [
            one.check,
            (one.result, STYLES[one.result]),
            f"{one.finding.rstrip('.')}. Fix: {one.fix}" if one.fix else one.finding,
        ]
        for one in checks
    ]
    return Table(columns("CHECK", "RESULT", "FINDING"), rows)


def _record(one: Check) -> dict[str, Any]:
    return {"check": one.check, "result": one.result, "finding": one.finding, "fix": one.fix or None}
