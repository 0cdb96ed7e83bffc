"""What lenders would answer a run, and what an envelope could still lend: the same limits that a plan obeys."""

from __future__ import annotations

import pytest

from tenure.api.budget import Budget
from tenure.engine.lenders import Capacity, Prospect, capacity, prospects
from tenure.engine.reasons import sentence
from tenure.testing import Fleet, budget, cap, elastic, envelope, nodes, run

ME = budget("me", envelope(gpus=8), parents=["org:up"])


def asked(fleet: Fleet, name: str = "lab/x") -> list[Prospect]:
    return prospects(fleet.state, fleet.state.runs[name], now=fleet.now)


def told(fleet: Fleet, name: str = "lab/x") -> dict[str, tuple[int | None, bool, int, str]]:
    """(place, lends, could give, what limits it) by envelope, or by owner where there is none."""
    return {
        f"{one.visit.budget}/{one.visit.envelope}" if one.visit else one.owner: (
            one.place,
            one.lends,
            one.room,
            one.visit.limit.code if one.visit and one.visit.limit else "",
        )
        for one in asked(fleet, name)
    }


def lender(name: str, gpus: int = 64, **terms: object) -> Budget:
    return budget(name, envelope(gpus=gpus, **({"lends_to": ["*"]} | terms)))  # type: ignore[arg-type]  # as named


def test_sponsors_answer_in_the_order_listed_each_by_itself() -> None:
    fleet = Fleet(*nodes("n", 1), ME, lender("b", lends=4), lender("a", lends=100))
    fleet.apply(run("x", 24, owner="org:me", sponsors=["org:b", "org:a"]))
    assert told(fleet) == {"b/main": (1, True, 4, "LendingCapExceeded"), "a/main": (2, True, 64, "")}


def test_who_does_not_lend_says_why() -> None:
    early = budget("early", envelope(gpus=8, lends_to=["*"], start="1d"))
    east = budget("east", envelope(gpus=8, lends_to=["*"], selector={"region": "us-east"}))
    other = budget("other", envelope(gpus=8, lends_to=["*"], flavor="A100"))
    fleet = Fleet(
        *nodes("n", 4), ME, lender("closed", lends_to=["org:you"]), lender("full", gpus=4), early, east, other
    )
    fleet.apply(run("own", 4, owner="org:full"))
    names = ("closed", "full", "early", "east", "other", "nobody")
    fleet.apply(run("x", 16, owner="org:me", sponsors=[f"org:{name}" for name in names]))
    assert told(fleet) == {
        "closed/main": (1, False, 0, "ACLDenied"),
        "full/main": (2, True, 0, "ConcurrencyCapExceeded"),
        "early/main": (3, True, 0, "WindowClosed"),
        "east/main": (4, True, 0, "NoEnvelope"),
        "org:other": (5, False, 0, ""),
        "org:nobody": (6, False, 0, ""),
    }


def test_a_relative_that_is_listed_pays_as_family_and_lends_if_it_does_not_share() -> None:
    shy = budget("shy", envelope(gpus=8, sharing="None", lends_to=["*"]), parents=["org:up"])
    sib = budget("sib", envelope(gpus=8), parents=["org:up"])
    fleet = Fleet(*nodes("n", 1), ME, shy, sib)
    fleet.apply(run("x", 24, owner="org:me", sponsors=["org:sib", "org:shy"]))
    found = [(one.owner, one.visit.relation, one.visit.funding) for one in asked(fleet) if one.visit]
    assert found == [("org:sib", "sibling", "shared"), ("org:shy", "sponsor", "borrowed")]


def test_ancestors_and_cousins_come_after_the_sponsors() -> None:
    up = budget("up", envelope(gpus=4), parents=["org:top"])
    aunt = budget("aunt", envelope(gpus=4), parents=["org:top"])
    cousin = budget("cousin", envelope(gpus=4, lends_to=["*"]), parents=["org:aunt"])
    fleet = Fleet(*nodes("n", 1), ME, up, aunt, cousin, lender("top", gpus=4), lender("far", gpus=4))
    fleet.apply(run("x", 64, owner="org:me", sponsors=["org:far"]))
    assert [(one.place, one.owner) for one in asked(fleet)] == [(1, "org:far"), (None, "org:top"), (None, "org:cousin")]


def test_what_the_run_borrows_already_counts() -> None:
    fleet = Fleet(*nodes("n", 4), ME, lender("bank"))
    fleet.apply(run("x", 16, owner="org:me", elastic=elastic(16, 32, 8), sponsors=["org:bank"], max_borrow=12))
    assert told(fleet) == {"bank/main": (1, True, 4, "BorrowLimit")}


