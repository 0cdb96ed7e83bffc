"""SPEC 4: who pays, in which order, and why nobody does."""

from __future__ import annotations

import pytest

from tenure.api.budget import Budget
from tenure.api.policy import Policy
from tenure.engine.reasons import RULES
from tenure.testing import Fleet, budget, cap, envelope, node, nodes, run

EAST = {"region": "us-east"}
CODES = [
    "InvalidRequest",
    "BorrowLimit",
    "AggregateCapExceeded",
    "IntegralCapExceeded",
    "LendingCapExceeded",
    "ConcurrencyCapExceeded",
    "ACLDenied",
    "SharingOptOut",
    "WindowClosed",
    "NoEnvelope",
]


def clan(**gpus: int) -> list[Budget]:
    """One family: me, sib and step under up (and aunt); up and aunt under top; cousin under aunt; far is nobody's."""
    parents = {"me": ["org:up"], "sib": ["org:up"], "up": ["org:top"], "aunt": ["org:top"], "cousin": ["org:aunt"]}
    lends = {"top", "aunt", "cousin", "far", "friend"}
    return [
        budget(name, envelope(gpus=amount, lends_to=["*"] if name in lends else None), parents=parents.get(name, []))
        for name, amount in gpus.items()
    ]


def payers(fleet: Fleet, gpus: int, **terms: object) -> dict[str, int]:
    fleet.apply(run("x", gpus, owner="org:me", **terms))  # type: ignore[arg-type]  # the test names them
    return fleet.payers("lab/x")


# --- the walk -----------------------------------------------------------------------------------------------------


def test_the_owner_pays_first() -> None:
    fleet = Fleet(*nodes("n", 4), *clan(me=8, sib=8, up=8))
    assert payers(fleet, 8) == {"me/main": 8}


def test_siblings_pay_before_parents() -> None:
    fleet = Fleet(*nodes("n", 4), *clan(me=8, sib=4, up=8))
    assert payers(fleet, 16) == {"me/main": 8, "sib/main": 4, "up/main": 4}


def test_sponsors_pay_in_the_order_listed() -> None:
    fleet = Fleet(*nodes("n", 4), *clan(me=8, far=4, friend=8))
    assert payers(fleet, 16, sponsors=["org:friend", "org:far"]) == {"me/main": 8, "friend/main": 8}
    assert payers(Fleet(*nodes("n", 4), *clan(me=8, far=4, friend=8)), 16, sponsors=["org:far", "org:friend"]) == {
        "me/main": 8,
        "far/main": 4,
        "friend/main": 4,
    }


def test_ancestors_lend_after_sponsors_and_cousins_after_ancestors() -> None:
    fleet = Fleet(*nodes("n", 6), *clan(me=4, up=4, top=4, aunt=8, cousin=4, far=4))
    assert payers(fleet, 20, sponsors=["org:far"]) == {
        "me/main": 4,
        "up/main": 4,
        "far/main": 4,
        "top/main": 4,
        "cousin/main": 4,
    }


def test_aunts_and_uncles_are_not_searched() -> None:
    fleet = Fleet(*nodes("n", 6), *clan(me=4, up=4, aunt=64, top=4), budget("far", envelope(gpus=1)))
    fleet.apply(run("x", 16, owner="org:me", sponsors=["org:far"]))
    assert fleet.phase("lab/x") == "Pending"
    assert "aunt" not in {visit.budget for visit in fleet.verdict("lab/x").visits}


def test_nearer_ancestors_come_before_farther_ones() -> None:
    fleet = Fleet(
        *nodes("n", 4),
        budget("me", envelope(gpus=4), parents=["org:up"]),
        budget("up", envelope(gpus=1, flavor="A100"), parents=["org:mid"]),
        budget("mid", envelope(gpus=4, lends_to=["*"]), parents=["org:apex"]),
        budget("apex", envelope(gpus=64, lends_to=["*"])),
        budget("a-far", envelope(gpus=1, lends_to=["*"])),
    )
    assert payers(fleet, 12, sponsors=["org:a-far"]) == {"me/main": 4, "a-far/main": 1, "mid/main": 4, "apex/main": 3}


def test_the_tier_of_each_visit_is_told() -> None:
    fleet = Fleet(*nodes("n", 6), *clan(me=4, sib=4, up=4, top=4, aunt=1, cousin=8, far=4))
    payers(fleet, 24, sponsors=["org:far"])
    visits = [(visit.tier, visit.relation, visit.budget, visit.funding) for visit in fleet.verdict("lab/x").visits]
    assert visits == [
        (1, "owner", "me", "owned"),
        (2, "sibling", "sib", "shared"),
        (2, "parent", "up", "shared"),
        (4, "sponsor", "far", "borrowed"),
        (5, "ancestor", "top", "borrowed"),
        (6, "cousin", "cousin", "borrowed"),
    ]


