"""What is promised to waiting runs, rule by rule (SPEC 7, and the parts of 8 that a start needs)."""

from __future__ import annotations

from collections import Counter
from typing import Any

import msgspec
import pytest

from tenure.api.policy import Policy
from tenure.engine import Publish, Reveal, Tick, dump, load, step
from tenure.facts import Closed, Ending, Froze, Opened, Reservation, Reserved, Resolved
from tenure.shell.custodian import SimulatedCustodian
from tenure.testing import START, Fleet, at, budget, elastic, envelope, node, nodes, run
from tenure.units import HOUR, MINUTE, Instant

FAR = Policy(patience="1000h")
"""Nobody is ever cut: known ends are always near enough."""


def promised(fleet: Fleet, key: str) -> Reservation:
    """The one reservation of a run that is neither Released nor Canceled."""
    return fleet.state.reservations[key]


def history(fleet: Fleet, key: str) -> list[Reservation]:
    """All that was ever written about a run's reservations."""
    return [fact.reservation for fact in fleet.facts if isinstance(fact, Reserved) and fact.reservation.run_key == key]


def start_of(fleet: Fleet, key: str) -> str:
    """The planned start as an offset from the beginning, in minutes."""
    start = promised(fleet, key).plan.start
    return "none" if start is None else f"{(start - START) / MINUTE:g}m"


def slice_of(fleet: Fleet, key: str) -> dict[str, int]:
    return {share.node: share.gpus for share in promised(fleet, key).plan.shares}


def cuts(fleet: Fleet) -> list[tuple[str, str, int]]:
    return [(cut.kind, cut.run, cut.gpus) for fact in fleet.facts if isinstance(fact, Resolved) for cut in fact.cuts]


def told(fleet: Fleet, kind: str) -> list[tuple[str, str]]:
    return [(note.object, note.reason) for note in fleet.notes(kind)]


def ends(fleet: Fleet, key: str, instant: Instant) -> None:
    """A run ends at an instant at which others wait for it to: its pods report together, before anybody looks."""
    fleet.until(instant - 1)
    fleet.now = instant
    fleet.report("Succeeded", *(pod.key for pod in fleet.pods(key)), code=0)


def replanned(fleet: Fleet) -> None:
    """Let every waiting run be looked at again: a machine that serves nobody comes, and goes."""
    fleet.apply(node("zz", 1, cordoned=True))
    fleet.delete("Node", "zz")


def two_nodes(*, lasts: str | None = "2h", **policy: Any) -> Fleet:
    """16 GPUs, half of them held by ``long`` for two hours, and ``wide`` waiting for all of them since a minute ago."""
    fleet = Fleet(*nodes("n", 2), budget("a"), budget("b"), policy=Policy(**{"patience": "1000h", **policy}))
    fleet.start(run("long", 8, owner="org:a", lasts=lasts))
    fleet.apply(run("wide", 16, owner="org:b", lasts="1h"))
    fleet.later("1m")
    return fleet


# --- one reservation -------------------------------------------------------------------------------------------------


def test_a_run_that_cannot_start_gets_a_concrete_start_where_it_will_run_and_who_will_pay() -> None:
    fleet = two_nodes()
    one = promised(fleet, "lab/wide")
    assert (one.state, one.confidence, start_of(fleet, "lab/wide")) == ("Pending", "projected", "120m")
    assert slice_of(fleet, "lab/wide") == {"n0": 8, "n1": 8}
    assert one.plan.domain == {"region": "us-west", "cluster": "gpu-a", "fabric.domain": "A"}
    assert [(pay.budget, pay.envelope, pay.gpus) for pay in one.plan.segments] == [("b", "main", 16)]
    assert one.promise == one.plan
    assert told(fleet, "Reserved") == [("Run/lab/wide", "Reserved")]


def test_a_waiting_run_has_one_reservation_which_is_changed_in_place() -> None:
    fleet = two_nodes()
    first = promised(fleet, "lab/wide")
    fleet.start(run("short", 8, owner="org:a", lasts="89m"))
    fleet.later("9m")
    fleet.succeed("lab/long")
    moved = promised(fleet, "lab/wide")
    assert start_of(fleet, "lab/wide") == "90m", "as soon as the last one ends"
    assert (moved.name, moved.uid, moved.made, moved.promise) == (first.name, first.uid, first.made, first.promise)
    assert {one.uid for one in history(fleet, "lab/wide")} == {first.uid}
    ends(fleet, "lab/short", at("90m"))
    fleet.bind("lab/wide")
    assert fleet.phase("lab/wide") == "Running"
    assert [one.state for one in history(fleet, "lab/wide")] == ["Pending", "Pending", "Released"]


def test_while_nothing_changes_nothing_is_written_and_the_countdown_falls() -> None:
    fleet = two_nodes()
    written = len(history(fleet, "lab/wide"))
    left = []
    for minutes in (20, 40, 60, 80, 100):
        fleet.until(at(f"{minutes}m"))
        replanned(fleet)
        start = promised(fleet, "lab/wide").plan.start
        assert start is not None
        left.append((start - fleet.now) // MINUTE)
    assert left == [100, 80, 60, 40, 20]
    assert len(history(fleet, "lab/wide")) == written, "a new forecast that says the same is no news"


def test_people_hear_that_a_start_comes_near_once_for_each_milestone() -> None:
    fleet = two_nodes()
    fleet.until(at("119m"))
    replanned(fleet)
    assert [note.message for note in fleet.notes("Countdown")] == ["lab/wide starts in 1h.", "lab/wide starts in 5m."]


def test_a_released_reservation_stays_for_audit_with_the_promise_as_first_made() -> None:
    fleet = two_nodes()
    fleet.until(at("30m"))
    fleet.succeed("lab/long")
    last = history(fleet, "lab/wide")[-1]
    assert (last.state, last.activated, last.released) == ("Released", at("30m"), at("30m"))
    assert last.promise.start == at("2h")
    assert "lab/wide" not in fleet.state.reservations


# --- safe backfill: machines -----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("lasts", "starts"), [("1h", True), ("119m", True), ("2h", False), ("1d", False), (None, False)]
)
def test_inside_a_slice_only_what_ends_before_its_start(lasts: str | None, starts: bool) -> None:
    fleet = two_nodes()
    fleet.apply(run("late", 8, owner="org:a", lasts=lasts))
    assert bool(fleet.leases("lab/late")) == starts
    assert start_of(fleet, "lab/wide") == "120m", "nobody who came later moves it"
    if not starts:
        assert fleet.code("lab/late") == "Protected"
        assert fleet.condition("lab/late", "Admitted") == ("False", "Protected")


