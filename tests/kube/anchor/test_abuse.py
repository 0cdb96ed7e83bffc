"""Abuse probes: one row each, refused by the API server alone; the operator and the webhook are down (SPEC 12).

A row says who asks for what, and what the answer must be: its code, and the words that tell a policy's refusal from
RBAC's. ``test_what_must_work_works`` plays the same parts doing what they are there for, so that nothing here passes
because nothing works. What must work is tried with ``dryRun``: the rows leave nothing behind, in any order.
"""

from typing import Any, NamedTuple

import pytest

from tenure.api.meta import GROUP, LABEL_RUN, OWNER_ANNOTATION
from tenure.kube.marks import RESOLVE
from tenure.kube.policies import REMOVE_ANNOTATION, policies
from tenure.kube.policy import Policy
from tenure.kube.system import System
from tenure.testing.kube import Answer
from tenure.testing.kube.api import JSON, MERGE, collection, path_of
from tests.kube.anchor.world import (
    CLOSED,
    FINALIZER,
    OURS,
    World,
    budget,
    entry,
    gpu_pod,
    gpus,
    head,
    lease,
    marked,
    pod,
    reservation,
    run,
)

Tree = dict[str, Any]
PODS = "/api/v1/namespaces/team-a/pods"
LEASES = f"{OURS}/namespaces/team-a/leases"
RESERVATIONS = f"{OURS}/namespaces/team-a/reservations"
RUNS = f"{OURS}/namespaces/team-a/runs"
CRD = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"
MARK = f"{GROUP}/"


class Ask(NamedTuple):
    """One request."""

    method: str
    path: str
    body: Any = None
    form: str = JSON


class Row(NamedTuple):
    """Who asks for what, and what is said."""

    name: str
    who: str
    ask: Ask
    code: int = 403
    says: str = ""


def create(obj: Tree) -> Ask:
    return Ask("POST", collection(obj), obj)


def patch(path: str, change: Tree) -> Ask:
    return Ask("PATCH", path, change, MERGE)


def delete(path: str, **options: Any) -> Ask:
    return Ask("DELETE", path, {"kind": "DeleteOptions", "apiVersion": "v1", **options} if options else None)


def env(value: str | None = "all", **rest: Any) -> Tree:
    given = {} if value is None else {"value": value}
    return {"env": [{"name": "NVIDIA_VISIBLE_DEVICES", **given, **rest}]}


def host(path: str) -> list[Tree]:
    return [{"name": "dev", "hostPath": {"path": path}}]


def binding(target: str = "n1") -> Tree:
    return {
        "apiVersion": "v1",
        "kind": "Binding",
        "metadata": {"name": "idle", "namespace": "team-a"},
        "target": {"apiVersion": "v1", "kind": "Node", "name": target},
    }


def annotated(owner: str | None) -> Tree:
    return {"metadata": {"annotations": {OWNER_ANNOTATION: owner}}}


def eviction(name: str, grace: int) -> Tree:
    return {
        "apiVersion": "policy/v1",
        "kind": "Eviction",
        "metadata": {"name": name, "namespace": "team-a"},
        "deleteOptions": {"gracePeriodSeconds": grace},
    }


DEBUGGER: Tree = {"spec": {"ephemeralContainers": [{"name": "debug", "image": "x", **env()}]}}
INIT = [{"name": "init", "image": "x", **gpus()}]
BY_ROLE = "cannot"
ONLY_LEASES = "'tenure-leases' with binding 'tenure-leases' denied request: only the Tenure operator writes leases"
ONLY_RESERVATIONS = "only the Tenure operator writes reservations"
ONLY_LEDGER = "only the Tenure operator writes the ledger"
NO_GPUS = "GPUs are had by submitting a Run"
VISIBLE = "NVIDIA_VISIBLE_DEVICES would show a container GPUs that nobody leased"
REACHES = "this hostPath reaches devices"
OWNER = f"to set {OWNER_ANNOTATION} takes the verb setowner on namespaces"
BUDGETS = "takes the verb setowner on budgets"
NO_LABELS = f"labels that begin {MARK} are Tenure's"

