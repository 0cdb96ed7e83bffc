"""Breadth first, level by level: all interleavings of so many moves, each point looked at once.

A level is complete before the next begins, so the first path to a point is a shortest one, and depth D means every
sequence of D moves. With several jobs each worker keeps the points that it found; only their keys travel. The
coordinator has the set of all keys: it tells each worker which of its points are new, and which keys the others have
found. A point that two workers found on the same level goes to one of them by its key. So the number of points,
transitions and duplicates does not depend on the number of jobs.
"""

from __future__ import annotations

import gc
import sys
from collections.abc import Iterator, Sequence
from multiprocessing import get_context
from multiprocessing.connection import Connection
from time import monotonic, process_time
from typing import NamedTuple

from proof.scope.expand import Tallies, expand
from proof.scope.point import Key, Point
from proof.scope.witness import Witness

_KEY = 16
_TALK = 2.0
"""Seconds between two progress lines."""
_SWEEP = 64
"""Points between two collections of garbage."""
_CROWD = 100
"""Points for each worker before several go to work."""


class Level(NamedTuple):
    """What is known once a level was searched."""

    depth: int
    complete: bool
    found: int
    """Points that were first reached at this depth."""
    states: int
    """All points so far."""
    transitions: int
    tallies: Tallies
    wall: float
    cpu: float


class Answer(NamedTuple):
    """What a worker has found on a level."""

    complete: bool
    keys: bytes
    tallies: Tallies
    cpu: float


class Worker:
    """One process's part of the search."""

    def __init__(self, frontier: list[Point], known: set[Key]) -> None:
        self.frontier = frontier
        self.known = known
        self.tallies = Tallies()
        self.witness = Witness()
        self._candidates: list[tuple[Key, Point | None]] = []
        self._complete = True

    def level(self, *, last: bool, deadline: float) -> Iterator[int]:
        """Expand the frontier; yields now and then how many points are done."""
        self._complete, said = False, monotonic()
        gc.disable()  # states have cycles; those that were thrown away are young, and the frontier need not be walked
        for done, point in enumerate(self.frontier):
            if done % _SWEEP == 0:
                gc.collect(0)
            if (now := monotonic()) > deadline:
                return
            if now - said > _TALK:
                said = now
                yield done
            self._candidates += expand(point, self.known, self.tallies, self.witness, last=last)
        self._complete = True

    def answer(self, *, cpu: float) -> Answer:
        tallies, self.tallies = self.tallies, Tallies()
        tallies.proved, tallies.met = self.witness.proved, self.witness.met
        self.witness.proved = self.witness.met = 0
        return Answer(self._complete, b"".join(key for key, _ in self._candidates), tallies, cpu)

    def keep(self, mine: set[Key], everything: bytes) -> None:
        """Go on with these of the points that were found; ``everything`` is what all have found."""
        self.frontier = [point for key, point in self._candidates if key in mine and point is not None]
        self._candidates = []
        self.known.update(split(everything))


def split(keys: bytes) -> list[Key]:
    return [keys[at : at + _KEY] for at in range(0, len(keys), _KEY)]


def search(
    start: Point, depth: int, *, jobs: int = 1, minutes: float = 10.0, progress: bool = False
) -> Iterator[Level]:
    """All levels up to a depth, or as far as the time goes; the last one may then be incomplete."""
    begin = monotonic()
    crew: Sequence[Here | There] = [Here(Worker([start], {start.key}))]
    seen, total, states = {start.key}, Tallies(), 1
    try:
        for number in range(1, depth + 1):
            if len(crew) < jobs and isinstance(crew[0], Here) and len(crew[0].worker.frontier) >= _CROWD * jobs:
                crew = _hire(crew[0].worker, jobs)
            for one in crew:
                one.ask(last=number == depth, deadline=begin + minutes * 60)
            answers = _answers(crew, number, progress=progress)
            shares = _shares([split(answer.keys) for answer in answers], seen)
            for answer in answers:
                total.add(answer.tallies)
            states += sum(map(len, shares))
            complete = all(answer.complete for answer in answers)
            cpu = process_time() + sum(answer.cpu for answer in answers)
            yield Level(
                number, complete, sum(map(len, shares)), states, total.transitions, total, monotonic() - begin, cpu
            )
            if not complete or total.findings:
                return
            for one, mine in zip(crew, shares, strict=True):
                one.keep(mine, b"".join(key for share in shares for key in share))
    finally:
        gc.enable()
        for one in crew:
            one.end()


