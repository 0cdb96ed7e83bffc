"""How scattered the free GPUs are, over time: gangs that fit, against gangs that would fit if no room were wasted.

For each size 1, 2, 4, ... the engine says how many such gangs fit each domain now, and how many would if the free GPUs
of that domain lay together (``engine.topology.slots``). To these two, summed over domains, comes a third: how many
would fit if all free GPUs of a location lay together. The first gap is room scattered over machines, the second one
room scattered over domains. The curves are for gangs as wide as a machine and as wide as a domain, where that hurts.
"""

from __future__ import annotations

from msgspec import Struct

from tenure.engine.topology import Pool, Topology, slots
from tenure.simulate.stats import Curve
from tenure.units import SECOND, Micros


class Fit(Struct, frozen=True, rename="camel"):
    """Gangs of one size, on average."""

    size: int
    fit: float
    """That fitted."""
    ideal: float
    """That would have, if the free GPUs of each domain lay together."""
    packed: float
    """That would have, if all free GPUs of a location lay together."""


class FitCurve(Struct, frozen=True, rename="camel"):
    """Gangs of one size over time: those that fitted, and those that would have if all free GPUs lay together."""

    size: int
    fit: Curve
    packed: Curve


class Fragmentation(Struct, frozen=True, rename="camel"):
    samples: int
    free: float
    """GPUs that were free, on average."""
    sizes: tuple[Fit, ...]
    curves: tuple[FitCurve, ...]


class _Gangs(Struct):
    """Gangs of one size at one instant."""

    fit: int = 0
    ideal: int = 0
    packed: int = 0


_NONE = _Gangs()
_Sample = dict[int, _Gangs]
"""By size."""


class Room:
    """Looks at the free GPUs once in every period."""

    def __init__(self, *, period: Micros) -> None:
        self.period = period
        self._samples: list[_Sample] = []
        self._widths: tuple[int, ...] = ()

    def look(self, topology: Topology, *, until: Micros) -> None:
        """Sample every period that has begun by ``until``; nothing changed since the last call but time."""
        due = until // self.period + 1 - len(self._samples)
        if due > 0:
            self._samples += [_sample(topology)] * due
        if not self._widths:
            self._widths = _widths(topology)

    def result(self, *, until: Micros) -> Fragmentation:
        """Means over the samples up to ``until``, the curves over all of them."""
        counted = self._samples[: until // self.period + 1]
        widest = max(self._widths, default=0)  # a wider gang never fits one domain, whatever is free
        found = sorted({size for sample in counted for size in sample if size <= widest})
        sizes = [_fit(counted, size) for size in found]
        return Fragmentation(
            samples=len(self._samples),
            free=sizes[0].packed if sizes else 0.0,
            sizes=tuple(sizes),
            curves=tuple(self._curve(width) for width in self._widths),
        )

    def _curve(self, size: int) -> FitCurve:
        gangs, seconds = [sample.get(size, _NONE) for sample in self._samples], self.period // SECOND
        return FitCurve(
            size,
            Curve(period_seconds=seconds, values=tuple(float(one.fit) for one in gangs)),
            Curve(period_seconds=seconds, values=tuple(float(one.packed) for one in gangs)),
        )


def _sample(topology: Topology) -> _Sample:
    sample: _Sample = {}
    for flavor in topology.flavors():
        for location in topology.locations(flavor):
            _add(sample, topology.pool(flavor, location, ()))
    return sample


def _add(sample: _Sample, pool: Pool) -> None:
    for sizes in slots(pool).values():
        for one in sizes:
            gangs = sample.setdefault(one.size, _Gangs())
            gangs.fit += one.fit
            gangs.ideal += one.ideal
    size = 1
    while size <= pool.free:
        sample.setdefault(size, _Gangs()).packed += pool.free // size
        size *= 2


def _fit(samples: list[_Sample], size: int) -> Fit:
    gangs = [sample[size] for sample in samples if size in sample]
    count = len(samples)
    return Fit(
        size,
        sum(one.fit for one in gangs) / count,
        sum(one.ideal for one in gangs) / count,
        sum(one.packed for one in gangs) / count,
    )


def _widths(topology: Topology) -> tuple[int, ...]:
    """The widest gang that fits one machine, and one domain, of those that come in powers of two."""
    domains: dict[tuple[str, str, str, str], int] = {}
    for row in topology.rows.values():
        if row.site is not None:
            key = (row.site.flavor, row.site.region, row.site.cluster, row.site.fabric)
            domains[key] = domains.get(key, 0) + row.gpus
    widest = (max((row.gpus for row in topology.rows.values()), default=0), max(domains.values(), default=0))
    return tuple(sorted({1 << gpus.bit_length() - 1 for gpus in widest if gpus}))