WISH = {"metadata": {"annotations": {RESOLVE: "2025-11-01T07:00:00Z"}}}
RESOLVES = "takes the verb resolve on runs"
REFUSED = [
    # --- leases: by somebody without the right, with every right in the namespace, over all of ours, and in the cluster
    Row("tenant forges a lease", "tenant", create(lease("x")), says=BY_ROLE),
    Row("king forges a lease", "king", create(lease("x")), says=ONLY_LEASES),
    Row("overtrusted forges a lease elsewhere", "overtrusted", create(lease("x", "team-b")), says=ONLY_LEASES),
    Row("cluster admin forges a lease", "admin", create(lease("x")), says=ONLY_LEASES),
    Row("nobody forges a lease", "nobody", create(lease("x")), says=BY_ROLE),
    Row("tenant reads nothing of others", "other tenant", Ask("GET", LEASES), says=BY_ROLE),
    Row("king edits who pays", "king", patch(f"{LEASES}/open", {"spec": {"paidByBudget": "b"}}), 422, "never"),
    Row("king relabels a lease", "king", patch(f"{LEASES}/open", {"metadata": {"labels": {"a": "b"}}}),
        says=ONLY_LEASES),
    Row("king closes a lease early", "king", patch(f"{LEASES}/open/status", {"status": CLOSED}),
        says=ONLY_LEASES),
    Row("admin closes a lease early", "admin", patch(f"{LEASES}/open/status", {"status": CLOSED}), says=ONLY_LEASES),
    Row("king deletes an open lease", "king", delete(f"{LEASES}/open"), says=ONLY_LEASES),
    Row("king deletes a closed lease", "king", delete(f"{LEASES}/closed"), says=ONLY_LEASES),
    Row("king deletes all leases at once", "king", delete(LEASES), says=ONLY_LEASES),
    Row("admin deletes all leases at once", "admin", delete(LEASES), says=ONLY_LEASES),
    Row("operator edits who pays", "operator", patch(f"{LEASES}/open", {"spec": {"paidByBudget": "b"}}), says=BY_ROLE),
    Row("operator reopens a lease", "operator", patch(f"{LEASES}/closed/status", {"status": {"closed": False}}), 422),
    Row("operator deletes an open lease", "operator", delete(f"{LEASES}/open"), says="an open lease is never deleted"),
    # --- reservations
    Row("tenant forges a reservation", "tenant", create(reservation("x")), says=BY_ROLE),
    Row("king forges a reservation", "king", create(reservation("x")), says=ONLY_RESERVATIONS),
    Row("king moves a promise", "king",
        patch(f"{RESERVATIONS}/promise", {"spec": {"earliestStart": "2025-11-01T00:00:00Z"}}), 422, "the promise"),
    Row("king writes a plan", "king",
        patch(f"{RESERVATIONS}/promise/status", {"status": {"plannedStart": "2025-11-01T00:00:00Z"}}),
        says=ONLY_RESERVATIONS),
    Row("king deletes a promise", "king", delete(f"{RESERVATIONS}/promise"), says=ONLY_RESERVATIONS),
    # --- the ledger
    Row("tenant reads the ledger", "tenant", Ask("GET", f"{OURS}/ledgerentries"), says=BY_ROLE),
    Row("budget owner writes an entry", "budget owner", create(entry(2)), says=BY_ROLE),
    Row("overtrusted writes an entry", "overtrusted", create(entry(2)), says=ONLY_LEDGER),
    Row("admin writes an entry", "admin", create(entry(2)), says=ONLY_LEDGER),
    Row("overtrusted deletes an entry", "overtrusted", delete(path_of(entry(1))), says=ONLY_LEDGER),
    Row("overtrusted deletes all entries", "overtrusted", delete(f"{OURS}/ledgerentries"), says=ONLY_LEDGER),
    Row("overtrusted moves the head", "overtrusted", patch(path_of(head(5)), {"spec": {"seq": 6}}), says=ONLY_LEDGER),
    Row("overtrusted deletes the head", "overtrusted", delete(path_of(head(5))), says=ONLY_LEDGER),
    Row("operator edits an entry", "operator", patch(path_of(entry(1)), {"spec": {"body": "{}{}"}}), says=BY_ROLE),
    Row("operator moves the head back", "operator", Ask("PUT", path_of(head(5)), head(4)), 422, "forward"),
    Row("operator deletes the head", "operator", delete(path_of(head(5))), says=BY_ROLE),
    Row("admin deletes the definition of the ledger", "admin", delete(f"{CRD}/ledgerentries.{GROUP}"),
        says="the books with them"),
    Row("admin deletes the definition of leases", "admin", delete(f"{CRD}/leases.{GROUP}"), says=REMOVE_ANNOTATION),
    # --- owners: of runs, of namespaces, of budgets
    Row("tenant spends another's money", "tenant", create(run("x", owner="org:b")),
        says="spec.owner is org:b: not org:a, to which the namespace is bound, nor below it"),
    Row("tenant claims a neighbour by prefix", "tenant", create(run("x", owner="org:ab")), says="nor below it"),
    Row("tenant claims its parent", "tenant", create(run("x", owner="org")), says="nor below it"),
    Row("tenant runs in another's namespace", "tenant", create(run("x", "team-b", "org:b")), says=BY_ROLE),
    Row("other tenant submits in team-a", "other tenant", create(run("x")), says=BY_ROLE),
    Row("other tenant deletes a run of team-a", "other tenant", delete(f"{RUNS}/train"), says=BY_ROLE),
    Row("tenant changes its claim later", "tenant", patch(f"{RUNS}/train", {"spec": {"owner": "org:b"}}),
        says="spec.owner is org:b"),
    Row("tenant claims money where nobody is bound", "tenant", create(run("x", "loose", "org:b")),
        says="bound to no owner"),
    Row("tenant claims nothing where nobody is bound", "tenant", create(run("x", "loose", "")),
        says="bound to no owner"),
    Row("overtrusted rebinds a namespace", "overtrusted", patch("/api/v1/namespaces/team-a", annotated("org:b")),
        says=OWNER),
    Row("overtrusted unbinds a namespace", "overtrusted", patch("/api/v1/namespaces/team-a", annotated(None)),
        says=OWNER),
    Row("overtrusted binds a loose namespace", "overtrusted", patch("/api/v1/namespaces/loose", annotated("org:b")),
        says=OWNER),
    Row("overtrusted rebinds through the status", "overtrusted",
        patch("/api/v1/namespaces/team-a/status", annotated("org:b")), says=OWNER),
    Row("overtrusted makes a bound namespace", "overtrusted",
        create({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "x", **annotated("org:b")["metadata"]}}),
        says=OWNER),
    Row("king rebinds its namespace", "king", patch("/api/v1/namespaces/team-a", annotated("org:b")),
        says=OWNER),
    Row("budget owner rebinds a namespace", "budget owner", patch("/api/v1/namespaces/team-a", annotated("org:b")),
        says=BY_ROLE),
    Row("administrator binds to nonsense", "administrator", patch("/api/v1/namespaces/loose", annotated("Org B!")), 422,
        "is no owner: write segments of a-z"),
    Row("tenant makes a budget", "tenant", create(budget("x")), says=BY_ROLE),
    Row("budget owner makes a budget", "budget owner", create(budget("x")), says=BY_ROLE),
    Row("overtrusted makes a budget", "overtrusted", create(budget("x", "org:b")), says=BUDGETS),
    Row("budget owner takes a budget over", "budget owner", patch(path_of(budget("a")), {"spec": {"owner": "org:b"}}),
        says=BUDGETS),
    Row("budget owner joins a family", "budget owner", patch(path_of(budget("a")), {"spec": {"parents": ["org:b"]}}),
        says=BUDGETS),
    # --- statuses and finalizers
    Row("tenant writes its run's status", "tenant", patch(f"{RUNS}/train/status", {"status": {"phase": "Running"}}),
        says=BY_ROLE),
    Row("king writes a run's status", "king", patch(f"{RUNS}/train/status", {"status": {"phase": "Running"}}),
        says="only the Tenure operator writes the status of a Run"),
    Row("overtrusted writes a budget's status", "overtrusted",
        patch(f"{path_of(budget('a'))}/status", {"status": {"headroom": []}}),
        says="only the Tenure operator writes the status of a Budget"),
    Row("tenant removes our finalizer", "tenant", patch(f"{RUNS}/train", {"metadata": {"finalizers": []}}),
        says="only the Tenure operator removes its finalizer"),
    # --- others give way
    Row("tenant has others give way to its run", "tenant", patch(f"{RUNS}/train", WISH), says=RESOLVES),
    Row("tenant's run comes with the wish", "tenant",
        create({**run("x"), "metadata": {**run("x")["metadata"], **WISH["metadata"]}}), says=RESOLVES),
    # --- GPUs past the scheduler
    Row("tenant makes a pod", "tenant", create(pod("x")), says=BY_ROLE),
    Row("raw GPU pod: limits", "king", create(pod("x", container=gpus())), says=NO_GPUS),
    Row("raw GPU pod: requests", "king", create(pod("x", container=gpus(field="requests"))), says=NO_GPUS),
    Row("raw GPU pod: a slice of one", "king",
        create(pod("x", container=gpus(1, resource="nvidia.com/mig-1g.10gb"))), says=NO_GPUS),
    Row("raw GPU pod: init container", "king", create(pod("x", initContainers=INIT)), says=NO_GPUS),
    Row("raw GPU pod: by a controller", "replicaset controller", create(pod("x", container=gpus())), says=NO_GPUS),
    Row("raw GPU pod: by the cluster's admin", "admin", create(pod("x", container=gpus())), says=NO_GPUS),
    Row("raw GPU pod: all devices by environment", "king", create(pod("x", container=env())), says=VISIBLE),
    Row("raw GPU pod: one device by environment", "king", create(pod("x", container=env("0"))), says=VISIBLE),
    Row("raw GPU pod: environment from elsewhere", "king",
        create(pod("x", container=env(None, valueFrom={"configMapKeyRef": {"name": "m", "key": "k"}}))), says=VISIBLE),
    Row("raw GPU pod: privileged", "king",
        create(pod("x", container={"securityContext": {"privileged": True}})), says="a privileged container sees"),
    Row("raw GPU pod: host's device", "king", create(pod("x", volumes=host("/dev/nvidia0"))), says=REACHES),
    Row("raw GPU pod: host's devices", "king", create(pod("x", volumes=host("/dev/"))), says=REACHES),
    Row("raw GPU pod: host's device, spelled oddly", "king",
        create(pod("x", volumes=host("//./dev//nvidia0"))), says=REACHES),
    Row("raw GPU pod: host's root", "king", create(pod("x", volumes=host("/"))), says=REACHES),
    Row("raw GPU pod: the kubelet's sockets", "king",
        create(pod("x", volumes=host("/var/lib/kubelet/device-plugins"))), says=REACHES),
    Row("raw GPU pod: resource claim", "king",
        create(pod("x", resourceClaims=[{"name": "gpu", "resourceClaimName": "c"}])), says="resource claims"),
    Row("raw pod on a chosen node", "king", create(pod("x", nodeName="n1")), says="gives a pod its nodeName"),
    Row("raw pod on managed nodes", "king",
        create(pod("x", tolerations=[{"key": f"{GROUP}/managed", "operator": "Exists"}])), says="tolerate the taint"),
    Row("raw pod on any node", "king", create(pod("x", tolerations=[{"operator": "Exists"}])),
        says="tolerate the taint"),
    Row("a toleration later", "king",
        Ask("PATCH", f"{PODS}/idle", [{"op": "add", "path": "/spec/tolerations/-", "value": {"operator": "Exists"}}],
            "application/json-patch+json"), says="tolerate the taint"),
    Row("binding by a tenant's king", "king", Ask("POST", f"{PODS}/idle/binding", binding()),
        says="bind pods"),
    Row("binding by the old door", "king",
        Ask("POST", "/api/v1/namespaces/team-a/bindings", binding()), says="bind pods"),
    Row("binding by the cluster's admin", "admin", Ask("POST", f"{PODS}/idle/binding", binding()), says="bind pods"),
    Row("ephemeral container", "king", patch(f"{PODS}/train-0/ephemeralcontainers", DEBUGGER),
        says="no ephemeral containers"),
    Row("ephemeral container by the admin", "admin", patch(f"{PODS}/train-0/ephemeralcontainers", DEBUGGER),
        says="no ephemeral containers"),
    # --- our marks
    Row("our label on a pod", "king", create(marked(pod("x"), {LABEL_RUN: "train"})), says=NO_LABELS),
    Row("our label where nobody is bound", "admin", create(marked(pod("x", "loose"), {LABEL_RUN: "train"})),
        says=NO_LABELS),
    Row("our label later", "king", patch(f"{PODS}/idle", {"metadata": {"labels": {LABEL_RUN: "train"}}}),
        says=NO_LABELS),
    Row("our label changed", "king", patch(f"{PODS}/train-0", {"metadata": {"labels": {LABEL_RUN: "other"}}}),
        says=NO_LABELS),
    Row("our label removed", "king", patch(f"{PODS}/train-0", {"metadata": {"labels": {LABEL_RUN: None}}}),
        says=NO_LABELS),
    Row("our label removed through the status", "admin",
        patch(f"{PODS}/train-0/status", {"metadata": {"labels": {LABEL_RUN: None}}}), says=NO_LABELS),
    Row("our annotation on a pod", "king",
        create(marked(pod("x"), annotations={f"{MARK}payer": "org:b"})), says=f"annotations that begin {MARK}"),
    Row("our finalizer on a pod", "king",
        patch(f"{PODS}/idle", {"metadata": {"finalizers": [FINALIZER]}}), says=f"finalizers that begin {MARK}"),
    # --- ends that are no ends: GPUs in use that nobody pays
    Row("a pod said to be over", "king", patch(f"{PODS}/train-0/status", {"status": {"phase": "Succeeded"}}),
        says="is said by its node"),
    Row("a pod said to be over, by the overtrusted", "overtrusted",
        patch(f"{PODS}/train-0/status", {"status": {"phase": "Failed"}}), says="is said by its node"),
    Row("a pod deleted by force", "king", delete(f"{PODS}/train-0", gracePeriodSeconds=0), says="without --force"),
    Row("all pods deleted by force", "king", delete(f"{PODS}?labelSelector={LABEL_RUN}", gracePeriodSeconds=0),
        says="without --force"),
    Row("a pod evicted by force", "king",
        Ask("POST", f"{PODS}/train-0/eviction", eviction("train-0", 0)), says="with a grace period"),
    # --- the operator as a deputy: templates are written by tenants
    Row("template with all devices", "tenant",
        create(run("x", containers=[{"name": "main", "image": "x", **env()}])), says=VISIBLE),
    Row("template with devices for an init container", "tenant",
        create(run("x", initContainers=[{"name": "init", "image": "x", **env()}])), says=VISIBLE),
    Row("template with GPUs for an init container", "tenant", create(run("x", initContainers=INIT)),
        says="an init container of spec.template cannot"),
    Row("template with slices of GPUs", "tenant",
        create(run("x", containers=[{"name": "main", "image": "x", **gpus(1, resource="nvidia.com/mig-1g.10gb")}])),
        says="under another name than nvidia.com/gpu"),
    Row("template with the host's devices", "tenant", create(run("x", volumes=host("/dev"))), says=REACHES),
    Row("template with a privileged container", "tenant",
        create(run("x", containers=[{"name": "main", "image": "x", "securityContext": {"privileged": True}}])),
        says="a privileged container sees"),
    Row("template with a node", "tenant", create(run("x", nodeName="n1")), says="the scheduler chooses nodes"),
    Row("template with our marks", "tenant",
        patch(f"{RUNS}/train", {"spec": {"template": {"metadata": {"labels": {LABEL_RUN: "other"}}}}}),
        says="which are Tenure's"),
    Row("template changed later", "tenant",
        patch(f"{RUNS}/train", {"spec": {"template": {"spec": {"hostPID": True, "volumes": host("/dev")}}}}),
        says=REACHES),
    Row("operator makes a pod with all devices", "operator",
        create(pod("x", container={**gpus(), **env()}, nodeName="n1")), says=VISIBLE),
    # --- the operator's own limits
    Row("operator reads secrets", "operator", Ask("GET", "/api/v1/namespaces/tenure-system/secrets"), says=BY_ROLE),
    Row("operator binds a namespace", "operator", patch("/api/v1/namespaces/loose", annotated("org:b")), says=BY_ROLE),
    Row("operator grants itself money", "operator", create(budget("x")), says=BY_ROLE),
    Row("operator removes a policy", "operator",
        delete("/apis/admissionregistration.k8s.io/v1/validatingadmissionpolicies/tenure-leases"), says=BY_ROLE),
    Row("operator makes itself king", "operator",
        patch("/apis/rbac.authorization.k8s.io/v1/clusterroles/tenure-operator", {"rules": []}), says=BY_ROLE),
]  # fmt: skip

