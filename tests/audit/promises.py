"""Reservations for ledgers written by hand."""

from __future__ import annotations

from typing import Any

from tenure.api.run import Run
from tenure.facts import Reservation, Reserved, Segment, Share, Slice
from tests.audit.builders import SYS, T0, time


def plan(start: str | None, *shares: str, paid: str = "west", budget: str = "sys", until: str | None = None) -> Slice:
    """``shares`` are node:gpus."""
    split = [share.split(":") for share in shares]
    gpus = sum(int(count) for _, count in split)
    return Slice(
        start=None if start is None else time(start),
        until=None if until is None else time(until),
        width=gpus,
        shares=tuple(Share(node=name, gpus=int(count)) for name, count in split),
        domains=("us-west/gpu-a/A",),
        segments=(Segment(budget=budget, envelope=paid, payer=SYS, funding="owned", gpus=gpus),),
    )


def reserved(planned: Slice, of: Run, **other: Any) -> Reserved:
    fields: dict[str, Any] = {"promise": planned, "confidence": "projected", **other}
    name = of.metadata.name
    one = Reservation(
        namespace="rai", name=name, uid=f"r-{name}", run=name, run_uid=of.metadata.uid, made=T0, plan=planned, **fields
    )
    return Reserved(reservation=one)
