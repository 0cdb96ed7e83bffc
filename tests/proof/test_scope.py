"""The small-scope check: what it counts, what it takes for the same, and that it finds what is wrong."""

from collections import Counter
from collections.abc import Iterator
from random import Random

import pytest

from proof.scope import main, search, tally
from proof.scope.point import act, freeze
from proof.scope.replay import NoSuchMove, Trail, follow, same_future
from proof.scope.search import Level
from proof.scope.world import moves
from tenure.engine import dump, life
from tenure.engine.state import RunRow
from tenure.engine.turn import Turn
from tenure.facts import Resolved

DEPTH = 5
STATES, TRANSITIONS = 9_472, 13_984
"""Of all interleavings of so many moves. A change of these numbers is a change of what the engine does: see that it is
meant, then count again with ``python -m proof scope --depth 5``."""
DEEP = {
    "closed RandomPreempt": "+a bound:a-a1-0 +b bound:b-a1-0 +c tick reveal:c gone:a-a1-0",
    "closed Shrink": "+b bound:b-a1-0 tick bound:b-a1-1 +c tick gone:b-a1-1",
}
"""What takes more moves than that, and a path on which it happens; paths on which something was found come here too."""
BEFORE_DRAW = ("+a", "bound:a-a1-0", "+b", "bound:b-a1-0", "+c")
DRAWS = ("tick", "tick~3")
"""The same instant, on two heads of the ledger."""


@pytest.fixture(scope="module")
def levels() -> list[Level]:
    return list(search.search(follow(()).point(), DEPTH, jobs=1, minutes=60))


@pytest.fixture(scope="module")
def whole(levels: list[Level]) -> Level:
    return levels[-1]


def test_all_interleavings_of_five_moves_hold(whole: Level) -> None:
    assert not whole.tallies.findings
    assert whole.complete
    assert (whole.depth, whole.states, whole.tallies.transitions) == (DEPTH, STATES, TRANSITIONS)


def test_the_sample_was_looked_at(whole: Level) -> None:
    assert whole.tallies.rebuilt > 100
    assert whole.tallies.proved > 1


@pytest.mark.parametrize("word", [word for word in tally.MUST if word not in DEEP])
def test_it_happened(whole: Level, word: str) -> None:
    assert whole.tallies.facts[word] > 0


def test_the_numbers_do_not_depend_on_the_number_of_workers(levels: list[Level]) -> None:
    alone = {(one.depth, one.states, one.found, one.transitions) for one in levels}
    both = search.search(follow(()).point(), 4, jobs=2, minutes=60)
    shared = {(one.depth, one.states, one.found, one.transitions) for one in both}
    assert len(shared) == 4
    assert shared < alone


# --- what is taken for the same ---------------------------------------------------------------------------------------


def meetings(depth: int) -> Iterator[tuple[tuple[str, ...], tuple[str, ...]]]:
    """Pairs of paths of which a search would take the ends for one point."""
    first: dict[bytes, tuple[str, ...]] = {}
    level: list[tuple[str, ...]] = [()]
    for _ in range(depth):
        ends = [(*path, name) for path in level for name in follow(path).moves()]
        level = []
        for path in ends:
            key = follow(path).point().key
            if first.setdefault(key, path) == path:
                level.append(path)
            else:
                yield first[key], path


def test_points_that_are_taken_for_one_have_the_same_future() -> None:
    pairs = list(meetings(3))
    assert len(pairs) > 50
    for one, other in Random("meetings").sample(pairs, 12):
        assert len(same_future(one, other, luck=Random(" ".join(one)), length=4)) == 4


def test_a_copy_is_its_own() -> None:
    trail = follow(BEFORE_DRAW)
    frozen, image = freeze(trail.state), dump(trail.state)
    for move in moves(trail.state, trail.attempts):
        copy = frozen.thaw()
        assert dump(copy) == image
        act(copy, move)
        assert (dump(copy) != image) == (move.name != "room:c"), move.name  # nobody has run long enough to be drawn
        assert dump(trail.state) == image, move.name


