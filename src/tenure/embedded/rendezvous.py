"""Where the pods of a run meet when they are processes of one machine.

Node names of an embedded fleet are no addresses, and all runs share one machine's ports: so the master is always this
machine, and each attempt has a port of its own, made from the run's identity.
"""

from __future__ import annotations

import hashlib
from typing import Any

from tenure.facts import Pod

ADDRESS = "127.0.0.1"
_FIRST, _COUNT = 20_000, 12_000
"""Below the ports that the kernel hands out by itself."""


def at_home(manifest: dict[str, Any], pod: Pod, *, fleet: str) -> dict[str, Any]:
    """The manifest with the rendezvous of this machine in its env."""
    port = str(master_port(fleet, f"{pod.run_key}/{pod.attempt}"))
    ours = {"MASTER_ADDR": ADDRESS, "MASTER_PORT": port, "TENURE_RDZV_ENDPOINT": f"{ADDRESS}:{port}"}
    spec = manifest.get("spec", {})
    containers = [
        {**one, "env": [_ours(item, ours) for item in one.get("env", ())]} for one in spec.get("containers", ())
    ]
    return {**manifest, "spec": {**spec, "containers": containers}} if containers else manifest


def master_port(fleet: str, attempt: str) -> int:
    digest = hashlib.sha256(f"{fleet}\n{attempt}".encode()).digest()
    return _FIRST + int.from_bytes(digest[:8], "big") % _COUNT


def _ours(item: dict[str, Any], ours: dict[str, str]) -> dict[str, Any]:
    value = ours.get(item.get("name", ""))
    return item if value is None else {**item, "value": value}
