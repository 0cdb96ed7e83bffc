"""Replaying a trace on the engine: every job runs for as long as it really did, and the ledger holds under audit."""

from __future__ import annotations

import csv
from fractions import Fraction
from pathlib import Path

import pytest
from msgspec.structs import replace

from tenure.api.budget import Budget
from tenure.api.errors import Faults
from tenure.api.policy import Policy
from tenure.api.validate import check_rules
from tenure.simulate.declare import WAYS, Declare
from tenure.simulate.reference import POLICIES
from tenure.simulate.replay import START, Replay, Replayed, Setting
from tenure.simulate.replay_world import Machines, Pods, ample_budgets, run_of, uniform_nodes
from tenure.simulate.report_data import refer
from tenure.simulate.trace import Job, job, read_trace
from tenure.testing.builders import budget, envelope, node
from tenure.units import HOUR, MINUTE, SECOND, format_time

ROOT = Path(__file__).parents[2]
PATIENT = Policy(patience="720h")
EXAMPLE = ROOT / "examples" / "traces" / "three-teams.csv"


def setting(
    jobs: list[Job],
    fleet: str = "1x2x8",
    *,
    policy: Policy = PATIENT,
    budgets: tuple[Budget, ...] | None = None,
    declare: Declare = "true",
    pods: Pods = "any",
) -> Setting:
    nodes = uniform_nodes(fleet)
    assert nodes is not None
    machines = Machines(nodes, policy)
    by_flavor, left_out = machines.sort(jobs)
    assert not left_out
    money = ample_budgets({one.owner for one in jobs}, machines) if budgets is None else budgets
    return Setting(
        jobs=by_flavor, nodes=nodes, objects=money, policy=policy, gpus=machines.total, declare=declare, pods=pods
    )


def play(jobs: list[Job], fleet: str = "1x2x8", **world: object) -> Replayed:
    found = Replay(setting(jobs, fleet, **world)).play()  # type: ignore[arg-type]  # passed on as they are
    assert found.audit.violations == 0, found.audit.examples
    assert found.refused == ()
    return found


def example() -> list[Job]:
    with EXAMPLE.open(newline="") as file:
        return list(read_trace(file, source="three-teams.csv", scale=Fraction(1)).jobs)


def hours(name: str, submit: int, length: int, gpus: int, owner: str = "org:a") -> Job:
    return job(name, submit * HOUR, length * HOUR, gpus, owner)


def test_every_job_of_the_example_runs_to_its_end_and_nothing_is_violated() -> None:
    found = play(example(), "2x4x8")
    with EXAMPLE.open(newline="") as file:
        rows = sum(1 for _ in csv.DictReader(file))
    assert found.summary.submitted == found.summary.started == found.summary.completed == rows
    assert found.unstarted == ()
    assert found.audit.entries == found.work.entries > 2 * rows
    assert found.audit.sweeps >= 4, "once in every virtual day"


def test_a_job_waits_for_the_one_before_it() -> None:
    found = play([hours("a", 0, 2, 16), hours("b", 1, 1, 16)])
    assert (found.summary.wait_hours.max, found.summary.wait_hours.mean) == (1.0, 0.5)
    assert found.summary.virtual_days == pytest.approx(3 / 24)
    assert found.summary.utilisation == 1.0


def test_the_bind_delay_of_the_policy_counts_as_waiting() -> None:
    found = play([hours("a", 0, 2, 16)], policy=Policy(bind_delay="30m"))
    assert found.summary.wait_hours.max == 0.5


@pytest.mark.parametrize("declare", WAYS)
def test_jobs_end_when_they_really_did_whatever_they_declared(declare: Declare) -> None:
    asked = replace(hours("a", 0, 2, 16), requested=5 * HOUR)
    found = play([asked, hours("b", 1, 1, 16)], declare=declare)
    assert found.summary.completed == 2
    assert found.summary.virtual_days == pytest.approx(3 / 24)


def test_a_tight_budget_makes_its_owner_wait_and_nobody_else() -> None:
    tight = budget("a", envelope("main", 8, selector={"region": "sim"}), owner="org:a")
    ample = budget("b", envelope("main", 16, selector={"region": "sim"}), owner="org:b")
    tight, ample = (_with_flavor(one) for one in (tight, ample))
    jobs = [hours("a1", 0, 2, 8), hours("a2", 0, 1, 8), hours("b1", 0, 1, 8, "org:b")]
    by_owner = play(jobs, budgets=(tight, ample)).summary.wait_hours_by_owner
    assert (by_owner["org:a"].max, by_owner["org:b"].max) == (2.0, 0.0)


def _with_flavor(item: Budget) -> Budget:
    envelopes = tuple(replace(one, flavor="gpu") for one in item.spec.envelopes)
    return replace(item, spec=replace(item.spec, envelopes=envelopes))


