"""The table of invariants, its page, and the independence of the one who checks them."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

import tenure.audit
from tenure.audit import INVARIANTS, Violation, invariants_markdown
from tests.audit.builders import T0
from tests.audit.test_mutants import MUTANTS

ROOT = Path(__file__).resolve().parents[2]


def test_the_invariants_are_numbered_and_named_in_order() -> None:
    assert [invariant.number for invariant in INVARIANTS] == list(range(1, 13))
    for invariant in INVARIANTS:
        assert re.fullmatch(rf"I{invariant.number}-[a-z0-9-]+", invariant.name)


def test_every_invariant_checked_in_a_ledger_has_mutants() -> None:
    checked = {invariant.name for invariant in INVARIANTS if invariant.checked}
    # I11 is about what a pass writes, not about a ledger: tests/audit/test_sums.py shows it.
    assert set(MUTANTS) == checked - {"I11-settled"}


def test_every_invariant_is_checked() -> None:
    assert all(invariant.checked for invariant in INVARIANTS)
    assert "Not checked in this release" not in invariants_markdown()


def test_the_page_is_fresh() -> None:
    assert (ROOT / "docs" / "reference" / "invariants.md").read_text() == invariants_markdown(), "run `make generate`"


def test_the_auditor_loads_nothing_of_what_it_audits() -> None:
    code = "import sys, tenure.audit; print(*(name for name in sys.modules if name.startswith('tenure.')))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert {name.split(".")[1] for name in done.stdout.split()} == {"api", "audit", "draw", "facts", "units"}


@pytest.mark.parametrize(
    ("expected", "found", "ending"),
    [
        (8, 10, "expected 8, found 10: 2 too many."),
        (8, 5, "expected 8, found 5: 3 too few."),
        ("a pod", "none", "expected a pod, found none."),
    ],
)
def test_a_violation_says_the_difference_in_words(expected: int | str, found: int | str, ending: str) -> None:
    violation = Violation(
        invariant="I4-whole-gang", at=T0, object="Run/rai/x", message="m", expected=expected, found=found
    )
    assert violation.sentence() == f"I4-whole-gang at 2025-11-01T00:00:00Z, Run/rai/x: m: {ending}"


def test_an_instant_outside_the_calendar_does_not_stop_the_report() -> None:
    violation = Violation(invariant="I5-immutable", at=2**62, object="x", message="m", expected=1, found=2)
    assert str(2**62) in violation.sentence()


def test_the_public_face_is_what_it_says() -> None:
    assert all(hasattr(tenure.audit, name) for name in tenure.audit.__all__)
