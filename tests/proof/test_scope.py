"""The small-scope check: what it counts, what it takes for the same, and that it finds what is wrong."""

import ast
import re
import subprocess
import sys
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import suppress
from functools import partial
from multiprocessing import get_context
from os import killpg
from pathlib import Path
from random import Random
from signal import SIG_DFL, SIGINT, SIGKILL, SIGTERM, Signals, signal
from time import sleep
from types import FunctionType, MethodType

import pytest
from msgspec import Struct

from proof.commit import describe
from proof.scope import main, search, tally
from proof.scope.claims import Claims
from proof.scope.expand import audit
from proof.scope.point import act, freeze
from proof.scope.replay import NoSuchMove, Trail, follow, same_future
from proof.scope.rewind import Rewind, set_in, set_later
from proof.scope.search import Level
from proof.scope.world import moves
from tenure.engine import State, dump, life
from tenure.engine.state import RunRow
from tenure.engine.turn import Turn
from tenure.facts import Resolved
from tenure.units import MINUTE

DEPTH = 5
STATES, TRANSITIONS = 9_578, 14_085
"""Of all interleavings of so many moves. A change of these numbers is a change of what the engine does: see that it is
meant, then count again with ``python -m proof scope --depth 5``."""
DEEP = {
    "closed RandomPreempt": "+a bound:a-a1-0 +b bound:b-a1-0 +c tick reveal:c gone:a-a1-0",
    "closed Shrink": "+b bound:b-a1-0 tick bound:b-a1-1 +c tick gone:b-a1-1",
}
"""What takes more moves than that, and a path on which it happens."""
FOUND = {
    "who came before a plan took more of a node": "+c +b -c +a gone:c-a1-0 cordon:n1 tick",
    "the same, in another order": "+c -c +b +a gone:c-a1-0 cordon:n1 tick",
}
"""Paths on which something was found, named after it."""
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


def test_an_envelope_that_is_no_longer_short_is_not_waited_for() -> None:
    """A node took what it paid for too much, or a pod did: that it was short at some time makes no difference."""
    one, other = "+a lower tick down:n0 tick", "+a bad:a-a1-0 lower tick down:n0 tick"
    assert follow(one.split()).point().key == follow(other.split()).point().key
    assert len(same_future(tuple(one.split()), tuple(other.split()), luck=Random("short"), length=4)) == 4


def test_a_copy_is_its_own() -> None:
    trail = follow(BEFORE_DRAW)
    frozen, image = freeze(trail.state), dump(trail.state)
    for move in moves(trail.state, trail.attempts):
        copy = frozen.thaw()
        assert dump(copy) == image
        act(copy, move)
        assert (dump(copy) != image) == (move.name != "room:c"), move.name  # nobody has run long enough to be drawn
        assert dump(trail.state) == image, move.name


def held(state: State) -> dict[tuple[str, int], object]:
    """What all objects of a state hold, each under the order in which it is come across."""
    found: dict[int, tuple[tuple[str, int], object]] = {}
    todo: list[object] = [state]
    while todo:
        one = todo.pop()
        if id(one) in found or isinstance(one, str | int | Struct | FunctionType | MethodType | partial | None):
            continue
        if isinstance(one, dict):
            inside: list[object] = [*one.keys(), *one.values()]
        elif isinstance(one, list | tuple):
            inside = list(one)
        elif isinstance(one, set | frozenset):
            inside = sorted(one, key=repr)
        else:
            names = vars(one) if hasattr(one, "__dict__") else one.__slots__  # type: ignore[attr-defined]
            inside = [getattr(one, name) for name in names]
        found[id(one)] = (type(one).__name__, len(found)), [one if isinstance(one, str | int) else id(one)
                                                            for one in inside]  # fmt: skip
        todo += inside
    return dict(found.values())


def thawed(state: State) -> tuple[State, Rewind]:
    """A copy."""
    copy = freeze(state).thaw()
    return copy, Rewind(copy)


def walked(state: State) -> tuple[State, Rewind]:
    """The state itself."""
    return state, Rewind(state)


@pytest.mark.parametrize("taken", [thawed, walked])
@pytest.mark.parametrize("path", [BEFORE_DRAW, (*BEFORE_DRAW, "tick"), tuple(DEEP["closed RandomPreempt"].split())])
def test_whatever_a_move_does_is_taken_back(
    path: tuple[str, ...], taken: Callable[[State], tuple[State, Rewind]]
) -> None:
    """Every object of the state holds again what it held, and the very same things: nothing was added to any."""
    trail = follow(path)
    image = dump(trail.state)
    state, rewind = taken(trail.state)
    before = held(state)
    assert len(before) > 200
    for move in moves(state, trail.attempts):
        act(state, move)
        assert move.name.startswith("room") or held(state) != before, move.name
        rewind.back()
        assert held(state) == before, move.name
        assert dump(state) == image, move.name


