"""Selectors: the places that they name, and the sets of nodes that those of a run and of its payers point at."""

from __future__ import annotations

from functools import lru_cache
from itertools import combinations

from tenure.api.policy import Policy
from tenure.engine.books import Fund, Place
from tenure.engine.demand import Selector
from tenure.engine.topology import label_keys

_FINE_MAX = 4
"""Finer selectors whose every combination is tried; beyond that only each alone, and all together."""


def place_of(selector: Selector, policy: Policy) -> Place:
    """Take a selector apart: the region and the cluster it names, and what it asks beyond them.

    Only the label that decides where a node is names a place. Under its usual name every node of the place has it (the
    topology fills it in); a configured one may be missing on a node that fell back, so it is asked of each node as
    well.
    """
    return _taken_apart(selector, label_keys(policy, "region")[0], label_keys(policy, "cluster")[0])


@lru_cache(maxsize=4096)  # every plan asks the same of its run and of those who may pay
def _taken_apart(selector: Selector, region_key: str, cluster_key: str) -> Place:
    found = dict(selector)
    usual = [key for key, name in ((region_key, "region"), (cluster_key, "cluster")) if key == name]
    finer = tuple((key, value) for key, value in selector if key not in usual)
    return found.get(region_key), found.get(cluster_key), finer


def fund_place(fund: Fund, policy: Policy) -> Place:
    fund.place = place_of(fund.selector, policy)
    return fund.place


def selectors(wanted: Selector, finer: list[Selector]) -> list[Selector]:
    """The node sets worth trying: what the run wants, narrowed by the finer selectors of its payers."""
    distinct = sorted({one for one in finer if one})
    if not distinct:
        return [wanted]
    sizes = range(len(distinct) + 1) if len(distinct) <= _FINE_MAX else (0, 1, len(distinct))
    out: dict[Selector, None] = {}
    for size in sizes:
        for chosen in combinations(distinct, size):
            merged: dict[str, set[str]] = {}
            for key, value in (*wanted, *(pair for one in chosen for pair in one)):
                merged.setdefault(key, set()).add(value)
            if all(len(values) == 1 for values in merged.values()):
                out[tuple(sorted((key, min(values)) for key, values in merged.items()))] = None
    return list(out)