@pytest.mark.parametrize("lasts", ["1h", "1d", None])
def test_outside_every_slice_anything_may_start(lasts: str | None) -> None:
    fleet = two_nodes()
    fleet.apply(node("m0", region="us-east", domain="B"), budget("c", envelope("east", selector={"region": "us-east"})))
    assert slice_of(fleet, "lab/wide") == {"n0": 8, "n1": 8}
    fleet.apply(run("late", 8, owner="org:c", lasts=lasts))
    assert fleet.leases("lab/late")
    assert start_of(fleet, "lab/wide") == "120m"


def test_what_a_run_leaves_free_of_a_node_is_not_in_its_slice() -> None:
    fleet = Fleet(*nodes("n", 2), budget("a"), budget("b"), policy=FAR)
    fleet.start(run("long", 8, owner="org:a", lasts="2h"))
    fleet.apply(run("wide", 12, owner="org:b", lasts="1h"))
    assert sum(slice_of(fleet, "lab/wide").values()) == 12
    fleet.later("1m")
    fleet.apply(run("rest", 4, owner="org:a"))
    assert fleet.leases("lab/rest"), "four GPUs are nobody's"
    fleet.apply(run("more", 1, owner="org:a"))
    assert not fleet.leases("lab/more")
    assert start_of(fleet, "lab/wide") == "120m"


def test_who_starts_past_an_older_run_is_marked_as_backfilled() -> None:
    fleet = two_nodes()
    fleet.start(run("late", 8, owner="org:a", lasts="1h"))
    assert fleet.state.runs["lab/late"].life.backfilled
    assert not fleet.state.runs["lab/long"].life.backfilled


def test_an_elastic_run_does_not_grow_into_a_slice() -> None:
    fleet = Fleet(*nodes("n", 3), budget("a"), budget("b"), policy=FAR)
    fleet.start(run("grows", 8, owner="org:a", elastic=elastic(8, 16, 8, desired=8)))
    fleet.start(run("long", 8, owner="org:a", lasts="2h"))
    fleet.apply(run("wide", 16, owner="org:b", lasts="1h"))
    fleet.resize("lab/grows", 16)
    fleet.later("30m")
    assert sum(fleet.where("lab/grows").values()) == 8
    assert start_of(fleet, "lab/wide") == "120m"


def test_money_and_machines_come_back_from_a_reservation_that_is_given_up() -> None:
    fleet = two_nodes()
    fleet.apply(run("late", 8, owner="org:a"))
    assert not fleet.leases("lab/late")
    fleet.delete("Run", "lab/wide")
    assert fleet.leases("lab/late"), "what was kept for it is free at once"


# --- what overstays --------------------------------------------------------------------------------------------------


def overstayed(*, on_preemption: Any = "Fail") -> Fleet:
    """``wide`` is to start at 2h; ``late`` was to be over by then and is not."""
    fleet = two_nodes()
    fleet.start(run("late", 8, owner="org:a", lasts="1h", on_preemption=on_preemption))
    fleet.until(at("119m"))
    fleet.succeed("lab/long")
    return fleet


def test_a_backfilled_run_that_overstays_is_the_first_to_go_at_activation() -> None:
    fleet = overstayed()
    assert fleet.phase("lab/late") == "Running", "nobody is cut before the start"
    assert start_of(fleet, "lab/wide") == "120m"
    fleet.later("1m")
    assert cuts(fleet) == [("Overstay", "lab/late", 8)]
    assert promised(fleet, "lab/wide").state == "Active"
    fleet.leave("lab/late")
    assert fleet.phase("lab/late") == "Failed"
    assert {end.reason for end in fleet.closed().values() if end.lease.run == "late"} == {"Overstay"}
    assert fleet.leases("lab/wide"), "it starts the moment they have left"
    assert history(fleet, "lab/wide")[-1].state == "Released"


def test_an_overstayed_run_that_asked_for_it_is_queued_again() -> None:
    fleet = overstayed(on_preemption="Requeue")
    fleet.later("1m")
    fleet.leave("lab/late")
    assert fleet.phase("lab/late") == "Pending"
    assert fleet.leases("lab/wide"), "and does not take back what it gave"


def test_who_overstays_without_having_been_backfilled_is_not_cut_for_that() -> None:
    fleet = two_nodes()
    fleet.until(at("121m"))
    assert cuts(fleet) == []
    assert fleet.phase("lab/long") == "Running"


@pytest.mark.parametrize("again", ["62m", "90m", "119m"])
def test_looking_again_after_a_backfilled_run_overstayed_does_not_move_the_start(again: str) -> None:
    """Invariant 8: a start is never delayed by work that was admitted after it."""
    fleet = two_nodes()
    fleet.start(run("late", 8, owner="org:a", lasts="1h"))
    fleet.until(at(again))
    replanned(fleet)
    assert start_of(fleet, "lab/wide") == "120m"
    assert told(fleet, "StartMoved") == []


def test_a_backfilled_run_that_ends_just_before_the_start_does_not_delay_it_by_overstaying() -> None:
    fleet = two_nodes()
    fleet.start(run("late", 8, owner="org:a", lasts="114m"))
    fleet.until(at("116m"))
    replanned(fleet)
    assert start_of(fleet, "lab/wide") == "120m"


# --- later ones inside earlier ones ----------------------------------------------------------------------------------


def guarded(count: int, **policy: Any) -> Fleet:
    """Nodes in domains of their own, each half used by a run and half by its spare."""
    domains = "ABCDEFGH"[:count]
    fleet = Fleet(*(node(f"n{index}", domain=name) for index, name in enumerate(domains)), budget("a"), budget("b"),
                  policy=Policy(**{"patience": "0s", **policy}))  # fmt: skip
    fleet.start(*(run(f"g{index}", 4, owner="org:a", group=4, spares=4, where={"fabric.domain": name})
                  for index, name in enumerate(domains)))  # fmt: skip
    fleet.later("20m")
    return fleet


