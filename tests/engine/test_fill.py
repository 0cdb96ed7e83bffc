"""SPEC 9, fill: opportunistic work on other runs' spares, what it pays, and when it gives way or stays."""

from __future__ import annotations

import pytest

from tenure.api.run import Run
from tenure.engine import Apply, State, dump, load
from tenure.facts import Closed, Placed, Resolved
from tenure.shell.home import Home, fold_entry
from tenure.shell.simulated import SimulatedExecutor
from tenure.shell.store import MemoryStore
from tenure.testing import FENCE, START, Fleet, at, budget, elastic, envelope, node, nodes, run
from tenure.units import MINUTE
from tests.engine.test_spares import closures, open_leases

KEEPER, GUEST = "lab/x", "lab/guest"


def guest(gpus: int = 8, **terms: object) -> Run:
    return run("guest", gpus, **{"owner": "org:b", "opportunistic": True, **terms})  # type: ignore[arg-type]  # the test names them


def filled(*machines: object, spares: int = 8, **terms: object) -> Fleet:
    """x runs on n0 with its spares on n1, and a guest sits on those."""
    fleet = Fleet(*nodes("n", 2), *machines, budget("a"), budget("b"))  # type: ignore[arg-type]  # nodes
    fleet.start(run("x", 8, owner="org:a", group=8, spares=spares))
    fleet.start(guest(**terms))
    return fleet


# --- sitting on spares --------------------------------------------------------------------------------------


def test_only_opportunistic_work_runs_on_a_spare() -> None:
    fleet = Fleet(*nodes("n", 2), budget("a"), budget("b"))
    fleet.start(run("x", 8, owner="org:a", group=8, spares=8, lasts="4h"))
    fleet.apply(run("plain", 8, owner="org:b"))
    assert fleet.code("lab/plain") == "NoCapacity"
    fleet.start(guest(lasts="1h"))
    assert open_leases(fleet, GUEST) == [("n1", "Borrowed", "Start", tuple(range(8)))]


@pytest.mark.parametrize(("gpus", "sits"), [(8, False), (4, True)])
def test_a_spare_that_will_be_cut_for_another_takes_no_guest(gpus: int, sits: bool) -> None:
    """plain is promised n1, or half of it, when x has had its notice: whoever sat there would be sent away then, or, if
    x is over before, have to be drawn by lot, and before it has run for that long that is not allowed."""
    fleet = Fleet(*nodes("n", 2), budget("a"), budget("b"))
    fleet.start(run("x", 8, owner="org:a", group=8, spares=8))
    fleet.apply(run("plain", gpus, owner="org:b"))
    assert [(one.node, one.gpus) for one in fleet.state.reservations["lab/plain"].plan.shares] == [("n1", gpus)]
    fleet.apply(guest(4))
    assert [(one.node, one.role) for one in fleet.leases(GUEST)] == ([("n1", "Borrowed")] if sits else [])


def test_a_plain_run_that_was_refused_does_not_keep_an_equal_opportunistic_one_out() -> None:
    fleet = Fleet(*nodes("n", 2), budget("a"), budget("b"))
    fleet.start(run("x", 8, owner="org:a", group=8, spares=8, lasts="4h"))
    fleet.apply(run("a-plain", 8, owner="org:b", lasts="1h"), guest(lasts="1h"))
    assert fleet.where("lab/a-plain") == {}
    assert [one.role for one in fleet.leases(GUEST)] == ["Borrowed"]


def test_borrowed_leases_are_paid_by_the_guests_own_envelope_while_the_spare_is_paid_by_its_owner() -> None:
    fleet = filled()
    assert (fleet.payers(KEEPER), fleet.payers(GUEST)) == ({"a/main": 16}, {"b/main": 8})
    assert (fleet.headroom("a").spare, fleet.headroom("b").borrowed, fleet.headroom("b").used) == (8, 8, 8)
    fleet.later("1h")
    assert (fleet.headroom("a").used_gpu_hours, fleet.headroom("b").used_gpu_hours) == (16.0, 8.0)


def test_a_guest_on_spares_does_not_evade_the_caps_of_who_pays_for_it() -> None:
    fleet = Fleet(*nodes("n", 2), budget("a"), budget("b", envelope(gpus=4)))
    fleet.start(run("x", 8, owner="org:a", group=8, spares=8))
    fleet.apply(guest(8))
    assert fleet.code(GUEST) == "ConcurrencyCapExceeded"


def test_a_spare_carries_one_guest() -> None:
    fleet = filled()
    fleet.apply(run("second", 4, owner="org:b", opportunistic=True))
    assert fleet.leases("lab/second") == []


