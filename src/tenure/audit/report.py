"""What the auditor says: a violation names the rule, the object, what was expected and what was found.

>>> from tenure.units import parse_time
>>> Violation(
...     invariant="I2-limits", at=parse_time("2025-11-01T00:15:00Z"), object="Budget/rai",
...     message="west holds too many GPUs", expected=64, found=72,
... ).sentence()
'I2-limits at 2025-11-01T00:15:00Z, Budget/rai: west holds too many GPUs: expected 64, found 72: 8 too many.'
"""

from __future__ import annotations

from collections.abc import Iterable

from msgspec import Struct

from tenure.units import LATEST, Instant, format_time

Value = int | str


class Violation(Struct, frozen=True, kw_only=True):
    """One rule that does not hold, at one instant, for one object."""

    invariant: str
    """The name in ``tenure.audit.invariants``, such as ``I1-capacity``."""
    at: Instant
    object: str
    message: str
    expected: Value
    found: Value

    def sentence(self) -> str:
        """The violation for people: when, where, what, and the difference in words."""
        head = f"{self.invariant} at {moment(self.at)}, {self.object}: {self.message}"
        return f"{head}: expected {self.expected}, found {self.found}{difference(self.expected, self.found)}."


def difference(expected: Value, found: Value) -> str:
    """How far two numbers are apart, in words; nothing where one of them is not a number.

    >>> difference(8, 10), difference(8, 5), difference("open", "closed")
    (': 2 too many', ': 3 too few', '')
    """
    if isinstance(expected, str) or isinstance(found, str):
        return ""
    return f": {found - expected} too many" if found > expected else f": {expected - found} too few"


def listed(items: Iterable[object]) -> str:
    """Things in a row, or the word for none, so that a sentence never ends in nothing.

    >>> listed([3, 1]), listed([])
    ('3, 1', 'none')
    """
    return ", ".join(str(item) for item in items) or "none"


def moment(at: Instant) -> str:
    """An instant for people. A corrupted one may lie outside the calendar, and must not stop the report."""
    return format_time(at) if 0 <= at <= LATEST else f"{at} microseconds"
