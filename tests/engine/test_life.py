"""SPEC 6, and the part of 9 that needs no spare: how a run starts, ends, fails, comes back, and leaves."""

from __future__ import annotations

import msgspec
import pytest

from tenure.api.policy import Policy
from tenure.engine import Report, SetPolicy, Sighting, next_wake
from tenure.facts import Closed, Ending, Opened, Placed
from tenure.testing import Fleet, at, budget, envelope, node, nodes, run
from tenure.units import SECOND

KEY = "lab/x"


def started(*, machines: int = 2, policy: Policy | None = None, **terms: object) -> Fleet:
    """A fleet whose one run of 16 GPUs is running."""
    fleet = admitted(machines=machines, policy=policy, **terms)
    fleet.bind(KEY)
    return fleet


def admitted(*, machines: int = 2, policy: Policy | None = None, **terms: object) -> Fleet:
    """A fleet whose one run of 16 GPUs has its leases, and no pod bound yet."""
    fleet = Fleet(*nodes("n", machines), budget("a", envelope(gpus=16)), policy=policy)
    fleet.apply(run("x", 16, owner="org:a", group=8, **terms))  # type: ignore[arg-type]  # the test names them
    return fleet


def closures(fleet: Fleet) -> dict[str, str]:
    return {name: one.reason for name, one in sorted(fleet.closed().items())}


# --- starting -----------------------------------------------------------------------------------------------------


def test_leases_are_opened_before_pods_are_placed_in_one_entry() -> None:
    fleet = admitted()
    kinds = fleet.kinds()
    assert kinds == ["PutRun", "Decided", "Opened", "Opened", "Placed", "Placed", "Moved", "Noted"]
    covered = {(fact.lease.node, gpu) for fact in fleet.facts if isinstance(fact, Opened) for gpu in fact.lease.gpus}
    used = {(fact.pod.node, gpu) for fact in fleet.facts if isinstance(fact, Placed) for gpu in fact.pod.gpus}
    assert used == covered


def test_a_run_is_running_only_when_every_pod_is_bound() -> None:
    fleet = admitted()
    assert (fleet.phase(KEY), fleet.condition(KEY, "Admitted")[0]) == ("Pending", "True")
    fleet.report("Bound", "lab/x-a1-0")
    assert (fleet.phase(KEY), fleet.condition(KEY, "Running")) == ("Pending", ("", ""))
    fleet.report("Bound", "lab/x-a1-1")
    assert (fleet.phase(KEY), fleet.condition(KEY, "Running")[0]) == ("Running", "True")
    assert fleet.condition(KEY, "Scheduled")[0] == "True"


def test_a_pod_that_finishes_before_the_last_one_is_bound_counts_as_bound() -> None:
    fleet = admitted()
    fleet.report("Bound", "lab/x-a1-0")
    fleet.report("Succeeded", "lab/x-a1-0", code=0)
    assert fleet.phase(KEY) == "Pending"
    fleet.report("Bound", "lab/x-a1-1")
    assert fleet.phase(KEY) == "Running"
    fleet.report("Succeeded", "lab/x-a1-1", code=0)
    assert fleet.phase(KEY) == "Completed"


def test_a_start_that_fails_is_cleaned_up_and_tried_again_as_a_new_attempt() -> None:
    fleet = admitted()
    fleet.report("Bound", "lab/x-a1-0")
    fleet.report("Failed", "lab/x-a1-1", message="image not found")
    assert len(fleet.leases(KEY)) == 2, "GPUs are held until the pods are gone"
    fleet.leave(KEY)
    assert closures(fleet) == {"x-a1-g00-n0-0": "Fail", "x-a1-g01-n1-0": "Fail"}
    assert fleet.phase(KEY) == "Pending"
    fleet.later("1s")
    assert [lease.name for lease in fleet.leases(KEY)] == ["x-a2-g00-n0-0", "x-a2-g01-n1-0"]
    fleet.bind(KEY)
    assert (fleet.phase(KEY), fleet.run(KEY).status.restarts) == ("Running", 0)


