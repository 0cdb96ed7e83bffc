"""Against the best there is, on small cases: the procedure of the plan loses nothing that SPEC 4 and 5 promise."""

from __future__ import annotations

from random import Random

from tenure.api.run import Run
from tenure.testing import Fleet, budget, envelope, node, run
from tests.engine import oracle
from tests.engine.optimum import Best, best
from tests.engine.test_oracle import ask_engine, world_of
from tests.engine.worlds import random_budgets, random_nodes, random_run

PACKINGS = 250
WORLDS = 110


def solve(fleet: Fleet, wanted: Run, width: int | None = None) -> Best | None:
    world = world_of(fleet, wanted)
    payers = [one for one in world.walk("everybody") if not one.bar]
    return best(world, width or world.widths()[-1], payers=payers)


def packing(luck: Random) -> tuple[Fleet, Run]:
    """Some domains of odd nodes, money enough, and a run that is cut in some way."""
    machines = [
        node(f"n{index}", luck.choice((1, 2, 3, 4, 6, 7, 8)), domain=luck.choice("ABCD"))
        for index in range(luck.randint(2, 14))
    ]
    pod = luck.choice((None, None, 2, 4))
    group = luck.choice((None, (pod or 1) * luck.randint(1, 6)))
    count = luck.randint(1, 6)
    gpus = (group or pod or 1) * count
    if group and not pod:
        gpus += luck.randint(0, group - 1)
    spares = luck.choice((0, 0, 1, 2)) if group else 0
    wanted = run("x", gpus, owner="org:a", group=group, pod=pod, spares=spares, spread=luck.random() > 0.15)
    return Fleet(*machines, budget("a", envelope(gpus=4096))), wanted


def test_no_plan_uses_more_domains_than_it_must_and_none_is_missed() -> None:
    started = 0
    for seed in range(PACKINGS):
        fleet, wanted = packing(Random(f"packing {seed}"))
        optimum = solve(fleet, wanted)
        found = ask_engine(fleet, wanted)
        if isinstance(found, oracle.Refusal):
            assert optimum is None, f"seed {seed}: refused ({found.code}), though {optimum} is possible"
        else:
            started += 1
            assert optimum is not None, f"seed {seed}: the solver knows no such plan"
            assert len({lease.domain for lease in found.leases}) == optimum.domains, f"seed {seed}"
    assert PACKINGS // 4 < started < PACKINGS, "all alike says nothing"


def test_no_feasible_run_is_refused_and_none_borrows_more_than_it_must() -> None:
    started = borrowing = 0
    for seed in range(WORLDS):
        luck = Random(f"world {seed}")
        fleet = Fleet(*random_nodes(luck), *random_budgets(luck))
        for index in range(4):
            wanted = random_run(luck, f"r{index}")
            world = world_of(fleet, wanted)
            found = ask_engine(fleet, wanted)
            payers = [one for one in world.walk("everybody") if not one.bar]
            if isinstance(found, oracle.Refusal):
                optimum = best(world, world.widths()[-1], payers=payers)
                assert optimum is None, (
                    f"seed {seed}, run {index}: refused ({found.code}), though {optimum} is possible"
                )
                fleet.delete("Run", f"lab/r{index}")
                continue
            optimum = best(world, found.width, payers=payers)
            assert optimum is not None
            borrowed = sum(len(lease.ordinals) for lease in found.leases if lease.funding == "borrowed")
            assert borrowed == optimum.borrowed, f"seed {seed}, run {index}"
            started, borrowing = started + 1, borrowing + bool(borrowed)
            fleet.bind(f"lab/r{index}")
    assert started > WORLDS // 2
    assert borrowing > 3
