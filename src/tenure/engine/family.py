"""Who is related to whom: the DAG of owners that Budgets declare with ``parents`` (SPEC 2, 4).

Only declared edges count: ``org:ai:rai`` is no child of ``org:ai`` unless a Budget says so. A step of the walk is one
relation in the order in which cover visits it; owners within a step are equals.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator

from msgspec import Struct


class Step(Struct, frozen=True):
    """One relation: its tier at the run's own location, its name, and the owners that stand in it."""

    tier: int
    relation: str
    owners: tuple[str, ...]


class Family:
    """Parents and children of every owner, counted, because several Budgets may declare the same edge."""

    def __init__(self) -> None:
        self._parents: dict[str, Counter[str]] = {}
        self._children: dict[str, Counter[str]] = {}

    def add(self, owner: str, parents: Iterable[str]) -> None:
        for parent in parents:
            self._parents.setdefault(owner, Counter())[parent] += 1
            self._children.setdefault(parent, Counter())[owner] += 1

    def remove(self, owner: str, parents: Iterable[str]) -> None:
        for parent in parents:
            _decrement(self._parents, owner, parent)
            _decrement(self._children, parent, owner)

    def parents(self, owner: str) -> set[str]:
        return set(self._parents.get(owner, ()))

    def children(self, owner: str) -> set[str]:
        return set(self._children.get(owner, ()))

    def siblings(self, owner: str) -> set[str]:
        return {child for parent in self.parents(owner) for child in self.children(parent)} - {owner}

    def cousins(self, owner: str) -> set[str]:
        """Children of the parents' siblings, unless they are nearer relatives too."""
        parents = self.parents(owner)
        aunts = {aunt for parent in parents for aunt in self.siblings(parent)} - parents
        near = {owner} | parents | self.siblings(owner)
        return {child for aunt in aunts for child in self.children(aunt)} - near

    def ancestors(self, owner: str) -> Iterator[set[str]]:
        """Owners above the parents, one generation after the other; each where it is nearest."""
        parents = self.parents(owner)
        seen = {owner} | parents
        level = parents
        while level:
            level = {above for one in level for above in self.parents(one)} - seen
            seen |= level
            if level:
                yield level

    def has_kin(self, owner: str) -> bool:
        """Whether it is anybody's child: who is not has neither parents nor siblings, and no ancestors or cousins."""
        return owner in self._parents

    def kin(self, owner: str) -> Iterator[Step]:
        """Tier 2; the owner and these serve tier 3 at other locations."""
        if not self.has_kin(owner):
            return
        yield Step(2, "sibling", _sorted(self.siblings(owner)))
        yield Step(2, "parent", _sorted(self.parents(owner) - {owner}))

    def lenders(self, owner: str, sponsors: Iterable[str]) -> Iterator[Step]:
        """Tiers 4 to 6, for a run that may borrow."""
        listed = dict.fromkeys(sponsors)
        for sponsor in listed:
            yield Step(4, "sponsor", (sponsor,))
        if not self.has_kin(owner):
            return
        for level in self.ancestors(owner):
            yield Step(5, "ancestor", _sorted(level - set(listed)))
        yield Step(6, "cousin", _sorted(self.cousins(owner) - set(listed)))


def _sorted(owners: set[str]) -> tuple[str, ...]:
    return tuple(sorted(owners))


def _decrement(table: dict[str, Counter[str]], key: str, other: str) -> None:
    counts = table[key]
    counts[other] -= 1
    if not counts[other]:
        del counts[other]
    if not counts:
        del table[key]