def test_a_run_that_runs_is_not_offered_money_for_another_cluster() -> None:
    there = budget("there", envelope(gpus=8, lends_to=["*"], selector={"cluster": "gpu-b"}))
    fleet = Fleet(*nodes("a", 1), *nodes("b", 1, cluster="gpu-b"), ME, there)
    fleet.apply(run("x", 8, owner="org:me", elastic=elastic(8, 16, 8), sponsors=["org:there"]))
    fleet.apply(run("y", 16, owner="org:me", sponsors=["org:there"]))
    assert told(fleet, "lab/x") == {"there/main": (1, True, 0, "NoEnvelope")}
    assert told(fleet, "lab/y") == {"there/main": (1, True, 8, "ConcurrencyCapExceeded")}


def test_the_tighter_of_two_limits_is_the_one_that_is_told() -> None:
    """Twelve GPUs at once, but hours for eight: eight can be had, and the sentence says eight."""
    fleet = Fleet(*nodes("n", 4), lender("bank", lends=12, lends_hours=48))
    fleet.apply(run("x", 16, owner="org:me", sponsors=["org:bank"], lasts="6h"))
    (found,) = asked(fleet)
    assert found.visit is not None
    assert found.visit.limit is not None
    assert found.room == 8
    assert sentence(found.visit.limit) == "bank/main may lend 8 more GPUs for this claim; 16 were asked: 8 too many."


def test_a_cap_that_was_lowered_below_use_has_no_room_rather_than_less_than_none() -> None:
    fleet = Fleet(*nodes("n", 4), lender("bank", lends=12))
    fleet.apply(run("x", 12, owner="org:me", sponsors=["org:bank"]))
    fleet.apply(lender("bank", lends=8))
    fleet.apply(run("y", 4, owner="org:me", sponsors=["org:bank"]))
    (found,) = asked(fleet, "lab/y")
    assert found.visit is not None
    assert found.visit.limit is not None
    assert sentence(found.visit.limit) == "bank/main may lend 0 more GPUs for this claim; 4 were asked: 4 too many."


# --- what an envelope could lend ------------------------------------------------------------------------------------


def could(fleet: Fleet, name: str = "bank") -> Capacity:
    return capacity(fleet.state.books.funds[name, "main"], now=fleet.now, lookahead=fleet.state.policy.lookahead)


@pytest.mark.parametrize(
    ("terms", "room", "bound"),
    [
        ({}, 64, "concurrency"),
        ({"lends": 12}, 12, "lending.maxConcurrency"),
        ({"lends_hours": 9}, 9, "lending.maxGPUHours"),
        ({"lends": 12, "lends_hours": 9}, 9, "lending.maxGPUHours"),
        ({"lends": 12, "lends_hours": 20}, 12, "lending.maxConcurrency"),
        ({"hours": 7}, 7, "maxGPUHours"),
        ({"start": "1d"}, 0, "window"),
        ({"lends_to": []}, 0, "lending.to"),
        ({"lends_to": None}, 0, "lending.allow"),
    ],
)
def test_what_binds_a_lender(terms: dict[str, object], room: int, bound: str) -> None:
    fleet = Fleet(*nodes("n", 4), lender("bank", **terms))  # type: ignore[arg-type]  # as named
    assert could(fleet) == Capacity(room=room, bound=bound)


def test_an_aggregate_cap_binds_a_lender_by_its_name() -> None:
    bank = budget("bank", envelope(gpus=64, lends_to=["*"]), caps=[cap("all", ["main"], gpus=5)])
    assert could(Fleet(*nodes("n", 4), bank)) == Capacity(room=5, bound="bank/all")


def test_what_is_lent_and_what_the_lender_uses_itself_is_gone() -> None:
    fleet = Fleet(*nodes("n", 4), lender("bank", gpus=24, lends=12))
    fleet.apply(run("x", 8, owner="org:me", sponsors=["org:bank"]))
    assert could(fleet) == Capacity(room=4, bound="lending.maxConcurrency")
    fleet.apply(run("own", 14, owner="org:bank"))
    assert could(fleet) == Capacity(room=2, bound="concurrency")


def test_an_answer_is_what_a_run_then_gets() -> None:
    """Whoever asks for as much as the lenders said, gets it."""
    banks = [lender("a", lends=3), lender("b", gpus=5), lender("c", lends_hours=7)]
    fleet = Fleet(*nodes("n", 4), *banks)
    sponsors = ["org:a", "org:b", "org:c"]
    fleet.apply(run("probe", 64, owner="org:me", sponsors=sponsors))
    offers = {one.owner: one.room for one in asked(fleet, "lab/probe")}
    fleet.apply(run("y", sum(offers.values()), owner="org:me", sponsors=sponsors))
    assert fleet.payers("lab/y") == {"a/main": 3, "b/main": 5, "c/main": 7}
