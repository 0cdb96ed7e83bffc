"""Pods whose supervisors are known to live are left alone until the kernel says that one has ended."""

from __future__ import annotations

import os
import resource
import select
import signal
from collections.abc import Iterator
from pathlib import Path

import pytest
from msgspec.structs import replace

from tenure.embedded.folder import PodFolder, Reality
from tenure.embedded.process import POLL_ALL, ProcessExecutor
from tenure.shell.executor import PodReport
from tests.embedded.pods import DEADLINE_SECONDS, World, clock, wait_for


class Told(World):
    """A world whose executor is told only what changed."""

    executor: ProcessExecutor

    def settle(self) -> None:
        """Hand everything over, and pass the time until all pods are left alone."""
        for name in self.work:
            self.until(name, "Bound")
        assert self.step() == []
        self.until_quiet()

    def until_quiet(self) -> None:
        while (wake := self.executor.next_wake()) is None or wake - clock() < POLL_ALL // 2:
            assert self.revise() == []

    def revise(self, *names: str, dropped: tuple[str, ...] = ()) -> list[PodReport]:
        keys = [f"rai/{name}" for name in dropped]
        return self.executor.revise([self.work[name] for name in names], dropped=keys, now=clock())

    def hears(self, seconds: float) -> bool:
        return bool(select.select([self.executor.descriptor()], [], [], seconds)[0])


@pytest.fixture
def world(tmp_path: Path) -> Iterator[Told]:
    executor = ProcessExecutor(tmp_path / "pods")
    world = Told(tmp_path / "pods", executor)
    yield world
    world.close()
    executor.close()


@pytest.fixture
def looked(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The pods that were looked at."""
    names: list[str] = []
    look = PodFolder.look

    def noting(folder: PodFolder) -> Reality:
        names.append(folder.path.name)
        return look(folder)

    monkeypatch.setattr(PodFolder, "look", noting)
    return names


def test_only_the_pod_whose_supervisor_ended_is_looked_at(world: Told, looked: list[str], tmp_path: Path) -> None:
    go = tmp_path / "go"
    os.mkfifo(go)
    world.run("ends", f"read line < {go}; exit 3")
    for name in ("a", "b"):
        world.run(name, "exec sleep 300")
    world.settle()
    looked.clear()
    assert world.revise() == []
    assert looked == []
    assert not world.hears(0)
    go.write_text("now\n")
    assert world.hears(DEADLINE_SECONDS), "nobody has to ask whether it ended"
    [report] = world.revise()
    assert (report.key, report.phase, report.code) == ("rai/ends", "Failed", 3)
    assert looked == ["ends"]
    assert world.revise() == [report], "it is said again until the engine has recorded it"
    world.work["ends"] = replace(world.work["ends"], known="Failed", since=report.at)
    assert world.revise("ends") == []
    assert not world.hears(0)


def test_a_supervisor_that_is_killed_is_heard_of_too(world: Told) -> None:
    world.run("p", "exec sleep 300")
    world.settle()
    supervisor = world.folder("p").state().shim
    assert supervisor is not None
    os.kill(supervisor.pid, signal.SIGKILL)
    assert world.hears(DEADLINE_SECONDS)
    while not (reports := world.revise()):  # what is left of it is killed first
        pass
    assert [report.phase for report in reports] == ["Failed"]
    assert reports[0].message.startswith("lost: ")
    world.work["p"] = replace(world.work["p"], known="Failed")


def test_a_pod_that_is_asked_to_stop_is_looked_at_until_it_is_gone(world: Told) -> None:
    world.run("p", "exec sleep 300")
    world.settle()
    world.stop("p")
    reports = world.revise("p")
    while not reports:
        reports = world.revise()
    assert [report.phase for report in reports] == ["Gone"]
    del world.work["p"]
    assert world.revise(dropped=("p",)) == []
    assert world.executor.next_wake() is None
    assert not world.hears(0)


def test_a_pod_that_is_dropped_while_it_is_left_alone_is_ended(world: Told) -> None:
    world.run("p", "trap 'echo goodbye; exit 0' TERM; echo ready; while :; do sleep 0.01; done")
    world.settle()
    wait_for(world.folder("p").path / "main.log")
    del world.work["p"]
    world.revise(dropped=("p",))
    while world.executor.next_wake() is not None:
        world.revise()
    assert world.log("p").splitlines()[-1] == "goodbye"


def test_the_next_driver_leaves_alone_what_its_predecessor_started(world: Told, looked: list[str]) -> None:
    world.run("p", "exec sleep 300")
    world.settle()
    world.executor.close()
    world.executor = ProcessExecutor(world.root)
    assert world.step() == []
    world.until_quiet()
    looked.clear()
    assert world.revise() == []
    assert looked == []
    world.executor.close()


def test_every_few_seconds_all_are_looked_at(world: Told, looked: list[str]) -> None:
    world.run("p", "exec sleep 300")
    world.settle()
    looked.clear()
    world.executor.revise([], dropped=[], now=clock() + POLL_ALL)
    assert looked == ["p"]


def test_where_descriptors_are_few_pods_are_looked_at_as_before(
    world: Told, looked: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(resource, "getrlimit", lambda _: (2, 2))
    world.run("a", "exec sleep 300")
    world.run("b", "exec sleep 300")
    for name in ("a", "b"):
        world.until(name, "Bound")
    assert world.step() == []
    for _ in range(3):
        world.revise()
    looked.clear()
    assert world.revise() == []
    assert len(looked) == 1, "one of two has the only descriptor"
