"""A flood of any sort leaves the cost of an end as it was (SPEC 7, Cost): what is counted of it, and what is written,
is the same behind 400 waiting runs as behind 50. Seconds are for ``bench``; here steps, searches and facts count.

``test_flood`` has one tenant's flood that waits for its money, line by line; here are the others: by machines, by many
owners, by one among others, and floods whose own runs end.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator
from functools import partial
from itertools import count
from random import Random

import pytest

from bench.counters import Work, calls, counting, lines
from bench.saturated import PLANS
from bench.waiting.money import FLOOD, SHARE
from bench.waiting.world import AMPLE, HOURS, OWNERS, WIDTHS, Job, World
from tenure.api.policy import Policy
from tenure.engine import SetPolicy
from tenure.units import HOUR, SECOND

FEW, MANY = 50, 400
DEPTH = 8
"""Places: fewer than wait in either world."""
ENDS = 12
FLAT = 1.5
"""Of sums over a few ends of different runs: what would follow the queue is eight times as much."""
CROWD = tuple(f"owner-{number}" for number in range(MANY))
Demands = Callable[[int, Random], tuple[str, int]]
"""The owner and the width of the run of a number."""

BY_MACHINES: dict[str, Demands] = {
    "one demand": lambda number, luck: ("ann", 8),
    "demands all distinct": lambda number, luck: (OWNERS[number % 4], 1 + number // 4 % 100),
    "one owner among others": lambda number, luck: (luck.choice(OWNERS[1:]) if number % 8 == 0 else "ann",
                                                    luck.choice(WIDTHS)),
    "many owners": lambda number, luck: (CROWD[number % len(CROWD)], luck.choice((4, 8))),
}  # fmt: skip


def supply(demands: Demands) -> Iterator[Job]:
    luck = Random("floods")
    for number in count():
        owner, gpus = demands(number, luck)
        declared = luck.choice(HOURS) * HOUR
        real = max(SECOND, int(declared * luck.uniform(0.05, 1)))
        yield Job(f"run-{number:07d}", owner, gpus, declared, real)


def flooded(demands: Demands, waiting: int) -> World:
    """A fleet that is full, and a queue of so many."""
    world = World(concurrency=dict.fromkeys(CROWD, AMPLE))
    world.handle(SetPolicy(Policy(promise_depth=DEPTH)))
    world.supply = supply(demands)
    world.fill(waiting)
    world.settle(5)
    return world


def work_of(act: Callable[[], int]) -> Work:
    """Searches, steps and facts of something that says how many it wrote."""
    with calls(*PLANS) as plans, counting() as steps:
        facts = act()
    return Counter(plans=plans.total(), steps=steps.total(), facts=facts)


def ends_of(world: World) -> Work:
    """What ends take, with all that they start and who comes for them: runs of the flood's own, mostly."""
    return sum((work_of(lambda: world.end().facts) for _ in range(ENDS)), Work())


@pytest.mark.parametrize("name", BY_MACHINES)
def test_an_end_in_a_full_fleet_costs_the_same_behind_any_number(name: str) -> None:
    small, large = (flooded(BY_MACHINES[name], waiting) for waiting in (FEW, MANY))
    assert abs(small.waiting - FEW) <= 8
    assert abs(large.waiting - MANY) <= 8
    assert len(large.home.state.reservations) <= DEPTH, "all others wait without a promise"
    few, many = ends_of(small), ends_of(large)
    for what in ("plans", "steps", "facts"):
        assert 0 < many[what] <= FLAT * few[what], (what, few, many)


def test_nor_does_a_queue_of_one_demand_cost_a_single_line_more() -> None:
    """Every line of the engine is counted, whatever it goes through."""
    took = []
    for waiting in (FEW, MANY):
        world = flooded(BY_MACHINES["one demand"], waiting)
        with lines() as seen:
            for _ in range(4):
                world.end()
        took.append(seen.count)
    assert 100 < took[1] <= 1.05 * took[0], took


class Poor(World):
    """A fleet that is half empty, and one owner whose money does not suffice for all that it submits."""

    def __init__(self, waiting: int) -> None:
        super().__init__(concurrency={FLOOD: SHARE})
        self.handle(SetPolicy(Policy(promise_depth=DEPTH)))
        self.supply = supply(lambda number, luck: (luck.choice(OWNERS), luck.choice((1, 2, 4, 8))))
        self.flood = supply(lambda number, luck: (FLOOD, luck.choice((1, 2, 4, 8))))
        for _ in range(40):
            self.submit()
        self.fill(waiting, supply=self.flood)

    def end_one(self, *, of_flood: bool) -> int:
        """The oldest of them ends, and another comes for it: the facts that were written."""
        key = next(key for key in self.running if key.startswith(f"{FLOOD}/") == of_flood)
        return self.end_of(key, next(self.flood if of_flood else self.supply)).facts


@pytest.mark.parametrize("of_flood", [False, True], ids=["of others", "of its own"])
def test_an_end_costs_the_same_behind_any_number_that_wait_for_money(of_flood: bool) -> None:
    took = []
    for waiting in (FEW, MANY):
        world = Poor(waiting)
        assert world.waiting == waiting
        world.end_one(of_flood=of_flood)
        took.append(sum((work_of(partial(world.end_one, of_flood=of_flood)) for _ in range(ENDS)), Work()))
        assert world.waiting >= waiting - 8
    few, many = took
    for what in ("plans", "steps", "facts"):
        assert 0 < many[what] <= FLAT * few[what], (what, few, many)
