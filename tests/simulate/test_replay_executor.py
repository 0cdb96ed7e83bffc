"""An executor that keeps the work in mind is told what changed, and answers as if it had been told everything."""

from __future__ import annotations

import random
from collections.abc import Sequence

from msgspec.structs import replace

from tenure.engine import Apply, Delete
from tenure.facts import Pod
from tenure.shell.executor import Attentive, PodReport, PodWork
from tenure.shell.home import Home
from tenure.shell.simulated import SimulatedExecutor
from tenure.shell.store import MemoryStore
from tenure.testing.builders import START, budget, nodes, run
from tenure.units import HOUR, MINUTE, SECOND, Instant


class Listening(SimulatedExecutor):
    """Notes what it is told."""

    def __init__(self) -> None:
        super().__init__(stop_delay=MINUTE)
        self.whole: list[int] = []
        self.parts: list[tuple[int, int]] = []

    def reconcile(self, work: Sequence[PodWork], *, now: Instant) -> list[PodReport]:
        self.whole.append(len(work))
        return super().reconcile(work, now=now)

    def revise(self, changed: Sequence[PodWork], *, dropped: Sequence[str], now: Instant) -> list[PodReport]:
        self.parts.append((len(changed), len(dropped)))
        return super().revise(changed, dropped=dropped, now=now)


class Looking:
    """Simulated pods behind an executor that has to be handed everything, every time."""

    def __init__(self) -> None:
        self.pods = SimulatedExecutor(stop_delay=MINUTE)
        self.calls: list[int] = []

    def reconcile(self, work: Sequence[PodWork], *, now: Instant) -> list[PodReport]:
        self.calls.append(len(work))
        return self.pods.reconcile(work, now=now)

    def next_wake(self) -> Instant | None:
        return self.pods.next_wake()


def start(executor: Listening | Looking) -> Home:
    home = Home(MemoryStore(), executor)
    home.handle(Apply((budget("a"), *nodes("n", 4))), now=START)
    home.drive(now=START)
    return home


def submit(home: Home, name: str, gpus: int, *, lasts: str | None = None, now: Instant = START) -> None:
    home.handle(Apply((run(name, gpus, owner="org:a", lasts=lasts),)), now=now)
    home.drive(now=now)


def run_on(home: Home, until: Instant) -> None:
    while (wake := home.next_wake()) is not None and wake <= until:
        home.drive(now=wake)


def test_a_home_tells_everything_once_and_then_only_what_changed() -> None:
    executor = Listening()
    home = start(executor)
    told = len(executor.whole)
    submit(home, "steady", 16)
    executor.parts.clear()
    submit(home, "second", 8, lasts="1h", now=START + SECOND)
    assert executor.whole[told:] == [], "not the two pods that go on, and not once more everything"
    assert executor.parts == [(1, 0), (1, 0)], "placed; then bound, and nothing more comes of it"
    executor.parts.clear()
    run_on(home, START + 2 * HOUR)
    assert executor.parts == [(0, 0), (0, 1)], "it ends by itself; then the engine drops it"


def test_an_executor_that_has_to_look_is_handed_every_pod_every_time() -> None:
    executor = Looking()
    assert not isinstance(executor, Attentive)
    home = start(executor)
    submit(home, "steady", 16)
    executor.calls.clear()
    home.drive(now=START + SECOND)
    assert executor.calls == [2], "though nothing has changed"


def test_an_executor_that_comes_later_is_told_everything() -> None:
    home = start(Listening())
    submit(home, "steady", 16)
    home.executor = late = Listening()
    home.drive(now=START + SECOND)
    assert late.whole == [2]


def test_pods_that_are_asked_to_leave_are_heard_of_and_their_gpus_come_back() -> None:
    executor = Listening()
    home = start(executor)
    submit(home, "steady", 32)
    home.handle(Delete(kind="Run", namespace="lab", name="steady"), now=START + SECOND)
    home.drive(now=START + SECOND)
    assert executor.parts[-1] == (4, 0)
    run_on(home, START + HOUR)
    assert home.state.pods == {}
    assert executor.next_wake() is None


def test_both_kinds_of_executor_lead_to_the_same_ledger() -> None:
    heads = []
    for executor in (Listening(), Looking()):
        home, luck = start(executor), random.Random(3)
        now = START
        for index in range(60):
            now += luck.randrange(20) * MINUTE
            run_on(home, now)
            submit(home, f"r{index}", luck.choice([1, 4, 8, 16]), lasts=f"{luck.randrange(1, 90)}m", now=now)
            if luck.random() < 0.2:
                home.handle(Delete(kind="Run", namespace="lab", name=f"r{index}"), now=now)
                home.drive(now=now)
        run_on(home, now + 100 * HOUR)
        heads.append(home.store.head)
    assert heads[0] == heads[1]


