"""I8: who may start past a reservation, and who is to blame when one is moved later."""

from __future__ import annotations

from typing import Any

import pytest
from msgspec.structs import replace

from tenure.api.policy import Policy
from tenure.api.run import Run
from tenure.audit import LATE, Violation, check_all
from tenure.draw import Token
from tenure.facts import (
    Cleared,
    Closed,
    Froze,
    Opened,
    Placed,
    PutNode,
    PutPolicy,
    PutRun,
    Reserved,
    Seen,
    Slice,
)
from tenure.units import Instant
from tests.audit import drawing
from tests.audit.builders import SYS, T0, History, budget, envelope, lease, node, pod, run, time
from tests.audit.promises import plan, reserved

ELDER = run("elder", 8)
"""Waits; in the queue it stands behind ``aged`` and before ``younger``, by name."""


def fleet(concurrency: int = 64, **other: Any) -> History:
    history = History().fleet(*(node(f"a-{index}") for index in range(4)))
    history.budgets(budget("sys", SYS, envelope(concurrency=concurrency, **other), envelope("east")))
    return history.add(PutPolicy(policy=Policy(lookahead="0s")))


def waiting(planned: Slice, history: History | None = None, **other: Any) -> History:
    """elder waits since the beginning with this plan."""
    return (history or fleet()).add(PutRun(object=ELDER), reserved(planned, ELDER, **other))


def starts(history: History, name: str, where: str, *, duration: str | None = None, **other: Any) -> History:
    gpus = int(where.rpartition("-")[2]) - int(where.rpartition(":")[2].partition("-")[0]) + 1
    one = run(name, gpus, duration=duration)
    return history.started(one, [lease(one, where, at=history.now, **other)], [pod(one, where, rank=0)])


def faults(history: History, *, now: Instant | None = None, settled: bool = False) -> list[Violation]:
    """Nothing but I8 is ever wrong here."""
    found = check_all(history.entries, now=now or history.now, settled=settled)
    assert {item.invariant for item in found} <= {"I8-reservation-not-delayed"}, [item.sentence() for item in found]
    return found


# --- what opens ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("name", "where", "duration", "safe"),
    [
        ("younger", "a-0:0-7", None, False),
        ("younger", "a-0:7-7", None, False),
        ("younger", "a-0:0-7", "2h", True),
        ("younger", "a-0:0-7", "121m", False),
        ("younger", "a-1:0-7", None, True),
        ("aged", "a-0:0-7", None, False),
    ],
    ids=["inside", "one GPU of it", "ends as it starts", "ends after", "outside", "older, but without a promise"],
)
def test_a_younger_run_starts_outside_the_slice_or_ends_before_it_begins(
    name: str, where: str, duration: str | None, safe: bool
) -> None:
    history = starts(waiting(plan("2h", "a-0:8")), name, where, duration=duration)
    assert (faults(history) == []) is safe


def test_a_node_has_room_for_both_when_others_end_before() -> None:
    for claimed, safe in ((4, True), (5, False)):
        history = starts(fleet(), "aged", "a-0:0-3", duration="2h")
        history = starts(waiting(plan("2h", f"a-0:{claimed}"), history).at("1m"), "younger", "a-0:4-7")
        assert (faults(history) == []) is safe


def test_who_overstays_frees_nothing() -> None:
    history = starts(fleet(), "aged", "a-0:0-3", duration="1h")
    history = starts(waiting(plan("2h", "a-0:4"), history).at("61m"), "younger", "a-0:4-7")
    assert faults(history) != []


def test_who_runs_out_of_hours_frees_its_gpus_then() -> None:
    for hours, safe in ((8, True), (9, False)):
        history = starts(fleet(max_gpu_hours=hours), "aged", "a-0:0-3")
        history = starts(waiting(plan("121m", "a-0:4", paid="east"), history), "younger", "a-0:4-7", envelope="east")
        assert (faults(history) == []) is safe


def test_who_was_asked_to_end_frees_its_gpus() -> None:
    history = starts(fleet(), "aged", "a-0:0-3").stop("aged", "Canceled")
    assert faults(starts(waiting(plan("2h", "a-0:4"), history), "younger", "a-0:4-7")) == []


