"""What others break is made right again, and what is wrong is said where it is wrong.

Without the admission policies: an administrator who switched them off, or a release without them, can do all of this.
"""

import itertools
import re
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tenure.api.meta import OWNER_ANNOTATION
from tenure.kube.operator import Options
from tenure.testing.kube import HOLD, ControlPlane, Kwok, gpu_node, until
from tenure.units import SECOND
from tests.kube.mortal import MortalClient
from tests.kube.operating import Running, installed, operating
from tests.kube.worlds import FLAVOR, GROUP, World, budget, run

Object = dict[str, Any]
_NUMBERS = itertools.count()


@pytest.fixture(scope="module")
def cluster(programs: dict[str, Path], tmp_path_factory: pytest.TempPathFactory) -> Iterator[ControlPlane]:
    folder = tmp_path_factory.mktemp("repair")
    with ControlPlane.started(folder, programs) as plane, Kwok.started(programs["kwok"], plane.admin, folder):
        installed(plane)
        plane.api.create(budget()).must()
        yield plane


@pytest.fixture(scope="module")
def config(cluster: ControlPlane) -> Path:
    return cluster.service_account("tenure-system", "tenure-operator")


@pytest.fixture
def running(config: Path, tmp_path: Path) -> Iterator[Running]:
    with operating(config, tmp_path / "journal") as running:
        yield running


@pytest.fixture
def world(cluster: ControlPlane) -> Iterator[World]:
    world = World.made(cluster, f"r{next(_NUMBERS)}")
    labels = {"region": "us-west", "cluster": "gpu-a", "fabric.domain": world.namespace, "gpu.flavor": FLAVOR}
    world.api.create_all([gpu_node(f"{world.namespace}-n{index}", 8, labels) for index in range(2)])
    yield world
    for index in range(2):
        world.api.delete(f"/api/v1/nodes/{world.namespace}-n{index}")
    for one in world.items("runs"):
        path = world.path("runs", one["metadata"]["name"])
        world.api.patch(path, {"metadata": {"finalizers": None}})
        world.api.delete(path)


def here(world: World) -> Object:
    return {"locality": {"selector": {"fabric.domain": world.namespace}}}


def test_a_lease_that_somebody_deleted_is_written_again(world: World, running: Running) -> None:
    world.submit("train", 8, **here(world))
    world.is_phase("train", "Running")
    running.settled()
    (lease,) = world.leases("train")
    world.delete("leases", lease["metadata"]["name"])
    until(lambda: [one["spec"] for one in world.leases("train")] == [lease["spec"]])


def test_a_status_that_somebody_changed_is_made_right(world: World, running: Running) -> None:
    world.submit("train", 8, **here(world))
    world.is_phase("train", "Running")
    running.settled()
    path = f"{world.path('runs', 'train')}/status"
    world.api.patch(path, {"status": {"phase": "Completed", "message": "all done"}}).must()
    until(lambda: world.run("train")["status"]["phase"] == "Running")
    assert world.run("train")["status"]["message"] != "all done"


def test_a_run_whose_finalizer_was_removed_by_force_still_closes_its_leases(world: World, running: Running) -> None:
    world.submit("train", 8, **here(world))
    world.is_phase("train", "Running")
    running.settled()
    world.delete("runs", "train")
    world.api.patch(world.path("runs", "train"), {"metadata": {"finalizers": None}})
    until(lambda: world.phase("train") == "Gone")
    until(lambda: world.closures("train") == ["Canceled"] and not world.open_leases("train"))
    until(lambda: not world.pods("train"))


def test_a_run_that_takes_the_name_of_another_waits_until_that_one_is_gone(world: World, running: Running) -> None:
    world.submit("train", 8, **here(world))
    first = world.is_phase("train", "Running")
    running.settled()
    world.delete("runs", "train")
    world.api.patch(world.path("runs", "train"), {"metadata": {"finalizers": None}})
    until(lambda: world.phase("train") == "Gone")
    second = world.submit("train", 8, **here(world))
    assert second["metadata"]["uid"] != first["metadata"]["uid"]
    world.is_phase("train", "Running")
    running.settled()
    attempts = [lease["metadata"]["name"] for lease in world.leases("train")]
    assert len(attempts) == len(set(attempts)) == 2
    uids = {
        lease["spec"]["runRef"]["uid"]: (lease.get("status") or {}).get("closureReason")
        for lease in world.leases("train")
    }
    assert uids == {first["metadata"]["uid"]: "Canceled", second["metadata"]["uid"]: None}


