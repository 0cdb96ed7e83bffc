"""SPEC 3: what was used, what is promised, what is left, and who is told when it runs out."""

from __future__ import annotations

import msgspec
import pytest

from tenure.api.budget import Budget
from tenure.api.policy import Policy
from tenure.engine import Report, SetPolicy, Sighting, Tick, dump, load, next_wake, render, step
from tenure.facts import Warned
from tenure.testing import Fleet, at, budget, cap, envelope, node, nodes, run
from tenure.units import HOUR, MINUTE, SECOND, parse_time

COAST = Policy(on_budget_shortage="Coast")


def edited(fleet: Fleet, name: str, **terms: object) -> Budget:
    """A Budget with some terms of its first envelope changed."""
    item = fleet.state.budgets[name]
    first, *rest = item.spec.envelopes
    changed = msgspec.structs.replace(first, **terms)
    return msgspec.structs.replace(item, spec=msgspec.structs.replace(item.spec, envelopes=(changed, *rest)))


def used(fleet: Fleet, name: str = "a", envelope_name: str = "main") -> float:
    return fleet.headroom(name, envelope_name).used_gpu_hours


def warned(fleet: Fleet) -> list[tuple[str, str]]:
    """Notices that went out: (offset in minutes, mark)."""
    return [
        (f"{(entry.at - at('0s')) / MINUTE:g}m", fact.mark)
        for entry in fleet.entries
        for fact in entry.facts
        if isinstance(fact, Warned)
    ]


# --- use ----------------------------------------------------------------------------------------------------------


def test_use_is_gpus_times_time() -> None:
    fleet = Fleet(node("n0"), budget("a"))
    fleet.start(run("x", 6, owner="org:a"))
    fleet.later("90m")
    assert used(fleet) == 9.0
    assert fleet.headroom("a").used == 6


def test_use_is_exact_to_the_microsecond_and_independent_of_looks() -> None:
    looked, unlooked = (Fleet(node("n0"), budget("a")) for _ in range(2))
    for fleet in (looked, unlooked):
        fleet.start(run("x", 7, owner="org:a"))
    for _ in range(100):
        looked.later("333us")
        used(looked)
    unlooked.later("33300us")
    for fleet in (looked, unlooked):
        fleet.succeed("lab/x")
    charges = [fleet.auditor.charges(fleet.now) for fleet in (looked, unlooked)]
    assert charges[0] == charges[1]
    assert sum(charges[0].values()) == 7 * 33_300
    assert dump(looked.state) == dump(unlooked.state)


def test_concurrency_counts_open_leases_of_all_roles() -> None:
    fleet = Fleet(*nodes("n", 2), budget("a", envelope(gpus=12)))
    fleet.start(run("x", 8, owner="org:a", group=8, spares=4))
    room = fleet.headroom("a")
    assert (room.used, room.spare, room.concurrency) == (12, 4, 0)


def test_spares_are_charged_at_the_full_rate_and_shown_apart() -> None:
    fleet = Fleet(*nodes("n", 2), budget("a"))
    fleet.start(run("x", 8, owner="org:a", group=8, spares=4))
    fleet.later("1h")
    assert used(fleet) == 12.0
    assert fleet.headroom("a").spare == 4
    assert [one.available for one in fleet.run("lab/x").status.spares] == [4]


def test_a_lease_is_charged_until_its_pod_is_gone_not_until_the_stop_was_decided() -> None:
    fleet = Fleet(node("n0"), budget("a"))
    fleet.start(run("x", 8, owner="org:a"))
    fleet.later("1h")
    fleet.delete("Run", "lab/x")
    fleet.later("30m")
    fleet.leave("lab/x")
    assert used(fleet) == 12.0
    assert {one.end for one in fleet.closed().values()} == {at("90m")}


def test_use_before_start_under_allow_admission_counts() -> None:
    fleet = Fleet(node("n0"), budget("a", envelope(start="2h", early=True, hours=100)))
    fleet.start(run("x", 8, owner="org:a"))
    fleet.later("3h")
    assert used(fleet) == 24.0
    assert fleet.headroom("a").gpu_hours == 76.0


