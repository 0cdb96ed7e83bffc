"""What an API server would say about an object, from its CRD: a small checker of structural schemas and CEL.

Offline and on purpose independent of tenure.api.shape: it reads the manifest alone. The real API server has
the last word; this one knows what the manifests use."""

import re
from collections.abc import Iterator
from datetime import datetime
from functools import cache
from typing import Any

import cel

from tenure.api.crd import manifest

TYPES = {
    "string": str,
    "boolean": bool,
    "integer": int,
    "number": (int, float),
    "object": dict,
    "array": list,
}


@cache
def schema_of(kind: str) -> dict[str, Any]:
    (version,) = manifest(kind)["spec"]["versions"]
    return version["schema"]["openAPIV3Schema"]


def refusals(tree: dict[str, Any], old: dict[str, Any] | None = None) -> list[str]:
    """Why the API server refuses to create the object, or to replace ``old`` by it."""
    schema = schema_of(tree["kind"])
    faults = list(_structure(schema, tree, "", root=True))
    return faults or list(_rules(schema, tree, old, ""))


def _structure(schema: dict[str, Any], value: Any, at: str, *, root: bool = False) -> Iterator[str]:
    kind = schema["type"]
    if not isinstance(value, TYPES[kind]) or (isinstance(value, bool) and kind != "boolean"):
        yield f"{at}: not of type {kind}"
        return
    if kind == "object":
        yield from _object(schema, value, at, root=root)
    elif kind == "array":
        yield from _array(schema, value, at)
    elif kind == "string":
        yield from _string(schema, value, at)
    elif kind == "integer" and not schema.get("minimum", value) <= value <= schema.get("maximum", value):
        yield f"{at}: out of range"


def _object(schema: dict[str, Any], value: dict[str, Any], at: str, *, root: bool) -> Iterator[str]:
    properties = schema.get("properties", {})
    for name in schema.get("required", ()):
        if name not in value:
            yield f"{at}.{name}: required"
    if not schema.get("minProperties", 0) <= len(value) <= schema.get("maxProperties", len(value)):
        yield f"{at}: wrong number of keys"
    for name, item in value.items():
        if root and name == "metadata":
            continue
        if name in properties:
            yield from _structure(properties[name], item, f"{at}.{name}")
        elif "additionalProperties" in schema:
            yield from _structure(schema["additionalProperties"], item, f"{at}.{name}")
        elif not schema.get("x-kubernetes-preserve-unknown-fields"):
            yield f"{at}.{name}: unknown"


def _array(schema: dict[str, Any], value: list[Any], at: str) -> Iterator[str]:
    if not schema.get("minItems", 0) <= len(value) <= schema.get("maxItems", len(value)):
        yield f"{at}: wrong number of items"
    for index, item in enumerate(value):
        yield from _structure(schema["items"], item, f"{at}[{index}]")
    keys = schema.get("x-kubernetes-list-map-keys")
    unique = [tuple(item.get(key) for key in keys) for item in value] if keys else value
    if schema.get("x-kubernetes-list-type") in ("map", "set") and len(set(unique)) < len(unique):
        yield f"{at}: listed twice"


def _string(schema: dict[str, Any], value: str, at: str) -> Iterator[str]:
    if not schema.get("minLength", 0) <= len(value) <= schema.get("maxLength", len(value)):
        yield f"{at}: wrong length"
    if "pattern" in schema and not re.search(schema["pattern"], value, re.ASCII):
        yield f"{at}: does not match"
    if "enum" in schema and value not in schema["enum"]:
        yield f"{at}: not one of the values"
    if schema.get("format") == "date-time":
        try:
            datetime.fromisoformat(value)
        except ValueError:
            yield f"{at}: not a time"


def _rules(schema: dict[str, Any], value: Any, old: Any, at: str) -> Iterator[str]:
    for rule in schema.get("x-kubernetes-validations", ()):
        changing = "oldSelf" in rule["rule"]
        if changing and old is None:
            continue  # the API server skips transition rules on creation
        names = {"self": _typed(schema, value), **({"oldSelf": _typed(schema, old)} if changing else {})}
        if cel.evaluate(rule["rule"], names) is not True:
            yield f"{at}: {rule['message']}"
    if isinstance(value, dict):
        for name, inner in schema.get("properties", {}).items():
            if name in value:
                before = old.get(name) if isinstance(old, dict) else None
                yield from _rules(inner, value[name], before, f"{at}.{name}")
    if isinstance(value, list):
        for index, item in enumerate(value):
            yield from _rules(schema["items"], item, None, f"{at}[{index}]")


def _typed(schema: dict[str, Any], value: Any) -> Any:
    """As CEL sees it: times are timestamps."""
    if schema.get("format") == "date-time":
        return datetime.fromisoformat(value)
    if isinstance(value, dict):
        properties = schema.get("properties", {})
        return {name: _typed(properties.get(name, {}), item) for name, item in value.items()}
    if isinstance(value, list):
        return [_typed(schema.get("items", {}), item) for item in value]
    return value
