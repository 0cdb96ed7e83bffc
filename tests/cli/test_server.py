"""`tenure`: scenarios, ledgers, policies and codes."""

import hashlib
import json
from pathlib import Path
from unittest.mock import patch

import pytest
from inline_snapshot import snapshot

from tenure.ledger import Code, Ledger
from tenure.ledger.refusals import refused
from tenure.shell.home import Home
from tenure.units import parse_time
from tests.cli.support import call, finish, spawn, still

ROOT = Path(__file__).resolve().parents[2]
SCENARIO = """
kind: Scenario
metadata: {name: two}
start: "2025-11-01T00:00:00Z"
nodes:
- {name: "a-{i}", count: 2, gpus: 8, labels: {region: west, cluster: lab, fabric.domain: A, gpu.flavor: H100}}
objects:
- {kind: Budget, metadata: {name: rai}, spec: {owner: "org:rai", envelopes: [{name: w, flavor: H100, selector: {region: west}, concurrency: 8}]}}
- {kind: Run, metadata: {name: first, namespace: rai}, spec: {owner: "org:rai", resources: {gpuType: H100, totalGPUs: 8}, runtime: {expectedDuration: 1h}}}
- {kind: Run, metadata: {name: bad, namespace: rai}, spec: {owner: "org:rai", resources: {gpuType: H100, totalGPUs: -8}}}
timeline:
- {at: 5m, apply: [{kind: Run, metadata: {name: second, namespace: rai}, spec: {owner: "org:rai", resources: {gpuType: H100, totalGPUs: 4}}}]}
- {at: 6m, snapshot: waiting}
until: 2h
"""  # noqa: E501 -- objects in one line each


def test_a_scenario_prints_exactly_the_json_object() -> None:
    done = call("tenure", "scenario", "-", "--output", "json", stdin=SCENARIO)
    assert (done.code, done.err) == (0, "")
    told = done.json
    assert list(told) == ["scenario", "snapshots", "final", "events"]
    assert told["scenario"] == "two"
    assert list(told["snapshots"]) == ["waiting"]
    for state in (told["final"], told["snapshots"]["waiting"]):
        assert list(state) == ["now", "budgets", "runs", "reservations", "leases", "pods", "nodes"]
    assert (told["snapshots"]["waiting"]["now"], told["final"]["now"]) == (
        "2025-11-01T00:06:00Z",
        "2025-11-01T02:00:00Z",
    )
    phases = {run["metadata"]["name"]: run["status"]["phase"] for run in told["snapshots"]["waiting"]["runs"]}
    assert phases == {"first": "Running", "second": "Pending"}
    assert all(list(event) == ["at", "kind", "object", "reason", "message"] for event in told["events"])
    rejected = [event["object"] for event in told["events"] if event["kind"] == "Rejected"]
    assert rejected == ["Run/rai/bad"]


def test_a_scenario_gives_the_same_bytes_every_time() -> None:
    first, second = (call("tenure", "scenario", "-", "-o", "json", stdin=SCENARIO).out for _ in range(2))
    assert first == second


def test_a_scenario_may_keep_its_ledger_and_says_the_same(tmp_path: Path) -> None:
    ledger = tmp_path / "kept.db"
    words = ["scenario", "-", "-o", "json"]
    kept = call("tenure", *words, "--keep", str(ledger), stdin=SCENARIO)
    assert (kept.code, kept.out) == (0, call("tenure", *words, stdin=SCENARIO).out)
    assert call("tenure", "ledger", "verify", str(ledger)).code == 0
    held = call("runs", "leases", "--at", "2025-11-01T00:30:00Z", "-o", "json", fleet=ledger).json["items"]
    assert [one["spec"]["runRef"]["name"] for one in held] == ["first"]
    again = call("tenure", *words, "--keep", str(ledger), stdin=SCENARIO)
    assert (again.code, again.out) == (6, "")


