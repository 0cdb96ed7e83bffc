"""One tenant's flood holds nobody else up, adds no series, and a day of churn leaves nothing behind: a small share of
``python -m proof flood``, judged by counted work and not by seconds."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest

from bench import flood as bench
from bench.counters import lines
from bench.measure import Took
from bench.promises import BENCHES
from bench.result import TINY, Row
from proof import flood
from proof.__main__ import main as prove
from proof.commit import describe
from proof.flood import behind, churn
from proof.flood.behind import Pair
from proof.flood.churn import Churn, held
from proof.flood.world import FLOOD, SHARE, TENANTS, World, make_run
from tenure.engine import Apply

PENDING = 2_000


@pytest.fixture(scope="module")
def pair() -> Iterator[Pair]:
    pair = Pair(None, PENDING)
    yield pair
    pair.close()


def test_all_of_the_flood_waits_but_what_its_money_pays_for(pair: Pair) -> None:
    state = pair.flooded.state
    started = [row for row in state.runs.values() if row.namespace == FLOOD and row.life.phase != "Pending"]
    assert 0 < sum(row.active() for row in started) <= SHARE
    assert pair.flooded.pending == PENDING - len(started) > 0.9 * PENDING
    waiting = Counter(row.life.reason for row in state.runs.values() if row.life.phase == "Pending")
    assert waiting == {"ConcurrencyCapExceeded": pair.flooded.pending}, "each is told what it waits for"


def test_others_start_and_end_with_at_most_twice_the_steps(pair: Pair, monkeypatch: pytest.MonkeyPatch) -> None:
    """``World.submit`` insists that each of them starts at once. Half of them stay until their round is over."""
    before, together, plain_end = pair.flooded.pending, list[Counter[str]](), World.end

    def end(world: World, pods: behind.Pods) -> Took:
        if world is pair.flooded:
            together.append(Counter(world.state.runs[key].namespace for key in pods))
        return plain_end(world, pods)

    monkeypatch.setattr(World, "end", end)
    rows = [row for row in behind.decisions(pair, 80) if row.what.endswith("p99, counted steps")]
    assert [row.goal for row in rows] == [2.0] * len(behind.KINDS)
    for row in rows:
        assert row.ok, row
        assert row.detail["steps_empty"] > 5, "something was counted"
    assert pair.flooded.state.queue.depth() == before, "nobody of the flood started past them"
    running = Counter(row.namespace for row in pair.flooded.state.runs.values() if row.life.phase == "Running")
    assert {*running} == {FLOOD}
    assert all(together[-1][tenant] >= 5 for tenant in TENANTS), "so many of each ran at once"


@pytest.fixture(scope="module")
def floods() -> list[World]:
    worlds = [World(), World()]
    for world, count in zip(worlds, (PENDING // 8, PENDING // 2), strict=True):
        assert list(world.flood(count))[-1] == count
    return worlds


def counted(world: World, number: int) -> tuple[int, int]:
    """A small run of others comes and ends early: the lines of Tenure's code that its start executed, and its end."""
    with lines() as started:
        _, pods = world.submit(number)
    world.bind(pods)
    with lines() as ended:
        world.end(pods)
    return started.count, ended.count


def test_what_others_decisions_take_does_not_follow_the_backlog(floods: list[World]) -> None:
    """Every line of the engine is counted, whatever it goes through: four times the flood, and the same work."""
    took: dict[str, list[int]] = {"start": [], "end": []}
    for world in floods:
        for number in range(3):  # at the first end everything is looked at that has happened before
            started, ended = counted(world, number)
        took["start"].append(started)
        took["end"].append(ended)
    for small, large in took.values():
        assert 100 < large <= 1.05 * small, took