@pytest.mark.parametrize("terms", [{}, {"borrow": True}, {"borrow": False}], ids=["default", "no sponsors", "off"])
def test_nobody_lends_to_a_run_that_may_not_borrow_or_names_no_sponsor(terms: dict[str, object]) -> None:
    fleet = Fleet(*nodes("n", 4), *clan(me=8, top=64, cousin=64, far=64))
    fleet.apply(run("x", 16, owner="org:me", **terms))  # type: ignore[arg-type]  # the test names them
    assert fleet.code("lab/x") == "ConcurrencyCapExceeded"
    assert {visit.budget for visit in fleet.verdict("lab/x").visits} == {"me"}


def test_only_declared_parents_are_family() -> None:
    fleet = Fleet(
        *nodes("n", 4),
        budget("child", envelope(gpus=8), owner="org:ai:rai:sys"),
        budget("name-parent", envelope(), owner="org:ai:rai"),
    )
    fleet.apply(run("x", 16, owner="org:ai:rai:sys"))
    assert fleet.code("lab/x") == "ConcurrencyCapExceeded"


def test_a_sibling_shares_any_one_of_several_parents() -> None:
    fleet = Fleet(
        *nodes("n", 4),
        budget("me", envelope(gpus=4), parents=["org:p", "org:q"]),
        budget("half", envelope(gpus=4), parents=["org:q"]),
    )
    assert payers(fleet, 8) == {"me/main": 4, "half/main": 4}


def test_a_relative_is_visited_once_where_it_stands_nearest() -> None:
    """An owner that is both sibling and parent is asked as a sibling, and not again."""
    fleet = Fleet(
        *nodes("n", 4),
        budget("me", envelope(gpus=4), parents=["org:up", "org:top"]),
        budget("up", envelope(gpus=8), parents=["org:top"]),
    )
    payers(fleet, 8)
    assert [(visit.relation, visit.budget) for visit in fleet.verdict("lab/x").visits] == [
        ("owner", "me"),
        ("sibling", "up"),
    ]


def test_within_a_relation_the_earliest_window_end_pays_first_and_none_is_last() -> None:
    fleet = Fleet(
        *nodes("n", 4),
        budget("me", envelope("c-open", 4), envelope("b-late", 4, end="20d"), envelope("a-mid", 4, end="10d")),
        budget("z", envelope("first", 4, end="5d"), owner="org:me"),
    )
    payers(fleet, 12)
    assert [f"{one.budget}/{one.envelope}" for one in fleet.verdict("lab/x").segments] == [
        "z/first",
        "me/a-mid",
        "me/b-late",
    ]


def test_ties_go_by_budget_name_then_envelope_name() -> None:
    fleet = Fleet(
        *nodes("n", 4),
        budget("m", envelope("b", 4), envelope("a", 4), owner="org:me"),
        budget("k", envelope("z", 4), owner="org:me"),
    )
    payers(fleet, 12)
    assert [f"{one.budget}/{one.envelope}" for one in fleet.verdict("lab/x").segments] == ["k/z", "m/a", "m/b"]


def test_siblings_are_one_relation_whatever_their_names() -> None:
    fleet = Fleet(
        *nodes("n", 4),
        budget("me", envelope(gpus=1), parents=["org:up"]),
        budget("a-sib", envelope(gpus=8), parents=["org:up"]),
        budget("z-sib", envelope(gpus=8, end="1d"), parents=["org:up"]),
    )
    assert payers(fleet, 9) == {"me/main": 1, "z-sib/main": 8}


def test_a_borrowed_payer_is_recorded_with_its_owner() -> None:
    fleet = Fleet(*nodes("n", 2), *clan(me=8, far=8))
    payers(fleet, 16, sponsors=["org:far"])
    assert {(lease.funding, lease.payer, lease.owner, lease.role) for lease in fleet.leases()} == {
        ("owned", "org:me", "org:me", "Active"),
        ("borrowed", "org:far", "org:me", "Active"),
    }
    status = fleet.run("lab/x").status.funding
    assert status is not None
    assert (status.owned_gpus, status.borrowed_gpus) == (8, 8)
    assert [(one.owner, one.gpus) for one in status.sponsors] == [("org:far", 8)]


# --- conditions on paying -----------------------------------------------------------------------------------------