def test_claims_of_several_older_runs_count_together() -> None:
    other = run("eldest", 4)
    for until, safe in (("3h", True), (None, False)):
        history = waiting(plan("3h", "a-0:4")).add(PutRun(object=other))
        history.add(reserved(plan("1h", "a-0:4", until=until), other))
        assert (faults(starts(history, "younger", "a-0:4-7")) == []) is safe


def test_two_runs_in_one_entry_answer_each_for_its_own() -> None:
    middle, younger = run("middle", 4), run("younger", 4)
    history = waiting(plan("2h", "a-0:4"))
    leases = [lease(middle, "a-0:0-3", at=T0), lease(younger, "a-0:4-7", at=T0)]
    pods = [pod(middle, "a-0:0-3", rank=0), pod(younger, "a-0:4-7", rank=0)]
    history.add(
        PutRun(object=middle),
        PutRun(object=younger),
        *(Opened(lease=one) for one in leases),
        *(Placed(pod=one) for one in pods),
        history.moved("middle", phase="Starting", attempt=1, admitted=True),
        history.moved("younger", phase="Starting", attempt=1, admitted=True),
    )
    (found,) = faults(history)
    assert found.object == "Reservation/rai/elder"
    assert "rai/younger" in found.message


def test_what_is_blocked_released_or_canceled_protects_nothing() -> None:
    for state in ("Blocked", "Released", "Canceled"):
        history = waiting(plan("2h", "a-0:8"))
        history.add(reserved(plan("2h", "a-0:8"), ELDER, state=state, reason="because"))
        assert faults(starts(history, "younger", "a-0:0-7")) == []


def test_a_run_starts_in_its_own_slice() -> None:
    history = waiting(plan("2h", "a-0:8")).at("2h").add(reserved(plan("2h", "a-0:8"), ELDER, state="Active"))
    history.started(ELDER, [lease(ELDER, "a-0:0-7", at=history.now)], [pod(ELDER, "a-0:0-7", rank=0)])
    assert faults(history) == []
    # While it is still Active and its run holds what it claimed, nothing is claimed twice.
    assert faults(starts(history, "younger", "a-1:0-7")) == []


def test_behind_an_active_reservation_stands_everybody() -> None:
    history = waiting(plan("2h", "a-0:8")).at("2h").add(reserved(plan("2h", "a-0:8"), ELDER, state="Active"))
    assert faults(starts(history, "aged", "a-0:0-7", duration="1m")) != []


ELASTIC = run("aged", 4, malleable=(4, 8, 4))


@pytest.mark.parametrize(("where", "safe"), [("a-1:0-3", True), ("a-0:0-3", False)])
def test_nobody_grows_into_a_slice_however_old(where: str, safe: bool) -> None:
    history = waiting(plan("2h", "a-0:8"))
    history.started(ELASTIC, [lease(ELASTIC, "a-2:0-3", at=T0)], [pod(ELASTIC, "a-2:0-3", rank=0)]).at("1h")
    step = lease(ELASTIC, where, at=history.now, group=1, reason="Grow")
    assert (faults(history.grow("aged", [step], [pod(ELASTIC, where, rank=1, group=1)])) == []) is safe


@pytest.mark.parametrize(("where", "safe"), [("a-1:0-3", True), ("a-0:0-3", False)])
def test_no_spare_is_topped_up_in_a_slice(where: str, safe: bool) -> None:
    keeper = run("aged", 4, group=4, spares=4)
    spare = lease(keeper, "a-3:0-3", at=T0, role="Spare")
    history = waiting(plan("2h", "a-0:8"))
    history.started(keeper, [lease(keeper, "a-2:0-3", at=T0), spare], [pod(keeper, "a-2:0-3", rank=0)]).at("1h")
    history.add(Closed(namespace="rai", leases=(spare.name,), end=history.now, reason="NodeFailure"))
    history.add(Opened(lease=lease(keeper, where, at=history.now, role="Spare")))
    assert (faults(history) == []) is safe


