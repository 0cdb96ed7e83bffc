"""Kubernetes' own objects as far as Tenure reads or writes them: Namespace, Node, Pod."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from msgspec import Meta

from tenure.api.meta import LabelKey, LabelValue, ObjectMeta, Quantity, Record, Word, says


class Namespace(Record, frozen=True, kw_only=True):
    """A namespace. Its annotation `rq.davidlangworthy.io/owner` binds it to an owner."""

    api_version: Literal["v1"] = "v1"
    kind: Literal["Namespace"] = "Namespace"
    metadata: ObjectMeta


class Taint(Record, frozen=True, kw_only=True):
    """A reason to keep pods away."""

    key: Annotated[LabelKey, says("The taint's key.")]
    effect: Annotated[Literal["NoSchedule", "PreferNoSchedule", "NoExecute"], says("What it does.")]
    value: Annotated[LabelValue, says("The taint's value.")] = ""


class NodeSpec(Record, frozen=True, kw_only=True):
    """What operators say about the node."""

    unschedulable: Annotated[bool, says("True: cordoned. It takes nothing new.")] = False
    taints: Annotated[tuple[Taint, ...], Meta(max_length=64), says("Tainted nodes take nothing new.")] = ()


class NodeCondition(Record, frozen=True, kw_only=True):
    """One condition of a node; only Ready matters here."""

    type: Annotated[Word, says("What it is about.")]
    status: Annotated[Literal["True", "False", "Unknown"], says("Whether it is so.")]
    reason: Annotated[str, says("Why.")] = ""


class NodeStatus(Record, frozen=True, kw_only=True):
    """What the node says about itself."""

    allocatable: Annotated[
        dict[LabelKey, Quantity],
        Meta(max_length=64),
        says("What pods may use; `nvidia.com/gpu` counts the GPUs."),
    ] = {}
    conditions: Annotated[tuple[NodeCondition, ...], Meta(max_length=64), says("Its conditions.")] = ()


class Node(Record, frozen=True, kw_only=True):
    """A machine. Region, cluster, fabric domain, rack and GPU flavor come from its labels."""

    api_version: Literal["v1"] = "v1"
    kind: Literal["Node"] = "Node"
    metadata: ObjectMeta
    spec: NodeSpec = NodeSpec()
    status: NodeStatus = NodeStatus()


class PodStatus(Record, frozen=True, kw_only=True):
    """How the pod stands."""

    phase: Annotated[Literal["Pending", "Running", "Succeeded", "Failed"], says("Where it is in its life.")] = "Pending"
    reason: Annotated[str, says("Why, as a code.")] = ""
    message: Annotated[str, says("Why, in a sentence.")] = ""
    exit_code: Annotated[int | None, says("How its command ended.")] = None


class Pod(Record, frozen=True, kw_only=True):
    """A pod as it is shown: the template of its Run with the placement and the rendezvous filled in."""

    api_version: Literal["v1"] = "v1"
    kind: Literal["Pod"] = "Pod"
    metadata: ObjectMeta
    spec: dict[str, Any]
    status: PodStatus = PodStatus()
