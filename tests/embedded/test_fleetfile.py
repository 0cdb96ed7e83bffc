"""The fleet file and node templates: what they stand for, and every way to get them wrong."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tenure.api.core import Node, NodeStatus
from tenure.api.meta import ObjectMeta
from tenure.api.policy import Policy
from tenure.api.validate import validate
from tenure.embedded.fleetfile import read_fleet, read_fleet_tree
from tenure.embedded.route import EXECUTOR_ANNOTATION
from tenure.shell.nodes import NODE_COUNT_MAX, expand_nodes

EXAMPLE = Path(__file__).parents[2] / "examples" / "fleet.yaml"
LABELS = {"region": "us-west", "cluster": "gpu-a", "fabric.domain": "A", "gpu.flavor": "H100-80GB"}


def names(templates: Any) -> list[str]:
    nodes, errors = expand_nodes(templates)
    assert errors == ()
    return [node.metadata.name for node in nodes]


def sentence(templates: Any) -> str:
    """The one error of a list of templates."""
    nodes, (error,) = expand_nodes(templates)
    assert nodes == []
    return error.sentence()


# --- templates --------------------------------------------------------------------------------------------


def test_a_template_stands_for_count_nodes_numbered_from_zero() -> None:
    assert names([{"name": "a-{i}", "count": 3, "gpus": 8}]) == ["a-0", "a-1", "a-2"]
    assert names([{"name": "a-{i:02d}", "count": 11, "gpus": 8}])[-2:] == ["a-09", "a-10"]
    assert names([{"name": "r{i:03d}-n{i}", "count": 1, "gpus": 8}]) == ["r000-n0"]


def test_count_defaults_to_one_and_a_plain_name_will_do_then() -> None:
    assert names([{"name": "solo", "gpus": 1}]) == ["solo"]


def test_the_nodes_are_objects_like_any_other() -> None:
    [node], _ = expand_nodes([{"name": "a-{i}", "gpus": 8, "labels": LABELS}], "example.com/gpu")
    assert node == Node(
        metadata=ObjectMeta(name="a-0", labels=LABELS),
        status=NodeStatus(allocatable={"example.com/gpu": "8"}),
    )
    assert validate(node) == []


@pytest.mark.parametrize(
    ("name", "problem"),
    [
        ("a-{i.__class__}", "{i.__class__} means nothing"),
        ("a-{i!r}", "{i!r} means nothing"),
        ("a-{0}", "{0} means nothing"),
        ("a-{}", "{} means nothing"),
        ("a-{i:>9999999999}", "{i:>9999999999} means nothing"),
        ("a-{i:0999999999d}", "{i:0999999999d} means nothing"),
        ("a-{i[0]}", "{i[0]} means nothing"),
        ("a-{i", "{ means nothing"),
        ("a-i}", "} means nothing"),
        ("a-{{i}}", "{ means nothing"),
        ("a-{j}", "{j} means nothing"),
        ("A-{i}", "not a valid name"),
        ("a_{i}", "not a valid name"),
        ("../{i}", "not a valid name"),
        ("", "empty"),
        ("a" * 64, "longer than 63 characters"),
        ("a\x1b[31m", "control character"),
    ],
)
def test_a_name_that_is_no_name_is_refused(name: str, problem: str) -> None:
    _, errors = expand_nodes([{"name": name, "gpus": 8}])
    assert errors[0].path == "nodes[0].name"
    assert problem in errors[0].problem
    assert "\x1b" not in errors[0].sentence()


def test_several_nodes_of_one_name_are_refused() -> None:
    assert sentence([{"name": "a", "count": 2, "gpus": 8}]) == (
        'nodes: nodes[0].name is "a": 2 nodes would have the same name; put {i} into it'
    )
    assert sentence([{"name": "a-{i}", "count": 3, "gpus": 8}, {"name": "a-2", "gpus": 8}]) == (
        'nodes: nodes[1].name is "a-2": a-2 is a node of nodes[0] already; give it another name'
    )


def test_every_wrong_field_is_named_with_what_would_be_right() -> None:
    tree = [{"name": "a", "gpu": 8}, {"name": 7, "gpus": True}, "c", {"name": "d", "gpus": -1, "count": 0}]
    _, errors = expand_nodes(tree)
    assert {error.path for error in errors} == {
        "nodes[0].gpu",
        "nodes[0].gpus",
        "nodes[1].name",
        "nodes[1].gpus",
        "nodes[2]",
        "nodes[3].gpus",
        "nodes[3].count",
    }
    assert next(error for error in errors if error.path == "nodes[0].gpu").fix == "did you mean gpus?"


@pytest.mark.parametrize("tree", [None, 7, "all", {"name": "a"}])
def test_nodes_that_are_no_list_are_refused(tree: Any) -> None:
    assert "where a list belongs" in sentence(tree)


def test_more_nodes_than_anyone_has_are_refused_before_they_are_made() -> None:
    assert "too large" in sentence([{"name": "a-{i}", "count": 10**12, "gpus": 8}])
    half = NODE_COUNT_MAX // 2 + 1
    assert f"{2 * half} nodes" in sentence([{"name": f"{x}-{{i}}", "count": half, "gpus": 8} for x in "ab"])


# --- the file ---------------------------------------------------------------------------------------------


def fleet(**more: Any) -> dict[str, Any]:
    nodes = [{"name": "a-{i}", "count": 2, "gpus": 8, "labels": LABELS}]
    return {"kind": "Fleet", "metadata": {"name": "lab"}, "nodes": nodes, **more}


def problems(tree: Any) -> list[str]:
    result, errors = read_fleet_tree(tree, source="fleet.yaml")
    assert result is None
    return [error.sentence() for error in errors]


def test_the_example_is_two_domains_of_two_nodes_of_eight_gpus() -> None:
    result, errors = read_fleet(EXAMPLE.read_text())
    assert errors == ()
    assert result is not None
    assert (result.name, result.executor) == ("lab", "process")
    where = [(node.metadata.labels["fabric.domain"], node.metadata.name) for node in result.nodes]
    assert where == [("A", "a-00"), ("A", "a-01"), ("B", "b-00"), ("B", "b-01")]
    assert {node.status.allocatable["nvidia.com/gpu"] for node in result.nodes} == {"8"}


def test_policy_and_executor_have_defaults() -> None:
    result, _ = read_fleet_tree(fleet())
    assert result is not None
    assert (result.policy, result.executor) == (Policy(), "process")


def test_policy_and_executor_are_read() -> None:
    tree = fleet(policy={"activationLead": "5m", "gpuResource": "example.com/gpu"}, executor="simulated")
    result, _ = read_fleet_tree(tree)
    assert result is not None
    assert (result.policy.activation_lead, result.executor) == ("5m", "simulated")
    assert result.nodes[0].status.allocatable == {"example.com/gpu": "8"}


@pytest.mark.parametrize(
    ("kind", "marks"), [("simulated", [{EXECUTOR_ANNOTATION: "simulated"}] * 2), ("process", [{}] * 2)]
)
def test_the_nodes_of_a_simulated_fleet_say_so_themselves(kind: str, marks: list[dict[str, str]]) -> None:
    result, _ = read_fleet_tree(fleet(executor=kind))
    assert result is not None
    assert [node.metadata.annotations for node in result.nodes] == marks
    assert [validate(node) for node in result.nodes] == [[], []]


def test_nodes_local_is_this_machine() -> None:
    machine = Node(metadata=ObjectMeta(name="here", labels=LABELS))
    result, errors = read_fleet_tree(fleet(nodes="local"), local=lambda gpu_resource: machine)
    assert errors == ()
    assert result is not None
    assert result.nodes == (machine,)


def test_nodes_local_without_a_gpu_says_what_to_do() -> None:
    result, [error] = read_fleet_tree(fleet(nodes="local"), local=lambda gpu_resource: None)
    assert result is None
    assert error.path == "nodes"
    assert "list the nodes instead" in error.fix


@pytest.mark.parametrize(
    ("tree", "problem"),
    [
        ([], "fleet.yaml is []: a list where a mapping belongs"),
        (fleet(kind="Scenario"), 'kind is "Scenario": not one of the choices; write Fleet'),
        (fleet(executor="docker"), 'executor is "docker": not one of the choices; write process or sim'),
        (fleet(excutor="process"), "excutor: unknown field; did you mean executor?"),
        (fleet(metadata={}), "metadata.name: required and missing"),
        (fleet(metadata={"name": "No Name"}), 'metadata.name is "No Name": not a valid name'),
        (fleet(nodes="here"), 'nodes is "here": a string where a list belongs'),
        (fleet(nodes=[{"name": "a"}]), "nodes[0].gpus: required and missing"),
        (fleet(policy={"patience": "for ever"}), 'policy.patience is "for ever": not a valid duration'),
        (fleet(policy={"retryBackoff": "0s"}), "policy.retryBackoff"),
        (fleet(policy={"drawSecret": "x"}), "policy.drawSecret: only the simulator has one"),
    ],
)  # fmt: skip
def test_what_is_wrong_is_named_with_its_path_and_its_remedy(tree: Any, problem: str) -> None:
    assert problem in problems(tree)[0]


def test_all_errors_come_at_once() -> None:
    tree = fleet(executor="docker", policy={"patience": 7}, nodes=[{"name": "a", "gpus": "8"}])
    assert len(problems(tree)) == 3


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("", "0 documents"),
        ("kind: Fleet\n---\nkind: Fleet\n", "2 documents"),
        ("kind: [", "line"),
        ("kind: Fleet\nkind: Fleet\n", "twice"),
        (b"\xff\xfe", "UTF-8"),
    ],
)
def test_text_that_is_not_one_document_is_refused(text: str | bytes, problem: str) -> None:
    result, [error] = read_fleet(text, source="fleet.yaml")
    assert result is None
    assert problem in error.sentence()
