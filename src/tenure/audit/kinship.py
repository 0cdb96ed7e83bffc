"""Who is related to whom, and whom a lender lends to: the auditor's own reading of SPEC 2 and 4.

The family is a graph of owners, explicit only: an owner's parents are those that its Budgets declare.
Siblings share a declared parent. Ancestors are above the parents. Cousins are children of the parents'
siblings.

>>> family = Family()
>>> family.put("a", owner="org:x:a", parents=("org:x",))
>>> family.put("b", owner="org:x:b", parents=("org:x",))
>>> family.put("x", owner="org:x", parents=("org",))
>>> family.put("y", owner="org:y", parents=("org",))
>>> family.put("c", owner="org:y:c", parents=("org:y",))
>>> family.are_siblings("org:x:a", "org:x:b"), family.is_ancestor("org", of="org:x:a")
(True, True)
>>> family.are_cousins("org:x:a", "org:y:c"), family.are_cousins("org:x:a", "org:y")
(True, False)
"""

from __future__ import annotations

from collections.abc import Iterable


def owner_matches(pattern: str, owner: str) -> bool:
    """Whether an ACL pattern names this owner, segment by segment.

    A ``*`` stands for exactly one segment; as the last segment it stands for one or more.

    >>> [owner_matches("org:ai:*", owner) for owner in ("org:ai:rai", "org:ai:a:b", "org:ai", "org:aix:y")]
    [True, True, False, False]
    >>> [owner_matches("org:*:sys", owner) for owner in ("org:rai:sys", "org:a:b:sys")]
    [True, False]
    >>> owner_matches("*", "org:ai")
    True
    """
    wanted, given = pattern.split(":"), owner.split(":")
    if wanted[-1] == "*":
        wanted = wanted[:-1]
        if len(given) <= len(wanted):
            return False
    elif len(given) != len(wanted):
        return False
    return all(want in ("*", have) for want, have in zip(wanted, given, strict=False))


def any_matches(patterns: Iterable[str], owner: str) -> bool:
    return any(owner_matches(pattern, owner) for pattern in patterns)


class Family:
    """The graph of owners that the Budgets of this moment declare."""

    def __init__(self) -> None:
        self._declared: dict[str, dict[str, tuple[str, ...]]] = {}
        self._owners: dict[str, str] = {}

    def put(self, budget: str, *, owner: str, parents: tuple[str, ...]) -> None:
        self.remove(budget)
        self._owners[budget] = owner
        self._declared.setdefault(owner, {})[budget] = parents

    def remove(self, budget: str) -> None:
        owner = self._owners.pop(budget, None)
        if owner is not None:
            del self._declared[owner][budget]

    def parents(self, owner: str) -> set[str]:
        """Every parent that any Budget of this owner declares."""
        return {parent for parents in self._declared.get(owner, {}).values() for parent in parents}

    def are_siblings(self, one: str, other: str) -> bool:
        return one != other and bool(self.parents(one) & self.parents(other))

    def is_ancestor(self, one: str, *, of: str) -> bool:
        """Above the parents: reached in two steps or more."""
        seen: set[str] = set()
        level = self.parents(of)
        while level:
            level = {above for owner in level for above in self.parents(owner)} - seen
            if one in level:
                return True
            seen |= level
        return False

    def are_cousins(self, one: str, other: str) -> bool:
        """Whether ``other`` is a child of a sibling of a parent of ``one``."""
        return any(self.are_siblings(parent, aunt) for parent in self.parents(one) for aunt in self.parents(other))

    def shares_with(self, owner: str, payer: str) -> bool:
        """Tiers 2 and 3: siblings and parents."""
        return self.are_siblings(owner, payer) or payer in self.parents(owner)
