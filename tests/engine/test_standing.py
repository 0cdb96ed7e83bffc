"""Promises that stand (SPEC 7): a change is looked at by those whom it may concern, and nobody else is searched for."""

from __future__ import annotations

from collections import Counter
from random import Random

import pytest

from tenure.api.policy import Policy
from tenure.engine import Apply, Event, Report, Sighting, Tick, next_wake, standing
from tenure.engine.activation import only_earlier
from tenure.engine.forecast import Search
from tenure.engine.standing import Fleetwide
from tenure.engine.state import RunRow, State
from tenure.testing import Fleet, at, budget, cap, envelope, node, run
from tenure.units import FOREVER, MINUTE, Instant

FAR = Policy(patience="1000h")


def full(nodes: int) -> Fleet:
    """Every node is held by a run of its own, for ten hours."""
    fleet = Fleet(*(node(f"n{index}", 4, domain="AB"[index % 2]) for index in range(nodes)),
                  *(budget(name, envelope(gpus=4_000)) for name in "ab"), policy=FAR)  # fmt: skip
    fleet.start(*(run(f"hold-{index}", 4, owner="org:a", pod=4, lasts="10h") for index in range(nodes)))
    return fleet


def start(fleet: Fleet, name: str) -> Instant | None:
    one = fleet.state.reservations.get(f"lab/{name}")
    return None if one is None else one.plan.start


