"""The gate: ranges with provenance, what is counted, what was promised and what measures it, the pictures."""

from __future__ import annotations

import os
import re
import subprocess
import sys
import xml.etree.ElementTree as ET
from functools import partial
from pathlib import Path
from signal import SIGTERM

import msgspec
import pytest
from msgspec.structs import replace

from bench import __main__ as command
from bench import counted, evidence, gate, growth, history, instructions, plots, ranges
from bench.bed import Bed
from bench.counters import lines
from bench.gate import Gate
from bench.growth import Curve, Point
from bench.load import batch
from bench.promises import BENCHES, PROMISED
from bench.report import PLOTS, Measured, Results, from_json, page, this_machine
from bench.result import FULL, TINY, Machine, Row, Scale
from tenure.testing.kube import until

MACHINE = Machine(
    at="2026-11-15T12:00:00+00:00", commit="c0ffee1", python="3.11.7", system="Linux x", cores=2, load=0.5
)
TIMED = Row(bench="admission", what="1,000,000 against 1,000 GPUs: all runs", measured=1.5, goal=2.5)
STEPS = Row(bench="counted", what="an admission: steps", measured=200.0, unit="steps", steady=True)
LINES = Row(bench="counted", what="an admission: lines", measured=9000.0, unit="lines", steady=True)
SYNCED = Row(bench="commits", what="leases recorded in a second", measured=20.0, goal=10, sense="at least")
SECONDS = Row(bench="startup", what="first byte", measured=80.0, unit="ms", goal=150)


