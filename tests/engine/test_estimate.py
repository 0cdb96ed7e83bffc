"""Estimates: worked examples by hand, and what must hold of any queue."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Mapping, Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tenure.engine.estimate import (
    Band,
    Completed,
    Correction,
    Coverage,
    History,
    Past,
    Pool,
    Promised,
    Running,
    Waiting,
    estimate,
)
from tenure.engine.estimate.play import Claim, Play
from tenure.engine.estimate.ratios import ENOUGH, KEPT, MILLION, quantiles
from tenure.engine.estimate.replay import REPLAYS
from tenure.units import DAY, FOREVER, HOUR, MINUTE, Instant, Micros

NOTHING = History()
EXACT = Correction()


def hours(bands: Mapping[str, Band]) -> dict[str, tuple[float, float] | None]:
    """Likely and latest start in hours."""
    return {
        key: None if band.likely is None or band.latest is None else (band.likely / HOUR, band.latest / HOUR)
        for key, band in bands.items()
    }


def at(start: float) -> tuple[float, float]:
    """A start of which nothing is open."""
    return start, start


def told(
    free: int, running: Sequence[Running] = (), promised: Sequence[Promised] = (), waiting: Sequence[Waiting] = (),
    history: History = NOTHING,
) -> dict[str, tuple[float, float] | None]:  # fmt: skip
    return hours(estimate(Pool(free), running, promised, waiting, history, 0))


def run(key: str, gpus: int, ends: float | None, owner: str = "org:a", **more: Instant) -> Running:
    return Running(key, owner, gpus, 0, None if ends is None else round(ends * HOUR), **more)


def wait(key: str, gpus: int, lasts: float | None, owner: str = "org:a", limit: int | None = None) -> Waiting:
    return Waiting(key, owner, gpus, None if lasts is None else round(lasts * HOUR), limit)


def promise(key: str, gpus: int, by: float, lasts: float | None, owner: str = "org:a", opens: float = 0) -> Promised:
    return Promised(key, owner, gpus, round(by * HOUR), None if lasts is None else round(lasts * HOUR),
                    round(opens * HOUR))  # fmt: skip


def half(owner: str = "org:a", count: int = 10) -> History:
    """An owner whose runs take half of what they declare."""
    return History(Completed(owner, HOUR, HOUR // 2) for _ in range(count))


# --- from declarations ----------------------------------------------------------------------------------------------


def test_one_after_the_other() -> None:
    """Example 1 of QUEUE.md, with A as long as it says."""
    waiting = [wait("B", 16, 4), wait("C", 16, 2), wait("D", 16, 1)]
    assert told(0, [run("A", 16, 6)], waiting=waiting) == {"B": at(6), "C": at(10), "D": at(12)}


def test_who_delays_nobody_passes() -> None:
    waiting = [wait("wide", 16, 4), wait("long", 8, 5), wait("short", 8, 2)]
    assert told(8, [run("A", 8, 2)], waiting=waiting) == {"wide": at(2), "long": at(6), "short": at(0)}


def test_promises_are_kept_from_who_has_none() -> None:
    """D, 9 h 15 m, would be there at A2's end; D of 8 h 45 m would not (example 2 of QUEUE.md)."""
    running, promised = [run("A2", 8, 9.5)], [promise("B", 16, 9.5, 1)]
    assert told(8, running, promised, [wait("D", 8, 9.25)]) == {"B": at(9.5), "D": at(0)}
    assert told(8, running, promised, [wait("D", 8, 9.75)]) == {"B": at(9.5), "D": at(10.5)}


def test_the_first_promise_comes_earlier_and_the_second_does_not_wait_for_its_bound() -> None:
    """Promised at 6 h and 10 h; A declares that it ends at 2 h."""
    promised = [promise("B", 16, 6, 4), promise("C", 16, 10, 2)]
    assert told(0, [run("A", 16, 2)], promised) == {"B": at(2), "C": at(6)}


