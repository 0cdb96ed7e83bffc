"""The harness itself: turns and ratios, verdicts and exit status, and growth measured in counted steps."""

from __future__ import annotations

import subprocess
from functools import partial
from pathlib import Path

import msgspec
import pytest
from msgspec.structs import replace

from bench import __main__ as command
from bench import admission, estimates, history, kube, mix, ranges, report
from bench.bed import Bed, check
from bench.counters import counting, growth
from bench.fleet import key_of, placed, remove
from bench.gate import Gate
from bench.load import batch
from bench.measure import Took, in_turns
from bench.promises import BENCHES
from bench.ranges import Ranges
from bench.report import Measured, Results, from_json, page, table, this_machine, to_json
from bench.result import FULL, TINY, Row
from proof.mutants import results as mutants
from tenure.engine import Apply
from tools.kube_assets import Unobtainable

KEPT = Row(bench="commits", what="fast enough", measured=24.0, goal=10.0, sense="at least")
BROKEN = Row(bench="admission", what="too slow", measured=2.6, goal=2.5)
TOLD = Row(bench="admission", what="beside it", measured=99.0)


# --- measuring ----------------------------------------------------------------------------------------------------


def test_sides_take_turns_and_neither_always_comes_second() -> None:
    seen: list[str] = []

    def turn(name: str, _: int) -> Took:
        seen.append(name)
        return Took(1.0, 1.0)

    in_turns({"a": partial(turn, "a"), "b": partial(turn, "b")}, rounds=4, warm=0)
    assert "".join(seen) == "abbaabba"


def test_a_ratio_is_taken_within_a_round_so_that_a_slow_machine_cancels() -> None:
    slowness = [1.0, 50.0, 2.0, 9.0, 1.0]
    times = in_turns(
        {"plain": lambda n: Took(slowness[n], 1.0), "double": lambda n: Took(2 * slowness[n], 1.0)},
        rounds=5,
        warm=0,
    )
    assert times.ratio("double", "plain") == 2.0
    assert times.ratio("double", "plain", "cpu") == 1.0


def test_rounds_that_warm_up_do_not_count() -> None:
    times = in_turns({"a": lambda number: Took(number, number)}, rounds=3, warm=2)
    assert times.seconds("a") == [0, 1, 2]


# --- judging ------------------------------------------------------------------------------------------------------


def measured(rows: list[Row]) -> dict[str, Measured]:
    return {"commits": Measured(this_machine(), rows)}


def expected(results: Results) -> Ranges:
    """Ranges in which these results are."""
    known: Ranges = {}
    ranges.take(known, "full", [(row, ranges.origin(row, this_machine())) for row in results.rows], widen=False)
    return known


@pytest.mark.parametrize(("row", "ok"), [(KEPT, True), (BROKEN, False), (TOLD, True)])
def test_a_promise_is_kept_on_its_own_side_of_the_goal(row: Row, ok: bool) -> None:
    assert row.ok is ok


