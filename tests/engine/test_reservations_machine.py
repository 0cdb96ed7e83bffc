"""Random histories of queues (SPEC 7, 8): small fleets that are asked for too much, by runs that say how long they
last, and mostly keep to it.

All invariants hold after every step, a rebuilt engine decides alike, and nobody's start is delayed by who came later.
"""

from __future__ import annotations

from collections import Counter
from functools import cache
from random import Random

import msgspec
import pytest

from tenure.api.budget import Budget
from tenure.api.core import Node
from tenure.api.policy import Policy
from tenure.api.run import Run
from tenure.engine import Apply, Event, Publish, Report, Sighting
from tenure.facts import Moved, Noted, Reserved, Resolved
from tenure.shell.custodian import SimulatedCustodian
from tenure.testing import FENCE, Fleet, budget, cap, elastic, envelope, node, run
from tenure.units import MINUTE
from tests.engine.machine import World

KINDS = (
    "submit", "submit", "submit", "submit", "bind", "bind", "bind", "bind", "leave", "leave", "leave", "reveal",
    "reveal", "end", "end", "end", "early", "delete run", "edit", "resize", "budget", "cordon", "mend", "fence",
    "wake", "wake", "wake", "wake", "minutes", "minutes",
)  # fmt: skip
SEEDS = 48
STEPS = 70


def machines(luck: Random) -> list[Node]:
    domains = luck.choice(("A", "AB", "AAB"))
    return [
        node(f"n{index}", luck.choice((4, 8, 8)), domain=domains[index % len(domains)])
        for index in range(luck.randint(2, 4))
    ]


def money(luck: Random, name: str) -> Budget:
    start, end = luck.choice(((None, None), (None, None), (None, None), ("2h", None), (None, "2d")))
    lender = {"lends_to": ["org:*"], "lends": luck.choice((None, 4))} if luck.random() < 0.4 else {}
    hours = luck.choice((None, None, None, 60))
    opens = luck.choice((None, None, None, "1h", "3h"))
    main = envelope("main", luck.choice((8, 16, 32, 32)), hours=hours, start=opens, **lender)
    more = envelope("more", luck.choice((4, 8)), start=start, end=end, reservable=luck.random() < 0.8)
    both = luck.random() < 0.5
    caps = [cap("all", ("main", "more"), gpus=luck.choice((8, 24)))] if both and luck.random() < 0.4 else []
    return budget(name, *((main, more) if both else (main,)), parents=("org:up",) if name != "c" else (), caps=caps)