def test_an_envelope_that_does_not_share_pays_for_its_owner_only() -> None:
    world = (
        *nodes("n", 2),
        budget("me", envelope(gpus=4), parents=["org:up"]),
        budget("sib", envelope(sharing="None"), parents=["org:up"]),
    )
    fleet = Fleet(*world)
    fleet.apply(run("x", 8, owner="org:me"))
    assert fleet.code("lab/x") == "ConcurrencyCapExceeded"
    assert [visit.limit.code for visit in fleet.verdict("lab/x").visits if visit.limit][-1] == "SharingOptOut"
    fleet.apply(run("y", 8, owner="org:sib"))
    assert fleet.payers("lab/y") == {"sib/main": 8}


def test_a_relative_that_opted_out_of_sharing_may_lend_as_a_listed_sponsor() -> None:
    fleet = Fleet(
        *nodes("n", 2),
        budget("me", envelope(gpus=4), parents=["org:up"]),
        budget("sib", envelope(sharing="None", lends_to=["org:me"]), parents=["org:up"]),
    )
    assert payers(fleet, 8, sponsors=["org:sib"]) == {"me/main": 4, "sib/main": 4}
    assert {lease.funding for lease in fleet.leases() if lease.budget == "sib"} == {"borrowed"}


@pytest.mark.parametrize(
    ("pattern", "borrower", "lends"),
    [
        ("*", "org:ai:x", True),
        ("org:ai:*", "org:ai:x", True),
        ("org:ai:*", "org:ai:x:y", True),
        ("org:ai:*", "org:ai", False),
        ("org:ai:*", "org:aix:y", False),
        ("org:*:x", "org:ai:x", True),
        ("org:*:x", "org:ai:rai:x", False),
        ("org:ai:x", "org:ai:x", True),
        ("org:ai:x", "org:ai:xy", False),
    ],
)
def test_an_acl_names_whole_owners(pattern: str, borrower: str, lends: bool) -> None:
    fleet = Fleet(node("n0"), budget("bank", envelope(lends_to=[pattern])))
    fleet.apply(run("x", 8, owner=borrower, sponsors=["org:bank"]))
    assert fleet.payers("lab/x") == ({"bank/main": 8} if lends else {})
    assert lends or fleet.code("lab/x") == "ACLDenied"


@pytest.mark.parametrize("terms", [{"lends_to": []}, {}], ids=["to nobody", "no lending"])
def test_an_envelope_without_lending_lends_to_nobody(terms: dict[str, list[str]]) -> None:
    fleet = Fleet(node("n0"), budget("bank", envelope(**terms)))  # type: ignore[arg-type]  # the test names them
    fleet.apply(run("x", 8, owner="org:me", sponsors=["org:bank"]))
    assert (fleet.verdict("lab/x").outcome, fleet.code("lab/x")) == ("never", "ACLDenied")


def test_lending_concurrency_bounds_all_borrowers_together() -> None:
    fleet = Fleet(*nodes("n", 4), budget("bank", envelope(lends_to=["*"], lends=12)))
    fleet.start(run("x", 8, owner="org:a", sponsors=["org:bank"]))
    fleet.apply(run("y", 8, owner="org:b", sponsors=["org:bank"]))
    assert fleet.code("lab/y") == "LendingCapExceeded"
    fleet.apply(run("own", 8, owner="org:bank"))
    assert fleet.payers("lab/own") == {"bank/main": 8}, "a lending cap does not bind the lender"


def test_lending_hours_bound_what_borrowers_use() -> None:
    fleet = Fleet(*nodes("n", 4), budget("bank", envelope(lends_to=["*"], lends_hours=16, hours=1000)))
    fleet.start(run("x", 8, owner="org:a", sponsors=["org:bank"], lasts="1h"))
    fleet.later("1h")
    fleet.succeed("lab/x")
    fleet.apply(run("y", 8, owner="org:b", sponsors=["org:bank"], lasts="2h"))
    assert fleet.code("lab/y") == "LendingCapExceeded"
    fleet.apply(run("z", 8, owner="org:b", sponsors=["org:bank"], lasts="1h"))
    assert fleet.payers("lab/z") == {"bank/main": 8}


def test_sharing_within_the_family_is_not_lending() -> None:
    fleet = Fleet(
        *nodes("n", 2),
        budget("me", envelope(gpus=1), parents=["org:up"]),
        budget("up", envelope(lends_to=["org:nobody"], lends=1)),
    )
    assert payers(fleet, 9) == {"me/main": 1, "up/main": 8}


def test_max_borrow_bounds_what_the_run_borrows_over_all_lenders() -> None:
    fleet = Fleet(*nodes("n", 4), *clan(me=8, far=4, friend=8))
    fleet.apply(run("x", 16, owner="org:me", sponsors=["org:far", "org:friend"], max_borrow=7))
    assert fleet.code("lab/x") == "BorrowLimit"
    fleet.apply(run("y", 16, owner="org:me", sponsors=["org:far", "org:friend"], max_borrow=8))
    assert fleet.payers("lab/y") == {"me/main": 8, "far/main": 4, "friend/main": 4}