@pytest.fixture
def file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Ranges, results and caches of this test alone."""
    file = tmp_path / "ranges.json"
    for name in ("load", "save"):
        whole = getattr(ranges, name)
        monkeypatch.setattr(ranges, name, lambda *args, whole=whole: whole(*args, file))
    monkeypatch.setattr(command, "CACHE", tmp_path / "cache")
    monkeypatch.setattr(command, "RESULTS", tmp_path / "results.json")
    monkeypatch.setattr(command, "DOCS", tmp_path / "docs" / "performance.md")
    (tmp_path / "docs").mkdir()
    return file


def results(*rows: Row, machine: Machine = MACHINE, scale: Scale = FULL) -> Results:
    benches: dict[str, Measured] = {}
    for row in rows:
        benches.setdefault(row.bench, Measured(machine, [])).rows.append(row)
    return Results(scale, benches)


def run(monkeypatch: pytest.MonkeyPatch, *rows: Row, words: str = "") -> int:
    """``python -m bench``, which measures this."""
    monkeypatch.setattr(command, "measure", lambda names, scale: results(*rows).benches)
    return command.main(words.split())


# --- ranges -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("row", "measured", "judged"),
    [
        (TIMED, 1.9, "inside"),  # times swing
        (TIMED, 2.1, "worse"),  # though the promise still holds
        (TIMED, 1.0, "better"),
        (TIMED, 0.5, "far"),  # another machine, sooner than better code
        (TIMED, 0.0, "better"),
        (replace(TIMED, sense="at least", goal=1.0), 9.0, "far"),
        (STEPS, 20.0, "better"),  # what is counted is the same everywhere
        (SYNCED, 14.0, "worse"),
        (SYNCED, 160.0, "inside"),  # another disk
        (replace(TIMED, sense="at least", goal=1.0), 1.0, "worse"),
        (STEPS, 205.0, "inside"),
        (STEPS, 207.0, "worse"),  # what is counted does not swing
        (STEPS, 190.0, "better"),
    ],
)
def test_a_number_is_judged_by_its_range(row: Row, measured: float, judged: str, file: Path) -> None:
    gate.accept(results(row))
    again = results(replace(row, measured=measured))
    assert Gate(again, ranges.load()).of(again.rows[0])[1] == judged
    assert Gate(again, ranges.load()).passes is (judged != "worse")


def test_a_range_tells_from_which_commit_machine_and_time_it_was_taken(file: Path) -> None:
    gate.accept(results(TIMED))
    told = msgspec.json.decode(file.read_bytes())["full"]["admission"][TIMED.key]["taken_from"]
    assert told == [{"measured": 1.5, **msgspec.structs.asdict(MACHINE)}]


def test_several_runs_make_a_range_wider_and_are_all_told(file: Path) -> None:
    gate.accept(results(TIMED))
    gate.accept(results(replace(TIMED, measured=2.0), machine=replace(MACHINE, commit="c0ffee2")), widen=True)
    found = ranges.load()["full"]["admission"][TIMED.key]
    assert (found.low, found.high) == (pytest.approx(1.5 / 1.35, rel=1e-3), pytest.approx(2.0 * 1.35, rel=1e-3))
    assert [one.commit for one in found.taken_from] == ["c0ffee1", "c0ffee2"]


def test_to_accept_replaces_what_was_expected_and_forgets_what_is_measured_no_more(file: Path) -> None:
    gate.accept(results(STEPS, LINES))
    gate.accept(results(replace(STEPS, measured=100.0)))
    (found,) = ranges.load()["any"]["counted"].values()
    assert found.high == 103.0


@pytest.mark.parametrize(
    ("row", "machine", "judged"),
    [
        (SECONDS, {"cores": 64}, "elsewhere"),
        (SECONDS, {"python": "3.12.1"}, "elsewhere"),
        (LINES, {"python": "3.12.1"}, "elsewhere"),  # another Python counts lines otherwise
        (LINES, {"cores": 64, "python": "3.11.2"}, "worse"),
        (STEPS, {"cores": 64, "python": "3.12.1"}, "worse"),
        (TIMED, {"cores": 64, "python": "3.12.1"}, "worse"),
        (SYNCED, {"cores": 64}, "elsewhere"),  # a ratio, but of syncs
    ],
)
def test_what_depends_on_the_machine_is_compared_only_with_such_a_machine(
    row: Row, machine: dict[str, object], judged: str, file: Path
) -> None:
    gate.accept(results(row))
    now = results(replace(row, measured=2 * row.measured), machine=replace(MACHINE, **machine))
    assert Gate(now, ranges.load()).of(now.rows[0])[1] == judged


# --- the command --------------------------------------------------------------------------------------------------


def test_a_number_worse_than_its_range_fails_and_the_last_line_says_what_to_do(
    file: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    gate.accept(results(TIMED, STEPS))
    assert run(monkeypatch, TIMED, STEPS) == 0
    assert "Nothing to do." in capsys.readouterr().out
    assert run(monkeypatch, TIMED, replace(STEPS, measured=400.0)) == 1
    shown = capsys.readouterr().out.splitlines()
    assert re.search(r"an admission: steps .* 400 steps .* WORSE", "\n".join(shown))
    assert "since c0ffee1" in shown[-1]
    assert "--accept counted" in shown[-1]


def test_what_that_line_says_makes_it_pass(
    file: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    gate.accept(results(STEPS))
    slower = replace(STEPS, measured=400.0)
    assert run(monkeypatch, slower) == 1
    said = re.search(r"`python -m bench (.*?)`", capsys.readouterr().out.splitlines()[-1])
    assert said is not None
    assert command.main(said[1].split()) == 0
    assert "388 to 412" in capsys.readouterr().out
    assert run(monkeypatch, slower) == 0
    assert run(monkeypatch, STEPS) == 0, "better is no failure"
    assert "--accept counted" in capsys.readouterr().out.splitlines()[-1], "but worth taking over"


def test_what_is_far_better_is_not_to_be_accepted(
    file: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Another disk's 160x was to be accepted where 16 to 29 was expected, and would have failed everywhere else."""
    gate.accept(results(TIMED, STEPS))
    assert run(monkeypatch, replace(TIMED, measured=0.1), replace(STEPS, measured=20.0)) == 0
    last = capsys.readouterr().out.splitlines()[-1]
    assert "as good as before: admission. That is another machine" in last
    assert "--accept" not in last