def test_what_is_wrong_is_said_in_its_own_status_and_stops_nobody(world: World, running: Running) -> None:
    world.submit("foreign", 1, **here(world), owner="org:somebody-else")
    world.submit("good", 8, **here(world))
    world.is_phase("good", "Running")
    blocked = until(lambda: world.condition("foreign", "Blocked"))
    assert (blocked["status"], blocked["reason"]) == ("True", "Invalid")
    assert "org:lab" in blocked["message"]
    until(lambda: [one for one in world.items("events") if one["reason"] == "Rejected"])
    notes = {OWNER_ANNOTATION: None}
    world.api.patch(f"/api/v1/namespaces/{world.namespace}", {"metadata": {"annotations": notes}}).must()
    until(lambda: world.condition("foreign", "Blocked").get("reason") != "Invalid")  # it is right now, and has no money


def test_a_family_that_goes_in_a_circle_is_said_in_the_budgets_status(world: World, running: Running) -> None:
    items = {}
    for name, parent in (("one", "two"), ("two", "one")):
        items[name] = budget(f"{name}-{world.namespace}")
        items[name]["spec"] |= {
            "owner": f"org:{name}-{world.namespace}",
            "parents": [f"org:{parent}-{world.namespace}"],
        }
    world.api.create(items["one"]).must()
    running.settled()
    world.api.create(items["two"]).must()
    path = f"{GROUP}/budgets/two-{world.namespace}"
    (blocked,) = until(lambda: (world.api.get(path).must().get("status") or {}).get("conditions"))
    assert (blocked["type"], blocked["status"]) == ("Blocked", "True")
    world.submit("train", 8, **here(world))
    world.is_phase("train", "Running")
    for name in items:
        world.api.delete(f"{GROUP}/budgets/{name}-{world.namespace}").must()


def test_a_bad_policy_is_told_of_and_the_old_one_stays(world: World, running: Running) -> None:
    place = {"name": "tenure-policy", "namespace": "tenure-system"}
    body = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": place, "data": {"policy.yaml": "growInterval: 7m\n"}}
    world.api.apply(body).must()
    until(lambda: running.operator.home.state.policy.grow_interval == "7m")
    world.api.apply({**body, "data": {"policy.yaml": "growInterval: never\nunknown: 1\n"}}).must()
    events = "/api/v1/namespaces/tenure-system/events"
    until(lambda: [one for one in world.api.get(events).must()["items"] if one["reason"] == "Rejected"])
    assert running.operator.home.state.policy.grow_interval == "7m"
    world.api.delete("/api/v1/namespaces/tenure-system/configmaps/tenure-policy").must()
    until(lambda: running.operator.home.state.policy.grow_interval == "1m")


def test_an_image_that_never_comes_gives_the_gpus_back(world: World, config: Path, tmp_path: Path) -> None:
    with operating(config, tmp_path / "journal", Options(start_timeout=2 * SECOND)):
        world.submit("train", 8, **here(world), notes={HOLD: ""})
        until(lambda: world.closures("train") == ["Fail"])
        assert "did not start" in world.run("train")["status"]["message"] or world.phase("train") == "Pending"


def test_the_operator_can_be_told_to_bind_nothing(world: World, config: Path, tmp_path: Path) -> None:
    with operating(config, tmp_path / "first") as first:
        world.submit("train", 8, **here(world))
        world.is_phase("train", "Running")
        first.settled()
    with operating(config, tmp_path / "second", Options(bind=False)) as second:
        world.submit("late", 8, **here(world))
        until(lambda: f"{world.namespace}/late" in second.operator.home.state.runs)
        world.note(world.pods("train")[0]["metadata"]["name"], exit_code="0")
        world.is_phase("train", "Completed")
        time.sleep(0.5)
        assert not world.pods("late")
        assert not world.leases("late")
        until(lambda: world.closures("train") == ["Completed"])
    with operating(config, tmp_path / "third"):
        world.is_phase("late", "Running")


def test_pods_may_get_their_node_by_the_binding_subresource(world: World, config: Path, tmp_path: Path) -> None:
    with operating(config, tmp_path / "journal", Options(binding=True)):
        world.submit("train", 16, **here(world))
        world.is_phase("train", "Running")
        assert {pod["spec"]["nodeName"] for pod in world.pods("train")} == {f"{world.namespace}-n{i}" for i in range(2)}
        assert {pod["spec"]["schedulerName"] for pod in world.pods("train")} == {"tenure"}