@pytest.mark.parametrize(("claimed", "safe"), [(4, True), (5, False), (8, False)])
def test_a_conservative_reservation_counts_on_cuts_of_what_was_there_before(claimed: int, safe: bool) -> None:
    history = waiting(plan("15m", f"a-0:{claimed}"), starts(fleet(), "aged", "a-0:0-3"), confidence="conservative")
    assert (faults(starts(history, "younger", "a-0:4-7")) == []) is safe


@pytest.mark.parametrize(
    ("concurrency", "duration", "safe"), [(16, None, True), (15, None, False), (15, "2h", True), (15, "121m", False)]
)
def test_a_younger_run_leaves_the_money_that_is_needed(concurrency: int, duration: str | None, safe: bool) -> None:
    history = waiting(plan("2h", "a-0:8"), fleet(concurrency))
    assert (faults(starts(history, "younger", "a-1:0-7", duration=duration)) == []) is safe


def test_an_older_run_without_a_promise_does_not_spend_what_a_younger_one_was_promised() -> None:
    history = waiting(plan("2h", "a-0:8"), fleet(15)).at("2h").add(reserved(plan("2h", "a-0:8"), ELDER, state="Active"))
    assert faults(starts(history, "aged", "a-1:0-7")) != []


# --- what is moved ------------------------------------------------------------------------------------------


def moved(start: str | None, promise: Slice, *shares: str, **other: Any) -> Reserved:
    return reserved(plan(start, *shares), ELDER, promise=promise, **{"reason": "Overstayed", **other})


def test_a_later_start_has_a_reason_and_an_earlier_one_needs_none() -> None:
    promise = plan("2h", "a-0:8")
    for start, reason, fine in (("3h", "", False), ("3h", "Overstayed", True), ("1h", "", True), ("2h", "", True)):
        history = waiting(promise).add(moved(start, promise, "a-0:8", reason=reason))
        assert (faults(history) == []) is fine


@pytest.mark.parametrize("start", ["2h", None])
def test_a_reservation_is_blocked_for_a_reason(start: str | None) -> None:
    promise = plan("2h", "a-0:8")
    for reason, fine in (("", False), ("NoEnvelope", True)):
        history = waiting(promise).add(moved(start, promise, "a-0:8", state="Blocked", reason=reason))
        assert (faults(history) == []) is fine


def test_an_activation_may_come_a_moment_late() -> None:
    promise = plan("2h", "a-0:8")
    for late, fine in ((0, True), (1, False)):
        history = waiting(promise)
        history.now = time("2h") + LATE + late
        active = replace(promise, start=history.now)
        history.add(reserved(active, ELDER, promise=promise, state="Active"))
        assert (faults(history) == []) is fine


def test_who_started_in_the_slice_in_the_very_entry_is_to_blame() -> None:
    promise = plan("2h", "a-0:8")
    history = starts(waiting(promise), "younger", "a-0:0-7")
    entry = history.entries[-2]
    history.entries[-2] = replace(entry, facts=(*entry.facts, moved("9h", promise, "a-1:8")))
    (found,) = faults(history)
    assert "delayed by work admitted after it" in found.message
    assert "younger" in str(found.found)


@pytest.mark.parametrize("first", ["the plan", "the start"])
def test_of_what_one_entry_does_the_first_comes_before_the_second(first: str) -> None:
    """elder's start is moved earlier, onto a node where the same entry starts younger. Planned first, it is taken from;
    planned afterwards it was found with younger there, and counts on somebody's cuts."""
    promise = plan("6h", "a-1:8")
    history = starts(waiting(promise), "younger", "a-0:0-7", duration="5h")
    entry, earlier = history.entries[-2], moved("1h", promise, "a-0:8")
    facts = (earlier, *entry.facts) if first == "the plan" else (*entry.facts, earlier)
    history.entries[-2] = replace(entry, facts=facts)
    assert any("taken by" in item.message for item in faults(history)) is (first == "the plan")


