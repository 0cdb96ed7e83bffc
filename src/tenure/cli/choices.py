"""Other requests for a run that waits, each with its start and its cost: what `plan` and `explain` say would help."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any

from tenure.cli.output import Cell, Table, columns, section
from tenure.cli.words import age, stamp
from tenure.units import SECOND, Instant, format_time

if TYPE_CHECKING:
    from tenure.engine.alternatives import Alternative
    from tenure.engine.waits import Rest


def parts(found: Sequence[Alternative], *, now: Instant) -> Iterator[Table | str]:
    """The alternatives as a table under a heading; nothing if there are none."""
    if found:
        yield section("What else could be asked for")
        yield table(found, now=now)


def table(found: Sequence[Alternative], *, now: Instant) -> Table:
    heads = ("KIND", "START", ">STARTS-IN", "CONFIDENCE", ">GPUS", ">GPU-HOURS", ">BORROWED", "REQUEST")
    return Table(columns(*heads), [_row(one, now) for one in found])


def _row(one: Alternative, now: Instant) -> list[Cell]:
    return [
        one.kind, stamp(one.at), ("now", "good") if one.confidence == "now" else age(now, one.at), one.confidence,
        str(one.gpus), "-" if one.gpu_hours is None else str(one.gpu_hours), str(one.borrowed), one.text,
    ]  # fmt: skip


def record(one: Alternative, *, now: Instant) -> dict[str, Any]:
    return {
        "kind": one.kind, "text": one.text, "start": format_time(one.at),
        "countdownSeconds": max(0, -((now - one.at) // SECOND)), "confidence": one.confidence, "gpus": one.gpus,
        "gpuHours": one.gpu_hours, "borrowedGPUs": one.borrowed,
    }  # fmt: skip


def rest_record(one: Rest) -> dict[str, Any]:
    """What a planned start counts on, for programs."""
    return {"kind": one.kind, "name": one.name, "at": format_time(one.at), "gpus": one.gpus}
