"""What is wrong with an input, as data: which object, which field, what was there, and what would be right.

A reader of an error has a file open and wants to mend it, so every error names its field the way the file
spells it. What was there may be anything that anybody can type: it is shown shortened and escaped, and can
neither flood nor steer a terminal or a log.

>>> error = FieldError(object="Run/rai/train", path=path_text(("spec", "resources", "totalGPUs")),
...                    value=show("12"), problem="not a whole number", fix="write it without quotes: 12")
>>> print(error.sentence())
Run/rai/train: spec.resources.totalGPUs is "12": not a whole number; write it without quotes: 12
>>> path_text(("spec", "envelopes", 1, "selector", "a.b/c"))
'spec.envelopes[1].selector["a.b/c"]'
"""

from __future__ import annotations

import re
from typing import Any

import msgspec

Path = tuple[str | int, ...]

ERROR_COUNT_MAX = 100
"""Errors listed for one input. A person mends the first few; a thousand more only cost time."""

_SHOWN_MAX = 64
_PLAIN_KEY = re.compile(r"[A-Za-z0-9_-]{1,64}")

UNSAFE = re.compile(
    "[\x00-\x1f\x7f-\x9f"  # C0, DEL and C1 controls
    "\u2028\u2029"  # line and paragraph separators
    "\u202a-\u202e\u2066-\u2069"  # embeddings, overrides and isolates of writing direction
    "\ufeff\ufffe\uffff\ud800-\udfff]"  # byte order mark, noncharacters, halves of a surrogate pair
)
"""Characters that no name, label or message needs, and that lie to whoever reads them on a screen."""


class FieldError(msgspec.Struct, frozen=True, kw_only=True):
    """One thing that is wrong, and how to right it. Safe to print as it is."""

    object: str
    """``Run/namespace/name``, or where it stands in the input if it has no name: ``document 2``."""
    path: str
    """``spec.envelopes[1].concurrency``, or ``line 3, column 7`` for text that could not be read."""
    value: str = ""
    """What was there, shortened; empty if there was nothing."""
    problem: str
    fix: str

    def sentence(self) -> str:
        """The whole error on one line."""
        where = f"{self.object}: {self.path}" if self.path else self.object
        there = f" is {self.value}" if self.value else ""
        return f"{where}{there}: {self.problem}; {self.fix}"


def path_text(path: Path) -> str:
    """Spell a path as the file does; keys that are no plain words are quoted."""
    return "".join(map(_step_text, path)).removeprefix(".")


def show(value: Any) -> str:
    """What was there, for a person: JSON-like, at most about 64 characters, nothing unprintable."""
    if value is None:
        return "null"
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, str):
        return _show_text(value)
    if isinstance(value, int):
        # Python refuses to spell very long integers, and nobody wants to read them.
        return str(value) if abs(value) < 10**40 else f"an integer of {value.bit_length()} bits"
    if isinstance(value, float):
        return repr(value)
    if isinstance(value, dict):
        return f"a mapping of {len(value)}" if value else "{}"
    if isinstance(value, list | tuple):
        return f"a list of {len(value)}" if value else "[]"
    return f"a {escape(type(value).__name__)}"


def escape(text: str, *, limit: int = _SHOWN_MAX) -> str:
    """The text with what cannot be printed spelled out, and its middle left out where it is long."""
    if len(text) > limit:
        text = f"{text[: limit - 12]}...{text[-8:]}"
    return text if text.isprintable() else "".join(map(_spelled, text))


def _show_text(text: str) -> str:
    quoted = escape(text.replace('"', '\\"') if len(text) < 1000 else text)
    return f'"{quoted}"' if len(text) <= _SHOWN_MAX else f'"{quoted}" ({len(text)} characters)'


def _spelled(character: str) -> str:
    code = ord(character)
    if character.isprintable():
        return character
    return f"\\x{code:02x}" if code < 0x100 else f"\\u{code:04x}" if code < 0x10000 else f"\\U{code:08x}"


def _step_text(step: str | int) -> str:
    if isinstance(step, int):
        return f"[{step}]"
    return f".{step}" if _PLAIN_KEY.fullmatch(step) else f"[{_show_text(step)}]"


class Faults:
    """Collects the errors of one object, and says when there are enough."""

    def __init__(self, name: str, *, room: int = ERROR_COUNT_MAX) -> None:
        self.name = name
        self.errors: list[FieldError] = []
        self._room = room

    @property
    def full(self) -> bool:
        return len(self.errors) >= self._room

    def add(self, path: Path, problem: str, fix: str, *, value: str = "") -> None:
        """Record an error, unless there are enough already."""
        if not self.full:
            self.errors.append(
                FieldError(object=self.name, path=path_text(path), value=value, problem=problem, fix=fix)
            )