def test_a_start_that_is_moved_earlier_gives_up_nothing_that_was_promised_before() -> None:
    """younger stays beyond the start that elder was promised until then: that the same entry plans elder anew, for
    before it, counting on somebody's cuts, is no excuse."""
    promise = plan("6h", "a-0:8")
    for lasts, fine in (("5h", True), ("7h", False)):
        history = starts(waiting(promise), "younger", "a-0:0-7", duration=lasts)
        entry = history.entries[-2]
        history.entries[-2] = replace(entry, facts=(*entry.facts, moved("1h", promise, "a-0:8")))
        assert (faults(history) == []) is fine


@pytest.mark.parametrize("first", ["the plan", "the start"])
def test_who_started_before_a_start_was_planned_on_cutting_it_does_not_delay_it(first: str) -> None:
    promise = plan("6h", "a-1:8")
    history = starts(waiting(promise), "younger", "a-0:0-7")
    entry, cuts = history.entries[-2], moved("1h", promise, "a-0:8", confidence="conservative")
    facts = (cuts, *entry.facts) if first == "the plan" else (*entry.facts, cuts)
    history.entries[-2] = replace(entry, facts=facts)
    history.at("1h").add(moved("2h", promise, "a-0:8", confidence="conservative"))
    assert any("delayed by work" in item.message for item in faults(history)) is (first == "the plan")


@pytest.mark.parametrize(("reason", "fine"), [("EndsLate", True), ("", False)])
def test_behind_one_who_waits_a_moment_for_others_to_end_a_start_moves_with_it(reason: str, fine: bool) -> None:
    """ancient is due, and waits for the backfill that was to end just now; elder was promised its end."""
    ancient = run("ancient", 8)
    before, promise = plan("2h", "a-0:8", until="4h"), plan("4h", "a-0:8")
    history = fleet().add(PutRun(object=ancient), reserved(before, ancient))
    history = starts(waiting(promise, history, turn=1), "younger", "a-0:0-7", duration="2h").at("2h")
    later = replace(promise, start=time("4h") + LATE)
    moving = reserved(later, ELDER, promise=promise, reason="Overstayed", turn=1)
    history.add(reserved(before, ancient, reason=reason), moving)
    assert (faults(history) == []) is fine


def test_a_run_that_is_requeued_and_starts_in_one_entry_has_not_grown() -> None:
    """Whoever is promised a start afterwards was promised it beside that run."""
    aged = run("aged", 8, duration="1h")
    history = starts(fleet(), "aged", "a-1:0-7", duration="1h").gone("aged", "NodeFailure", "Pending")
    entry = history.entries[-1]
    facts = (
        *entry.facts,
        Opened(lease=lease(aged, "a-0:0-7", at=history.now, attempt=2)),
        Placed(pod=pod(aged, "a-0:0-7", rank=0, attempt=2)),
        history.moved("aged", phase="Starting", attempt=2),
        PutRun(object=ELDER),
        reserved(plan("1h", "a-0:8"), ELDER),
    )
    history.entries[-1] = replace(entry, facts=facts)
    bound = Seen(namespace="rai", pod="aged-a2-0", phase="Bound")
    later = moved("61m", plan("1h", "a-0:8"), "a-0:8")
    assert faults(history.at("1m").add(bound, history.moved("aged", phase="Running"), later)) == []


def overstayed(name: str = "younger", before: History | None = None) -> tuple[Slice, History]:
    """Somebody said it would be gone before elder's start, and is not."""
    promise = plan("2h", "a-0:8")
    history = starts(waiting(promise, before), name, "a-0:0-7", duration="1h")
    return promise, history.at("2h")


def test_backfill_that_overstays_is_to_be_cut_and_not_to_be_waited_for() -> None:
    promise, history = overstayed()
    assert faults(history) == []
    assert faults(history.add(reserved(promise, ELDER, state="Active"))) == []
    promise, history = overstayed()
    assert faults(history.add(moved("3h", promise, "a-0:8"))) != []
    promise, history = overstayed()
    assert faults(history.add(moved(None, promise, state="Blocked"))) != []


