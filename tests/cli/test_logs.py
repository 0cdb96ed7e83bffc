"""`logs`: what the pods wrote, whole, of the right attempt, and harmless on a terminal."""

from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from tenure.cli.runs.logs import _follow, _Wanted, readable
from tenure.shell.logs import LogFile
from tests.cli.support import SECONDS, call, driven, finish, run_yaml, spawn, submit, until_idle


def logs(fleet: Path, *words: str) -> list[str]:
    done = call("runs", "logs", *words, fleet=fleet)
    assert done.code == 0, done
    return done.out.splitlines()


def test_each_line_says_where_it_comes_from_when_there_are_several(past: Path) -> None:
    assert logs(past, "rai/a-train") == [
        "[a-train-a1-0/main] rank 0 gpus 0,1,2,3",
        "[a-train-a1-0/main] done",
        "[a-train-a1-1/main] rank 1 gpus 4,5,6,7",
        "[a-train-a1-1/main] done",
    ]


@pytest.mark.parametrize(
    ("words", "lines"),
    [
        (["--pod", "1"], ["rank 1 gpus 4,5,6,7", "done"]),
        (["--pod", "a-train-a1-0"], ["rank 0 gpus 0,1,2,3", "done"]),
        (["--pod", "1", "--tail", "1"], ["done"]),
        (["--pod", "1", "--tail", "9"], ["rank 1 gpus 4,5,6,7", "done"]),
        (["--pod", "1", "--tail", "0"], []),
        (["--pod", "1", "-c", "main"], ["rank 1 gpus 4,5,6,7", "done"]),
    ],
)
def test_one_pod_is_printed_as_it_is(past: Path, words: list[str], lines: list[str]) -> None:
    assert logs(past, "rai/a-train", *words) == lines


def test_a_group_and_a_container_narrow_it_down(past: Path) -> None:
    assert len(logs(past, "rai/a-train", "--group", "0")) == 4
    assert call("runs", "logs", "rai/a-train", "--group", "7", fleet=past).code == 5
    assert call("runs", "logs", "rai/a-train", "-c", "other", fleet=past).code == 5


def test_the_latest_attempt_is_shown_and_the_others_on_request(past: Path) -> None:
    assert logs(past, "rai/b-flaky") == ["attempt 2"]
    assert logs(past, "rai/b-flaky", "--attempt", "1") == ["attempt 1"]
    assert logs(past, "rai/b-flaky", "--pod", "b-flaky-a1-0") == ["attempt 1"]


def test_a_run_whose_name_begins_like_another_keeps_its_own_logs(fresh: Path) -> None:
    assert submit(fresh, run_yaml("x", 1, "echo short"), run_yaml("x-a1-0", 1, "echo long")).code == 0
    until_idle(fresh)
    assert logs(fresh, "rai/x") == ["short"]
    assert logs(fresh, "rai/x-a1-0") == ["long"]


def test_following_goes_on_until_the_run_is_over(fresh: Path) -> None:
    script = "echo begun; while [ ! -e go ]; do sleep 0.05; done; printf 'ended without a newline'"
    with driven(fresh):
        assert submit(fresh, run_yaml("x", 1, script)).code == 0
        process = spawn("runs", "logs", "-f", "rai/x", fleet=fresh)
        assert process.stdout is not None
        assert process.stdout.readline() == "[x-a1-0/main] begun\n"
        (go,) = fresh.parent.glob("fleet.db.pods/*/rai/x-a1-0/work")
        (go / "go").touch()
        done = finish(process)
    assert (done.code, done.out, done.err) == (0, "[x-a1-0/main] ended without a newline\n", "")


def test_a_pipe_gets_the_bytes_as_they_were_written(fresh: Path) -> None:
    assert submit(fresh, run_yaml("x", 1, r"printf '\033[31mred\033[0m\007\377\n'")).code == 0
    until_idle(fresh)
    process = spawn("runs", "logs", "rai/x", fleet=fresh, text=False)
    out, _ = process.communicate(timeout=SECONDS)
    assert out == b"\x1b[31mred\x1b[0m\x07\xff\n"


@pytest.mark.parametrize(
    ("line", "shown"),
    [
        (b"plain", ["plain"]),
        (b"\x1b[1;32mgreen\x1b[0m", ["green"]),
        (b"\x1b]0;new title\x07", ["\\x1b]0;new title\\x07"]),
        (b"10%\r50%\r100%\r", ["10%", "50%", "100%"]),
        (b"\x1b[2J\x1b[H", ["\\x1b[2J\\x1b[H"]),
        ("\u202eevil".encode(), ["\\u202eevil"]),
        (b"\xff", ["\ufffd"]),
        (b"x" * 9000, ["x" * 9000]),
    ],
)
def test_a_terminal_gets_nothing_that_it_would_obey(line: bytes, shown: list[str]) -> None:
    assert readable(line) == shown