@pytest.mark.parametrize(("rows", "status"), [([KEPT, TOLD], 0), ([KEPT, BROKEN], 1)])
def test_the_command_fails_when_a_promise_is_broken(
    rows: list[Row], status: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(command, "measure", lambda names, scale: measured(rows))
    monkeypatch.setattr(command, "CACHE", tmp_path)
    monkeypatch.setattr(command, "RESULTS", tmp_path / "results.json")
    monkeypatch.setattr(command, "Gate", lambda results, _, **how: Gate(results, expected(results), **how))
    assert command.main([]) == status
    shown = capsys.readouterr().out
    assert all(row.what in shown and row.found in shown for row in rows)
    assert ("NO" in shown) == bool(status)


def test_json_tells_what_the_table_tells(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setattr(command, "measure", lambda names, scale: measured([KEPT, TOLD]))
    command.main(["--scale", "tiny", "-o", "json"])
    told = msgspec.json.decode(capsys.readouterr().out, type=Results)
    assert told.rows == [KEPT, TOLD]


def test_the_page_tells_every_row_and_where_it_was_measured() -> None:
    results = Results(TINY, measured([KEPT, BROKEN, TOLD]))
    text = page(results)
    assert all(row.what in text and row.found in text for row in results.rows)
    assert this_machine().commit in text
    assert "NO" in table(results.rows)


def test_the_page_marks_what_is_older_than_the_rest() -> None:
    """Figures of 71 commits ago stood beside those of today, and only their date told."""
    new = replace(this_machine(), at="2026-11-18T13:25:00+00:00")
    old = replace(new, at="2026-11-16T13:24:56+00:00")
    admission, _, commits = page(
        Results(TINY, {"commits": Measured(new, [KEPT]), "admission": Measured(old, [TOLD])})
    ).partition("## Commits")
    assert "**Of older code: 2 days before the newest of these figures.**" in admission
    assert "older code" not in commits
    assert "older code" not in page(Results(TINY, measured([KEPT, TOLD])))


def test_what_measuring_writes_does_not_make_a_commit_another(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(report, "ROOT", tmp_path)
    assert report.commit() == "unknown"
    written = [f"{name}/fleet.svg" if name == "docs/performance" else name for name in report.WRITTEN]
    for name in (*written, "engine.py"):
        (tmp_path / name).parent.mkdir(exist_ok=True, parents=True)
        (tmp_path / name).write_text("before")
    who = ["-c", "user.name=me", "-c", "user.email=me@example.com"]
    for words in (["init", "-q"], ["add", "."], [*who, "commit", "-q", "-m", "one"]):
        subprocess.run(["git", "-C", tmp_path, *words], check=True)
    clean = report.commit()
    for name in written:
        (tmp_path / name).write_text("after")
    assert report.commit() == clean != "unknown"
    (tmp_path / "engine.py").write_text("after")
    assert report.commit() == f"{clean}-dirty"


def test_ranges_results_pages_and_planted_bugs_are_what_measuring_writes() -> None:
    """The planted bugs of ``evidence`` and ``--accept`` made all that was measured after them ``-dirty``."""
    own = (command.RESULTS, ranges.FILE, command.DOCS, command.DOCS.parent / report.PLOTS)
    assert set(report.WRITTEN) == {*(str(file.relative_to(report.ROOT)) for file in own), *mutants.WRITTEN}


def test_what_is_measured_alone_replaces_only_its_own_numbers() -> None:
    older = Results(TINY, {"history": Measured(this_machine(), [KEPT]), "scan": Measured(this_machine(), [TOLD])})
    newer = Results(TINY, {"scan": Measured(this_machine(), [BROKEN])})
    assert newer.over(older).rows == [BROKEN, KEPT], "in the order of the promises"
    assert newer.over(None) == newer
    assert newer.over(Results(FULL, older.benches)) == newer, "another scale says nothing of this one"
    assert from_json(to_json(newer)) == newer
    assert from_json('{"scale": {}, "rows": []}') is None


# --- what is measured ---------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def small() -> Bed:
    return Bed.build(1_000)


@pytest.fixture(scope="module")
def large() -> Bed:
    return Bed.build(10_000)


def test_fleets_of_every_size_are_nine_tenths_full(small: Bed, large: Bed) -> None:
    for bed in (small, large):
        held = sum(len(lease.gpus) for lease in bed.state.leases.values())
        assert 0.90 < held / sum(row.gpus for row in bed.state.topology.rows.values()) < 0.91


def test_an_admission_is_undone_to_the_last_lease(small: Bed) -> None:
    before = (sorted(small.state.runs), sorted(small.state.leases), sorted(small.state.pods))
    small.admit(batch(0), small.decided)
    assert (sorted(small.state.runs), sorted(small.state.leases), sorted(small.state.pods)) == before


def test_an_answer_that_was_not_expected_is_no_measurement(small: Bed) -> None:
    ask = next(ask for ask in batch(0) if ask.answer == "start")
    outcomes = small.decided([Apply((ask.run,))], small.now)
    check([ask], outcomes)
    with pytest.raises(AssertionError, match="expected never"):
        check([msgspec.structs.replace(ask, answer="never")], outcomes)
    small.decided(remove([key_of(ask.run)], placed(outcomes)), small.now)


def test_counted_steps_grow_at_most_2_5_times_from_1k_to_10k_gpus(small: Bed, large: Bed) -> None:
    assert 1.0 <= growth(admission.work(small), admission.work(large)) <= admission.GOAL


def test_counted_steps_do_not_grow_at_all_with_the_nodes_of_a_location(large: Bed) -> None:
    """What grows from 1k to 10k is the number of locations, one to four; four times the nodes in those cost nothing."""
    larger = Bed.build(40_000)
    assert len(larger.state.topology.rows) > 3 * len(large.state.topology.rows)
    assert growth(admission.work(large), admission.work(larger)) <= 1.1


def test_counting_stops_when_its_block_ends(small: Bed) -> None:
    with counting() as work:
        small.admit(batch(1), small.decided)
    counted = work.total()
    small.admit(batch(1), small.decided)
    assert work.total() == counted > 0


@pytest.mark.skipif(mix.present(), reason="the public traces lie beside the checkout")
def test_without_its_traces_the_mix_says_so_and_promises_nothing(tmp_path: Path) -> None:
    (row,) = mix.run(TINY, tmp_path)
    assert row.goal is None
    assert "not measured" in row.what


def test_without_a_control_plane_its_promises_say_so(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def none() -> dict[str, Path]:
        raise Unobtainable("there is no go on this machine")

    monkeypatch.setattr(kube, "assets", none)
    for name in ("kube-admit", "kube-gang", "kube-memory", "kube-queue"):
        (row,) = BENCHES[name].run(TINY, tmp_path)
        assert row.goal is None
        assert row.what == "not measured: there is no go on this machine"


_ELSEWHERE = ("startup", "kube-admit", "kube-gang", "kube-memory", "kube-queue", "flood", "slurm")
"""The command's own tests, tests/kube, tests/proof and ``test_slurm``."""
_UNPROMISED = ("growth", "counted", "instructions")
"""Have ranges and no goals: ``test_gate``."""
_MEASURED = [
    name
    for name in BENCHES
    if name not in (*_ELSEWHERE, *_UNPROMISED) and (name not in (mix.NAME, estimates.NAME) or mix.present())
]


@pytest.mark.parametrize("name", _MEASURED)
def test_every_promise_can_be_measured(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(history, "CACHE", tmp_path / "cache")
    rows = BENCHES[name].run(TINY, tmp_path)
    assert {row.bench for row in rows} == {name}
    assert any(row.goal is not None for row in rows)
    assert all(row.measured > 0 for row in rows)
    assert all(row.ok for row in rows if row.unit == "%"), "what is exact is exact at every scale"
