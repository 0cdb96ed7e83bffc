"""From text to plain trees: YAML and JSON, without the traps of either.

A text is UTF-8 of at most 1 MiB. What begins like JSON is read as JSON, and everything else, also what
turns out not to be JSON, as a stream of YAML documents. From YAML only the core schema of version 1.2 is
taken: ``true``, ``null``, whole numbers and floats have types, and ``no``, ``12:30:45`` and
``2025-11-01T00:00:00Z`` are the strings they look like. Anchors, aliases, tags, merge keys, keys that are
no strings, and keys that appear twice are refused, and so are numbers that are not finite.

>>> parse("a: no\\nb: 0x10\\n---\\n{c: 12:30:45}").trees
({'a': 'no', 'b': 16}, {'c': '12:30:45'})

Hostile text costs a bounded amount of work: its length is looked at before its contents, its depth and its
number of values as they are met. Trees are built from lines or from the parser's events, and nothing recurses
deeper than a tree may be."""

from __future__ import annotations

import re
from collections.abc import Iterator
from itertools import chain
from math import isfinite
from typing import Any, Final

import msgspec

from tenure.api.errors import FieldError, escape
from tenure.api.tree import DEPTH_MAX, VALUE_COUNT_MAX

TEXT_BYTES_MAX: Final = 1024 * 1024
DOCUMENT_COUNT_MAX: Final = 10_000
JSON_COMMA_COUNT_MAX: Final = 80_000
_JSON_SURE: Final = 4096
"""Text that was JSON for so many characters was meant to be."""

# A string of JSON, or a bracket outside of one. Possessive, so that a string without an end costs one pass.
_JSON_TOKEN = re.compile(r'"[^"\\]*+(?:\\.[^"\\]*+)*+"?|[\[\]{}]', re.DOTALL)
_CONTROL = re.compile("[\x00-\x08\x0b\x0c\x0e-\x1f\x7f]")


class Parsed(msgspec.Struct, frozen=True):
    """The documents of a text; none if there is an error."""

    trees: tuple[Any, ...] = ()
    errors: tuple[FieldError, ...] = ()


class Meter:
    """How many more values may be read. A caller that found a document to be good may fill it up again."""

    def __init__(self, room: int = VALUE_COUNT_MAX) -> None:
        self.room = room
        self.left = room

    def refill(self) -> None:
        self.left = self.room


class Refused(Exception):
    """Unwinds the readers of this package; ``documents`` turns it into the value it carries."""

    def __init__(self, where: str, problem: str, fix: str) -> None:
        super().__init__(problem)
        self.where, self.problem, self.fix = where, problem, fix


def parse(text: str | bytes, *, source: str = "<input>", value_count_max: int = VALUE_COUNT_MAX) -> Parsed:
    """All documents of a text at once. Empty documents are left out."""
    trees: list[Any] = []
    for each in documents(text, source=source, meter=Meter(value_count_max)):
        if isinstance(each, FieldError):
            return Parsed(errors=(each,))
        trees.append(each)
    return Parsed(trees=tuple(trees))


def documents(text: str | bytes, *, source: str, meter: Meter) -> Iterator[Any]:
    """The documents one by one; a ``FieldError`` in place of the first that could not be read, and nothing
    after it.
    """
    try:
        yield from _documents(_checked(text), meter)
    except Refused as refused:
        yield FieldError(
            object=escape(source),
            path=refused.where,
            problem=escape(refused.problem, limit=300),
            fix=refused.fix,
        )


def place(text: str, offset: int) -> str:
    """Where an offset is, for people."""
    line = text.count("\n", 0, offset) + 1
    return f"line {line}, column {offset - text.rfind(chr(10), 0, offset)}"


def _documents(text: str, meter: Meter) -> Iterator[Any]:
    if text.lstrip()[:1] in ("{", "["):
        done, tree = _json(text)
        if done:
            yield tree
            return
    from tenure.api.yaml_lines import read_documents  # YAML is only imported where there is some

    yield from read_documents(text, meter)


def _checked(text: str | bytes) -> str:
    """The text as a string of bounded length, free of raw control characters."""
    if len(text) > TEXT_BYTES_MAX:
        raise _oversize()
    if isinstance(text, bytes):
        text = _decoded(text)
    elif not text.isascii() and len(_encoded(text)) > TEXT_BYTES_MAX:
        raise _oversize()
    if text.startswith("\ufeff"):
        raise Refused("line 1, column 1", "begins with a byte order mark", "save it as UTF-8 without one")
    if found := _CONTROL.search(text):
        problem = f"holds the control character U+{ord(found.group()):04X}"
        raise Refused(place(text, found.start()), problem, "leave it out")
    return text


