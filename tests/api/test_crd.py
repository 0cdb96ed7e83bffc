"""The CRDs: structural, bounded, of one mind with validate(). CEL is evaluated offline (see apiserver.py)."""

import re
from collections.abc import Iterator
from functools import cache
from typing import Any

import cel
import pytest

from tenure.api.cel import RULES
from tenure.api.crd import EXTRA, RESOURCES, manifest
from tenure.api.decode import KINDS
from tenure.api.relations import check_update
from tests.api.apiserver import refusals, schema_of
from tests.api.builders import ABSENT, ALL, EVERY_KIND, LEASE, RESERVATION, RUN, changed
from tests.api.cases import ALL_CASES, Case


def nodes(schema: dict[str, Any], at: tuple[str, ...] = ()) -> Iterator[tuple[tuple[str, ...], dict[str, Any]]]:
    """Every schema inside a schema, with its place."""
    yield at, schema
    for name, inner in schema.get("properties", {}).items():
        yield from nodes(inner, (*at, name))
    if "items" in schema:
        yield from nodes(schema["items"], (*at, "[]"))
    if "additionalProperties" in schema:
        yield from nodes(schema["additionalProperties"], (*at, "*"))


ALL_RULES = [(kind, place, rule) for kind, places in RULES.items() for place, rules in places.items() for rule in rules]


@pytest.mark.parametrize("case", ALL_CASES, ids=lambda case: case.name)
def test_the_schema_agrees_with_validate(case: Case) -> None:
    refused = refusals(changed(case.tree, case.changes))
    assert bool(refused) is (bool(case.at) and case.schema), refused


@pytest.mark.parametrize(("kind", "place", "rule"), ALL_RULES, ids=lambda each: getattr(each, "name", None))
def test_every_rule_is_seen_to_refuse_and_to_accept(kind: str, place: tuple[str, ...], rule: Any) -> None:
    """Each rule's message appears for some case of the tables or transitions, and not for all."""
    said = answers(kind)
    refusing = [name for name, refused in said.items() if any(rule.message in line for line in refused)]
    assert refusing
    assert len(refusing) < len(said)


@cache
def answers(kind: str) -> dict[str, list[str]]:
    """What the API server says in each case and transition of a kind."""
    cases = [case for case in ALL_CASES if case.tree["kind"] == kind]
    said = {case.name: refusals(changed(case.tree, case.changes)) for case in cases}
    return said | {name: refusals(new, old) for name, old, new, _ in TRANSITIONS if new["kind"] == kind}


ADMITTED = {
    "conditions": [
        {
            "type": "Admitted",
            "status": "True",
            "reason": "Start",
            "lastTransitionTime": "2025-11-01T00:00:00Z",
        }
    ]
}
OLD_RUN = changed(RUN, {"status": ADMITTED})
OPEN_LEASE = changed(LEASE, {"status": {}})

TRANSITIONS: list[tuple[str, dict[str, Any], dict[str, Any], bool]] = [
    ("same run again", OLD_RUN, OLD_RUN, True),
    ("desired width", OLD_RUN, changed(OLD_RUN, {"spec.malleable.desiredTotalGPUs": 96}), True),
    ("sponsors", OLD_RUN, changed(OLD_RUN, {"spec.funding.sponsors": []}), True),
    ("bound on borrowing", OLD_RUN, changed(OLD_RUN, {"spec.funding.maxBorrowGPUs": 8}), True),
    ("no bound on borrowing", OLD_RUN, changed(OLD_RUN, {"spec.funding.maxBorrowGPUs": ABSENT}), True),
    ("owner", OLD_RUN, changed(OLD_RUN, {"spec.owner": "org:ai:rai"}), False),
    ("no owner", OLD_RUN, changed(OLD_RUN, {"spec.owner": ABSENT}), False),
    ("total", OLD_RUN, changed(OLD_RUN, {"spec.resources.totalGPUs": 96}), False),
    ("locality", OLD_RUN, changed(OLD_RUN, {"spec.locality.allowCrossGroupSpread": False}), False),
    ("spares", OLD_RUN, changed(OLD_RUN, {"spec.sparesPerGroup": 0}), False),
    ("opportunistic", OLD_RUN, changed(OLD_RUN, {"spec.opportunistic": True}), False),
    ("runtime", OLD_RUN, changed(OLD_RUN, {"spec.runtime.maxRestarts": 4}), False),
    ("template", OLD_RUN, changed(OLD_RUN, {"spec.template.spec.containers[0].image": "y"}), False),
    ("widest width", OLD_RUN, changed(OLD_RUN, {"spec.malleable.maxTotalGPUs": 192}), False),
    ("not malleable", OLD_RUN, changed(OLD_RUN, {"spec.malleable": ABSENT}), False),
    ("allowBorrow", OLD_RUN, changed(OLD_RUN, {"spec.funding": {}}), False),
    ("run not admitted", RUN, changed(RUN, {"spec.resources.totalGPUs": 96}), True),
    ("closing a lease", OPEN_LEASE, LEASE, True),
    ("closing it again", LEASE, changed(LEASE, {"status.closureReason": "Fail"}), False),
    ("opening it again", LEASE, OPEN_LEASE, False),
    ("taking its status away", LEASE, changed(LEASE, {"status": ABSENT}), False),
    ("another payer", OPEN_LEASE, changed(OPEN_LEASE, {"spec.paidByBudget": "other"}), False),
    ("labels of a lease", LEASE, changed(LEASE, {"metadata.labels": {"a": "b"}}), True),
    (
        "another promise",
        RESERVATION,
        changed(RESERVATION, {"spec.earliestStart": "2025-11-02T00:00:00Z"}),
        False,
    ),
    (
        "another plan",
        RESERVATION,
        changed(RESERVATION, {"status.plannedStart": "2025-11-02T00:00:00Z"}),
        True,
    ),
]


