"""YAML as people and programs mostly write it, read line by line; everything else is left to the events.

An event of the parser costs about a microsecond, and a mebibyte of manifests has more than a hundred
thousand. But most manifests are lines of ``key: value``, ``- item`` and ``- key: value``, and say the same
lines again and again. Here each distinct line is taken apart once, and documents are put together from
such lines.

There is one rule: a document is read exactly as ``yaml_events`` reads it, or not at all. Whatever is
unusual or wrong (an anchor, a tab, quotes over two lines, a key twice, one value too many) is declined; that
document is then read from events, and what is to be said about it is said there.

>>> tree("a: 1\\nb:\\n- c: x  # so\\n  d: |\\n    two\\n    lines\\n", 100, {})
({'a': 1, 'b': [{'c': 'x', 'd': 'two\\nlines\\n'}]}, 10)
>>> tree("a: &x 1", 100, {})
Traceback (most recent call last):
tenure.api.yaml_parts.Declined
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from itertools import islice
from typing import Any, Final

from tenure.api.text import DOCUMENT_COUNT_MAX, Meter, Refused, too_many
from tenure.api.tree import DEPTH_MAX
from tenure.api.yaml_parts import BELOW, NOTHING, TEXT_HEADERS, Declined, Line, in_brackets, taken_apart

_MARKER = re.compile(r"\n---(?=[ \t\n]|\Z)")
_OTHER_BREAK = re.compile("[\x80-\x9f\u2028\u2029\ufeff\ufffe\uffff]")
"""What libyaml takes for the end of a line, or refuses."""
_CONTENT = re.compile(r"^ *[^ #\n]", re.MULTILINE)
_KNOWN_MAX: Final = 4096
_TOGETHER_MAX: Final = 255

Known = dict[str, Line]
"""Lines that were met before, as many as are worth remembering."""


def read_documents(text: str, meter: Meter) -> Iterator[Any]:
    """The trees of all documents that are not empty; ``Refused`` at the first that cannot be read."""
    given, text = text, text.replace("\r\n", "\n")
    if _is_odd(text):
        yield from _from_events(given, meter)
        return
    known: Known = {"---": NOTHING}
    start = line = counted = count = declined = 0
    ends = _ends(text)
    for end in ends:
        read = _read(text[start : end + 1], meter.left, known)
        if read is None:
            # The next ones may be of the kind, too: more and more of them go together, and only the first is tried.
            together = [end, *islice(ends, declined)]
            declined = min(2 * declined + 1, _TOGETHER_MAX)
            end = together[-1]
            line, counted = line + text.count("\n", counted, start), start
            ending = "" if end == len(text) else "...\n"
            yield from _from_events(text[start : end + 1] + ending, meter, line, count)
            count += len(together)
        else:
            declined = 0
            root, size = read
            meter.left -= size
            count += size > 0
            if count > DOCUMENT_COUNT_MAX:
                raise too_many(_line_after(text, end), f"{DOCUMENT_COUNT_MAX} documents")
            if root is not None:
                yield root
        start = end + 1


def _ends(text: str) -> Iterator[int]:
    """Where the documents end: before the next ``---``, or with the text."""
    for found in _MARKER.finditer(text):
        yield found.start()
    yield len(text)


def _from_events(text: str, meter: Meter, line: int = 0, count: int = 0) -> Iterator[Any]:
    from tenure.api import yaml_events  # a hundredth of a second to import, and most files do without

    return yaml_events.read_documents(text, meter, line, count)


def _line_after(text: str, end: int) -> str:
    """Where the line begins that follows a document."""
    begun = end == len(text) and text.endswith("\n")
    return f"line {text.count(chr(10), 0, end) + (1 if begun else 2)}, column 1"


def _is_odd(text: str) -> bool:
    """Does it hold what is more than documents of lines: directives, ``...``, other ends of lines?"""
    odd = "\r" in text or "\n%" in text or "\n..." in text or text.startswith(("%", "..."))
    return odd or (not text.isascii() and _OTHER_BREAK.search(text) is not None)


def _read(text: str, room: int, known: Known) -> tuple[Any, int] | None:
    try:
        return tree(text, room, known)
    except (Declined, Refused):
        return None


def tree(text: str, room: int, known: Known) -> tuple[Any, int]:
    """The tree of a document, and how many keys and values it has: at most ``room``, and 0 if there is no document.

    ``Declined`` or ``Refused``: read it from events.
    """
    if text.count("\n") > room:
        if text.startswith("---") or (text.strip(" \n") and _CONTENT.search(text)):
            raise Declined  # most likely too many values
        return None, 0
    root: dict[str, Any] = {}
    node: Any = root  # the innermost open container
    at = -1  # its column
    waiting: str | None = ""  # the key in it whose value is still to come
    above: list[tuple[Any, int]] = []  # the containers around it, with their columns
    size = 1
    block: _Text | None = None  # to which the lines belong
    line = ""
    child: Any
    for line in text.split("\n"):
        if block is not None:
            if block.takes(line):
                continue
            block = None
        taken = known.get(line)
        if taken is None:
            taken = taken_apart(line)
            if len(known) < _KNOWN_MAX:
                known[line] = taken
        column, inner, key, value, standing = taken
        if column < 0:
            continue
        while column < at:
            node, at = above.pop()
            waiting = None
        if waiting is not None and (inner or column > at):
            if inner or key is not None:
                node[waiting] = child = [] if inner else {}
                above.append((node, at))
                node, at = child, column
        elif inner:
            if column != at or type(node) is not list:
                raise Declined
        else:
            if type(node) is list:
                node, at = above.pop()
            if column != at or key is None or key in node:
                raise Declined
        if inner:
            size += 1
            if key is not None:
                child = {}
                node.append(child)
                above.append((node, at))
                node, at = child, inner
        if standing:
            if standing in TEXT_HEADERS:
                value = ""
                block = _Text(standing, node, len(node) if key is None else key, at)
            else:
                value, more = in_brackets(standing, depth=DEPTH_MAX - len(above))
                size += more
        if key is not None:
            size += 2
            node[key] = None if value is BELOW else value
            waiting = key if value is BELOW else None
        elif inner:
            node.append(value)
            waiting = None
        else:
            node[waiting] = value
            waiting = None
        if size > room or len(above) > DEPTH_MAX:
            raise Declined
    if block is not None:
        if line:
            raise Declined  # without a last line break
        block.close()
    if not root and not text.startswith("---"):
        size = 0
    if size > room:
        raise Declined
    return root.get(""), size


class _Text:
    """A text of several lines below a ``|`` or a ``>``, and the place in the tree that it goes to."""

    def __init__(self, header: str, node: Any, place: str | int, column: int) -> None:
        self.header = header
        self.node = node
        self.place = place
        self.column = column
        self.indent = ""
        self.lines: list[str] = []

    def takes(self, line: str) -> bool:
        """Does the line belong to the text? If not, the text is complete."""
        if not self.indent:
            self._begin(line)
        if line.startswith(self.indent):
            self.lines.append(line[len(self.indent) :])
        elif not line.strip(" "):
            self.lines.append("")
        else:
            self.close()
            return False
        return True

    def _begin(self, line: str) -> None:
        """The first line says how far all are indented."""
        content = line.lstrip(" ")
        self.indent = line[: len(line) - len(content)]
        if not content or content[0] == "\t" or len(self.indent) <= self.column:
            raise Declined

    def close(self) -> None:
        """Put the text into the tree."""
        lines = self.lines
        while not lines[-1]:
            lines.pop()
        if self.header[0] == "|":
            text = "\n".join(lines)
        elif any(not each or each[0] in " \t" for each in lines):
            raise Declined  # these are not folded
        else:
            text = " ".join(lines)
        self.node[self.place] = text if self.header[-1] == "-" else f"{text}\n"
