"""SPEC 5: which domain, which node, which GPU; whole or not at all."""

from __future__ import annotations

import pytest

from tenure.api.core import Node
from tenure.testing import Fleet, budget, elastic, envelope, node, nodes, run


def sizes(*free: int, **where: str) -> list[Node]:
    """Nodes n0, n1, ... with so many GPUs each."""
    return [node(f"n{index}", gpus, **where) for index, gpus in enumerate(free)]  # type: ignore[arg-type]  # labels


def domain(name: str, *free: int) -> list[Node]:
    return [node(f"{name.lower()}{index}", gpus, domain=name) for index, gpus in enumerate(free)]


def placed(machines: list[Node], gpus: int, **terms: object) -> Fleet:
    fleet = Fleet(*machines, budget("a", envelope(gpus=4096)))
    fleet.apply(run("x", gpus, owner="org:a", **terms))  # type: ignore[arg-type]  # the test names them
    return fleet


def groups(fleet: Fleet, role: str = "Active") -> dict[int, dict[str, int]]:
    """GPUs by group and node."""
    out: dict[int, dict[str, int]] = {}
    for lease in fleet.leases("lab/x"):
        if lease.role == role:
            here = out.setdefault(lease.group, {})
            here[lease.node] = here.get(lease.node, 0) + len(lease.gpus)
    return out


# --- groups -------------------------------------------------------------------------------------------------------


def test_a_run_is_cut_into_groups_and_the_last_may_be_smaller() -> None:
    fleet = placed(nodes("n", 4), 20, group=8)
    assert {index: sum(here.values()) for index, here in groups(fleet).items()} == {0: 8, 1: 8, 2: 4}


def test_the_smaller_last_group_has_the_highest_index_wherever_it_went() -> None:
    fleet = placed([*domain("A", 3), *domain("B", 8, 8)], 19, group=8)
    assert {index: sum(here.values()) for index, here in groups(fleet).items()} == {0: 8, 1: 8, 2: 3}


def test_a_group_never_crosses_a_domain() -> None:
    fleet = placed([*domain("A", 4), *domain("B", 4)], 8, group=8)
    assert fleet.leases() == []
    fleet = placed([*domain("A", 4), *domain("B", 4)], 8, group=4)
    assert groups(fleet) == {0: {"a0": 4}, 1: {"b0": 4}}


def test_domains_of_one_name_at_two_locations_are_two_domains() -> None:
    machines = [node("w0", 4), node("e0", 4, region="us-east")]
    fleet = Fleet(*machines, budget("a", envelope(selector={"cluster": "gpu-a"})))
    fleet.apply(run("x", 8, owner="org:a", group=8))
    assert (fleet.verdict("lab/x").outcome, fleet.code("lab/x")) == ("never", "TooLarge")


def test_without_groups_one_domain_is_filled_before_the_next_and_each_chunk_is_a_group() -> None:
    fleet = placed([*domain("A", 8), *domain("B", 8, 8), *domain("C", 8)], 30)
    assert {index: sum(here.values()) for index, here in groups(fleet).items()} == {0: 16, 1: 8, 2: 6}
    assert fleet.domains("lab/x") == {"B": 16, "A": 8, "C": 6}


def test_without_groups_a_run_that_fits_one_domain_is_one_group() -> None:
    fleet = placed([*domain("A", 8, 8), *domain("B", 8)], 12)
    assert groups(fleet) == {0: {"a0": 8, "a1": 4}}


def test_all_or_nothing() -> None:
    fleet = placed(nodes("n", 3), 32, group=8)
    assert fleet.leases() == []
    assert fleet.pods("lab/x") == []


# --- spread -------------------------------------------------------------------------------------------------------


def test_without_spread_everything_is_in_one_domain() -> None:
    fleet = placed([*domain("A", 8, 8), *domain("B", 8, 8, 8)], 24, group=8, spread=False)
    assert fleet.domains("lab/x") == {"B": 24}


