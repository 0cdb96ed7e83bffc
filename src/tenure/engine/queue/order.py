"""The waiting runs of every flavor: by age, by owner, and in classes of equal demand.

A run is in the line of its class while it is free to start and holds no promise; who backs off after a failed start is
known here, and in no line yet. Which owner's places a run counts against is said by whoever puts it in.
"""

from __future__ import annotations

from bisect import bisect_left, insort
from collections.abc import Iterable, Iterator

from msgspec import structs

from tenure.engine.books import FundKey
from tenure.engine.demand import Demand
from tenure.engine.queue.age import Age
from tenure.engine.queue.changes import NEVER
from tenure.engine.queue.lines import Line
from tenure.units import FOREVER, Micros

ALL: Micros = FOREVER + 1
"""Longer than anything that is declared, and than what is not."""


class WaitingClass:
    """Runs that ask for the same and differ in how long they take; what was refused to them last."""

    __slots__ = ("asked", "declares", "demand", "funds", "key", "line", "owner", "ran", "refused_from", "unpaid_from")

    def __init__(self, key: ClassKey) -> None:
        self.key = key
        self.demand, self.owner, self.declares = key
        self.line = Line()
        self.ran: list[Age] = []
        """Those of them that already ran, and are queued again: they come first when a place is dealt."""
        self.asked = NEVER
        """The number of changes at the last refusal."""
        self.refused_from: Micros = ALL
        """Who takes as long as this, or longer, was refused then."""
        self.unpaid_from: Micros = ALL
        """Of these, for want of money."""
        self.funds: frozenset[FundKey] | None = None
        """Envelopes that might pay some day; None until somebody asks."""

    def forget(self) -> None:
        """What was found says nothing any more."""
        self.asked, self.refused_from, self.unpaid_from, self.funds = NEVER, ALL, ALL, None


ClassKey = tuple[Demand, str, bool]
"""(a demand without its duration, the owner whose places count, whether it declares how long it takes: who does not may
be paid where who takes long is not)"""


class Waiting:
    """One waiting run: its age, its class, how long it takes, and whether it is in line."""

    __slots__ = ("age", "in_line", "kind", "lasts", "ran")

    def __init__(self, age: Age, kind: WaitingClass, lasts: Micros, *, ran: bool) -> None:
        self.age, self.kind, self.lasts, self.ran = age, kind, lasts, ran
        self.in_line = False


class Queue:
    """Waiting runs by flavor, oldest first, and by class."""

    def __init__(self) -> None:
        self._ages: dict[str, list[Age]] = {}
        self._lined: dict[str, list[Age]] = {}
        """Those in line."""
        self._classes: dict[str, dict[ClassKey, WaitingClass]] = {}
        self._runs: dict[str, Waiting] = {}

    # -- who waits --

    def add(self, run: str, age: Age, demand: Demand, *, owner: str, ran: bool, in_line: bool) -> None:
        """A run waits. ``ran``: it ran before; ``in_line``: it is free to start, and holds no promise."""
        key = (structs.replace(demand, duration=None), owner, demand.duration is not None)
        classes = self._classes.setdefault(demand.flavor, {})
        kind = classes.get(key)
        if kind is None:
            kind = classes[key] = WaitingClass(key)
        lasts = FOREVER if demand.duration is None else demand.duration
        self._runs[run] = Waiting(age, kind, lasts, ran=ran)
        _put(self._ages.setdefault(demand.flavor, []), age)
        self.put_in_line(run, in_line=in_line)

    def remove(self, run: str) -> None:
        self.put_in_line(run, in_line=False)
        one = self._runs.pop(run)
        _discard(self._ages, one.kind.demand.flavor, one.age)

    def put_in_line(self, run: str, *, in_line: bool) -> None:
        """Let a run stand in the line of its class, or not."""
        one = self._runs.get(run)
        if one is None or one.in_line == in_line:
            return
        one.in_line, kind, flavor = in_line, one.kind, one.kind.demand.flavor
        if in_line:
            kind = one.kind = self._classes.setdefault(flavor, {}).setdefault(kind.key, kind)
            kind.line.add(one.age, one.lasts)
            _put(self._lined.setdefault(flavor, []), one.age)
            if one.ran:
                insort(kind.ran, one.age)
        else:
            kind.line.remove(one.age)
            _discard(self._lined, flavor, one.age)
            if one.ran:
                kind.ran.remove(one.age)
            if not kind.line:
                kind.forget()
                del self._classes[flavor][kind.key]

    # -- questions --

    def class_of(self, run: str) -> WaitingClass:
        return self._runs[run].kind

    def lasts(self, run: str) -> Micros:
        return self._runs[run].lasts

    def is_in_line(self, run: str) -> bool:
        one = self._runs.get(run)
        return one is not None and one.in_line

    def classes(self, flavor: str) -> Iterable[WaitingClass]:
        """The classes of which anybody is in line."""
        return [kind for kind in self._classes.get(flavor, {}).values() if kind.line]

    def all_classes(self) -> Iterator[WaitingClass]:
        for flavor in self._classes:
            yield from self.classes(flavor)

    def waiting(self, flavor: str) -> list[str]:
        """All that wait for a flavor, oldest first."""
        return list(map(run_of, self._ages.get(flavor, ())))

    def waits(self, flavor: str) -> bool:
        return flavor in self._ages

    def count(self, flavor: str) -> int:
        return len(self._ages.get(flavor, ()))

    def lined(self, flavor: str) -> list[Age]:
        """The ages of those in line, oldest first."""
        return self._lined.get(flavor, [])

    def position(self, run: str) -> int:
        """The place of a run among those of its flavor that are in line, from 1 on."""
        one = self._runs[run]
        return bisect_left(self.lined(one.kind.demand.flavor), one.age) + 1

    def oldest(self, flavor: str) -> int:
        """Since when the oldest run waits for a flavor; there is one."""
        return self._ages[flavor][0][0]

    def flavors(self) -> list[str]:
        return sorted(self._ages)

    def depth(self) -> int:
        return len(self._runs)

    # -- refusals --

    def forget_refusals(self) -> None:
        """Terms, labels or the policy changed."""
        for kind in self.all_classes():
            kind.forget()


def run_of(age: Age) -> str:
    return f"{age[1]}/{age[2]}"


def _put(ages: list[Age], age: Age) -> None:
    """Most who come are the youngest."""
    if not ages or ages[-1] < age:
        ages.append(age)
    else:
        insort(ages, age)


def _discard(table: dict[str, list[Age]], key: str, age: Age) -> None:
    ages = table[key]
    at = bisect_left(ages, age)
    assert ages[at] == age
    del ages[at]
    if not ages:
        del table[key]
