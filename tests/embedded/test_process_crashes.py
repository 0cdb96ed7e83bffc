"""Kills at every step: of the daemon, of a pod's supervisor, of both. A pod runs once or not at all."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from msgspec.structs import replace

from tenure.embedded import shim
from tenure.embedded.folder import Ended, Identity, PodFolder, State, Waiting
from tenure.embedded.launch import TOKEN
from tenure.embedded.process import SUPERVISOR, ProcessExecutor
from tenure.embedded.survivors import find_survivors, kill_survivors, signal_supervisor
from tests.embedded.pods import DEADLINE_SECONDS, World, alive, clock, is_alive, wait_for, wait_for_nobody

DAEMON = """
import os, signal, sys, time
from pathlib import Path
from tenure.embedded.process import ProcessExecutor
from tests.embedded.pods import World

def hook(point):
    if point == sys.argv[2]:
        os.kill(os.getpid(), signal.SIGKILL)

root = Path(sys.argv[1])
world = World(root, ProcessExecutor(root, hook=hook))
world.run("p", sys.argv[3], grace=float(sys.argv[4]))
world.until("p", "Bound")
if sys.argv[2] in ("forbidden", "stopping"):
    world.stop("p")
    world.step()
os.kill(os.getpid(), signal.SIGKILL)
"""
"""A daemon that starts one pod and is killed at a named point, or as soon as the pod is bound."""

CRASHING = """
import os, signal, sys
sys.path.append(sys.argv[1])
import shim

def reached(point):
    marker = os.path.join(sys.argv[3], "crashed")
    if point == sys.argv[2] and not os.path.exists(marker):
        open(marker, "x").close()
        os.kill(os.getpid(), signal.SIGKILL)

