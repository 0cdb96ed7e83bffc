"""When waiting runs are likely to start: what the replays are made of, and what people see of them."""

from __future__ import annotations

from collections.abc import Collection
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tenure.api.policy import Policy
from tenure.api.run import Estimate
from tenure.cli import queued
from tenure.cli.view import StateView
from tenure.engine.estimate import Promised, Running, Waiting
from tenure.ledger import CompletedRow
from tenure.shell.estimates import Estimates, worlds
from tenure.testing import Fleet, at, budget, envelope, nodes, run
from tenure.testing.builders import FLAVOR
from tenure.units import DAY, HOUR, MINUTE, SECOND, Instant, format_time, parse_time
from tests.cli.support import call, run_yaml, still, submit


class Books:
    """A ledger in which every run took half of what it declared."""

    def __init__(self, *rows: CompletedRow) -> None:
        self.rows, self.asked = list(rows), 0

    def completed(self, owners: Collection[str], *, before: Instant) -> list[CompletedRow]:
        self.asked += 1
        return [row for row in self.rows if row.end <= before]


def half(owner: str, count: int = 8) -> list[CompletedRow]:
    return [CompletedRow(owner=owner, declared=2 * HOUR, real=HOUR, end=number) for number in range(count)]


@pytest.fixture
def fleet() -> Fleet:
    """A node of eight GPUs, one place: `next` is promised it in four hours, `third` and `fourth` wait."""
    fleet = Fleet(*nodes("n", 1), budget("a"), policy=Policy(promise_depth=1))
    fleet.start(run("first", 8, owner="org:a", lasts="4h"))
    fleet.apply(run("next", 8, owner="org:a", lasts="2h"))
    fleet.later("1m")
    fleet.apply(run("third", 8, owner="org:a", lasts="2h"))
    fleet.later("1m")
    fleet.apply(run("fourth", 4, owner="org:a"))
    return fleet


# --- what it is made from -----------------------------------------------------------------------------------------


def test_the_queue_of_a_cluster_as_records(fleet: Fleet) -> None:
    [world] = worlds(fleet.state, FLAVOR, now=fleet.now)
    assert (world.cluster, world.pool.free) == ("gpu-a", 0)
    assert world.running == [Running("lab/first", "org:a", 8, at("0s"), at("4h"))]
    assert world.promised == [Promised("lab/next", "org:a", 8, at("4h"), 2 * HOUR)]
    assert world.waiting == [Waiting("lab/third", "org:a", 8, 2 * HOUR), Waiting("lab/fourth", "org:a", 4, None)]


def test_who_is_short_of_money_is_replayed_by_what_its_owner_can_pay() -> None:
    fleet = Fleet(*nodes("n", 4), budget("a", envelope("main", 8)))
    fleet.start(run("mine", 8, owner="org:a"))
    fleet.apply(run("poor", 4, owner="org:a"))
    [world] = worlds(fleet.state, FLAVOR, now=fleet.now)
    assert world.waiting == [Waiting("lab/poor", "org:a", 4, None, limit=8)]


def test_who_may_go_anywhere_is_counted_where_least_is_ahead() -> None:
    clusters = [*nodes("a", 1), *nodes("b", 1, cluster="gpu-b")]
    fleet = Fleet(*clusters, budget("a"), policy=Policy(promise_depth=1))
    for name in ("one", "two"):
        fleet.start(run(name, 8, owner="org:a", lasts="8h"))
    for name in ("p1", "p2"):
        fleet.apply(run(name, 8, owner="org:a", lasts="1h"))
    there = {"where": {"cluster": "gpu-b"}}
    fleet.apply(run("bound", 8, owner="org:a", lasts="5h", **there))
    fleet.apply(run("free", 8, owner="org:a", lasts="1h"))
    found = {world.cluster: [one.key for one in world.waiting] for world in worlds(fleet.state, FLAVOR, now=fleet.now)}
    assert found == {"gpu-a": ["lab/free"], "gpu-b": ["lab/bound"]}


def test_who_is_let_past_distant_promises_goes_by_their_bound() -> None:
    """It declares no end: the bound it was let past until is its end."""
    window = envelope("main", 64, start="48h")
    fleet = Fleet(*nodes("n", 2), budget("w", window), budget("u"))
    fleet.apply(run("wide", 16, owner="org:w", lasts="1h"))
    fleet.start(run("past", 8, owner="org:u"))
    [world] = worlds(fleet.state, FLAVOR, now=fleet.now)
    assert [one.cut_at for one in world.running] == [at("48h")]
    assert world.promised == [Promised("lab/wide", "org:w", 16, at("48h"), HOUR, opens=at("48h"))]


# --- bands ----------------------------------------------------------------------------------------------------------


def test_declarations_alone_say_the_latest_and_history_the_likely(fleet: Fleet) -> None:
    declared = Estimates(Books()).of(fleet.state, now=fleet.now)["lab/third"].to_api()
    assert (declared.basis, declared.likely_start) == ("declared", format_time(at("6h")))
    learned = Estimates(Books(*half("org:a"))).of(fleet.state, now=fleet.now)
    third = learned["lab/third"].to_api()
    assert (third.basis, third.likely_start) == ("history", format_time(at("3h"))), "half of four hours, half of two"
    first = learned["lab/next"].band
    assert first.latest is not None
    assert first.latest <= at("4h"), "a promise is kept"


