"""What is known only later: nobody pays, is told, or is failed for what was over by then (SPEC 3, 5, 9)."""

from __future__ import annotations

import pytest

from tenure.api.policy import Policy
from tenure.engine import Report, Sighting
from tenure.testing import START, Fleet, at, budget, cap, envelope, node, nodes, run
from tenure.units import HOUR, Instant


def succeeded(fleet: Fleet, key: str, *, since: Instant) -> None:
    """All pods of a run are found to have ended at an instant of the past."""
    fleet.handle(Report(tuple(Sighting(pod.key, "Succeeded", 0, "", since) for pod in fleet.pods(key))))


def hours(fleet: Fleet) -> dict[str, float]:
    """How long each closed lease was held."""
    return {name: (one.end - one.lease.start) / HOUR for name, one in fleet.closed().items()}


def notices(fleet: Fleet) -> list[str]:
    return [note.reason for note in fleet.notes("BudgetNotice")]


def soon(fleet: Fleet) -> int:
    return sum(reason in ("ExhaustsSoon", "LendingExhaustsSoon") for reason in notices(fleet))


def test_money_that_was_spent_no_more_is_not_said_to_be_spent() -> None:
    """Timers went off before the report was taken in. What was said then was believed for good: when the money did run
    out nobody heard of it, and an edit was due at once."""
    fleet = Fleet(*nodes("n", 2), budget("a", envelope("main", 64, hours=60)), secret="q")
    fleet.start(run("early", 8, owner="org:a"))
    fleet.now = at("8h")  # nobody drove; it ended after an hour
    succeeded(fleet, "lab/early", since=at("1h"))
    assert not notices(fleet)
    fleet.start(run("next", 8, owner="org:a"))
    fleet.until(at("10h"))
    fleet.apply(budget("a", envelope("main", 64, hours=9)))
    assert fleet.state.runs["lab/next"].life.phase == "Running", "it has the grace of an edit"
    assert "Lowered" in notices(fleet)


def test_what_was_said_while_nobody_knew_better_is_taken_back() -> None:
    fleet = Fleet(*nodes("n", 1), budget("a", envelope("main", 8, hours=60)), policy=Policy(on_budget_shortage="Coast"))
    fleet.start(run("early", 8, owner="org:a"))
    fleet.until(at("8h"))
    assert notices(fleet).count("Exhausted") == 1
    succeeded(fleet, "lab/early", since=at("1h"))
    assert (fleet.state.books.crossed, fleet.state.books.funds["a", "main"].warned) == ({}, set())
    fleet.start(run("next", 8, owner="org:a"))
    fleet.until(at("16h"))
    assert notices(fleet).count("Exhausted") == 2, "and said when it is so"


@pytest.mark.parametrize("bound", ["envelope", "cap", "lending"])
def test_a_burst_does_not_use_up_the_notice_that_hours_run_out(bound: str) -> None:
    """It was given once per account: whoever spent the rest hours later was cut without a word before."""
    money = {
        "envelope": budget("a", envelope("main", 64, hours=60)),
        "cap": budget("a", envelope("main", 64), caps=[cap("all", ["main"], hours=60)]),
        "lending": budget("a", envelope("main", 64, lends_to=["org:b"], lends_hours=60)),
    }
    owner = {"owner": "org:b", "sponsors": ["org:a"]} if bound == "lending" else {"owner": "org:a"}
    fleet = Fleet(*nodes("n", 8), money[bound], budget("b", envelope("none", 1, start="1000h")), secret="q")
    fleet.start(run("burst", 64, lasts="50m", **owner))  # type: ignore[arg-type]  # owner, sponsors
    fleet.until(at("45m"))
    fleet.succeed("lab/burst")
    assert soon(fleet) == 1
    fleet.start(run("long", 1, **owner))  # type: ignore[arg-type]  # owner, sponsors
    fleet.until(at("12h31m"))
    assert soon(fleet) == 2, "it is said again ahead of the end"


def test_nobody_pays_longer_because_another_account_was_opened_later() -> None:
    """All leases of a run closed at the latest instant that one of them could."""
    fleet = Fleet(*nodes("n", 2), budget("kid", envelope("main", 8), owner="org:kid", parents=["org:p"]),
                  budget("par", envelope("main", 8, end="1000h"), owner="org:p"))  # fmt: skip
    fleet.start(run("x", 16, owner="org:kid"))
    fleet.until(at("9h"))
    fleet.apply(budget("par", envelope("main", 8, end="2000h"), owner="org:p"))
    fleet.until(at("10h"))
    succeeded(fleet, "lab/x", since=at("1h"))
    paid = {one.lease.budget: (one.end - START) / HOUR for one in fleet.closed().values()}
    assert paid == {"kid": 1, "par": 9}, "an edit of a window has put into the books what it has"


def test_nor_because_a_spare_was_topped_up_after_the_end() -> None:
    fleet = Fleet(*nodes("n", 2), budget("a"))
    fleet.start(run("x", 8, owner="org:a", group=8, spares=4))
    spare = next(one.node for one in fleet.leases("lab/x") if one.role == "Spare")
    fleet.until(at("1h"))
    fleet.fence(spare)
    fleet.until(at("9h"))
    fleet.apply(node(spare, 8))
    fleet.until(at("10h"))
    assert [one.role for one in fleet.leases("lab/x")].count("Spare") == 1, "it was topped up"
    succeeded(fleet, "lab/x", since=at("2h"))
    ends = [(one.end - START) / HOUR for one in fleet.closed().values() if one.lease.role == "Active"]
    assert ends == [2]


@pytest.mark.parametrize("order", [(0, 1), (1, 0)])
def test_a_lease_of_two_pods_is_paid_until_the_last_has_left(order: tuple[int, int]) -> None:
    """It closed when the pod had ended that was reported gone last, though that was ten hours before the other."""
    fleet = Fleet(node("n0", 8), budget("a"))
    fleet.start(run("x", 8, owner="org:a", pod=4))
    pods = [pod.key for pod in fleet.pods("lab/x")]
    fleet.until(at("1h"))
    fleet.report("Succeeded", pods[1], code=0)
    fleet.until(at("11h"))
    fleet.delete("Run", "lab/x")
    fleet.report("Gone", *(pods[number] for number in order))
    assert list(hours(fleet).values()) == [11]


@pytest.mark.parametrize("ready", [True, False])
def test_a_node_that_is_ready_again_is_not_failed_by_who_comes_back(ready: bool) -> None:
    """The debounce had run out while nobody decided: the node was failed in the step that heard it was well."""
    fleet = Fleet(*nodes("n", 1), budget("a"), policy=Policy(unready_is_failure=True))
    fleet.start(run("x", 8, owner="org:a"))
    fleet.until(at("1h"))
    fleet.apply(node("n0", 8, ready=False))
    fleet.now = at("70m")
    fleet.apply(node("n0", 8, ready=ready))
    fleet.later("1s")
    assert (fleet.state.runs["lab/x"].life.phase == "Running") is ready
