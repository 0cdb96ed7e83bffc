"""SPEC 5: where GPUs are, what a node's labels say, and which nodes take nothing."""

from __future__ import annotations

import msgspec
import pytest

from tenure.api.core import Node, Taint
from tenure.api.policy import Policy
from tenure.engine import SetPolicy
from tenure.engine.topology import Slots, slots
from tenure.testing import FLAVOR, Fleet, budget, envelope, node, nodes, run

WEST = ("us-west", "gpu-a")
USUAL = {"region": "us-west", "cluster": "gpu-a", "fabric.domain": "A", "gpu.flavor": FLAVOR}
WELL_KNOWN = {
    "topology.kubernetes.io/region": "us-west",
    "topology.kubernetes.io/zone": "gpu-a",
    "fabric.domain": "A",
    "nvidia.com/gpu.product": FLAVOR,
}


def relabelled(item: Node, labels: dict[str, str]) -> Node:
    return msgspec.structs.replace(item, metadata=msgspec.structs.replace(item.metadata, labels=labels))


def takes_work(fleet: Fleet, gpus: int = 8) -> bool:
    fleet.apply(run("probe", gpus, owner="org:a"))
    return bool(fleet.leases("lab/probe"))


# --- labels -------------------------------------------------------------------------------------------------------


def test_well_known_labels_stand_in_for_ours() -> None:
    fleet = Fleet(node("n0", labels=WELL_KNOWN), budget("a"))
    assert takes_work(fleet), "a selector on `region` matches a node that says it the well-known way"
    assert fleet.leases()[0].domain == "A"


def test_our_own_label_wins_over_the_well_known_one() -> None:
    labels = WELL_KNOWN | {"region": "us-east"}
    fleet = Fleet(node("n0", labels=labels), budget("a", envelope(selector={"region": "us-east"})))
    assert takes_work(fleet)


def test_label_keys_are_configurable() -> None:
    labels = {"dc": "us-west", "pod-network": "gpu-a", "spine": "A", "gpu.flavor": FLAVOR}
    keys = {"region": "dc", "cluster": "pod-network", "domain": "spine"}
    fleet = Fleet(node("n0", labels=labels), budget("a", envelope(selector={"dc": "us-west"})))
    assert fleet.notes("Quarantined")
    assert not takes_work(fleet)
    fleet.handle(SetPolicy(Policy(topology_labels=keys)))
    assert fleet.leases("lab/probe"), "what waited for a node that is understood now starts"


def test_money_is_read_by_the_label_keys_in_force() -> None:
    """An envelope's selector that was read under other keys is read again."""
    labels = USUAL | {"dc": "us-east"}
    fleet = Fleet(node("n0", labels=labels), budget("a", envelope(selector={"region": "us-west", "dc": "us-east"})))
    fleet.start(run("x", 1, owner="org:a"))
    fleet.handle(SetPolicy(Policy(topology_labels={"region": "dc"})))
    fleet.start(run("y", 1, owner="org:a"))
    fleet.audit()


@pytest.mark.parametrize(
    ("selector", "pays"),
    [
        ({"dc": "us-east"}, True),
        ({"dc": "us-west"}, False),
        ({"region": "us-west"}, True),
        ({"region": "us-east"}, False),
        ({"region": "us-west", "dc": "us-east"}, True),
        ({"region": "us-east", "dc": "us-east"}, False),
        ({"topology.kubernetes.io/region": "mars"}, True),
    ],
)
def test_a_selector_asks_for_labels_whatever_key_decides_the_region(selector: dict[str, str], pays: bool) -> None:
    labels = USUAL | {"dc": "us-east", "topology.kubernetes.io/region": "mars"}
    policy = Policy(topology_labels={"region": "dc"})
    fleet = Fleet(node("n0", labels=labels), budget("a", envelope(selector=selector)), policy=policy)
    assert takes_work(fleet) is pays


def test_gpus_are_counted_by_the_configured_resource() -> None:
    fleet = Fleet(node("n0"), budget("a"), policy=Policy(gpu_resource="amd.com/gpu"))
    assert not takes_work(fleet)
    assert fleet.verdict("lab/probe").outcome == "never"


@pytest.mark.parametrize("label", ["region", "cluster", "fabric.domain", "gpu.flavor"])
def test_a_gpu_node_that_lacks_a_label_is_reported_and_takes_nothing(label: str) -> None:
    labels = {key: value for key, value in USUAL.items() if key != label}
    fleet = Fleet(node("bad", labels=labels), node("good"), budget("a"))
    (note,) = fleet.notes("Quarantined")
    assert (note.object, note.reason) == ("Node/bad", "MissingLabel")
    assert label in note.message
    fleet.apply(run("x", 8, owner="org:a"))
    assert fleet.where("lab/x") == {"good": 8}, "the rest is planned as ever"


def test_a_rack_is_not_needed() -> None:
    fleet = Fleet(node("n0"), budget("a"))
    assert not fleet.notes("Quarantined")


def test_a_node_without_gpus_needs_no_labels() -> None:
    fleet = Fleet(node("cpu", 0, labels={}), budget("a"))
    assert not fleet.notes("Quarantined")


@pytest.mark.parametrize("count", ["-8", "8.5", "many", "0x8", "1e3", "99999999999", "\u0668"])
def test_a_node_with_an_odd_count_is_quarantined(count: str) -> None:
    fleet = Fleet(node("bad", count), node("good"), budget("a"))
    (note,) = fleet.notes("Quarantined")
    assert (note.object, note.reason) == ("Node/bad", "BadCount")
    fleet.apply(run("x", 8, owner="org:a"))
    assert fleet.where("lab/x") == {"good": 8}


