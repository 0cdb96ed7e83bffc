"""The engine, with all its indexes, answers as a scan over everything does: same GPUs, same payers, same refusals."""

from __future__ import annotations

from random import Random

import pytest

from tenure.api.core import Node
from tenure.api.run import Run
from tenure.api.validate import validate
from tenure.facts import Lease
from tenure.testing import Fleet
from tenure.units import Instant
from tests.engine import oracle
from tests.engine.worlds import random_budgets, random_nodes, random_run

WORLDS = 1500
SLICES = 4


def usage_of(fleet: Fleet) -> list[tuple[Lease, Instant | None]]:
    closed = fleet.closed()
    return [(lease, closed[name].end if name in closed else None) for name, lease in fleet.opened().items()]


def nodes_of(fleet: Fleet) -> list[Node]:
    return [row.node for row in fleet.state.topology.rows.values()]


def world_of(fleet: Fleet, wanted: Run) -> oracle.World:
    budgets = list(fleet.state.budgets.values())
    return oracle.World(
        nodes_of(fleet), fleet.leases(), budgets, usage_of(fleet), wanted, fleet.now, fleet.state.policy
    )


def ask_oracle(fleet: Fleet, wanted: Run) -> oracle.Placement | oracle.Refusal:
    return oracle.plan(
        nodes_of(fleet),
        fleet.leases(),
        fleet.state.budgets.values(),
        usage_of(fleet),
        wanted,
        fleet.now,
        fleet.state.policy,
    )


def ask_engine(fleet: Fleet, wanted: Run) -> oracle.Placement | oracle.Refusal:
    """Submit the run, and read the answer from the entry."""
    key = f"{wanted.metadata.namespace}/{wanted.metadata.name}"
    fleet.apply(wanted)
    verdict = fleet.verdict(key)
    if verdict.outcome != "start":
        assert verdict.headline is not None
        return oracle.Refusal(verdict.outcome, verdict.headline.code)
    names = {fact.lease.name for fact in fleet.entries[-1].facts if hasattr(fact, "lease")}
    opened = [lease for lease in fleet.opened().values() if lease.name in names]
    return oracle.Placement(
        verdict.width,
        tuple(
            oracle.Leased(one.group, one.domain, one.node, one.gpus, one.role, one.budget, one.envelope, one.funding)
            for one in opened
        ),
        tuple(oracle.Placed(pod.rank, pod.group, pod.node, pod.gpus) for pod in fleet.pods(key)),
    )


def play(seed: int) -> tuple[int, int]:
    """One world: runs come, some end, time passes; each is compared. Returns how many started and were refused."""
    luck = Random(seed)
    fleet = Fleet(*random_nodes(luck), *random_budgets(luck))
    started = refused = 0
    for index in range(luck.randint(1, 8)):
        wanted = random_run(luck, f"r{index}")
        assert not validate(wanted), (seed, [error.sentence() for error in validate(wanted)])
        expected = ask_oracle(fleet, wanted)
        found = ask_engine(fleet, wanted)
        assert found == expected, f"seed {seed}, run {index}:\n  engine {found}\n  oracle {expected}"
        key = f"lab/r{index}"
        if isinstance(found, oracle.Refusal):
            refused += 1
            fleet.delete("Run", key)
        else:
            started += 1
            fleet.bind(key)
        if luck.random() < 0.3 and (running := sorted(fleet.state.runs)):
            fleet.succeed(luck.choice(running))
        if luck.random() < 0.4:
            fleet.later(luck.choice(("7m", "1h", "3h")))
    return started, refused


@pytest.mark.parametrize("part", range(SLICES))
def test_engine_and_scan_agree_on_placements_payers_and_refusals(part: int) -> None:
    started = refused = 0
    for seed in range(part, WORLDS, SLICES):
        some = play(seed)
        started, refused = started + some[0], refused + some[1]
    assert started > WORLDS // SLICES, "the worlds are too poor to say anything"
    assert refused > WORLDS // SLICES, "the worlds are too rich to say anything"
