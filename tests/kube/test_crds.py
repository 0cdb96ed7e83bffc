"""The CRDs on the real API server: their schemas and rules are accepted, and it judges as ``validate`` does.

The objects are those of tests/api, where a small checker answers offline. Here the real server has the last word.
Objects are sent as kubectl sends them (unknown fields are errors). A status is written by its own request, since the
server drops the one that comes with a creation.
"""

import copy
import itertools
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tenure.api.crd import RESOURCES, manifest
from tenure.testing.kube import Answer, ControlPlane, until
from tenure.testing.kube.api import collection, path_of
from tests.api.builders import ALL, FIXED, changed
from tests.api.cases import ALL_CASES, Case
from tests.api.test_crd import OLD_RUN, TRANSITIONS

Tree = dict[str, Any]
STRICT = "fieldValidation=Strict"
# Refused by the API server whatever a CRD says, so validate() and the server agree though the schema is silent.
BY_KUBERNETES = {"run: name with a path in it", "budget: name in capitals"}
INVALID = {400, 422}


@pytest.fixture(scope="module")
def crds(programs: dict[str, Path], tmp_path_factory: pytest.TempPathFactory) -> Iterator[ControlPlane]:
    """A cluster with our kinds and nothing else of ours: what is written here is nobody's work."""
    with ControlPlane.started(tmp_path_factory.mktemp("crds"), programs) as plane:
        for kind in RESOURCES:
            plane.ensure(manifest(kind))
        for kind in RESOURCES:
            until(lambda kind=kind: established(plane, kind))
        yield plane


_NUMBERS = itertools.count()


@pytest.fixture
def namespace(crds: ControlPlane) -> str:
    return crds.namespace(f"test-{next(_NUMBERS)}")


def definition(plane: ControlPlane, kind: str) -> Tree:
    return plane.api.get(path_of(manifest(kind))).must()


def established(plane: ControlPlane, kind: str) -> bool:
    conditions = definition(plane, kind).get("status", {}).get("conditions") or []
    spec = manifest(kind)["spec"]
    (version,) = spec["versions"]
    served = plane.api.get(f"/apis/{spec['group']}/{version['name']}/{spec['names']['plural']}").ok
    return served and any(each["type"] == "Established" and each["status"] == "True" for each in conditions)


@pytest.mark.parametrize("kind", sorted(RESOURCES))
def test_the_server_keeps_every_part_of_the_definition(crds: ControlPlane, kind: str) -> None:
    """It accepted the rules within their cost, and its schema is structural: nothing was dropped."""
    (sent,) = manifest(kind)["spec"]["versions"]
    found = definition(crds, kind)
    (kept,) = found["spec"]["versions"]
    assert kept["schema"] == sent["schema"]
    assert kept["selectableFields"] == sent["selectableFields"]
    assert not [each for each in found["status"]["conditions"] if each["type"] == "NonStructuralSchema"]


@pytest.mark.parametrize("case", ALL_CASES, ids=lambda case: case.name)
def test_the_server_agrees_with_validate(crds: ControlPlane, namespace: str, case: Case) -> None:
    refused = list(verdicts(crds, changed(case.tree, case.changes), namespace))
    known = case.schema or case.name in BY_KUBERNETES
    assert bool(refused) is (bool(case.at) and known), refused
    assert {answer.status for answer in refused} <= INVALID, refused


@pytest.mark.parametrize(("name", "old", "new", "allowed"), TRANSITIONS, ids=[row[0] for row in TRANSITIONS])
def test_the_server_agrees_on_what_may_change(
    crds: ControlPlane, namespace: str, name: str, old: Tree, new: Tree, allowed: bool
) -> None:
    stored = written(crds, placed(old, namespace))
    refused = list(refusals_of_change(crds, stored, placed(new, namespace)))
    assert (refused == []) is allowed, refused
    assert {answer.status for answer in refused} <= INVALID, refused


def test_defaults_come_from_the_server(crds: ControlPlane, namespace: str) -> None:
    """What the schema says about defaults is what a reader of the stored object sees."""
    budget = crds.api.create(changed(ALL["Budget"], {"metadata.name": f"defaults-{namespace}"})).must()
    assert [each["sharing"] for each in budget["spec"]["envelopes"]] == ["Family"] * 3
    run = crds.api.create(placed(changed(FIXED, {"spec.locality": {}, "spec.runtime": {}}), namespace)).must()
    assert run["spec"]["locality"] == {"allowCrossGroupSpread": True}
    assert run["spec"]["runtime"]["onPreemption"] == "Fail"


