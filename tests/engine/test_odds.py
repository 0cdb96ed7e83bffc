"""The odds of being cut: exact where few sets are reached, estimated by real draws otherwise."""

from __future__ import annotations

from fractions import Fraction
from random import Random

import pytest

from tenure.engine.lottery import Token
from tenure.engine.odds import SAMPLES, Enough, decimal, estimated_odds, exact_odds, odds, samples_for
from tests.engine.lottery_records import pool

HALF, THIRD, QUARTER = Fraction(1, 2), Fraction(1, 3), Fraction(1, 4)


def at_least(count: int) -> Enough:
    return lambda cut: len(cut) >= count


def by_hand(tokens: tuple[Token, ...], enough: Enough) -> dict[str, Fraction]:
    """Every order there is, with its probability: the definition itself, for small pools."""
    chances = {token.id: Fraction(0) for token in tokens}

    def go(cut: list[str], left: tuple[Token, ...], likely: Fraction) -> None:
        if enough(frozenset(cut)):
            for name in cut:
                chances[name] += likely
            return
        owners = {token.owner for token in left}
        for token in left:
            mine = [other for other in left if other.owner == token.owner]
            rest = tuple(other for other in left if other is not token)
            go([*cut, token.id], rest, likely / len(owners) / len(mine))

    go([], tokens, Fraction(1))
    return chances


@pytest.mark.parametrize(
    ("runs", "needed", "chances"),
    [
        ({"a": "1"}, 1, {"ns/1": 1}),
        ({"a": "1 2"}, 1, {"ns/1": HALF, "ns/2": HALF}),
        ({"a": "1 2", "b": "3"}, 1, {"ns/1": QUARTER, "ns/2": QUARTER, "ns/3": HALF}),
        ({"a": "1 2", "b": "3"}, 2, {"ns/1": Fraction(5, 8), "ns/2": Fraction(5, 8), "ns/3": Fraction(3, 4)}),
        ({"a": "1", "b": "2", "c": "3"}, 1, {"ns/1": THIRD, "ns/2": THIRD, "ns/3": THIRD}),
        ({"a": "1 2", "b": "3"}, 3, {"ns/1": 1, "ns/2": 1, "ns/3": 1}),
    ],
)
def test_odds_are_those_one_finds_by_hand(
    runs: dict[str, str], needed: int, chances: dict[str, Fraction | int]
) -> None:
    found = odds(pool(**runs), at_least(needed), seed=b"")
    assert found.exact
    assert found.chances == chances


def test_exact_odds_are_the_sum_over_all_orders_for_any_rule() -> None:
    luck = Random(5)
    for _ in range(60):
        runs = {name: " ".join(f"{name}{k}" for k in range(luck.randint(1, 3))) for name in "ab"}
        tokens = pool(**runs)
        everyone = frozenset(token.id for token in tokens)
        # Any family of sets, not only those that grow: the first that is enough ends the draw.
        good = {frozenset(luck.sample(sorted(everyone), k=luck.randint(1, len(everyone)))) for _ in range(4)}
        rule: Enough = (good | {everyone}).__contains__
        found = exact_odds(tokens, rule)
        assert found is not None
        assert found.chances == by_hand(tokens, rule)


def test_odds_sum_to_the_number_of_cuts() -> None:
    tokens = pool(a="1 2 3", b="4 5", c="6 7 8")
    for count in range(9):
        assert sum(odds(tokens, at_least(count), seed=b"").chances.values()) == count


def test_nobody_is_at_risk_where_nobody_has_to_go_or_all_would_not_do() -> None:
    tokens = pool(a="1 2", b="3")
    for rule in (lambda cut: True, lambda cut: False):
        found = odds(tokens, rule, seed=b"")
        assert (found.exact, set(found.chances.values())) == (True, {Fraction(0)})
    assert odds((), lambda cut: False, seed=b"").chances == {}


def test_only_the_runs_that_a_rule_looks_at_end_the_draw() -> None:
    tokens = pool(a="1", b="2", c="3")
    found = odds(tokens, lambda cut: "ns/3" in cut, seed=b"")
    assert found.chances == {"ns/1": HALF, "ns/2": HALF, "ns/3": 1}


def test_a_large_pool_has_exact_odds_where_one_cut_suffices() -> None:
    tokens = pool(**{f"o{n}": " ".join(f"r{n}-{k}" for k in range(10)) for n in range(50)})
    found = odds(tokens, at_least(1), seed=b"")
    assert found.exact
    assert set(found.chances.values()) == {Fraction(1, 500)}


def test_estimates_say_how_many_draws_they_rest_on_and_come_close() -> None:
    tokens = pool(a="1 2 3", b="4 5", c="6 7 8")
    right = odds(tokens, at_least(4), seed=b"")
    guess = odds(tokens, at_least(4), seed=b"", sets_max=10)
    assert (right.exact, guess.exact, guess.samples) == (True, False, SAMPLES)
    # Five standard errors.
    assert all(abs(guess.chances[name] - right.chances[name]) < Fraction(56, 1000) for name in right.chances)
    assert sum(guess.chances.values()) == 4


def test_an_estimate_is_a_function_of_its_seed() -> None:
    tokens = pool(a="1 2 3", b="4 5", c="6 7 8")
    guesses = [odds(tokens, at_least(4), seed=seed, sets_max=1, samples=200) for seed in (b"x", b"x", b"y")]
    assert guesses[0] == guesses[1]
    assert guesses[0] != guesses[2]


def test_an_estimate_may_take_its_victims_step_by_step() -> None:
    tokens = pool(a="1 2 3", b="4 5", c="6 7 8")
    stepwise = estimated_odds(tokens, lambda order: [next(order) for _ in range(4)], seed=b"x")
    assert stepwise == odds(tokens, at_least(4), seed=b"x", sets_max=1)


def test_an_estimate_asks_few_questions_even_where_many_must_go() -> None:
    tokens = pool(a=" ".join(map(str, range(300))), b=" ".join(map(str, range(300, 400))))
    asked: list[int] = []

    def enough(cut: frozenset[str]) -> bool:
        asked.append(len(cut))
        return len(cut) >= 200

    found = odds(tokens, enough, seed=b"", sets_max=100, samples=20)
    assert found.samples == 20
    assert sum(found.chances.values()) == 200
    # Some to find that the sets are too many, then at most twice log2(400) for each draw.
    assert len(asked) <= 102 + 20 * 20


def test_large_pools_are_played_less_often() -> None:
    counts = [samples_for(count) for count in (9, 100, 1000, 100_000)]
    assert counts == [2000, 2000, 200, 100]


@pytest.mark.parametrize(
    ("chance", "text"),
    [
        (Fraction(0), "0.0000"),
        (Fraction(1), "1.0000"),
        (Fraction(2, 3), "0.6667"),
        (Fraction(1, 10**9), "0.0001"),
        (1 - Fraction(1, 10**9), "0.9999"),
    ],
)
def test_what_is_uncertain_is_never_printed_as_certain(chance: Fraction, text: str) -> None:
    assert decimal(chance) == text