def test_jobs_that_nobody_pays_for_are_reported_with_the_reason_and_do_not_hold_up_the_end() -> None:
    poor = _with_flavor(budget("a", envelope("main", 4, selector={"region": "sim"}), owner="org:a"))
    found = play([hours("a", 0, 1, 4), hours("wide", 0, 1, 8), hours("b", 0, 1, 1, "org:b")], budgets=(poor,))
    assert (found.summary.started, found.summary.completed) == (1, 1)
    assert {(one.reason, one.jobs) for one in found.unstarted} == {("ConcurrencyCapExceeded", 1), ("NoEnvelope", 1)}


def test_the_same_trace_gives_the_same_ledger() -> None:
    heads = set()
    for _ in range(2):
        replay = Replay(setting(example()[:60], "2x4x8"))
        replay.play()
        heads.add(replay.home.store.head.hash)
    assert len(heads) == 1


def test_a_replay_keeps_no_history() -> None:
    replay = Replay(setting(example()[:60], "2x4x8"))
    found = replay.play()
    store = replay.home.store
    assert store.head.seq == found.work.entries > 100
    with pytest.raises(AssertionError, match="keep no entries"):
        list(store.entries())
    with pytest.raises(AssertionError, match="keep no entries"):
        list(store.lease_history())


def test_jobs_submitted_at_one_instant_are_handed_in_together() -> None:
    crowd = [hours(f"j{index}", 1, 1, 1) for index in range(10)]
    found = play(crowd)
    assert found.work.turns == 2, "the instant they come, and the instant they end"


def test_progress_ends_with_every_job() -> None:
    seen: list[tuple[str, int, int]] = []
    Replay(setting([hours("a", 0, 1, 8), hours("b", 0, 1, 8)]), progress=lambda *said: seen.append(said)).play()
    assert seen[-1] == ("job", 2, 2)


def test_scattered_room_is_told_from_room_that_lies_together() -> None:
    """Two jobs of five leave three GPUs on each of two machines, in two domains."""
    found = play([hours("a", 0, 4, 5), hours("b", 0, 4, 5), hours("last", 3, 1, 1)], "2x1x8")
    sizes = {one.size: one for one in found.fragmentation.sizes}
    assert found.fragmentation.free == pytest.approx(6, rel=0.01)
    assert (sizes[2].fit, sizes[2].packed) == pytest.approx((2, 3), rel=0.01)
    assert (sizes[4].fit, sizes[4].packed) == pytest.approx((0, 1), rel=0.01)
    assert [curve.size for curve in found.fragmentation.curves] == [8]


def test_whole_pods_never_cross_a_machine() -> None:
    halves = [hours("a", 0, 10, 5), hours("b", 0, 10, 5), hours("c", 1, 5, 6)]
    assert play(halves, "1x2x8").summary.wait_hours.max == 0.0
    assert play(halves, "1x2x8", pods="whole").summary.wait_hours.max == 9.0


def test_references_hear_and_pack_what_tenure_does() -> None:
    jobs = [hours("a", 0, 10, 6), hours("b", 1, 10, 8), hours("c", 2, 5, 2), hours("d", 3, 5, 2)]
    waits = []
    for declare in ("true", "x2"):
        given = setting(jobs, "1x1x8", declare=declare)
        machines = Machines(given.nodes, given.policy)
        waits.append(refer("easy", given, machines).wait_hours_by_size["2-8"].max)
    assert waits == [17.0, 11.0], "twice too long, the head's shadow lets the last job past"
    halves = [hours("a", 0, 10, 5), hours("b", 0, 10, 5), hours("c", 1, 5, 6)]
    for pods, longest in (("any", 0.0), ("whole", 9.0)):
        given = setting(halves, "1x2x8", pods=pods)
        machines = Machines(given.nodes, given.policy)
        assert [refer(policy, given, machines).wait_hours.max for policy in POLICIES] == [longest, longest]


# --- the world --------------------------------------------------------------------------------------------------------


def test_on_a_fleet_of_one_flavor_every_job_runs_on_that_one() -> None:
    machines = Machines([node("n1")], Policy())
    jobs, left_out = machines.sort([replace(hours("a", 0, 1, 1), flavors=("V100",)), hours("b", 0, 1, 1)])
    assert {flavor: [one.name for one in some] for flavor, some in jobs.items()} == {"H100-80GB": ["a", "b"]}
    assert left_out == []