shim.reached = reached
sys.exit(shim.main(sys.argv[3]))
"""
"""A supervisor that is killed at a named point, the first time it gets there."""

REPOSITORY = Path(__file__).parents[2]
COUNTED = "echo once >> ../runs; exec sleep {seconds}"


@pytest.fixture
def world(tmp_path: Path) -> Iterator[World]:
    world = World(tmp_path / "pods")
    yield world
    world.close()


def killed_daemon(world: World, point: str, script: str, *, grace: float = 5) -> None:
    """A daemon lives and dies; then its successor, our world, is given the same pod."""
    command = [sys.executable, "-c", DAEMON, str(world.root), point, script, str(grace)]
    done = subprocess.run(command, timeout=DEADLINE_SECONDS, check=False, cwd=REPOSITORY)
    assert done.returncode == -signal.SIGKILL
    world.run("p", script, grace=grace)


def runs(world: World) -> int:
    file = world.folder("p").path / "runs"
    return len(file.read_text().split()) if file.exists() else 0


# --- the daemon is killed ---------------------------------------------------------------------------------


@pytest.mark.parametrize("point", ["planned", "created", "described", "launched", "bound"])
def test_a_daemon_killed_while_it_starts_a_pod_leaves_it_to_run_once(world: World, point: str) -> None:
    killed_daemon(world, point, COUNTED.format(seconds=0.2))
    assert world.until("p", "Succeeded").code == 0
    assert world.phases("p") == ["Bound", "Succeeded"]
    assert runs(world) == 1


def test_a_pod_outlives_its_daemon_and_is_found_alive(world: World) -> None:
    killed_daemon(world, "bound", "echo $$$$; exec sleep 300")
    world.until("p", "Bound")
    assert is_alive(int(wait_for(world.folder("p").path / "main.log")))
    assert world.step() == []
    world.stop("p")
    world.until("p", "Gone")


def test_what_ended_while_no_daemon_lived_is_reported_with_its_code_and_its_time(world: World) -> None:
    killed_daemon(world, "bound", "exit 9")
    wait_for(world.folder("p").path / shim.EXIT)
    ended = time.time_ns() // 1000
    report = world.until("p", "Failed")
    assert report.code == 9
    assert report.at <= ended


def test_the_grace_period_is_kept_though_the_daemon_died_in_the_middle_of_it(world: World) -> None:
    stubborn = "trap '' TERM; echo ready; while :; do sleep 0.01; done"
    killed_daemon(world, "stopping", stubborn, grace=0.2)
    record = wait_for(world.folder("p").path / shim.EXIT)  # nobody but the supervisor is there to do it
    assert '"code": 137' in record or '"code": 143' in record  # 143: it had not come to the trap yet
    wait_for_nobody(world.root)


def test_a_daemon_killed_between_marker_and_signal_has_its_stop_carried_out_by_the_next(world: World) -> None:
    killed_daemon(world, "forbidden", "exec sleep 300")
    world.stop("p")
    world.until("p", "Gone")
    assert alive(world.root) == []


# --- the supervisor is killed -----------------------------------------------------------------------------


def crashing(world: World, point: str) -> None:
    folder = os.path.dirname(shim.__file__)
    command = (*SUPERVISOR[:-1], "-c", CRASHING, folder, point)
    world.executor = ProcessExecutor(world.root, supervisor=command)


def test_a_supervisor_killed_before_it_started_the_pod_is_replaced(world: World) -> None:
    crashing(world, "locked")
    world.run("p", COUNTED.format(seconds=0))
    world.until("p", "Succeeded")
    assert (world.folder("p").path / "crashed").exists()
    assert runs(world) == 1


@pytest.mark.parametrize("point", ["started", "spawned", "ended"])
def test_a_supervisor_killed_after_it_started_the_pod_is_a_lost_pod_and_never_a_second_start(
    world: World, point: str
) -> None:
    crashing(world, point)
    world.run("p", COUNTED.format(seconds=0))
    report = world.until("p", "Failed")
    assert report.code is None
    assert report.message.startswith("lost: its supervisor ended without a record")
    assert alive(world.root) == []
    assert runs(world) <= 1


def test_when_its_supervisor_is_killed_everything_of_a_pod_dies_before_it_is_reported(
    world: World, tmp_path: Path
) -> None:
    """The first process by the kernel's hand, its child and a child in another session by the daemon's."""
    pids = tmp_path / "pids"
    note = f"echo $$$$ >> {pids}"
    world.run("p", f"{note}; sh -c '{note}; sleep 300' & setsid sh -c '{note}; sleep 300' & wait")
    world.until("p", "Bound")
    while len(wait_for(pids).split()) < 3:
        time.sleep(0.005)
    kill_supervisor(world)
    report = world.until("p", "Failed")
    assert report.message.startswith("lost: ")
    assert [pid for pid in map(int, pids.read_text().split()) if is_alive(pid)] == []
    assert alive(world.root) == []


def test_a_lost_pod_stays_lost_for_every_later_daemon(world: World) -> None:
    world.run("p", "exec sleep 300")
    asked = world.work["p"]
    world.until("p", "Bound")
    kill_supervisor(world)
    first = world.until("p", "Failed")
    world.executor, world.work["p"] = ProcessExecutor(world.root), asked
    assert world.until("p", "Failed") == first


def test_a_lost_pod_that_is_asked_to_stop_is_gone_when_nothing_of_it_is_alive(world: World, tmp_path: Path) -> None:
    world.run("p", f"sleep 300 & echo $! > {tmp_path}/child; wait")
    world.until("p", "Bound")
    child = int(wait_for(tmp_path / "child"))
    kill_supervisor(world)
    assert is_alive(child)
    world.stop("p")
    world.until("p", "Gone")
    assert alive(world.root) == []


def test_a_bound_pod_of_which_nothing_is_known_is_lost_and_not_started_again(world: World, tmp_path: Path) -> None:
    world.run("p", f"echo once >> {tmp_path}/runs")
    world.until("p", "Bound")
    wait_for(world.folder("p").path / shim.EXIT)
    wait_for_nobody(world.root)  # its supervisor too: without its folder nobody could find it again
    world.work["p"] = replace(world.work["p"], known="Bound")
    shutil.rmtree(world.root)
    report = world.until("p", "Failed")
    assert report.message.startswith("lost: nothing is known of it")
    assert (tmp_path / "runs").read_text().split() == ["once"]


def kill_supervisor(world: World) -> None:
    supervisor = world.folder("p").state().shim
    assert supervisor is not None
    os.kill(supervisor.pid, signal.SIGKILL)


# --- several at once --------------------------------------------------------------------------------------


def test_twenty_daemons_that_launch_the_same_pod_start_it_once(world: World) -> None:
    world.run("p", COUNTED.format(seconds=0.2))
    rivals = [ProcessExecutor(world.root) for _ in range(20)]
    for rival in rivals:
        rival.reconcile(list(world.work.values()), now=clock())
    assert world.until("p", "Succeeded").code == 0
    wait_for_nobody(world.root)
    assert runs(world) == 1


def test_of_twenty_supervisors_at_once_one_runs_the_pod(world: World) -> None:
    world.executor = ProcessExecutor(world.root, supervisor=("/bin/true",))
    world.run("p", COUNTED.format(seconds=0.2))
    world.step()  # describes the pod; its supervisor does nothing
    rivals = [subprocess.Popen([*SUPERVISOR, str(world.folder("p").path)]) for _ in range(20)]
    assert [rival.wait(timeout=DEADLINE_SECONDS) for rival in rivals] == [0] * 20
    assert world.until("p", "Succeeded").code == 0
    assert runs(world) == 1


def test_looking_at_a_pod_never_keeps_it_from_starting(world: World) -> None:
    """Whoever looks holds the lock for a moment; a supervisor that comes then has to try again."""
    world.run("p", "true")
    world.step()
    while not isinstance(world.folder("p").look(), Ended):
        pass  # as fast as we can
    assert world.until("p", "Succeeded").code == 0


def test_a_pod_that_starts_between_two_glances_is_not_taken_for_lost(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The look reads two things; a supervisor may lock and start the pod in between."""
    glance = PodFolder.has_supervisor

    def glance_and_start(folder: PodFolder) -> bool:
        answer = glance(folder)
        (folder.path / shim.STARTED).touch()
        return answer

    world.folder("p").create()
    monkeypatch.setattr(PodFolder, "has_supervisor", glance_and_start)
    assert world.folder("p").look() == Waiting()


