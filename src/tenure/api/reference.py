"""The reference pages of the API and the policy, written from the shapes: what is not in a type is not in a
page.

``make generate`` puts them under ``docs/reference``.
"""

from __future__ import annotations

import json
from collections.abc import Iterator

import msgspec

from tenure.api.cel import RULES
from tenure.api.compile import shape_of
from tenure.api.core import Namespace, Node
from tenure.api.crd import RESOURCES
from tenure.api.decode import OBJECT_COUNT_MAX
from tenure.api.errors import ERROR_COUNT_MAX
from tenure.api.formats import FORMATS
from tenure.api.meta import API_VERSION, ObjectMeta, to_wire
from tenure.api.policy import Policy
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
from tenure.api.text import TEXT_BYTES_MAX
from tenure.api.tree import DEPTH_MAX, VALUE_COUNT_MAX
from tenure.units import INTEGER_MAX

_HEADER = "<!-- Written by `make generate` from src/tenure/api; edit the types there. -->\n"

_API_INTRO = f"""{_HEADER}
# The objects

`{API_VERSION}` has four kinds: [Budget](#budget), [Run](#run), [Reservation](#reservation) and
[Lease](#lease). People write Budgets and Runs, and for a fleet without Kubernetes also
[Namespaces](#namespace) and [Nodes](#node); the scheduler alone writes Reservations and Leases, and every
`status`.

YAML and JSON are read alike, up to {TEXT_BYTES_MAX // 1024 // 1024} MiB. A file may hold several objects
(YAML documents, a `kind: List`, or a list), at most {OBJECT_COUNT_MAX:,}; it is applied whole or not at all.
Errors come all at once, up to {ERROR_COUNT_MAX}, each with the field, what was there and what would be right.

- Unknown fields, and keys that appear twice, are errors.
- YAML is read by the core schema of version 1.2: `no` and `12:30:45` are strings, times need no quotes.
  Anchors, aliases, tags and merge keys are refused, and so is nesting more than {DEPTH_MAX} deep and a
  document of more than {VALUE_COUNT_MAX:,} keys and values.
- Control characters are refused in every string; in templates and annotations line breaks and tabs are fine.
- Numbers are whole and within 2^53 unless a field says otherwise.
- `null` means the same as leaving an optional field out, where the type says "or null".
"""

_POLICY_INTRO = f"""{_HEADER}
# Policy

One YAML or JSON file (or the `policy` of a fleet or scenario file). Keys that are left out have their
defaults, and unknown keys are errors. The policy in effect is recorded in the ledger whenever it changes.
"""


def api_page() -> str:
    """``docs/reference/api.md``."""
    parts = [_API_INTRO, _formats()]
    for kind, resource in RESOURCES.items():
        shape = shape_of(resource.cls)
        names = ", ".join(f"`{name}`" for name in resource.short_names)
        parts.append(f"## {kind}\n\n{_about(shape)} Short names: {names}.\n")
        parts.extend(_sections(shape, skip=frozenset({"ObjectMeta"})))
        parts.append(_rules(kind))
    for cls in (Namespace, Node):
        parts.append(f"## {cls.__name__}\n\n{_about(shape_of(cls))}\n")
        parts.extend(_sections(shape_of(cls), skip=frozenset({"ObjectMeta"})))
    parts.append(f"## Metadata\n\n{_about(shape_of(ObjectMeta))}\n")
    parts.append(_table(shape_of(ObjectMeta)))
    return "\n".join(parts).rstrip() + "\n"


def policy_page() -> str:
    """``docs/reference/policy.md``."""
    return f"{_POLICY_INTRO}\n{_table(shape_of(Policy))}".rstrip() + "\n"


def _formats() -> str:
    rows = [f"| {each.name} | {_cell(_plain(each.right))} | {each.length_max} |" for each in FORMATS.values()]
    return "\n".join(["## Strings", "", "| string | is | characters |", "|---|---|---|", *rows, ""])


def _about(shape: Object) -> str:
    return " ".join((shape.cls.__doc__ or "").split())


def _rules(kind: str) -> str:
    messages = [rule.message for rules in RULES[kind].values() for rule in rules]
    lines = [f"- {message}" for message in dict.fromkeys(messages)]
    return "\n".join([f"**Rules of a {kind}**, beyond types and limits:", "", *lines, ""])


def _sections(shape: Object, *, skip: frozenset[str]) -> Iterator[str]:
    """A table for each record, outermost first; one that appears twice is shown once."""
    waiting, done = [shape], {*skip}
    while waiting:
        each = waiting.pop(0)
        if each.cls.__name__ in done:
            continue
        done.add(each.cls.__name__)
        if each is not shape:
            yield f"### {each.cls.__name__}\n\n{_about(each)}\n"
        yield _table(each)
        waiting.extend(inner for field in each.fields if (inner := _record(field.shape)) is not None)


def _record(shape: Shape) -> Object | None:
    match shape:
        case Object():
            return shape
        case Optional():
            return _record(shape.inner)
        case Sequence():
            return _record(shape.item)
        case _:
            return None


def _table(shape: Object) -> str:
    rows = [_row(field) for field in shape.fields]
    return "\n".join(["| field | type | default | meaning |", "|---|---|---|---|", *rows, ""])


def _row(field: Field) -> str:
    meaning = field.shape.description or _OBVIOUS.get(field.wire, "")
    return f"| `{field.wire}` | {_cell(_type(field.shape))} | {_default(field)} | {_cell(meaning)} |"


_OBVIOUS = {
    "apiVersion": "The group and version.",
    "kind": "The kind.",
    "metadata": "Name, namespace, labels and annotations.",
    "spec": "What is wanted.",
    "status": "What is so.",
}


def _default(field: Field) -> str:
    if field.required:
        return "**required**"
    if field.default is None:
        return ""
    if isinstance(field.default, msgspec.Struct):
        return ""
    if field.default in ("", (), {}):
        return "empty"
    return f"`{json.dumps(to_wire(field.default))}`"


def _type(shape: Shape) -> str:
    match shape:
        case Optional():
            return f"{_type(shape.inner)}, or null"
        case Boolean():
            return "boolean"
        case Integer():
            return f"integer, {_bound(shape.ge)} to {_bound(shape.le)}"
        case Number():
            return "number"
        case Text():
            return "string" if shape.format.name == "text" else f"string ({shape.format.name})"
        case Choice():
            return " or ".join(f"`{value}`" for value in shape.values)
        case Sequence():
            return f"list of {_type(shape.item)}; {_counts(shape.count_min, shape.count_max)}"
        case Mapping():
            inner = f"{shape.key.format.name} to {_type(shape.value)}"
            return f"mapping of {inner}; {_counts(shape.count_min, shape.count_max)}"
        case Object():
            name = shape.cls.__name__
            return "[metadata](#metadata)" if name == "ObjectMeta" else f"[{name}](#{name.lower()})"
        case Anything():
            return "free-form mapping"
        case _:
            raise TypeError(f"no words for {shape}")


def _bound(number: int) -> str:
    special = {INTEGER_MAX: "2^53", -INTEGER_MAX: "-2^53"}
    return special.get(number, str(number))


def _counts(low: int, high: int) -> str:
    return f"exactly {high}" if low == high else f"{low} to {high}" if low else f"at most {high}"


def _plain(text: str) -> str:
    """Text that Markdown must not read as its own."""
    return text.replace("*", "\\*").replace("<", "&lt;")


def _cell(text: str) -> str:
    return text.replace("|", "\\|")
