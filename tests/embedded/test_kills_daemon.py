"""The driver of a fleet with real pods is killed: at chosen moments, at random ones, and at every point of its writes.

Whatever happens to it, a pod starts at most once, a run is never lost, and in the end the books are right. The default
tier takes a sample of the points at which a driver can be killed; all of them take some minutes:

    KILLS=all .venv/bin/python -m pytest tests/embedded/test_kills_daemon.py
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import ExitStack, closing
from pathlib import Path
from random import Random

import msgspec
import pytest

from tenure.api.meta import to_wire
from tenure.embedded import shim
from tenure.embedded.driver import is_driven
from tenure.embedded.fleet import clock
from tenure.ledger import WRITE_POINTS
from tests.embedded.drivers import DEADLINE_SECONDS, Site, is_running, kill, pids, until_there
from tests.embedded.pods import wait_for

ALL = os.environ.get("KILLS") == "all"
FATES = {"train": "Completed", "flaky": "Completed", "doomed": "Failed", "queued": "Completed"}


@pytest.fixture
def site(tmp_path: Path) -> Iterator[Site]:
    site = Site(tmp_path / "site", machines=4)
    yield site
    site.close()


def busy_site(folder: Path) -> Site:
    """Two pods that succeed, a run that succeeds the second time, one that fails for good, and one that has to wait."""
    site = Site(folder, machines=2, gpus=4)
    site.submit(
        site.run("train", 4, "sleep 0.2", pod=2),
        site.run("flaky", 2, 'sleep 0.05; [ "$TENURE_ATTEMPT" -gt 1 ] || exit 3', restarts=1),
        site.run("doomed", 2, "sleep 0.1; exit 7"),
        site.run("queued", 4, "sleep 0.05", group=4),
    )
    return site


def judge_busy(site: Site) -> None:
    site.judge(FATES)
    started = site.started()
    wanted = {"train-a1-0", "train-a1-1", "flaky-a1-0", "flaky-a2-0", "doomed-a1-0", "queued-a1-0"}
    assert set(started) == wanted, "every pod of every attempt, and nothing else"
    life = site.state().runs["lab/doomed"].life
    assert "7" in life.message, "its exit code is told"
    closures = {(row.lease.run, row.lease.attempt): row.closure for row in site.leases()}
    assert closures == {
        ("train", 1): "Completed",
        ("flaky", 1): "Fail",
        ("flaky", 2): "Completed",
        ("doomed", 1): "Fail",
        ("queued", 1): "Completed",
    }


def test_a_driver_killed_at_any_of_its_points_starts_nothing_twice_and_loses_nothing(tmp_path: Path) -> None:
    calm = busy_site(tmp_path / "calm")
    with closing(calm):
        assert calm.hooked(0, tmp_path / "points").wait(DEADLINE_SECONDS) == 0, calm.said()
        judge_busy(calm)
    points = (tmp_path / "points").read_text().split()
    assert set(WRITE_POINTS) | {"planned", "created", "described", "launched"} <= set(points)
    numbers = range(1, len(points) + 1) if ALL else range(2, len(points), len(points) // 7)
    reached: list[str] = []
    for batch in [list(numbers)[at : at + 8] for at in range(0, len(numbers), 8)]:
        reached += killed_side_by_side(tmp_path, batch)
    assert len(reached) >= len(numbers) * 3 // 4, "nearly all came as far as they were meant to"


def killed_side_by_side(folder: Path, numbers: list[int]) -> list[str]:
    """Several fleets at once, since most of their time is waiting: each driver is killed at its point, and replaced."""
    with ExitStack() as stack:
        sites = [stack.enter_context(closing(busy_site(folder / f"{number:03d}"))) for number in numbers]
        logs = [folder / f"point{number}" for number in numbers]
        victims = [site.hooked(number, log) for site, log, number in zip(sites, logs, numbers, strict=True)]
        ends = [victim.wait(DEADLINE_SECONDS) for victim in victims]
        assert set(ends) <= {-signal.SIGKILL, 0}, [site.said() for site in sites]
        successors = [site.up("--until-idle") for site in sites]
        for site, successor in zip(sites, successors, strict=True):
            assert successor.wait(DEADLINE_SECONDS) == 0, site.said()
            judge_busy(site)
    return [log.read_text().strip() for log in logs if log.exists()]


@pytest.mark.parametrize("seed", range(20) if ALL else range(1))
def test_a_driver_killed_at_random_again_and_again_starts_nothing_twice_and_loses_nothing(
    tmp_path: Path, seed: int
) -> None:
    luck = Random(seed)
    with closing(busy_site(tmp_path)) as site:
        for _ in range(6):
            driver = site.up()
            with_luck(driver, luck)
            kill(driver)
        site.finish()
        judge_busy(site)


def with_luck(driver: subprocess.Popen[bytes], luck: Random) -> None:
    """Let a driver live for a while: it needs some 0.3 seconds to wake up, and has done all its work after one."""
    with pytest.raises(subprocess.TimeoutExpired):
        driver.wait(luck.uniform(0.2, 0.8))


def test_a_driver_killed_while_pods_run_finds_them_again(site: Site, tmp_path: Path) -> None:
    trace, over = tmp_path / "pids", tmp_path / "over"
    site.submit(site.run("train", 8, f"echo $$$$ >> {trace}; {until_there(over)}", pod=4))
    driver = site.up()
    first = pids(trace, 2)
    site.until(lambda: site.phase("train") == "Running")
    kill(driver)
    assert all(is_running(pid) for pid in first)
    over.touch()
    site.finish()
    assert pids(trace, 2) == first
    site.judge({"train": "Completed"})


def ended_alone(site: Site, over: Path, code: int = 0) -> None:
    """A run of one pod that ends while nobody drives; the next driver finds out, and bills it to its real end."""
    site.submit(site.run("train", 8, f"{until_there(over)}; exit {code}"))
    driver = site.up()
    site.until(lambda: site.phase("train") == "Running")
    kill(driver)
    over.touch()
    wait_for(site.folder("train-a1-0").path / shim.EXIT)
    returned = clock()
    site.finish()
    ended = site.folder("train-a1-0").last_word(0)
    assert ended is not None
    [row] = site.leases()
    assert row.end == ended.ended_at, "not a moment longer than it ran"
    assert row.end < returned


def test_what_succeeds_while_no_driver_lives_is_billed_to_its_real_end(site: Site, tmp_path: Path) -> None:
    ended_alone(site, tmp_path / "over")
    site.judge({"train": "Completed"})


def test_what_fails_while_no_driver_lives_is_billed_to_its_real_end(site: Site, tmp_path: Path) -> None:
    ended_alone(site, tmp_path / "over", 5)
    site.judge({"train": "Failed"})
    assert "5" in site.state().runs["lab/train"].life.message


STUBBORN = "trap 'echo no >> {trace}.asked' TERM; echo $$$$ >> {trace}; while :; do sleep 0.05; done"
"""A pod that only takes note of SIGTERM."""


def test_a_canceled_run_is_really_gone_though_its_driver_died_in_the_middle_of_stopping_it(
    site: Site, tmp_path: Path
) -> None:
    trace = tmp_path / "pids"
    site.submit(site.run("stubborn", 8, STUBBORN.format(trace=trace), grace=3))  # time to kill its driver
    driver = site.up()
    [pid] = pids(trace, 1)
    site.until(lambda: site.phase("stubborn") == "Running")
    site.cancel("stubborn")
    wait_for(tmp_path / "pids.asked")
    kill(driver)
    assert [row.end for row in site.leases()] == [None], "its GPUs are not free yet"
    wait_for(site.folder("stubborn-a1-0").path / shim.EXIT)  # nobody but its supervisor is there to end it
    assert not is_running(pid)
    assert site.folder("stubborn-a1-0").last_word(0).code == 128 + signal.SIGKILL  # type: ignore[union-attr]  # just seen
    returned = clock()
    site.finish()
    site.judge({})
    [row] = site.leases()
    assert row.closure == "Canceled"
    assert row.end is not None
    assert row.end < returned


def test_a_run_canceled_while_nobody_drives_is_stopped_by_the_next_driver(site: Site, tmp_path: Path) -> None:
    trace = tmp_path / "pids"
    site.submit(site.run("stubborn", 8, STUBBORN.format(trace=trace), grace=0.2))
    driver = site.up()
    [pid] = pids(trace, 1)
    site.until(lambda: site.phase("stubborn") == "Running")
    kill(driver)
    canceled = clock()
    site.cancel("stubborn")
    assert is_running(pid)
    site.finish()
    assert not is_running(pid)
    site.judge({})
    [row] = site.leases()
    assert row.closure == "Canceled"
    assert row.end is not None
    assert row.end > canceled, "it held its GPUs until it was gone"


def test_a_run_canceled_before_its_pods_started_never_starts(site: Site, tmp_path: Path) -> None:
    """The driver dies between the commit that admits the run and the first look at its pods."""
    log = tmp_path / "point"
    site.submit(site.run("hasty", 8, "sleep 300", pod=4))
    victim = site.hooked(WRITE_POINTS.index("after-anchor") + 1, log)
    assert victim.wait(DEADLINE_SECONDS) == -signal.SIGKILL, site.said()
    assert log.read_text().strip() == "after-anchor"
    assert site.phase("hasty") == "Starting"
    site.cancel("hasty")
    site.finish()
    assert site.started() == {}
    site.judge({})
    assert {row.closure for row in site.leases()} == {"Canceled"}


# --- others at the same file --------------------------------------------------------------------------------------

SUBMITTER = """
import sys
from tenure.cli.main import runs
print("ready", flush=True)
sys.stdin.readline()
for file in sys.argv[2:]:
    code = runs.main(["--local", sys.argv[1], "submit", "-f", file], prog_name="kubectl-runs", standalone_mode=False)
    assert not code, code
