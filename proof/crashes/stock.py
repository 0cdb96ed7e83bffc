"""The scenarios that are crashed: all of ``tests/scenarios``, each with what it shows, as it says itself.

The first lines of a scenario file are a comment that names the rule and its section of the SPEC; nothing is said twice.
"""

from __future__ import annotations

import re
from functools import lru_cache
from pathlib import Path
from typing import NamedTuple

from tenure.simulate.scenario import Scenario, read_scenario

FOLDER = Path(__file__).resolve().parents[2] / "tests" / "scenarios"
CORE = {
    "groups-and-spares": "a gang is admitted",
    "bind-and-stop-delay": "a run completes",
    "guest-gives-way": "a spare takes over, and its guest leaves",
    "no-flapping": "an elastic run shrinks and grows",
    "a-gang-is-cut-whole": "a resolution with a lottery",
    "one-start-for-one-slice": "a reservation is activated",
    "borrow-limit": "a run on borrowed money",
    "budget-deleted": "a budget is deleted and made again",
}
"""Those on which crashes are paired."""
_SPEC = re.compile(r"\(SPEC ([0-9a-z., ]+)")


class Shown(NamedTuple):
    """What a scenario is for."""

    claim: str
    sections: tuple[str, ...]


@lru_cache(maxsize=1)
def names() -> tuple[str, ...]:
    return tuple(sorted(path.stem for path in FOLDER.glob("*.yaml") if not path.stem.endswith(".expect")))


def scenario(name: str) -> Scenario:
    found, errors = read_scenario((FOLDER / f"{name}.yaml").read_bytes(), source=name)
    assert found is not None, [error.sentence() for error in errors]
    return found


def shown(name: str) -> Shown:
    lines = (FOLDER / f"{name}.yaml").read_text().splitlines()
    end = next(at for at, line in enumerate(lines) if not line.startswith("#"))
    text = " ".join(line.lstrip("# ") for line in lines[:end])
    found = _SPEC.search(text)
    sections = tuple(part.strip() for part in found[1].split(",")) if found else ()
    return Shown(text.partition(" (SPEC")[0], sections)
