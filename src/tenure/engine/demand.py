"""What a Run asks for, compiled once from its spec: sizes, groups, place, period and funding limits.

The active GPUs of a width N are ``full`` groups of ``unit`` and a smaller ``tail``; each group also holds ``spares``.
Without ``groupGPUs`` the groups are made by the placement (one per domain), so ``unit`` is one pod and ``chunked`` is
set.
"""

from __future__ import annotations

from msgspec import Struct, structs

from tenure.api.run import Funding, Run, RunSpec
from tenure.units import Micros, parse_duration

Selector = tuple[tuple[str, str], ...]


class Shape(Struct, frozen=True):
    """One width, cut into groups."""

    unit: int
    full: int
    tail: int
    spares: int
    pod: int
    """GPUs of every pod, or 1 when pods are as wide as the placement makes them."""
    chunked: bool
    spread: bool

    @property
    def active(self) -> int:
        return self.unit * self.full + self.tail

    @property
    def groups(self) -> int:
        return self.full + (1 if self.tail else 0)

    @property
    def gpus(self) -> int:
        """All that is charged: active and spare."""
        return self.unit * self.full + self.tail + self.spares * (self.full + (1 if self.tail else 0))

    def affordable(self, money: int) -> Shape | None:
        """The part that so many GPUs pay for: whole groups, the smaller last one only if all others are in."""
        each = self.unit + self.spares
        full = min(self.full, money // each)
        tail = self.tail if full == self.full and money - full * each >= self.tail + self.spares else 0
        return structs.replace(self, full=full, tail=tail) if full or tail else None

    def describe(self) -> str:
        pods = f" in pods of {self.pod}" if self.pod > 1 else ""
        if self.chunked:
            return f"{self.active} GPUs{pods}" + ("" if self.spread else " in one domain")
        spares = f" + {self.spares} spare" if self.spares else ""
        sizes = f"{self.full} x {self.unit}" + (f" + {self.tail}" if self.tail else "")
        return f"groups of {sizes}{spares}{pods}" + ("" if self.spread else " in one domain")


class Demand(Struct, frozen=True):
    """A Run's request; equal demands of one owner get equal answers."""

    owner: str
    flavor: str
    selector: Selector
    widths: range
    """Widths to try, widest first. A fixed run has one."""
    group: int
    spares: int
    pod: int
    """GPUs of every pod, or 0 when pods are as wide as the placement makes them."""
    spread: bool
    duration: Micros | None
    borrow: bool
    max_borrow: int | None
    sponsors: tuple[str, ...]
    fill: bool = False
    """Opportunistic: may also run on other runs' spares."""

    @property
    def need(self) -> int:
        """GPUs that it is charged for at its narrowest: active and spare."""
        least = self.widths[-1]
        return self.shape(least).gpus if self.spares else least

    def shape(self, width: int) -> Shape:
        unit = self.group or self.pod or 1
        full, tail = divmod(width, unit)
        return Shape(unit, full, tail, self.spares, self.pod or 1, not self.group, self.spread)


def asks(run: Run) -> RunSpec:
    """What a run asks for, but for what may be edited while its promise stands: funding, and the width desired."""
    elastic = run.spec.malleable
    kept = None if elastic is None else structs.replace(elastic, desired_total_gpus=None)
    return structs.replace(run.spec, funding=Funding(), malleable=kept)


def compile_demand(run: Run) -> Demand:
    spec = run.spec
    elastic = spec.malleable
    top = spec.resources.total_gpus
    widths = range(top, top - 1, -1)
    group = spec.locality.group_gpus or 0
    if elastic is not None:
        top = min(top, elastic.desired_total_gpus or elastic.max_total_gpus)
        widths = range(top, elastic.min_total_gpus - 1, -elastic.step_gpus)
        group = group or elastic.step_gpus
    expected = spec.runtime.expected_duration
    return Demand(
        owner=spec.owner,
        flavor=spec.resources.gpu_type,
        selector=tuple(sorted(spec.locality.selector.items())),
        widths=widths,
        group=group,
        spares=spec.spares_per_group,
        pod=spec.resources.gpus_per_pod or 0,
        spread=spec.locality.allow_cross_group_spread,
        duration=None if expected is None else parse_duration(expected),
        borrow=spec.funding.allow_borrow and bool(spec.funding.sponsors),
        max_borrow=spec.funding.max_borrow_gpus,
        sponsors=spec.funding.sponsors,
        fill=spec.opportunistic and not spec.spares_per_group,  # whoever wants spares wants GPUs that nobody takes back
    )
