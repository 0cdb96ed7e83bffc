"""Pods that the engine does not keep any more, while their processes live: they end before others get their GPUs."""

from __future__ import annotations

import errno
import os
import shutil
import signal
import sqlite3
import subprocess
import time
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace

from tenure.api.core import Taint
from tenure.embedded import shim
from tenure.embedded.fleet import Fleet
from tenure.embedded.folder import Ended, PodFolder, Waiting, find_open
from tenure.embedded.process import FORGOTTEN, SUPERVISOR, ProcessExecutor
from tenure.shell.executor import PodWork
from tenure.testing import node
from tests.embedded.drivers import TENURE, Site, is_running, kill, pids, until_there
from tests.embedded.pods import DEADLINE_SECONDS, World, alive, clock, container, manifest, pod, wait_for

FENCE = Taint(key="node.kubernetes.io/out-of-service", value="nodeshutdown", effect="NoExecute")
STUBBORN = "trap '' TERM; echo ready; while :; do sleep 0.01; done"


@pytest.fixture
def world(tmp_path: Path) -> Iterator[World]:
    world = World(tmp_path / "pods")
    yield world
    try:
        world.close()
    finally:  # a test that failed leaves what nobody will ever end
        for pid, _ in alive(world.root):
            os.kill(pid, signal.SIGKILL)


def on(name: str, script: str, *gpus: int, node: str = "a-00", grace: float = 5) -> PodWork:
    """A pod to start on some GPUs of a node."""
    env = [{"name": "CUDA_VISIBLE_DEVICES", "value": ",".join(map(str, gpus))}]
    tree = manifest(container(script, env=env), grace=grace, nodeName=node)
    return PodWork(pod=replace(pod(name, node=node), gpus=gpus), known="Placed", since=clock(), manifest=tree)


def pass_time(world: World) -> None:
    """Ask as often as the executor wants to be asked, until it has nothing left to do."""
    deadline = time.monotonic() + DEADLINE_SECONDS
    world.step()
    while (wake := world.executor.next_wake()) is not None:
        assert time.monotonic() < deadline, "it never came to an end"
        time.sleep(max(0, wake - clock()) / 1e6)
        world.step()


def never(*_: Any) -> Any:
    raise AssertionError("nobody should have to ask that")


# --- a pod disappears from the work -------------------------------------------------------------------------------


def test_a_pod_that_the_engine_dropped_is_stopped_and_says_why(world: World) -> None:
    world.run("p", "trap 'echo goodbye; exit 0' TERM; echo ready; while :; do sleep 0.01; done")
    world.until("p", "Bound")
    wait_for(world.folder("p").path / "main.log")
    del world.work["p"]
    pass_time(world)
    assert alive(world.root) == []
    assert world.log("p").splitlines()[-1] == "goodbye", "its grace period is kept"
    assert world.folder("p").forbidden() == FORGOTTEN
    assert world.phases("p") == ["Bound"], "nobody is left to be told"


def test_one_that_ignores_sigterm_is_killed_after_its_grace_period(world: World) -> None:
    world.run("p", STUBBORN, grace=0.2)
    world.until("p", "Bound")
    wait_for(world.folder("p").path / "main.log")
    del world.work["p"]
    pass_time(world)
    assert alive(world.root) == []


def test_a_pod_that_was_dropped_while_its_supervisor_was_on_its_way_never_starts(world: World) -> None:
    world.executor = ProcessExecutor(world.root, supervisor=("/bin/true",))
    world.run("p", "touch ../ran")
    world.step()  # describes the pod; its supervisor is late
    del world.work["p"]
    pass_time(world)
    subprocess.run([*SUPERVISOR, str(world.folder("p").path)], timeout=DEADLINE_SECONDS, check=True)
    assert world.folder("p").look() == Waiting()
    assert not (world.folder("p").path / "ran").exists()


def test_what_is_left_of_a_dropped_pod_whose_supervisor_was_killed_is_killed(world: World, tmp_path: Path) -> None:
    world.run("p", f"sleep 300 & echo $! > {tmp_path}/child; wait")
    world.until("p", "Bound")
    wait_for(tmp_path / "child")
    supervisor = world.folder("p").state().shim
    assert supervisor is not None
    os.kill(supervisor.pid, signal.SIGKILL)
    del world.work["p"]
    pass_time(world)
    assert alive(world.root) == []


