"""SPEC 9: a node fails, and somebody takes over: a spare, free GPUs, fewer groups, or a new start."""

from __future__ import annotations

import msgspec
import pytest

from tenure.api.core import Node
from tenure.api.policy import Policy
from tenure.engine import Apply, dump, load, step
from tenure.facts import Cleared, Closed, Opened, Placed
from tenure.testing import FENCE, Fleet, at, budget, elastic, envelope, namespace, node, nodes, run
from tenure.testing.fleet import env

KEY = "lab/x"


def guarded(*machines: object, gpus: int = 64, **terms: object) -> Fleet:
    """A running run of 8 GPUs on n0 with 8 spares on n1, in a fleet with nothing else unless given."""
    fleet = Fleet(*nodes("n", 2), *machines, budget("a", envelope(gpus=gpus)))  # type: ignore[arg-type]  # nodes
    shape = {"group": 8, "spares": 8, **terms}
    fleet.start(run("x", 8, owner="org:a", **shape))  # type: ignore[arg-type]  # the test names them
    return fleet


def closures(fleet: Fleet, key: str = KEY) -> dict[str, str]:
    return {name: one.reason for name, one in fleet.closed().items() if one.lease.run_key == key}


def open_leases(fleet: Fleet, key: str = KEY) -> list[tuple[str, str, str, tuple[int, ...]]]:
    """(node, role, reason, GPUs) of a run's open leases."""
    return sorted((one.node, one.role, one.reason, one.gpus) for one in fleet.leases(key))


def dead(fleet: Fleet, name: str) -> Node:
    """A node of the fleet, out of service."""
    item = fleet.node(name)
    return msgspec.structs.replace(item, spec=msgspec.structs.replace(item.spec, taints=(FENCE,)))


def spares(fleet: Fleet, key: str = KEY) -> list[tuple[int, int, int]]:
    """(group, available, consumed) as the status says it."""
    return [(one.group, one.available, one.consumed) for one in fleet.run(key).status.spares]


# --- what a failure is --------------------------------------------------------------------------------------


@pytest.mark.parametrize("how", ["fenced", "deleted", "unready"])
def test_a_fenced_a_deleted_and_where_accepted_a_long_unready_node_have_failed(how: str) -> None:
    fleet = Fleet(*nodes("n", 2), budget("a"), policy=Policy(unready_is_failure=True, unready_debounce="5m"))
    fleet.start(run("x", 8, owner="org:a", group=8, spares=8))
    match how:
        case "fenced":
            fleet.fence("n0")
        case "deleted":
            fleet.delete("Node", "n0")
        case _:
            fleet.apply(node("n0", ready=False))
            fleet.until(at("5m") - 1)
            assert fleet.where(KEY) == {"n0": 8}, "within the debounce nothing is decided"
            fleet.until(at("5m"))
    assert fleet.where(KEY) == {"n1": 8}


@pytest.mark.parametrize("state", [{"cordoned": True}, {"ready": False}])
def test_cordoned_and_unready_are_not_failed(state: dict[str, bool]) -> None:
    fleet = guarded()
    fleet.apply(node("n0", **state))  # type: ignore[arg-type]  # flags
    fleet.later("1h")
    assert fleet.where(KEY) == {"n0": 8}
    assert closures(fleet) == {}


def test_a_pod_never_moves_to_a_node_that_takes_nothing_new() -> None:
    """A spare on a cordoned node is kept, and is no place for a new pod."""
    fleet = guarded(checkpoint="1h")
    fleet.apply(node("n1", cordoned=True))
    fleet.fence("n0")
    assert closures(fleet) == {"x-a1-g00-n0-0": "NodeFailure", "x-a1-g00-n1-0": "Fail"}
    assert fleet.phase(KEY) == "Pending"


