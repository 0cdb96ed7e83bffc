"""One line of YAML, taken apart; and what stands in brackets (see ``yaml_lines``).

>>> taken_apart("  - name: west  # of here")
(2, 4, 'name', 'west', '')
>>> in_brackets("{a: [1, no], 'b': x y}", depth=32)
({'a': [1, 'no'], 'b': 'x y'}, 6)
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any, Final

from tenure.api.yaml_scalars import Scalar, resolved

Line = tuple[int, int, str | None, Any, str]
"""Its column, or -1 if it says nothing (blank, a comment); the column behind its dash, or 0 if it has none;
its key; its value, ``BELOW`` if it has none; and ``[...]``, ``{...}`` or ``|`` as they stand, to be read
wherever the line is, because trees share nothing that can be changed.
"""

BELOW: Final = object()
NOTHING: Final[Line] = (-1, 0, None, None, "")
TEXT_HEADERS: Final = frozenset({"|", "|-", ">", ">-"})

_LINE = re.compile(
    r"""(?!---)( *)(- +)?(?:(\w[\w./-]{0,99}|"[^"\\\t]{0,99}"|'[^'\t]{0,99}'):(?: +|$))?([^\t]*)""", re.ASCII
)
"""Indentation, a dash, a key, and the rest."""
_QUOTED = re.compile(r"""("[^"\\]*"|'[^']*') *(?:(?<= )#.*)?""")
_TOKEN = re.compile(
    r"""([\[\]{},]|(?:"[^"\\]*"|'[^']*'):?|-?[\w./+~$][\w./+~$*=@-]*(?:(?: +|:)[\w./+~$*=@-]+)*(?::(?= ))?|.) *""",
    re.ASCII,
)
"""In brackets: a mark; a scalar, with its colon if it is a key; any other character, which is declined."""
_QUOTES: Final = frozenset("\"'")
_NO_PLAIN: Final = frozenset("-?:,[]{}#&*!|>'\"%@`")
"""How no scalar without quotes begins, but for a dash with something right behind it."""
_PLAIN_IN_BRACKETS: Final = re.compile(r"[\w./+~$]|-.", re.ASCII)
_BRACKETS_LENGTH_MAX: Final = 4096
_KEY_LENGTH_MAX: Final = 1000
"""libyaml looks no further than 1024 characters for the colon."""


class Declined(Exception):
    """Not one of the lines that are understood here."""


def taken_apart(line: str) -> Line:
    """``Declined``, or ``Refused`` for a number that we do not take: read it from events."""
    found = _LINE.fullmatch(line)
    if found is None:
        if line.lstrip(" ").startswith("#"):
            return NOTHING
        raise Declined
    indent, dash, key, rest = found.groups()
    column = len(indent)
    inner = column + len(dash) if dash else 0
    value: Any = BELOW
    standing = ""
    if rest:
        if rest[0] in "[{":
            standing = rest.partition(" #")[0].rstrip(" ")
        elif rest in TEXT_HEADERS and (inner or key is not None):
            standing = rest
        else:
            value = _value(rest)
    if key is not None:
        key = key[1:-1] if key[0] in _QUOTES else resolved(key)
        if type(key) is str:
            return column, inner, key, value, standing
    elif value is not BELOW or standing:
        return column, inner, None, value, standing
    elif not inner:
        return NOTHING
    raise Declined


def _value(text: str) -> Any:
    """A scalar, or ``BELOW`` if there is only a comment."""
    first = text[0]
    if first not in _NO_PLAIN or (first == "-" and text[1:2].strip()):
        if " " in text or text[-1] == ":":
            text = text.partition(" #")[0].rstrip(" ")
            if ": " in text or text[-1] == ":":
                raise Declined
        return resolved(text)
    if first == "#":
        return BELOW
    found = _QUOTED.fullmatch(text)
    if found is None:
        raise Declined
    return found[1][1:-1]


def in_brackets(text: str, *, depth: int) -> tuple[Any, int]:
    """The value of brackets, at most so deep, and how many keys and values are inside of it."""
    if len(text) > _BRACKETS_LENGTH_MAX:
        raise Declined
    tokens = _TOKEN.findall(text)
    rest = iter(tokens)
    try:
        value = _part(next(rest), rest, depth)
    except StopIteration:
        raise Declined from None
    if next(rest, None) is not None:
        raise Declined
    return value, len(tokens) - 1 - tokens.count(",") - tokens.count("]") - tokens.count("}")


def _part(token: str, rest: Iterator[str], depth: int) -> Any:
    """The value that begins with this token and goes on in the rest."""
    if token != "{" and token != "[":
        return _scalar(token)
    if depth == 0:
        raise Declined
    closing = "}" if token == "{" else "]"
    out: Any = {} if token == "{" else []
    token = next(rest)
    while token != closing:
        if closing == "]":
            out.append(_part(token, rest, depth - 1))
        else:
            key = _scalar(token[:-1]) if token[-1] == ":" else None
            if type(key) is not str or key in out or len(key) > _KEY_LENGTH_MAX:
                raise Declined
            out[key] = _part(next(rest), rest, depth - 1)
        token = next(rest)
        if token == ",":
            token = next(rest)
            if token == closing:
                raise Declined
        elif token != closing:
            raise Declined
    return out


def _scalar(token: str) -> Scalar:
    first = token[:1]
    if first in _QUOTES:
        if len(token) > 1 and token[-1] == first:
            return token[1:-1]
    elif _PLAIN_IN_BRACKETS.match(token) and token[-1] != ":":
        return resolved(token)
    raise Declined
