"""What the operator wrote for one run, as a pattern from which the bare client writes the same for others.

Same kinds and same sizes: the run as it was submitted, its finalizer, leases, pods, Service and status, as the API
server holds them after the operator is done, less what the server itself adds.
"""

from __future__ import annotations

from typing import Any

import msgspec
from msgspec import Struct

from bench.kube.bare import Request, filled
from bench.kube.bed import Cluster, make_run
from tenure.api.meta import API_VERSION

Object = dict[str, Any]
_SERVERS = ("uid", "resourceVersion", "creationTimestamp", "generation", "managedFields")


class Pattern(Struct, frozen=True):
    """Bodies with blanks: the run's name, its uid, and (where it has but one) its node."""

    name: str
    uid: str
    nodes: tuple[str, ...]
    run: bytes
    finalizer: bytes
    status: bytes
    leases: tuple[bytes, ...]
    pods: tuple[bytes, ...]
    services: tuple[bytes, ...]

    @classmethod
    def of(cls, cluster: Cluster, name: str, gpus: int) -> Pattern:
        """As one run shows it; it must be the only one, and running."""
        found = cluster.api.get(cluster.path("runs", name)).must()
        return cls(
            name=name,
            uid=found["metadata"]["uid"],
            nodes=tuple(sorted({pod["spec"]["nodeName"] for pod in cluster.items("pods")})),
            run=msgspec.json.encode(make_run(name, gpus)),
            finalizer=msgspec.json.encode({"metadata": {"finalizers": found["metadata"]["finalizers"]}}),
            status=msgspec.json.encode({"status": found["status"]}),
            leases=_bodies(cluster, "leases", "Lease", name),
            pods=_bodies(cluster, "pods", "Pod", name),
            services=_bodies(cluster, "services", "Service", name),
        )

    def submit(self, cluster: Cluster, name: str) -> Request:
        return "POST", cluster.path("runs"), self._filled(self.run, name, "")

    def gang(self, cluster: Cluster, name: str, uid: str, node: int | None = None) -> list[Request]:
        """Leases, Service and pods; ``node``: on which instead."""
        kinds = (("leases", self.leases), ("services", self.services), ("pods", self.pods))
        return [
            ("POST", cluster.path(plural), self._filled(body, name, uid, node))
            for plural, bodies in kinds
            for body in bodies
        ]

    def finalize(self, cluster: Cluster, name: str) -> Request:
        return "PATCH", cluster.path("runs", name), self.finalizer

    def tell(self, cluster: Cluster, name: str, uid: str) -> Request:
        return "PATCH", f"{cluster.path('runs', name)}/status", self._filled(self.status, name, uid)

    def _filled(self, body: bytes, name: str, uid: str, node: int | None = None) -> bytes:
        assert len(name) == len(self.name), "same sizes"
        moved = [] if node is None else [(self.nodes[0].encode(), f"node-{node:04d}".encode())]
        return filled(body, [(self.name.encode(), name.encode()), (self.uid.encode(), uid.encode()), *moved])


def _bodies(cluster: Cluster, plural: str, kind: str, run: str) -> tuple[bytes, ...]:
    return tuple(
        msgspec.json.encode(_submitted(item, kind)) for item in cluster.items(plural) if run in item["metadata"]["name"]
    )


def _submitted(item: Object, kind: str) -> Object:
    meta = {key: value for key, value in item["metadata"].items() if key not in _SERVERS}
    version = item.get("apiVersion") or ("v1" if kind in ("Pod", "Service") else API_VERSION)
    spec = {key: value for key, value in item["spec"].items() if key not in ("clusterIPs", "ipFamilies")}
    return {"apiVersion": version, "kind": kind, "metadata": meta, "spec": spec}