def test_the_backoff_doubles_up_to_its_most() -> None:
    fleet = admitted(policy=Policy(retry_backoff="10s", retry_backoff_max="1m"))
    waits = []
    for _ in range(5):
        fleet.report("Failed", fleet.pods(KEY)[0].key)
        fleet.leave(KEY)
        wake = next_wake(fleet.state)
        assert wake is not None
        waits.append((wake - fleet.now) // SECOND)
        fleet.until(wake - 1)
        assert fleet.leases(KEY) == []
        fleet.until(wake)
        assert fleet.leases(KEY)
    assert waits == [10, 20, 40, 60, 60]


def test_a_run_that_ran_starts_its_backoff_anew() -> None:
    fleet = admitted(restarts=1)
    for _ in range(3):
        fleet.report("Failed", fleet.pods(KEY)[0].key)
        fleet.leave(KEY)
        fleet.later("10m")
    fleet.bind(KEY)
    fleet.fail(KEY)
    fleet.leave(KEY)
    assert next_wake(fleet.state) == fleet.now + SECOND


def test_a_failed_start_does_not_use_up_a_restart() -> None:
    fleet = admitted(restarts=0)
    fleet.report("Failed", "lab/x-a1-0")
    fleet.leave(KEY)
    fleet.later("1s")
    fleet.bind(KEY)
    assert (fleet.phase(KEY), fleet.run(KEY).status.restarts) == ("Running", 0)


def test_while_it_backs_off_others_may_have_its_place() -> None:
    fleet = admitted()
    fleet.report("Failed", "lab/x-a1-0")
    fleet.leave(KEY)
    fleet.start(run("y", 16, owner="org:a"))
    fleet.later("1h")
    assert (fleet.phase(KEY), fleet.code(KEY)) == ("Pending", "ConcurrencyCapExceeded")


# --- ending -------------------------------------------------------------------------------------------------------


def test_when_all_active_pods_succeeded_the_run_is_completed() -> None:
    fleet = started()
    fleet.later("1h")
    fleet.report("Succeeded", "lab/x-a1-0", code=0)
    assert (fleet.phase(KEY), len(fleet.leases(KEY))) == ("Running", 2)
    fleet.later("1m")
    fleet.report("Succeeded", "lab/x-a1-1", code=0)
    assert fleet.phase(KEY) == "Completed"
    assert set(closures(fleet).values()) == {"Completed"}
    assert {one.end for one in fleet.closed().values()} == {at("61m")}
    assert fleet.pods(KEY) == []
    assert fleet.condition(KEY, "Completed")[0] == "True"
    assert fleet.condition(KEY, "Running")[0] == "False"


def test_a_completed_run_frees_its_place_in_the_same_decision() -> None:
    fleet = started()
    fleet.apply(run("y", 16, owner="org:a"))
    fleet.report("Succeeded", "lab/x-a1-0", code=0)
    fleet.report("Succeeded", "lab/x-a1-1", code=0)
    assert "Closed" in fleet.kinds()
    assert "Opened" in fleet.kinds()
    assert len(fleet.leases("lab/y")) == 2


def test_a_workload_that_fails_closes_its_leases_and_fails_the_run() -> None:
    fleet = started()
    fleet.later("1h")
    fleet.fail(KEY, code=3)
    assert (fleet.phase(KEY), len(fleet.leases(KEY))) == ("Running", 2), "terminal only when its last lease is closed"
    fleet.later("1m")
    fleet.leave(KEY)
    assert fleet.phase(KEY) == "Failed"
    assert closures(fleet) == {"x-a1-g00-n0-0": "Fail", "x-a1-g01-n1-0": "Fail"}
    assert fleet.condition(KEY, "Failed") == ("True", "WorkloadFailed")
    assert "exit code 3" in fleet.run(KEY).status.message


def test_each_lease_closes_when_its_own_pod_is_gone() -> None:
    fleet = started()
    fleet.delete("Run", KEY)
    fleet.later("1m")
    fleet.report("Gone", "lab/x-a1-1")
    assert [lease.node for lease in fleet.leases(KEY)] == ["n0"]
    fleet.later("1m")
    fleet.report("Gone", "lab/x-a1-0")
    assert {one.lease.node: one.end for one in fleet.closed().values()} == {"n1": at("1m"), "n0": at("2m")}


@pytest.mark.parametrize("restarts", [0, 1, 3])
def test_a_workload_that_fails_is_retried_up_to_max_restarts(restarts: int) -> None:
    fleet = started(restarts=restarts)
    for _ in range(restarts):
        fleet.fail(KEY)
        fleet.leave(KEY)
        assert fleet.phase(KEY) == "Pending"
        fleet.later("1h")
        fleet.bind(KEY)
        assert fleet.phase(KEY) == "Running"
    fleet.fail(KEY)
    fleet.leave(KEY)
    assert fleet.phase(KEY) == "Failed"
    assert fleet.run(KEY).status.restarts == restarts
    assert sorted({lease.attempt for lease in fleet.opened().values()}) == list(range(1, restarts + 2))


def test_a_pod_that_somebody_removed_is_a_failure() -> None:
    fleet = started(restarts=1)
    fleet.report("Gone", "lab/x-a1-0")
    fleet.leave(KEY)
    assert (fleet.phase(KEY), fleet.run(KEY).status.restarts) == ("Pending", 1)


def test_a_pod_that_succeeded_and_was_then_tidied_away_is_no_failure() -> None:
    fleet = started()
    fleet.report("Succeeded", "lab/x-a1-0", code=0)
    fleet.report("Gone", "lab/x-a1-0")
    assert fleet.phase(KEY) == "Running"
    fleet.report("Succeeded", "lab/x-a1-1", code=0)
    assert fleet.phase(KEY) == "Completed"


@pytest.mark.parametrize(
    "sightings",
    [
        [("lab/x-a1-0", "Bound")],
        [("lab/x-a1-0", "Placed")],
        [("lab/x-a0-0", "Failed")],
        [("lab/x-a2-0", "Gone")],
        [("other/x-a1-0", "Failed")],
        [("lab/nobody", "Succeeded")],
    ],
    ids=["repeated", "stale", "earlier attempt", "later attempt", "other namespace", "unknown"],
)
def test_stale_repeated_and_unknown_reports_change_nothing(sightings: list[tuple[str, str]]) -> None:
    fleet = started()
    before = len(fleet.entries)
    for pod, phase in sightings:
        fleet.handle(Report((Sighting(pod, phase),)))  # type: ignore[arg-type]  # a PodPhase
    assert len(fleet.entries) == before


def test_reports_after_the_stop_was_decided_change_nothing_until_the_pod_is_gone() -> None:
    fleet = started()
    fleet.delete("Run", KEY)
    before = len(fleet.entries)
    fleet.report("Succeeded", "lab/x-a1-0", "lab/x-a1-1", code=0)
    fleet.report("Failed", "lab/x-a1-0", code=9)
    assert len(fleet.entries) == before
    fleet.leave(KEY)
    assert set(closures(fleet).values()) == {"Canceled"}


# --- leaving ------------------------------------------------------------------------------------------------------


def test_deleting_a_waiting_run_removes_it_at_once() -> None:
    fleet = Fleet(budget("a"))
    fleet.apply(run("x", 16, owner="org:a"))
    fleet.delete("Run", KEY)
    assert fleet.phase(KEY) == "Gone"
    assert fleet.opened() == {}


@pytest.mark.parametrize("phase", ["starting", "running"])
def test_deleting_a_run_closes_its_leases_canceled_and_the_leases_stay(phase: str) -> None:
    fleet = admitted() if phase == "starting" else started()
    fleet.later("1m")
    fleet.delete("Run", KEY)
    assert len(fleet.leases(KEY)) == 2
    assert fleet.run(KEY).metadata.deletion_timestamp == "2025-11-01T00:01:00Z"
    fleet.later("1m")
    fleet.leave(KEY)
    assert fleet.phase(KEY) == "Gone"
    assert closures(fleet) == {"x-a1-g00-n0-0": "Canceled", "x-a1-g01-n1-0": "Canceled"}


def test_the_deletion_time_is_when_it_was_asked_for() -> None:
    fleet = started()
    fleet.delete("Run", KEY)
    fleet.later("10m")
    assert fleet.run(KEY).metadata.deletion_timestamp == "2025-11-01T00:00:00Z"


def test_deleting_a_run_that_is_failing_keeps_the_reason_of_its_leases_and_removes_it() -> None:
    fleet = started(restarts=3)
    fleet.fail(KEY)
    fleet.delete("Run", KEY)
    fleet.leave(KEY)
    assert fleet.phase(KEY) == "Gone"
    assert set(closures(fleet).values()) == {"Fail"}
    fleet.later("1h")
    assert fleet.leases() == []


def test_deleting_a_run_that_backs_off_removes_it() -> None:
    fleet = admitted()
    fleet.report("Failed", "lab/x-a1-0")
    fleet.leave(KEY)
    fleet.delete("Run", KEY)
    fleet.later("1h")
    assert (fleet.phase(KEY), fleet.leases()) == ("Gone", [])


@pytest.mark.parametrize("end", ["succeed", "fail"])
def test_deleting_a_run_that_is_over_removes_it_and_changes_no_lease(end: str) -> None:
    fleet = started()
    fleet.succeed(KEY) if end == "succeed" else fleet.fail(KEY)
    if end == "fail":
        fleet.leave(KEY)
    before = closures(fleet)
    fleet.delete("Run", KEY)
    assert (fleet.phase(KEY), closures(fleet)) == ("Gone", before)


def test_deleting_twice_changes_nothing_more() -> None:
    fleet = started()
    fleet.delete("Run", KEY)
    before = len(fleet.entries)
    fleet.delete("Run", KEY)
    assert len(fleet.entries) == before


def test_deleting_what_is_not_there_is_refused() -> None:
    fleet = Fleet(budget("a"))
    for kind, name in (("Run", "lab/x"), ("Budget", "b"), ("Node", "n"), ("Namespace", "ns")):
        (error,) = fleet.delete(kind, name)  # type: ignore[arg-type]  # the kinds
        assert error.problem == "does not exist"


def test_a_run_created_again_goes_on_counting_attempts_so_that_no_lease_name_is_used_twice() -> None:
    fleet = started()
    old = fleet.run(KEY).metadata.uid
    fleet.delete("Run", KEY)
    fleet.leave(KEY)
    fleet.start(run("x", 16, owner="org:a", group=8))
    assert {lease.attempt for lease in fleet.leases(KEY)} == {2}
    assert fleet.run(KEY).metadata.uid != old, "another incarnation, even at the same instant"
    closed = [name for fact in fleet.facts if isinstance(fact, Closed) for name in fact.leases]
    assert len(closed) == len(set(closed)) == 2


def test_a_run_that_is_being_deleted_cannot_be_applied() -> None:
    fleet = started()
    fleet.delete("Run", KEY)
    assert fleet.refusal(run("x", 16, owner="org:a", group=8)) == ["metadata.deletionTimestamp"]


# --- nodes that fail ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("how", ["fenced", "deleted"])
def test_a_failed_node_closes_every_lease_on_it_at_once(how: str) -> None:
    fleet = Fleet(node("n0"), node("m0", domain="B"), budget("a"))
    fleet.start(run("x", 4, owner="org:a"), run("y", 4, owner="org:a"))
    fleet.later("1h")
    fleet.fence("n0") if how == "fenced" else fleet.delete("Node", "n0")
    assert closures(fleet) == {"x-a1-g00-n0-0": "NodeFailure", "y-a1-g00-n0-0": "NodeFailure"}
    assert {one.end for one in fleet.closed().values()} == {at("1h")}
    assert (fleet.phase("lab/x"), fleet.phase("lab/y")) == ("Failed", "Failed")
    assert fleet.condition("lab/x", "Failed") == ("True", "NodeFailure")


def test_the_rest_of_a_gang_is_asked_to_leave_when_a_node_fails() -> None:
    fleet = started()
    fleet.fence("n0")
    assert [lease.node for lease in fleet.leases(KEY)] == ["n1"]
    assert fleet.phase(KEY) == "Running"
    fleet.leave(KEY)
    assert closures(fleet) == {"x-a1-g00-n0-0": "NodeFailure", "x-a1-g01-n1-0": "Fail"}
    assert fleet.phase(KEY) == "Failed"


def test_a_run_with_a_checkpoint_window_is_requeued_and_placed_again() -> None:
    fleet = started(checkpoint="30m")
    fleet.fence("n0")
    fleet.leave(KEY)
    fleet.apply(node("n2"))
    assert sorted(fleet.where(KEY)) == ["n1", "n2"]
    assert {lease.attempt for lease in fleet.leases(KEY)} == {2}
    fleet.bind(KEY)
    fleet.later("2h")
    assert (fleet.phase(KEY), fleet.run(KEY).status.restarts) == ("Running", 0)


def test_a_requeued_run_that_finds_no_place_within_its_window_fails() -> None:
    fleet = started(checkpoint="30m")
    fleet.later("1h")
    fleet.fence("n0")
    fleet.leave(KEY)
    fleet.until(at("90m") - 1)
    assert fleet.phase(KEY) == "Pending"
    fleet.until(at("90m"))
    assert (fleet.phase(KEY), fleet.condition(KEY, "Failed")) == ("Failed", ("True", "CheckpointExpired"))
    fleet.apply(node("n0"))
    assert fleet.leases() == []


def test_a_window_that_is_over_before_the_last_pod_left_fails_the_run_then() -> None:
    fleet = started(checkpoint="30m")
    fleet.fence("n0")
    fleet.later("1h")
    assert fleet.phase(KEY) == "Running"
    fleet.leave(KEY)
    fleet.later("1us")
    assert (fleet.phase(KEY), fleet.condition(KEY, "Failed")[1]) == ("Failed", "CheckpointExpired")


def test_a_node_that_fails_under_a_starting_run_is_a_failed_start() -> None:
    fleet = admitted(machines=3)
    fleet.report("Bound", "lab/x-a1-0")
    fleet.fence("n0")
    fleet.leave(KEY)
    assert fleet.phase(KEY) == "Pending"
    fleet.later("1s")
    assert sorted(fleet.where(KEY)) == ["n1", "n2"]


def test_a_node_that_fails_under_a_stopping_run_ends_what_is_on_it() -> None:
    fleet = started()
    fleet.delete("Run", KEY)
    fleet.fence("n0")
    assert [lease.node for lease in fleet.leases(KEY)] == ["n1"]
    fleet.leave(KEY)
    assert fleet.phase(KEY) == "Gone"
    assert closures(fleet) == {"x-a1-g00-n0-0": "NodeFailure", "x-a1-g01-n1-0": "Canceled"}


def test_losing_only_a_spare_does_not_end_the_run() -> None:
    fleet = Fleet(*nodes("n", 2), budget("a"))
    fleet.start(run("x", 8, owner="org:a", group=8, spares=2))
    fleet.fence("n1")
    assert [lease.role for lease in fleet.leases(KEY)] == ["Active"]
    assert closures(fleet) == {"x-a1-g00-n1-0": "NodeFailure"}
    assert not any(isinstance(fact, Ending) for fact in fleet.facts)
    fleet.succeed(KEY)
    assert fleet.phase(KEY) == "Completed"


@pytest.mark.parametrize("how", ["cordoned", "unready"])
def test_unready_and_cordoned_are_not_failed(how: str) -> None:
    fleet = started()
    fleet.apply(node("n0", cordoned=how == "cordoned", ready=how != "unready"))
    fleet.later("1d")
    assert (fleet.phase(KEY), closures(fleet)) == ("Running", {})


def test_unready_is_failure_after_its_debounce_where_the_operator_accepts_it() -> None:
    fleet = started(policy=Policy(unready_is_failure=True))
    fleet.apply(node("n0", ready=False))
    fleet.later("4m59s")
    assert closures(fleet) == {}
    fleet.later("1s")
    assert closures(fleet) == {"x-a1-g00-n0-0": "NodeFailure"}


def test_a_node_that_recovers_within_the_debounce_has_not_failed() -> None:
    fleet = started(policy=Policy(unready_is_failure=True))
    fleet.apply(node("n0", ready=False))
    fleet.later("4m")
    fleet.apply(node("n0"))
    fleet.later("4m")
    fleet.apply(node("n0", ready=False))
    fleet.later("4m")
    assert closures(fleet) == {}
    fleet.later("1m")
    assert len(closures(fleet)) == 1


def test_a_node_unready_for_long_fails_as_soon_as_the_operator_accepts_it() -> None:
    fleet = started()
    fleet.apply(node("n0", ready=False))
    fleet.later("1h")
    fleet.handle(SetPolicy(Policy(unready_is_failure=True)))
    fleet.later("0s")
    assert closures(fleet) == {"x-a1-g00-n0-0": "NodeFailure"}


def test_a_changed_debounce_counts_for_nodes_that_are_unready_already() -> None:
    fleet = started(policy=Policy(unready_is_failure=True))
    fleet.apply(node("n0", ready=False))
    fleet.handle(SetPolicy(Policy(unready_is_failure=True, unready_debounce="10m")))
    fleet.later("9m")
    assert closures(fleet) == {}
    fleet.later("1m")
    assert len(closures(fleet)) == 1


def test_a_node_that_comes_back_is_empty() -> None:
    fleet = started()
    fleet.delete("Node", "n0")
    fleet.leave(KEY)
    fleet.apply(node("n0"))
    fleet.start(run("y", 16, owner="org:a"))
    assert sorted(fleet.where("lab/y")) == ["n0", "n1"]


# --- one at a time ------------------------------------------------------------------------------------------------


def test_a_run_is_never_in_two_attempts_at_once() -> None:
    fleet = started(machines=4, restarts=3)
    fleet.fail(KEY)
    fleet.later("1h")
    assert {lease.attempt for lease in fleet.leases(KEY)} == {1}, "the first attempt's pods are still there"
    fleet.leave(KEY)
    fleet.later("1h")
    assert {lease.attempt for lease in fleet.leases(KEY)} == {2}


def test_a_status_shows_width_and_spares() -> None:
    fleet = Fleet(*nodes("n", 3), budget("a"))
    fleet.start(run("x", 16, owner="org:a", group=8, spares=2))
    status = fleet.run(KEY).status
    assert status.width is not None
    assert (status.width.min, status.width.max, status.width.allocated, status.width.pending) == (16, 16, 16, 0)
    assert [(one.group, one.available, one.consumed) for one in status.spares] == [(0, 2, 0), (1, 2, 0)]
    assert list(status.leases) == [lease.name for lease in fleet.leases(KEY)]


def test_what_is_shown_is_never_read_back() -> None:
    """A status that a user writes is dropped."""
    fleet = Fleet(*nodes("n", 2), budget("a"))
    wanted = run("x", 16, owner="org:a")
    forged = msgspec.structs.replace(
        wanted, status=msgspec.structs.replace(wanted.status, phase="Completed", restarts=9)
    )
    fleet.apply(forged)
    assert (fleet.phase(KEY), fleet.run(KEY).status.restarts) == ("Pending", 0)
    assert len(fleet.leases(KEY)) == 2