def test_on_a_mixed_fleet_a_job_gets_the_first_of_its_kinds_that_is_there() -> None:
    machines = Machines([node("n1", flavor="A100"), node("n2", 4, flavor="H100"), node("n3", flavor="A100")], Policy())
    asked = [
        replace(hours("listed", 0, 1, 1), flavors=("V100", "H100")),
        replace(hours("absent", 0, 1, 1), flavors=("V100",)),
        hours("any", 0, 1, 1),
        replace(hours("wide", 0, 1, 8), flavors=("H100",)),
    ]
    jobs, left_out = machines.sort(asked)
    assert {flavor: [one.name for one in some] for flavor, some in jobs.items()} == {
        "H100": ["listed"],
        "A100": ["any"],
    }
    assert [(one.job.name, one.why) for one in left_out] == [
        ("absent", "no machine has V100"),
        ("wide", "8 GPUs are more than the 4 there are of H100"),
    ]


def test_a_gang_is_no_wider_than_the_widest_cluster() -> None:
    machines = Machines([node("n1", cluster="x"), node("n2", cluster="x"), node("n3", cluster="y")], Policy())
    assert (machines.total, machines.widest("H100-80GB")) == (24, 16)


def test_cordoned_machines_offer_nothing() -> None:
    assert Machines([node("n1"), node("n2", cordoned=True)], Policy()).total == 8


def test_ample_budgets_are_good_budgets_with_names_of_their_own() -> None:
    machines = Machines([node("n1"), node("n2", cluster="y", flavor="A100")], Policy())
    made = ample_budgets({"org:a", "org-a", "b"}, machines)
    assert len({one.metadata.name for one in made}) == 3
    for one in made:
        faults = Faults(one.metadata.name)
        check_rules(one, faults, simulated=True)
        assert faults.errors == []
        assert {(cover.flavor, cover.concurrency) for cover in one.spec.envelopes} == {("A100", 8), ("H100-80GB", 8)}


def test_a_uniform_fleet_is_written_as_domains_nodes_and_gpus() -> None:
    nodes = uniform_nodes("28x8x8")
    assert nodes is not None
    machines = Machines(nodes, Policy())
    assert (len(nodes), machines.domains, machines.total) == (224, 28, 1792)
    assert [uniform_nodes(text) for text in ("28x8", "0x8x8", "1x1x2000", "999999x99999x8", "axbxc", "")] == [None] * 6


def test_the_run_of_a_job_is_one_that_the_api_takes() -> None:
    for one in example()[:20]:
        run = run_of(one, "gpu", declare="true")
        faults = Faults("run")
        check_rules(run, faults, simulated=True)
        assert faults.errors == []
        assert run.spec.resources.total_gpus == one.gpus
        assert run.spec.resources.gpus_per_pod is None


@pytest.mark.parametrize(("gpus", "pod"), [(1, 1), (6, 6), (8, 8), (12, 4), (64, 8), (9, 1)])
def test_in_whole_pods_the_run_of_a_job_is_one_that_the_api_takes(gpus: int, pod: int) -> None:
    run = run_of(hours("a", 0, 1, gpus), "gpu", declare="none", unit=8)
    faults = Faults("run")
    check_rules(run, faults, simulated=True)
    assert faults.errors == []
    assert run.spec.resources.gpus_per_pod == pod


def test_a_replay_begins_where_the_docs_say() -> None:
    page = (ROOT / "docs" / "guide" / "simulate.md").read_text()
    assert format_time(START) in page


def test_seconds_and_minutes_survive_the_way_into_a_declared_duration() -> None:
    odd = job("a", 0, 90 * MINUTE + 7 * SECOND + 5, 1)
    assert run_of(odd, "gpu", declare="true").spec.runtime.expected_duration == "1h30m7s5us"


# --- promises -----------------------------------------------------------------------------------------------------


def test_what_was_promised_on_true_durations_is_kept_to_the_instant() -> None:
    kept = play([hours("a", 0, 2, 16), hours("b", 0, 2, 16), hours("c", 1, 1, 16)]).promises
    assert (kept.made, kept.kept, kept.missed, kept.moved_later) == (2, 2, 0, 0)
    assert kept.error_hours["all"] == kept.error_hours["projected"]
    assert (kept.error_hours["all"].starts, kept.error_hours["all"].max) == (2, 0.0)


def test_what_was_promised_on_durations_twice_too_long_comes_early() -> None:
    kept = play([hours("a", 0, 2, 16), hours("b", 0, 2, 16)], declare="x2").promises
    assert (kept.made, kept.kept, kept.missed, kept.moved_later) == (1, 1, 0, 0)
    assert kept.error_hours["projected"].mean == -2.0


def test_a_job_that_overstays_makes_a_promise_be_missed() -> None:
    long = replace(hours("a", 0, 4, 16), requested=2 * HOUR)
    kept = play([long, replace(hours("b", 0, 1, 16), requested=HOUR)], declare="requested-raw").promises
    assert (kept.made, kept.missed, kept.kept) == (1, 1, 0)
    assert kept.error_hours["all"].max > 0