def test_the_clock_of_a_kept_ledger_stands_where_the_scenario_ended_until_somebody_goes_on(tmp_path: Path) -> None:
    ledger = tmp_path / "kept.db"
    plot = SCENARIO.replace("until: 2h", "until: 90m")  # the second run is in the middle of its hours
    final = call("tenure", "scenario", "-", "-o", "json", "--keep", str(ledger), stdin=plot).json["final"]
    assert [run["status"]["phase"] for run in final["runs"]] == ["Completed", "Running"]

    def hours() -> list[float]:
        items = call("runs", "list", "-A", "-o", "json", fleet=ledger).json["items"]
        return [item["status"]["funding"]["ownedGPUHours"] for item in items]

    def cost() -> float:
        [life] = call("runs", "who-pays", "rai/second", "-o", "json", fleet=ledger).json["incarnations"]
        return float(life["gpuHours"])

    assert hours() == [run["status"]["funding"]["ownedGPUHours"] for run in final["runs"]]
    assert (cost(), cost()) == (2.0, 2.0)
    with Ledger.open(ledger) as kept:
        assert kept.stands_at == parse_time("2025-11-01T01:30:00Z")
        with kept.write() as tx:
            tx.append(at=parse_time("2025-11-02T00:00:00Z"), cause="somebody goes on", facts=(), decided=False)
        assert kept.stands_at is None
    assert cost() > 2.0
    assert call("tenure", "ledger", "verify", str(ledger)).code == 0


@pytest.mark.parametrize(
    ("words", "held"),
    [
        (["--at", "1h"], ["first"]),
        (["--at", "now"], ["second"]),
        (["--since", "20m"], ["second"]),
        (["--since", "50m", "--until", "40m"], ["first"]),
        (["--at", "2h"], []),
    ],
)
def test_how_long_ago_is_counted_from_where_a_kept_ledger_stands(
    tmp_path: Path, words: list[str], held: list[str]
) -> None:
    ledger = tmp_path / "kept.db"
    plot = SCENARIO.replace("until: 2h", "until: 90m")  # the first run ended an hour in
    assert call("tenure", "scenario", "-", "--keep", str(ledger), stdin=plot).code == 0
    found = call("runs", "leases", *words, "-o", "json", fleet=ledger).json["items"]
    assert [one["spec"]["runRef"]["name"] for one in found] == held


def test_a_scenario_is_a_story_for_people() -> None:
    assert call("tenure", "scenario", "-", stdin=SCENARIO).out == snapshot("""\
Scenario two

Events
  AT  EVENT      OBJECT          REASON                  MESSAGE
 +0s  Rejected   Run/rai/bad     Invalid                 Run/rai/bad: spec.resources.totalGPUs is -8: too small; write a whole number from 1 to 9007199254740992, without quotes
 +0s  Admitted   Run/rai/first   Admitted                8 GPUs on 1 node, paid by rai/w (8 owned).
 +0s  Started    Run/rai/first   Started                 1 pod bound: it runs.
 +5m  Waiting    Run/rai/second  ConcurrencyCapExceeded  rai/w allows 8 GPUs at once; 8 are in use and 4 were asked: 4 too many.
 +5m  Reserved   Run/rai/second  Reserved                To start at 2025-11-01T01:00:00Z on west/lab/A: projected.
+55m  Countdown  Run/rai/second  Countdown               rai/second starts in 5m.
 +1h  Completed  Run/rai/first   Completed               1 pod succeeded.
 +1h  Admitted   Run/rai/second  Admitted                4 GPUs on 1 node, paid by rai/w (4 owned).
 +1h  Released   Run/rai/second  Released                It started as promised.
 +1h  Started    Run/rai/second  Started                 1 pod bound: it runs.

waiting (+6m)
RUN         PHASE    GPUS  WHY
rai/first   Running   8/8  1 pod bound: it runs.
rai/second  Pending   0/4  rai/w allows 8 GPUs at once; 8 are in use and 4 were asked: 4 too many.
WAITING     STATE    START  CONFIDENCE  IN THE WAY
rai/second  Pending    +1h  projected   -
RUN        NODE  GPUS  ROLE    PAID-BY
rai/first  a-0   0-7   Active  rai/w
ENVELOPE  USED  FREE  GPU-HOURS
rai/w        8     0     0.8000

final (+2h)
RUN         PHASE      GPUS  WHY
rai/first   Completed   0/8  1 pod succeeded.
rai/second  Running     4/4  1 pod bound: it runs.
RUN         NODE  GPUS  ROLE    PAID-BY
rai/second  a-0   0-3   Active  rai/w
ENVELOPE  USED  FREE  GPU-HOURS
rai/w        4     4      12.00
""")  # noqa: E501 -- as it is printed


def test_a_snapshot_tells_what_is_promised_and_who_is_at_risk() -> None:
    examples = ROOT / "examples" / "scenarios"
    cuts = call("tenure", "scenario", str(examples / "cuts-for-a-reservation.yaml")).out
    assert "rai/train  Pending  +1h15m  conservative  drop 8 spares of bio/guarded, shrink vision/elastic by 8" in cuts
    assert "vision/sweep      25 %  +1h15m  Reservation/rai/train-" in cuts
    money = call("tenure", "scenario", str(examples / "waiting-for-money.yaml")).out
    assert "bio/wide   Blocked      -  -               8 GPUs that nobody can pay for" in money
    over = money[money.index("final (") :]
    assert "WAITING" not in over
    assert "AT RISK" not in over