def test_free_gpus_are_taken_first_as_active_leases_and_spares_after_them() -> None:
    fleet = Fleet(*nodes("n", 2), budget("a"), budget("b"))
    fleet.start(run("x", 8, owner="org:a", group=8, spares=4))
    fleet.start(guest(6))
    assert open_leases(fleet, GUEST) == [("n1", "Active", "Start", (4, 5, 6, 7)), ("n1", "Borrowed", "Start", (0, 1))]
    assert [pod.gpus for pod in fleet.pods(GUEST)] == [(4, 5, 6, 7, 0, 1)]


def test_free_gpus_of_other_nodes_come_before_the_spares_of_this_one() -> None:
    fleet = Fleet(node("n0"), node("n1", 4), node("n2"), budget("a"), budget("b"))
    fleet.start(run("x", 8, owner="org:a", group=8, spares=4))
    spare = next(one.node for one in fleet.leases(KEEPER) if one.role == "Spare")
    fleet.start(guest(10))
    roles = {(one.node, one.role): len(one.gpus) for one in fleet.leases(GUEST)}
    assert sum(gpus for (_, role), gpus in roles.items() if role == "Borrowed") == 2
    assert roles.get((spare, "Borrowed")) == 2
    assert fleet.headroom("b").borrowed == 2


def test_an_opportunistic_run_that_finds_free_gpus_is_nobodys_guest() -> None:
    fleet = Fleet(*nodes("n", 3), budget("a"), budget("b"))
    fleet.start(run("x", 8, owner="org:a", group=8, spares=8))
    fleet.start(guest())
    assert [one.role for one in fleet.leases(GUEST)] == ["Active"]


def test_pods_of_a_fixed_width_sit_on_spares_too() -> None:
    fleet = filled(pod=4)
    assert [(pod.node, pod.gpus) for pod in fleet.pods(GUEST)] == [("n1", (0, 1, 2, 3)), ("n1", (4, 5, 6, 7))]
    fleet.audit()


def test_a_guest_may_sit_on_the_spares_of_several_runs() -> None:
    fleet = Fleet(*nodes("n", 3), budget("a"), budget("b"))
    fleet.start(*[run(name, 8, owner="org:a", group=8, spares=4) for name in ("x", "y")])
    fleet.start(guest(8))
    assert {one.role for one in fleet.leases(GUEST)} == {"Borrowed"}
    assert sum(len(one.gpus) for one in fleet.leases(GUEST)) == 8
    fleet.audit()


def test_who_wants_spares_of_its_own_waits_for_free_gpus() -> None:
    fleet = Fleet(*nodes("n", 2), budget("a"), budget("b"))
    fleet.start(run("x", 8, owner="org:a", group=8, spares=8))
    fleet.apply(guest(4, group=4, spares=4))
    assert fleet.leases(GUEST) == []
    fleet.apply(node("n2"))
    assert {one.role for one in fleet.leases(GUEST)} == {"Active", "Spare"}


# --- giving way ---------------------------------------------------------------------------------------------


def test_a_guest_gives_way_at_once_when_its_spare_is_needed() -> None:
    fleet = filled()
    fleet.later("1h")
    fleet.fence("n0")
    assert closures(fleet, GUEST) == {"guest-a1-g00-n1-0": "ReclaimedBySpare"}
    assert fleet.closed()["guest-a1-g00-n1-0"].end == at("1h")
    assert fleet.where(KEEPER) == {"n1": 8}
    fleet.leave(GUEST)
    assert (fleet.phase(GUEST), fleet.condition(GUEST, "Failed")[1]) == ("Failed", "ReclaimedBySpare")
    fleet.audit()


def test_a_guest_that_asked_for_it_is_requeued() -> None:
    fleet = filled(on_preemption="Requeue")
    fleet.fence("n0")
    fleet.leave(GUEST)
    assert fleet.phase(GUEST) == "Pending"
    fleet.apply(node("n0"))
    fleet.bind(GUEST)
    assert (fleet.phase(GUEST), {one.attempt for one in fleet.leases(GUEST)}) == ("Running", {2})


def test_all_of_a_guest_gives_way_even_where_it_sits_on_free_gpus() -> None:
    fleet = filled(node("n2", 4), spares=8, gpus=12)
    assert {one.role for one in fleet.leases(GUEST)} == {"Active", "Borrowed"}
    fleet.fence("n0")
    assert sorted(closures(fleet, GUEST).values()) == ["ReclaimedBySpare"]
    fleet.leave(GUEST)
    assert sorted(closures(fleet, GUEST).values()) == ["ReclaimedBySpare", "ReclaimedBySpare"]
    assert fleet.phase(GUEST) == "Failed"


