"""Roles: what each kind of person, and the operator, may do (SPEC 12). Least privilege, no wildcard, no secret.

- ``tenure-operator``: the operator's service account; bound by the installation.
- ``tenure-tenant``: people who submit Runs; bind it in their namespace.
- ``tenure-budget-owner``: people who edit the envelopes of Budgets; for some Budgets only, make a role with
  ``resourceNames``.
- ``tenure-auditor``: whoever reads the books: every object of ours, the ledger too.
- ``tenure-administrator``: who binds namespaces to owners and creates Budgets (the verb ``setowner``), and has others
  give way to a run (the verb ``resolve`` on runs).

Roles say who may ask; the admission policies (``policies``) hold even for those whom another role lets ask for more.
"""

from __future__ import annotations

from typing import Any, Final

from tenure.api.meta import GROUP
from tenure.kube.resources import CLUSTER_ROLE_BINDINGS, CLUSTER_ROLES, ROLE_BINDINGS, ROLES
from tenure.kube.system import System, made

Manifest = dict[str, Any]
Rule = dict[str, list[str]]

READ: Final = ("get", "list", "watch")
SET_OWNER: Final = "setowner"
"""A verb of ours, which admission policies ask for: to bind a namespace or a Budget to an owner."""
RESOLVES: Final = "resolve"
"""Another verb of ours, on runs: to have others give way now to one that waits."""
ELECTION: Final = "tenure-operator"
"""The coordination.k8s.io Lease that operators elect a leader with."""
POLICY_MAP: Final = "tenure-policy"
"""The ConfigMap with the fleet's policy."""
WEBHOOKS: Final = "tenure"
"""The name of both webhook configurations."""

_ADMISSION = "admissionregistration.k8s.io"


def rule(group: str, resources: str, *verbs: str, names: tuple[str, ...] = ()) -> Rule:
    """One rule; ``resources`` are separated by blanks."""
    out = {"apiGroups": [group], "resources": resources.split(), "verbs": list(verbs)}
    return {**out, "resourceNames": list(names)} if names else out


OPERATOR: Final = (
    rule(GROUP, "runs", *READ, "patch"),
    rule(GROUP, "budgets", *READ),
    rule(GROUP, "leases reservations", *READ, "create", "delete"),
    rule(GROUP, "runs/status budgets/status leases/status reservations/status", "patch"),
    rule(GROUP, "ledgerentries", *READ, "create", "delete"),
    rule(GROUP, "ledgerheads", *READ, "create", "update"),
    rule("", "namespaces nodes", *READ),
    rule("", "pods", *READ, "create", "delete"),
    rule("", "pods/binding", "create"),
    rule("", "services", "get", "create", "delete"),
    rule("events.k8s.io", "events", "create"),
    rule(_ADMISSION, "validatingadmissionpolicies validatingadmissionpolicybindings", *READ),
    rule(
        _ADMISSION,
        "validatingwebhookconfigurations mutatingwebhookconfigurations",
        "get",
        "update",
        names=(WEBHOOKS,),
    ),
)
"""In the whole cluster. What it needs in its own namespace is in ``OPERATOR_AT_HOME``."""

OPERATOR_AT_HOME: Final = (
    rule("", "configmaps", *READ),
    rule("coordination.k8s.io", "leases", "create"),
    rule("coordination.k8s.io", "leases", "get", "update", names=(ELECTION,)),
)

TENANT: Final = (
    rule(GROUP, "runs", *READ, "create", "update", "patch", "delete"),
    rule(GROUP, "reservations leases", *READ),
    rule("", "pods pods/log services events", *READ),
)
BUDGET_OWNER: Final = (
    rule(GROUP, "budgets", *READ, "update", "patch"),
    rule(GROUP, "leases reservations runs", *READ),
)
AUDITOR: Final = (
    rule(GROUP, "budgets runs reservations leases ledgerentries ledgerheads", *READ),
    rule("", "namespaces nodes pods events", *READ),
    rule("coordination.k8s.io", "leases", "get", names=(ELECTION,)),
    rule(_ADMISSION, "validatingadmissionpolicies validatingadmissionpolicybindings", *READ),
)
ADMINISTRATOR: Final = (
    rule(GROUP, "budgets", *READ, "create", "update", "patch", "delete", SET_OWNER),
    rule(GROUP, "runs", *READ, "patch", RESOLVES),
    rule("", "namespaces", *READ, "create", "update", "patch", SET_OWNER),
)


def cluster_roles() -> list[Manifest]:
    """Every ClusterRole."""
    roles = {
        "tenure-operator": OPERATOR,
        "tenure-tenant": TENANT,
        "tenure-budget-owner": BUDGET_OWNER,
        "tenure-auditor": AUDITOR,
        "tenure-administrator": ADMINISTRATOR,
    }
    return [made(CLUSTER_ROLES, name, rules=list(rules)) for name, rules in roles.items()]


def operator_roles(system: System) -> list[Manifest]:
    """The operator's account with its rights, in the cluster and at home."""
    name, home = system.account, system.namespace
    subjects = [{"kind": "ServiceAccount", "name": name, "namespace": home}]
    return [
        made(CLUSTER_ROLE_BINDINGS, "tenure-operator", roleRef=_ref("ClusterRole"), subjects=subjects),
        made(ROLES, "tenure-operator", home, rules=list(OPERATOR_AT_HOME)),
        made(ROLE_BINDINGS, "tenure-operator", home, roleRef=_ref("Role"), subjects=subjects),
    ]


def _ref(kind: str) -> dict[str, str]:
    return {"apiGroup": "rbac.authorization.k8s.io", "kind": kind, "name": "tenure-operator"}
