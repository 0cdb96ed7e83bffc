"""Instants on a command line: absolute, a day, or how long ago.

How long ago is counted from the fleet's own present: the ledger of a scenario stands where the scenario ended. So what
is relative stays so (``Ago``) until it is known which fleet is asked; ``@verb`` then makes it an instant.

>>> now = parse_time("2025-11-01T12:00:00Z")
>>> [format_time(read_moment(text, now)) for text in ("2025-10-31", "2025-10-31T08:15Z", "2h", "now")]
['2025-10-31T00:00:00Z', '2025-10-31T08:15:00Z', '2025-11-01T10:00:00Z', '2025-11-01T12:00:00Z']
"""

from __future__ import annotations

import re
from typing import Any

import click
from msgspec import Struct

from tenure.units import Instant, Micros, format_time, parse_duration, parse_time

__all__ = ["MOMENT", "Ago", "format_time", "month", "parse_time", "read_moment"]
_DAY = re.compile(r"\d{4}-\d\d-\d\d")
_EARLIEST = parse_time("0001-01-01T00:00:00Z")
_MINUTE = re.compile(r"(\d{4}-\d\d-\d\dT\d\d:\d\d)Z?")


class Ago(Struct, frozen=True):
    """So long before the fleet's present."""

    length: Micros = 0


def read_moment(text: str, now: Instant) -> Instant:
    """An instant from RFC 3339 (also to the minute), a day (its midnight UTC), ``now``, or a duration ago."""
    found = _read(text)
    return now - found.length if isinstance(found, Ago) else found


def _read(text: str) -> Instant | Ago:
    if text == "now":
        return Ago()
    if _DAY.fullmatch(text):
        return parse_time(f"{text}T00:00:00Z")
    if (found := _MINUTE.fullmatch(text)) is not None:
        return parse_time(f"{found[1]}:00Z")
    if text[:1].isdigit() and "T" not in text.upper():
        return Ago(parse_duration(text))
    if (at := parse_time(text)) < _EARLIEST:
        raise ValueError(f"before the year 1 of UTC: {text[:40]!r}")
    return at


class _Moment(click.ParamType):  # type: ignore[type-arg]  # generic only in click's newest releases
    name = "time"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Instant | Ago:
        if isinstance(value, int | Ago):
            return value
        try:
            return _read(str(value))
        except ValueError:
            shown = str(value)[:40]
            self.fail(f"{shown!r} is no time: write 2025-11-01T00:15:00Z, 2025-11-01, now, or 2h (ago)", param, ctx)


MOMENT = _Moment()


def month(at: Instant) -> tuple[Instant, Instant]:
    """The calendar month (UTC) that an instant lies in, half-open.

    >>> [format_time(end) for end in month(parse_time("2025-12-31T23:59:59Z"))]
    ['2025-12-01T00:00:00Z', '2026-01-01T00:00:00Z']
    """
    year, number = int(format_time(at)[:4]), int(format_time(at)[5:7])
    following = (year + 1, 1) if number == 12 else (year, number + 1)
    first, last = (parse_time(f"{one:04d}-{two:02d}-01T00:00:00Z") for one, two in ((year, number), following))
    return first, last
