"""Values of options that all commands read alike: what would do nothing is refused before anything is done."""

from __future__ import annotations

import argparse
import os
from pathlib import Path


def whole(text: str) -> int:
    """A whole number, 0 or more."""
    return _number(text, least=0)


def positive(text: str) -> int:
    """A whole number, 1 or more.

    >>> positive("3")
    3
    >>> positive("0")
    Traceback (most recent call last):
      ...
    argparse.ArgumentTypeError: a whole number from 1 on, not '0'
    """
    return _number(text, least=1)


def _number(text: str, *, least: int) -> int:
    if not text.isascii() or not text.isdecimal() or int(text) < least:
        raise argparse.ArgumentTypeError(f"a whole number from {least} on, not {text!r}")
    return int(text)


def span(text: str) -> float:
    """So many minutes or hours, 0 or more.

    >>> span("2.5")
    2.5
    >>> span("nan")
    Traceback (most recent call last):
      ...
    argparse.ArgumentTypeError: a number from 0 on, not 'nan'
    """
    try:
        number = float(text)
    except ValueError:
        number = -1.0
    if not 0 <= number < float("inf"):
        raise argparse.ArgumentTypeError(f"a number from 0 on, not {text!r}")
    return number


def part(text: str) -> tuple[int, int]:
    """``K/N``: the K-th of N parts.

    >>> part("2/6")
    (2, 6)
    >>> part("7/6")
    Traceback (most recent call last):
      ...
    argparse.ArgumentTypeError: K/N with K from 1 to N, as in 2/6, not '7/6'
    """
    turn, _, parts = text.partition("/")
    try:
        found = positive(turn), positive(parts)
    except argparse.ArgumentTypeError:
        found = (1, 0)
    if found[0] > found[1]:
        raise argparse.ArgumentTypeError(f"K/N with K from 1 to N, as in 2/6, not {text!r}")
    return found


def folder(text: str) -> Path:
    """A folder that one may write to."""
    path = Path(text)
    if not path.is_dir():
        raise argparse.ArgumentTypeError(f"there is no folder {text!r}: make it first")
    if not os.access(path, os.W_OK | os.X_OK):
        raise argparse.ArgumentTypeError(f"the folder {text!r} may not be written to")
    return path