def test_where_nothing_is_known_there_are_no_times() -> None:
    fleet = Fleet(*nodes("n", 1), budget("a"), policy=Policy(promise_depth=1))
    fleet.start(run("first", 8, owner="org:a"))
    for name in ("next", "third"):
        fleet.apply(run(name, 8, owner="org:a"))
    view = StateView(fleet.state, now=fleet.now, estimates=Estimates(Books()))
    status = view.run("lab", "third").status
    assert status.estimate == Estimate(as_of=format_time(fleet.now), basis="none")
    assert status.queue is not None
    assert status.queue.reason.endswith("what is in the way declares no end, and history says nothing.")


def test_bands_are_kept_for_a_minute(fleet: Fleet) -> None:
    books = Books(*half("org:a"))
    estimates, now = Estimates(books), fleet.now
    first = estimates.of(fleet.state, now=now)
    assert estimates.of(fleet.state, now=now + MINUTE - 1) == first
    assert estimates.of(fleet.state, now=now + 1, only=["lab/third"]).keys() == {"lab/third"}
    assert books.asked == 1
    assert estimates.of(fleet.state, now=now + MINUTE)["lab/third"].as_of == now + MINUTE
    assert books.asked == 2


def test_who_came_within_the_minute_is_estimated_when_it_is_asked_for(fleet: Fleet) -> None:
    estimates = Estimates(Books())
    estimates.of(fleet.state, now=fleet.now)
    fleet.apply(run("new", 8, owner="org:a", lasts="1h"))
    assert "lab/new" not in estimates.of(fleet.state, now=fleet.now)
    assert estimates.of(fleet.state, now=fleet.now, only=["lab/new", "lab/first", "lab/none"]).keys() == {"lab/new"}


def test_no_estimate_for_who_runs_or_can_never_start(fleet: Fleet) -> None:
    fleet.apply(run("giant", 64, owner="org:a"))
    assert Estimates(Books()).of(fleet.state, now=fleet.now).keys() == {"lab/next", "lab/third", "lab/fourth"}


# --- what people see ------------------------------------------------------------------------------------------------


def test_how_a_run_waits_fits_on_a_line(fleet: Fleet) -> None:
    view = StateView(fleet.state, now=fleet.now, estimates=Estimates(Books(*half("org:a"))))
    likely = view.estimates()
    told = {line.name: queued.standing(line, likely.get(line.key), view.now) for line in view.lines()}
    assert told["next"].startswith("promised by 04:00, likely 02:00-")
    assert told["third"].startswith("place 1, 1 ahead (machines), likely 03:00-")
    assert told["fourth"].startswith("place 2, 2 ahead (machines), likely ")
    assert told["first"] == ""
    assert all(len(text) < 60 for text in told.values())


@pytest.mark.parametrize(
    ("likely", "latest", "told"),
    [
        ("2025-11-01T14:10:00Z", "2025-11-01T16:30:59Z", "14:10-16:30"),
        ("2025-11-01T14:10:00Z", "2025-11-01T14:10:30Z", "14:10"),
        ("2025-11-01T11:00:00Z", "2025-11-01T16:30:00Z", "12:00-16:30"),
        ("2025-11-01T23:10:00Z", "2025-11-02T01:00:00Z", "23:10-Nov 2 01:00"),
        ("2025-11-03T23:10:00Z", "2025-11-03T23:30:00Z", "Nov 3 23:10-23:30"),
        ("2025-12-31T23:10:00Z", "2027-01-03T01:00:00Z", "Dec 31 23:10-Jan 3 2027"),
    ],
)
def test_a_band_in_words(likely: str, latest: str, told: str) -> None:
    """What is past is now, and a day is said where it is another one."""
    now = parse_time("2025-11-01T12:00:00Z")
    one = Estimate(likely_start=likely, latest_likely=latest, as_of=format_time(now), basis="declared")
    assert queued.band(one, now) == told


@pytest.fixture
def crowded(fresh: Path) -> Path:
    """A fleet without a driver, where six runs ask for more than there is money for; nobody drives it."""
    hour = {"runtime": {"expectedDuration": "1h"}}
    assert submit(fresh, *(run_yaml(f"r{number}", 8, "true", **hour) for number in range(3))).code == 0
    return fresh


def test_a_plan_says_when_a_run_would_be_likely_to_start(crowded: Path) -> None:
    more = run_yaml("late", 8, "true", runtime={"expectedDuration": "1h"})
    done = call("runs", "plan", "-f", "-", "-o", "json", fleet=crowded, stdin=more)
    [one] = done.json["runs"]
    assert (one["outcome"], one["estimate"]["basis"]) == ("wait", "declared")
    assert one["estimate"]["likelyStart"] <= one["plannedStart"]
    told = still(call("runs", "plan", "-f", "-", fleet=crowded, stdin=more).out)
    assert "Likely: CLOCK" in told
    assert "UTC, from declared durations alone" in told


@given(st.integers(0, 3 * 365 * DAY), st.integers(-2 * DAY, 400 * DAY), st.sampled_from([1, SECOND]))
def test_an_instant_is_told_alike_however_it_comes(since: Instant, until: int, unit: int) -> None:
    """The text of an object is copied where that will do: to a later day, to the second."""
    now = parse_time("2025-11-01T12:00:00Z") + since
    text = format_time((now + until) // unit * unit)
    assert queued._clock(text, now) == queued.clock(max(now, parse_time(text)), now)


@pytest.mark.parametrize("days", [299, 300])
@pytest.mark.parametrize("hours", [-1, 0, 1])
def test_a_year_is_told_from_the_same_instant_on(days: int, hours: int) -> None:
    now = parse_time("2025-11-01T12:00:00Z")
    then = now + days * DAY + hours * HOUR
    assert queued._clock(format_time(then), now) == queued.clock(then, now)
