"""SPEC 10: elastic runs start as wide as they fit, grow by steps, and shrink by groups."""

from __future__ import annotations

import pytest
from msgspec.structs import replace

from tenure.api.policy import Policy
from tenure.engine import Apply, Tick, dump, load, step
from tenure.facts import Moved
from tenure.testing import Fleet, at, budget, elastic, envelope, node, nodes, run
from tenure.testing.fleet import env
from tenure.units import SECOND
from tests.engine.test_spares import closures, open_leases

KEY = "lab/x"


def wide(fleet: Fleet, key: str = KEY) -> int:
    """Active GPUs of a run."""
    return sum(fleet.where(key).values())


def small(machines: int = 4, low: int = 8, high: int = 32, *, gpus: int = 8, **terms: object) -> Fleet:
    """An elastic run of 8-GPU steps that runs at ``gpus``, in a fleet with room for more."""
    fleet = Fleet(*nodes("n", machines), budget("a"))
    shape = elastic(low, high, 8)
    fleet.start(run("x", gpus, owner="org:a", elastic=shape, **terms))  # type: ignore[arg-type]  # the test names them
    return fleet


def grown(fleet: Fleet, key: str = KEY) -> list[str]:
    """When a run grew, as offsets in seconds."""
    steps = [
        entry.at
        for entry in fleet.entries
        for fact in entry.facts
        if isinstance(fact, Moved) and f"{fact.namespace}/{fact.run}" == key and fact.life.reason == "Grown"
    ]
    return [f"{(instant - at('0s')) // SECOND}s" for instant in steps]


# --- starting -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("total", "desired", "machines", "width"),
    [(32, None, 4, 32), (16, None, 4, 16), (32, 24, 4, 24), (16, 32, 4, 16), (32, None, 3, 24), (32, None, 1, 8)],
)
def test_it_starts_at_the_widest_step_up_to_total_and_desired_that_fits(
    total: int, desired: int | None, machines: int, width: int
) -> None:
    fleet = Fleet(*nodes("n", machines), budget("a"))
    fleet.start(run("x", total, owner="org:a", elastic=elastic(8, 32, 8, desired=desired)))
    assert wide(fleet) == width


def test_below_its_minimum_it_waits() -> None:
    fleet = Fleet(node("n0"), budget("a"))
    fleet.apply(run("x", 16, owner="org:a", elastic=elastic(16, 32, 8)))
    assert fleet.phase(KEY) == "Pending"
    assert fleet.leases() == []


def test_a_restart_starts_anew_at_the_widest_that_fits() -> None:
    fleet = small(gpus=8, restarts=1)
    fleet.later("2m")
    assert wide(fleet) == 24
    fleet.fence("n3")
    fleet.fail(KEY)
    fleet.leave(KEY)
    fleet.later("1s")
    assert {one.attempt for one in fleet.leases(KEY)} == {2}
    assert wide(fleet) == 8, "totalGPUs is where it starts"
    assert sorted({one.group for one in fleet.leases(KEY)}) == [0]


# --- growing ------------------------------------------------------------------------------------------------


def test_it_grows_one_step_per_interval_the_first_one_interval_after_it_started() -> None:
    fleet = small()
    fleet.later("10m")
    assert grown(fleet) == ["60s", "120s", "180s"]
    assert wide(fleet) == 32
    fleet.audit()


def test_the_interval_is_the_policys() -> None:
    fleet = Fleet(*nodes("n", 4), budget("a"), policy=Policy(grow_interval="10m"))
    fleet.start(run("x", 8, owner="org:a", elastic=elastic(8, 32, 8)))
    fleet.later("25m")
    assert grown(fleet) == ["600s", "1200s"]


def test_the_interval_counts_from_when_it_runs_not_from_when_it_was_admitted() -> None:
    fleet = Fleet(*nodes("n", 4), budget("a"))
    fleet.apply(run("x", 8, owner="org:a", elastic=elastic(8, 16, 8)))
    fleet.later("5m")
    fleet.bind(KEY)
    fleet.later("10m")
    assert grown(fleet) == ["360s"]


