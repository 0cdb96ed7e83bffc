"""How something is seen again: a command that can be pasted at the root of the checkout."""

from __future__ import annotations

import os
import shlex
import sys
from pathlib import Path

from proof.commit import ROOT


def command(*words: object) -> str:
    """``python -m proof WORDS``, with the interpreter that runs now, by its place in the checkout if it is in there."""
    return shlex.join([at_root(Path(sys.executable)), "-m", "proof", *map(str, words)])


def at_root(path: Path) -> str:
    """A path as it is written at the root: relative, if it is inside.

    >>> at_root(ROOT / "build" / "x.json"), at_root(Path("/dev/null"))
    ('build/x.json', '/dev/null')
    """
    there = Path(os.path.abspath(path))  # and not resolved: the interpreter of an environment is a link out of it
    return str(there.relative_to(ROOT) if there.is_relative_to(ROOT) else there)