def test_max_borrow_zero_borrows_nothing() -> None:
    fleet = Fleet(*nodes("n", 4), *clan(me=8, far=64))
    fleet.apply(run("x", 9, owner="org:me", sponsors=["org:far"], max_borrow=0))
    assert fleet.code("lab/x") == "BorrowLimit"


def test_a_cap_bounds_the_concurrency_of_its_envelopes_together() -> None:
    fleet = Fleet(
        *nodes("n", 4),
        budget("me", envelope("a", 16), envelope("b", 16), caps=[cap("all", ["a", "b"], gpus=24)]),
    )
    fleet.start(run("x", 20, owner="org:me"))
    fleet.apply(run("y", 5, owner="org:me"))
    assert fleet.code("lab/y") == "AggregateCapExceeded"
    fleet.apply(run("z", 4, owner="org:me"))
    assert sum(fleet.payers("lab/z").values()) == 4


def test_a_cap_bounds_the_hours_of_its_envelopes_together() -> None:
    fleet = Fleet(
        *nodes("n", 4),
        budget("me", envelope("a", 8), envelope("b", 8), caps=[cap("all", ["a", "b"], hours=32)]),
    )
    fleet.apply(run("x", 16, owner="org:me", lasts="3h"))
    assert fleet.code("lab/x") == "AggregateCapExceeded"
    fleet.apply(run("y", 16, owner="org:me", lasts="2h"))
    assert fleet.payers("lab/y") == {"me/a": 8, "me/b": 8}


def test_one_plan_does_not_spend_the_same_headroom_twice() -> None:
    """Two envelopes under one cap of 12 look good for 8 each; together they are not good for 16."""
    fleet = Fleet(
        *nodes("n", 4),
        budget("me", envelope("a", 8), envelope("b", 8), caps=[cap("all", ["a", "b"], gpus=12)], parents=["org:up"]),
        budget("up", envelope(gpus=64)),
    )
    assert payers(fleet, 16) == {"me/a": 8, "me/b": 4, "up/main": 4}


def test_a_flavor_buys_only_its_own_kind() -> None:
    fleet = Fleet(node("n0"), node("m0", flavor="A100"), budget("me", envelope(flavor="A100")))
    fleet.apply(run("x", 8, owner="org:me"))
    assert (fleet.verdict("lab/x").outcome, fleet.code("lab/x")) == ("never", "NoEnvelope")
    fleet.apply(run("y", 8, owner="org:me", flavor="A100"))
    assert fleet.where("lab/y") == {"m0": 8}


# --- time ---------------------------------------------------------------------------------------------------------


def test_a_window_is_half_open() -> None:
    fleet = Fleet(node("n0"), budget("me", envelope(start="1h", end="2h")))
    fleet.apply(run("x", 1, owner="org:me"))
    assert (fleet.verdict("lab/x").outcome, fleet.code("lab/x")) == ("wait", "WindowClosed")
    fleet.later("1h")
    assert fleet.payers("lab/x") == {"me/main": 1}, "it starts the instant the window opens"
    fleet.later("1h")
    fleet.apply(run("y", 1, owner="org:me"))
    assert (fleet.verdict("lab/y").outcome, fleet.code("lab/y")) == ("never", "WindowClosed")


def test_admission_before_start_needs_leave() -> None:
    fleet = Fleet(node("n0"), budget("me", envelope(start="1h", early=True)))
    fleet.apply(run("x", 8, owner="org:me"))
    assert fleet.payers("lab/x") == {"me/main": 8}


@pytest.mark.parametrize(("lasts", "starts"), [("2h", True), ("2h1s", False)])
def test_a_declared_duration_must_fit_the_window(lasts: str, starts: bool) -> None:
    fleet = Fleet(node("n0"), budget("me", envelope(end="2h")))
    fleet.apply(run("x", 8, owner="org:me", lasts=lasts))
    assert (fleet.phase("lab/x"), bool(fleet.leases())) == ("Pending", starts)
    assert starts or fleet.code("lab/x") == "WindowClosed"


@pytest.mark.parametrize(("lasts", "starts"), [("2h", True), ("2h1us", False)])
def test_a_declared_duration_must_fit_the_hours(lasts: str, starts: bool) -> None:
    fleet = Fleet(node("n0"), budget("me", envelope(hours=16)))
    fleet.apply(run("x", 8, owner="org:me", lasts=lasts))
    assert bool(fleet.leases()) is starts
    assert starts or fleet.code("lab/x") == "IntegralCapExceeded"


