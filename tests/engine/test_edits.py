"""Games about money: see ``edits``. Each of the seeds that are named has found something, which stays found."""

from __future__ import annotations

import pytest

from tests.engine.edits import Game

FOUND = {
    "a status that somebody looks at": 0,
    "hours lowered to just what was used": 20,
    "the same, three times at one instant": 43,
    "the same, with what was handed over": 206,
    "a window that ends within the grace of hours": 59,
    "a state that is loaded finds news in who overstays": 205,
    "the same, and a cap": 437,
    "who is in a draw that the entry freezes is handed over": 343,
    "a draw that comes to nothing, and what is still short": 423,
    "who is past its end is handed over, and taken for gone": 491,
    "the same, and a cap is exceeded": 530,
}
OPEN = {351: "I9, who is left out of a draw", 691: "I8, hours are lowered", 1292: "as 351", 2154: "as 691"}
"""Seeds that fail: it is not settled yet who is wrong, the engine or the auditor."""


@pytest.mark.parametrize("seed", FOUND.values(), ids=FOUND.keys())
def test_what_a_game_has_found_stays_found(seed: int) -> None:
    Game(seed).play()


@pytest.mark.parametrize("seed", [seed for seed in range(1000, 1024) if seed not in OPEN])
def test_whatever_becomes_of_budgets_the_books_hold_and_whoever_reads_them_decides_alike(seed: int) -> None:
    Game(seed).play()
