"""Breadth first, level by level: all interleavings of so many moves, each point looked at once.

A level is complete before the next begins, so the first path to a point is a shortest one, and depth D means every
sequence of D moves. Only the last two levels, which are most of all points, are searched together: from what is found
on the first of them the search goes on at once, and nothing of it is kept.

With several jobs each worker goes on with the points that it found first: the table of all keys is in memory that they
share (``claims``), and nothing but counts travels. So the number of points, transitions and duplicates does not depend
on the number of jobs.
"""

from __future__ import annotations

import gc
import sys
from collections.abc import Generator, Iterator, Sequence
from multiprocessing import get_context
from multiprocessing.connection import Connection
from os import getpid, getppid
from signal import SIG_DFL, SIGTERM, signal
from time import monotonic, process_time
from typing import NamedTuple

from proof.scope.claims import Claims
from proof.scope.expand import Expansion, Tallies, Then
from proof.scope.point import Point
from proof.scope.witness import Witness

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
    whole: int
    """The depth up to which everything was searched."""
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
    tallies: Tallies
    cpu: float


class Worker:
    """One process's part of the search."""

    def __init__(self, frontier: list[Point], claims: Claims) -> None:
        self.frontier = frontier
        self.claims = claims
        self.tallies = Tallies()
        self.witness = Witness()
        self._complete = True

    def level(self, *, then: Then, deadline: float) -> Iterator[int]:
        """Expand the frontier; yields now and then how many points are done."""
        self._complete, said = False, monotonic()
        frontier, expansion = self.frontier, Expansion(self.claims, self.tallies, self.witness, then=then)
        self.frontier = expansion.found
        gc.disable()  # states have cycles; those that were thrown away are young, and the frontier need not be walked
        for done, point in enumerate(frontier):
            if done % _SWEEP == 0:
                gc.collect(0)
            if (now := monotonic()) > deadline:
                return
            if now - said > _TALK:
                said = now
                yield done
            expansion.of(point)
        self._complete = True

    def answer(self, *, cpu: float) -> Answer:
        tallies, self.tallies = self.tallies, Tallies()
        tallies.proved, tallies.met = self.witness.proved, self.witness.met
        self.witness.proved = self.witness.met = 0
        return Answer(self._complete, tallies, cpu)


def search(
    start: Point, depth: int, *, jobs: int = 1, minutes: float = 10.0, progress: bool = False
) -> Generator[Level, None, None]:
    """All levels up to a depth, or as far as the time goes. The last two are searched together, and told of together;
    both may be incomplete then."""
    begin, before = monotonic(), len(start.path)
    claims, total, transitions, states = Claims(), Tallies(), 0, 1
    claims.claim(start.key)
    claims.go_on(start.key)
    crew: Sequence[Here | There] = [Here(Worker([start], claims))]
    try:
        for number in range(1, max(depth, 2)):
            if len(crew) < jobs and isinstance(crew[0], Here) and len(crew[0].worker.frontier) >= _CROWD * jobs:
                crew = _hire(crew[0].worker, jobs)
            then: Then = "never" if depth == 1 else "now" if number == depth - 1 else "later"
            for one in crew:
                one.ask(then=then, deadline=begin + minutes * 60)
            answers = _answers(crew, number, progress=progress)
            for answer in answers:
                total.add(answer.tallies)
            complete = all(answer.complete for answer in answers)
            cpu = process_time() + sum(answer.cpu for answer in answers)
            for one_depth in (number, depth) if then == "now" else (number,):
                found = total.found[before + one_depth]
                states, transitions = states + found, transitions + total.tried[before + one_depth]
                whole = one_depth if complete else number - 1
                yield Level(
                    one_depth, complete, whole, found, states, transitions, total, monotonic() - begin, cpu
                )  # fmt: skip
                if any(len(finding.path) <= before + one_depth for finding in total.findings):
                    return
            if not complete:
                return
    finally:
        gc.enable()
        for one in crew:
            one.end()


def _hire(alone: Worker, jobs: int) -> list[There]:
    """Others take over, each with its part of the frontier."""
    return [There(Worker(alone.frontier[index::jobs], alone.claims)) for index in range(jobs)]


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

    def ask(self, *, then: Then, deadline: float) -> None:
        self._steps = self.worker.level(then=then, deadline=deadline)
        self._size = len(self.worker.frontier)

    def hear(self) -> Answer | tuple[int, int] | None:
        done = next(self._steps, None)
        return self.worker.answer(cpu=0.0) if done is None else (done, self._size)

    def end(self) -> None:
        pass


class There:
    """A worker in a process of its own, which begins as a copy of this one."""

    def __init__(self, worker: Worker) -> None:
        context = get_context("fork")
        self._pipe, theirs = context.Pipe()
        self._child = context.Process(target=_serve, args=(theirs, worker, getpid()), daemon=True)
        self._child.start()
        theirs.close()

    def ask(self, *, then: Then, deadline: float) -> None:
        self._pipe.send((then, deadline))

    def hear(self) -> Answer | tuple[int, int] | None:
        if not self._pipe.poll(_TALK / 4):
            return None
        said: Answer | tuple[int, int] = self._pipe.recv()
        return said

    def end(self) -> None:
        self._pipe.close()
        self._child.terminate()
        self._child.join()


def _serve(pipe: Connection, worker: Worker, boss: int) -> None:
    """Search levels until nobody asks any more, or whoever did is gone."""
    signal(SIGTERM, SIG_DFL)
    here = Here(worker)
    try:
        while True:
            while not pipe.poll(_TALK):  # others may hold the other end, too: that it is closed is not always noticed
                if getppid() != boss:
                    return
            then, deadline = pipe.recv()
            here.ask(then=then, deadline=deadline)
            while not isinstance(said := here.hear(), Answer):
                if getppid() != boss:
                    return
                pipe.send(said)
            pipe.send(said._replace(cpu=process_time()))
    except (EOFError, BrokenPipeError, KeyboardInterrupt):
        pass
