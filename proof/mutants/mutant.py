"""A planted bug, as data: what a tired engineer might have written instead, in one place of ``src/tenure``."""

from __future__ import annotations

import hashlib
from pathlib import Path

from msgspec import Struct

ROOT = Path(__file__).resolve().parents[2]
SOURCE = ROOT / "src" / "tenure"

KINDS = {
    "guard": "a check is left out",
    "boundary": "off by one, or an interval closed at the wrong end",
    "fold": "a fact is not folded, or an index not kept",
    "name": "a name or a number is used again",
    "close": "what is over is not closed, or closed too early, or billed wrongly",
    "count": "something is counted twice, or not at all",
    "order": "the wrong one goes first",
    "trust": "something is believed without looking",
    "durable": "something is acknowledged that could still be lost, or is lost though it was acknowledged",
}
"""The classes of bugs, and what they have in common."""


class Mutant(Struct, frozen=True, kw_only=True):
    """One bug: the text of one place, and what stands there instead."""

    name: str
    kind: str
    bug: str
    """What is wrong, in plain words."""
    file: str
    """Below ``src/tenure``."""
    old: str
    new: str
    tests: tuple[str, ...] = ()
    """Test files (below ``tests``) that it is tried on besides those of its file."""
    survives: str = ""
    """Why nothing sees it, if nothing does."""

    @property
    def path(self) -> Path:
        return SOURCE / self.file

    @property
    def module(self) -> str:
        return "tenure." + self.file.removesuffix(".py").replace("/", ".")

    @property
    def digest(self) -> str:
        """Of what it does: a result of another mutant under the same name is not its result."""
        return hashlib.sha256(f"{self.file}\0{self.old}\0{self.new}".encode()).hexdigest()[:12]

    def source(self) -> str:
        """The text of its module with the bug in it; ValueError if there is not exactly one place for it."""
        text = self.path.read_text()
        if (count := text.count(self.old)) != 1:
            raise ValueError(f"{self.name}: its text stands {count} times in src/tenure/{self.file}")
        return text.replace(self.old, self.new)