def test_only_guests_on_the_gpus_that_are_needed_give_way_not_the_whole_node() -> None:
    """The loss is 4 of the spare's 8 GPUs: nobody sits on the other 4, so those are taken."""
    fleet = Fleet(node("n0", 4), node("n1"), budget("a"), budget("b"))
    fleet.start(run("x", 4, owner="org:a", group=4, spares=8))
    fleet.start(guest(4))
    (mine,) = fleet.leases(GUEST)
    fleet.fence("n0")
    assert fleet.phase(GUEST) == "Running"
    assert fleet.leases(GUEST) == [mine]
    assert open_leases(fleet) == [("n1", "Active", "Swap", (4, 5, 6, 7)), ("n1", "Spare", "Swap", (0, 1, 2, 3))]
    fleet.audit()


def test_a_guest_that_is_still_starting_gives_way_too() -> None:
    fleet = Fleet(*nodes("n", 2), budget("a"), budget("b"))
    fleet.start(run("x", 8, owner="org:a", group=8, spares=8))
    fleet.apply(guest())
    fleet.fence("n0")
    fleet.leave(GUEST)
    assert (fleet.phase(GUEST), set(closures(fleet, GUEST).values())) == ("Failed", {"ReclaimedBySpare"})


def test_a_guest_that_is_leaving_already_keeps_the_fate_it_had() -> None:
    fleet = filled()
    fleet.delete("Run", GUEST)
    fleet.fence("n0")
    assert closures(fleet, GUEST) == {"guest-a1-g00-n1-0": "ReclaimedBySpare"}
    fleet.leave(GUEST)
    assert fleet.phase(GUEST) == "Gone"


def test_a_group_of_a_guest_that_is_leaving_does_not_take_the_rest_with_it() -> None:
    fleet = Fleet(*nodes("n", 3), node("n3", 8, domain="0"), budget("a"), budget("b"))
    fleet.start(run("x", 16, owner="org:a", group=16, spares=8, where={"fabric.domain": "A"}))
    fleet.start(guest(16, group=8, elastic=elastic(8, 16, 8)))
    borrowed = next(one for one in fleet.leases(GUEST) if one.role == "Borrowed")
    assert borrowed.group == 1
    fleet.resize(GUEST, 8)
    fleet.fence("n0")
    assert closures(fleet, GUEST) == {borrowed.name: "ReclaimedBySpare"}
    assert fleet.phase(GUEST) == "Running"
    fleet.leave(GUEST)
    assert fleet.where(GUEST) == {"n3": 8}
    fleet.audit()


def test_the_new_pod_waits_until_the_guest_has_left_its_gpus() -> None:
    """On an executor that takes a minute to stop a pod: nothing is bound on a GPU that another pod still uses."""
    home = Home(MemoryStore("fill"), SimulatedExecutor(stop_delay=MINUTE))
    now = START
    home.handle(Apply((*nodes("n", 2), budget("a"), budget("b"))), now=now)
    home.handle(Apply((run("x", 8, owner="org:a", group=8, spares=8),)), now=now)
    home.drive(now=now)
    home.handle(Apply((guest(),)), now=now)
    home.drive(now=now)
    home.handle(Apply((node("n0", taints=[FENCE]),)), now=now)
    home.drive(now=now)
    new = home.state.pods["lab/x-a1-0-1"]
    assert (new.phase, home.state.pods["lab/guest-a1-0"].stop) == ("Placed", True)
    assert home.next_wake() == now + MINUTE
    home.drive(now=now + MINUTE)
    assert "lab/guest-a1-0" not in home.state.pods
    assert new.phase == "Bound"


def test_the_guests_pods_go_with_the_node_if_that_fails_before_they_left() -> None:
    fleet = filled(on_preemption="Requeue")
    fleet.fence("n0")
    fleet.fence("n1")
    assert fleet.phase(GUEST) == "Pending", "nobody is left to report its pods gone"
    assert fleet.pods(GUEST) == []


# --- staying ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("how", ["completed", "canceled", "failed"])
def test_when_the_spare_ends_for_good_its_guest_is_handed_over_to_active_leases(how: str) -> None:
    fleet = filled()
    before = [(pod.name, pod.node, pod.gpus) for pod in fleet.pods(GUEST)]
    fleet.later("1h")
    match how:
        case "completed":
            fleet.succeed(KEEPER)
        case "canceled":
            fleet.delete("Run", KEEPER)
        case _:
            fleet.fail(KEEPER)
    assert closures(fleet, GUEST) == {"guest-a1-g00-n1-0": "Refund"}
    assert open_leases(fleet, GUEST) == [("n1", "Active", "Refund", tuple(range(8)))]
    assert fleet.payers(GUEST) == {"b/main": 8}
    assert [(pod.name, pod.node, pod.gpus) for pod in fleet.pods(GUEST)] == before, "pods are untouched"
    assert fleet.phase(GUEST) == "Running"
    assert [fact for fact in fleet.entries[-1].facts if isinstance(fact, Placed)] == []
    fleet.leave(KEEPER)
    fleet.audit()


