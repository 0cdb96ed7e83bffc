"""I8: nothing but the world moves a promise. Beside each ledger that breaks a clause of it, one that does not."""

from __future__ import annotations

from typing import Any

import pytest
from msgspec.structs import replace

from tenure.api.policy import Policy
from tenure.api.run import Funding, Run
from tenure.audit import LATE, Violation, check_all
from tenure.draw import Token
from tenure.facts import (
    Closed,
    Cut,
    Fact,
    Forecast,
    Froze,
    Opened,
    Placed,
    PutBudget,
    PutNode,
    PutPolicy,
    PutRun,
    Removed,
    Reserved,
    Segment,
    Slice,
)
from tenure.units import Instant
from tests.audit import drawing
from tests.audit.builders import (
    FENCED,
    MM,
    SYS,
    T0,
    History,
    budget,
    cap,
    envelope,
    lease,
    lends,
    node,
    pod,
    run,
    time,
)
from tests.audit.promises import plan, reserved

ELDER, NEXT = run("elder", 8), run("next", 8)
SLICE = plan("2h", "a-0:8")
LOAN = ("vision", MM, "borrowed")
POLICY = Policy(lookahead="0s", activation_lead="15m")


def fleet(concurrency: int = 64, *, caps: Any = (), **other: Any) -> History:
    history = History().fleet(*(node(f"a-{index}") for index in range(4)))
    history.budgets(budget("sys", SYS, envelope(concurrency=concurrency, **other), envelope("east"), caps=caps))
    return history.add(PutPolicy(policy=POLICY))


def waiting(planned: Slice = SLICE, history: History | None = None, of: Run = ELDER, **other: Any) -> History:
    """elder waits since the beginning with this plan."""
    return (history or fleet()).add(PutRun(object=of), reserved(planned, of, **other))


def starts(
    history: History, name: str, where: str, *, duration: str | None = None, life: Any = None, before: Any = (),
    after: Any = (), **other: Any,
) -> History:  # fmt: skip
    """A run starts, and is bound in an entry of its own; ``before`` and ``after`` are facts of the first entry."""
    gpus = int(where.rpartition("-")[2]) - int(where.rpartition(":")[2].partition("-")[0]) + 1
    funding = Funding(allow_borrow=True, sponsors=(MM,)) if other.get("paid") == LOAN else Funding()
    one = run(name, gpus, duration=duration, funding=funding)
    history.moved(name, **(life or {}))
    history.start(one, [lease(one, where, at=history.now, **other)], [pod(one, where, rank=0)])
    history.entries[-1] = replace(history.entries[-1], facts=(*before, *history.entries[-1].facts, *after))
    return history.bind(name)


def faults(history: History, *, now: Instant | None = None, settled: bool = False) -> list[Violation]:
    """Nothing but I8 is ever wrong here."""
    found = check_all(history.entries, now=now or history.now, settled=settled)
    assert {item.invariant for item in found} <= {"I8-reservation-not-delayed"}, [item.sentence() for item in found]
    return found


def is_fine(history: History) -> bool:
    return faults(history) == []


def is_kept(history: History) -> bool:
    """The same where other things are wrong: a ledger of which only I8 is asked."""
    return not any(item.invariant.startswith("I8") for item in check_all(history.entries, now=history.now))


def again(planned: Slice | None = None, promise: Slice = SLICE, of: Run = ELDER, **other: Any) -> Reserved:
    """The promise as it stands now: an hour later, unless told otherwise."""
    return reserved(planned or plan("3h", "a-0:8"), of, promise=promise, **{"reason": "Overstayed", **other})


# --- who is let in --------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("where", "duration", "fine"),
    [
        ("a-0:0-7", None, False),
        ("a-0:7-7", None, False),
        ("a-0:0-7", "2h", True),
        ("a-0:0-7", "7230s", True),
        ("a-0:0-7", "7231s", False),
        ("a-1:0-7", None, True),
    ],
    ids=["inside", "one GPU of it", "ends with the bound", "30 s later", "31 s later", "outside"],
)
def test_who_starts_stays_outside_of_the_slice_or_ends_by_the_bound(
    where: str, duration: str | None, fine: bool
) -> None:
    history = starts(waiting(), "younger", where, duration=duration)
    assert is_fine(history) is fine
    assert all("untenable" in item.message and "node a-0" in item.message for item in faults(history))


