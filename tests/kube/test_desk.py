"""The writing desk: bounded, in order of rank, one write an object, and nothing lost to a passing fault."""

import asyncio
import threading
from collections.abc import Awaitable, Callable

from tenure.kube.desk import EVENT, LEASE, POD, STATUS, Desk
from tenure.kube.errors import ApiError, NotTaken
from tenure.kube.loop import IO
from tenure.testing.kube import until
from tenure.testing.kube.waiting import PATIENCE


def writer(log: list[str], word: str) -> Callable[[], Awaitable[None]]:
    async def write() -> None:
        log.append(word)

    return write


def held(gate: threading.Event, began: threading.Event | None = None) -> Callable[[], Awaitable[None]]:
    async def write() -> None:
        if began is not None:
            began.set()
        while not gate.is_set():
            await asyncio.sleep(0.001)

    return write


def test_of_what_waits_the_lowest_rank_goes_first(io: IO) -> None:
    desk, gate, log = Desk(io, hands=1), threading.Event(), list[str]()
    desk.put("held", held(gate), rank=LEASE)
    for rank, word in ((EVENT, "event"), (STATUS, "status"), (LEASE, "lease")):
        desk.put(word, writer(log, word), rank=rank)
    gate.set()
    assert desk.wait(PATIENCE)
    assert log == ["lease", "status", "event"]


def test_the_newest_wish_for_an_object_is_the_one_that_is_written(io: IO) -> None:
    desk, gate, began, log = Desk(io), threading.Event(), threading.Event(), list[str]()
    desk.put("a", held(gate, began), rank=STATUS)
    assert began.wait(PATIENCE)  # or else what is under way would be one of the wishes
    for word in ("one", "two", "three"):
        desk.put("a", writer(log, word), rank=STATUS)
    assert desk.holds("a")
    gate.set()
    assert desk.wait(PATIENCE)
    assert log == ["three"]
    assert not desk.holds("a")


def test_it_says_when_more_waits_than_hands_can_take_up(io: IO) -> None:
    desk, gate, begun = Desk(io, hands=2), threading.Event(), list[str]()

    async def write() -> None:
        begun.append("one")
        await held(gate)()

    for key in ("a", "b"):
        desk.put(key, write, rank=LEASE)
    until(lambda: len(begun) == 2)
    for key in ("c", "d"):
        desk.put(key, write, rank=LEASE)
    assert not desk.crowded
    desk.put("e", write, rank=LEASE)
    assert desk.crowded
    gate.set()
    assert desk.wait(PATIENCE)
    assert not desk.crowded


def test_no_more_are_under_way_than_there_are_hands(io: IO) -> None:
    desk, most, now = Desk(io, hands=3), [0], [0]

    async def write() -> None:
        now[0] += 1
        most[0] = max(most[0], now[0])
        await asyncio.sleep(0.005)
        now[0] -= 1

    for index in range(20):
        desk.put(str(index), write, rank=LEASE)
    assert desk.wait(PATIENCE)
    assert most == [3]
    assert desk.done == 20


def test_a_passing_fault_is_tried_again_and_a_refusal_is_told_once(io: IO) -> None:
    told: list[str] = []
    desk, tries = Desk(io, trouble=lambda key, error: told.append(f"{key}: {error}")), [0]

    async def flaky() -> None:
        tries[0] += 1
        if tries[0] < 3:
            raise ApiError(503, "Unavailable", "later")

    async def refused() -> None:
        raise ApiError(422, "Invalid", "no")

    desk.put("flaky", flaky, rank=LEASE)
    desk.put("refused", refused, rank=LEASE)
    assert desk.wait(PATIENCE)
    assert tries == [3]
    assert told == ["refused: 422 Invalid: no"]


def test_regression_what_was_refused_is_written_when_it_is_asked_for_again(io: IO) -> None:
    """A role that somebody was editing refused the end of a lease, and it was shown open from then on."""
    told, log, allowed = list[str](), list[str](), [False]
    desk = Desk(io, trouble=lambda key, error: told.append(f"{key}: {error}"))

    def guarded(word: str) -> Callable[[], Awaitable[None]]:
        async def write() -> None:
            if not allowed[0]:
                raise ApiError(403, "Forbidden", "no")
            log.append(word)

        return write

    def again() -> list[str]:
        desk.again()
        assert desk.wait(PATIENCE)
        return log

    for key, rank in (("lease", LEASE), ("run", STATUS), ("pod", POD), ("event", EVENT)):
        desk.put(key, guarded(key), rank=rank)
    assert desk.wait(PATIENCE)
    assert again() == []
    assert sorted(told) == [f"{key}: 403 Forbidden: no" for key in ("event", "lease", "pod", "run")], "told once"
    allowed[0] = True
    desk.put("run", guarded("a newer status"), rank=STATUS)
    assert desk.wait(PATIENCE)
    assert again() == ["a newer status", "lease"], "whoever wants a pod looks what became of it"
    assert again() == ["a newer status", "lease"]


def test_a_refusal_that_is_not_taken_for_an_answer_is_tried_again_and_told_once(io: IO) -> None:
    told, tries = list[str](), [0]
    desk = Desk(io, trouble=lambda key, error: told.append(f"{key}: {error}"))

    async def write() -> None:
        tries[0] += 1
        if tries[0] < 3:
            raise NotTaken(ApiError(403, "Forbidden", "no"))

    desk.put("pod", write, rank=POD)
    assert desk.wait(PATIENCE)
    assert (tries, told) == ([3], ["pod: 403 Forbidden: no"])


def test_what_waits_can_be_taken_back_and_what_is_under_way_cannot(io: IO) -> None:
    desk, gate, began, log = Desk(io, hands=1), threading.Event(), threading.Event(), list[str]()
    desk.put("held", held(gate, began), rank=LEASE)
    desk.put("b", writer(log, "b"), rank=LEASE)
    assert began.wait(PATIENCE)
    assert not desk.drop("held")
    assert desk.drop("b")
    gate.set()
    assert desk.wait(PATIENCE)
    assert log == []


def test_everything_can_be_taken_back_at_once_and_what_is_under_way_is_not_tried_again(io: IO) -> None:
    """What waits, what sleeps after a fault, what was refused, and what is about to fail; then the desk is as new."""
    gate, began, log = threading.Event(), threading.Event(), list[str]()
    desk = Desk(io)

    def failing(word: str, code: int) -> Callable[[], Awaitable[None]]:
        async def write() -> None:
            log.append(word)
            raise ApiError(code, "Trouble", "no")

        return write

    async def last() -> None:
        await held(gate, began)()
        raise ApiError(503, "Trouble", "no")

    desk.put("under way", last, rank=POD)
    assert began.wait(PATIENCE)
    desk.put("sleeps", failing("sleeps", 503), rank=POD)
    desk.put("refused", failing("refused", 403), rank=STATUS)
    until(lambda: desk.refused == 1 and log.count("sleeps") > 1)
    desk.put("under way", writer(log, "waits"), rank=POD)
    desk.drop_all()
    io.run(asyncio.sleep(0))  # a write that was just taken up has begun then
    log.clear()
    assert not desk.holds("sleeps")
    assert not desk.holds("under way")
    desk.again()
    desk.put("sleeps", writer(log, "sleeps anew"), rank=POD)
    until(lambda: log == ["sleeps anew"])
    desk.put("under way", writer(log, "after it"), rank=POD)
    assert desk.holds("under way")
    gate.set()
    assert desk.wait(PATIENCE)
    io.run(asyncio.sleep(0.3))
    assert log == ["sleeps anew", "after it"]
    assert (desk.waiting, desk.idle) == (0, True)
