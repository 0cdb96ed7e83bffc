"""Places in the queue and estimates in the statuses of Runs, at a bounded rate (SPEC 7).

Both change whenever anything happens, for everybody who waits behind it. So they are looked at once a minute, and what
a status said last stays until then. It is written anew only where a place or a rounded time has become another one, and
no more than so many in a second: who was written longest ago comes first. A status that is written for another reason
repeats what was said.

Replays take up to a second for ten thousand runs. They are pure, so they are made in a thread of their own, from
records that were taken down between two decisions.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Mapping
from concurrent.futures import Executor, Future, ThreadPoolExecutor
from typing import Any

from tenure.api.meta import to_wire
from tenure.api.run import Estimate
from tenure.engine import State
from tenure.engine.words import NO_TIMES, Words
from tenure.shell.estimates import Books, Question, Shown, ask
from tenure.units import DAY, HOUR, MINUTE, Instant, Micros, format_time

Object = dict[str, Any]

EVERY_SECONDS = 60.0
"""How often places and times are looked at, and the least between two statuses of a run that say another one."""
A_SECOND = 20
"""Such statuses in a second, at most."""
_LOOK_SECONDS = 0.5
"""How often it is asked whether the replays are done."""


class Likely:
    """What is said of the runs that wait, and what is to be said anew."""

    def __init__(
        self,
        books: Books,
        *,
        clock: Callable[[], float],
        trouble: Callable[[str], None] = lambda text: None,
        threads: Executor | None = None,
    ) -> None:
        """``trouble``: is told why there are no estimates; that keeps nobody from deciding."""
        self._books, self._clock, self._trouble = books, clock, trouble
        self._threads = threads or ThreadPoolExecutor(1, thread_name_prefix="estimates")
        self._asked: float | None = None
        self._answer: Future[dict[str, Shown]] | None = None
        self._bands: Mapping[str, Shown] = {}
        self._now: Instant = 0
        self._said: dict[str, Object] = {}
        """By run: the ``queue`` and the ``estimate`` that its status says."""
        self._wrote: dict[str, float] = {}
        """By run: when that was said."""
        self._due: deque[str] = deque()
        self._spent: tuple[float, int] = (0.0, 0)
        """A second, and how many were written in it."""

    def close(self) -> None:
        self._threads.shutdown(wait=False, cancel_futures=True)

    # -- looking --

    def look(self, state: State, *, now: Instant) -> None:
        """Have estimates made once a minute, and take them over when they are there."""
        at = self._clock()
        if self._answer is not None and self._answer.done():
            answer, self._answer = self._answer, None
            if (error := answer.exception()) is not None:
                self._trouble(f"no estimates could be made: {error!r}")
            else:
                self._take(state, answer.result(), now)
        if self._answer is None and state.queue.depth() and self._is_time(at):
            self._asked = at
            question = ask(self._books, state, state.queue.flavors(), now=now)
            self._answer = self._threads.submit(Question.answer, question)

    def _is_time(self, at: float) -> bool:
        return self._asked is None or at - self._asked >= EVERY_SECONDS

    def _take(self, state: State, bands: Mapping[str, Shown], now: Instant) -> None:
        self._bands, self._now = bands, now
        self._said = {key: one for key, one in self._said.items() if key in state.runs}
        self._wrote = {key: at for key, at in self._wrote.items() if key in self._said}
        words = Words(state, now=now)
        changed = [key for key in bands if key in state.runs and self._differs(key, self._fresh(state, key, words))]
        self._due = deque(sorted(changed, key=lambda key: (self._wrote.get(key, 0.0), state.runs[key].order)))

    def _differs(self, key: str, fresh: Object) -> bool:
        return _bare(self._said.get(key, {})) != _bare(fresh)

    def next(self) -> float | None:
        """Seconds until something is to be said; None if nothing is on its way. The next look needs no call: whoever
        drives looks about now and then."""
        if self._answer is not None:
            return _LOOK_SECONDS
        return (1.0 if self._left() <= 0 else 0.0) if self._due else None

    # -- saying --

    def take_due(self, state: State, *, now: Instant) -> list[str]:
        """Runs whose status is to say another place or time now: it will be said when they are written."""
        found: list[str] = []
        words = Words(state, now=now)
        at, left = self._clock(), self._left()
        while self._due and left > 0:
            key = self._due.popleft()
            if key not in state.runs or at - self._wrote.get(key, -EVERY_SECONDS) < EVERY_SECONDS:
                continue
            fresh = self._fresh(state, key, words)
            if self._differs(key, fresh):
                self._say(key, fresh)
                found.append(key)
                left -= 1
        self._spent = (self._second(), A_SECOND - left)
        return found

    def _left(self) -> int:
        second, spent = self._spent
        return A_SECOND - (spent if second == self._second() else 0)

    def _second(self) -> float:
        return float(int(self._clock()))

    def told(self, state: State, key: str, status: Object, seen: Object) -> Object:
        """A status of a run with what is said of its place and its start. ``seen``: what its object says by now, which
        an earlier operator may have written."""
        if status.get("phase") != "Pending" or not (status.get("queue") or status.get("pendingReservation")):
            self._said.pop(key, None)
            return {name: value for name, value in status.items() if name not in ("queue", "estimate")}
        said = self._said.get(key)
        if said is None and (seen.get("queue") or seen.get("estimate")):
            said = self._said[key] = {name: seen.get(name) for name in ("queue", "estimate")}
        if said is None or bool(said["queue"]) != bool(status.get("queue")):
            said = {"queue": status.get("queue"), "estimate": self._estimate(key)}
            self._say(key, said)
        return {**status, **{name: value for name, value in said.items() if value is not None}}

    def _say(self, key: str, fresh: Object) -> None:
        self._said[key], self._wrote[key] = fresh, self._clock()

    def _fresh(self, state: State, key: str, words: Words) -> Object:
        place, estimate = words.queue(state.runs[key]), self._estimate(key)
        queue = None if place is None else to_wire(place)
        if queue is not None and estimate is not None and estimate["basis"] == "none":
            queue["reason"] += f" {NO_TIMES[queue['waitsFor']]}"
        return {"queue": queue, "estimate": estimate}

    def _estimate(self, key: str) -> Object | None:
        one = self._bands.get(key)
        if one is None:
            return None
        likely, latest = (None if at is None else format_time(rounded(at, self._now))
                          for at in (one.band.likely, one.band.latest))  # fmt: skip
        as_of = format_time(one.as_of - one.as_of % MINUTE)
        wire: Object = to_wire(Estimate(likely_start=likely, latest_likely=latest, as_of=as_of, basis=one.band.basis))
        return wire


def rounded(at: Instant, now: Instant) -> Instant:
    """An instant to five minutes, to half an hour if it is hours off, to three hours if it is days off; never earlier.

    >>> [format_time(rounded(wait + 1, 0))[8:16] for wait in (2 * MINUTE, 7 * HOUR, 3 * DAY)]
    ['01T00:05', '01T07:30', '04T03:00']
    """
    off = at - now
    step: Micros = 5 * MINUTE if off < 6 * HOUR else 30 * MINUTE if off < 2 * DAY else 3 * HOUR
    return -(-at // step) * step


def _bare(said: Object) -> Object:
    """What is said, but for when that was found."""
    estimate = said.get("estimate")
    kept = None if estimate is None else {name: value for name, value in estimate.items() if name != "asOf"}
    return {"queue": said.get("queue"), "estimate": kept}
