"""JSON merge patches (RFC 7396): what makes one tree of another, and how it is put over a third."""

from __future__ import annotations

from typing import Any


def merge(target: Any, patch: Any) -> Any:
    """Objects are merged, null removes, everything else replaces.

    >>> merge({"a": {"b": 1, "c": 2}}, {"a": {"b": None, "d": 3}})
    {'a': {'c': 2, 'd': 3}}
    """
    if not isinstance(patch, dict):
        return patch
    out = dict(target) if isinstance(target, dict) else {}
    for key, value in patch.items():
        if value is None:
            out.pop(key, None)
        else:
            out[key] = merge(out.get(key), value)
    return out


def difference(before: Any, after: Any) -> Any:
    """The patch that makes the one of the other.

    >>> difference({"a": 1, "b": {"c": 2, "d": 3}}, {"a": 1, "b": {"c": 4}})
    {'b': {'c': 4, 'd': None}}
    """
    out = {}
    for key in sorted(before.keys() | after.keys()):
        old, new = before.get(key), after.get(key)
        if isinstance(old, dict) and isinstance(new, dict):
            if inner := difference(old, new):
                out[key] = inner
        elif old != new:
            out[key] = new
    return out
