"""`tenure install --kube`: everything that Tenure needs in a cluster, by server-side apply; policies are replaced.

``manifests`` is all of it as plain data, in the order in which it is applied: policies stand before the definitions
that they guard, so that there is no instant at which an object could exist unguarded. Applying twice changes nothing;
what others own of these objects (the webhooks' ``caBundle``) stays theirs.
"""

from __future__ import annotations

import asyncio
from typing import Any, Final, Literal

from msgspec import Struct

from tenure.api import crd, ledger_objects
from tenure.api.meta import GROUP
from tenure.kube.client import ApiError, Client
from tenure.kube.guard import is_enforced
from tenure.kube.policies import policies
from tenure.kube.rbac import WEBHOOKS, cluster_roles, operator_roles
from tenure.kube.resources import (
    ADMISSION_POLICIES,
    ADMISSION_POLICY_BINDINGS,
    CRDS,
    FLOW_SCHEMAS,
    MUTATING_WEBHOOKS,
    NAMESPACES,
    PRIORITY_LEVELS,
    SERVICE_ACCOUNTS,
    SERVICES,
    VALIDATING_WEBHOOKS,
    resource_of,
)
from tenure.kube.system import LABELS, WEBHOOK_PORT, System, made

Manifest = dict[str, Any]
Change = Literal["created", "changed", "unchanged"]

OPERATOR_LABELS: Final = {"app.kubernetes.io/name": "tenure-operator"}
"""What the operator's pods carry, so that the service finds them."""
WEBHOOK_SECONDS: Final = 5
WHOLE: Final = (ADMISSION_POLICIES, ADMISSION_POLICY_BINDINGS)
"""What is replaced, not merged: a condition that somebody added to a policy would be a way around it."""


class Applied(Struct, frozen=True):
    """What became of one object."""

    kind: str
    name: str
    namespace: str
    change: Change


class NotInForce(Exception):
    """Everything was applied, but the API server does not enforce the policies yet."""


def manifests(system: System) -> list[Manifest]:
    """Every object, in the order in which it is applied."""
    guards = policies(system)
    home = system.namespace
    return [
        made(NAMESPACES, home),
        *(each.manifest() for each in guards),
        *(each.binding() for each in guards),
        *definitions(),
        made(SERVICE_ACCOUNTS, system.account, home),
        *cluster_roles(),
        *operator_roles(system),
        *_flow(system),
        _service(system),
        *_webhooks(system),
    ]


def definitions() -> list[Manifest]:
    """The CustomResourceDefinitions: the four nouns, and what the ledger is kept in."""
    kinds = [*map(crd.manifest, crd.RESOURCES), *map(ledger_objects.manifest, ledger_objects.RESOURCES)]
    return [{**each, "metadata": {**each["metadata"], "labels": dict(LABELS)}} for each in kinds]


def _flow(system: System) -> list[Manifest]:
    """The operator's calls have a share of the API server of their own: no tenant's flood holds up the books."""
    subject = {
        "kind": "ServiceAccount",
        "serviceAccount": {"name": system.account, "namespace": system.namespace},
    }
    every = {"verbs": ["*"], "apiGroups": ["*"], "resources": ["*"], "namespaces": ["*"], "clusterScope": True}
    level = {
        "type": "Limited",
        "limited": {
            "nominalConcurrencyShares": 40,
            "lendablePercent": 50,
            "limitResponse": {
                "type": "Queue",
                "queuing": {"queues": 16, "handSize": 4, "queueLengthLimit": 100},
            },
        },
    }
    return [
        made(PRIORITY_LEVELS, "tenure-operator", spec=level),
        made(
            FLOW_SCHEMAS,
            "tenure-operator",
            spec={
                "priorityLevelConfiguration": {"name": "tenure-operator"},
                "matchingPrecedence": 500,
                "distinguisherMethod": {"type": "ByNamespace"},
                "rules": [{"subjects": [subject], "resourceRules": [every]}],
            },
        ),
    ]


def _service(system: System) -> Manifest:
    port = {"name": "webhook", "port": 443, "targetPort": WEBHOOK_PORT, "protocol": "TCP"}
    return made(SERVICES, system.service, system.namespace, spec={"selector": OPERATOR_LABELS, "ports": [port]})


