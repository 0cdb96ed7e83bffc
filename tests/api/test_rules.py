"""Every rule of SPEC 2 by name: what is good is taken, what is bad is refused at its field (see cases.py)."""

import pytest

from tenure.api.decode import KINDS, read_tree
from tenure.api.validate import validate
from tests.api.builders import ABSENT, EVERY_KIND, FIXED, NAMESPACE, NODE, RUN, changed
from tests.api.cases import ALL_CASES, Case


@pytest.mark.parametrize("case", ALL_CASES, ids=lambda case: case.name)
def test_rule(case: Case) -> None:
    reading = read_tree(changed(case.tree, case.changes), kinds=EVERY_KIND)
    assert ([error.path for error in reading.errors] or [""]) == [case.at], reading.errors
    assert bool(reading.objects) is (not case.at)


@pytest.mark.parametrize("case", [case for case in ALL_CASES if not case.at], ids=lambda case: case.name)
def test_validate_agrees_that_it_is_good(case: Case) -> None:
    (obj,) = read_tree(changed(case.tree, case.changes), kinds=EVERY_KIND).objects
    assert validate(obj) == []


def test_validate_checks_limits_and_formats_of_objects_made_in_python() -> None:
    (run,) = read_tree(FIXED).objects
    cls = KINDS["Run"]
    resources = type(run.spec.resources)(gpu_type="H100", total_gpus=-4)
    spec = type(run.spec)(owner="Not An Owner", resources=resources, template=run.spec.template)
    errors = validate(cls(metadata=run.metadata, spec=spec))
    assert [error.path for error in errors] == ["spec.owner", "spec.resources.totalGPUs"]


def test_errors_of_shape_and_of_rules_come_together() -> None:
    tree = changed(
        RUN,
        {
            "spec.resources.totalGPUs": -5,  # a limit
            "spec.owner": "Org",  # a format
            "spec.funding.allowBorrow": False,  # a rule
            "spec.prio": 1,  # an unknown field
            "spec.template.spec.containers": [],
        },
    )
    paths = {error.path for error in read_tree(tree).errors}
    assert paths == {
        "spec.resources.totalGPUs",
        "spec.owner",
        "spec.funding.maxBorrowGPUs",
        "spec.prio",
        "spec.template.spec.containers",
    }


def test_an_error_says_where_what_and_what_would_be_right() -> None:
    (error,) = read_tree(changed(RUN, {"spec.malleable.maxTotalGPUs": 150})).errors
    assert error.sentence() == (
        "Run/rai/train-128: spec.malleable.maxTotalGPUs is 150: not a whole number of steps of 32 above "
        "minTotalGPUs, which is 96; write 128 or 160"
    )


def test_the_simulator_alone_does_without_a_template() -> None:
    for template in (ABSENT, {}, {"spec": {}}):
        tree = changed(FIXED, {"spec.template": template})
        assert read_tree(tree, simulated=True).objects
        assert not read_tree(tree).objects


@pytest.mark.parametrize(
    ("changes", "at"),
    [
        ({}, ""),
        ({"metadata.annotations": ABSENT}, ""),
        ({"metadata.name": "has.dots"}, "metadata.name"),
        ({"metadata.namespace": "x"}, "metadata.namespace"),
        (
            {"metadata.annotations": {"rq.davidlangworthy.io/owner": "Org"}},
            'metadata.annotations["rq.davidlangworthy.io/owner"]',
        ),
        ({"metadata.annotations": {"note": "two\nlines"}}, ""),
        ({"metadata.labels": {"two\nlines": "x"}}, 'metadata.labels["two\\x0alines"]'),
        ({"metadata.labels": {"x": "-"}}, "metadata.labels.x"),
    ],
)
def test_namespaces(changes: dict[str, object], at: str) -> None:
    assert ([error.path for error in read_tree(changed(NAMESPACE, changes)).errors] or [""]) == [at]


@pytest.mark.parametrize(
    ("changes", "at"),
    [
        ({}, ""),
        ({"status.allocatable": {"nvidia.com/gpu": 8}}, ""),  # Kubernetes takes both spellings
        ({"status.allocatable": {"nvidia.com/gpu": "-1"}}, ""),  # odd counts are quarantined, not refused
        ({"status.allocatable": {"nvidia.com/gpu": "eight"}}, 'status.allocatable["nvidia.com/gpu"]'),
        ({"status.allocatable": {"nvidia.com/gpu": True}}, 'status.allocatable["nvidia.com/gpu"]'),
        ({"metadata.name": "n" * 64}, "metadata.name"),
        ({"spec.taints[0].effect": "NoWay"}, "spec.taints[0].effect"),
    ],
)
def test_nodes(changes: dict[str, object], at: str) -> None:
    assert ([error.path for error in read_tree(changed(NODE, changes)).errors] or [""]) == [at]


def test_a_count_without_quotes_is_read_as_the_quantity_it_is() -> None:
    (node,) = read_tree(changed(NODE, {"status.allocatable": {"nvidia.com/gpu": 8}})).objects
    assert node.status.allocatable == {"nvidia.com/gpu": "8"}
