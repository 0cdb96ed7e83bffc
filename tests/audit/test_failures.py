"""Spares, guests and elastic runs (SPEC 9, 10) in small histories: what is allowed passes, its neighbour does not."""

from __future__ import annotations

from typing import Any

import pytest
from msgspec.structs import replace

from tenure.api.run import Malleable
from tenure.audit import check_all
from tenure.facts import Cleared, Closed, Ending, Fact, Lease, Opened, Placed, PutBudget, PutNode, PutRun, Removed, Seen
from tests.audit.builders import (
    FENCED,
    NLP,
    SYS,
    T0,
    History,
    budget,
    decided,
    envelope,
    lease,
    node,
    pod,
    run,
)

OWN_NLP = ("nlp", NLP, "owned")
KEEPER = run("keeper", 4, group=4, spares=4)
GUEST = run("guest", 4, owner=NLP)
ACTIVE, SPARE = lease(KEEPER, "a-0:0-3", at=T0), lease(KEEPER, "a-1:0-3", at=T0, role="Spare")
BORROWED = lease(GUEST, "a-1:0-3", at=T0, role="Borrowed", paid=OWN_NLP)


def closed(one: Lease, reason: str, history: History) -> Closed:
    return Closed(namespace="rai", leases=(one.name,), end=history.now, reason=reason)


def names(history: History, *, settled: bool = True) -> list[str]:
    found = check_all(history.entries, now=history.now, settled=settled)
    return sorted({item.invariant.split("-")[0] for item in found})


def filled() -> History:
    """keeper runs on a-0 with its spare on a-1, and guest sits on the spare; an hour later."""
    history = History().fleet(node("a-0"), node("a-1"), node("a-2"), node("b-0"))
    history.budgets(budget("sys", SYS), budget("nlp", NLP), budget("poor", SYS, envelope(concurrency=1)))
    history.started(KEEPER, [ACTIVE, SPARE], [pod(KEEPER, "a-0:0-3", rank=0)])
    return history.started(GUEST, [BORROWED], [pod(GUEST, "a-1:0-3", rank=0)]).at("1h")


def swap(history: History, **other: Any) -> list[Fact]:
    """a-0 dies, the spare takes over, the guest is asked to leave: one entry."""
    taken = lease(KEEPER, "a-1:0-3", at=history.now, reason="Swap", **other)
    return [
        PutNode(object=node("a-0", taints=(FENCED,))),
        closed(ACTIVE, "NodeFailure", history),
        Cleared(namespace="rai", pods=("keeper-a1-0",)),
        closed(BORROWED, "ReclaimedBySpare", history),
        Ending(namespace="rai", run="guest", leases=(), pods=("guest-a1-0",), reason="ReclaimedBySpare"),
        history.moved("guest", phase="Stopping"),
        closed(SPARE, "Swap", history),
        Opened(lease=taken),
        Placed(pod=replace(pod(KEEPER, "a-1:0-3", rank=0), name="keeper-a1-0-1")),
    ]


def left(history: History) -> list[Fact]:
    return [Cleared(namespace="rai", pods=("guest-a1-0",)), history.moved("guest", phase="Failed")]


BOUND = Seen(namespace="rai", pod="keeper-a1-0-1", phase="Bound")


# --- a spare takes over -------------------------------------------------------------------------------------


def test_a_guest_gives_way_and_the_new_pod_waits_for_it() -> None:
    history = filled()
    history.add(*swap(history))
    assert names(history) == []
    history.at("61m").add(*left(history)).add(BOUND)
    assert names(history) == []


def test_nobody_is_bound_before_the_guest_has_left() -> None:
    history = filled()
    history.add(*swap(history)).add(BOUND)
    assert names(history) == ["I3"]


def test_a_guest_that_is_not_asked_to_leave_is_noticed() -> None:
    history = filled()
    history.add(*(fact for fact in swap(history) if not isinstance(fact, Ending)))
    assert "I3" in names(history)


def test_a_guest_that_keeps_its_lease_on_what_is_no_spare_is_noticed() -> None:
    history = filled()
    facts = swap(history)
    history.add(*(fact for fact in facts if not (isinstance(fact, Closed) and fact.reason == "ReclaimedBySpare")))
    assert "I1" in names(history)


def test_the_spares_payer_stays_though_it_is_gone_from_the_budgets() -> None:
    history = filled()
    history.add(Removed(kind="Budget", name="sys"))
    history.add(*swap(history))
    assert names(history) == []


@pytest.mark.parametrize("paid", [("nlp", NLP, "shared"), ("poor", SYS, "owned")])
def test_a_swap_with_another_payer_is_noticed(paid: tuple[str, str, str]) -> None:
    history = filled()
    history.add(*swap(history, paid=paid))
    assert "I6" in names(history)