@pytest.mark.parametrize(("duration", "fine"), [("150m", True), ("151m", False)])
def test_a_promise_with_slack_protects_from_its_bound_on(duration: str, fine: bool) -> None:
    history = starts(waiting(by=time("150m")), "younger", "a-0:0-7", duration=duration)
    assert is_fine(history) is fine


@pytest.mark.parametrize(("bound", "fine"), [("2h", True), ("7231s", False)])
def test_who_declares_no_end_and_has_a_bound_ends_with_it(bound: str, fine: bool) -> None:
    history = starts(waiting(), "younger", "a-0:0-7", life={"bound": time(bound), "backfilled": True})
    assert is_fine(history) is fine


def test_a_node_has_room_for_both_when_others_end_before() -> None:
    for claimed, fine in ((4, True), (5, False)):
        history = starts(fleet(), "aged", "a-0:0-3", duration="2h")
        history = starts(waiting(plan("2h", f"a-0:{claimed}"), history).at("1m"), "younger", "a-0:4-7")
        assert is_fine(history) is fine


def test_who_runs_out_of_hours_is_gone_then() -> None:
    for hours, fine in ((8, False), (9, True)):
        history = starts(fleet(max_gpu_hours=hours), "aged", "a-0:0-3")
        promise = plan("2h", "a-0:8", paid="east")
        # If aged is there for longer, elder was never tenable, and may be moved.
        history = waiting(promise, history).add(again(plan("9h", "a-0:8", paid="east"), promise))
        assert is_fine(history) is fine


def test_who_was_asked_to_end_is_gone() -> None:
    history = starts(fleet(), "aged", "a-0:0-3").stop("aged", "Canceled")
    assert is_fine(starts(waiting(plan("2h", "a-0:4"), history), "younger", "a-0:4-7"))


ELASTIC = run("aged", 4, malleable=(4, 8, 4))


@pytest.mark.parametrize(("where", "fine"), [("a-1:0-3", True), ("a-0:0-3", False)])
def test_nobody_grows_into_a_slice(where: str, fine: bool) -> None:
    history = waiting()
    history.started(ELASTIC, [lease(ELASTIC, "a-2:0-3", at=T0)], [pod(ELASTIC, "a-2:0-3", rank=0)]).at("1h")
    step = lease(ELASTIC, where, at=history.now, group=1, reason="Grow")
    assert is_fine(history.grow("aged", [step], [pod(ELASTIC, where, rank=1, group=1)])) is fine


@pytest.mark.parametrize(("where", "fine"), [("a-1:0-3", True), ("a-0:0-3", False)])
def test_no_spare_is_topped_up_in_a_slice(where: str, fine: bool) -> None:
    keeper = run("aged", 4, group=4, spares=4)
    spare = lease(keeper, "a-3:0-3", at=T0, role="Spare")
    history = waiting()
    history.started(keeper, [lease(keeper, "a-2:0-3", at=T0), spare], [pod(keeper, "a-2:0-3", rank=0)]).at("1h")
    history.add(Closed(namespace="rai", leases=(spare.name,), end=history.now, reason="NodeFailure"))
    assert is_fine(history.add(Opened(lease=lease(keeper, where, at=history.now, role="Spare")))) is fine


def test_what_sits_on_a_spare_takes_from_no_node() -> None:
    keeper, guest = run("keeper", 4, group=4, spares=4, duration="1h"), run("guest", 4)
    leases = [lease(keeper, "a-1:0-3", at=T0), lease(keeper, "a-0:0-3", at=T0, role="Spare")]
    for role, fine in (("Borrowed", True), ("Active", False)):
        history = waiting().started(keeper, leases, [pod(keeper, "a-1:0-3", rank=0)])
        where = "a-0:0-3" if role == "Borrowed" else "a-0:4-7"
        history.started(guest, [lease(guest, where, at=T0, role=role)], [pod(guest, where, rank=0)])
        assert is_fine(history) is fine


