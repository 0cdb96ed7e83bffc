"""The 24 classes: the fourteen that issue 2 names, in its order, and ten that tenants with time on their hands try."""

from __future__ import annotations

import random
from collections.abc import Callable

from proof.hostile import objects, texts
from proof.hostile.parts import Variant

VARIANTS = 50
CLASSES: dict[str, Callable[[random.Random, str], Variant]] = {
    "oversize": texts.oversize,
    "deep": texts.deep,
    "aliases": texts.aliases,
    "duplicates": texts.duplicates,
    "types": objects.types,
    "booleans": objects.booleans,
    "negative": objects.negative,
    "zero": objects.zero,
    "beyond": objects.beyond,
    "nan": objects.nan,
    "controls": texts.controls,
    "globs": objects.globs,
    "unknown": objects.unknown,
    "cycles": objects.cycles,
    "unicode": texts.unicode,
    "paths": objects.paths,
    "shell": objects.shell,
    "names": objects.names,
    "times": objects.times,
    "privileges": objects.privileges,
    "spoofing": objects.spoofing,
    "kinds": texts.kinds,
    "encodings": texts.encodings,
    "tags": texts.tags,
}


TRIES = 400
"""How often in a row a class may come up with what it had before: then it has nothing else."""
_chosen: dict[str, list[int]] = {name: [] for name in CLASSES}
_had: dict[str, set[str]] = {name: set() for name in CLASSES}


class NoMore(LookupError):
    """A class has not as many different variants."""


def variant(name: str, number: int) -> Variant:
    """The same text each time, and another one than all before it in its class, less its own name."""
    chosen, had = _chosen[name], _had[name]
    while len(chosen) <= number:
        for luck in range(TRIES):
            found = _made(name, len(chosen), luck)
            if (less := found.less(_name(name, len(chosen)))) not in had:
                break
        else:
            raise NoMore(f"{name} has {len(chosen)} different variants and no more")
        had.add(less)
        chosen.append(luck)
        if len(chosen) > number:
            return found
    return _made(name, number, chosen[number])


def _name(name: str, number: int) -> str:
    return f"{name}-{number}"


def _made(name: str, number: int, luck: int) -> Variant:
    return CLASSES[name](random.Random(f"hostile {name} {number} {luck}"), _name(name, number))
