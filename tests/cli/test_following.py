"""`watch` and `tenure up`: what happens, as it happens."""

import json
import os
import pty
import signal
import subprocess
from pathlib import Path

import pytest

from tenure.cli import local
from tenure.cli.local import LocalFleet
from tenure.ledger import Ledger
from tests.cli.support import BIN, FLEET, SECONDS, call, driven, finish, run_yaml, spawn, submit, until_idle


def test_a_piped_watch_is_a_line_for_each_event_until_the_run_is_over(fresh: Path) -> None:
    assert submit(fresh, run_yaml("x", 8, "true"), run_yaml("other", 1, "true")).code == 0
    process = spawn("runs", "watch", "rai/x", "-o", "json", fleet=fresh)
    assert process.stdout is not None
    first = json.loads(process.stdout.readline())
    assert (first["kind"], first["object"]) == ("Pending", "Run/rai/x")
    until_idle(fresh)
    done = finish(process)
    events = [json.loads(line) for line in done.out.splitlines()]
    assert [event["kind"] for event in events] == ["Admitted", "Started", "Completed"]
    assert {event["object"] for event in events} == {"Run/rai/x"}
    assert set(first) == set(events[0]) == {"at", "kind", "object", "reason", "message"}
    assert done.code == 0


def test_how_runs_stand_is_told_with_the_time_since_when(past: Path) -> None:
    """Not with the time of now: what happened yesterday did not happen now."""
    process = spawn("runs", "watch", "-A", "-o", "json", fleet=past)
    assert process.stdout is not None
    names = call("runs", "list", "-A", "-o", "name", fleet=past).out.split()
    told = {one["object"]: one for one in (json.loads(process.stdout.readline()) for _ in names)}
    process.send_signal(signal.SIGINT)
    finish(process)
    for name in names:
        life = call("runs", "story", name, "-o", "json", fleet=past).json["incarnations"][-1]
        assert told[f"Run/{name}"]["at"] == life["events"][-1]["at"], name
    assert told["Run/rai/a-train"]["kind"] == "Completed"


def test_a_watch_of_everything_ends_with_ctrl_c_and_no_error(fresh: Path) -> None:
    assert submit(fresh, run_yaml("x", 8, "true")).code == 0
    process = spawn("runs", "watch", "-A", fleet=fresh)
    assert process.stdout is not None
    assert "Run/rai/x" in process.stdout.readline()
    until_idle(fresh)
    lines = [process.stdout.readline() for _ in range(3)]
    assert [line.split()[1] for line in lines] == ["Admitted", "Started", "Completed"]
    process.send_signal(signal.SIGINT)
    done = finish(process)
    assert (done.code, done.out) == (0, "")
    assert "nothing drives this fleet" in done.err


