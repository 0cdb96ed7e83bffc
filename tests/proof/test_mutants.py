"""Planted bugs: each still has its place, each has its result, and what saw it once sees it today."""

from __future__ import annotations

import ast
import json
import signal
import subprocess
import sys
import time
from collections import Counter
from pathlib import Path

import pytest

from proof.mutants import page, results
from proof.mutants.bugs import MUTANTS
from proof.mutants.command import GOAL, KILLS_MIN, main
from proof.mutants.detectors import DETECTORS, INVARIANTS, sight
from proof.mutants.killers import AREAS, files_of
from proof.mutants.mutant import KINDS, ROOT, SOURCE, Mutant

PARTS = 4
IDS = [mutant.name for mutant in MUTANTS]


@pytest.mark.parametrize("mutant", MUTANTS, ids=IDS)
def test_a_bug_has_exactly_one_place_in_todays_source_and_changes_what_it_does(mutant: Mutant) -> None:
    good, bad = ast.parse(mutant.path.read_text()), ast.parse(mutant.source())
    assert ast.dump(good) != ast.dump(bad), "a comment is no bug"
    assert mutant.kind in KINDS
    assert not mutant.file.startswith(("audit/", "testing/", "simulate/")), "who tests is not tested here"


def test_every_bug_has_a_name_of_its_own_and_its_killers_exist() -> None:
    assert len(MUTANTS) >= 48
    assert [name for name, count in Counter(IDS).items() if count > 1] == []
    assert {mutant.kind for mutant in MUTANTS} == set(KINDS)
    assert [name for mutant in MUTANTS for name in files_of(mutant) if not (ROOT / name).is_file()] == []
    assert sorted(set(AREAS) - {mutant.file for mutant in MUTANTS}) == [], "an area without a bug"


# --- what is kept ---------------------------------------------------------------------------------------------------


def test_the_results_are_of_these_very_bugs_on_commits_that_anybody_can_try() -> None:
    rows = results.load().rows
    kept = [(row.mutant, row.digest) for row in rows]
    assert kept == [(mutant.name, mutant.digest) for mutant in MUTANTS], "run python -m proof mutants --keep"
    assert [row.mutant for row in rows if row.how != "all"] == [], "all killers were asked"
    assert [row.mutant for row in rows if not results.is_whole(row.commit) or not row.date] == []


def test_enough_is_caught_and_every_invariant_sees_two() -> None:
    rows = results.load().rows
    missed = {row.mutant for row in rows if not row.caught}
    assert (len(rows) - len(missed)) * 100 >= GOAL * len(rows), missed
    assert {mutant.name for mutant in MUTANTS if mutant.survives} == missed, "who survives says why, and nobody else"
    seen = results.by_detector(rows)
    assert [name for name in INVARIANTS if len(seen[name]) < KILLS_MIN] == []


def test_the_page_is_fresh() -> None:
    assert page.PATH.read_text() == page.text(results.load()), "run python -m proof mutants --docs"


def test_the_page_says_of_every_bug_who_saw_it() -> None:
    text = page.text(results.load())
    table = text[text.index("## Bugs and detectors") : text.index("## Bugs, scenarios and worlds")]
    (head,) = [line for line in table.splitlines() if line.startswith("| bug |")]
    assert head == f"| bug | {' | '.join([*DETECTORS, 'scenarios', 'worlds', 'tests'])} |"
    for row in results.load().rows:
        (line,) = [line for line in table.splitlines() if line.startswith(f"| `{row.mutant}` |")]
        said = [int(cell) if (cell := one.strip()) else 0 for one in line.split("|")[2:-1]]
        assert said[: len(DETECTORS)] == [len(row.found.get(name, ())) for name in DETECTORS]
        assert sum(said[len(DETECTORS) :]) == len(row.seen_by)


