"""A fleet to measure on: built once, asked again and again, and each time put back as it was.

Answers are checked: a fleet that answers a request otherwise than expected is not the fleet that was to be measured.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path
from statistics import median

from bench import fleet
from bench.load import Ask
from bench.measure import Stopwatch, Took
from tenure.api.policy import Policy
from tenure.engine import Apply, Event, Outcome, SetPolicy, State, dump, step
from tenure.facts import Decided
from tenure.ledger import Ledger
from tenure.shell import home as shell
from tenure.shell.home import Home
from tenure.shell.ledger_store import LedgerStore
from tenure.shell.store import MemoryStore
from tenure.units import SECOND, Instant

Decide = Callable[[list[Event], Instant], list[Outcome]]


class Bed:
    """One fleet and how to ask it."""

    def __init__(self, home: Home) -> None:
        self.home = home
        self.now = home.state.now
        self.image_share = 0.0
        """Seconds that images of the state add to each entry, if they were measured."""

    @classmethod
    def build(cls, gpus: int, *, file: Path | None = None) -> Bed:
        """A new fleet, nine tenths full, on a ledger or (without a file) in memory."""
        store = MemoryStore() if file is None else LedgerStore(Ledger.create(file, fleet=f"bench-{gpus}"))
        home, plan = Home(store), fleet.plan_fleet(gpus)
        fleet.build(home.handle, plan, progress=telling(f"{plan.gpus:,} GPUs"))
        return cls(home)

    @property
    def state(self) -> State:
        return self.home.state

    def close(self) -> None:
        if isinstance(self.home.store, LedgerStore):
            self.home.store.ledger.close()

    # -- ways to decide --

    def committed(self, events: list[Event], now: Instant) -> list[Outcome]:
        """Decide and commit, all events in one commit: what a driver does under load."""
        return self.home.handle(*events, now=now)

    def decided(self, events: list[Event], now: Instant) -> list[Outcome]:
        """Only decide: the engine alone. The store falls behind, and is of no use afterwards."""
        return [step(self.state, event, now=now) for event in events]

    def set_policy(self, policy: Policy) -> None:
        self.home.handle(SetPolicy(policy), now=self.now)

    # -- one repetition --

    def admit(self, asks: list[Ask], decide: Decide) -> Took:
        """Ask for some runs: what one of them took. Then undo it, untimed."""
        events: list[Event] = [Apply((ask.run,)) for ask in asks]
        self.now += SECOND
        with Stopwatch() as watch:
            outcomes = decide(events, self.now)
        check(asks, outcomes)
        decide(fleet.remove([fleet.key_of(ask.run) for ask in asks], fleet.placed(outcomes)), self.now)
        return watch.took.over(len(asks), plus=self.image_share if decide == self.committed else 0.0)

    def measure_images(self) -> float:
        """Save images of the state, and spread what one takes over the entries between two of them."""
        took = []
        for _ in range(3):
            with Stopwatch() as watch, self.home.store.write() as tx:
                tx.save_snapshot(dump(self.state))
            took.append(watch.took.wall)
        self.image_share = median(took) / (shell.IMAGE_EVERY + shell._size(self.state) // 8)
        return self.image_share


def check(asks: list[Ask], outcomes: list[Outcome]) -> None:
    """Each request was answered once, as expected."""
    for ask, outcome in zip(asks, outcomes, strict=True):
        found = [fact.verdict for fact in outcome.facts if isinstance(fact, Decided)]
        if [verdict.outcome for verdict in found] != [ask.answer]:
            raise AssertionError(f"{ask.run.metadata.name}: expected {ask.answer}, got {found}")


def telling(subject: str) -> fleet.Progress:
    """Tell people at a terminal how far it has come."""

    def tell(what: str, done: int, of: int) -> None:
        if sys.stderr.isatty():
            end = "\n" if done == of else ""
            print(f"\r  {subject}: {what} {done:,}/{of:,} ", end=end, file=sys.stderr, flush=True)

    return tell
