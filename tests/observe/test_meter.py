"""What a driver tells its metrics: bounded, cleared when its object goes, and shown by the one that decides."""

from __future__ import annotations

from collections.abc import Iterable
from threading import Thread

import pytest

from tenure.facts import Entry
from tenure.observe import METRICS, Metrics
from tenure.observe.exposition import text
from tenure.observe.meter import Meter
from tenure.observe.table import SERIES_MAX
from tenure.testing import Fleet, budget, envelope, nodes, run
from tests.observe.support import parsed, scrape, told, value, values

H100 = {"flavor": "H100-80GB"}
ISSUE = [
    "run_admissions_total",
    "run_admission_latency_seconds",
    "run_queue_depth",
    "run_queue_age_seconds",
    "leases_open",
    "leases_closed_total",
    "reservation_backlog",
    "reservation_countdown_seconds",
    "forecast_error_seconds",
    "resolver_runs_total",
    "resolver_cuts_total",
    "resolver_draws_total",
    "spare_gpus_allocated",
    "spare_gpus_active",
    "spare_swaps_total",
    "filler_preemptions_total",
    "elastic_grows_total",
    "elastic_shrinks_total",
    "elastic_width_gpus",
    "borrowing_attempts_total",
    "borrowing_denied_total",
    "borrowed_gpus_current",
    "borrowed_gpu_hours_total",
    "budget_gpus_used",
    "budget_gpus_headroom",
    "budget_gpu_hours_used",
    "slots_fit",
    "ledger_entries_total",
    "ledger_commit_seconds",
    "watch_lag_seconds",
    "notifier_outbox_events",
]
"""What issue 5 asks for, by the names it got."""


class Home:
    """As much of a home as a meter looks at."""

    def __init__(self, fleet: Fleet) -> None:
        self._fleet = fleet

    @property
    def state(self) -> object:
        return self._fleet.state

    @property
    def seq(self) -> int:
        return self._fleet.entries[-1].seq

    @property
    def store(self) -> Home:
        return self

    def entries(self, after: int = 0, until: int | None = None) -> Iterable[Entry]:
        return [one for one in self._fleet.entries if after < one.seq <= (until or self.seq)]


@pytest.fixture
def fleet() -> Fleet:
    fleet = Fleet(*nodes("n", 1), budget("a"))
    fleet.start(run("x", 8, owner="org:a"))
    return fleet


def meter(fleet: Fleet) -> Meter:
    return Meter(Metrics(), lambda: fleet.now)


def looked(meter: Meter, home: Home) -> None:
    """A scrape asks, and is answered at the next turn."""
    asking = Thread(target=lambda: meter.metrics.ask(patience=10))
    asking.start()
    while not meter.metrics.wanted:
        pass
    meter.look(home)  # type: ignore[arg-type]  # a home in name only
    asking.join()


@pytest.mark.parametrize("name", ISSUE)
def test_every_name_of_the_issue_is_in_the_table(name: str) -> None:
    assert name in METRICS


def test_what_was_there_before_is_not_counted_and_what_comes_is(fleet: Fleet) -> None:
    one, home = meter(fleet), Home(fleet)
    one.begin(home)  # type: ignore[arg-type]  # a home in name only
    for entry in fleet.entries:
        one.saw(entry)
    assert value(parsed(text(one.metrics)), "ledger_entries_total") == 0
    fleet.apply(run("y", 8, owner="org:a"))
    one.saw(fleet.entries[-1])
    seen = parsed(text(one.metrics))
    assert value(seen, "ledger_entries_total") == 1
    assert value(seen, "run_admissions_total", result="failure") == 1


def test_of_two_operators_only_the_one_that_decides_shows_the_state(fleet: Fleet) -> None:
    one, home = meter(fleet), Home(fleet)
    one.begin(home)  # type: ignore[arg-type]  # a home in name only
    looked(one, home)
    assert value(parsed(text(one.metrics)), "leases_open", role="Active") == 1
    one.rest()
    seen = parsed(text(one.metrics))
    assert values(seen, "leases_open") == values(seen, "budget_gpus_used") == values(seen, "metrics_age_seconds") == {}
    assert value(seen, "controller_ready") == 1
    fleet.apply(run("y", 8, owner="org:a"))  # decided by the other
    one.begin(home)  # type: ignore[arg-type]  # a home in name only
    one.saw(fleet.entries[-1])
    looked(one, home)
    seen = parsed(text(one.metrics))
    assert value(seen, "run_queue_depth", **H100) == 1
    assert value(seen, "ledger_entries_total") == 0, "the other has counted it"


