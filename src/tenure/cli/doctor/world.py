"""What a ledger's state shows to be wrong, in either home: machines that cannot be used, money that cannot be spent,
draws that nobody can make, time that stands still."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING

from tenure.cli.doctor.report import Check, ok, problem, warning
from tenure.cli.words import age, plural, some, stamp
from tenure.engine import State, next_wake
from tenure.engine.reasons import sentence
from tenure.engine.topology import matches
from tenure.units import SECOND, Instant

if TYPE_CHECKING:
    from tenure.engine.topology import Row

OVERDUE = 60 * SECOND
"""Something that was due so long ago shows that nobody acts."""
AHEAD = 5 * SECOND
QUIET = 60 * SECOND
"""A decision that is younger shows that somebody acts."""


def machines(state: State, *, mend: str, join: str) -> Iterator[Check]:
    """Machines that are quarantined for what their labels or counts say; ``mend`` is how labels are set here, ``join``
    how a machine comes."""
    rows = [state.topology.rows[name] for name in sorted(state.topology.rows)]
    faulty = [(row.name, row.fault) for row in rows if row.fault is not None]
    for name, fault in faulty[:10]:
        label = fault.data.get("label", "")
        yield problem("machines", sentence(fault), mend.format(node=name, label=label or "LABEL"))
    if len(faulty) > 10:
        yield problem("machines", f"{len(faulty) - 10} more are quarantined", "kubectl runs nodes lists them")
    if not rows:
        yield problem("machines", "there is none, so nothing can start", join)
    elif not faulty:
        gpus = plural(sum(row.gpus for row in rows), "GPU")
        yield ok("machines", f"{plural(len(rows), 'machine')} with {gpus}, all labelled")


def money(state: State) -> Iterator[Check]:
    """Envelopes that no machine matches: money that can be spent nowhere."""
    rows = [row for row in state.topology.rows.values() if row.site is not None]
    envelopes = [(name, one) for name in sorted(state.budgets) for one in state.budgets[name].spec.envelopes]
    idle = [
        f"{budget}/{one.name}" for budget, one in envelopes if not _spendable(rows, one.flavor, one.selector.items())
    ]
    if not envelopes:
        yield warning("budgets", "there is none, so nobody can pay for a run", "kubectl runs submit -f budget.yaml")
    elif idle:
        fix = "compare flavor and selector with the labels of `kubectl runs nodes -o yaml`"
        yield warning("budgets", f"no machine matches {some(idle)}: it can be spent nowhere", fix)
    else:
        yield ok("budgets", f"{plural(len(envelopes), 'envelope')}, and machines that each can be spent on")


def _spendable(rows: list[Row], flavor: str, selector: Iterable[tuple[str, str]]) -> bool:
    wanted = list(selector)
    return any(row.site is not None and row.site.flavor == flavor and matches(wanted, row.labels) for row in rows)


def draws(state: State) -> Iterator[Check]:
    if state.roots:
        yield ok("custodians", f"chains of {some(sorted(state.roots))} are published: draws can be made")
    else:
        fix = "`tenure up` and `tenure operator` make one; docs/concepts/lottery.md has custodians of your own"
        yield warning("custodians", "no custodian has published a chain: nobody can be drawn in a lottery", fix)


def progress(
    state: State, *, driven: bool, now: Instant, drive: str, last: Instant | None = None, pods: str = ""
) -> Iterator[Check]:
    """Whether somebody acts, and in good time.

    ``last``: nothing but the last decision, of then, shows that somebody does; ``pods`` then says where to look.
    """
    wake = next_wake(state)
    late = wake is not None and now - wake > OVERDUE
    waiting = sum(row.life.phase == "Pending" for row in state.runs.values())
    if not driven:
        say = problem if late or waiting or state.leases else warning
        left = f"{plural(waiting, 'run')} waiting, {plural(len(state.leases), 'lease')} open"
        yield say("driver", f"nobody drives this fleet: {left}", drive)
    elif late:
        assert wake is not None
        fix = "look at its log; stop it and start it again: nothing is lost"
        yield problem("driver", f"somebody drives, but what was due {age(wake, now)} ago has not happened", fix)
    elif last is not None and now - last > QUIET:
        told = f"cannot tell: no election is held, and nothing was decided since {stamp(last)}, {age(last, now)} ago"
        fix = f"start the operator with --elect, so that it shows that it lives, or look at its pod: {pods}"
        yield warning("driver", told, fix)
    else:
        yield ok("driver", "somebody drives this fleet, and nothing is overdue")


def time_of_ledger(last: Instant, *, now: Instant) -> Iterator[Check]:
    """The clock of this machine against the last entry: the ledger's time never runs back."""
    if last > now + AHEAD:
        fix = "set this machine's clock (timedatectl set-ntp true); entries are not written before the last one's time"
        yield problem(
            "clock", f"the last entry is of {stamp(last)}, {age(now, last)} ahead of this machine's clock", fix
        )
    else:
        yield ok("clock", f"the last entry is of {stamp(last)}, {age(last, now)} ago")