ALLOWED = [
    Row("tenant submits a run", "tenant", create(run("x"))),
    Row("tenant submits for an owner below", "tenant", create(run("x", owner="org:a:sub"))),
    Row("tenant leaves the owner to the namespace", "tenant", create(run("x", owner=""))),
    Row("tenant changes its run", "tenant", patch(f"{RUNS}/train", {"spec": {"resources": {"totalGPUs": 16}}})),
    Row("tenant labels its run", "tenant", patch(f"{RUNS}/train", {"metadata": {"labels": {"a": "b"}}})),
    Row("tenant cancels its run", "tenant", delete(f"{RUNS}/train")),
    Row("tenant reads its leases", "tenant", Ask("GET", LEASES)),
    Row("tenant reads its pods", "tenant", Ask("GET", PODS)),
    Row("tenant mounts its data", "tenant", create(run("x", volumes=host("/mnt/data")))),
    Row("tenant has shared memory and a fabric", "tenant",
        create(run("x", volumes=[*host("/dev/shm"), {"name": "ib", "hostPath": {"path": "/dev/infiniband"}}]))),
    Row("tenant hides devices", "tenant", create(run("x", containers=[{"name": "main", "image": "x", **env("void")}]))),
    Row("king makes an ordinary pod", "king", create(pod("x"))),
    Row("king relabels its pod", "king", patch(f"{PODS}/idle", {"metadata": {"labels": {"a": "b"}}})),
    Row("king relabels the operator's pod", "king", patch(f"{PODS}/train-0", {"metadata": {"labels": {"a": "b"}}})),
    Row("king deletes a pod with grace", "king", delete(f"{PODS}/train-0")),
    Row("king evicts a pod with grace", "king",
        Ask("POST", f"{PODS}/train-0/eviction", eviction("train-0", 30))),
    Row("scheduler binds an ordinary pod", "scheduler", Ask("POST", f"{PODS}/idle/binding", binding())),
    Row("controller makes an ordinary pod", "replicaset controller", create(pod("x"))),
    Row("kubelet writes a status", "kubelet", patch(f"{PODS}/train-0/status", {"status": {"phase": "Running"}})),
    Row("kubelet ends a pod", "kubelet", delete(f"{PODS}/train-0", gracePeriodSeconds=0)),
    Row("controller manager collects a pod", "controller manager", delete(f"{PODS}/train-0", gracePeriodSeconds=0)),
    Row("controller manager marks a pod", "controller manager",
        patch(f"{PODS}/train-0/status", {"status": {"reason": "NodeLost"}})),
    Row("admin has GPUs where nobody is bound", "admin", create(pod("x", "loose", container=gpus(), nodeName="n1"))),
    Row("admin sees all devices in kube-system", "admin", create(pod("x", "kube-system", container=env()))),
    Row("admin claims money where nobody is bound", "admin", create(run("x", "loose", "org:b"))),
    Row("budget owner grants more", "budget owner",
        patch(path_of(budget("a")), {"spec": budget("a", concurrency=128)["spec"]})),
    Row("administrator makes a budget", "administrator", create(budget("x", "org:b", ("org",)))),
    Row("administrator binds a namespace", "administrator", patch("/api/v1/namespaces/loose", annotated("org:c"))),
    Row("administrator unbinds a namespace", "administrator", patch("/api/v1/namespaces/team-b", annotated(None))),
    Row("administrator has others give way to a run", "administrator", patch(f"{RUNS}/train", WISH)),
    Row("overtrusted labels a namespace", "overtrusted",
        patch("/api/v1/namespaces/team-a", {"metadata": {"labels": {"a": "b"}}})),
    Row("auditor reads the ledger", "auditor", Ask("GET", f"{OURS}/ledgerentries")),
    Row("auditor reads all leases", "auditor", Ask("GET", f"{OURS}/leases")),
    Row("auditor reads the policies", "auditor",
        Ask("GET", "/apis/admissionregistration.k8s.io/v1/validatingadmissionpolicies")),
    Row("operator opens a lease", "operator", create(lease("x"))),
    Row("operator closes a lease", "operator", patch(f"{LEASES}/open/status", {"status": CLOSED})),
    Row("operator deletes a closed lease", "operator", delete(f"{LEASES}/closed")),
    Row("operator makes a promise", "operator", create(reservation("x"))),
    Row("operator withdraws a promise", "operator", delete(f"{RESERVATIONS}/promise")),
    Row("operator plans", "operator",
        patch(f"{RESERVATIONS}/promise/status", {"status": {"plannedStart": "2025-11-01T07:00:00Z"}})),
    Row("operator appends an entry", "operator", create(entry(6))),
    Row("operator moves the head", "operator", Ask("PUT", path_of(head(5)), head(6))),
    Row("operator sweeps an entry", "operator", delete(path_of(entry(1)))),
    Row("operator makes a gang's pod", "operator", create(gpu_pod("x"))),
    Row("operator binds a pod", "operator", Ask("POST", f"{PODS}/idle/binding", binding())),
    Row("operator deletes a stuck pod", "operator", delete(f"{PODS}/train-0", gracePeriodSeconds=0)),
    Row("tenant asks for GPUs in its template as well", "tenant",
        create(run("x", containers=[{"name": "main", "image": "x", **gpus()}]))),
    Row("operator writes a run's status", "operator", patch(f"{RUNS}/train/status", {"status": {"message": "waits"}})),
    Row("operator writes a budget's status", "operator", patch(f"{path_of(budget('a'))}/status", {"status": {}})),
    Row("operator removes its finalizer", "operator", patch(f"{RUNS}/train", {"metadata": {"finalizers": []}})),
    Row("operator looks at the policies", "operator",
        Ask("GET", "/apis/admissionregistration.k8s.io/v1/validatingadmissionpolicies")),
]  # fmt: skip


