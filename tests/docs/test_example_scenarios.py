"""The worked examples under examples/scenarios/ hold every invariant, and each is told by a page of the guide."""

from __future__ import annotations

from pathlib import Path

import pytest

from tenure.shell.store import MemoryStore
from tenure.simulate.scenario import read_scenario
from tenure.testing.scenarios import play

ROOT = Path(__file__).resolve().parents[2]
EXAMPLES = sorted((ROOT / "examples" / "scenarios").glob("*.yaml"))


@pytest.mark.parametrize("path", EXAMPLES, ids=lambda path: path.stem)
def test_an_example_plays_without_a_violation_and_is_told(path: Path) -> None:
    scenario, errors = read_scenario(path.read_bytes(), source=path.name)
    assert scenario is not None, [error.sentence() for error in errors]
    output = play(scenario, MemoryStore("simulator"))
    assert not [event for event in output["events"] if event["kind"] == "Rejected"]
    assert {run["status"]["phase"] for run in output["final"]["runs"]} == {"Completed"}
    pages = [page.read_text() for page in (ROOT / "docs" / "guide").glob("*.md")]
    assert any(f"tenure scenario examples/scenarios/{path.name}" in page for page in pages)


def test_there_are_examples() -> None:
    assert len(EXAMPLES) >= 2
