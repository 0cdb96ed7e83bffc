"""Objects in few words: a test spells out what it is about, and the rest is an ordinary fleet.

Everything has a default that works together: nodes of 8 GPUs at ``us-west``/``gpu-a``, in domain ``A``, and envelopes
that may be spent anywhere in ``us-west``. Times are offsets from ``START``.

>>> train = run("train", 16, owner="org:a", group=8, spares=2)
>>> train.spec.resources.total_gpus, train.spec.locality.group_gpus, train.spec.spares_per_group
(16, 8, 2)
>>> budget("a", envelope("west", 64, end="2h")).spec.envelopes[0].end
'2025-11-01T02:00:00Z'
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, Literal

from tenure.api.budget import AggregateCap, Budget, BudgetSpec, Envelope, Lending, PreActivation
from tenure.api.core import Namespace, Node, NodeCondition, NodeSpec, NodeStatus, Taint
from tenure.api.meta import OWNER_ANNOTATION, ObjectMeta
from tenure.api.run import Funding, Locality, Malleable, Resources, Run, RunSpec, Runtime
from tenure.units import Instant, format_time, parse_duration, parse_time

START: Instant = parse_time("2025-11-01T00:00:00Z")
FLAVOR = "H100-80GB"
FENCE = Taint(key="node.kubernetes.io/out-of-service", effect="NoExecute", value="nodeshutdown")
TEMPLATE: dict[str, Any] = {"spec": {"containers": [{"name": "main", "image": "busybox", "command": ["true"]}]}}


def at(offset: str) -> Instant:
    """An instant, as an offset from ``START``."""
    return START + parse_duration(offset)


def node(
    name: str,
    gpus: int | str = 8,
    *,
    region: str = "us-west",
    cluster: str = "gpu-a",
    domain: str = "A",
    rack: str = "",
    flavor: str = FLAVOR,
    labels: Mapping[str, str] | None = None,
    ready: bool = True,
    cordoned: bool = False,
    taints: Iterable[Taint] = (),
) -> Node:
    """A machine; ``labels`` replaces all labels that the other arguments would make."""
    usual = {"region": region, "cluster": cluster, "fabric.domain": domain, "gpu.flavor": flavor}
    if rack:
        usual["rack"] = rack
    return Node(
        metadata=ObjectMeta(name=name, labels=usual if labels is None else dict(labels)),
        spec=NodeSpec(unschedulable=cordoned, taints=tuple(taints)),
        status=NodeStatus(
            allocatable={"nvidia.com/gpu": str(gpus)},
            conditions=() if ready else (NodeCondition(type="Ready", status="False"),),
        ),
    )


def nodes(prefix: str, count: int, gpus: int = 8, **where: Any) -> list[Node]:
    """Machines ``prefix0``, ``prefix1``, ..."""
    return [node(f"{prefix}{index}", gpus, **where) for index in range(count)]


def envelope(
    name: str = "main",
    gpus: int = 64,
    *,
    hours: int | None = None,
    selector: Mapping[str, str] | None = None,
    start: str | None = None,
    end: str | None = None,
    sharing: Literal["Family", "None"] = "Family",
    early: bool = False,
    reservable: bool = True,
    lends_to: Iterable[str] | None = None,
    lends: int | None = None,
    lends_hours: int | None = None,
    flavor: str = FLAVOR,
) -> Envelope:
    """Money. ``lends_to`` makes it lend, at most ``lends`` GPUs and ``lends_hours`` GPU-hours."""
    lending = None
    if lends_to is not None:
        lending = Lending(allow=True, to=tuple(lends_to), max_concurrency=lends, max_gpu_hours=lends_hours)
    return Envelope(
        name=name,
        flavor=flavor,
        selector={"region": "us-west"} if selector is None else dict(selector),
        concurrency=gpus,
        max_gpu_hours=hours,
        start=None if start is None else format_time(at(start)),
        end=None if end is None else format_time(at(end)),
        sharing=sharing,
        pre_activation=PreActivation(allow_admission=early, allow_reservations=reservable),
        lending=lending,
    )


def cap(name: str, envelopes: Iterable[str], *, gpus: int | None = None, hours: int | None = None) -> AggregateCap:
    return AggregateCap(name=name, flavor=FLAVOR, envelopes=tuple(envelopes), max_concurrency=gpus, max_gpu_hours=hours)


def budget(
    name: str,
    *envelopes: Envelope,
    owner: str = "",
    parents: Iterable[str] = (),
    caps: Iterable[AggregateCap] = (),
) -> Budget:
    """A Budget of ``org:<name>`` unless another owner is given."""
    spec = BudgetSpec(
        owner=owner or f"org:{name}",
        envelopes=envelopes or (envelope(),),
        parents=tuple(parents),
        aggregate_caps=tuple(caps),
    )
    return Budget(metadata=ObjectMeta(name=name), spec=spec)


def run(
    name: str,
    gpus: int,
    *,
    owner: str = "",
    namespace: str = "lab",
    group: int | None = None,
    spares: int = 0,
    pod: int | None = None,
    spread: bool = True,
    where: Mapping[str, str] | None = None,
    elastic: Malleable | None = None,
    sponsors: Iterable[str] = (),
    borrow: bool | None = None,
    max_borrow: int | None = None,
    lasts: str | None = None,
    checkpoint: str | None = None,
    restarts: int = 0,
    opportunistic: bool = False,
    on_preemption: Literal["Fail", "Requeue"] = "Fail",
    template: dict[str, Any] | None = None,
    flavor: str = FLAVOR,
) -> Run:
    """A Run. It may borrow if it names sponsors."""
    sponsors = tuple(sponsors)
    return Run(
        metadata=ObjectMeta(name=name, namespace=namespace),
        spec=RunSpec(
            owner=owner,
            resources=Resources(gpu_type=flavor, total_gpus=gpus, gpus_per_pod=pod),
            locality=Locality(group_gpus=group, allow_cross_group_spread=spread, selector=dict(where or {})),
            spares_per_group=spares,
            malleable=elastic,
            funding=Funding(
                allow_borrow=bool(sponsors) if borrow is None else borrow,
                max_borrow_gpus=max_borrow,
                sponsors=sponsors,
            ),
            opportunistic=opportunistic,
            runtime=Runtime(
                expected_duration=lasts, checkpoint=checkpoint, max_restarts=restarts, on_preemption=on_preemption
            ),
            template=template or TEMPLATE,
        ),
    )


def elastic(low: int, high: int, step: int, *, desired: int | None = None) -> Malleable:
    return Malleable(min_total_gpus=low, max_total_gpus=high, step_gpus=step, desired_total_gpus=desired)


def namespace(name: str, *, owner: str = "") -> Namespace:
    notes = {OWNER_ANNOTATION: owner} if owner else {}
    return Namespace(metadata=ObjectMeta(name=name, annotations=notes))
