"""Rules between objects: the namespace's owner, changes of a Run, the family of Budgets; and defaults."""

from typing import Any

import pytest

from tenure.api.budget import Budget
from tenure.api.core import Namespace
from tenure.api.decode import read_tree
from tenure.api.defaults import default
from tenure.api.relations import check_family, check_owner, check_update
from tenure.api.run import Run
from tests.api.builders import ABSENT, BUDGET, FIXED, LEASE, NAMESPACE, RUN, changed


def run_of(tree: dict[str, Any], changes: dict[str, Any]) -> Run:
    (run,) = read_tree(changed(tree, changes)).objects
    assert isinstance(run, Run)
    return run


def namespace_of(owner: str | None) -> Namespace:
    annotations = {} if owner is None else {"rq.davidlangworthy.io/owner": owner}
    (namespace,) = read_tree(changed(NAMESPACE, {"metadata.annotations": annotations})).objects
    assert isinstance(namespace, Namespace)
    return namespace


def budget_of(name: str, owner: str, *parents: str) -> Budget:
    tree = changed(BUDGET, {"metadata.name": name, "spec.owner": owner, "spec.parents": list(parents)})
    (budget,) = read_tree(tree).objects
    assert isinstance(budget, Budget)
    return budget


@pytest.mark.parametrize(
    ("bound", "claimed", "allowed"),
    [
        ("org:ai", "org:ai", True),
        ("org:ai", "org:ai:rai:sys", True),
        ("org:ai", "org:aix", False),
        ("org:ai", "org", False),
        ("org:ai", "org:mm", False),
        ("org:ai", "", True),  # it gets the namespace's
        (None, "org:mm", True),  # a namespace bound to nobody binds nobody
        (None, "", False),
    ],
)
def test_a_run_claims_its_namespaces_owner_or_one_below(bound: str | None, claimed: str, allowed: bool) -> None:
    run = run_of(FIXED, {"spec.owner": claimed or ABSENT})
    errors = check_owner(run, namespace_of(bound))
    assert [error.path for error in errors] == ([] if allowed else ["spec.owner"])


def test_without_a_namespace_object_any_owner_will_do_but_there_must_be_one() -> None:
    assert check_owner(run_of(FIXED, {}), None) == []
    (error,) = check_owner(run_of(FIXED, {"spec.owner": ABSENT}), None)
    assert "rai is bound to none" in error.problem


def test_a_run_without_an_owner_gets_its_namespaces() -> None:
    run = run_of(FIXED, {"spec.owner": ABSENT})
    assert default(run, namespace=namespace_of("org:ai")).spec.owner == "org:ai"
    assert default(run_of(FIXED, {}), namespace=namespace_of("org:x")).spec.owner == "org:ai"
    assert default(run, namespace=None).spec.owner == ""


def test_a_malleable_run_wants_its_widest_width_in_groups_of_its_step() -> None:
    run = run_of(RUN, {"spec.locality": ABSENT, "spec.malleable.desiredTotalGPUs": ABSENT})
    filled = default(run, namespace=None)
    assert filled.spec.malleable is not None
    assert (filled.spec.malleable.desired_total_gpus, filled.spec.locality.group_gpus) == (160, 32)
    assert filled.spec.locality.allow_cross_group_spread is True


def test_what_is_written_is_not_defaulted_over() -> None:
    run = run_of(RUN, {"spec.locality.groupGPUs": 16})
    assert default(run, namespace=namespace_of("org")) == run


def test_defaults_are_stable() -> None:
    once = default(run_of(RUN, {"spec.malleable.desiredTotalGPUs": ABSENT}), namespace=None)
    assert default(once, namespace=None) == once


@pytest.mark.parametrize(("tree", "namespace"), [(FIXED, "default"), (LEASE, "default"), (BUDGET, "")])
def test_namespaced_objects_are_somewhere(tree: dict[str, Any], namespace: str) -> None:
    tree = changed(tree, {"metadata": {"name": "x"}})
    (obj,) = read_tree(tree, kinds=frozenset({tree["kind"]})).objects
    assert default(obj, namespace=None).metadata.namespace == namespace


def test_every_changed_field_is_named() -> None:
    old = run_of(RUN, {})
    new = run_of(
        RUN,
        {
            "spec.resources.totalGPUs": 96,
            "spec.runtime.maxRestarts": ABSENT,
            "spec.template.spec.containers[0].image": "y",
            "spec.malleable.desiredTotalGPUs": 160,
            "spec.funding": {"allowBorrow": True, "sponsors": ["org:x"]},
        },
    )
    errors = check_update(old, new, admitted=True)
    assert {error.path for error in errors} == {
        "spec.resources.totalGPUs",
        "spec.runtime.maxRestarts",
        "spec.template",
    }
    assert check_update(old, new, admitted=False) == []


def test_writing_a_default_out_is_no_change() -> None:
    old = run_of(FIXED, {})
    new = run_of(FIXED, {"spec.locality": {"allowCrossGroupSpread": True}, "spec.runtime": {"maxRestarts": 0}})
    assert check_update(old, new, admitted=True) == []


@pytest.mark.parametrize(
    ("family", "cycles"),
    [
        ({"a": ["b"], "b": ["c"], "c": []}, []),
        ({"a": ["b", "c"], "b": ["d"], "c": ["d"], "d": []}, []),  # a diamond is no cycle
        ({"a": ["b"], "b": ["a"]}, ["a -> b -> a"]),
        ({"b": ["c"], "c": ["d"], "d": ["b"], "a": ["b"]}, ["b -> c -> d -> b"]),
        ({"a": ["b"], "b": ["a"], "c": ["d"], "d": ["c"]}, ["a -> b -> a", "c -> d -> c"]),
        ({"a": ["nobody"]}, []),
    ],
)
def test_a_family_has_no_cycles(family: dict[str, list[str]], cycles: list[str]) -> None:
    budgets = [budget_of(f"budget-{owner}", owner, *parents) for owner, parents in family.items()]
    for order in (budgets, budgets[::-1]):
        errors = check_family(order)
        assert [error.problem.removeprefix("a cycle of parents: ") for error in errors] == cycles
        assert all(error.path == "spec.parents[0]" for error in errors)


def test_a_cycle_may_run_over_several_budgets_of_one_owner() -> None:
    budgets = [budget_of("one", "a"), budget_of("two", "a", "b"), budget_of("three", "b", "a")]
    (error,) = check_family(budgets)
    assert (error.object, error.path) == ("Budget/two", "spec.parents[0]")


def test_long_chains_cost_no_recursion() -> None:
    chain = [budget_of(f"b{i}", f"o{i}", f"o{i + 1}") for i in range(3000)]
    assert check_family(chain) == []
    (error,) = check_family([*chain, budget_of("last", "o3000", "o0")])
    assert len(error.sentence()) < 400
