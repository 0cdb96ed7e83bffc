"""What is measured behind a queue: the load is what it says, nothing is lost on the way, and a limit is a limit."""

from __future__ import annotations

import signal
from collections import Counter
from itertools import islice
from pathlib import Path
from statistics import fmean
from time import process_time

import pytest

from bench import answers, estimates, ranges, reforecast, saturated, slurm, workloads
from bench.counters import calls
from bench.gate import Gate, accept
from bench.promises import BENCHES, PROMISED
from bench.report import Measured, Results, not_shown, page, table, this_machine
from bench.result import FULL, TINY, Row
from bench.waiting import money, returns, submissions, weight
from bench.waiting.limit import Limit
from bench.waiting.side import Side, enough, in_turns, row
from bench.waiting.world import HOURS, OWNERS, SHORTEST, TOTAL, WIDTHS, Load, World, jobs
from tenure.kube import intake
from tenure.units import HOUR

WAITING = 30
QUEUED = (saturated, submissions, returns, money, weight)


@pytest.fixture(scope="module")
def world() -> World:
    world = World()
    world.fill(WAITING)
    world.settle(5)
    return world


# --- the load -----------------------------------------------------------------------------------------------------


def test_the_load_is_that_of_the_issue() -> None:
    some = list(islice(jobs(Load()), 2_000))
    widths = Counter(job.gpus for job in some)
    assert set(widths) == set(WIDTHS)
    assert widths[1] > 2 * widths[2], "three of ten take one GPU"
    assert {job.declared for job in some} == {hours * HOUR for hours in HOURS}
    assert {job.owner for job in some} == set(OWNERS)
    parts = [job.real / job.declared for job in some]
    assert SHORTEST <= min(parts) < 0.1
    assert 0.9 < max(parts) <= 1
    assert 0.5 < fmean(parts) < 0.55


def test_the_load_is_the_same_each_time() -> None:
    assert list(islice(jobs(Load()), 50)) == list(islice(jobs(Load()), 50))


def test_lengths_of_time_are_all_distinct_where_they_are_to_be() -> None:
    some = list(islice(jobs(Load(distinct=True)), 2_000))
    assert len({job.declared for job in some}) == len(some)


