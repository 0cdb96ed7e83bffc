"""I1, I3, I4, I7 and I12 in small histories: what is allowed passes, and its near neighbour does not."""

from __future__ import annotations

from typing import Any

import pytest
from msgspec.structs import replace

from tenure.api.core import Taint
from tenure.api.policy import Policy
from tenure.audit import Auditor, check_all
from tenure.facts import (
    Cleared,
    Closed,
    Ending,
    Opened,
    Placed,
    PutNode,
    PutPolicy,
    PutRun,
    Removed,
    Seen,
)
from tenure.units import MINUTE, SECOND, parse_duration
from tests.audit.builders import FENCED, SYS, T0, History, budget, lease, node, pod, run, time

JOB = run("job", 8)


def fleet(*nodes: Any) -> History:
    return History().fleet(*(nodes or (node("a-0"), node("a-1"), node("b-0")))).budgets(budget("sys", SYS))


def started(of: Any = JOB, *, on: tuple[str, ...] = ("a-0:0-7",), nodes: tuple[Any, ...] = ()) -> History:
    """A run with one group on each of the places."""
    leases = [lease(of, where, at=T0, group=group) for group, where in enumerate(on)]
    pods = [pod(of, where, rank=group, group=group) for group, where in enumerate(on)]
    return fleet(*nodes).started(of, leases, pods)


def names(history: History, *, settled: bool = True) -> list[str]:
    found = check_all(history.entries, now=history.now, settled=settled)
    return sorted({item.invariant.split("-")[0] for item in found})


def rested(history: History, rest: str) -> list[str]:
    """What is said of runs that no entry touched for so long."""
    auditor = Auditor()
    found = [one for entry in history.entries for one in auditor.feed(entry)]
    found += auditor.check(history.now, rest=parse_duration(rest))
    return sorted({one.invariant.split("-")[0] for one in found})


# --- I1 -----------------------------------------------------------------------------------------------------


def test_a_spare_carries_opportunistic_work_of_another_run() -> None:
    keeper, guest = run("keeper", 4, group=4, spares=4), run("guest", 4)
    history = fleet().started(
        keeper,
        [lease(keeper, "a-0:0-3", at=T0), lease(keeper, "a-1:0-3", at=T0, role="Spare")],
        [pod(keeper, "a-0:0-3", rank=0)],
    )
    history.started(guest, [lease(guest, "a-1:0-3", at=T0, role="Borrowed")], [pod(guest, "a-1:0-3", rank=0)])
    assert names(history) == []


def test_a_swap_inside_one_entry_never_holds_a_gpu_twice() -> None:
    keeper = run("keeper", 4, group=4, spares=4)
    active, spare = lease(keeper, "a-0:0-3", at=T0), lease(keeper, "a-1:0-3", at=T0, role="Spare")
    history = fleet().started(keeper, [active, spare], [pod(keeper, "a-0:0-3", rank=0)]).at("1h")
    swapped = lease(keeper, "a-1:0-3", at=history.now, reason="Swap")
    history.add(
        PutNode(object=node("a-0", taints=(FENCED,))),
        Opened(lease=swapped),
        Closed(namespace="rai", leases=(active.name,), end=history.now, reason="NodeFailure"),
        Closed(namespace="rai", leases=(spare.name,), end=history.now, reason="Swap"),
        Cleared(namespace="rai", pods=("keeper-a1-0",)),
        Placed(pod=replace(pod(keeper, "a-1:0-3", rank=0), name="keeper-a1-0-s1")),
    )
    assert names(history) == []


def test_a_node_that_shrinks_under_its_leases_breaks_nothing() -> None:
    history = started().at("1h").add(PutNode(object=node("a-0", gpus=4)))
    assert names(history) == []


def test_an_unready_node_fails_only_where_the_policy_says_so_and_only_after_the_debounce() -> None:
    history = started().at("1h").add(PutNode(object=node("a-0", ready="Unknown")))
    history.at("2h").add(PutNode(object=node("a-0", ready="False")))
    assert names(history) == []
    history.add(PutPolicy(policy=Policy(unready_is_failure=True, unready_debounce="61m")))
    assert names(history) == []
    history.at("121m").add()
    assert names(history) == ["I1"]
    assert names(history, settled=False) == []


# --- I3 -----------------------------------------------------------------------------------------------------


