"""Loans: leases that somebody outside the family paid for, put together by lender, envelope and borrowing run.

A loan is what one envelope lent to one run in a period: GPUs at its end, GPU-time over it, and until when. Two owners
who both lend to each other are *reciprocal*; what counts between them is the net. All sums are integers.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from msgspec import Struct

from tenure.cli.words import moment, stamp
from tenure.ledger import LeaseRow
from tenure.units import HOUR, GpuMicros, Instant, format_time


class Loan(Struct, kw_only=True):
    """What one envelope lent to one run in ``[since, at)``."""

    lender: str
    borrower: str
    run: str
    budget: str
    envelope: str
    gpus: int = 0
    """Held at the end of the period."""
    used: GpuMicros = 0
    until: Instant | None = None
    """If GPUs are held: the end that the run declared; None: it declared none."""
    ended: Instant = 0
    """If none is held: when the last lease ended."""

    def end(self, at: Instant) -> str:
        """Until when, in words."""
        if not self.gpus:
            return f"ended {stamp(self.ended)}"
        if self.until is None:
            return "no end declared"
        return moment(self.until, at) if self.until > at else f"overdue since {stamp(self.until)}"

    def record(self) -> dict[str, Any]:
        return {
            "lender": self.lender, "borrower": self.borrower, "run": self.run, "budget": self.budget,
            "envelope": self.envelope, "gpus": self.gpus, "gpuMicroseconds": self.used, "gpuHours": self.used / HOUR,
            "declaredEnd": format_time(self.until) if self.gpus and self.until is not None else None,
            "ended": None if self.gpus else format_time(self.ended),
        }  # fmt: skip


class Pair(Struct, frozen=True, kw_only=True):
    """Two owners who lend to each other."""

    one: str
    other: str
    lent: GpuMicros
    """By the first to the second."""
    borrowed: GpuMicros
    """By the first from the second."""

    @property
    def net(self) -> GpuMicros:
        """What the first has lent beyond what it borrowed; negative: it owes."""
        return self.lent - self.borrowed

    def record(self) -> dict[str, Any]:
        return {
            "owner": self.one, "with": self.other,
            "lentGPUMicroseconds": self.lent, "lentGPUHours": self.lent / HOUR,
            "borrowedGPUMicroseconds": self.borrowed, "borrowedGPUHours": self.borrowed / HOUR,
            "netGPUMicroseconds": self.net, "netGPUHours": self.net / HOUR,
        }  # fmt: skip


def loans(rows: Iterable[LeaseRow], *, since: Instant, at: Instant) -> list[Loan]:
    """Loans of a period; those with GPUs out first, then by lender, borrower, run and envelope."""
    found: dict[tuple[str, ...], Loan] = {}
    for row in rows:
        lease = row.lease
        key = (lease.payer, lease.owner, lease.run_key, lease.budget, lease.envelope)
        loan = found.setdefault(key, Loan(lender=lease.payer, borrower=lease.owner, run=lease.run_key,
                                          budget=lease.budget, envelope=lease.envelope))  # fmt: skip
        _add(loan, row, since=since, at=at)
    return [found[key] for key in sorted(found, key=lambda key: (not found[key].gpus, key))]


def _add(loan: Loan, row: LeaseRow, *, since: Instant, at: Instant) -> None:
    lease, open_now = row.lease, row.end is None or at < row.end
    loan.used += row.used(since=since, until=at)
    if not open_now:
        loan.ended = max(loan.ended, row.end or 0)
        return
    # The latest end counts, and whoever has not declared one may stay for ever.
    first = not loan.gpus
    ends = None if lease.until is None or (loan.until is None and not first) else max(lease.until, loan.until or 0)
    loan.gpus += len(lease.gpus)
    loan.until = ends


def reciprocal(found: Iterable[Loan], *, owner: str | None = None) -> list[Pair]:
    """Owners who lend to each other, each pair once: seen from ``owner``, or else from who has lent more."""
    lent: dict[tuple[str, str], GpuMicros] = {}
    for loan in found:
        way = (loan.lender, loan.borrower)
        lent[way] = lent.get(way, 0) + loan.used
    both = [
        Pair(one=one, other=other, lent=lent[one, other], borrowed=lent[other, one])
        for one, other in sorted(lent)
        if (other, one) in lent
    ]
    if owner is not None:
        return [pair for pair in both if pair.one == owner]
    return [pair for pair in both if pair.net > 0 or (not pair.net and pair.one < pair.other)]
