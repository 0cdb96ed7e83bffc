"""What requests to an API server are written in: patches, selectors, and the refusals that answer them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from tenure.api.patch import merge

Object = dict[str, Any]
Match = Callable[[Object], bool]
MERGE, JSON_PATCH = "application/merge-patch+json", "application/json-patch+json"


class Refusal(Exception):
    """No, with the HTTP status and the server's word for it."""

    def __init__(self, code: int, reason: str, message: str) -> None:
        super().__init__(code, reason, message)
        self.code, self.reason, self.message = code, reason, message

    def status(self) -> Object:
        return {
            "kind": "Status",
            "apiVersion": "v1",
            "metadata": {},
            "status": "Failure",
            "message": self.message,
            "reason": self.reason,
            "code": self.code,
        }


def invalid(message: str) -> Refusal:
    return Refusal(422, "Invalid", message)


def expired(message: str = "The resourceVersion for the provided watch is too old.") -> Refusal:
    return Refusal(410, "Expired", message)


# --- patches ------------------------------------------------------------------------------------------------------


def patched(item: Object, change: Any, content: str) -> Object:
    """An object after a patch; what it shares with the old one is not to be changed."""
    if content == MERGE:
        if not isinstance(change, dict):
            raise Refusal(400, "BadRequest", "a merge patch is an object")
        merged: Object = merge(item, change)
        return merged
    if content == JSON_PATCH:
        out: Any = item
        for operation in change:
            out = _operate(out, operation)
        done: Object = out
        return done
    raise Refusal(415, "UnsupportedMediaType", f"the fake knows no {content}")


def _operate(item: Any, operation: Object) -> Any:
    path = [part.replace("~1", "/").replace("~0", "~") for part in str(operation["path"]).split("/")[1:]]
    return _at(item, path, operation)


def _at(item: Any, path: list[str], operation: Object) -> Any:
    """RFC 6902: what an operation makes of the value at a path, and of all that lies around it."""
    if not path:
        return _apply(item, operation)
    head, rest = path[0], path[1:]
    if isinstance(item, list):
        return _in_list(item, head, rest, operation)
    if not isinstance(item, dict) or (rest and head not in item):
        raise invalid("the server rejected our request due to an error in our request")
    if rest:
        return {**item, head: _at(item[head], rest, operation)}
    kind = operation["op"]
    if kind == "test":
        if item.get(head) != operation.get("value"):
            raise invalid("the server rejected our request due to an error in our request")
        return item
    if kind in ("remove", "replace") and head not in item:
        raise invalid("the server rejected our request due to an error in our request")
    if kind == "remove":
        return {key: value for key, value in item.items() if key != head}
    return {**item, head: operation["value"]}


def _in_list(item: list[Any], head: str, rest: list[str], operation: Object) -> list[Any]:
    at = len(item) if head == "-" else int(head)
    if at > len(item) or (at == len(item) and operation["op"] != "add"):
        raise invalid("the server rejected our request due to an error in our request")
    if rest:
        return [*item[:at], _at(item[at], rest, operation), *item[at + 1 :]]
    match operation["op"]:
        case "add":
            return [*item[:at], operation["value"], *item[at:]]
        case "remove":
            return [*item[:at], *item[at + 1 :]]
        case "replace":
            return [*item[:at], operation["value"], *item[at + 1 :]]
    if item[at] != operation.get("value"):
        raise invalid("the server rejected our request due to an error in our request")
    return item


def _apply(item: Any, operation: Object) -> Any:
    if operation["op"] == "test":
        if item != operation.get("value"):
            raise invalid("the server rejected our request due to an error in our request")
        return item
    return operation["value"]


# --- selectors ----------------------------------------------------------------------------------------------------


def selector(labels: str, fields: str, allowed: frozenset[str]) -> Match | None:
    """Which objects are asked for; None for all of them."""
    wanted = [_field(term, allowed) for term in fields.split(",") if term]
    wanted += [_label(term) for term in labels.split(",") if term]
    return (lambda item: all(match(item) for match in wanted)) if wanted else None


def _field(term: str, allowed: frozenset[str]) -> Match:
    path, value, same = _term(term)
    if path not in allowed:
        raise Refusal(400, "BadRequest", f"field label not supported: {path}")
    keys = path.split(".")

    def match(item: Object) -> bool:
        found: Any = item
        for key in keys:
            found = found.get(key) if isinstance(found, dict) else None
        return (_text(found) == value) == same

    return match


def _label(term: str) -> Match:
    key, value, same = _term(term)
    return lambda item: ((item["metadata"].get("labels") or {}).get(key, "") == value) == same


def _term(term: str) -> tuple[str, str, bool]:
    for sign in ("!=", "==", "="):
        if sign in term:
            key, _, value = term.partition(sign)
            return key, value, sign != "!="
    raise Refusal(400, "BadRequest", f"the fake knows no selector {term}")


def _text(value: Any) -> str:
    if isinstance(value, bool):
        return "true" if value else "false"
    return "" if value is None else str(value)