def test_leases_may_open_an_entry_before_their_pods() -> None:
    history = fleet().start(JOB, [lease(JOB, "a-0:0-7", at=T0)], [])
    assert names(history, settled=False) == []
    assert names(history) == ["I3"]
    assert rested(history, "2m") == []
    history.at("119s").add()
    assert rested(history, "2m") == []
    history.at("2m").add()
    assert rested(history, "2m") == ["I3"]
    history.add(Placed(pod=pod(JOB, "a-0:0-7", rank=0)))
    assert names(history) == []
    assert rested(history.at("1h"), "2m") == []


def test_the_last_word_about_a_pod_is_where_its_rest_begins() -> None:
    history = started().at("1h").add(Seen(namespace="rai", pod="job-a1-0", phase="Gone"))
    assert rested(history.at("61m"), "2m") == []
    assert rested(history.at("62m"), "2m") == ["I3"]


def test_what_is_over_keeps_no_pod_once_it_is_at_rest() -> None:
    """Not before: others may record that a run is over in one entry, and that its pods are gone in the next."""
    history = started().at("1h").add(Seen(namespace="rai", pod="job-a1-0", phase="Succeeded", code=0))
    name = lease(JOB, "a-0:0-7", at=T0).name
    history.add(
        Closed(namespace="rai", leases=(name,), end=history.now, reason="Completed"),
        history.moved("job", phase="Completed"),
    )
    assert rested(history, "2m") == []
    assert rested(history.at("62m"), "2m") == ["I3"]
    history.add(Cleared(namespace="rai", pods=("job-a1-0",)))
    assert rested(history.at("2h"), "2m") == []


def test_pods_may_not_come_before_their_leases() -> None:
    history = fleet().add(PutRun(object=JOB), Placed(pod=pod(JOB, "a-0:0-7", rank=0)))
    assert "I3" in names(history, settled=False)


def test_two_pods_may_share_a_lease_but_not_a_gpu() -> None:
    pair = run("pair", 8, per_pod=4)
    whole = lease(pair, "a-0:0-7", at=T0)
    apart = [pod(pair, "a-0:0-3", rank=0), pod(pair, "a-0:4-7", rank=1)]
    assert names(fleet().started(pair, [whole], apart)) == []
    overlapping = [pod(pair, "a-0:0-3", rank=0), pod(pair, "a-0:3-6", rank=1)]
    assert names(fleet().started(pair, [whole], overlapping)) == ["I3"]


def test_a_pod_that_succeeded_keeps_its_lease_until_the_gang_is_done() -> None:
    history = started().at("1h").add(Seen(namespace="rai", pod="job-a1-0", phase="Succeeded", code=0))
    assert names(history) == []
    assert names(history.finish("job")) == []


def test_a_fenced_node_closes_leases_before_anybody_saw_the_pod_go() -> None:
    history = started().at("1h")
    name = lease(JOB, "a-0:0-7", at=T0).name
    history.add(
        Removed(kind="Node", name="a-0"),
        Closed(namespace="rai", leases=(name,), end=history.now, reason="NodeFailure"),
        history.moved("job", phase="Stopping"),
    )
    assert names(history, settled=False) == []


def test_a_deleted_run_leaves_nothing_behind() -> None:
    history = started().at("1h").stop("job", "Canceled").gone("job", "Canceled", "Failed")
    assert names(history.add(Removed(kind="Run", namespace="rai", name="job"))) == []


def test_a_run_may_come_again_under_its_name() -> None:
    history = started().at("1h").finish("job").add(Removed(kind="Run", namespace="rai", name="job"))
    history.moved("job", phase="Pending")
    again = [lease(JOB, "a-0:0-7", at=history.now, attempt=2)]
    assert names(history.started(JOB, again, [pod(JOB, "a-0:0-7", rank=0, attempt=2)])) == []


@pytest.mark.parametrize("removed", [True, False], ids=["deleted first", "replaced"])
def test_a_finished_run_may_be_replaced_by_another_of_its_name_in_one_entry(removed: bool) -> None:
    history = started().at("1h").finish("job")
    other = replace(JOB, metadata=replace(JOB.metadata, uid="uid-other"))
    facts = [Removed(kind="Run", namespace="rai", name="job")] if removed else []
    assert names(history.add(*facts, PutRun(object=other))) == []


# --- I4 -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("width", "whole"), [(4, False), (8, True), (12, False), (16, True), (20, False), (24, False)])
def test_a_malleable_run_holds_a_legal_width(width: int, whole: bool) -> None:
    elastic = run("job", 16, malleable=(8, 16, 8), group=4)
    places = [f"a-{index // 8}:{index % 8}-{index % 8 + 3}" for index in range(0, width, 4)]
    history = started(elastic, on=tuple(places), nodes=tuple(node(f"a-{index}") for index in range(3)))
    assert names(history) == ([] if whole else ["I4"])