class Searches(Counter[str]):
    """Counts the owners of runs whose start is searched for."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        super().__init__()
        earliest = Search.earliest

        def counted(search: Search, *, since: Instant, limit: Instant | None) -> object:
            self[search.demand.owner] += 1
            return earliest(search, since=since, limit=limit)

        monkeypatch.setattr(Search, "earliest", counted)


@pytest.mark.parametrize("waiting", [20, 80])
def test_an_early_end_makes_only_those_be_searched_for_who_could_use_it(
    waiting: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """All want two nodes, but the last. A node that is left early is of use to that one alone, and how many wait before
    it makes no difference."""
    fleet = full(6)
    fleet.apply(*(run(f"wait-{index:02d}", 8, owner="org:a", pod=4, lasts="20h") for index in range(waiting)))
    fleet.apply(run("brief", 4, owner="org:b", pod=4, lasts="2h"))
    promised = {name: one.plan.start for name, one in fleet.state.reservations.items() if name != "lab/brief"}
    assert len(promised) == waiting
    assert (start(fleet, "brief") or 0) > at("60h")
    fleet.now = at("2h")
    searches = Searches(monkeypatch)
    fleet.succeed("lab/hold-3")
    assert fleet.leases("lab/brief")
    assert searches["org:a"] == 0
    assert {name: one.plan.start for name, one in fleet.state.reservations.items()} == promised


def test_what_one_leaves_who_starts_early_is_passed_on() -> None:
    """The first starts on a node that is left early; the next one in its place, and so on, each at the place of the one
    before it that is of use to it."""
    fleet = full(1)
    fleet.apply(*(run(f"wait-{index}", 4, owner="org:a", lasts="20h") for index in range(4)))
    assert [start(fleet, f"wait-{index}") for index in range(4)] == [at(f"{10 + 20 * index}h") for index in range(4)]
    fleet.now = at("2h")
    fleet.succeed("lab/hold-0")
    assert fleet.where("lab/wait-0") == {"n0": 4}
    assert [start(fleet, f"wait-{index}") for index in range(1, 4)] == [at(f"{2 + 20 * index}h") for index in (1, 2, 3)]


def test_a_node_that_closes_puts_off_the_last_who_was_promised_a_start() -> None:
    fleet = full(3)
    fleet.apply(*(run(f"wait-{index}", 4, owner="org:a", pod=4, lasts="20h") for index in range(3)))
    assert {start(fleet, f"wait-{index}") for index in range(3)} == {at("10h")}
    fleet.apply(node("n1", 4, domain="B", cordoned=True))
    assert [start(fleet, f"wait-{index}") for index in range(3)] == [at("10h"), at("10h"), at("30h")]


def test_who_counted_on_cuts_for_somebody_else_is_looked_at_when_those_are_called_off() -> None:
    """``wide`` has others cut in an hour, and ``after`` was promised what it leaves. Once ``wide`` is gone nobody is
    cut for it, and ``after`` has to be planned anew. (Found by the machine of reservations, part 3.)"""
    fleet = Fleet(node("n0", 4), budget("a", envelope(gpus=400)), policy=Policy(patience="1h", activation_lead="1h"))
    fleet.start(run("hold", 4, owner="org:a"))
    fleet.apply(run("wide", 4, owner="org:a", lasts="1h"))
    fleet.apply(run("after", 4, owner="org:a", lasts="1h"))
    assert [(start(fleet, name) or 0) for name in ("wide", "after")] == [at("1h"), at("2h")]
    fleet.delete("Run", "lab/wide")
    one = fleet.state.reservations["lab/after"]
    assert (one.confidence, one.plan.start) == ("conservative", at("1h"))


def test_who_shares_a_cap_with_one_who_overstays_is_looked_at() -> None:
    """``late`` is paid by ``soon``, ``wide`` will be by ``main``; together they may spend six at once. When ``late``
    does not end, there will not be six for ``wide``, though its own envelope is as it was."""
    envelopes = (envelope("soon", 6, end="2d"), envelope("main", 6))
    fleet = Fleet(node("n0", 8), node("n1", 8), budget("a", *envelopes, caps=[cap("all", ("soon", "main"), gpus=6)]),
                  policy=FAR)  # fmt: skip
    fleet.start(run("hold", 4, owner="org:a", lasts="20h"), run("late", 2, owner="org:a", lasts="10h"))
    fleet.apply(run("wide", 6, owner="org:a", lasts="40h"))
    assert (start(fleet, "wide"), fleet.payers("lab/late")) == (at("20h"), {"a/soon": 2})
    fleet.now = at("11h")
    fleet.apply(node("n1", 8, cordoned=True))
    assert start(fleet, "wide") != at("20h")


def test_nothing_is_kept_of_promises_that_are_over() -> None:
    fleet = full(1)
    fleet.apply(*(run(f"wait-{index}", 4, owner="org:a", lasts="20h") for index in range(3)))
    keys = [f"lab/wait-{index}" for index in range(3)]
    assert [fleet.state.news.known(key) is not None for key in keys] == [True, True, True]
    fleet.succeed("lab/hold-0")
    fleet.delete("Run", "lab/wait-1")
    assert [fleet.state.news.known(key) is not None for key in keys] == [False, False, True]


def rationed(waiting: int) -> Fleet:
    """Machines enough for everybody; but ``a`` may use one node's worth at once, and has far more to do."""
    fleet = Fleet(*(node(f"n{index}", 4) for index in range(4)), budget("a", envelope(gpus=4)),
                  budget("b", envelope(gpus=400)), policy=FAR)  # fmt: skip
    fleet.start(run("first", 4, owner="org:a", lasts="1h"))
    fleet.apply(*(run(f"wait-{index:02d}", 4, owner="org:a", lasts="1h") for index in range(waiting)))
    assert [start(fleet, f"wait-{index:02d}") for index in range(3)] == [at("1h"), at("2h"), at("3h")]
    return fleet


def woken(fleet: Fleet) -> set[str]:
    return fleet.state.news.woken(fleet.state.queue.flavors()[0], now=fleet.now, after=None)[0]


