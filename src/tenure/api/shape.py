"""Shapes: the API types as data, from which decoding, the CRDs and the reference pages are made.

``compile.shape_of(Budget)`` turns a record type into a tree of shapes. Reading a plain tree of dicts,
lists, strings and numbers through a shape gives the record, and adds every error on the way to ``Faults``:
wrong types, missing and unknown fields, strings of the wrong grammar, numbers and lists beyond their
limits. A value of the wrong type gives ``BAD`` and no record; a value of the right type outside its limits
is reported and kept, so that the rules of ``validate`` can be checked as well and all errors come at once.

The work is bounded: a list or mapping over its limit is refused before it is walked, and the walk ends when
``Faults`` is full."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any, Final

import msgspec

from tenure.api.errors import Faults, Path, show
from tenure.api.formats import Format
from tenure.api.tree import nearest, text_problem, tree_fits
from tenure.units import INTEGER_MAX

BAD: Final = object()
"""What a shape answers where no value of its type was found."""

_TYPE_NAMES = {
    str: "a string",
    bool: "a boolean",
    int: "a whole number",
    float: "a number",
    dict: "a mapping",
    list: "a list",
    tuple: "a list",
    type(None): "null",
}


class Shape(msgspec.Struct, frozen=True, kw_only=True):
    """One type. ``description`` is what the field that has it means."""

    description: str = ""

    def read(self, value: Any, at: Path, faults: Faults) -> Any:
        raise NotImplementedError

    def right(self) -> str:
        """Completes the sentence "write ..."."""
        raise NotImplementedError

    def wrong_type(self, value: Any, at: Path, faults: Faults) -> Any:
        found = _TYPE_NAMES.get(type(value), "not plain data")
        problem = f"{found} where {self.wanted()} belongs"
        faults.add(at, problem, f"write {self.right()}", value=show(value))
        return BAD

    def wanted(self) -> str:
        raise NotImplementedError


class Boolean(Shape, frozen=True, kw_only=True):
    def read(self, value: Any, at: Path, faults: Faults) -> Any:
        return value if isinstance(value, bool) else self.wrong_type(value, at, faults)

    def right(self) -> str:
        return "true or false, without quotes"

    def wanted(self) -> str:
        return "a boolean"


class Integer(Shape, frozen=True, kw_only=True):
    ge: int
    le: int

    def read(self, value: Any, at: Path, faults: Faults) -> Any:
        if not isinstance(value, int) or isinstance(value, bool):
            return self.wrong_type(value, at, faults)
        if not self.ge <= value <= self.le:
            faults.add(
                at,
                "too small" if value < self.ge else "too large",
                f"write {self.right()}",
                value=show(value),
            )
        return value

    def right(self) -> str:
        return f"a whole number from {self.ge} to {self.le}, without quotes"

    def wanted(self) -> str:
        return "a whole number"


class Number(Shape, frozen=True, kw_only=True):
    """A number that is only shown: statuses have them, specs do not."""

    def read(self, value: Any, at: Path, faults: Faults) -> Any:
        if not isinstance(value, int | float) or isinstance(value, bool):
            return self.wrong_type(value, at, faults)
        if not abs(value) <= INTEGER_MAX:  # neither is NaN, which compares with nothing
            faults.add(at, "not within limits", f"write a number within {INTEGER_MAX}", value=show(value))
            return BAD
        return float(value)

    def right(self) -> str:
        return "a number, without quotes"

    def wanted(self) -> str:
        return "a number"


class Text(Shape, frozen=True, kw_only=True):
    format: Format

    def read(self, value: Any, at: Path, faults: Faults) -> Any:
        if self.format.name == "quantity" and isinstance(value, int) and not isinstance(value, bool):
            # Kubernetes takes ``nvidia.com/gpu: 8`` with and without quotes.
            value = show(value)
        if not isinstance(value, str):
            return self.wrong_type(value, at, faults)
        problem = text_problem(value, self.format)
        if problem:
            faults.add(at, problem, f"write {self.right()}", value=show(value))
        return value

    def right(self) -> str:
        return self.format.right

    def wanted(self) -> str:
        return "a string"

    def wrong_type(self, value: Any, at: Path, faults: Faults) -> Any:
        if isinstance(value, bool | int | float):
            fix = f'put it in quotes ("{show(value)}") and write {self.right()}'
            faults.add(at, f"{_TYPE_NAMES[type(value)]} where a string belongs", fix, value=show(value))
            return BAD
        return super().wrong_type(value, at, faults)


class Choice(Shape, frozen=True, kw_only=True):
    values: tuple[str, ...]

    def read(self, value: Any, at: Path, faults: Faults) -> Any:
        if not isinstance(value, str):
            return self.wrong_type(value, at, faults)
        if value not in self.values:
            faults.add(at, "not one of the choices", f"write {self.right()}", value=show(value))
            return BAD
        return value

    def right(self) -> str:
        return " or ".join(self.values) if len(self.values) < 3 else f"one of {', '.join(self.values)}"

    def wanted(self) -> str:
        return "a string"


class Sequence(Shape, frozen=True, kw_only=True):
    item: Shape
    count_min: int
    count_max: int

    def read(self, value: Any, at: Path, faults: Faults) -> Any:
        if not isinstance(value, list | tuple):
            return self.wrong_type(value, at, faults)
        if not _count_fits(value, self.count_min, self.count_max, at, faults, noun="items"):
            return tuple(value) if len(value) < self.count_min else BAD
        items = []
        for index, item in enumerate(value):
            if faults.full:
                return BAD
            items.append(self.item.read(item, (*at, index), faults))
        return BAD if _any_bad(items) else tuple(items)

    def right(self) -> str:
        return f"a list of {self.count_min} to {self.count_max} items"

    def wanted(self) -> str:
        return "a list"


class Mapping(Shape, frozen=True, kw_only=True):
    key: Text
    value: Shape
    count_min: int
    count_max: int

    def read(self, value: Any, at: Path, faults: Faults) -> Any:
        if not isinstance(value, dict):
            return self.wrong_type(value, at, faults)
        if not _count_fits(value, self.count_min, self.count_max, at, faults, noun="keys"):
            return dict(value) if len(value) < self.count_min else BAD
        out: dict[Any, Any] = {}
        for key, item in value.items():
            if faults.full:
                return BAD
            here = (*at, key if isinstance(key, str) else show(key))
            out[self.key.read(key, here, faults)] = self.value.read(item, here, faults)
        return BAD if _any_bad(out) or _any_bad(out.values()) else out

    def right(self) -> str:
        return f"a mapping of {self.count_min} to {self.count_max} keys"

    def wanted(self) -> str:
        return "a mapping"


class Anything(Shape, frozen=True, kw_only=True):
    """A free-form mapping: whatever JSON can say, within limits (``tree.py``)."""

    def read(self, value: Any, at: Path, faults: Faults) -> Any:
        if not isinstance(value, dict):
            return self.wrong_type(value, at, faults)
        return value if tree_fits(value, at, faults) else BAD

    def right(self) -> str:
        return "a mapping"

    def wanted(self) -> str:
        return "a mapping"


class Optional(Shape, frozen=True, kw_only=True):
    """The inner shape, or null, which means the same as leaving the field out."""

    inner: Shape

    def read(self, value: Any, at: Path, faults: Faults) -> Any:
        return None if value is None else self.inner.read(value, at, faults)

    def right(self) -> str:
        return self.inner.right()

    def wanted(self) -> str:
        return self.inner.wanted()


class Field(msgspec.Struct, frozen=True, kw_only=True):
    """A field of a record: its spelling in Python and on the wire, and its default."""

    python: str
    wire: str
    shape: Shape
    required: bool
    default: Any = None


class Object(Shape, frozen=True, kw_only=True):
    """A record."""

    cls: type[msgspec.Struct]
    fields: tuple[Field, ...]
    by_wire: dict[str, Field]

    def read(self, value: Any, at: Path, faults: Faults) -> Any:
        if not isinstance(value, dict):
            return self.wrong_type(value, at, faults)
        given = dict(self._known(value, at, faults))
        for each in self.fields:
            if each.required and each.python not in given:
                if each.wire not in value:
                    faults.add((*at, each.wire), "required and missing", f"write {each.shape.right()}")
                given[each.python] = BAD
        return BAD if _any_bad(given.values()) else self.cls(**given)

    def _known(self, value: dict[Any, Any], at: Path, faults: Faults) -> Iterator[tuple[str, Any]]:
        for key, item in value.items():
            if faults.full:
                return
            known = self.by_wire.get(key) if isinstance(key, str) else None
            if known is None:
                self._unknown(key, at, faults)
            elif not known.required and type(item) is type(known.default) and item == known.default:
                yield (
                    known.python,
                    known.default,
                )  # a default that is spelled out is right, even "" for an owner
            else:
                yield known.python, known.shape.read(item, (*at, known.wire), faults)

    def _unknown(self, key: Any, at: Path, faults: Faults) -> None:
        name = key if isinstance(key, str) else show(key)
        like = nearest(name, tuple(self.by_wire))
        fix = f"did you mean {like}?" if like else f"the fields here are {', '.join(sorted(self.by_wire))}"
        faults.add((*at, name), "unknown field", fix)

    def right(self) -> str:
        required = [each.wire for each in self.fields if each.required]
        return f"a mapping with {', '.join(required)}" if required else "a mapping"

    def wanted(self) -> str:
        return "a mapping"


def _count_fits(value: Any, low: int, high: int, at: Path, faults: Faults, *, noun: str) -> bool:
    if low <= len(value) <= high:
        return True
    problem = "empty" if not value else f"{len(value)} {noun}"
    faults.add(at, problem, f"give from {low} to {high} {noun}", value="" if value else show(value))
    return False


def _any_bad(values: Iterable[Any]) -> bool:
    return any(each is BAD for each in values)
