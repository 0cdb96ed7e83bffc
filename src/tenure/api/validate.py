"""Whether an object is what it says: its shape, and the rules that its fields have among themselves (SPEC 2).

``validate`` answers every error of one object; rules that need other objects are in ``relations``. Decoding
has checked the shape already and calls ``check_rules``."""

from __future__ import annotations

from tenure.api.budget import Budget
from tenure.api.budget_rules import check_budget
from tenure.api.compile import shape_of
from tenure.api.core import Namespace, Node
from tenure.api.errors import Faults, FieldError, escape, show
from tenure.api.formats import DNS_LABEL, LABEL_LENGTH_MAX, instant_of
from tenure.api.lease import Lease
from tenure.api.meta import OWNER_ANNOTATION, ObjectMeta, to_wire
from tenure.api.owners import is_owner
from tenure.api.policy import Policy
from tenure.api.reservation import Reservation
from tenure.api.run import Run
from tenure.api.run_rules import check_run
from tenure.units import parse_duration

ApiObject = Budget | Run | Reservation | Lease | Namespace | Node

NAMESPACED = frozenset({"Run", "Reservation", "Lease"})
DEFAULT_NAMESPACE = "default"
NAMESPACE_FIX = "write up to 63 of a-z, 0-9 and -, beginning and ending with a letter or digit"
_SHORT_NAMED = frozenset({"Run", "Namespace", "Node"})
"""Their names go into labels, and into the names of leases, which have 253 characters in all."""
_TOPOLOGY = frozenset({"region", "cluster", "domain", "rack", "flavor"})
_POSITIVE = ("grow_interval", "retry_backoff")
_POLICY_DURATIONS = (
    "activation_lead", "budget_grace", "lookahead", "grow_interval", "patience", "unready_debounce",
    "retry_backoff", "retry_backoff_max", "bind_delay", "stop_delay",
)  # fmt: skip


def validate(obj: ApiObject, *, simulated: bool = False) -> list[FieldError]:
    """Every error of one object. The simulator alone lets a Run do without a template."""
    faults = Faults(object_name(obj.kind, obj.metadata.namespace, obj.metadata.name))
    shape_of(type(obj)).read(to_wire(obj), (), faults)
    check_rules(obj, faults, simulated=simulated)
    return faults.errors


def object_name(kind: str, namespace: str, name: str) -> str:
    """``Run/namespace/name``, or ``Budget/name``: how events and errors name an object. Safe to print."""
    where = f"{escape(namespace or DEFAULT_NAMESPACE)}/" if kind in NAMESPACED else ""
    return f"{kind}/{where}{escape(name)}"


def check_rules(obj: ApiObject, faults: Faults, *, simulated: bool) -> None:
    """The rules of an object whose shape has been checked."""
    _check_metadata(obj.kind, obj.metadata, faults)
    if isinstance(obj, Run):
        check_run(obj, faults, simulated=simulated)
    elif isinstance(obj, Budget):
        check_budget(obj, faults)
    elif isinstance(obj, Namespace):
        _check_namespace(obj, faults)
    elif isinstance(obj, Lease):
        _check_lease(obj, faults)


def check_policy(policy: Policy, *, simulated: bool = False) -> list[FieldError]:
    """Every error of a policy.

    Only the simulator has a ``drawSecret``: elsewhere it would be known in advance.
    """
    faults = Faults("policy")
    shape_of(Policy).read(to_wire(policy), (), faults)
    check_policy_rules(policy, faults, simulated=simulated)
    return faults.errors


def check_policy_rules(policy: Policy, faults: Faults, *, simulated: bool) -> None:
    lengths = {name: _length(getattr(policy, name)) for name in _POLICY_DURATIONS}
    shape = {each.python: each.wire for each in shape_of(Policy).fields}
    for name in _POSITIVE:
        if lengths[name] == 0:
            faults.add((shape[name],), "not longer than 0", "write a length such as 1s", value=show("0s"))
    first, most = lengths["retry_backoff"], lengths["retry_backoff_max"]
    if first is not None and most is not None and most < first:
        problem = f"shorter than retryBackoff, {policy.retry_backoff}"
        faults.add(("retryBackoffMax",), problem, "write a longer time", value=show(policy.retry_backoff_max))
    if len(set(policy.notices)) < len(policy.notices):
        faults.add(("notices",), "a percentage listed twice", "leave one out", value=show(list(policy.notices)))
    if policy.draw_secret and not simulated:
        faults.add(("drawSecret",), "only the simulator has one", "leave it out")
    for key in sorted(set(policy.topology_labels) - _TOPOLOGY):
        faults.add(("topologyLabels", key), "unknown key", f"the keys are {', '.join(sorted(_TOPOLOGY))}")


def _length(text: str) -> int | None:
    try:
        return parse_duration(text[:40])
    except ValueError:
        return None


def _check_metadata(kind: str, metadata: ObjectMeta, faults: Faults) -> None:
    if kind not in NAMESPACED and metadata.namespace:
        at, fix = ("metadata", "namespace"), "leave it out"
        faults.add(at, f"a {kind} has no namespace", fix, value=show(metadata.namespace))
    if metadata.namespace and not DNS_LABEL.fullmatch(metadata.namespace):
        faults.add(("metadata", "namespace"), "not a namespace's name", NAMESPACE_FIX, value=show(metadata.namespace))
    if kind in _SHORT_NAMED and len(metadata.name) > LABEL_LENGTH_MAX:
        fix = f"write at most {LABEL_LENGTH_MAX}"
        faults.add(("metadata", "name"), f"{len(metadata.name)} characters", fix, value=show(metadata.name))


def _check_namespace(namespace: Namespace, faults: Faults) -> None:
    if not DNS_LABEL.fullmatch(namespace.metadata.name):
        faults.add(("metadata", "name"), "not a namespace's name", NAMESPACE_FIX, value=show(namespace.metadata.name))
    owner = namespace.metadata.annotations.get(OWNER_ANNOTATION)
    if owner is not None and not is_owner(owner):
        fix = "write segments of a-z, 0-9 and - joined by colons, such as org:ai:rai"
        faults.add(("metadata", "annotations", OWNER_ANNOTATION), "not a valid owner", fix, value=show(owner))


def _check_lease(lease: Lease, faults: Faults) -> None:
    status, gpus = lease.status, lease.spec.slice.gpus
    if len(set(gpus)) < len(gpus):
        faults.add(("spec", "slice", "gpus"), "an ordinal listed twice", "list each once", value=show(list(gpus)))
    for field, value in (("endTime", status.end_time), ("closureReason", status.closure_reason)):
        if status.closed and value is None:
            faults.add(("status", field), "a closed lease without one", "give it, or leave closed out")
        if not status.closed and value is not None:
            faults.add(("status", field), "an open lease with one", "set closed: true as well", value=show(value))
    start, end = lease.spec.interval.start, status.end_time
    began, ended = instant_of(start), instant_of(end or "")
    if began is not None and ended is not None and ended < began:
        faults.add(("status", "endTime"), "before the lease began", f"write {start} or later", value=show(end))
