"""Scalars of YAML that stand without quotes: what each of them is, by the core schema of version 1.2.

>>> [resolved(text) for text in ("no", "0x10", "1e3", "true", "~", "12:30:45")]
['no', 16, 1000.0, True, None, '12:30:45']
"""

from __future__ import annotations

import re
from typing import Final

from tenure.api.errors import escape
from tenure.api.text import Refused

Scalar = str | int | float | bool | None

_DIGITS_MAX: Final = 400
_WORDS: Final[dict[str, bool | None]] = {
    "": None, "~": None, "null": None, "Null": None, "NULL": None,
    "true": True, "True": True, "TRUE": True, "false": False, "False": False, "FALSE": False,
}  # fmt: skip
_NUMERIC_START: Final = frozenset("+-.0123456789")
_INTEGER = re.compile(r"[-+]?[0-9]+|0o[0-7]+|0x[0-9a-fA-F]+", re.ASCII)
_FLOAT = re.compile(r"[-+]?(\.[0-9]+|[0-9]+(\.[0-9]*)?)([eE][-+]?[0-9]+)?", re.ASCII)
_NOT_FINITE = re.compile(r"[-+]?\.(inf|Inf|INF)|\.(nan|NaN|NAN)", re.ASCII)


def is_plain_string(text: str) -> bool:
    """Is this text, without quotes, a string to us?"""
    special = _INTEGER.fullmatch(text) or _FLOAT.fullmatch(text) or _NOT_FINITE.fullmatch(text)
    return text not in _WORDS and not special


def resolved(text: str) -> Scalar:
    """The value; ``Refused``, without a place, where it is a number that we do not take."""
    if text in _WORDS:
        return _WORDS[text]
    if text[0] not in _NUMERIC_START:
        return text
    if len(text) > _DIGITS_MAX and text.strip("+-.0123456789eE") == "":
        raise Refused("", f"a number of more than {_DIGITS_MAX} digits", "write a smaller one")
    if _INTEGER.fullmatch(text):
        return int(text, 10 if text[:2] not in ("0o", "0x") else 0)
    if _NOT_FINITE.fullmatch(text) or (_FLOAT.fullmatch(text) and float(text) in (float("inf"), float("-inf"))):
        raise Refused("", f"{escape(text)} is not a finite number", "write a number, or quotes around it")
    return float(text) if _FLOAT.fullmatch(text) else text