def test_the_last_group_of_a_fixed_run_may_be_smaller() -> None:
    assert names(started(run("job", 12, group=8), on=("a-0:0-7", "a-1:0-3"))) == []
    assert names(started(run("job", 12, group=8), on=("a-0:0-3", "a-1:0-7"))) == ["I4"]


def test_without_groups_only_the_width_counts() -> None:
    assert names(started(run("job", 12), on=("a-0:0-2", "a-1:0-7", "b-0:3-3"))) == []


def test_a_lost_spare_leaves_the_gang_whole() -> None:
    keeper = run("keeper", 4, group=4, spares=4)
    spare = lease(keeper, "a-1:0-3", at=T0, role="Spare")
    history = fleet().started(keeper, [lease(keeper, "a-0:0-3", at=T0), spare], [pod(keeper, "a-0:0-3", rank=0)])
    history.at("1h").add(Closed(namespace="rai", leases=(spare.name,), end=history.now, reason="NodeFailure"))
    assert names(history) == []


def test_a_failed_start_is_cleaned_up_and_tried_again() -> None:
    history = fleet().start(JOB, [lease(JOB, "a-0:0-7", at=T0)], [pod(JOB, "a-0:0-7", rank=0)])
    history.at("1m").stop("job", "Fail").gone("job", "Fail", "Pending")
    again = [lease(JOB, "a-0:0-7", at=history.now, attempt=2)]
    assert names(history.started(JOB, again, [pod(JOB, "a-0:0-7", rank=0, attempt=2)])) == []


def test_a_batch_may_open_a_lease_and_decide_its_end() -> None:
    opened = lease(JOB, "a-0:0-7", at=T0)
    history = fleet().add(PutRun(object=JOB))
    stopping = history.moved("job", phase="Stopping")
    ending = Ending(namespace="rai", run="job", leases=(opened.name,), reason="Canceled")
    assert names(history.add(Opened(lease=opened), ending, stopping), settled=False) == []


# --- I7 -----------------------------------------------------------------------------------------------------


def test_groups_may_lie_in_different_domains_unless_the_run_forbids_it() -> None:
    places = ("a-0:0-7", "b-0:0-7")
    assert names(started(run("job", 16, group=8), on=places)) == []
    assert names(started(run("job", 16, group=8, spread=False), on=places)) == ["I7"]


def test_domains_of_the_same_name_in_two_regions_are_two_domains() -> None:
    east = node("a-1", labels={"region": "us-east"})
    job = run("job", 12, group=12)
    leases = [lease(job, "a-0:0-7", at=T0), lease(job, "a-1:0-3", at=T0)]
    pods = [pod(job, "a-0:0-7", rank=0), pod(job, "a-1:0-3", rank=1)]
    assert names(fleet(node("a-0"), node("a-1")).started(job, leases, pods)) == []
    found = check_all(fleet(node("a-0"), east).started(job, leases, pods).entries, now=T0)
    assert {item.message for item in found if item.invariant.startswith("I7")} == {"spreads group 0 over domains"}


def test_a_node_that_is_relabelled_does_not_move_what_runs_on_it() -> None:
    history = fleet()
    job = run("job", 12, group=12)
    leases = [lease(job, "a-0:0-7", at=T0), lease(job, "a-1:0-3", at=T0)]
    history.started(job, leases, [pod(job, "a-0:0-7", rank=0), pod(job, "a-1:0-3", rank=1)])
    assert names(history.at("1h").add(PutNode(object=node("a-1", labels={"fabric.domain": "Z"})))) == []


@pytest.mark.parametrize(
    ("step", "found"), [("a-1:0-3", ["spreads over domains without allowCrossGroupSpread"]), ("a-0:4-7", [])]
)
def test_what_a_run_takes_after_a_relabelling_lies_where_it_is_by_then(step: str, found: list[str]) -> None:
    """On a-0 it is in Z by then; a-1 is in A, where it was."""
    history = fleet()
    job = run("job", 4, malleable=(4, 8, 4), spread=False)
    history.started(job, [lease(job, "a-0:0-3", at=T0)], [pod(job, "a-0:0-3", rank=0)])
    history.at("1h").add(PutNode(object=node("a-0", labels={"fabric.domain": "Z"})))
    grown = lease(job, step, at=time("1h"), group=1, reason="Grow")
    grown = replace(grown, domain="Z") if grown.node == "a-0" else grown
    history.add(Opened(lease=grown), Placed(pod=pod(job, step, rank=1, group=1)))
    told = [item for item in check_all(history.entries, now=history.now) if item.invariant.startswith("I7")]
    assert [item.message for item in told] == found


