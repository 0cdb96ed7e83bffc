"""Who Tenure is in a cluster: its namespace, its service account, and the marks that it puts on what it writes.

Everything that is installed is made for one ``System``: admission policies name the operator's user, roles are bound to
its account, webhooks call its service. One cluster has one.
"""

from __future__ import annotations

from typing import Any, Final

from msgspec import Struct

from tenure.api.meta import GROUP
from tenure.kube.resources import SYSTEM_NAMESPACE, Resource

MARK: Final = f"{GROUP}/"
"""Labels, annotations, finalizers and taints that begin so are Tenure's."""
LABELS: Final = {"app.kubernetes.io/part-of": "tenure", "app.kubernetes.io/managed-by": "tenure"}
WEBHOOK_PORT: Final = 9443


class System(Struct, frozen=True, kw_only=True):
    """One installation."""

    namespace: str = SYSTEM_NAMESPACE
    account: str = "tenure-operator"
    service: str = "tenure-webhook"
    gpu_resource: str = "nvidia.com/gpu"
    """The extended resource that counts GPUs: the policy key `gpuResource`."""
    webhook_url: str = ""
    """Where the API server reaches the webhook, if not through the service: an operator outside of the cluster."""

    @property
    def user(self) -> str:
        """How the API server names the operator.

        >>> System().user
        'system:serviceaccount:tenure-system:tenure-operator'
        """
        return f"system:serviceaccount:{self.namespace}:{self.account}"

    @property
    def webhook_host(self) -> str:
        """The name that the webhook's certificate is for, when it is called through its service."""
        return f"{self.service}.{self.namespace}.svc"


def made(resource: Resource, name: str, namespace: str | None = None, **rest: Any) -> dict[str, Any]:
    """An object of ours: its kind, its name, the labels that say whose it is, and the rest."""
    start = resource.named(name, namespace)
    return {**start, "metadata": {**start["metadata"], "labels": dict(LABELS)}, **rest}
