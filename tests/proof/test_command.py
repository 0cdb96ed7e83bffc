"""What all commands of ``python -m proof`` have in common: help, stops, pipes, commits and what they leave behind."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from proof import again, commit, scratch
from proof.__main__ import ROOMS, main
from proof.commit import ROOT, describe


def run(*words: str, cwd: Path = ROOT, shell: str = "") -> subprocess.CompletedProcess[str]:
    line = f"{sys.executable} -m proof {' '.join(words)} {shell}"
    env = {**os.environ, "PYTHONPATH": os.pathsep.join([str(ROOT / "src"), str(ROOT)])}
    words = ["bash", "-c", f"set -o pipefail; {line}"]
    return subprocess.run(words, cwd=cwd, env=env, capture_output=True, text=True, check=False)


@pytest.mark.parametrize("asked", [[], ["--help"], ["-h"]])
def test_help_is_no_error(asked: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    assert main(asked) == 0
    said = capsys.readouterr().out
    assert all(f"  {name} " in said for name in ROOMS)


def test_a_kind_that_is_not_there_is_one(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["simulation"]) == 2
    assert "there is no 'simulation'" in capsys.readouterr().err


PLAN = next((Path(__file__).parent / "sim").glob("*.json"))
SENSELESS = {
    "crashes": ("--part 7/6", "--part 0/6", "--part x", "--part 100/6", "--every 0", "--point x"),
    "sim": ("--seeds 0", "--seeds -3", "--hours 0", "--jobs 0", "--from x", "--out /nowhere/at/all", "--only 3",
            "--events /nowhere", f"--events {__file__}", "--replay 0 --only 9999", "--trace", "--replay 3 --seeds 9",
            "--replay 3 --from 1", "--replay 3 --jobs 1", f"--replay 3 --events {PLAN}", f"--events {PLAN} --seeds 1",
            f"--events {PLAN} --mode safety", f"--events {PLAN} --wild"),
    "scope": ("--depth 0", "--depth -1", "--depth x", "--jobs 0", "--jobs -1", "--minutes -1", "--minutes nan",
              "--minutes 0", "--path +a --depth 3", "--path +a --minutes 1", "--path +a --after +b"),
    "flood": ("--pending 0 --hours 0", "--pending -5", "--pending 5", "--hours 2", "--hours -3", "--hours nan",
              "--hours inf", "--seed x"),
    "mutants": ("--jobs 0", "--part 5/4", "--quick -o json", "--list -o json"),
}  # fmt: skip


@pytest.mark.parametrize("asked", [f"{room} {rest}" for room, asked in SENSELESS.items() for rest in asked])
def test_what_would_do_nothing_is_refused_in_words(asked: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        main(asked.split())
    said = capsys.readouterr()
    assert (ended.value.code, said.out) == (2, "")
    assert "error: " in said.err.splitlines()[-1]


def test_who_is_no_longer_listened_to_is_silent() -> None:
    ended = run("crashes", "--shown", shell="| true")
    assert (ended.returncode, ended.stderr) == (141, "")


def test_the_commit_is_that_of_the_code_wherever_one_stands(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    words = ["git", "-C", ROOT, "rev-parse", "HEAD"]
    there = subprocess.run(words, capture_output=True, text=True, check=False).stdout.strip()
    monkeypatch.chdir(tmp_path)
    found = describe()
    assert there.startswith(found.removesuffix("-dirty")) if there else found == "unknown"
    monkeypatch.setattr(commit, "ROOT", tmp_path)
    assert describe() == "unknown"


def test_a_changed_file_is_told_of_with_the_commit(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(commit, "ROOT", tmp_path)
    (tmp_path / "a").write_text("1")
    who = ["-c", "user.name=me", "-c", "user.email=me@example.com"]
    for words in (["init", "-q"], ["add", "a"], [*who, "commit", "-q", "-m", "one"]):
        subprocess.run(["git", "-C", tmp_path, *words], check=True)
    assert not describe().endswith("-dirty")
    (tmp_path / "a").write_text("2")
    assert describe().endswith("-dirty")


def test_a_command_is_written_as_one_types_it_at_the_root(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "executable", str(ROOT / ".venv" / "bin" / "python"))
    assert again.command("sim", "--replay", 3) == ".venv/bin/python -m proof sim --replay 3"


@pytest.fixture
def memory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Another place in memory, with room enough, and another one on disk."""
    for name in ("memory", "disk"):
        (tmp_path / name).mkdir()
    monkeypatch.setattr(scratch, "MEMORY", tmp_path / "memory")
    monkeypatch.setattr(scratch, "ROOM", 0)
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path / "disk"))
    return tmp_path / "memory"


def test_folders_of_the_dead_are_cleared_and_of_nobody_else(memory: Path) -> None:
    gone = subprocess.Popen(["true"])
    gone.wait()
    mine = scratch.make("sim")
    for name in (
        f"tenure-sim-{gone.pid}-x",
        f"tenure-crashes-{gone.pid}-y",
        f"tenure-damage-{gone.pid}-w",
        f"tenure-{gone.pid}-z",
        "tenure-sim-abc",
    ):
        (memory / name).mkdir()
    (memory.parent / "disk" / f"tenure-sim-{gone.pid}-x").mkdir()
    assert scratch.sweep() == 4
    assert {one.name for one in memory.iterdir()} == {mine.name, f"tenure-{gone.pid}-z", "tenure-sim-abc"}


def test_where_memory_is_scarce_folders_are_on_disk(memory: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert scratch.make("sim").parent == memory
    monkeypatch.setattr(scratch, "ROOM", 1 << 62)
    assert (mine := scratch.make("sim")).parent == memory.parent / "disk"
    scratch.clear()
    assert not mine.exists()
    assert list(memory.iterdir()) == []
