"""Whether what `tenure install --kube` installs is there and as it should be: kinds, policies, roles, webhook.

Everything is compared with the manifests themselves, so that nothing can be installed and not looked at.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

import msgspec

from tenure.api.meta import GROUP
from tenure.cli.doctor.report import Check, ok, problem, unknown, warning
from tenure.cli.words import plural
from tenure.kube import guard
from tenure.kube.client import Client
from tenure.kube.errors import ApiError
from tenure.kube.install import definitions
from tenure.kube.loop import IO
from tenure.kube.rbac import cluster_roles, operator_roles
from tenure.kube.resources import (
    CLUSTER_ROLE_BINDINGS,
    CRDS,
    NAMESPACES,
    SERVICE_ACCOUNTS,
    Resource,
    resource_of,
)
from tenure.kube.shown import covers
from tenure.kube.system import System

Object = dict[str, Any]
INSTALL = "tenure install --kube"
HELM_RELEASE, HELM_NAMESPACE = "meta.helm.sh/release-name", "meta.helm.sh/release-namespace"
NEEDED = (1, 32)


class Site:
    """A cluster to look at."""

    def __init__(self, io: IO, client: Client) -> None:
        self.io, self.client = io, client
        self.install = INSTALL
        """How an installation is put right: as it was made."""

    def get(self, resource: Resource, name: str, namespace: str | None = None) -> Object | None:
        """An object, or None if there is none."""
        try:
            return self.io.run(self.client.get(resource, name, namespace))
        except ApiError as error:
            if error.not_found:
                return None
            raise

    def system(self) -> System:
        """Who Tenure is here: the account that the operator's role is bound to, if one is."""
        try:
            found = self.get(CLUSTER_ROLE_BINDINGS, "tenure-operator")
        except ApiError:
            found = None
        notes = ((found or {}).get("metadata") or {}).get("annotations") or {}
        if release := notes.get(HELM_RELEASE):
            self.install = f"helm upgrade {release} CHART --namespace {notes.get(HELM_NAMESPACE, 'NAMESPACE')}"
        for one in (found or {}).get("subjects") or ():
            if one.get("kind") == "ServiceAccount":
                return System(namespace=one["namespace"], account=one["name"])
        return System()


def version(site: Site) -> Iterator[Check]:
    """Whether the API server is one that Tenure works with."""
    told = site.io.run(site.client.call("GET", "/version"))
    found = msgspec.json.decode(told)
    numbers = tuple(int("".join(filter(str.isdigit, found.get(part, "")))[:4] or 0) for part in ("major", "minor"))
    name = found.get("gitVersion", "of an unknown version")
    if numbers < NEEDED:
        yield problem("server", f"the API server is {name}", "Tenure needs Kubernetes 1.32 or later: upgrade it")
    else:
        yield ok("server", f"it answers, and is {name}")


def kinds(site: Site) -> Iterator[Check]:
    """The CustomResourceDefinitions: served, and defined as this version defines them."""
    bad = 0
    for wanted in definitions():
        name = wanted["metadata"]["name"]
        found = site.get(CRDS, name)
        bad += 1
        if found is None:
            yield problem("kinds", f"CustomResourceDefinition/{name} is missing", site.install)
        elif not _established(found):
            yield problem("kinds", f"CustomResourceDefinition/{name} is not served", _why_not_served(found, name))
        elif not covers(found["spec"], wanted["spec"]):
            yield problem("kinds", f"CustomResourceDefinition/{name} is not as this version defines it", site.install)
        else:
            bad -= 1
    if not bad:
        yield ok("kinds", f"{plural(len(definitions()), 'kind')} of {GROUP} are served, as this version defines them")


def _established(found: Object) -> bool:
    conditions = (found.get("status") or {}).get("conditions") or ()
    return any(one["type"] == "Established" and one["status"] == "True" for one in conditions)


def _why_not_served(found: Object, name: str) -> str:
    told = [
        one.get("message", "") for one in (found.get("status") or {}).get("conditions") or () if one["status"] != "True"
    ]
    return f"kubectl describe crd {name}: {'; '.join(filter(None, told)) or 'it says nothing'}"


def policies(site: Site, system: System) -> Iterator[Check]:
    """The admission policies: there, unchanged, and really refusing a lease that is forged."""
    found = site.io.run(guard.inspect(site.client, system))
    for one in found:
        what = "is missing" if one.problem == "missing" else "is not as it was installed"
        yield problem("policies", f"{one.kind}/{one.name} {what}", site.install)
    if not found:
        yield ok("policies", "every admission policy is in place and as it was installed")


def enforcement(site: Site, system: System) -> Iterator[Check]:
    try:
        enforced = site.io.run(guard.is_enforced(site.client, system))
    except ApiError as error:
        if error.code != 403:
            raise
        yield unknown("enforcement", "whether a forged lease is refused cannot be tried: you may not create leases",
                      "have a cluster administrator call the doctor")  # fmt: skip
        return
    if enforced:
        yield ok("enforcement", "a forged lease is refused")
    else:
        fix = f"{site.install}; if that does not help, look at the API server's --disable-admission-plugins"
        yield problem("enforcement", "the API server takes a forged lease", fix)


def roles(site: Site, system: System) -> Iterator[Check]:
    """The operator's home, account and rights, and the roles that people get."""
    bad = 0
    if site.get(NAMESPACES, system.namespace) is None:
        bad += 1
        yield problem("roles", f"Namespace/{system.namespace} is missing", site.install)
    elif site.get(SERVICE_ACCOUNTS, system.account, system.namespace) is None:
        bad += 1
        yield problem("roles", f"ServiceAccount/{system.namespace}/{system.account} is missing", site.install)
    for wanted in (*cluster_roles(), *operator_roles(system)):
        for one in _role(site, wanted):
            bad += 1
            yield one
    if not bad:
        yield ok("roles", "the operator's account and every role are in place, with the rights that they need")


def _role(site: Site, wanted: Object) -> Iterator[Check]:
    meta = wanted["metadata"]
    name = f"{wanted['kind']}/{meta['name']}"
    found = site.get(resource_of(wanted), meta["name"], meta.get("namespace"))
    if found is None:
        yield problem("roles", f"{name} is missing", site.install)
        return
    for part in ("rules", "subjects"):
        lacking = [one for one in wanted.get(part, ()) if not _has(found.get(part) or (), one)]
        if lacking:
            yield problem("roles", f"{name} lacks {_told(lacking[0])}", site.install)
        extra = [one for one in found.get(part) or () if part in wanted and not _has(wanted[part], one)]
        if extra and not lacking:
            fix = f"if nobody meant it: kubectl delete {wanted['kind'].lower()} {meta['name']}, then {site.install}"
            yield warning("roles", f"{name} also has {_told(extra[0])}", fix)


def _has(there: Iterable[Object], wanted: Object) -> bool:
    return any(covers(one, wanted) for one in there)


def _told(one: Object) -> str:
    if "kind" in one:
        return f"{one['kind']} {one.get('namespace', '')}/{one['name']}".replace(" /", " ")
    named = f" named {', '.join(one['resourceNames'])}" if one.get("resourceNames") else ""
    return f"{', '.join(one.get('verbs') or ())} of {', '.join(one.get('resources') or ('something',))}{named}"
