"""Places and estimates in statuses: looked at once a minute, said anew where they changed, and at a bounded rate."""

from __future__ import annotations

from collections.abc import Callable, Collection
from concurrent.futures import Executor, Future
from typing import Any

import pytest

from tenure.api.policy import Policy
from tenure.engine.shown import Risks
from tenure.engine.words import Words
from tenure.kube import likely, shown
from tenure.kube.likely import Likely
from tenure.ledger import CompletedRow
from tenure.testing import Fleet, budget, envelope, nodes, run

Object = dict[str, Any]


class Books:
    def completed(self, owners: Collection[str], *, before: int) -> list[CompletedRow]:
        return []


class AtOnce(Executor):
    """Does what it is asked for in this thread, or when it is told to."""

    def submit(self, work: Callable[..., Any], /, *given: Any, **named: Any) -> Future[Any]:
        done: Future[Any] = Future()
        done.set_result(work(*given, **named))
        return done


class Desk:
    """A fleet, a clock that counts seconds, and the statuses that were written."""

    def __init__(self, fleet: Fleet) -> None:
        self.fleet, self.seconds, self.written = fleet, 0.0, {}
        self.likely = self.begin()

    def begin(self) -> Likely:
        return Likely(Books(), clock=lambda: self.seconds, threads=AtOnce())

    def status(self, key: str) -> Object:
        state, now = self.fleet.state, self.fleet.now
        status = shown.run_status(state, key, now=now, words=Words(state, now=now), risks=Risks(state, now=now))
        return self.likely.told(state, key, status, self.written.get(key, {}))

    def write(self, *keys: str) -> None:
        self.written |= {key: self.status(key) for key in keys}

    def turn(self, seconds: float = 0) -> list[str]:
        """One flush, so much later; answers whose place or time is said anew."""
        self.seconds += seconds
        self.likely.look(self.fleet.state, now=self.fleet.now)
        due = self.likely.take_due(self.fleet.state, now=self.fleet.now)
        self.write(*due)
        return due


@pytest.fixture
def desk() -> Desk:
    """One place; `next` holds it, and sixty more wait."""
    fleet = Fleet(*nodes("n", 1), budget("a", envelope("main", 1000)), policy=Policy(promise_depth=1))
    fleet.start(run("first", 8, owner="org:a", lasts="2h"))
    fleet.apply(run("next", 8, owner="org:a", lasts="1h"))
    for number in range(60):
        fleet.apply(run(f"w{number:02}", 8, owner="org:a", lasts="1h"))
    found = Desk(fleet)
    found.write("lab/next", *(f"lab/w{number:02}" for number in range(60)))
    return found


def position(desk: Desk, number: int) -> int:
    found: int = desk.written[f"lab/w{number:02}"]["queue"]["position"]
    return found


def test_who_is_new_has_a_place_at_once_and_times_with_the_next_look(desk: Desk) -> None:
    assert [position(desk, number) for number in (0, 59)] == [1, 60]
    assert all("estimate" not in status for status in desk.written.values())
    assert "queue" not in desk.written["lab/next"], "it holds a promise"
    assert desk.turn() == [], "the replays are under way"
    desk.turn(60)
    assert desk.written["lab/next"]["estimate"]["likelyStart"] == "2025-11-01T02:00:00Z"


def test_so_many_in_a_second_and_who_was_written_longest_ago_first(desk: Desk) -> None:
    desk.turn()
    first = desk.turn(60)
    assert (len(first), first[0]) == (likely.A_SECOND, "lab/next")
    assert desk.turn() == [], "the second is over only when it is over"
    rest = [key for _ in range(4) for key in desk.turn(1)]
    assert sorted([*first, *rest]) == sorted(["lab/next", *(f"lab/w{number:02}" for number in range(60))])


def test_nothing_is_said_anew_where_nothing_changed(desk: Desk) -> None:
    desk.turn()
    for _ in range(10):
        desk.turn(60 if desk.seconds == 0 else 1)
    desk.fleet.later("1m")
    desk.turn(60)
    assert [key for _ in range(5) for key in desk.turn(1)] == [], "that it was found later is no reason"


def test_a_status_that_is_written_for_another_reason_says_what_was_said(desk: Desk) -> None:
    desk.fleet.delete("Run", "lab/w00")
    desk.write("lab/w59")
    assert position(desk, 59) == 60, "until the next look"
    desk.turn()
    for _ in range(6):
        desk.turn(60 if desk.seconds == 0 else 1)
    assert position(desk, 59) == 59


def test_a_minute_between_two_statuses_of_a_run(desk: Desk) -> None:
    desk.turn()
    desk.turn(60)
    assert position(desk, 0) == 1
    desk.fleet.delete("Run", "lab/next")
    desk.turn(30)
    assert position(desk, 5) == 6, "half a minute later it is not even looked at"


def test_who_starts_says_nothing_of_a_queue_any_more(desk: Desk) -> None:
    desk.turn()
    desk.turn(60)
    desk.fleet.succeed("lab/first")
    desk.fleet.bind("lab/next")
    desk.write("lab/next")
    assert not {"queue", "estimate"} & desk.written["lab/next"].keys()


def test_another_operator_goes_on_with_what_is_said(desk: Desk) -> None:
    desk.turn()
    desk.turn(60)
    said = dict(desk.written)
    desk.likely = desk.begin()
    desk.fleet.delete("Run", "lab/w00")
    desk.write("lab/w03", "lab/next")
    assert {key: desk.written[key] for key in ("lab/w03", "lab/next")} == {
        key: said[key] for key in ("lab/w03", "lab/next")
    }


def test_estimates_that_fail_keep_nobody_from_deciding(desk: Desk) -> None:
    """What is told is what was known before; somebody hears why."""
    heard: list[str] = []
    broken: Future[Any] = Future()
    broken.set_exception(ValueError("no such run"))

    class Broken(AtOnce):
        def submit(self, work: Callable[..., Any], /, *given: Any, **named: Any) -> Future[Any]:
            return broken

    desk.likely = Likely(Books(), clock=lambda: desk.seconds, trouble=heard.append, threads=Broken())
    assert desk.turn() + desk.turn(60) == []
    assert heard == ["no estimates could be made: ValueError('no such run')"]
    assert position(desk, 0) == 1
