"""`tenure operator` as people run it: processes that are started, stopped, killed, and held still."""

import os
import signal
import subprocess
import sys
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from tenure.testing.kube import ControlPlane, Kwok, gpu_node, until
from tenure.testing.kube.process import free_ports
from tenure.testing.kube.waiting import PATIENCE
from tests.kube.operating import installed
from tests.kube.worlds import FLAVOR, World, budget

PROGRAM = "from tenure.cli.main import tenure; import sys; sys.exit(tenure())"


@pytest.fixture(scope="module")
def cluster(programs: dict[str, Path], tmp_path_factory: pytest.TempPathFactory) -> Iterator[ControlPlane]:
    folder = tmp_path_factory.mktemp("process")
    with ControlPlane.started(folder, programs) as plane, Kwok.started(programs["kwok"], plane.admin, folder):
        installed(plane, guarded=True)
        plane.api.create(budget()).must()
        yield plane


@pytest.fixture
def world(cluster: ControlPlane, request: pytest.FixtureRequest) -> World:
    world = World.made(cluster, f"p{abs(hash(request.node.name)) % 10**6}")
    labels = {"region": "us-west", "cluster": "gpu-a", "fabric.domain": world.namespace, "gpu.flavor": FLAVOR}
    world.api.create_all([gpu_node(f"{world.namespace}-n{index}", 8, labels) for index in range(4)])
    return world


@contextmanager
def process(plane: ControlPlane, folder: Path, *flags: str) -> Iterator[subprocess.Popen[bytes]]:
    config = plane.service_account("tenure-system", "tenure-operator")
    command = ["operator", "--kubeconfig", str(config), "--journal", str(folder / "journal"), *flags]
    folder.mkdir(parents=True, exist_ok=True)
    with (folder / "log").open("ab") as log:
        child = subprocess.Popen(
            [sys.executable, "-c", PROGRAM, *command], stdin=subprocess.DEVNULL, stdout=log, stderr=log, env=os.environ
        )
        try:
            yield child
        finally:
            child.send_signal(signal.SIGCONT)
            child.kill()
            child.wait(PATIENCE)


def asked(port: int, path: str) -> int:
    try:
        with urllib.request.urlopen(f"http://127.0.0.1:{port}{path}", timeout=5) as answer:
            return int(answer.status)
    except urllib.error.HTTPError as error:
        return error.code
    except OSError:
        return 0


def here(world: World) -> dict[str, object]:
    return {"locality": {"selector": {"fabric.domain": world.namespace}}}


def test_it_says_when_it_lives_and_is_ready_and_stops_when_asked(world: World, tmp_path: Path) -> None:
    (port,) = free_ports(1)
    with process(world.plane, tmp_path, "--probes", f"127.0.0.1:{port}") as child:
        until(lambda: asked(port, "/readyz") == 200)
        assert (asked(port, "/startz"), asked(port, "/livez")) == (200, 200)
        world.submit("train", 8, **here(world))
        world.is_phase("train", "Running")
        child.send_signal(signal.SIGTERM)
        assert child.wait(PATIENCE) == 0
    log = (tmp_path / "log").read_text()
    assert "Run/" in log
    assert "Admitted" in log
    assert "stopped" in log
    assert world.phase("train") == "Running"


def test_one_that_was_killed_is_followed_by_the_next(world: World, tmp_path: Path) -> None:
    with process(world.plane, tmp_path) as child:
        world.submit("train", 8, **here(world))
        until(lambda: world.leases("train"))
        child.kill()
    with process(world.plane, tmp_path):
        world.is_phase("train", "Running")
        assert len(world.pods("train")) == len(world.open_leases("train")) == 1


def test_two_with_an_election_and_the_leader_is_held_still(world: World, tmp_path: Path) -> None:
    with process(world.plane, tmp_path / "a", "--elect") as one, process(world.plane, tmp_path / "b", "--elect") as two:
        world.submit("first", 8, **here(world))
        world.is_phase("first", "Running")
        leader = one if "leading" in (tmp_path / "a" / "log").read_text() else two
        leader.send_signal(signal.SIGSTOP)
        world.submit("second", 8, **here(world))
        world.is_phase("second", "Running")
        leader.send_signal(signal.SIGCONT)
        world.submit("third", 8, **here(world))
        world.is_phase("third", "Running")
        until(lambda: len(world.open_leases()) == 3)
        slots = [
            (lease["spec"]["slice"]["nodes"][0], gpu)
            for lease in world.open_leases()
            for gpu in lease["spec"]["slice"]["gpus"]
        ]
        assert len(slots) == len(set(slots)) == 24
        assert len(world.pods()) == 3


def test_regression_a_leader_that_is_stopped_lets_the_next_in_at_once(world: World, tmp_path: Path) -> None:
    """It closed its client first and stepped down after that, in vain: for 15 seconds nobody led."""
    record = "/apis/coordination.k8s.io/v1/namespaces/tenure-system/leases/tenure-operator"
    with process(world.plane, tmp_path, "--elect") as child:
        until(lambda: "leading" in (tmp_path / "log").read_text())
        assert world.api.get(record).must()["spec"]["holderIdentity"]
        child.send_signal(signal.SIGTERM)
        assert child.wait(PATIENCE) == 0
    assert world.api.get(record).must()["spec"]["holderIdentity"] == ""


def test_it_refuses_with_a_word_where_nothing_is_installed(programs: dict[str, Path], tmp_path: Path) -> None:
    with ControlPlane.started(tmp_path / "plane", programs) as plane:
        command = ["operator", "--kubeconfig", str(plane.admin), "--journal", str(tmp_path / "journal")]
        done = subprocess.run(
            [sys.executable, "-c", PROGRAM, *command],
            capture_output=True,
            text=True,
            timeout=PATIENCE,
            env=os.environ,
            check=False,
        )
    assert done.returncode != 0
    assert "tenure install --kube" in done.stderr
    assert "Traceback" not in done.stderr