def test_a_later_reservation_neither_binds_nor_cuts_inside_an_earlier_slice() -> None:
    fleet = guarded(2)
    fleet.apply(run("w1", 4, owner="org:b"))
    fleet.apply(run("w2", 4, owner="org:b"))
    fleet.apply(run("w3", 4, owner="org:b"))
    assert slice_of(fleet, "lab/w1") == {"n0": 4}
    assert slice_of(fleet, "lab/w2") == {"n1": 4}
    assert [(cut.kind, cut.run) for cut in promised(fleet, "lab/w2").forecast.remedies] == [("DropSpare", "lab/g1")]
    assert "lab/w3" not in fleet.state.reservations, "no start is known: both are promised for ever"
    fleet.later("15m")
    assert fleet.where("lab/w1") == {"n0": 4}
    assert fleet.where("lab/w2") == {"n1": 4}
    assert cuts(fleet) == [("DropSpare", "lab/g0", 4), ("DropSpare", "lab/g1", 4)]
    assert not fleet.leases("lab/w3")


def test_a_later_reservation_that_is_due_first_waits_outside_an_earlier_slice() -> None:
    """``small`` could cut itself room on n0, which is promised to ``wide`` for later on."""
    fleet = Fleet(
        node("n0", domain="A"), node("n1", domain="A"), budget("a"), budget("b"), policy=Policy(patience="3h")
    )
    fleet.start(run("long", 8, owner="org:a", lasts="2h"), run("g", 4, owner="org:a", group=4, spares=4, lasts="2h"))
    fleet.apply(run("wide", 16, owner="org:b", lasts="1h"))
    assert start_of(fleet, "lab/wide") == "120m"
    fleet.later("1m")
    fleet.apply(run("small", 4, owner="org:b", lasts="4h"))
    fleet.later("1h")
    assert cuts(fleet) == []
    start = promised(fleet, "lab/small").plan.start
    assert start is not None
    assert start >= at("3h"), "after the older one is done"


def test_a_reservation_that_is_blocked_protects_nothing() -> None:
    fleet = Fleet(*nodes("n", 2), budget("a"), budget("b", envelope("main", 16, hours=1)), policy=FAR)
    fleet.start(run("paid", 1, owner="org:b", lasts="30m"))
    fleet.apply(run("poor", 12, owner="org:b", lasts="5m"))
    assert promised(fleet, "lab/poor").state == "Blocked"
    assert promised(fleet, "lab/poor").plan.start is None
    fleet.apply(run("rich", 15, owner="org:a"))
    assert fleet.leases("lab/rich")


# --- conservative starts ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("lasts", "start", "confidence"), [
    ("23h", "1380m", "projected"), ("24h", "1440m", "projected"), ("25h", "15m", "conservative"),
    (None, "15m", "conservative"),
])  # fmt: skip
def test_a_long_declaration_is_no_shield(lasts: str | None, start: str, confidence: str) -> None:
    fleet = Fleet(node("n0"), budget("a"), budget("b"))
    fleet.start(run("long", 8, owner="org:a", elastic=elastic(4, 8, 4), lasts=lasts))
    fleet.apply(run("wide", 4, owner="org:b", lasts="1h"))
    assert (start_of(fleet, "lab/wide"), promised(fleet, "lab/wide").confidence) == (start, confidence)


def test_patience_is_counted_from_the_submission_not_from_each_new_forecast() -> None:
    fleet = Fleet(node("n0"), budget("a"), budget("b"))
    fleet.start(run("long", 8, owner="org:a", elastic=elastic(4, 8, 4), lasts="20h"))
    fleet.apply(run("wide", 4, owner="org:b", lasts="1h"))
    assert start_of(fleet, "lab/wide") == "1200m"
    fleet.later("10h")
    fleet.succeed("lab/long")
    assert fleet.leases("lab/wide"), "an early end is used at once"


def test_a_start_for_which_nobody_has_to_give_way_is_projected_however_far_ahead() -> None:
    fleet = Fleet(*nodes("n", 1), budget("a"), budget("b"), policy=Policy(patience="10m"), secret="x")
    fleet.start(run("long", 8, owner="org:a"))
    fleet.later("20m")
    fleet.apply(run("first", 8, owner="org:b", lasts="1h"))
    fleet.apply(run("second", 8, owner="org:b", lasts="1h"))
    one, two = promised(fleet, "lab/first"), promised(fleet, "lab/second")
    assert (one.confidence, start_of(fleet, "lab/first")) == ("conservative", "35m")
    assert [cut.run for cut in one.forecast.remedies] == ["lab/long"]
    assert (two.confidence, start_of(fleet, "lab/second"), two.forecast.remedies) == ("projected", "95m", ())
    fleet.later("5m")
    replanned(fleet)
    assert promised(fleet, "lab/second") == two, "and stays where it is"
    fleet.later("10m")
    fleet.leave("lab/long")
    assert cuts(fleet) == [("Lottery", "lab/long", 8)]
    assert promised(fleet, "lab/second") == two, "though it is the first now: nobody is drawn for it who came since"
    ends_at = two.plan.start
    assert ends_at is not None
    ends(fleet, "lab/first", ends_at)
    assert fleet.where("lab/second") == {"n0": 8}
    assert [(one.state, one.turn, one.plan) for one in history(fleet, "lab/second")] == [
        ("Pending", two.turn, two.plan), ("Released", two.turn, two.plan)]  # fmt: skip


def test_a_conservative_start_does_not_recede_when_it_is_forecast_again() -> None:
    fleet = Fleet(node("n0"), budget("a"), budget("b"), policy=Policy(patience="1h"))
    fleet.start(run("long", 8, owner="org:a", elastic=elastic(4, 8, 4)))
    fleet.later("30m")
    fleet.apply(run("wide", 4, owner="org:b"))
    assert start_of(fleet, "lab/wide") == "45m"
    for _ in range(7):
        fleet.later("2m")
        replanned(fleet)
        assert start_of(fleet, "lab/wide") == "45m"
    fleet.later("1m")
    assert cuts(fleet) == [("Shrink", "lab/long", 4)]
    fleet.leave("lab/long")
    assert fleet.leases("lab/wide")
    assert fleet.leases("lab/wide")[0].start == at("45m")


def test_the_notice_that_others_get_is_the_activation_lead() -> None:
    fleet = Fleet(node("n0"), budget("a"), budget("b"), policy=Policy(patience="0s", activation_lead="40m"))
    fleet.start(run("long", 8, owner="org:a", elastic=elastic(4, 8, 4)))
    fleet.apply(run("wide", 4, owner="org:b"))
    assert start_of(fleet, "lab/wide") == "40m"
    fleet.later("39m")
    assert fleet.where("lab/long") == {"n0": 8}
    fleet.later("1m")
    assert fleet.state.reservations["lab/wide"].state == "Active"


