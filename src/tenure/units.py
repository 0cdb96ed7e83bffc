"""Time and amounts as integers with names.

An ``Instant`` is microseconds since 1970 in UTC, a ``Micros`` is a length of time in microseconds, and a
``GpuMicros`` is GPUs x microseconds: the unit of every charge. All intervals are half-open, ``[start, end)``.
Floats appear only where a person reads a number.

>>> format_time(parse_time("2025-11-01T00:15:00Z") + parse_duration("1h30m"))
'2025-11-01T01:45:00Z'
>>> format_duration(parse_duration("90m"))
'1h30m'
"""

from __future__ import annotations

import re
from datetime import UTC, datetime, timedelta
from functools import lru_cache
from typing import TypeAlias

Instant: TypeAlias = int
Micros: TypeAlias = int
GpuMicros: TypeAlias = int

SECOND: Micros = 1_000_000
MINUTE: Micros = 60 * SECOND
HOUR: Micros = 60 * MINUTE
DAY: Micros = 24 * HOUR
INTEGER_MAX = 2**53
LATEST: Instant = 253_402_300_799 * 1_000_000
"""The last second of the year 9999: what is later can be computed with, not written down."""
FOREVER: Instant = 2**62
"""Later than every real instant: the end of a window that has none."""

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_EPOCH_PLAIN = _EPOCH.replace(tzinfo=None)
"""Without its zone, which would be written and read away again."""
_TIME = re.compile(r"\d{4}-\d\d-\d\d[Tt]\d\d:\d\d:\d\d(\.\d{1,9})?([Zz]|[+-]\d\d:\d\d)", re.ASCII)
_DURATION = re.compile(r"(\d+(?:\.\d{1,6})?)(us|ms|s|m|h|d)", re.ASCII)
_UNITS: dict[str, Micros] = {"us": 1, "ms": 1000, "s": SECOND, "m": MINUTE, "h": HOUR, "d": DAY}


@lru_cache(maxsize=1024)  # of one object it is asked again and again
def parse_time(text: str) -> Instant:
    """Read an RFC 3339 time; ValueError if it is not one. Digits beyond the microsecond are cut."""
    found = _TIME.fullmatch(text)
    if not found:
        raise ValueError(f"not an RFC 3339 time: {text[:40]!r}")
    if found[1] and len(found[1]) > len(".123456"):
        text = text.replace(found[1], found[1][: len(".123456")])
    since = datetime.fromisoformat(text.upper()) - _EPOCH
    return (since.days * 86_400 + since.seconds) * SECOND + since.microseconds


@lru_cache(maxsize=1024)  # sentences name the same few instants
def format_time(at: Instant) -> str:
    """Write an instant as RFC 3339 in UTC, with a fraction only where there is one; beyond ``LATEST``, the latest."""
    return (_EPOCH_PLAIN + timedelta(microseconds=min(at, LATEST))).isoformat() + "Z"


@lru_cache(maxsize=1024)  # policies and demands say the same few over and over
def parse_duration(text: str) -> Micros:
    """Read ``1h30m``, ``90s``, ``500ms``, ``2d``; ValueError if it is not one."""
    parts = _DURATION.findall(text)
    if not parts or "".join(number + unit for number, unit in parts) != text:
        raise ValueError(f"not a duration: {text[:40]!r}")
    total = 0
    for number, unit in parts:
        whole, _, fraction = number.partition(".")
        total += int(whole) * _UNITS[unit]
        total += int(fraction.ljust(6, "0") or "0") * _UNITS[unit] // 1_000_000
    if total > INTEGER_MAX:
        raise ValueError(f"longer than {INTEGER_MAX} microseconds: {text[:40]!r}")
    return total


def format_duration(length: Micros) -> str:
    """Write a length of time in its largest whole units: ``1h30m``; nothing is rounded."""
    if length == 0:
        return "0s"
    sign, rest, out = ("-" if length < 0 else ""), abs(length), ""
    for unit in ("d", "h", "m", "s", "ms", "us"):
        count, rest = divmod(rest, _UNITS[unit])
        if count:
            out += f"{count}{unit}"
    return sign + out


def gpu_hours(amount: GpuMicros) -> float:
    """GPU-hours for people to read. Never computed with."""
    return amount / HOUR
