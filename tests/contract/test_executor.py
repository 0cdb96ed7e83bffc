"""One suite for every executor: the rules of ``tenure.shell.executor``, whatever a pod is made of.

Executors that keep the work in mind (``Attentive``) pass it twice: handed everything each time, and told only what
changed. Pods of a cluster pass it in tests/kube, where there is an API server.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, Literal

import pytest
from msgspec.structs import replace

from tenure.embedded.process import ProcessExecutor
from tenure.facts import PodPhase
from tenure.shell.executor import Attentive, Executor, PodReport, PodWork
from tenure.shell.simulated import SimulatedExecutor
from tests.embedded.pods import clock, container, manifest, pod

Work = Literal["endless", "succeeds", "fails"]
SCRIPTS: dict[Work, str] = {"endless": "sleep 60", "succeeds": "exit 0", "fails": "exit 3"}
DEADLINE_SECONDS = 120


class Rig:
    """Pods as an engine keeps them, and the executor that is asked about them."""

    namespace = "rai"
    node = "a-00"

    def __init__(self, make: Callable[[], Executor], *, told: bool = False) -> None:
        """``told``: the executor is told what changed, and is handed everything only at the beginning."""
        self.make, self.told = make, told
        self.executor = make()
        self.work: dict[str, PodWork] = {}
        self.reports: list[PodReport] = []
        self._handed: dict[str, PodWork] | None = None

    def place(self, name: str, work: Work) -> None:
        made = pod(name, run=work, namespace=self.namespace, node=self.node)
        self.work[name] = PodWork(pod=made, known="Placed", since=clock(), manifest=self.manifest(work))

    def manifest(self, work: Work) -> dict[str, Any]:
        return manifest(container(SCRIPTS[work]), grace=1)

    def stop(self, name: str) -> None:
        self.work[name] = replace(self.work[name], stop=True, since=clock())

    def ask(self) -> list[PodReport]:
        """What is so, without taking note of it."""
        before, self._handed = self._handed, dict(self.work)
        if before is None or not self.told:
            return self.executor.reconcile(list(self.work.values()), now=clock())
        assert isinstance(self.executor, Attentive)
        changed = [item for name, item in self.work.items() if before.get(name) != item]
        dropped = [item.pod.key for name, item in before.items() if name not in self.work]
        return self.executor.revise(changed, dropped=dropped, now=clock())

    def step(self) -> list[PodReport]:
        reports = self.ask()
        for report in reports:
            name = report.key.partition("/")[2]
            if report.phase == "Gone":
                del self.work[name]
            else:
                self.work[name] = replace(self.work[name], known=report.phase, since=report.at)
        self.reports += reports
        return reports

    def until(self, name: str, phase: PodPhase) -> PodReport:
        end = time.monotonic() + DEADLINE_SECONDS
        while time.monotonic() < end:
            for report in self.step():
                if (report.key, report.phase) == (f"{self.namespace}/{name}", phase):
                    return report
            self.pause()
        raise AssertionError(f"{name} was never {phase}; reported: {self.reports}")

    def pause(self) -> None:
        """Wait until there may be something to ask for; who is told of ends (``descriptor``) need not know when."""
        wake = self.executor.next_wake()
        time.sleep(min(0.2, max(0, (wake or clock() + 10_000) - clock()) / 1e6))

    def phases(self, name: str) -> list[str]:
        return [report.phase for report in self.reports if report.key == f"{self.namespace}/{name}"]

    def forget(self) -> None:
        """The executor's process dies, and another one takes over."""
        self.executor, self._handed = self.make(), None

    def close(self) -> None:
        for name in list(self.work):
            self.stop(name)
        while self.work:
            self.until(next(iter(self.work)), "Gone")


class SimulatedRig(Rig):
    """Simulated work ends because a scenario says so; real work ends by itself."""

    executor: SimulatedExecutor

    def ask(self) -> list[PodReport]:
        reports = super().ask()
        ended = [
            *self.executor.finish(f"{self.namespace}/succeeds", "succeed", now=0),
            *self.executor.finish(f"{self.namespace}/fails", "fail", now=0, code=3),
        ]
        return super().ask() if ended else reports