def test_a_gain_below_a_tenth_moves_no_promise() -> None:
    """B could be planned at 9 h 30 m instead of 10 h: so D, which ends at 9 h 45 m, may still pass (example 2)."""
    waiting = [wait("D", 8, 9.75)]
    assert told(8, [run("A", 8, 9.5)], [promise("B", 16, 10, 1)], waiting) == {"B": at(9.75), "D": at(0)}


def test_money_that_comes_later_opens_a_promise_then() -> None:
    promised = [promise("M", 8, 20, 1, owner="org:m", opens=20)]
    waiting = [wait("short", 8, 3), wait("long", 8, 19)]
    assert told(8, promised=promised, waiting=waiting) == {"M": at(20), "short": at(0), "long": at(21)}


def test_a_promised_cut_frees_machines() -> None:
    running = [run("V", 8, None, cut_at=4 * HOUR)]
    assert told(0, running, [promise("w", 8, 4, 1)]) == {"w": at(4)}


def test_work_that_declares_nothing_passes_a_promise_beyond_patience_until_its_bound() -> None:
    waiting = [wait("u", 8, None)]
    ever = History([Completed("org:a", None, 100 * DAY)])
    far = told(8, promised=[promise("W", 8, 48, 1, opens=48)], waiting=waiting, history=ever)
    assert far == {"W": at(48), "u": at(0)}
    assert told(8, promised=[promise("W", 8, 20, 1, opens=20)], waiting=waiting, history=ever)["u"] == at(21)


def test_a_limit_of_money_is_served_by_its_owners_own_ends() -> None:
    """Example 5 of QUEUE.md: org:a pays 8 GPUs at once; b1 does not wait for it."""
    waiting = [wait("a2", 8, 1, limit=8), wait("a3", 4, 1, limit=8), wait("b1", 8, 4, owner="org:b")]
    assert told(8, [run("A", 8, 1)], waiting=waiting) == {"a2": at(1), "a3": at(2), "b1": at(0)}


# --- from history ---------------------------------------------------------------------------------------------------


def test_declarations_are_scaled_by_what_the_owners_runs_took() -> None:
    waiting = [wait("B", 16, 4), wait("C", 16, 2, owner="org:b"), wait("D", 16, 1)]
    assert told(0, [run("A", 16, 6)], waiting=waiting, history=half()) == {"B": at(3), "C": at(5), "D": at(7)}


def test_until_an_owner_has_five_its_declarations_are_believed() -> None:
    for count, start in ((ENOUGH - 1, 6), (ENOUGH, 3)):
        assert told(0, [run("A", 16, 6)], waiting=[wait("B", 16, 1)], history=half(count=count)) == {"B": at(start)}


