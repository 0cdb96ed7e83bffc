"""A run that waited, was promised a start, and got it because another was drawn by lot: told from its ledger alone."""

from pathlib import Path

import pytest

from tenure.api.policy import Policy
from tenure.engine.lottery import Result, draw
from tenure.facts import Cut, Fact, Resolved, encode_entry
from tenure.ledger import Ledger
from tenure.shell.home import Home
from tenure.shell.ledger_store import LedgerStore
from tenure.simulate.player import Player
from tenure.simulate.scenario import read_scenario
from tenure.testing.builders import at, budget, nodes, run
from tenure.testing.fleet import Fleet
from tests.cli.support import Done, call, still

SPEC = '{owner: "org:rai", resources: {gpuType: H100, totalGPUs: 8}}'
SCENARIO = f"""
kind: Scenario
metadata: {{name: by-lot}}
start: "2025-11-01T00:00:00Z"
policy: {{activationLead: 15m, drawSecret: secret}}
nodes:
- {{name: "a-{{i}}", count: 2, gpus: 8, labels: {{region: west, cluster: lab, fabric.domain: A, gpu.flavor: H100}}}}
objects:
- kind: Budget
  metadata: {{name: rai}}
  spec: {{owner: "org:rai", envelopes: [{{name: west, flavor: H100, selector: {{region: west}}, concurrency: 64}}]}}
- {{kind: Run, metadata: {{name: one, namespace: rai}}, spec: {SPEC}}}
- {{kind: Run, metadata: {{name: two, namespace: rai}}, spec: {SPEC}}}
timeline:
- {{at: 1h, apply: [{{kind: Run, metadata: {{name: late, namespace: rai}}, spec: {SPEC}}}]}}
until: 2h
""".encode()


@pytest.fixture(scope="module")
def played(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("drawn") / "fleet.db"
    scenario, errors = read_scenario(SCENARIO, source="by-lot")
    assert scenario is not None, errors
    with Ledger.create(path, fleet="simulator") as ledger:
        Player(scenario, lambda executor: Home(LedgerStore(ledger), executor)).play()
    return path


def test_the_draw_is_right_by_the_name_of_its_reservation(played: Path) -> None:
    [name] = call("runs", "reservations", "rai/late", "--all", "-o", "name", fleet=played).out.split()
    for spelt in (f"Reservation/{name}", name):
        record = call("runs", "verify", spelt, "-o", "json", fleet=played).json
        assert (record["ok"], [one["state"] for one in record["draws"]]) == (True, ["right"])


def test_the_story_of_who_waited_has_the_promise_the_draw_and_the_start(played: Path) -> None:
    events = call("runs", "story", "rai/late", "-o", "json", fleet=played).json["incarnations"][0]["events"]
    assert [event["event"] for event in events] == [
        "Submitted", "Waiting", "Reserved", "Activated", "Draw", "Resolved", "Released", "Admitted", "Started",
    ]  # fmt: skip
    told = {event["event"]: still(event["text"]) for event in events}
    assert told["Reserved"].endswith(
        "The promise: 8 GPUs on 1 node of west/lab/A, paid by rai/west (8 owned, org:rai)."
    )
    assert "was drawn by lot and ended: 8 GPUs" in told["Resolved"]


def test_the_story_of_who_gave_way_names_the_record(played: Path) -> None:
    [name] = call("runs", "reservations", "rai/late", "--all", "-o", "name", fleet=played).out.split()
    told = [call("runs", "story", f"rai/{run}", "-o", "json", fleet=played).json for run in ("one", "two")]
    cuts = [event for one in told for event in one["incarnations"][0]["events"] if event["event"] == "Cut"]
    assert [event["text"].split(". ")[1] for event in cuts] == [
        f"For Reservation/{name}, activation 1: verify Reservation/{name}."
    ]


def test_the_promise_was_kept_to_the_second(played: Path) -> None:
    record = call("runs", "forecast-error", "-o", "json", fleet=played).json
    assert record["starts"] == 1
    assert (record["promise"]["conservative"]["maxSeconds"], record["plan"]["conservative"]["maxSeconds"]) == (0, 0)


# --- between the freeze and the reveals -----------------------------------------------------------------------------


class Waiting:
    """A fleet of which a draw is frozen, and not revealed yet."""

    def __init__(self) -> None:
        owners = [budget(name) for name in "abcdw"]
        self.fleet = Fleet(*nodes("n", 4), *owners, secret="s", policy=Policy(patience="0s"))
        self.fleet.start(*[run(f"r{name}", 8, owner=f"org:{name}") for name in "abcd"])
        self.fleet.later("1h")
        self.fleet.apply(run("w", 16, owner="org:w", lasts="9h"))
        assert self.fleet.custodian is not None
        self.custodian, self.fleet.custodian = self.fleet.custodian, None
        self.fleet.until(at("76m"))
        [(self.subject, self.froze)] = self.fleet.state.draws.items()
        found = draw(self.froze.intent, {self.custodian.beacon: self.custodian.answer(self.froze.intent)})
        assert isinstance(found, Result)
        self.result = found

    def verify(self, path: Path, *more: Fact) -> Done:
        """What is said of its ledger, which ends with these facts."""
        with Ledger.create(path, fleet="test") as ledger, ledger.write() as tx:
            for entry in self.fleet.entries:
                tx.take(encode_entry(entry))
            if more:
                tx.append(at=self.fleet.now, cause="forged", facts=more)
        return call("runs", "verify", self.subject, "-o", "json", fleet=path)


def test_a_run_that_was_over_before_the_reveals_is_passed_over(tmp_path: Path) -> None:
    waiting = Waiting()
    first, second, *_ = waiting.result.order
    waiting.fleet.succeed(first)
    waiting.fleet.reveal(waiting.custodian)
    cut = [one.run for fact in waiting.fleet.facts if isinstance(fact, Resolved) for one in fact.cuts]
    assert cut == [second]
    done = waiting.verify(tmp_path / "fleet.db")
    assert (done.code, done.json["draws"][0]["passedOver"]) == (0, [first])
    told = call("runs", "verify", waiting.subject, fleet=tmp_path / "fleet.db").out
    assert f"{first} was drawn and passed over" in told


def test_a_run_that_was_there_is_not_passed_over(tmp_path: Path) -> None:
    waiting = Waiting()
    first, second, *_ = waiting.result.order
    leases = tuple(sorted(waiting.fleet.state.runs[second].leases))
    cut = Cut(kind="Lottery", run=second, owner=waiting.fleet.state.runs[second].run.spec.owner, gpus=8, leases=leases)
    forged = Resolved(
        trigger="Activation", subject=waiting.subject, activation=1, deficit=8, intent=waiting.froze.intent,
        result=waiting.result, cuts=(cut,),
    )  # fmt: skip
    done = waiting.verify(tmp_path / "fleet.db", forged)
    assert done.code == 6
    assert [(one["code"], one["subject"]) for one in done.json["findings"]] == [("CutNotDrawn", second)]
    assert first in done.json["findings"][0]["sentence"]
