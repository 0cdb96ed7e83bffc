"""Who is told, of what, and how: the receivers, as the notifier uses them. ``file.py`` reads them from a file.

Filters that are left out let everything pass. Objects are matched like owners (SPEC 2): whole segments, ``*`` in the
middle is exactly one, a final ``*`` is one or more, a lone ``*`` is everything.

>>> [object_matches(pattern, "Run/rai/train") for pattern in ("*", "Run/*", "*/rai/train", "Run/ra*", "Run")]
[True, True, True, False, False]
"""

from __future__ import annotations

from pathlib import Path

from msgspec import Struct

from tenure.api import owners
from tenure.notify.event import Letter
from tenure.notify.progress import Pace
from tenure.units import Micros


class Header(Struct, frozen=True, kw_only=True):
    """A header to send; exactly one of ``value``, ``env`` and ``file`` is there."""

    name: str
    prefix: str
    value: str | None = None
    env: str | None = None
    file: Path | None = None


class Http(Struct, frozen=True, kw_only=True):
    """A receiver that is POSTed to. ``target`` (path and query) may hold a secret, and is never shown."""

    secure: bool
    host: str
    port: int
    target: str
    headers: tuple[Header, ...]
    timeout: Micros


class File(Struct, frozen=True, kw_only=True):
    path: Path


class Stdout(Struct, frozen=True, kw_only=True):
    pass


class Receiver(Struct, frozen=True, kw_only=True):
    """Who is told, of what, and with how much patience."""

    name: str
    to: Http | File | Stdout
    pace: Pace
    kinds: tuple[str, ...] = ()
    objects: tuple[str, ...] = ()
    owners: tuple[str, ...] = ()
    history: bool = False

    def wants(self, letter: Letter) -> bool:
        """Does the letter pass every filter? One about nobody's object passes no filter of owners."""
        return (
            (not self.kinds or letter.kind in self.kinds)
            and (not self.objects or any(object_matches(each, letter.object) for each in self.objects))
            and (not self.owners or any(owners.matches(each, letter.owner) for each in self.owners))
        )


class NotifyConfig(Struct, frozen=True, kw_only=True):
    """All receivers."""

    receivers: tuple[Receiver, ...]

    @property
    def uses_stdout(self) -> bool:
        return any(isinstance(each.to, Stdout) for each in self.receivers)


def object_matches(pattern: str, about: str) -> bool:
    """Does the pattern name this whole object?"""
    wanted, given = pattern.split("/"), about.split("/")
    if wanted[-1] == "*" and len(given) >= len(wanted):
        wanted, given = wanted[:-1], given[: len(wanted) - 1]
    return len(wanted) == len(given) and all(want in ("*", part) for want, part in zip(wanted, given, strict=True))
