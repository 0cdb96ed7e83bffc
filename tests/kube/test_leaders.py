"""Operators that lead, lead no longer, and lead again: who does not lead writes nothing, and repeats nothing later."""

from __future__ import annotations

import itertools
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from threading import Event

import pytest

from tenure.facts import Entry
from tenure.kube.operator import Options
from tenure.testing.kube import ControlPlane, Kwok, gpu_node, until
from tenure.testing.kube.proxy import FaultProxy
from tenure.units import SECOND
from tests.kube.operating import Running, installed
from tests.kube.worlds import FLAVOR, World, budget

KEEP = SECOND
_NUMBERS = itertools.count()


@pytest.fixture(scope="module")
def cluster(programs: dict[str, Path], tmp_path_factory: pytest.TempPathFactory) -> Iterator[ControlPlane]:
    folder = tmp_path_factory.mktemp("leaders")
    with ControlPlane.started(folder, programs) as plane, Kwok.started(programs["kwok"], plane.admin, folder):
        installed(plane)
        plane.api.create(budget()).must()
        labels = {"region": "us-west", "cluster": "gpu-a", "fabric.domain": "A", "gpu.flavor": FLAVOR}
        plane.api.create_all([gpu_node(f"n{index}", 8, labels) for index in range(6)])
        yield plane


@pytest.fixture
def world(cluster: ControlPlane) -> World:
    return World.made(cluster, f"leaders-{next(_NUMBERS)}")


class Candidate:
    """An operator that leads when it is told to, and what it followed."""

    def __init__(self, config: Path, folder: Path, options: Options) -> None:
        self.leads, self.followed = Event(), list[Entry]()
        self.running = Running(config, folder, options, leading=self.leads.is_set)
        self.operator = self.running.operator
        self.operator.watch = self.followed.append
        until(lambda: self.operator.begun and self.operator._stood_by)

    def lead(self) -> None:
        self.leads.set()
        until(lambda: not self.operator._stood_by and self.operator.ready)

    def rest(self) -> None:
        self.leads.clear()
        until(lambda: self.operator._stood_by)


@pytest.fixture
def stand(tmp_path: Path) -> Iterator[Callable[..., Candidate]]:
    """Makes operators that do not lead yet, and stops them."""
    made: list[Candidate] = []

    def standing(config: Path, name: str, **options: object) -> Candidate:
        made.append(one := Candidate(config, tmp_path / name, Options(**options)))  # type: ignore[arg-type]  # by name
        return one

    yield standing
    for one in made:
        one.running.stop()


@pytest.fixture
def proxy(cluster: ControlPlane) -> Iterator[FaultProxy]:
    with FaultProxy.started(cluster.admin) as proxy:
        yield proxy


def test_regression_who_leads_no_longer_makes_no_pods(
    world: World, stand: Callable[..., Candidate], proxy: FaultProxy, tmp_path: Path
) -> None:
    """One that could not be made was tried again by whoever had led once, on GPUs that may be somebody else's by then.
    If the same operator leads again, it makes what is still wanted."""
    one = stand(proxy.write_kubeconfig(tmp_path / "config"), "one", hold=0.05)
    one.lead()
    refused = proxy.fail("error", method="POST", path="/pods", times=10_000)
    world.submit("train", 8)
    until(lambda: refused.hits > 2)
    one.rest()
    until(lambda: one.operator.desk.idle)
    proxy.heal()
    time.sleep(2.0)
    assert world.pods("train") == []
    one.lead()
    world.is_phase("train", "Running")


def test_regression_who_stops_and_leads_no_longer_writes_no_statuses(
    world: World, cluster: ControlPlane, stand: Callable[..., Candidate]
) -> None:
    """What it still held back when it led would be put in the place of what others have written since."""
    one = stand(cluster.admin, "one", hold=1000.0)
    one.lead()
    world.submit("train", 8, notes={"testing.tenure/hold": ""})
    until(lambda: world.pods("train"))
    until(lambda: one.operator.desk.idle)
    one.rest()
    before = world.run("train").get("status")
    assert (before or {}).get("phase") != "Starting", "that is held back"
    one.running.operator.stop()
    until(lambda: not one.running._thread.is_alive())
    assert world.run("train").get("status") == before


def test_regression_who_leads_again_does_not_follow_what_others_have_followed(
    world: World, cluster: ControlPlane, stand: Callable[..., Candidate]
) -> None:
    """It made closed leases again that had left the API server by then, each before any pod was made or deleted."""
    one, two = (stand(cluster.admin, name, hold=0.05, keep=KEEP) for name in ("one", "two"))
    one.lead()
    world.submit("first", 8)
    world.is_phase("first", "Running")
    one.rest()
    two.lead()
    world.submit("second", 8)
    world.is_phase("second", "Running")
    world.delete("runs", "second")
    until(lambda: world.closures("second") and world.phase("second") == "Gone")
    two.running.settled()
    for lease in world.leases("second"):
        world.delete("leases", lease["metadata"]["name"])  # as retention does
    time.sleep(KEEP / SECOND + 0.5)
    two.rest()
    led, seen = two.operator.home.seq, len(one.followed)
    one.lead()
    world.submit("third", 8)
    world.is_phase("third", "Running")
    one.running.settled()
    assert world.leases("second") == []
    assert one.followed[seen].seq > led
    assert len(world.open_leases()) == len(world.pods()) == 2
