"""Questions about the past: who held what, who paid, what the limits were; also of runs that are gone."""

import re
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from tenure.api.policy import Policy
from tenure.cli.payers import split
from tenure.embedded.fleet import Fleet
from tenure.engine import Apply, Report, Sighting
from tenure.facts import Lease
from tenure.ledger.queries import LeaseRow
from tenure.testing import START, budget, namespace, nodes, run
from tenure.units import HOUR
from tests.cli.support import BUDGETS, call, copy, run_yaml, submit, until_idle


def leases(fleet: Path, *words: str) -> list[dict[str, object]]:
    found: list[dict[str, object]] = call("runs", "leases", *words, "-o", "json", fleet=fleet).json["items"]
    return found


def start_of(fleet: Path, run: str) -> str:
    """When a run's first lease opened, as RFC 3339."""
    return str(leases(fleet, "--run", f"rai/{run}")[0]["spec"]["interval"]["start"])  # type: ignore[index]  # a Lease


def test_the_holder_of_a_node_at_an_instant_is_found(past: Path) -> None:
    at = start_of(past, "c-eval")
    held = [lease for node in ("a-0", "a-1", "b-0") for lease in leases(past, "--node", node, "--at", at)]
    runs = {lease["spec"]["runRef"]["name"] for lease in held}  # type: ignore[index]  # a Lease
    assert runs == {"a-train", "b-flaky", "c-eval"}
    assert leases(past, "--at", "now") == []
    assert leases(past, "--open") == []


def test_leases_are_found_by_run_owner_payer_and_time(past: Path) -> None:
    everything = len(leases(past))
    assert len(leases(past, "--owner", "org:ai:rai")) == everything
    assert len(leases(past, "--payer", "org:ai:vision")) == 1
    assert len(leases(past, "--run", "rai/b-flaky")) == 2
    assert len(leases(past, "--since", "2d")) == everything
    assert leases(past, "--until", "2d") == []
    assert len(leases(past, "--limit", "3")) == 3
    assert leases(past, "-n", "default") == []


def test_usage_at_an_instant_is_what_the_leases_of_then_say(past: Path) -> None:
    """Two ways to the same number: the state replayed up to then, and the sum over leases."""
    at = start_of(past, "d-later")
    envelopes = call("runs", "budgets", "usage", "--at", at, "-o", "json", fleet=past).json["envelopes"]
    sums = call("runs", "budgets", "usage", "--by", "envelope", "--until", at, "-o", "json", fleet=past).json["usage"]
    assert {f"{one['budget']}/{one['name']}": one["usedGPUHours"] for one in envelopes} == pytest.approx(
        {one["key"]: one["gpuHours"] for one in sums}, rel=1e-12
    )
    held = Counter({"rai": 0, "vision": 0})
    for lease in call("runs", "leases", "--at", at, "-o", "json", fleet=past).json["items"]:
        held[lease["spec"]["paidByBudget"]] += len(lease["spec"]["slice"]["gpus"])
    assert {one["budget"]: one["used"] for one in envelopes} == held
    assert held["rai"] >= 12


def test_the_past_keeps_the_limits_of_then(used: Path) -> None:
    before = start_of(used, "d-later")
    assert submit(used, BUDGETS.replace("concurrency: 14", "concurrency: 99")).code == 0
    limits = {
        when: call("runs", "budgets", "usage", "rai", *words, "-o", "json", fleet=used).json["envelopes"][0][
            "concurrencyLimit"
        ]
        for when, words in {"then": ["--at", before], "now": []}.items()
    }
    assert limits == {"then": 14, "now": 99}


def test_before_the_beginning_there_is_nothing(past: Path) -> None:
    done = call("runs", "budgets", "usage", "--at", "2001-01-01", fleet=past)
    assert (done.code, done.out) == (0, "As of 2001-01-01T00:00:00Z, under the limits in force then:\n")
    assert done.err == "no budgets\n"


@pytest.mark.parametrize("words", [("budgets", "usage"), ("leases",)])
def test_the_future_is_refused(past: Path, words: tuple[str, ...]) -> None:
    done = call("runs", *words, "--at", "2999-01-01", fleet=past)
    assert (done.code, done.err.splitlines()[0]) == (2, "error: 2999-01-01T00:00:00Z is in the future")


@pytest.mark.parametrize(
    "words", [["--since", "2025-01-02", "--until", "2025-01-01"], ["--since", "1h", "--until", "2h"]]
)
def test_a_period_that_ends_before_it_begins_is_refused(past: Path, words: list[str]) -> None:
    assert call("runs", "leases", *words, fleet=past).code == 2
    assert call("runs", "budgets", "usage", "--by", "owner", *words, fleet=past).code == 2


