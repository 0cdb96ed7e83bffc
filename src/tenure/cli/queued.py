"""Where a waiting run stands, and when it is likely to start, in a few words: its bound, or its place, and its band.

    promised by 18:00, likely 14:10-16:30
    place 3, 67 ahead (machines), likely 14:10-16:30

Instants are UTC, to the minute, with their day where it is not today's.

>>> from tenure.api.run import Estimate
>>> now = parse_time("2025-11-01T12:00:00Z")
>>> one = Estimate(likely_start="2025-11-01T14:10:00Z", latest_likely="2025-11-01T16:30:00Z",
...                as_of="2025-11-01T12:00:00Z", basis="history")
>>> band(one, now), band(None, now), clock(parse_time("2025-11-02T09:30:00Z"), now)
('14:10-16:30', '', 'Nov 2 09:30')
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import lru_cache
from typing import TYPE_CHECKING

from tenure.cli.words import plural
from tenure.engine.words import NO_TIMES
from tenure.units import DAY, MINUTE, Instant, format_time, parse_time

if TYPE_CHECKING:
    from tenure.api.run import Estimate, QueuePlace
    from tenure.cli.port import RunLine

_MONTHS = ("Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec")
_BASES = {
    "history": "from how long such runs really took",
    "declared": "from declared durations alone",
}


def clock(at: Instant, now: Instant) -> str:
    """An instant to the minute; the day is said if it is another one, the year if it is far off."""
    day, minutes = at // DAY, at % DAY // MINUTE
    time = f"{minutes // 60:02}:{minutes % 60:02}"
    if day == now // DAY:
        return time
    date, year = _date(day)
    return f"{date} {time if abs(at - now) < 300 * DAY else year}"


@lru_cache(maxsize=1024)  # a long queue goes on for years, not for millennia
def _date(day: int) -> tuple[str, str]:
    """A day since 1970 as month and day, and its year."""
    text = format_time(day * DAY)
    return f"{_MONTHS[int(text[5:7]) - 1]} {int(text[8:10])}", text[:4]


def band(one: Estimate | None, now: Instant) -> str:
    """From when until when a run is likely to start; nothing where nobody knows."""
    if one is None or one.likely_start is None or one.latest_likely is None:
        return ""
    first, last = _clock(one.likely_start, now), _clock(one.latest_likely, now)
    return first if first == last else f"{first}-{_shortened(first, last)}"


def _clock(text: str, now: Instant) -> str:
    """The same of an instant as objects tell it, or of now if that is later. Most of a long queue starts on a later
    day: what is asked of such a day is known, and its time is there to be copied.

    >>> now = parse_time("2025-11-01T12:00:30Z")
    >>> [_clock(at, now) for at in ("2025-11-02T00:00:59Z", "2025-11-01T12:00:59Z", "2025-11-01T11:00:00Z")]
    ['Nov 2 00:00', '12:00', '12:00']
    """
    if len(text) == _TO_THE_SECOND:
        date = _later_day(text[:10], now // DAY)
        if date:
            return f"{date} {text[11:16]}"
    return clock(max(now, parse_time(text)), now)


_TO_THE_SECOND = len("2025-11-01T12:00:00Z")


@lru_cache(maxsize=1024)
def _later_day(text: str, today: int) -> str:
    """A day that comes, as it stands before a time; nothing if it is today, or over, or told with its year."""
    day = parse_time(f"{text}T00:00:00Z") // DAY
    return _date(day)[0] if 0 < day - today < 300 else ""


def _shortened(first: str, last: str) -> str:
    """The end of a band that ends on the day on which it begins, without the day."""
    day, _, _ = first.rpartition(" ")
    return last.removeprefix(f"{day} ") if day else last


def standing(line: RunLine, one: Estimate | None, now: Instant) -> str:
    """How a run waits, on one line; nothing if there is something else to say about it."""
    likely = band(one, now)
    told = f", likely {likely}" if likely else ""
    if line.by is not None and line.promise == "Pending" and line.by > now:
        return f"promised by {clock(line.by, now)}{told}"
    if line.queue is None or line.blocked or not line.message:
        return ""
    place = line.queue
    return f"place {place.position}, {place.ahead} ahead ({place.waits_for}){told}"


def facts(queue: QueuePlace | None, one: Estimate | None, now: Instant) -> Iterator[tuple[str, str]]:
    """The same on lines of their own."""
    if queue is not None:
        ahead = f"{plural(queue.ahead, 'run')} {'is' if queue.ahead == 1 else 'are'} ahead of it"
        yield "Queue", f"place {queue.position}; {ahead}; it waits for {queue.waits_for}"
    if one is not None:
        likely = band(one, now)
        why = NO_TIMES["machines" if queue is None else queue.waits_for]
        yield "Likely", f"{likely} UTC, {_BASES[one.basis]}" if likely else why
