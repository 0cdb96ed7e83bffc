"""Where an embedded fleet keeps its things: one SQLite file, and what lies beside it under the same name.

fleet.db           the ledger            fleet.db.anchor    the anchor of its tail
fleet.db.driver    held by the daemon    fleet.db.pods/     a folder per pod: logs, exit codes
fleet.db.custodian/  the fleet's own chain for draws, if nobody else was named: keep it secret
"""

from __future__ import annotations

from pathlib import Path


def driver_path(path: Path) -> Path:
    return path.with_name(path.name + ".driver")


def pods_path(path: Path, *, fleet: str) -> Path:
    """Keyed by the fleet's id: a ledger made anew under the same name has nothing to do with old pods."""
    return path.with_name(path.name + ".pods") / fleet


def custodian_path(path: Path) -> Path:
    return path.with_name(path.name + ".custodian")