# --- what it finds ----------------------------------------------------------------------------------------------------


def test_a_planted_bug_is_found_on_a_shortest_path(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def forget(turn: Turn, row: RunRow) -> None:
        """Complete a run, and leave its leases open."""
        reason = life.Reason(code="Completed", data={"pods": 1})
        life.move(turn, row, reason, marks={"Completed": "True"}, phase="Completed")

    monkeypatch.setattr(life, "_complete", forget)
    assert main(["--depth", "4", "--jobs", "1"]) == 1
    said = capsys.readouterr().out
    assert "VIOLATION after 3 moves: +a bound:a-a1-0 ok:a-a1-0" in said
    assert "I3-pods-and-leases" in said
    assert '--path "+a bound:a-a1-0 ok:a-a1-0"' in said
    assert main(["--path", "+a bound:a-a1-0 ok:a-a1-0"]) == 1


def test_an_exception_of_the_engine_is_a_finding(monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(turn: Turn, row: RunRow) -> None:
        raise KeyError(row.key)

    monkeypatch.setattr(life, "_complete", fail)
    *_, level = search.search(follow(()).point(), 4, jobs=1, minutes=60)
    assert level.depth == 3
    assert {one.path[-1] for one in level.tallies.findings} == {"ok:a-a1-0", "ok:b-a1-0"}
    assert all("KeyError" in one.says for one in level.tallies.findings)


def test_a_draw_falls_on_either_owner() -> None:
    """The same moves on two heads of the ledger: the search tries both, or half of what can happen would be missing."""
    drawn = set()
    for tick in DRAWS:
        trail = follow((*BEFORE_DRAW, tick))
        outcome = trail.go(next(name for name in trail.moves() if name.startswith("reveal")))
        [record] = [fact for fact in outcome.facts if isinstance(fact, Resolved)]
        assert record.result is not None
        drawn.add(record.result.order[0])
        trail.prove()
    assert len(drawn) == 2


@pytest.mark.parametrize("word", DEEP)
def test_what_takes_more_moves_holds_too(word: str) -> None:
    seen: Counter[str] = Counter()
    trail = Trail()
    for name in DEEP[word].split():
        tally.count(trail.go(name).facts, seen)
    trail.prove()
    assert seen[word]


# --- what people see --------------------------------------------------------------------------------------------------


def test_a_path_is_told_move_by_move(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--path", "+b bound:b-a1-0 down:n0"]) == 0
    said = capsys.readouterr().out
    assert "down:n0" in said
    assert "Opened b-a1-g00-n1-1: Active n1 0, paid by b/main, Swap" in said
    assert said.rstrip().endswith("Nothing was found on this path of 3 moves.")


def test_a_move_that_cannot_happen_is_refused_with_those_that_can(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--path", "+a ok:a-a1-0"]) == 2
    said = capsys.readouterr().err
    assert "'ok:a-a1-0' cannot happen after '+a'" in said
    assert "bound:a-a1-0" in said


def test_a_search_may_begin_further_on(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--after", " ".join((*BEFORE_DRAW, "tick")), "--depth", "2", "--jobs", "1"]) == 0
    said = capsys.readouterr().out
    assert "all interleavings of 2 moves, after +a bound:a-a1-0 +b" in said
    assert "resolved    Activation" in said


def test_time_that_is_up_is_said(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--depth", "3", "--jobs", "1", "--minutes", "0"]) == 0
    assert "time is up: not complete" in capsys.readouterr().out


def test_a_trail_knows_what_can_happen() -> None:
    trail = Trail()
    assert [*trail.moves()] == ["+a", "+b", "+c", "down:n0", "cordon:n1", "lower", "minute"]
    with pytest.raises(NoSuchMove):
        trail.go("up:n0")
