"""What all objects share: group and version, metadata, conditions, and how fields are spelled on the wire.

A field is written ``max_gpu_hours`` in Python and ``maxGPUHours`` in YAML and JSON; ``wire_name`` is the
one rule. What a field means is said beside it with ``says``; its grammar is a format of ``formats.py``,
named by its type. From these decoding, validation, the CRDs and the reference pages are made."""

from __future__ import annotations

from typing import Annotated, Any, Final, Literal

from msgspec import Meta, Struct

from tenure.units import INTEGER_MAX

GROUP = "rq.davidlangworthy.io"
API_VERSION: Final = "rq.davidlangworthy.io/v1"
OWNER_ANNOTATION = f"{GROUP}/owner"
LABEL_RUN, LABEL_GROUP, LABEL_ROLE = f"{GROUP}/run", f"{GROUP}/group", f"{GROUP}/role"


def says(meaning: str) -> Meta:
    """What a field means, for the reference pages and ``kubectl explain``."""
    return Meta(description=meaning)


def _format(name: str) -> Meta:
    return Meta(extra_json_schema={"format": name})


Time = Annotated[str, _format("date-time")]
"""An RFC 3339 time, as it was written."""
Duration = Annotated[str, _format("duration")]
"""A length of time such as ``90s`` or ``1h30m``, as it was written."""
Owner = Annotated[str, _format("owner")]
"""Segments of ``[a-z0-9-]`` joined by colons: ``org:ai:rai``."""
OwnerPattern = Annotated[str, _format("owner-pattern")]
"""An owner in which whole segments may be ``*``."""
Name = Annotated[str, _format("name")]
"""The name of a Kubernetes object."""
Word = Annotated[str, _format("word")]
"""A name of ours, such as an envelope's or a flavor: what fits into a label's value."""
Quantity = Annotated[str, _format("quantity")]
Slack = Annotated[str, _format("slack")]
"""Per cent of a wait, such as ``10%``, as it was written."""
ClosureReason = Annotated[str, _format("closure-reason")]
LongText = Annotated[str, _format("long-text")]
LabelKey = Annotated[str, _format("label-key")]
LabelValue = Annotated[str, _format("label-value")]

Count = Annotated[int, Meta(ge=1, le=INTEGER_MAX)]
Amount = Annotated[int, Meta(ge=0, le=INTEGER_MAX)]
Labels = Annotated[dict[LabelKey, LabelValue], Meta(max_length=64)]
Selector = Annotated[dict[LabelKey, LabelValue], Meta(max_length=16)]
"""Labels that a node must carry, all of them."""


def wire_name(field: str) -> str:
    """Spell a field for the wire.

    >>> [wire_name(name) for name in ("max_gpu_hours", "total_gpus", "gpus_per_pod", "api_version")]
    ['maxGPUHours', 'totalGPUs', 'gpusPerPod', 'apiVersion']
    """
    first, *rest = field.split("_")
    special = {"gpu": "GPU", "gpus": "GPUs"}
    return first + "".join(special.get(part, part.capitalize()) for part in rest)


class Record(Struct, frozen=True, omit_defaults=True, forbid_unknown_fields=True, rename=wire_name):
    """The base of every API type: immutable, unknown fields refused.

    ``frozen`` and ``kw_only`` are repeated on each class: the second is not inherited, the first not by
    mypy.
    """


class ObjectMeta(Record, frozen=True, kw_only=True):
    """Kubernetes object metadata, as far as Tenure reads or writes it."""

    name: Annotated[Name, says("The name, unique among the objects of this kind in the namespace.")]
    namespace: Annotated[
        Name, says('The namespace; "default" if left out. Budgets, Namespaces and Nodes have none.')
    ] = ""
    uid: Annotated[str, says("Set by the system: tells apart two objects that had the same name.")] = ""
    labels: Annotated[Labels, says("Labels, for people and selectors.")] = {}
    annotations: Annotated[
        dict[LabelKey, LongText], Meta(max_length=64), says("Annotations: notes of people and tools.")
    ] = {}
    creation_timestamp: Annotated[Time | None, says("Set by the system: when the object was created.")] = None
    deletion_timestamp: Annotated[Time | None, says("Set by the system: when its deletion was asked for.")] = None
    generation: Annotated[Amount, says("Set by the system: counts changes of the spec.")] = 0
    resource_version: Annotated[str, says("Set by the system: changes with every write.")] = ""
    finalizers: Annotated[
        tuple[LabelKey, ...], Meta(max_length=16), says("What must be done before the object may go.")
    ] = ()
    owner_references: Annotated[
        tuple[dict[str, Any], ...], Meta(max_length=16), says("Objects that this one goes with.")
    ] = ()


class Condition(Record, frozen=True, kw_only=True):
    """One Kubernetes-style condition."""

    type: Annotated[Word, says("What it is about.")]
    status: Annotated[Literal["True", "False", "Unknown"], says("Whether it is so.")]
    reason: Annotated[Word, says("Why, as a code for programs.")]
    message: Annotated[str, says("Why, in a sentence.")] = ""
    last_transition_time: Annotated[Time, says("Since when its status is what it is.")]


class RunRef(Record, frozen=True, kw_only=True):
    """Which Run, and which incarnation of that name."""

    name: Annotated[Name, says("The Run's name, in the same namespace.")]
    uid: Annotated[str, says("The Run's uid.")] = ""


def to_wire(value: Any) -> Any:
    """Turn a record into plain dicts, lists, strings and numbers in wire spelling.

    Defaults are written out, so that a reader needs no table of them; what is absent is left out.
    """
    if isinstance(value, Struct):
        fields = zip(value.__struct_fields__, value.__struct_encode_fields__, strict=True)
        items = ((wire, getattr(value, name)) for name, wire in fields)
        bare = isinstance(value, ObjectMeta)  # nobody wants to read ten empty fields of metadata
        return {wire: to_wire(item) for wire, item in items if item is not None and (item or not bare)}
    if isinstance(value, dict):
        return {key: to_wire(item) for key, item in value.items()}
    if isinstance(value, tuple | list):
        return [to_wire(item) for item in value]
    return value