# --- who spoke ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("killer", "words", "where", "who"),
    [
        ("world w-1", "Violation(invariant='I7-domain', at=1)\nViolation(invariant='I3-pods', at=1)", "", "I3 I7"),
        ("world w-1", "the world does not settle [Violation(invariant='I11-settled', at=1)]", "", "I11"),
        ("world w-1", "the world does not settle []", "", "state"),
        ("world w-1", "rebuilt, the world writes I11-settled", "", "state"),
        ("world w-1", "looked at anew, the world writes [Opened()]", "", "anew"),
        ("world w-1", "KeyError: 'x'", f"{SOURCE}/engine/step.py", "source"),
        ("world w-1", "AssertionError", f"{SOURCE}/testing/fleet.py", "state"),
        ("scenario a", "_EndlessError: it does not end", "", "time"),
        ("test tests/x.py::test_y", "assert 'I7-domain-and-ranks' in []", str(ROOT / "tests/x.py"), "test"),
    ],
)  # fmt: skip
def test_an_invariant_is_credited_only_with_what_the_auditor_said(
    killer: str, words: str, where: str, who: str
) -> None:
    assert " ".join(sight(killer, words, 0.1, file=where).detectors) == who


# --- the command ----------------------------------------------------------------------------------------------------

_SCRIPT = """
import os, sys
from proof.mutants import command, results
from proof.mutants.mutant import Mutant
from proof.mutants.results import Results, Row

one = Mutant(name="planted", kind="guard", bug="A bug.", file="units.py", old={old!r}, new={new!r})
command.MUTANTS = (one,)
row = Row(mutant="planted", digest=one.digest, commit="c", date="d", how="all", killer={killer!r}, words="",
          found={{"page": ({killer!r},)}})
results.load = lambda: Results(rows=(row,))
command.everything = lambda mutant, how: command.Job(mutant, [row.killer], how)
if {blind}:
    command._homeless = lambda mutant: ""
sys.exit(command.main(sys.argv[1:]))
"""
SCENARIO = "scenario start-and-complete"
PLACE = "\nHOUR: Micros = "


def tried(
    *argv: str, old: str, new: str = "", killer: str = SCENARIO, blind: bool = False
) -> subprocess.CompletedProcess[str]:
    """The command with one bug of ours, in a process of its own; ``blind``: not even looking whether it has a place."""
    script = _SCRIPT.format(old=old, new=new, killer=killer, blind=blind)
    return subprocess.run(
        [sys.executable, "-c", script, "--no-control", *argv], cwd=ROOT, capture_output=True, text=True, check=False
    )


@pytest.mark.parametrize("argv", [(), ("--quick",)], ids=["all", "quick"])
@pytest.mark.parametrize(
    ("old", "new", "killer", "blind", "why"),
    [
        ("a line that was rewritten", "", SCENARIO, False, "its text stands 0 times in src/tenure/units.py"),
        ("a line that was rewritten", "", SCENARIO, True, "its text stands 0 times in src/tenure/units.py"),
        (PLACE, f"{PLACE}nothing_of_that_name + ", SCENARIO, True, "NameError: name 'nothing_of_that_name'"),
        (PLACE, f"{PLACE}((", SCENARIO, True, "SyntaxError"),
        (PLACE, f"\nimport os\nos.kill(os.getpid(), 9){PLACE}", SCENARIO, True, "ended with signal 9"),
        (PLACE, f"\nimport os\nos._exit(0){PLACE}", SCENARIO, True, "ended with status 0"),
        (PLACE, f"{PLACE}2 * ", "test tests/nothing/test_of_that_name.py", True, "pytest could not run"),
    ],
    ids=["no place", "no place, in the child", "no import", "no Python", "killed", "gone", "no test"],
)  # fmt: skip
def test_a_bug_that_could_not_be_tried_is_not_caught(
    argv: tuple[str, ...], old: str, new: str, killer: str, blind: bool, why: str
) -> None:
    ran = tried(*argv, old=old, new=new, killer=killer, blind=blind)
    assert ran.returncode == 1, ran.stdout + ran.stderr
    assert "BROKEN, not tried: planted: " in ran.stdout
    assert why in ran.stdout
    assert "1 of 1 bugs caught" not in ran.stdout