def test_a_deleted_run_still_has_its_payers_its_reasons_and_its_logs(past: Path, tmp_path: Path) -> None:
    fleet = copy(past, tmp_path)
    before = call("runs", "who-pays", "rai/c-eval", "-o", "json", fleet=fleet).json["incarnations"][0]
    assert call("runs", "cancel", "rai/c-eval", "rai/a-train", fleet=fleet).code == 0
    gone = call("runs", "describe", "rai/c-eval", fleet=fleet)
    assert (gone.code, gone.err.splitlines()[0]) == (5, "error: Run/rai/c-eval was deleted")
    assert "who-pays rai/c-eval" in gone.err
    after = call("runs", "who-pays", "rai/c-eval", "-o", "json", fleet=fleet).json["incarnations"][0]
    assert (after["phase"], after["payers"]) == ("deleted", before["payers"])
    assert "the run was deleted" in call("runs", "explain", "rai/c-eval", fleet=fleet).out
    assert "rank 0" in call("runs", "logs", "rai/a-train", fleet=fleet).out


def test_two_runs_of_one_name_are_told_apart(used: Path) -> None:
    assert call("runs", "cancel", "rai/d-later", fleet=used).code == 0
    assert submit(used, run_yaml("d-later", 2, "true")).code == 0
    until_idle(used)
    lives = call("runs", "who-pays", "rai/d-later", "-o", "json", fleet=used).json["incarnations"]
    assert [life["phase"] for life in lives] == ["deleted", "Completed"]
    assert len({life["uid"] for life in lives}) == 2
    events = call("runs", "describe", "rai/d-later", "-o", "json", fleet=used).json["events"]
    assert [event["kind"] for event in events] == ["Admitted", "Started", "Completed"]


def test_a_run_does_not_answer_for_an_earlier_one_of_its_name(used: Path) -> None:
    def explain(*words: str) -> Any:
        return call("runs", "explain", "rai/a-train", *words, "-o", "json", fleet=used).json

    assert [one["verdict"]["outcome"] for one in explain("--history")["decisions"]] == ["start"]
    assert call("runs", "cancel", "rai/a-train", fleet=used).code == 0
    assert explain()["outcome"] == "deleted", "until there is another, it is the one that is meant"
    assert submit(used, run_yaml("a-train", 64, "true")).code == 0
    assert explain("--history") == {"run": "rai/a-train", "decisions": []}
    told = explain("--recorded")
    assert (told["outcome"], told["recorded"]) == ("never", False), "nothing is recorded of it yet"
    until_idle(used)
    told = explain("--recorded")
    assert (told["outcome"], told["recorded"]) == ("never", True)
    assert [one["verdict"]["outcome"] for one in explain("--history")["decisions"]] == ["never"]
    assert call("runs", "cancel", "rai/a-train", fleet=used).code == 0
    told = explain()
    assert (told["outcome"], told["verdict"]["outcome"]) == ("deleted", "never")


GROWN = """
kind: Scenario
metadata: {name: grown}
start: "2025-11-01T00:00:00Z"
policy: {growInterval: 30m, budgetGrace: 1h}
nodes: [{name: "a-{i}", count: 4, gpus: 8, labels: {region: west, cluster: lab, fabric.domain: A, gpu.flavor: H100}}]
objects:
- kind: Budget
  metadata: {name: rai}
  spec: {owner: org:ai, envelopes: [{name: west, flavor: H100, selector: {region: west}, concurrency: 64}]}
- kind: Run
  metadata: {name: elastic, namespace: rai}
  spec:
    owner: org:ai
    resources: {gpuType: H100, totalGPUs: 8}
    malleable: {minTotalGPUs: 8, maxTotalGPUs: 32, stepGPUs: 8}
    runtime: {expectedDuration: 3h}
timeline:
- {at: 100m, delete: {kind: Budget, name: rai}}
until: 2h
"""


@pytest.fixture
def grown(tmp_path: Path) -> Path:
    """A run that grew every half an hour, and whose Budget was deleted twenty minutes ago."""
    (tmp_path / "grown.yaml").write_text(GROWN)
    ledger = tmp_path / "fleet.db"
    assert call("tenure", "scenario", str(tmp_path / "grown.yaml"), "--keep", str(ledger)).code == 0
    return ledger


def test_a_run_that_grew_is_expected_to_end_as_it_declared_at_its_start(grown: Path) -> None:
    assert len(leases(grown, "--open")) > 1
    shown = call("runs", "describe", "rai/elastic", fleet=grown).out
    assert re.search(r"^Expected: +3h, until 2025-11-01T03:00:00Z ", shown, re.MULTILINE), shown


def test_a_budget_that_was_deleted_shows_as_long_as_it_pays(grown: Path) -> None:
    (told,) = call("runs", "budgets", "usage", "-o", "json", fleet=grown).json["envelopes"]
    assert (told["budget"], told["name"], told["owner"]) == ("rai", "west", "org:ai")
    assert (told["used"], told["concurrencyLimit"], told["gpuHoursLimit"]) == (32, 0, 0)
    assert call("runs", "budgets", "usage", "rai", fleet=grown).code == 0
    assert call("runs", "budgets", "list", fleet=grown).out.splitlines()[1].split()[:2] == ["rai", "org:ai"]
    assert call("runs", "budgets", "list", "-o", "json", fleet=grown).json["items"] == [], "nothing to hand in again"
    before = call("runs", "budgets", "usage", "--at", "2025-11-01T01:00:00Z", "-o", "json", fleet=grown).json
    assert before["envelopes"][0]["concurrencyLimit"] == 64