@pytest.mark.parametrize(("admitted", "blamed"), [("30m", False), ("90m", True)])
def test_who_was_let_in_while_another_was_still_to_go_is_not_to_blame_if_that_one_stays(
    admitted: str, blamed: bool
) -> None:
    """``longer`` holds half of the node and was to be gone after an hour; ``younger`` takes a GPU of the other half,
    beside the four that elder was promised. Once ``longer`` overstays there is room for one of the two. Who was let in
    while it was still to go did nothing wrong; who was let in afterwards did."""
    history = starts(fleet(), "longer", "a-0:0-3", duration="1h")
    promise = plan("2h", "a-0:4")
    history = starts(waiting(promise, history).at(admitted), "younger", "a-0:4-4")
    history = history.at("2h").add(moved("3h", promise, "a-0:4"))
    assert any("delayed by work" in item.message for item in faults(history)) is blamed


def test_who_was_there_before_delays_nobody_unlawfully() -> None:
    promise, history = plan("2h", "a-0:8"), starts(fleet(), "younger", "a-0:0-7", duration="1h")
    assert faults(waiting(promise, history).at("2h").add(moved("3h", promise, "a-0:8"))) == []


@pytest.mark.parametrize("cause", ["node", "edit", "width", "cut", "money", "older claim"])
def test_another_cause_clears_the_backfill(cause: str) -> None:
    promise, history = overstayed(before=fleet(max_gpu_hours=40) if cause == "money" else None)
    match cause:
        case "node":
            history.add(PutNode(object=node("a-0", cordoned=True)), moved("3h", promise, "a-1:8"))
        case "edit":
            history.add(PutRun(object=ELDER), moved("3h", promise, "a-0:8"))
        case "width":
            history.add(moved("3h", promise, "a-0:4"))
        case "cut":
            history.add(history.moved("elder", cut=True)).add(moved("3h", promise, "a-0:8"))
        case "money":
            history.add(PutPolicy(policy=Policy(lookahead="4h")), moved("5h", promise, "a-0:8"))
        case "older claim":
            eldest = run("ancient", 8)
            history.add(PutRun(object=eldest), reserved(plan("2h", "a-0:8"), eldest), moved("3h", promise, "a-0:8"))
    assert [item for item in faults(history) if "delayed" in item.message] == []


@pytest.mark.parametrize(("place", "blamed"), [({"cluster": "gpu-b"}, False), ({"cluster": "gpu-a"}, True)])
def test_money_that_may_not_be_spent_there_any_more_clears_the_backfill(place: dict[str, str], blamed: bool) -> None:
    promise, history = overstayed()
    history.budgets(budget("sys", SYS, envelope(selector=place), envelope("east")))
    found = faults(history.add(moved(None, promise, state="Blocked")))
    assert bool([item for item in found if "delayed" in item.message]) is blamed


def test_an_earlier_promise_that_begins_while_the_old_plan_lasts_clears_who_started_in_its_place() -> None:
    """elder was to have the node from 2h to 12h. An earlier promise has moved onto it, from 6h on, so elder has to go
    elsewhere; that somebody then fills the time before is no wrong. Where that promise leaves room, it is."""
    ancient = run("ancient", 8)
    promise = plan("2h", "a-0:4", until="12h")
    for begins, gpus, lasts, fine in (("6h", 8, "5h", True), ("12h", 8, "5h", False), ("6h", 4, "5h", False),
                                      ("6h", 4, "1h", True)):  # fmt: skip
        history = fleet().add(PutRun(object=ancient), reserved(plan("6h", "a-1:8"), ancient))
        history = starts(waiting(promise, history), "younger", "a-0:0-7", duration=lasts)
        entry = history.entries[-2]
        facts = (reserved(plan(begins, f"a-0:{gpus}"), ancient, promise=plan("6h", "a-1:8")), *entry.facts,
                 moved("3h", promise, "a-2:4"))  # fmt: skip
        history.entries[-2] = replace(entry, facts=facts)
        assert ([item for item in faults(history) if "delayed" in item.message] == []) is fine, (begins, gpus, lasts)


