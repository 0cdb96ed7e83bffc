"""SPEC 2 and 12: what is taken in, what is refused, and what may still change."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from tenure.api.core import Node
from tenure.api.meta import GROUP
from tenure.api.policy import Policy
from tenure.api.run import Run
from tenure.engine import Apply, SetPolicy, dump, load
from tenure.facts import PutNode
from tenure.testing import Fleet, budget, elastic, envelope, namespace, node, nodes, run

KEY = "lab/x"


def with_spec(item: Run, **parts: Any) -> Run:
    return msgspec.structs.replace(item, spec=msgspec.structs.replace(item.spec, **parts))


def with_part(item: Run, part: str, **fields: Any) -> Run:
    return with_spec(item, **{part: msgspec.structs.replace(getattr(item.spec, part), **fields)})


def with_notes(item: Node, **notes: str) -> Node:
    """A node with annotations of our own group."""
    annotations = {f"{GROUP}/{key}": value for key, value in notes.items()}
    return msgspec.structs.replace(item, metadata=msgspec.structs.replace(item.metadata, annotations=annotations))


# --- whole or not at all ------------------------------------------------------------------------------------------


def test_a_file_of_several_objects_is_applied_whole_or_not_at_all() -> None:
    fleet = Fleet(namespace("lab", owner="org:lab"))
    before = len(fleet.entries)
    refused = fleet.refusal(
        node("n0"), budget("a"), run("good", 8, owner="org:lab"), run("bad", 8, owner="org:elsewhere")
    )
    assert refused == ["spec.owner"]
    assert len(fleet.entries) == before
    assert fleet.state.budgets == {}


def test_applying_the_same_again_writes_nothing() -> None:
    objects = (*nodes("n", 2), namespace("lab", owner="org:a"), budget("a"), run("x", 8, owner="org:a"))
    fleet = Fleet(*objects)
    before = len(fleet.entries)
    for item in objects:
        fleet.apply(item)
    fleet.apply(*objects)
    assert len(fleet.entries) == before


def test_applying_what_was_shown_again_writes_nothing() -> None:
    """A user may edit what `get -o yaml` printed: status, uid and timestamps in it are ours and say nothing new."""
    fleet = Fleet(node("n0"), budget("a"))
    fleet.start(run("x", 8, owner="org:a"))
    before = len(fleet.entries)
    fleet.apply(fleet.run(KEY))
    assert len(fleet.entries) == before


def test_the_order_within_a_file_does_not_matter_between_kinds() -> None:
    fleet = Fleet(run("x", 8, owner="org:a"), node("n0"), budget("a"), namespace("lab", owner="org:a"))
    assert len(fleet.leases(KEY)) == 1


def test_setting_the_policy_that_is_in_force_writes_nothing() -> None:
    fleet = Fleet()
    fleet.handle(SetPolicy(Policy()))
    assert len(fleet.entries) == 1, "the defaults are recorded once, like any policy"
    fleet.handle(SetPolicy(Policy()))
    assert len(fleet.entries) == 1


# --- identity -----------------------------------------------------------------------------------------------------


def test_an_object_keeps_its_identity_over_edits() -> None:
    fleet = Fleet(budget("a"))
    first = fleet.state.budgets["a"].metadata
    fleet.later("1h")
    fleet.apply(budget("a", envelope(gpus=8)))
    second = fleet.state.budgets["a"].metadata
    assert (second.uid, second.creation_timestamp) == (first.uid, first.creation_timestamp)
    assert (first.generation, second.generation) == (1, 2)


def test_the_same_history_gives_the_same_ids_and_another_fleet_gives_others() -> None:
    uids = [Fleet(budget("a"), name=name).state.budgets["a"].metadata.uid for name in ("x", "x", "y")]
    assert uids[0] == uids[1] != uids[2]


def test_regression_what_is_submitted_again_at_the_instant_at_which_it_was_canceled_is_another_run() -> None:
    """It had the uid of the one before, and its reservation that one's name: room that was made for both looked like
    one activation that was resolved twice. A clock that was set back is enough for it: ledger time stands then."""
    fleet = Fleet(node("n0"), budget("a"))
    fleet.start(run("full", 8, owner="org:a"))
    seen: list[tuple[str, str]] = []
    for _ in range(3):
        fleet.apply(run("x", 8, owner="org:a"))
        seen.append((fleet.run(KEY).metadata.uid, fleet.state.reservations[KEY].name))
        fleet.delete("Run", KEY)
        fleet.state = load(dump(fleet.state))  # a restart does not forget it
    uids, names = zip(*seen, strict=True)
    assert len(set(uids)) == len(set(names)) == 3
    fleet.later("1s")
    fleet.apply(run("x", 8, owner="org:a"))
    assert not load(dump(fleet.state)).departed.at(fleet.now), "it is forgotten with its instant"


# --- the spec of a run --------------------------------------------------------------------------------------------


EDITS: dict[str, Any] = {
    "spec.owner": lambda item: with_spec(item, owner="org:a:b"),
    "spec.resources.totalGPUs": lambda item: with_part(item, "resources", total_gpus=24),
    "spec.resources.gpuType": lambda item: with_part(item, "resources", gpu_type="A100"),
    "spec.resources.gpusPerPod": lambda item: with_part(item, "resources", gpus_per_pod=8),
    "spec.locality.groupGPUs": lambda item: with_part(item, "locality", group_gpus=4),
    "spec.locality.allowCrossGroupSpread": lambda item: with_part(item, "locality", allow_cross_group_spread=False),
    "spec.locality.selector.rack": lambda item: with_part(item, "locality", selector={"rack": "r1"}),
    "spec.sparesPerGroup": lambda item: with_spec(item, spares_per_group=1),
    "spec.funding.allowBorrow": lambda item: with_part(item, "funding", allow_borrow=False),
    "spec.opportunistic": lambda item: with_spec(item, opportunistic=True),
    "spec.runtime.expectedDuration": lambda item: with_part(item, "runtime", expected_duration="9h"),
    "spec.runtime.checkpoint": lambda item: with_part(item, "runtime", checkpoint="9h"),
    "spec.runtime.onPreemption": lambda item: with_part(item, "runtime", on_preemption="Requeue"),
    "spec.runtime.maxRestarts": lambda item: with_part(item, "runtime", max_restarts=9),
    "spec.template": lambda item: with_spec(item, template={"spec": {"containers": [{"name": "other"}]}}),
    "spec.malleable.minTotalGPUs": lambda item: with_part(item, "malleable", min_total_gpus=16),
    "spec.malleable.maxTotalGPUs": lambda item: with_part(item, "malleable", max_total_gpus=64),
    "spec.malleable.stepGPUs": lambda item: with_part(item, "malleable", step_gpus=16),
}
FREE: dict[str, Any] = {
    "desiredTotalGPUs": lambda item: with_part(item, "malleable", desired_total_gpus=8),
    "sponsors": lambda item: with_part(item, "funding", sponsors=("org:c",)),
    "maxBorrowGPUs": lambda item: with_part(item, "funding", max_borrow_gpus=3),
}


def wanted() -> Run:
    return run("x", 16, owner="org:a", group=8, elastic=elastic(8, 32, 8, desired=16), sponsors=["org:b"])


@pytest.mark.parametrize("path", EDITS)
def test_the_spec_is_immutable_once_admitted(path: str) -> None:
    fleet = Fleet(node("n0"), budget("a"))
    fleet.apply(wanted())
    assert fleet.refusal(EDITS[path](wanted())) == [path]


@pytest.mark.parametrize("path", EDITS)
def test_before_it_is_admitted_everything_may_change(path: str) -> None:
    fleet = Fleet(node("n0"))
    fleet.apply(wanted())
    fleet.apply(EDITS[path](wanted()))


@pytest.mark.parametrize("field", FREE)
def test_three_fields_may_change_at_any_time(field: str) -> None:
    fleet = Fleet(node("n0"), budget("a"))
    fleet.start(wanted())
    fleet.apply(FREE[field](wanted()))
    fleet.succeed(KEY)
    fleet.apply(wanted())


def test_labels_and_annotations_may_change_at_any_time() -> None:
    fleet = Fleet(node("n0"), budget("a"))
    fleet.start(wanted())
    item = wanted()
    fleet.apply(msgspec.structs.replace(item, metadata=msgspec.structs.replace(item.metadata, labels={"team": "x"})))
    assert fleet.run(KEY).metadata.labels == {"team": "x"}


def test_a_requeued_run_stays_immutable() -> None:
    fleet = Fleet(node("n0"), budget("a"))
    fleet.apply(wanted())
    fleet.report("Failed", fleet.pods(KEY)[0].key)
    fleet.leave(KEY)
    assert fleet.phase(KEY) == "Pending"
    assert fleet.refusal(EDITS["spec.resources.totalGPUs"](wanted())) == ["spec.resources.totalGPUs"]


def test_an_edit_of_a_waiting_run_is_looked_at_at_once() -> None:
    fleet = Fleet(node("n0"), budget("a"))
    fleet.apply(run("x", 16, owner="org:a"))
    assert fleet.leases() == []
    fleet.apply(run("x", 8, owner="org:a"))
    assert len(fleet.leases(KEY)) == 1


def test_more_sponsors_let_a_waiting_run_start() -> None:
    fleet = Fleet(*nodes("n", 2), budget("a", envelope(gpus=8)), budget("b", envelope(lends_to=["*"])))
    fleet.apply(run("x", 16, owner="org:a"))
    assert fleet.leases() == []
    fleet.apply(run("x", 16, owner="org:a", sponsors=["org:b"]))
    assert fleet.payers(KEY) == {"a/main": 8, "b/main": 8}


# --- what kind of machine a node is -------------------------------------------------------------------------------


def notes_of(fleet: Fleet) -> dict[str, str]:
    return fleet.state.topology.rows["n0"].node.metadata.annotations


def test_a_manifest_that_does_not_name_our_marks_of_a_node_leaves_them() -> None:
    fleet = Fleet(with_notes(node("n0"), executor="simulated"))
    fleet.apply(node("n0", cordoned=True))
    assert notes_of(fleet) == {f"{GROUP}/executor": "simulated"}
    put = [fact for fact in fleet.entries[-1].facts if isinstance(fact, PutNode)]
    assert [fact.object.metadata.annotations for fact in put] == [notes_of(fleet)], "it is recorded, not only folded"
    fleet.apply(node("n0"))
    before = len(fleet.entries)
    fleet.apply(node("n0"))
    assert len(fleet.entries) == before
    fleet.apply(with_notes(node("n0"), executor="process"))
    assert notes_of(fleet) == {f"{GROUP}/executor": "process"}, "who names it means it"


def test_other_annotations_of_a_node_are_those_of_the_manifest() -> None:
    metadata = msgspec.structs.replace(node("n0").metadata, annotations={"note": "ours", "rack": "7"})
    fleet = Fleet(msgspec.structs.replace(node("n0"), metadata=metadata))
    fleet.apply(node("n0"))
    assert notes_of(fleet) == {}


def test_an_api_server_says_all_there_is_to_say_of_its_nodes() -> None:
    fleet = Fleet(with_notes(node("n0"), executor="simulated"))
    fleet.handle(Apply((node("n0"),), named=True))
    assert notes_of(fleet) == {}


@pytest.mark.parametrize(("now", "new"), [("simulated", "process"), (None, "simulated")])
def test_what_kind_of_machine_a_node_is_does_not_change_under_its_pods(now: str | None, new: str) -> None:
    first = node("n0") if now is None else with_notes(node("n0"), executor=now)
    fleet = Fleet(first, budget("a"))
    fleet.start(run("x", 8, owner="org:a"))
    assert fleet.refusal(with_notes(node("n0"), executor=new)) == [f'metadata.annotations["{GROUP}/executor"]']
    fleet.apply(msgspec.structs.replace(first, spec=node("n0", cordoned=True).spec))
    fleet.succeed(KEY)
    assert not fleet.state.pods
    fleet.apply(with_notes(node("n0"), executor=new))
    assert notes_of(fleet) == {f"{GROUP}/executor": new}


# --- namespaces ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("bound", "claimed", "taken"),
    [
        ("org:ai", "org:ai", "org:ai"),
        ("org:ai", "org:ai:rai", "org:ai:rai"),
        ("org:ai", "org:ai:rai:sys", "org:ai:rai:sys"),
        ("org:ai", "", "org:ai"),
        ("org:ai", "org", None),
        ("org:ai", "org:aix", None),
        ("org:ai", "org:mm", None),
        ("", "org:mm", "org:mm"),
        ("", "", None),
    ],
)
def test_a_run_may_claim_its_namespaces_owner_or_one_below_it(bound: str, claimed: str, taken: str | None) -> None:
    fleet = Fleet(namespace("lab", owner=bound))
    outcome = fleet.offer(run("x", 8, owner=claimed))
    assert [error.path for error in outcome.refused] == ([] if taken else ["spec.owner"])
    if taken:
        assert fleet.run(KEY).spec.owner == taken


def test_without_a_namespace_object_any_owner_may_be_used() -> None:
    fleet = Fleet()
    fleet.apply(run("x", 8, owner="org:anyone"))
    assert fleet.run(KEY).spec.owner == "org:anyone"


def test_a_namespace_in_the_same_file_counts_already() -> None:
    fleet = Fleet()
    assert fleet.refusal(run("x", 8, owner="org:b"), namespace("lab", owner="org:a")) == ["spec.owner"]


def test_a_run_without_a_namespace_is_in_default() -> None:
    fleet = Fleet()
    fleet.apply(run("x", 8, owner="org:a", namespace=""))
    assert fleet.phase("default/x") == "Pending"


# --- the family ---------------------------------------------------------------------------------------------------


def test_a_cycle_of_parents_is_refused_even_over_several_files() -> None:
    fleet = Fleet(budget("a", parents=["org:b"]), budget("b", parents=["org:c"]))
    assert fleet.refusal(budget("c", parents=["org:a"])) == ["spec.parents[0]"]
    fleet.apply(budget("c"))


def test_parents_may_be_owners_without_a_budget() -> None:
    fleet = Fleet(
        node("n0"), budget("a", envelope(gpus=4), parents=["org:nobody"]), budget("b", parents=["org:nobody"])
    )
    fleet.apply(run("x", 8, owner="org:a"))
    assert fleet.payers(KEY) == {"a/main": 4, "b/main": 4}


def test_a_budget_that_leaves_the_family_no_longer_shares() -> None:
    fleet = Fleet(node("n0"), budget("a", envelope(gpus=4), parents=["org:up"]), budget("b", parents=["org:up"]))
    fleet.apply(budget("b"))
    fleet.apply(run("x", 8, owner="org:a"))
    assert fleet.code(KEY) == "ConcurrencyCapExceeded"
    fleet.apply(budget("b", parents=["org:up"]))
    assert fleet.payers(KEY) == {"a/main": 4, "b/main": 4}


def test_an_edge_that_two_budgets_declare_lasts_until_both_drop_it() -> None:
    fleet = Fleet(
        node("n0"),
        budget("a1", envelope(gpus=4), owner="org:a", parents=["org:up"]),
        budget("a2", envelope(gpus=1), owner="org:a", parents=["org:up"]),
        budget("up", envelope(gpus=8)),
    )
    fleet.delete("Budget", "a2")
    fleet.apply(run("x", 8, owner="org:a"))
    assert fleet.payers(KEY) == {"a1/main": 4, "up/main": 4}


# --- recording without deciding -----------------------------------------------------------------------------------


def test_what_is_only_recorded_is_decided_on_later() -> None:
    fleet = Fleet(node("n0"), budget("a"))
    fleet.handle(Apply((run("x", 8, owner="org:a"),)), decide=False)
    assert fleet.kinds() == ["PutRun"]
    fleet.later("0s")
    assert len(fleet.leases(KEY)) == 1
