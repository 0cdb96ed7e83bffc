"""`explain`, `plan` and `resolve` on a fleet with promises, cuts and draws, made by a scenario that ends just now."""

import json
from collections.abc import Callable
from pathlib import Path
from time import monotonic, time_ns
from typing import Any

import pytest

from tenure.cli.local import LocalFleet
from tenure.embedded.driver import DriverLock
from tenure.embedded.fleet import Fleet
from tenure.units import MINUTE, SECOND, format_time
from tests.cli.support import SECONDS, Done, call, create, driven, run_yaml, still, submit

PASSED = 60
"""Minutes that the scenario has played."""


def run(name: str, gpus: int, *, owner: str = "org:rai", **spec: Any) -> dict[str, Any]:
    usual = {"owner": owner, "resources": {"gpuType": "H100", "totalGPUs": gpus}}
    body = {**usual, "locality": {"selector": {"region": "west"}}, **spec}
    return {"kind": "Run", "metadata": {"name": name, "namespace": "rai"}, "spec": body}


def budget(name: str, *envelopes: dict[str, Any]) -> dict[str, Any]:
    listed = [{"flavor": "H100", "selector": {"region": "west"}, **one} for one in envelopes]
    return {"kind": "Budget", "metadata": {"name": name}, "spec": {"owner": f"org:{name}", "envelopes": listed}}


def machines(name: str, count: int, region: str) -> dict[str, Any]:
    labels = {"region": region, "cluster": f"{region}-1", "fabric.domain": name.upper(), "gpu.flavor": "H100"}
    return {"name": f"{name}-{{i}}", "count": count, "gpus": 8, "labels": labels}


EAST = {"selector": {"region": "east"}}


