"""Where GPUs are: nodes, their domains, and indexes that answer "who has room" without a scan.

A node belongs to one *site*: (flavor, region, cluster, fabric domain), read from its labels. A *location* is (region,
cluster). A ``Pool`` indexes the nodes of one flavor and location that match a selector: nodes of each domain by free
GPUs, and domains by room. Pools are made when first asked for and then kept up to date: a change marks a node, and the
pool looks at marked nodes when it is next read, so the cost of a change is the number of pools that know the node.

Quarantine: a node that cannot be understood takes nothing and says why; it never stops planning for the rest.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Literal

from msgspec import Struct

from tenure.api.core import Node
from tenure.api.policy import Policy
from tenure.engine.buckets import Buckets
from tenure.engine.demand import Selector
from tenure.engine.rank import Rank, Size
from tenure.facts import Lease, Reason

MANAGED_TAINT = "rq.davidlangworthy.io/managed"
FENCE_TAINT = "node.kubernetes.io/out-of-service"
GPUS_PER_NODE_MAX = 1024
_POOLS_MAX = 256
_KEYS = {
    "region": ("region", "topology.kubernetes.io/region"),
    "cluster": ("cluster", "topology.kubernetes.io/zone"),
    "domain": ("fabric.domain",),
    "rack": ("rack", "topology.kubernetes.io/rack"),
    "flavor": ("gpu.flavor", "nvidia.com/gpu.product"),
}

Location = tuple[str, str]
"""(region, cluster)"""
PoolKind = Literal["free", "fill", "empty"]
"""What a pool counts: free GPUs; those and other runs' spares; or all GPUs, whoever holds them."""
NodeName = tuple[str, str]
"""(rack, name): the order in which equals are chosen."""


class Site(Struct, frozen=True):
    flavor: str
    region: str
    cluster: str
    fabric: str
    rack: str

    @property
    def location(self) -> Location:
        return self.region, self.cluster


class Row:
    """One node: what its labels say, what it offers, and which ordinals are held."""

    __slots__ = ("fault", "filled", "gpus", "held", "labels", "leases", "name", "node", "open", "pools",
                 "site", "spare", "tentative")  # fmt: skip

    def __init__(self, node: Node, policy: Policy) -> None:
        self.node = node
        self.name = node.metadata.name
        self.held = 0
        """Ordinals in open Active and Spare leases."""
        self.spare = 0
        """Of those, the ones in Spare leases."""
        self.filled = 0
        """Of those, the ones that opportunistic work sits on."""
        self.tentative = 0
        self.leases: set[str] = set()
        self.pools: list[Pool] = []
        self.read(node, policy)

    def read(self, node: Node, policy: Policy) -> None:
        self.node = node
        self.gpus, bad = _count(node, policy)
        self.labels, self.site, missing = _site(node, policy)
        self.fault = bad or (missing if self.gpus else None)
        self.open = self.fault is None and self.gpus > 0 and _takes_work(node)

    @property
    def order(self) -> NodeName:
        return (self.site.rack if self.site else "", self.name)

    def free(self) -> int:
        return self.size("free")

    def size(self, kind: PoolKind) -> int:
        """GPUs that a pool of this kind counts."""
        if kind == "empty":
            return self.gpus if self.fault is None else 0
        if not self.open:
            return 0
        usable = self.balance()
        if kind == "fill":
            usable += (((1 << self.gpus) - 1) & self.spare & ~self.filled).bit_count()
        return max(0, usable)

    def balance(self) -> int:
        """Free GPUs; fewer than none where leases hold more than the node has by now. What is held counts wherever it
        is: a node of which others took GPUs offers no more than is left."""
        return self.gpus - self.held.bit_count() - self.tentative if self.open else 0

    def lowest_free(self, count: int, taken: int = 0) -> tuple[int, ...]:
        """The lowest ordinals that are neither held nor in the mask ``taken``."""
        return _lowest(((1 << self.gpus) - 1) & ~(self.held | taken), count)

    def lowest_spare(self, count: int, taken: int = 0) -> tuple[int, ...]:
        """The lowest ordinals of spares that nobody fills."""
        return _lowest((1 << self.gpus) - 1 & self.spare & ~(self.filled | taken), count)


class Domain:
    """The nodes of one fabric domain in a pool."""

    __slots__ = ("free", "nodes", "room", "seen")

    def __init__(self) -> None:
        self.nodes: Buckets[NodeName] = Buckets()
        self.seen: dict[NodeName, int] = {}
        self.free = 0
        self.room: dict[int, int] = {}

    def size(self, pod: int) -> Size:
        return self.room[pod], self.free


