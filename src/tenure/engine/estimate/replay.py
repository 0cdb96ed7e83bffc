"""Estimates: the queue of one flavor in one cluster, replayed with the run times that its owners' history suggests.

The known future is played sixteen times (``play``). In each replay a run lasts as long as one of sixteen quantiles of
what its owner's runs take (``ratios``), dealt so that each run meets each of its quantiles exactly once; which one when
is a hash of its key, so replays differ from one another as chance would have it, and never from one call to the next.

    likely = the median of a run's starts    latest = by when nine tenths came    both corrected (``coverage``)

Who holds a promise starts by its bound. Who starts in fewer than nine tenths of the replays gets no times at all, and
the reason why not. Where history and declarations leave nothing to chance all replays would be alike, so there is one.

Deep in a queue replays hardly differ, since a thousand run times before a run average out. So only the first is played
to the end; the others are broken off after ``STARTS`` starts, and whoever had not started goes on as in the first.

>>> running = [Running("a", "org:a", gpus=8, started=0, ends=6 * HOUR)]
>>> waiting = [Waiting("b", "org:a", gpus=8, lasts=HOUR), Waiting("c", "org:b", gpus=8, lasts=HOUR)]
>>> bands = estimate(Pool(free=0), running, [], waiting, History(), now=0)
>>> [(key, band.likely // HOUR, band.latest // HOUR, band.basis) for key, band in bands.items()]
[('b', 6, 6, 'declared'), ('c', 7, 7, 'declared')]
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from functools import partial
from hashlib import blake2b

from tenure.engine.estimate.columns import Held, Runs, line_up
from tenure.engine.estimate.coverage import Correction
from tenure.engine.estimate.play import Play
from tenure.engine.estimate.ratios import MILLION, History
from tenure.engine.estimate.world import Band, Basis, Lacking, Pool, Promised, Running, Waiting
from tenure.units import FOREVER, HOUR, Instant, Micros

REPLAYS = 16
"""A power of two, so that any odd number steps through all of them."""
PLACES, PLACES_ALONE = 16, 64
"""Promises that a replay keeps standing, and the only one where all would be alike: a new one costs as a start does."""
STARTS_FIRST, STARTS = 10_000, 500
"""Starts that are played in the first replay, before the rest is poured, and in each of the others."""

assert HOUR  # used by the example above


def estimate(
    pool: Pool,
    running: Sequence[Running],
    promised: Sequence[Promised],
    waiting: Sequence[Waiting],
    history: History,
    now: Instant,
    *,
    correction: Correction | None = None,
    only: Collection[str] | None = None,
) -> dict[str, Band]:
    """Return a band for each run that waits, by its key: the promised ones by number, then the others by age.

    ``only``: just these are asked for, which is cheaper the sooner they start.
    """
    fit = correction or Correction()
    size = pool.free + sum(run.gpus for run in running)
    lacking: dict[str, Lacking] = {run.key: found for run in waiting if (found := _never(run, size))}
    lined = [run for run in waiting if run.key not in lacking]
    keys = [run.key for run in promised] + [run.key for run in lined]
    runs = line_up(promised, lined)
    asked = None if only is None else {place for place, key in enumerate(keys) if key in only}
    starts = _replay(pool, running, runs, keys, history, now, asked)
    basis = _basis(history, [*running, *promised, *lined])
    bounds = {run.key: run.by for run in promised}
    bands = {key: Band(None, None, "none", reason) for key, reason in lacking.items()}
    for place, key in enumerate(keys):
        if asked is None or place in asked:
            bands[key] = _band(sorted(starts(place)), basis, bounds.get(key), now, fit)
    order = [run.key for run in promised] + [run.key for run in waiting]
    return {key: bands[key] for key in order if key in bands and (only is None or key in only)}


def _band(starts: list[Instant], basis: Basis, by: Instant | None, now: Instant, fit: Correction) -> Band:
    likely, latest = starts[len(starts) // 2], starts[(9 * len(starts)) // 10]
    if latest >= FOREVER:
        return Band(None, None, "none", "run times")
    replayed = likely - now, latest - now
    near, far = fit.correct(*replayed)
    bound = FOREVER if by is None else max(now, by)
    return Band(min(now + near, bound), min(now + far, bound), basis, replayed=replayed)


def _never(run: Waiting, size: int) -> Lacking:
    """Why a run never starts, as far as anybody can know."""
    if run.gpus > size:
        return "machines"
    return "money" if run.limit is not None and run.gpus > run.limit else ""


def _basis(history: History, runs: Sequence[Running | Promised | Waiting]) -> Basis:
    """``history`` if what any of them really took goes in; an estimate from declarations alone says so."""
    learned = any(
        history.ratios(run.owner)
        or ((run.ends if isinstance(run, Running) else run.lasts) is None and history.times(run.owner))
        for run in runs
    )  # fmt: skip
    return "history" if learned else "declared"


# --- what is played -------------------------------------------------------------------------------------------------


def _replay(
    pool: Pool, running: Sequence[Running], runs: Runs, keys: list[str], history: History, now: Instant,
    asked: set[int] | None,
) -> Callable[[int], list[Instant]]:  # fmt: skip
    """Play all replays; the answer tells the starts of a run, by its place."""
    held = [Held(run.gpus, run.owner, FOREVER if run.ends is None else run.ends) for run in running]
    ends = [_ends(run, history, now) for run in running]
    deals = [_deal(key) for key in keys]
    owners = sorted(set(runs.owners))
    scales = {owner: history.scales(owner, REPLAYS) for owner in owners}
    times = {owner: history.lengths(owner, None, 0, REPLAYS) for owner in owners}
    alike = all(min(of) == max(of) for of in [*ends, *scales.values()]) and FOREVER not in runs.lasts

    def length(place: int, number: int) -> Micros:
        """How long a run takes in a replay; found when it starts there, since most of a long queue never do."""
        lasts, owner, (first, step) = runs.lasts[place], runs.owners[place], deals[place]
        which = (first + number * step) % REPLAYS
        return lasts * scales[owner][which] // MILLION or 1 if lasts < FOREVER else times[owner][which] or FOREVER

    stops, plays = [], []
    started: set[int] = set()
    """In any replay but the first."""
    for number in range(1 if alike else REPLAYS):
        play = Play(pool.free, held, [of[number] for of in ends], runs, partial(length, number=number), now=now,
                    patience=pool.patience, places=PLACES_ALONE if alike else PLACES)  # fmt: skip
        plays.append(play.run(asked, most=STARTS if number else STARTS_FIRST))
        if number:
            started.update(play.started)
        elif not play.is_over:
            play.pour()
        stops.append(0 if play.is_over else play.now)
    last, all_stopped = max(stops[1:], default=0), all(stops[1:])

    def starts(place: int) -> list[Instant]:
        """Where a replay was broken off, the first one goes on for it: alone, if that is so for all the others."""
        first = plays[0][place]
        if all_stopped and first >= last and place not in started:
            return [first]
        return [max(stop, first) if stop and its[place] == FOREVER else its[place]
                for its, stop in zip(plays, stops, strict=True)]  # fmt: skip

    return starts


def _ends(run: Running, history: History, now: Instant) -> list[Instant]:
    """When a run that holds GPUs leaves, in each replay."""
    first, step = _deal(run.key)
    declared = None if run.ends is None else run.ends - run.started
    lengths = history.lengths(run.owner, declared, max(0, now - run.started), REPLAYS)
    cut = FOREVER if run.cut_at is None else run.cut_at
    found = [FOREVER if length is None else run.started + length for length in lengths]
    return [min(cut, max(now, found[(first + number * step) % REPLAYS])) for number in range(REPLAYS)]


def _deal(key: str) -> tuple[int, int]:
    """(first, odd step): replay ``n`` gets quantile ``first + n x step``, so each replay gets another one.

    >>> first, step = _deal("lab/train")
    >>> sorted((first + number * step) % REPLAYS for number in range(REPLAYS)) == list(range(REPLAYS))
    True
    """
    digest = blake2b(key.encode(), digest_size=2).digest()
    return digest[0] % REPLAYS, digest[1] | 1