@pytest.mark.parametrize("name", sorted(DEEP))
def test_whatever_an_auditor_hears_is_taken_back(name: str) -> None:
    trail = Trail()
    for move in DEEP[name].split():
        auditor = trail.auditor
        before, rewind = held(auditor), Rewind(auditor)
        assert len(before) > 80
        entries = len(trail.entries)
        trail.go(move)
        assert len(trail.entries) == entries or held(auditor) != before, move
        rewind.back()
        assert held(auditor) == before, move
        if len(trail.entries) > entries:
            audit(auditor, trail.entries[-1], at=trail.state.now, settled=False)


def test_attributes_that_may_be_set_once_an_object_was_made_are_known() -> None:
    source = """
class Row:
    def __init__(self, other):
        self.made = 1
        self.made += 1
        other.by_others = 1
        def later():
            self.in_time = 1
    def go(self, other):
        self.own, (other.first, self.second) = 1, (2, 3)
        for self.loop in range(3):
            other.rows[0].count += 1
        del self.gone
        self.table["key"] = other.read
"""
    own = {("Row", name) for name in ("in_time", "own", "second", "loop", "gone")}
    assert {*set_in(ast.parse(source))} == own | {("", name) for name in ("by_others", "first", "count")}
    assert {("State", "now"), ("", "phase")} <= set_later()
    with pytest.raises(TypeError, match="setattr"):
        list(set_in(ast.parse("setattr(row, name, 1)")))


def test_what_cannot_be_taken_back_is_refused() -> None:
    with pytest.raises(TypeError, match="no rule"):
        Rewind([bytearray(b"changes")])


def taken_by_two(claims: Claims, take: Callable[[Claims, bytes], bool]) -> None:
    """Of what two processes take at a time each thing is taken once, and then by nobody."""
    keys = [number.to_bytes(16) for number in range(1, 2000)]
    context = get_context("fork")
    pipe, theirs = context.Pipe()
    other = context.Process(target=lambda: theirs.send([key for key in keys if take(claims, key)]))
    other.start()
    mine = [key for key in keys if take(claims, key)]
    yours = pipe.recv()
    other.join()
    assert sorted([*mine, *yours]) == keys
    assert not any(take(claims, key) for key in keys)


def test_a_point_is_claimed_once_by_whoever_comes_first_and_the_search_goes_on_from_it_once() -> None:
    claims = Claims()
    taken_by_two(claims, Claims.claim)
    taken_by_two(claims, Claims.go_on)  # also from those that were seen before


def test_levels_that_are_searched_together_find_what_they_find_one_by_one(levels: list[Level]) -> None:
    """The last two are; a point may be reached by more moves first, and counts where it is reached by the fewest."""
    for depth in range(1, DEPTH):
        *_, last = search.search(follow(()).point(), depth, jobs=1, minutes=60)
        assert [*last[:6]] == [*levels[depth - 1][:6]]


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
    sentence = r"\nVIOLATION after 3 moves: [^\n]*\n(I3-pods-and-leases at \S+, \S+: [^\n]+: expected [^\n]+\.)\n"
    found = re.search(sentence, said)
    assert found is not None, said
    assert " -m proof scope --path '+a bound:a-a1-0 ok:a-a1-0'\n" in said
    assert main(["--path", "+a bound:a-a1-0 ok:a-a1-0"]) == 1
    said = capsys.readouterr().out
    assert said.count(found[1]) == 1, "the same words, once"
    assert re.search(r" s  ok:a-a1-0\n +[^\n]+\n( +[^\n]+\n)*\nVIOLATION", said), "what broke it is shown"
    assert "VIOLATION after 3 moves: +a bound:a-a1-0 ok:a-a1-0\n" in said


