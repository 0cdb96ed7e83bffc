"""What became of every planted bug: kept in ``results.json``, with the commit that was tried."""

from __future__ import annotations

import subprocess
from collections.abc import Iterable, Sequence

import msgspec
from msgspec import Struct

from proof.mutants.killers import ENDLESS, Sight
from proof.mutants.mutant import ROOT, Mutant

PATH = ROOT / "proof" / "mutants" / "results.json"


class Row(Struct, frozen=True, kw_only=True):
    """One bug and all that saw it."""

    mutant: str
    digest: str
    """Of the bug that was tried; see ``Mutant.digest``."""
    killer: str
    """The quickest that caught it; empty if nothing did."""
    words: str
    """What that one said."""
    invariants: dict[str, int]
    """Which were named, and by how many killers."""
    seen_by: tuple[str, ...]
    """Every killer that caught it."""
    how: str = "first"
    """How far was looked: see ``runner.HOW``."""
    commit: str
    """What it was planted in."""

    @property
    def caught(self) -> bool:
        return bool(self.killer)


class Results(Struct, frozen=True, kw_only=True):
    """The rows of all bugs, in their order."""

    command: str
    tried: dict[str, int]
    """How many killers of each sort every bug was tried on (tests: those of its area)."""
    rows: tuple[Row, ...]

    def row(self, name: str) -> Row | None:
        return next((row for row in self.rows if row.mutant == name), None)


def judged(mutant: Mutant, sights: Sequence[Sight], *, how: str, commit: str) -> Row:
    counts: dict[str, int] = {}
    for sight in sights:
        for name in sight.invariants:
            counts[name] = counts.get(name, 0) + 1
    best = min(sights, key=_cost, default=None)
    return Row(
        mutant=mutant.name,
        digest=mutant.digest,
        killer="" if best is None else best.killer,
        words="" if best is None else best.words,
        invariants=dict(sorted(counts.items(), key=lambda item: _number(item[0]))),
        seen_by=tuple(sorted(sight.killer for sight in sights)),
        how=how,
        commit=commit,
    )


def _cost(sight: Sight) -> tuple[bool, bool, float, str]:
    """What ends is quicker than what does not; scenarios and worlds need no pytest; an invariant says more."""
    is_test = sight.killer.startswith("test ")
    return ENDLESS in sight.words, is_test, round(sight.seconds, 1) - bool(sight.invariants), sight.killer


def _number(invariant: str) -> int:
    return int(invariant[1:].partition("-")[0])


def by_invariant(rows: Iterable[Row]) -> dict[str, list[str]]:
    """Which bugs each invariant kills."""
    from tenure.audit.invariants import INVARIANTS

    found: dict[str, list[str]] = {one.name: [] for one in INVARIANTS}
    for row in rows:
        for name in row.invariants:
            found[name].append(row.mutant)
    return found


def load() -> Results:
    return msgspec.json.decode(PATH.read_bytes(), type=Results)


def save(results: Results) -> None:
    PATH.write_bytes(msgspec.json.format(msgspec.json.encode(results), indent=1) + b"\n")


def commit() -> str:
    """The commit that is tried, and whether it was all of it."""
    ran = subprocess.run(
        ["git", "describe", "--always", "--dirty", "--abbrev=12"], cwd=ROOT, capture_output=True, text=True, check=False
    )
    return ran.stdout.strip() or "unknown"
