"""What became of every planted bug, and who saw it: kept in ``results.json``, with the commit that was tried."""

from __future__ import annotations

import subprocess
from collections.abc import Iterable, Sequence
from datetime import UTC, datetime

import msgspec
from msgspec import Struct

from proof.mutants.detectors import DETECTORS, INVARIANTS, Sight
from proof.mutants.mutant import ROOT, Mutant

PATH = ROOT / "proof" / "mutants" / "results.json"
WRITTEN = ("proof/mutants/results.json", "docs/develop/proof-mutants.md")
"""What a run writes itself: no reason to call the tree that was tried changed."""


class Row(Struct, frozen=True, kw_only=True):
    """One bug and all that saw it."""

    mutant: str
    digest: str
    """Of the bug that was tried; see ``Mutant.digest``."""
    commit: str
    """What it was planted in."""
    date: str
    how: str
    """How far was looked: see ``runner.HOW``."""
    killer: str
    """The quickest that caught it; empty if nothing did."""
    words: str
    """What that one said."""
    found: dict[str, tuple[str, ...]]
    """By detector, the killers in which it spoke."""

    @property
    def caught(self) -> bool:
        return bool(self.killer)

    @property
    def seen_by(self) -> tuple[str, ...]:
        """Every killer that caught it."""
        return tuple(sorted({killer for some in self.found.values() for killer in some}))


class Results(Struct, frozen=True, kw_only=True):
    """The rows of all bugs, in their order."""

    rows: tuple[Row, ...]

    def row(self, name: str) -> Row | None:
        return next((row for row in self.rows if row.mutant == name), None)


def judged(mutant: Mutant, sights: Sequence[Sight], *, how: str, commit: str) -> Row:
    found: dict[str, list[str]] = {}
    for sight in sights:
        for name in sight.detectors:
            found.setdefault(name, []).append(sight.killer)
    best = min(sights, key=_cost, default=None)
    return Row(
        mutant=mutant.name,
        digest=mutant.digest,
        commit=commit,
        date=datetime.now(UTC).date().isoformat(),
        how=how,
        killer="" if best is None else best.killer,
        words="" if best is None else best.words,
        found={name: tuple(sorted(found[name])) for name in DETECTORS if name in found},
    )


def _cost(sight: Sight) -> tuple[bool, bool, float, str]:
    """What ends is quicker than what does not; scenarios and worlds need no pytest; an invariant says more."""
    names_one = not set(INVARIANTS).isdisjoint(sight.detectors)
    is_test = sight.killer.startswith("test ")
    return "time" in sight.detectors, is_test, round(sight.seconds, 1) - names_one, sight.killer


def by_detector(rows: Iterable[Row]) -> dict[str, list[str]]:
    """Which bugs each detector sees."""
    rows = tuple(rows)
    return {name: [row.mutant for row in rows if name in row.found] for name in DETECTORS}


def alone(rows: Iterable[Row], among: Iterable[str]) -> dict[str, list[str]]:
    """Which bugs each of some detectors sees that no other of them does."""
    wanted, found = set(among), {name: list[str]() for name in DETECTORS}
    for row in rows:
        speakers = wanted & row.found.keys()
        if len(speakers) == 1:
            found[speakers.pop()].append(row.mutant)
    return found


def load() -> Results:
    return msgspec.json.decode(PATH.read_bytes(), type=Results)


def save(results: Results) -> None:
    """A line for each bug: a change of one is a change of one line."""
    lines = b",\n".join(msgspec.json.encode(row) for row in results.rows)
    PATH.write_bytes(b'{"rows": [\n' + lines + b"\n]}\n")


def commit() -> str:
    """The commit that is tried, and whether it was all of it."""
    head = _git("rev-parse", "--short=12", "HEAD")
    changed = _git("status", "--porcelain", "--", ".", *(f":!{path}" for path in WRITTEN))
    return f"{head}-dirty" if head and changed else head or "unknown"


def is_whole(commit: str) -> bool:
    """Whether that names all that was tried: anybody can try it again."""
    return commit != "unknown" and not commit.endswith("-dirty")


def _git(*words: str) -> str:
    ran = subprocess.run(["git", *words], cwd=ROOT, capture_output=True, text=True, check=False)
    return ran.stdout.strip() if ran.returncode == 0 else ""
