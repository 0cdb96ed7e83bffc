"""The security anchor (SPEC 12): ValidatingAdmissionPolicy objects, which the API server itself enforces.

They hold whether or not the operator and its webhook are up, and whatever roles somebody was given: also an
administrator forges no lease. The rules of pods, and what a template may carry, are in ``policies_pods``; here are
those of our own objects and of namespaces. Every policy fails closed: where its CEL cannot be evaluated, the answer
is no.

What policies cannot do is guard themselves: the API server exempts them from admission, so that a bad one can always be
removed. ``tenure.kube.guard`` notices.
"""

from __future__ import annotations

from typing import Final

from tenure.api.formats import FORMATS
from tenure.api.meta import GROUP, OWNER_ANNOTATION
from tenure.api.owners import OWNER_LENGTH_MAX, SEGMENT_COUNT_MAX
from tenure.kube.marks import RESOLVE
from tenure.kube.policies_pods import pod_policies
from tenure.kube.policy import BOUND, PART, Check, Policy, Watched, is_operator, may_set_owner
from tenure.kube.rbac import RESOLVES
from tenure.kube.system import MARK, System

REMOVE_ANNOTATION: Final = f"{GROUP}/may-be-removed"
"""What a definition must carry (as "yes") before it can be deleted, and everything of its kind with it."""


def policies(system: System) -> list[Policy]:
    """All policies, for one installation.

    Leases come last: where they are guarded, the API server knows of the rest as well (``guard.is_enforced``).
    """
    return [
        reservations(system),
        ledger(system),
        budgets(system),
        runs(system),
        owners(),
        definitions(),
        *pod_policies(system),
        leases(system),
    ]


def leases(system: System) -> Policy:
    """Leases are opened and closed by the operator alone, and once (SPEC 2, 12)."""
    over = "oldObject.?status.?closed.orValue(false)"
    return _record(
        system,
        "leases",
        Check(
            holds=f"request.operation != 'UPDATE' || !{over} || object.?status == oldObject.?status",
            message="a lease that is closed never changes",
        ),
        Check(
            holds=f"request.operation != 'DELETE' || {over}",
            message="an open lease is never deleted: it closes when its GPUs are free",
        ),
    )


def reservations(system: System) -> Policy:
    """Reservations are the scheduler's promises: nobody else makes, moves or withdraws one."""
    over = "oldObject.?status.?state.orValue('') in ['Released', 'Canceled']"
    return _record(
        system,
        "reservations",
        Check(
            holds=f"request.operation != 'DELETE' || {is_operator(system)} || {over}",
            message="a promise that stands is withdrawn by the Tenure operator alone",
        ),
    )


def _record(system: System, plural: str, *also: Check) -> Policy:
    """What the operator alone writes. A namespace that goes may take it along, within what is checked besides."""
    going = "request.operation == 'DELETE' && has(namespaceObject.metadata.deletionTimestamp)"
    return Policy(
        name=plural,
        watched=(Watched(resources=(plural, f"{plural}/status"), operations=("CREATE", "UPDATE", "DELETE")),),
        checks=(
            Check(holds=f"{is_operator(system)} || ({going})", message=f"only the Tenure operator writes {plural}"),
            Check(
                holds="request.operation != 'UPDATE' || object.spec == oldObject.spec",
                message=f"the spec of {plural} never changes",
            ),
            *also,
        ),
    )


def ledger(system: System) -> Policy:
    """The ledger is the operator's: entries never change, and its head never goes back."""
    head = "request.resource.resource == 'ledgerheads'"
    return Policy(
        name="ledger",
        watched=(Watched(resources=("ledgerentries", "ledgerheads"), operations=("CREATE", "UPDATE", "DELETE")),),
        checks=(
            Check(holds=is_operator(system), message="only the Tenure operator writes the ledger"),
            Check(
                holds=f"request.operation != 'UPDATE' || {head} || object.spec == oldObject.spec",
                message="an entry of the ledger never changes",
            ),
            Check(
                holds=f"request.operation != 'UPDATE' || !({head}) || object.spec.seq >= oldObject.spec.seq",
                message="the ledger's head never goes back",
            ),
            Check(
                holds=f"request.operation != 'DELETE' || !({head})",
                message="the ledger's head is never deleted",
            ),
        ),
    )


def budgets(system: System) -> Policy:
    """Who owns a Budget and which family it is in is for administrators to say; its status for the operator."""
    told = may_set_owner("budgets", "object.metadata.name", GROUP)
    parents = "object.spec.?parents.orValue([]) == oldObject.spec.?parents.orValue([])"
    kept = f"(request.operation == 'UPDATE' && object.spec.owner == oldObject.spec.owner && {parents})"
    return Policy(
        name="budgets",
        watched=(Watched(resources=("budgets", "budgets/status")),),
        checks=(
            _status(system, "a Budget"),
            Check(
                holds=f"{PART} == 'status' || {kept} || {told}",
                message="to create a Budget, or to change its owner or parents, takes the verb setowner on budgets "
                "(ClusterRole tenure-administrator); a budget owner edits the envelopes",
            ),
        ),
    )