def test_ranks_of_a_malleable_run_may_have_gaps_but_not_twins() -> None:
    elastic = run("job", 8, malleable=(4, 8, 4))
    leases = [lease(elastic, "a-0:0-3", at=T0), lease(elastic, "a-0:4-7", at=T0, group=1)]
    gap = [pod(elastic, "a-0:0-3", rank=0), pod(elastic, "a-0:4-7", rank=5, group=1)]
    assert names(fleet().started(elastic, leases, gap)) == []
    twins = [gap[0], replace(pod(elastic, "a-0:4-7", rank=0, group=1), name="job-a1-twin")]
    assert names(fleet().started(elastic, leases, twins)) == ["I7"]


@pytest.mark.parametrize(
    ("taint", "takes_work"),
    [
        (Taint(key="rq.davidlangworthy.io/managed", effect="NoSchedule"), True),
        (Taint(key="busy", effect="PreferNoSchedule"), True),
        (Taint(key="busy", effect="NoSchedule"), False),
        (Taint(key="busy", effect="NoExecute"), False),
    ],
)
def test_a_foreign_taint_keeps_new_work_away(taint: Taint, takes_work: bool) -> None:
    assert names(started(nodes=(node("a-0", taints=(taint,)),))) == ([] if takes_work else ["I7"])


def test_what_runs_on_a_node_stays_when_it_is_cordoned() -> None:
    assert names(started().at("1h").add(PutNode(object=node("a-0", cordoned=True)))) == []


LABELS: list[tuple[dict[str, str], dict[str, str]]] = [
    ({}, {}),
    (
        {
            "region": "",
            "topology.kubernetes.io/region": "us-west",
            "cluster": "",
            "topology.kubernetes.io/zone": "gpu-a",
            "gpu.flavor": "",
            "nvidia.com/gpu.product": "H100-80GB",
        },
        {},
    ),
    (
        {"fabric.domain": "", "leaf": "A", "region": "", "area": "us-west"},
        {"domain": "leaf", "region": "area"},
    ),
]


@pytest.mark.parametrize(("labels", "keys"), LABELS, ids=["usual", "well-known", "configured"])
def test_labels_are_found_under_the_configured_the_usual_and_the_well_known_keys(
    labels: dict[str, str], keys: dict[str, str]
) -> None:
    history = History().add(PutPolicy(policy=Policy(topology_labels=keys)), PutNode(object=node("a-0", labels=labels)))
    history.budgets(budget("sys", SYS))
    history.started(JOB, [lease(JOB, "a-0:0-7", at=T0)], [pod(JOB, "a-0:0-7", rank=0)])
    assert names(history) == []


# --- I12 ----------------------------------------------------------------------------------------------------


UNRECORDED = ["I9"]
"""These cuts have no record, which is another matter: ``test_cuts``."""


def test_a_run_may_be_cut_once_it_has_run_for_the_lead() -> None:
    history = started().at("15m").stop("job", "RandomPreempt(9f)")
    assert names(history.gone("job", "RandomPreempt(9f)", "Failed")) == UNRECORDED


@pytest.mark.parametrize(("late", "cut"), [(30 * SECOND, UNRECORDED), (30 * SECOND + 1, ["I12", *UNRECORDED])])
def test_the_lead_counts_from_when_the_run_runs_but_for_the_moment_that_pods_take(late: int, cut: list[str]) -> None:
    history = fleet().start(JOB, [lease(JOB, "a-0:0-7", at=T0)], [pod(JOB, "a-0:0-7", rank=0)])
    history.now = T0 + MINUTE + late
    history.bind("job").at("16m")
    name = lease(JOB, "a-0:0-7", at=T0).name
    history.add(
        Ending(namespace="rai", run="job", leases=(name,), reason="RandomPreempt(9f)"),
        history.moved("job", phase="Stopping"),
    )
    assert names(history, settled=False) == cut


def test_the_lead_counts_from_the_first_news_that_the_run_runs() -> None:
    history = started().at("10m")
    history.add(history.moved("job", message="still running")).at("15m").stop("job", "RandomPreempt(9f)")
    assert names(history, settled=False) == UNRECORDED


def test_a_cut_that_was_never_announced_is_judged_when_it_closes() -> None:
    history = started().at("5m").gone("job", "RandomPreempt(9f)", "Failed")
    assert names(history) == ["I12", *UNRECORDED]


def test_an_empty_ledger_is_clean() -> None:
    assert Auditor().check(T0, settled=True) == []
    assert check_all([], now=time("1h"), settled=True) == []