@pytest.fixture(params=["simulated", "simulated, told", "process", "process, told"])
def rig(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Rig]:
    told = request.param.endswith("told")
    if request.param.startswith("process"):
        rig = Rig(lambda: ProcessExecutor(tmp_path), told=told)
    else:
        rig = SimulatedRig(SimulatedExecutor, told=told)
    yield rig
    rig.close()


def test_a_pod_that_is_placed_is_started_and_reported_bound(rig: Rig) -> None:
    rig.place("a", "endless")
    rig.until("a", "Bound")
    assert rig.phases("a") == ["Bound"]


def test_what_was_reported_and_noted_is_not_reported_again(rig: Rig) -> None:
    rig.place("a", "endless")
    rig.until("a", "Bound")
    assert rig.ask() == []


def test_what_was_reported_and_lost_is_reported_again(rig: Rig) -> None:
    """The answer may be lost on its way: the same reality gives the same answer."""
    rig.place("a", "endless")
    rig.until("a", "Bound")
    rig.work["a"] = replace(rig.work["a"], known="Placed")
    assert [(report.key, report.phase) for report in rig.step()] == [(f"{rig.namespace}/a", "Bound")]


@pytest.mark.parametrize(("work", "phase", "code"), [("succeeds", "Succeeded", 0), ("fails", "Failed", 3)])
def test_an_end_is_reported_after_bound_with_its_exit_code(rig: Rig, work: Work, phase: PodPhase, code: int) -> None:
    rig.place("a", work)
    report = rig.until("a", phase)
    assert rig.phases("a") == ["Bound", phase]
    assert report.code == code


def test_reports_are_of_the_past(rig: Rig) -> None:
    rig.place("a", "succeeds")
    rig.until("a", "Succeeded")
    assert all(report.at <= clock() for report in rig.reports)
    assert [report.at for report in rig.reports] == sorted(report.at for report in rig.reports)


def test_a_pod_that_is_asked_to_stop_is_gone(rig: Rig) -> None:
    rig.place("a", "endless")
    rig.until("a", "Bound")
    rig.stop("a")
    rig.until("a", "Gone")
    assert rig.phases("a") == ["Bound", "Gone"]


@pytest.mark.parametrize("work", ["succeeds", "fails"])
def test_a_pod_that_has_ended_is_gone_when_it_is_asked_to_stop(rig: Rig, work: Work) -> None:
    rig.place("a", work)
    rig.until("a", "Succeeded" if work == "succeeds" else "Failed")
    rig.stop("a")
    rig.until("a", "Gone")


def test_a_pod_that_was_asked_to_stop_before_it_started_never_starts(rig: Rig) -> None:
    rig.place("a", "endless")
    rig.stop("a")
    rig.until("a", "Gone")
    assert rig.phases("a") == ["Gone"]


def test_another_executor_gives_the_same_answers_and_starts_nothing_twice(rig: Rig) -> None:
    rig.place("a", "endless")
    rig.until("a", "Bound")
    rig.forget()
    assert rig.step() == []
    rig.work["a"] = replace(rig.work["a"], known="Placed")
    rig.until("a", "Bound")
    rig.stop("a")
    rig.forget()
    rig.until("a", "Gone")


def test_pods_do_not_hold_up_one_another(rig: Rig) -> None:
    rig.place("a", "endless")
    rig.place("b", "fails")
    rig.place("c", "succeeds")
    for name, phase in (("b", "Failed"), ("c", "Succeeded"), ("a", "Bound")):
        if phase not in rig.phases(name):
            rig.until(name, phase)  # type: ignore[arg-type]  # a PodPhase
    assert rig.phases("a") == ["Bound"]


def test_without_pods_there_is_nothing_to_wake_for(rig: Rig) -> None:
    assert rig.ask() == []
    assert rig.executor.next_wake() is None
