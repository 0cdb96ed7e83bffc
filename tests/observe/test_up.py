"""`tenure up --metrics`: served while somebody drives, and never in the way."""

from __future__ import annotations

import json
import re
import socket
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from time import monotonic, sleep
from typing import Any
from urllib.error import URLError
from urllib.request import urlopen

import pytest

from tenure.embedded.daemon import Daemon
from tenure.embedded.fleet import clock
from tenure.facts import Entry
from tenure.observe import Metrics
from tenure.observe.exposition import text
from tenure.observe.meter import Meter
from tests.cli.support import call, create, finish, run_yaml, spawn, submit
from tests.observe.support import nonzero, parsed, value, values

SECONDS = 120


def port_of(process: subprocess.Popen[str]) -> int:
    """The port that a driver says it serves at; its first word on standard error."""
    assert process.stderr is not None
    for line in process.stderr:
        if (found := re.fullmatch(r"metrics are served at http://127\.0\.0\.1:(\d+)/metrics\n", line)) is not None:
            return int(found[1])
    raise AssertionError("it did not say where")


def completed(fleet: Path) -> bool:
    [item] = call("runs", "list", "-A", "-o", "json", fleet=fleet).json["items"]
    return bool(item["status"]["phase"] == "Completed")


def get(port: int) -> str:
    with urlopen(f"http://127.0.0.1:{port}/metrics", timeout=SECONDS) as answer:
        return str(answer.read().decode())


def over(seen: Any) -> bool:
    """The run has ended, and a driver that was not too busy to be asked says so itself."""
    return (
        nonzero(seen, "runs_ended_total") == {("completed",): 1}
        and value(seen, "leases_open", role="Active") == 0
        and value(seen, "metrics_age_seconds") < 1
        and value(seen, "watch_lag_seconds_count") == value(seen, "ledger_entries_total")
    )


@pytest.fixture
def driver() -> Iterator[Callable[..., subprocess.Popen[str]]]:
    """Drivers that end with the test, however it ends."""
    processes: list[subprocess.Popen[str]] = []

    def start(*words: str) -> subprocess.Popen[str]:
        processes.append(spawn(*words))
        return processes[-1]

    yield start
    for process in processes:
        process.kill()
        process.communicate(timeout=SECONDS)


def test_a_driver_serves_what_it_does_until_it_stops(
    tmp_path: Path, driver: Callable[..., subprocess.Popen[str]]
) -> None:
    fleet = create(tmp_path)
    notify = tmp_path / "notify.yaml"
    notify.write_text(json.dumps({"kind": "Notify", "receivers": [{"name": "log", "file": "events.jsonl"}]}))
    process = driver("tenure", "up", str(fleet), "--metrics", "0", "--notify", str(notify))
    port = port_of(process)
    deadline = monotonic() + SECONDS
    while not values(parsed(get(port)), "metrics_age_seconds"):  # what was there before it drives is not its doing
        assert monotonic() < deadline
        sleep(0.05)
    assert submit(fleet, run_yaml("a", 8, "sleep 0.2"), run_yaml("e", 64, "true")).code in (0, 3)
    while not over(seen := parsed(get(port))):
        assert monotonic() < deadline, seen
        sleep(0.05)
    assert value(seen, "run_admissions_total", result="success") == 1
    assert value(seen, "run_admissions_total", result="failure") == 1
    assert value(seen, "run_queue_depth", flavor="H100") == 1
    assert value(seen, "metrics_failures_total") == 0
    assert value(seen, "ledger_commit_seconds_count") >= 2
    assert value(seen, "decision_seconds_sum") > 0
    assert set(values(seen, "notifier_outbox_events")) == {("log",)}
    assert values(seen, "notifier_dead_letters") == {("log",): 0}
    process.terminate()
    assert finish(process).code == 0
    with pytest.raises(URLError):
        get(port)


def test_an_address_that_is_taken_is_said_and_the_fleet_is_driven_all_the_same(tmp_path: Path) -> None:
    fleet = create(tmp_path)
    assert submit(fleet, run_yaml("a", 8, "true")).code in (0, 3)
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        done = finish(spawn("tenure", "up", str(fleet), "--metrics", str(port), "--until-idle"))
    assert done.code == 0
    assert f"no metrics are served: 127.0.0.1 port {port}: address already in use" in done.err
    assert completed(fleet)


@pytest.mark.parametrize("address", ["", "here", "host:", ":70000", "a b:1", "1:2:3", "-1"])
def test_an_address_that_makes_no_sense_stops_before_anything_is_made(tmp_path: Path, address: str) -> None:
    (tmp_path / "fleet.yaml").write_text("kind: Fleet\nmetadata: {name: x}\nnodes: []\n")
    fleet = tmp_path / "new.db"
    done = call("tenure", "up", str(fleet), "--fleet", str(tmp_path / "fleet.yaml"), f"--metrics={address}")
    assert (done.code, done.out) == (2, "")
    assert "is no [HOST:]PORT" in done.err
    assert not fleet.exists()


def test_without_the_extra_it_is_said_what_to_install(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from tenure.cli.server import scraped

    monkeypatch.setattr(scraped, "find_spec", lambda name: None)
    done = call("tenure", "up", str(tmp_path / "x.db"), "--metrics", "9464")
    assert done.code == 2
    assert "pip install '.[metrics]' in a clone of Tenure" in done.err


def test_nothing_that_goes_wrong_with_metrics_stops_the_driver(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    fleet = create(tmp_path)
    assert submit(fleet, run_yaml("a", 8, "true")).code in (0, 3)
    metrics, seen = Metrics(), list[Entry]()

    def broken(*_: object, **__: object) -> None:
        raise RuntimeError("a bug")

    monkeypatch.setattr(Metrics, "saw", broken)
    monkeypatch.setattr(Metrics, "collect", broken)
    monkeypatch.setattr(Metrics, "wanted", True)
    Daemon(fleet, metered=Meter(metrics, clock), watch=seen.append).run(until_idle=True)
    assert seen
    assert value(parsed(text(metrics)), "metrics_failures_total") > len(seen)
    assert completed(fleet)


def test_entries_that_were_missed_while_the_ledger_was_away_are_counted_when_it_is_opened_again(
    tmp_path: Path,
) -> None:
    fleet = create(tmp_path)
    metered = Meter(Metrics(), clock)
    Daemon(fleet, metered=metered).run(until_idle=True)
    head = metered.metrics.head
    assert submit(fleet, run_yaml("a", 8, "true")).code in (0, 3)
    Daemon(fleet, metered=metered).run(until_idle=True)
    assert head > 0
    seen = parsed(text(metered.metrics))
    assert value(seen, "ledger_entries_total") == metered.metrics.head - head
    assert value(seen, "run_admissions_total", result="success") == 1


def test_prometheus_client_is_imported_only_where_metrics_are_served() -> None:
    modules = "tenure.cli.server.up, tenure.cli.server.scraped, tenure.embedded.metered, tenure.observe.meter"
    code = f"import sys, {modules}; print('prometheus_client' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout == "False\n"
