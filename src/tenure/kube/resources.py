"""The kinds that Tenure reads and writes in an API server: one line each, nothing is discovered at run time."""

from __future__ import annotations

from typing import Any

from msgspec import Struct

from tenure.api.meta import GROUP

SYSTEM_NAMESPACE = "tenure-system"
FIELD_MANAGER = "tenure"


class Resource(Struct, frozen=True, gc=False):
    """A kind, and where the API server keeps its objects."""

    group: str
    version: str
    plural: str
    kind: str
    namespaced: bool = True

    @property
    def api_version(self) -> str:
        """As objects spell it.

        >>> RUNS.api_version, PODS.api_version
        ('rq.davidlangworthy.io/v1', 'v1')
        """
        return f"{self.group}/{self.version}" if self.group else self.version

    def path(self, namespace: str | None = None, name: str | None = None, subresource: str = "") -> str:
        """The address of a collection (of all namespaces, if none is named), an object, or a part of it.

        >>> PODS.path("rai", "train-0", "status"), BUDGETS.path()
        ('/api/v1/namespaces/rai/pods/train-0/status', '/apis/rq.davidlangworthy.io/v1/budgets')
        """
        parts = [f"/apis/{self.group}" if self.group else "/api", self.version]
        if self.namespaced and namespace:
            parts += ["namespaces", namespace]
        parts += [self.plural, *([name] if name else []), *([subresource] if subresource else [])]
        return "/".join(parts)

    def named(self, name: str, namespace: str | None = None, **rest: Any) -> dict[str, Any]:
        """The beginning of an object: its kind and its name; ``rest`` are further top-level fields."""
        metadata = {"name": name, **({"namespace": namespace} if namespace else {})}
        return {"apiVersion": self.api_version, "kind": self.kind, "metadata": metadata, **rest}


def _ours(plural: str, kind: str, *, namespaced: bool) -> Resource:
    return Resource(GROUP, "v1", plural, kind, namespaced)


BUDGETS = _ours("budgets", "Budget", namespaced=False)
RUNS = _ours("runs", "Run", namespaced=True)
RESERVATIONS = _ours("reservations", "Reservation", namespaced=True)
LEASES = _ours("leases", "Lease", namespaced=True)
LEDGER_ENTRIES = _ours("ledgerentries", "LedgerEntry", namespaced=False)
LEDGER_HEADS = _ours("ledgerheads", "LedgerHead", namespaced=False)

NAMESPACES = Resource("", "v1", "namespaces", "Namespace", namespaced=False)
NODES = Resource("", "v1", "nodes", "Node", namespaced=False)
PODS = Resource("", "v1", "pods", "Pod")
SERVICES = Resource("", "v1", "services", "Service")
CONFIG_MAPS = Resource("", "v1", "configmaps", "ConfigMap")
SECRETS = Resource("", "v1", "secrets", "Secret")
SERVICE_ACCOUNTS = Resource("", "v1", "serviceaccounts", "ServiceAccount")
CORE_EVENTS = Resource("", "v1", "events", "Event")
EVENTS = Resource("events.k8s.io", "v1", "events", "Event")
ELECTION_LEASES = Resource("coordination.k8s.io", "v1", "leases", "Lease")
PRIORITY_CLASSES = Resource("scheduling.k8s.io", "v1", "priorityclasses", "PriorityClass", namespaced=False)
FLOW_SCHEMAS = Resource("flowcontrol.apiserver.k8s.io", "v1", "flowschemas", "FlowSchema", namespaced=False)
PRIORITY_LEVELS = Resource(
    "flowcontrol.apiserver.k8s.io",
    "v1",
    "prioritylevelconfigurations",
    "PriorityLevelConfiguration",
    namespaced=False,
)
DEPLOYMENTS = Resource("apps", "v1", "deployments", "Deployment")

CRDS = Resource("apiextensions.k8s.io", "v1", "customresourcedefinitions", "CustomResourceDefinition", namespaced=False)
CLUSTER_ROLES = Resource("rbac.authorization.k8s.io", "v1", "clusterroles", "ClusterRole", namespaced=False)
CLUSTER_ROLE_BINDINGS = Resource(
    "rbac.authorization.k8s.io", "v1", "clusterrolebindings", "ClusterRoleBinding", namespaced=False
)
ROLES = Resource("rbac.authorization.k8s.io", "v1", "roles", "Role")
ROLE_BINDINGS = Resource("rbac.authorization.k8s.io", "v1", "rolebindings", "RoleBinding")
ADMISSION_POLICIES = Resource(
    "admissionregistration.k8s.io", "v1", "validatingadmissionpolicies", "ValidatingAdmissionPolicy", namespaced=False
)
ADMISSION_POLICY_BINDINGS = Resource(
    "admissionregistration.k8s.io",
    "v1",
    "validatingadmissionpolicybindings",
    "ValidatingAdmissionPolicyBinding",
    namespaced=False,
)
VALIDATING_WEBHOOKS = Resource(
    "admissionregistration.k8s.io",
    "v1",
    "validatingwebhookconfigurations",
    "ValidatingWebhookConfiguration",
    namespaced=False,
)
MUTATING_WEBHOOKS = Resource(
    "admissionregistration.k8s.io",
    "v1",
    "mutatingwebhookconfigurations",
    "MutatingWebhookConfiguration",
    namespaced=False,
)
TOKEN_REVIEWS = Resource("authentication.k8s.io", "v1", "tokenreviews", "TokenReview", namespaced=False)
ACCESS_REVIEWS = Resource("authorization.k8s.io", "v1", "subjectaccessreviews", "SubjectAccessReview", namespaced=False)

_ALL: dict[tuple[str, str], Resource] = {
    (one.api_version, one.kind): one for one in list(globals().values()) if isinstance(one, Resource)
}


def resource_of(manifest: dict[str, Any]) -> Resource:
    """The resource that an object is of; KeyError for a kind that Tenure has nothing to do with.

    >>> resource_of({"apiVersion": "v1", "kind": "Pod"}).plural
    'pods'
    """
    return _ALL[manifest["apiVersion"], manifest["kind"]]
