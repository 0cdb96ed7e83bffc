"""CustomResourceDefinitions, made from the shapes of the API types and the rules of ``cel``.

Structural schemas: every list, mapping and string is bounded, so that the API server can bound the cost of
the rules; a pod template keeps whatever it holds. ``manifest("Run")`` is one definition as plain data;
``make generate`` writes them to ``deploy/crds``."""

from __future__ import annotations

from typing import Any, NamedTuple

import msgspec

from tenure.api.budget import Budget
from tenure.api.cel import RULES, Place, Rule
from tenure.api.compile import shape_of
from tenure.api.lease import Lease
from tenure.api.meta import GROUP
from tenure.api.reservation import Reservation
from tenure.api.run import Run
from tenure.api.shape import (
    Anything,
    Boolean,
    Choice,
    Field,
    Integer,
    Mapping,
    Number,
    Object,
    Optional,
    Sequence,
    Shape,
    Text,
)
from tenure.api.template import CONTAINER_COUNT_MAX

Schema = dict[str, Any]


class Column(NamedTuple):
    """A column of ``kubectl get``. Those of priority 1 are shown with ``-o wide``."""

    name: str
    path: str
    type: str = "string"
    priority: int = 0


class Resource(NamedTuple):
    """What a definition says besides the schema."""

    cls: type[msgspec.Struct]
    scope: str
    short_names: tuple[str, ...]
    columns: tuple[Column, ...]
    selectable: tuple[str, ...] = ()
    plural: str = ""
    """Where it is not the kind with an s."""
    status: bool = True


RESOURCES: dict[str, Resource] = {
    "Budget": Resource(
        cls=Budget,
        scope="Cluster",
        short_names=("rqb",),
        columns=(
            Column("Owner", ".spec.owner"),
            Column("Envelopes", ".spec.envelopes[*].name"),
            Column("GPUs", ".spec.envelopes[*].concurrency"),
            Column("Used", ".status.headroom[*].used"),
            Column("Parents", ".spec.parents", priority=1),
            Column("Age", ".metadata.creationTimestamp", "date"),
        ),
        selectable=(".spec.owner",),
    ),
    "Run": Resource(
        cls=Run,
        scope="Namespaced",
        short_names=("rqr",),
        columns=(
            Column("Phase", ".status.phase"),
            Column("GPUs", ".spec.resources.totalGPUs", "integer"),
            Column("Type", ".spec.resources.gpuType"),
            Column("Holds", ".status.width.allocated", "integer"),
            Column("Owner", ".spec.owner"),
            Column("Starts", ".status.earliestStart"),
            Column("Age", ".metadata.creationTimestamp", "date"),
            Column("Message", ".status.message", priority=1),
        ),
        selectable=(".spec.owner", ".spec.resources.gpuType", ".status.phase"),
    ),
    "Reservation": Resource(
        cls=Reservation,
        scope="Namespaced",
        short_names=("rqv",),
        columns=(
            Column("Run", ".spec.runRef.name"),
            Column("State", ".status.state"),
            Column("Starts", ".status.plannedStart"),
            Column("Promised", ".spec.earliestStart", priority=1),
            Column("Reason", ".status.reason", priority=1),
            Column("Age", ".metadata.creationTimestamp", "date"),
        ),
        selectable=(".spec.runRef.name", ".status.state"),
    ),
    "Lease": Resource(
        cls=Lease,
        scope="Namespaced",
        short_names=("rql", "gpuleases"),
        columns=(
            Column("Run", ".spec.runRef.name"),
            Column("Role", ".spec.slice.role"),
            Column("Nodes", ".spec.slice.nodes"),
            Column("Budget", ".spec.paidByBudget"),
            Column("Envelope", ".spec.paidByEnvelope"),
            Column("Start", ".spec.interval.start"),
            Column("End", ".status.endTime"),
            Column("Why", ".status.closureReason", priority=1),
            Column("Payer", ".spec.paidByOwner", priority=1),
        ),
        selectable=(
            ".spec.owner",
            ".spec.runRef.name",
            ".spec.slice.role",
            ".spec.paidByBudget",
            ".spec.paidByEnvelope",
            ".spec.paidByOwner",
            ".status.closed",
            ".status.closureReason",
        ),
    ),
}

_KEYED: Schema = {"x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": ["name"]}
_CONDITIONS: Schema = {"x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": ["type"]}
_SET: Schema = {"x-kubernetes-list-type": "set"}
_ANY: Schema = {"type": "object", "x-kubernetes-preserve-unknown-fields": True}
_STRINGS: Schema = {"type": "array", "items": {"type": "string"}}

EXTRA: dict[str, dict[Place, Schema]] = {
    "Budget": {
        ("spec", "envelopes"): _KEYED,
        ("spec", "aggregateCaps"): _KEYED,
        ("spec", "aggregateCaps", "[]", "envelopes"): _SET,
        ("spec", "parents"): _SET,
        ("status", "headroom"): _KEYED,
        ("status", "aggregateHeadroom"): _KEYED,
        ("status", "conditions"): _CONDITIONS,
    },
    "Run": {
        # The simulator alone does without a template, and it has no API server.
        ("spec",): {"required": ["resources", "template"]},
        ("spec", "template"): {
            "required": ["spec"],
            "properties": {
                "metadata": _ANY,
                "spec": {
                    **_ANY,
                    "required": ["containers"],
                    "properties": {
                        "containers": {
                            "type": "array",
                            "minItems": 1,
                            "maxItems": CONTAINER_COUNT_MAX,
                            "items": {
                                **_ANY,
                                "properties": {
                                    "name": {"type": "string", "maxLength": 63},
                                    "image": {"type": "string", "minLength": 1},
                                    "command": _STRINGS,
                                    "args": _STRINGS,
                                },
                            },
                        }
                    },
                },
            },
        },
        ("status", "conditions"): _CONDITIONS,
    },
    "Lease": {("spec", "slice", "gpus"): _SET},
    "Reservation": {},
}
"""What the types cannot say: how lists are merged and kept unique, and the least that a template holds."""