def test_new_groups_have_leases_of_reason_grow_new_indexes_and_new_ranks() -> None:
    fleet = small(high=16)
    fleet.later("1m")
    assert open_leases(fleet) == [("n0", "Active", "Start", tuple(range(8))), ("n1", "Active", "Grow", tuple(range(8)))]
    assert [(one.group, one.node) for one in fleet.leases(KEY)] == [(0, "n0"), (1, "n1")]
    assert [(pod.rank, pod.name) for pod in fleet.pods(KEY)] == [(0, "x-a1-0"), (1, "x-a1-1")]
    assert fleet.phase(KEY) == "Running"
    assert fleet.run(KEY).status.message == "Grown by 8 GPUs to 16."


def test_it_grows_by_a_step_of_several_groups_at_once() -> None:
    fleet = Fleet(*nodes("n", 4), budget("a"))
    fleet.start(run("x", 16, owner="org:a", group=8, elastic=elastic(16, 32, 16)))
    fleet.later("1m")
    assert sorted({one.group for one in fleet.leases(KEY)}) == [0, 1, 2, 3]


def test_a_step_of_two_groups_may_be_spread_over_the_domain_in_use_and_another() -> None:
    fleet = Fleet(*[node(f"a{i}", domain="A") for i in range(3)], node("b0", domain="B"), budget("a"))
    fleet.start(run("x", 16, owner="org:a", group=8, elastic=elastic(16, 32, 16), where={}))
    fleet.later("1m")
    assert fleet.domains(KEY) == {"A": 24, "B": 8}


def test_it_never_grows_above_what_is_desired() -> None:
    fleet = Fleet(*nodes("n", 4), budget("a"))
    fleet.start(run("x", 8, owner="org:a", elastic=elastic(8, 32, 8, desired=16)))
    fleet.later("1h")
    assert wide(fleet) == 16


def test_a_status_says_what_it_has_and_what_it_still_wants() -> None:
    fleet = small()
    width = fleet.run(KEY).status.width
    assert width is not None
    assert (width.min, width.max, width.desired, width.allocated, width.pending) == (8, 32, 32, 8, 24)


def test_existing_domains_come_first() -> None:
    fleet = Fleet(node("a0"), node("a1"), node("b0", 8, domain="B"), budget("a"))
    fleet.start(run("x", 8, owner="org:a", elastic=elastic(8, 24, 8), where={}))
    first = fleet.domains(KEY)
    fleet.later("1m")
    if first == {"A": 8}:
        assert fleet.domains(KEY) == {"A": 16}
    fleet.later("2m")
    assert fleet.domains(KEY) == {"A": 16, "B": 8}


def test_the_domain_in_use_beats_a_tighter_one() -> None:
    fleet = Fleet(*[node(f"a{i}", domain="A") for i in range(3)], node("b0", domain="B"), budget("a"))
    fleet.start(run("x", 8, owner="org:a", elastic=elastic(8, 16, 8), where={"fabric.domain": "A"}))
    fleet.start(run("other", 8, owner="org:a", where={"fabric.domain": "B"}))
    fleet.succeed("lab/other")
    fleet.later("1m")
    assert fleet.domains(KEY) == {"A": 16}


def test_it_stays_in_its_cluster() -> None:
    fleet = Fleet(node("a0"), node("z0", cluster="gpu-z"), node("z1", cluster="gpu-z"), budget("a"))
    fleet.start(run("x", 8, owner="org:a", elastic=elastic(8, 16, 8), where={"cluster": "gpu-a"}))
    fleet.apply(run("y", 8, owner="org:a", elastic=elastic(8, 24, 8)))
    fleet.bind("lab/y")
    fleet.later("1h")
    assert wide(fleet) == 8
    assert set(fleet.where("lab/y")) == {"z0", "z1"}