def test_closed_leases_still_count_against_the_hours() -> None:
    fleet = Fleet(node("n0"), budget("a", envelope(hours=16)))
    fleet.start(run("x", 8, owner="org:a"))
    fleet.later("1h")
    fleet.succeed("lab/x")
    fleet.apply(run("y", 8, owner="org:a", lasts="2h"))
    assert fleet.code("lab/y") == "IntegralCapExceeded"
    fleet.apply(run("z", 8, owner="org:a", lasts="1h"))
    assert fleet.payers("lab/z") == {"a/main": 8}


# --- spent is spent -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("edge", ["start", "end"])
def test_editing_the_window_begins_a_new_account_with_its_own_hours(edge: str) -> None:
    fleet = Fleet(node("n0"), budget("a", envelope(hours=10)))
    fleet.start(run("x", 8, owner="org:a"))
    fleet.later("1h")
    when = {"start": "2025-10-01T00:00:00Z", "end": "2026-10-01T00:00:00Z"}[edge]
    fleet.apply(edited(fleet, "a", **{edge: when}))
    assert used(fleet) == 0.0
    fleet.later("30m")
    assert used(fleet) == 4.0
    assert fleet.headroom("a").gpu_hours == 6.0
    assert sorted(fleet.auditor.charges(fleet.now).values()) == [4 * HOUR, 8 * HOUR]


@pytest.mark.parametrize(
    "terms",
    [
        {"concurrency": 32},
        {"max_gpu_hours": 50},
        {"sharing": "None"},
        {"selector": {"region": "us-west", "cluster": "gpu-a"}},
        {"selector": {"region": "elsewhere"}},
    ],
    ids=lambda terms: next(iter(terms)),
)
def test_any_other_edit_keeps_the_account(terms: dict[str, object]) -> None:
    fleet = Fleet(node("n0"), budget("a", envelope(hours=40)))
    fleet.start(run("x", 8, owner="org:a"))
    fleet.later("1h")
    fleet.apply(edited(fleet, "a", **terms))
    fleet.later("1h")
    assert used(fleet) == 16.0


def test_a_window_that_comes_back_goes_on_with_what_was_spent_in_it() -> None:
    fleet = Fleet(node("n0"), budget("a", envelope(hours=40)))
    fleet.start(run("x", 8, owner="org:a"))
    fleet.later("1h")
    fleet.apply(edited(fleet, "a", end="2026-10-01T00:00:00Z"))
    fleet.later("1h")
    fleet.apply(edited(fleet, "a", end=None))
    assert used(fleet) == 8.0


def test_deleting_a_budget_lowers_its_limits_to_zero_and_its_leases_stay() -> None:
    fleet = Fleet(*nodes("n", 2), budget("a"))
    fleet.start(run("x", 8, owner="org:a"))
    fleet.delete("Budget", "a")
    assert len(fleet.leases("lab/x")) == 1
    assert fleet.phase("lab/x") == "Running"
    fleet.apply(run("y", 1, owner="org:a"))
    assert fleet.verdict("lab/y").outcome == "never"
    assert fleet.code("lab/y") == "NoEnvelope"


def test_a_budget_that_is_created_again_goes_on_with_what_was_spent() -> None:
    fleet = Fleet(node("n0"), budget("a", envelope(hours=40)))
    fleet.start(run("x", 8, owner="org:a"))
    fleet.later("1h")
    fleet.delete("Budget", "a")
    fleet.later("1h")
    fleet.apply(budget("a", envelope(hours=40)))
    assert used(fleet) == 16.0
    assert fleet.headroom("a").used == 8


def test_an_envelope_that_is_taken_out_and_put_back_goes_on_with_what_was_spent() -> None:
    both = budget("a", envelope("one", 8), envelope("two", 8))
    fleet = Fleet(*nodes("n", 2), both)
    fleet.start(run("x", 16, owner="org:a"))
    fleet.later("1h")
    fleet.apply(budget("a", envelope("two", 8)))
    fleet.later("1h")
    fleet.apply(both)
    assert used(fleet, "a", "one") == 16.0
    fleet.audit()


def test_a_claim_that_ends_after_its_budget_was_deleted_is_still_charged() -> None:
    fleet = Fleet(node("n0"), budget("a"))
    fleet.start(run("x", 8, owner="org:a"))
    fleet.delete("Budget", "a")
    fleet.later("1h")
    fleet.succeed("lab/x")
    assert sum(fleet.auditor.charges(fleet.now).values()) == 8 * HOUR
    fleet.audit()


