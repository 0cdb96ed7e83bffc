"""The roles and the policies as data: least privilege is checked, not only meant."""

import pytest

from tenure.api.meta import GROUP
from tenure.kube.install import definitions, manifests
from tenure.kube.policies import policies
from tenure.kube.rbac import ADMINISTRATOR, AUDITOR, BUDGET_OWNER, OPERATOR, SET_OWNER, TENANT, cluster_roles
from tenure.kube.resources import resource_of
from tenure.kube.system import System

RULES = [(each["metadata"]["name"], rule) for each in manifests(System()) for rule in each.get("rules", ())]
WRITES = {"create", "update", "patch", "delete", "deletecollection"}


def may(rules: tuple[dict[str, list[str]], ...], group: str, resource: str) -> set[str]:
    return {
        verb
        for rule in rules
        if group in rule["apiGroups"] and resource in rule["resources"] and "resourceNames" not in rule
        for verb in rule["verbs"]
    }


@pytest.mark.parametrize(("name", "rule"), RULES, ids=[f"{name}-{number}" for number, (name, _) in enumerate(RULES)])
def test_no_role_has_a_wildcard_or_a_secret(name: str, rule: dict[str, list[str]]) -> None:
    for words in rule.values():
        assert not [word for word in words if "*" in word]
    assert not {"secrets", "serviceaccounts", "serviceaccounts/token"} & set(rule["resources"])
    assert not {"impersonate", "escalate", "bind", "deletecollection"} & set(rule["verbs"])


def test_tenants_write_runs_and_nothing_else() -> None:
    written = {resource for rule in TENANT for resource in rule["resources"] if WRITES & set(rule["verbs"])}
    assert written == {"runs"}


def test_auditors_write_nothing_and_read_every_kind_of_ours() -> None:
    assert not WRITES & {verb for rule in AUDITOR for verb in rule["verbs"]}
    for plural in (each["spec"]["names"]["plural"] for each in definitions()):
        assert may(AUDITOR, GROUP, plural) == {"get", "list", "watch"}


def test_owners_are_set_by_administrators_alone() -> None:
    for rules in (OPERATOR, TENANT, BUDGET_OWNER, AUDITOR):
        assert not [rule for rule in rules if SET_OWNER in rule["verbs"]]
    assert SET_OWNER in may(ADMINISTRATOR, "", "namespaces")
    assert SET_OWNER in may(ADMINISTRATOR, GROUP, "budgets")


def test_the_operator_changes_no_money_and_no_policy() -> None:
    assert may(OPERATOR, GROUP, "budgets") == {"get", "list", "watch"}
    for plural in ("validatingadmissionpolicies", "validatingadmissionpolicybindings"):
        assert may(OPERATOR, "admissionregistration.k8s.io", plural) == {"get", "list", "watch"}
    assert "update" not in may(OPERATOR, GROUP, "ledgerentries")


def test_every_policy_fails_closed_and_is_bound_to_deny() -> None:
    for each in policies(System()):
        spec, binding = each.manifest()["spec"], each.binding()["spec"]
        assert spec["failurePolicy"] == "Fail"
        assert binding == {"policyName": each.manifest()["metadata"]["name"], "validationActions": ["Deny"]}


def test_policies_stand_before_the_kinds_that_they_guard() -> None:
    kinds = [each["kind"] for each in manifests(System())]
    last_binding = max(at for at, kind in enumerate(kinds) if kind == "ValidatingAdmissionPolicyBinding")
    assert last_binding < kinds.index("CustomResourceDefinition")


def test_an_installation_elsewhere_names_its_own_account_only() -> None:
    """Nothing of the default installation is left in one with other names."""
    system = System(namespace="gpus", account="keeper", service="hook", gpu_resource="example.com/gpu")
    text = str(manifests(system))
    assert system.user in text
    assert "example.com/gpu" in text
    assert System().user not in text
    assert "tenure-system" not in text


def test_every_object_can_be_applied() -> None:
    """Each is of a kind that the client knows, and no two have the same place."""
    places = [
        resource_of(each).path(each["metadata"].get("namespace"), each["metadata"]["name"])
        for each in manifests(System())
    ]
    assert len(set(places)) == len(places)
    assert {each["metadata"]["name"] for each in cluster_roles()} >= {"tenure-operator", "tenure-tenant"}