def test_what_a_program_reads_is_json_and_nothing_else() -> None:
    ran = tried("-o", "json", old=PLACE, new=f"{PLACE}2 * ")
    assert [row["mutant"] for row in json.loads(ran.stdout)["rows"]] == ["planted"]
    assert "1 of 1 bugs caught" in ran.stderr


def test_bugs_that_nobody_sees_count_among_all() -> None:
    """Of 100 bugs of which 40 were never seen, the quick run said that all 60 are caught: 100 %."""
    ran = tried("--quick", old=PLACE, new=f"{PLACE}2 * ", killer="")
    assert ran.returncode == 1
    assert "0 of 1 bugs caught" in ran.stdout


def test_a_bug_that_can_be_tried_is_caught() -> None:
    """So that the tests above fail for their own reasons."""
    ran = tried("--quick", old=PLACE, new=f"{PLACE}2 * ")
    assert (ran.returncode, ran.stdout[:18]) == (0, "1 of 1 bugs caught"), ran.stdout + ran.stderr


@pytest.mark.parametrize(
    ("argv", "said"),
    [
        (("--jobs", "0"), "a whole number from 1 on, not '0'"),
        (("--jobs", "-2"), "a whole number from 1 on, not '-2'"),
        (("--part", "5/4"), "K/N with K from 1 to N"),
        (("--part", "900/900"), "this part has no bug in it"),
        (("--only", IDS[0], "--only", IDS[1] + "s"), f"there is no bug {IDS[1]}s; did you mean {IDS[1]}"),
        (("--only", "xyzzy"), "there is no bug xyzzy; see python -m proof mutants --list"),
        (("--keep", "--how", "first"), "only what all killers were asked about is kept"),
    ],
)
def test_what_is_asked_wrongly_is_said_in_words(
    argv: tuple[str, ...], said: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("sys.path", list(sys.path))
    try:
        code = main(argv)
    except SystemExit as ended:
        code = ended.code  # type: ignore[assignment]  # argparse ends with a number
    assert code == 2
    assert said in capsys.readouterr().err


def test_nothing_is_kept_of_a_tree_that_is_no_commit(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("sys.path", list(sys.path))
    monkeypatch.setattr(results, "commit", lambda: "0123456789ab-dirty")
    assert main(["--keep", "--only", IDS[0]]) == 2
    assert "0123456789ab-dirty) is no commit" in capsys.readouterr().err


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_who_is_interrupted_says_what_was_done_and_leaves_nobody_behind(number: signal.Signals) -> None:
    new = f"\nimport time\nwhile True:\n    time.sleep(1){PLACE}"
    script = _SCRIPT.format(old=PLACE, new=new, killer=SCENARIO, blind=True)
    with subprocess.Popen(
        [sys.executable, "-c", script, "--no-control"], cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
        text=True, start_new_session=True,
    ) as process:  # fmt: skip
        assert process.stderr is not None
        assert "1 bugs, each on" in process.stderr.readline()
        while len(_session(process.pid)) < 2:
            time.sleep(0.02)
        process.send_signal(number)
        said, _ = process.communicate()
        assert (process.returncode, said.splitlines()[-1]) == (128 + number, "Interrupted: 0 of 1 were tried.")
        assert _session(process.pid) == []


def _session(leader: int) -> list[int]:
    """The processes of a session, but for those that have ended."""
    found = []
    for path in Path("/proc").glob("[0-9]*/stat"):
        try:
            state, *rest = path.read_text().rpartition(") ")[2].split()
        except OSError:
            continue  # it has ended meanwhile
        if state != "Z" and int(rest[2]) == leader:
            found.append(int(path.parent.name))
    return found


@pytest.mark.parametrize("part", range(1, PARTS + 1))
def test_every_bug_is_caught_by_the_killer_that_was_quickest(part: int) -> None:
    """Really planted, each in a process of its own; and the same killers see nothing where no bug is."""
    command = [sys.executable, "-m", "proof", "mutants", "--quick", "--part", f"{part}/{PARTS}"]
    ran = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert ran.returncode == 0, f"{ran.stdout}\n{ran.stderr[-2000:]}"
    assert "bugs caught by the killer" in ran.stdout