def test_who_is_at_risk_for_want_of_money_is_told_of_which(tmp_path: Path) -> None:
    (tmp_path / "short.yaml").write_text(
        """
kind: Scenario
metadata: {name: short}
start: "2025-11-01T00:00:00Z"
nodes:
- {name: "a-{i}", count: 1, gpus: 8, labels: {region: west, cluster: lab, fabric.domain: A, gpu.flavor: H100}}
objects:
- kind: Budget
  metadata: {name: rai}
  spec:
    owner: org:rai
    envelopes: [{name: west, flavor: H100, selector: {region: west}, concurrency: 8, maxGPUHours: 16}]
- {kind: Run, metadata: {name: one, namespace: rai}, spec: {owner: "org:rai", resources: {gpuType: H100, totalGPUs: 8}}}
timeline:
- {at: 115m, snapshot: soon}
until: 3h
"""
    )
    told = call("tenure", "scenario", str(tmp_path / "short.yaml")).out
    risks = still(told.partition("AT RISK")[2])
    assert risks.startswith(" CHANCE AT FOR\nrai/one 100 % +AGE Budget/rai/west\n"), risks


@pytest.mark.parametrize(
    ("change", "said"),
    [
        (("until: 2h", "until: soon"), 'until is "soon"'),
        (("at: 6m, snapshot: waiting", "at: 6m"), "0 actions"),
        (("gpus: 8,", "gpus: -8,"), "nodes[0].gpus is -8"),
        (("kind: Scenario", "kind: Scenery"), "kind"),
        (("metadata: {name: two}", "metadata: {name: two}\npolicy: {patienc: 1h}"), "patienc"),
    ],
)
def test_a_bad_scenario_file_is_told_on_standard_error(change: tuple[str, str], said: str) -> None:
    assert change[0] in SCENARIO
    done = call("tenure", "scenario", "-", "--output", "json", stdin=SCENARIO.replace(*change))
    assert (done.code, done.out) == (2, "")
    assert said in done.err


def test_a_whole_ledger_is_said_to_be_whole(past: Path) -> None:
    done = call("tenure", "ledger", "verify", str(past))
    assert done.code == 0
    assert still(done.out).startswith("FLEET is whole: ")
    told = call("tenure", "ledger", "verify", str(past), "-o", "json").json
    assert told["findings"] == []
    assert told["head"]["seq"] == told["entries"]


def test_an_exported_ledger_can_be_checked_with_a_few_lines(past: Path) -> None:
    previous = "0" * 64
    lines = call("tenure", "ledger", "export", str(past)).out.splitlines()
    for line in lines:
        body = line[len('{"hash":"') + 64 + len('","entry":') : -1]
        whole = json.loads(line)
        assert hashlib.sha256(body.encode()).hexdigest() == whole["hash"]
        assert whole["entry"]["prev"] == previous
        previous = whole["hash"]
    head = call("tenure", "ledger", "verify", str(past), "-o", "json").json["head"]
    assert (len(lines), previous) == (head["seq"], head["hash"])


def test_a_part_of_a_ledger_can_be_exported_and_shown(past: Path) -> None:
    lines = call("tenure", "ledger", "export", str(past), "--after", "2", "--until", "4").out.splitlines()
    assert [json.loads(line)["entry"]["seq"] for line in lines] == [3, 4]
    shown = call("tenure", "ledger", "show", str(past), "--after", "1", "--limit", "2", "-o", "json").json["entries"]
    assert [entry["seq"] for entry in shown] == [2, 3]
    assert call("tenure", "ledger", "show", str(past), "--entry", "1").out.splitlines()[0].endswith(": set policy")
    assert call("tenure", "ledger", "show", str(past), "--entry", "9999").code == 5


def test_policy_is_shown_set_and_recorded(used: Path, tmp_path: Path) -> None:
    changed = tmp_path / "policy.yaml"
    changed.write_text(call("tenure", "policy", "show", "-o", "yaml", fleet=used).out.replace("1h", "2h", 1))
    assert call("tenure", "policy", "set", "-f", str(changed), fleet=used).out == "lookahead: 1h -> 2h\n"
    assert call("tenure", "policy", "show", "-o", "json", fleet=used).json["lookahead"] == "2h"
    assert call("tenure", "policy", "set", "-f", str(changed), "--local", str(used)).out == "unchanged\n"
    entry = call("tenure", "ledger", "show", str(used), "--limit", "1", "-o", "json").json["entries"][0]
    assert entry["facts"][0]["policy"]["lookahead"] == "2h"


