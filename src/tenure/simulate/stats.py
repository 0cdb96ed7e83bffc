"""What a replay is judged by: waits, utilisation, the queue. The same arithmetic for every policy that is compared.

A policy tells a ``Tally`` what happens (submitted, started, ended, so many GPUs taken or given back), in the order of
time; the tally answers with a ``Summary``. Sums are exact integers; hours and shares are made of them at the very end.

- The wait of a job is the time from its submission to its first start. Jobs that never started have none, and are
  counted apart.
- A percentile is the smallest wait that is not exceeded by so many per cent of the jobs (nearest rank).
- Utilisation is GPUs held over GPUs there are. Its mean is taken over the time in which jobs are submitted: after that
  a fleet runs empty, however it is scheduled.

>>> level = Level(period=10); level.add(4, at=5); level.add(-4, at=25); level.means(30)
[2.0, 4.0, 2.0]
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from msgspec import Struct

from tenure.simulate.trace import Job
from tenure.units import DAY, HOUR, MINUTE, SECOND, Micros

SIZES = ((1, "1"), (8, "2-8"), (64, "9-64"), (256, "65-256"))
LARGEST = "257+"
SIZE_CLASSES = (*(name for _, name in SIZES), LARGEST)
QUANTILES = tuple(range(0, 101, 5))
"""Per cent, of the curves that show a whole distribution."""
POINTS_MAX = 800
"""Points of a curve over the time of submissions."""
_PERIODS = (SECOND, 10 * SECOND, MINUTE, 5 * MINUTE, 15 * MINUTE, HOUR, 3 * HOUR, 6 * HOUR, DAY)


class Waits(Struct, frozen=True, kw_only=True, rename="camel"):
    """How long some jobs waited, in hours."""

    jobs: int
    mean: float = 0.0
    p50: float = 0.0
    p90: float = 0.0
    max: float = 0.0
    quantiles: tuple[float, ...] = ()
    """At 0, 5, 10, ... 100 per cent."""


class Curve(Struct, frozen=True, kw_only=True, rename="camel"):
    """A number over time: its mean in each period since the start."""

    period_seconds: int
    values: tuple[float, ...]


class Summary(Struct, frozen=True, kw_only=True, rename="camel"):
    """How one policy did."""

    policy: str
    submitted: int
    started: int
    completed: int
    failed: int
    virtual_days: float
    """From the start of the trace to the last end."""
    wait_hours: Waits
    wait_hours_by_size: dict[str, Waits]
    wait_hours_by_owner: dict[str, Waits]
    utilisation: float
    """The mean while jobs are submitted."""
    utilisation_curve: Curve
    queue: float
    """Jobs that wait; the mean while jobs are submitted."""
    queue_curve: Curve


class Level:
    """A number that changes at instants, and its means over periods of equal length."""

    def __init__(self, *, period: Micros, horizon: Micros = 0) -> None:
        self.period = period
        self.horizon = horizon
        self.value = 0
        self._at: Micros = 0
        self._area = 0
        self._areas: list[int] = []
        self._until_horizon = 0

    def add(self, amount: int, *, at: Micros) -> None:
        self._advance(at)
        self.value += amount

    def mean(self) -> float:
        """Over the time up to the horizon."""
        self._advance(self.horizon)
        return self._until_horizon / self.horizon if self.horizon else 0.0

    def means(self, until: Micros) -> list[float]:
        """Of each period that begins before ``until``; the last one may be cut short."""
        self._advance(until)
        rest = until - len(self._areas) * self.period
        tail = [self._area / rest] if rest > 0 else []
        return [area / self.period for area in self._areas] + tail

    def _advance(self, to: Micros) -> None:
        at = self._at
        if to <= at:
            return
        self._until_horizon += self.value * (min(to, self.horizon) - min(at, self.horizon))
        while (end := (len(self._areas) + 1) * self.period) <= to:
            self._areas.append(self._area + self.value * (end - at))
            self._area, at = 0, end
        self._area += self.value * (to - at)
        self._at = to


class Tally:
    """What became of the jobs under one policy, as it happens. Instants are counted from the start of the trace."""

    def __init__(self, policy: str, *, gpus: int, horizon: Micros) -> None:
        self.policy = policy
        self.gpus = gpus
        period = period_for(horizon)
        self.busy = Level(period=period, horizon=horizon)
        self.waiting = Level(period=period, horizon=horizon)
        self.submitted = 0
        self.completed = 0
        self.failed = 0
        self.waits: list[tuple[Job, Micros]] = []
        self.last: Micros = 0

    def submit(self, jobs: int, *, at: Micros) -> None:
        self.submitted += jobs
        self.waiting.add(jobs, at=at)

    def start(self, job: Job, *, at: Micros) -> None:
        """A job starts for the first time."""
        self.waits.append((job, at - job.submit))
        self.waiting.add(-1, at=at)

    @property
    def over(self) -> int:
        """Jobs that will never run again."""
        return self.completed + self.failed

    def end(self, *, completed: bool = True, at: Micros) -> None:
        self.completed += completed
        self.failed += not completed
        self.last = max(self.last, at)

    def hold(self, gpus: int, *, at: Micros) -> None:
        """GPUs are taken; if negative, given back."""
        self.busy.add(gpus, at=at)

    def summary(self) -> Summary:
        sizes, owners = _grouped((size_class(job.gpus), job.owner, wait) for job, wait in self.waits)
        until = max(self.last, self.busy.horizon)
        return Summary(
            policy=self.policy,
            submitted=self.submitted,
            started=len(self.waits),
            completed=self.completed,
            failed=self.failed,
            virtual_days=until / DAY,
            wait_hours=waits_of([wait for _, wait in self.waits]),
            wait_hours_by_size={name: waits_of(sizes[name]) for name in SIZE_CLASSES if name in sizes},
            wait_hours_by_owner={name: waits_of(owners[name]) for name in sorted(owners)},
            utilisation=self.busy.mean() / self.gpus,
            utilisation_curve=curve(self.busy, until, scale=self.gpus),
            queue=self.waiting.mean(),
            queue_curve=curve(self.waiting, until),
        )


def waits_of(waits: Iterable[Micros]) -> Waits:
    """The distribution of some waits.

    >>> waits = waits_of(hours * 3_600_000_000 for hours in (1, 2, 3, 4, 10))
    >>> waits.mean, waits.p50, waits.p90, waits.max
    (4.0, 3.0, 10.0, 10.0)
    """
    ordered = sorted(waits)
    if not ordered:
        return Waits(jobs=0)
    return Waits(
        jobs=len(ordered),
        mean=sum(ordered) / len(ordered) / HOUR,
        p50=percentile(ordered, 50) / HOUR,
        p90=percentile(ordered, 90) / HOUR,
        max=ordered[-1] / HOUR,
        quantiles=tuple(percentile(ordered, percent) / HOUR for percent in QUANTILES),
    )


def percentile(ordered: Sequence[Micros], percent: int) -> Micros:
    """By nearest rank.

    >>> percentile(range(1, 11), 90), percentile(range(1, 11), 0), percentile([7], 50)
    (9, 1, 7)
    """
    return ordered[max(0, -(-len(ordered) * percent // 100) - 1)]


def size_class(gpus: int) -> str:
    """The class of a job's width.

    >>> [size_class(gpus) for gpus in (1, 8, 9, 256, 1024)]
    ['1', '2-8', '9-64', '65-256', '257+']
    """
    return next((name for most, name in SIZES if gpus <= most), LARGEST)


def period_for(span: Micros) -> Micros:
    """A round period that cuts a span into a readable number of points."""
    return next((period for period in _PERIODS if span <= POINTS_MAX * period), _PERIODS[-1])


def curve(level: Level, until: Micros, *, scale: int = 1) -> Curve:
    return Curve(
        period_seconds=level.period // SECOND,
        values=tuple(round(value / scale, 4) for value in level.means(until)),
    )


def _grouped(rows: Iterable[tuple[str, str, Micros]]) -> tuple[dict[str, list[Micros]], dict[str, list[Micros]]]:
    sizes: dict[str, list[Micros]] = {}
    owners: dict[str, list[Micros]] = {}
    for size, owner, wait in rows:
        sizes.setdefault(size, []).append(wait)
        owners.setdefault(owner, []).append(wait)
    return sizes, owners