def test_a_run_starts_in_its_own_slice_and_what_it_holds_is_not_promised_twice() -> None:
    history = waiting().at("2h").add(reserved(SLICE, ELDER, state="Active"))
    history.started(ELDER, [lease(ELDER, "a-0:0-7", at=history.now)], [pod(ELDER, "a-0:0-7", rank=0)])
    history = waiting(plan("5h", "a-0:8"), history, NEXT)
    assert is_fine(starts(history, "younger", "a-1:0-7"))


@pytest.mark.parametrize("state", ["Blocked", "Released", "Canceled"])
def test_what_is_over_protects_nothing(state: str) -> None:
    history = waiting().add(PutPolicy(policy=Policy(lookahead="1s")), again(SLICE, state=state))
    assert is_fine(starts(history, "younger", "a-0:0-7"))


# --- money ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("concurrency", "duration", "fine"), [(16, None, True), (15, None, False), (15, "2h", True), (15, "121m", False)]
)
def test_who_starts_leaves_the_money_that_is_promised(concurrency: int, duration: str | None, fine: bool) -> None:
    history = starts(waiting(SLICE, fleet(concurrency)), "younger", "a-1:0-7", duration=duration)
    assert is_fine(history) is fine


@pytest.mark.parametrize(("most", "fine"), [(16, True), (15, False)])
def test_what_a_cap_allows_is_promised_with_its_envelopes(most: int, fine: bool) -> None:
    history = waiting(SLICE, fleet(caps=[cap("both", "west", "east", max_concurrency=most)]))
    assert is_fine(starts(history, "younger", "a-1:0-7", envelope="east")) is fine


BORROWS = Funding(allow_borrow=True, sponsors=(MM,))


def borrowing(of: Slice) -> Slice:
    return replace(of, segments=(Segment(budget="vision", envelope="west", payer=MM, funding="borrowed", gpus=8),))


@pytest.mark.parametrize(("most", "paid", "fine"), [(16, LOAN, True), (15, LOAN, False), (15, None, True)])
def test_what_may_be_lent_is_promised_and_an_owner_spends_beside_it(most: int, paid: Any, fine: bool) -> None:
    history = fleet().budgets(budget("vision", MM, envelope(lending=lends("*", max_concurrency=most))))
    waiting(borrowing(SLICE), history, of=replace(ELDER, spec=replace(ELDER.spec, funding=BORROWS)))
    other = {"paid": paid} if paid else {}
    assert is_fine(starts(history, "younger", "a-1:0-7", **other)) is fine


@pytest.mark.parametrize(("hours", "fine"), [(24, True), (23, False)])
@pytest.mark.parametrize("kind", ["envelope", "cap"])
def test_hours_that_are_promised_are_not_for_others(kind: str, hours: int, fine: bool) -> None:
    both = [cap("both", "west", "east", max_gpu_hours=hours)] if kind == "cap" else []
    history = fleet(caps=both, max_gpu_hours=hours if kind == "envelope" else None)
    waiting(plan("2h", "a-0:8", until="4h"), history)
    assert is_fine(starts(history, "younger", "a-1:0-7", duration="1h")) is fine


# --- who may be cut -------------------------------------------------------------------------------------------


def named(*runs: str) -> Forecast:
    return Forecast(odds={f"rai/{one}": "0.5" for one in runs})


@pytest.mark.parametrize(
    ("confidence", "forecast", "fine"),
    [
        ("conservative", named("aged"), False),
        ("conservative", Forecast(remedies=(Cut(kind="Shrink", run="rai/aged", owner=SYS, gpus=8),)), False),
        ("conservative", named("other"), True),
        ("projected", named("aged"), True),
    ],
    ids=["drawn", "shrunk", "somebody else", "it needs no cuts"],
)
def test_whom_a_promise_names_is_not_in_its_way(confidence: str, forecast: Forecast, fine: bool) -> None:
    """If aged is in the way, elder was never tenable, and may be moved later."""
    history = waiting(SLICE, starts(fleet(), "aged", "a-0:0-7"), confidence=confidence, forecast=forecast)
    assert is_fine(history.add(again(confidence=confidence, forecast=forecast))) is fine


