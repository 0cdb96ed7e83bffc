"""What Tenure writes on objects of a cluster so that it knows them again."""

from __future__ import annotations

import hashlib
import re

from tenure.api.meta import GROUP

FINALIZER = f"{GROUP}/leases"
"""On Runs that hold leases: the object goes when the last of them is closed."""
FLEET = f"{GROUP}/fleet"
"""Annotation: which ledger something comes from."""
ENTRY = f"{GROUP}/entry"
"""Annotation of pods: the number of the ledger entry up to which was known when the pod was made."""
UID = f"{GROUP}/uid"
"""Annotation of reservations: which promise it is; a name may be used again for the next."""
RESOLVE = f"{GROUP}/resolve"
"""Annotation of Runs: an administrator wants room made for it now. Not the engine's business as such."""
LABEL_RANK = f"{GROUP}/rank"
LABEL_ATTEMPT = f"{GROUP}/attempt"
CONTROLLER = f"{GROUP}/tenure"
"""Who reports events."""
SCHEDULER = "tenure"
"""The scheduler's name, where pods are bound by the Binding subresource."""
POLICY_NAME, POLICY_KEY = "tenure-policy", "policy.yaml"
"""The ConfigMap of the system's namespace that holds the policy."""

_LABEL = re.compile(r"[a-z]([-a-z0-9]{0,61}[a-z0-9])?", re.ASCII)


def service_name(run: str) -> str:
    """The headless Service of a run: its pods find one another by it. A DNS label whatever the run is called.

    >>> service_name("train"), service_name("v1.5-" + "x" * 60)
    ('run-train', 'run-3630876a15b601a1')
    """
    name = f"run-{run}"
    return name if _LABEL.fullmatch(name) else f"run-{hashlib.sha256(run.encode()).hexdigest()[:16]}"


def host_name(rank: int) -> str:
    """A pod's host name: that of its rank, so that one which takes over after a failure is found under it too."""
    return f"rank-{rank}"


def address(namespace: str, run: str, rank: int) -> str:
    """
    >>> address("rai", "train", 0)
    'rank-0.run-train.rai.svc'
    """
    return f"{host_name(rank)}.{service_name(run)}.{namespace}.svc"
