"""The supervisor by itself: when it starts a pod, when it refuses, and what it is made of."""

from __future__ import annotations

import ast
import fcntl
import json
import os
import shutil
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest

from tenure.embedded import shim
from tenure.embedded.process import SUPERVISOR
from tests.embedded.pods import DEADLINE_SECONDS, is_alive, wait_for


def describe(folder: Path, script: str, *, grace: float = 5) -> None:
    env = {"PATH": os.environ["PATH"]}
    container = {"name": "main", "argv": ["sh", "-c", script], "env": env, "cwd": str(folder)}
    (folder / shim.SPEC).write_text(json.dumps({"grace": grace, "init": [], "containers": [container]}))


def launch(folder: Path) -> subprocess.Popen[bytes]:
    return subprocess.Popen([*SUPERVISOR, str(folder)], stderr=subprocess.PIPE)


def supervise(folder: Path) -> dict[str, Any] | None:
    """Run a supervisor to its end; the record it wrote, if any."""
    _, errors = (process := launch(folder)).communicate(timeout=DEADLINE_SECONDS)
    assert (process.returncode, errors) == (0, b"")
    record = folder / shim.EXIT
    return json.loads(record.read_text()) if record.exists() else None


def test_it_runs_a_pod_and_writes_the_last_word(tmp_path: Path) -> None:
    describe(tmp_path, "echo hello; exit 2")
    record = supervise(tmp_path)
    assert record is not None
    assert record["code"] == 2
    assert (tmp_path / "main.log").read_text() == "hello\n"


def test_it_never_runs_a_pod_a_second_time(tmp_path: Path) -> None:
    describe(tmp_path, "echo run")
    first = supervise(tmp_path)
    assert first is not None
    assert supervise(tmp_path) == first
    assert (tmp_path / "main.log").read_text() == "run\n"


def test_it_never_runs_a_pod_that_was_started_and_lost(tmp_path: Path) -> None:
    describe(tmp_path, "echo run")
    (tmp_path / shim.STARTED).touch()
    assert supervise(tmp_path) is None
    assert not (tmp_path / "main.log").exists()


def test_it_never_starts_a_pod_that_was_stopped_before(tmp_path: Path) -> None:
    describe(tmp_path, "echo run")
    (tmp_path / shim.STOPPED).write_text("asked to stop")
    assert supervise(tmp_path) is None
    assert not (tmp_path / shim.STARTED).exists()


def test_it_waits_for_the_lock_while_someone_looks_and_leaves_when_the_pod_is_taken(tmp_path: Path) -> None:
    describe(tmp_path, "echo run")
    with open(tmp_path / shim.LOCK, "w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        waiting = launch(tmp_path)
        with pytest.raises(subprocess.TimeoutExpired):
            waiting.wait(timeout=0.2)
        (tmp_path / shim.STARTED).touch()
        assert waiting.communicate(timeout=DEADLINE_SECONDS) == (None, b"")
    assert not (tmp_path / "main.log").exists()


def test_it_sees_the_stop_marker_by_itself_though_no_signal_comes(tmp_path: Path) -> None:
    """The daemon may die between the two."""
    describe(tmp_path, f"touch {shim.STOPPED}; exec sleep 300")
    quick = [*SUPERVISOR[:-1], "-c", QUICK, os.path.dirname(shim.__file__), str(tmp_path)]
    subprocess.run(quick, timeout=DEADLINE_SECONDS, check=True)
    assert json.loads((tmp_path / shim.EXIT).read_text())["code"] == 143


def test_it_ends_a_pod_whose_folder_was_deleted_since_nobody_could_find_it_again(tmp_path: Path) -> None:
    folder, pid = tmp_path / "pod", tmp_path / "pid"
    folder.mkdir()
    describe(folder, f"echo $$ > {pid}; exec sleep 300")
    process = subprocess.Popen([*SUPERVISOR[:-1], "-c", QUICK, os.path.dirname(shim.__file__), str(folder)])
    wait_for(pid)
    shutil.rmtree(folder)
    assert process.wait(timeout=DEADLINE_SECONDS) == 0
    assert not is_alive(int(pid.read_text()))


QUICK = "import sys; sys.path.append(sys.argv[1]); import shim; shim.BACKSTOP = 0.05; shim.main(sys.argv[2])"


def test_when_it_is_killed_the_kernel_kills_its_containers_without_anybodys_help(tmp_path: Path) -> None:
    describe(tmp_path, "echo $$; exec sleep 300")
    process = launch(tmp_path)
    pid = int(wait_for(tmp_path / "main.log"))
    process.kill()
    process.communicate(timeout=DEADLINE_SECONDS)
    deadline = time.monotonic() + DEADLINE_SECONDS
    while is_alive(pid) and time.monotonic() < deadline:
        time.sleep(0.005)
    assert not is_alive(pid)


def test_workers_keep_their_grace_period_though_their_launcher_died_at_once(tmp_path: Path) -> None:
    worker = "trap 'sleep 0.1; echo saved; exit' TERM; echo ready; while :; do sleep 0.01; done"
    describe(tmp_path, f'sh -c "{worker}"; true')
    process = launch(tmp_path)
    wait_for(tmp_path / "main.log")
    (tmp_path / shim.STOPPED).write_text("asked to stop")
    process.terminate()
    process.communicate(timeout=DEADLINE_SECONDS)
    assert "saved" in (tmp_path / "main.log").read_text()


def test_workers_that_outstay_the_grace_period_are_killed_though_their_launcher_died(tmp_path: Path) -> None:
    worker = "trap '' TERM; echo $$ >> pid; while :; do sleep 0.01; done"
    describe(tmp_path, f"sh -c '{worker.replace(chr(39), chr(34))}'; true", grace=0.2)
    process = launch(tmp_path)
    wait_for(tmp_path / "pid")
    process.terminate()
    process.communicate(timeout=DEADLINE_SECONDS)
    assert not is_alive(int((tmp_path / "pid").read_text()))


def test_it_imports_only_the_standard_library() -> None:
    """It runs without site packages, so anything else would fail, and only when a pod starts."""
    tree = ast.parse(Path(shim.__file__).read_text())
    names = {alias.name for node in ast.walk(tree) if isinstance(node, ast.Import) for alias in node.names}
    names |= {node.module or "" for node in ast.walk(tree) if isinstance(node, ast.ImportFrom)}
    assert {name.partition(".")[0] for name in names} <= sys.stdlib_module_names


def test_it_loads_few_modules_since_every_pod_pays_for_them() -> None:
    code = "import sys; sys.path.append(sys.argv[1]); import shim; print(*sorted(sys.modules))"
    command = [*SUPERVISOR[:-1], "-c", code, os.path.dirname(shim.__file__)]
    loaded = subprocess.run(command, capture_output=True, text=True, check=True).stdout.split()
    assert {"site", "typing", "subprocess", "threading", "asyncio", "logging", "msgspec"} & set(loaded) == set()
