"""Admission policies about pods (SPEC 12): no way to a GPU in a managed namespace but through a Run.

A namespace is managed when it is bound to an owner. In it, only the operator creates pods that ask for GPUs, name their
node, tolerate the taint of managed nodes, or carry our marks; the cluster's own scheduler may bind what is left. The
operator makes pods from what tenants wrote, so what reaches devices past the kubelet's accounting
(``NVIDIA_VISIBLE_DEVICES``, privileged containers, device folders of the host, resource claims) is refused in templates
of Runs, and in pods whoever creates them.

kube-system is never looked into: a mistake here must not keep the control plane from starting.
"""

from __future__ import annotations

from typing import Final

from tenure.kube.policy import BOUND, PART, Check, Policy, Watched, is_operator
from tenure.kube.system import MARK, System

VISIBLE_DEVICES: Final = "NVIDIA_VISIBLE_DEVICES"
SPARED: Final = ("kube-system",)
SCHEDULER: Final = "system:kube-scheduler"
CONTROLLERS: Final = "system:kube-controller-manager"
CONTROL_PLANE: Final = ("system:nodes", "system:masters", "system:serviceaccounts:kube-system")

MANAGED: Final = f"{BOUND} != ''"
_CONTAINERS = "object.spec.containers + object.spec.?initContainers.orValue([])"
_ROOT = "variables.template.spec"
_TEMPLATE_CONTAINERS = f"{_ROOT}.containers + {_ROOT}.?initContainers.orValue([])"


def pod_policies(system: System) -> list[Policy]:
    return [
        templates(system),
        pods(system),
        devices(),
        bindings(system),
        debugging(system),
        marks(system),
        endings(system),
    ]


def pods(system: System) -> Policy:
    """GPUs, nodes and managed machines are the operator's to hand out."""
    ours = (
        "variables.tolerations.filter(t, t.?key.orValue('') == '' || "
        f"t.?key.orValue('').startsWith('{MARK}')).all(t, t in variables.tolerated)"
    )
    return Policy(
        name="pods",
        watched=(Watched(group="", resources=("pods",)),),
        spared=SPARED,
        unless={"operator": is_operator(system)},
        variables={
            "managed": MANAGED,
            "containers": _CONTAINERS,
            "tolerations": "object.spec.?tolerations.orValue([])",
            "tolerated": "oldObject == null ? [] : oldObject.spec.?tolerations.orValue([])",
        },
        checks=(
            Check(
                holds=f"!variables.managed || request.operation != 'CREATE' || "
                f"!variables.containers.exists(c, {_asks_gpus(system, 'c')})",
                message="in a namespace that Tenure manages, GPUs are had by submitting a Run, not by a bare pod",
            ),
            Check(
                holds="!variables.managed || request.operation != 'CREATE' || object.spec.?nodeName.orValue('') == ''",
                message="in a namespace that Tenure manages, only the operator gives a pod its nodeName",
            ),
            Check(
                holds=f"!variables.managed || {ours}",
                message="in a namespace that Tenure manages, only the operator's pods tolerate the taint of its nodes",
            ),
        ),
    )


def _asks_gpus(system: System, container: str) -> str:
    """Whether a container asks for GPUs, whole or sliced, as a request or a limit."""
    is_gpu = f"k == '{system.gpu_resource}' || k.startsWith('nvidia.com/')"
    return " || ".join(
        f"{container}.?resources.?{field}.orValue({{}}).exists(k, {is_gpu})" for field in ("requests", "limits")
    )


def _asks_slices(system: System, container: str) -> str:
    """Whether a container asks for GPUs under another name than the one that leases count."""
    is_slice = f"k != '{system.gpu_resource}' && k.startsWith('nvidia.com/')"
    return " || ".join(
        f"{container}.?resources.?{field}.orValue({{}}).exists(k, {is_slice})" for field in ("requests", "limits")
    )


def devices() -> Policy:
    """No device past the kubelet's accounting, whoever creates the pod: the operator's pods come from templates."""
    return Policy(
        name="devices",
        watched=(Watched(group="", resources=("pods",), operations=("CREATE",)),),
        spared=SPARED,
        variables={"managed": MANAGED, "containers": _CONTAINERS},
        checks=_device_checks("object.spec", unless="!variables.managed || "),
    )


