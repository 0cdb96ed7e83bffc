"""`budgets lent`: a lender's statement: what went to whom, until when, and what is left to lend; and the way back."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import click

from tenure.cli.exits import Exit
from tenure.cli.loans import Loan, Pair, loans, reciprocal
from tenure.cli.lookup import view_at
from tenure.cli.output import Cell, Format, Table, columns, or_say, section, show
from tenure.cli.port import Fleet, LendingLine, View
from tenure.cli.session import Session, output, verb
from tenure.cli.times import MOMENT
from tenure.cli.trouble import Trouble
from tenure.cli.words import gpu_hours, safe, stamp
from tenure.units import HOUR, GpuMicros, Instant, format_time


@verb("lent", "Show who lent what to whom, and what is left to lend.")
@click.argument("who", required=False, metavar="[OWNER|BUDGET]")
@click.option("--since", type=MOMENT, metavar="TIME", help="From then on; from the beginning if left out.")
@click.option("--until", type=MOMENT, metavar="TIME", help="Up to then, and as it was then; up to now if left out.")
@output()
def lent(session: Session, output: Format, who: str | None, since: Instant | None, until: Instant | None) -> None:
    """Show who lent what to whom: the statement of one lender, or, without a name, of all.

    For each loan: the borrower and its run, GPUs out at the end of the period, GPU-hours in it, and until when. Then
    what the same owner borrowed, how far its lending caps are used and which limit binds, and the owners who lend to
    each other, with the net between them. Family is not lent to: it shares (`budgets usage` shows that).

    COULD-LEND is GPUs now, to a borrower that declares no duration.

    \b
    kubectl runs budgets lent org:ai:vision
    kubectl runs budgets lent vision --since 2025-11-01 --until 2025-12-01

    TIME is 2025-11-01T00:15:00Z, 2025-11-01, now, or 2h (that long ago).

    JSON: {"owner", "budget", "since", "until", "lent": [...], "borrowed": [...], "limits": [...], "reciprocal": [...]}.
    Names: the runs that were lent to.
    """
    with session.fleet() as fleet:
        told = _Statement(session, fleet, view_at(fleet, until), who, since)
    show(
        output,
        tables=told.parts,
        data=told.record,
        names=lambda: dict.fromkeys(one.run for one in told.lent),
        hint=told.next_step(),
    )


class _Statement:
    """What was lent and borrowed in ``[since, until)``."""

    def __init__(self, session: Session, fleet: Fleet, view: View, who: str | None, since: Instant | None) -> None:
        self.session = session
        self.since, self.until = since or 0, view.now
        if self.since >= self.until:
            raise Trouble(f"--since {stamp(since)} is not before --until {stamp(self.until)}", next_step="swap them")
        self.owner, self.budget = self._who(fleet, view, who)
        if self.budget is not None:
            self.lent = self._loans(fleet, budget=self.budget)
        else:
            self.lent = self._loans(fleet, payer=self.owner)
        self.borrowed = self._loans(fleet, owner=self.owner) if self.owner else []
        both = [*(self.lent if self.budget is None else self._loans(fleet, payer=self.owner)), *self.borrowed]
        self.pairs = reciprocal(both, owner=self.owner)
        self.limits = [
            one for one in view.lending() if self.budget in (None, one.budget) and self.owner in (None, one.owner)
        ]

    def _loans(self, fleet: Fleet, **which: Any) -> list[Loan]:
        rows = fleet.find_leases(since=self.since, until=self.until + 1, funding="borrowed", **which)
        return loans(rows, since=self.since, at=self.until)

    def _who(self, fleet: Fleet, view: View, who: str | None) -> tuple[str | None, str | None]:
        """(owner, budget) of a name: a Budget, also one that was deleted, or else an owner who pays or borrows."""
        if who is None:
            return None, None
        owners = {item.metadata.name: item.spec.owner for item in view.budgets()}
        if who in owners:
            return owners[who], who
        if who in owners.values() or fleet.find_leases(payer=who, limit=1) or fleet.find_leases(owner=who, limit=1):
            return who, None
        deleted = fleet.find_leases(budget=who, newest=True, limit=1)
        if deleted:
            return deleted[0].lease.payer, who
        problem = f"there is no Budget, and no owner, of the name {who}"
        raise Trouble(problem, next_step=self.session.command("budgets", "list"), exit=Exit.NOT_FOUND)

    def next_step(self) -> str:
        if self.owner is None and self.lent:
            return self.session.command("budgets", "lent", self.lent[0].lender)
        return self.session.command("chargeback")

    # -- for people --

    def parts(self) -> Iterator[Table | str]:
        since = stamp(self.since) if self.since else "the beginning"
        yield f"From {since} to {stamp(self.until)}, GPUs as of then:"
        whom = f"Budget/{self.budget}" if self.budget else self.owner or "everybody"
        yield section(f"Lent by {whom}")
        yield or_say(self._loan_table(self.lent, "TO", every=self.owner is None))
        if self.owner is not None:
            yield section(f"Borrowed by {self.owner}")
            yield or_say(self._loan_table(self.borrowed, "FROM"))
        yield section("Left to lend (hours: in the window in force)")
        yield or_say(_limit_table(self.limits, whom))
        if self.pairs:
            yield section("Lending to each other")
            yield _pair_table(self.pairs)

    def _loan_table(self, found: list[Loan], other: str, *, every: bool = False) -> Table:
        heads = columns(*(["FROM"] if every else []), other, "RUN", "ENVELOPE", ">GPUS", ">GPU-HOURS", "UNTIL")
        rows: list[list[Cell]] = [
            [
                *([one.lender] if every else []), one.borrower if other == "TO" else one.lender, one.run,
                f"{one.budget}/{one.envelope}", str(one.gpus), gpu_hours(one.used), one.end(self.until),
            ]
            for one in found
        ]  # fmt: skip
        if len(found) > 1:
            gpus, used = sum(one.gpus for one in found), sum(one.used for one in found)
            rows.append([("TOTAL", "strong"), *["-"] * (3 if every else 2), str(gpus), gpu_hours(used), ""])
        return Table(heads, rows, "nothing in this period")

    # -- for programs --

    def record(self) -> dict[str, Any]:
        return {
            "owner": self.owner,
            "budget": self.budget,
            "since": format_time(self.since),
            "until": format_time(self.until),
            "lent": [one.record() for one in self.lent],
            "borrowed": [one.record() for one in self.borrowed],
            "limits": [_limit_record(one) for one in self.limits],
            "reciprocal": [one.record() for one in self.pairs],
        }


def _limit_table(limits: list[LendingLine], whom: str) -> Table:
    heads = (
        "ENVELOPE", "+TYPE", ">LENT", ">LEFT", ">OF", ">HOURS-LENT", ">COMMITTED", ">HOURS-LEFT", ">HOURS-OF",
        ">COULD-LEND", "BOUND-BY", "TO",
    )  # fmt: skip
    return Table(columns(*heads), [_limit_row(one) for one in limits], f"{safe(whom)} lends to nobody")


def _limit_row(one: LendingLine) -> list[Cell]:
    return [
        f"{one.budget}/{one.envelope}", one.flavor, str(one.lent), _number(_left(one)), _number(one.lent_max),
        gpu_hours(one.used), gpu_hours(one.committed), _hours(_hours_left(one)), _hours(one.used_max),
        (str(one.room), "" if one.room else "bad"), one.bound, ", ".join(one.to) or "nobody",
    ]  # fmt: skip


def _limit_record(one: LendingLine) -> dict[str, Any]:
    left = _hours_left(one)
    return {
        "budget": one.budget, "envelope": one.envelope, "owner": one.owner, "flavor": one.flavor, "to": list(one.to),
        "lent": one.lent, "left": _left(one), "maxConcurrency": one.lent_max,
        "lentGPUHours": one.used / HOUR, "committedGPUHours": one.committed / HOUR,
        "leftGPUHours": None if left is None else left / HOUR,
        "maxGPUHours": None if one.used_max is None else one.used_max // HOUR,
        "couldLend": one.room, "boundBy": one.bound,
    }  # fmt: skip


def _left(one: LendingLine) -> int | None:
    return None if one.lent_max is None else max(0, one.lent_max - one.lent)


def _hours_left(one: LendingLine) -> GpuMicros | None:
    return None if one.used_max is None else max(0, one.used_max - one.used - one.committed)


def _pair_table(pairs: list[Pair]) -> Table:
    rows: list[list[Cell]] = [
        [one.one, one.other, gpu_hours(one.lent), gpu_hours(one.borrowed), gpu_hours(one.net)] for one in pairs
    ]
    return Table(columns("OWNER", "WITH", ">LENT-HOURS", ">BORROWED-HOURS", ">NET-HOURS"), rows)


def _number(value: int | None) -> str:
    return "-" if value is None else str(value)


def _hours(value: GpuMicros | None) -> str:
    return "-" if value is None else gpu_hours(value)