@pytest.mark.parametrize(
    ("asked", "moved_at", "share", "fine"),
    [
        ("1h", "2h", 8, True),
        ("2h", "2h", 8, False),
        ("1h", "119m", 8, False),
        ("1h", "2h", 4, False),
        (None, "2h", 8, False),
    ],
    ids=["still there", "asked only now", "before the start", "where there is room", "never asked"],
)
def test_pods_that_do_not_stop_put_off_a_start_and_nothing_else_does(
    asked: str | None, moved_at: str, share: int, fine: bool
) -> None:
    """Two were to be gone before elder's start. One was asked to leave, and its pod is still there."""
    promise = plan("2h", f"a-0:{share}")
    history = starts(waiting(promise), "stuck", "a-0:0-1", duration="1h")
    starts(history, "younger", "a-0:2-7", duration="1h")
    if asked is not None:
        history.at(asked).stop("stuck", "Canceled")
    later = moved("3h", promise, f"a-0:{share}")
    if asked == moved_at:
        entry = history.entries[-1]
        history.entries[-1] = replace(entry, facts=(*entry.facts, later))
    else:
        history.at(moved_at).add(later)
    assert (faults(history) == []) is fine


def test_who_was_let_in_on_what_pods_should_have_left_makes_them_an_excuse_unless_it_overstays() -> None:
    """On the first node there is room for elder and younger, but not for a pod that stays as well."""
    for lasts, fine in (("9h", True), ("30m", False)):
        promise = plan("2h", "a-0:4", "a-1:8")
        history = starts(waiting(promise), "stuck", "a-0:0-3", duration="1h")
        starts(history, "over", "a-1:0-7", duration="1h").at("1h").stop("stuck", "Canceled")
        starts(history, "younger", "a-0:4-7", duration=lasts)
        assert (faults(history.at("2h").add(moved("3h", promise, "a-0:4", "a-1:8"))) == []) is fine


def test_an_earlier_promise_that_is_late_lasts_longer() -> None:
    """ancient was to have the node from 1h to 2h, and has not started: it will be there at 2h as well."""
    for state, fine in (("Pending", True), ("Canceled", False)):
        ancient, promise = run("ancient", 8), plan("2h", "a-0:8")
        claim = plan("1h", "a-0:8", until="2h")
        history = waiting(promise, fleet().add(PutRun(object=ancient), reserved(claim, ancient)))
        starts(history, "younger", "a-0:0-7", duration="30m")
        history.at("2h").add(reserved(claim, ancient, state=state, reason="because"))
        assert (faults(history.add(moved("3h", promise, "a-0:8"))) == []) is fine


def test_what_is_held_for_a_run_that_is_being_started_is_held_against_everybody() -> None:
    """younger has a GPU held since 1h, waits for pods to leave, and starts there when elder was to; or elsewhere."""
    for held, state, fine in (("a-0:8", "Active", True), ("a-1:8", "Active", False), ("a-0:8", "Pending", False)):
        younger, promise = run("younger", 8, duration="1h"), plan("2h", "a-0:8")
        claim = plan("1h", held, until="2h")
        history = waiting(promise, turn=1).add(PutRun(object=younger))
        history.add(reserved(claim, younger, state=state, turn=2, activated=time("1h") if state == "Active" else None))
        starts(history.at("2h"), "younger", "a-0:0-7", duration="1h")
        entry = history.entries[-2]
        released = reserved(claim, younger, state="Released", turn=2, activated=time("1h"), reason="Released")
        later = moved("3h", promise, "a-0:8", turn=1)
        history.entries[-2] = replace(entry, facts=(later, *entry.facts, released))
        assert ("is delayed" not in str(faults(history))) is fine, (held, state)


def test_a_start_that_counts_on_cuts_does_not_count_on_those_who_came_by_an_earlier_promise() -> None:
    for turn, fine in ((1, True), (3, False)):
        first, promise = run("first", 8), plan("2h", "a-0:8")
        claim = plan("1h", "a-1:8")
        history = fleet().add(PutRun(object=first), reserved(claim, first, turn=turn))
        waiting(promise, history, turn=2, confidence="conservative")
        starts(history.at("2h"), "first", "a-0:0-7")
        entry = history.entries[-2]
        released = reserved(claim, first, state="Released", turn=turn, reason="Released")
        later = moved("9h", promise, "a-2:8", turn=2, confidence="conservative")
        history.entries[-2] = replace(entry, facts=(later, *entry.facts, released))
        assert ("is delayed" not in str(faults(history))) is fine, turn