def test_without_spread_it_stays_in_its_domain() -> None:
    fleet = Fleet(node("a0"), node("b0", domain="B"), budget("a"))
    fleet.start(run("x", 8, owner="org:a", elastic=elastic(8, 16, 8), spread=False))
    fleet.later("1h")
    assert wide(fleet) == 8


def test_new_groups_come_with_their_spares() -> None:
    fleet = Fleet(*nodes("n", 3), budget("a"))
    fleet.start(run("x", 8, owner="org:a", group=8, spares=4, elastic=elastic(8, 16, 8)))
    fleet.later("1m")
    assert [(one.group, one.available) for one in fleet.run(KEY).status.spares] == [(0, 4), (1, 4)]
    assert {one.reason for one in fleet.leases(KEY) if one.group == 1} == {"Grow"}


def test_without_room_for_the_spares_it_does_not_grow() -> None:
    fleet = Fleet(node("n0", 12), node("n1"), budget("a"))
    fleet.start(run("x", 8, owner="org:a", group=8, spares=4, elastic=elastic(8, 16, 8)))
    fleet.later("1h")
    assert wide(fleet) == 8


def test_it_grows_only_with_money() -> None:
    fleet = Fleet(*nodes("n", 4), budget("a", envelope(gpus=20)))
    fleet.start(run("x", 8, owner="org:a", elastic=elastic(8, 32, 8)))
    fleet.later("1h")
    assert wide(fleet) == 16
    fleet.apply(budget("a", envelope(gpus=24)))
    assert wide(fleet) == 24, "the moment money appears"


def test_growth_needs_hours_for_what_is_left_of_the_declared_time_only() -> None:
    """8 GPUs for 4 hours are 32 of 40 hours; 8 more for the last hour are 8: from then on there is money for them."""
    fleet = Fleet(*nodes("n", 2), budget("a", envelope(hours=40)))
    fleet.start(run("x", 8, owner="org:a", elastic=elastic(8, 16, 8), lasts="4h"))
    fleet.until(at("3h") - 1)
    assert wide(fleet) == 8
    fleet.until(at("3h"))
    assert wide(fleet) == 16
    fleet.audit()


def test_max_borrow_counts_admissions_and_growth_together() -> None:
    lender = budget("b", envelope(gpus=64, lends_to=["org:a"]))
    fleet = Fleet(*nodes("n", 4), budget("a", envelope(gpus=4)), lender)
    fleet.start(run("x", 8, owner="org:a", elastic=elastic(8, 32, 8), sponsors=["org:b"], max_borrow=12))
    assert fleet.payers(KEY) == {"a/main": 4, "b/main": 4}
    fleet.later("1h")
    assert fleet.payers(KEY) == {"a/main": 4, "b/main": 12}
    assert wide(fleet) == 16


def test_it_never_grows_before_a_waiting_run_that_could_start() -> None:
    fleet = Fleet(*nodes("n", 2), budget("a"))
    fleet.start(run("x", 8, owner="org:a", elastic=elastic(8, 16, 8)), run("busy", 8, owner="org:a"))
    fleet.apply(run("waits", 8, owner="org:a"))
    fleet.later("10m")
    fleet.succeed("lab/busy")
    assert wide(fleet) == 8
    assert wide(fleet, "lab/waits") == 8


def test_it_grows_when_machines_come_free() -> None:
    fleet = Fleet(*nodes("n", 2), budget("a"))
    fleet.start(run("x", 8, owner="org:a", elastic=elastic(8, 16, 8)), run("busy", 8, owner="org:a"))
    fleet.later("95s")
    fleet.succeed("lab/busy")
    assert grown(fleet) == ["95s"]


