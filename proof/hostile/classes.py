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


def variant(name: str, number: int) -> Variant:
    """The same text each time."""
    return CLASSES[name](random.Random(f"hostile {name} {number}"), f"{name}-{number}")
