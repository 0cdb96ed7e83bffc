"""Strings with a grammar: owners, names, labels, times, durations. Each is defined here, once.

A field says which one it holds (``Owner``, ``Time``, ... in ``meta.py``); decoding checks it with
``accepts``, an error prints ``right``, and the CRD gets ``pattern`` and ``length_max``. Lengths are checked
before any grammar is tried, so that the work on a hostile string is bounded.

>>> FORMATS["duration"].accepts("1h30m"), FORMATS["duration"].accepts("ninety minutes")
(True, False)
"""

from __future__ import annotations

import re
from collections.abc import Callable
from functools import lru_cache

import msgspec

from tenure.api import owners
from tenure.units import Instant, Micros, parse_duration, parse_time

_WORD = r"[A-Za-z0-9]([-A-Za-z0-9_.]*[A-Za-z0-9])?"
_SUBDOMAIN = r"[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*"
_NUMBER = r"(us|ms|s|m|h|d)"
_LATEST = parse_time("9999-12-31T23:59:59Z")

NAME_LENGTH_MAX = 253
LABEL_LENGTH_MAX = 63
_TIME_LENGTH_MAX = 40
_DURATION_LENGTH_MAX = 32
_LABEL_KEY = re.compile(
    rf"(?:(?=[^/]{{1,{NAME_LENGTH_MAX}}}/){_SUBDOMAIN}/)?(?=[^/]{{1,{LABEL_LENGTH_MAX}}}\Z){_WORD}", re.ASCII
)
"""A prefix and a name, each no longer than it may be."""
DNS_LABEL = re.compile(r"[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?", re.ASCII)


class Format(msgspec.Struct, frozen=True, kw_only=True):
    """One grammar for strings."""

    name: str
    right: str
    """Completes the sentence "write ..."."""
    length_max: int
    length_min: int = 1
    pattern: str | None = None
    """Without anchors, in the subset that Python, RE2 and ECMA read alike; counts are not nested (RE2's
    limit).
    """
    test: Callable[[str], object] | None = None
    """Where a pattern cannot say it all; otherwise the pattern itself, compiled. None: it has no grammar."""
    multiline: bool = False
    """May hold line breaks and tabs."""

    def __post_init__(self) -> None:
        if self.test is None and self.pattern is not None:
            msgspec.structs.force_setattr(self, "test", re.compile(self.pattern, re.ASCII).fullmatch)

    def accepts(self, text: str) -> bool:
        if not self.length_min <= len(text) <= self.length_max:
            return False
        return self.test is None or bool(self.test(text))


def instant_of(text: str) -> Instant | None:
    """An RFC 3339 time between 1970 and 9999: what our integers and everybody's printers can hold. Or None."""
    return _instant(text) if len(text) <= _TIME_LENGTH_MAX else None


@lru_cache(maxsize=1024)
def _instant(text: str) -> Instant | None:
    try:
        at = parse_time(text)
    except ValueError:
        return None
    return at if 0 <= at <= _LATEST else None


def is_time(text: str) -> bool:
    return instant_of(text) is not None


def length_of(text: str) -> Micros | None:
    """A length of time, or None."""
    return _length(text) if len(text) <= _DURATION_LENGTH_MAX else None


@lru_cache(maxsize=1024)
def _length(text: str) -> Micros | None:
    try:
        return parse_duration(text)
    except ValueError:
        return None


def is_duration(text: str) -> bool:
    return length_of(text) is not None


_SEGMENT = f"[a-z0-9-]{{1,{owners.SEGMENT_LENGTH_MAX}}}"

_ALL = (
    Format(
        name="owner",
        right="segments of a-z, 0-9 and - joined by colons, such as org:ai:rai",
        length_max=owners.OWNER_LENGTH_MAX,
        pattern=f"{_SEGMENT}(:{_SEGMENT})*",
        test=owners.is_owner,
    ),
    Format(
        name="owner-pattern",
        right="an owner in which whole segments may be *, such as org:ai:* or org:*:sys, or * for everyone",
        length_max=owners.OWNER_LENGTH_MAX,
        pattern=rf"(\*|{_SEGMENT})(:(\*|{_SEGMENT}))*",
        test=owners.is_pattern,
    ),
    Format(
        name="date-time",
        right='an RFC 3339 time from 1970 to 9999, such as "2025-11-01T00:00:00Z"',
        length_max=_TIME_LENGTH_MAX,
        test=is_time,
    ),
    Format(
        name="duration",
        right="a length of time such as 90s, 30m, 1h30m or 2d",
        length_max=_DURATION_LENGTH_MAX,
        pattern=rf"([0-9]{{1,16}}(\.[0-9]{{1,6}})?{_NUMBER})+",
        test=is_duration,
    ),
    Format(
        name="name",
        right="a Kubernetes name: a-z, 0-9, - and ., beginning and ending with a letter or digit",
        length_max=NAME_LENGTH_MAX,
        pattern=_SUBDOMAIN,
    ),
    Format(
        name="word",
        right="up to 63 letters, digits, -, _ and ., beginning and ending with a letter or digit",
        length_max=LABEL_LENGTH_MAX,
        pattern=_WORD,
    ),
    Format(
        name="label-key",
        right="a label key such as region or topology.kubernetes.io/region",
        length_max=NAME_LENGTH_MAX + 1 + LABEL_LENGTH_MAX,
        test=_LABEL_KEY.fullmatch,
    ),
    Format(
        name="label-value",
        right="up to 63 letters, digits, -, _ and ., beginning and ending with a letter or digit, or nothing",
        length_min=0,
        length_max=LABEL_LENGTH_MAX,
        pattern=f"({_WORD})?",
    ),
    Format(
        name="quantity",
        right="a Kubernetes quantity such as 8 or 64Gi",
        length_max=64,
        pattern=r"[+-]?([0-9]+(\.[0-9]*)?|\.[0-9]+)([KMGTPE]i|[numkMGTPE]|[eE][+-]?[0-9]{1,3})?",
    ),
    Format(name="slack", right="a percentage from 0% to 50%", length_max=3, pattern=r"([0-9]|[1-4][0-9]|50)%"),
    Format(
        name="closure-reason",
        right="one of Completed, Fail, NodeFailure, Swap, Shrink, DropSpare, Overstay, "
        "RandomPreempt(<seed>), ReclaimedBySpare, Refund, Canceled",
        length_max=128,
        pattern=r"Completed|Fail|NodeFailure|Swap|Shrink|DropSpare|Overstay|RandomPreempt\([0-9a-f]{1,64}\)"
        r"|ReclaimedBySpare|Refund|Canceled",
    ),
    Format(name="text", right="at most 4096 printable characters", length_min=0, length_max=4096),
    Format(
        name="long-text",
        right="at most 262144 printable characters; line breaks and tabs are fine",
        length_min=0,
        length_max=256 * 1024,
        multiline=True,
    ),
)

FORMATS: dict[str, Format] = {each.name: each for each in _ALL}