def _shares(found: list[list[Key]], seen: set[Key]) -> list[set[Key]]:
    """Who goes on with what: new points to whoever found them, those found twice by their key."""
    new = [set(keys) - seen for keys in found]
    for index, mine in enumerate(new):
        for other in range(index):
            for key in mine & new[other]:
                new[other if key[-1] % 2 else index].discard(key)
    for mine in new:
        seen |= mine
    return new


def _hire(alone: Worker, jobs: int) -> list[There]:
    """Others take over, each with its part of the frontier."""
    return [There(Worker(alone.frontier[index::jobs], alone.known)) for index in range(jobs)]


def _answers(crew: Sequence[Here | There], depth: int, *, progress: bool) -> list[Answer]:
    """Wait for everybody, and tell how far they are."""
    waiting = dict(enumerate(crew))
    answers: dict[int, Answer] = {}
    done, sizes = [0] * len(crew), [0] * len(crew)
    while waiting:
        for index, one in list(waiting.items()):
            said = one.hear()
            if isinstance(said, Answer):
                answers[index] = said
                del waiting[index]
            elif said is not None:
                done[index], sizes[index] = said
                if progress:
                    text = f"depth {depth}: {sum(done):,} of about {sum(sizes):,} points expanded"
                    print(f"\r{text:<70}", end="", file=sys.stderr, flush=True)
    if progress:
        print(f"\r{'':<70}\r", end="", file=sys.stderr, flush=True)
    return [answers[index] for index in range(len(crew))]


class Here:
    """A worker in this process."""

    def __init__(self, worker: Worker) -> None:
        self.worker = worker
        self._steps: Iterator[int] = iter(())
        self._size = 0

    def ask(self, *, last: bool, deadline: float) -> None:
        self._steps = self.worker.level(last=last, deadline=deadline)
        self._size = len(self.worker.frontier)

    def hear(self) -> Answer | tuple[int, int] | None:
        done = next(self._steps, None)
        return self.worker.answer(cpu=0.0) if done is None else (done, self._size)

    def keep(self, mine: set[Key], everything: bytes) -> None:
        self.worker.keep(mine, everything)

    def end(self) -> None:
        pass


class There:
    """A worker in a process of its own, which begins as a copy of this one."""

    def __init__(self, worker: Worker) -> None:
        context = get_context("fork")
        self._pipe, theirs = context.Pipe()
        self._child = context.Process(target=_serve, args=(theirs, worker), daemon=True)
        self._child.start()
        theirs.close()

    def ask(self, *, last: bool, deadline: float) -> None:
        self._pipe.send((last, deadline))

    def hear(self) -> Answer | tuple[int, int] | None:
        if not self._pipe.poll(_TALK / 4):
            return None
        said: Answer | tuple[int, int] = self._pipe.recv()
        return said

    def keep(self, mine: set[Key], everything: bytes) -> None:
        self._pipe.send((mine, everything))

    def end(self) -> None:
        self._pipe.close()
        self._child.terminate()
        self._child.join()


def _serve(pipe: Connection, worker: Worker) -> None:
    """Search levels until nobody asks any more."""
    here = Here(worker)
    try:
        while True:
            last, deadline = pipe.recv()
            here.ask(last=last, deadline=deadline)
            while not isinstance(said := here.hear(), Answer):
                pipe.send(said)
            pipe.send(said._replace(cpu=process_time()))
            here.keep(*pipe.recv())
    except (EOFError, BrokenPipeError, KeyboardInterrupt):
        pass