def test_a_denial_of_spread_says_which_domain_came_closest() -> None:
    fleet = Fleet(*domain("A", 8, 8, 8), *domain("B", 8, 8, 8, 8), budget("a"))
    fleet.start(run("busy", 12, owner="org:a", group=12, where={"fabric.domain": "B"}))
    fleet.apply(run("x", 32, owner="org:a", group=8, spread=False))
    reason = fleet.verdict("lab/x").headline
    assert reason is not None
    assert (reason.code, reason.data["where"], reason.data["largest"]) == ("SpreadForbidden", "us-west/gpu-a/A", 24)


# --- the choice of domains ----------------------------------------------------------------------------------------


def test_fewest_domains_come_first() -> None:
    fleet = placed([*domain("A", 8), *domain("B", 8), *domain("C", 8, 8)], 16, group=8)
    assert fleet.domains("lab/x") == {"C": 16}


def test_of_domains_that_hold_all_the_tightest_is_taken() -> None:
    fleet = placed([*domain("A", 8, 8, 8), *domain("B", 8, 8), *domain("C", 8, 8, 8, 8)], 16, group=8)
    assert fleet.domains("lab/x") == {"B": 16}


def test_equal_domains_go_by_name() -> None:
    fleet = placed([*domain("C", 8), *domain("A", 8), *domain("B", 8)], 8)
    assert fleet.domains("lab/x") == {"A": 8}


def test_the_last_domain_is_the_tightest_that_holds_the_rest() -> None:
    fleet = placed([*domain("A", 8, 8, 8), *domain("B", 8, 8), *domain("C", 8)], 32, group=8)
    assert fleet.domains("lab/x") == {"A": 24, "C": 8}


def test_spares_count_when_domains_are_chosen() -> None:
    """B holds the two groups but not their spares beside them."""
    fleet = placed([*domain("B", 8, 8), *domain("C", 8, 8, 8)], 16, group=8, spares=2)
    assert fleet.domains("lab/x") == {"C": 16}


def test_pods_count_when_domains_are_chosen() -> None:
    """A has more free GPUs, but not in pods of 8."""
    fleet = placed([*domain("A", 7, 7, 7), *domain("B", 8, 8)], 16, group=8, pod=8)
    assert fleet.domains("lab/x") == {"B": 16}


def test_the_domain_that_holds_the_most_groups_is_taken_even_if_another_has_more_whole_pods() -> None:
    """With spares a domain of many whole pods may hold fewer groups: B and C hold four each, A three."""
    machines = [*domain("A", *[4] * 10), *domain("B", *[6] * 9), *domain("C", *[6] * 9)]
    fleet = placed(machines, 64, group=8, pod=4, spares=4)
    assert set(fleet.domains("lab/x")) == {"B", "C"}


# --- the choice of nodes ------------------------------------------------------------------------------------------


def test_the_fewest_nodes_are_used() -> None:
    assert groups(placed(sizes(4, 4, 8), 8)) == {0: {"n2": 8}}


def test_of_nodes_that_hold_all_the_tightest_is_taken_so_that_big_gaps_survive() -> None:
    assert groups(placed(sizes(8, 5, 6, 4), 5)) == {0: {"n1": 5}}


def test_the_last_node_is_the_tightest_that_holds_the_rest() -> None:
    assert groups(placed(sizes(8, 8, 5, 3), 11)) == {0: {"n0": 8, "n3": 3}}


def test_equal_nodes_go_by_name() -> None:
    assert groups(placed([node("z"), node("m"), node("q")], 8)) == {0: {"m": 8}}


def test_rack_breaks_ties_before_the_name() -> None:
    machines = [node("n0", rack="r2"), node("n1", rack="r1"), node("n2", rack="r2"), node("n3", rack="r1")]
    assert groups(placed(machines, 16)) == {0: {"n1": 8, "n3": 8}}