class Pool:
    """The nodes of one flavor and location that match a selector, by free GPUs (or as the kind says)."""

    __slots__ = ("_stale", "dead", "domains", "free", "free_nodes", "kind", "location", "ranks", "selector")

    def __init__(self, location: Location, selector: Selector, *, kind: PoolKind) -> None:
        self.location = location
        self.selector = selector
        self.kind = kind
        self.domains: dict[str, Domain] = {}
        self.ranks: dict[int, Rank] = {}
        self.free = 0
        self.free_nodes = 0
        """Nodes that have anything free."""
        self.dead = False
        self._stale: dict[str, Row] = {}

    def touch(self, row: Row) -> None:
        self._stale[row.name] = row

    def fresh(self) -> Pool:
        """Bring the indexes up to date with the rows that changed."""
        if self._stale:
            for row in self._stale.values():
                self._reread(row)
            self._stale.clear()
        return self

    def forget(self, row: Row) -> None:
        self._stale.pop(row.name, None)
        if row.site is not None:
            self.set_size(row.site.fabric, row.order, 0)

    def rank(self, pod: int) -> Rank:
        """Domains by how many GPUs they have for pods of exactly this width."""
        found = self.ranks.get(pod)
        if found is None:
            found = self.ranks[pod] = Rank()
            for fabric, domain in sorted(self.domains.items()):
                domain.room[pod] = sum(size // pod * pod for size in domain.seen.values())
                found.move(fabric, (0, 0), domain.size(pod))
        return found

    def _reread(self, row: Row) -> None:
        assert row.site is not None
        self.set_size(row.site.fabric, row.order, row.size(self.kind))

    def set_size(self, fabric: str, name: NodeName, size: int) -> None:
        domain = self.domains.get(fabric)
        if domain is None:
            domain = self.domains[fabric] = Domain()
            domain.room = dict.fromkeys(self.ranks, 0)
        old = domain.seen.get(name, 0)
        if old == size:
            return
        domain.nodes.move(name, old, size)
        if size:
            domain.seen[name] = size
        else:
            del domain.seen[name]
        before = {pod: domain.size(pod) for pod in self.ranks}
        domain.free += size - old
        self.free += size - old
        self.free_nodes += (size > 0) - (old > 0)
        for pod, rank in self.ranks.items():
            domain.room[pod] += size // pod * pod - old // pod * pod
            rank.move(fabric, before[pod], domain.size(pod))
        if not domain.seen:
            del self.domains[fabric]


class Topology:
    """All nodes, and the pools over them."""

    def __init__(self, policy: Policy) -> None:
        self.policy = policy
        self.rows: dict[str, Row] = {}
        self._places: dict[str, dict[Location, dict[str, Row]]] = {}
        self._pools: dict[tuple[str, Location, Selector, PoolKind], Pool] = {}
        self._matching: dict[tuple[str, str, Selector], frozenset[str]] = {}

    # -- facts --

    def put(self, node: Node) -> Row:
        row = self.rows.get(node.metadata.name)
        if row is None:
            row = self.rows[node.metadata.name] = Row(node, self.policy)
        else:
            before = (row.site, row.labels)
            self._leave(row)
            row.read(node, self.policy)
            if before == (row.site, row.labels):
                self._join(row, known=True)
                return row
        self._matching.clear()
        self._join(row)
        return row

    def remove(self, name: str) -> None:
        row = self.rows.pop(name, None)
        self._matching.clear()
        if row is not None:
            self._leave(row)
            self._drop_pools(row)

    def hold(self, lease: Lease) -> None:
        row = self.rows[lease.node]
        mask = sum(1 << ordinal for ordinal in lease.gpus)
        if lease.role == "Borrowed":
            assert not mask & (~row.spare | row.filled), f"I1: {lease.key} borrows what is no free spare"
            row.filled |= mask
        else:
            assert not row.held & mask, f"I1: an ordinal of {lease.node} is held twice"
            row.held |= mask
            row.spare |= mask if lease.role == "Spare" else 0
        row.leases.add(lease.key)
        self.touch(row)

    def release(self, lease: Lease) -> None:
        row = self.rows.get(lease.node)
        if row is None:
            return
        mask = sum(1 << ordinal for ordinal in lease.gpus)
        if lease.role == "Borrowed":
            row.filled &= ~mask
        else:
            row.held &= ~mask
            row.spare &= ~mask
        row.leases.discard(lease.key)
        self.touch(row)

    def tentative(self, node: str, gpus: int) -> None:
        """Set GPUs aside (or, if negative, back) while one plan is being made."""
        row = self.rows[node]
        row.tentative += gpus
        self.touch(row)

    def touch(self, row: Row) -> None:
        alive = True
        for pool in row.pools:
            pool.touch(row)
            alive = alive and not pool.dead
        if not alive:
            row.pools = [pool for pool in row.pools if not pool.dead]

    # -- questions --

    def locations(self, flavor: str) -> list[Location]:
        return sorted(self._places.get(flavor, ()))

    def flavors(self) -> list[str]:
        return sorted(self._places)

    def pool(self, flavor: str, location: Location, selector: Selector, kind: PoolKind = "free") -> Pool:
        key = (flavor, location, selector, kind)
        pool = self._pools.pop(key, None)
        if pool is None:
            pool = Pool(location, selector, kind=kind)
            for row in self._places.get(flavor, {}).get(location, {}).values():
                if matches(selector, row.labels):
                    row.pools.append(pool)
                    pool.touch(row)
            self._evict()
        self._pools[key] = pool
        return pool.fresh()

    def matching(self, flavor: str, cluster: str, selector: Selector) -> frozenset[str]:
        """The nodes of a cluster that have these labels."""
        key = flavor, cluster, selector
        if key not in self._matching:
            places = (rows for (_, name), rows in self._places.get(flavor, {}).items() if name == cluster)
            self._matching[key] = frozenset(
                row.name for rows in places for row in rows.values() if matches(selector, row.labels)
            )
        return self._matching[key]

    def faults(self) -> Iterator[tuple[str, Reason]]:
        for name in sorted(self.rows):
            fault = self.rows[name].fault
            if fault is not None:
                yield name, fault

    def _evict(self) -> None:
        while len(self._pools) >= _POOLS_MAX:
            oldest = next(iter(self._pools))
            self._pools.pop(oldest).dead = True

    # -- membership --

    def _join(self, row: Row, *, known: bool = False) -> None:
        if row.site is None:
            self._drop_pools(row)
            return
        places = self._places.setdefault(row.site.flavor, {})
        places.setdefault(row.site.location, {})[row.name] = row
        if not known:
            self._drop_pools(row)
            for (flavor, location, selector, _), pool in self._pools.items():
                if (flavor, location) == (row.site.flavor, row.site.location) and matches(selector, row.labels):
                    row.pools.append(pool)
        self.touch(row)

    def _leave(self, row: Row) -> None:
        if row.site is None:
            return
        for pool in row.pools:
            pool.forget(row)
        places = self._places[row.site.flavor]
        del places[row.site.location][row.name]
        if not places[row.site.location]:
            del places[row.site.location]
        if not places:
            del self._places[row.site.flavor]

    @staticmethod
    def _drop_pools(row: Row) -> None:
        row.pools = []


class Slots(Struct, frozen=True):
    """How many gangs of one size fit a domain now, and how many would if its free GPUs were not scattered."""

    size: int
    fit: int
    ideal: int


def slots(pool: Pool) -> dict[str, list[Slots]]:
    """Slots of sizes 1, 2, 4, ... per domain; a gang's pods are as wide as it and the widest node allow."""
    table = {}
    for fabric, domain in sorted(pool.fresh().domains.items()):
        widest = max(domain.seen.values(), default=0)
        sizes, size = [], 1
        while size <= domain.free:
            pod = min(size, 1 << widest.bit_length() - 1)
            room = sum(free // pod * pod for free in domain.seen.values())
            sizes.append(Slots(size, room // size, domain.free // size))
            size *= 2
        table[fabric] = sizes
    return table


def _lowest(mask: int, count: int) -> tuple[int, ...]:
    assert mask.bit_count() >= count, "I1: a plan takes what is there"
    out = []
    for _ in range(count):
        bit = mask & -mask
        out.append(bit.bit_length() - 1)
        mask ^= bit
    return tuple(out)


def matches(selector: Iterable[tuple[str, str]], labels: dict[str, str]) -> bool:
    return all(labels.get(key) == value for key, value in selector)


def is_fenced(node: Node) -> bool:
    """Nothing on this node runs any more, and nothing will until it is let in again (SPEC 9)."""
    return any(taint.key == FENCE_TAINT for taint in node.spec.taints)


def is_ready(node: Node) -> bool:
    return all(mark.status == "True" for mark in node.status.conditions if mark.type == "Ready")


def _takes_work(node: Node) -> bool:
    taints = [taint for taint in node.spec.taints if taint.key != MANAGED_TAINT and taint.effect != "PreferNoSchedule"]
    return not node.spec.unschedulable and not taints and is_ready(node)


def _count(node: Node, policy: Policy) -> tuple[int, Reason | None]:
    text = node.status.allocatable.get(policy.gpu_resource, "0")
    if text.isascii() and text.isdigit() and len(text) < 9 and int(text) <= GPUS_PER_NODE_MAX:
        return int(text), None
    return 0, Reason(code="BadCount", data={"node": node.metadata.name, "count": text[:20]})


def label_keys(policy: Policy, what: str) -> tuple[str, ...]:
    configured = policy.topology_labels.get(what)
    return (configured, *_KEYS[what]) if configured else _KEYS[what]


def _site(node: Node, policy: Policy) -> tuple[dict[str, str], Site | None, Reason | None]:
    """Labels as selectors see them (with the usual names filled in from the fallbacks), the site, what is missing."""
    labels = dict(node.metadata.labels)
    found = {}
    for what in _KEYS:
        keys = label_keys(policy, what)
        value = next((labels[key] for key in keys if labels.get(key)), "")
        if not value and what != "rack":
            return labels, None, Reason(code="MissingLabel", data={"node": node.metadata.name, "label": keys[0]})
        found[what] = value
        if value:
            labels.setdefault(_KEYS[what][0], value)
    site = Site(found["flavor"], found["region"], found["cluster"], found["domain"], found["rack"])
    return labels, site, None