def test_who_was_let_past_others_grows_no_more_when_its_end_has_come() -> None:
    """x was to be gone an hour after it was admitted, before wide starts; its pods were bound half a minute later.
    When busy leaves, x is over its time, though it was not at the last whole interval: once it was given a step then,
    until the instant at which it took it."""
    fleet = Fleet(*nodes("n", 3), budget("a"), policy=Policy(patience="1000h"))
    fleet.start(run("long", 8, owner="org:a", lasts="4h"))
    fleet.apply(run("wide", 24, owner="org:a", lasts="1h"))
    fleet.start(run("busy", 8, owner="org:a", lasts="1h"))
    fleet.apply(run("x", 8, owner="org:a", elastic=elastic(8, 16, 8), lasts="1h"))
    fleet.later("30s")
    fleet.bind(KEY)
    fleet.until(at("1h"))
    fleet.succeed("lab/busy")
    assert (fleet.phase("lab/busy"), wide(fleet)) == ("Completed", 8)
    fleet.later("5m")
    assert grown(fleet) == []
    fleet.audit()


def test_runs_that_want_to_grow_take_turns_oldest_first() -> None:
    fleet = Fleet(*nodes("n", 4), budget("a"))
    for name in ("y", "x"):
        fleet.start(run(name, 8, owner="org:a", elastic=elastic(8, 24, 8)))
        fleet.later("1s")
    fleet.later("5m")
    assert (wide(fleet, "lab/y"), wide(fleet, "lab/x")) == (16, 16)


def test_a_new_group_that_does_not_start_is_given_up_and_the_rest_runs_on() -> None:
    fleet = small(machines=2, high=16)
    fleet.later("1m")
    fleet.report("Failed", "lab/x-a1-1", message="no such image")
    assert fleet.phase(KEY) == "Running"
    fleet.leave(KEY)
    assert (wide(fleet), closures(fleet)) == (8, {"x-a1-g01-n1-0": "Fail"})
    fleet.later("2m")
    assert [one.group for one in fleet.leases(KEY)] == [0, 2], "tried again an interval later, under a new index"


def test_a_rebuilt_engine_grows_at_the_same_instant() -> None:
    fleet = small()
    fleet.later("30s")
    twin = load(dump(fleet.state))
    fleet.until(at("1m"))
    assert step(twin, Tick(), now=at("1m")).facts == fleet.entries[-1].facts
    assert dump(twin) == dump(fleet.state)


# --- shrinking ----------------------------------------------------------------------------------------------


def test_it_shrinks_when_less_is_desired_and_leases_close_when_the_pods_are_gone() -> None:
    fleet = small(gpus=32)
    fleet.later("10m")
    fleet.resize(KEY, 16)
    assert (wide(fleet), closures(fleet)) == (32, {})
    fleet.later("1m")
    fleet.leave(KEY)
    assert {one.reason for one in fleet.closed().values()} == {"Shrink"}
    assert {one.end for one in fleet.closed().values()} == {at("11m")}
    assert fleet.where(KEY) == {"n0": 8, "n1": 8}
    assert fleet.phase(KEY) == "Running"
    fleet.audit()


def test_the_highest_index_goes_first_as_a_number() -> None:
    """Group 10 goes before group 9."""
    fleet = Fleet(*nodes("n", 12), budget("a", envelope(gpus=96)))
    fleet.start(run("x", 88, owner="org:a", elastic=elastic(8, 88, 8)))
    fleet.resize(KEY, 80)
    fleet.leave(KEY)
    assert [one.lease.group for one in fleet.closed().values()] == [10]
    fleet.resize(KEY, 72)
    fleet.leave(KEY)
    assert [one.lease.group for one in fleet.closed().values()] == [10, 9]