def test_every_pod_is_exactly_as_wide_as_asked() -> None:
    fleet = placed(sizes(7, 8), 12, pod=4)
    assert groups(fleet) == {0: {"n0": 4, "n1": 8}}
    assert [(pod.node, len(pod.gpus)) for pod in fleet.pods("lab/x")] == [("n1", 4), ("n1", 4), ("n0", 4)]


def test_pods_of_one_gpu_are_pods_of_one_gpu() -> None:
    fleet = placed(sizes(8), 4, pod=1)
    assert [len(pod.gpus) for pod in fleet.pods("lab/x")] == [1, 1, 1, 1]


def test_gpus_enough_but_not_in_whole_pods_is_fragmentation() -> None:
    fleet = Fleet(*nodes("n", 2), budget("a"))
    fleet.start(run("busy0", 5, owner="org:a"), run("busy1", 5, owner="org:a"))
    fleet.apply(run("x", 4, owner="org:a", pod=4))
    assert (fleet.verdict("lab/x").outcome, fleet.code("lab/x")) == ("wait", "Fragmented")


def test_groups_enough_but_no_domain_holds_one_is_fragmentation() -> None:
    fleet = Fleet(*domain("A", 8), *domain("B", 8), budget("a"))
    fleet.start(
        run("busy0", 4, owner="org:a", where={"fabric.domain": "A"}),
        run("busy1", 4, owner="org:a", where={"fabric.domain": "B"}),
    )
    fleet.apply(run("x", 8, owner="org:a", group=8))
    assert (fleet.verdict("lab/x").outcome, fleet.code("lab/x")) == ("wait", "Fragmented")


# --- spares -------------------------------------------------------------------------------------------------------


def test_spares_are_in_their_groups_domain_on_other_nodes() -> None:
    fleet = placed([*domain("A", 8, 8), *domain("B", 8, 8)], 16, group=8, spares=4)
    active, spare = groups(fleet), groups(fleet, "Spare")
    for index in (0, 1):
        assert {name[0] for name in active[index]} == {name[0] for name in spare[index]}, "one domain"
        assert not set(active[index]) & set(spare[index]), "other nodes"
        assert sum(spare[index].values()) == 4


def test_spares_sit_beside_their_group_where_nothing_else_is_left() -> None:
    fleet = placed(sizes(8), 4, group=4, spares=2)
    assert (groups(fleet), groups(fleet, "Spare")) == ({0: {"n0": 4}}, {0: {"n0": 2}})


def test_spares_go_to_other_nodes_as_far_as_these_have_room() -> None:
    fleet = placed(sizes(8, 1), 4, group=4, spares=2)
    assert (groups(fleet), groups(fleet, "Spare")) == ({0: {"n0": 4}}, {0: {"n0": 1, "n1": 1}})


def test_a_spare_has_a_lease_and_no_pod() -> None:
    fleet = placed(sizes(8, 8), 8, group=8, spares=2)
    assert [lease.role for lease in fleet.leases()] == ["Active", "Spare"]
    assert [pod.node for pod in fleet.pods("lab/x")] == ["n0"]


def test_a_run_is_not_started_without_room_for_its_spares() -> None:
    fleet = placed(sizes(8), 8, group=8, spares=1)
    assert (fleet.verdict("lab/x").outcome, fleet.code("lab/x")) == ("never", "TooLarge")


# --- where it may go ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("where", "home"),
    [({"region": "us-east"}, "e"), ({"rack": "r7"}, "r"), ({"fabric.domain": "B"}, "d"), ({"team": "x"}, "t")],
    ids=["region", "rack", "domain", "any label"],
)
def test_a_runs_selector_is_kept(where: dict[str, str], home: str) -> None:
    machines = [
        node("a"),
        node("e", region="us-east"),
        node("r", rack="r7"),
        node("d", domain="B"),
        node("t", labels={**node("a").metadata.labels, "team": "x"}),
    ]
    fleet = Fleet(*machines, budget("a", envelope(selector={"cluster": "gpu-a"})))
    fleet.apply(run("x", 8, owner="org:a", where=where))
    assert fleet.where("lab/x") == {home: 8}


