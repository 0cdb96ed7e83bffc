"""What costs too much to be checked everywhere is checked of a sample, which the keys of the points choose.

Of one new point in ``ONE_IN``: the path that led to it is gone again from the beginning, its ledger audited and
recounted whole, and folded into a state that must be this one. When such a point is reached a second time, on another
path: both paths are gone, the same moves follow on both, and everything that is decided must be the same. That is what
a search rests on when it takes the two for one.
"""

from __future__ import annotations

from random import Random

from proof.scope.claims import Key
from proof.scope.replay import follow, same_future

ONE_IN = 2048
LENGTH = 3
"""Moves after two paths that met."""

Path = tuple[str, ...]


class Witness:
    """Remembers the points of the sample."""

    def __init__(self, one_in: int = ONE_IN) -> None:
        self.proved = 0
        self.met = 0
        self._one_in = one_in
        self._first: dict[Key, Path] = {}

    def looks(self, key: Key) -> bool:
        return int.from_bytes(key[2:6]) % self._one_in == 0

    def new(self, key: Key, path: Path) -> None:
        """A point was found that nobody knew."""
        self._first[key] = path
        trail = follow(path)
        assert trail.point().key == key, "the same path leads elsewhere"
        trail.prove()
        self.proved += 1

    def again(self, key: Key, path: Path) -> None:
        """A point was reached again: for the first time of those, see whether it is really the same."""
        first = self._first.pop(key, None)
        if first is not None:
            same_future(first, path, luck=Random(key), length=LENGTH)
            self.met += 1