# --- who follows ----------------------------------------------------------------------------------------------------


class Script:
    """A fleet in which something is done before each look, until there is nothing more to do and the run is over."""

    def __init__(self, folder: Path, *steps: Callable[["Script"], None]) -> None:
        self.folder, self.steps, self.files = folder, list(steps), list[LogFile]()

    def write(self, attempt: int, text: str) -> None:
        pod = f"x-a{attempt}-0"
        path = self.folder / f"{pod}.log"
        if not any(file.path == path for file in self.files):
            self.files.append(LogFile(pod=pod, attempt=attempt, rank=0, group=0, container="main", path=path))
        with path.open("a") as file:
            file.write(text)

    def logs(self, namespace: str, name: str, *, follow: bool) -> list[LogFile]:
        return list(self.files)

    def follow(self) -> "Script":
        return self

    def view(self) -> "Script":
        return self

    def line(self, namespace: str, name: str) -> Any:
        self.steps.pop(0)(self)
        return SimpleNamespace(over=not self.steps)

    def wait(self, seconds: float) -> list[Any]:
        return []

    def settle_logs(self) -> None:
        """Nothing is under way."""


def followed(
    fleet: Script, capsys: pytest.CaptureFixture[str], *, tail: int | None = None, attempt: int | None = None
) -> list[str]:
    wanted = _Wanted(pod=None, group=None, container=None, attempt=attempt, before=0)
    wanted.begin(fleet.files)
    _follow(fleet, "rai", "x", wanted, list(fleet.files), tail)  # type: ignore[arg-type]
    return capsys.readouterr().out.replace("-0/main]", "").replace("[x-", "").splitlines()


def test_an_attempt_is_read_to_its_end_when_there_is_another(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    def fails(fleet: Script) -> None:
        fleet.write(1, "2\nTraceback\nthe end")
        fleet.write(2, "again\n")

    fleet = Script(tmp_path, lambda fleet: fleet.write(1, "1\n"), fails, lambda fleet: fleet.write(2, "done\n"))
    assert followed(fleet, capsys) == ["a1 1", "a1 2", "a1 Traceback", "a2 again", "a2 done", "a1 the end"]


def test_no_attempt_is_left_out_between_two_looks(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    def fails_twice(fleet: Script) -> None:
        for attempt in (2, 3, 4):
            fleet.write(attempt, "fails\n")

    fleet = Script(tmp_path, fails_twice)
    fleet.write(1, "of yesterday\n")
    fleet.write(2, "begun\n")
    assert followed(fleet, capsys) == ["a2 begun", "a2 fails", "a3 fails", "a4 fails"]
    assert followed(Script(tmp_path, fails_twice), capsys, attempt=3) == ["a3 fails", "a3 fails"]


def test_only_of_what_is_there_first_a_tail_is_shown(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    fleet = Script(tmp_path, lambda fleet: fleet.write(1, "3\n4\n"), lambda fleet: fleet.write(2, "5\n6\n"))
    fleet.write(1, "1\n2\n")
    assert followed(fleet, capsys, tail=1) == ["a1 2", "a1 3", "a1 4", "a2 5", "a2 6"]
    new = Script(tmp_path, lambda fleet: fleet.write(3, "first\n"))
    assert followed(new, capsys, tail=0) == ["a3 first"]


# --- a name that was there before -----------------------------------------------------------------------------------


def test_a_run_is_not_shown_what_its_namesake_wrote(fresh: Path) -> None:
    assert submit(fresh, run_yaml("x", 1, "echo old")).code == 0
    until_idle(fresh)
    assert call("runs", "cancel", "rai/x", fleet=fresh).code == 0
    assert logs(fresh, "rai/x") == ["old"]
    assert submit(fresh, run_yaml("x", 1, "echo new")).code == 0
    for words in ((), ("--pod", "0")):
        told = call("runs", "logs", "rai/x", *words, fleet=fresh)
        assert (told.code, told.out) == (5, "")
        assert told.err == (
            "error: there are no logs of Run/rai/x\n"
            "next: it has not started any pod here yet; those of an earlier run of this name: "
            "kubectl-runs logs rai/x --attempt 1\n"
        )
    assert logs(fresh, "rai/x", "--attempt", "1") == logs(fresh, "rai/x", "--pod", "x-a1-0") == ["old"]
    until_idle(fresh)
    assert logs(fresh, "rai/x") == ["new"]