def test_groups_on_borrowed_money_go_first() -> None:
    lender = budget("b", envelope(gpus=8, lends_to=["org:a"]))
    fleet = Fleet(*nodes("n", 3), budget("a", envelope(gpus=8)), lender)
    fleet.start(run("x", 16, owner="org:a", elastic=elastic(8, 24, 8), sponsors=["org:b"]))
    fleet.apply(budget("a", envelope(gpus=16)))
    fleet.later("1m")
    assert {one.group: one.funding for one in fleet.leases(KEY)} == {0: "owned", 1: "borrowed", 2: "owned"}
    fleet.resize(KEY, 16)
    fleet.leave(KEY)
    assert {one.group: one.funding for one in fleet.leases(KEY)} == {0: "owned", 2: "owned"}


def test_a_groups_spares_go_with_it() -> None:
    fleet = Fleet(*nodes("n", 3), budget("a"))
    fleet.start(run("x", 16, owner="org:a", group=8, spares=4, elastic=elastic(8, 16, 8)))
    fleet.resize(KEY, 8)
    assert [one.group for one in fleet.run(KEY).status.spares] == [0]
    fleet.leave(KEY)
    assert {one.group for one in fleet.leases(KEY)} == {0}
    assert set(closures(fleet).values()) == {"Shrink"}


def test_the_minimum_counts_active_gpus_not_spares() -> None:
    fleet = Fleet(*nodes("n", 3), budget("a"))
    fleet.start(run("x", 16, owner="org:a", group=8, spares=4, elastic=elastic(8, 16, 8)))
    fleet.resize(KEY, 8)
    fleet.leave(KEY)
    assert wide(fleet) == 8


def test_group_indexes_and_ranks_are_never_used_twice_in_an_attempt() -> None:
    fleet = small(machines=2, high=16)
    for minute in range(1, 4):
        fleet.until(at(f"{minute}m"))
        fleet.bind(KEY)
        assert sorted(pod.rank for pod in fleet.pods(KEY)) == [0, minute]
        fleet.resize(KEY, 8)
        fleet.leave(KEY)
        fleet.resize(KEY, 16)
    assert sorted({one.group for one in fleet.opened().values()}) == [0, 1, 2, 3]
    fleet.audit()


def test_lowering_and_raising_does_not_flap() -> None:
    """However often the owner changes its mind: one step up per interval, and none while a group is leaving."""
    fleet = small(machines=4, high=16)
    fleet.until(at("1m"))
    for second in range(61, 100, 3):
        fleet.until(at(f"{second}s"))
        fleet.resize(KEY, 8 if second % 2 else 16)
        fleet.leave(KEY)
    fleet.resize(KEY, 16)
    fleet.until(at("10m"))
    assert grown(fleet) == ["60s", "120s"]
    assert wide(fleet) == 16


def test_it_does_not_grow_while_a_part_of_it_is_leaving() -> None:
    fleet = small(gpus=16, high=16)
    fleet.later("10m")
    fleet.resize(KEY, 8)
    fleet.resize(KEY, 16)
    fleet.later("10m")
    assert grown(fleet) == []
    assert wide(fleet) == 16, "what leaves still holds its GPUs"
    fleet.leave(KEY)
    assert grown(fleet) == ["1200s"]
    assert wide(fleet) == 16


def test_less_desired_while_it_starts_is_heeded_when_it_runs() -> None:
    fleet = Fleet(*nodes("n", 4), budget("a"))
    fleet.apply(run("x", 32, owner="org:a", elastic=elastic(8, 32, 8)))
    fleet.resize(KEY, 16)
    fleet.bind(KEY)
    fleet.leave(KEY)
    assert wide(fleet) == 16


def test_less_desired_is_heeded_by_an_engine_that_was_rebuilt_before_it_decided() -> None:
    fleet = small(gpus=32)
    item = fleet.state.runs[KEY].run
    shape = replace(item.spec.malleable, desired_total_gpus=8)  # type: ignore[type-var]  # it has one
    fleet.handle(Apply((replace(item, spec=replace(item.spec, malleable=shape)),)), decide=False)
    fleet.state = load(dump(fleet.state))
    fleet.handle(Tick())
    fleet.leave(KEY)
    assert wide(fleet) == 8