@pytest.mark.parametrize("waiting", [10, 60])
def test_who_waits_for_its_own_money_is_not_looked_at_when_others_leave(
    waiting: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    fleet = rationed(waiting)
    fleet.start(run("other", 2, owner="org:b", lasts="30m"))
    looked = Counter[str]()
    concerned = standing.concerned

    def counted(state: State, row: RunRow, fleetwide: Fleetwide, *, now: Instant, since: Instant) -> bool:
        looked[row.key] += 1
        return concerned(state, row, fleetwide, now=now, since=since)

    monkeypatch.setattr(standing, "concerned", counted)
    fleet.now = at("10m")
    fleet.succeed("lab/other")
    assert not looked


def test_a_start_that_is_made_as_promised_concerns_nobody() -> None:
    """The machines and the money that it takes are those that were set aside for it."""
    fleet = rationed(5)
    fleet.now = at("1h")
    fleet.succeed("lab/first")
    fleet.until(at("1h"))
    assert fleet.leases("lab/wait-00")
    assert not woken(fleet)


def test_a_node_that_closes_concerns_who_counts_on_it_though_it_waits_for_money() -> None:
    fleet = rationed(5)
    one = fleet.state.reservations["lab/wait-00"]
    promised = one.plan.shares[0].node
    fleet.now = at("30m")
    fleet.apply(node(promised, 4, cordoned=True))
    assert fleet.state.reservations["lab/wait-00"].plan.shares[0].node != promised, "its promise is planned anew"
    assert start(fleet, "wait-00") == at("1h")


def test_nothing_is_kept_of_who_waits_no_more() -> None:
    fleet = rationed(3)
    for index in range(3):
        fleet.delete("Run", f"lab/wait-{index:02d}")
    news = fleet.state.news
    assert not news._watches
    assert not news._flavors


@pytest.mark.parametrize("seed", range(8))
def test_no_promise_could_be_kept_earlier_whoever_is_passed_over(seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Small worlds in which runs end when they like. After each step a search in full is made of every promise: there
    is no start before its own, and its slice is there."""
    passed = Counter[bool]()
    concerned = standing.concerned

    def watched(state: State, row: RunRow, fleetwide: Fleetwide, *, now: Instant, since: Instant) -> bool:
        found = concerned(state, row, fleetwide, now=now, since=since)
        passed[found] += 1
        return found

    monkeypatch.setattr(standing, "concerned", watched)
    luck = Random(f"standing {seed}")
    fleet = Fleet(
        *(node(f"n{index}", luck.choice((2, 4, 4)), domain=luck.choice("AB")) for index in range(6)),
        *(budget(name, envelope(gpus=luck.choice((12, 200)))) for name in "ab"),
        policy=FAR,
    )
    for number in range(110):
        fleet.handle(happens(fleet, luck, number))
        for row in [fleet.state.runs[key] for key in fleet.state.reservations]:
            _stands(fleet.state, row, now=fleet.now)
    assert passed[False] > 20, "somebody is passed over"
    assert passed[True] > 20, "and somebody is not"


def _stands(state: State, row: RunRow, *, now: Instant) -> None:
    one = state.reservations[row.key]
    if not standing.may_stand(row, one, now=now):
        return
    plan, rows = one.plan, state.topology.rows
    with only_earlier(state, row):
        earlier = Search(state, row.demand, now=now).earliest(since=now, limit=(plan.start or 0) - 1)
        free = {one.node: rows[one.node].size("free") for one in plan.shares}
        low = {name: state.horizon.low(name, plan.start or 0, plan.until) for name in free}
    lacks = [one.node for one in plan.shares if one.gpus > free[one.node] + low[one.node]]
    assert earlier is None, f"{row.key} could start at {earlier.at}, before {plan.start}"
    assert not lacks, f"{row.key} counts on {lacks}"


def happens(fleet: Fleet, luck: Random, number: int) -> Event:
    """Somebody submits a run, one ends before its time or at it, a node closes or opens, or time passes."""
    state = fleet.state
    placed = sorted(key for key, row in state.pods.items() if row.phase == "Placed" and not row.stop)
    if placed:
        return Report(tuple(Sighting(key, "Bound") for key in placed))
    leaving = sorted(key for key, row in state.pods.items() if row.stop)
    if leaving:
        return Report(tuple(Sighting(key, "Gone") for key in leaving))
    fleet.now = min(fleet.now + luck.randint(1, 20) * MINUTE, next_wake(state) or FOREVER)
    running = sorted(key for key, row in state.runs.items() if row.life.phase == "Running")
    due = [key for key in running if (state.runs[key].life.until or FOREVER) <= fleet.now]
    kind = luck.choice(("submit", "submit", "submit", "end", "node", "wake"))
    if due or (kind == "end" and running):
        gone = due or [luck.choice(running)]
        return Report(tuple(Sighting(pod.key, "Succeeded", code=0) for key in gone for pod in fleet.pods(key)))
    if kind == "submit":
        gpus, lasts = luck.choice((1, 1, 2, 3, 6, 9)), luck.choice(("1h", "2h", "5h", "9h", "20h"))
        return Apply((run(f"r{number}", gpus, owner=luck.choice(("org:a", "org:b")), lasts=lasts),))
    if kind == "node":
        row = state.topology.rows[luck.choice(sorted(state.topology.rows))]
        return Apply((node(row.name, row.gpus, domain=row.labels["fabric.domain"], cordoned=row.open),))
    return Tick()
