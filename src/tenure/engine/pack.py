"""Where a gang goes (SPEC 5): whole groups into domains, then GPUs of nodes.

The rule: fewest domains, then domains the run already uses, then the tightest fit, then name; inside a domain the
fewest nodes, then the least left over on them, then rack and name. "Fewest" is reached by taking the largest first,
and the last one is the tightest that still holds the rest. A group never crosses a domain; a group and its spares stay
together; spares avoid the nodes of the group they stand by for, when the domain allows it.

``fill`` places as many groups as fit and says what is left, so that one run may be spread over several pools.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable

from msgspec import Struct, structs

from tenure.engine.buckets import Buckets
from tenure.engine.demand import Shape
from tenure.engine.rank import Rank, Size
from tenure.engine.topology import Domain, NodeName, Pool
from tenure.facts import Reason

Share = tuple[str, int]
"""(node, GPUs)"""


class Group(Struct, frozen=True):
    """One placed group: its domain, and how many GPUs of which nodes."""

    location: tuple[str, str]
    fabric: str
    active: tuple[Share, ...]
    spares: tuple[Share, ...] = ()

    @property
    def gpus(self) -> int:
        return sum(gpus for _, gpus in self.active) + sum(gpus for _, gpus in self.spares)


class Filled(Struct, frozen=True):
    """What was placed, what is left to place, and what the touched domains keep free."""

    groups: tuple[Group, ...]
    left: Shape | None
    residue: int = 0

    @property
    def domains(self) -> tuple[str, ...]:
        return tuple(dict.fromkeys("/".join((*group.location, group.fabric)) for group in self.groups))


class _Pick(Struct):
    fabric: str
    full: int
    tail: bool


def fill(pool: Pool, shape: Shape, *, used: Collection[str] = (), first: Pool | None = None) -> Filled:
    """Place groups of this shape, as many as fit; ``used`` are fabric domains that the run already has.

    ``first`` is the same pool without GPUs that are spares of other runs: what is in it is taken first.
    """
    picks, left = _picks(pool, shape, used)
    groups = [group for pick in picks for group in _groups(pool, shape, pick, first)]
    groups.sort(key=lambda group: -_active(group))  # the smaller last group has the highest index, wherever it went
    free = sum(pool.domains[pick.fabric].free for pick in picks)
    return Filled(tuple(groups), left, free - sum(group.gpus for group in groups))


def unplaced(pool: Pool, shape: Shape) -> Shape | None:
    """What ``fill`` would leave, without looking for nodes."""
    return _picks(pool, shape, ())[1]


def _picks(pool: Pool, shape: Shape, used: Collection[str]) -> tuple[list[_Pick], Shape | None]:
    """Which domain takes how many groups, and what no domain takes."""
    rank = pool.rank(shape.pod)
    picks: list[_Pick] = []
    aside: list[tuple[str, Size]] = []
    full, tail = shape.full, bool(shape.tail)
    try:
        while full or tail:
            fresh = [fabric for fabric in used if all(pick.fabric != fabric for pick in picks)]
            pick = _whole(pool, rank, shape, full, tail, fresh) or (
                _largest(pool, rank, shape, full, tail) if shape.spread else None
            )
            if pick is None:
                break
            picks.append(pick)
            full, tail = full - pick.full, tail and not pick.tail
            if not full and not tail:
                break
            # A domain is filled once: it stands aside until the picks are made.
            aside.append((pick.fabric, pool.domains[pick.fabric].size(shape.pod)))
            rank.move(pick.fabric, aside[-1][1], (0, 0))
    finally:
        for fabric, size in aside:
            rank.move(fabric, (0, 0), size)
    return picks, _rest(shape, full, tail) if full or tail else None


def left_after(shape: Shape, groups: Iterable[Group]) -> Shape | None:
    """What is left of a shape once these groups are placed."""
    full, tail = shape.full, shape.tail
    for group in groups:
        active = _active(group)
        if tail and active == tail and active != shape.unit:
            tail = 0
        else:
            full -= active // shape.unit
    return structs.replace(shape, full=full, tail=tail) if full or tail else None


def fault(pool: Pool, shape: Shape, where: str) -> Reason:
    """Why ``fill`` could not place all of it, in numbers."""
    largest = pool.rank(shape.pod).largest()
    data: dict[str, int | str] = {
        "where": where,
        "free": pool.free,
        "need": shape.gpus,
        "largest": largest,
        "shape": shape.describe(),
    }
    if pool.free < shape.gpus:
        return Reason(code="NoCapacity", data=data)
    if not shape.spread:
        closest = pool.rank(shape.pod).first(largest) if largest else "none"
        return Reason(code="SpreadForbidden", data=data | {"where": f"{where}/{closest}"})
    return Reason(code="Fragmented", data=data)


def _active(group: Group) -> int:
    return sum(gpus for _, gpus in group.active)


def _rest(shape: Shape, full: int, tail: bool) -> Shape:
    return Shape(shape.unit, full, shape.tail if tail else 0, shape.spares, shape.pod, shape.chunked, shape.spread)


def _holds(domain: Domain, shape: Shape, *, full: int, tail: bool) -> bool:
    """Whether a domain has room for so many groups: pods of the right width, and GPUs enough for the spares as well."""
    active = full * shape.unit + (shape.tail if tail else 0)
    return domain.room[shape.pod] >= active and domain.free >= active + shape.spares * (full + tail)


def _whole(pool: Pool, rank: Rank, shape: Shape, full: int, tail: bool, used: Collection[str]) -> _Pick | None:
    """The best single domain for all that is left: one in use, else the tightest, else (by name) the first."""
    for fabric in sorted(used, key=lambda name: (pool.domains[name].free if name in pool.domains else 0, name)):
        if fabric in pool.domains and _holds(pool.domains[fabric], shape, full=full, tail=tail):
            return _Pick(fabric, full, tail)
    active = full * shape.unit + (shape.tail if tail else 0)
    need = active + shape.spares * (full + tail)
    room = rank.at_least(need if shape.pod == 1 else active)
    while room:
        found = rank.first(room, free=need)
        if found is not None:
            return _Pick(found, full, tail)
        room = rank.at_least(room + 1)
    return None


def _largest(pool: Pool, rank: Rank, shape: Shape, full: int, tail: bool) -> _Pick | None:
    """The domain that takes the most groups, and of those the tightest; the tail comes along where it costs nothing."""
    count = min(full, _most(rank, shape)) if full else 0
    if count:
        pick = _whole(pool, rank, shape, count, False, ())
        assert pick is not None, "some domain holds the most"
        return _Pick(pick.fabric, count, tail and _holds(pool.domains[pick.fabric], shape, full=count, tail=True))
    return _whole(pool, rank, shape, 0, True, ()) if tail and full else None


def _most(rank: Rank, shape: Shape) -> int:
    """How many groups the domain holds that holds the most of them."""
    most, room = 0, rank.largest()
    while room // shape.unit > most:
        most = max(most, min(room // shape.unit, rank.most_free(room) // (shape.unit + shape.spares)))
        # Where room is all that is free, the largest domain is it; else spares may not fit beside its pods.
        room = 0 if shape.pod == 1 else rank.below(room)
    return most


def _groups(pool: Pool, shape: Shape, pick: _Pick, first: Pool | None) -> list[Group]:
    """The nodes of a domain's groups: all active parts first, so that no spare takes a place only a pod could use."""
    nodes = pool.domains[pick.fabric].nodes.copy()
    if shape.chunked:
        sizes = [pick.full * shape.unit]
    else:
        sizes = [shape.unit] * pick.full + ([shape.tail] if pick.tail else [])
    sizes_left: dict[NodeName, int] = {}
    if first is None:
        actives = [_take(nodes, size, shape.pod, sizes_left) for size in sizes]
    else:
        actives = _free_first(pool.domains[pick.fabric], first.domains.get(pick.fabric), sizes, shape.pod)
    out = []
    for active in actives:
        spares = _take_spares(nodes, shape.spares, sizes_left, [name for name, _ in active]) if shape.spares else []
        out.append(
            Group(
                location=pool.location,
                fabric=pick.fabric,
                active=tuple((name[1], gpus) for name, gpus in active),
                spares=tuple((name[1], gpus) for name, gpus in spares),
            )
        )
    return out