def test_only_the_last_64_runs_of_an_owner_count() -> None:
    history = half(count=KEPT)
    for _ in range(KEPT):
        history.add(Completed("org:a", HOUR, HOUR // 4))
    assert set(history.ratios("org:a")) == {MILLION // 4}


def test_a_run_under_way_lasts_at_least_as_long_as_it_has() -> None:
    """Ratios 1/4 and 3/4: after 2 h of 4 h only the second is possible."""
    history = History(Completed("org:a", 4, real) for real in (1, 1, 1, 3, 3, 3))
    bands = estimate(Pool(0), [run("A", 8, 4)], [], [wait("B", 8, 1)], history, 2 * HOUR)
    assert hours(bands) == {"B": at(3)}


def test_who_outlasted_all_that_is_known_is_expected_at_its_declared_end_then_nobody_knows_well() -> None:
    assert set(half().lengths("org:a", 4 * HOUR, 3 * HOUR, 4)) == {4 * HOUR}
    late = half().lengths("org:a", 4 * HOUR, 8 * HOUR, 4)
    assert late == [9 * HOUR, 11 * HOUR, 13 * HOUR, 15 * HOUR]


def test_work_that_declares_nothing_takes_what_its_owners_runs_took_else_the_fleets() -> None:
    history = History([Completed("org:a", None, 2 * HOUR)] * 5 + [Completed("org:b", HOUR, HOUR)] * 4)
    assert set(history.lengths("org:a", None, 0, 4)) == {2 * HOUR}
    assert set(history.lengths("org:b", None, 0, 9)) == {HOUR, 2 * HOUR}
    waiting = [wait("B", 8, None), wait("C", 8, None)]
    assert told(0, [run("A", 8, None)], waiting=waiting, history=history) == {"B": at(2), "C": at(4)}


def test_a_band_is_as_wide_as_the_history() -> None:
    history = History(Completed("org:a", 10, real) for real in range(1, 11))
    [band] = hours(estimate(Pool(0), [run("A", 8, 10)], [], [wait("B", 8, 1)], history, 0)).values()
    assert band == (6.0, 10.0)


def test_a_promise_is_never_estimated_beyond_its_bound() -> None:
    late = Correction(likely=3000, latest=3000)
    bands = estimate(Pool(0), [run("A", 8, 2)], [promise("B", 8, 3, 1)], [wait("C", 8, 1)], NOTHING, 0, correction=late)
    assert hours(bands)["B"] == at(3)
    assert hours(bands)["C"] == at(9.5)  # (3 h + 15 min) x 3 - 15 min


def test_quantiles_are_dealt_evenly() -> None:
    assert quantiles(range(16), 16) == list(range(16))
    assert sum(quantiles(range(101), 4)) == 12 + 37 + 63 + 88


# --- what cannot be said --------------------------------------------------------------------------------------------


def test_without_any_history_undeclared_work_says_nothing() -> None:
    bands = estimate(Pool(0), [run("U", 8, None)], [], [wait("B", 8, 1)], NOTHING, 0)
    assert bands == {"B": Band(None, None, "none", "run times")}


def test_beside_undeclared_work_what_does_not_depend_on_it_has_times() -> None:
    running = [run("U", 8, None), run("A", 8, 2)]
    bands = estimate(Pool(0), running, [], [wait("wide", 16, 1), wait("B", 8, 1)], NOTHING, 0)
    assert hours(bands) == {"wide": None, "B": at(2)}


@pytest.mark.parametrize(
    ("waiting", "lacking"),
    [(wait("B", 8, 1, limit=4), "money"), (wait("B", 8, 1, limit=0), "money"), (wait("B", 24, 1), "machines")],
)
def test_who_never_starts_has_no_times_and_holds_up_nobody(waiting: Waiting, lacking: str) -> None:
    bands = estimate(Pool(0), [run("A", 16, 2)], [], [waiting, wait("C", 8, 1)], NOTHING, 0)
    assert (bands["B"].basis, bands["B"].lacking, bands["B"].likely) == ("none", lacking, None)
    assert hours(bands)["C"] == at(2)


def test_the_basis_tells_whether_anything_was_learned() -> None:
    running, waiting = [run("A", 8, 2)], [wait("B", 8, 1)]
    assert estimate(Pool(0), running, [], waiting, NOTHING, 0)["B"].basis == "declared"
    assert estimate(Pool(0), running, [], waiting, half("org:c"), 0)["B"].basis == "declared"
    assert estimate(Pool(0), running, [], waiting, half(), 0)["B"].basis == "history"


def test_nobody_waits() -> None:
    assert estimate(Pool(8), [], [], [], NOTHING, 0) == {}


def test_only_who_is_asked_for_is_answered_and_alike() -> None:
    pool, running, waiting, history = crowd(200)
    everybody = estimate(pool, running, [], waiting, history, 0)
    for key in ("w0", "w50", "w199"):
        assert estimate(pool, running, [], waiting, history, 0, only=[key]) == {key: everybody[key]}


# --- of any queue ---------------------------------------------------------------------------------------------------


def crowd(count: int) -> tuple[Pool, list[Running], list[Waiting], History]:
    """Eight owners with histories of their own, and so many runs behind 64 GPUs."""
    history = History(Completed(f"o{n % 8}", 10 * HOUR, (1 + n * 7 % 10) * HOUR) for n in range(200))
    running = [run(f"r{n}", 8, 1 + n, f"o{n}") for n in range(8)]
    waiting = [wait(f"w{n}", 1 << n * 5 % 6, 1 + n * 3 % 11, f"o{n % 8}") for n in range(count)]
    return Pool(0), running, waiting, history


def test_everybody_has_a_band_that_is_in_order() -> None:
    pool, running, waiting, history = crowd(1_500)
    bands = estimate(pool, running, [], waiting, history, 0)
    assert list(bands) == [one.key for one in waiting]
    assert all(0 <= (band.likely or 0) <= (band.latest or 0) < FOREVER for band in bands.values())
    assert all(band.basis == "history" for band in bands.values())


def test_far_down_the_queue_times_come_from_pouring_and_still_grow(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tenure.engine.estimate.replay.STARTS_FIRST", 100)
    monkeypatch.setattr("tenure.engine.estimate.replay.STARTS", 50)
    waiting = [wait(f"w{n}", 8, 1) for n in range(400)]
    found = told(0, [run("A", 64, 1)], waiting=waiting, history=History())
    starts = [band[0] for band in found.values() if band is not None]
    assert starts == [1 + n // 8 for n in range(400)]


_SCRIPT = """
from tests.engine.test_estimate import crowd
from tenure.engine.estimate import estimate
pool, running, waiting, history = crowd(150)
print(sorted(estimate(pool, running, [], waiting, history, 0).items()))
"""


def test_hash_seeds_do_not_matter() -> None:
    told = {
        subprocess.run([sys.executable, "-c", _SCRIPT], env=os.environ | {"PYTHONHASHSEED": seed, "PYTHONPATH": path},
                       capture_output=True, check=True, text=True).stdout
        for path in [os.pathsep.join(filter(None, [os.environ.get("PYTHONPATH"), os.getcwd()]))]
        for seed in ("1", "2")
    }  # fmt: skip
    assert len(told) == 1


def test_the_order_in_which_running_work_is_told_does_not_matter() -> None:
    pool, running, waiting, history = crowd(100)
    assert estimate(pool, running, [], waiting, history, 0) == estimate(pool, running[::-1], [], waiting, history, 0)


RUNNING = st.lists(st.tuples(st.integers(1, 16), st.integers(1, 40)), min_size=1, max_size=8)
WAITING = st.lists(st.tuples(st.integers(1, 16), st.integers(1, 40)), min_size=1, max_size=12)
RATIOS = st.lists(st.integers(1, 20), max_size=12)


def _queue(running: list[tuple[int, int]], waiting: list[tuple[int, int]]) -> tuple[list[Running], list[Waiting]]:
    return ([run(f"r{n}", gpus, ends) for n, (gpus, ends) in enumerate(running)],
            [wait(f"w{n}", gpus, lasts) for n, (gpus, lasts) in enumerate(waiting)])  # fmt: skip


@given(RUNNING, WAITING, st.integers(0, 16), st.integers(1, 16))
def test_more_free_gpus_never_make_the_heads_estimate_later(
    running: list[tuple[int, int]], waiting: list[tuple[int, int]], free: int, more: int
) -> None:
    """Whoever is behind it: by declarations nobody who passes delays the head."""
    held, queue = _queue(running, waiting)
    before, after = (estimate(Pool(gpus), held, [], queue, NOTHING, 0)["w0"] for gpus in (free, free + more))
    assert before.likely is None or (after.likely is not None and after.likely <= before.likely)


@given(RUNNING, st.tuples(st.integers(1, 16), st.integers(1, 40)), RATIOS, st.integers(0, 16), st.integers(1, 16))
def test_nor_with_any_history_when_nobody_is_behind(
    running: list[tuple[int, int]], head: tuple[int, int], ratios: list[int], free: int, more: int
) -> None:
    history = History(Completed("org:a", 10, real) for real in ratios)
    held, queue = _queue(running, [head])
    before, after = (estimate(Pool(gpus), held, [], queue, history, 0)["w0"] for gpus in (free, free + more))
    if before.likely is not None and before.latest is not None:
        assert after.likely is not None
        assert after.latest is not None
        assert (after.likely <= before.likely, after.latest <= before.latest) == (True, True)


@given(RUNNING, WAITING, RATIOS, st.integers(0, 16))
def test_no_replay_holds_more_than_there_is_and_levels_are_what_they_say(
    running: list[tuple[int, int]], waiting: list[tuple[int, int]], ratios: list[int], free: int
) -> None:
    history = History(Completed("org:a", 10, real) for real in ratios)
    held, queue = _queue(running, waiting)
    seen: list[int] = []
    whole = Play._pass

    def checked(self: Play) -> None:
        whole(self)
        seen.append(self.free)
        for claim in self._bounds:
            others = sum(one.gpus for one in self._bounds if one.by <= claim.by < one.by + one.lasts)
            gone = sum(-gpus for when, gpus in self._declared if when <= claim.by)
            assert claim.level == self.free + gone - others

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Play, "_pass", checked)
        estimate(Pool(free), held, [], queue, history, 0)
    assert min(seen) >= 0
    size = free + sum(gpus for gpus, _ in running)
    assert max(seen) <= size


PROMISED = st.lists(st.tuples(st.integers(1, 16), st.integers(-5, 60), st.integers(1, 40)), max_size=5)


@given(RUNNING, PROMISED, WAITING, RATIOS, st.integers(0, 16))
def test_the_earliest_start_is_that_of_all_that_is_declared(
    running: list[tuple[int, int]], promised: list[tuple[int, int, int]], waiting: list[tuple[int, int]],
    ratios: list[int], free: int,
) -> None:  # fmt: skip
    """What is declared is kept in order; here it is put together anew for each question. Some promises are late."""
    history = History(Completed("org:a", 10, real) for real in ratios)
    held, queue = _queue(running, waiting)
    claims = [promise(f"p{n}", gpus, by, lasts) for n, (gpus, by, lasts) in enumerate(promised)]
    kept = Play._earliest

    def checked(self: Play, gpus: int, lasts: Micros, before: Instant, mine: Claim | None) -> Instant | None:
        found = kept(self, gpus, lasts, before, mine)
        assert found == _earliest(self, gpus, lasts, before, mine)
        return found

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Play, "_earliest", checked)
        estimate(Pool(free), held, claims, queue, history, 0)


def _earliest(play: Play, gpus: int, lasts: Micros, before: Instant, mine: Claim | None) -> Instant | None:
    now, others = play.now, [claim for claim in play._bounds if claim is not mine]
    steps = [step for step in play._declared if step[0] > now]
    steps += [(claim.by, claim.gpus) for claim in others if claim.by > now]
    steps += [(max(now, claim.by) + claim.lasts, -claim.gpus) for claim in others if claim.lasts < FOREVER]
    level = play.free - sum(claim.gpus for claim in others if claim.by <= now)
    start = now if level >= gpus else None
    for at, taken in sorted(steps):
        if start is not None and at >= start + lasts:
            break
        level -= taken
        start = None if level < gpus else at if start is None else start
    return start if start is None or start <= before else None


def test_who_started_in_no_other_replay_starts_as_in_the_first(monkeypatch: pytest.MonkeyPatch) -> None:
    """Looking at all replays for everybody says the same."""
    monkeypatch.setattr("tenure.engine.estimate.replay.STARTS_FIRST", 100)
    monkeypatch.setattr("tenure.engine.estimate.replay.STARTS", 30)
    pool, running, waiting, history = crowd(400)
    short = estimate(pool, running, [], waiting, history, 0)
    play = Play.run

    def everybody(self: Play, asked: set[int] | None = None, *, most: int) -> list[Instant]:
        starts = play(self, asked, most=most)
        self.started = [*range(len(starts))]
        return starts

    monkeypatch.setattr(Play, "run", everybody)
    assert short == estimate(pool, running, [], waiting, history, 0)


@given(RUNNING, WAITING, RATIOS, st.integers(0, 16))
def test_all_replays_that_are_alike_are_one(
    running: list[tuple[int, int]], waiting: list[tuple[int, int]], ratios: list[int], free: int
) -> None:
    history = History(Completed("org:a", 10, ratios[0]) for _ in ratios)
    held, queue = _queue(running, waiting)
    plays: list[int] = []
    whole = Play.run

    def counted(self: Play, asked: set[int] | None = None, *, most: int) -> list[Instant]:
        plays.append(1)
        return whole(self, asked, most=most)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Play, "run", counted)
        bands = estimate(Pool(free), held, [], queue, history, 0)
    assert len(plays) in (1, REPLAYS)
    if len(plays) == 1:
        assert all(band.likely == band.latest for band in bands.values())


# --- coverage -------------------------------------------------------------------------------------------------------


def bands_of(count: int, real: Micros, *, started: bool = True) -> list[Past]:
    """Bands of 1 h and 2 h; the runs waited so long, or still do."""
    return [Past(0, HOUR, 2 * HOUR, started=real if started else None) for _ in range(count)]


def test_bands_that_held_are_left_alone() -> None:
    history = [Past(0, HOUR, 2 * HOUR, started=(20 + n) * MINUTE) for n in range(91)]
    learned = Correction.learn(history, now=DAY)
    assert 900 <= learned.likely <= 1100
    assert 800 <= learned.latest <= 1000


def test_what_starts_late_stretches_the_next_bands() -> None:
    learned = Correction.learn(bands_of(128, 4 * HOUR), now=DAY)
    assert learned.correct(HOUR, 2 * HOUR)[0] == 4 * HOUR


def test_who_still_waits_counts_as_waiting_at_least_so_long() -> None:
    early = bands_of(40, HOUR)
    still = bands_of(40, 0, started=False)
    learned = Correction.learn(early + still, now=20 * HOUR)
    assert learned.latest > Correction.learn(early, now=20 * HOUR).latest
    just = Correction.learn(early + [Past(20 * HOUR, HOUR, 2 * HOUR) for _ in range(40)], now=20 * HOUR)
    assert just == Correction.learn(early, now=20 * HOUR)


def test_who_left_the_queue_says_only_how_long_it_waited() -> None:
    gone = [one._replace(left=10 * MINUTE) for one in bands_of(40, 0, started=False)]
    assert Correction.learn(bands_of(40, HOUR) + gone, now=DAY) == Correction.learn(bands_of(40, HOUR), now=DAY)


def test_a_start_that_is_yet_to_come_is_not_known() -> None:
    assert Correction.learn(bands_of(40, 9 * HOUR), now=HOUR) == Correction.learn(
        bands_of(40, 0, started=False), now=HOUR
    )


@given(st.lists(st.tuples(st.integers(0, DAY), st.integers(0, DAY), st.none() | st.integers(0, DAY)), max_size=40))
def test_a_corrected_band_is_in_order(rows: list[tuple[int, int, int | None]]) -> None:
    learned = Correction.learn([Past(0, likely, likely + more, started) for likely, more, started in rows], now=DAY)
    for likely, latest in ((0, 0), (0, HOUR), (HOUR, HOUR), (DAY, 9 * DAY)):
        near, far = learned.correct(likely, latest)
        assert 0 <= near <= far


def test_coverage_counts_starts_in_time() -> None:
    assert Coverage.measure([]) == Coverage(0, 0, 0, 0)
    assert Coverage.measure([(2, 4, 1), (2, 4, 3), (2, 4, 9)]) == Coverage(3, 1, 2, 9)