def templates(system: System) -> Policy:
    """What a Run's template may not carry: what only the operator may say, and what reaches devices by itself."""
    metadata = "variables.template.?metadata"
    marked = " || ".join(
        f"{metadata}.?{field}.orValue({{}}).exists(k, k.startsWith('{MARK}'))" for field in ("labels", "annotations")
    )
    return Policy(
        name="templates",
        watched=(Watched(resources=("runs",)),),
        unless={"same": "request.operation == 'UPDATE' && object.spec == oldObject.spec"},
        # The schema leaves a template open, so its fields have no types to check.
        variables={"template": "dyn(object.spec.template)", "containers": _TEMPLATE_CONTAINERS},
        checks=(
            Check(
                holds=f"{_ROOT}.?nodeName.orValue('') == ''",
                message="the scheduler chooses nodes: spec.template.spec.nodeName must be left out",
            ),
            Check(
                holds=f"!({marked})",
                message=f"spec.template.metadata carries labels or annotations that begin {MARK}, which are Tenure's",
            ),
            Check(
                holds=f"!{_ROOT}.?initContainers.orValue([]).exists(c, {_asks_gpus(system, 'c')})",
                message="GPUs are asked for in spec.resources; an init container of spec.template cannot have its own",
            ),
            Check(
                holds=f"!variables.containers.exists(c, {_asks_slices(system, 'c')})",
                message=f"spec.template asks for GPUs under another name than {system.gpu_resource}: nobody would pay",
            ),
            *_device_checks(_ROOT),
        ),
    )


def _device_checks(root: str, *, unless: str = "") -> tuple[Check, ...]:
    env = f"e.name != '{VISIBLE_DEVICES}' || e.?value.orValue('') in ['none', 'void']"
    return (
        Check(
            holds=f"{unless}variables.containers.all(c, c.?env.orValue([]).all(e, {env}))",
            message=f"{VISIBLE_DEVICES} would show a container GPUs that nobody leased: leave it out",
        ),
        Check(
            holds=f"{unless}!variables.containers.exists(c, c.?securityContext.?privileged.orValue(false))",
            message="a privileged container sees every GPU of its node, leased or not",
        ),
        Check(
            holds=f"{unless}!{root}.?volumes.orValue([]).exists(v, has(v.hostPath) && {_reaches_devices('v')})",
            message="this hostPath reaches devices or the node's own files: GPUs that nobody leased, too",
        ),
        Check(
            holds=f"{unless}size({root}.?resourceClaims.orValue([])) == 0",
            message="resource claims may hand out GPUs past the ledger: leave resourceClaims out",
        ),
    )


def _reaches_devices(volume: str) -> str:
    """Whether a hostPath leads to devices, processes, or sockets of the kubelet or the runtime, however spelled."""
    path = f"{volume}.hostPath.path.split('/').filter(s, s != '' && s != '.')"
    first = f"{path}[0] in ['proc', 'sys', 'run', 'etc', 'boot']"
    device = f"({path}[0] == 'dev' && (size({path}) == 1 || !({path}[1] in ['shm', 'infiniband'])))"
    various = f"({path}[0] == 'var' && (size({path}) == 1 || {path}[1] in ['run', 'lib']))"
    return f"(size({path}) == 0 || {first} || {device} || {various})"


def bindings(system: System) -> Policy:
    """A pod is put on a node by the operator, or by the cluster's scheduler, who never sees a pod with GPUs here."""
    return Policy(
        name="bindings",
        watched=(Watched(group="", resources=("pods/binding", "bindings"), operations=("CREATE",)),),
        spared=SPARED,
        checks=(
            Check(
                holds=f"{is_operator(system)} || request.userInfo.username == '{SCHEDULER}' || !({MANAGED})",
                message="in a namespace that Tenure manages, only the operator and the cluster's scheduler bind pods",
            ),
        ),
    )


