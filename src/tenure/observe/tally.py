"""Numbers that only grow, by label: counts, and how values are spread over buckets. Plain data; nobody is told."""

from __future__ import annotations

from bisect import bisect_left
from itertools import accumulate

from tenure.observe.table import Labels, Metric


class Count:
    """A counter. Series whose labels are known in advance begin at 0."""

    def __init__(self, metric: Metric) -> None:
        self.metric = metric
        self.values: dict[Labels, float] = dict.fromkeys(metric.all_series(), 0)

    def add(self, *labels: str, by: float = 1) -> None:
        assert len(labels) == len(self.metric.labels), f"{self.metric.name} has the labels {[*self.metric.labels]}"
        self.values[labels] = self.values.get(labels, 0) + by


class Spread:
    """A histogram: how many values were at most so large, and their sum.

    >>> spread = Spread(Metric("x_seconds", "histogram", "", {}, (1, 10)))
    >>> for value in (0.5, 10, 99): spread.add(value=value)
    >>> spread.series()
    [((), [(1, 1), (10, 2), (inf, 3)], 109.5)]
    """

    def __init__(self, metric: Metric) -> None:
        self.metric = metric
        self._counts = {labels: [0] * (len(metric.buckets) + 1) for labels in metric.all_series()}
        self._sums: dict[Labels, float] = dict.fromkeys(self._counts, 0)

    def add(self, *labels: str, value: float) -> None:
        assert len(labels) == len(self.metric.labels), f"{self.metric.name} has the labels {[*self.metric.labels]}"
        counts = self._counts.setdefault(labels, [0] * (len(self.metric.buckets) + 1))
        counts[bisect_left(self.metric.buckets, value)] += 1
        self._sums[labels] = self._sums.get(labels, 0) + value

    def series(self) -> list[tuple[Labels, list[tuple[float, int]], float]]:
        """(labels, [(bound, how many values are at most that)], their sum)"""
        bounds = (*self.metric.buckets, float("inf"))
        return [
            (labels, list(zip(bounds, accumulate(counts), strict=True)), self._sums[labels])
            for labels, counts in self._counts.items()
        ]