def test_there_are_probes_enough() -> None:
    assert len(REFUSED) >= 40
    assert len({row.name for row in REFUSED}) == len(REFUSED)


ELSEWHERE = {
    "the spec of reservations never changes",
    "the spec of leases never changes",
    "a lease that is closed never changes",
    "a promise that stands is withdrawn by the Tenure operator alone",
    "an entry of the ledger never changes",
    "the ledger's head never goes back",
    "the ledger's head is never deleted",
}
"""Said by the schemas too, and before; or the operator lacks the right as well; or seen in test_namespaces."""


@pytest.mark.parametrize("policy", policies(System()), ids=lambda policy: policy.name)
def test_every_check_of_every_policy_is_seen_to_refuse(policy: Policy) -> None:
    said = [row.says for row in REFUSED if row.says != BY_ROLE and row.says]
    for check in policy.checks:
        text = f"'tenure-{policy.name}' with binding 'tenure-{policy.name}' denied request: {check.message}"
        assert check.message in ELSEWHERE or any(each in text for each in said) or check.details, check.message


@pytest.mark.parametrize("row", REFUSED, ids=lambda row: row.name)
def test_abuse_is_refused(world: World, row: Row) -> None:
    answer = asked(world, row, row.ask.path, row.ask.body)
    assert answer.status == row.code, answer.message
    assert row.says in answer.message