def debugging(system: System) -> Policy:
    """An ephemeral container could be given the devices that its pod was not."""
    return Policy(
        name="debugging",
        watched=(Watched(group="", resources=("pods/ephemeralcontainers",), operations=("UPDATE",)),),
        spared=SPARED,
        checks=(
            Check(
                holds=f"{is_operator(system)} || !({MANAGED})",
                message="in a namespace that Tenure manages, pods get no ephemeral containers: use kubectl exec",
            ),
        ),
    )


def marks(system: System) -> Policy:
    """Our labels, annotations and finalizers say what a pod is to the scheduler: nobody else puts or removes them."""
    held = {field: f"metadata.?{field}.orValue({{}})" for field in ("labels", "annotations")}
    variables = {field: f"object.{path}" for field, path in held.items()}
    variables |= {f"old_{field}": f"oldObject == null ? {{}} : oldObject.{path}" for field, path in held.items()}
    resources = ("pods", "pods/status", "pods/resize", "services", "services/status")
    return Policy(
        name="marks",
        watched=(Watched(group="", resources=resources),),
        spared=SPARED,
        unless={"operator": is_operator(system)},
        variables={
            **variables,
            "finalizers": "object.metadata.?finalizers.orValue([])",
            "old_finalizers": "oldObject == null ? [] : oldObject.metadata.?finalizers.orValue([])",
        },
        checks=(
            *(
                Check(
                    holds=_kept(f"variables.{field}", f"variables.old_{field}"),
                    message=f"{field} that begin {MARK} are Tenure's: only the operator sets, changes or removes them",
                )
                for field in held
            ),
            Check(
                holds=f"variables.finalizers.filter(f, f.startsWith('{MARK}')) == "
                f"variables.old_finalizers.filter(f, f.startsWith('{MARK}'))",
                message=f"finalizers that begin {MARK} are Tenure's: only the operator sets or removes them",
            ),
        ),
    )


def _kept(new: str, old: str) -> str:
    ours = f"k.startsWith('{MARK}')"
    return f"{new}.all(k, !{ours} || (k in {old} && {old}[k] == {new}[k])) && {old}.all(k, !{ours} || k in {new})"


def endings(system: System) -> Policy:
    """A lease ends when its pod is gone: whoever could say so falsely would use GPUs that nobody pays.

    So the status of our pods is written by those who know (the node, the control plane, whoever may write the status of
    nodes), and only they delete one at once, without waiting for its node.
    """
    knows = (
        f"{is_operator(system)} || "
        f"request.userInfo.groups.exists(g, g in {list(CONTROL_PLANE)}) || "
        f"request.userInfo.username in {[SCHEDULER, CONTROLLERS]} || "
        "authorizer.group('').resource('nodes').subresource('status').check('patch').allowed()"
    )
    ours = f"oldObject.metadata.?labels.orValue({{}}).exists(k, k.startsWith('{MARK}'))"
    grace = "request.?options.?gracePeriodSeconds.orValue(oldObject.spec.?terminationGracePeriodSeconds.orValue(30))"
    finished = "oldObject.?status.?phase.orValue('') in ['Succeeded', 'Failed']"
    return Policy(
        name="endings",
        watched=(
            Watched(group="", resources=("pods/status",), operations=("UPDATE",)),
            Watched(group="", resources=("pods",), operations=("DELETE",)),
            Watched(group="", resources=("pods/eviction",), operations=("CREATE",)),
        ),
        spared=SPARED,
        variables={"knows": knows},
        checks=(
            Check(
                holds=f"{PART} != 'status' || !({ours}) || variables.knows",
                message="how a pod of a Run stands is said by its node: only the control plane writes its status",
            ),
            Check(
                holds=f"request.operation != 'DELETE' || !({ours}) || {grace} > 0 || {finished} || variables.knows",
                message="a pod of a Run is gone when its node says so: delete it without --force, or cancel the Run",
            ),
            Check(
                holds=f"{PART} != 'eviction' || !({MANAGED}) || "
                "dyn(object).?deleteOptions.?gracePeriodSeconds.orValue(30) > 0 || variables.knows",
                message="a pod of a Run is gone when its node says so: evict it with a grace period",
            ),
        ),
    )