@pytest.mark.parametrize(("after", "fine"), [("Requeue", False), ("Retry", True)])
def test_who_leaves_the_queue_anew_is_cut_by_nobody_who_was_promised_before(after: str, fine: bool) -> None:
    history = waiting(SLICE, starts(fleet(), "aged", "a-0:0-7"), confidence="conservative", forecast=named("aged"))
    history.at("1h").add(history.moved("aged", phase="Stopping", after=after))
    history.gone("aged", "Fail", "Pending")
    starts(history, "aged", "a-0:0-7", attempt=2)
    facts = [fact for fact in history.entries[-2].facts if not isinstance(fact, Placed)]
    again_placed = Placed(pod=pod(run("aged", 8), "a-0:0-7", rank=0, attempt=2))
    history.entries[-2] = replace(history.entries[-2], facts=(*facts, again_placed))
    history.entries.pop()
    assert is_fine(history) is fine


@pytest.mark.parametrize(("bound", "fine"), [("14m", True), ("15m", False)])
def test_who_will_not_have_run_for_the_lead_is_not_cut(bound: str, fine: bool) -> None:
    promise = plan(bound, "a-0:8")
    history = starts(fleet(), "aged", "a-0:0-7").at("31s")
    waiting(promise, history, confidence="conservative", forecast=named("aged"))
    late = again(plan("9h", "a-0:8"), promise, confidence="conservative", forecast=named("aged"))
    assert is_fine(history.add(late)) is fine


@pytest.mark.parametrize(("first", "fine"), [("2h", False), ("5h", True)], ids=["before", "after"])
def test_whom_an_earlier_promise_may_cut_is_not_in_the_way_of_those_behind_it(first: str, fine: bool) -> None:
    history = starts(fleet(), "aged", "a-0:0-7")
    until = "3h" if first == "2h" else "6h"
    waiting(plan(first, "a-0:8", until=until), history, confidence="conservative", forecast=named("aged"))
    promise = plan("4h", "a-0:8", until="5h")
    waiting(promise, history, NEXT, turn=1)
    assert is_fine(history.add(again(plan("7h", "a-0:8"), promise, NEXT, turn=1))) is fine


@pytest.mark.parametrize(("was_cut", "fine"), [(True, True), (False, False)])
def test_backfill_that_overstays_gives_way_but_to_who_was_cut(was_cut: bool, fine: bool) -> None:
    history = waiting()
    history.add(history.moved("elder", cut=was_cut))
    starts(history, "younger", "a-0:0-7", duration="1h", life={"backfilled": True})
    assert is_fine(history.at("2h").add(again())) is fine


# --- what is moved --------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("late", "fine"), [("0s", True), ("1s", True), ("2s", False), ("1h", False)])
def test_a_promise_is_not_moved_later_without_a_cause(late: str, fine: bool) -> None:
    moved = replace(SLICE, start=time("2h") + time(late) - T0)
    history = waiting().add(again(moved))
    assert is_fine(history) is fine
    assert all("delayed without a cause" in item.message for item in faults(history))


def test_a_promise_is_moved_earlier_freely_and_its_bound_counts() -> None:
    assert is_fine(waiting().add(again(plan("1h", "a-0:8"), reason="")))
    later = again(plan("150m", "a-0:8"), by=time("150m"))
    assert is_fine(waiting(by=time("150m")).add(later))
    assert not is_fine(waiting(by=time("140m")).add(later))