@pytest.mark.parametrize("row", ALLOWED, ids=lambda row: row.name)
def test_what_must_work_works(world: World, row: Row) -> None:
    path = row.ask.path if row.ask.method == "GET" else f"{row.ask.path}?dryRun=All"
    # The options of a deletion, where there are any, take the place of the query.
    body = {**row.ask.body, "dryRun": ["All"]} if row.ask.method == "DELETE" and row.ask.body else row.ask.body
    answer = asked(world, row, path, body)
    assert answer.ok, f"{answer.status} {answer.message}"


def asked(world: World, row: Row, path: str, body: Any) -> Answer:
    if row.ask.method == "PUT":  # in the place of what is there now
        version = world.plane.api.get(row.ask.path).must()["metadata"]["resourceVersion"]
        body = {**body, "metadata": {**body["metadata"], "resourceVersion": version}}
    return world.cast[row.who].call(row.ask.method, path, body, form=row.ask.form)


def test_a_table_of_refusals_that_changed_nothing(world: World) -> None:
    """Refused means refused: what was there before is there now, as it was."""
    api = world.plane.api
    leases = {each["metadata"]["name"]: each for each in api.get(LEASES).must()["items"]}
    assert sorted(leases) == ["closed", "open"]
    assert "status" not in leases["open"]
    assert [each["metadata"]["name"] for each in api.get(PODS).must()["items"]] == ["idle", "train-0"]
    assert api.get(path_of(head(5))).must()["spec"]["seq"] == 5