def test_every_lease_on_the_dead_node_closes_of_any_role_and_any_run() -> None:
    fleet = Fleet(*nodes("n", 2), node("far", domain="B"), budget("a"))
    fleet.start(run("x", 8, owner="org:a", group=8, spares=4))
    fleet.start(run("filler", 4, owner="org:a", opportunistic=True, where={"fabric.domain": "A"}))
    fleet.start(run("guest", 4, owner="org:a", opportunistic=True, where={"fabric.domain": "A"}))
    assert {one.role for one in fleet.leases() if one.node == "n1"} == {"Active", "Spare", "Borrowed"}
    fleet.fence("n1")
    assert [one for one in fleet.leases() if one.node == "n1"] == []
    assert {one.reason for one in fleet.closed().values()} == {"NodeFailure"}
    assert fleet.phase(KEY) == "Running"


def test_all_runs_of_the_dead_node_are_decided_in_one_commit() -> None:
    fleet = Fleet(*nodes("n", 3), budget("a"))
    fleet.start(run("x", 4, owner="org:a", group=4, spares=4), run("y", 4, owner="org:a", group=4, spares=4))
    before = len(fleet.entries)
    fleet.fence("n0")
    assert len(fleet.entries) == before + 1
    assert (fleet.phase("lab/x"), fleet.phase("lab/y")) == ("Running", "Running")


def test_the_same_failure_told_again_changes_nothing() -> None:
    fleet = guarded()
    fleet.fence("n0")
    fenced, before = fleet.node("n0"), len(fleet.entries)
    fleet.apply(fenced)
    assert len(fleet.entries) == before
    fleet.apply(msgspec.structs.replace(fenced, spec=msgspec.structs.replace(fenced.spec, unschedulable=True)))
    assert fleet.kinds()[-1] == "PutNode", "the node changed, and nothing more was lost"


def test_a_fence_that_was_refused_fails_nobody() -> None:
    fleet = guarded()
    fleet.apply(namespace("lab", owner="org:a"))
    assert fleet.refusal(dead(fleet, "n0"), run("y", 8, owner="org:other"))
    assert fleet.where(KEY) == {"n0": 8}


# --- (a) a spare takes over ---------------------------------------------------------------------------------


def test_a_spare_of_the_group_takes_over_in_the_same_commit() -> None:
    fleet = guarded()
    fleet.later("1h")
    fleet.fence("n0")
    assert closures(fleet) == {"x-a1-g00-n0-0": "NodeFailure", "x-a1-g00-n1-0": "Swap"}
    assert open_leases(fleet) == [("n1", "Active", "Swap", tuple(range(8)))]
    assert {one.end for one in fleet.closed().values()} == {at("1h")}
    kinds = fleet.kinds()
    assert kinds.index("Closed") < kinds.index("Opened") < kinds.index("Placed")
    assert fleet.phase(KEY) == "Running"


def test_the_swapped_in_pod_has_the_same_rank_and_the_world_its_size() -> None:
    fleet = Fleet(*nodes("n", 3), budget("a"))
    fleet.start(run("x", 16, owner="org:a", group=16, spares=8))
    before = env(fleet.manifest("lab/x-a1-1"))
    fleet.fence("n1")
    assert [(pod.rank, pod.node, pod.name) for pod in fleet.pods(KEY)] == [(0, "n0", "x-a1-0"), (1, "n2", "x-a1-1-1")]
    after = env(fleet.manifest("lab/x-a1-1-1"))
    assert {key: before[key] for key in ("WORLD_SIZE", "NNODES", "NODE_RANK", "NPROC_PER_NODE")} == {
        "WORLD_SIZE": "16", "NNODES": "2", "NODE_RANK": "1", "NPROC_PER_NODE": "8",
    }  # fmt: skip
    assert {key: after[key] for key in before if key != "TENURE_POD"} == {
        key: value for key, value in before.items() if key != "TENURE_POD"
    }


def test_the_spares_payer_goes_on_paying_even_when_it_could_not_be_chosen_any_more() -> None:
    fleet = Fleet(*nodes("n", 2), budget("a", envelope("first", 8), envelope("second", 8)))
    fleet.start(run("x", 8, owner="org:a", group=8, spares=8))
    assert {(one.role, one.envelope) for one in fleet.leases(KEY)} == {("Active", "first"), ("Spare", "second")}
    fleet.delete("Budget", "a")
    fleet.fence("n0")
    assert fleet.payers(KEY) == {"a/second": 8}
    fleet.audit()