def _take(nodes: Buckets[NodeName], need: int, pod: int, left: dict[NodeName, int]) -> list[tuple[NodeName, int]]:
    """Take GPUs in whole pods from the fewest nodes: the largest first, the last one the tightest."""
    out = []
    while need:
        size, take = nodes.at_least(need), need
        if not size:
            take = nodes.largest() // pod * pod
            size = nodes.at_least(take) if take else 0
            if not size:
                break
        name = nodes.first(size)
        nodes.move(name, size, size - take)
        left[name] = size - take
        out.append((name, take))
        need -= take
    return out


def _free_first(domain: Domain, free: Domain | None, sizes: list[int], pod: int) -> list[list[tuple[NodeName, int]]]:
    """Groups in whole pods: free GPUs first, then those of other runs' spares; of each the largest nodes first."""
    all_left, free_left = dict(domain.seen), dict(free.seen) if free else {}
    out = []
    for need in sizes:
        shares: dict[NodeName, int] = {}
        for left in (free_left, all_left):
            for name in sorted(left, key=lambda one: (-(left[one] // pod), left[one], one)):
                take = min(need, left[name] // pod * pod)
                if take:
                    need -= take
                    shares[name] = shares.get(name, 0) + take
                    all_left[name] -= take
                    # On a node, too, its free GPUs go before the spares on it.
                    free_left[name] = max(0, free_left.get(name, 0) - take)
        assert not need, "the domain holds what was picked for it"
        out.append(list(shares.items()))
    return out


def _take_spares(
    nodes: Buckets[NodeName], need: int, left: dict[NodeName, int], avoid: list[NodeName]
) -> list[tuple[NodeName, int]]:
    """Take spares beside the nodes of their own group, and on them only for what fits nowhere else."""
    for name in avoid:
        nodes.move(name, left[name], 0)
    out = _take(nodes, need, 1, left)
    for name in avoid:
        nodes.move(name, 0, left[name])
    missing = need - sum(gpus for _, gpus in out)
    return out + (_take(nodes, missing, 1, left) if missing else [])
