"""Gauges are what the state says, and are gone with what they speak of."""

from __future__ import annotations

import msgspec
import pytest

from tenure.engine import dump, load
from tenure.observe.gauges import samples
from tenure.observe.table import METRICS
from tenure.testing import Fleet, at, budget, cap, elastic, envelope, node, nodes, run
from tenure.units import HOUR
from tests.observe.support import nonzero, scrape, value, values

H100 = {"flavor": "H100-80GB"}


def test_the_queue_has_a_depth_and_an_age_and_its_reservations_a_countdown() -> None:
    fleet = Fleet(*nodes("n", 1), budget("a"))
    fleet.start(run("long", 8, owner="org:a", lasts="2h"))
    fleet.apply(run("next", 8, owner="org:a", lasts="1h"))
    fleet.apply(run("last", 8, owner="org:a", lasts="1h"))
    fleet.later("30m")
    seen = scrape(fleet)
    assert value(seen, "run_queue_depth", **H100) == 2
    assert value(seen, "run_queue_age_seconds", **H100) == 30 * 60
    assert value(seen, "reservation_backlog", state="Pending") == 2
    assert values(seen, "reservation_countdown_seconds", **H100) == {("next",): 90 * 60, ("last",): 150 * 60}
    assert nonzero(seen, "runs") == {("Running",): 1, ("Pending",): 2}


def test_an_empty_queue_is_a_zero_and_not_a_hole() -> None:
    seen = scrape(Fleet(*nodes("n", 1), budget("a")))
    assert value(seen, "run_queue_depth", **H100) == 0
    assert value(seen, "run_queue_age_seconds", **H100) == 0
    assert values(seen, "leases_open") == {("Active",): 0, ("Spare",): 0, ("Borrowed",): 0}


def test_envelopes_show_use_limits_and_hours_as_their_status_does() -> None:
    fleet = Fleet(*nodes("n", 2), budget("a", envelope("main", 12, hours=100), caps=[cap("all", ["main"], hours=90)]))
    fleet.start(run("x", 8, owner="org:a", lasts="2h"))
    fleet.later("1h")
    seen, status = scrape(fleet), fleet.headroom("a")
    where = {"budget": "a", "envelope": "main", **H100}
    assert value(seen, "budget_gpus_used", **where) == status.used == 8
    assert value(seen, "budget_gpus_limit", **where) == 12
    assert value(seen, "budget_gpus_headroom", **where) == status.concurrency == 4
    assert value(seen, "budget_gpu_hours_used", **where) == status.used_gpu_hours == 8
    assert value(seen, "budget_gpu_hours_committed", **where) == status.committed_gpu_hours == 8
    assert value(seen, "budget_gpu_hours_headroom", **where) == status.gpu_hours == 84
    assert value(seen, "budget_exhausts_seconds", **where) == 92 / 8 * 3600
    assert value(seen, "budget_cap_gpu_hours_used", budget="a", cap="all", **H100) == 8
    assert value(seen, "budget_cap_gpu_hours_limit", budget="a", cap="all", **H100) == 90
    assert values(seen, "budget_cap_gpus_limit") == {}


def test_what_is_lent_is_counted_to_the_microsecond() -> None:
    lender = budget("b", envelope("main", 8, lends_to=["org:c"]), owner="org:b")
    fleet = Fleet(*nodes("n", 1), lender)
    fleet.start(run("x", 8, owner="org:c", sponsors=["org:b"]))
    fleet.now = at("90m") + 1
    assert value(scrape(fleet), "borrowed_gpu_hours_total", budget="b", envelope="main", **H100) == 8 * (
        90 * 60 * 10**6 + 1) / HOUR  # fmt: skip


def test_series_of_a_budget_are_cleared_when_it_and_its_last_lease_are_gone() -> None:
    fleet = Fleet(*nodes("n", 1), budget("a"), budget("b"))
    fleet.start(run("x", 8, owner="org:a"))
    where = {"budget": "a", "envelope": "main", **H100}
    fleet.delete("Budget", "a")
    assert value(scrape(fleet), "budget_gpus_headroom", **where) == -8, "its work still costs"
    fleet.succeed("lab/x")
    seen = scrape(fleet)
    assert values(seen, "budget_gpus_used", **where) == {}
    assert set(values(seen, "budget_gpus_used")) == {("b", "main", "H100-80GB")}


def test_machines_slots_and_spares_are_told_by_flavor_and_place() -> None:
    fleet = Fleet(*nodes("n", 2), node("down", cordoned=True), node("odd", labels={"gpu.flavor": "x"}), budget("a"))
    fleet.start(run("x", 4, owner="org:a", group=4, spares=2))
    fleet.start(run("y", 8, owner="org:a", opportunistic=True))
    seen = scrape(fleet)
    assert nonzero(seen, "nodes") == {("open",): 2, ("closed",): 1, ("quarantined",): 1}
    assert value(seen, "gpus_capacity", **H100) == 16
    assert value(seen, "spare_gpus_allocated", **H100) == 2
    held = values(seen, "gpus_leased", **H100)
    assert held[("Active",)] + held[("Borrowed",)] == 12
    assert value(seen, "spare_gpus_active", **H100) == held[("Borrowed",)]
    fit = values(seen, "slots_fit", region="us-west", cluster="gpu-a", **H100)
    assert fit[("1",)] == 16 - held[("Active",)] - 2
    assert set(values(seen, "slots_ideal")) == set(values(seen, "slots_fit"))


def test_elastic_width_is_summed_over_running_elastic_runs() -> None:
    fleet = Fleet(*nodes("n", 3), budget("a"))
    fleet.start(run("x", 8, owner="org:a", elastic=elastic(8, 24, 8, desired=16)), run("y", 4, owner="org:a"))
    assert values(scrape(fleet), "elastic_width_gpus", **H100) == {("min",): 8, ("allocated",): 8, ("desired",): 16}


def test_a_flavor_that_somebody_made_up_makes_no_series() -> None:
    fleet = Fleet(*nodes("n", 1), budget("a"))
    for number in range(5):
        fleet.apply(run(f"x{number}", 8, owner="org:a", flavor=f"fantasy-{number}"))
    assert values(scrape(fleet), "run_queue_depth") == {("H100-80GB",): 0, ("other",): 5}


def test_to_look_changes_nothing() -> None:
    fleet = Fleet(*nodes("n", 2), budget("a", envelope("main", 64, hours=100)))
    fleet.start(run("x", 8, owner="org:a", lasts="2h"))
    fleet.apply(run("y", 16, owner="org:a", lasts="1h"))
    before = dump(fleet.state)
    list(samples(fleet.state, now=fleet.now + 3 * HOUR))
    assert dump(fleet.state) == before
    fleet.later("3h")
    other = load(before)
    assert [*samples(other, now=fleet.now)] != []
    fleet.audit(settled=False)


@pytest.mark.parametrize("name", sorted(METRICS))
def test_names_follow_the_conventions(name: str) -> None:
    metric = METRICS[name]
    assert (metric.kind == "counter") == name.endswith("_total")
    assert (metric.kind == "histogram") == bool(metric.buckets)
    assert metric.buckets == tuple(sorted(metric.buckets))
    assert metric.help.endswith(".")
    assert len(metric.all_series()) <= 64, "of labels that are known in advance"
    assert msgspec.structs.asdict(metric)["name"] == name