@pytest.mark.parametrize(("lookahead", "starts"), [("2h", True), ("3h", False), ("0s", True)])
def test_an_undeclared_claim_needs_hours_for_one_look_ahead(lookahead: str, starts: bool) -> None:
    fleet = Fleet(node("n0"), budget("me", envelope(hours=16)), policy=Policy(lookahead=lookahead))
    fleet.apply(run("x", 8, owner="org:me"))
    assert bool(fleet.leases()) is starts
    assert starts or fleet.code("lab/x") == "IntegralCapExceeded"


def test_an_undeclared_claim_needs_an_open_window_and_no_more() -> None:
    fleet = Fleet(node("n0"), budget("me", envelope(end="5m")))
    assert payers(fleet, 8) == {"me/main": 8}


# --- place --------------------------------------------------------------------------------------------------------


def test_money_is_spent_only_where_it_was_granted() -> None:
    fleet = Fleet(node("w0"), node("e0", region="us-east"), budget("me", envelope(selector=EAST)))
    assert payers(fleet, 8) == {"me/main": 8}
    assert fleet.where("lab/x") == {"e0": 8}


@pytest.mark.parametrize(
    ("selector", "place"),
    [
        ({"region": "us-west"}, "w"),
        ({"cluster": "gpu-b"}, "c"),
        ({"fabric.domain": "B"}, "d"),
        ({"rack": "r9"}, "r"),
        ({"region": "us-west", "team": "vision"}, "t"),
    ],
    ids=["region", "cluster", "domain", "rack", "any label"],
)
def test_a_selector_may_speak_of_any_label(selector: dict[str, str], place: str) -> None:
    vision = {
        "region": "us-west",
        "cluster": "gpu-a",
        "fabric.domain": "T",
        "gpu.flavor": "H100-80GB",
        "team": "vision",
    }
    fleet = Fleet(
        node("w", region="us-west", domain="W"),
        node("c", region="eu", cluster="gpu-b"),
        node("d", region="eu", domain="B"),
        node("r", region="eu", rack="r9"),
        node("t", labels=vision),
        budget("me", envelope(selector=selector)),
    )
    fleet.apply(run("x", 8, owner="org:me"))
    assert set(fleet.where("lab/x")) <= ({"w", "t"} if place == "w" else {place})
    assert fleet.where("lab/x")


def test_a_fine_selector_does_not_pay_beyond_its_nodes() -> None:
    fleet = Fleet(
        *nodes("r1-", 1, rack="r1"), *nodes("r2-", 1, rack="r2"), budget("me", envelope(selector={"rack": "r1"}))
    )
    fleet.apply(run("x", 16, owner="org:me", group=16))
    assert (fleet.verdict("lab/x").outcome, fleet.code("lab/x")) == ("never", "PayersApart")


def test_money_that_is_good_nowhere_else_is_spent_first() -> None:
    fleet = Fleet(
        node("n1", 4, region="r1"), node("n2", 8, region="r2"),
        budget("me", envelope("dom", 4, selector={"fabric.domain": "A"}), envelope("r1", 6, selector={"region": "r1"})),
        budget("s", envelope("w", 8, selector={"cluster": "gpu-a"}, lends_to=["*"])),
    )  # fmt: skip
    fleet.start(run("x", 8, owner="org:me", group=4, sponsors=["org:s"]))
    assert {(lease.node, lease.envelope) for lease in fleet.leases("lab/x")} == {("n1", "r1"), ("n2", "dom")}


def test_envelopes_are_asked_for_what_is_left() -> None:
    fleet = Fleet(*nodes("n", 2), budget("me", envelope("x", 4), envelope("y", 4)))
    fleet.apply(run("r", 9, owner="org:me"))
    assert [visit.limit.data["short"] for visit in fleet.verdict("lab/r").visits] == [5, 1]
    assert "1 too many" in fleet.state.runs["lab/r"].life.message


def test_fine_and_coarse_money_share_the_payment_where_both_are_good() -> None:
    fleet = Fleet(
        *nodes("a", 2, domain="A"),
        *nodes("b", 2, domain="B"),
        budget("me", envelope("all", 8), envelope("only-b", 8, selector={"fabric.domain": "B"})),
    )
    fleet.apply(run("x", 16, owner="org:me", group=16))
    assert fleet.payers("lab/x") == {"me/all": 8, "me/only-b": 8}
    assert fleet.domains("lab/x") == {"B": 16}