def scenario(**policy: str | int) -> dict[str, Any]:
    """Four machines in the west, two in the east; what becomes of each run is told beside it."""
    objects = [
        budget("rai", {"name": "west", "concurrency": 64}, {"name": "east", "concurrency": 16, **EAST}),
        budget("low", {"name": "east", "concurrency": 4, **EAST}),
        run("long", 8, runtime={"expectedDuration": "6h"}),
        run("fixed", 8, runtime={"expectedDuration": "4h"}),
        run("wide", 8, malleable={"minTotalGPUs": 8, "maxTotalGPUs": 16, "stepGPUs": 8}),
        run("bad", 2, locality=EAST),
        run("spends", 4, owner="org:low", locality=EAST),
    ]
    timeline = [
        {"at": "5m", "workload": {"run": "rai/bad", "do": "fail"}},
        {"at": "30m", "apply": [run("big", 16, runtime={"expectedDuration": "1h"})]},  # starts when rai/long has ended
        {"at": "31m", "apply": [run("poor", 4, owner="org:low", locality=EAST)]},  # rai/spends has all the money
        {"at": "32m", "apply": [run("giant", 128)]},  # can never be
    ]
    return {
        "kind": "Scenario", "metadata": {"name": "waiting"}, "policy": {"drawSecret": "s", **policy},
        "start": format_time((time_ns() // 1000 - PASSED * MINUTE) // SECOND * SECOND),
        "nodes": [machines("a", 4, "west"), machines("b", 2, "east")],
        "objects": objects, "timeline": timeline, "until": f"{PASSED}m",
    }  # fmt: skip


def play(folder: Path, plot: dict[str, Any]) -> Path:
    ledger = folder / "fleet.db"
    done = call("tenure", "scenario", "-", "--keep", str(ledger), stdin=json.dumps(plot))
    assert done.code == 0, done.err
    return ledger


@pytest.fixture(scope="module")
def waiting(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return play(tmp_path_factory.mktemp("waiting"), scenario())


@pytest.fixture(scope="module")
def shallow(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The same with one place in each cluster: rai/big has that of the west, and rai/behind waits without."""
    plot = scenario(promiseDepth=1)
    plot["timeline"].append({"at": "33m", "apply": [run("behind", 24, runtime={"expectedDuration": "1h"})]})
    return play(tmp_path_factory.mktemp("shallow"), plot)


@pytest.fixture(autouse=True)
def attended(monkeypatch: pytest.MonkeyPatch, request: pytest.FixtureRequest) -> None:
    """Ledgers of scenarios are told about as if somebody drove them."""
    if {"waiting", "cut", "shallow"} & set(request.fixturenames):
        monkeypatch.setattr(LocalFleet, "driven", True)


def told(fleet: Path, *words: str) -> str:
    done = call("runs", *words, fleet=fleet)
    assert done.code == 0, done.err
    return still(done.out)


def record(fleet: Path, run: str) -> Any:
    return call("runs", "explain", f"rai/{run}", "-o", "json", fleet=fleet).json


# --- explain: what waits --------------------------------------------------------------------------------------------


def test_a_waiting_run_is_told_why_when_where_who_pays_and_what_helps(waiting: Path) -> None:
    out = told(waiting, "explain", "rai/big")
    head, facts = out.split("\n\n")[0].split("\n", 1)
    assert head == "Run/rai/big waits"
    lines = dict(line.split(": ", 1) for line in facts.splitlines())
    assert lines["Why"] == "west/west-1 has 0 free GPUs of the 16 that are needed. [NoCapacity]"
    assert lines["Start"].startswith("TIME (in ")
    assert lines["Rests on"] == "projected from declared ends"
    assert lines["Paid by"] == "rai/west (16 owned, org:rai)"


def test_the_same_for_programs(waiting: Path) -> None:
    told = record(waiting, "big")
    assert (told["outcome"], told["phase"], told["recorded"]) == ("waiting", "Pending", False)
    status = told["reservation"]["status"]
    assert status["plannedStart"] > told["at"]
    assert all(one["start"] < status["plannedStart"] for one in told["alternatives"] if one["kind"] != "later")
    assert [one["start"] for one in told["alternatives"]] == sorted(one["start"] for one in told["alternatives"])
    assert told["cuts"] == []


def test_a_run_that_lacks_money_is_told_how_much_and_whose(waiting: Path) -> None:
    out = told(waiting, "explain", "rai/poor")
    assert out.startswith("Run/rai/poor waits for money\n")
    assert "In the way: 4 GPUs that nobody can pay for\n" in out
    assert "Could pay: low/east 0 of 4\n" in out
    assert "Start: none is planned\n" in out
    assert record(waiting, "poor")["outcome"] == "short-of-money"


def test_a_run_that_can_never_start_is_told_what_could(waiting: Path) -> None:
    told = record(waiting, "giant")
    assert (told["outcome"], told["reservation"]) == ("never", None)


# --- explain: what runs, and what is over ---------------------------------------------------------------------------


def test_a_run_that_grew_is_shown_as_it_stands(waiting: Path) -> None:
    out = told(waiting, "explain", "rai/wide")
    assert out.startswith("Run/rai/wide runs\n")
    assert "GPUs: 16 in west/west-1/A\n" in out
    assert "Paid by: rai/west (16 owned, org:rai)\n" in out
    assert "it grew 1 time since" in out
    assert "Now: Running: Grown by 8 GPUs to 16.\n" in out
    assert sum(len(one["spec"]["slice"]["gpus"]) for one in record(waiting, "wide")["leases"]) == 16


def test_a_grown_run_has_what_it_desires_and_not_more_than_it_asked(waiting: Path) -> None:
    assert "GPUs: 16 of 16 H100 (groups of 8, 8 to 16 by 8)\n" in told(waiting, "describe", "rai/wide")
    assert "wide Running 16/16 " in told(waiting, "list", "-n", "rai")


def test_a_run_that_failed_says_so_and_what_to_look_at(waiting: Path) -> None:
    out = told(waiting, "explain", "rai/bad")
    assert out.startswith("Run/rai/bad is over: it failed\n")
    assert "Now: Failed: bad-a1-0 failed with exit code 1." in out
    assert "Helps: Look at" in out
    assert record(waiting, "bad")["outcome"] == "failed"


# --- explain: who gave way ------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def cut(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """In the west rai/one and rai/two are drawn to make room for rai/new; in the east rai/wide shrinks for rai/late."""
    plot = scenario(activationLead="5m", patience="10m")
    plot["nodes"] = [machines("a", 2, "west"), machines("b", 2, "east")]
    plot["objects"] = [
        budget("rai", {"name": "west", "concurrency": 64}, {"name": "east", "concurrency": 64, **EAST}),
        run("one", 8),
        run("two", 8, runtime={"onPreemption": "Requeue"}),
        run("wide", 16, malleable={"minTotalGPUs": 8, "maxTotalGPUs": 16, "stepGPUs": 8}, locality=EAST),
    ]
    new = run("new", 16, runtime={"expectedDuration": "6h"})  # its end is what rai/two is promised
    plot["timeline"] = [{"at": "20m", "apply": [new, run("late", 8, locality=EAST)]}]
    return play(tmp_path_factory.mktemp("cut"), plot)


def test_a_run_that_was_drawn_is_told_for_whom_with_the_record_to_check(cut: Path) -> None:
    out = told(cut, "explain", "rai/one")
    assert out.startswith("Run/rai/one is over: it was cut\n")
    assert "Gave way: rai/one was drawn by lot and ended: 8 GPUs, TIME" in out
    assert "For: rai/new: its planned start had come and machines were short\n" in out
    [one] = record(cut, "one")["cuts"]
    assert (one["kind"], one["for"], one["trigger"], one["activation"]) == ("Lottery", "rai/new", "Activation", 1)
    assert f"Record: {one['subject']}, activation 1, entry {one['entry']}\n" in out
    assert len(one["seed"]) == 64
    assert call("runs", *one["verify"].split()[1:], fleet=cut).code == 0, "what it says to type is right"


def test_a_run_that_was_requeued_after_a_cut_is_told_both(cut: Path) -> None:
    out = told(cut, "explain", "rai/two")
    assert out.startswith("Run/rai/two was cut, and waits to start again\n")
    assert "Gave way: rai/two was drawn by lot" in out
    assert "Now: queued again after it was cut; nobody is cut for it in turn\n" in out
    told_ = record(cut, "two")
    assert (told_["outcome"], [one["kind"] for one in told_["cuts"]]) == ("requeued", ["Lottery"])


def test_a_run_that_shrank_for_another_goes_on_and_says_for_whom(cut: Path) -> None:
    out = told(cut, "explain", "rai/wide")
    assert out.startswith("Run/rai/wide runs\n")
    assert "GPUs: 8 of 16 in east/east-1/B\n" in out
    assert "Gave way: rai/wide was shrunk by 8" in out
    assert "Now: Running: Shrunk by resolver" in out
    assert record(cut, "wide")["outcome"] == "running"


def test_who_was_cut_and_queued_again_gets_no_room_and_is_told_why(cut: Path) -> None:
    done = call("runs", "resolve", "rai/two", "--dry-run", "-o", "json", fleet=cut)
    assert (done.code, done.json["declined"]["code"]) == (6, "CutBefore")


def test_who_waits_behind_the_promises_is_told_why_and_of_no_start(shallow: Path) -> None:
    out = told(shallow, "explain", "rai/behind")
    assert out.startswith("Run/rai/behind waits\n")
    assert "\nWhy: west/west-1 has 0 free GPUs of the 24 that are needed. [NoCapacity]\n" in out
    assert "\nStart: " not in out
    assert record(shallow, "behind")["reservation"] is None
    assert "big" in told(shallow, "reservations", "-A")
    assert "behind" not in told(shallow, "reservations", "-A")
    [line] = [line for line in told(shallow, "list", "-A").splitlines() if " behind " in line]
    assert line.split()[:5] == ["rai", "behind", "Pending", "0/24", "org:rai"]
    assert line.endswith(" - place 3, 3 ahead (machines)"), "behind rai/poor, rai/giant, and the promise of rai/big"
    assert "\nQueue: place 3; 3 runs are ahead of it; it waits for machines\n" in out
    done = call("runs", "resolve", "rai/behind", "--dry-run", "-o", "json", fleet=shallow)
    assert (done.code, done.json["declined"]["code"]) == (6, "NoReservation"), "who holds no promise has nobody cut"


# --- plan -----------------------------------------------------------------------------------------------------------


def plan(fleet: Path, item: dict[str, Any], form: str = "table") -> Done:
    item["spec"]["template"] = {"spec": {"containers": [{"name": "main", "command": ["true"]}]}}
    return call("runs", "plan", "-f", "-", "-o", form, fleet=fleet, stdin=json.dumps(item))


def test_a_plan_tells_the_start_what_it_counts_on_and_ranked_alternatives(waiting: Path) -> None:
    new = run("new", 8, runtime={"expectedDuration": "2h"})
    done = plan(waiting, new)
    assert done.code == 3
    out = still(done.out)
    assert out.startswith("Run/rai/new would wait\n")
    assert " Start: TIME (in " in out
    assert "\nelsewhere TIME now now 8 16 0 in east/east-1\n" in out
    wide = plan(waiting, new, "wide").out
    assert "Who could pay" in wide
    told = plan(waiting, new, "json").json["runs"][0]
    assert told["plannedStart"] == told["reservation"]["status"]["plannedStart"]
    assert told["alternatives"][0]["kind"] == "elsewhere"
    assert told["alternatives"][0]["gpuHours"] == 16
    assert told["restsOn"]


def test_a_plan_that_counts_on_cuts_names_who_would_give_way_and_the_odds(waiting: Path) -> None:
    new = run("new", 32)
    status = plan(waiting, new, "json").json["runs"][0]["reservation"]["status"]
    out = still(plan(waiting, new).out)
    assert status["forecast"]["confidence"] == "conservative"
    assert " Rests on: conservative: nothing known frees enough, so others are given notice\n" in out
    assert " In the way: " in out
    assert "lottery frees" in out
    assert " Odds: rai/" in out


def test_asking_changes_nothing(waiting: Path) -> None:
    before = call("tenure", "ledger", "export", str(waiting)).out
    assert plan(waiting, run("new", 8)).code == 3
    assert call("runs", "resolve", "rai/big", "--dry-run", fleet=waiting).code in (0, 6)
    assert call("runs", "explain", "rai/big", fleet=waiting).code == 0
    assert call("tenure", "ledger", "export", str(waiting)).out == before


# --- leases ---------------------------------------------------------------------------------------------------------


def test_leases_of_a_machine_that_never_was_are_an_error(waiting: Path) -> None:
    done = call("runs", "leases", "--node", "a-9", fleet=waiting)
    assert done.code == 5
    assert "Node/a-9 does not exist" in done.err
    assert "kubectl-runs nodes" in done.err
    assert call("runs", "leases", "--node", "b-0", "--open", fleet=waiting).code == 0, "it is there, and free"


# --- resolve --------------------------------------------------------------------------------------------------------


def test_a_dry_run_says_who_gives_way_in_order_and_what_binds_then(waiting: Path) -> None:
    out = told(waiting, "resolve", "rai/big", "--dry-run")
    assert "could start when others have given way; nothing was changed\n" in out
    record = call("runs", "resolve", "rai/big", "--dry-run", "-o", "json", fleet=waiting).json
    assert [(cut["kind"], cut["run"], cut["gpus"]) for cut in record["cuts"]] == [("Shrink", "rai/wide", 8)]
    assert {token["id"] for token in record["tokens"]} == {"rai/long", "rai/fixed", "rai/wide"}
    assert sum(float(token["cutProbability"]) for token in record["tokens"]) == pytest.approx(1, abs=0.001)
    assert (record["deficitGPUs"], record["plan"]["gpus"], record["dryRun"]) == (16, 16, True)
    assert record["freedGPUs"] >= 16


def test_a_run_that_was_promised_room_is_shown_with_its_countdown(waiting: Path) -> None:
    lines = {
        line.split()[0]: line.split() for line in call("runs", "list", "-n", "rai", fleet=waiting).out.splitlines()
    }
    assert lines["NAME"][5] == "STARTS-IN"
    assert lines["big"][5] == "5h", "as of the end of the scenario"
    assert lines["poor"][5] == "none"
    assert lines["wide"][5] == "-"


@pytest.mark.parametrize(
    ("name", "code", "words"),
    [
        ("wide", "NotWaiting", "rai/wide does not wait: it is running"),
        ("giant", "NoReservation", "rai/giant was promised no start, and nobody is cut for such a run"),
        ("poor", "MoneyFirst", "Cuts free machines, never money: nobody can pay for 4 GPUs of rai/poor now"),
    ],
)
def test_a_refusal_is_a_sentence_for_people_and_a_code_for_programs(
    waiting: Path, name: str, code: str, words: str
) -> None:
    done = call("runs", "resolve", f"rai/{name}", "--dry-run", fleet=waiting)
    assert done.code == 6
    assert words in done.err
    told = call("runs", "resolve", f"rai/{name}", "--dry-run", "-o", "json", fleet=waiting)
    assert (told.code, told.json["declined"]["code"]) == (6, code)


def test_room_is_made_on_a_fleet_that_is_driven(tmp_path: Path) -> None:
    fleet = create(tmp_path)
    elastic = {"minTotalGPUs": 4, "maxTotalGPUs": 12, "stepGPUs": 4}
    assert submit(fleet, run_yaml("wide", 12, "sleep 60", malleable=elastic)).code == 0
    done = call("runs", "resolve", "rai/wide", fleet=fleet)
    assert (done.code, "nothing drives this fleet" in done.err) == (6, True)
    borrow = {"allowBorrow": True, "sponsors": ["org:ai:vision"]}
    whole = {"groupGPUs": 10}
    with driven(fleet):
        deadline = monotonic() + SECONDS
        while not call("runs", "list", "-n", "rai", "--phase", "Running", "-o", "name", fleet=fleet).out:
            assert monotonic() < deadline, "it never ran"
        assert submit(fleet, run_yaml("z", 10, "sleep 60", funding=borrow, locality=whole)).code == 0
        done = call("runs", "resolve", "rai/z", "-o", "json", fleet=fleet)
        assert (done.code, done.json["declined"]) == (0, None), done
        assert {(cut["kind"], cut["run"]) for cut in done.json["cuts"]} == {("Shrink", "rai/wide")}
        again = call("runs", "resolve", "rai/z", fleet=fleet)
        assert (again.code, "Room for rai/z is being made" in again.err or "does not wait" in again.err) == (6, True)
        assert call("runs", "cancel", "rai/z", "rai/wide", fleet=fleet).code == 0


# --- others go on while somebody asks -------------------------------------------------------------------------------


def meanwhile(monkeypatch: pytest.MonkeyPatch, happens: Callable[[], object]) -> None:
    """Lets something happen between the first look at a fleet and the dry run."""
    rehearse = Fleet.rehearse
    left = [happens]

    def late(self: Fleet, *asked: Any, **when: Any) -> Any:
        while left:
            left.pop()()
        return rehearse(self, *asked, **when)

    monkeypatch.setattr(Fleet, "rehearse", late)


def test_a_run_that_starts_while_it_is_explained_is_told_as_started(
    fresh: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert submit(fresh, run_yaml("x", 8, "true")).code == 0
    with DriverLock(fresh):  # whoever writes decides
        meanwhile(monkeypatch, lambda: submit(fresh, run_yaml("y", 1, "true")))
        done = call("runs", "explain", "rai/x", fleet=fresh)
    assert (done.code, done.err) == (0, "")
    assert done.out.startswith("Run/rai/x is starting\n"), done.out


@pytest.mark.parametrize("words", [["explain"], ["resolve", "--dry-run"]], ids=lambda words: words[0])
def test_a_run_that_is_deleted_while_it_is_looked_at_is_said_to_be(
    fresh: Path, monkeypatch: pytest.MonkeyPatch, words: list[str]
) -> None:
    assert submit(fresh, run_yaml("x", 8, "true")).code == 0
    meanwhile(monkeypatch, lambda: call("runs", "cancel", "rai/x", fleet=fresh))
    done = call("runs", *words, "rai/x", fleet=fresh)
    assert (done.code, done.out) == (5, "")
    assert done.err.startswith("error: Run/rai/x was deleted while it was looked at\nnext: ")