def test_a_swap_onto_free_gpus_is_paid_like_a_start() -> None:
    for concurrency, expected in ((64, []), (3, ["I2"])):
        history = filled()
        extra = envelope("extra", concurrency=concurrency)
        history.add(PutBudget(object=budget("sys", SYS, envelope(concurrency=4), extra)))
        taken = lease(KEEPER, "a-2:0-3", at=history.now, reason="Swap", envelope="extra")
        history.add(
            PutNode(object=node("a-0", taints=(FENCED,))),
            closed(ACTIVE, "NodeFailure", history),
            Cleared(namespace="rai", pods=("keeper-a1-0",)),
            Opened(lease=taken),
            Placed(pod=replace(pod(KEEPER, "a-2:0-3", rank=0), name="keeper-a1-0-1")),
        )
        assert names(history) == expected


def test_a_rank_that_another_group_had_is_noticed() -> None:
    pair = run("pair", 16, group=8)
    history = History().fleet(node("a-0"), node("a-1"), node("a-2")).budgets(budget("sys", SYS))
    leases = [lease(pair, f"a-{group}:0-7", at=T0, group=group) for group in (0, 1)]
    history.started(pair, leases, [pod(pair, f"a-{group}:0-7", rank=group, group=group) for group in (0, 1)]).at("1h")
    moved = lease(pair, "a-2:0-7", at=history.now, group=1, reason="Swap")
    for rank, expected in ((1, []), (0, ["I7"])):
        again = History()
        again.entries, again.now = list(history.entries), history.now
        again.add(
            PutNode(object=node("a-1", taints=(FENCED,))),
            closed(leases[1], "NodeFailure", history),
            Cleared(namespace="rai", pods=("pair-a1-1",)),
            Opened(lease=moved),
            Placed(pod=replace(pod(pair, "a-2:0-7", rank=rank, group=1), name="pair-a1-1-1")),
        )
        assert names(again) == expected


# --- a spare ends under a guest -----------------------------------------------------------------------------


def hand_over(history: History, *facts: Fact, **other: Any) -> History:
    taken = lease(GUEST, "a-1:0-3", at=history.now, reason="Refund", **{"paid": OWN_NLP, **other})
    done = history.moved("keeper", phase="Completed")
    names = tuple(one.name for one in (ACTIVE, SPARE))
    history.add(
        *facts,
        Closed(namespace="rai", leases=names, end=history.now, reason="Completed"),
        Cleared(namespace="rai", pods=("keeper-a1-0",)),
        done,
        closed(BORROWED, "Refund", history),
        Opened(lease=taken),
    )
    return history


def test_a_guest_is_handed_over_where_nothing_new_may_start_and_its_budget_is_gone() -> None:
    history = filled()
    cordoned = PutNode(object=node("a-1", cordoned=True))
    assert names(hand_over(history, cordoned, Removed(kind="Budget", name="nlp"))) == []


def test_a_guest_that_is_handed_to_a_payer_who_may_not_pay_is_noticed() -> None:
    assert names(hand_over(filled(), paid=("sys", SYS, "shared"))) == ["I6"]


def test_a_guest_that_was_leaving_is_handed_over_and_leaves() -> None:
    history = filled().stop("guest", "Canceled")
    hand_over(history)
    moved = lease(GUEST, "a-1:0-3", at=history.now, paid=OWN_NLP)
    leaves = Ending(namespace="rai", run="guest", leases=(moved.name,), reason="Canceled")
    history.entries[-1] = replace(history.entries[-1], facts=(*history.entries[-1].facts, leaves))
    assert names(history) == []


# --- elastic runs -------------------------------------------------------------------------------------------


ELASTIC = run("elastic", 8, malleable=(8, 32, 8))


def at_work(groups: int = 1) -> History:
    history = History().fleet(*(node(f"a-{index}") for index in range(6))).budgets(budget("sys", SYS))
    leases = [lease(ELASTIC, f"a-{group}:0-7", at=T0, group=group) for group in range(groups)]
    pods = [pod(ELASTIC, f"a-{group}:0-7", rank=group, group=group) for group in range(groups)]
    history.started(ELASTIC, leases, pods)
    history.add(history.moved("elastic", grown=T0))
    return history.at("1m")


