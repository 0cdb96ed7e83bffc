"""What a pod's status is news of."""

from typing import Any

import pytest

from tenure.facts import Pod, PodPhase
from tenure.kube.marks import ENTRY, FLEET
from tenure.kube.seen import look, news
from tenure.shell.executor import PodReport, PodWork
from tenure.units import SECOND, format_time

NOW = 10**15
POD = Pod(namespace="lab", name="train-a1-0", run="train", attempt=1, group=0, rank=0, node="n", gpus=(0,))
Object = dict[str, Any]


def shown(phase: str = "Pending", *, leaving: bool = False, **status: Any) -> Object:
    meta: Object = {"name": POD.name, "namespace": "lab", "uid": "u", "annotations": {FLEET: "f", ENTRY: "7"}}
    if leaving:
        meta["deletionTimestamp"] = "2025-11-01T00:00:00Z"
    return {"metadata": meta, "spec": {"nodeName": "n"}, "status": {"phase": phase, **status}}


def ended(code: int, *, at: int | None = None) -> Object:
    done = {"exitCode": code, **({} if at is None else {"finishedAt": format_time(at)})}
    return {"containerStatuses": [{"name": "main", "state": {"terminated": done}}]}


def told(item: Object | None, known: PodPhase = "Placed", *, stop: bool = False) -> list[PodReport]:
    work = PodWork(pod=POD, known=known, since=NOW - 3600 * SECOND, stop=stop)
    seen = None if item is None else look(item, fleet_key=FLEET, entry_key=ENTRY)
    return list(news(work, seen, now=NOW))


def phases(*arguments: Any, **rest: Any) -> list[str]:
    return [report.phase for report in told(*arguments, **rest)]


def test_a_pod_is_bound_when_its_kubelet_runs_it_not_when_it_has_a_node() -> None:
    assert phases(shown("Pending")) == []
    assert phases(shown("Running")) == ["Bound"]
    assert phases(shown("Running"), "Bound") == []


RUNS, ENDED = {"running": {"startedAt": "2025-11-01T00:00:00Z"}}, {"terminated": {"exitCode": 0}}
NO_IMAGE = {"waiting": {"reason": "ImagePullBackOff", "message": "no such image"}}


@pytest.mark.parametrize("status", [
    {"containerStatuses": [{"name": "main", "state": NO_IMAGE}, {"name": "logs", "state": RUNS}]},
    {"containerStatuses": [{"name": "main", "state": NO_IMAGE}, {"name": "logs", "state": ENDED}]},
    {"initContainerStatuses": [{"name": "logs", "state": RUNS}],
     "containerStatuses": [{"name": "main", "state": NO_IMAGE}]},
    {"initContainerStatuses": [{"name": "prepare", "state": ENDED}],
     "containerStatuses": [{"name": "main", "state": NO_IMAGE}]},
], ids=["a side-car runs", "a side-car has ended", "an init container runs on", "it was prepared"])  # fmt: skip
def test_regression_a_pod_whose_image_cannot_be_pulled_has_not_started_whatever_else_of_it_ran(status: Object) -> None:
    """It counted as bound, so that nobody waited any longer for it to start, and it held its GPUs for ever."""
    pod = shown("Pending", **status)
    assert phases(pod) == []
    assert look(pod, fleet_key=FLEET, entry_key=ENTRY).message == "ImagePullBackOff: no such image"


def test_a_pod_that_is_being_prepared_is_not_bound_and_one_that_fails_at_it_was() -> None:
    """Its init containers run on its node, and count towards the time in which it has to start; what they make of it
    is the work's own doing."""
    status = {"containerStatuses": [{"name": "main", "state": {"waiting": {"reason": "PodInitializing"}}}]}
    assert phases(shown("Pending", initContainerStatuses=[{"name": "prepare", "state": RUNS}], **status)) == []
    wrong = {"name": "prepare", "state": {"terminated": {"exitCode": 3}}}
    bound, failed = told(shown("Failed", initContainerStatuses=[wrong], **status))
    assert (bound.phase, failed.phase, failed.code) == ("Bound", "Failed", 3)


def test_an_end_comes_after_bound_with_its_code() -> None:
    assert phases(shown("Succeeded", **ended(0))) == ["Bound", "Succeeded"]
    bound, failed = told(shown("Failed", **ended(3)))
    assert (bound.phase, failed.phase, failed.code, failed.message) == ("Bound", "Failed", 3, "exited with code 3")
    assert phases(shown("Failed", **ended(3)), "Failed") == []


def test_what_a_kubelet_rejects_never_ran() -> None:
    (report,) = told(shown("Failed", reason="OutOfnvidia.com/gpu", message="Node didn't have enough resource"))
    assert (report.phase, report.code) == ("Failed", None)
    assert report.message == "OutOfnvidia.com/gpu: Node didn't have enough resource"


def test_an_evicted_pod_has_failed_and_says_why() -> None:
    status = {"reason": "Evicted", "message": "The node was low on resource: memory.", **ended(137)}
    (report,) = told(shown("Failed", **status), "Bound")
    assert (report.phase, report.code) == ("Failed", 137)
    assert report.message.startswith("Evicted")


@pytest.mark.parametrize(("known", "stop", "found"), [
    ("Bound", False, ["Gone"]), ("Bound", True, ["Gone"]), ("Placed", True, ["Gone"]),
    ("Succeeded", False, []), ("Failed", False, []), ("Succeeded", True, ["Gone"]),
])  # fmt: skip
def test_what_is_not_there_is_gone_unless_its_end_is_known(known: PodPhase, stop: bool, found: list[str]) -> None:
    assert phases(None, known, stop=stop) == found


def test_while_it_is_being_deleted_nothing_is_said_until_it_is_gone() -> None:
    assert phases(shown("Running", leaving=True), "Bound") == []
    assert phases(shown("Running", leaving=True), "Bound", stop=True) == []
    assert phases(shown("Failed", leaving=True, **ended(137)), "Bound", stop=True) == ["Gone"]


def test_an_end_is_of_now_unless_the_operator_was_away() -> None:
    just, long_ago = NOW - 2 * SECOND, NOW - 600 * SECOND
    assert told(shown("Succeeded", **ended(0, at=just)), "Bound")[0].at == NOW
    assert told(shown("Succeeded", **ended(0, at=long_ago)), "Bound")[0].at == long_ago // SECOND * SECOND
    assert told(shown("Succeeded", **ended(0, at=NOW - 7200 * SECOND)), "Bound")[0].at == NOW - 3600 * SECOND
    assert told(shown("Succeeded", **ended(0, at=NOW + 7200 * SECOND)), "Bound")[0].at == NOW


def test_what_a_workload_says_cannot_steer_a_terminal() -> None:
    (report,) = told(shown("Failed", reason="Error", message="\x1b[2Jgone\nnext line"))
    assert "\x1b" not in report.message
    assert "\n" not in report.message
    assert len(told(shown("Failed", reason="Error", message="x" * 10_000))[0].message) <= 400
