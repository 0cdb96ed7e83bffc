"""Many runs of one tenant in the queue: others are let in as if nobody waited, and nothing is written for those who do.

Measured with thousands, and against the clock, by `make bench ARGS="--only kube-queue"`; here what is counted is the
work that one more run causes.
"""

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tenure.api.meta import OWNER_ANNOTATION
from tenure.kube.operator import Options
from tenure.testing.kube import ControlPlane, Kwok, gpu_nodes, until
from tests.kube.operating import Running, installed, operating
from tests.kube.worlds import World, budget, run

FLOOD = 150
PLACES = 48
"""Of the default 64: the last quarter is for owners that hold no promise."""
SHARE = 8
"""GPUs that the tenant with the many runs has money for: one run's."""


@pytest.fixture
def cluster(new_plane: Callable[[], ControlPlane], programs: dict[str, Path], tmp_path: Path) -> Iterator[ControlPlane]:
    plane = new_plane()
    installed(plane, guarded=True)
    plane.api.create_all([*gpu_nodes(8), budget("greedy", SHARE), budget("modest")])
    with Kwok.started(programs["kwok"], plane.admin, tmp_path):
        yield plane


def tenant(plane: ControlPlane, name: str) -> World:
    plane.namespace(name, **{OWNER_ANNOTATION: f"org:{name}"})
    return World(plane, name)


def submit(world: World, name: str, gpus: int) -> None:
    item = run(name, gpus, namespace=world.namespace, owner=f"org:{world.namespace}")
    item["spec"]["runtime"] = {"expectedDuration": "1h"}
    world.api.create(item).must()


def told(world: World, kind: str = "runs", field: str = "phase") -> list[str]:
    """A field of the statuses of all that have one."""
    found = ((one.get("status") or {}).get(field) for one in world.items(kind))
    return [value for value in found if value]


def let_in(world: World, name: str, running: Running) -> int:
    """Have a run let in; how many calls the operator made for it."""
    running.settled()
    before = running.client.calls
    submit(world, name, 1)
    world.is_phase(name, "Running")
    running.settled()
    return running.client.calls - before


def test_a_long_queue_of_one_tenant_holds_up_nobody_else(cluster: ControlPlane, tmp_path: Path) -> None:
    greedy, modest = tenant(cluster, "greedy"), tenant(cluster, "modest")
    config = cluster.service_account("tenure-system", "tenure-operator")
    with operating(config, tmp_path / "journal", Options(hold=0.05, watch_seconds=600)) as running:
        let_in(modest, "warm", running)
        alone = let_in(modest, "alone", running)
        for number in range(FLOOD):
            submit(greedy, f"train-{number:03d}", SHARE)
        until(lambda: len(told(greedy)) == FLOOD)
        until(lambda: len(greedy.items("reservations")) == PLACES)
        until(lambda: told(greedy, "reservations", "state") == ["Pending"] * PLACES)
        behind = let_in(modest, "behind", running)
        assert behind < alone + FLOOD // 10, "who waits is not written again because another starts"
        assert len(greedy.pods()) == 1
        assert len(greedy.items("reservations")) == PLACES, "the rest wait without one"
        assert sorted(told(greedy)) == ["Pending"] * (FLOOD - 1) + ["Running"]
        assert not running.troubles
