"""Money that is promised: what a reservation will need of it is not for later runs (SPEC 7)."""

from __future__ import annotations

from typing import Any

import pytest

from tenure.api.policy import Policy
from tenure.engine import dump, load
from tenure.testing import Fleet, at, budget, cap, envelope, nodes, run
from tenure.units import SECOND
from tests.engine.test_reservations import FAR, cuts, start_of


@pytest.mark.parametrize(("lasts", "starts"), [("1h", True), ("119m", True), ("3h", False), (None, False)])
def test_headroom_that_a_reservation_will_need_is_not_for_later_runs(lasts: str | None, starts: bool) -> None:
    fleet = Fleet(*nodes("n", 8), budget("a", envelope("main", 16)), policy=FAR)
    fleet.start(run("long", 8, owner="org:a", lasts="2h"))
    fleet.apply(run("wide", 16, owner="org:a", lasts="1h"))
    assert (fleet.code("lab/wide"), start_of(fleet, "lab/wide")) == ("ConcurrencyCapExceeded", "120m")
    fleet.later("1m")
    fleet.apply(run("late", 8, owner="org:a", lasts=lasts))
    assert bool(fleet.leases("lab/late")) == starts
    assert start_of(fleet, "lab/wide") == "120m"


def test_other_money_is_free_to_be_spent_beside_a_reservation() -> None:
    fleet = Fleet(*nodes("n", 8), budget("a", envelope("main", 16)), budget("b"), policy=FAR)
    fleet.start(run("long", 8, owner="org:a", lasts="2h"))
    fleet.apply(run("wide", 16, owner="org:a", lasts="1h"))
    fleet.apply(run("other", 8, owner="org:b"))
    assert fleet.leases("lab/other")


def test_hours_that_a_reservation_will_need_are_not_for_later_runs() -> None:
    fleet = Fleet(*nodes("n", 8), budget("a", envelope("main", 16, hours=40)), policy=FAR)
    fleet.start(run("long", 8, owner="org:a", lasts="2h"))  # 16 hours are committed
    fleet.apply(run("wide", 16, owner="org:a", lasts="1h"))  # and 16 promised: 8 are left
    assert start_of(fleet, "lab/wide") == "120m"
    fleet.later("1m")
    fleet.apply(run("too-much", 8, owner="org:a", lasts="90m"))
    assert not fleet.leases("lab/too-much")
    fleet.apply(run("enough", 8, owner="org:a", lasts="1h"))
    assert fleet.leases("lab/enough")
    assert start_of(fleet, "lab/wide") == "120m"


@pytest.mark.parametrize("cap_of", ["envelope", "cap", "loans"])
def test_hours_that_go_on_being_spent_until_a_reservation_starts_are_not_for_later_runs(cap_of: str) -> None:
    """Found by a game of edits (2154): who came later was promised hours that were there now, and which work without an
    end would have spent by the time of a start that was promised before."""
    money = {
        "envelope": budget("a", envelope("main", 16, hours=40)),
        "cap": budget("a", envelope("main", 16), caps=[cap("all", ["main"], hours=40)]),
        "loans": budget("s", envelope("main", 16, lends_to=["org:a"], lends_hours=40)),
    }
    fleet = Fleet(*nodes("n", 8), money[cap_of], policy=FAR)
    terms: dict[str, Any] = {"owner": "org:a", "sponsors": ["org:s"]}
    fleet.start(run("open", 4, **terms), run("long", 8, lasts="2h", **terms))  # 16 hours are committed
    fleet.apply(run("wide", 12, lasts="1h", **terms))  # and 12 promised; 8 more are used by then, and 4 are left
    assert start_of(fleet, "lab/wide") == "120m"
    fleet.later("1m")
    fleet.apply(run("too-much", 4, lasts="90m", **terms))
    assert not fleet.leases("lab/too-much")
    fleet.apply(run("enough", 4, lasts="1h", **terms))
    assert fleet.leases("lab/enough")
    fleet.until(at("1h"))
    fleet.succeed("lab/enough")
    fleet.until(at("2h"))
    fleet.succeed("lab/long")
    assert fleet.leases("lab/wide"), "it starts as promised"