def test_the_forecast_says_what_would_be_cut_and_the_activation_cuts_just_that() -> None:
    fleet = Fleet(*nodes("n", 3), budget("a"), budget("b"), policy=Policy(patience="0s"))
    fleet.start(run("guarded", 8, owner="org:a", group=8, spares=4))
    fleet.start(run("wide", 12, owner="org:a", elastic=elastic(4, 12, 4)))
    fleet.apply(run("w", 8, owner="org:b"))
    one = promised(fleet, "lab/w")
    planned = [(cut.kind, cut.run, cut.gpus) for cut in one.forecast.remedies]
    assert planned[0] == ("DropSpare", "lab/guarded", 4)
    assert {kind for kind, _, _ in planned} == {"DropSpare", "Shrink"}
    assert one.forecast.deficit == 8
    fleet.later("15m")
    assert cuts(fleet) == planned


def test_the_slice_is_the_one_that_is_freed_most_cheaply() -> None:
    """Fewest cuts, then fewest GPUs cut, then name: a spare of 4 beats two groups, and a spare of 8."""
    fleet = Fleet(*nodes("a", 1, domain="A"), *nodes("b", 2, domain="B"), *nodes("c", 1, domain="C"), budget("a"),
                  budget("b"), policy=Policy(patience="0s"))  # fmt: skip
    fleet.start(run("shrinks", 8, owner="org:a", elastic=elastic(2, 8, 2), where={"fabric.domain": "A"}))
    fleet.start(run("big-spare", 8, owner="org:a", group=8, spares=8, where={"fabric.domain": "B"}))
    fleet.start(run("small-spare", 4, owner="org:a", group=4, spares=4, where={"fabric.domain": "C"}))
    fleet.apply(run("w", 4, owner="org:b"))
    assert slice_of(fleet, "lab/w") == {"c0": 4}


# --- windows ---------------------------------------------------------------------------------------------------------


def test_a_start_waits_for_a_window_to_open() -> None:
    fleet = Fleet(*nodes("n", 2), budget("a"), budget("b", envelope("main", 16, start="3h")))
    fleet.apply(run("w", 16, owner="org:b", lasts="1h"))
    one = promised(fleet, "lab/w")
    assert (start_of(fleet, "lab/w"), one.confidence) == ("180m", "window-aligned")
    fleet.later("1m")
    fleet.apply(run("short", 8, owner="org:a", lasts="2h"), run("long", 8, owner="org:a", lasts="4h"))
    assert fleet.leases("lab/short")
    assert not fleet.leases("lab/long")
    fleet.bind("lab/short")
    fleet.later("2h")
    fleet.succeed("lab/short")
    fleet.later("1h")
    assert fleet.leases("lab/w")
    assert fleet.leases("lab/w")[0].start == at("3h")


def test_a_window_far_beyond_patience_is_reserved_all_the_same() -> None:
    fleet = Fleet(node("n0"), budget("b", envelope("main", 8, start="30d")))
    fleet.apply(run("w", 8, owner="org:b"))
    assert start_of(fleet, "lab/w") == f"{30 * 24 * 60}m"


def test_a_window_that_takes_no_reservations_is_not_reserved_but_used_when_it_opens() -> None:
    fleet = Fleet(node("n0"), budget("a"), budget("b", envelope("main", 8, start="3h", reservable=False)))
    fleet.apply(run("w", 8, owner="org:b"))
    one = fleet.state.reservations.get("lab/w")
    assert one is None or (one.state, one.plan.start) == ("Blocked", None)
    fleet.start(run("other", 8, owner="org:a", lasts="2h"))
    fleet.later("2h")
    fleet.succeed("lab/other")
    fleet.later("1h")
    assert fleet.leases("lab/w")


def test_a_window_that_admits_early_but_takes_no_reservations() -> None:
    early = envelope("main", 8, start="3h", early=True, reservable=False)
    fleet = Fleet(node("n0"), budget("a"), budget("b", early), policy=FAR)
    fleet.start(run("other", 8, owner="org:a", lasts="1h"))
    fleet.apply(run("w", 8, owner="org:b", lasts="1h"))
    one = fleet.state.reservations.get("lab/w")
    assert one is None or one.state == "Blocked"
    fleet.later("1h")
    fleet.succeed("lab/other")
    assert fleet.leases("lab/w"), "admitted before its window, as it may be"


# --- earlier, and later with a reason --------------------------------------------------------------------------------


def test_an_improvement_moves_the_start_earlier() -> None:
    fleet = two_nodes()
    fleet.start(run("short", 8, owner="org:a", lasts="59m"))
    fleet.apply(node("n2"))
    assert start_of(fleet, "lab/wide") == "60m"
    assert told(fleet, "StartMoved") == [("Run/lab/wide", "MovedEarlier")]


def test_a_start_is_moved_later_only_with_a_recorded_reason() -> None:
    fleet = two_nodes()
    fleet.start(run("short", 8, owner="org:a", lasts="59m"))
    fleet.apply(node("n2"))
    fleet.delete("Node", "n2")
    assert start_of(fleet, "lab/wide") == "120m"
    moved = fleet.notes("StartMoved")[-1]
    assert moved.reason == "MovedLater"
    assert "from 2025-11-01T01:00:00Z to 2025-11-01T02:00:00Z: " in moved.message
    assert moved.message.rpartition(": ")[2].strip("."), "it says why"


def test_a_reservation_whose_machines_vanish_is_blocked_without_a_start_and_comes_back() -> None:
    fleet = two_nodes()
    fleet.delete("Node", "n1")
    one = promised(fleet, "lab/wide")
    assert (one.state, one.plan.start, one.plan.shares) == ("Blocked", None, ())
    assert one.reason
    assert one.promise.start == at("2h")
    fleet.apply(node("n1"))
    back = promised(fleet, "lab/wide")
    assert (back.state, back.uid, start_of(fleet, "lab/wide")) == ("Pending", one.uid, "120m")


# --- money -----------------------------------------------------------------------------------------------------------


def test_a_run_short_of_money_is_blocked_with_numbers_and_starts_the_moment_money_appears() -> None:
    fleet = Fleet(*nodes("n", 4), budget("a"), budget("b", envelope("main", 8)), policy=Policy(patience="0s"))
    fleet.start(run("mine", 8, owner="org:b"), run("theirs", 8, owner="org:a", group=8, spares=8))
    fleet.later("1h")
    fleet.apply(run("poor", 8, owner="org:b"))
    one = promised(fleet, "lab/poor")
    assert (one.state, one.reason, one.plan.start) == ("Blocked", "ConcurrencyCapExceeded", None)
    assert one.forecast.short == 8
    assert "8 too many" in one.message
    assert fleet.run("lab/poor").status.phase == "Pending"
    fleet.later("30h")
    assert cuts(fleet) == [], "cuts free machines, never money"
    fleet.apply(budget("b", envelope("main", 16)))
    assert fleet.leases("lab/poor")[0].start == fleet.now
    assert history(fleet, "lab/poor")[-1].state == "Released"


