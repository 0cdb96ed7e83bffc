"""Nodes are relabelled under running work: what a run takes from then on lies where its group is *now* (SPEC 5, I7).

Nobody can move work that runs; but a domain that was renamed is still one domain, and one that was split is not made
worse. (Found by a soak, seed 1179: an elastic run grew after its node was relabelled.)
"""

from __future__ import annotations

from random import Random

import msgspec
import pytest

from tenure.testing import Fleet, budget, elastic, node, run

KEY = "lab/x"


def relabel(fleet: Fleet, name: str, domain: str) -> None:
    item = fleet.node(name)
    meta = msgspec.structs.replace(item.metadata, labels={**item.metadata.labels, "fabric.domain": domain})
    fleet.apply(msgspec.structs.replace(item, metadata=meta))


def mend(fleet: Fleet, name: str) -> None:
    item = fleet.node(name)
    fleet.apply(msgspec.structs.replace(item, spec=msgspec.structs.replace(item.spec, taints=())))


def groups(fleet: Fleet) -> dict[int, set[str]]:
    """The nodes of each group of the run, as its open leases have them."""
    found: dict[int, set[str]] = {}
    for lease in fleet.leases(KEY):
        found.setdefault(lease.group, set()).add(lease.node)
    return found


def named(fleet: Fleet) -> dict[str, str]:
    """The domain that each open lease names, by node."""
    return {lease.node: lease.domain for lease in fleet.leases(KEY)}


def test_a_run_that_must_not_spread_grows_in_its_domain_under_its_new_name() -> None:
    fleet = Fleet(node("n0", 4), node("n1", 4), node("n2", 8), budget("a"))
    fleet.start(run("x", 4, owner="org:a", group=4, spread=False, elastic=elastic(4, 8, 4)))
    assert groups(fleet) == {0: {"n0"}}
    for name in ("n0", "n1"):
        relabel(fleet, name, "renamed")
    fleet.later("1m")
    assert groups(fleet) == {0: {"n0"}, 1: {"n1"}}, "not on n2, which is elsewhere now"
    assert named(fleet) == {"n0": "A", "n1": "renamed"}, "each as it was when it opened"
    fleet.audit()


def test_a_run_that_must_not_spread_does_not_follow_its_old_name() -> None:
    fleet = Fleet(node("n0", 4), node("n1", 4), budget("a"))
    fleet.start(run("x", 4, owner="org:a", group=4, spread=False, elastic=elastic(4, 8, 4)))
    relabel(fleet, "n0", "B")
    fleet.later("5m")
    assert groups(fleet) == {0: {"n0"}}, "n1 is still in A, and the run is not"


def test_spares_are_topped_up_where_the_group_is_now() -> None:
    fleet = Fleet(node("n0", 4), node("n1", 2), node("n2", 2), node("n3", 2, domain="B"), budget("a"))
    fleet.start(run("x", 4, owner="org:a", group=4, spares=2))
    [spare] = groups(fleet)[0] - {"n0"}
    relabel(fleet, "n0", "B")
    fleet.fence(spare)
    fleet.later("1m")
    assert groups(fleet) == {0: {"n0", "n3"}}
    fleet.audit()


def test_a_spare_on_a_relabelled_node_takes_over_and_names_the_domain_of_now() -> None:
    fleet = Fleet(node("n0", 4), node("n1", 4), budget("a"))
    fleet.start(run("x", 4, owner="org:a", group=4, spares=4))
    relabel(fleet, "n1", "B")
    fleet.fence("n0")
    assert {(lease.node, lease.role, lease.reason, lease.domain) for lease in fleet.leases(KEY)} == {
        ("n1", "Active", "Swap", "B")
    }


def test_what_was_lost_of_a_run_that_must_not_spread_goes_where_the_rest_is() -> None:
    fleet = Fleet(*(node(f"n{index}", 4) for index in range(4)), node("far", 4, domain="B"), budget("a"))
    fleet.start(run("x", 8, owner="org:a", group=4, spread=False))
    first, second = (min(nodes) for _, nodes in sorted(groups(fleet).items()))
    relabel(fleet, second, "B")
    fleet.fence(second)
    assert groups(fleet)[0] == {first}
    [taken] = groups(fleet)[1]
    assert fleet.node(taken).metadata.labels["fabric.domain"] == "A", "not on `far`, beside the node that died"


@pytest.mark.parametrize("part", range(4))
def test_whatever_is_relabelled_and_fails_nothing_is_spread(part: int) -> None:
    """The auditor looks at every entry."""
    for seed in range(part, 80, 4):
        luck = Random(seed)
        machines = [node(f"n{n}", luck.choice((2, 4, 4)), domain=luck.choice("AB")) for n in range(luck.randint(2, 5))]
        fleet = Fleet(*machines, budget("a"))
        for number in range(luck.randint(1, 3)):
            size, count = luck.choice((2, 4)), luck.choice((1, 1, 2))
            width = size * count
            fleet.apply(run(f"r{number}", width, owner="org:a", group=size, spares=luck.choice((0, 0, 2)),
                            spread=luck.random() < 0.6, elastic=elastic(width, 3 * width, width)))  # fmt: skip
        for _ in range(25):
            what = luck.choice(("label", "label", "bind", "time", "fence", "leave", "mend"))
            name = luck.choice(machines).metadata.name
            if what == "label":
                relabel(fleet, name, luck.choice("AB"))
            elif what == "fence" and luck.random() < 0.3:
                fleet.fence(name)
            elif what == "mend":
                mend(fleet, name)
            elif what == "time":
                fleet.later("1m")
            for key in sorted(fleet.state.runs) if what in ("bind", "leave") else ():
                fleet.bind(key) if what == "bind" else fleet.leave(key)
