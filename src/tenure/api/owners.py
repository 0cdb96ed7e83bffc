"""Owners and the patterns that name them: segments, never regular expressions on what somebody wrote.

An owner is a path of segments joined by colons, each one of ``[a-z0-9-]``: ``org:ai:rai``. Limits: 253
characters, 32 segments, 63 characters a segment. A pattern (in ``lending.to``) is an owner in which a whole
segment may be ``*``:

- a lone ``*`` is everyone,
- a ``*`` that is not the last segment stands for exactly one segment,
- a final ``*`` stands for one segment or more.

>>> matches("org:ai:*", "org:ai:rai:sys"), matches("org:ai:*", "org:ai"), matches("org:ai:*", "org:aix:y")
(True, False, False)
>>> matches("org:*:sys", "org:ai:sys"), matches("org:*:sys", "org:ai:rai:sys"), matches("*", "org")
(True, False, True)

Everything compares segment by segment, so ``org:a`` is never taken for the beginning of ``org:ab``.
"""

from __future__ import annotations

from functools import lru_cache

OWNER_LENGTH_MAX = 253
SEGMENT_COUNT_MAX = 32
SEGMENT_LENGTH_MAX = 63
WILDCARD = "*"

_ALPHABET = frozenset("abcdefghijklmnopqrstuvwxyz0123456789-")


def is_owner(text: str) -> bool:
    """Is this an owner, within its limits?"""
    segments = _segments(text)
    return segments is not None and WILDCARD not in segments


def is_pattern(text: str) -> bool:
    """Is this an ACL pattern? Every owner is one: it matches itself alone."""
    return _segments(text) is not None


@lru_cache(maxsize=4096)  # every plan that looks at what others lend asks the same of the same few
def matches(pattern: str, owner: str) -> bool:
    """Does the pattern name this whole owner? False where either is malformed: nobody is let in by a typing
    error.
    """
    wanted, given = _segments(pattern), _segments(owner)
    if wanted is None or given is None or WILDCARD in given:
        return False
    if wanted[-1] != WILDCARD:
        return len(wanted) == len(given) and _each_matches(wanted, given)
    head = wanted[:-1]
    return len(given) > len(head) and _each_matches(head, given[: len(head)])


def is_below(owner: str, ancestor: str) -> bool:
    """Is the owner strictly below the ancestor, by segments?

    >>> is_below("org:ai:rai", "org:ai"), is_below("org:ai", "org:ai"), is_below("org:aix", "org:ai")
    (True, False, False)
    """
    return owner.startswith(f"{ancestor}:")


def _each_matches(wanted: list[str], given: list[str]) -> bool:
    return all(want in (WILDCARD, segment) for want, segment in zip(wanted, given, strict=True))


def _segments(text: str) -> list[str] | None:
    """The segments of an owner or pattern, or None if it is neither.

    The length is checked before any work.
    """
    if not 0 < len(text) <= OWNER_LENGTH_MAX:
        return None
    segments = text.split(":")
    if len(segments) > SEGMENT_COUNT_MAX or not all(map(_is_segment, segments)):
        return None
    return segments


def _is_segment(text: str) -> bool:
    return text == WILDCARD or (0 < len(text) <= SEGMENT_LENGTH_MAX and _ALPHABET.issuperset(text))
