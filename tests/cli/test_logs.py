"""`logs`: what the pods wrote, whole, of the right attempt, and harmless on a terminal."""

from pathlib import Path

import pytest

from tenure.cli.runs.logs import readable
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
