"""`tenure simulate`: what it prints, what it refuses, and how it ends."""

from __future__ import annotations

import gzip
import json
from pathlib import Path

import pytest

from tenure.cli.exits import Exit
from tenure.cli.main import server
from tenure.simulate import report
from tenure.simulate.declare import WAYS, Declarations, sentence
from tests.cli.support import call

EXAMPLES = Path(__file__).parents[2] / "examples"
TRACE = EXAMPLES / "traces" / "three-teams.csv"
ROWS = TRACE.read_text().splitlines()


@pytest.fixture
def small(tmp_path: Path) -> Path:
    path = tmp_path / "small.csv"
    path.write_text("\n".join(ROWS[:40]) + "\n")
    return path


def simulate(*words: str | Path) -> int:
    code: int = server.main(["simulate", *map(str, words)], prog_name="tenure", standalone_mode=False)
    return code


def test_the_table_has_a_row_for_each_policy(small: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert simulate("--trace", small, "--fleet", "2x4x8") == Exit.OK
    shown = capsys.readouterr()
    assert shown.out.startswith("39 jobs of 3 owners over")
    firsts = [line.split()[0] for line in shown.out.splitlines() if line]
    assert [word for word in firsts if word in ("tenure", "fifo", "easy")] == ["tenure", "fifo", "easy"]
    assert "invariants: 0 violations" in shown.out
    assert shown.err == ""


def test_json_has_everything(small: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert simulate("--trace", small, "--fleet", "2x4x8", "-o", "json", "--declare", "x2") == Exit.OK
    tree = json.loads(capsys.readouterr().out)
    assert set(tree) == {
        "traces", "fleet", "load", "declared", "pods", "policy", "leftOut", "tenure", "references", "ratios"
    }  # fmt: skip
    assert tree["tenure"]["summary"]["completed"] == tree["references"]["easy"]["completed"] == 39
    assert set(tree["tenure"]) == {
        "summary", "fragmentation", "cuts", "thrown", "promises", "unstarted", "refused", "audit", "work"
    }  # fmt: skip
    assert tree["declared"]["how"] == "x2"


def test_every_table_tells_what_was_thrown_away_and_what_became_of_promises(
    small: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    for declare in WAYS:
        simulate("--trace", small, "--fleet", "2x4x8", "--declare", declare, "-o", "table")
        out = capsys.readouterr().out
        assert sentence(Declarations(how=declare, jobs=39)) in out
        assert "runs drawn in " in out
        assert "GPU-hours thrown away, " in out
        assert "were moved later (" in out


SWF = (
    "; MaxProcs: 1024\r\n\r\n 1 10 0 3600 8 -1 -1 8 1800 -1 1 5 1 -1 2 -1 -1 -1\r\n"
    " 2 20 0 -1 8 -1 -1 8 9 -1 5 5 1 -1 2\r\n"
)


def test_a_file_of_the_archive_is_a_trace(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "log.swf"
    path.write_bytes(SWF.encode())
    assert simulate("--trace", path, "--fleet", "2x4x8", "--declare", "requested", "-o", "wide") == Exit.OK
    shown = capsys.readouterr()
    assert shown.out.startswith("1 job of 1 owner")
    assert "1 of 1 had asked for less than they took and were raised to that" in shown.out
    assert "log.swf: its jobs ran on 1,024 processors" in shown.out
    assert "user-5" in shown.out
    assert "left out: " in shown.err
    assert "log.swf: line 4: 15 fields" in shown.err
    packed = tmp_path / "log.swf.gz"
    packed.write_bytes(gzip.compress(SWF.encode()))
    simulate("--trace", packed, "--fleet", "2x4x8", "--swf-owner", "queue", "--pods", "whole", "-o", "json")
    tree = json.loads(capsys.readouterr().out)
    assert list(tree["tenure"]["summary"]["waitHoursByOwner"]) == ["queue-2"]
    assert tree["pods"] == "whole"
    assert tree["traces"][0]["processors"] == 1024


@pytest.mark.parametrize(
    "broken",
    [gzip.compress(SWF.encode(), mtime=0)[:-20], SWF.encode(), b"\x1f\x8b\x08\x00" + b"\xff" * 40],
    ids=["cut short", "not packed", "no deflate"],
)
def test_a_broken_gzip_file_is_refused(broken: bytes, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "log.swf.gz"
    path.write_bytes(broken)
    assert simulate("--trace", path, "--fleet", "2x4x8") == Exit.INVALID
    assert "is not a whole gzip file" in capsys.readouterr().err


def test_wide_shows_owners_and_fragmentation(small: Path, capsys: pytest.CaptureFixture[str]) -> None:
    simulate("--trace", small, "--fleet", "2x4x8", "-o", "wide", "--compare", "none")
    out = capsys.readouterr().out
    assert "org:lab:llm" in out
    assert "FLEET-TIDY" in out
    assert "fifo" not in out


def test_a_fleet_file_and_budgets_are_used(small: Path, capsys: pytest.CaptureFixture[str]) -> None:
    simulate("--trace", small, "--fleet", EXAMPLES / "fleet.yaml", "--compare", "easy")
    shown = capsys.readouterr()
    assert "4 machines, 2 domains, 32 GPUs" in shown.out
    assert "left out: job llm-004: 64 GPUs are more than the 32 there are of H100-80GB" in shown.err
    simulate("--trace", small, "--fleet", "2x4x8", "--budgets", EXAMPLES / "traces" / "budgets.yaml", "-o", "json")
    assert json.loads(capsys.readouterr().out)["tenure"]["summary"]["completed"] == 39


def test_the_policy_file_counts_more_than_the_fleet_file(
    small: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    policy = tmp_path / "policy.yaml"
    policy.write_text("patience: 720h\nbindDelay: 1h\n")
    simulate("--trace", small, "--fleet", "2x4x8", "--policy", policy, "-o", "json")
    tree = json.loads(capsys.readouterr().out)
    assert tree["policy"]["patience"] == "720h"
    assert tree["tenure"]["summary"]["waitHours"]["quantiles"][0] >= 1.0, "nobody is bound at once"


def test_two_traces_are_mixed_and_one_of_them_is_squeezed(
    small: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    other = tmp_path / "other.csv"
    other.write_text("job_id,submit_s,duration_s,gpus,owner\na,864000,60,1,x\n")
    words = ("--trace", small, "--trace", other, "--fleet", "2x4x8", "-o", "json", "--compare", "none")
    simulate(*words, "--scale-submit", "other.csv:20")
    tree = json.loads(capsys.readouterr().out)
    assert [trace["jobs"] for trace in tree["traces"]] == [39, 1]
    assert tree["load"]["spanDays"] < 1
    simulate(*words, "--scale-submit", "2")
    assert json.loads(capsys.readouterr().out)["load"]["spanDays"] == 5


def test_bad_rows_are_named_and_left_out_unless_strict(small: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with small.open("a") as file:
        file.write("odd,later,1,1,x,-,-,-\n")
    assert simulate("--trace", small, "--fleet", "2x4x8") == Exit.OK
    shown = capsys.readouterr()
    assert 'mall.csv: line 41, submit_s is "later": not a number of seconds' in shown.err
    assert shown.out.startswith("39 jobs")
    assert simulate("--trace", small, "--fleet", "2x4x8", "--strict") == Exit.INVALID
    shown = capsys.readouterr()
    assert "line 41, submit_s" in shown.err
    assert shown.out == ""


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (["--trace", "nowhere.csv", "--fleet", "2x4x8"], "nowhere.csv: no such file"),
        (["--trace", str(TRACE), "--fleet", "nowhere.yaml"], "nowhere.yaml cannot be read"),
        (["--trace", str(EXAMPLES / "fleet.yaml"), "--fleet", "2x4x8"], "no column job_id"),
        (["--trace", str(TRACE), "--fleet", "2x4x8", "--compare", "fifo,lifo"], "there is no policy 'lifo'"),
        (["--trace", str(TRACE), "--fleet", "2x4x8", "--scale-submit", "x.csv:3"], "there is no trace x.csv"),
        (["--trace", str(TRACE), "--fleet", "2x4x8", "--scale-submit", "0"], "is not a number above 0"),
        (["--trace", str(TRACE), "--fleet", "2x4x8", "--scale-submit", "1/0"], "is not a number above 0"),
        (["--trace", str(TRACE), "--fleet", "2x4x8", "--scale-submit", "nan"], "is not a number above 0"),
        (["--trace", str(TRACE), "--fleet", "2x4x8", "--budgets", str(EXAMPLES / "03-fixed-run.yaml")], "Run"),
        (["--trace", str(TRACE), "--fleet", "2x4x8", "--declare", "lies"], "'lies' is not one of"),
        (["--trace", str(TRACE), "--fleet", "2x4x8", "--report", "no/such/folder/x.html"], "cannot be written"),
        (["--fleet", "2x4x8"], "Missing option '--trace'"),
    ],
)
def test_what_cannot_be_done_is_said_before_anything_is_replayed(
    words: list[str], says: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert simulate(*words) == Exit.INVALID
    shown = capsys.readouterr()
    assert says in shown.err
    assert "next: " in shown.err
    assert shown.out == ""


def test_a_fleet_that_no_job_fits_is_refused(small: Path, capsys: pytest.CaptureFixture[str]) -> None:
    small.write_text("job_id,submit_s,duration_s,gpus,owner\na,0,60,9,x\n")
    assert simulate("--trace", small, "--fleet", "1x1x8") == Exit.INVALID
    assert "no job of the trace could run on this fleet" in capsys.readouterr().err


def test_a_report_is_written_where_it_was_asked_for(
    small: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert simulate("--trace", small, "--fleet", "2x4x8", "--report", tmp_path / "r.html") == Exit.OK
    assert (tmp_path / "r.html").read_text().startswith("<!doctype html>")
    assert "wrote" in capsys.readouterr().err


def test_without_matplotlib_a_report_says_what_to_install_and_nothing_else_needs_it(
    small: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(report, "find_spec", lambda name: None)
    assert simulate("--trace", small, "--fleet", "2x4x8", "--report", tmp_path / "r.html") == Exit.INVALID
    assert "pip install '.[plots]' in a clone of Tenure" in capsys.readouterr().err
    assert simulate("--trace", small, "--fleet", "2x4x8") == Exit.OK


def test_a_trace_may_come_from_standard_input(small: Path) -> None:
    text = b"\xef\xbb\xbf" + small.read_bytes() + b"\xff,0,1,1,x,-,-,-\r\n"
    done = call("tenure", "simulate", "--trace", "-", "--fleet", "2x4x8", "--compare", "none", stdin=text)
    assert done.code == Exit.OK
    assert done.out.startswith("40 jobs"), "a mark at its beginning and a name in no encoding do not matter"
