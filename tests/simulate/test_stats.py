"""The arithmetic of a replay: exact sums, percentiles by rank, means over the time in which jobs were submitted."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from tenure.simulate.stats import POINTS_MAX, Level, Tally, percentile, period_for, size_class, waits_of
from tenure.simulate.trace import job
from tenure.units import DAY, HOUR, MINUTE

changes = st.lists(st.tuples(st.integers(0, 100), st.integers(-5, 9)), max_size=20).map(sorted)


@given(changes, st.integers(1, 13), st.integers(0, 120))
def test_the_means_of_a_level_are_those_of_its_steps_added_one_by_one(
    steps: list[tuple[int, int]], period: int, horizon: int
) -> None:
    level = Level(period=period, horizon=horizon)
    for at, amount in steps:
        level.add(amount, at=at)
    until = 130
    values = [sum(amount for at, amount in steps if at <= instant) for instant in range(until)]
    parts = [values[at : at + period] for at in range(0, until, period)]
    assert level.means(until) == [sum(part) / len(part) for part in parts]
    assert level.mean() == (sum(values[:horizon]) / horizon if horizon else 0.0)


def test_asking_a_level_changes_nothing() -> None:
    level = Level(period=10, horizon=20)
    level.add(3, at=4)
    assert level.means(15) == level.means(15)
    level.add(1, at=15)
    assert level.means(20) == [1.8, 3.5]


@given(st.lists(st.integers(0, 1000), min_size=1), st.integers(0, 100))
def test_a_percentile_is_the_smallest_wait_that_so_many_do_not_exceed(waits: list[int], percent: int) -> None:
    found = percentile(sorted(waits), percent)
    assert found in waits
    assert sum(wait <= found for wait in waits) * 100 >= percent * len(waits)
    smaller = [wait for wait in waits if wait < found]
    assert not smaller or sum(wait <= max(smaller) for wait in waits) * 100 < percent * len(waits)


def test_no_waits_are_no_numbers() -> None:
    assert waits_of([]).jobs == 0
    assert waits_of([]).quantiles == ()


def test_waits_are_grouped_by_width_and_by_owner() -> None:
    tally = Tally("x", gpus=8, horizon=HOUR)
    for name, gpus, owner, start in (("a", 1, "red", 1), ("b", 1, "blue", 3), ("c", 512, "red", 5)):
        tally.submit(1, at=0)
        tally.start(job(name, 0, HOUR, gpus, owner), at=start * HOUR)
    summary = tally.summary()
    assert {name: (waits.jobs, waits.mean) for name, waits in summary.wait_hours_by_size.items()} == {
        "1": (2, 2.0),
        "257+": (1, 5.0),
    }
    assert {name: waits.mean for name, waits in summary.wait_hours_by_owner.items()} == {"blue": 3.0, "red": 3.0}


def test_the_queue_holds_what_was_submitted_and_has_not_started() -> None:
    tally = Tally("x", gpus=8, horizon=4 * HOUR)
    tally.submit(2, at=0)
    tally.start(job("a", 0, HOUR, 1), at=2 * HOUR)
    summary = tally.summary()
    assert summary.queue == 1.5
    assert (summary.submitted, summary.started, summary.completed) == (2, 1, 0)


def test_every_width_has_one_class() -> None:
    assert [size_class(gpus) for gpus in (1, 2, 8, 9, 64, 65, 256, 257, 10**6)] == [
        "1", "2-8", "2-8", "9-64", "9-64", "65-256", "65-256", "257+", "257+"
    ]  # fmt: skip


def test_a_month_is_drawn_by_the_hour_and_no_span_gets_more_points_than_a_page_shows() -> None:
    assert period_for(30 * DAY) == HOUR
    assert period_for(5 * HOUR) == MINUTE
    assert all(days * DAY <= POINTS_MAX * period_for(days * DAY) for days in (1, 7, 90, 365))
