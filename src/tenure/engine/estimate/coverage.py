"""How often bands held, and the correction of the next ones that follows from it.

Replays know nothing of who will submit, fail or be canceled later, and histories change: so a band is measured against
what came, and the next one is stretched or shrunk by that. The rule has one number for each side of the band:

    likely = replayed wait x the ratio real / replayed that 52 % of the last 128 bands did not exceed
    latest = replayed latest wait x the ratio that 91 % of them did not exceed, and never before likely

A ratio is of the first band that a run was given. A run that still waits has waited *at least* so long and counts as
that (Kaplan and Meier's estimate): to leave it out would make a queue look shorter the longer it grows. Waits have a
quarter of an hour added before they are compared, so that a minute instead of a second is no sixtyfold error. Ten usual
ratios are counted beside the real ones: with no data only the far end is corrected, and an outlier among few moves
little. The two shares lie a little above the half and the nine tenths that are wanted, because what is learned lags
behind a queue that grows.

Whoever keeps the bands takes few of a burst: what is asked a hundred times within a minute is one observation. Where
starts are often exactly as replayed (all declarations true), more than half of them come by the median: that is no
fault, and is not corrected.

Factors are in thousandths.

>>> Correction.learn([], now=0)
Correction(likely=1000, latest=1600)
>>> late = [Past(asked=0, likely=HOUR, latest=2 * HOUR, started=3 * HOUR) for _ in range(100)]
>>> learned = Correction.learn(late, now=DAY)
>>> learned, [wait // MINUTE for wait in learned.correct(HOUR, 2 * HOUR)]
(Correction(likely=2600, latest=1444), [180, 180])
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from tenure.units import DAY, HOUR, MINUTE, Instant, Micros

KEPT = 128
"""Bands that count: the last ones."""
FLOOR: Micros = 15 * MINUTE
"""Added to waits before they are compared."""
PRIOR = (500, 700, 850, 1000, 1000, 1000, 1000, 1150, 1300, 1600)
"""Ratios of ten bands that are counted beside the real ones."""
SHARE_LIKELY, SHARE_LATEST = 520, 910
"""Thousandths of the waits that should be over by either."""
THOUSAND = 1000

assert DAY > HOUR  # used by the examples above


class Past(NamedTuple):
    """The first band that a run was given, and what came of it."""

    asked: Instant
    likely: Micros
    """The wait until the likely start as replayed, before any correction; ``latest`` alike."""
    latest: Micros
    started: Instant | None = None
    left: Instant | None = None
    """When it left the queue without a start."""


class Correction(NamedTuple):
    """By how much waits are stretched, in thousandths."""

    likely: int = THOUSAND
    latest: int = THOUSAND

    @classmethod
    def learn(cls, past: Sequence[Past], now: Instant) -> Correction:
        """Return the correction that would have made the last bands right; ``past`` comes in the order of asking."""
        recent = past[-KEPT:]
        likely = [_observe(band, band.likely, now) for band in recent]
        latest = [_observe(band, band.latest, now) for band in recent]
        return cls(_quantile(likely, SHARE_LIKELY), _quantile(latest, SHARE_LATEST))

    def correct(self, likely: Micros, latest: Micros) -> tuple[Micros, Micros]:
        """Return both waits corrected."""
        near = max(0, (likely + FLOOR) * self.likely // THOUSAND - FLOOR)
        return near, max(near, (latest + FLOOR) * self.latest // THOUSAND - FLOOR)


class Coverage(NamedTuple):
    """How many runs started by the times that they were shown."""

    starts: int
    by_likely: int
    by_latest: int
    sum_of_errors: Micros
    """Of the likely starts, without their signs."""

    @classmethod
    def measure(cls, shown: Sequence[tuple[Instant, Instant, Instant]]) -> Coverage:
        """``shown``: (likely, latest, real start) of runs that have started.

        >>> Coverage.measure([(10, 20, 10), (10, 20, 15), (10, 20, 30)])
        Coverage(starts=3, by_likely=1, by_latest=2, sum_of_errors=25)
        """
        return cls(
            starts=len(shown),
            by_likely=sum(start <= likely for likely, _, start in shown),
            by_latest=sum(start <= latest for _, latest, start in shown),
            sum_of_errors=sum(abs(start - likely) for likely, _, start in shown),
        )


def _observe(band: Past, expected: Micros, now: Instant) -> tuple[int, bool]:
    """(ratio of the real wait to the expected one, True if it is over): of who still waits, the least it can be."""
    is_over = band.started is not None and band.started <= now
    until = band.started if band.started is not None and is_over else min(now, band.left or now)
    return (max(0, until - band.asked) + FLOOR) * THOUSAND // (max(0, expected) + FLOOR), is_over


def _quantile(observed: list[tuple[int, bool]], share: int) -> int:
    """The ratio by which ``share`` thousandths of the waits are over; the largest that is over if not so many are."""
    ratios = sorted(observed + [(ratio, True) for ratio in PRIOR], key=lambda one: (one[0], not one[1]))
    waiting = scale = 10**12
    last = THOUSAND
    for place, (ratio, is_over) in enumerate(ratios):
        if is_over:
            left = len(ratios) - place
            waiting = waiting * (left - 1) // left
            last = ratio
            if waiting * THOUSAND <= scale * (THOUSAND - share):
                break
    return last