def test_a_selector_that_no_node_matches_is_said_to_have_no_nodes() -> None:
    fleet = placed(nodes("n", 1), 8, where={"region": "mars"})
    assert (fleet.verdict("lab/x").outcome, fleet.code("lab/x")) == ("never", "NoNodes")


def test_a_run_larger_than_the_empty_fleet_can_never_run() -> None:
    fleet = placed(nodes("n", 2), 17)
    assert (fleet.verdict("lab/x").outcome, fleet.code("lab/x")) == ("never", "TooLarge")


def test_a_run_larger_than_the_part_of_the_fleet_it_asks_for_can_never_run() -> None:
    fleet = placed([*nodes("n", 2, rack="r1"), *nodes("m", 4, rack="r2")], 24, where={"rack": "r1"})
    assert (fleet.verdict("lab/x").outcome, fleet.code("lab/x")) == ("never", "TooLarge")


def test_a_run_that_fits_another_domain_of_its_payers_is_worth_waiting_for() -> None:
    """The first fine selector is too small even when empty; the second only busy."""
    fleet = Fleet(
        *domain("A", 8),
        *domain("B", 8, 8),
        budget(
            "a",
            envelope("in-a", 64, selector={"fabric.domain": "A"}),
            envelope("in-b", 64, selector={"fabric.domain": "B"}),
        ),
    )
    fleet.start(run("busy", 16, owner="org:a", group=16))
    fleet.apply(run("x", 16, owner="org:a", group=16, spread=False))
    assert (fleet.verdict("lab/x").outcome, fleet.code("lab/x")) == ("wait", "NoCapacity")


def test_a_full_fleet_is_worth_waiting_for() -> None:
    fleet = Fleet(*nodes("n", 1), budget("a"))
    fleet.start(run("busy", 8, owner="org:a"))
    fleet.apply(run("x", 8, owner="org:a"))
    assert (fleet.verdict("lab/x").outcome, fleet.code("lab/x")) == ("wait", "NoCapacity")


# --- width --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("free", "width"), [(3, 24), (4, 32), (2, 16), (5, 32), (1, 0)])
def test_a_malleable_run_starts_at_the_widest_step_that_fits(free: int, width: int) -> None:
    fleet = placed(nodes("n", free), 32, elastic=elastic(16, 48, 8))
    assert sum(fleet.where("lab/x").values()) == width


def test_a_malleable_run_does_not_start_wider_than_desired() -> None:
    fleet = placed(nodes("n", 8), 32, elastic=elastic(16, 48, 8, desired=24))
    assert sum(fleet.where("lab/x").values()) == 24


def test_a_malleable_run_without_groups_uses_its_step() -> None:
    fleet = placed([*domain("A", 8, 4), *domain("B", 8)], 16, elastic=elastic(8, 32, 8))
    assert groups(fleet) == {0: {"b0": 8}, 1: {"a0": 8}}


# --- the plan as data ---------------------------------------------------------------------------------------------


def test_equal_plans_have_equal_hashes_and_others_do_not() -> None:
    plans = [placed(nodes("n", 2), gpus).verdict("lab/x").plan_hash for gpus in (8, 8, 16)]
    assert plans[0] == plans[1] != plans[2]
    assert len(plans[0]) == 64


def test_the_search_is_told() -> None:
    fleet = Fleet(
        *nodes("w", 1), *nodes("e", 2, region="us-east"), budget("a", envelope(selector={"cluster": "gpu-a"}))
    )
    fleet.apply(run("x", 16, owner="org:a"))
    tried = {
        one.where: (one.owned, one.free, one.fault.code if one.fault else "") for one in fleet.verdict("lab/x").tried
    }
    assert tried == {"us-west/gpu-a": (16, 8, "NoCapacity"), "us-east/gpu-a": (16, 16, "")}