def _webhooks(system: System) -> list[Manifest]:
    """Defaults and good messages. ``Ignore``: when it is away, policies and schemas hold, and the operator looks again.

    The bundle of trusted authorities is left out: the webhook keeps it there itself (``certs``).
    """
    return [
        made(
            MUTATING_WEBHOOKS,
            WEBHOOKS,
            webhooks=[{**_webhook(system, "mutate"), "reinvocationPolicy": "Never"}],
        ),
        made(VALIDATING_WEBHOOKS, WEBHOOKS, webhooks=[_webhook(system, "validate")]),
    ]


def _webhook(system: System, path: str) -> Manifest:
    service = {"name": system.service, "namespace": system.namespace, "path": f"/{path}", "port": 443}
    url = system.webhook_url.rstrip("/")
    return {
        "name": f"{path}.{GROUP}",
        "admissionReviewVersions": ["v1"],
        "clientConfig": {"url": f"{url}/{path}"} if url else {"service": service},
        "failurePolicy": "Ignore",
        "matchPolicy": "Equivalent",
        "sideEffects": "None",
        "timeoutSeconds": WEBHOOK_SECONDS,
        "rules": [
            {
                "apiGroups": [GROUP],
                "apiVersions": ["v1"],
                "operations": ["CREATE", "UPDATE"],
                "resources": ["runs", "budgets"],
                "scope": "*",
            }
        ],
        "matchConditions": [
            {"name": "spec-changed", "expression": "oldObject == null || object.spec != oldObject.spec"}
        ],
    }


async def install(
    client: Client, system: System, *, dry_run: bool = False, wait_seconds: float = 60.0
) -> list[Applied]:
    """Apply everything, and return when the definitions are served and the policies refuse what they should."""
    done = [await _apply(client, each, dry_run=dry_run) for each in manifests(system)]
    if not dry_run:
        async with asyncio.timeout(wait_seconds):
            await _served(client)
        await _in_force(client, system, wait_seconds)
    return done


async def _apply(client: Client, wanted: Manifest, *, dry_run: bool) -> Applied:
    resource = resource_of(wanted)
    name, namespace = wanted["metadata"]["name"], wanted["metadata"].get("namespace", "")
    before: Manifest | None = None
    try:
        before = await client.get(resource, name, namespace)
    except ApiError as error:
        if not error.not_found:
            raise
    change: Change
    try:
        if before is not None and resource in WHOLE:
            after = await _replaced(client, wanted, before, dry_run=dry_run)
        else:
            after = await client.patch(resource, name, wanted, namespace, kind="apply", dry_run=dry_run)
        change = "created" if before is None else "unchanged" if _content(after) == _content(before) else "changed"
    except ApiError as error:
        # Tried only: what lives in a namespace that is yet to be made cannot be tried.
        if not (dry_run and error.not_found and namespace and before is None):
            raise
        change = "created"
    return Applied(resource.kind, name, namespace, change)


async def _replaced(client: Client, wanted: Manifest, before: Manifest, *, dry_run: bool) -> Manifest:
    """Put a spec in place of whatever is there; an object that has it already is left alone."""
    if before["spec"] == wanted["spec"]:
        return before
    if dry_run:
        return wanted
    version = before["metadata"]["resourceVersion"]
    return await client.replace(
        resource_of(wanted), {**wanted, "metadata": {**wanted["metadata"], "resourceVersion": version}}
    )


def _content(found: Manifest) -> Manifest:
    """An object without what counts its changes: a change that is only tried leaves that alone."""
    counted = ("managedFields", "resourceVersion", "generation")
    metadata = {key: value for key, value in found["metadata"].items() if key not in counted}
    return {**found, "metadata": metadata}


async def _served(client: Client) -> None:
    """Wait until the API server takes objects of every kind of ours."""
    for each in definitions():
        name = each["metadata"]["name"]
        while not _established(await client.get(CRDS, name)):
            await asyncio.sleep(0.2)


def _established(definition: Manifest) -> bool:
    conditions = definition.get("status", {}).get("conditions") or []
    return any(each["type"] == "Established" and each["status"] == "True" for each in conditions)


async def _in_force(client: Client, system: System, wait_seconds: float) -> None:
    """Wait until a forged lease is refused: the API server learns of policies within seconds."""
    try:
        async with asyncio.timeout(wait_seconds):
            while not await is_enforced(client, system):
                await asyncio.sleep(0.2)
    except TimeoutError:
        raise NotInForce(
            f"everything was applied, but after {wait_seconds:.0f} s the API server still takes a forged lease: is the "
            "admission plugin ValidatingAdmissionPolicy switched off?"
        ) from None
