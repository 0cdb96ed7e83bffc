"""Metrics of two operators that take turns: together they show one fleet, and count each entry once."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from threading import Event

import pytest

from tenure.kube.metered import dealings
from tenure.kube.operator import clock
from tenure.observe import Metrics
from tenure.observe.exposition import text
from tenure.observe.meter import Meter
from tenure.testing.kube import ControlPlane, Kwok, gpu_node, until
from tests.kube.operating import Running, installed, operating
from tests.kube.worlds import FLAVOR, World, budget
from tests.observe.support import parsed, value, values


@pytest.fixture(scope="module")
def cluster(programs: dict[str, Path], tmp_path_factory: pytest.TempPathFactory) -> Iterator[ControlPlane]:
    folder = tmp_path_factory.mktemp("metrics")
    with ControlPlane.started(folder, programs) as plane, Kwok.started(programs["kwok"], plane.admin, folder):
        installed(plane)
        plane.api.create(budget()).must()
        yield plane


class Seen:
    """An operator, its metrics, and whether it leads."""

    def __init__(self, plane: ControlPlane, folder: Path) -> None:
        self.metrics, self.leads = Metrics(), Event()
        self.running = Running(plane.admin, folder, meter=Meter(self.metrics, clock), leading=self.leads.is_set)
        self.metrics.add(dealings(self.running.operator))

    def scrape(self) -> list[object]:
        self.metrics.ask(patience=20)
        return parsed(text(self.metrics))  # type: ignore[return-value]  # families, whatever they are


def test_operators_that_take_turns_count_each_entry_once(cluster: ControlPlane, tmp_path: Path) -> None:
    world = World.made(cluster, "turns")
    labels = {"region": "us-west", "cluster": "gpu-a", "fabric.domain": "turns", "gpu.flavor": FLAVOR}
    cluster.api.create_all([gpu_node(f"turns-{index}", 8, labels) for index in range(3)])
    one, two = Seen(cluster, tmp_path / "one"), Seen(cluster, tmp_path / "two")
    try:
        until(lambda: one.running.operator.begun and two.running.operator.begun)
        before = one.running.operator.home.seq
        one.leads.set()
        world.submit("first", 8)
        world.is_phase("first", "Running")
        seen, other = one.scrape(), two.scrape()
        assert value(seen, "leases_open", role="Active") == 1
        assert value(seen, "controller_leading") == value(seen, "controller_ready") == 1
        assert value(other, "controller_leading") == 0
        assert values(other, "leases_open") == values(other, "runs") == {}
        assert value(other, "ledger_entries_total") == 0
        assert value(other, "watch_objects", kind="Node") == 3
        assert value(seen, "ledger_commit_seconds_count") >= 1
        assert value(seen, "decision_seconds_sum") > 0
        one.leads.clear()
        until(lambda: not values(one.scrape(), "leases_open"))
        two.leads.set()
        world.submit("second", 8)
        world.is_phase("second", "Running")
        one.running.settled()
        two.running.settled()
        seen, other = two.scrape(), one.scrape()
        assert value(seen, "leases_open", role="Active") == 2
        assert value(seen, "run_admissions_total", result="success") == 1
        assert value(other, "run_admissions_total", result="success") == 1
        counted = value(seen, "ledger_entries_total") + value(other, "ledger_entries_total")
        assert counted == two.running.operator.home.seq - before
    finally:
        one.running.stop()
        two.running.stop()


def test_dealings_with_the_api_server_are_counted(cluster: ControlPlane, tmp_path: Path) -> None:
    with operating(cluster.admin, tmp_path) as running:
        found = {(name, labels): number for name, labels, number in dealings(running.operator)()}
        kinds = {labels[0] for name, labels in found if name == "watch_lists_total"}
        assert kinds == set(running.operator.caches)
        assert all(found["watch_lists_total", (kind,)] >= 1 for kind in kinds)
        assert found["watch_objects", ("Budget",)] == 1
        assert found["controller_leading", ()] == 1
        assert found["objects_refused", ("Run",)] == 0
        assert 0 <= found["watch_silence_seconds", ("Node",)] < 90
        world = World.made(cluster, "dealings")
        writes = found["api_writes_total", ("done",)]
        world.submit("wide", 64)
        until(lambda: running.operator.desk.done > writes)
        again = {(name, labels): number for name, labels, number in dealings(running.operator)()}
        assert again["api_writes_total", ("done",)] > writes
