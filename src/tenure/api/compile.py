"""From record types to shapes: the one place that reads ``msgspec.inspect``."""

from __future__ import annotations

from functools import cache
from typing import Any, Final

import msgspec
from msgspec import inspect

from tenure.api.formats import FORMATS
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
from tenure.units import INTEGER_MAX

ITEMS_DEFAULT_MAX: Final = 1024
"""For lists and mappings that set no limit of their own."""


@cache
def shape_of(cls: type[msgspec.Struct]) -> Object:
    """The shape of a record type."""
    shape = _compile(inspect.type_info(cls), {})
    assert isinstance(shape, Object)
    return shape


def _compile(info: inspect.Type, extra: dict[str, Any]) -> Shape:
    """Turn msgspec's description of a type into a shape; ``extra`` carries the annotations met on the way."""
    about = extra.get("description", "")
    match info:
        case inspect.Metadata(type=inner, extra_json_schema=more):
            return _compile(inner, {**(more or {}), **extra})
        case inspect.BoolType():
            return Boolean(description=about)
        case inspect.IntType(ge=ge, le=le):
            return Integer(description=about, ge=-INTEGER_MAX if ge is None else ge, le=le or INTEGER_MAX)
        case inspect.FloatType():
            return Number(description=about)
        case inspect.StrType():
            return Text(description=about, format=FORMATS[extra.get("format", "text")])
        case inspect.LiteralType(values=values):
            return Choice(description=about, values=tuple(map(str, values)))
        case inspect.VarTupleType(item_type=item, min_length=low, max_length=high):
            limits = {"count_min": low or 0, "count_max": high or ITEMS_DEFAULT_MAX}
            return Sequence(description=about, item=_compile(item, {}), **limits)
        case inspect.DictType(value_type=inspect.AnyType()):
            return Anything(description=about)
        case inspect.DictType(key_type=key, value_type=value, min_length=low, max_length=high):
            return _compile_mapping(about, _compile(key, {}), _compile(value, {}), low, high)
        case inspect.UnionType(types=types):
            (inner,) = (each for each in types if not isinstance(each, inspect.NoneType))
            return Optional(description=about, inner=_compile(inner, extra))
        case inspect.StructType(cls=cls, fields=fields):
            compiled = tuple(map(_compile_field, fields))
            return Object(description=about, cls=cls, fields=compiled, by_wire={each.wire: each for each in compiled})
        case _:
            raise TypeError(f"the API knows no {info}")


def _compile_mapping(about: str, key: Shape, value: Shape, low: int | None, high: int | None) -> Shape:
    assert isinstance(key, Text)
    return Mapping(description=about, key=key, value=value, count_min=low or 0, count_max=high or ITEMS_DEFAULT_MAX)


def _compile_field(info: inspect.Field) -> Field:
    default = info.default if info.default is not msgspec.NODEFAULT else None
    if info.default_factory is not msgspec.NODEFAULT:
        default = info.default_factory()
    shape = _compile(info.type, {})
    return Field(python=info.name, wire=info.encode_name, shape=shape, required=info.required, default=default)
