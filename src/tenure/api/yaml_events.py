"""YAML documents, built from the parser's events under a meter (see ``text``): all that ``yaml_lines`` declines.

PyYAML's loaders follow anchors, call constructors by tag and recurse; an event stream does none of it. One
loop keeps a stack of open containers, at most 32, and puts each finished value where it belongs."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Final

import yaml

from tenure.api.errors import Path, escape, path_text
from tenure.api.text import DOCUMENT_COUNT_MAX, Meter, Refused, too_deep, too_many
from tenure.api.tree import DEPTH_MAX
from tenure.api.yaml_scalars import resolved

_NO_KEY: Final = object()


def read_documents(text: str, meter: Meter, line: int = 0, count: int = 0) -> Iterator[Any]:
    """The trees of all documents that are not empty; ``Refused`` at the first that cannot be read.

    ``line`` and ``count``: how many lines and documents of the input come before this text.
    """
    loader_class = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
    loader = loader_class(text)
    try:
        yield from _Builder(meter, line).documents(_events(loader), count)
    except yaml.MarkedYAMLError as error:
        raise _unreadable(error, line) from None
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


def _unreadable(error: yaml.MarkedYAMLError, line: int) -> Refused:
    said = " ".join(part for part in (error.context, error.problem) if part)
    where = _place(error.problem_mark or error.context_mark, line)
    return Refused(where, f"neither YAML nor JSON: {escape(said, limit=200)}", "mend the syntax there")


def _place(mark: Any, line: int) -> str:
    return f"line {line + mark.line + 1}, column {mark.column + 1}" if mark else ""


class _Open:
    """A container that is not finished yet."""

    __slots__ = ("key", "value")

    def __init__(self, value: Any) -> None:
        self.value = value
        self.key: Any = _NO_KEY


class _Builder:
    """Puts values together. ``stack`` holds the open containers, outermost first."""

    def __init__(self, meter: Meter, line: int) -> None:
        self.meter = meter
        self.line = line
        self.stack: list[_Open] = []
        self.root: Any = None

    def documents(self, events: Iterator[Any], count: int) -> Iterator[Any]:
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
                    raise too_many(_place(event.start_mark, self.line), f"{DOCUMENT_COUNT_MAX} documents")
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
            raise too_deep(_place(event.start_mark, self.line))
        self.stack.append(_Open(value))

    def _check(self, event: Any) -> None:
        if event.anchor is not None:
            raise self._refused(event, "a YAML anchor", "write the value out where it is meant")
        if event.tag is not None:
            raise self._refused(event, "a YAML tag", "leave it out, and put strings in quotes")
        self.meter.left -= 1
        if self.meter.left < 0:
            raise too_many(_place(event.start_mark, self.line), f"{self.meter.room} keys and values")

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
        try:
            return resolved(event.value)
        except Refused as refused:
            raise self._refused(event, refused.problem, refused.fix) from None

    def _refused(self, event: Any, problem: str, fix: str) -> Refused:
        return Refused(_place(event.start_mark, self.line), problem, fix)
