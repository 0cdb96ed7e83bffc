"""YAML documents, built from the parser's events under a meter (see ``text``).

PyYAML's loaders follow anchors, call constructors by tag and recurse; an event stream does none of it. One
loop keeps a stack of open containers, at most 32, and puts each finished value where it belongs."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any, Final

import yaml

from tenure.api.errors import Path, escape, path_text
from tenure.api.text import DOCUMENT_COUNT_MAX, Meter, Refused, too_deep, too_many
from tenure.api.tree import DEPTH_MAX

_DIGITS_MAX: Final = 400
_WORDS: Final[dict[str, bool | None]] = {
    "": None, "~": None, "null": None, "Null": None, "NULL": None,
    "true": True, "True": True, "TRUE": True, "false": False, "False": False, "FALSE": False,
}  # fmt: skip
_NUMERIC_START: Final = frozenset("+-.0123456789")
_INTEGER = re.compile(r"[-+]?[0-9]+|0o[0-7]+|0x[0-9a-fA-F]+", re.ASCII)
_FLOAT = re.compile(r"[-+]?(\.[0-9]+|[0-9]+(\.[0-9]*)?)([eE][-+]?[0-9]+)?", re.ASCII)
_NOT_FINITE = re.compile(r"[-+]?\.(inf|Inf|INF)|\.(nan|NaN|NAN)", re.ASCII)
_NO_KEY: Final = object()


def is_plain_string(text: str) -> bool:
    """Is this text, without quotes, a string to us?"""
    special = _INTEGER.fullmatch(text) or _FLOAT.fullmatch(text) or _NOT_FINITE.fullmatch(text)
    return text not in _WORDS and not special


def read_documents(text: str, meter: Meter) -> Iterator[Any]:
    """The trees of all documents that are not empty; ``Refused`` at the first that cannot be read."""
    loader_class = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
    loader = loader_class(text)
    try:
        yield from _Builder(meter).documents(_events(loader))
    except yaml.MarkedYAMLError as error:
        raise _unreadable(error) from None
    except yaml.YAMLError as error:
        raise Refused("", f"not YAML: {escape(str(error))}", "save it as plain UTF-8 text") from None
    finally:
        loader.dispose()


def _events(loader: Any) -> Iterator[Any]:
    next_event = loader.get_event
    while True:
        event = next_event()
        yield event
        if type(event) is yaml.StreamEndEvent:
            return


def _unreadable(error: yaml.MarkedYAMLError) -> Refused:
    said = " ".join(part for part in (error.context, error.problem) if part)
    where = _place(error.problem_mark or error.context_mark)
    return Refused(where, f"neither YAML nor JSON: {escape(said, limit=200)}", "mend the syntax there")


def _place(mark: Any) -> str:
    return f"line {mark.line + 1}, column {mark.column + 1}" if mark else ""


class _Open:
    """A container that is not finished yet."""

    __slots__ = ("key", "value")

    def __init__(self, value: Any) -> None:
        self.value = value
        self.key: Any = _NO_KEY


class _Builder:
    """Puts values together. ``stack`` holds the open containers, outermost first."""

    def __init__(self, meter: Meter) -> None:
        self.meter = meter
        self.stack: list[_Open] = []
        self.root: Any = None

    def documents(self, events: Iterator[Any]) -> Iterator[Any]:
        count = 0
        for event in events:
            kind = type(event)
            if kind is yaml.ScalarEvent:
                self._scalar(event)
            elif kind is yaml.MappingStartEvent:
                self._open({}, event)
            elif kind is yaml.SequenceStartEvent:
                self._open([], event)
            elif kind is yaml.MappingEndEvent or kind is yaml.SequenceEndEvent:
                self._put(self.stack.pop().value, event)
            elif kind is yaml.DocumentEndEvent:
                count += 1
                if count > DOCUMENT_COUNT_MAX:
                    raise too_many(_place(event.start_mark), f"{DOCUMENT_COUNT_MAX} documents")
                if self.root is not None:
                    yield self.root
                self.root = None
            elif kind is yaml.AliasEvent:
                raise self._refused(event, "a YAML alias", "write the value out where it is meant")

    def _scalar(self, event: Any) -> None:
        self._check(event)
        value = event.value
        if not event.style:
            value = self._resolved(event)
        self._put(value, event)

    def _open(self, value: Any, event: Any) -> None:
        self._check(event)
        if self.stack and isinstance(self.stack[-1].value, dict) and self.stack[-1].key is _NO_KEY:
            raise self._refused(event, "a key that is not a string", "write a string")
        if len(self.stack) >= DEPTH_MAX:
            raise too_deep(_place(event.start_mark))
        self.stack.append(_Open(value))

    def _check(self, event: Any) -> None:
        if event.anchor is not None:
            raise self._refused(event, "a YAML anchor", "write the value out where it is meant")
        if event.tag is not None:
            raise self._refused(event, "a YAML tag", "leave it out, and put strings in quotes")
        self.meter.left -= 1
        if self.meter.left < 0:
            raise too_many(_place(event.start_mark), f"{self.meter.room} keys and values")

    def _put(self, value: Any, event: Any) -> None:
        if not self.stack:
            self.root = value
            return
        top = self.stack[-1]
        if isinstance(top.value, list):
            top.value.append(value)
        elif top.key is _NO_KEY:
            self._key(top, value, event)
        else:
            top.value[top.key] = value
            top.key = _NO_KEY

    def _key(self, top: _Open, key: Any, event: Any) -> None:
        if key == "<<" and not event.style:
            raise self._refused(event, "a YAML merge key", "write the fields out where they are meant")
        if not isinstance(key, str):
            raise self._refused(event, "a key that is not a string", "put it in quotes")
        if key in top.value:
            at = path_text((*self._path(), key))
            raise self._refused(event, f"{at} appears twice", "keep one of them")
        top.key = key

    def _path(self) -> Path:
        steps = (len(each.value) if isinstance(each.value, list) else each.key for each in self.stack)
        return tuple(step for step in steps if step is not _NO_KEY)

    def _resolved(self, event: Any) -> Any:
        """A plain scalar by the core schema of YAML 1.2."""
        text = event.value
        if text in _WORDS:
            return _WORDS[text]
        if text[0] not in _NUMERIC_START:
            return text
        if len(text) > _DIGITS_MAX and text.strip("+-.0123456789eE") == "":
            raise self._refused(event, f"a number of more than {_DIGITS_MAX} digits", "write a smaller one")
        if _INTEGER.fullmatch(text):
            return int(text, 10 if text[:2] not in ("0o", "0x") else 0)
        if _NOT_FINITE.fullmatch(text) or (_FLOAT.fullmatch(text) and float(text) in (float("inf"), float("-inf"))):
            raise self._refused(event, f"{escape(text)} is not a finite number", "write a number, or quotes around it")
        return float(text) if _FLOAT.fullmatch(text) else text

    def _refused(self, event: Any, problem: str, fix: str) -> Refused:
        return Refused(_place(event.start_mark), problem, fix)