def test_a_spare_with_two_payers_takes_over_as_two_leases_and_one_pod() -> None:
    fleet = Fleet(*nodes("n", 2), budget("a", envelope("first", 12), envelope("second", 4)))
    fleet.start(run("x", 8, owner="org:a", group=8, spares=8))
    fleet.fence("n0")
    assert fleet.payers(KEY) == {"a/first": 4, "a/second": 4}
    assert [pod.gpus for pod in fleet.pods(KEY)] == [tuple(range(8))]


def test_several_leases_on_the_failed_node_are_one_loss() -> None:
    fleet = Fleet(*nodes("n", 2), budget("a", envelope("first", 4), envelope("second", 64)))
    fleet.start(run("x", 8, owner="org:a", group=8, spares=8))
    fleet.fence("n0")
    assert sorted(closures(fleet).values()) == ["NodeFailure", "NodeFailure", "Swap"]
    assert [(pod.rank, pod.node) for pod in fleet.pods(KEY)] == [(0, "n1")]


def test_several_pods_of_the_failed_node_share_a_spare() -> None:
    fleet = guarded(pod=4)
    fleet.fence("n0")
    assert [(pod.rank, pod.node, pod.gpus) for pod in fleet.pods(KEY)] == [
        (0, "n1", (0, 1, 2, 3)),
        (1, "n1", (4, 5, 6, 7)),
    ]
    fleet.audit()


def test_what_is_left_of_a_spare_stays_one() -> None:
    fleet = Fleet(node("n0", 4), node("n2"), budget("a"))
    fleet.start(run("x", 4, owner="org:a", group=4, spares=8))
    assert spares(fleet) == [(0, 8, 0)]
    fleet.fence("n0")
    assert open_leases(fleet) == [("n2", "Active", "Swap", (0, 1, 2, 3)), ("n2", "Spare", "Swap", (4, 5, 6, 7))]
    assert spares(fleet) == [(0, 4, 4)]
    assert fleet.headroom("a").used == 8


def test_the_smallest_spare_that_is_large_enough_is_taken() -> None:
    fleet = Fleet(node("a0", 6), node("s1", 6), node("s2", 2), node("t", 2), budget("a"))
    fleet.start(run("x", 8, owner="org:a", group=8, spares=8))
    small = next(one.node for one in fleet.leases(KEY) if one.role == "Active" and len(one.gpus) == 2)
    fleet.fence(small)
    swapped = [one for one in fleet.leases(KEY) if one.reason == "Swap"]
    assert [len(one.gpus) for one in swapped] == [2], "the spare of 6 GPUs is still whole"


def test_a_spare_of_another_group_does_not_take_over() -> None:
    fleet = Fleet(*nodes("n", 2), node("s0", 4), node("s1", 4), budget("a"))
    fleet.start(run("x", 16, owner="org:a", group=8, spares=4, pod=4))
    lost = {one.node: one.group for one in fleet.leases(KEY) if one.role == "Active"}
    fleet.fence("n0")
    swapped = {one.group for one in fleet.leases(KEY) if one.reason == "Swap"}
    assert swapped <= {lost["n0"]}
    assert fleet.run(KEY).status.message == "Node n0 failed under the run.", (
        "a spare of 4 is no place for two pods of 4"
    )


def test_a_spare_that_is_too_small_is_no_spare() -> None:
    fleet = guarded(spares=4, checkpoint="1h")
    fleet.apply(run("other", 4, owner="org:a"))  # takes the GPUs beside the spare
    fleet.fence("n0")
    assert closures(fleet) == {"x-a1-g00-n0-0": "NodeFailure", "x-a1-g00-n1-0": "Fail"}


def test_a_spare_on_the_dead_node_is_no_spare() -> None:
    fleet = Fleet(node("n0", 16), budget("a"))
    fleet.start(run("x", 8, owner="org:a", group=8, spares=8))
    fleet.fence("n0")
    assert set(closures(fleet).values()) == {"NodeFailure"}
    assert fleet.phase(KEY) == "Failed"