def test_what_an_edit_put_into_the_books_stays_even_if_a_pod_turns_out_to_have_ended_before() -> None:
    """A daemon was away: the pod ended at 1h, the window was edited at 2h, the end is reported at 3h."""
    fleet = Fleet(node("n0"), budget("a"))
    fleet.start(run("x", 8, owner="org:a"))
    fleet.later("2h")
    fleet.apply(edited(fleet, "a", end="2026-10-01T00:00:00Z"))
    fleet.later("1h")
    fleet.handle(Report((Sighting("lab/x-a1-0", "Succeeded", 0, "", at("1h")),)))
    assert [one.end for one in fleet.closed().values()] == [at("2h")]
    assert used(fleet) == 0.0
    assert sum(fleet.auditor.charges(fleet.now).values()) == 16 * HOUR


def test_a_pod_that_ended_while_nobody_looked_is_charged_until_it_ended() -> None:
    fleet = Fleet(node("n0"), budget("a"))
    fleet.start(run("x", 8, owner="org:a"))
    fleet.later("3h")
    fleet.handle(Report((Sighting("lab/x-a1-0", "Succeeded", 0, "", at("1h")),)))
    assert used(fleet) == 8.0


# --- committed ----------------------------------------------------------------------------------------------------


def test_committed_hours_are_what_declared_claims_may_still_use() -> None:
    fleet = Fleet(node("n0"), budget("a", envelope(hours=100)))
    fleet.start(run("x", 4, owner="org:a", lasts="5h"), run("y", 2, owner="org:a"))
    fleet.later("2h")
    room = fleet.headroom("a")
    assert (room.used_gpu_hours, room.committed_gpu_hours, room.gpu_hours) == (12.0, 12.0, 76.0)


def test_a_claim_that_overstays_its_declaration_commits_nothing_more() -> None:
    fleet = Fleet(node("n0"), budget("a", envelope(hours=100)))
    fleet.start(run("x", 4, owner="org:a", lasts="1h"))
    fleet.later("3h")
    room = fleet.headroom("a")
    assert (room.used_gpu_hours, room.committed_gpu_hours) == (12.0, 0.0)


def test_committed_hours_come_back_when_a_claim_ends_early() -> None:
    fleet = Fleet(node("n0"), budget("a", envelope(hours=40)))
    fleet.start(run("x", 8, owner="org:a", lasts="5h"))
    fleet.later("1h")
    fleet.succeed("lab/x")
    room = fleet.headroom("a")
    assert (room.committed_gpu_hours, room.gpu_hours) == (0.0, 32.0)


def test_remaining_hours_count_what_is_committed_for_envelopes_caps_and_lending_alike() -> None:
    fleet = Fleet(
        *nodes("n", 3),
        budget("env", envelope(hours=40)),
        budget("cap", envelope(), caps=[cap("all", ["main"], hours=40)]),
        budget("lend", envelope(lends_to=["*"], lends_hours=40, hours=1000)),
    )
    fleet.start(
        run("e", 8, owner="org:env", lasts="4h"),
        run("c", 8, owner="org:cap", lasts="4h"),
        run("l", 8, owner="org:poor", sponsors=["org:lend"], lasts="4h"),
    )
    fleet.apply(*nodes("m", 3))
    fleet.apply(
        run("e2", 8, owner="org:env", lasts="2h"),
        run("c2", 8, owner="org:cap", lasts="2h"),
        run("l2", 8, owner="org:poor", sponsors=["org:lend"], lasts="2h"),
    )
    codes = [fleet.code(f"lab/{name}") for name in ("e2", "c2", "l2")]
    assert codes == ["IntegralCapExceeded", "AggregateCapExceeded", "LendingCapExceeded"]


def test_a_cap_shows_used_committed_and_left() -> None:
    fleet = Fleet(
        *nodes("n", 2),
        budget("a", envelope("w", 8), envelope("v", 8), caps=[cap("all", ["w", "v"], gpus=20, hours=100)]),
    )
    fleet.start(run("x", 16, owner="org:a", lasts="3h"))
    fleet.later("1h")
    item = render.budget(fleet.state, fleet.state.budgets["a"], now=fleet.now)
    (room,) = item.status.aggregate_headroom
    assert (room.used, room.concurrency, room.used_gpu_hours, room.committed_gpu_hours) == (16, 4, 16.0, 32.0)
    assert room.gpu_hours == 52.0


# --- seen coming --------------------------------------------------------------------------------------------------