def grow(history: History, *groups: int, place: int | None = None) -> History:
    places = [(group, f"a-{group if place is None else place}:0-7") for group in groups]
    leases = [lease(ELASTIC, where, at=history.now, group=group, reason="Grow") for group, where in places]
    pods = [pod(ELASTIC, where, rank=group, group=group) for group, where in places]
    history.add(
        decided(ELASTIC, leases),
        *(Opened(lease=one) for one in leases),
        *(Placed(pod=one) for one in pods),
        history.moved("elastic", grown=history.now),
    )
    return history


def desire(history: History, gpus: int) -> History:
    shape = Malleable(min_total_gpus=8, max_total_gpus=32, step_gpus=8, desired_total_gpus=gpus)
    return history.add(PutRun(object=replace(ELASTIC, spec=replace(ELASTIC.spec, malleable=shape))))


def shed(history: History, group: int) -> History:
    """One group is asked to leave."""
    name = lease(ELASTIC, f"a-{group}:0-7", at=T0, group=group).name
    told = Ending(namespace="rai", run="elastic", leases=(name,), pods=(f"elastic-a1-{group}",), reason="Shrink")
    return history.add(told)


def test_a_run_grows_a_step_per_interval() -> None:
    history = grow(at_work(), 1)
    assert names(grow(history.at("2m"), 2)) == []


def test_growing_twice_within_an_interval_is_noticed() -> None:
    history = grow(at_work(), 1)
    assert names(grow(history.at("90s"), 2)) == ["I4"]


def test_growing_before_the_first_interval_is_noticed() -> None:
    assert names(grow(at_work().at("59s"), 1)) == ["I4"]


def test_growing_by_two_steps_at_once_is_noticed() -> None:
    assert names(grow(at_work(), 1, 2)) == ["I4"]


def test_growing_above_what_is_desired_is_noticed() -> None:
    assert names(grow(desire(at_work(), 16), 1)) == []
    assert names(grow(desire(at_work(), 8), 1)) == ["I4"]


def test_a_group_on_its_way_out_counts_no_more() -> None:
    history = shed(desire(at_work(3), 16), 2)
    assert names(history) == []
    gone = Closed(namespace="rai", leases=("elastic-a1-g2-a-2-Active-sys-0",), end=history.now, reason="Shrink")
    assert names(history.add(gone, Cleared(namespace="rai", pods=("elastic-a1-2",)))) == []


def test_a_fixed_run_that_gives_up_a_group_is_noticed() -> None:
    pair = run("pair", 16, group=8)
    history = History().fleet(node("a-0"), node("a-1")).budgets(budget("sys", SYS))
    leases = [lease(pair, f"a-{group}:0-7", at=T0, group=group) for group in (0, 1)]
    history.started(pair, leases, [pod(pair, f"a-{group}:0-7", rank=group, group=group) for group in (0, 1)]).at("1h")
    history.add(
        Ending(namespace="rai", run="pair", leases=(leases[1].name,), pods=("pair-a1-1",), reason="Shrink"),
        history.moved("pair", width=8),
    )
    assert names(history) == ["I4", "I9"]


def test_an_index_that_is_used_a_second_time_is_noticed() -> None:
    history = desire(shed(desire(at_work(2), 8), 1), 16)
    history.add(
        Closed(namespace="rai", leases=("elastic-a1-g1-a-1-Active-sys-0",), end=history.now, reason="Shrink"),
        Cleared(namespace="rai", pods=("elastic-a1-1",)),
    )
    assert names(grow(history.at("2m"), 1, place=4)) == ["I4"]


def test_a_decision_to_grow_explains_the_step_and_not_spares_that_are_topped_up_beside_it() -> None:
    spared = run("spared", 8, malleable=(8, 16, 8), spares=4)
    history = History().fleet(*(node(f"a-{index}") for index in range(6))).budgets(budget("sys", SYS))
    spare = lease(spared, "a-1:0-3", at=T0, role="Spare")
    history.started(spared, [lease(spared, "a-0:0-7", at=T0), spare], [pod(spared, "a-0:0-7", rank=0)])
    history.at("1h").add(PutNode(object=node("a-1", taints=(FENCED,))), closed(spare, "NodeFailure", history))
    step = [
        lease(spared, "a-2:0-7", at=history.now, group=1, reason="Grow"),
        lease(spared, "a-3:0-3", at=history.now, group=1, role="Spare", reason="Grow"),
    ]
    top_up = lease(spared, "a-3:4-7", at=history.now, role="Spare")
    facts = [*(Opened(lease=one) for one in (top_up, *step)), Placed(pod=pod(spared, "a-2:0-7", rank=1, group=1))]
    for told, expected in ((step, []), (step[:1], ["I10"])):
        again = History()
        again.entries, again.now = list(history.entries), history.now
        assert names(again.add(decided(spared, told), *facts)) == expected
