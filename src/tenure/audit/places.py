"""What a node is, from its labels, taints and conditions: the auditor's own reading of SPEC 5 and 9.

A label is looked up under the key that the policy configures, then under the usual one, then under the
well-known one:

    region   region          topology.kubernetes.io/region
    cluster  cluster         topology.kubernetes.io/zone
    domain   fabric.domain
    rack     rack            topology.kubernetes.io/rack
    flavor   gpu.flavor      nvidia.com/gpu.product

Selectors may say the usual key even where a node has only another of the three.

A node takes work when it is neither cordoned, unready nor tainted. It has failed when it was deleted, tainted
out-of-service or, where the policy says so, unready for longer than the debounce.
"""

from __future__ import annotations

from typing import NamedTuple

from tenure.api.core import Node
from tenure.api.meta import GROUP, Labels
from tenure.api.policy import Policy
from tenure.units import Instant, parse_duration

OUT_OF_SERVICE = "node.kubernetes.io/out-of-service"
OWN_TAINT = f"{GROUP}/managed"
"""The taint that keeps other people's pods away from managed nodes; ours ignore it."""
LABEL_KEYS: dict[str, tuple[str, ...]] = {
    "region": ("region", "topology.kubernetes.io/region"),
    "cluster": ("cluster", "topology.kubernetes.io/zone"),
    "domain": ("fabric.domain",),
    "rack": ("rack", "topology.kubernetes.io/rack"),
    "flavor": ("gpu.flavor", "nvidia.com/gpu.product"),
}


class Place(NamedTuple):
    """The domain of a node: what a group may not cross. Empty strings where labels are missing."""

    region: str = ""
    cluster: str = ""
    domain: str = ""

    @property
    def is_known(self) -> bool:
        return bool(self.region and self.cluster and self.domain)

    def __str__(self) -> str:
        return "/".join(self)


NOWHERE = Place()


def label_of(node: Node, aspect: str, policy: Policy) -> str:
    """The region, cluster, domain, rack or flavor of a node; empty if no label says it."""
    labels = node.metadata.labels
    for key in (policy.topology_labels.get(aspect, ""), *LABEL_KEYS[aspect]):
        if value := labels.get(key):
            return value
    return ""


def place_of(node: Node, policy: Policy) -> Place:
    return Place(
        region=label_of(node, "region", policy),
        cluster=label_of(node, "cluster", policy),
        domain=label_of(node, "domain", policy),
    )


def selected(selector: Labels, node: Node, policy: Policy) -> bool:
    """Whether the node has each label that the selector asks for, under its key or one standing for it."""
    if not selector:
        return True
    usual = {keys[0]: label_of(node, aspect, policy) for aspect, keys in LABEL_KEYS.items()}
    labels = {**usual, **node.metadata.labels}
    return all(labels.get(key) == value for key, value in selector.items())


def capacity_of(node: Node, policy: Policy) -> int:
    """Allocatable GPUs; zero where the count cannot be read."""
    text = node.status.allocatable.get(policy.gpu_resource, "0")
    return int(text) if text.isascii() and text.isdigit() else 0


def is_ready(node: Node) -> bool:
    """A node that does not say is ready."""
    return all(condition.status == "True" for condition in node.status.conditions if condition.type == "Ready")


def refusal(node: Node) -> str:
    """Why nothing new may be placed here; empty if nothing stands against it."""
    if node.spec.unschedulable:
        return "cordoned"
    if not is_ready(node):
        return "unready"
    for taint in node.spec.taints:
        if taint.key != OWN_TAINT and taint.effect != "PreferNoSchedule":
            return f"tainted {taint.key}"
    return ""


def has_failed(node: Node | None, *, unready_since: Instant | None, policy: Policy, now: Instant) -> bool:
    """Whether nothing on the node runs any more."""
    if node is None or any(taint.key == OUT_OF_SERVICE for taint in node.spec.taints):
        return True
    if not policy.unready_is_failure or unready_since is None:
        return False
    return now - unready_since >= parse_duration(policy.unready_debounce)