def test_a_spare_is_freed_once() -> None:
    """A spare that took over is closed; when the run completes it is not closed again, and the books agree."""
    fleet = guarded()
    fleet.fence("n0")
    fleet.bind(KEY)
    fleet.later("1h")
    fleet.succeed(KEY)
    closed = [name for fact in fleet.facts if isinstance(fact, Closed) for name in fact.leases]
    assert len(closed) == len(set(closed)) == 3
    assert (fleet.headroom("a").used, fleet.headroom("a").spare) == (0, 0)
    fleet.audit()


def test_two_nodes_that_fail_together_are_one_decision() -> None:
    fleet = Fleet(*nodes("n", 4), budget("a"))
    fleet.start(run("x", 16, owner="org:a", group=8, spares=8))
    before = len(fleet.entries)
    fleet.apply(dead(fleet, "n0"), dead(fleet, "n1"))
    assert len(fleet.entries) == before + 1
    assert sorted(fleet.where(KEY)) == ["n2", "n3"]
    assert [pod.rank for pod in fleet.pods(KEY)] == [0, 1]


def test_a_spare_that_fails_together_with_its_active_node_does_not_take_over() -> None:
    fleet = guarded(node("n2"))
    fleet.apply(dead(fleet, "n0"), dead(fleet, "n1"))
    assert fleet.where(KEY) == {"n2": 8}, "free GPUs of the domain, at once"


def test_ranks_stay_dense_and_unique_through_many_swaps() -> None:
    fleet = Fleet(*nodes("n", 6), budget("a"))
    fleet.start(run("x", 16, owner="org:a", group=16, spares=8))
    for _ in range(3):
        fleet.fence(fleet.pods(KEY)[0].node)
        fleet.bind(KEY)
        assert [pod.rank for pod in fleet.pods(KEY)] == [0, 1]
    names = [pod.name for pod in fleet.placed()]
    assert len(names) == len(set(names)), "a pod's name is never used twice"


# --- (b) free GPUs of the domain ----------------------------------------------------------------------------


def test_what_no_spare_covers_moves_to_free_gpus_of_the_domain() -> None:
    fleet = Fleet(*nodes("n", 2), budget("a"))
    fleet.start(run("x", 8, owner="org:a"))
    fleet.fence("n0")
    assert closures(fleet) == {"x-a1-g00-n0-0": "NodeFailure"}
    assert open_leases(fleet) == [("n1", "Active", "Swap", tuple(range(8)))]
    assert [(pod.rank, pod.name) for pod in fleet.pods(KEY)] == [(0, "x-a1-0-1")]


def test_free_gpus_of_another_domain_do_not_help() -> None:
    fleet = Fleet(node("n0"), node("m0", domain="B"), budget("a"))
    fleet.start(run("x", 8, owner="org:a", group=8))
    fleet.fence("n0")
    assert fleet.phase(KEY) == "Failed"


def test_free_gpus_help_only_if_cover_still_pays() -> None:
    fleet = Fleet(*nodes("n", 2), budget("a"))
    fleet.start(run("x", 8, owner="org:a"))
    fleet.delete("Budget", "a")
    fleet.fence("n0")
    assert fleet.phase(KEY) == "Failed"


def test_moving_keeps_to_the_borrow_limit() -> None:
    lender = budget("b", envelope(gpus=64, lends_to=["org:a"]))
    fleet = Fleet(*nodes("n", 2), budget("a", envelope(gpus=4)), lender)
    fleet.start(run("x", 8, owner="org:a", sponsors=["org:b"], max_borrow=4))
    fleet.apply(budget("a", envelope(gpus=2)))
    fleet.fence("n0")
    assert fleet.phase(KEY) == "Failed", "6 would have to be borrowed, and 4 may be"


