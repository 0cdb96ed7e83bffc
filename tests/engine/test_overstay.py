"""Runs that stay longer than they said, and pods that do not stop (SPEC 7, 8): nobody's start is put off for those who
can be cut, and nothing stops for those who cannot."""

from __future__ import annotations

from collections import Counter
from random import Random
from zlib import crc32

import pytest

from tenure.api.policy import Policy
from tenure.engine import Apply, Event, Report, Sighting, Tick, next_wake
from tenure.facts import Reserved, Resolved
from tenure.testing import START, Fleet, at, budget, envelope, node, run
from tenure.units import FOREVER, MINUTE

FAR = Policy(patience="1000h")
"""Known ends are always near enough: nobody is drawn."""


def shared_node(early: int, *, over: str) -> Fleet:
    """``early`` was promised a start at 4h. On the second node ``over`` overstays since 3h, and ``next``, which was
    promised a start after it, holds a GPU since 1h: it waits for ``stuck``, whose pod was asked to leave and stays."""
    fleet = Fleet(*(node(name, 4, domain="A") for name in ("n0", "n1")), budget("a"), budget("b"), policy=FAR)
    fleet.start(run("long", 4, owner="org:a", lasts="4h"))
    fleet.apply(run("early", early, owner="org:a", lasts="1h"))
    fleet.start(run("stuck", 1, owner="org:b", lasts="1h"), run("over", 3, owner=over, lasts="3h"))
    fleet.apply(run("next", 1, owner="org:b", lasts="2h"))
    fleet.until(at("4h") - 1)
    assert {key: one.state for key, one in fleet.state.reservations.items()} == {
        "lab/early": "Pending", "lab/next": "Active"}  # fmt: skip
    assert starts(fleet, "lab/early") == [240]
    fleet.now = at("4h")
    fleet.report("Succeeded", *(pod.key for pod in fleet.pods("lab/long")), code=0)
    return fleet


