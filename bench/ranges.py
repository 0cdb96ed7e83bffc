"""What each number is expected to be, and from where that is known: ``bench/ranges.json``.

A promise is kept or broken; long before it is broken, a number that was 1.3 for months and is 1.9 today is news. So
each row has a range, with all that it was taken from: what was measured, when, at which commit, on which machine, under
which load. A row on the bad side of its range fails the gate as a broken promise does; one on the good side is told,
because a range that is too wide hides the next regression.

Ranges are as wide as the number swings by itself. What is counted gets a few percent, a ratio of times taken in turns
a third, an absolute time half of it again. Nobody edits the file by hand: ``--accept`` takes over what was measured.
Twice as good as the range allows is no improvement to take over, it is another machine; unless it is counted. What
the disk decides has no good end at all.

>>> row = Row(bench="scan", what="scan against admission", measured=20.0, goal=10, sense="at least")
>>> run = Origin(measured=20.0, at="", commit="c0ffee", python="3.11.7", system="L", cores=2, load=0.1)
>>> known = Range.of(row, [run])
>>> known.low, known.high, [known.judge(replace(row, measured=value), "L", "3.11.9", 8) for value in (12, 19, 40, 160)]
(14.81, 27.0, ['worse', 'inside', 'better', 'far'])
"""

from __future__ import annotations

from pathlib import Path
from typing import Literal

import msgspec
from msgspec import Struct
from msgspec.structs import asdict, replace

from bench import commits
from bench.result import Machine, Row

FILE = Path(__file__).parent / "ranges.json"
Judged = Literal["inside", "better", "far", "worse", "new", "elsewhere", "unjudged"]
"""``far``: so much better that the machine must be another. ``new``: there is no range. ``elsewhere``: the range is of
another sort of machine, and says nothing of this one.
``unjudged``: nothing is expected of it, because it was not measured, or at another scale than that of the promises."""

DIRTY = "-dirty"
"""How a commit ends that what was measured is not quite of."""
_STEADY = 0.03
_ALLOWED = {"x": 0.35, "": 0.10, "%": 0.02}
"""How far a number may be from what was measured, by its unit, as a part of it."""
_SECONDS = 0.5
_FAR = 2.0
"""How many times better than its range a number is that says more about the machine than about the code."""
_ANYWHERE = ("x", "", "%", "steps")
"""Units of numbers that do not depend on the machine."""
_BY_DISK = (commits.NAME,)
"""Benchmarks with ratios that follow how fast the disk syncs: expected of such a machine alone, and without an end on
the good side."""


class Origin(Machine, frozen=True, kw_only=True):
    """One run from which a range was taken."""

    measured: float


class Range(Struct, frozen=True, kw_only=True):
    low: float
    high: float | None
    """None: no upper end is kept."""
    unit: str
    taken_from: list[Origin]

    @classmethod
    def of(cls, row: Row, origins: list[Origin]) -> Range:
        """Around all that was measured, as wide as such a number swings."""
        found = [one.measured for one in origins]
        part = _STEADY if row.steady else _ALLOWED.get(row.unit, _SECONDS)
        low, high = min(found) / (1 + part), max(found) * (1 + part)
        if row.unit == "%":
            high = min(high, 100.0)
        if row.unit == "%" and row.goal == 100:
            low = min(found)
        is_open = row.bench in _BY_DISK and row.sense == "at least"
        return cls(low=_short(low), high=None if is_open else _short(high), unit=row.unit, taken_from=origins)

    def judge(self, row: Row, system: str, python: str, cores: int) -> Judged:
        """Where a row stands that was measured on such a machine."""
        if not self._says_something(row, system, python, cores):
            return "elsewhere"
        above = self.high is not None and row.measured > self.high
        if not above and row.measured >= self.low:
            return "inside"
        if above == (row.sense == "at most"):
            return "worse"
        return "far" if not row.steady and self._times_better(row) > _FAR else "better"

    def _times_better(self, row: Row) -> float:
        """How far beyond its good end a number is."""
        if row.sense == "at most":
            return self.low / row.measured if row.measured > 0 else 1.0
        return row.measured / self.high if self.high else 1.0

    def _says_something(self, row: Row, system: str, python: str, cores: int) -> bool:
        if row.unit in _ANYWHERE and row.bench not in _BY_DISK:
            return True
        same_python = any(_minor(one.python) == _minor(python) for one in self.taken_from)
        if row.unit == "lines":
            return same_python
        return same_python and any((one.system, one.cores) == (system, cores) for one in self.taken_from)

    @property
    def shown(self) -> str:
        return f"at least {_figure(self.low)}" if self.high is None else f"{_figure(self.low)} to {_figure(self.high)}"

    @property
    def runs(self) -> str:
        """From how many runs it is known.

        >>> Range(low=1, high=2, unit="x", taken_from=[]).runs
        '0 runs'
        """
        return "1 run" if len(self.taken_from) == 1 else f"{len(self.taken_from)} runs"


Ranges = dict[str, dict[str, dict[str, Range]]]
"""By scale, benchmark and row."""


def load(file: Path = FILE) -> Ranges:
    return msgspec.json.decode(file.read_bytes(), type=Ranges) if file.is_file() else {}


def save(ranges: Ranges, file: Path = FILE) -> None:
    text = msgspec.json.format(msgspec.json.encode(ranges, order="deterministic"), indent=1)
    file.write_bytes(text + b"\n")


def take(ranges: Ranges, scale: str, rows: list[tuple[Row, Origin]], *, widen: bool) -> list[tuple[Row, Range]]:
    """New ranges for these rows, in place; with ``widen`` what they were taken from before counts as well."""
    out = []
    for row, origin in rows:
        its = ranges.setdefault(scale, {}).setdefault(row.bench, {})
        older = its[row.key].taken_from if widen and row.key in its else []
        its[row.key] = Range.of(row, [*(one for one in older if one != origin), origin])
        out.append((row, its[row.key]))
    return out


def origin(row: Row, machine: Struct) -> Origin:
    """Where a row comes from; ``machine`` is that of ``report``."""
    return Origin(measured=_short(row.measured), **asdict(machine))


def _minor(python: str) -> str:
    return python.rpartition(".")[0]


def _short(value: float) -> float:
    """Four digits are more than any of these numbers is good for; of a count all stay.

    >>> _short(1.356789), _short(123456.7), _short(0.000123456)
    (1.357, 123457.0, 0.0001235)
    """
    return float(f"{value:.4g}") if abs(value) < 1000 else float(round(value))


def _figure(value: float) -> str:
    return f"{value:,.0f}" if value >= 100 else f"{value:.3g}"


__all__ = ["DIRTY", "FILE", "Judged", "Origin", "Range", "Ranges", "load", "origin", "replace", "save", "take"]