@pytest.mark.parametrize("how", ["fenced", "deleted"])
def test_nothing_is_moved_onto_the_node_that_is_lost(how: str) -> None:
    fleet = Fleet(node("n0"), budget("a"))
    fleet.start(run("x", 4, owner="org:a", checkpoint="1h"))
    fleet.fence("n0") if how == "fenced" else fleet.delete("Node", "n0")
    assert fleet.leases() == []
    assert fleet.phase(KEY) == "Pending"


# --- (c) and (d) --------------------------------------------------------------------------------------------


def test_an_elastic_run_sheds_the_group_that_nobody_can_carry() -> None:
    fleet = Fleet(*nodes("n", 3), budget("a"))
    fleet.start(run("x", 24, owner="org:a", elastic=elastic(8, 24, 8)))
    fleet.fence("n1")
    assert fleet.where(KEY) == {"n0": 8, "n2": 8}
    assert closures(fleet) == {"x-a1-g01-n1-0": "NodeFailure"}
    assert (fleet.phase(KEY), fleet.run(KEY).status.message) == (
        "Running", "Node n1 failed and nothing could take over: 1 group given up.",
    )  # fmt: skip


def test_the_rest_of_a_shed_group_leaves_and_closes_shrink_when_its_pods_are_gone() -> None:
    fleet = Fleet(*nodes("n", 4), budget("a"))
    fleet.start(run("x", 32, owner="org:a", elastic=elastic(16, 32, 16)))
    fleet.fence("n3")
    assert fleet.where(KEY) == {"n0": 8, "n1": 8, "n2": 8}, "its pod is still there"
    fleet.later("1m")
    fleet.leave(KEY)
    assert fleet.closed()["x-a1-g01-n2-0"][1:] == (at("1m"), "Shrink")
    assert fleet.where(KEY) == {"n0": 8, "n1": 8}


def test_shedding_leaves_a_legal_width() -> None:
    """Steps of 16 in groups of 8: losing one group costs another, the highest index."""
    fleet = Fleet(*nodes("n", 4), budget("a"))
    fleet.start(run("x", 32, owner="org:a", group=8, elastic=elastic(16, 32, 16)))
    fleet.fence("n0")
    fleet.leave(KEY)
    assert fleet.where(KEY) == {"n1": 8, "n2": 8}


def test_below_its_minimum_an_elastic_run_sheds_nothing_and_is_requeued() -> None:
    fleet = Fleet(*nodes("n", 2), budget("a"))
    fleet.start(run("x", 16, owner="org:a", elastic=elastic(16, 16, 8), checkpoint="10m"))
    fleet.fence("n0")
    fleet.leave(KEY)
    assert fleet.phase(KEY) == "Pending"
    assert closures(fleet) == {"x-a1-g00-n0-0": "NodeFailure", "x-a1-g01-n1-0": "Fail"}


def test_the_floor_does_not_count_spares() -> None:
    """16 active GPUs and 8 spare ones: one group less is 8, below the minimum of 16, whatever stands by."""
    fleet = Fleet(*nodes("n", 2), node("s0", 4), node("s1", 4), budget("a"))
    fleet.start(run("x", 16, owner="org:a", group=8, spares=4, elastic=elastic(16, 16, 8), checkpoint="10m"))
    fleet.fence("n0")
    fleet.leave(KEY)
    assert fleet.phase(KEY) == "Pending"


def test_without_a_checkpoint_window_the_run_fails_and_with_one_it_waits_that_long() -> None:
    for checkpoint, phase in ((None, "Failed"), ("30m", "Pending")):
        fleet = Fleet(*nodes("n", 2), budget("a"))
        fleet.start(run("x", 16, owner="org:a", group=8, checkpoint=checkpoint))
        fleet.later("1h")
        fleet.fence("n0")
        fleet.leave(KEY)
        assert fleet.phase(KEY) == phase
    fleet.until(at("90m"))
    assert fleet.condition(KEY, "Failed") == ("True", "CheckpointExpired")


