"""The quick yes: most objects are right, and that is found out at a tenth of the price of saying what is wrong.

``quick(Budget)`` makes a reader that turns a plain tree into a record if there is surely nothing to say about
it, and answers ``BAD`` otherwise; then the shape reads the tree, and tells what there is to tell. msgspec
decodes in C and takes care of types, choices, and missing and unknown fields. What it does not know (grammars,
limits that hold everywhere, free-form trees) is checked here. Files say the same strings again and again, so
those that were found good are remembered."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from typing import Any, Final

import msgspec

from tenure.api.compile import shape_of
from tenure.api.formats import FORMATS
from tenure.api.shape import (
    BAD,
    Anything,
    Boolean,
    Choice,
    Integer,
    Mapping,
    Number,
    Object,
    Optional,
    Sequence,
    Shape,
    Text,
)
from tenure.api.tree import VALUE_COUNT_MAX, text_problem, unsafe_character
from tenure.units import INTEGER_MAX

Check = Callable[[Any], bool]
"""Is a value that msgspec takes right in all else? (It takes more than plain data: a set for a list, for example.)"""

_REMEMBERED_MAX: Final = 4096
_FREE_DEPTH_MAX: Final = 12
"""So shallow that it is not too deep wherever it stands."""


@cache
def quick(cls: type[msgspec.Struct]) -> Callable[[Any], Any]:
    """A reader from a tree to the record, or to ``BAD``."""
    holds = _check(shape_of(cls))

    def read(tree: Any) -> Any:
        try:
            record = msgspec.convert(tree, cls)
        except Exception:  # mostly a ValidationError; half a surrogate pair is a UnicodeEncodeError
            return BAD
        return record if holds(tree) else BAD

    return read


def _check(shape: Shape) -> Check:
    match shape:
        case Boolean() | Choice():
            return _nothing_left
        case Integer(ge=low, le=high):
            return lambda value: low <= value <= high
        case Number():
            return lambda value: type(value) in (int, float) and abs(value) <= INTEGER_MAX
        case Text(format=form):
            return _text_check(form.name)
        case Sequence(item=item, count_min=low, count_max=high):
            good = _check(item)
            return lambda value: type(value) is list and low <= len(value) <= high and all(map(good, value))
        case Mapping(key=key, value=item, count_min=low, count_max=high):
            return _mapping_check(_check(key), _check(item), low, high)
        case Anything():
            return _is_simple
        case Optional(inner=inner):
            good = _check(inner)
            return lambda value: value is None or good(value)
        case Object():
            return _object_check(shape)
        case _:
            raise TypeError(f"no quick check for {shape}")


def _nothing_left(value: Any) -> bool:
    return True


def _mapping_check(good_key: Check, good: Check, low: int, high: int) -> Check:
    def holds(tree: Any) -> bool:
        if type(tree) is not dict or not low <= len(tree) <= high:
            return False
        return all(map(good_key, tree)) and all(map(good, tree.values()))

    return holds


def _object_check(shape: Object) -> Check:
    checks = {each.wire: _check(each.shape) for each in shape.fields}

    def holds(tree: Any) -> bool:
        if type(tree) is not dict:
            return False
        for key, value in tree.items():  # noqa: SIM110 -- a generator takes as long as all the rest
            if not checks[key](value):
                return False
        return True

    return holds


@cache
def _text_check(name: str) -> Check:
    form = FORMATS[name]
    if form.test is None:
        return lambda text: not text_problem(text, form)
    remembered: set[str] = set()

    def holds(text: str) -> bool:
        if text in remembered:
            return True
        if not form.accepts(text):  # no grammar has a place for what is unsafe to print
            return False
        if len(remembered) < _REMEMBERED_MAX:
            remembered.add(text)
        return True

    return holds


def _is_simple(tree: Any) -> bool:
    """Is there surely nothing to say about this free-form tree?"""
    if type(tree) is not dict:
        return False
    keys: list[str] = []
    texts: list[str] = []
    level: list[Any] = [tree]
    seen = 1
    for _ in range(_FREE_DEPTH_MAX):
        below: list[Any] = []
        for value in level:
            kind = type(value)
            if kind is str:
                texts.append(value)
            elif kind is dict or kind is list:
                seen += len(value)
                if seen > VALUE_COUNT_MAX:
                    return False
                if kind is dict:
                    keys.extend(value)
                below.extend(value.values() if kind is dict else value)
            elif not (kind is int and -INTEGER_MAX <= value <= INTEGER_MAX) and kind is not bool and value is not None:
                return False
        if not below:
            break
        level = below
    else:
        return False
    try:
        names = "".join(keys)
    except TypeError:  # a key that is not a string
        return False
    return not unsafe_character(names, multiline=False) and not unsafe_character("".join(texts), multiline=True)