def _oversize() -> Refused:
    """How much more is not said: whoever read the file stopped here, too."""
    return Refused("", f"more than the {TEXT_BYTES_MAX} bytes that are read", "split it into smaller files")


def _decoded(text: bytes) -> str:
    try:
        return text.decode()
    except UnicodeDecodeError as error:
        problem = f"not UTF-8: byte 0x{text[error.start]:02x} at offset {error.start}"
        raise Refused("", problem, "save it as UTF-8") from None


def _encoded(text: str) -> bytes:
    try:
        return text.encode()
    except UnicodeEncodeError as error:
        raise Refused(place(text, error.start), "half of a surrogate pair", "leave it out") from None


class _Repeated(dict[str, Any]):
    """A JSON object in which a key appeared twice."""

    key = ""


def _json(text: str) -> tuple[bool, Any]:
    """Whether the text is JSON, and its value. What is JSON but may not be raises ``Refused``."""
    import json

    if text.count(",") > JSON_COMMA_COUNT_MAX:
        raise too_many("", f"{JSON_COMMA_COUNT_MAX} commas")
    repeated: list[_Repeated] = []
    try:
        tree = json.loads(
            text, object_pairs_hook=_PairsHook(repeated), parse_constant=_refuse_constant, parse_float=_finite
        )
    except json.JSONDecodeError as error:
        if error.pos < _JSON_SURE:
            return False, None
        raise Refused(place(text, error.pos), f"not JSON: {error.msg}", "mend the syntax there") from None
    except RecursionError:
        tree = None
    except ValueError:  # Python's own limit on the digits of an integer
        raise Refused("", "holds a number of more than 4300 digits", "write a smaller number") from None
    if repeated and tree is not None:
        raise _twice(tree, repeated[0])
    if text.count("[") + text.count("{") > DEPTH_MAX and (tree is None or _is_deep(tree)):
        _check_json_depth(text)
    return True, tree


def _twice(tree: Any, where: _Repeated) -> Refused:
    others = ", ".join(escape(each) for each in list(where)[:4])
    problem = f'the key "{escape(where.key)}" appears twice in the object with the keys {others}'
    return Refused(_where(tree, where), problem, "keep one of them")


class _PairsHook:
    """Builds JSON objects and remembers the first with a key that appears twice."""

    def __init__(self, repeated: list[_Repeated]) -> None:
        self.repeated = repeated

    def __call__(self, pairs: list[tuple[str, Any]]) -> dict[str, Any]:
        out = dict(pairs)
        if len(out) == len(pairs) or self.repeated:
            return out
        seen: set[str] = set()
        marked = _Repeated(out)
        marked.key = next(key for key, _ in pairs if key in seen or seen.add(key))  # type: ignore[func-returns-value]
        self.repeated.append(marked)
        return marked


def _where(tree: Any, wanted: dict[str, Any]) -> str:
    """The path to an object inside a tree."""
    from tenure.api.errors import Path, path_text

    waiting: list[tuple[Any, Path]] = [(tree, ())]
    while waiting:
        value, path = waiting.pop()
        if value is wanted:
            return path_text(path)
        if isinstance(value, dict):
            waiting.extend((each, (*path, key)) for key, each in value.items() if isinstance(each, dict | list))
        else:
            waiting.extend((each, (*path, index)) for index, each in enumerate(value) if isinstance(each, dict | list))
    return ""


def _is_deep(tree: Any) -> bool:
    """Is it nested more than it may be? Looked at level by level."""
    level = [tree]
    for _ in range(DEPTH_MAX):
        values = chain.from_iterable(each.values() if isinstance(each, dict) else each for each in level)
        level = [each for each in values if type(each) is dict or type(each) is list]
        if not level:
            return False
    return True


def _check_json_depth(text: str) -> None:
    depth = 0
    for found in _JSON_TOKEN.finditer(text):
        mark = found.group()
        if mark in "[{":
            depth += 1
            if depth > DEPTH_MAX:
                raise too_deep(place(text, found.start()))
        elif mark in "]}":
            depth -= 1


def too_deep(where: str) -> Refused:
    return Refused(where, f"nested more than {DEPTH_MAX} deep", "write it flatter")


def too_many(where: str, what: str) -> Refused:
    return Refused(where, f"more than {what}", "split it into several files")


def _refuse_constant(name: str) -> Any:
    raise Refused("", f"{name} is not a finite number", "write a number")


def _finite(digits: str) -> float:
    number = float(digits)
    if not isfinite(number):
        raise Refused("", f"{escape(digits)} is too large a number", "write a smaller one")
    return number
