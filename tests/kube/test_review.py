"""What the webhook answers: the sentences and defaults of the embedded fleet, whatever a request holds."""

import base64
import json
from typing import Any

import msgspec
import pytest

from tenure.api.decode import read_tree
from tenure.engine.state import State
from tenure.facts import PutBudget, PutNamespace
from tenure.kube.review import Review, answer
from tenure.testing import budget, envelope, namespace
from tests.api.builders import ABSENT, BUDGET, FIXED, RUN, changed
from tests.api.cases import ALL_CASES, Case
from tests.api.test_crd import TRANSITIONS

Tree = dict[str, Any]
NOT_OURS = ("metadata", "apiVersion", "kind", "status")
"""Metadata is the API server's to judge, and a status nobody can send."""
JUDGED = [
    case
    for case in ALL_CASES
    if case.tree["kind"] in ("Run", "Budget") and not any(key.startswith(NOT_OURS) for key in case.changes)
]


def asked(tree: Tree, old: Tree | None = None, **request: Any) -> Review:
    metadata = tree.get("metadata") if isinstance(tree.get("metadata"), dict) else {}
    told = {
        "uid": "u-1",
        "kind": {"group": "rq.davidlangworthy.io", "version": "v1", "kind": tree["kind"]},
        "operation": "CREATE" if old is None else "UPDATE",
        "name": metadata.get("name", ""),
        "namespace": metadata.get("namespace", ""),
        "object": tree,
        "oldObject": old,
        **request,
    }
    return msgspec.convert({"apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview", "request": told}, Review)


def response(tree: Tree, old: Tree | None = None, *, state: State | None = None, patching: bool = False) -> Tree:
    found = answer(asked(tree, old), known=lambda: state, patching=patching)
    assert (found["apiVersion"], found["kind"]) == ("admission.k8s.io/v1", "AdmissionReview")
    assert found["response"]["uid"] == "u-1"
    out: Tree = found["response"]
    return out


def patched(tree: Tree, state: State | None = None) -> Tree:
    """The object with the patch applied, by a reader of JSON patches of its own."""
    found = response(tree, state=state, patching=True)
    assert found["allowed"], found
    out: Tree = json.loads(json.dumps(tree))
    for step in json.loads(base64.b64decode(found.get("patch", base64.b64encode(b"[]")))):
        assert step["op"] == "add"
        *parents, last = step["path"].removeprefix("/").split("/")
        place = out
        for each in parents:
            place = place[each]
        assert last not in place, "nothing that the sender wrote is touched"
        place[last] = step["value"]
    return out


@pytest.mark.parametrize("case", JUDGED, ids=lambda case: case.name)
def test_it_says_what_the_embedded_fleet_says(case: Case) -> None:
    """The same objects are refused, with the same sentences."""
    tree = changed(case.tree, case.changes)
    told = read_tree(tree).errors
    found = response(tree)
    assert found["allowed"] is not bool(told)
    if told:
        assert found["status"]["code"] == 422
        assert found["status"]["message"].split("\n")[:20] == [each.sentence() for each in told][:20]
        assert [each["field"] for each in found["status"]["details"]["causes"]] == [each.path for each in told][:20]


@pytest.mark.parametrize(
    ("old", "new", "allowed"),
    [row[1:] for row in TRANSITIONS if row[1]["kind"] == "Run"],
    ids=[row[0] for row in TRANSITIONS if row[1]["kind"] == "Run"],
)
def test_without_a_state_an_update_is_judged_by_what_was_there(old: Tree, new: Tree, allowed: bool) -> None:
    assert response(new, old)["allowed"] is allowed


def known(*budgets: Any) -> State:
    state = State("test")
    state.fold(PutNamespace(object=namespace("rai", owner="org:ai:rai")), 0)
    for each in budgets:
        state.fold(PutBudget(object=each), 0)
    return state


def test_with_a_state_a_claim_is_judged_as_the_engine_does() -> None:
    found = response(changed(RUN, {"spec.owner": "org:mm"}), state=known())
    assert not found["allowed"]
    assert "not org:ai:rai, to which the namespace is bound, nor below it" in found["status"]["message"]
    assert response(RUN, state=known())["allowed"]


def test_a_namespace_that_is_newer_than_the_state_is_left_to_the_policies() -> None:
    elsewhere = changed(RUN, {"metadata.namespace": "just-made", "spec.owner": ABSENT})
    assert response(elsewhere, state=known())["allowed"]
    assert not response(changed(elsewhere, {"spec.resources.totalGPUs": 0}), state=known())["allowed"]


def test_with_a_state_a_cycle_of_parents_is_seen() -> None:
    state = known(budget("top", envelope("w", 8), owner="org:ai:rai", parents=("org:ai:rai:sys",)))
    found = response(BUDGET, state=state)
    assert not found["allowed"]
    assert "a cycle of parents" in found["status"]["message"]
    assert response(BUDGET)["allowed"]