def test_who_watches_sleeps_while_nothing_happens(past: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A look at the counter of the file, then sleep: never two looks without one."""
    done: list[str] = []
    with LocalFleet.open(past, write=False, anchor=None) as fleet:
        follower = fleet.follow()
        look = Ledger.data_version
        monkeypatch.setattr(Ledger, "data_version", lambda self: done.append("look") or look(self))
        monkeypatch.setattr(local.time, "sleep", lambda seconds: done.append("sleep" if seconds > 0 else "spin"))
        now = iter(range(1000))
        monkeypatch.setattr(local.time, "monotonic", lambda: next(now) * 0.1)
        assert follower.wait(1.0) is None
    assert done[:4] == ["look", "sleep", "look", "sleep"]
    assert len(done) < 25
    assert "spin" not in done


def test_a_terminal_is_redrawn_in_place(past: Path) -> None:
    """A run that is over is drawn once and left standing, with the next step below it."""
    shown = on_a_terminal("watch", "rai/a-train", fleet=past)
    assert "a-train" in shown
    assert "1 run, 0 running" in shown
    assert "kubectl-runs describe rai/a-train" in shown


def test_a_terminal_gets_colour_and_a_hint_and_a_pipe_does_not(past: Path) -> None:
    shown = on_a_terminal("list", "-n", "rai", fleet=past)
    assert "\x1b[31mBlocked" in shown
    assert "next: " in shown
    assert "\x1b[31m" not in on_a_terminal("list", "-n", "rai", fleet=past, NO_COLOR="1")
    assert "next: " not in on_a_terminal("list", "-n", "rai", fleet=past, TENURE_HINTS="off")


def test_numbers_are_never_cut_however_narrow_the_terminal(past: Path) -> None:
    shown = on_a_terminal("budgets", "usage", "-o", "wide", fleet=past, COLUMNS="40", NO_COLOR="1").replace(
        "\r\n", "\n"
    )
    assert "…" not in shown
    assert "org:ai:vision" in shown


def on_a_terminal(*words: str, fleet: Path, **env: str) -> str:
    """What a person would see."""
    primary, secondary = pty.openpty()
    variables = {**os.environ, "TENURE_LOCAL": str(fleet), "TERM": "xterm", "COLUMNS": "120", **env}
    process = subprocess.Popen(
        [str(BIN / "kubectl-runs"), *words], stdin=secondary, stdout=secondary, stderr=secondary, env=variables
    )
    os.close(secondary)
    shown = b""
    while True:
        try:
            block = os.read(primary, 65536)
        except OSError:  # the other end is closed
            break
        if not block:
            break
        shown += block
    os.close(primary)
    assert process.wait(timeout=SECONDS) == 0
    return shown.decode()


def test_the_driver_tells_what_happens_and_stops_when_idle(fresh: Path) -> None:
    assert submit(fresh, run_yaml("x", 8, "true"), run_yaml("never", 99, "true")).code == 0
    lines = until_idle(fresh).out.splitlines()
    assert lines[0] == (f"driving {fresh}: 3 machines, 24 GPUs, 2 runs waiting. Ctrl-C stops driving; work goes on.")
    assert [line.split()[1:3] for line in lines[1:-1]] == [
        ["Blocked", "Run/rai/never"],
        ["Admitted", "Run/rai/x"],
        ["Started", "Run/rai/x"],
        ["Completed", "Run/rai/x"],
    ]
    assert lines[-1] == "idle: nothing runs, 1 run waiting for something to change"


def test_what_the_driver_prints_is_in_the_ledger(fresh: Path) -> None:
    assert submit(fresh, run_yaml("x", 8, "true")).code == 0
    printed = [line.split()[1] for line in until_idle(fresh).out.splitlines()[1:-1]]
    events = call("runs", "describe", "rai/x", "-o", "json", fleet=fresh).json["events"]
    assert printed == [event["kind"] for event in events]


def test_stopping_the_driver_leaves_work_running_and_the_next_one_finds_it(fresh: Path) -> None:
    assert submit(fresh, run_yaml("x", 8, "while [ ! -e go ]; do sleep 0.05; done")).code == 0
    process = spawn("tenure", "up", str(fresh))
    assert process.stdout is not None
    while "Started" not in process.stdout.readline():
        assert process.poll() is None
    process.send_signal(signal.SIGINT)
    done = finish(process)
    assert done.code == 0
    assert done.out == f"stopped driving. 1 run goes on, its leases stay open. `tenure up {fresh}` takes over again.\n"
    assert call("runs", "list", "-A", "--phase", "Running", "-o", "name", fleet=fresh).out == "rai/x\n"
    (work,) = fresh.parent.glob("fleet.db.pods/*/rai/x-a1-0/work")
    (work / "go").touch()
    until_idle(fresh)
    assert call("runs", "list", "-A", "--phase", "Completed", "-o", "name", fleet=fresh).out == "rai/x\n"


def test_a_second_driver_is_refused(fresh: Path) -> None:
    with driven(fresh) as first:
        done = finish(spawn("tenure", "up", str(fresh)))
    assert (done.code, done.out) == (6, "")
    assert f"driven by process {first.pid} already" in done.err


def test_the_driver_creates_a_fleet_that_is_not_there(tmp_path: Path) -> None:
    (tmp_path / "fleet.yaml").write_text(FLEET)
    words = ["up", str(tmp_path / "fleet.db"), "--fleet", str(tmp_path / "fleet.yaml"), "--until-idle"]
    done = finish(spawn("tenure", *words))
    assert done.code == 0
    assert "fleet test: 3 machines, 24 GPUs, pods run as processes" in done.out


def test_a_reader_that_leaves_does_not_stop_the_fleet(fresh: Path) -> None:
    assert submit(fresh, run_yaml("x", 8, "true")).code == 0
    reader, writer = os.pipe()
    os.close(reader)
    process = spawn("tenure", "up", str(fresh), "--until-idle", stdout=writer)
    os.close(writer)
    assert process.stderr is not None
    assert (process.wait(timeout=SECONDS), process.stderr.read()) == (0, "")
    process.stderr.close()
    assert call("runs", "list", "-A", "--phase", "Completed", "-o", "name", fleet=fresh).out == "rai/x\n"
