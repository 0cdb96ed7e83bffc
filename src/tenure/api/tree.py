"""Plain data from outside: strings without characters that lie on a screen, free-form trees within limits.

Pod templates and a few status fields are free-form: whatever JSON can say. They are walked without
recursion, to a depth and to a count, so that a tree of any size or shape (one that contains itself, too)
costs a bounded amount of work."""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Any, Final

from tenure.api.errors import UNSAFE, Faults, Path, show
from tenure.api.formats import Format
from tenure.units import INTEGER_MAX

DEPTH_MAX: Final = 32
VALUE_COUNT_MAX: Final = 30_000
"""Keys and values in one YAML document, values in one free-form tree: some tens of milliseconds of work."""


def text_problem(text: str, form: Format) -> str:
    """What is wrong with a string, or nothing."""
    if len(text) > form.length_max:
        return f"longer than {form.length_max} characters"
    if unsafe_character(text, multiline=form.multiline):
        return "holds a control character"
    if len(text) < form.length_min:
        return "empty"
    return "" if form.accepts(text) else f"not a valid {form.name.replace('-', ' ')}"


def unsafe_character(text: str, *, multiline: bool) -> bool:
    """Does the text hold a character that may not be there? Breaks and tabs may be in multi-line text."""
    if multiline:
        text = text.replace("\n", " ").replace("\t", " ")
    return UNSAFE.search(text) is not None


def nearest(name: str, names: tuple[str, ...]) -> str:
    """The one of the names that somebody may have meant, or nothing."""
    from difflib import get_close_matches  # a millisecond to import, and only errors need it

    folded = {each.lower(): each for each in names}
    found = get_close_matches(name[:64].lower(), folded, n=1, cutoff=0.7)
    return folded[found[0]] if found else ""


def tree_fits(tree: Any, at: Path, faults: Faults) -> bool:
    """Check a free-form tree; its errors go to ``faults``."""
    errors_before = len(faults.errors)
    waiting: list[tuple[Any, Path]] = [(tree, at)]
    seen = 1
    while waiting and not faults.full:
        value, here = waiting.pop()
        if not isinstance(value, dict | list | tuple):
            _check_leaf(value, here, faults)
            continue
        seen += len(value)
        if len(here) > DEPTH_MAX:
            faults.add(here, f"nested more than {DEPTH_MAX} deep", "write it flatter")
        elif seen > VALUE_COUNT_MAX:
            faults.add(at, f"more than {VALUE_COUNT_MAX} values", "write less")
            break
        else:
            waiting.extend(_children(value, here, faults))
    return len(faults.errors) == errors_before


def _children(value: Any, here: Path, faults: Faults) -> Iterator[tuple[Any, Path]]:
    if not isinstance(value, dict):
        yield from ((each, (*here, index)) for index, each in enumerate(value))
        return
    for key, each in value.items():
        if not isinstance(key, str):
            faults.add((*here, show(key)), "a key that is not a string", "put it in quotes")
        elif unsafe_character(key, multiline=False):
            faults.add((*here, key), "a key that holds a control character", "leave the character out")
        else:
            yield each, (*here, key)


def _check_leaf(value: Any, at: Path, faults: Faults) -> None:
    match value:
        case str():
            if unsafe_character(value, multiline=True):
                fix = "leave it out; only line breaks and tabs may stay"
                faults.add(at, "holds a control character", fix, value=show(value))
        case float():
            if not math.isfinite(value):
                faults.add(at, "not a finite number", "write a number", value=show(value))
        case int():
            if abs(value) > INTEGER_MAX:
                faults.add(at, "too large", f"write a number within {INTEGER_MAX}", value=show(value))
        case None:
            pass
        case _:
            fix = "write a string, number, boolean, list or mapping"
            faults.add(at, "not plain data", fix, value=show(value))
