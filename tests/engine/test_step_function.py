"""A step function of time answers as a plain list of steps does."""

from __future__ import annotations

from random import Random

import pytest

from tenure.engine.timeline import step_function
from tenure.engine.timeline.step_function import StepFunction
from tenure.units import Instant, Micros


class Plain:
    """The same, by looking at every step each time."""

    def __init__(self) -> None:
        self.steps: list[tuple[Instant, int]] = []

    def add(self, at: Instant, step: int) -> None:
        self.steps.append((at, step))

    def level(self, at: Instant) -> int:
        return sum(step for time, step in self.steps if time <= at)

    def instants(self, start: Instant, end: Instant | None) -> list[Instant]:
        """Where the level may change in ``[start, end)``, and its start."""
        return [start, *sorted({at for at, _ in self.steps if at > start and (end is None or at < end)})]

    def low(self, start: Instant, end: Instant | None) -> int:
        return min(self.level(at) for at in self.instants(start, end))

    def first(self, need: int, *, start: Instant, length: Micros | None) -> Instant | None:
        for at in self.instants(start, None):
            if self.low(at, None if length is None else at + length) >= need:
                return at
        return None

    def next_rise(self, after: Instant) -> Instant | None:
        return next((at for at in self.instants(after, None)[1:] if self.level(at) > self.level(at - 1)), None)

    def next_change(self, after: Instant) -> Instant | None:
        return next((at for at in self.instants(after, None)[1:] if self.level(at) != self.level(at - 1)), None)


@pytest.fixture(params=[1, 2, 3, 64])
def block(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> int:
    """Small blocks, so that few steps make many of them."""
    size: int = request.param
    monkeypatch.setattr(step_function, "_BLOCK", size)
    return size


def history(luck: Random) -> tuple[StepFunction, Plain]:
    """Steps up and down, some of them taken back again."""
    profile, plain = StepFunction(), Plain()
    made: list[tuple[Instant, int]] = []
    span = luck.choice((6, 40))
    for _ in range(luck.randint(0, 40)):
        if made and luck.random() < 0.35:
            at, step = made.pop(luck.randrange(len(made)))
            step = -step
        else:
            at, step = luck.randint(0, span), luck.choice((-3, -2, -1, 0, 1, 1, 2, 3))
            made.append((at, step))
        profile.add(at, step)
        plain.add(at, step)
    return profile, plain


def test_every_question_is_answered_as_by_a_plain_list(block: int) -> None:
    answers: set[object] = set()
    for seed in range(300):
        luck = Random(f"{block} {seed}")
        profile, plain = history(luck)
        for _ in range(12):
            need, start = luck.randint(-4, 7), luck.randint(0, 42)
            length = luck.choice((None, 1, 2, 5, 17, 60))
            end = None if length is None else start + length
            found = profile.first(need, start=start, length=length)
            assert found == plain.first(need, start=start, length=length), (seed, need, start, length)
            assert profile.low(start, end) == plain.low(start, end), (seed, start, end)
            assert profile.next_rise(start) == plain.next_rise(start), (seed, start)
            assert profile.level(start) == plain.level(start), (seed, start)
            assert profile.next_change(start) == plain.next_change(start), (seed, start)
            answers |= {found is None, found == start, profile.next_rise(start) is None}
    assert answers == {True, False}, "some question had only one answer"


def test_steps_and_their_opposites_leave_nothing_behind(block: int) -> None:
    luck, profile = Random(7), StepFunction()
    steps = [(luck.randint(0, 30), luck.choice((-2, -1, 1, 2))) for _ in range(200)]
    for at, step in steps:
        profile.add(at, step)
    luck.shuffle(steps)
    for at, step in steps:
        profile.add(at, -step)
    assert (profile._blocks, profile._firsts) == ([], [])
    assert profile.low(0, None) == 0
    assert profile.first(1, start=0, length=None) is None
    assert profile.next_rise(0) is None


def test_the_same_steps_in_any_order_answer_the_same(block: int) -> None:
    luck = Random(3)
    steps = [(luck.randint(0, 50), luck.choice((-2, -1, 1, 2))) for _ in range(120)]
    one, other = StepFunction(), StepFunction()
    for at, step in steps:
        one.add(at, step)
    luck.shuffle(steps)
    for at, step in steps:
        other.add(at, step)
    for start in range(0, 52, 3):
        assert one.low(start, start + 9) == other.low(start, start + 9)
        for need in range(-6, 7):
            assert one.first(need, start=start, length=7) == other.first(need, start=start, length=7)


def test_a_search_reads_the_blocks_that_may_hold_the_answer_and_no_others() -> None:
    """A rise far away is found without walking through all the steps before it."""
    profile = StepFunction()
    for at in range(0, 20_000, 2):
        profile.add(at, 1)
        profile.add(at + 1, -1)
    profile.add(30_000, 5)
    profile.first(5, start=0, length=None)  # what changed is read once
    walked = []

    class Watched(list[int]):
        def __iter__(self):  # type: ignore[no-untyped-def]  # as list's
            walked.append(len(self))
            return super().__iter__()

    for one in profile._blocks:
        one.steps = Watched(one.steps)
    assert profile.first(5, start=0, length=10) == 30_000
    assert sum(walked) <= 4 * step_function._BLOCK


def test_many_steps_laid_at_once_and_copied_are_those_that_were_added_one_by_one(block: int) -> None:
    for seed in range(60):
        luck = Random(f"laid {block} {seed}")
        added, plain = history(luck)
        laid = StepFunction()
        laid.lay(list(plain.steps))
        copied = added.copy()
        added.add(7, 5)
        assert list(laid.steps()) == list(copied.steps())
        begin, end = sorted(luck.sample(range(60), 2))
        changes = [(at, plain.level(at)) for at, _ in laid.steps() if begin < at < end]
        assert list(laid.part(begin, end)) == [(begin, plain.level(begin)), *changes]
        assert [laid.low(at, None) for at in range(45)] == [copied.low(at, None) for at in range(45)]
        assert added.level(50) == copied.level(50) + 5, "a copy is a thing of its own"
