"""Identities made from what is known, so that the same history gives the same ids."""

from __future__ import annotations

import hashlib

from tenure.units import Instant


def object_uid(*parts: str) -> str:
    """A uid in the usual form, made from the parts.

    >>> object_uid("fleet", "Run/rai/train", "0")
    'f8811318-0b91-50a5-a13d-7ac47050901c'
    """
    digest = hashlib.sha256("\n".join(parts).encode()).hexdigest()
    return "-".join((digest[:8], digest[8:12], "5" + digest[13:16], "a" + digest[17:20], digest[20:32]))


class Departed:
    """Names that were given up at an instant, and how often: what comes again within it is another thing.

    >>> departed = Departed()
    >>> departed.add("Run/rai/train", at=7)
    >>> departed.at(7), departed.at(8)
    ({'Run/rai/train': 1}, {})
    """

    def __init__(self, when: Instant = 0, names: dict[str, int] | None = None) -> None:
        self._when, self._names = when, names or {}

    def add(self, name: str, at: Instant) -> None:
        times = self.at(at)
        self._when, self._names = at, times | {name: times.get(name, 0) + 1}

    def at(self, now: Instant) -> dict[str, int]:
        return self._names if self._when == now else {}