def test_nobody_gives_way_for_a_run_that_is_lost_anyway() -> None:
    """Two groups are hit and one has a spare left: the gang is not whole, so nothing takes over. The guest stays."""
    fleet = Fleet(node("n0", 4), node("n1", 4), node("s0", 5), node("s1", 5), budget("a"))
    fleet.start(run("x", 8, owner="org:a", group=4, spares=4, pod=4))
    fleet.start(run("guest", 4, owner="org:a", pod=4, opportunistic=True))
    (place,) = {one.node for one in fleet.leases("lab/guest")}
    fleet.apply(dead(fleet, "n0"), dead(fleet, "n1"), dead(fleet, "s1" if place == "s0" else "s0"))
    assert fleet.phase(KEY) == "Failed"
    assert "Swap" not in closures(fleet).values()
    assert {one.role for one in fleet.leases("lab/guest")} == {"Active"}
    assert fleet.phase("lab/guest") == "Running"


# --- runs that are not running ------------------------------------------------------------------------------


def test_a_spare_lost_while_starting_does_not_stop_the_start() -> None:
    fleet = Fleet(*nodes("n", 2), budget("a"))
    fleet.apply(run("x", 8, owner="org:a", group=8, spares=8))
    fleet.fence("n1")
    fleet.bind(KEY)
    assert fleet.phase(KEY) == "Running"
    assert spares(fleet) == [(0, 0, 8)]
    fleet.apply(node("n2"))
    assert spares(fleet) == [(0, 8, 0)]


def test_a_starting_run_that_loses_a_pod_is_started_anew_and_takes_no_spare() -> None:
    fleet = Fleet(*nodes("n", 2), budget("a"))
    fleet.apply(run("x", 8, owner="org:a", group=8, spares=8))
    fleet.fence("n0")
    assert closures(fleet) == {"x-a1-g00-n0-0": "NodeFailure", "x-a1-g00-n1-0": "Fail"}
    fleet.apply(node("n2"))
    fleet.later("10s")
    assert {one.attempt for one in fleet.leases(KEY)} == {2}


def test_a_stopping_run_takes_no_spare() -> None:
    fleet = guarded()
    fleet.delete("Run", KEY)
    fleet.fence("n0")
    assert fleet.phase(KEY) == "Gone"
    assert closures(fleet) == {"x-a1-g00-n0-0": "NodeFailure", "x-a1-g00-n1-0": "Canceled"}


def test_a_group_that_is_leaving_is_not_replaced() -> None:
    fleet = Fleet(*nodes("n", 3), budget("a"))
    fleet.start(run("x", 16, owner="org:a", elastic=elastic(8, 16, 8)))
    fleet.resize(KEY, 8)
    fleet.fence("n1")
    assert fleet.where(KEY) == {"n0": 8}
    assert [pod.rank for pod in fleet.pods(KEY)] == [0]
    fleet.succeed(KEY)
    assert fleet.phase(KEY) == "Completed"


def test_a_swapped_in_pod_that_does_not_start_is_a_failed_start() -> None:
    fleet = guarded(node("n2"), spread=False)
    fleet.fence("n0")
    fleet.report("Failed", "lab/x-a1-0-1", message="no such image")
    fleet.leave(KEY)
    assert fleet.phase(KEY) == "Pending"
    assert fleet.run(KEY).status.restarts == 0
    fleet.later("10s")
    assert {one.attempt for one in fleet.leases(KEY)} == {2}


# --- topping up ---------------------------------------------------------------------------------------------


def test_spares_are_topped_up_when_capacity_returns() -> None:
    fleet = guarded()
    fleet.fence("n0")
    assert spares(fleet) == [(0, 0, 8)]
    fleet.apply(node("n0"))
    assert open_leases(fleet) == [("n0", "Spare", "Start", tuple(range(8))), ("n1", "Active", "Swap", tuple(range(8)))]
    assert spares(fleet) == [(0, 8, 0)]