def test_hours_that_a_late_one_would_spend_are_not_held_against_a_start_for_a_moment() -> None:
    """It was Blocked within the second: until the last promise the late one would have spent what is left of them."""
    fleet = Fleet(*nodes("n", 3), budget("a", envelope("main", 24, hours=21)), budget("o", envelope("main", 24)),
                  policy=FAR)  # fmt: skip
    fleet.start(run("late", 4, owner="org:a", lasts="1h"), run("beside", 4, owner="org:o", lasts="1h"))
    fleet.start(run("busy", 16, owner="org:o", lasts="3h"))
    fleet.apply(run("last", 16, owner="org:a", lasts="30m"))
    fleet.apply(run("due", 4, owner="org:a", lasts="1h"))
    assert (start_of(fleet, "lab/due"), start_of(fleet, "lab/last")) == ("60m", "180m")
    fleet.now = at("1h")
    fleet.succeed("lab/beside")
    assert fleet.leases("lab/due")
    fleet.now += SECOND
    fleet.succeed("lab/late")
    assert start_of(fleet, "lab/last") == "180m"
    fleet.audit()


def test_a_start_whose_money_is_a_moment_late_keeps_its_promise() -> None:
    """It was Blocked within the second, and whoever came next had its money. The hours that the late one would have
    spent until the last promise are not held against it either."""
    fleet = Fleet(*nodes("n", 3), budget("a", envelope("main", 16, hours=57)), budget("o", envelope("main", 24)),
                  policy=FAR)  # fmt: skip
    fleet.start(run("late", 4, owner="org:a", lasts="1h"), run("beside", 4, owner="org:o", lasts="1h"))
    fleet.start(run("busy", 12, owner="org:a", lasts="3h"), run("filler", 4, owner="org:o", lasts="3h"))
    fleet.apply(run("last", 16, owner="org:a", lasts="30m"))
    fleet.apply(run("due", 4, owner="org:a", lasts="1h"))
    assert (start_of(fleet, "lab/due"), start_of(fleet, "lab/last")) == ("60m", "180m")
    fleet.now = at("1h")
    fleet.succeed("lab/beside")
    assert fleet.state.reservations["lab/due"].reason == "EndsLate"
    fleet.now += SECOND
    fleet.apply(run("thief", 4, owner="org:a", lasts="10m"))
    assert not fleet.leases("lab/thief")
    fleet.now += 5 * SECOND
    fleet.succeed("lab/late")
    assert fleet.leases("lab/due")


@pytest.mark.parametrize("looks", ["live", "looked at", "loaded"])
def test_what_will_be_spent_does_not_depend_on_who_looked_before(looks: str) -> None:
    """Ends that are past were forgotten only after they had been counted as ahead."""
    fleet = Fleet(*nodes("n", 3), budget("a", envelope("main", 24, hours=21)), budget("o", envelope("main", 24)),
                  policy=Policy(patience="1000h", on_budget_shortage="Coast"))  # fmt: skip
    fleet.start(run("long", 4, owner="org:a", lasts="1h"), run("busy", 16, owner="org:o", lasts="4h"))
    fleet.start(run("tiny", 4, owner="org:o"))
    fleet.now = at("61m")
    if looks == "looked at":
        for fund in fleet.state.books.funds.values():
            fund.ahead.ahead(fleet.now)
    elif looks == "loaded":
        fleet.state = load(dump(fleet.state))
    fleet.succeed("lab/tiny")
    fleet.apply(run("waits", 8, owner="org:a", lasts="1h"))
    assert start_of(fleet, "lab/waits") == "76m"


