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

import msgspec

from tenure.api import owners
from tenure.units import parse_duration, parse_time

_WORD = r"[A-Za-z0-9]([-A-Za-z0-9_.]*[A-Za-z0-9])?"
_SUBDOMAIN = r"[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*"
_NUMBER = r"(us|ms|s|m|h|d)"
_LATEST = parse_time("9999-12-31T23:59:59Z")

NAME_LENGTH_MAX = 253
LABEL_LENGTH_MAX = 63
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
    test: Callable[[str], bool] | None = None
    """Where a pattern cannot say it all."""
    multiline: bool = False
    """May hold line breaks and tabs."""

    def accepts(self, text: str) -> bool:
        if not self.length_min <= len(text) <= self.length_max:
            return False
        if self.test is not None:
            return self.test(text)
        return self.pattern is None or re.fullmatch(self.pattern, text, re.ASCII) is not None


def is_time(text: str) -> bool:
    """An RFC 3339 time between 1970 and 9999: what our integers and everybody's printers can hold."""
    try:
        return 0 <= parse_time(text) <= _LATEST
    except ValueError:
        return False


def is_duration(text: str) -> bool:
    try:
        parse_duration(text)
    except ValueError:
        return False
    return True


def _is_label_key(text: str) -> bool:
    prefix, slash, name = text.rpartition("/")
    named = len(name) <= LABEL_LENGTH_MAX and re.fullmatch(_WORD, name, re.ASCII) is not None
    return named and (not slash or _is_subdomain(prefix))


def _is_subdomain(text: str) -> bool:
    return len(text) <= NAME_LENGTH_MAX and re.fullmatch(_SUBDOMAIN, text, re.ASCII) is not None


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
        length_max=40,
        test=is_time,
    ),
    Format(
        name="duration",
        right="a length of time such as 90s, 30m, 1h30m or 2d",
        length_max=32,
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
        test=_is_label_key,
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