def test_the_table_tells_from_how_many_runs_a_range_comes(
    file: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    gate.accept(results(TIMED, SYNCED))
    gate.accept(results(TIMED, machine=replace(MACHINE, commit="c0ffee2")), widen=True)
    run(monkeypatch, TIMED, SYNCED)
    shown = capsys.readouterr().out
    assert "1.11 to 2.02, 2 runs\n" in shown
    assert "at least 14.8, 1 run\n" in shown


def test_a_number_that_is_measured_no_more_fails(file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    gate.accept(results(STEPS, LINES))
    assert run(monkeypatch, STEPS) == 1


@pytest.mark.parametrize(("ci", "status"), [("", 0), ("true", 1)])
def test_what_cannot_be_measured_here_is_told_by_number_and_fails_where_nothing_may_be_left_out(
    ci: str, status: int, file: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Without a control plane, the traces and valgrind it said that all promises hold, and that nothing is to do."""
    monkeypatch.setenv("CI", ci)
    gate.accept(results(TIMED))
    none = [Row(bench=name, what="not measured: there is none", measured=0, unit="") for name in ("kube-gang", "mix")]
    assert run(monkeypatch, TIMED, *none) == status
    shown = capsys.readouterr().out
    assert "kube-gang: not measured: there is none\n" in shown
    assert "The 1 that were measured hold; 2 promises were NOT measured; 1 known numbers are within" in shown
    assert "All" not in shown
    assert shown.endswith("Not measured here: kube-gang, mix. Why is said above; with CI=true it is a failure.\n")
    assert run(monkeypatch, TIMED) == 0
    assert "All 1 promises hold; " in capsys.readouterr().out


def test_at_another_scale_no_promise_is_missed(file: Path) -> None:
    left_out = Row(bench="mix", what="not measured: there is none", measured=0, unit="")
    assert Gate(results(left_out, scale=TINY), ranges.load(), strict=True).passes
    assert not Gate(results(left_out), ranges.load(), strict=True).passes


def test_what_is_of_no_commit_is_not_accepted_and_ranges_of_such_are_named(
    file: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    gate.accept(results(TIMED))
    before = file.read_bytes()
    dirty = results(replace(TIMED, measured=1.6), machine=replace(MACHINE, commit="c0ffee1-dirty"))
    monkeypatch.setattr(command, "measure", lambda names, scale: dirty.benches)
    command.main([])
    assert "can be checked out" not in capsys.readouterr().out
    assert command.main(["--accept", "admission"]) == 1
    assert "of admission is of no commit (c0ffee1-dirty): commit, measure that" in capsys.readouterr().err
    assert file.read_bytes() == before
    gate.accept(dirty)
    assert command.main([]) == 0
    assert "Of no commit that can be checked out (c0ffee1-dirty) are ranges of admission" in capsys.readouterr().out


_SLOW = """
import signal, sys, time
from pathlib import Path
def end(*_):
    Path(sys.argv[1], "tidied").touch()
    sys.exit(1)
signal.signal(signal.SIGTERM, end)
Path(sys.argv[1], "begun").touch()
time.sleep(600)
"""
_STOPPED = f"""
import sys
from pathlib import Path
from bench import __main__ as command, evidence, promises

class Slow:
    def run(self, scale, folder):
        return evidence.ended([sys.executable, "-c", {_SLOW!r}, sys.argv[2]])

command.CACHE = Path(sys.argv[1])
promises.BENCHES["scan"] = Slow()
sys.exit(command.run(["--only", "scan"]))
"""
"""A benchmark that runs a command which takes long, and tidies up when it is asked to end."""


def test_who_is_asked_to_end_asks_its_children_and_leaves_no_folder(tmp_path: Path) -> None:
    """SIGTERM left the commands of the evidence running, and the folder of the benchmark behind."""
    words = [sys.executable, "-c", _STOPPED, str(tmp_path / "cache"), str(tmp_path)]
    with subprocess.Popen(words, cwd=counted.ROOT, stderr=subprocess.PIPE, text=True) as child:
        until(lambda: (tmp_path / "begun").exists() or child.poll() is not None)
        child.terminate()
        said = child.communicate()[1]
    assert child.returncode == 128 + SIGTERM, said
    assert "stopped (SIGTERM)" in said
    assert (tmp_path / "tidied").exists()
    assert not list((tmp_path / "cache").iterdir())


def test_a_number_of_the_full_scale_without_a_range_fails(file: Path) -> None:
    assert Gate(results(TIMED, scale=TINY), ranges.load()).passes
    whole = results(TIMED)
    assert not Gate(whole, ranges.load()).passes
    gate.accept(whole)
    assert Gate(whole, ranges.load()).passes


@pytest.mark.parametrize(("words", "said"), [("--scale tiny", "Harness test"), ("--quick", "Quick look")])
@pytest.mark.parametrize("measured", [1.0, 1.5, 3.0])
def test_another_scale_than_that_of_the_promises_judges_none_and_offers_no_range(
    words: str, said: str, measured: float, file: Path, monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:  # fmt: skip
    """16 GPUs broke what was promised of 1,024, and 10,000 held what was promised of 1,000,000."""
    gate.accept(results(TIMED))
    assert run(monkeypatch, replace(TIMED, measured=measured), words=words) == 0
    shown = capsys.readouterr().out
    assert f"{said}: no promise judged" in shown
    assert not re.search(r"--accept|promises hold|broken|yes|NO|better|WORSE| to ", shown.replace("Nothing to do", ""))


@pytest.mark.parametrize("row", [
    Row(bench="exact", what="steps with equal figures", measured=99.0, unit="%", goal=100, sense="at least"),
    Row(bench="evidence", what="only tried: python -m proof damage", measured=0, unit="images", goal=1,
        sense="at least"),
])  # fmt: skip
def test_what_is_wrong_or_did_not_run_fails_at_every_scale(
    row: Row, file: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(monkeypatch, TIMED, row, words="--scale tiny") == 1
    assert f"Broken: {row.bench}." in capsys.readouterr().out.splitlines()[-1]


@pytest.mark.parametrize("words", ["", "--scale tiny"])
def test_where_there_are_only_counts_no_promise_is_said_to_hold(
    words: str, file: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    gate.accept(results(STEPS, LINES))
    assert run(monkeypatch, STEPS, LINES, words=words) == 0
    assert capsys.readouterr().out.splitlines()[-2:] == ["2 counts are within their ranges.", "Nothing to do."]
    assert run(monkeypatch, STEPS, replace(LINES, measured=1.0), words=words) == 0
    assert "of 2 counts 1 are within their ranges, 1 better, 0 worse." in capsys.readouterr().out


def test_nothing_is_accepted_that_was_not_measured(file: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert command.main(["--accept", "scan"]) == 1
    assert "--only scan" in capsys.readouterr().err
    assert not file.exists()


class Measuring:
    """A benchmark that takes long, and comes to an end or not."""

    NAME = "measuring"

    def __init__(self, *rows: Row, ends: BaseException | None = None) -> None:
        self.rows, self.ends = list(rows), ends

    def run(self, scale: Scale, folder: Path) -> list[Row]:
        if self.ends is not None:
            raise self.ends
        return self.rows


def test_what_was_measured_is_not_lost_with_who_comes_after(
    file: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(command, "this_machine", lambda: MACHINE)
    monkeypatch.setitem(BENCHES, "admission", Measuring(TIMED))
    monkeypatch.setitem(BENCHES, "scan", Measuring(ends=KeyboardInterrupt()))
    assert command.main(["--only", "admission", "--only", "scan"]) == 130
    assert "stopped (SIGINT)" in capsys.readouterr().err
    assert command.main(["--accept", "admission"]) == 0
    assert command.main(["--accept", "scan"]) == 1


@pytest.mark.parametrize(
    "words",
    ["--docs --quick", "--docs only --scale tiny", "--docs --counters", "--accept scan --scale tiny",
     "--accept all --quick", "--widen", "--widen --list"],
)  # fmt: skip
def test_the_page_and_ranges_are_of_the_full_scale_and_a_range_is_widened_when_it_is_taken(
    words: str, file: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """A tiny run with --docs put its numbers on the page of the promises, which does not tell of scales."""
    with pytest.raises(SystemExit) as ended:
        command.main(words.split())
    assert (ended.value.code, command.DOCS.exists()) == (2, False)
    assert "error: --" in capsys.readouterr().err


@pytest.mark.parametrize(
    "words",
    ["--counters --only startup", "--quick --scale tiny", "--accept scan --only scan", "--accept counted --counters",
     "--docs only --only scan", "--list --only scan", "--accept scan --docs"],
)  # fmt: skip
def test_options_of_which_one_would_be_ignored_are_refused(
    words: str, file: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit) as ended:
        command.main(words.split())
    assert ended.value.code == 2
    assert "error: --" in capsys.readouterr().err


def test_only_docs_writes_what_the_repository_keeps_and_says_so(
    file: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """To measure one thing changed a tracked file without a word, and its page was stale then."""
    run(monkeypatch, TIMED)
    assert not command.RESULTS.exists()
    assert "last-full.json, which is in no repository; `--docs last` writes it" in capsys.readouterr().err
    run(monkeypatch, SECONDS, words="--docs")
    assert [row.bench for row in kept().rows] == ["startup"]
    assert re.search(r"Written: .*results.json, .*performance.md. They are under version", capsys.readouterr().err)


def test_what_was_measured_before_can_be_written_without_measuring(
    file: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    assert command.main(["--docs", "last"]) == 1
    run(monkeypatch, TIMED, SECONDS)
    assert command.main(["--docs", "last", "--only", "startup"]) == 0
    assert [row.bench for row in kept().rows] == ["startup"]
    assert command.main(["--docs", "last"]) == 0
    assert [row.bench for row in kept().rows] == ["admission", "startup"]
    run(monkeypatch, replace(TIMED, measured=9.0))
    assert command.main(["--docs", "only"]) == 0
    assert kept().rows == [TIMED, SECONDS], "that draws again what is kept"


def kept() -> Results:
    found = from_json(command.RESULTS.read_text())
    assert found is not None
    assert command.DOCS.read_text() == page(found)
    return found


def test_the_table_tells_what_part_of_the_goal_was_measured(
    file: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    run(monkeypatch, TIMED)
    assert re.search(r"at most 2.50 x +1.50 x +0.60 +yes", capsys.readouterr().out)


# --- what is kept in the repository -------------------------------------------------------------------------------


def test_every_number_of_the_kept_results_has_a_range_with_its_origin() -> None:
    kept = from_json(command.RESULTS.read_text())
    assert kept is not None
    known = ranges.load()
    judged = Gate(kept, known)
    for row in kept.rows:
        found = judged.range_of(row)
        assert found is not None, f"python -m bench --accept {row.bench}"
        assert all(one.commit and one.at and one.system for one in found.taken_from)


def test_the_kept_results_pass_the_kept_ranges() -> None:
    """Figures were committed that their own gate fails."""
    kept = from_json(command.RESULTS.read_text())
    assert kept is not None
    judged = Gate(kept, ranges.load(), strict=True)
    assert judged.passes, judged.summary()


def test_the_page_and_its_pictures_are_of_the_kept_results() -> None:
    kept = from_json(command.RESULTS.read_text())
    assert kept is not None
    assert command.DOCS.read_text() == page(kept), "python -m bench --docs only"
    drawn = {curve.axis: plots.draw(curve) for curve in plots.curves(kept.rows)}
    assert drawn.keys() == {"fleet", "ledger", "backlog"}
    for axis, picture in drawn.items():
        assert (command.DOCS.parent / PLOTS / f"{axis}.svg").read_text() == picture


def test_every_commit_that_is_cited_is_in_the_history() -> None:
    """Who looks for what changed since a range was taken must find it; ``unknown`` stands for what cannot be found."""
    git = partial(subprocess.run, cwd=counted.ROOT, capture_output=True, text=True, check=False)
    if git(["git", "rev-parse", "--is-shallow-repository"]).stdout.strip() != "false":
        pytest.skip("this checkout has no history, or not all of it")
    gone = [one for one in _cited() if git(["git", "merge-base", "--is-ancestor", one, "HEAD"]).returncode]
    assert not gone, "measure again at a commit that stays, or say that it is unknown"


def _cited() -> list[str]:
    kept = from_json(command.RESULTS.read_text())
    assert kept is not None
    benches = [its for part in ranges.load().values() for its in part.values()]
    machines = [run for its in benches for one in its.values() for run in one.taken_from]
    commits = {one.commit for one in [*machines, *(its.machine for its in kept.benches.values())]}
    assert len(commits) > 1
    return sorted({one.removesuffix("-dirty") for one in commits - {"unknown"}})


def test_where_the_commit_of_a_range_is_unknown_its_time_is_told(
    file: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    gate.accept(results(STEPS, machine=replace(MACHINE, commit="unknown")))
    assert run(monkeypatch, replace(STEPS, measured=400.0)) == 1
    assert f"changed since {MACHINE.at}" in capsys.readouterr().out


def test_every_promise_names_what_measures_it_and_every_benchmark_keeps_one() -> None:
    by = {one.by for one in PROMISED if " " not in one.by}
    assert by == set(BENCHES)
    assert {one.issue for one in PROMISED} == {2, 3, 4, 5, 6, 18}


def test_the_evidence_says_of_which_home_and_of_what_part_it_is_and_wants_all_that_it_asks_for() -> None:
    """One test of four would have done, and a thousand seeds of embedded fleets stood for clusters, too."""
    for home in ("embedded", "cluster"):
        (seeds,) = [one for one in evidence.SHOWN if f"--home {home}" in one.command]
        assert f"{home} fleet" in seeds.says or seeds.says.endswith(home)
        assert f"--seeds {seeds.least} " in seeds.command
    (crashes,) = [one for one in evidence.SHOWN if "proof crashes" in one.command]
    assert "--every 9" in crashes.command
    assert "one in nine of all" in crashes.says
    (forecast,) = [one for one in evidence.SHOWN if "test_forecast" in one.command]
    file = counted.ROOT / forecast.command.split()[-1]
    listed = subprocess.run([sys.executable, "-m", "pytest", "-q", "-n0", "--collect-only", file], cwd=counted.ROOT,
                            capture_output=True, text=True, check=True)  # fmt: skip
    assert f"{forecast.least} tests collected" in listed.stdout


# --- counting -----------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def counts() -> list[Row]:
    """What ``python -m bench --counters`` counts."""
    return msgspec.json.decode(counted.in_a_process(), type=list[Row])


def test_what_is_counted_does_not_swing(counts: list[Row]) -> None:
    again = msgspec.json.decode(counted.in_a_process("an admission, 1,000", "one more run"), type=list[Row])
    assert len(again) == 6
    assert all(row in counts for row in again)


def test_counted_work_is_within_its_ranges(counts: list[Row]) -> None:
    """The gate on work in CI. If it fails: look at what changed, or `python -m bench --counters` and `--accept`."""
    found = Results(FULL, {"counted": Measured(this_machine(), counts)})
    judged = Gate(found, ranges.load())
    assert not judged.missing
    assert not judged.worse, judged.summary()
    assert all(judged.of(row)[1] in ("inside", "better", "elsewhere") for row in counts)


_PLANTED = """
import sys
from bench import counted
from tenure.engine.buckets import Buckets

def scanning(self, size):
    return min((one for one, _ in self.items() if one >= size and self.names(one)), default=0)

Buckets.at_least = scanning
sys.stdout.buffer.write(counted.msgspec.json.encode(list(counted.rows("an admission, 1,000"))))
"""
"""The same answers by looking at all that the index holds, as somebody might write it who does not know better."""


def test_a_planted_scan_trips_the_gate(
    counts: list[Row], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    environ = os.environ | {"PYTHONHASHSEED": "0"}
    child = subprocess.run(
        [sys.executable, "-c", _PLANTED], env=environ, cwd=counted.ROOT, capture_output=True, check=True
    )
    slower = msgspec.json.decode(child.stdout, type=list[Row])
    rest = [row for row in counts if not row.what.startswith("an admission, 1,000")]
    monkeypatch.setattr(command, "CACHE", tmp_path)
    monkeypatch.setattr(counted, "run", lambda scale, folder: [*slower, *rest])
    assert command.main(["--counters"]) == 1
    shown = capsys.readouterr().out.splitlines()
    worse = [line for line in shown if "WORSE" in line]
    assert any("an admission, 1,000 GPUs: steps" in line for line in worse)
    assert all("an admission, 1,000 GPUs" in line for line in worse), "and nothing else was slowed"
    assert "--accept counted" in shown[-1]


def test_lines_are_those_of_tenure_and_counting_ends_with_its_block() -> None:
    bed = Bed.build(1_000)
    with lines() as none:
        sum(range(1000))
    with lines() as some:
        bed.admit(batch(0), bed.decided)
    counted_then = some.count
    bed.admit(batch(0), bed.decided)
    assert none.count == 0
    assert some.count == counted_then > 1_000


def test_without_valgrind_it_says_so(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(instructions, "which", lambda name: None)
    (row,) = instructions.run(TINY, tmp_path)
    assert "no valgrind" in row.what
    assert row.goal is None


# --- pictures -----------------------------------------------------------------------------------------------------

CURVE = Curve("backlog", "A decision, by the runs that wait", "waiting runs", {
    "one more run": [Point(10, 1.5, 97), Point(100, 1.6, 97), Point(10_000, 3.1, 99)],
    "planned again": [Point(10, 0.9, 130), Point(100, 1.1, 131), Point(10_000, 4.5, 140)],
})  # fmt: skip


def test_a_picture_has_units_a_point_for_each_size_and_both_schemes() -> None:
    drawn = plots.draw(CURVE)
    root = ET.fromstring(drawn)
    shown = [item.text for item in root.iter() if item.tag.endswith("text")]
    assert {"waiting runs", "milliseconds of processor time", "counted steps of the engine", "10k"} <= set(shown)
    circles = [item for item in root.iter() if item.tag.endswith("circle")]
    assert len(circles) == 2 * 6
    assert "prefers-color-scheme: dark" in drawn
    assert drawn == plots.draw(CURVE), "the same numbers give the same bytes"
    for item in circles:
        assert 0 < float(item.attrib["cx"]) < plots.WIDTH
        assert 0 < float(item.attrib["cy"]) < plots.HEIGHT


def test_the_page_shows_the_pictures_of_what_was_measured(file: Path) -> None:
    row = Row(bench="growth", what="10,000 against 10", measured=2.0, detail={"curve": msgspec.to_builtins(CURVE)})
    kept = results(row, TIMED)
    command._write(kept)
    text = command.DOCS.read_text()
    assert text == page(kept)
    assert "](performance/backlog.svg)" in text
    assert "1.50 ms at 10 waiting runs, 3.10 ms at 10,000" in text
    assert (command.DOCS.parent / "performance" / "backlog.svg").read_text() == plots.draw(CURVE)


def test_growth_is_measured_point_by_point(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(history, "CACHE", tmp_path / "cache")
    rows = growth.run(TINY, tmp_path)
    fleet, ledger, backlog = plots.curves(rows)
    assert [point.at for point in fleet.series["an admission, engine alone"]] == [1_000, 4_000]
    assert [point.at for point in ledger.series["an admission, committed"]] == [1_000, 2_000]
    assert [[point.at for point in points] for points in backlog.series.values()] == [[60, 180]] * 2
    steps = {row.what: row.measured for row in rows if row.steady}
    assert len(steps) == 4
    assert steps["2,000 against 1,000 closed leases: an admission, committed, steps"] == 1.0
    assert all(0 < value < 2.5 for value in steps.values())