@pytest.mark.parametrize("state", ["Blocked", "Canceled"])
def test_a_promise_is_neither_blocked_nor_made_anew_later_without_a_cause(state: str) -> None:
    history = waiting().add(again(SLICE, state=state))
    if state == "Canceled":
        new = replace(again(plan("3h", "a-0:8"), plan("3h", "a-0:8")).reservation, uid="r-2", name="elder-2")
        history.entries[-1] = replace(
            history.entries[-1], facts=(*history.entries[-1].facts, Reserved(reservation=new))
        )
    assert not is_fine(history)


@pytest.mark.parametrize(
    ("fact", "fine"),
    [
        (PutNode(object=node("a-0", cordoned=True)), True),
        (Removed(kind="Node", name="a-0"), True),
        (PutNode(object=node("a-0")), False),
        (PutNode(object=node("a-1", cordoned=True)), False),
        (PutBudget(object=budget("sys", SYS, envelope(concurrency=60), envelope("east"))), True),
        (PutBudget(object=budget("sys", SYS, envelope(), envelope("east"))), False),
        (PutPolicy(policy=Policy(lookahead="1s")), True),
        (PutRun(object=run("elder", 8, selector={"rack": "r1"})), True),
        (PutRun(object=run("other", 8)), False),
    ],
    ids=["its node", "its node is gone", "nothing new", "another node", "a budget", "no new budget", "the policy",
         "its run", "another run"],
)  # fmt: skip
@pytest.mark.parametrize("decided", [True, False])
def test_the_world_moves_a_promise(fact: Fact, fine: bool, decided: bool) -> None:
    """In the same entry, or in one that only recorded it."""
    history, later = waiting(), again(plan("3h", "a-2:8"))
    if decided:
        history.add(fact, later)
    else:
        history.add(fact)
        history.entries[-1] = replace(history.entries[-1], decided=False)
        history.add(later)
    assert is_fine(history) is fine


def test_a_run_that_is_put_back_moves_its_own_promise() -> None:
    history = waiting()
    assert is_fine(history.add(history.moved("elder", not_before=time("3h")), again()))


@pytest.mark.parametrize(("lasts", "backfilled", "fine"), [("2h", False, True), ("2h", True, False)])
def test_who_is_past_its_end_is_a_cause_unless_it_is_backfill(lasts: str, backfilled: bool, fine: bool) -> None:
    history = starts(waiting(), "aged", "a-0:0-7", duration=lasts, life={"backfilled": backfilled}).at("7230s")
    assert is_fine(history.add(again(plan("9h", "a-0:8")))) is fine


@pytest.mark.parametrize(("bound_at", "fine"), [("30s", False), ("31s", True)])
def test_pods_that_are_bound_late_by_half_a_minute_break_nothing(bound_at: str, fine: bool) -> None:
    """aged is to work for two hours from when its pods are bound, and elder counts on its end."""
    one = run("aged", 8, duration="2h")
    history = fleet().start(one, [lease(one, "a-0:0-7", at=T0)], [pod(one, "a-0:0-7", rank=0)])
    waiting(SLICE, history).at(bound_at).bind("aged")
    assert is_fine(history.add(again())) is fine


@pytest.mark.parametrize(("reason", "fine"), [("Swap", True), ("Start", False)])
def test_a_slot_that_a_failure_takes_is_a_cause(reason: str, fine: bool) -> None:
    """aged loses its node, and goes on in elder's slice; elder is planned anew in the same entry."""
    one, old = run("aged", 8), lease(run("aged", 8), "a-1:0-7", at=T0)
    history = starts(waiting(), "aged", "a-1:0-7").at("1h")
    history.add(
        PutNode(object=node("a-1", taints=(FENCED,))),
        Closed(namespace="rai", leases=(old.name,), end=history.now, reason="NodeFailure"),
        Opened(lease=lease(one, "a-0:0-7", at=history.now, reason=reason)),
        again(plan("3h", "a-2:8")),
    )
    assert is_kept(history) is fine