def test_two_operators_decide_nothing_twice(world: World, config: Path, tmp_path: Path) -> None:
    labels = {"region": "us-west", "cluster": "gpu-a", "fabric.domain": world.namespace, "gpu.flavor": FLAVOR}
    world.api.create_all([gpu_node(f"{world.namespace}-m{index}", 8, labels) for index in range(6)])
    with operating(config, tmp_path / "a") as one, operating(config, tmp_path / "b") as two:
        for index in range(16):
            world.submit(f"train-{index}", 4, **here(world))
        for index in range(16):
            world.is_phase(f"train-{index}", "Running")
        one.settled()
        two.settled()
        assert len(world.pods()) == len(world.open_leases()) == 16
        until(lambda: one.operator.home.seq == two.operator.home.seq == one.store.head.seq)
        slots = [
            (one["spec"]["slice"]["nodes"][0], gpu)
            for one in world.open_leases()
            for gpu in one["spec"]["slice"]["gpus"]
        ]
        assert len(slots) == len(set(slots)) == 64
        for index in range(16):
            world.delete("runs", f"train-{index}")
        until(lambda: not world.items("runs"))
        assert not world.open_leases()
    for index in range(6):
        world.api.delete(f"/api/v1/nodes/{world.namespace}-m{index}")


def test_one_operator_is_paused_while_another_goes_on(world: World, config: Path, tmp_path: Path) -> None:
    """It comes back with an old state and old wishes, loses the swap, and takes nothing away that is newer than it."""
    with operating(config, tmp_path / "a") as one, operating(config, tmp_path / "b") as two:
        world.submit("first", 8, **here(world))
        world.is_phase("first", "Running")
        until(lambda: one.operator.home.seq == two.operator.home.seq)
        turn = one.operator.turn
        one.operator.turn = lambda: time.sleep(0.05)  # type: ignore[method-assign]  # it stands still
        world.submit("second", 8, **here(world))
        world.is_phase("second", "Running")
        world.delete("runs", "first")
        world.is_phase("first", "Gone")
        seen = one.operator.home.seq
        assert seen < two.operator.home.seq
        one.operator.turn = turn  # type: ignore[method-assign]  # and goes on
        until(lambda: one.operator.home.seq == two.operator.home.seq)
        one.settled()
        assert world.phase("second") == "Running"
        assert len(world.pods("second")) == len(world.open_leases("second")) == 1
        assert not world.pods("first")
        assert not one.troubles


def _what(sent: str) -> str:
    """Of which kind was what was written."""
    path = sent.split()[1]
    return re.split(r"/v1(?:/namespaces/[^/]+)?/", path)[1].partition("/")[0]


def goes_quiet(running: Running, client: MortalClient) -> bool:
    """Whether nothing is written for a while. What a busy server tells late has to be shown yet, and then is shown."""
    before = len(client.sent)
    time.sleep(1.5)
    running.settled()
    print("written in a settled world:", *client.sent[before:], sep="\n")
    return len(client.sent) == before


def test_an_admitted_run_costs_its_pods_its_leases_and_little_more(world: World, config: Path, tmp_path: Path) -> None:
    count = 100
    labels = {"region": "us-west", "cluster": "gpu-a", "fabric.domain": world.namespace, "gpu.flavor": FLAVOR}
    world.api.create_all([gpu_node(f"{world.namespace}-m{index}", 8, labels) for index in range(count)])
    with operating(config, tmp_path / "journal", make=MortalClient) as running:
        running.settled()
        running.client.arm(10**9, "before")  # only to count
        world.api.create_all([run(f"r{index}", 8, namespace=world.namespace, **here(world)) for index in range(count)])
        for index in range(count):
            world.is_phase(f"r{index}", "Running")
        running.settled()
        until(lambda: goes_quiet(running, running.client))
        sent = Counter(_what(line) for line in running.client.sent)
        assert (sent.pop("pods"), sent.pop("leases")) == (count, count), sent
        paths = [line.split()[1] for line in running.client.sent]
        statuses = Counter(path for path in paths if "/runs/" in path and path.endswith("/status"))
        again = sum(times - 1 for times in statuses.values())  # its pods took a second or more: shown as it starts, too
        assert max(statuses.values()) <= 2, statuses
        assert sum(sent.values()) - again <= count * 3, (again, sent)
        for index in range(count):
            world.delete("runs", f"r{index}")
        until(lambda: not world.items("runs"))
    for index in range(count):
        world.api.delete(f"/api/v1/nodes/{world.namespace}-m{index}")
