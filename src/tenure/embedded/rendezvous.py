"""Where the pods of a run meet when they are processes of one machine.

Node names of an embedded fleet are no addresses, and all runs share one machine's ports: so the master is always this
machine, and each attempt has a port of its own, made from the run's identity.

Init containers get nothing of the rendezvous, but the pod's GPUs: on a cluster the device plugin gives them none, here
a process that is told nothing sees those of everybody.
"""

from __future__ import annotations

import hashlib
from typing import Any

from tenure.embedded.launch import DEVICES
from tenure.facts import Pod

ADDRESS = "127.0.0.1"
_FIRST, _COUNT = 20_000, 12_000
"""Below the ports that the kernel hands out by itself."""


def at_home(manifest: dict[str, Any], pod: Pod, *, fleet: str) -> dict[str, Any]:
    """The manifest with the rendezvous of this machine in its env, and with its GPUs in that of its init containers."""
    port = str(master_port(fleet, f"{pod.run_key}/{pod.attempt}"))
    ours = {"MASTER_ADDR": ADDRESS, "MASTER_PORT": port, "TENURE_RDZV_ENDPOINT": f"{ADDRESS}:{port}"}
    spec = manifest.get("spec", {})
    containers = [
        {**one, "env": [_ours(item, ours) for item in one.get("env", ())]} for one in spec.get("containers", ())
    ]
    if not containers:
        return manifest
    before = [_with_gpus(one, pod) for one in spec.get("initContainers") or ()]
    return {**manifest, "spec": {**spec, "containers": containers, "initContainers": before}}


def master_port(fleet: str, attempt: str) -> int:
    digest = hashlib.sha256(f"{fleet}\n{attempt}".encode()).digest()
    return _FIRST + int.from_bytes(digest[:8], "big") % _COUNT


def _ours(item: dict[str, Any], ours: dict[str, str]) -> dict[str, Any]:
    value = ours.get(item.get("name", ""))
    return item if value is None else {**item, "value": value}


def _with_gpus(container: dict[str, Any], pod: Pod) -> dict[str, Any]:
    """A container with the pod's GPUs in its env, whatever its template says of them."""
    ours = {"CUDA_DEVICE_ORDER": "PCI_BUS_ID", DEVICES: ",".join(map(str, pod.gpus))}
    kept = [item for item in container.get("env") or () if item.get("name") not in ours]
    return {**container, "env": [*kept, *({"name": name, "value": value} for name, value in ours.items())]}
