"""Random histories: hypothesis looks for short ones that break something, a seeded loop of our own for long ones."""

from __future__ import annotations

from random import Random

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from tests.engine.machine import KINDS, World, soak

SEEDS = 48
STEPS = 50


class Machine(RuleBasedStateMachine):
    """One world; each rule is one thing that may happen to it."""

    world: World | None = None

    @initialize(seed=st.integers(0, 10_000))
    def begin(self, seed: int) -> None:
        self.world = World(seed)

    @rule(kind=st.sampled_from(sorted(set(KINDS))), seed=st.integers(0, 10_000))
    def act(self, kind: str, seed: int) -> None:
        assert self.world is not None
        self.world.act(kind, Random(seed))

    @invariant()
    def holds(self) -> None:
        if self.world is not None:
            self.world.check()


TestMachine = Machine.TestCase
TestMachine.settings = settings(max_examples=25, stateful_step_count=25, deadline=None)


@pytest.mark.parametrize("part", range(4))
def test_long_histories_keep_every_invariant(part: int) -> None:
    for seed in range(part, SEEDS, 4):
        soak(seed, steps=STEPS)


@pytest.mark.parametrize(
    ("seed", "steps", "broke"),
    [
        (59, 60, "a lease closed back-dated over an edit of its envelope's window was charged to both accounts"),
        (19, 60, "a policy with other notices did not set the envelopes' timers anew"),
        (80, 60, "an edit of a budget's parents woke only runs of that budget's own flavors"),
        (119, 60, "deleting a node left runs waiting for it that can never run any more"),
    ],
)
def test_histories_that_once_broke_something(seed: int, steps: int, broke: str) -> None:
    """Each bug has a test of its own by now; the seeds stay, since bugs have neighbours."""
    soak(seed, steps=steps)