def test_less_desired_while_it_waits_is_heeded_when_it_starts() -> None:
    fleet = Fleet(budget("a"))
    fleet.apply(run("x", 32, owner="org:a", elastic=elastic(8, 32, 8)))
    fleet.resize(KEY, 16)
    fleet.apply(*nodes("n", 4))
    assert wide(fleet) == 16


# --- ends ---------------------------------------------------------------------------------------------------


def test_it_completes_when_what_is_left_of_it_succeeded() -> None:
    fleet = small(gpus=16, high=16)
    fleet.resize(KEY, 8)
    fleet.report("Succeeded", "lab/x-a1-0", code=0)
    assert fleet.phase(KEY) == "Running", "a group is still leaving"
    fleet.later("1m")
    fleet.leave(KEY)
    assert fleet.phase(KEY) == "Completed"
    assert closures(fleet) == {"x-a1-g00-n0-0": "Completed", "x-a1-g01-n1-0": "Shrink"}
    fleet.audit()


def test_a_group_that_had_succeeded_when_it_was_given_up_closes_shrink() -> None:
    fleet = small(gpus=16, high=16)
    fleet.report("Succeeded", "lab/x-a1-1", code=0)
    fleet.resize(KEY, 8)
    fleet.report("Succeeded", "lab/x-a1-0", code=0)
    assert fleet.phase(KEY) == "Completed"
    assert closures(fleet) == {"x-a1-g00-n0-0": "Completed", "x-a1-g01-n1-0": "Shrink"}


@pytest.mark.parametrize(("how", "reason"), [("cancel", "Canceled"), ("fail", "Fail")])
def test_a_run_that_ends_while_a_group_leaves_closes_each_lease_for_its_own_reason(how: str, reason: str) -> None:
    fleet = small(gpus=16, high=16)
    fleet.resize(KEY, 8)
    fleet.later("10s")
    if how == "cancel":
        fleet.delete("Run", KEY)
    else:
        fleet.fail(KEY)
    fleet.leave(KEY)
    assert closures(fleet) == {"x-a1-g00-n0-0": reason, "x-a1-g01-n1-0": "Shrink"}
    fleet.audit()


# --- rendezvous ---------------------------------------------------------------------------------------------


def test_pods_get_the_elastic_rendezvous_instead_of_a_world_size_and_keep_their_ranks() -> None:
    fleet = small(high=16)
    fleet.later("1m")
    first, second = (env(fleet.manifest(pod.key)) for pod in fleet.pods(KEY))
    for one in (first, second):
        assert "WORLD_SIZE" not in one
        assert (one["TENURE_MIN_GPUS"], one["TENURE_MAX_GPUS"]) == ("8", "16")
        assert one["TENURE_RDZV_ENDPOINT"] == "n0:29500"
    assert (first["NODE_RANK"], second["NODE_RANK"]) == ("0", "1")


@pytest.mark.parametrize("looked_at", [False, True])
def test_a_run_whose_pods_took_long_grows_when_money_allows_whoever_looks(looked_at: bool) -> None:
    """It said an hour, and works from half an hour on: what is left to pay falls until an hour and a half, and each
    interval may be the one from which on there is enough."""
    fleet = Fleet(*nodes("n", 3), budget("a", envelope("main", 24, hours=15)))
    fleet.apply(run("r", 8, owner="org:a", group=8, elastic=elastic(8, 24, 16), lasts="1h"))
    fleet.later("30m")
    fleet.bind("lab/r")
    fleet.until(at("60m"))
    if looked_at:
        fleet.apply(node("extra", 8, domain="Z"))
    fleet.until(at("67m"))
    assert {lease.reason for lease in fleet.leases("lab/r")} == {"Start"}
    fleet.until(at("68m"))
    assert {lease.reason for lease in fleet.leases("lab/r")} == {"Start", "Grow"}