@pytest.mark.parametrize("kind", sorted(RESOURCES))
def test_kubectl_shows_the_columns(crds: ControlPlane, namespace: str, kind: str) -> None:
    """`kubectl get`, by the kind's name and by its short names, has a heading for every column and a row."""
    sample = placed(changed(ALL[kind], {"metadata.name": f"shown-{namespace}"}), namespace)
    written(crds, sample)
    columns = [each.name.upper() for each in RESOURCES[kind].columns]
    for name in (manifest(kind)["spec"]["names"]["plural"] + ".rq.davidlangworthy.io", *RESOURCES[kind].short_names):
        shown = crds.kubectl("get", name, "-o", "wide", "-n", namespace).stdout.splitlines()
        assert shown[0].split() == ["NAME", *columns]
        assert [row.split()[0] for row in shown[1:] if row.startswith("shown-")] == [f"shown-{namespace}"]


def test_the_largest_budget_is_judged_within_the_servers_patience(crds: ControlPlane, namespace: str) -> None:
    """Rules have a cost at run time, too: as large as the schema allows, it is accepted, or refused for one slip."""
    names = [f"{'e' * 59}-{number:03d}" for number in range(128)]
    envelope = {**ALL["Budget"]["spec"]["envelopes"][0], "selector": {f"key-{n:02d}": "v" * 63 for n in range(16)}}
    caps = [{"name": f"c-{n}", "flavor": "H100-80GB", "envelopes": names[-64:], "maxConcurrency": 9} for n in range(32)]
    spec = {
        "owner": "org:ai",
        "parents": [f"org:{number}" for number in range(16)],
        "envelopes": [{**envelope, "name": name} for name in names],
        "aggregateCaps": caps,
    }
    largest = changed(ALL["Budget"], {"metadata.name": f"largest-{namespace}", "spec": spec})
    assert list(verdicts(crds, largest, namespace)) == []
    slip = changed(largest, {"spec.aggregateCaps[31].envelopes[63]": "nobody"})
    (refused,) = verdicts(crds, slip, namespace)
    assert "an aggregate cap names envelopes of its own Budget only" in refused.message


def test_the_largest_run_is_judged_within_the_servers_patience(crds: ControlPlane, namespace: str) -> None:
    """Whether a template changed is a rule, and templates are the largest thing that people write."""
    env = [{"name": f"V{number}", "value": "v" * 100} for number in range(110)]
    containers = [{"name": f"c-{number}", "image": "x", "env": env} for number in range(64)]
    large = placed(changed(OLD_RUN, {"spec.template.spec.containers": containers}), namespace)
    stored = written(crds, large)
    wider = changed(stored, {"spec.malleable.desiredTotalGPUs": 96})
    assert list(refusals_of_change(crds, stored, wider)) == []
    stored = crds.api.get(path_of(stored)).must()
    other = changed(stored, {"spec.template.spec.containers[63].env[109].value": "w"})
    (refused,) = refusals_of_change(crds, stored, other)
    assert "spec.template cannot change once the Run was admitted" in refused.message


def verdicts(plane: ControlPlane, tree: Tree, namespace: str) -> Iterator[Answer]:
    """The refusals of an object that is new."""
    tree = placed(tree, namespace)
    folder = collection(placed(ALL[tree["kind"]], namespace))
    if "status" not in tree:
        answer = plane.api.call("POST", f"{folder}?{STRICT}&dryRun=All", tree)
        if not answer.ok:
            yield answer
        return
    bare = plane.api.call("POST", f"{folder}?{STRICT}", without_status(tree))
    if bare.ok:
        yield from refusals_of_change(plane, bare.body, tree)
    else:
        yield bare


def refusals_of_change(plane: ControlPlane, stored: Tree, new: Tree) -> Iterator[Answer]:
    """The refusals when a stored object is replaced by another, the status by its own request."""
    version = stored["metadata"]["resourceVersion"]
    new = copy.deepcopy(new)
    new["metadata"]["resourceVersion"] = version
    if changed_part(stored, new, "spec") or changed_part(stored, new, "metadata"):
        answer = plane.api.call("PUT", f"{path_of(new)}?{STRICT}", new)
        if answer.ok:
            new["metadata"]["resourceVersion"] = answer.body["metadata"]["resourceVersion"]
        else:
            yield answer
    if stored.get("status") != new.get("status"):
        answer = plane.api.call("PUT", f"{path_of(new)}/status?{STRICT}", new)
        if not answer.ok:
            yield answer


def changed_part(stored: Tree, new: Tree, part: str) -> bool:
    """Whether an object asks for something else than what is stored (which has defaults besides)."""
    if part == "metadata":
        return bool(new["metadata"].get("labels"))
    return bool(new["spec"] != stored["spec"])


def written(plane: ControlPlane, tree: Tree) -> Tree:
    """An object in the store, with its status."""
    stored = plane.api.create(without_status(tree)).must()
    if "status" in tree:
        stored = plane.api.replace({**stored, "status": tree["status"]}, "status").must()
    return stored


def placed(tree: Tree, namespace: str) -> Tree:
    """A copy in the test's own namespace, where the kind has one."""
    tree = copy.deepcopy(tree)
    if "namespace" in tree["metadata"]:
        tree["metadata"]["namespace"] = namespace
    return tree


def without_status(tree: Tree) -> Tree:
    return {name: part for name, part in tree.items() if name != "status"}
