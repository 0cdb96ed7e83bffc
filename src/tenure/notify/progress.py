"""How far a receiver has come, and what an answer does to that. Pure: time comes in by argument.

A receiver has one **place** in the notes of the ledger: everything up to it is settled. An event that the receiver
does not take must not hold up the events of other objects, and no later event of its own object may pass it. So its
object **lags**: it has a place of its own, further back, and from there on its notes are owed; all others go on.

    settled(n)  =  place(n) <= place  and not (object(n) lags and place(n) >= its place)

A lag is one row, however many notes it owes, and there are at most ``LAG_COUNT_MAX`` of them; when they are used up,
the receiver waits for one of them. What an answer means:

    Delivered                          settled
    Away (no answer, 3xx, 408, 425,    the receiver waits, doubling, and nothing is given up. Every fifth time in a
      429, 502, 503, 504)              row, the object at hand lags: it may be the event that brings the receiver down
    Declined (other answers)           the object lags, waits, doubling, and nothing is given up ...
    Declined, ``final`` (4xx)          ... but after so many refusals the event is a dead letter, and its object goes on

>>> pace = Pace(attempts=2, backoff=1_000_000, backoff_max=300_000_000)
>>> [wait(pace, count) // 1_000_000 for count in (1, 2, 3, 8, 9, 10, 999)]
[1, 2, 4, 128, 256, 300, 300]
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from msgspec import Struct
from msgspec.structs import replace

from tenure.notify.event import Letter, Place
from tenure.units import DAY, Instant, Micros

LAG_COUNT_MAX: Final = 64
"""Objects of one receiver that may lag at once."""
ISOLATE_EVERY: Final = 5
RETRY_AFTER_MAX: Final = DAY
"""A receiver may ask for patience, but not for ever."""


class Delivered(Struct, frozen=True):
    """The receiver has it."""


class Away(Struct, frozen=True, kw_only=True):
    """The receiver is not there, or asks to be left alone for a while."""

    why: str
    retry_after: Micros = 0


class Declined(Struct, frozen=True, kw_only=True):
    """The receiver is there and does not take this event; ``final`` if it says that the event is at fault."""

    why: str
    final: bool
    retry_after: Micros = 0


Answer = Delivered | Away | Declined


class Pace(Struct, frozen=True, kw_only=True):
    """How patient we are with a receiver."""

    attempts: int
    """Refusals after which an event is a dead letter."""
    backoff: Micros
    backoff_max: Micros
    isolates: bool = True
    """Whether one event may bring the receiver down; not so for a file."""


class Lag(Struct, frozen=True, kw_only=True):
    """An object of which the receiver owes us an answer, from this place on."""

    object: str
    seq: int
    idx: int
    tries: int = 0
    refusals: int = 0
    not_before: Instant = 0
    why: str = ""

    @property
    def place(self) -> Place:
        return self.seq, self.idx


class Dead(Struct, frozen=True, kw_only=True):
    """An event that the receiver refused for good."""

    seq: int
    idx: int
    at: Instant
    refusals: int
    why: str


class Progress(Struct, frozen=True, kw_only=True):
    """One receiver."""

    seq: int
    idx: int
    sent: int = 0
    fails: int = 0
    """Times in a row that it was away."""
    not_before: Instant = 0
    why: str = ""
    lags: tuple[Lag, ...] = ()

    @property
    def place(self) -> Place:
        return self.seq, self.idx

    @property
    def is_full(self) -> bool:
        return len(self.lags) >= LAG_COUNT_MAX

    def lags_on(self, about: str) -> bool:
        return any(lag.object == about for lag in self.lags)


Settled = tuple[Progress, Dead | None]


def wait(pace: Pace, count: int, retry_after: Micros = 0) -> Micros:
    """How long to wait after the ``count``-th failure; as long as the receiver asked for, if that is longer."""
    doubled = pace.backoff << min(count - 1, 60)
    return max(min(doubled, pace.backoff_max), min(retry_after, RETRY_AFTER_MAX))


def move(progress: Progress, to: Place) -> Progress:
    """Everything up to a place is settled or lags."""
    return replace(progress, seq=to[0], idx=to[1])


def due(progress: Progress, *, now: Instant) -> list[Lag]:
    """The lags that may be tried, the one that waited longest first; ties by place."""
    ready = [lag for lag in progress.lags if lag.not_before <= now]
    return sorted(ready, key=lambda lag: (lag.not_before, lag.place))


def settle(
    progress: Progress, batch: Sequence[Letter], answer: Answer, *, to: Place, now: Instant, pace: Pace
) -> Settled:
    """What an answer to new letters does; ``to`` is the last place that they, and those skipped with them, cover."""
    first = Lag(object=batch[0].object, seq=batch[0].seq, idx=batch[0].idx)
    match answer:
        case Delivered():
            return move(thanked(progress, len(batch)), to), None
        case Away():
            after = away(progress, answer, now=now, pace=pace)
            if not pace.isolates or after.fails % ISOLATE_EVERY or after.is_full:
                return after, None
            return _with(move(after, to), _put_off(first, answer, after=after, pace=pace)), None
        case Declined():
            assert len(batch) == 1, "only one letter at a time can be declined"
            after = move(replace(progress, fails=0, not_before=0, why=""), to)
            return _declined(after, first, answer, rest=None, now=now, pace=pace)


def settle_lag(
    progress: Progress, lag: Lag, letter: Letter, answer: Answer, *, rest: Place | None, now: Instant, pace: Pace
) -> Settled:
    """What an answer to a letter that was owed does; ``rest`` is where its object goes on, if it owes more."""
    match answer:
        case Delivered():
            return _resumed(thanked(progress, 1), lag, rest=rest, now=now), None
        case Away():
            after = away(progress, answer, now=now, pace=pace)
            return _with(after, _put_off(lag, answer, after=after, pace=pace)), None
        case Declined():
            here = replace(lag, seq=letter.seq, idx=letter.idx)
            return _declined(replace(progress, fails=0, why=""), here, answer, rest=rest, now=now, pace=pace)


def skip(progress: Progress, lag: Lag, *, rest: Place | None, now: Instant) -> Progress:
    """What a lag owed turns out not to be wanted, up to ``rest``."""
    return _resumed(progress, lag, rest=rest, now=now)


def thanked(progress: Progress, count: int) -> Progress:
    """The receiver took so many events: it is there."""
    return replace(progress, sent=progress.sent + count, fails=0, not_before=0, why="")


def away(progress: Progress, answer: Away, *, now: Instant, pace: Pace) -> Progress:
    """The receiver is not there: everything waits."""
    fails = progress.fails + 1
    return replace(progress, fails=fails, not_before=now + wait(pace, fails, answer.retry_after), why=answer.why)


def _put_off(lag: Lag, answer: Away, *, after: Progress, pace: Pace) -> Lag:
    """Wait longer than the receiver does, so that others are tried first: this may be what brings it down."""
    until = after.not_before + wait(pace, lag.tries + 1)
    return replace(lag, tries=lag.tries + 1, not_before=until, why=answer.why)


def _declined(
    progress: Progress, lag: Lag, answer: Declined, *, rest: Place | None, now: Instant, pace: Pace
) -> Settled:
    tries, refusals = lag.tries + 1, lag.refusals + answer.final
    if answer.final and refusals >= pace.attempts:
        dead = Dead(seq=lag.seq, idx=lag.idx, at=now, refusals=refusals, why=answer.why)
        return _resumed(progress, lag, rest=rest, now=now), dead
    until = now + wait(pace, tries, answer.retry_after)
    return _with(progress, replace(lag, tries=tries, refusals=refusals, not_before=until, why=answer.why)), None


def _resumed(progress: Progress, lag: Lag, *, rest: Place | None, now: Instant) -> Progress:
    """The object goes on where it left off, or no longer lags."""
    others = tuple(each for each in progress.lags if each.object != lag.object)
    if rest is None:
        return replace(progress, lags=others)
    return _with(progress, Lag(object=lag.object, seq=rest[0], idx=rest[1], not_before=now))


def _with(progress: Progress, lag: Lag) -> Progress:
    others = tuple(each for each in progress.lags if each.object != lag.object)
    return replace(progress, lags=tuple(sorted((*others, lag), key=lambda each: each.place)))