def test_a_full_disk_does_not_keep_a_dropped_pod_alive(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(*_: object) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    world.run("p", "exec sleep 300")
    world.until("p", "Bound")
    monkeypatch.setattr(PodFolder, "_put", full)
    del world.work["p"]
    world.step()
    assert isinstance(world.executor, ProcessExecutor)
    assert world.executor.unknown == {"rai/p": "[Errno 28] No space left on device"}
    pass_time(world)
    assert alive(world.root) == []


def test_pods_that_are_gone_or_have_ended_are_not_looked_at_when_they_are_dropped(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    world.run("ended", "true")
    world.until("ended", "Succeeded")
    world.run("stopped", "exec sleep 300")
    world.until("stopped", "Bound")
    world.stop("stopped")
    world.until("stopped", "Gone")
    del world.work["ended"]
    with monkeypatch.context() as patch:
        patch.setattr(PodFolder, "look", never)
        world.step()
    assert world.executor.next_wake() is None
    assert world.folder("ended").forbidden() is None


# --- a daemon that was started again ------------------------------------------------------------------------------


def test_a_new_executor_finds_a_pod_that_lives_and_is_not_in_its_work(world: World) -> None:
    world.run("kept", "exec sleep 300")
    world.run("dropped", "exec sleep 300")
    world.until("kept", "Bound")
    world.until("dropped", "Bound")
    del world.work["dropped"]
    world.executor = ProcessExecutor(world.root)
    deadline = time.monotonic() + DEADLINE_SECONDS
    while not isinstance(world.folder("dropped").look(), Ended):
        assert time.monotonic() < deadline
        world.step()
    assert world.folder("kept").forbidden() is None
    assert [report.phase for report in world.step()] == []


def test_it_searches_once_and_takes_only_what_started_and_has_no_recorded_end(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A pod that is held back is in nobody's work, and is still to start."""
    world.run("ended", "true")
    world.until("ended", "Succeeded")
    world.folder("waiting").create()
    (world.root / "rai" / "a file").touch()
    (world.root / "another file").touch()
    assert list(find_open(world.root)) == []
    (world.folder("waiting").path / shim.STARTED).touch()
    assert list(find_open(world.root)) == ["rai/waiting"]
    (world.folder("waiting").path / shim.STARTED).unlink()
    world.work.clear()
    world.executor = ProcessExecutor(world.root)
    world.step()
    assert world.folder("waiting").forbidden() is None
    with monkeypatch.context() as patch:
        patch.setattr(os, "scandir", never)
        world.step()


def test_folders_that_cannot_be_listed_are_looked_through_again_later(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    def broken(*_: Any) -> Any:
        raise OSError(errno.EIO, os.strerror(errno.EIO))

    world.run("p", "exec sleep 300")
    world.until("p", "Bound")
    world.work.clear()
    world.executor = ProcessExecutor(world.root)
    with monkeypatch.context() as patch:
        patch.setattr(os, "scandir", broken)
        assert world.step() == []
        assert world.executor.unknown == {str(world.root): "[Errno 5] Input/output error"}
    pass_time(world)
    assert alive(world.root) == []


def test_a_forgotten_pod_that_is_wanted_again_ends_and_is_refused_and_not_reported_as_work_that_failed(
    world: World,
) -> None:
    """A restored ledger starts its runs again, under names that it does not know to be taken."""
    world.run("p", STUBBORN, grace=0.2)
    asked = world.work["p"]
    world.until("p", "Bound")
    wait_for(world.folder("p").path / "main.log")
    del world.work["p"]
    world.executor = ProcessExecutor(world.root)
    world.step()
    world.work["p"], world.reports = asked, []
    assert FORGOTTEN in world.until("p", "Failed").message
    assert world.phases("p") == ["Failed"]
    assert alive(world.root) == []


# --- whoever gets its GPUs ----------------------------------------------------------------------------------------


def test_a_new_pod_starts_on_the_gpus_of_a_forgotten_one_only_when_that_is_gone(world: World) -> None:
    world.work["old"] = on("old", STUBBORN, 0, 1, grace=2)
    world.until("old", "Bound")
    wait_for(world.folder("old").path / "main.log")
    del world.work["old"]
    world.work["new"] = on("new", "true", 1, 2)
    world.work["beside"] = on("beside", "true", 2, 3)
    world.work["elsewhere"] = on("elsewhere", "true", 0, 1, node="a-01")
    for name in ("beside", "elsewhere"):
        world.until(name, "Succeeded")
    waits = world.phases("new") == []
    assert waits or isinstance(world.folder("old").look(), Ended), "the old one does not want to go"
    world.until("new", "Succeeded")
    old, new = world.folder("old").look(), world.folder("new").look()
    assert isinstance(old, Ended)
    assert isinstance(new, Ended)
    assert old.ended_at <= new.started_at


def test_where_nobody_wrote_down_the_node_the_same_ordinals_are_waited_for(world: World) -> None:
    """An earlier version did not; its pods outlive it."""
    world.work["old"] = on("old", STUBBORN, 0, node="", grace=0.3)
    world.until("old", "Bound")
    wait_for(world.folder("old").path / "main.log")
    world.work = {"new": on("new", "true", 0, node="a-01")}
    world.executor = ProcessExecutor(world.root)
    world.until("new", "Succeeded")
    old, new = world.folder("old").look(), world.folder("new").look()
    assert isinstance(old, Ended)
    assert isinstance(new, Ended)
    assert old.ended_at <= new.started_at


# --- a whole fleet ------------------------------------------------------------------------------------------------


@pytest.fixture
def site(tmp_path: Path) -> Iterator[Site]:
    site = Site(tmp_path / "site", machines=1)
    yield site
    site.close()


def apply_node(site: Site, *taints: Taint) -> None:
    with Fleet.open(site.path, readonly=False) as fleet:
        assert fleet.apply([node("n0", 8, taints=list(taints))]) == []


@pytest.mark.parametrize("restarted", [False, True], ids=["by the driver that started it", "by the next driver"])
def test_the_processes_of_a_node_that_is_fenced_end(site: Site, tmp_path: Path, restarted: bool) -> None:
    """The engine takes them for dead, and gives their GPUs away when the node is back."""
    trace = tmp_path / "pids"
    site.submit(site.run("train", 8, f"echo $$$$ >> {trace}; exec sleep 300"))
    driver = site.up()
    [pid] = pids(trace, 1)
    site.until(lambda: site.phase("train") == "Running")
    if restarted:
        kill(driver)
    apply_node(site, FENCE)
    if restarted:
        driver = site.up()
    site.until(lambda: not is_running(pid))
    assert site.phase("train") == "Failed"
    assert site.folder("train-a1-0").forbidden() == FORGOTTEN
    kill(driver)


def test_after_an_older_ledger_was_put_back_what_it_never_started_ends_and_its_runs_start_anew(
    site: Site, tmp_path: Path
) -> None:
    trace, over = tmp_path / "pids", tmp_path / "over"
    site.submit(site.run("train", 8, f"echo $$$$ >> {trace}; {until_there(over)}"))
    backup = tmp_path / "backup.db"
    with closing(sqlite3.connect(site.path)) as database:
        database.execute("VACUUM INTO ?", (str(backup),))
    driver = site.up()
    [old] = pids(trace, 1)
    site.until(lambda: site.phase("train") == "Running")
    kill(driver)
    for left in ("-wal", "-shm"):
        Path(f"{site.path}{left}").unlink(missing_ok=True)
    shutil.copy(backup, site.path)
    command = [*TENURE, "ledger", "accept", str(site.path), "--yes", "--who", "operator"]
    subprocess.run(command, capture_output=True, timeout=DEADLINE_SECONDS, check=True)
    driver = site.up()
    [_, new] = pids(trace, 2)
    assert not is_running(old), "both have the same GPUs"
    assert is_running(new)
    over.touch()
    site.until(lambda: site.phase("train") == "Completed")
    assert site.state().runs["lab/train"].life.restarts == 0, "that was not the work's fault"
    kill(driver)