def test_exhaustion_is_known_exactly() -> None:
    fleet = Fleet(node("n0"), budget("a", envelope(hours=10)))
    fleet.start(run("x", 8, owner="org:a"))
    assert fleet.headroom("a").exhausts_at == "2025-11-01T01:15:00Z"


def test_exhaustion_moves_with_the_rate() -> None:
    fleet = Fleet(node("n0"), budget("a", envelope(hours=10)))
    fleet.start(run("x", 4, owner="org:a"))
    fleet.later("30m")
    fleet.start(run("y", 4, owner="org:a"))
    assert fleet.headroom("a").exhausts_at == "2025-11-01T01:30:00Z"


def test_the_end_of_a_window_is_an_exhaustion_too() -> None:
    fleet = Fleet(node("n0"), budget("a", envelope(hours=100, end="2h")))
    fleet.start(run("x", 8, owner="org:a"))
    assert fleet.headroom("a").exhausts_at == "2025-11-01T02:00:00Z"


@pytest.mark.parametrize("spent", ["by an edit", "by use"])
def test_regression_what_has_run_out_says_since_when_and_does_not_run_with_the_clock(spent: str) -> None:
    """It said `now`, so that an operator wrote the Budget's status anew every second (cluster seed 13)."""
    fleet = Fleet(node("n0"), budget("a", envelope(hours=10)), policy=Policy(on_budget_shortage="Coast"))
    fleet.start(run("x", 8, owner="org:a"))
    fleet.later("1h")
    if spent == "by an edit":
        fleet.apply(budget("a", envelope(hours=5)))
        since = "2025-11-01T01:00:00Z"
    else:
        fleet.later("1h")
        since = "2025-11-01T01:15:00Z"
    assert fleet.headroom("a").exhausts_at == since
    fleet.later("1m")
    assert fleet.state.books.funds["a", "main"].total.rate == 8
    assert fleet.headroom("a").exhausts_at == since


def test_nothing_exhausts_where_nothing_is_used() -> None:
    fleet = Fleet(node("n0"), budget("a", envelope(hours=10)))
    assert fleet.headroom("a").exhausts_at is None


