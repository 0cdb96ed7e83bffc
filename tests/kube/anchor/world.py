"""The people of the abuse probes, what each was given, and what lies about for them to abuse.

Roles are given generously on purpose: where somebody holds every right in a namespace, or over all our objects, RBAC
says yes and only the admission policies are left to say no.
"""

from __future__ import annotations

from typing import Any, NamedTuple

from tenure.api.meta import GROUP, LABEL_RUN, OWNER_ANNOTATION
from tenure.kube.system import System
from tenure.testing.kube import Api, ControlPlane, until

Tree = dict[str, Any]
RBAC = "rbac.authorization.k8s.io"
OURS = f"/apis/{GROUP}/v1"
HASH = "0" * 64
FINALIZER = f"{GROUP}/leases"


class World(NamedTuple):
    """Who may be played."""

    plane: ControlPlane
    cast: dict[str, Api]

    @classmethod
    def made(cls, plane: ControlPlane, system: System) -> World:
        """A cast with rights, and objects that the operator and an administrator made."""
        world = cls(plane, _cast(plane, system))
        for name, owner in (("team-a", "org:a"), ("team-b", "org:b"), ("loose", ""), ("kube-system", "")):
            plane.namespace(name, **({OWNER_ANNOTATION: owner} if owner else {}))
        for each in _rights():
            plane.ensure(each)
        operator, admin = world.cast["operator"], world.cast["admin"]
        until(lambda: operator.get(f"{OURS}/ledgerheads").ok)
        until(lambda: world.cast["king"].get("/api/v1/namespaces/team-a/pods").ok)  # the last of each kind of binding:
        until(lambda: world.cast["replicaset controller"].create(pod("x"), dry_run=True).ok)  # by then all are known
        for one in (BUDGET, RUN):
            admin.create(one).must()
        for one in (lease("open"), lease("closed"), reservation("promise"), ENTRY, HEAD, gpu_pod("train-0")):
            operator.create(one).must()
        operator.patch(f"{OURS}/namespaces/team-a/leases/closed/status", {"status": CLOSED}).must()
        admin.create(pod("idle")).must()
        return world


def _cast(plane: ControlPlane, system: System) -> dict[str, Api]:
    """Everybody, by the part they play."""
    api = plane.api
    everybody = "system:authenticated"
    return {
        "tenant": api.acting_as("alice", "team-a", everybody),
        "other tenant": api.acting_as("bob", "team-b", everybody),
        "budget owner": api.acting_as("olga", everybody),
        "auditor": api.acting_as("ida", everybody),
        "administrator": api.acting_as("root-of-tenancy", everybody),
        "king": api.acting_as("king", everybody),
        "overtrusted": api.acting_as("eve", everybody),
        "admin": api,
        "operator": plane.bearer(plane.token(system.namespace, system.account)),
        "scheduler": api.acting_as("system:kube-scheduler", everybody),
        "kubelet": api.acting_as("system:node:n1", "system:nodes", everybody),
        "replicaset controller": api.acting_as(
            "system:serviceaccount:kube-system:replicaset-controller", "system:serviceaccounts:kube-system", everybody
        ),
        "controller manager": api.acting_as("system:kube-controller-manager", everybody),
        "nobody": plane.anonymous(),
    }


def _rights() -> list[Tree]:
    everything = [{"apiGroups": ["*"], "resources": ["*"], "verbs": ["*"]}]
    # Every verb but ours on every object of ours and on all that a tenant's tools need: a careless cluster role.
    verbs = ["get", "list", "watch", "create", "update", "patch", "delete", "deletecollection"]
    careless = [
        {"apiGroups": [GROUP], "resources": ["*"], "verbs": verbs},
        {"apiGroups": [""], "resources": ["namespaces", "namespaces/status", "namespaces/finalize"], "verbs": verbs},
        {"apiGroups": [""], "resources": ["pods", "pods/status", "bindings", "pods/binding"], "verbs": verbs},
    ]
    kubelet = [{"apiGroups": [""], "resources": ["pods", "pods/status"], "verbs": verbs}]
    binder = [{"apiGroups": [""], "resources": ["pods/binding", "bindings"], "verbs": ["create"]}]
    maker = [{"apiGroups": [""], "resources": ["pods"], "verbs": ["create"]}]
    return [
        _role("king", "team-a", everything),
        _role("overtrusted", None, careless),
        _role("kubelet", None, kubelet),
        _role("binder", None, binder),
        _role("maker", None, maker),
        _binding("tenants", "team-a", "tenure-tenant", group="team-a"),
        _binding("tenants", "team-b", "tenure-tenant", group="team-b"),
        _binding("tenants", "loose", "tenure-tenant", user="alice"),
        _binding("budget-owners", None, "tenure-budget-owner", user="olga"),
        _binding("auditors", None, "tenure-auditor", user="ida"),
        _binding("administrators", None, "tenure-administrator", user="root-of-tenancy"),
        _binding("king", "team-a", "king", user="king", local=True),
        _binding("overtrusted", None, "overtrusted", user="eve"),
        _binding("kubelets", None, "kubelet", group="system:nodes"),
        _binding("controllers", None, "kubelet", user="system:kube-controller-manager"),
        _binding("schedulers", None, "binder", user="system:kube-scheduler"),
        _binding("makers", None, "maker", group="system:serviceaccounts:kube-system"),
    ]