def test_nor_does_it_while_a_start_of_the_flood_waits_for_who_ends_late(floods: list[World]) -> None:
    """A start waits half a minute for the run before it. The first decision in that time plans all behind it anew;
    those that follow do not, whoever they are about."""
    took: dict[str, list[int]] = {"start": [], "end": []}
    for world in floods:
        own = [row for row in world.state.runs.values() if row.namespace == FLOOD and row.life.phase == "Running"]
        world.now = min(row.until for row in own if row.until is not None)
        waits = [one for one in world.state.reservations.values() if one.plan.start == world.now]
        assert waits, "somebody is promised what comes free just now"
        for number in range(3):
            started, ended = counted(world, number)
        took["start"].append(started)
        took["end"].append(ended)
        kept = world.state.reservations[waits[0].run_key]
        assert kept.plan.start == waits[0].plan.start, "it is still waited for"
    for small, large in took.values():
        assert 100 < large <= 1.05 * small, took


def test_nor_does_it_when_somebody_waits_for_machines(floods: list[World]) -> None:
    """A wide run of another tenant waits for a wider one to end; each early end of a small one has to be looked at for
    it, and is of no use to it."""
    took = []
    for world in floods:
        world.handle(Apply((make_run("hold", "ann", 512, seconds=7_200),)))
        world.handle(Apply((make_run("wide", "bob", 512, seconds=3_600),)))
        assert world.state.reservations["bob/wide"].confidence == "projected"
        for number in range(3):
            _, ended = counted(world, number)
        took.append(ended)
        assert "bob/wide" in world.state.reservations
    assert 100 < took[1] <= 1.05 * took[0], took


def test_metric_series_do_not_grow_with_the_flood_nor_with_what_it_invents(pair: Pair) -> None:
    tenth, invented, _ = behind.series(pair)
    assert tenth.detail["series_tenth"] == tenth.detail["series_all"] > 100
    assert tenth.ok
    assert invented.ok, invented
    assert invented.detail["series"] <= tenth.detail["series_all"] + 4


def test_a_world_without_a_flood_has_nobody_waiting() -> None:
    world = World()
    assert not world.state.queue.depth()
    _, pods = world.submit(0)
    world.bind(pods)
    world.end(pods)
    assert not world.state.runs


# --- churn --------------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def day(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Row]:
    rows = churn.rows(tmp_path_factory.mktemp("churn"), 4, tell=behind.quiet)
    return dict(zip(churn.GOALS, rows, strict=True))


@pytest.mark.parametrize("what", ["objects", "image", "blocks"])
def test_hours_of_churn_leave_memory_as_it_was(day: dict[str, Row], what: str) -> None:
    assert day[what].ok, day[what]


def test_something_happened_in_those_hours(day: dict[str, Row]) -> None:
    detail = day["objects"].detail
    assert detail["runs"] >= 2 * detail["runs_before"] - 20 > 100
    assert detail["most_at_once"] > 20
    assert detail["entries"] > 5 * detail["runs"] / 2


def test_what_is_kept_by_the_state_is_seen(tmp_path: Path) -> None:
    one = Churn(tmp_path / "leak.db")
    before = held(one.state)
    one.state.leak = [object() for _ in range(100)]  # type: ignore[attr-defined]  # as a bug would
    try:
        assert 100 <= held(one.state) - before <= 103
    finally:
        one.world.close()


# --- the command --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("measured", "status"), [(1.5, 0), (2.5, 1)])
def test_the_command_says_what_holds_and_how_to_see_it_again(
    measured: float, status: int, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    row = Row(bench="flood", what="p99", measured=measured, goal=2.0)
    monkeypatch.setattr(flood, "rows", lambda *args, **kwargs: iter([row]))
    assert prove(["flood", "--pending", "70", "--hours", "3", "--seed", "9"]) == status
    last = capsys.readouterr().out.splitlines()[-1]
    assert describe() in last
    assert ("All 1 hold" in last) is not status
    assert (" -m proof flood --pending 70 --hours 3 --seed 9" in last) is bool(status)


def test_it_is_one_of_the_benchmarks(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(bench.SIZES, "tiny", (60, 0, 12))
    rows = BENCHES["flood"].run(TINY, tmp_path)
    assert {row.bench for row in rows} == {"flood"}
    assert sum(row.goal is not None for row in rows) == 8