def test_a_standby_answers_scrapes_at_once(fleet: Fleet) -> None:
    one = meter(fleet)
    asking = Thread(target=lambda: one.metrics.ask(patience=60))
    asking.start()
    while not one.metrics.wanted:
        pass
    one.rest()
    asking.join(10)
    assert not asking.is_alive()


def test_a_scrape_wakes_a_driver_that_sleeps() -> None:
    metrics, woken = Metrics(), list[int]()
    metrics.called = lambda: woken.append(1)
    metrics.ask(patience=0)
    assert woken == [1]


def test_ready_is_what_the_last_turn_was(fleet: Fleet) -> None:
    one, home = meter(fleet), Home(fleet)
    assert value(parsed(text(one.metrics)), "controller_ready") == 0
    one.look(home)  # type: ignore[arg-type]  # a home in name only
    one.refused(outrun=True)
    seen = parsed(text(one.metrics))
    assert (value(seen, "controller_ready"), value(seen, "ledger_refusals_total", why="outrun")) == (1, 1)
    one.refused()
    seen = parsed(text(one.metrics))
    assert (value(seen, "controller_ready"), value(seen, "ledger_refusals_total", why="refused")) == (0, 1)


def test_no_metric_has_more_series_than_there_may_be_and_the_rest_is_counted() -> None:
    many = [budget(f"b{number:04d}", envelope("main", 8)) for number in range(SERIES_MAX + 7)]
    fleet = Fleet(*nodes("n", 1), *many)
    seen = scrape(fleet)
    used, limits = values(seen, "budget_gpus_used"), values(seen, "budget_gpus_limit")
    assert len(used) == SERIES_MAX
    assert used.keys() == limits.keys(), "what can be divided by one another stays together"
    about = sum(len(values(seen, name)) == SERIES_MAX for name in METRICS)
    assert value(seen, "metrics_series_dropped") == 7 * about > 0


def test_series_go_with_what_they_speak_of() -> None:
    fleet = Fleet(*nodes("n", 2), budget("a", envelope("main", 64, hours=1000)))
    fleet.start(run("x", 8, owner="org:a", lasts="1h"))
    fleet.apply(run("y", 16, owner="org:a"))
    before = scrape(fleet)
    gone = ("reservation_countdown_seconds", "budget_exhausts_seconds", "gpus_capacity", "slots_fit",
            "budget_gpus_used")  # fmt: skip
    for name in gone:
        assert values(before, name), f"{name} has nothing to lose"
    fleet.delete("Run", "lab/y")
    assert not values(scrape(fleet), "reservation_countdown_seconds")
    fleet.succeed("lab/x")
    assert not values(scrape(fleet), "budget_exhausts_seconds")
    fleet.delete("Budget", "a")
    for name in sorted(fleet.state.topology.rows):
        fleet.delete("Node", name)
    after = scrape(fleet)
    for name in gone:
        assert not values(after, name), name


def test_receivers_and_kinds_that_go_are_gone_at_the_next_scrape() -> None:
    names = ["log", "hook"]
    metrics = Metrics(sources=[lambda: [("notifier_outbox_events", (name,), 1.0) for name in names]])
    assert set(values(parsed(text(metrics)), "notifier_outbox_events")) == {("log",), ("hook",)}
    names.remove("hook")
    assert set(values(parsed(text(metrics)), "notifier_outbox_events")) == {("log",)}


def test_a_source_that_fails_leaves_out_only_itself(fleet: Fleet) -> None:
    metrics = told(fleet)
    metrics.add(lambda: 1 / 0)  # type: ignore[arg-type,return-value]  # a bug
    metrics.add(lambda: [("api_writes_waiting", (), 3.0)])
    seen = parsed(text(metrics))
    assert value(seen, "api_writes_waiting") == 3
    assert value(seen, "leases_open", role="Active") == 1
    assert value(parsed(text(metrics)), "metrics_failures_total") >= 1