def test_what_is_told_in_parts_is_answered_like_the_whole() -> None:
    """Random lives of pods, with orders and lost machines, on one executor of each kind."""
    luck = random.Random(5)
    whole, parts = (
        SimulatedExecutor(bind_delay=3 * SECOND, stop_delay=2 * SECOND),
        SimulatedExecutor(bind_delay=3 * SECOND, stop_delay=2 * SECOND),
    )
    live: dict[str, PodWork] = {}
    changed: set[str] = set()
    seen: set[str] = set()
    now = START
    for step in range(600):
        now = min([at for at in (whole.next_wake(), now + SECOND) if at is not None])
        _happen(live, changed, luck, step, now)
        if luck.random() < 0.05:
            machine = f"n{luck.randrange(4)}"
            for executor in (whole, parts):
                executor.lose_node(machine) if step % 2 else executor.restore_node(machine)
        while True:
            dropped = sorted(changed - live.keys())
            answer = parts.revise([live[key] for key in sorted(changed & live.keys())], dropped=dropped, now=now)
            assert answer == whole.reconcile(list(live.values()), now=now)
            assert parts.next_wake() == whole.next_wake()
            changed.clear()
            if luck.random() < 0.1 and live:
                hit = live[luck.choice(sorted(live))].pod.run_key
                assert whole.finish(hit, "fail", now=now) == parts.finish(hit, "fail", now=now)
            if not answer:
                break
            for report in answer:
                seen.add(report.phase)
                changed.add(report.key)
                _record(live, report)
    assert seen == {"Bound", "Succeeded", "Failed", "Gone"}


def _happen(live: dict[str, PodWork], changed: set[str], luck: random.Random, step: int, now: Instant) -> None:
    if luck.random() < 0.4:
        pod = Pod(
            namespace="rai", name=f"p{step}", run=f"r{step // 3}", attempt=1, group=0, rank=0,
            node=f"n{luck.randrange(4)}", gpus=(0,),
        )  # fmt: skip
        live[pod.key] = PodWork(
            pod=pod, known="Placed", since=now, duration=luck.choice([None, 0, 5 * SECOND, 20 * SECOND])
        )
        changed.add(pod.key)
    for key in [key for key in sorted(live) if luck.random() < 0.03]:
        if luck.random() < 0.5 and not live[key].stop:
            live[key] = replace(live[key], stop=True, since=now)
        else:
            del live[key]
        changed.add(key)


def _record(live: dict[str, PodWork], report: PodReport) -> None:
    if report.phase == "Gone":
        del live[report.key]
    else:
        live[report.key] = replace(live[report.key], known=report.phase, since=report.at)


def test_a_run_takes_as_long_as_it_really_does_where_that_is_known() -> None:
    pod = Pod(namespace="rai", name="p", run="r", attempt=1, group=0, rank=0, node="n", gpus=(0,))
    executor = SimulatedExecutor()
    executor.lengths = {"rai/r": 2 * HOUR}
    executor.reconcile([PodWork(pod=pod, known="Bound", since=START, duration=HOUR)], now=START)
    assert executor.next_wake() == START + 2 * HOUR


class Gone(Looking):
    """Says of a pod that has ended, whenever it is asked, that it is gone."""

    def reconcile(self, work: Sequence[PodWork], *, now: Instant) -> list[PodReport]:
        assert len(self.calls) < 100, "it is asked again and again, though nothing changes"
        ended = [item.pod.key for item in work if item.known == "Succeeded"]
        return super().reconcile(work, now=now) + [PodReport(key=key, phase="Gone", at=now) for key in ended]


def test_a_home_does_not_ask_for_ever_when_it_is_told_what_is_no_news() -> None:
    executor = Gone()
    home = start(executor)
    submit(home, "two", 16)
    assert executor.pods.finish("lab/two", "succeed", now=START + SECOND, pod="two-a1-0")
    home.drive(now=START + SECOND)
    assert [pod.phase for pod in home.state.pods.values()] == ["Succeeded", "Bound"]
    home.drive(now=START + 2 * SECOND)
    assert not home.next_wake(), "the other one goes on"