def test_money_in_sight_is_a_start_and_nobody_is_cut_for_it() -> None:
    fleet = Fleet(*nodes("n", 4), budget("a"), budget("b", envelope("main", 8)), policy=Policy(patience="24h"))
    fleet.start(run("mine", 8, owner="org:b", lasts="5h"), run("theirs", 8, owner="org:a", group=8, spares=8))
    fleet.apply(run("poor", 8, owner="org:b"))
    assert (promised(fleet, "lab/poor").confidence, start_of(fleet, "lab/poor")) == ("projected", "300m")


def test_money_that_comes_back_frees_a_blocked_reservation_when_machines_are_short_too() -> None:
    fleet = Fleet(*nodes("n", 1), budget("a"), budget("b", envelope("main", 8, hours=8)), policy=FAR)
    fleet.start(run("spends", 4, owner="org:b", lasts="1h"), run("long", 4, owner="org:a", lasts="9h"))
    fleet.apply(run("poor", 8, owner="org:b", lasts="1h"))
    assert promised(fleet, "lab/poor").state == "Blocked"
    fleet.apply(budget("b", envelope("main", 8, hours=100)))
    assert (promised(fleet, "lab/poor").state, start_of(fleet, "lab/poor")) == ("Pending", "540m")


@pytest.mark.parametrize("wanted", [
    run("w", 64, owner="org:b"), run("w", 8, owner="org:nobody"), run("w", 8, owner="org:b", flavor="V100"),
    run("w", 8, owner="org:b", pod=16, group=16),
])  # fmt: skip
def test_what_no_envelope_or_no_node_could_ever_serve_gets_no_reservation(wanted: Any) -> None:
    fleet = two_nodes()
    assert not fleet.offer(wanted).refused
    assert fleet.condition("lab/w", "Blocked")[0] == "True"
    assert "lab/w" not in fleet.state.reservations
    fleet.later("1d")
    assert "lab/w" not in fleet.state.reservations


# --- the end of a promise --------------------------------------------------------------------------------------------


def test_deleting_a_run_cancels_its_reservation() -> None:
    fleet = two_nodes()
    fleet.delete("Run", "lab/wide")
    last = history(fleet, "lab/wide")[-1]
    assert (last.state, last.reason, last.released) == ("Canceled", "Canceled", fleet.now)
    assert fleet.state.reservations == {}


def test_a_changed_demand_is_canceled_and_planned_anew() -> None:
    fleet = two_nodes()
    first = promised(fleet, "lab/wide")
    fleet.apply(run("wide", 12, owner="org:b", lasts="1h"))
    second = promised(fleet, "lab/wide")
    states = [(one.uid, one.state) for one in history(fleet, "lab/wide")]
    assert states == [(first.uid, "Pending"), (first.uid, "Canceled"), (second.uid, "Pending")]
    assert first.uid != second.uid
    assert history(fleet, "lab/wide")[1].reason == "DemandChanged"
    assert sum(slice_of(fleet, "lab/wide").values()) == 12


def test_edits_of_funding_and_of_the_desired_width_keep_the_reservation() -> None:
    fleet = Fleet(*nodes("n", 2), budget("a", envelope("main", 64, lends_to=["org:b"])), budget("b"), policy=FAR)
    fleet.start(run("long", 8, owner="org:a", lasts="2h"))
    wanted = run("w", 16, owner="org:b", elastic=elastic(12, 20, 4), sponsors=["org:a"])
    fleet.apply(wanted)
    first = promised(fleet, "lab/w")
    spec = msgspec.structs.replace(wanted.spec, funding=msgspec.structs.replace(wanted.spec.funding, max_borrow_gpus=4))
    fleet.apply(msgspec.structs.replace(wanted, spec=spec))
    fleet.resize("lab/w", 12)
    assert promised(fleet, "lab/w").uid == first.uid
    assert {one.state for one in history(fleet, "lab/w")} == {"Pending"}


def test_a_run_that_fails_while_it_waits_gives_its_reservation_up() -> None:
    fleet = Fleet(*nodes("n", 1), budget("a"), budget("b"), policy=FAR)
    fleet.start(run("w", 8, owner="org:b", checkpoint="30m", lasts="9h"))
    fleet.fence("n0")
    fleet.apply(node("n1"))
    assert fleet.leases("lab/w"), "requeued, and started again"
    fleet.bind("lab/w")
    fleet.fence("n1")
    fleet.later("31m")
    assert fleet.phase("lab/w") == "Failed"
    assert "lab/w" not in fleet.state.reservations
    fleet.apply(node("n2"))
    fleet.later("1d")
    assert fleet.phase("lab/w") == "Failed", "what failed does not come back"
    assert not fleet.leases("lab/w")


# --- at the start ----------------------------------------------------------------------------------------------------


def test_one_bad_reservation_never_holds_up_another() -> None:
    """Two are due at once: the older one cannot be served any more, the younger one starts."""
    fleet = Fleet(*nodes("a", 1, domain="A"), *nodes("b", 1, domain="B"), budget("a"), budget("b"), policy=FAR)
    fleet.start(run("la", 8, owner="org:a", lasts="1h", where={"fabric.domain": "A"}),
                run("lb", 8, owner="org:a", lasts="1h", where={"fabric.domain": "B"}))  # fmt: skip
    fleet.apply(run("bad", 8, owner="org:b", lasts="1h", where={"fabric.domain": "A"}))
    fleet.later("1m")
    fleet.apply(run("good", 8, owner="org:b", lasts="1h", where={"fabric.domain": "B"}))
    fleet.later("58m")
    fleet.succeed("lab/lb")
    assert fleet.leases("lab/good"), "an early end is used at once"
    fleet.until(at("60m"))
    assert not fleet.leases("lab/bad"), "its machine is not free, and nobody may be cut"
    assert fleet.phase("lab/la") == "Running"


def test_two_that_are_due_at_once_never_share_a_gpu() -> None:
    fleet = Fleet(*nodes("n", 2), budget("a"), budget("b"), policy=FAR)
    fleet.start(run("long", 16, owner="org:a", lasts="1h"))
    fleet.apply(*(run(f"w{index}", 8, owner="org:b", lasts="1h") for index in range(3)))
    assert [start_of(fleet, f"lab/w{index}") for index in range(3)] == ["60m", "60m", "120m"]
    fleet.later("59m")
    fleet.succeed("lab/long")
    taken = Counter(node for index in range(3) for node in fleet.where(f"lab/w{index}"))
    assert taken == {"n0": 1, "n1": 1}
    fleet.later("1m")
    fleet.audit()