def test_a_bad_policy_changes_nothing(used: Path) -> None:
    done = call("tenure", "policy", "set", "-f", "-", fleet=used, stdin="lookahead: soon\npatienc: 1h\n")
    assert (done.code, done.out) == (2, "")
    assert "lookahead" in done.err
    assert "patienc" in done.err
    assert call("tenure", "policy", "show", "-o", "json", fleet=used).json["lookahead"] == "1h"


def test_every_reason_can_be_looked_up() -> None:
    codes = call("tenure", "explain-code", "-o", "name").out.split()
    assert "ConcurrencyCapExceeded" in codes
    for code in codes:
        told = call("tenure", "explain-code", code.lower(), "-o", "json").json
        assert (told["code"], bool(told["sentence"])) == (code, True)


def test_a_fleet_file_with_mistakes_creates_nothing(tmp_path: Path) -> None:
    (tmp_path / "fleet.yaml").write_text("kind: Fleet\nmetadata: {name: x}\nnodes: [{name: a, gpus: many}]\n")
    done = call("tenure", "init", str(tmp_path / "fleet.db"), "--fleet", str(tmp_path / "fleet.yaml"))
    assert (done.code, done.out) == (2, "")
    assert "nodes[0].gpus" in done.err
    assert not (tmp_path / "fleet.db").exists()


@pytest.mark.parametrize("again", [["init"], ["up", "--until-idle"]])
def test_a_fleet_whose_creation_failed_half_way_is_created_by_the_next_try(tmp_path: Path, again: list[str]) -> None:
    (tmp_path / "fleet.yaml").write_text(
        "{kind: Fleet, metadata: {name: x}, policy: {lookahead: 2h}, nodes: [{name: a, gpus: 4, labels: {}}]}"
    )
    path, words = tmp_path / "fleet.db", ["--fleet", str(tmp_path / "fleet.yaml")]
    with patch.object(Home, "handle", side_effect=refused(Code.DiskFull, path=path)):
        assert call("tenure", "init", str(path), *words).code == 6
    done = finish(spawn("tenure", "up", str(path), "--until-idle"))
    assert (done.code, "there is no fleet" in done.err) == (5, True)
    done = finish(spawn("tenure", again[0], str(path), *words, *again[1:]))
    assert (done.code, "fleet x: 1 machine, 4 GPUs" in done.out) == (0, True)
    assert call("tenure", "policy", "show", "-o", "json", fleet=path).json["lookahead"] == "2h"
    done = call("tenure", "init", str(path), *words)
    assert (done.code, "exists already" in done.err) == (6, True)


def test_without_a_fleet_file_the_fleet_is_this_machine_if_it_has_gpus(tmp_path: Path) -> None:
    from tenure.embedded.nvml import local_node

    done = call("tenure", "init", str(tmp_path / "fleet.db"))
    if local_node("nvidia.com/gpu") is None:
        assert (done.code, done.out) == (2, "")
        assert "no NVIDIA GPU" in done.err
        assert "--fleet" in done.err.splitlines()[-1]
    else:
        assert (done.code, "1 machine" in done.out) == (0, True)


def test_a_quarantined_machine_says_why(used: Path) -> None:
    node = {"kind": "Node", "metadata": {"name": "odd"}, "status": {"allocatable": {"nvidia.com/gpu": "8"}}}
    assert call("runs", "submit", "-f", "-", fleet=used, stdin=json.dumps(node)).code == 0
    done = call("runs", "nodes", fleet=used)
    assert "Quarantined" in done.out
    assert "Node odd has GPUs but lacks the label region: it takes no work. Label the node." in done.out
    (record,) = [
        item
        for item in call("runs", "nodes", "-o", "json", fleet=used).json["items"]
        if item["metadata"]["name"] == "odd"
    ]
    assert (record["state"], record["free"]) == ("Quarantined", 0)


def test_a_cordoned_machine_takes_nothing_and_says_so(used: Path) -> None:
    nodes = call("runs", "nodes", "-o", "json", fleet=used).json["items"]
    plain = {key: nodes[0][key] for key in ("kind", "metadata", "status")} | {"spec": {"unschedulable": True}}
    assert call("runs", "submit", "-f", "-", fleet=used, stdin=json.dumps(plain)).code == 0
    row = call("runs", "nodes", fleet=used).out.splitlines()[1].split()
    assert (row[0], row[1], row[5]) == ("a-0", "Cordoned", "0")
