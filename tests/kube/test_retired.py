"""What is over leaves the API server for good, and stays in the books."""

from collections.abc import Callable
from pathlib import Path

import pytest

from tenure.kube.client import Client
from tenure.kube.config import Access, from_kubeconfig
from tenure.kube.loop import IO
from tenure.kube.operator import Options, clock
from tenure.kube.retention import retire
from tenure.kube.store import KubeStore
from tenure.testing.kube import ControlPlane, Kwok, gpu_node, until
from tenure.units import SECOND
from tests.kube.operating import FLEET, installed, operating
from tests.kube.worlds import FLAVOR, World, budget

HOLD = 0.05


def states(world: World) -> dict[str, str]:
    """The Reservation objects that are there: whose, and in which state."""
    found = world.items("reservations")
    return {one["spec"]["runRef"]["name"]: (one.get("status") or {}).get("state", "") for one in found}


@pytest.fixture
def cluster(new_plane: Callable[[], ControlPlane], programs: dict[str, Path], tmp_path: Path) -> ControlPlane:
    plane = new_plane()
    installed(plane, guarded=True)
    plane.api.create(budget()).must()
    labels = {"region": "us-west", "cluster": "gpu-a", "fabric.domain": "A", "gpu.flavor": FLAVOR}
    plane.api.create(gpu_node("n0", 8, labels)).must()
    with Kwok.started(programs["kwok"], plane.admin, tmp_path):
        yield plane


def test_reservations_that_are_over_go_with_the_archive_and_are_not_made_again(
    cluster: ControlPlane, tmp_path: Path, io: IO, connect: Callable[[Access], Client]
) -> None:
    world, folder = World.made(cluster, "lab"), tmp_path / "journal"
    config = cluster.service_account("tenure-system", "tenure-operator")
    with operating(config, folder, Options(hold=HOLD)):
        world.submit("first", 8)
        world.is_phase("first", "Running")
        world.submit("kept", 8, runtime={"expectedDuration": "1h"})
        until(lambda: states(world) == {"kept": "Pending"})
        world.submit("canceled", 8, runtime={"expectedDuration": "1h"})
        until(lambda: "canceled" in states(world))
        world.delete("runs", "canceled")
        until(lambda: states(world).get("canceled") == "Canceled")
        world.note(world.pods("first")[0]["metadata"]["name"], exit_code="0")
        world.is_phase("kept", "Running")
        until(lambda: states(world).get("kept") == "Released")
        world.submit("waiting", 8, runtime={"expectedDuration": "1h"})
        until(lambda: "waiting" in states(world))
        before = clock()
        world.submit("also-waiting", 8, runtime={"expectedDuration": "1h"})
        until(lambda: "also-waiting" in states(world))
    standing = {"waiting", "also-waiting"}
    assert states(world).keys() == {"kept", "canceled", *standing}

    client = connect(from_kubeconfig(config))
    archive = tmp_path / "archive"
    with KubeStore.open(io, client, folder / "journal.db", fleet=FLEET, archive=archive) as store:
        assert retire(store, before=world_began(store)).reservations == 0, "none was over by then"
        assert retire(store, before=before).reservations == 2
        assert states(world).keys() == standing
        assert retire(store, before=before).reservations == 0
        told = {row.reservation.run: row.reservation.state for row in store.ledger.reservations()}
        assert told.keys() == {"kept", "canceled", *standing}
        assert (told["kept"], told["canceled"]) == ("Released", "Canceled")

    for run, options in (("waiting", Options(hold=HOLD, keep=SECOND)), ("also-waiting", Options(hold=HOLD))):
        with operating(config, folder, options) as running:
            world.delete("runs", run)
            until(lambda run=run: states(world).get(run) == "Canceled")  # type: ignore[misc]  # a default
            running.settled()
    assert states(world) == dict.fromkeys(("waiting", "also-waiting"), "Canceled")


def world_began(store: KubeStore) -> int:
    """When the first reservation was made."""
    return min(row.reservation.made for row in store.ledger.reservations())