def test_work_that_moved_into_the_slice_after_a_failure_counts_from_its_admission() -> None:
    """younger started outside; its node died, and it went on inside. It was admitted after elder's promise."""
    for before, fine in ((True, True), (False, False)):
        promise = plan("2h", "a-0:8")
        history = waiting(promise) if not before else fleet()
        starts(history, "younger", "a-1:0-7")
        if before:
            waiting(promise, history)
        younger, old = run("younger", 8), lease(run("younger", 8), "a-1:0-7", at=T0)
        history.at("1h").add(
            Closed(namespace="rai", leases=(old.name,), end=history.now, reason="NodeFailure"),
            *_replaced(younger, history),
        )
        assert (faults(history.add(moved("9h", promise, "a-2:8"))) == []) is fine


def _replaced(one: Run, history: History) -> list[Any]:
    again = replace(pod(one, "a-0:0-7", rank=0), name="younger-a1-0-1")
    return [
        Cleared(namespace="rai", pods=("younger-a1-0",)),
        Opened(lease=lease(one, "a-0:0-7", at=history.now, reason="Swap")),
        Placed(pod=again),
    ]


# --- the record ---------------------------------------------------------------------------------------------


def test_a_promise_is_not_changed_and_a_run_has_one() -> None:
    promise = plan("2h", "a-0:8")
    assert faults(waiting(promise).add(reserved(plan("1h", "a-0:8"), ELDER))) != []
    second = reserved(promise, ELDER).reservation
    for state, fine in (("Pending", False), ("Canceled", True)):
        history = waiting(promise).add(reserved(promise, ELDER, state=state))
        history.add(Reserved(reservation=replace(second, uid="r-2", name="elder-2")))
        assert (faults(history) == []) is fine


def test_on_a_settled_world_no_start_is_past() -> None:
    history = waiting(plan("2h", "a-0:8"))
    assert faults(history, now=time("2h") + LATE, settled=True) == []
    assert faults(history, now=time("2h") + LATE + 1) == []
    assert faults(history, now=time("2h") + LATE + 1, settled=True) != []


def test_a_start_that_waits_for_a_draw_is_not_past() -> None:
    history = starts(fleet(), "aged", "a-0:0-7").add(*drawing.published())
    waiting(plan("15m", "a-0:8"), history, confidence="conservative").at("15m")
    token = Token(id="rai/aged", owner=SYS, gpus=8)
    intent = drawing.intent("elder", token, at=history.now, namespace="rai", uid="r-elder")
    history.add(Froze(trigger="Activation", intent=intent))
    assert faults(history, now=time("9h"), settled=True) == []


@pytest.mark.parametrize("waits", [False, True], ids=["nobody is drawn", "the draw waits"])
def test_nothing_is_held_against_an_earlier_promise_for_one_whose_draw_waits(waits: bool) -> None:
    """younger has a GPU held since 1h; but while its draw waits nobody has given way for it, and when the GPU comes
    free by itself it is elder's, who was promised it before."""
    younger, promise, claim = run("younger", 8, duration="1h"), plan("2h", "a-0:8"), plan("1h", "a-0:8", until="2h")
    history = starts(fleet(), "aged", "a-3:0-7").add(*drawing.published())
    waiting(promise, history, turn=1).add(PutRun(object=younger)).at("1h")
    token = Token(id="rai/aged", owner=SYS, gpus=8)
    intent = drawing.intent("younger", token, at=history.now, namespace="rai", uid="r-younger")
    active = reserved(claim, younger, state="Active", turn=2, activated=history.now, activation=1)
    history.add(*([Froze(trigger="Activation", intent=intent)] if waits else []), active)
    starts(history.at("2h"), "younger", "a-0:0-7", duration="1h")
    entry = history.entries[-2]
    released = reserved(claim, younger, state="Released", turn=2, activated=time("1h"), reason="Released")
    later = moved("3h", promise, "a-0:8", turn=1)
    history.entries[-2] = replace(entry, facts=(later, *entry.facts, released))
    assert ("is delayed" in str(faults(history))) is waits
