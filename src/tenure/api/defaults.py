"""What a field means when it is left out, where a type alone cannot say (SPEC 2).

A Run or other namespaced object without a namespace is in ``default``; a Run without an owner has the
namespace's; a malleable Run wants its widest width, and its groups are as large as its step. Applying
defaults twice changes nothing."""

from __future__ import annotations

from typing import TypeVar

from msgspec.structs import replace

from tenure.api.core import Namespace
from tenure.api.meta import OWNER_ANNOTATION
from tenure.api.run import Run, RunSpec
from tenure.api.validate import DEFAULT_NAMESPACE, NAMESPACED, ApiObject

T = TypeVar("T", bound=ApiObject)


def default(obj: T, *, namespace: Namespace | None) -> T:
    """The object with what it leaves out filled in.

    ``namespace`` is the one that it is in, if there is one.
    """
    if obj.kind in NAMESPACED and not obj.metadata.namespace:
        obj = replace(obj, metadata=replace(obj.metadata, namespace=DEFAULT_NAMESPACE))
    if isinstance(obj, Run):
        obj = replace(obj, spec=_default_spec(obj.spec, owner_of(namespace)))
    return obj


def owner_of(namespace: Namespace | None) -> str:
    """The owner that a namespace is bound to, or nothing."""
    return namespace.metadata.annotations.get(OWNER_ANNOTATION, "") if namespace is not None else ""


def _default_spec(spec: RunSpec, owner: str) -> RunSpec:
    spec = replace(spec, owner=spec.owner or owner)
    width = spec.malleable
    if width is None:
        return spec
    if width.desired_total_gpus is None:
        spec = replace(spec, malleable=replace(width, desired_total_gpus=width.max_total_gpus))
    if spec.locality.group_gpus is None:
        spec = replace(spec, locality=replace(spec.locality, group_gpus=width.step_gpus))
    return spec
