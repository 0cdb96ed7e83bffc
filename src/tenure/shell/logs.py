"""Where the output of work is to be read, whoever ran it."""

from __future__ import annotations

from pathlib import Path

from msgspec import Struct


class LogFile(Struct, frozen=True, kw_only=True):
    """Where one container of one pod writes."""

    pod: str
    attempt: int
    rank: int
    group: int
    container: str
    path: Path
