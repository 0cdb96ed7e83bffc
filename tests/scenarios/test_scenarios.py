"""Every scenario of this folder, on every home, with the auditor after every step; and twice the same is the same.

To add one, write NAME.yaml, then `python -m tests.scenarios.test_scenarios NAME` and read NAME.expect.yaml with care
before it is kept: it is the claim.
"""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from random import Random
from typing import Any

import msgspec
import pytest
import yaml

from tenure.ledger import Ledger
from tenure.shell.ledger_store import LedgerStore
from tenure.shell.store import MemoryStore, Store
from tenure.simulate.scenario import Scenario, read_scenario
from tenure.testing.scenarios import brief, play

HERE = Path(__file__).parent
NAMES = sorted(path.stem for path in HERE.glob("*.yaml") if ".expect" not in path.name)
FLEET = "simulator"


def scenario(name: str) -> Scenario:
    found, errors = read_scenario((HERE / f"{name}.yaml").read_bytes(), source=name)
    assert found is not None, [error.sentence() for error in errors]
    return found


def in_memory(folder: Path) -> Store:
    return MemoryStore(FLEET)


def in_sqlite(folder: Path) -> Store:
    return LedgerStore(Ledger.create(folder / "fleet.db", fleet=FLEET))


HOMES: dict[str, Callable[[Path], Store]] = {"memory": in_memory, "sqlite": in_sqlite}


def as_json(output: dict[str, Any]) -> bytes:
    return msgspec.json.encode(output, order="deterministic")


@pytest.mark.parametrize("name", NAMES)
def test_a_scenario_comes_out_as_written_on_every_home(name: str, tmp_path: Path) -> None:
    wanted = scenario(name)
    outputs = {home: play(wanted, make(tmp_path)) for home, make in HOMES.items()}
    expected = yaml.safe_load((HERE / f"{name}.expect.yaml").read_text())
    assert brief(outputs["memory"], start=wanted.start) == expected
    assert as_json(outputs["memory"]) == as_json(outputs["sqlite"])


def test_there_are_scenarios_and_each_says_what_it_shows() -> None:
    assert len(NAMES) >= 20
    for name in NAMES:
        text = (HERE / f"{name}.yaml").read_text()
        assert text.startswith("# "), f"{name}: say in a comment what it shows"
        assert scenario(name).name == name


def test_a_ledger_written_by_a_scenario_verifies_and_replays(tmp_path: Path) -> None:
    wanted = scenario("family-tiers")
    output = play(wanted, in_sqlite(tmp_path))
    with Ledger.open(tmp_path / "fleet.db", readonly=True) as ledger:
        report = ledger.verify()
        assert report.ok, report
    again = [lease["metadata"]["name"] for lease in output["final"]["leases"]]
    assert len(again) == len(set(again)) == 6


# --- the same again -----------------------------------------------------------------------------------------------


def test_three_hash_seeds_give_the_same_bytes() -> None:
    """Whole processes, because a hash seed is for life."""
    answers = set()
    for seed in ("0", "1", "4242"):
        run = subprocess.run(
            [sys.executable, "-m", "tests.scenarios.test_scenarios", "--print"],
            cwd=HERE.parent.parent,
            env={**os.environ, "PYTHONHASHSEED": seed},
            capture_output=True,
            check=True,
        )
        answers.add(run.stdout)
    assert len(answers) == 1
    assert len(next(iter(answers))) > 10_000


@pytest.mark.parametrize("name", NAMES)
def test_the_order_of_independent_objects_does_not_matter(name: str) -> None:
    wanted = scenario(name)
    first = play(wanted, MemoryStore(FLEET))
    for seed in range(3):
        objects, nodes = list(wanted.objects), list(wanted.nodes)
        Random(seed).shuffle(objects)
        Random(seed).shuffle(nodes)
        shuffled = msgspec.structs.replace(wanted, objects=tuple(objects), nodes=tuple(nodes))
        again = play(shuffled, MemoryStore(FLEET))
        # What is refused is told in the order it was given; everything else is decided, and told, in its own order.
        for output in (first, again):
            output["events"].sort(key=lambda event: (event["at"], event["kind"] != "Rejected", event["object"]))
        assert as_json(first) == as_json(again)


def page(name: str) -> str:
    wanted = scenario(name)
    told = brief(play(wanted, MemoryStore(FLEET)), start=wanted.start)
    lines = []
    for what, value in told.items():
        rows = [f"- {row}" for row in value] if isinstance(value, list) else []
        if isinstance(value, dict):
            rows = [f"  {label}: {_flow(state)}" for label, state in value.items()]
        lines += [f"{what}:" if rows else f"{what}: []", *rows]
    return "\n".join(lines) + "\n"


def _flow(state: dict[str, Any]) -> str:
    return "{" + ", ".join(f"{key}: {value}" for key, value in state.items()) + "}"


if __name__ == "__main__":
    if sys.argv[1:] == ["--print"]:
        for each in NAMES:
            sys.stdout.buffer.write(as_json(play(scenario(each), MemoryStore(FLEET))) + b"\n")
    for each in [argument for argument in sys.argv[1:] if argument != "--print"]:
        (HERE / f"{each}.expect.yaml").write_text(page(each))
