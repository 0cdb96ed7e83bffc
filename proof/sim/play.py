"""Playing a plan to its end, and making a list of events that fails as short as it gets."""

from __future__ import annotations

import re
import time
import traceback
from collections import Counter
from collections.abc import Callable, Sequence
from contextlib import closing

import msgspec
from msgspec import Struct

from proof.sim.events import Event, Plan
from proof.sim.limit import SECONDS_MAX, Unending, limited
from proof.sim.world import World, maker
from tenure.facts import Entry
from tenure.units import Micros

Watch = Callable[[Event | Entry], None]
AT_THE_END = -1
BEFORE_ALL = -2
_SAID = re.compile(r"(I\d+-[a-z-]+) at [^,]+, [^:]+: ([a-zA-Z ]+)")
_NUMBERS = re.compile(r"[0-9a-f]*\d[0-9a-f]*|lab/\S+")


class Played(Struct, kw_only=True):
    """What came of a plan: nothing wrong, or what, and at which of its events."""

    plan: Plan
    tally: Counter[str]
    step: int = AT_THE_END
    """Its place in the plan, from 0; people are told of the first as step 1."""
    later: bool = False
    """Not at that event itself, but while time passed after it."""
    found: tuple[str, ...] = ()
    endless: bool = False
    """What is wrong is that it did not end."""

    @property
    def failed(self) -> bool:
        return bool(self.found)

    @property
    def signature(self) -> str:
        """What kind of failure: the name of the invariant, or the last line of a traceback without its numbers."""
        return _kind(self.found[0]) if self.found else ""


def play(plan: Plan, *, watch: Watch | None = None, seconds: float = SECONDS_MAX) -> Played:
    """One world, from its beginning to its end or to the first thing that does not hold; ``watch`` is told of all that
    happens on the way. What does not end within so many ``seconds`` of processor time does not hold."""
    going, endless = _Going(plan, watch), False
    try:
        with limited(seconds):
            found = going.to_the_end()
    except Unending as error:
        found, endless = [f"{error}\n{_raised(error)}"], True
    except Exception as error:
        found = [f"{type(error).__name__}: {error}\n{_raised(error)}"]
    return Played(
        plan=plan, tally=going.tally, step=going.step, later=going.later, found=tuple(found), endless=endless
    )  # fmt: skip


class _Going:
    """How far a plan has been played."""

    def __init__(self, plan: Plan, watch: Watch | None) -> None:
        self.plan, self.watch = plan, watch
        self.tally: Counter[str] = Counter()
        self.step, self.later = BEFORE_ALL, True

    def to_the_end(self) -> list[str]:
        world = maker(self.plan.home)(self.plan)
        self.tally, world.trace = world.tally, self.watch
        with closing(world):
            for step, event in enumerate(self.plan.events):
                if found := self._wait(world, event.at) or self._do(world, step, event):
                    return found
            found = self._wait(world, self.plan.length)
            if not found:
                self.step, self.later = AT_THE_END, False
                found = world.finish()
            return found

    def _wait(self, world: World, until: Micros) -> list[str]:
        """What breaks while time passes is not the doing of the event to come."""
        self.later = True
        world.advance(until)
        return world.violations()

    def _do(self, world: World, step: int, event: Event) -> list[str]:
        self.step, self.later = step, False
        if self.watch is not None:
            self.watch(event)
        world.do(event)
        return world.violations()


def _raised(error: BaseException) -> str:
    """The end of a traceback."""
    return "".join(traceback.format_exception(error)[-6:]).strip()


def shrink(
    failed: Played,
    *,
    say: Callable[[str], None] = lambda _: None,
    tries: int = 400,
    seconds: float | None = None,
    keep: Callable[[Played], None] = lambda _: None,
) -> Played:
    """Leave out events, in halves, quarters and so on, as long as the same kind of thing fails (delta debugging).

    What comes after the failing step goes first. The answer fails by itself; ``tries`` bounds the worlds played, and
    ``seconds`` the time. ``keep`` is given the shortest so far, for whoever is interrupted. What does not end is
    left as it is: every try would take as long.
    """
    if failed.endless:
        return failed
    until = None if seconds is None else time.monotonic() + seconds
    best = _cut(failed)
    keep(best)
    size = max(1, len(best.plan.events) // 2)
    while tries > 0:
        at = 0
        while at < len(best.plan.events) and tries > 0:
            left = SECONDS_MAX if until is None else until - time.monotonic()
            if left < 0:
                return best
            events = best.plan.events
            tries -= 1
            less = play(_with(best.plan, (*events[:at], *events[at + size :])), seconds=min(left + 1.0, SECONDS_MAX))
            if less.signature == failed.signature:
                best = less
                keep(best)
                say(f"{len(best.plan.events)} events")
            else:
                at += size
        if size == 1:
            break
        size = max(1, size // 2)
    return best


def _cut(failed: Played) -> Played:
    """The same without what came afterwards. If it broke later than its step, the event to come may be what somebody
    looked at the world for."""
    if failed.step == AT_THE_END:
        return failed
    done = 0 if failed.step == BEFORE_ALL else failed.step + 1
    for length in (done, done + 1) if failed.later else (done,):
        cut = play(_with(failed.plan, failed.plan.events[:length]))
        if cut.signature == failed.signature:
            return cut
    return failed


def _with(plan: Plan, events: Sequence[Event]) -> Plan:
    return msgspec.structs.replace(plan, events=tuple(events))


def _kind(sentence: str) -> str:
    """The rule and what is said of it, less names, numbers and instants."""
    head = sentence.strip().splitlines()[-1] if "\n" in sentence else sentence
    found = _SAID.match(head)
    return " ".join(found.groups()) if found else _NUMBERS.sub("", head.split(" (")[0])