def test_money_that_is_good_elsewhere_too_is_kept_for_elsewhere_when_it_must_be() -> None:
    fleet = Fleet(
        node("r", rack="r1", domain="A"),
        node("s", rack="r2", domain="B"),
        budget("me", envelope("anywhere", 8), envelope("rack-only", 8, selector={"rack": "r1"})),
    )
    assert payers(fleet, 16, group=8) == {"me/anywhere": 8, "me/rack-only": 8}


def test_the_location_with_the_most_owned_money_wins() -> None:
    fleet = Fleet(
        node("w0"),
        node("e0", region="us-east"),
        budget("me", envelope("w", 4), envelope("e", 6, selector=EAST), parents=["org:up"]),
        budget("up", envelope("w", 64), envelope("e", 64, selector=EAST)),
    )
    assert payers(fleet, 8) == {"me/e": 6, "up/e": 2}


def test_fewer_borrowed_gpus_win_over_more_owned_ones() -> None:
    fleet = Fleet(
        node("w0"),
        node("e0", region="us-east"),
        budget("me", envelope("w", 6), envelope("e", 4, selector=EAST), parents=["org:up"]),
        budget("up", envelope("e", 4, selector=EAST)),
        budget("far", envelope("w", 64, lends_to=["*"])),
    )
    assert payers(fleet, 8, sponsors=["org:far"]) == {"me/e": 4, "up/e": 4}


def test_equal_money_goes_where_fewer_domains_do() -> None:
    fleet = Fleet(
        *nodes("a", 1, domain="A"),
        *nodes("b", 1, domain="B"),
        *nodes("e", 2, region="us-east", domain="C"),
        budget("me", envelope("any", 16, selector={"cluster": "gpu-a"})),
    )
    fleet.apply(run("x", 16, owner="org:me"))
    assert fleet.domains("lab/x") == {"C": 16}


def test_equal_locations_go_by_name() -> None:
    fleet = Fleet(node("w0"), node("e0", region="us-east"), budget("me", envelope(selector={"cluster": "gpu-a"})))
    fleet.apply(run("x", 8, owner="org:me"))
    assert fleet.where("lab/x") == {"e0": 8}


def test_locations_of_one_cluster_are_combined_when_no_single_one_carries_the_run() -> None:
    fleet = Fleet(
        node("w0"), node("e0", region="us-east"), budget("me", envelope("w", 8), envelope("e", 8, selector=EAST))
    )
    assert payers(fleet, 16) == {"me/e": 8, "me/w": 8}
    assert {lease.node: lease.envelope for lease in fleet.leases()} == {"w0": "w", "e0": "e"}


def test_a_single_location_with_family_money_beats_a_combination() -> None:
    fleet = Fleet(
        *nodes("w", 2),
        node("e0", region="us-east"),
        budget("me", envelope("w", 8), envelope("e", 8, selector=EAST), parents=["org:up"]),
        budget("up", envelope("w", 8)),
    )
    assert payers(fleet, 16) == {"me/w": 8, "up/w": 8}


def test_a_combination_is_made_rather_than_borrowing_more() -> None:
    fleet = Fleet(
        *nodes("w", 2),
        node("e0", region="us-east"),
        budget("me", envelope("w", 8), envelope("e", 8, selector=EAST)),
        budget("far", envelope("w", 64, lends_to=["*"])),
    )
    assert payers(fleet, 16, sponsors=["org:far"]) == {"me/w": 8, "me/e": 8}


def test_a_run_never_spans_two_clusters() -> None:
    fleet = Fleet(
        node("a0"),
        node("b0", cluster="gpu-b"),
        budget("me", envelope("a", 8, selector={"cluster": "gpu-a"}), envelope("b", 8, selector={"cluster": "gpu-b"})),
    )
    fleet.apply(run("x", 16, owner="org:me", group=8))
    assert fleet.leases() == []
    assert fleet.verdict("lab/x").outcome == "never"


def test_locations_are_not_combined_for_a_run_that_may_not_spread() -> None:
    fleet = Fleet(
        node("w0"), node("e0", region="us-east"), budget("me", envelope("w", 8), envelope("e", 8, selector=EAST))
    )
    fleet.apply(run("x", 16, owner="org:me", spread=False))
    assert fleet.verdict("lab/x").outcome == "never"


def test_locations_are_not_combined_against_the_runs_own_selector() -> None:
    fleet = Fleet(
        node("w0"), node("e0", region="us-east"), budget("me", envelope("w", 8), envelope("e", 8, selector=EAST))
    )
    fleet.apply(run("x", 16, owner="org:me", where={"region": "us-west"}))
    assert fleet.verdict("lab/x").outcome == "never"