def test_who_paid_at_an_instant(funded: Path) -> None:
    def split(*words: str) -> dict[str, tuple[int, float]]:
        (life,) = call("runs", "who-pays", "rai/train", *words, "-o", "json", fleet=funded).json["incarnations"]
        assert life["gpuMicroseconds"] == sum(one["gpuMicroseconds"] for one in life["payers"])
        return {kind: (one["gpus"], one["gpuHours"]) for kind, one in life["classes"].items()}

    assert split("--at", "2025-11-30T20:00:00Z") == {"owned": (8, 0.0), "shared": (4, 0.0), "borrowed": (12, 0.0)}
    assert split("--at", "2025-11-30T22:00:00Z") == {"owned": (8, 16.0), "shared": (4, 8.0), "borrowed": (20, 32.0)}
    assert split("--at", "2025-11-30T23:00:00Z") == {"owned": (8, 24.0), "shared": (4, 12.0), "borrowed": (4, 52.0)}
    assert split() == {"owned": (0, 48.0), "shared": (0, 24.0), "borrowed": (0, 64.0)}


def test_who_paid_before_there_was_anything_to_pay(funded: Path) -> None:
    early = call("runs", "who-pays", "vision/sweep", "--at", "2025-11-30T21:00:00Z", fleet=funded)
    assert (early.code, early.err.splitlines()[0]) == (
        5,
        "error: Run/vision/sweep held nothing before 2025-12-01T04:00:00Z",
    )
    assert call("runs", "who-pays", "rai/never", "--at", "2025-11-30T21:00:00Z", fleet=funded).code == 5
    later = call("runs", "who-pays", "rai/train", "--at", "2999-01-01", fleet=funded)
    assert (later.code, later.err.splitlines()[0]) == (2, "error: 2999-01-01T00:00:00Z is in the future")


def test_who_paid_for_a_deleted_run_at_an_instant_before_it_was_deleted(used: Path) -> None:
    at = start_of(used, "c-eval")
    assert call("runs", "cancel", "rai/c-eval", fleet=used).code == 0
    (life,) = call("runs", "who-pays", "rai/c-eval", "--at", at, "-o", "json", fleet=used).json["incarnations"]
    assert (life["phase"], life["classes"]["owned"]["gpus"], life["classes"]["borrowed"]["gpus"]) == ("Pending", 4, 4)
    (life,) = call("runs", "who-pays", "rai/c-eval", "-o", "json", fleet=used).json["incarnations"]
    assert (life["phase"], life["classes"]["owned"]["gpus"]) == ("deleted", 0)


def test_who_owned_a_budget_before_pays_for_what_it_paid_then() -> None:
    """The first payer of an envelope was said to have paid for all."""
    owners = [("org:one", 2), ("org:two", 3), ("org:one", 1)]
    rows = [LeaseRow(lease=_lease(f"x-{number}", payer), end=START + hours * HOUR, closure="Completed", seq=number)
            for number, (payer, hours) in enumerate(owners)]  # fmt: skip
    shares = split(rows, now=START + 9 * HOUR)
    assert [(one.payer, one.used / HOUR) for one in shares] == [("org:one", 24), ("org:two", 24)]


def _lease(name: str, payer: str) -> Lease:
    return Lease(namespace="lab", name=name, run="x", uid="u", owner="org:b", attempt=1, group=0, domain="A", node="n0",
                 gpus=tuple(range(8)), role="Active", start=START, until=None, budget="pool", envelope="main",
                 payer=payer, funding="borrowed", reason="Start")  # fmt: skip


def test_usage_at_an_instant_leaves_out_what_had_ended_though_nobody_knew(tmp_path: Path) -> None:
    """The report that work was over came hours later: `usage --at` went by what was known then, and `leases --at` by
    what was so."""
    with Fleet.create(tmp_path / "late.db", nodes=nodes("n", 1), policy=Policy()) as fleet:
        home, begin = fleet.home, fleet.now() + HOUR
        home.handle(Apply((namespace("lab"), budget("a"), run("x", 8, owner="org:a"))), now=begin)
        [pod] = home.state.pods
        home.handle(Report((Sighting(pod, "Bound"),)), now=begin)
        home.handle(Report((Sighting(pod, "Succeeded", 0, "", begin + HOUR),)), now=begin + 10 * HOUR)
        fund = fleet.state_at(begin + 6 * HOUR).books.funds["a", "main"]
        assert (fund.used, fund.total.used(begin + 6 * HOUR)) == (0, 8 * HOUR)
        assert fleet.state_at(begin + HOUR // 2).books.funds["a", "main"].used == 8