@pytest.mark.parametrize("at_once", [1, 50])
def test_runs_are_of_different_ages_or_of_equal_ones_in_batches(at_once: int) -> None:
    world = World(load=Load(at_once=at_once))
    world.fill(WAITING)
    created = [row.run.metadata.creation_timestamp for row in world.home.state.runs.values()]
    assert len(set(created)) == -(-len(created) // at_once)
    before = len(world.jobs)
    for _ in range(at_once + 1):
        world.submit()
    assert len(world.jobs) == before + at_once + 1
    later = {row.run.metadata.creation_timestamp for row in world.home.state.runs.values()} - set(created)
    assert len(later) == 2, "the batch, and the first of the next; or two of their own"


# --- the world ----------------------------------------------------------------------------------------------------


def test_a_world_knows_who_waits_and_who_runs_as_the_engine_does(world: World) -> None:
    world.settle(10)
    runs = world.home.state.runs
    assert set(world.jobs) == set(runs)
    assert {key for key, row in runs.items() if row.life.phase == "Running"} == set(world.running)
    assert world.waiting == sum(row.life.phase == "Pending" for row in runs.values()) > 0
    for key, pods in world.running.items():
        assert sorted(pod.name for pod in pods) == sorted(runs[key].pods)


def test_a_full_fleet_stays_full_and_its_queue_as_long(world: World) -> None:
    before = len(world.jobs)
    end = world.end()
    assert len(world.jobs) == before, "another one came for it"
    assert sum(world.jobs[key].gpus for key in world.running) > 0.8 * TOTAL
    assert end.facts > 0
    assert 0 < end.took.cpu <= end.whole.cpu


def test_runs_end_before_they_said(world: World) -> None:
    for _ in range(10):
        key = world._ends[0][2]
        row = world.home.state.runs.get(key)
        world.end()
        if row is not None and row.until is not None:
            assert world.now <= row.until


def test_a_submission_that_is_taken_back_leaves_nothing(world: World) -> None:
    before = set(world.home.state.runs)
    job = next(world.supply)
    world.submit(job)
    assert job.key in world.home.state.runs
    world.cancel(job)
    assert set(world.home.state.runs) == before == set(world.jobs)


def test_nodes_that_return_are_taken_away_again() -> None:
    world = World(away=1)
    world.fill(WAITING)
    waiting, running = world.waiting, len(world.running)
    found = returns._returned(world, 0)
    away = {node.metadata.name for node in world.away}
    assert found.starts > 0
    assert not any(pod.node in away for pods in world.running.values() for pod in pods)
    assert world.waiting + len(world.running) == waiting + running


def test_a_burst_is_taken_in_whole_and_an_end_in_its_midst() -> None:
    world = World()
    world.fill(WAITING)
    before = set(world.jobs)
    found = submissions.burst(world, count=30)
    assert len(world.jobs) == len(before) + 30, "one has ended, and another one came for it"
    assert len(before - set(world.jobs)) == 1
    assert 0 < found.longest <= found.whole
    assert found.end > 0


def test_portions_are_those_of_the_operator() -> None:
    assert submissions.PORTION == intake.RUNS_MAX


def test_a_flood_is_short_of_its_own_money_alone() -> None:
    world = money.Flooded(20)
    held = sum(world.jobs[key].gpus for key in world.running if key.startswith(f"{money.FLOOD}/"))
    assert money.SHARE - max(money._WIDTHS) < held <= money.SHARE
    assert world.held < TOTAL - 100, "there are machines for more"
    assert world.waiting == 20
    _, starts = world.give_more()
    assert starts > 0
    assert world.waiting == 20


def test_searches_are_counted_by_their_name(world: World) -> None:
    with calls(*saturated.PLANS) as work:
        for _ in range(5):
            world.end()
    assert work.total() > 0
    assert set(work) <= set(saturated.PLANS)


# --- the limit ----------------------------------------------------------------------------------------------------


def test_a_decision_that_takes_too_long_is_stopped_and_its_world_thrown_away() -> None:
    side = Side(World, 5.0)
    side.limit.left = 0.1
    before = signal.getsignal(signal.SIGPROF)
    assert side.do(lambda world: world.fill(10**6)) is None
    assert side.is_over
    assert signal.getsignal(signal.SIGPROF) == before
    assert signal.getitimer(signal.ITIMER_PROF) == (0.0, 0.0)
    assert side.do(lambda world: world.now) is None, "it is in no state that could be asked"


def test_a_world_over_its_limit_holds_no_other_up() -> None:
    sides = {name: Side(World, 5.0) for name in ("quick", "slow")}
    sides["slow"].limit.is_over = True
    found = in_turns(sides, lambda world, number: number, rounds=3)
    assert found == {"quick": [0, 1, 2], "slow": []}
    assert enough(found["quick"], 3)
    assert not enough(found["slow"], 3)
    assert not enough([1] * 9, 100), "too few to say anything"


def test_what_was_not_measured_within_its_limit_keeps_no_promise(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("load", "save"):
        whole = getattr(ranges, name)
        monkeypatch.setattr(ranges, name, lambda *args, whole=whole: whole(*args, tmp_path / "ranges.json"))
    kept = row("saturated", "100 waiting: an end, p50", 1.0, Limit(60), unit="ms", goal=5)
    over = row("saturated", "100,000 waiting: an end, p50", None, Limit(60), unit="ms", goal=5)
    results = Results(FULL, {"saturated": Measured(this_machine(), [kept, over])})
    assert [one.key for one, _ in accept(results)] == [kept.key], "there is nothing to expect of the other"
    judged = Gate(results, ranges.load())
    assert judged.broken == [over]
    assert not judged.passes
    assert "none in 60 s of processor time" in table(results.rows, judged)
    assert "none in 60 s of processor time" in page(results)


@pytest.mark.parametrize("sense", ["at most", "at least"])
def test_none_is_never_good_enough(sense: str) -> None:
    over = Row(bench="saturated", what="an end", measured=0, goal=5, sense=sense, beyond="60 s")  # type: ignore[arg-type]  # it is one of the two
    assert not over.ok
    assert over.ratio is None


def test_worlds_that_are_over_say_so_in_every_row(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """As on an engine on which an end takes longer the more wait: the table is whole, and nothing hangs."""
    usual = saturated.SIZES["tiny"]
    short = saturated.Size(waiting=usual.waiting, settle=usual.settle, ends=usual.ends, limit=0.01)
    monkeypatch.setitem(saturated.SIZES, "tiny", short)
    rows = saturated.run(TINY, tmp_path)
    assert all(row.beyond for row in rows)
    assert any(row.goal is not None for row in rows)
    assert not any(row.ok for row in rows if row.goal is not None)
    assert len({row.what for row in rows}) == len(rows)


def test_an_alarm_in_a_destructor_goes_off_again_and_is_told_to_nobody() -> None:
    """Python throws away what is raised there, and says so: a test failed by it now and then."""

    class Slow:
        def __del__(self) -> None:
            end = process_time() + 0.1
            while process_time() < end:
                pass

    def piece() -> None:
        Slow()
        for _ in iter(int, 1):
            pass

    assert Limit(0.05).run(piece) is None


# --- what is told -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("bench", [bench.NAME for bench in (*QUEUED, answers, estimates, reforecast, slurm, workloads)])
def test_each_table_says_what_it_does_not_show(bench: str) -> None:
    said = not_shown(bench)
    assert said.startswith("Not shown: ")
    one = Row(bench=bench, what="an end", measured=1.0)
    assert said in page(Results(TINY, {bench: Measured(this_machine(), [one])}))
    assert said.split()[2] in table([one])


def test_every_row_has_a_range_of_its_own(tmp_path: Path) -> None:
    """What is stripped from a row's name must not be how many wait."""
    for bench in QUEUED:
        keys = [row.key for row in bench.run(TINY, tmp_path)]
        assert len(set(keys)) == len(keys)


def test_the_issue_is_measured() -> None:
    measured = {bench.NAME for bench in (*QUEUED, answers, estimates, slurm, workloads)}
    assert {one.by for one in PROMISED if one.issue == 18} == measured <= set(BENCHES)