def test_an_activation_that_is_replayed_changes_nothing() -> None:
    """The same instant again, on a state rebuilt from what is stored, or on the same one."""
    fleet = overstayed()
    fleet.later("1m")
    before = dump(fleet.state)
    for _ in range(3):
        assert not fleet.handle(Tick()).facts
    twin = load(before)
    assert not [
        fact for fact in step(twin, Tick(), now=fleet.now).facts if isinstance(fact, Resolved | Opened | Ending)
    ]
    assert len([fact for fact in fleet.facts if isinstance(fact, Resolved)]) == 1
    fleet.leave("lab/late")
    started = [fact for fact in fleet.facts if isinstance(fact, Opened) and fact.lease.run == "wide"]
    assert sum(len(fact.lease.gpus) for fact in started) == 16


def test_nothing_is_cut_when_cutting_everything_would_not_make_it_fit() -> None:
    """The spares in the way could go, but a run that may not be touched yet is in the way as well."""
    fleet = Fleet(*nodes("n", 2), budget("a"), budget("b"), policy=Policy(patience="0s"))
    fleet.start(run("g", 4, owner="org:a", group=4, spares=4), run("h", 8, owner="org:a"))
    fleet.apply(run("w", 16, owner="org:b"))
    fleet.later("14m")
    fleet.succeed("lab/h")
    fleet.start(run("young", 4, owner="org:b", lasts="1m"))
    fleet.later("1m")
    assert cuts(fleet) == []
    assert len(fleet.leases("lab/g")) == 2, "its spare is untouched"


def test_while_it_waits_for_the_victims_to_leave_nobody_takes_what_is_freed() -> None:
    fleet = Fleet(*nodes("n", 2), budget("a"), budget("b"), policy=Policy(patience="0s"))
    fleet.start(run("x", 16, owner="org:a", elastic=elastic(4, 16, 4), pod=4))
    fleet.apply(run("w", 8, owner="org:b"))
    fleet.later("15m")
    leaving = [row.pod.key for row in fleet.state.leaving.values()]
    assert len(leaving) == 2
    fleet.report("Gone", leaving[0])
    assert promised(fleet, "lab/w").state == "Active"
    fleet.apply(run("quick", 4, owner="org:b", lasts="1m"), run("small", 1, owner="org:a", lasts="1s"))
    fleet.resize("lab/x", 8)
    fleet.resize("lab/x", 16)
    fleet.later("5m")
    assert not fleet.leases("lab/quick")
    assert not fleet.leases("lab/small")
    assert sum(fleet.where("lab/x").values()) <= 12, "the victim does not grow back"
    fleet.report("Gone", leaving[1])
    assert sum(fleet.where("lab/w").values()) == 8


def test_cuts_and_the_promise_of_the_bind_stand_in_one_entry_once_per_activation() -> None:
    fleet = overstayed()
    fleet.later("1m")
    entry = next(entry for entry in fleet.entries if any(isinstance(fact, Resolved) for fact in entry.facts))
    kinds = [type(fact).__name__ for fact in entry.facts]
    assert kinds.index("Reserved") < kinds.index("Resolved") < kinds.index("Ending")
    resolved = next(fact for fact in entry.facts if isinstance(fact, Resolved))
    one = next(fact.reservation for fact in entry.facts if isinstance(fact, Reserved))
    assert (one.state, one.activation, one.activated) == ("Active", 1, at("2h"))
    assert (resolved.trigger, resolved.subject, resolved.activation) == ("Activation", f"Reservation/{one.key}", 1)
    fleet.later("10m")
    replanned(fleet)
    assert len([fact for fact in fleet.facts if isinstance(fact, Resolved)]) == 1, "no second cut while they leave"


def test_a_run_that_was_cut_and_queued_again_cuts_nobody() -> None:
    fleet = overstayed(on_preemption="Requeue")
    fleet.later("1m")
    fleet.leave("lab/late")
    assert fleet.state.runs["lab/late"].life.cut
    before = cuts(fleet)
    fleet.bind("lab/wide")
    fleet.later("3d")
    assert cuts(fleet) == before
    assert fleet.phase("lab/wide") == "Running"


def test_no_run_is_cut_whole_before_it_has_run_for_the_lead() -> None:
    fleet = Fleet(node("n0"), budget("a"), budget("b"), policy=Policy(patience="0s"))
    fleet.start(run("young", 8, owner="org:a"))
    fleet.apply(run("w", 8, owner="org:b"))
    one = promised(fleet, "lab/w")
    assert start_of(fleet, "lab/w") == "15m"
    assert list(one.forecast.odds) == ["lab/young"], "by then it will have run for the lead"
    fleet.later("14m")
    assert not [fact for fact in fleet.facts if isinstance(fact, Closed)]


# --- with a draw -----------------------------------------------------------------------------------------------------


def crowded(*, on_preemption: Any = "Fail", custodian: bool = True, **policy: Any) -> Fleet:
    """Two nodes with a fixed gang each, both long past the lead, and ``w`` who needs one of them."""
    fleet = Fleet(*nodes("n", 2), budget("a"), budget("b"), budget("c"), secret="s" if custodian else None,
                  policy=Policy(**{"patience": "0s", **policy}))  # fmt: skip
    fleet.start(run("one", 8, owner="org:a", on_preemption=on_preemption))
    fleet.start(run("two", 8, owner="org:b", on_preemption=on_preemption))
    fleet.later("1h")
    fleet.apply(run("w", 8, owner="org:c", lasts="3h"))
    return fleet


def victims(fleet: Fleet) -> list[str]:
    return [run for kind, run, _ in cuts(fleet) if kind == "Lottery"]


def test_a_lottery_frees_what_nothing_else_would_and_its_odds_were_told() -> None:
    fleet = crowded()
    one = promised(fleet, "lab/w")
    assert (one.confidence, start_of(fleet, "lab/w")) == ("conservative", "75m")
    assert {name: float(odds) for name, odds in one.forecast.odds.items()} == {"lab/one": 0.5, "lab/two": 0.5}
    assert (one.forecast.deficit, one.forecast.pool) == (8, 16)
    fleet.until(at("75m"))
    (victim,) = victims(fleet)
    assert promised(fleet, "lab/w").state == "Active"
    fleet.leave(victim)
    assert fleet.phase(victim) == "Failed"
    assert fleet.leases("lab/w")[0].node == ("n0" if victim == "lab/one" else "n1")
    closed = {end.reason for end in fleet.closed().values()}
    resolved = next(fact for fact in fleet.facts if isinstance(fact, Resolved))
    assert resolved.result is not None
    assert closed == {f"RandomPreempt({resolved.result.seed})"}