def _role(name: str, namespace: str | None, rules: list[Tree]) -> Tree:
    kind = "Role" if namespace else "ClusterRole"
    return {"apiVersion": f"{RBAC}/v1", "kind": kind, "metadata": _named(name, namespace), "rules": rules}


def _binding(
    name: str, namespace: str | None, role: str, *, user: str = "", group: str = "", local: bool = False
) -> Tree:
    subject = {"kind": "User", "name": user} if user else {"kind": "Group", "name": group}
    return {
        "apiVersion": f"{RBAC}/v1",
        "kind": "RoleBinding" if namespace else "ClusterRoleBinding",
        "metadata": _named(name, namespace),
        "roleRef": {"apiGroup": RBAC, "kind": "Role" if local else "ClusterRole", "name": role},
        "subjects": [{"apiGroup": RBAC, **subject}],
    }


def _named(name: str, namespace: str | None = None) -> Tree:
    return {"name": name, **({"namespace": namespace} if namespace else {})}


# --- objects --------------------------------------------------------------------------------------------------------

CLOSED: Tree = {"closed": True, "endTime": "2025-11-01T01:00:00Z", "closureReason": "Completed"}


def _ours(kind: str, name: str, namespace: str | None, spec: Tree) -> Tree:
    return {"apiVersion": f"{GROUP}/v1", "kind": kind, "metadata": _named(name, namespace), "spec": spec}


def lease(name: str, namespace: str = "team-a") -> Tree:
    spec = {
        "owner": "org:a",
        "runRef": {"name": "train", "uid": "u-1"},
        "compPath": ["G[0]", "A"],
        "slice": {"nodes": ["n1"], "gpus": [0, 1], "role": "Active"},
        "interval": {"start": "2025-11-01T00:00:00Z"},
        "paidByEnvelope": "west",
        "paidByBudget": "a",
        "paidByOwner": "org:a",
        "reason": "Start",
    }
    return _ours("Lease", name, namespace, spec)


def reservation(name: str) -> Tree:
    return _ours("Reservation", name, "team-a", {"runRef": {"name": "train"}, "earliestStart": "2025-11-01T06:00:00Z"})


def entry(seq: int) -> Tree:
    spec = {"first": seq, "seq": seq, "hash": HASH, "prev": HASH, "at": 0, "body": "{}"}
    return _ours("LedgerEntry", f"{seq:012}-{HASH[:16]}", None, spec)


def head(seq: int) -> Tree:
    return _ours("LedgerHead", "head", None, {"fleet": "test", "seq": seq, "hash": HASH, "at": 0})


def run(name: str, namespace: str = "team-a", owner: str = "org:a", **template: Any) -> Tree:
    pods = {"containers": [{"name": "main", "image": "x"}], **template}
    resources = {"gpuType": "H100-80GB", "totalGPUs": 8}
    spec = {"owner": owner, "resources": resources, "template": {"spec": pods}}
    return _ours("Run", name, namespace, {key: value for key, value in spec.items() if value})


def budget(name: str, owner: str = "org:a", parents: tuple[str, ...] = (), concurrency: int = 64) -> Tree:
    west = {"name": "west", "flavor": "H100-80GB", "selector": {"region": "us-west"}, "concurrency": concurrency}
    return _ours("Budget", name, None, {"owner": owner, "parents": list(parents), "envelopes": [west]})


def pod(name: str, namespace: str = "team-a", *, container: Tree | None = None, **spec: Any) -> Tree:
    main = {"name": "main", "image": "x", **(container or {})}
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": _named(name, namespace),
        "spec": {"containers": [main], **spec},
    }


def marked(obj: Tree, labels: Tree | None = None, annotations: Tree | None = None) -> Tree:
    marks = {"labels": labels or {}, "annotations": annotations or {}}
    return {**obj, "metadata": {**obj["metadata"], **marks}}


def gpus(count: int = 8, field: str = "limits", resource: str = "nvidia.com/gpu") -> Tree:
    amounts = {resource: str(count)}
    return {"resources": {"limits": amounts, **({"requests": amounts} if field == "requests" else {})}}


def gpu_pod(name: str) -> Tree:
    """As the operator makes them."""
    taint = {"key": f"{GROUP}/managed", "operator": "Exists"}
    made = pod(name, container=gpus(), nodeName="n1", tolerations=[taint])
    return marked(made, labels={LABEL_RUN: "train"})


BUDGET = budget("a")
RUN = {**run("train"), "metadata": {"name": "train", "namespace": "team-a", "finalizers": [FINALIZER]}}
ENTRY = entry(1)
HEAD = head(5)
