"""Simulated pods: their whole life is a function of what the engine recorded and of two delays."""

from __future__ import annotations

import random

from msgspec.structs import replace

from tenure.facts import PodPhase
from tenure.shell.executor import PodReport, PodWork
from tenure.shell.simulated import SimulatedExecutor
from tenure.units import HOUR, MINUTE, SECOND, Instant, Micros
from tests.embedded.pods import pod

T0: Instant = 1_761_955_200 * SECOND


def work(
    name: str = "p-0",
    *,
    known: PodPhase = "Placed",
    since: Instant = T0,
    stop: bool = False,
    duration: Micros | None = None,
    run: str = "train",
    group: int = 0,
    node: str = "a-00",
) -> PodWork:
    where = pod(name, run=run, group=group, node=node)
    return PodWork(pod=where, known=known, since=since, stop=stop, duration=duration)


def phases(reports: list[PodReport]) -> list[tuple[str, str, Instant]]:
    return [(report.key, report.phase, report.at) for report in reports]


def test_a_pod_is_bound_after_the_bind_delay_and_not_before() -> None:
    executor = SimulatedExecutor(bind_delay=30 * SECOND)
    assert executor.reconcile([work()], now=T0) == []
    assert executor.next_wake() == T0 + 30 * SECOND
    assert executor.reconcile([work()], now=T0 + 30 * SECOND - 1) == []
    assert phases(executor.reconcile([work()], now=T0 + 30 * SECOND)) == [("rai/p-0", "Bound", T0 + 30 * SECOND)]
    assert executor.next_wake() is None


def test_a_bound_pod_succeeds_when_its_duration_has_elapsed() -> None:
    executor = SimulatedExecutor()
    bound = work(known="Bound", duration=6 * HOUR)
    assert executor.reconcile([bound], now=T0) == []
    assert executor.next_wake() == T0 + 6 * HOUR
    [report] = executor.reconcile([bound], now=T0 + 6 * HOUR)
    assert (report.phase, report.code, report.at) == ("Succeeded", 0, T0 + 6 * HOUR)


def test_a_pod_without_a_duration_goes_on_for_ever() -> None:
    executor = SimulatedExecutor()
    assert executor.reconcile([work(known="Bound")], now=T0 + 1000 * HOUR) == []
    assert executor.next_wake() is None


def test_a_stopped_pod_is_gone_after_the_stop_delay_whatever_it_was() -> None:
    executor = SimulatedExecutor(bind_delay=HOUR, stop_delay=10 * SECOND)
    asked = [
        work("a", stop=True),
        work("b", known="Bound", stop=True, duration=5 * SECOND),
        work("c", known="Succeeded", stop=True),
    ]
    assert executor.reconcile(asked, now=T0) == []
    assert executor.next_wake() == T0 + 10 * SECOND
    reports = executor.reconcile(asked, now=T0 + 10 * SECOND)
    assert [report.phase for report in reports] == ["Gone"] * 3


def test_a_late_look_reports_when_it_happened_and_not_when_it_was_seen() -> None:
    executor = SimulatedExecutor(bind_delay=SECOND)
    assert phases(executor.reconcile([work()], now=T0 + HOUR)) == [("rai/p-0", "Bound", T0 + SECOND)]


def test_a_report_is_repeated_until_the_engine_has_recorded_it() -> None:
    executor = SimulatedExecutor()
    assert executor.reconcile([work()], now=T0) == executor.reconcile([work()], now=T0) != []
    assert executor.reconcile([work(known="Bound")], now=T0) == []


def test_an_order_ends_the_run_it_names_and_no_other() -> None:
    executor = SimulatedExecutor()
    both = [work("a-0", run="a", known="Bound"), work("b-0", run="b", known="Bound")]
    executor.reconcile(both, now=T0)
    assert executor.finish("rai/a", "fail", now=T0 + MINUTE) == ["rai/a-0"]
    assert executor.next_wake() == T0 + MINUTE
    [report] = executor.reconcile(both, now=T0 + MINUTE)
    assert (report.key, report.phase, report.code, report.at) == ("rai/a-0", "Failed", 1, T0 + MINUTE)
    assert executor.next_wake() is None