"""


def test_runs_handed_in_by_several_processes_at_once_all_run_once(site: Site, tmp_path: Path) -> None:
    files = [written(tmp_path, site, f"r{number:02d}") for number in range(20)]
    driver = site.up()
    command = [sys.executable, "-c", SUBMITTER, str(site.path)]
    crowd = [
        subprocess.Popen(
            [*command, *map(str, files[at : at + 5])], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )
        for at in range(0, 20, 5)
    ]
    for one in crowd:
        assert one.stdout is not None
        assert one.stdout.readline() == "ready\n"
    for one in crowd:
        assert one.stdin is not None
        one.stdin.write("go\n")
        one.stdin.flush()
    for one in crowd:
        output, _ = one.communicate(timeout=DEADLINE_SECONDS)
        assert one.returncode == 0, output
    names = {file.stem for file in files}
    site.until(lambda: {row.life.phase for row in site.state().runs.values()} == {"Completed"})
    kill(driver)
    site.finish()
    site.judge(dict.fromkeys(names, "Completed"))
    assert set(site.started()) == {f"{name}-a1-0" for name in names}


def written(folder: Path, site: Site, name: str) -> Path:
    file = folder / f"{name}.json"
    file.write_bytes(msgspec.json.encode(to_wire(site.run(name, 4, "sleep 0.1"))))
    return file


CLIENTS = """
import os, signal, sys
import msgspec
from tenure.api.run import Run
from tenure.embedded.fleet import Fleet
from tenure.ledger import Ledger