def test_a_combination_takes_what_a_common_cap_leaves_at_each_place() -> None:
    """Two western envelopes under a cap of 8 are good for 8 together, so the east must give the other 8."""
    fleet = Fleet(
        *nodes("w", 2),
        node("e0", region="us-east"),
        budget("me", envelope("w1", 8), envelope("w2", 8), caps=[cap("west", ["w1", "w2"], gpus=8)]),
        budget("me2", envelope("e", 8, selector=EAST), owner="org:me"),
    )
    assert payers(fleet, 16, group=4) == {"me/w1": 8, "me2/e": 8}


def test_the_smaller_last_group_of_a_combination_is_the_last_one() -> None:
    fleet = Fleet(
        node("w0", 4),
        node("e0", 8, region="us-east"),
        budget("me", envelope("w", 64), envelope("e", 64, selector=EAST)),
    )
    fleet.apply(run("x", 11, owner="org:me", group=4))
    sizes: dict[int, int] = {}
    for lease in fleet.leases():
        sizes[lease.group] = sizes.get(lease.group, 0) + len(lease.gpus)
    assert sizes == {0: 4, 1: 4, 2: 3}


# --- denials ------------------------------------------------------------------------------------------------------


def test_the_ten_denials_are_ordered_as_written() -> None:
    ranked = sorted((rule.precedence, code) for code, rule in RULES.items() if code in CODES)
    assert [code for _, code in ranked] == CODES


BARRED = {
    "BorrowLimit": ("far", envelope("x", lends_to=["*"])),
    "AggregateCapExceeded": ("me", envelope("capped", 64)),
    "IntegralCapExceeded": ("me", envelope("short", 64, hours=1)),
    "LendingCapExceeded": ("far2", envelope("x", lends_to=["*"], lends=1)),
    "ConcurrencyCapExceeded": ("me", envelope("narrow", 1)),
    "ACLDenied": ("far3", envelope("x", lends_to=["org:other"])),
    "SharingOptOut": ("sib", envelope("x", sharing="None")),
    "WindowClosed": ("me", envelope("later", 64, start="1h")),
    "NoEnvelope": ("me", envelope("mars", 64, selector={"region": "mars"})),
}


def denial_world(codes: list[str]) -> Fleet:
    """A world in which exactly these denials apply to a run of 8 GPUs by org:me."""
    by_owner: dict[str, list[object]] = {}
    for code in codes:
        owner, money = BARRED[code]
        by_owner.setdefault(owner, []).append(money)
    budgets = []
    for owner, envelopes in sorted(by_owner.items()):
        caps = [cap("all", ["capped"], gpus=1)] if owner == "me" and "AggregateCapExceeded" in codes else []
        budgets.append(budget(owner, *envelopes, parents=["org:up"] if owner in ("me", "sib") else [], caps=caps))  # type: ignore[arg-type]  # envelopes
    if "me" not in by_owner:
        budgets.append(budget("me", envelope(flavor="A100"), parents=["org:up"]))
    return Fleet(*nodes("n", 2), *budgets)


def denied(codes: list[str]) -> str:
    fleet = denial_world(codes)
    lenders = [owner for code, (owner, _) in BARRED.items() if code in codes and owner.startswith("far")]
    sponsors = [f"org:{owner}" for owner in lenders]
    limit = {"max_borrow": 2} if "BorrowLimit" in codes else {}
    fleet.apply(run("x", 8, owner="org:me", sponsors=sponsors, **limit))  # type: ignore[arg-type]  # the test names them
    assert not fleet.leases()
    assert fleet.condition("lab/x", "Admitted") == ("False", fleet.code("lab/x"))
    return fleet.code("lab/x")


@pytest.mark.parametrize("code", list(BARRED))
def test_each_denial_is_said_where_it_alone_applies(code: str) -> None:
    assert denied([code]) == code


@pytest.mark.parametrize(("first", "second"), list(zip(list(BARRED), list(BARRED)[1:], strict=False)))
def test_the_headline_is_the_first_that_applies(first: str, second: str) -> None:
    assert denied([second, first]) == first


def test_of_two_limits_of_one_envelope_the_more_decisive_is_the_headline() -> None:
    fleet = Fleet(*nodes("n", 2), budget("me", envelope(gpus=4, hours=6)))
    fleet.apply(run("x", 8, owner="org:me"))
    assert fleet.code("lab/x") == "IntegralCapExceeded"


def test_the_trace_lists_every_envelope_visited_with_its_own_denial() -> None:
    fleet = denial_world(
        ["IntegralCapExceeded", "ConcurrencyCapExceeded", "SharingOptOut", "WindowClosed", "NoEnvelope"]
    )
    fleet.apply(run("x", 8, owner="org:me"))
    trace = {visit.envelope: visit.limit.code for visit in fleet.verdict("lab/x").visits if visit.limit}
    assert trace == {
        "short": "IntegralCapExceeded",
        "narrow": "ConcurrencyCapExceeded",
        "later": "WindowClosed",
        "mars": "NoEnvelope",
        "x": "SharingOptOut",
    }