@pytest.mark.parametrize("when", ["15m", "15m1s"])
def test_spent_hours_hide_no_window_from_the_auditor(when: str) -> None:
    """At the very instant at which they are spent as well as after it."""
    fleet = Fleet(*nodes("n", 1), budget("b", envelope("main", 4, hours=1, end="3h")),
                  budget("a", envelope("main", 8, start="3h")), budget("y", envelope("main", 8)),
                  policy=Policy(lookahead="10m", activation_lead="2h"), secret="x")  # fmt: skip
    fleet.start(run("spends", 4, owner="org:b"))
    fleet.later("1m")
    fleet.apply(run("waits", 4, owner="org:a", lasts="1h"))
    fleet.until(at(when))
    fleet.apply(run("beside", 4, owner="org:y"))
    assert fleet.leases("lab/beside")
    assert start_of(fleet, "lab/waits") == "180m"


def test_who_is_let_in_is_not_to_blame_where_others_take_over_what_was_to_end() -> None:
    """Found by a wild game (1141). There is room for both if the money of ``held`` runs out; it does, but somebody else
    pays then, and the promise is moved: nobody could know."""
    fleet = Fleet(*nodes("n", 1), budget("a", envelope("short", 4, end="30m"), envelope("more", 4, start="20m")),
                  budget("b", envelope("main", 8, start="1h")), budget("c"),
                  policy=Policy(patience="1000h", lookahead="10m", budget_grace="5m"))  # fmt: skip
    fleet.start(run("held", 4, owner="org:a"))
    fleet.apply(run("waits", 4, owner="org:b", lasts="1h"))
    fleet.start(run("late", 4, owner="org:c", lasts="2h"))
    assert start_of(fleet, "lab/waits") == "60m"
    fleet.until(at("30m"))
    assert [one.envelope for one in fleet.leases("lab/held")] == ["more"]
    assert start_of(fleet, "lab/waits") == "120m"


@pytest.mark.parametrize("looks", ["live", "loaded"])
def test_what_is_committed_ends_with_the_lease_also_where_its_pods_were_late(looks: str) -> None:
    """Found by a wild game (2328). ``slow`` works ten minutes longer than its lease said, and spends hours then that
    nobody had committed. Whoever read the state anew took that for news, and moved a start that others left alone."""
    fleet = Fleet(*nodes("n", 1), budget("a", envelope("main", 8, hours=8)), budget("b"),
                  policy=Policy(patience="1000h", lookahead="10m", budget_grace="5m"))  # fmt: skip
    fleet.apply(run("slow", 4, owner="org:a", lasts="30m"))
    fleet.start(run("open", 4, owner="org:a"))
    fleet.later("10m")
    fleet.bind("lab/slow")
    fleet.apply(run("waits", 8, owner="org:b", lasts="1h"))
    assert start_of(fleet, "lab/waits") == "90m"
    fleet.now = at("35m")
    if looks == "loaded":
        fleet.state = load(dump(fleet.state))
    fleet.apply(run("other", 8, owner="org:b", lasts="1h"))
    assert start_of(fleet, "lab/waits") == "90m"


def test_who_was_told_to_leave_spends_no_hours_until_a_distant_start() -> None:
    """Until the window of ``waits`` opens, ``late`` would have spent what is left under the cap; but it was told to
    leave. Whatever makes the promise be looked at in between (here a machine that takes no work) breaks nothing."""
    fleet = Fleet(*nodes("n", 2), budget("a"), budget("c", envelope("x", 8), envelope("y", 8, start="9h"),
                                                      caps=[cap("k", ["x", "y"], gpus=16, hours=15)]),
                  policy=FAR)  # fmt: skip
    fleet.start(run("long", 12, owner="org:a", lasts="1h"))
    fleet.apply(run("next", 16, owner="org:a", lasts="3h"))
    fleet.start(run("late", 4, owner="org:c", lasts="20m"))
    fleet.apply(run("waits", 10, owner="org:c", lasts="1h"))
    assert start_of(fleet, "lab/waits") == "540m"
    fleet.until(at("59m"))
    fleet.now = at("1h")
    fleet.report("Succeeded", *(pod.key for pod in fleet.pods("lab/long")), code=0)
    assert [key for _, key, _ in cuts(fleet)] == ["lab/late"]
    fleet.until(at("62m"))
    fleet.apply(nodes("m", 1, cordoned=True)[0])
    assert start_of(fleet, "lab/waits") == "540m"
