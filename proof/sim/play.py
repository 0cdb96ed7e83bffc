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
from proof.sim.world import World, maker
from tenure.facts import Entry

AT_THE_END = -1
_SAID = re.compile(r"(I\d+-[a-z-]+) at [^,]+, [^:]+: ([a-zA-Z ]+)")
_NUMBERS = re.compile(r"[0-9a-f]*\d[0-9a-f]*|lab/\S+")


class Played(Struct, kw_only=True):
    """What came of a plan: nothing wrong, or what, and at which of its events."""

    plan: Plan
    tally: Counter[str]
    step: int = AT_THE_END
    """Its place in the plan, from 0; people are told of the first as step 1."""
    found: tuple[str, ...] = ()

    @property
    def failed(self) -> bool:
        return bool(self.found)

    @property
    def signature(self) -> str:
        """What kind of failure: the name of the invariant, or the last line of a traceback without its numbers."""
        return _kind(self.found[0]) if self.found else ""


def play(plan: Plan, *, watch: Callable[[Event | Entry], None] | None = None) -> Played:
    """One world, from its beginning to its end or to the first thing that does not hold; ``watch`` is told of all that
    happens on the way."""
    tally: Counter[str] = Counter()
    step = AT_THE_END
    try:
        world = maker(plan.home)(plan)
        tally, world.trace = world.tally, watch
        with closing(world):
            for step, event in enumerate(plan.events):
                found = _step(world, event, watch)
                if found:
                    return Played(plan=plan, tally=tally, step=step, found=tuple(found))
            step = AT_THE_END
            world.advance(plan.length)
            found = world.violations() or world.finish()
            return Played(plan=plan, tally=tally, found=tuple(found))
    except Exception as error:
        said = "".join(traceback.format_exception(error)[-6:]).strip()
        return Played(plan=plan, tally=tally, step=step, found=(f"{type(error).__name__}: {error}\n{said}",))


def _step(world: World, event: Event, watch: Callable[[Event | Entry], None] | None) -> list[str]:
    world.advance(event.at)
    found = world.violations()
    if found:
        return found
    if watch is not None:
        watch(event)
    world.do(event)
    return world.violations()


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
    ``seconds`` the time. ``keep`` is given the shortest so far, for whoever is interrupted.
    """
    best = failed
    until = None if seconds is None else time.monotonic() + seconds
    if failed.step != AT_THE_END:
        cut = play(_with(failed.plan, failed.plan.events[: failed.step + 1]))
        best = cut if cut.signature == failed.signature else failed
        keep(best)
    size = max(1, len(best.plan.events) // 2)
    while tries > 0:
        at = 0
        while at < len(best.plan.events) and tries > 0:
            if until is not None and time.monotonic() > until:
                return best
            events = best.plan.events
            tries -= 1
            less = play(_with(best.plan, (*events[:at], *events[at + size :])))
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


def _with(plan: Plan, events: Sequence[Event]) -> Plan:
    return msgspec.structs.replace(plan, events=tuple(events))


def _kind(sentence: str) -> str:
    """The rule and what is said of it, less names, numbers and instants."""
    head = sentence.strip().splitlines()[-1] if "\n" in sentence else sentence
    found = _SAID.match(head)
    return " ".join(found.groups()) if found else _NUMBERS.sub("", head.split(" (")[0])