def manifest(kind: str) -> Schema:
    """The CustomResourceDefinition of a kind that people meet, as plain data."""
    return definition(kind, RESOURCES[kind], RULES[kind], EXTRA[kind])


def definition(
    kind: str, resource: Resource, rules: dict[Place, tuple[Rule, ...]], extra: dict[Place, Schema]
) -> Schema:
    """The CustomResourceDefinition of any kind."""
    singular = kind.lower()
    plural = resource.plural or f"{singular}s"
    return {
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": {"name": f"{plural}.{GROUP}"},
        "spec": {
            "group": GROUP,
            "names": {
                "kind": kind,
                "listKind": f"{kind}List",
                "plural": plural,
                "singular": singular,
                "shortNames": list(resource.short_names),
                "categories": ["tenure"],
            },
            "scope": resource.scope,
            "versions": [_version(resource, _Writer(rules, extra))],
        },
    }


def _version(resource: Resource, writer: _Writer) -> Schema:
    selectable = [{"jsonPath": path} for path in resource.selectable]
    return {
        "name": "v1",
        "served": True,
        "storage": True,
        **({"subresources": {"status": {}}} if resource.status else {}),
        "additionalPrinterColumns": [_column(each) for each in resource.columns],
        **({"selectableFields": selectable} if selectable else {}),
        "schema": {"openAPIV3Schema": writer.root(shape_of(resource.cls))},
    }


def _column(column: Column) -> Schema:
    out: Schema = {"name": column.name, "type": column.type, "jsonPath": column.path}
    return {**out, "priority": column.priority} if column.priority else out


class _Writer:
    """Writes the schema of one kind, adding what is attached to each place."""

    def __init__(self, rules: dict[Place, tuple[Rule, ...]], extra: dict[Place, Schema]) -> None:
        self.rules = rules
        self.extra = extra

    def root(self, shape: Object) -> Schema:
        properties: Schema = {
            "apiVersion": {"type": "string"},
            "kind": {"type": "string"},
            "metadata": {"type": "object"},
        }
        for field in shape.fields:
            if field.wire not in properties:
                properties[field.wire] = self.schema(field.shape, (field.wire,))
        about = " ".join((shape.cls.__doc__ or "").split())
        out: Schema = {"type": "object", "description": about, "required": ["spec"], "properties": properties}
        return self._attached(out, ())

    def schema(self, shape: Shape, place: Place) -> Schema:
        if isinstance(shape, Optional):
            shape = shape.inner
        out = self._bare(shape, place)
        if shape.description:
            out = {"description": shape.description.replace("`", ""), **out}
        return self._attached(out, place)

    def _attached(self, out: Schema, place: Place) -> Schema:
        out = {**out, **self.extra.get(place, {})}
        rules = self.rules.get(place)
        if rules:
            out["x-kubernetes-validations"] = [{"rule": each.rule, "message": each.message} for each in rules]
        return out

    def _bare(self, shape: Shape, place: Place) -> Schema:
        match shape:
            case Boolean():
                return {"type": "boolean"}
            case Integer():
                return {"type": "integer", "format": "int64", "minimum": shape.ge, "maximum": shape.le}
            case Number():
                return {"type": "number"}
            case Choice():
                return {"type": "string", "enum": list(shape.values)}
            case Text():
                return _string(shape)
            case Sequence():
                items = self.schema(shape.item, (*place, "[]"))
                return _bounded({"type": "array", "items": items}, "Items", shape.count_min, shape.count_max)
            case Mapping():
                values = self.schema(shape.value, (*place, "*"))
                out: Schema = {"type": "object", "additionalProperties": values}
                return _bounded(out, "Properties", shape.count_min, shape.count_max)
            case Anything():
                return dict(_ANY)
            case Object():
                return self._object(shape, place)
            case _:
                raise TypeError(f"no schema for {shape}")

    def _object(self, shape: Object, place: Place) -> Schema:
        out: Schema = {"type": "object"}
        required = [field.wire for field in shape.fields if field.required]
        if required:
            out["required"] = required
        out["properties"] = {field.wire: self._field(field, (*place, field.wire)) for field in shape.fields}
        return out

    def _field(self, field: Field, place: Place) -> Schema:
        out = self.schema(field.shape, place)
        if place[0] == "spec" and isinstance(field.default, bool | int | str) and field.default != "":
            out["default"] = field.default
        return out


def _string(shape: Text) -> Schema:
    form = shape.format
    out: Schema = {"type": "string", "maxLength": form.length_max}
    if form.length_min:
        out["minLength"] = form.length_min
    if form.name == "date-time":
        out["format"] = "date-time"
    if form.pattern is not None:
        out["pattern"] = f"^({form.pattern})$"
    return out


def _bounded(out: Schema, noun: str, low: int, high: int) -> Schema:
    return {**out, **({f"min{noun}": low} if low else {}), f"max{noun}": high}
