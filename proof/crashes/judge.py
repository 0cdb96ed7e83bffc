"""What came of a play: what is wrong with it, and where it ended otherwise than it would have undisturbed.

Wrong is what breaks a rule, whatever the other play did: a violation that the auditor finds in the whole ledger, a
finding of the ledger about itself, a pass over the settled world that writes, a pod that was started twice or that
nobody knows, an entry that whoever watches was told twice or not at all, a letter that is missing.

The end is compared to the letter: every entry byte for byte, the world as users see it at every snapshot and at the
end, what custodians revealed for which draw, which pods are alive, the letters in the order of their first arrival.
Recovery takes no time by the clock, and an entry says nothing of who wrote it: there is nothing that may differ.

Only where somebody comes ``late`` the end may be another. Then every rule holds all the same, but for one: an envelope
whose hours end while nobody drives is overdrawn by what went on running, and the auditor rightly says so (I2). That is
excused as in the simulation: if the limit was crossed, or its grace ran out, in the very time that nobody drove.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import lru_cache
from typing import Any, NamedTuple

import msgspec

from proof.crashes.play import UNCOMPARED, Played
from proof.sim.audit import excused
from tenure.audit import Auditor
from tenure.engine import Tick, dump, step
from tenure.engine.topology import is_ready
from tenure.facts import decode_entry
from tenure.shell.home import rebuild
from tenure.shell.view import snapshot
from tenure.units import Instant


class End(NamedTuple):
    """How a play ended, field by field, to be compared."""

    entries: tuple[bytes, ...]
    shown: bytes
    """The world as users see it, at each snapshot and at the end."""
    journal: bytes
    """What the custodian revealed, for which commit."""
    alive: tuple[str, ...]
    letters: tuple[bytes, ...]
    """Each once, in the order in which they first arrived."""


class Verdict(NamedTuple):
    wrongs: tuple[str, ...]
    differences: tuple[str, ...]

    @property
    def is_good(self) -> bool:
        return not self.wrongs and not self.differences


def end_of(played: Played) -> End:
    life = played.life
    shown = {**played.world.snapshots, "final": snapshot(life.home, now=life.now)}
    return End(
        entries=tuple(link.body for link in life.ledger.links()),
        shown=msgspec.json.encode(shown, order="deterministic"),
        journal=played.journal,
        alive=tuple(sorted(played.world.alive)),
        letters=tuple(dict.fromkeys(played.world.letters)),
    )


def judge(played: Played, end: End, expected: End | None) -> Verdict:
    wrongs = tuple(_wrongs(played, end))
    if expected is None or played.recover in UNCOMPARED:
        return Verdict(wrongs, ())
    return Verdict(wrongs, tuple(_differences(end, expected)))


def _wrongs(played: Played, end: End) -> Iterator[str]:
    life = played.life
    yield from played.wrongs
    yield from _audited(end.entries, life.now, tuple(played.world.away))
    yield from (f"the ledger finds: {finding}" for finding in life.ledger.verify().findings)
    yield from _pods(played)
    yield from _told(played)
    yield from _letters(played)
    before = len(end.entries)
    life.home.drive(now=life.now)
    yield from (f"a settled world wrote: {entry.cause}" for entry in life.ledger.entries(after=before))
    state, _ = rebuild(life.home.store)
    state.now = life.home.state.now  # a pass that wrote nothing moves the clock, and leaves no entry
    if dump(state) != dump(life.home.state):
        yield "what the process has in mind is not what its entries give"
    if again := step(state, Tick(), now=life.now).facts:
        yield f"rebuilt, the world is not settled: {again[:3]}"


@lru_cache(maxsize=16)
def _audited(bodies: tuple[bytes, ...], now: Instant, away: tuple[tuple[Instant, Instant], ...]) -> tuple[str, ...]:
    """Remembered, because most plays end in the very same bytes, and of those there is one opinion."""
    auditor = Auditor()
    found = [violation for body in bodies for violation in auditor.feed_raw(body)]
    found += auditor.check(now, settled=True)
    found += auditor.recheck([decode_entry(body) for body in bodies], now=now)
    return tuple(one.sentence() for one in found if not excused(one, auditor, away))


def _pods(played: Played) -> Iterator[str]:
    """What is alive is what the engine keeps, and what it keeps was started unless it has to wait.

    A machine that does not answer may be given up while it still runs what it had (SPEC 9): that is nobody's pod.
    """
    state, world = played.life.home.state, played.world
    rows = state.topology.rows
    for key in sorted(world.alive.keys() - state.pods.keys()):
        row = rows.get(world.alive[key].node)
        if row is not None and is_ready(row.node):
            yield f"pod {key} is alive, and nobody knows it"
    for key, row in sorted(state.pods.items()):
        if row.phase == "Placed" and not row.stop and key not in world.started and not state.must_wait(row):
            if row.pod.node not in world.down:
                yield f"pod {key} is placed, and nobody started it"


def _told(played: Played) -> Iterator[str]:
    life = played.life
    if life.told != list(range(life.first + 1, life.ledger.head.seq + 1)):
        yield f"whoever watches was told of entries {life.told}, after {life.first} of {life.ledger.head.seq}"


def _letters(played: Played) -> Iterator[str]:
    """Letters come twice only if the process died on the way between receiver and outbox."""
    ends = [visits[-1].kind for visits in played.visits[:-1] if visits]
    repeated = len(played.world.letters) - len(set(played.world.letters))
    if repeated and not {"send", "outbox"} & set(ends):
        yield f"{repeated} letters came twice, and neither the receiver nor the outbox was disturbed"


def _differences(end: End, expected: End) -> Iterator[str]:
    if end.entries != expected.entries:
        yield _entries(end.entries, expected.entries)
    for name in ("shown", "journal", "alive", "letters"):
        if getattr(end, name) != getattr(expected, name):
            yield f"{name}: {_apart(getattr(end, name), getattr(expected, name))}"


def _entries(found: tuple[bytes, ...], expected: tuple[bytes, ...]) -> str:
    pairs = zip(found, expected, strict=False)
    number = next((at for at, (one, other) in enumerate(pairs, start=1) if one != other), None)
    if number is None:
        return f"entries: {len(found)} instead of {len(expected)}"
    return (
        f"entries: number {number} of {len(found)} ({len(expected)}): {_apart(found[number - 1], expected[number - 1])}"
    )


def _apart(found: Any, expected: Any) -> str:
    """Where two texts part, with a little of what comes before."""
    one, other = (value.decode() if isinstance(value, bytes) else repr(value) for value in (found, expected))
    at = next((at for at, (a, b) in enumerate(zip(one, other, strict=False)) if a != b), min(len(one), len(other)))
    begin = max(0, at - 60)
    return f"...{one[begin : at + 90]!r} instead of ...{other[begin : at + 90]!r}"