def client(run, last_point):
    def hook(point):
        if point == last_point:
            os.kill(os.getpid(), signal.SIGKILL)
    fleet = Fleet(Ledger.open(sys.argv[1], busy_timeout=30, hook=hook))
    assert fleet.driven
    assert fleet.apply([run]) == []
    os._exit(0)

for line in sys.stdin:
    point, _, body = line.partition(" ")
    for last_point in (point, "none"):
        pid = os.fork()
        if not pid:
            client(msgspec.json.decode(body, type=Run), last_point)
        print(point, os.waitpid(pid, 0)[1], flush=True)
"""


def test_clients_killed_at_every_point_of_their_write_leave_the_driver_alone(site: Site) -> None:
    """Whoever was killed asks again, and whether or not the first try had counted, the run runs once."""
    driver = site.up()
    site.until(lambda: is_driven(site.path))
    runs = {point: site.run(f"at-{point}", 2, "sleep 0.05") for point in WRITE_POINTS}
    lines = [f"{point} {msgspec.json.encode(run).decode()}\n" for point, run in runs.items()]
    done = subprocess.run(
        [sys.executable, "-c", CLIENTS, str(site.path)],
        input="".join(lines),
        capture_output=True,
        text=True,
        timeout=DEADLINE_SECONDS,
        check=False,
    )
    deaths = [f"{point} {status}" for point in WRITE_POINTS for status in (int(signal.SIGKILL), 0)]
    assert done.stdout.splitlines() == deaths, done.stderr
    site.until(lambda: {row.life.phase for row in site.state().runs.values()} == {"Completed"})
    assert driver.poll() is None
    kill(driver)
    site.judge({f"at-{point}": "Completed" for point in WRITE_POINTS})
    assert set(site.started()) == {f"at-{point}-a1-0" for point in WRITE_POINTS}
