"""The world as it will be at some instant, for as long as a run will last: what a plan reads instead of the present.

``Future`` looks like the topology, with nodes that offer the least they will have free in ``[at, at + length)``;
``Ahead`` tells a purse what every envelope will have spent and promised. Both count on the declared ends of running
work and leave the claims of reservations alone, so a plan made here cannot delay any of them.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping

from tenure.api.policy import Policy
from tenure.engine.books import Fund
from tenure.engine.demand import Selector
from tenure.engine.timeline.entries import EnvelopeTimeline
from tenure.engine.timeline.timeline import Timeline
from tenure.engine.topology import Location, Pool, PoolKind, Row, Topology, matches
from tenure.units import GpuMicros, Instant, Micros

NO_MONEY = EnvelopeTimeline()


class Future:
    """A topology of one instant to come, of all domains or of some, of all nodes or of some."""

    def __init__(
        self, topology: Topology, timeline: Timeline, *, now: Instant, at: Instant, length: Micros | None,
        domains: Collection[tuple[Location, str]] | None = None, nodes: Collection[str] | None = None,
        without: Collection[str] = (),
    ) -> None:  # fmt: skip
        """``nodes``: only these, and if it says how much, no more of each; ``without``: leases that the topology shows
        as ended already, though they are not."""
        self._without = without
        self._topology = topology
        self._horizon = timeline
        self._now = now
        self._at = at
        self._end = None if length is None else at + length
        self._domains = domains
        self._nodes = nodes
        self._pools: dict[tuple[str, Location, Selector, PoolKind], Pool] = {}
        self._aside: dict[str, int] = {}

    @property
    def policy(self) -> Policy:
        return self._topology.policy

    def locations(self, flavor: str) -> list[Location]:
        return self._topology.locations(flavor)

    def pool(self, flavor: str, location: Location, selector: Selector, kind: PoolKind = "free") -> Pool:
        if kind == "empty":
            return self._topology.pool(flavor, location, selector, kind)
        key = (flavor, location, selector, kind)
        found = self._pools.get(key)
        if found is None:
            found = self._pools[key] = Pool(location, selector, kind=kind)
            for row in self._rows(flavor, location):
                self._enter(found, row)
        return found

    def _rows(self, flavor: str, location: Location) -> Iterator[Row]:
        """Nodes of a location, of the domains or nodes that this is about: to look at few costs few."""
        if self._nodes is not None:
            rows = (self._topology.rows[name] for name in self._nodes if name in self._topology.rows)
            at = (flavor, location)
            yield from (row for row in rows if row.site is not None and (row.site.flavor, row.site.location) == at)
            return
        fabrics = self._horizon.place(flavor, location).rows
        some = fabrics if self._domains is None else [fabric for where, fabric in self._domains if where == location]
        for fabric in some:
            yield from fabrics.get(fabric, {}).values()

    def tentative(self, node: str, gpus: int) -> None:
        """Set GPUs aside (or back) while one plan is being made."""
        self._aside[node] = self._aside.get(node, 0) + gpus
        row = self._topology.rows[node]
        for pool in self._pools.values():
            if row.site is not None and row.site.location == pool.location:
                self._enter(pool, row)

    def look_again(self, nodes: Iterable[str]) -> None:
        """Some nodes look otherwise than when their pools were made."""
        for name in nodes:
            row = self._topology.rows[name]
            for (flavor, location, _, _), pool in self._pools.items():
                site = row.site
                if (
                    site is not None
                    and (site.flavor, site.location) == (flavor, location)
                    and (self._domains is None or (location, site.fabric) in self._domains)
                ):
                    self._enter(pool, row)

    def size(self, row: Row, kind: PoolKind = "free") -> int:
        """What a node will have for the whole time."""
        if not row.open:
            return 0
        free = row.size("free") + self._horizon.low(row.name, self._at, self._end, self._without)
        if isinstance(self._nodes, Mapping):
            free = min(free, self._nodes.get(row.name, 0))
        if kind == "fill" and self._at == self._now:
            free = max(0, free) + row.size("fill") - row.size("free")
            free = min(free, self._horizon.left_for_guests(row, self._at, self._end, self._without))
        return max(0, free - self._aside.get(row.name, 0))

    def _enter(self, pool: Pool, row: Row) -> None:
        if (self._nodes is None or row.name in self._nodes) and matches(pool.selector, row.labels):
            assert row.site is not None
            pool.set_size(row.site.fabric, row.order, self.size(row, pool.kind))


class Ahead:
    """What envelopes will have spent and promised by an instant to come, and hold while a run lasts (or ``since`` an
    earlier instant)."""

    def __init__(
        self, timeline: Timeline, *, now: Instant, at: Instant, length: Micros | None, since: Instant | None = None
    ) -> None:
        self._horizon = timeline
        self._now = now
        self.at = at
        self._since = at if since is None else since
        self._end = None if length is None else at + length

    @property
    def now(self) -> Instant:
        return self._now

    def held(self, fund: Fund) -> int:
        """The most GPUs it will pay for at one instant of the time."""
        money = self._horizon.money.get(fund.key)
        return 0 if money is None else -money.total.low(self._since, self._end)

    def lent(self, fund: Fund) -> int:
        money = self._horizon.money.get(fund.key)
        return 0 if money is None else -money.lent.low(self._since, self._end)

    def by(self, funds: Iterable[Fund]) -> Instant:
        """Then, or when the last of those starts who are promised something of this money, if that is later: what goes
        on until then without an end leaves that much less for them."""
        moneys = (self._horizon.money.get(fund.key) or NO_MONEY for fund in funds)
        return max(self.at, *(money.starts.last() for money in moneys))

    def spent(self, fund: Fund, by: Instant | None = None) -> GpuMicros:
        """Used and committed ``by`` then, what is promised to waiting runs included."""
        money, now = self._horizon.money.get(fund.key) or NO_MONEY, self._now
        committed = fund.ahead.ahead(now)  # first: it forgets the ends that are past
        by = now if self._horizon.as_spent else self.by((fund,)) if by is None else by
        openly = (fund.total.rate - fund.ahead.gpus - money.spared) * (by - now)
        return fund.total.used(now) + committed + openly + money.hours

    def lent_spent(self, fund: Fund) -> GpuMicros:
        money, now = self._horizon.money.get(fund.key) or NO_MONEY, self._now
        committed = fund.lent_ahead.ahead(now)
        by = now if self._horizon.as_spent else max(self.at, money.lent_starts.last())
        openly = (fund.lent.rate - fund.lent_ahead.gpus - money.lent_spared) * (by - now)
        return fund.lent.used(now) + committed + openly + money.lent_hours
