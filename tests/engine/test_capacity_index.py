"""Views of a location say what looking at every node, at every instant, says."""

from __future__ import annotations

from random import Random

import pytest

from tenure.engine.timeline.capacity_index import INSTANT, WINDOWS, DomainTree, WindowCapacity, sliding_min, window_of
from tenure.engine.timeline.step_function import StepFunction
from tenure.engine.timeline.step_trace import Read
from tenure.units import DAY, FOREVER, HOUR, MINUTE, Instant, Micros

LENGTHS = (INSTANT, 3, 10, 25, 80, FOREVER)


def some_levels(luck: Random, *, top: int = 8) -> Read:
    times = [0, *sorted(luck.sample(range(1, 100), luck.randint(0, 8)))]
    return times, [luck.randint(0, top) for _ in times]


def level(read: Read, at: Instant) -> int:
    times, levels = read
    return next(level for time, level in zip(reversed(times), reversed(levels), strict=True) if time <= at)


def least(read: Read, at: Instant, window: Micros) -> int:
    """By looking at every instant; nothing changes after 200."""
    return min(level(read, instant) for instant in range(at, min(at + window, 200)))


@pytest.mark.parametrize("window", LENGTHS)
def test_what_lasts_is_the_least_of_every_window(window: Micros) -> None:
    luck = Random(f"sliding_min {window}")
    for _ in range(300):
        read = some_levels(luck)
        found = sliding_min(read, window)
        assert found[0] == sorted(set(found[0])), "each instant once"
        assert [level(found, at) for at in range(110)] == [least(read, at, window) for at in range(110)]


def test_a_window_is_never_longer_than_what_is_asked_for() -> None:
    assert window_of(None) == FOREVER
    assert [window_of(length) for length in (0, 1, MINUTE, 59 * MINUTE, HOUR, 25 * HOUR, 90 * DAY)] == [
        INSTANT, INSTANT, MINUTE, 30 * MINUTE, HOUR, DAY, 30 * DAY]  # fmt: skip
    assert list(WINDOWS) == sorted(set(WINDOWS))


class World:
    """Nodes in domains, which change and move."""

    def __init__(self, luck: Random, count: int) -> None:
        self.luck = luck
        self.fabrics = [f"d{index}" for index in range(luck.randint(1, 40))]
        self.nodes: dict[str, tuple[str, Read] | None] = {f"n{index}": None for index in range(count)}
        for name in self.nodes:
            self.change(name)

    def change(self, name: str) -> None:
        there = self.luck.random() > 0.1
        self.nodes[name] = (self.luck.choice(self.fabrics), some_levels(self.luck)) if there else None

    def has(self, fabric: str, at: Instant, window: Micros, pod: int) -> int:
        there = [one[1] for one in self.nodes.values() if one is not None and one[0] == fabric]
        return sum(least(read, at, window) // pod * pod for read in there)


@pytest.mark.parametrize("seed", range(12))
def test_a_view_that_is_kept_up_to_date_shows_what_every_node_has(seed: int) -> None:
    luck = Random(f"view {seed}")
    world = World(luck, luck.randint(1, 60))
    window, pod, unit = luck.choice(LENGTHS), luck.choice((1, 2, 4)), luck.choice((4, 8))
    views = [WindowCapacity(window, width, world.nodes.__getitem__) for width in (pod, 1)]
    for _ in range(8):
        changed = luck.sample(sorted(world.nodes), min(len(world.nodes), luck.choice((1, 3, 60))))
        for name in changed:
            world.change(name)
        for view in views:
            view.look_at(world.nodes if not view.sums.domains else changed)
            view.refresh()
        counts = views[0].counts(unit, unit + 2, views[1])
        for at in luck.sample(range(110), 10):
            pods = {fabric: world.has(fabric, at, window, pod) for fabric in world.fabrics}
            free = {fabric: world.has(fabric, at, window, 1) for fabric in world.fabrics}
            groups = {fabric: min(pods[fabric] // unit, free[fabric] // (unit + 2)) for fabric in pods}
            check(views[0].sums, pods, at, need=luck.choice((1, 4, 9)))
            check(counts.sums, groups, at, need=luck.choice((1, 2)))


def test_groups_are_counted_in_a_domain_that_came_later_with_nothing_free() -> None:
    nodes: dict[str, tuple[str, Read] | None] = {"n0": ("d0", ([0], [8])), "n1": None}
    views = [WindowCapacity(HOUR, width, nodes.__getitem__) for width in (4, 1)]
    for name, there in (("n0", 8), ("n1", 0), ("n1", 4)):
        nodes[name] = (f"d{name[1:]}", ([0], [there]))
        for view in views:
            view.look_at((name,))
            view.refresh()
        counts = views[0].counts(4, 4, views[1])
    check(counts.sums, {"d0": 2, "d1": 1}, 10, need=1)


def check(sums: DomainTree, expected: dict[str, int], at: Instant, *, need: int) -> None:
    assert sums.total.level(at) == sum(expected.values())
    assert sorted(sums.holding(need, at)) == sorted((has, fabric) for fabric, has in expected.items() if has >= need)


@pytest.mark.parametrize("seed", range(6))
def test_a_view_is_derived_from_that_of_instants_by_the_nodes_that_fall(seed: int) -> None:
    luck = Random(f"derived {seed}")
    world = World(luck, 30)
    for name, one in world.nodes.items():
        if one is not None and luck.random() < 0.6:  # most only rise
            world.nodes[name] = (one[0], (one[1][0], sorted(one[1][1])))
    falling = [name for name, one in world.nodes.items() if one is not None and one[1][1] != sorted(one[1][1])]
    instants, window = WindowCapacity(INSTANT, 2, world.nodes.__getitem__), luck.choice(LENGTHS[1:])
    instants.look_at(world.nodes)
    derived = instants.refresh().derive(window, falling).refresh()
    assert falling, "some do fall"
    for at in range(0, 110, 7):
        check(derived.sums, {fabric: world.has(fabric, at, window, 2) for fabric in world.fabrics}, at, need=2)
        check(instants.sums, {fabric: world.has(fabric, at, INSTANT, 2) for fabric in world.fabrics}, at, need=2)


def test_the_tree_grows_a_tier_when_a_block_is_full() -> None:
    sums = DomainTree()
    for index in range(400):
        sums.add(f"d{index:03d}", [(10, index % 3), (20, -(index % 3))])
    assert sorted(sums.holding(2, 15)) == [(2, f"d{index:03d}") for index in range(400) if index % 3 == 2]
    assert not list(sums.holding(1, 25))
    assert isinstance(sums.domains["d007"], StepFunction)