def starts(fleet: Fleet, key: str) -> list[int]:
    """Planned starts of a run, in minutes, as they were written one after the other."""
    found = (fact.reservation for fact in fleet.facts if isinstance(fact, Reserved))
    return [((one.plan.start or 0) - START) // MINUTE for one in found if one.run_key == key]


def cut(fleet: Fleet) -> list[tuple[str, str]]:
    return [(one.kind, one.run) for fact in fleet.facts if isinstance(fact, Resolved) for one in fact.cuts]


def test_who_overstays_is_cut_also_on_a_node_of_which_somebody_else_holds_a_part() -> None:
    """Four GPUs come free on the first node; of the three that ``over`` has on the second, ``next`` is to have one."""
    fleet = shared_node(6, over="org:b")
    assert cut(fleet) == [("Overstay", "lab/stuck"), ("Overstay", "lab/over")]
    fleet.leave("lab/over")
    assert fleet.where("lab/early") == {"n0": 4, "n1": 2}
    assert fleet.where("lab/next") == {"n1": 1}
    assert starts(fleet, "lab/early")[-1] == 240


def test_what_was_enough_is_enough_where_somebody_holds_what_is_tried_out() -> None:
    """One GPU more than ``over`` gives back is freed by ``stuck`` alone: what is freed first goes to ``early``, whose
    promise is the older one, and ``next`` waits for ``stuck``. Once the engine saw this only after it had found the
    cuts to be enough (``over`` goes for its money as well), and stopped. Who was asked to leave is counted on to go,
    however late: the promise stands, and is held until they have."""
    fleet = shared_node(7, over="org:a")
    assert cut(fleet) == [("Overstay", "lab/stuck"), ("Overstay", "lab/over")]
    assert fleet.state.reservations["lab/early"].state == "Active"
    fleet.later("20m")
    assert not fleet.notes("StartMoved")
    fleet.leave("lab/over")
    assert (fleet.where("lab/early"), fleet.where("lab/next")) == ({"n0": 4, "n1": 3}, {})
    fleet.leave("lab/stuck")
    assert fleet.where("lab/next") == {"n1": 1}
    assert set(starts(fleet, "lab/early")) == {240}


def test_a_start_waits_for_money_that_is_being_given_back_elsewhere() -> None:
    """``over`` overstays on the money that ``wide`` needs, in another domain. It is cut, and until its pod is gone what
    ``wide`` is to have is held for it. Once that was given up in the very entry, and given to others."""
    fleet = Fleet(node("n0", 4, domain="A"), node("n1", 4, domain="B"), budget("a", envelope(gpus=4)), budget("b"),
                  policy=FAR)  # fmt: skip
    fleet.start(run("long", 3, owner="org:a", lasts="2h"))
    fleet.apply(run("wide", 4, owner="org:a", lasts="1h"))
    fleet.start(run("over", 1, owner="org:a", lasts="1h"))
    fleet.apply(node("n0", 4, domain="A", cordoned=True))
    assert (fleet.where("lab/over"), starts(fleet, "lab/wide")[-1]) == ({"n0": 1}, 120)
    fleet.until(at("2h") - 1)
    fleet.now = at("2h")
    fleet.report("Succeeded", *(pod.key for pod in fleet.pods("lab/long")), code=0)
    assert cut(fleet) == [("Overstay", "lab/over")]
    assert fleet.state.reservations["lab/wide"].state == "Active"
    fleet.apply(run("other", 4, owner="org:b", lasts="20m"))
    assert not fleet.leases("lab/other")
    fleet.leave("lab/over")
    assert fleet.where("lab/wide") == {"n1": 4}


@pytest.mark.parametrize("seed", [0, 1, 2, 3, 4, 6])
def test_small_worlds_in_which_nobody_leaves_in_time(seed: int) -> None:
    """Runs end when they like, and of those that are asked to leave every third never does. The auditor looks at every
    entry, and what was tried out leaves no trace in what is known of the nodes."""
    luck = Random(f"overstay {seed}")
    fleet = Fleet(
        *(node(f"n{index}", luck.choice((2, 4, 4)), domain=luck.choice("AB")) for index in range(5)),
        *(budget(name, envelope(gpus=luck.choice((12, 200)))) for name in "ab"),
        policy=FAR,
    )
    for number in range(120):
        fleet.handle(happens(fleet, luck, number))
        lines, rows = fleet.state.timeline.lines, fleet.state.topology.rows
        assert {name: line.base for name, line in lines.items()} == {name: rows[name].free() for name in lines}
    seen = Counter(note.reason for note in fleet.notes()) + Counter(kind for kind, _ in cut(fleet))
    assert all(seen[what] for what in ("Overstay", "Activated", "MovedLater")), seen


def happens(fleet: Fleet, luck: Random, number: int) -> Event:
    """Somebody submits a run, one ends, pods leave that were asked to, or time passes."""
    pods = fleet.state.pods.items()
    placed = sorted(key for key, row in pods if row.phase == "Placed" and not row.stop)
    if placed:
        return Report(tuple(Sighting(key, "Bound") for key in placed))
    leaving = sorted(key for key, row in pods if row.stop and crc32(key.encode()) % 3)
    if leaving and luck.random() < 0.5:
        return Report(tuple(Sighting(key, "Gone") for key in leaving))
    kind = luck.choice(("submit", "submit", "submit", "end", "wake"))
    running = sorted(key for key, row in fleet.state.runs.items() if row.life.phase == "Running")
    fleet.now = min(fleet.now + luck.randint(1, 20) * MINUTE, next_wake(fleet.state) or FOREVER)
    if kind == "end" and running:
        return Report(tuple(Sighting(pod.key, "Succeeded", code=0) for pod in fleet.pods(luck.choice(running))))
    if kind == "submit":
        gpus, lasts = luck.choice((1, 1, 1, 2, 3, 6, 9)), luck.choice(("1h", "2h", "5h", "9h", "20h"))
        return Apply((run(f"r{number}", gpus, owner=luck.choice(("org:a", "org:b")), lasts=lasts),))
    return Tick()


def test_a_lost_pod_takes_nothing_of_what_is_held_for_one_who_is_late() -> None:
    """``next`` waited before ``old`` started, was promised both nodes, and is late by hours, since nobody draws. Then
    a node fails: once what is held for ``next`` was taken for over by then, and given to the lost pod
    though nobody had left, and the engine stopped."""
    fleet = Fleet(node("n0", 4, domain="A"), node("n1", 4, domain="A"), budget("a"), budget("b"),
                  policy=Policy(patience="1m"))  # fmt: skip
    fleet.start(run("before", 4, owner="org:a", lasts="1m"))
    fleet.apply(run("next", 8, owner="org:b", lasts="10m"))
    assert starts(fleet, "lab/next") == [1]
    fleet.apply(budget("b", envelope(gpus=4)))
    assert fleet.state.reservations["lab/next"].state == "Blocked"
    fleet.now = at("1m")
    fleet.succeed("lab/before")
    fleet.start(run("old", 8, owner="org:a", pod=4, lasts="20h"))
    fleet.later("1h")
    fleet.apply(budget("b"))
    fleet.later("1h")
    one = fleet.state.reservations["lab/next"]
    assert (one.made, one.reason) == (START, "NoCustodian")
    fleet.now = at("9h")
    fleet.fence("n1")
    assert fleet.where("lab/old") == {"n0": 4}
    fleet.leave("lab/old")
    assert fleet.phase("lab/old") == "Failed"


@pytest.mark.parametrize("opportunistic", [False, True])
def test_who_gets_its_room_late_starts_and_who_is_planned_behind_it_moves(opportunistic: bool) -> None:
    """``old`` ends with its money, and its pods take a minute to go. ``next`` was to start when ``wide`` would have
    ended. Cluster seed 742: for opportunistic work the start was planned without ``next`` and bound with it, which
    leaves nothing to bind, and the engine stopped."""
    fleet = Fleet(node("n0", 8), budget("a", envelope(gpus=8, hours=16)), budget("b"), budget("c"), secret="x")
    fleet.start(run("old", 8, owner="org:a"))
    fleet.apply(run("wide", 8, owner="org:b", lasts="1h", opportunistic=opportunistic))
    fleet.apply(run("next", 8, owner="org:c", lasts="1h"))
    fleet.later("2h")
    assert cut(fleet) == [("Lottery", "lab/old")]
    assert fleet.state.reservations["lab/wide"].state == "Active"
    planned = starts(fleet, "lab/next")[-1]
    fleet.later("1m")
    fleet.leave("lab/old")
    assert fleet.where("lab/wide") == {"n0": 8}
    assert {lease.role for lease in fleet.leases("lab/wide")} == {"Active"}
    assert starts(fleet, "lab/next")[-1] > planned
    fleet.audit()