def test_an_exception_of_the_engine_is_a_finding(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def fail(turn: Turn, row: RunRow) -> None:
        raise KeyError(row.key)

    monkeypatch.setattr(life, "_complete", fail)
    *_, level = search.search(follow(()).point(), 4, jobs=1, minutes=60)
    assert level.depth == 3
    assert {one.path[-1] for one in level.tallies.findings} == {"ok:a-a1-0", "ok:b-a1-0"}
    assert all(
        one.says.startswith("KeyError: ") and "(fail, test_scope.py:" in one.says for one in level.tallies.findings
    )
    assert main(["--path", "+a bound:a-a1-0 ok:a-a1-0"]) == 1
    assert "VIOLATION after 3 moves: +a bound:a-a1-0 ok:a-a1-0\nKeyError: 'lab/a' (fail" in capsys.readouterr().out


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


@pytest.mark.parametrize("bug", FOUND)
def test_what_was_found_is_mended(bug: str) -> None:
    trail = follow(FOUND[bug].split())
    trail.prove()
    assert (
        trail.state.reservations["lab/a"].plan.start == trail.state.now + 2 * MINUTE
    )  # b was promised its start first, and has taken it: it is not to blame, but is there


def test_a_run_canceled_and_submitted_again_at_one_instant_is_another_one() -> None:
    """Its reservation had the name of the one before, and room was made for one activation twice (I9)."""
    follow(["+a", "+b", "+c", "bad:a-a1-0", "room:c", "-c", "+c", "room:c"]).prove()


def test_a_pod_that_lost_its_node_takes_nothing_that_was_promised_at_the_instant_at_which_its_run_started() -> None:
    """``a`` had its promise before ``b`` started, both at one instant: it was taken for the later one."""
    moves = "+c minute -c cordon:n1 +b uncordon:n1 +a gone:c-a1-0 bound:b-a1-0 down:n0"
    before = follow(moves.split()[:-1]).state
    assert before.reservations["lab/a"].made == before.runs["lab/b"].life.started
    trail = follow(moves.split())
    trail.prove()
    assert not trail.state.runs["lab/b"].leases
    assert trail.state.reservations["lab/a"] == before.reservations["lab/a"]


# --- what people see --------------------------------------------------------------------------------------------------


def test_a_path_is_told_move_by_move(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--path", "+b bound:b-a1-0 down:n0"]) == 0
    said = capsys.readouterr().out
    assert "down:n0" in said
    assert "Opened b-a1-g00-n1-1: Active n1 0, paid by b/main, Swap" in said
    assert said.rstrip().endswith(f"Nothing was found on this path of 3 moves, at commit {describe()}.")


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
    assert main(["--depth", "3", "--jobs", "1", "--minutes", "0.0000001"]) == 1
    assert "time is up: not complete" in capsys.readouterr().out


def of_group(group: int) -> list[str]:
    """The processes of a group that are not over."""
    found = []
    for one in Path("/proc").glob("[0-9]*"):
        with suppress(FileNotFoundError, ProcessLookupError):
            status, _, theirs, *_ = (one / "stat").read_text().rpartition(") ")[2].split()
            if int(theirs) == group and status != "Z":
                found.append(one.name)
    return found


def eventually(is_so: Callable[[], bool]) -> bool:
    """Whether it comes to that in a minute or two."""
    return any(is_so() or sleep(0.1) for _ in range(1000))  # type: ignore[func-returns-value]


@pytest.mark.parametrize("by", [SIGTERM, SIGINT, SIGKILL])
def test_whoever_is_ended_takes_the_workers_along(by: Signals) -> None:
    command = [sys.executable, "-m", "proof", "scope", "--jobs", "2"]
    heard = partial(signal, SIGINT, SIG_DFL)  # also where these tests run in the background, which does not hear it
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, start_new_session=True,
                          preexec_fn=heard) as boss:  # fmt: skip  # noqa: PLW1509  # there are no threads
        assert boss.stdout is not None
        try:
            for _ in range(4):  # the heading, and three levels: from then on there are workers
                assert boss.stdout.readline()
            assert eventually(lambda: len(of_group(boss.pid)) == 3)
            boss.send_signal(by)
            assert eventually(lambda: not of_group(boss.pid))
            assert boss.wait() == (128 + by if by is not SIGKILL else -by)
            so_far = b"All interleavings of 3 moves were: 415 transitions, 323 distinct states, 0 violations.\n"
            assert by is SIGKILL or boss.stdout.read().endswith(so_far)
        finally:
            with suppress(ProcessLookupError):
                killpg(boss.pid, SIGKILL)


def test_a_trail_knows_what_can_happen() -> None:
    trail = Trail()
    assert [*trail.moves()] == ["+a", "+b", "+c", "down:n0", "cordon:n1", "lower", "minute"]
    with pytest.raises(NoSuchMove):
        trail.go("up:n0")