def test_a_quarantine_is_said_once_and_ends_when_the_node_is_mended() -> None:
    fleet = Fleet(node("n0", labels={}), budget("a"))
    fleet.apply(node("n0", labels={}))
    fleet.apply(node("n0", labels={}, cordoned=True))
    assert len(fleet.notes("Quarantined")) == 1
    fleet.apply(node("n0"))
    assert takes_work(fleet)


def test_a_node_that_loses_its_labels_under_a_run_is_quarantined_and_the_run_goes_on() -> None:
    fleet = Fleet(node("n0"), node("n1"), budget("a"))
    fleet.start(run("x", 4, owner="org:a"))
    fleet.apply(relabelled(fleet.node("n0"), {}))
    assert fleet.phase("lab/x") == "Running"
    fleet.succeed("lab/x")
    fleet.apply(run("y", 8, owner="org:a"))
    assert fleet.where("lab/y") == {"n1": 8}


def test_a_node_may_move_to_another_domain() -> None:
    fleet = Fleet(*nodes("n", 2), budget("a"))
    fleet.start(run("x", 4, owner="org:a"))
    fleet.apply(node("n1", domain="B"))
    fleet.apply(run("y", 8, owner="org:a"))
    assert fleet.domains("lab/y") == {"B": 8}
    fleet.apply(run("z", 8, owner="org:a", group=8))
    assert fleet.code("lab/z") == "NoCapacity"


# --- capacity -----------------------------------------------------------------------------------------------------


def test_capacity_is_what_the_node_offers_minus_open_leases() -> None:
    fleet = Fleet(node("n0"), budget("a"))
    fleet.start(run("x", 5, owner="org:a"))
    fleet.apply(run("y", 4, owner="org:a"))
    assert fleet.code("lab/y") == "NoCapacity"
    fleet.apply(run("z", 3, owner="org:a", lasts="10m"))
    assert fleet.leases("lab/z")[0].gpus == (5, 6, 7)


@pytest.mark.parametrize(
    "closed",
    [
        {"cordoned": True},
        {"ready": False},
        {"taints": [Taint(key="maintenance", effect="NoSchedule")]},
        {"taints": [Taint(key="maintenance", effect="NoExecute")]},
        {"taints": [Taint(key="node.kubernetes.io/out-of-service", effect="NoExecute")]},
    ],
    ids=["cordoned", "unready", "tainted", "tainted hard", "fenced"],
)
def test_a_closed_node_takes_nothing_new_and_opens_again(closed: dict[str, object]) -> None:
    fleet = Fleet(node("n0", **closed), budget("a"))  # type: ignore[arg-type]  # the test names them
    assert not takes_work(fleet)
    assert fleet.verdict("lab/probe").outcome == "wait", "a closed node may open again"
    fleet.apply(node("n0"))
    assert fleet.leases("lab/probe")


@pytest.mark.parametrize("taint", ["soft", "managed"])
def test_a_taint_that_is_ours_or_only_a_preference_does_not_close_a_node(taint: str) -> None:
    mark = {
        "soft": Taint(key="old", effect="PreferNoSchedule"),
        "managed": Taint(key="rq.davidlangworthy.io/managed", effect="NoSchedule"),
    }[taint]
    fleet = Fleet(node("n0", taints=[mark]), budget("a"))
    assert takes_work(fleet)


def test_a_node_that_shrinks_under_its_leases_has_no_room_and_breaks_nothing() -> None:
    fleet = Fleet(node("n0", 8), budget("a"))
    fleet.start(run("x", 8, owner="org:a"))
    fleet.apply(node("n0", 4))
    assert not takes_work(fleet, 1)
    fleet.succeed("lab/x")
    assert len(fleet.leases("lab/probe")) == 1
    fleet.apply(run("z", 4, owner="org:a"))
    assert fleet.verdict("lab/z").outcome == "wait"


def test_a_node_that_grows_gives_its_new_gpus() -> None:
    fleet = Fleet(node("n0", 4), budget("a"))
    fleet.start(run("x", 4, owner="org:a"))
    fleet.apply(node("n0", 8))
    fleet.start(run("y", 4, owner="org:a"))
    assert fleet.leases("lab/y")[0].gpus == (4, 5, 6, 7)


# --- slots --------------------------------------------------------------------------------------------------------


def slots_of(fleet: Fleet) -> dict[str, list[tuple[int, int, int]]]:
    table = slots(fleet.state.topology.pool(FLAVOR, WEST, ()))
    return {fabric: [(one.size, one.fit, one.ideal) for one in rows] for fabric, rows in table.items()}


def test_slots_count_gangs_of_each_size_that_fit_now() -> None:
    fleet = Fleet(*nodes("n", 2), node("m", 4, domain="B"), budget("a"))
    assert slots_of(fleet) == {
        "A": [(1, 16, 16), (2, 8, 8), (4, 4, 4), (8, 2, 2), (16, 1, 1)],
        "B": [(1, 4, 4), (2, 2, 2), (4, 1, 1)],
    }


def test_slots_show_what_fragmentation_costs() -> None:
    fleet = Fleet(node("n0", 7), node("n1", 7), node("n2", 2), budget("a"))
    assert slots_of(fleet) == {"A": [(1, 16, 16), (2, 7, 8), (4, 2, 4), (8, 1, 2), (16, 0, 1)]}


def test_slots_follow_what_is_leased() -> None:
    fleet = Fleet(*nodes("n", 1), budget("a"))
    fleet.start(run("x", 3, owner="org:a"))
    assert slots_of(fleet) == {"A": [(1, 5, 5), (2, 2, 2), (4, 1, 1)]}
    assert Slots(4, 1, 1).fit == 1