def test_without_a_custodian_nobody_is_cut_and_the_start_waits() -> None:
    fleet = crowded(custodian=False)
    fleet.until(at("3h"))
    assert cuts(fleet) == []
    assert promised(fleet, "lab/w").reason == "NoCustodian"
    assert {fleet.phase("lab/one"), fleet.phase("lab/two")} == {"Running"}
    fleet.apply(run("young", 8, owner="org:a", lasts="1m"))
    fleet.succeed("lab/one")
    assert fleet.leases("lab/w"), "it is tried again when something comes free"


def test_who_was_cut_neither_takes_it_back_nor_cuts_in_turn() -> None:
    fleet = crowded(on_preemption="Requeue")
    fleet.until(at("75m"))
    (victim,) = victims(fleet)
    fleet.leave(victim)
    fleet.bind("lab/w")
    assert fleet.phase("lab/w") == "Running"
    assert fleet.phase(victim) == "Pending"
    fleet.until(at("4h"))
    assert victims(fleet) == [victim], "no ping-pong"
    assert promised(fleet, victim).confidence in ("", "projected")
    ends(fleet, "lab/w", at("75m") + 3 * HOUR)
    assert fleet.leases(victim), "it starts when machines are free"


def test_a_draw_that_was_made_is_not_made_again() -> None:
    fleet = crowded()
    fleet.until(at("75m"))
    froze = [fact for fact in fleet.facts if isinstance(fact, Froze)]
    assert len(froze) == 1
    assert fleet.custodian is not None
    answer = {fleet.custodian.beacon: fleet.custodian.answer(froze[0].intent) or ""}
    subject = next(fact.subject for fact in fleet.facts if isinstance(fact, Resolved))
    for _ in range(2):
        assert not fleet.handle(Reveal(subject, answer)).facts
        assert not fleet.handle(Tick()).facts
    replanned(fleet)
    fleet.later("10m")
    assert len([fact for fact in fleet.facts if isinstance(fact, Resolved)]) == 1


def test_nobody_gives_way_to_a_run_that_was_deleted_before_the_reveal() -> None:
    fleet = crowded()
    custodian, fleet.custodian = fleet.custodian, None
    fleet.until(at("75m"))
    assert promised(fleet, "lab/w").state == "Active"
    fleet.delete("Run", "lab/w")
    assert custodian is not None
    fleet.reveal(custodian)
    assert cuts(fleet) == []
    assert {fleet.phase("lab/one"), fleet.phase("lab/two")} == {"Running"}
    fleet.later("1h")
    fleet.audit()


def test_between_the_freeze_and_the_reveal_nobody_takes_what_comes_free() -> None:
    fleet = crowded()
    custodian, fleet.custodian = fleet.custodian, None
    fleet.until(at("76m"))
    fleet.apply(run("quick", 8, owner="org:a", lasts="1m"))
    fleet.succeed("lab/one")
    assert fleet.leases("lab/w"), "it starts without anybody being cut"
    assert not fleet.leases("lab/quick")
    assert custodian is not None
    fleet.reveal(custodian)
    assert victims(fleet) == []
    assert fleet.phase("lab/two") == "Running"


def test_nobody_is_drawn_before_it_has_run_for_the_lead() -> None:
    fleet = Fleet(*nodes("n", 2), budget("a"), budget("b"), secret="s", policy=Policy(patience="0s"))
    fleet.start(run("old", 8, owner="org:a"))
    fleet.later("1h")
    fleet.apply(run("w", 8, owner="org:b", where={"region": "us-west"}, lasts="9h"))
    assert fleet.leases("lab/w")
    fleet.bind("lab/w")
    fleet.later("1m")
    fleet.apply(run("x", 8, owner="org:b", lasts="9h"))
    assert start_of(fleet, "lab/x") == "76m", "by then both have run for the lead"
    assert sorted(promised(fleet, "lab/x").forecast.odds) == ["lab/old", "lab/w"]
    fleet.fail("lab/w")
    fleet.leave("lab/w")
    assert fleet.leases("lab/x")
    assert cuts(fleet) == []


def test_what_failed_by_a_cut_stays_failed() -> None:
    fleet = crowded()
    fleet.until(at("75m"))
    (victim,) = victims(fleet)
    fleet.leave(victim)
    fleet.bind("lab/w")
    ends(fleet, "lab/w", at("75m") + 3 * HOUR)
    fleet.later("2d")
    assert fleet.phase(victim) == "Failed"
    assert not fleet.leases(victim)


def test_a_start_whose_machines_fail_while_they_are_freed_is_planned_anew() -> None:
    fleet = crowded()
    fleet.until(at("75m"))
    (victim,) = victims(fleet)
    node_of = next(iter(fleet.where(victim)))
    fleet.fence(node_of)
    assert fleet.phase(victim) == "Failed"
    one = promised(fleet, "lab/w")
    assert one.state == "Pending", "nothing is being freed for it any more"
    assert start_of(fleet, "lab/w") == "90m", "who is to give way now gets the notice that everybody gets"
    fleet.later("5m")
    fleet.apply(node("n9"))
    assert fleet.leases("lab/w")[0].node == "n9"


def test_a_draw_that_can_make_no_room_is_not_waited_for_and_holds_up_the_next_until_it_is_revealed() -> None:
    """docs/decisions/0038: whoever keeps a reveal back gains no second try by it."""
    fleet = crowded()
    silent, fleet.custodian = fleet.custodian, None
    fleet.until(at("75m"))
    assert promised(fleet, "lab/w").state == "Active"
    fleet.fence("n0")
    assert promised(fleet, "lab/w").state == "Active", "whoever is on the other one may still be drawn"
    fleet.fence("n1")
    assert promised(fleet, "lab/w").state == "Blocked", "whoever is drawn, no machine is left"
    (waiting,) = fleet.state.draws
    fleet.apply(node("n8"))
    fleet.bind("lab/w")
    assert fleet.phase("lab/w") == "Running", "elsewhere, without any draw"
    fleet.apply(node("n9"))
    fleet.start(run("three", 8, owner="org:a"))
    fleet.later("1h")
    fleet.apply(run("late", 8, owner="org:b"))
    fleet.later("1h")
    assert promised(fleet, "lab/late").reason == "DrawWaits"
    assert list(fleet.state.draws) == [waiting]
    assert silent is not None
    fleet.reveal(silent)
    assert waiting not in fleet.state.draws
    assert cuts(fleet) == [], "it is spent, and nobody gave way by it"


