"""Planted bugs: each still has its place, each has its result, and what saw it once sees it today."""

from __future__ import annotations

import ast
import subprocess
import sys
from collections import Counter

import pytest

from proof.mutants import page, results
from proof.mutants.bugs import MUTANTS
from proof.mutants.command import GOAL
from proof.mutants.killers import AREAS, files_of
from proof.mutants.mutant import KINDS, ROOT, Mutant
from tenure.audit.invariants import INVARIANTS

PARTS = 4
IDS = [mutant.name for mutant in MUTANTS]


@pytest.mark.parametrize("mutant", MUTANTS, ids=IDS)
def test_a_bug_has_exactly_one_place_in_todays_source_and_changes_what_it_does(mutant: Mutant) -> None:
    good, bad = ast.parse(mutant.path.read_text()), ast.parse(mutant.source())
    assert ast.dump(good) != ast.dump(bad), "a comment is no bug"
    assert mutant.kind in KINDS
    assert not mutant.file.startswith(("audit/", "testing/", "simulate/")), "who tests is not tested here"


def test_every_bug_has_a_name_of_its_own_and_its_killers_exist() -> None:
    assert len(MUTANTS) >= 48
    assert [name for name, count in Counter(IDS).items() if count > 1] == []
    assert {mutant.kind for mutant in MUTANTS} == set(KINDS)
    assert [name for mutant in MUTANTS for name in files_of(mutant) if not (ROOT / name).is_file()] == []
    assert sorted(set(AREAS) - {mutant.file for mutant in MUTANTS}) == [], "an area without a bug"


def test_the_results_are_of_these_very_bugs() -> None:
    kept = [(row.mutant, row.digest) for row in results.load().rows]
    assert kept == [(mutant.name, mutant.digest) for mutant in MUTANTS], "run python -m proof mutants --keep"


def test_enough_is_caught_and_every_invariant_kills() -> None:
    rows = results.load().rows
    missed = {row.mutant for row in rows if not row.caught}
    assert (len(rows) - len(missed)) * 100 >= GOAL * len(rows), missed
    assert {mutant.name for mutant in MUTANTS if mutant.survives} == missed, "who survives says why, and nobody else"
    killed = results.by_invariant(rows)
    assert [one.name for one in INVARIANTS if not killed[one.name]] == []


def test_the_page_is_fresh() -> None:
    assert page.PATH.read_text() == page.text(results.load()), "run python -m proof mutants --docs"


@pytest.mark.parametrize("part", range(1, PARTS + 1))
def test_every_bug_is_caught_by_the_killer_that_was_quickest(part: int) -> None:
    """Really planted, each in a process of its own; and the same killers see nothing where no bug is."""
    command = [sys.executable, "-m", "proof", "mutants", "--quick", "--part", f"{part}/{PARTS}"]
    ran = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert ran.returncode == 0, f"{ran.stdout}\n{ran.stderr[-2000:]}"
    assert "bugs caught by the killer" in ran.stdout