def test_the_engine_asks_to_be_woken_at_the_next_mark_and_does_not_poll() -> None:
    fleet = Fleet(node("n0"), budget("a", envelope(hours=10)))
    fleet.start(run("x", 8, owner="org:a"))
    wakes = []
    while (wake := next_wake(fleet.state)) is not None:
        wakes.append((wake - at("0s")) // MINUTE)
        fleet.until(wake)
    assert wakes == [60, 67, 75]  # 80 % (and 15 minutes' grace), 90 % at 67.5, exhausted


def test_notices_go_out_at_80_and_90_per_cent_a_grace_ahead_and_at_the_end() -> None:
    fleet = Fleet(node("n0"), budget("a", envelope(hours=80)), secret="")
    fleet.start(run("x", 8, owner="org:a"))
    fleet.later("1d")
    assert warned(fleet) == [("480m", "80"), ("540m", "90"), ("585m", "soon"), ("600m", "exhausted")]


def test_each_notice_goes_out_once() -> None:
    fleet = Fleet(node("n0"), budget("a", envelope(hours=80)))
    fleet.start(run("x", 8, owner="org:a"))
    fleet.later("8h")
    fleet.succeed("lab/x")
    fleet.start(run("y", 8, owner="org:a"))
    fleet.later("30m")
    assert warned(fleet) == [("480m", "80")]


def test_the_notices_are_those_of_the_policy() -> None:
    fleet = Fleet(node("n0"), budget("a", envelope(hours=80)), policy=Policy(notices=(50,), budget_grace="1h"),
                  secret="")  # fmt: skip
    fleet.start(run("x", 8, owner="org:a"))
    fleet.later("1d")
    assert warned(fleet) == [("300m", "50"), ("540m", "soon"), ("600m", "exhausted")]


def test_another_policy_counts_at_once() -> None:
    fleet = Fleet(node("n0"), budget("a", envelope(hours=80)))
    fleet.start(run("x", 8, owner="org:a"))
    fleet.later("6h")
    fleet.handle(SetPolicy(Policy(notices=(50, 75), budget_grace="3h")))
    fleet.later("90m")
    assert warned(fleet) == [("360m", "50"), ("420m", "soon"), ("450m", "75")]


def test_the_end_of_a_window_is_announced_a_grace_ahead_and_at_the_instant() -> None:
    fleet = Fleet(node("n0"), budget("a", envelope(end="2h")), secret="")
    fleet.start(run("x", 8, owner="org:a"))
    fleet.later("3h")
    assert warned(fleet) == [("105m", "soon"), ("120m", "window")]
    assert [note.reason for note in fleet.notes("BudgetNotice")] == ["ExhaustsSoon", "WindowOver"]


def test_a_window_that_ends_over_nothing_is_no_news() -> None:
    fleet = Fleet(node("n0"), budget("a", envelope(end="2h", hours=10)))
    fleet.later("3h")
    assert warned(fleet) == []


def test_a_new_window_is_announced_anew() -> None:
    fleet = Fleet(node("n0"), budget("a", envelope(hours=10)))
    fleet.start(run("x", 8, owner="org:a"))
    fleet.later("1h")
    fleet.apply(edited(fleet, "a", end="2026-10-01T00:00:00Z"))
    fleet.later("1h")
    assert [mark for _, mark in warned(fleet)] == ["80", "soon", "80", "soon"]


def test_a_limit_lowered_below_use_is_announced_at_once() -> None:
    fleet = Fleet(node("n0"), budget("a", envelope(hours=80)))
    fleet.start(run("x", 8, owner="org:a"))
    fleet.later("5h")
    fleet.apply(edited(fleet, "a", max_gpu_hours=45))
    assert warned(fleet) == [("300m", "80")]
    fleet.audit()


def test_a_raised_limit_is_watched_anew() -> None:
    fleet = Fleet(node("n0"), budget("a", envelope(hours=80)))
    fleet.start(run("x", 8, owner="org:a"))
    fleet.later("9h")
    fleet.apply(edited(fleet, "a", max_gpu_hours=160))
    fleet.later("8h")
    assert warned(fleet)[-1] == ("960m", "80")


def test_an_exhausted_envelope_admits_nothing_more() -> None:
    fleet = Fleet(*nodes("n", 2), budget("a", envelope(hours=10)))
    fleet.start(run("x", 8, owner="org:a"))
    fleet.later("75m")
    fleet.apply(run("y", 1, owner="org:a"))
    assert fleet.code("lab/y") == "IntegralCapExceeded"
    assert fleet.verdict("lab/y").outcome == "never"


def test_the_hours_of_a_cap_are_announced_when_they_run_out() -> None:
    fleet = Fleet(
        *nodes("n", 2),
        budget("a", envelope("w", 8), envelope("v", 8), caps=[cap("all", ["w", "v"], hours=32)]),
    )
    fleet.start(run("x", 16, owner="org:a"))
    fleet.later("3h")
    assert [(when, mark) for when, mark in warned(fleet) if mark == "exhausted"] == [("120m", "exhausted")]
    assert any("a/all" in note.message for note in fleet.notes("BudgetNotice"))


def capped(hours: int) -> Fleet:
    """Sixteen GPUs of two envelopes, under a cap of so many hours; one of them pays only half of the time."""
    money = budget("a", envelope("v", 8), envelope("w", 8), caps=[cap("all", ["v", "w"], hours=hours)])
    fleet = Fleet(*nodes("n", 2), money, secret="")
    fleet.start(run("x", 8, owner="org:a"))
    fleet.later("1h")
    fleet.start(run("y", 8, owner="org:a"))
    return fleet


def test_a_cap_is_announced_as_an_envelope_is() -> None:
    """72 hours: 8 in the first hour, and 16 an hour from then on."""
    fleet = capped(72)
    fleet.later("1d")
    assert warned(fleet) == [("246m", "80"), ("273m", "90"), ("285m", "soon"), ("300m", "exhausted")]
    said = [(note.object, note.reason, note.message) for note in fleet.notes("BudgetNotice")]
    assert said[:2] == [
        ("Budget/a", "HoursNotice", "a/all has used 80 % of its 72 GPU-hours."),
        ("Budget/a", "HoursNotice", "a/all has used 90 % of its 72 GPU-hours."),
    ]


def test_a_share_of_a_cap_is_announced_once_and_again_of_another_cap() -> None:
    fleet = capped(72)
    fleet.later("200m")
    assert warned(fleet) == [("246m", "80")]
    fleet.succeed("lab/y")
    fleet.start(run("z", 8, owner="org:a"))
    assert warned(fleet) == [("246m", "80")]
    item = fleet.state.budgets["a"]
    spec = msgspec.structs.replace(item.spec, aggregate_caps=(cap("all", ["v", "w"], hours=96),))
    fleet.apply(msgspec.structs.replace(item, spec=spec))
    fleet.later("1h30m")
    assert [mark for _, mark in warned(fleet)] == ["80", "80"]


def test_a_share_of_a_cap_is_announced_anew_in_a_new_window() -> None:
    """The account of `v` begins anew, so that the cap has less than half of its hours spent."""
    fleet = capped(72)
    fleet.later("200m")
    fleet.apply(edited(fleet, "a", end="2026-10-01T00:00:00Z"))
    assert warned(fleet) == [("246m", "80")]
    fleet.later("160m")
    assert [mark for _, mark in warned(fleet)] == ["80", "80", "90", "soon"]


def over(fleet: Fleet, name: str = "a") -> list[tuple[str, str]]:
    item = render.budget(fleet.state, fleet.state.budgets[name], now=fleet.now)
    return [(mark.reason, mark.message) for mark in item.status.conditions if mark.type == "OverBudget"]


def test_a_budget_within_its_limits_is_not_reported() -> None:
    fleet = Fleet(node("n0"), budget("a", envelope(gpus=8, hours=80)))
    fleet.start(run("x", 8, owner="org:a"))
    assert over(fleet) == []


def test_a_concurrency_lowered_below_use_is_reported_as_such() -> None:
    fleet = Fleet(node("n0"), budget("a", envelope(gpus=8)))
    fleet.start(run("x", 8, owner="org:a"))
    fleet.apply(edited(fleet, "a", concurrency=6))
    ((reason, message),) = over(fleet)
    assert (reason, message) == ("OverBudget", "a/main pays for 8 GPUs and allows 6.")


def test_an_envelope_that_was_taken_out_of_its_budget_shows_what_it_still_pays_for() -> None:
    fleet = Fleet(node("n0"), budget("a", envelope("west", 8)))
    fleet.start(run("x", 8, owner="org:a"))
    fleet.apply(budget("a", envelope("east", 8)))
    shown = fleet.headroom("a", "west")
    assert (shown.used, shown.concurrency) == (8, -8)
    assert over(fleet) == [("OverBudget", "a/west pays for 8 GPUs and allows 0.")]


def test_several_envelopes_over_their_limits_are_one_condition() -> None:
    fleet = Fleet(*nodes("n", 2), budget("a", envelope("x", 8), envelope("y", 8)))
    fleet.start(run("x", 16, owner="org:a"))
    fleet.apply(budget("a", envelope("x", 4), envelope("y", 4)))
    ((_, message),) = over(fleet)
    assert "a/x" in message
    assert "a/y" in message


def test_hours_that_ran_out_under_running_work_are_reported_as_such() -> None:
    fleet = Fleet(node("n0"), budget("a", envelope(gpus=8, hours=8)))
    fleet.start(run("x", 8, owner="org:a"))
    fleet.later("2h")
    assert [reason for reason, _ in over(fleet)] == ["Exhausted"]


# --- time ---------------------------------------------------------------------------------------------------------


def test_time_never_runs_back() -> None:
    fleet = Fleet(node("n0"), budget("a"))
    fleet.later("1h")
    fleet.now = at("30m")
    fleet.start(run("x", 8, owner="org:a"))
    assert {lease.start for lease in fleet.leases()} == {at("1h")}


def test_instants_are_read_to_the_microsecond() -> None:
    assert parse_time("2025-11-01T00:00:00.000001Z") - parse_time("2025-11-01T00:00:00Z") == SECOND // 1_000_000


def test_a_settled_world_comes_back_from_its_image_with_the_same_money() -> None:
    fleet = Fleet(node("n0"), budget("a", envelope(hours=80)))
    fleet.start(run("x", 4, owner="org:a", lasts="5h"), run("y", 4, owner="org:a"))
    fleet.later("9h")
    twin = load(dump(fleet.state))
    assert dump(twin) == dump(fleet.state)
    assert not step(twin, Tick(), now=fleet.now).facts
    assert next_wake(twin) == next_wake(fleet.state)


# --- since when -------------------------------------------------------------------------------------------------------


def since(fleet: Fleet, name: str = "a") -> str:
    """When the condition OverBudget became true, in minutes from the start; the same for a state that was rebuilt."""
    states = (fleet.state, load(dump(fleet.state)))
    found = [render.budget(state, state.budgets[name], now=fleet.now).status.conditions for state in states]
    assert found[0] == found[1]
    [mark] = found[0]
    return f"{(parse_time(mark.last_transition_time or '') - at('0s')) / MINUTE:g}m"


def test_a_condition_is_true_since_the_edit_that_put_the_limit_below_the_use() -> None:
    fleet = Fleet(*nodes("n", 2), budget("a", envelope(gpus=16)), policy=COAST)
    fleet.start(run("x", 16, owner="org:a"))
    fleet.later("10m")
    fleet.apply(edited(fleet, "a", concurrency=8))
    fleet.later("1h")
    assert since(fleet) == "10m"
    fleet.apply(edited(fleet, "a", concurrency=4))
    fleet.apply(edited(fleet, "a", concurrency=12))
    assert since(fleet) == "10m", "it was over all the time"
    fleet.apply(edited(fleet, "a", concurrency=16))
    assert over(fleet) == []
    fleet.later("5m")
    fleet.apply(edited(fleet, "a", concurrency=8))
    fleet.later("5m")
    assert since(fleet) == "75m", "and is over anew"


def spender() -> Fleet:
    """8 GPU-hours, and two runs that use them up in half an hour."""
    policy = msgspec.structs.replace(COAST, lookahead="0s")
    fleet = Fleet(*nodes("n", 2), budget("a", envelope(gpus=16, hours=8)), policy=policy)
    fleet.start(run("x", 8, owner="org:a"), run("y", 8, owner="org:a"))
    return fleet


def test_hours_are_overspent_since_they_were_spent_whatever_ended_since() -> None:
    fleet = spender()
    fleet.later("40m")
    fleet.succeed("lab/y")  # another rate than at the crossing
    fleet.later("1h")
    assert since(fleet) == "30m"
    fleet.apply(edited(fleet, "a", max_gpu_hours=9))
    assert since(fleet) == "30m"
    fleet.apply(edited(fleet, "a", max_gpu_hours=100))
    assert over(fleet) == []


def test_hours_are_overspent_since_they_were_spent_also_if_nobody_has_looked_at_the_clock() -> None:
    fleet = spender()
    fleet.now = at("2h")
    assert since(fleet) == "30m"


def test_hours_lowered_below_what_was_used_are_overspent_since_then() -> None:
    fleet = Fleet(node("n0"), budget("a", envelope(gpus=8, hours=80)), policy=COAST)
    fleet.start(run("x", 8, owner="org:a"))
    fleet.later("2h")
    fleet.apply(edited(fleet, "a", max_gpu_hours=8))
    fleet.later("1h")
    assert since(fleet) == "120m"


def test_a_cap_over_its_limit_is_a_condition_too() -> None:
    item = budget("a", envelope("w", 8), envelope("v", 8), caps=[cap("all", ["w", "v"], gpus=16, hours=32)])
    fleet = Fleet(*nodes("n", 2), item, policy=COAST)
    fleet.start(run("x", 16, owner="org:a"))
    fleet.later("10m")
    assert over(fleet) == []
    lower = budget("a", envelope("w", 8), envelope("v", 8), caps=[cap("all", ["w", "v"], gpus=12, hours=32)])
    fleet.apply(lower)
    fleet.later("10m")
    assert (over(fleet), since(fleet)) == ([("OverBudget", "a/all pays for 16 GPUs and allows 12.")], "10m")
    fleet.apply(item)
    assert over(fleet) == []
    fleet.later("3h")
    [(reason, message)] = over(fleet)
    assert (reason, since(fleet)) == ("Exhausted", "120m")
    assert message == "a/all has spent its 32 GPU-hours: it admits nothing more."


def test_of_several_crossings_the_first_is_told() -> None:
    fleet = Fleet(*nodes("n", 2), budget("a", envelope("x", 8), envelope("y", 8)), policy=COAST)
    fleet.start(run("x", 16, owner="org:a"))
    fleet.apply(budget("a", envelope("x", 8), envelope("y", 4)))
    fleet.later("10m")
    fleet.apply(budget("a", envelope("x", 4), envelope("y", 4)))
    fleet.later("10m")
    assert since(fleet) == "0m"
    fleet.apply(budget("a", envelope("x", 4), envelope("y", 8)))
    assert since(fleet) == "10m"
