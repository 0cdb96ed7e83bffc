"""Who paid for leases: sums by payer and class, exact, from the ledger's rows, at any instant."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from msgspec import Struct

from tenure.cli.output import Cell, Table, columns
from tenure.cli.words import gpu_hours, percents
from tenure.ledger import LeaseRow
from tenure.units import HOUR, GpuMicros, Instant

CLASSES = ("owned", "shared", "borrowed")


class Share(Struct, kw_only=True):
    """What one envelope paid, in one class."""

    funding: str
    payer: str
    budget: str
    envelope: str
    gpus: int = 0
    """Held at that instant, spares included."""
    spares: int = 0
    used: GpuMicros = 0
    spare_used: GpuMicros = 0

    def record(self) -> dict[str, Any]:
        return {
            "payer": self.payer, "budget": self.budget, "envelope": self.envelope, "class": self.funding,
            "gpus": self.gpus, "spares": self.spares, "gpuMicroseconds": self.used, "gpuHours": self.used / HOUR,
            "spareGPUHours": self.spare_used / HOUR,
        }  # fmt: skip


def split(rows: Iterable[LeaseRow], *, now: Instant) -> list[Share]:
    """Shares as of an instant, in the order owned, shared, borrowed, then by payer and envelope."""
    shares: dict[tuple[str, str, str, str], Share] = {}
    for row in rows:
        lease = row.lease
        key = (lease.funding, lease.payer, lease.budget, lease.envelope)  # a Budget may have had another owner before
        share = shares.setdefault(
            key, Share(funding=lease.funding, payer=lease.payer, budget=lease.budget, envelope=lease.envelope)
        )
        _add(share, row, now)
    return sorted(shares.values(), key=lambda one: (CLASSES.index(one.funding), one.payer, one.budget, one.envelope))


def _add(share: Share, row: LeaseRow, now: Instant) -> None:
    held = row.lease.start <= now and (row.end is None or now < row.end)
    used, gpus = row.used(since=0, until=now), len(row.lease.gpus) if held else 0
    share.gpus += gpus
    share.used += used
    if row.lease.role == "Spare":
        share.spares += gpus
        share.spare_used += used


def total(shares: Iterable[Share]) -> GpuMicros:
    return sum(share.used for share in shares)


def by_class(shares: Iterable[Share]) -> dict[str, tuple[int, GpuMicros]]:
    """GPUs held and GPU-time used in each class; a class in which nothing was ever paid is left out."""
    sums: dict[str, tuple[int, GpuMicros]] = {}
    for one in shares:
        gpus, used = sums.get(one.funding, (0, 0))
        sums[one.funding] = (gpus + one.gpus, used + one.used)
    return {kind: sums[kind] for kind in CLASSES if kind in sums}


def class_records(shares: Iterable[Share]) -> dict[str, dict[str, Any]]:
    """The same for programs; here every class is there."""
    sums = by_class(shares)
    return {
        kind: {"gpus": gpus, "gpuMicroseconds": used, "gpuHours": used / HOUR}
        for kind in CLASSES
        for gpus, used in [sums.get(kind, (0, 0))]
    }


def class_summary(shares: list[Share]) -> str:
    """The split in one line: ``16.00 GPU-hours: 12.00 owned (75%), 4.00 borrowed (25%)``."""
    whole, sums = total(shares), by_class(shares)
    parts = [
        f"{gpu_hours(used)} {kind}" + (f" ({part})" if whole else "")
        for (kind, (_, used)), part in zip(sums.items(), percents([used for _, used in sums.values()]), strict=True)
    ]
    return f"{gpu_hours(whole)} GPU-hours: {', '.join(parts)}"


def table(shares: list[Share], *, empty: str) -> Table:
    """A row for each share, and the sum if there are several."""
    rows: list[list[Cell]] = [
        [one.payer, one.funding, f"{one.budget}/{one.envelope}", str(one.gpus), str(one.spares), gpu_hours(one.used),
         gpu_hours(one.spare_used), part]
        for one, part in zip(shares, percents([one.used for one in shares]), strict=True)
    ]  # fmt: skip
    if len(shares) > 1:
        sums = [str(sum(one.gpus for one in shares)), str(sum(one.spares for one in shares))]
        spare = gpu_hours(sum(one.spare_used for one in shares))
        rows.append([("TOTAL", "strong"), "-", "-", *sums, gpu_hours(total(shares)), spare, "100%"])
    heads = columns("PAYER", "CLASS", "ENVELOPE", ">GPUS", "+>SPARES", ">GPU-HOURS", "+>SPARE-HOURS", ">SHARE")
    return Table(heads, rows, empty)