def test_a_pod_is_not_given_up_while_a_supervisor_of_an_earlier_daemon_runs_it(world: World) -> None:
    earlier: list[subprocess.Popen[bytes]] = []

    def earlier_daemon(point: str) -> None:
        if point == "described":
            earlier.append(subprocess.Popen([*SUPERVISOR, str(world.folder("p").path)]))
            wait_for(world.folder("p").path / "runs")

    world.executor = ProcessExecutor(world.root, supervisor=("/no/such/program",), hook=earlier_daemon)
    world.run("p", COUNTED.format(seconds=300))
    assert world.step() == [], "it cannot be started, and yet it runs"
    world.executor = ProcessExecutor(world.root)
    kill_supervisor(world)
    assert world.until("p", "Failed").message.startswith("lost: ")
    assert runs(world) == 1
    assert earlier[0].wait(timeout=DEADLINE_SECONDS) == -signal.SIGKILL


# --- strangers --------------------------------------------------------------------------------------------


@pytest.fixture
def stranger() -> Iterator[subprocess.Popen[bytes]]:
    process = subprocess.Popen(["sleep", "300"], start_new_session=True)
    yield process
    process.kill()
    process.wait()


def test_a_pid_that_belongs_to_someone_else_by_now_is_left_alone(stranger: subprocess.Popen[bytes]) -> None:
    reused = Identity(pid=stranger.pid, start=shim.start_time(stranger.pid) - 1)
    state = State(boot=shim.boot_id(), shim=reused, containers=(reused,))
    assert kill_survivors(state, "some-token") == []
    signal_supervisor(state)
    assert stranger.poll() is None


def test_a_pid_recorded_before_a_reboot_means_nothing(
    stranger: subprocess.Popen[bytes],
) -> None:
    same = Identity(pid=stranger.pid, start=shim.start_time(stranger.pid))
    state = State(boot="another-boot", shim=same, containers=(same,))
    assert kill_survivors(state, "some-token") == []
    signal_supervisor(state)
    assert stranger.poll() is None


def test_a_recorded_process_is_known_by_its_start_time_and_takes_its_session_with_it(
    stranger: subprocess.Popen[bytes],
) -> None:
    same = Identity(pid=stranger.pid, start=shim.start_time(stranger.pid))
    state = State(boot=shim.boot_id(), containers=(same,))
    assert find_survivors(state, "") == [stranger.pid]
    kill_survivors(state, "")
    assert stranger.wait(timeout=DEADLINE_SECONDS) == -signal.SIGKILL


def test_a_session_is_known_though_its_first_process_is_dead_and_buried() -> None:
    """As the kernel leaves it: the first process is killed with the supervisor; children with an environment of their
    own carry no token."""
    script = "env -i sleep 300 & echo $!; read line"
    leader = subprocess.Popen(
        ["sh", "-c", script], stdin=subprocess.PIPE, stdout=subprocess.PIPE, start_new_session=True
    )
    assert leader.stdout is not None
    child = int(leader.stdout.readline())
    state = State(boot=shim.boot_id(), containers=(Identity(pid=leader.pid, start=shim.start_time(leader.pid)),))
    with leader:
        leader.kill()
    assert kill_survivors(state, "some-token") == [child]
    while is_alive(child):
        time.sleep(0.005)
    assert kill_survivors(state, "some-token") == []


def test_a_process_is_known_by_the_token_in_its_environment_and_by_no_other_token() -> None:
    process = subprocess.Popen(["sleep", "300"], env={TOKEN: "mine", "PATH": os.environ["PATH"]})
    assert kill_survivors(State(), "min") == kill_survivors(State(), "") == []
    assert process.poll() is None
    assert kill_survivors(State(), "mine") == [process.pid]
    assert process.wait(timeout=DEADLINE_SECONDS) == -signal.SIGKILL