def test_defaults_are_filled_in_and_nothing_else() -> None:
    tree = changed(
        RUN, {"spec.owner": ABSENT, "spec.locality": ABSENT, "spec.malleable.desiredTotalGPUs": ABSENT,
              "spec.sparesPerGroup": ABSENT}
    )  # fmt: skip
    out = patched(tree, known())
    assert out["spec"]["owner"] == "org:ai:rai"
    assert out["spec"]["malleable"]["desiredTotalGPUs"] == 160
    assert out["spec"]["locality"] == {"groupGPUs": 32}
    assert out["metadata"] == tree["metadata"]
    again = patched(out, known())
    assert again == out


def test_what_needs_no_default_gets_no_patch() -> None:
    assert "patch" not in response(RUN, patching=True)
    assert "patch" not in response(BUDGET, patching=True)


def test_a_validating_call_never_patches() -> None:
    assert response(changed(RUN, {"spec.malleable.desiredTotalGPUs": ABSENT})) == {"uid": "u-1", "allowed": True}


def test_a_run_with_a_generated_name_is_judged() -> None:
    tree = changed(FIXED, {"metadata": {"generateName": "train-", "namespace": "rai"}})
    assert response(tree)["allowed"]
    assert not response(changed(tree, {"spec.resources.totalGPUs": 0}))["allowed"]


def test_a_budget_whose_name_is_still_to_be_generated_is_judged_beside_all_others() -> None:
    """It was judged as team-0 for team-: a Budget of that very name was then left out of the family, and so a cycle
    with it let pass."""
    state = known(budget("team-0", envelope("w", 8), owner="org:ai:rai", parents=("org:ai:rai:sys",)))
    found = response(changed(BUDGET, {"metadata": {"generateName": "team-"}}), state=state)
    assert not found["allowed"]
    assert "a cycle of parents" in found["status"]["message"]


@pytest.mark.parametrize("kind", ["Lease", "Budget", "List", "", None, 7, ["Run"]])
def test_an_object_of_another_kind_than_the_request_is_no_run(kind: Any) -> None:
    """A Lease in a review about a Run was judged as a Run."""
    about = asked(FIXED)
    review = msgspec.structs.replace(
        about, request=msgspec.structs.replace(about.request, object={**FIXED, "kind": kind})
    )
    found = answer(review, patching=True)["response"]
    assert not found["allowed"]
    assert "not the kind that the request is about; send a Run" in found["status"]["message"]


def test_what_the_api_server_adds_to_an_object_is_no_fault() -> None:
    metadata = {
        "name": "plain", "namespace": "rai", "uid": "u", "creationTimestamp": None, "generation": 1,
        "managedFields": [{"manager": "kubectl"}], "selfLink": "", "annotations": {"a": "x" * 200_000},
    }  # fmt: skip
    assert response(changed(FIXED, {"metadata": metadata, "status": {"phase": "Pending"}}))["allowed"]


def test_an_object_whose_spec_stays_is_never_held_up() -> None:
    """A finalizer must go also from what was stored while nobody judged."""
    bad = changed(FIXED, {"spec.resources.totalGPUs": -1})
    assert not response(bad)["allowed"]
    assert response(changed(bad, {"metadata.labels": {"a": "b"}}), bad)["allowed"]


@pytest.mark.parametrize("kind", ["Pod", "Lease"])
def test_other_kinds_are_let_pass(kind: str) -> None:
    assert response({"kind": kind, "metadata": {"name": "x"}})["allowed"]


HOSTILE: list[tuple[str, Tree]] = [
    ("no spec", {"kind": "Run", "metadata": {"name": "x"}}),
    ("spec is a list", {"kind": "Run", "metadata": {"name": "x"}, "spec": []}),
    ("metadata is a list", {"kind": "Run", "metadata": [], "spec": {}}),
    ("conditions of no shape", changed(FIXED, {"status": {"conditions": "yes"}, "spec.owner": 7})),
    ("deep", changed(FIXED, {"spec.template.spec.x": json.loads("[" * 200 + "]" * 200)})),
    ("large", changed(FIXED, {"spec.template.spec.x": "y" * 1_200_000})),
    ("terminal codes", changed(FIXED, {"spec.owner": "\x1b[31morg"})),
]


@pytest.mark.parametrize("tree", [row[1] for row in HOSTILE], ids=[row[0] for row in HOSTILE])
def test_hostile_objects_are_refused_in_printable_words(tree: Tree) -> None:
    found = response(tree, patching=True)
    assert not found["allowed"]
    assert all(line.isprintable() for line in found["status"]["message"].split("\n"))
    assert len(found["status"]["message"]) < 10_000