@pytest.mark.parametrize(("lease_ends", "fine"), [("Refund", True), ("", False)])
def test_money_that_is_handed_over_is_a_cause(lease_ends: str, fine: bool) -> None:
    """aged was to run out of hours at 2h, as elder was promised; now another envelope pays for it."""
    one, old = run("aged", 8), lease(run("aged", 8), "a-0:0-7", at=T0)
    promise = plan("2h", "a-0:8", paid="east")
    history = waiting(promise, starts(fleet(max_gpu_hours=16), "aged", "a-0:0-7")).at("1h")
    handed: list[Fact] = [
        Closed(namespace="rai", leases=(old.name,), end=history.now, reason="Refund"),
        Opened(lease=lease(one, "a-0:0-7", at=history.now, envelope="east", reason="Refund", group=1)),
    ]
    history.add(*(handed if lease_ends else []), again(plan("3h", "a-1:8", paid="east"), promise))
    assert is_kept(history) is fine


def test_money_that_lasts_longer_since_others_ended_early_is_a_cause() -> None:
    promise = plan("1h", "a-0:8", paid="east")
    for name, fine in (("spender", True), ("other", False)):
        history = starts(fleet(max_gpu_hours=16), "aged", "a-0:0-7")
        starts(history, "spender", "a-1:0-7", duration="9h")
        starts(history, "other", "a-2:0-7", envelope="east")
        waiting(promise, history).at("30m").stop(name, "Completed")
        history.gone(name, "Completed", "Completed", again(plan("2h", "a-0:8", paid="east"), promise))
        assert is_kept(history) is fine


def test_a_late_start_is_not_delayed_by_being_made_now() -> None:
    history = waiting().at("3h")
    assert is_fine(history.add(again(plan("3h", "a-0:8"), state="Active", reason="")))
    assert not is_fine(waiting().at("3h").add(again(plan("4h", "a-0:8"))))


# --- promises beside each other -------------------------------------------------------------------------------


@pytest.mark.parametrize(("until", "fine"), [("4h", True), ("14430s", True), ("14431s", False)])
def test_a_promise_is_not_laid_into_another(until: str, fine: bool) -> None:
    """next was promised the node from 4h on; elder is, until then."""
    history = waiting(plan("4h", "a-0:8"), of=NEXT, turn=1)
    assert is_fine(waiting(plan("2h", "a-0:8", until=until), history, turn=2)) is fine


@pytest.mark.parametrize(("start", "fine"), [("7220s", True), ("7219s", False)])
def test_who_comes_right_after_a_run_of_seconds_is_not_in_its_way(start: str, fine: bool) -> None:
    history = waiting(plan("2h", "a-0:8", until="7220s"), turn=1)
    assert is_fine(waiting(plan(start, "a-0:8"), history, of=NEXT, turn=2)) is fine


@pytest.mark.parametrize(("gpus", "fine"), [(4, True), (5, False)])
def test_all_that_is_promised_of_a_node_counts_together(gpus: int, fine: bool) -> None:
    """Two were promised a part of it for the same time; somebody starts on two GPUs that are left, or are not."""
    history = waiting(plan("2h", "a-0:2"), waiting(plan("2h", f"a-0:{gpus}"), of=NEXT), turn=1)
    assert is_fine(starts(history, "younger", "a-0:6-7")) is fine


def test_a_promise_is_not_moved_by_another_that_takes_its_place() -> None:
    """next was promised a-1 for the same time; now it has a-0, and elder waits."""
    history = waiting(SLICE, waiting(plan("2h", "a-1:8"), of=NEXT), turn=1)
    taken = again(plan("2h", "a-0:8"), plan("2h", "a-1:8"), NEXT)
    found = faults(history.add(taken, again(turn=1)))
    assert [(item.object, item.message) for item in found] == [("Reservation/rai/elder", "is delayed without a cause")]
    hidden = faults(waiting(SLICE, waiting(plan("2h", "a-1:8"), of=NEXT), turn=1).add(taken))
    assert [item.object for item in hidden] == ["Reservation/rai/elder"]
    assert "untenable" in hidden[0].message


