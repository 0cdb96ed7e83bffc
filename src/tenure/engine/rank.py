"""Domains by the room they have for pods of one width, and those with equal room by all their free GPUs.

Pods need room (whole nodes for pods of 8), spares only need free GPUs; a domain holds a group with its spares if it has
enough of both. Asked for the tightest such domain, a scan over domains of the right room would pass by all that lack
the free GPUs; here it passes by *sizes*, of which a domain has few, however many domains there are.

>>> rank = Rank()
>>> for name, room, free in (("a", 8, 8), ("b", 8, 11), ("c", 16, 20)): rank.move(name, (0, 0), (room, free))
>>> rank.first(8, free=9), rank.first(8, free=12), rank.at_least(9), rank.most_free(8)
('b', None, 16, 11)
"""

from __future__ import annotations

from collections.abc import Iterator

from tenure.engine.buckets import Buckets

Size = tuple[int, int]
"""(room, free GPUs)"""


class Rank:
    """Names of domains by room, then by free GPUs. Who has no room is kept nowhere."""

    __slots__ = ("_by_room", "_rooms")

    def __init__(self) -> None:
        self._rooms: Buckets[int] = Buckets()
        self._by_room: dict[int, Buckets[str]] = {}

    def move(self, name: str, old: Size, new: Size) -> None:
        """Change the size of a name; from room 0 adds it, to room 0 takes it out."""
        if old == new:
            return
        if old[0]:
            row = self._by_room[old[0]]
            row.move(name, old[1], 0)
            if not row.largest():
                del self._by_room[old[0]]
                self._rooms.move(old[0], old[0], 0)
        if new[0]:
            if new[0] not in self._by_room:
                self._by_room[new[0]] = Buckets()
                self._rooms.move(new[0], 0, new[0])
            self._by_room[new[0]].move(name, 0, new[1])

    def at_least(self, room: int) -> int:
        """The smallest room of at least ``room`` that somebody has, or 0."""
        return self._rooms.at_least(room)

    def largest(self) -> int:
        return self._rooms.largest()

    def below(self, room: int) -> int:
        """The largest room under ``room`` that somebody has, or 0."""
        return self._rooms.below(room)

    def most_free(self, room: int) -> int:
        """The most free GPUs among those with exactly this room."""
        return self._by_room[room].largest()

    def first(self, room: int, *, free: int = 0) -> str | None:
        """The first name with exactly this room and at least so many free GPUs."""
        row = self._by_room[room]
        best, size = None, row.at_least(free)
        while size:
            name = row.first(size)
            best = name if best is None else min(best, name)
            size = row.at_least(size + 1)
        return best

    def up(self, room: int) -> Iterator[tuple[str, Size]]:
        """Who has at least this room, the tightest first."""
        found = self._rooms.at_least(room)
        while found:
            for free, name in self._by_room[found].items():
                yield name, (found, free)
            found = self._rooms.at_least(found + 1)

    def down(self) -> Iterator[str]:
        """All that have any room, the most first."""
        found = self._rooms.largest()
        while found:
            yield from (name for _, name in self._by_room[found].items())
            found = self._rooms.below(found)
