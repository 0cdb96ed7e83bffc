"""Where the output goes: a person's terminal or a pipe. Colour, width and progress are decided here and nowhere else.

A pipe gets plain text: no colour, no box, no hint, nothing redrawn. ``NO_COLOR`` and ``TERM=dumb`` turn colour off
on a terminal too.
"""

from __future__ import annotations

import os
import re
import sys
import time
from typing import TextIO

from tenure.cli.words import safe

_CODES = {"good": "32", "bad": "31", "wait": "33", "dim": "2", "strong": "1", "info": "36", "": ""}
_STYLE = re.compile(r"\x1b\[[0-9;]*m")


def is_terminal(stream: TextIO | None = None) -> bool:
    """Whether a person reads it."""
    stream = sys.stdout if stream is None else stream
    try:
        return stream.isatty()
    except ValueError:  # closed
        return False


def is_coloured(stream: TextIO | None = None) -> bool:
    return is_terminal(stream) and not os.environ.get("NO_COLOR") and os.environ.get("TERM") != "dumb"


def paint(text: str, style: str, *, stream: TextIO | None = None) -> str:
    """The text in a style, if the stream shows styles."""
    code = _CODES[style]
    return f"\x1b[{code}m{text}\x1b[0m" if code and is_coloured(stream) else text


def width() -> int:
    """Columns of the terminal; ``COLUMNS`` overrules it."""
    given = os.environ.get("COLUMNS", "")
    if given.isdecimal() and int(given):
        return int(given)
    try:
        return os.get_terminal_size(sys.stdout.fileno()).columns or 80
    except (OSError, ValueError):
        return 80


def fold(text: str, *, indent: int = 4) -> str:
    """A long line for a person: broken between words, the rest set in. In a pipe a line stays a line."""
    if not is_terminal():
        return text
    lines, room = [""], max(20, width())
    for word in text.split(" "):
        last = lines[-1]
        if last.strip() and _shown(last) + 1 + _shown(word) > room:
            lines.append(" " * indent + word)
        else:
            lines[-1] = f"{last} {word}" if last else word or " "
    return "\n".join(lines)


def _shown(text: str) -> int:
    return len(_STYLE.sub("", text))


HINTS = "TENURE_HINTS"


def hint(text: str) -> None:
    """What to do next: for people only, never into a pipe, and not for those who said TENURE_HINTS=off."""
    if text and is_terminal(sys.stdout) and os.environ.get(HINTS) != "off":
        sys.stdout.flush()
        print(paint(f"next: {safe(text)}", "dim", stream=sys.stderr), file=sys.stderr)


def say(text: str) -> None:
    """A remark beside the output: on standard error, where no program takes it for data."""
    sys.stdout.flush()
    for line in text.split("\n"):
        print(safe(line), file=sys.stderr, flush=True)


class Progress:
    """One line on standard error that says how far long work has come; silent unless a person watches."""

    def __init__(self, what: str) -> None:
        self._what = what
        self._shown = is_terminal(sys.stderr)
        self._last = 0.0
        self._dirty = False

    def __call__(self, part: str, done: int, total: int) -> None:
        now = time.monotonic()
        if not self._shown or (now - self._last < 0.1 and done < total):
            return
        self._last, self._dirty = now, True
        share = f" {100 * done // total}%" if total else ""
        print(f"\r\x1b[2K{self._what}: {part} {done}/{total}{share}", end="", file=sys.stderr, flush=True)

    def close(self) -> None:
        """Take the line away again."""
        if self._dirty:
            print("\r\x1b[2K", end="", file=sys.stderr, flush=True)
            self._dirty = False

    def __enter__(self) -> Progress:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()