def work(luck: Random, name: str) -> Run:
    group = luck.choice((None, None, 2, 4))
    gpus = (group or 2) * luck.choice((1, 2, 2, 3, 4))
    shape = None
    if group and luck.random() < 0.5:
        low = group * luck.randint(1, max(1, gpus // group))
        shape = elastic(low, gpus + group, group)
    return run(
        name,
        gpus,
        owner=luck.choice(("org:a", "org:b", "org:c")),
        group=group,
        spares=luck.choice((0, 0, 2)) if group else 0,
        spread=luck.random() < 0.8,
        elastic=shape,
        sponsors=("org:b", "org:c") if luck.random() < 0.3 else (),
        lasts=luck.choice((None, "10m", "20m", "20m", "1h", "3h")),
        checkpoint=luck.choice((None, "30m")),
        opportunistic=not group and luck.random() < 0.1,
        on_preemption=luck.choice(("Fail", "Requeue")),
    )


class Waiting(World):
    """A fleet with more to do than it can."""

    def __init__(self, seed: int) -> None:
        luck = Random(f"waiting {seed}")
        policy = Policy(patience=luck.choice(("0s", "20m", "3h", "24h")), activation_lead=luck.choice(("5m", "15m")))
        self.fleet = Fleet(*machines(luck), *(money(luck, name) for name in "abc"), policy=policy)
        self.custodian = SimulatedCustodian("waiting")
        self.count = 0
        self.fleet.handle(Publish(self.custodian.beacon, self.custodian.root))
        self.settle()

    def _event(self, kind: str, luck: Random) -> Event | None:
        fleet, state = self.fleet, self.fleet.state
        match kind:
            case "submit":
                return self._apply(work(luck, f"r{luck.randint(0, 30)}"))
            case "bind":
                held = [key for key, row in sorted(state.pods.items()) if not state.must_wait(row)]
                return Report(tuple(Sighting(key, "Bound") for key in held))
            case "leave":
                return Report(tuple(Sighting(key, "Gone") for key in sorted(state.leaving)))
            case "end":
                return self._ends(on_time=True)
            case "early":
                return self._ends(on_time=False)
            case "edit" if state.reservations:
                key = luck.choice(sorted(state.reservations))
                return self._apply(work(luck, key.partition("/")[2]))
            case "resize":
                rows = [row for _, row in sorted(state.runs.items()) if row.run.spec.malleable]
                if rows:
                    row = luck.choice(rows)
                    shape = row.run.spec.malleable
                    assert shape is not None
                    widths = range(shape.min_total_gpus, shape.max_total_gpus + 1, shape.step_gpus)
                    fleet.resize(row.key, luck.choice(widths))
            case "budget":
                return Apply((money(luck, luck.choice("abc")),))
            case "minutes":
                fleet.until(fleet.now + luck.choice((1, 7, 15, 40)) * MINUTE)
            case "cordon" | "fence" | "mend":
                return self._machine(kind, luck)
            case _:
                return super()._event(kind, luck)
        return None

    def _ends(self, *, on_time: bool) -> Event | None:
        """A run ends: just when it said it would, or before."""
        fleet, state = self.fleet, self.fleet.state
        running = [row for _, row in sorted(state.runs.items()) if row.life.phase == "Running"]
        if on_time:
            running = [row for row in running if row.life.until is not None and row.life.until > fleet.now]
            running.sort(key=lambda row: (row.life.until or 0, row.key))
        if not running:
            return None
        row = running[0]
        if on_time:
            assert row.life.until is not None
            fleet.until(row.life.until - 1)
            fleet.now = row.life.until
        return Report(
            tuple(Sighting(pod.pod.key, "Succeeded", 0) for _, pod in sorted(row.pods.items()) if not pod.stop)
        )

    def _machine(self, kind: str, luck: Random) -> Event | None:
        rows = self.fleet.state.topology.rows
        item = rows[luck.choice(sorted(rows))].node
        if kind == "mend":
            return Apply(tuple(mended(row.node) for _, row in sorted(rows.items())))
        if kind == "cordon":
            return Apply((with_spec(item, unschedulable=True),))
        return Apply((with_spec(item, taints=(FENCE,)),))


def with_spec(item: Node, **fields: object) -> Node:
    return msgspec.structs.replace(item, spec=msgspec.structs.replace(item.spec, **fields))


def mended(item: Node) -> Node:
    return with_spec(item, taints=(), unschedulable=False)


def soaked(seed: int) -> Waiting:
    luck = Random(f"waiting history {seed}")
    world = Waiting(seed)
    for index in range(STEPS):
        world.act(luck.choice(KINDS), Random(f"waiting {seed} {index}"))
        world.check()
    return world


@cache
def counted(seed: int) -> Counter[str]:
    count: Counter[str] = Counter()
    for fact in soaked(seed).fleet.facts:
        if isinstance(fact, Reserved):
            count[fact.reservation.state] += 1
            count[fact.reservation.confidence] += 1
        elif isinstance(fact, Resolved):
            count.update(f"{fact.trigger} {cut.kind}" for cut in fact.cuts)
        elif isinstance(fact, Noted) and fact.kind == "StartMoved":
            count[fact.reason] += 1
        elif isinstance(fact, Moved) and fact.life.phase == "Starting":
            count["backfilled"] += fact.life.backfilled
            count["requeued after a cut"] += fact.life.cut
    return count


@pytest.mark.parametrize("part", range(4))
def test_fleets_that_are_asked_for_too_much_keep_every_invariant(part: int) -> None:
    for seed in range(part, SEEDS, 4):
        counted(seed)


def test_the_histories_are_about_something() -> None:
    """Everything that can become of a promise happens somewhere, and every way to make room is taken."""
    count: Counter[str] = Counter()
    for seed in range(SEEDS):
        count.update(counted(seed))
    for what in (
        "Pending", "Blocked", "Active", "Released", "Canceled", "projected", "window-aligned", "conservative",
        "MovedEarlier", "MovedLater", "backfilled", "Activation Overstay", "Activation DropSpare", "Activation Shrink",
        "Activation Lottery",
    ):  # fmt: skip
        assert count[what], f"no {what} in all these histories: {count}"
