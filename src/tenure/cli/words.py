"""Numbers, times and names as people read them.

Relative times say how long ago, absolute ones are UTC to the second; programs get RFC 3339 with every digit instead
(``-o json``). Whatever a tenant may have written goes through ``safe`` before it reaches a screen.

>>> span(3_725_000_000), span(90_000_000), span(86_400_000_000 * 3 + 5), span(400_000)
('1h2m', '1m30s', '3d', '0s')
>>> ordinals((0, 1, 2, 3, 6)), plural(1, "run"), plural(2, "run")
('0-3,6', '1 run', '2 runs')
>>> gpu_hours(3_600_000_000 * 16), gpu_hours(3_600_000), gpu_hours(0)
('16.00', '0.0010', '0')
"""

from __future__ import annotations

from collections.abc import Sequence

from tenure.api.errors import escape
from tenure.units import DAY, FOREVER, HOUR, MINUTE, SECOND, GpuMicros, Instant, Micros, format_time

_UNITS = (("d", DAY), ("h", HOUR), ("m", MINUTE), ("s", SECOND))
_SHOWN_MAX = 4000


def safe(text: str) -> str:
    """The text with everything spelled out that could steer a terminal."""
    return text if len(text) <= _SHOWN_MAX and text.isprintable() else escape(text, limit=_SHOWN_MAX)


def span(length: Micros) -> str:
    """A length of time in its two largest units."""
    rest, parts = abs(length) // SECOND * SECOND, []
    for unit, size in _UNITS:
        count, rest = divmod(rest, size)
        if count:
            parts.append(f"{count}{unit}")
        elif parts:
            break  # 1h5s says more than anybody wants to know
        if len(parts) == 2:
            break
    return "".join(parts) or "0s"


def age(at: Instant | None, now: Instant) -> str:
    """How long ago, for a column."""
    return "-" if at is None else span(max(0, now - at))


def stamp(at: Instant | None) -> str:
    """An instant in UTC, to the second."""
    if at is None:
        return "-"
    return "never" if at >= FOREVER else format_time(at // SECOND * SECOND)


def moment(at: Instant | None, now: Instant) -> str:
    """An instant, absolute and relative: ``2025-11-01T00:15:00Z (2m ago)``."""
    if at is None or at >= FOREVER:
        return stamp(at)
    return f"{stamp(at)} ({span(now - at)} ago)" if at <= now else f"{stamp(at)} (in {span(at - now)})"


def gpu_hours(amount: GpuMicros) -> str:
    """GPU-hours; more digits where there are few hours."""
    return hours(amount / HOUR)


def hours(amount: float) -> str:
    if not amount:
        return "0"
    return f"{amount:.2f}" if abs(amount) >= 1 else f"{amount:.4f}"


def ordinals(gpus: Sequence[int]) -> str:
    """GPU indexes as ranges."""
    out: list[list[int]] = []
    for one in sorted(gpus):
        if out and out[-1][1] == one - 1:
            out[-1][1] = one
        else:
            out.append([one, one])
    return ",".join(str(first) if first == last else f"{first}-{last}" for first, last in out)


def plural(count: int, noun: str, many: str = "") -> str:
    """A count and its noun; ``many`` where the plural is not the noun and an s."""
    return f"{count} {noun}" if count == 1 else f"{count} {many or noun + 's'}"


def some(parts: Sequence[str], most: int = 4, *, joint: str = ", ") -> str:
    """The first few, and how many more."""
    rest = len(parts) - most
    return joint.join(parts[:most]) + (f" and {rest} more" if rest > 0 else "")


def percents(parts: Sequence[int]) -> list[str]:
    """The shares of a whole in whole percents that sum to 100: what rounding down leaves goes to the largest rests.

    >>> percents([1, 1, 1]), percents([2, 1]), percents([0])
    (['34%', '33%', '33%'], ['67%', '33%'], ['-'])
    """
    whole = sum(parts)
    if not whole:
        return ["-"] * len(parts)
    shares = [100 * part // whole for part in parts]
    by_rest = sorted(range(len(parts)), key=lambda place: -(100 * parts[place] % whole))
    for place in by_rest[: 100 - sum(shares)]:
        shares[place] += 1
    return [f"{share}%" for share in shares]