def test_who_is_behind_one_that_the_world_broke_may_have_counted_on_its_cuts() -> None:
    """next is to follow elder, who may cut aged; elder's run is deleted, and aged stays."""
    for fact, fine in ((Removed(kind="Run", namespace="rai", name="elder"), True), (None, False)):
        history = starts(fleet(), "aged", "a-0:0-7")
        first, promise = plan("2h", "a-0:8", until="3h"), plan("3h", "a-0:8")
        waiting(first, history, confidence="conservative", forecast=named("aged"))
        waiting(promise, history, NEXT, turn=1)
        over: list[Fact] = [again(first, first, state="Canceled"), fact] if fact else []
        assert is_fine(history.add(*over, again(plan("9h", "a-0:8"), promise, NEXT, turn=1))) is fine


@pytest.mark.parametrize(("now", "fine"), [("2h", False), ("3h", False), ("181m", True)])
def test_who_is_late_holds_its_slice_for_as_much_longer(now: str, fine: bool) -> None:
    """elder was to be over at 3h and an hour later next is promised its place; elder waits for its start."""
    promise = plan("4h", "a-0:8")
    history = waiting(plan("2h", "a-0:8", until="3h"), waiting(promise, of=NEXT, turn=1))
    history.at(now).add(again(plan("5h", "a-0:8"), promise, NEXT, turn=1))
    assert is_fine(history) is fine


@pytest.mark.parametrize(("duration", "fine"), [("30s", True), ("31s", False)])
def test_what_is_held_for_a_start_is_nobody_elses(duration: str, fine: bool) -> None:
    history = waiting().at("2h").add(reserved(SLICE, ELDER, state="Active", activated=time("2h"))).at("121m")
    assert is_fine(starts(history, "aged", "a-0:0-7", duration=duration)) is fine


def test_two_that_are_let_in_by_one_entry_are_in_the_way_together() -> None:
    other = run("other", 4)
    for gpus, fine in ((4, True), (5, False)):
        history = waiting(plan("2h", f"a-0:{gpus}"))
        opened = Opened(lease=lease(other, "a-0:0-3", at=T0))
        starts(history, "younger", "a-1:0-7", before=[PutRun(object=other), opened])
        assert is_kept(history) is fine


def test_what_the_world_breaks_is_not_blamed_on_who_is_let_in_elsewhere() -> None:
    """The node of elder is cordoned, and the same entry starts somebody with the same money."""
    history = starts(waiting(), "younger", "a-1:0-7", before=[PutNode(object=node("a-0", cordoned=True))])
    assert is_fine(history)


# --- the record -----------------------------------------------------------------------------------------------


def test_a_later_start_has_a_reason() -> None:
    for reason, fine in (("", False), ("BudgetEdited", True)):
        moving = again(reason=reason)
        assert is_fine(waiting().add(PutPolicy(policy=Policy(lookahead="1s")), moving)) is fine


def test_a_promise_is_not_changed_and_a_run_has_one() -> None:
    assert faults(waiting().add(reserved(plan("1h", "a-0:8"), ELDER))) != []
    second = reserved(SLICE, ELDER).reservation
    for state, fine in (("Pending", False), ("Canceled", True)):
        history = waiting().add(reserved(SLICE, ELDER, state=state))
        history.add(Reserved(reservation=replace(second, uid="r-2", name="elder-2")))
        assert is_fine(history) is fine


def test_on_a_settled_world_no_bound_is_past() -> None:
    for by in ("2h", "3h"):
        history = waiting(by=time(by))
        assert faults(history, now=time(by) + LATE, settled=True) == []
        assert faults(history, now=time(by) + LATE + 1) == []
        assert faults(history, now=time(by) + LATE + 1, settled=True) != []


def test_a_start_that_waits_for_a_draw_is_not_past() -> None:
    history = starts(fleet(), "aged", "a-0:0-7").add(*drawing.published())
    waiting(plan("15m", "a-0:8"), history, confidence="conservative").at("15m")
    token = Token(id="rai/aged", owner=SYS, gpus=8)
    intent = drawing.intent("elder", token, at=history.now, namespace="rai", uid="r-elder")
    history.add(Froze(trigger="Activation", intent=intent))
    assert faults(history, now=time("9h"), settled=True) == []
