"""`plan`: exit codes 0, 3 and 4, and nothing is changed."""

from pathlib import Path

import pytest

from tests.cli.support import call, driven, run_yaml, submit


def plan(fleet: Path, *documents: str, form: str = "table") -> tuple[int, str]:
    done = call("runs", "plan", "-f", "-", "-o", form, fleet=fleet, stdin="\n---\n".join(documents))
    return done.code, done.out


@pytest.mark.parametrize(
    ("gpus", "code", "words"),
    [
        (8, 0, "would start now"),
        (14, 0, "would start now"),
        (15, 4, "can never start as things are"),
    ],
)
def test_the_exit_code_says_what_would_happen(fresh: Path, gpus: int, code: int, words: str) -> None:
    got, out = plan(fresh, run_yaml("x", gpus, "true"))
    assert (got, out.splitlines()[0]) == (code, f"Run/rai/x {words}")


def test_a_run_behind_others_would_wait_and_says_for_what(fresh: Path) -> None:
    assert submit(fresh, run_yaml("first", 8, "true")).code == 0
    code, out = plan(fresh, run_yaml("x", 8, "true"))
    assert code == 3
    assert "rai/west allows 14 GPUs at once; 8 are in use and 8 were asked: 2 too many." in out


def test_of_several_runs_the_one_that_fares_worst_counts(fresh: Path) -> None:
    documents = [run_yaml("a", 8, "true"), run_yaml("b", 8, "true")]
    assert plan(fresh, *documents)[0] == 3
    assert plan(fresh, *documents, run_yaml("c", 99, "true"))[0] == 4


def test_budgets_of_the_same_file_count(fresh: Path) -> None:
    more = """
kind: Budget
metadata: {name: more}
spec: {owner: "org:ai:rai", envelopes: [{name: all, flavor: H100, selector: {region: west}, concurrency: 10}]}
"""
    assert plan(fresh, run_yaml("x", 24, "true"))[0] == 4
    assert plan(fresh, more, run_yaml("x", 24, "true"))[0] == 0


def test_it_says_who_would_pay_and_where(fresh: Path) -> None:
    borrow = {"allowBorrow": True, "sponsors": ["org:ai:vision"]}
    done = call("runs", "plan", "-f", "-", "-o", "json", fleet=fresh, stdin=run_yaml("x", 16, "true", funding=borrow))
    run = done.json["runs"][0]
    assert (done.code, run["outcome"]) == (0, "start")
    assert [(one["budget"], one["gpus"], one["funding"]) for one in run["verdict"]["segments"]] == [
        ("rai", 14, "owned"),
        ("vision", 2, "borrowed"),
    ]
    assert {lease["spec"]["slice"]["nodes"][0] for lease in run["leases"]} == {"a-0", "a-1"}


def test_nothing_is_changed(fresh: Path) -> None:
    before = call("tenure", "ledger", "export", str(fresh)).out
    assert plan(fresh, run_yaml("x", 8, "true"))[0] == 0
    assert plan(fresh, run_yaml("x", 99, "true"))[0] == 4
    assert call("tenure", "ledger", "export", str(fresh)).out == before
    assert call("runs", "list", "-A", "-o", "name", fleet=fresh).out == ""


def test_what_submit_would_refuse_is_refused(fresh: Path) -> None:
    code, _ = plan(fresh, run_yaml("x", 8, "true", owner="org:somebody:else"))
    assert code == 2
    assert plan(fresh, "kind: Namespace\nmetadata: {name: other}\n")[0] == 2


def test_the_plan_comes_true_when_it_is_submitted(fresh: Path) -> None:
    wanted = run_yaml("x", 8, "true")
    promised = call("runs", "plan", "-f", "-", "-o", "json", fleet=fresh, stdin=wanted).json["runs"][0]
    with driven(fresh):
        assert submit(fresh, wanted).code == 0
        held = call("runs", "leases", "--run", "rai/x", "-o", "json", fleet=fresh).json["items"]
    assert [lease["spec"]["slice"] for lease in held] == [lease["spec"]["slice"] for lease in promised["leases"]]


def test_a_run_that_is_there_already_is_said_to_be(used: Path) -> None:
    text = call("runs", "list", "-n", "rai", "--phase", "Completed", "-o", "json", fleet=used).out
    done = call("runs", "plan", "-f", "-", fleet=used, stdin=text)
    assert done.code == 0
    assert "Run/rai/a-train is Completed already" in done.out


@pytest.mark.parametrize(
    ("wanted", "said"),
    [("H10", "did you mean H100?"), ("h100", "did you mean H100?"), ("MI300X", "there are H100."), ("H100", "")],
)
def test_a_kind_of_gpu_that_no_machine_has_is_told_with_the_one_that_was_meant(
    fresh: Path, wanted: str, said: str
) -> None:
    text = run_yaml("typo", 640, "true", resources={"gpuType": wanted})
    done = call("runs", "plan", "-f", "-", stdin=text, fleet=fresh)
    assert done.code == 4
    assert ("No machine has gpuType" in done.out) == bool(said)
    assert said in done.out
    with driven(fresh):
        told = submit(fresh, text).out
        assert ("No machine has gpuType" in told) == bool(said)
        assert said in told
        assert said in call("runs", "explain", "rai/typo", fleet=fresh).out
