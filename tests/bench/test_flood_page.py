"""Counted lines on docs/develop/proof-flood.md are those that the engine executes, and those of the counters."""

from __future__ import annotations

import re
import sys

import pytest

from bench import counted, ranges
from proof.flood.world import World
from tests.proof.test_flood import counted as small_run

PAGE = (counted.ROOT / "docs" / "develop" / "proof-flood.md").read_text()
ALLOWED = 0.03
"""As of all that is counted (``bench/ranges.py``)."""


def figures(behind: str) -> list[int]:
    """A row of the page's table."""
    (row,) = re.findall(rf"^\| {behind} \| ([\d,]+) \| ([\d,]+) \| ([\d,]+) \|$", PAGE, re.MULTILINE)
    return [int(figure.replace(",", "")) for figure in row]


@pytest.mark.skipif(sys.version_info[:2] != (3, 11), reason="another Python counts lines otherwise")
@pytest.mark.parametrize(("behind", "flood"), [("nobody", 0), ("500", 500)])
def test_the_page_tells_what_decisions_beside_a_flood_take(behind: str, flood: int) -> None:
    world = World()
    list(world.flood(flood))
    starts, ends = zip(*(small_run(world, number) for number in range(8)), strict=True)
    assert figures(behind) == pytest.approx([starts[-1], ends[-1], ends[0]], rel=ALLOWED)


@pytest.mark.parametrize("task", ["a small run starts behind a flood of 500",
                                  "a run ends, and a flood of 500 stays where it is"])  # fmt: skip
def test_what_the_page_tells_of_the_counters_is_within_their_range(task: str) -> None:
    found = re.search(rf'"{task}" \(([\d,]+) lines', PAGE)
    assert found is not None
    known = ranges.load()["any"][counted.NAME][f"{task}: lines"]
    assert known.high is not None
    assert known.low <= int(found[1].replace(",", "")) <= known.high