def runs(system: System) -> Policy:
    """A Run claims its namespace's owner or one below it; its status, and our finalizer, are the operator's."""
    unbound = f"variables.claimed != '' && {may_set_owner('namespaces', 'request.namespace')}"
    below = "variables.claimed in ['', variables.bound] || variables.claimed.startsWith(variables.bound + ':')"
    same = "(request.operation == 'UPDATE' && variables.claimed == oldObject.spec.?owner.orValue(''))"
    wish = f"metadata.?annotations[?'{RESOLVE}']"
    resolves = (
        f"authorizer.group('{GROUP}').resource('runs').namespace(request.namespace)"
        f".name(object.metadata.name).check('{RESOLVES}').allowed()"
    )
    ours = f"oldObject.metadata.?finalizers.orValue([]).filter(f, f.startsWith('{MARK}'))"
    return Policy(
        name="runs",
        watched=(Watched(resources=("runs", "runs/status")),),
        variables={
            "bound": BOUND,
            "claimed": "object.spec.?owner.orValue('')",
            "asked": f"oldObject == null ? optional.none() : oldObject.{wish}",
            "asks": f"object.{wish}",
        },
        checks=(
            _status(system, "a Run"),
            Check(
                holds=f"{PART} == 'status' || {same} || variables.bound != '' || ({unbound})",
                message=f"this namespace is bound to no owner: an administrator annotates it with {OWNER_ANNOTATION}",
            ),
            Check(
                holds=f"{PART} == 'status' || {same} || variables.bound == '' || {below}",
                message="spec.owner is neither the owner that the namespace is bound to nor below it",
                details="'spec.owner is ' + variables.claimed + ': not ' + variables.bound + "
                "', to which the namespace is bound, nor below it'",
            ),
            Check(
                holds=f"variables.asked == variables.asks || {is_operator(system)} || {resolves}",
                message=f"to set {RESOLVE} takes the verb resolve on runs (ClusterRole tenure-administrator)",
            ),
            Check(
                holds=f"request.operation != 'UPDATE' || {is_operator(system)} || "
                f"{ours}.all(f, f in object.metadata.?finalizers.orValue([]))",
                message="only the Tenure operator removes its finalizer: it does so when the Run's leases are closed",
            ),
        ),
    )


def _status(system: System, what: str) -> Check:
    return Check(
        holds=f"{PART} != 'status' || {is_operator(system)}",
        message=f"only the Tenure operator writes the status of {what}",
    )


def owners() -> Policy:
    """The annotation that binds a namespace to an owner is set by administrators, and is an owner."""
    key = f"metadata.?annotations[?'{OWNER_ANNOTATION}']"
    segments = f"size(variables.owner.split(':')) <= {SEGMENT_COUNT_MAX}"
    grammar = f"size(variables.owner) <= {OWNER_LENGTH_MAX} && {segments} && variables.owner.matches('^({_OWNER})$')"
    resources = ("namespaces", "namespaces/status", "namespaces/finalize")
    return Policy(
        name="owners",
        watched=(Watched(group="", resources=resources),),
        variables={
            "before": f"oldObject == null ? optional.none() : oldObject.{key}",
            "after": f"object.{key}",
            "owner": "variables.after.orValue('')",
        },
        checks=(
            Check(
                holds=f"variables.before == variables.after || {may_set_owner('namespaces', 'object.metadata.name')}",
                message=f"to set {OWNER_ANNOTATION} takes the verb setowner on namespaces "
                "(ClusterRole tenure-administrator)",
            ),
            Check(
                holds=f"variables.before == variables.after || !variables.after.hasValue() || ({grammar})",
                message=f"{OWNER_ANNOTATION} is no owner: write {FORMATS['owner'].right}",
                reason="Invalid",
            ),
        ),
    )


_OWNER: Final = FORMATS["owner"].pattern


def definitions() -> Policy:
    """With a definition goes every object of its kind: the ledger is not deleted by a slip."""
    marked = f"oldObject.metadata.?annotations[?'{REMOVE_ANNOTATION}'].orValue('') == 'yes'"
    watched = Watched(group="apiextensions.k8s.io", resources=("customresourcedefinitions",), operations=("DELETE",))
    return Policy(
        name="definitions",
        watched=(watched,),
        unless={"not-ours": f"!oldObject.metadata.name.endsWith('.{GROUP}')"},
        checks=(
            Check(
                holds=marked,
                message="with this definition every object of its kind is deleted, the books with them. To go on, "
                f"annotate it with {REMOVE_ANNOTATION}=yes",
            ),
        ),
    )
