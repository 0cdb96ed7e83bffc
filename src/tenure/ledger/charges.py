"""Charges: what each payer paid for, day by day, at the finest grain that a bill has. Exact.

A charge is the part of some leases that falls on one UTC day: those of one run, paid by one envelope, in one class and
one role. Cutting at midnight loses nothing, because a lease is a product of integers:

    sum over charges of used = sum over leases of gpus x |[start, end) ∩ [since, until)|

Every bill, by owner, run or day, is a sum over these rows, so bills at different grains agree to the microsecond.
"""

from __future__ import annotations

import sqlite3

import msgspec
from msgspec import Struct

from tenure.api.lease import Role
from tenure.facts import FundingClass
from tenure.ledger.queries import Filter, Period, days, select
from tenure.units import DAY, GpuMicros, Instant


class Charge(Struct, frozen=True, kw_only=True, order=True, gc=False):
    """What one envelope paid for one run on one day, in one class and role."""

    day: Instant
    """The midnight (UTC) that it begins with."""
    payer: str
    budget: str
    envelope: str
    flavor: str
    owner: str
    """Whose run it was."""
    namespace: str
    run: str
    uid: str
    funding: FundingClass
    role: Role
    used: GpuMicros = 0

    @property
    def run_key(self) -> str:
        return f"{self.namespace}/{self.run}"


_KEY = Charge.__struct_fields__[1:-1]
_FLAVOR = """coalesce((SELECT flavor FROM runs
             WHERE runs.namespace = leases.namespace AND runs.name = leases.run AND runs.uid = leases.uid), '')"""
_Row = tuple[int, int, int, str, str, str, str, str, str, str, str, str, str]


def charges(db: sqlite3.Connection, which: Filter, *, since: Instant, until: Instant) -> list[Charge]:
    """Charges of ``[since, until)``, sorted; an open lease counts up to ``until``."""
    when = Period(since=since, until=until)
    key = ", ".join(_FLAVOR if name == "flavor" else name for name in _KEY)
    sql = select(f"MAX(start, :since), MIN(COALESCE(end, :before), :before), gpus, {key}", which, when)
    totals: dict[tuple[int | str, ...], GpuMicros] = {}
    for row in db.execute(sql, which.values() | when.values()):
        start, end, gpus, *rest = msgspec.convert(row, _Row)
        for day, length in days(start, end):
            name = (day * DAY, *rest)
            totals[name] = totals.get(name, 0) + gpus * length
    names = ("day", *_KEY)
    return sorted(msgspec.convert(dict(zip(names, name, strict=True)) | {"used": used}, Charge)
                  for name, used in totals.items())  # fmt: skip