def test_an_order_may_name_a_group_or_a_pod() -> None:
    executor = SimulatedExecutor()
    pods = [work(f"p-{index}", group=index // 2, known="Bound") for index in range(4)]
    executor.reconcile(pods, now=T0)
    assert executor.finish("rai/train", "succeed", now=T0, group=1) == ["rai/p-2", "rai/p-3"]
    assert executor.finish("rai/train", "fail", now=T0, pod="p-0", code=42) == ["rai/p-0"]
    reports = executor.reconcile(pods, now=T0)
    assert [(report.key, report.phase, report.code) for report in reports] == [
        ("rai/p-0", "Failed", 42),
        ("rai/p-2", "Succeeded", 0),
        ("rai/p-3", "Succeeded", 0),
    ]


def test_an_order_for_nobody_says_so() -> None:
    executor = SimulatedExecutor()
    executor.reconcile([work(known="Succeeded"), work("q", known="Bound", stop=True)], now=T0)
    assert executor.finish("rai/train", "succeed", now=T0) == []
    assert executor.finish("rai/unknown", "succeed", now=T0) == []
    assert executor.next_wake() is None


def test_a_pod_that_is_ordered_to_end_before_it_is_bound_ends_as_soon_as_it_is() -> None:
    executor = SimulatedExecutor(bind_delay=MINUTE)
    executor.reconcile([work()], now=T0)
    executor.finish("rai/train", "succeed", now=T0)
    assert executor.reconcile([work()], now=T0) == []
    [bound] = executor.reconcile([work()], now=T0 + MINUTE)
    assert bound.phase == "Bound"
    [report] = executor.reconcile([work(known="Bound", since=bound.at)], now=bound.at)
    assert (report.phase, report.at) == ("Succeeded", bound.at)


def test_an_order_does_not_reach_the_pods_of_a_later_attempt() -> None:
    executor = SimulatedExecutor()
    executor.reconcile([work("p-a1-0", known="Bound")], now=T0)
    executor.finish("rai/train", "fail", now=T0)
    assert executor.reconcile([work("p-a2-0", known="Bound")], now=T0) == []


def test_the_first_end_of_a_pod_counts() -> None:
    executor = SimulatedExecutor()
    item = work(known="Bound", duration=HOUR)
    executor.reconcile([item], now=T0)
    executor.finish("rai/train", "fail", now=T0 + MINUTE)
    executor.finish("rai/train", "succeed", now=T0 + 2 * MINUTE)
    assert [report.phase for report in executor.reconcile([item], now=T0 + 2 * HOUR)] == ["Failed"]
    late = SimulatedExecutor()
    late.reconcile([item], now=T0)
    late.finish("rai/train", "fail", now=T0 + 3 * HOUR)
    [report] = late.reconcile([item], now=T0 + 3 * HOUR)
    assert (report.phase, report.at) == ("Succeeded", T0 + HOUR)


def test_pods_of_a_lost_node_never_report_again_not_even_that_they_are_gone() -> None:
    executor = SimulatedExecutor()
    here, there = (
        work("p-0", node="a-00", known="Bound", duration=HOUR),
        work("p-1", node="a-01", known="Bound"),
    )
    executor.reconcile([here, there], now=T0)
    executor.lose_node("a-00")
    assert executor.next_wake() is None
    assert executor.finish("rai/train", "succeed", now=T0) == ["rai/p-1"]
    stopped = [replace(here, stop=True), replace(there, stop=True)]
    assert phases(executor.reconcile(stopped, now=T0 + HOUR)) == [("rai/p-1", "Gone", T0)]


def test_a_restored_node_runs_new_pods_while_those_it_lost_stay_silent() -> None:
    executor = SimulatedExecutor()
    old = work("old", known="Bound", duration=HOUR)
    executor.reconcile([old], now=T0)
    executor.lose_node("a-00")
    assert executor.reconcile([old, work("during")], now=T0) == []
    executor.restore_node("a-00")
    reports = executor.reconcile([old, work("during"), work("new")], now=T0 + HOUR)
    assert [report.key for report in reports] == ["rai/new"]


def test_what_the_engine_drops_is_forgotten() -> None:
    executor = SimulatedExecutor()
    executor.reconcile([work(known="Bound")], now=T0)
    executor.lose_node("a-00")
    executor.restore_node("a-00")
    executor.reconcile([], now=T0)
    assert [report.phase for report in executor.reconcile([work()], now=T0)] == ["Bound"]


def test_an_executor_made_a_moment_ago_answers_like_one_that_has_watched_all_along() -> None:
    """Random lives, driven as an engine would, on one executor and on a new one for every step."""
    luck = random.Random(7)
    delays = {"bind_delay": 3 * SECOND, "stop_delay": 2 * SECOND}
    watching = SimulatedExecutor(**delays)
    live: dict[str, PodWork] = {}
    now, seen = T0, set[str]()
    for step in range(400):
        now = min(watching.next_wake() or now + SECOND, now + SECOND)
        if luck.random() < 0.3:
            name = f"p-{step}"
            live[f"rai/{name}"] = work(name, since=now, duration=luck.choice([None, 0, 5 * SECOND]))
        for key in [key for key, item in live.items() if not item.stop and luck.random() < 0.05]:
            live[key] = replace(live[key], stop=True, since=now)
        while reports := watching.reconcile(list(live.values()), now=now):
            assert SimulatedExecutor(**delays).reconcile(list(live.values()), now=now) == reports
            for report in reports:
                assert report.at == now, "it was woken at the exact instant"
                seen.add(report.phase)
                record(live, report)
        fresh = SimulatedExecutor(**delays)
        assert fresh.reconcile(list(live.values()), now=now) == []
        assert fresh.next_wake() == watching.next_wake()
    assert seen == {"Bound", "Succeeded", "Gone"}


def record(live: dict[str, PodWork], report: PodReport) -> None:
    if report.phase == "Gone":
        del live[report.key]
    else:
        live[report.key] = replace(live[report.key], known=report.phase, since=report.at)
