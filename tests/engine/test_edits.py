"""Games about money: see ``edits``. Each of the seeds that are named has found something, which stays found."""

from __future__ import annotations

import pytest

from tests.engine.edits import Game
from tests.engine.wild import Wild

FOUND = {
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
    "the auditor: nobody is drawn on a node that is held for somebody": 351,
    "the same, again": 1292,
    "the auditor: hours are lowered to what was used, and whom they pay for stays a while": 691,
    "hours that work without an end will have spent by an earlier start": 2154,
    "a run grows into what was promised, and overstays": 933,
    "a part is handed over, and the rest stays on the same cap": 2479,
    "the auditor: the same hours, spent by who is handed over": 2589,
    "an edit of what is not exceeded gives no grace anew": 4503,
    "hours that are spent hide that the window ends": 5454,
    "an envelope that opens before the start comes first": 5641,
    "the window of an envelope that was deleted": 200315,
}
WILD = {
    "who passed somebody is handed over first": 1240,
    "a start is put off by who is handed over": 1141,
    "pods that are bound late end what is committed before they end": 2328,
    "the same where budgets are coasted on": 3743,
    "an owner who waits a moment is considered without end": 2666,
}


@pytest.mark.parametrize("seed", FOUND.values(), ids=FOUND.keys())
def test_what_a_game_has_found_stays_found(seed: int) -> None:
    Game(seed).play()


@pytest.mark.parametrize("seed", range(1000, 1024))
def test_whatever_becomes_of_budgets_the_books_hold_and_whoever_reads_them_decides_alike(seed: int) -> None:
    Game(seed).play()


@pytest.mark.parametrize("seed", [*WILD.values(), *range(1000, 1024)])
def test_the_same_where_nothing_is_on_time(seed: int) -> None:
    Wild(seed).play(50)