def left_without_a_reveal() -> tuple[Fleet, SimulatedCustodian]:
    """``w`` has waited in vain for its draw, whose machine has failed since; then ``wide`` gives way for it, elsewhere
    and without a draw. ``elder`` was promised a start before, and waits for what comes free by itself."""
    fleet = Fleet(node("n0"), node("m0", domain="B"), budget("a"), budget("b"), budget("c"), secret="s",
                  policy=Policy(patience="0s"))  # fmt: skip
    here, there = {"fabric.domain": "A"}, {"fabric.domain": "B"}
    fleet.start(run("one", 4, owner="org:a", where=here))
    fleet.start(run("two", 4, owner="org:b", where=here))
    fleet.start(run("wide", 8, owner="org:a", where=there, elastic=elastic(4, 8, 4), lasts="10h"))
    fleet.later("1h")
    fleet.apply(run("elder", 4, owner="org:b", opportunistic=True, lasts="1h"))
    fleet.apply(run("w", 4, owner="org:c", lasts="3h"))
    silent, fleet.custodian = fleet.custodian, None
    assert isinstance(silent, SimulatedCustodian)
    fleet.until(at("75m"))
    assert [froze.intent.activation for froze in fleet.state.draws.values()] == [1]
    fleet.fence("n0")
    fleet.until(at("91m"))
    assert cuts(fleet) == [("Shrink", "lab/wide", 4)]
    assert (promised(fleet, "lab/w").state, promised(fleet, "lab/w").activation) == ("Active", 2)
    return fleet, silent


def test_regression_a_draw_waits_for_its_reveal_whatever_is_resolved_without_it() -> None:
    """It was forgotten: its custodian would have had a second try with the same value (docs/decisions/0038)."""
    fleet, silent = left_without_a_reveal()
    assert len(fleet.state.draws) == 1
    fleet.reveal(silent)
    assert not fleet.state.draws
    assert [(fact.activation, fact.result is not None) for fact in fleet.facts if isinstance(fact, Resolved)] == [
        (2, False),
        (1, True),
    ]
    assert cuts(fleet) == [("Shrink", "lab/wide", 4)], "it is spent, and nobody gave way by it"
    fleet.audit()


def test_what_was_freed_for_a_start_is_held_for_it_while_an_older_draw_of_its_own_still_waits() -> None:
    fleet, _ = left_without_a_reveal()
    fleet.report("Gone", *(pod.key for pod in fleet.pods("lab/wide")[1:]))
    assert fleet.where("lab/w") == {"m0": 4}
    assert not fleet.leases("lab/elder"), "not even who was promised a start before takes what was freed for another"
    assert len(fleet.state.draws) == 1
    fleet.audit()


def test_room_that_the_end_of_a_window_makes_is_there_at_that_very_instant() -> None:
    """(Found by a soak: the auditor took it to be there a microsecond later, and blamed who started beside it.)"""
    window = budget("a", envelope("main", 64, end="1h"))
    fleet = Fleet(*nodes("n", 1), window, budget("b"), policy=Policy(patience="1000h", lookahead="0s"), secret="x")
    fleet.start(run("w", 7, owner="org:a"))
    fleet.apply(run("t", 6, owner="org:b", lasts="1h"))
    assert start_of(fleet, "lab/t") == "60m"
    fleet.start(run("p", 1, owner="org:b", lasts="8h"))
    assert start_of(fleet, "lab/t") == "60m"


def test_regression_who_has_no_promise_takes_nothing_before_those_who_start_have_found_who_pays() -> None:
    """With the money of those who gave way ``big`` borrowed less than was planned; ``old``, which had given way and was
    looked at first, had taken it by then, and for ``next``, which was promised what is left, there was nothing (I8)."""
    family = {"parents": ("org",)}
    fleet = Fleet(
        node("n0"), node("n1", domain="B"), budget("a", envelope(gpus=8), **family),
        budget("b", envelope(gpus=4), **family), budget("far", envelope(lends_to=["org:b"])), secret="x",
    )  # fmt: skip
    here = {"fabric.domain": "A"}
    fleet.start(run("old", 4, owner="org:a", on_preemption="Requeue"))
    fleet.start(run("other", 4, owner="org:a"))
    fleet.later("1h")
    fleet.apply(run("big", 8, owner="org:b", where=here, sponsors=["org:far"], lasts="2h"))
    fleet.apply(run("next", 2, owner="org:a", lasts="1h"))
    assert {one.budget: one.gpus for one in promised(fleet, "lab/big").plan.segments} == {"b": 4, "far": 4}
    fleet.later("15m")
    assert promised(fleet, "lab/next").plan.start == fleet.now + MINUTE // 2
    fleet.report("Gone", "lab/old-a1-0", "lab/other-a1-0")
    assert fleet.payers("lab/big") == {"a/main": 4, "b/main": 4}
    assert {lease.run for lease in fleet.leases()} == {"big", "next"}
    fleet.audit()


def test_regression_a_draw_that_nobody_reveals_holds_up_nobody_once_it_could_make_no_room() -> None:
    """Its custodian is away for good, and a machine of the slice too: what was held for the start was held for ever."""
    custodian = SimulatedCustodian("x")
    fleet = Fleet(*nodes("n", 2), budget("a"))
    fleet.handle(Publish(custodian.beacon, custodian.root))
    fleet.start(run("there", 4, owner="org:a"))
    fleet.apply(run("big", 16, owner="org:a", group=8))
    fleet.apply(run("small", 8, owner="org:a"))
    fleet.later("15m")
    assert [one.subject for one in fleet.state.draws.values()] == [f"Reservation/{promised(fleet, 'lab/big').key}"]
    assert fleet.code("lab/small") == "Protected"
    fleet.apply(node("n0", cordoned=True))
    assert fleet.where("lab/small") == {"n1": 8}
    assert promised(fleet, "lab/big").state == "Blocked"
    fleet.apply(node("n0"))
    fleet.reveal(custodian)
    assert not fleet.state.draws
    assert {lease.run for lease in fleet.leases()} == {"there", "small"}, "the draw is spent, and nobody gives way"
    fleet.audit()
