"""Promise: one tenant with 100,000 pending runs slows the p99 of other tenants' decisions at most 2 times, adds no
metric series, and 24 virtual hours of churn leave memory as it was.

How each is measured is told in ``proof/flood``, which ``python -m proof flood`` runs as well.

Not shown: a queue that waits for machines (`saturated`). This flood waits for its own money, and the others' runs fit.
"""

from __future__ import annotations

from pathlib import Path

from msgspec.structs import replace

from bench.result import Row, Scale
from proof import flood

NAME = "flood"
SIZES = {"full": (100_000, 24, flood.SAMPLES), "quick": (10_000, 6, flood.SAMPLES), "tiny": (200, 3, 20)}
"""Pending runs, virtual hours, decisions."""


def run(scale: Scale, folder: Path) -> list[Row]:
    pending, hours, samples = SIZES[scale.name]
    found = flood.rows(folder, pending=pending, hours=hours, samples=samples)
    return [replace(row, bench=NAME) for row in found]
