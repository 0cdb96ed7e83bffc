"""What an admission policy is made of: which requests it looks at, what must hold, and what is said if it does not.

The rules themselves are in ``policies`` and ``policies_pods``. All defaults that the API server would fill in are
written out, so that what is installed can be compared with what should be, field by field.
"""

from __future__ import annotations

from typing import Any, Final

from msgspec import Struct

from tenure.api.meta import GROUP, OWNER_ANNOTATION
from tenure.kube.rbac import SET_OWNER
from tenure.kube.resources import ADMISSION_POLICIES, ADMISSION_POLICY_BINDINGS
from tenure.kube.system import System, made

Manifest = dict[str, Any]


class Check(Struct, frozen=True, kw_only=True):
    """One expression that must be true, and what is said if it is not: ``Forbidden`` is 403, ``Invalid`` 422."""

    holds: str
    message: str
    details: str = ""
    """A CEL expression for a message with particulars in it."""
    reason: str = "Forbidden"

    def manifest(self) -> Manifest:
        out = {"expression": self.holds, "message": self.message, "reason": self.reason}
        return {**out, "messageExpression": self.details} if self.details else out


class Watched(Struct, frozen=True, kw_only=True):
    """Which requests a policy looks at."""

    resources: tuple[str, ...]
    operations: tuple[str, ...] = ("CREATE", "UPDATE")
    group: str = GROUP

    def manifest(self) -> Manifest:
        return {
            "apiGroups": [self.group],
            "apiVersions": ["v1"],
            "operations": list(self.operations),
            "resources": list(self.resources),
            "scope": "*",
        }


class Policy(Struct, frozen=True, kw_only=True):
    """One ValidatingAdmissionPolicy, with the binding that puts it in force everywhere it looks."""

    name: str
    watched: tuple[Watched, ...]
    checks: tuple[Check, ...]
    variables: dict[str, str] = {}
    unless: dict[str, str] = {}
    """Conditions under which the policy says nothing, by name."""
    spared: tuple[str, ...] = ()
    """Namespaces that it never looks into."""

    def manifest(self) -> Manifest:
        selector: Manifest = {}
        if self.spared:
            expression = {"key": "kubernetes.io/metadata.name", "operator": "NotIn", "values": list(self.spared)}
            selector = {"matchExpressions": [expression]}
        spec: Manifest = {
            "failurePolicy": "Fail",
            "matchConstraints": {
                "matchPolicy": "Equivalent",
                "namespaceSelector": selector,
                "objectSelector": {},
                "resourceRules": [each.manifest() for each in self.watched],
            },
            "validations": [each.manifest() for each in self.checks],
        }
        if self.variables:
            spec["variables"] = [{"name": name, "expression": each} for name, each in self.variables.items()]
        if self.unless:
            spec["matchConditions"] = [{"name": name, "expression": f"!({each})"} for name, each in self.unless.items()]
        return made(ADMISSION_POLICIES, f"tenure-{self.name}", spec=spec)

    def binding(self) -> Manifest:
        name = f"tenure-{self.name}"
        return made(ADMISSION_POLICY_BINDINGS, name, spec={"policyName": name, "validationActions": ["Deny"]})


def is_operator(system: System) -> str:
    return f"request.userInfo.username == '{system.user}'"


def may_set_owner(resource: str, name: str, group: str = "") -> str:
    """Whether who asks has the verb ``setowner``: asked of the cluster's own authorizer."""
    return f"authorizer.group('{group}').resource('{resource}').name({name}).check('{SET_OWNER}').allowed()"


PART: Final = "request.?subResource.orValue('')"
"""Which part of an object is written: its ``status``, say."""
BOUND: Final = f"namespaceObject.metadata.?annotations[?'{OWNER_ANNOTATION}'].orValue('')"
"""The owner that the request's namespace is bound to, or nothing."""