def test_each_group_gets_back_what_it_lacks_and_never_more() -> None:
    fleet = Fleet(*nodes("n", 2), node("s0", 8), budget("a"))
    fleet.start(run("x", 16, owner="org:a", group=8, spares=4))
    fleet.fence("s0")
    assert spares(fleet) == [(0, 0, 4), (1, 0, 4)]
    fleet.apply(node("s1", 4))
    assert sorted(one[1] for one in spares(fleet)) == [0, 4], "one group at a time, whole"
    fleet.apply(node("s2", 16))
    assert spares(fleet) == [(0, 4, 0), (1, 4, 0)]
    fleet.later("1h")
    assert sum(len(one.gpus) for one in fleet.leases(KEY) if one.role == "Spare") == 8
    fleet.audit()


def test_a_waiting_run_that_could_use_the_machines_comes_before_spares() -> None:
    fleet = guarded()
    fleet.apply(run("waits", 12, owner="org:a"))
    fleet.fence("n0")
    fleet.apply(node("n0"))
    assert spares(fleet) == [(0, 0, 8)], "8 are free; 12 are waited for"
    fleet.apply(node("n2", 4))
    assert fleet.where("lab/waits") == {"n0": 8, "n2": 4}
    assert spares(fleet) == [(0, 0, 8)]


def test_spares_are_topped_up_when_the_waiting_run_is_withdrawn() -> None:
    fleet = guarded()
    fleet.apply(run("waits", 12, owner="org:a"))
    fleet.fence("n0")
    fleet.apply(node("n0"))
    fleet.delete("Run", "lab/waits")
    assert spares(fleet) == [(0, 8, 0)]


@pytest.mark.parametrize("terms", [{"owner": "org:poor"}, {"owner": "org:a", "where": {"region": "mars"}}])
def test_a_waiting_run_that_cannot_use_the_machines_does_not_keep_spares_away(terms: dict[str, object]) -> None:
    fleet = guarded()
    fleet.apply(budget("poor", envelope(gpus=1)), node("m0", 1, region="mars"))
    fleet.apply(run("waits", 12, **terms))  # type: ignore[arg-type]  # the test names them
    fleet.fence("n0")
    fleet.apply(node("n0"))
    assert spares(fleet) == [(0, 8, 0)]


def test_spares_are_topped_up_only_with_money() -> None:
    fleet = guarded(gpus=16)
    fleet.fence("n0")
    fleet.apply(budget("a", envelope(gpus=12)))
    fleet.apply(node("n0"))
    assert spares(fleet) == [(0, 0, 8)]
    fleet.apply(budget("a", envelope(gpus=16)))
    assert spares(fleet) == [(0, 8, 0)]


def test_topped_up_spares_sit_beside_the_nodes_of_their_group_when_possible() -> None:
    fleet = Fleet(node("n0", 16), node("n1"), budget("a"))
    fleet.start(run("x", 8, owner="org:a", group=8, spares=4, where={"fabric.domain": "A"}))
    active = next(one.node for one in fleet.leases(KEY) if one.role == "Active")
    spare = next(one.node for one in fleet.leases(KEY) if one.role == "Spare")
    assert active != spare
    fleet.fence(spare)
    fleet.apply(node("n9", 4))
    assert [one.node for one in fleet.leases(KEY) if one.role == "Spare"] != [active]


# --- rebuilt ------------------------------------------------------------------------------------------------


def test_a_rebuilt_engine_swaps_and_tops_up_exactly_alike() -> None:
    fleet = guarded(pod=4)
    twin = load(dump(fleet.state))
    for event in (Apply((dead(fleet, "n0"),)), Apply((node("n5"),))):
        assert step(twin, event, now=fleet.now) == fleet.handle(event)
    assert dump(twin) == dump(fleet.state)


def test_a_swap_is_told() -> None:
    fleet = guarded()
    fleet.fence("n0")
    assert [(note.object, note.message) for note in fleet.notes("Swapped")] == [
        ("Run/lab/x", "Rank 0 moved from n0 to n1: the world size is unchanged.")
    ]
    facts = fleet.entries[-1].facts
    assert [type(fact) for fact in facts if isinstance(fact, Opened | Closed | Placed | Cleared)] == [
        Closed, Cleared, Closed, Opened, Placed,
    ]  # fmt: skip
