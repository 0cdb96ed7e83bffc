"""Random histories of spares, fill and elastic runs (SPEC 9, 10): small fleets whose nodes fail.

All invariants hold after every step, and a rebuilt engine decides alike.
"""

from __future__ import annotations

from random import Random

import msgspec
import pytest

from tenure.api.core import Node
from tenure.api.run import Run
from tenure.engine import Apply, Event, Publish, Report, Sighting
from tenure.facts import Closed, Opened
from tenure.shell.custodian import SimulatedCustodian
from tenure.testing import FENCE, Fleet, budget, cap, elastic, envelope, node, run
from tests.engine.machine import World

KINDS = (
    "submit", "submit", "submit", "resize", "resize", "bind", "bind", "bind", "bind", "progress", "leave", "leave",
    "fence", "fence", "fence two", "delete node", "mend", "mend", "cordon", "budget", "delete run", "minutes",
    "minutes", "minutes", "wake",
)  # fmt: skip
OWNERS = ("org:a", "org:b")


def machines(luck: Random) -> list[Node]:
    return [
        node(f"n{index}", luck.choice((4, 8, 8)), domain="AB"[index // 4], region="us-west" if index < 6 else "us-east")
        for index in range(luck.randint(3, 7))
    ]


def money(luck: Random, name: str) -> object:
    lender = {"lends_to": ["org:*"], "lends": luck.choice((None, 4, 8))}
    hours = luck.choice((None, None, None, 20, 60))
    main = envelope("main", luck.choice((16, 32, 64)), hours=hours, selector={"cluster": "gpu-a"}, **lender)
    fine = envelope("fine", luck.choice((4, 8)), selector={"fabric.domain": luck.choice("AB")})
    both = luck.random() < 0.5
    caps = [cap("all", ("main", "fine"), gpus=luck.choice((16, 48)))] if both and luck.random() < 0.5 else []
    return budget(name, *((main, fine) if both else (main,)), caps=caps)


def work(luck: Random, name: str) -> Run:
    pod = luck.choice((None, None, 1, 2, 4))
    group = luck.choice((4, 4, 8)) if luck.random() < 0.8 else None
    groups = luck.randint(1, 3)
    gpus = (group or 4) * groups
    opportunistic = luck.random() < 0.4
    shape = None
    if group and luck.random() < 0.7:
        step = group * luck.choice((1, 1, 2))
        low = group * luck.randint(1, groups)
        high = low + step * luck.randint(0, 3)
        gpus = low + step * luck.randint(0, (high - low) // step)
        shape = elastic(low, high, step, desired=luck.choice((None, low, high)))
    sponsors = ("org:b",) if luck.random() < 0.4 else ()
    return run(
        name,
        gpus,
        owner=luck.choice(OWNERS),
        group=group,
        spares=luck.choice((0, 2, 4, 4)) if group and not opportunistic else 0,
        pod=pod,
        spread=luck.random() < 0.8,
        elastic=shape,
        sponsors=sponsors,
        max_borrow=luck.choice((None, 4, 8)) if sponsors else None,
        lasts=luck.choice((None, None, "10m", "1h")),
        checkpoint=luck.choice((None, "5m")),
        restarts=luck.choice((0, 2)),
        opportunistic=opportunistic,
        on_preemption=luck.choice(("Fail", "Requeue")),
    )


class Failing(World):
    """A fleet whose machines do not last."""

    def __init__(self, seed: int) -> None:
        luck = Random(seed)
        self.fleet = Fleet(*machines(luck), *(money(luck, name) for name in ("a", "b")))  # type: ignore[arg-type]  # a Budget
        self.custodian = SimulatedCustodian("soak")
        self.count = 0
        self.fleet.handle(Publish(self.custodian.beacon, self.custodian.root))
        self.settle()

    def act(self, kind: str, luck: Random) -> None:
        super().act(kind, luck)
        self.settle()
        while self.fleet.state.draws:
            super().act("reveal", luck)
            self.settle()

    def _event(self, kind: str, luck: Random) -> Event | None:
        fleet, rows = self.fleet, self.fleet.state.topology.rows
        match kind:
            case "submit":
                return self._apply(work(luck, luck.choice("pqrstuvw")))
            case "resize":
                return self._resize(luck)
            case "bind":
                return self._possible(Report(tuple(Sighting(key, "Bound") for key in sorted(fleet.state.pods))))
            case "leave":
                return Report(tuple(Sighting(key, "Gone") for key in sorted(fleet.state.leaving)))
            case "fence" | "fence two" if len(rows) > 1:
                dead = luck.sample(sorted(rows), 2 if kind == "fence two" else 1)
                return Apply(tuple(with_taints(rows[name].node, FENCE) for name in dead))
            case "delete node" if len(rows) > 2:
                fleet.delete("Node", luck.choice(sorted(rows)))
            case "mend":
                return Apply(tuple(with_taints(row.node) for _, row in sorted(rows.items())))
            case "cordon":
                item = rows[luck.choice(sorted(rows))].node
                spec = msgspec.structs.replace(item.spec, unschedulable=not item.spec.unschedulable)
                return Apply((msgspec.structs.replace(item, spec=spec),))
            case "budget":
                return Apply((money(luck, luck.choice("ab")),))  # type: ignore[arg-type]  # a Budget
            case "minutes":
                fleet.later(luck.choice(("10s", "1m", "3m", "20m")))
            case _:
                event = super()._event(kind, luck)
                return self._possible(event) if isinstance(event, Report) else event
        return None

    def _possible(self, report: Report) -> Report:
        """Pods that have to wait for others to leave are not started by any executor."""
        pods = self.fleet.state.pods
        return Report(tuple(one for one in report.pods if not self.fleet.state.must_wait(pods[one.pod])))

    def _resize(self, luck: Random) -> Event | None:
        rows = [
            row for _, row in sorted(self.fleet.state.runs.items()) if row.run.spec.malleable and not row.life.deleting
        ]
        if not rows:
            return None
        one = luck.choice(rows).run
        shape = one.spec.malleable
        assert shape is not None
        widths = range(shape.min_total_gpus, shape.max_total_gpus + 1, shape.step_gpus)
        wanted = msgspec.structs.replace(shape, desired_total_gpus=luck.choice(widths))
        return self._apply(msgspec.structs.replace(one, spec=msgspec.structs.replace(one.spec, malleable=wanted)))


def with_taints(item: Node, *taints: object) -> Node:
    return msgspec.structs.replace(item, spec=msgspec.structs.replace(item.spec, taints=taints))


def failing(seed: int, *, steps: int) -> Failing:
    luck = Random(f"failing {seed}")
    world = Failing(seed)
    for index in range(steps):
        # First a full house: what these features do, they do when there is little room.
        kind = ("submit", "submit", "bind")[index % 3] if index < 12 else luck.choice(KINDS)
        world.act(kind, Random(f"{seed} {index}"))
        world.check()
    return world


@pytest.mark.parametrize(
    ("seed", "broke"),
    [
        (1035, "leases closed in the order in which memory held them"),
    ],
)
def test_histories_that_once_broke_something(seed: int, broke: str) -> None:
    failing(seed, steps=60)


@pytest.mark.parametrize("part", range(4))
def test_fleets_whose_nodes_fail_keep_every_invariant(part: int) -> None:
    for seed in range(part, 48, 4):
        failing(seed, steps=50)


def test_the_histories_are_about_something() -> None:
    """Everything these features do happens somewhere in a few histories."""
    facts = [fact for seed in range(20) for fact in failing(seed, steps=50).fleet.facts]
    ends = {fact.reason for fact in facts if isinstance(fact, Closed)}
    begins = {(fact.lease.reason, fact.lease.role) for fact in facts if isinstance(fact, Opened)}
    assert {"NodeFailure", "Swap", "Shrink", "ReclaimedBySpare", "Refund"} <= ends
    assert {
        ("Swap", "Active"),
        ("Swap", "Spare"),
        ("Grow", "Active"),
        ("Start", "Borrowed"),
        ("Refund", "Active"),
    } <= begins