@pytest.mark.parametrize(("name", "old", "new", "allowed"), TRANSITIONS, ids=[row[0] for row in TRANSITIONS])
def test_what_may_change(name: str, old: dict[str, Any], new: dict[str, Any], allowed: bool) -> None:
    assert (refusals(new, old) == []) is allowed


@pytest.mark.parametrize(
    ("name", "old", "new", "allowed"),
    [row for row in TRANSITIONS if row[1]["kind"] == "Run"],
    ids=[row[0] for row in TRANSITIONS if row[1]["kind"] == "Run"],
)
def test_check_update_agrees(name: str, old: dict[str, Any], new: dict[str, Any], allowed: bool) -> None:
    import msgspec

    before, after = (msgspec.convert(each, KINDS["Run"]) for each in (old, new))
    assert (check_update(before, after, admitted="status" in old) == []) is allowed


@pytest.mark.parametrize("kind", sorted(RESOURCES))
def test_every_size_is_bounded_so_that_the_cost_of_rules_is(kind: str) -> None:
    for place, schema in nodes(schema_of(kind)):
        if place[:1] == ("spec",) and "template" not in place:
            assert schema["type"] != "array" or "maxItems" in schema, place
            assert schema["type"] != "string" or "maxLength" in schema or "enum" in schema, place
            assert "additionalProperties" not in schema or "maxProperties" in schema, place


@pytest.mark.parametrize("kind", sorted(RESOURCES))
def test_schemas_are_structural(kind: str) -> None:
    for place, schema in nodes(schema_of(kind)):
        assert schema["type"] in ("object", "array", "string", "integer", "number", "boolean"), place
        assert not ("properties" in schema and "additionalProperties" in schema), place
        assert set(schema.get("required", ())) <= set(schema.get("properties", ())), place
        if schema.get("x-kubernetes-list-type") == "map":
            keys = schema["x-kubernetes-list-map-keys"]
            assert set(keys) <= set(schema["items"]["required"]), place


@pytest.mark.parametrize("kind", sorted(RESOURCES))
def test_every_field_is_described(kind: str) -> None:
    for place, schema in nodes(schema_of(kind)):
        if len(place) > 1 and place[-1] not in ("[]", "*") and "template" not in place[:-1]:
            assert schema.get("description"), place


@pytest.mark.parametrize("kind", sorted(RESOURCES))
def test_patterns_nest_no_counts(kind: str) -> None:
    """RE2, which the API server uses, allows at most 1000 for the product of nested counts."""
    for place, schema in nodes(schema_of(kind)):
        pattern = schema.get("pattern", "")
        assert not re.search(r"\{\d+,?\d*\}[^()]*\)\{\d+", pattern), place
        re.compile(pattern)


@pytest.mark.parametrize(("kind", "place", "rule"), ALL_RULES, ids=lambda each: getattr(each, "name", None))
def test_every_rule_compiles_and_sits_in_the_schema(kind: str, place: tuple[str, ...], rule: Any) -> None:
    cel.compile(rule.rule)
    found = dict(nodes(schema_of(kind)))[place]
    assert {"rule": rule.rule, "message": rule.message} in found["x-kubernetes-validations"]


@pytest.mark.parametrize("kind", sorted(RESOURCES))
def test_places_that_are_given_extras_exist(kind: str) -> None:
    assert set(EXTRA[kind]) <= set(dict(nodes(schema_of(kind))))


@pytest.mark.parametrize("kind", sorted(RESOURCES))
def test_columns_and_selectable_fields_lead_to_fields(kind: str) -> None:
    (version,) = manifest(kind)["spec"]["versions"]
    known = dict(nodes(schema_of(kind)))
    columns = [each["jsonPath"] for each in version["additionalPrinterColumns"]]
    selectable = [each["jsonPath"] for each in version["selectableFields"]]
    assert 0 < len(selectable) <= 8  # the API server's limit
    for path in [path for path in columns if not path.startswith(".metadata.")] + selectable:
        assert tuple(path.strip(".").replace("[*]", ".[]").split(".")) in known, path
    for path in selectable:
        assert known[tuple(path.strip(".").split("."))]["type"] in ("string", "boolean", "integer"), path


def test_names_and_scopes() -> None:
    scopes = {kind: manifest(kind)["spec"]["scope"] for kind in RESOURCES}
    assert scopes == {
        "Budget": "Cluster",
        "Run": "Namespaced",
        "Reservation": "Namespaced",
        "Lease": "Namespaced",
    }
    assert manifest("Lease")["spec"]["names"]["plural"] == "leases"
    assert manifest("Lease")["spec"]["names"]["shortNames"] == ["rql", "gpuleases"]
    for kind in RESOURCES:
        (version,) = manifest(kind)["spec"]["versions"]
        assert version["subresources"] == {"status": {}}


def test_defaults_are_in_the_schema() -> None:
    known = dict(nodes(schema_of("Budget")))
    envelope = ("spec", "envelopes", "[]")
    assert known[(*envelope, "sharing")]["default"] == "Family"
    assert known[(*envelope, "preActivation", "allowReservations")]["default"] is True
    assert known[(*envelope, "preActivation", "allowAdmission")]["default"] is False
    assert dict(nodes(schema_of("Run")))[("spec", "locality", "allowCrossGroupSpread")]["default"] is True


@pytest.mark.parametrize("kind", sorted(EVERY_KIND & set(RESOURCES)))
def test_the_samples_are_accepted(kind: str) -> None:
    assert refusals(ALL[kind]) == []
