"""The judge of an embedded world: the auditor at every entry, and at the end all that can be asked of a ledger."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable
from typing import TYPE_CHECKING

from proof.sim.liveness import left_waiting, still_busy
from tenure.audit import Auditor, Violation, settled_pass_wrote
from tenure.audit.invariants import LIMITS
from tenure.engine import State, Tick, dump, load, step
from tenure.facts import Entry, Reserved, Resolved, decode_entry
from tenure.shell.home import Home, fold_entry
from tenure.units import DAY, MINUTE, SECOND, Instant, Micros, parse_duration, parse_time

if TYPE_CHECKING:
    from proof.sim.embedded import EmbeddedWorld

LATE: Micros = 30 * SECOND
"""A driver that comes later than this to what is due was away, or its clock had jumped."""
QUIET = 60
"""Days that the end may take until everything is over: a backlog on little money takes long."""


_SINCE = re.compile(r", (?:crossed|lowered) at (\S+),")


class Watch:
    """An auditor beside a ledger."""

    def __init__(self, tally: Counter[str]) -> None:
        self.auditor = Auditor()
        self.tally = tally
        self.seq = 0
        self.entries: list[Entry] = []
        self._cut_for: set[str] = set()
        self._found: list[Violation] = []
        self._away: list[tuple[Instant, Instant]] = []
        """When nobody drove though something was due, or by a clock far behind: what ran out then was overdrawn, and
        that is no fault of ours."""
        self._recorded: Instant | None = None
        """Since when something has been recorded that nobody has decided on: it is due at once."""

    def feed(self, body: bytes) -> None:
        self._found += self.auditor.feed_raw(body)
        entry = decode_entry(body)
        self.entries.append(entry)
        self.seq = entry.seq
        if entry.decided:
            self._recorded = None
        elif self._recorded is None:
            self._recorded = entry.at
        self._in_vain(entry)

    def _in_vain(self, entry: Entry) -> None:
        """Count activations for which others were cut, and which came to nothing: no rule forbids it, and yet."""
        for fact in entry.facts:
            if isinstance(fact, Resolved) and fact.trigger == "Activation" and fact.cuts:
                self._cut_for.add(fact.subject.removeprefix("Reservation/"))
            elif isinstance(fact, Reserved) and fact.reservation.state != "Active":
                one = fact.reservation
                if one.key in self._cut_for and one.state in ("Pending", "Blocked"):
                    self.tally["seen/activation that cut others in vain"] += 1
                self._cut_for.discard(one.key)

    def stamped(self, at: Instant, really: Instant) -> None:
        """An entry was written at some instant by the clock of whoever wrote it."""
        if really - at > LATE:
            self._away.append((at, really + MINUTE))

    def woken(self, due: Instant | None, now: Instant) -> None:
        """Somebody drives at ``now`` what was ``due``."""
        due = min((at for at in (due, self._recorded) if at is not None), default=None)
        if due is not None and now - due > LATE:
            self._away.append((due, now + MINUTE))

    def violations(self, home: Home | None, now: Instant | None) -> list[str]:
        found, self._found = self._found, []
        if home is not None and now is not None:
            found += self.auditor.check(max(now, home.state.now), settled=True)
        kept = [one for one in found if not self._excused(one)]
        self.tally["seen/overdrawn while nobody drove"] += len(found) - len(kept)
        return [one.sentence() for one in kept]

    def _excused(self, one: Violation) -> bool:
        return excused(one, self.auditor, self._away)


def excused(one: Violation, auditor: Auditor, away: Iterable[tuple[Instant, Instant]]) -> bool:
    """A limit that was crossed, or whose grace ran out, while nobody drove; ``away`` is when that was."""
    found = _SINCE.search(one.message)
    if one.invariant != LIMITS.name or found is None:
        return False
    since = parse_time(found[1])
    grace = parse_duration(auditor._books.policy.budget_grace) + MINUTE
    late = max(one.at, since + grace)  # of two policies, that which was in force then
    return any(due <= late and since <= until for due, until in away)


def finish(world: EmbeddedWorld) -> list[str]:
    """Let everything end, then ask everything; faults that still wait for a write to strike are called off."""
    world.disk.calm()
    found = _quiet(world) + world.violations()
    driver = world.driver
    if driver is None:
        return [*found, "I12-liveness: nobody drives any more"]
    home, now = driver.home, driver.clock.shows
    found += still_busy(home.state)
    found += left_waiting(home.state, world.watch.auditor.charges(now), now=now)
    found += [str(one) for one in driver.ledger.verify().findings]
    found += [one.sentence() for one in world.watch.auditor.recheck(world.watch.entries, now=now)]
    found += _rebuilt(world, home, now)
    found += _one_more_pass(world, home, now)
    return found


def _quiet(world: EmbeddedWorld) -> list[str]:
    for _ in range(QUIET):
        world.advance(world.at + DAY)
        found = world.violations()
        if found:
            return found
        if world.driver is not None and world.driver.home.next_wake() is None:
            break
    return []


def _one_more_pass(world: EmbeddedWorld, home: Home, now: Instant) -> list[str]:
    facts = [fact for outcome in home.handle(Tick(), now=now) for fact in outcome.facts]
    world._read()
    return [one.sentence() for one in settled_pass_wrote(facts, at=now)]


def _rebuilt(world: EmbeddedWorld, home: Home, now: Instant) -> list[str]:
    """The live engine has been through crashes and images; one that reads every entry must be the same."""
    out = []
    folded = State(home.store.fleet)
    for entry in world.watch.entries:
        fold_entry(folded, entry)
    folded.now = home.state.now  # a look that finds nothing writes no entry, and yet it is later now
    if dump(folded) != dump(home.state):
        out.append("the engine that is rebuilt from all entries is not the live one")
    again = load(dump(home.state))
    if dump(again) != dump(home.state):
        out.append("the engine that is loaded from its image is not the live one")
    outcome = step(again, Tick(), now=max(now, again.now))
    out += [one.sentence() for one in settled_pass_wrote(outcome.facts, at=now)]
    if world.desk is not None:
        world.desk.home.handle(now=now)
        world.desk.home.state.now = home.state.now
        if dump(world.desk.home.state) != dump(home.state):
            out.append("two processes that read the same ledger have different states")
    return out
