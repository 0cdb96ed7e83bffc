"""What a driver of an embedded fleet does when nothing goes wrong, or not much: ``tenure up``."""

from __future__ import annotations

import subprocess
from collections.abc import Iterator
from itertools import count, pairwise
from pathlib import Path

import pytest
from msgspec.structs import replace

from tenure.api.core import Node
from tenure.api.policy import Policy
from tenure.embedded import daemon as daemons
from tenure.embedded import fleet as fleets
from tenure.embedded.bell import Bell
from tenure.embedded.daemon import Daemon
from tenure.embedded.driver import DriverBusy, DriverLock, is_driven
from tenure.embedded.fleet import Fleet
from tenure.embedded.route import EXECUTOR_ANNOTATION, SIMULATED
from tenure.facts import Entry
from tenure.ledger import Ledger
from tenure.testing import budget, node, run
from tenure.units import HOUR, SECOND, Instant, parse_time
from tests.embedded.crash_support import audit
from tests.embedded.drivers import DEADLINE_SECONDS, TENURE, Site, interrupt, is_running, kill, pids, until_there

REFUSED = 6


@pytest.fixture
def site(tmp_path: Path) -> Iterator[Site]:
    site = Site(tmp_path / "site")
    yield site
    site.close()


# --- one driver ---------------------------------------------------------------------------------------------------


def test_two_drivers_refuse_each_other(site: Site) -> None:
    first = site.up()
    site.until(lambda: is_driven(site.path))
    command = [*TENURE, "up", str(site.path)]
    second = subprocess.run(command, capture_output=True, text=True, timeout=DEADLINE_SECONDS, check=False)
    assert second.returncode == REFUSED
    assert str(first.pid) in second.stderr, "it says who drives"
    assert first.poll() is None
    kill(first)
    assert not is_driven(site.path), "a lock does not outlive its holder"
    site.finish()


def test_a_driver_in_the_same_process_is_refused_too(tmp_path: Path) -> None:
    path = tmp_path / "fleet.db"
    assert not is_driven(path)
    with DriverLock(path):
        assert is_driven(path)
        with pytest.raises(DriverBusy):
            Daemon(path).run()
    assert not is_driven(path)


def test_whoever_writes_decides_only_while_somebody_drives(site: Site) -> None:
    site.submit(site.run("early", 4, "true"))
    assert site.phase("early") == "Pending", "nobody would run it"
    with DriverLock(site.path):
        site.submit(site.run("late", 4, "true"))
        assert (site.phase("early"), site.phase("late")) == ("Starting", "Starting")
    site.finish()
    site.judge({"early": "Completed", "late": "Completed"})


# --- its end ------------------------------------------------------------------------------------------------------


def test_ctrl_c_stops_driving_and_leaves_the_work_running(site: Site, tmp_path: Path) -> None:
    trace, over = tmp_path / "pids", tmp_path / "over"
    site.submit(site.run("train", 8, f"echo $$$$ >> {trace}; {until_there(over)}"))
    driver = site.up()
    [pid] = pids(trace, 1)
    site.until(lambda: site.phase("train") == "Running")
    assert interrupt(driver) == 0, site.said()
    assert is_running(pid)
    assert "takes over again" in site.said()
    assert [row.end for row in site.leases()] == [None]
    over.touch()
    site.finish()
    assert pids(trace, 1) == [pid]
    site.judge({"train": "Completed"})


def test_until_idle_ends_when_nothing_is_left_that_could_start_by_itself(site: Site) -> None:
    site.submit(
        site.run("train", 8, "sleep 0.2"),
        site.run("flaky", 4, '[ "$TENURE_ATTEMPT" -gt 2 ]', restarts=2),
        site.run("impossible", 400, "true"),
    )
    site.finish()
    site.judge({"train": "Completed", "flaky": "Completed", "impossible": "Pending"})
    assert "idle: nothing runs, 1 run waiting" in site.said()


def test_a_fleet_without_work_is_idle_at_once(site: Site) -> None:
    site.finish()  # publishes the fleet's custodian
    before = site.state().now
    site.finish()
    assert site.state().now == before, "and nothing is written about it"


# --- clocks -------------------------------------------------------------------------------------------------------


def simulated(item: Node) -> Node:
    return replace(item, metadata=replace(item.metadata, annotations={EXECUTOR_ANNOTATION: SIMULATED}))


def test_a_simulated_machine_that_was_cordoned_and_let_in_again_still_runs_nothing(tmp_path: Path) -> None:
    path, proof = tmp_path / "fleet.db", tmp_path / "ran"
    template = {"spec": {"containers": [{"name": "main", "command": ["touch", str(proof)]}]}}
    with Fleet.create(path, nodes=[simulated(node("a"))], policy=Policy()) as fleet:
        assert fleet.apply([node("a", cordoned=True)]) == []
        assert fleet.apply([node("a"), budget("lab")]) == []
        assert fleet.apply([run("r", 8, owner="org:lab", lasts="1s", template=template)]) == []
    Daemon(path).run(until_idle=True)
    with Fleet.open(path) as fleet:
        assert [row.life.phase for row in fleet.state().runs.values()] == ["Completed"]
    assert not proof.exists()


@pytest.fixture
def wobbly(monkeypatch: pytest.MonkeyPatch) -> list[Instant]:
    """A clock that is set back by an hour at every seventh look, and makes up for it in the next: what it said."""
    start, looks, said = parse_time("2026-01-01T12:00:00Z"), count(), list[Instant]()

    def clock() -> Instant:
        look = next(looks)
        said.append(start + look * SECOND - (HOUR if look % 7 == 6 else 0))
        return said[-1]

    monkeypatch.setattr(daemons, "clock", clock)
    monkeypatch.setattr(fleets, "clock", clock)
    monkeypatch.setattr(Bell, "wait", lambda *_: None)
    return said


def test_a_clock_that_is_set_back_never_breaks_the_ledger(tmp_path: Path, wobbly: list[Instant]) -> None:
    path, entries = tmp_path / "fleet.db", list[Entry]()
    policy = Policy(bind_delay="3s", stop_delay="2s", retry_backoff="2s")
    with Fleet.create(path, nodes=[simulated(node("a")), simulated(node("b"))], policy=policy) as fleet:
        assert fleet.apply([budget("lab"), *(run(f"r{i}", 8, owner="org:lab", lasts="30s") for i in range(5))]) == []
    Daemon(path, watch=entries.append).run(until_idle=True)
    with Fleet.open(path) as fleet:
        assert {row.life.phase for row in fleet.state().runs.values()} == {"Completed"}
    with Ledger.open(path) as ledger:
        assert audit(ledger, now=wobbly[-1]) == []
        times = [entry.at for entry in ledger.entries()]
    assert any(later < earlier for earlier, later in pairwise(wobbly)), "it was set back"
    assert times == sorted(times)
    assert len(entries) >= 6, "each run was bound, and made room when it was over"


def test_a_clock_that_was_wrong_by_hours_when_the_last_driver_died_does_not_stop_the_next(
    site: Site, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The ledger's time stands still until the clock has caught up; what runs is seen, and nothing is refused."""
    with monkeypatch.context() as patch:
        ahead = fleets.clock() + 5 * HOUR
        patch.setattr(fleets, "clock", lambda: ahead)
        site.submit(site.run("train", 8, "exit 0"))
    assert site.state().now == ahead
    site.finish()
    site.judge({"train": "Completed"})
    assert site.state().now >= ahead
