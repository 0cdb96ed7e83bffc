"""Money that changes hands or runs short, as the command line tells it: who pays from then on, and who may be cut."""

from pathlib import Path

import pytest

from tenure.ledger import Ledger
from tenure.shell.home import Home
from tenure.shell.ledger_store import LedgerStore
from tenure.simulate.player import Player
from tenure.simulate.scenario import read_scenario
from tests.cli.support import call

SCENARIOS = Path(__file__).resolve().parents[1] / "scenarios"


def played(name: str, folder: Path) -> Path:
    path = folder / "fleet.db"
    scenario, errors = read_scenario((SCENARIOS / f"{name}.yaml").read_bytes(), source=name)
    assert scenario is not None, errors
    with Ledger.create(path, fleet="simulator") as ledger:
        Player(scenario, lambda executor: Home(LedgerStore(ledger), executor)).play()
    return path


def events(fleet: Path, run: str) -> list[tuple[str, str, str]]:
    told = call("runs", "story", run, "-o", "json", fleet=fleet).json["incarnations"][0]["events"]
    return [(event["at"], event["event"], event["text"]) for event in told]


def test_the_story_tells_who_pays_from_then_on(tmp_path: Path) -> None:
    fleet = played("shortage-hand-over", tmp_path)
    assert [event for event in events(fleet, "rai/new") if event[1] == "HandedOver"] == [
        (
            "2025-11-01T01:15:00Z",
            "HandedOver",
            "3 GPUs that rai/first can no longer pay for are paid by rai/second (3) from now on.",
        )
    ]
    assert [kind for _, kind, _ in events(fleet, "rai/old")] == ["Submitted", "Admitted", "Started"]
    table = call("runs", "story", "rai/new", fleet=fleet).out
    assert "HandedOver" in table
    assert "paid by rai/first (" in table, "both payers are in the sum"
    assert "rai/second (" in table


@pytest.mark.parametrize("scenario", ["guest-stays"])
def test_leases_that_are_opened_again_with_the_same_payer_are_no_news(tmp_path: Path, scenario: str) -> None:
    fleet = played(scenario, tmp_path)
    with Ledger.open(fleet, readonly=True) as ledger:
        again = {row.lease.run_key for row in ledger.leases() if row.lease.reason == "Refund"}
    assert again, "the scenario hands something over"
    for run in again:
        assert "HandedOver" not in {kind for _, kind, _ in events(fleet, run)}


SHORT = """
kind: Scenario
metadata: {name: short}
start: "2025-11-01T00:00:00Z"
policy: {drawSecret: secret}
nodes:
- {name: "a-{i}", count: 2, gpus: 8, labels: {region: west, cluster: lab, fabric.domain: A, gpu.flavor: H100}}
objects:
- kind: Budget
  metadata: {name: rai}
  spec: {owner: "org:rai", envelopes: [{name: west, flavor: H100, selector: {region: west}, concurrency: 16}]}
- {kind: Run, metadata: {name: one, namespace: rai}, spec: {owner: "org:rai", resources: {gpuType: H100, totalGPUs: 8}}}
- {kind: Run, metadata: {name: two, namespace: rai}, spec: {owner: "org:rai", resources: {gpuType: H100, totalGPUs: 8}}}
timeline:
- at: 1h
  patch: {kind: Budget, name: rai, merge: {spec: {envelopes: [ENVELOPES]}}}
until: 65m
"""


def announced(folder: Path, envelopes: str) -> Path:
    fleet = folder / "short.db"
    done = call("tenure", "scenario", "-", "--keep", str(fleet), stdin=SHORT.replace("ENVELOPES", envelopes))
    assert done.code == 0, done.err
    return fleet


def test_what_runs_short_is_shown_to_the_owner_of_the_budget_and_of_the_run(tmp_path: Path) -> None:
    lowered = "{name: west, flavor: H100, selector: {region: west}, concurrency: 8}"
    fleet = announced(tmp_path, lowered)
    table = call("runs", "budgets", "usage", fleet=fleet).out
    assert "Running short\n" in table
    [row] = [line.split() for line in table.splitlines() if "rai/two 50 %" in line]
    assert row[:2] == ["rai/west", "2025-11-01T01:15:00Z"]
    assert " ".join(row[-7:]) == "8 rai/one 50 %, rai/two 50 %"
    [told] = call("runs", "budgets", "usage", "-o", "json", fleet=fleet).json["foreseen"]
    assert told == {
        "budget": "rai", "name": "west", "at": "2025-11-01T01:15:00Z", "shortGPUs": 8,
        "cutProbabilities": {"rai/one": "0.5000", "rai/two": "0.5000"},
    }  # fmt: skip
    shown = call("runs", "describe", "rai/one", fleet=fleet).out
    assert "50 % to be cut at 2025-11-01T01:15:00Z (in 10m) when rai/west can no longer pay" in shown


def test_an_envelope_that_was_taken_out_and_still_pays_is_in_the_usage(tmp_path: Path) -> None:
    fleet = announced(tmp_path, "{name: east, flavor: H100, selector: {region: east}, concurrency: 4}")
    done = call("runs", "budgets", "usage", "-o", "json", fleet=fleet)
    assert done.code == 0, done.err
    found = {one["name"]: (one["concurrencyLimit"], one["used"]) for one in done.json["envelopes"]}
    assert found == {"east": (4, 0), "west": (0, 16)}
    assert call("runs", "budgets", "usage", "-o", "name", fleet=fleet).out.split() == ["rai/east", "rai/west"]
