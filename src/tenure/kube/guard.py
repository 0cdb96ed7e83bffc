"""Whether the security anchor stands: what is installed, compared with what should be, and tried.

Admission policies cannot guard themselves: whoever may delete policies can delete ours. So the operator and the doctor
look (``inspect``), and the installation tries (``is_enforced``).
"""

from __future__ import annotations

from typing import Any, Literal

from msgspec import Struct

from tenure.kube.client import ApiError, Client
from tenure.kube.policies import policies
from tenure.kube.resources import ADMISSION_POLICIES, ADMISSION_POLICY_BINDINGS, LEASES, Resource
from tenure.kube.system import System

Manifest = dict[str, Any]


class Finding(Struct, frozen=True, kw_only=True):
    """Something that keeps a policy from doing its work."""

    kind: str
    name: str
    problem: Literal["missing", "changed"]

    def sentence(self) -> str:
        """What is wrong, and what to do."""
        what = "is missing" if self.problem == "missing" else "is not as it was installed"
        return f"{self.kind}/{self.name} {what}: `tenure install --kube` puts it right"


async def inspect(client: Client, system: System) -> list[Finding]:
    """Everything about the policies that is not as it should be; nothing if all stand."""
    wanted = policies(system)
    return [
        *await _compare(client, ADMISSION_POLICIES, [each.manifest() for each in wanted]),
        *await _compare(client, ADMISSION_POLICY_BINDINGS, [each.binding() for each in wanted]),
    ]


async def _compare(client: Client, resource: Resource, wanted: list[Manifest]) -> list[Finding]:
    found = {each["metadata"]["name"]: each for each in (await client.list(resource)).items}
    return findings(resource.kind, wanted, found)


def findings(kind: str, wanted: list[Manifest], found: dict[str, Manifest]) -> list[Finding]:
    """What is missing or differs, by name. An object that is being deleted is as good as gone."""
    out = []
    for each in wanted:
        name = each["metadata"]["name"]
        there = found.get(name)
        if there is None or there["metadata"].get("deletionTimestamp"):
            out.append(Finding(kind=kind, name=name, problem="missing"))
        elif there["spec"] != each["spec"]:
            out.append(Finding(kind=kind, name=name, problem="changed"))
    return out


async def is_enforced(client: Client, system: System) -> bool:
    """Whether the API server refuses us a forged lease, as it must anybody but the operator. Nothing is written."""
    try:
        await client.create(LEASES, _forged(system), dry_run=True)
    except ApiError as error:
        if error.code == 403 and "ValidatingAdmissionPolicy" in error.message:
            return True
        if error.not_found or error.transient:
            return False
        raise
    return False


def _forged(system: System) -> Manifest:
    spec = {
        "owner": "nobody",
        "runRef": {"name": "forged"},
        "compPath": [],
        "slice": {"nodes": ["none"], "gpus": [0], "role": "Active"},
        "interval": {"start": "1970-01-01T00:00:00Z"},
        "paidByEnvelope": "none",
        "paidByBudget": "none",
        "paidByOwner": "nobody",
        "reason": "Start",
    }
    return LEASES.named("tenure-is-this-refused", system.namespace, spec=spec)