def test_a_denial_says_the_shortage_in_numbers() -> None:
    fleet = Fleet(*nodes("n", 4), budget("me", envelope("west", 16)))
    fleet.start(run("x", 12, owner="org:me"))
    fleet.apply(run("y", 8, owner="org:me"))
    reason = fleet.verdict("lab/y").headline
    assert reason is not None
    assert reason.data == {"envelope": "me/west", "limit": 16, "used": 12, "asked": 8, "room": 4, "short": 4}
    assert (
        fleet.run("lab/y").status.message
        == "me/west allows 16 GPUs at once; 12 are in use and 8 were asked: 4 too many."
    )


# --- never, or not now --------------------------------------------------------------------------------------------


NEVER = {
    "more than every envelope together": (budget("me", envelope(gpus=4)), "ConcurrencyCapExceeded"),
    "more than a cap over several": (
        budget("me", envelope("a", 8), envelope("b", 8), caps=[cap("all", ["a", "b"], gpus=8)]),
        "AggregateCapExceeded",
    ),
    "more hours than there ever were": (budget("me", envelope(hours=4)), "IntegralCapExceeded"),
    "money for another place": (budget("me", envelope(selector={"region": "mars"})), "NoEnvelope"),
    "no money at all": (budget("other", envelope()), "NoEnvelope"),
}


@pytest.mark.parametrize("case", NEVER)
def test_a_run_that_no_envelope_could_ever_serve_is_blocked(case: str) -> None:
    money, code = NEVER[case]
    fleet = Fleet(*nodes("n", 4), money)
    fleet.apply(run("x", 16, owner="org:me"))
    assert (fleet.verdict("lab/x").outcome, fleet.code("lab/x")) == ("never", code)
    assert fleet.condition("lab/x", "Blocked") == ("True", code)


def test_borrowing_more_than_may_ever_be_borrowed_is_blocked() -> None:
    fleet = Fleet(*nodes("n", 4), *clan(far=8, friend=8))
    fleet.apply(run("x", 16, owner="org:me", sponsors=["org:far", "org:friend"], max_borrow=8))
    assert (fleet.verdict("lab/x").outcome, fleet.code("lab/x")) == ("never", "BorrowLimit")


def test_money_that_is_only_in_use_is_worth_waiting_for() -> None:
    fleet = Fleet(*nodes("n", 4), budget("me", envelope(gpus=16)))
    fleet.start(run("x", 16, owner="org:me"))
    fleet.apply(run("y", 16, owner="org:me"))
    assert (fleet.verdict("lab/y").outcome, fleet.code("lab/y")) == ("wait", "ConcurrencyCapExceeded")
    assert fleet.condition("lab/y", "Blocked") == ("", "")


def test_committed_hours_are_worth_waiting_for_and_used_ones_are_not() -> None:
    fleet = Fleet(*nodes("n", 2), budget("me", envelope(hours=16)))
    fleet.start(run("x", 8, owner="org:me", lasts="2h"))
    fleet.apply(run("y", 8, owner="org:me", lasts="1h"))
    assert (fleet.verdict("lab/y").outcome, fleet.code("lab/y")) == ("wait", "IntegralCapExceeded")
    fleet.later("90m")
    fleet.succeed("lab/x")
    assert (fleet.verdict("lab/y").outcome, fleet.code("lab/y")) == ("never", "IntegralCapExceeded")


def test_a_run_short_of_machines_not_of_money_says_so_even_where_places_would_be_combined() -> None:
    fleet = Fleet(
        node("w0"), node("e0", region="us-east"), budget("me", envelope("w", 8), envelope("e", 8, selector=EAST)),
        budget("z", envelope(selector={"cluster": "gpu-a"})),
    )  # fmt: skip
    fleet.start(run("busy", 8, owner="org:z"))
    fleet.apply(run("x", 16, owner="org:me"))
    assert (fleet.verdict("lab/x").outcome, fleet.code("lab/x")) == ("wait", "NoCapacity")


def test_it_starts_the_moment_money_appears() -> None:
    fleet = Fleet(*nodes("n", 2), budget("me", envelope(gpus=8)))
    fleet.apply(run("x", 16, owner="org:me"))
    assert fleet.leases() == []
    fleet.apply(budget("me", envelope(gpus=16)))
    assert fleet.payers("lab/x") == {"me/main": 16}