def test_handing_over_asks_no_payer_again() -> None:
    fleet = filled()
    fleet.delete("Budget", "b")
    fleet.succeed(KEEPER)
    assert fleet.payers(GUEST) == {"b/main": 8}
    fleet.audit()


def test_a_guest_that_is_leaving_is_handed_over_and_still_leaves() -> None:
    fleet = filled()
    fleet.delete("Run", GUEST)
    fleet.succeed(KEEPER)
    assert open_leases(fleet, GUEST) == [("n1", "Active", "Refund", tuple(range(8)))]
    fleet.leave(GUEST)
    assert fleet.phase(GUEST) == "Gone"
    assert closures(fleet, GUEST) == {"guest-a1-g00-n1-0": "Refund", "guest-a1-g00-n1-1": "Canceled"}
    fleet.audit()


def test_a_lease_over_two_spares_is_split_where_one_of_them_ends() -> None:
    fleet = Fleet(*nodes("n", 3), budget("a"), budget("b"))
    fleet.start(*[run(name, 8, owner="org:a", group=8, spares=4) for name in ("x", "y")])
    fleet.start(guest(8))
    assert len(fleet.leases(GUEST)) == 1, "one lease on the spares of two runs"
    fleet.succeed(KEEPER)
    assert sorted((one.role, len(one.gpus), one.reason) for one in fleet.leases(GUEST)) == [
        ("Active", 4, "Refund"),
        ("Borrowed", 4, "Refund"),
    ]
    fleet.succeed("lab/y")
    assert {one.role for one in fleet.leases(GUEST)} == {"Active"}
    assert fleet.phase(GUEST) == "Running"
    fleet.audit()


def test_a_guest_completes_like_any_run_and_leaves_the_spare_a_spare() -> None:
    fleet = filled()
    fleet.later("1h")
    fleet.succeed(GUEST)
    assert (fleet.phase(GUEST), closures(fleet, GUEST)) == ("Completed", {"guest-a1-g00-n1-0": "Completed"})
    assert [(one.group, one.available) for one in fleet.run(KEEPER).status.spares] == [(0, 8)]
    fleet.start(run("next", 8, owner="org:b", opportunistic=True))
    assert [one.role for one in fleet.leases("lab/next")] == ["Borrowed"]


def test_topped_up_spares_carry_guests_again() -> None:
    fleet = filled(on_preemption="Requeue")
    fleet.fence("n0")
    fleet.leave(GUEST)
    fleet.delete("Run", GUEST)
    fleet.apply(node("n0"))
    fleet.start(run("next", 8, owner="org:b", opportunistic=True))
    assert [(one.node, one.role) for one in fleet.leases("lab/next")] == [("n0", "Borrowed")]


# --- rebuilt ------------------------------------------------------------------------------------------------


def test_images_and_entries_carry_all_of_it() -> None:
    fleet = filled(node("n2", 4), gpus=12)
    fleet.fence("n0")
    assert dump(load(dump(fleet.state))) == dump(fleet.state)
    state = State(fleet.state.fleet)
    for entry in fleet.entries:
        fold_entry(state, entry)
    assert dump(state) == dump(fleet.state)
    assert set(load(dump(fleet.state)).leaving) == set(fleet.state.leaving) == {"lab/guest-a1-0", "lab/guest-a1-1"}
    ends = [fact.reason for fact in fleet.facts if isinstance(fact, Closed)]
    assert ends == ["NodeFailure", "ReclaimedBySpare", "Swap"]


@pytest.mark.parametrize("secret", "abcdef")
def test_who_sits_on_spares_of_somebody_who_is_drawn_with_it_leaves_too(secret: str) -> None:
    """Who was drawn first gave its spares up, its guest went on there under another name, and could not be found when
    its own turn came: the scheduler stopped, and the draw waited for good."""
    fleet = Fleet(node("a0", 8), node("a1", 4), node("b0", 8, domain="B"), node("b1", 4, domain="B"),
                  *(budget(name) for name in "abc"), secret=secret)  # fmt: skip
    fleet.start(run("host", 16, owner="org:a", group=8, spares=4))
    fleet.start(run("first", 4, owner="org:b", opportunistic=True, where={"fabric.domain": "B"}))
    fleet.apply(node("b2", 4, domain="B"))
    fleet.start(run("guest", 8, owner="org:b", opportunistic=True))
    assert {one.role for one in fleet.leases("lab/guest")} == {"Active", "Borrowed"}
    fleet.later("1h")
    fleet.apply(run("wide", 16, owner="org:c", spread=False))
    fleet.later("20m")
    cut = [one.run for fact in fleet.facts if isinstance(fact, Resolved) for one in fact.cuts if one.kind == "Lottery"]
    assert sorted(cut) == ["lab/guest", "lab/host"]
    for key in cut:
        fleet.leave(key)
    assert fleet.leases("lab/wide")
