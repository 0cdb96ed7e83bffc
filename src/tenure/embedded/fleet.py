"""An embedded fleet as its users see it: one SQLite file, opened by any number of processes.

Reading opens the file for reading only and builds the state at its head. Writing decides inside a transaction on the
newest state. When a driver (``tenure up``) is alive, decisions are taken at once, by whoever writes; when none is,
objects are only recorded, because nobody would run what was started.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from time import time_ns
from typing import TYPE_CHECKING

from tenure.api.core import Node
from tenure.api.errors import FieldError
from tenure.api.policy import Policy
from tenure.api.run import Run
from tenure.embedded.driver import is_driven
from tenure.engine import Apply, Delete, Event, Outcome, Plan, Publish, Resolve, SetPolicy, State, load, make_plan, step
from tenure.engine.demand import compile_demand
from tenure.facts import Closed, Verdict
from tenure.ledger import Code, Ledger, LedgerRefused
from tenure.ledger.refusals import refused
from tenure.shell.home import Asked, Home, event_of, fold_entry, rebuild
from tenure.shell.ledger_store import LedgerStore
from tenure.shell.store import Writing
from tenure.units import Instant

if TYPE_CHECKING:
    from tenure.api.validate import ApiObject


def clock() -> Instant:
    """Now, in microseconds: read by shells, never by the engine."""
    return time_ns() // 1000


def is_unfinished(path: Path, *, anchor: Path | None = None) -> bool:
    """Whether a ledger is there and has no entry: whoever was creating the fleet came no further."""
    try:
        with Ledger.open(path, readonly=True, anchor=anchor) as ledger:
            return ledger.head.seq == 0
    except LedgerRefused:
        return False  # it is not there, or whoever opens it is told what is wrong with it


class _FirstEntries(LedgerStore):
    """A ledger that takes its first entries and no others: of two processes that create a fleet one is refused."""

    @contextmanager
    def write(self) -> Iterator[Writing]:
        with super().write() as tx:
            if tx.head.seq:
                raise refused(Code.Exists, path=self.ledger.path)
            yield tx


class Fleet:
    """One process's view of a fleet file."""

    def __init__(self, ledger: Ledger) -> None:
        self.ledger = ledger
        self.path = ledger.path
        self._home: Home | None = None

    @classmethod
    def create(cls, path: Path, *, nodes: Iterable[Node], policy: Policy, anchor: Path | None = None) -> Fleet:
        """A new fleet: its policy and its nodes are the first entries, all of them in one commit.

        The ledger comes before them. If something failed in between, the next one who creates the fleet goes on there.
        """
        import secrets  # only here, and costs every other start some milliseconds

        if is_unfinished(path, anchor=anchor):
            ledger = Ledger.open(path, anchor=anchor)
        else:
            ledger = Ledger.create(path, fleet=secrets.token_hex(8), anchor=anchor)
        try:
            begun = Home(_FirstEntries(ledger))
            begun.handle(SetPolicy(policy), Apply(tuple(nodes)), now=clock(), decide=False)
        except BaseException:
            ledger.close()
            raise
        return cls(ledger)

    @classmethod
    def open(cls, path: Path, *, readonly: bool = True, anchor: Path | None = None) -> Fleet:
        return cls(Ledger.open(path, readonly=readonly, anchor=anchor))

    def close(self) -> None:
        self.ledger.close()

    def __enter__(self) -> Fleet:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    @property
    def home(self) -> Home:
        if self._home is None:
            self._home = Home(LedgerStore(self.ledger))
        return self._home

    def now(self) -> Instant:
        """The present instant of this fleet: by the clock, but the ledger of a scenario stands where that ended."""
        stands = self.ledger.stands_at
        return clock() if stands is None else stands

    @property
    def driven(self) -> bool:
        return is_driven(self.path)

    def state(self) -> State:
        """The state at the head of the ledger, read anew."""
        return rebuild(LedgerStore(self.ledger))[0]

    def state_at(self, at: Instant) -> State:
        """The state as it was at an instant of the past: what was recorded up to then, folded again, less what had
        ended by then and was known to only later."""
        store = LedgerStore(self.ledger)
        image = store.snapshot()
        state, seq = State(store.fleet), 0
        if image is not None and (imaged := load(image.body)).now <= at:
            state, seq = imaged, image.seq
        for entry in store.entries(after=seq):
            if entry.at > at:
                break
            fold_entry(state, entry)
        held = {row.lease.key for row in self.ledger.leases(at=at)}
        for lease in [one for key, one in state.leases.items() if key not in held]:
            rows = self.ledger.leases(namespace=lease.namespace, run=lease.run, node=lease.node)
            row = next(row for row in rows if row.lease.key == lease.key)
            if row.end is not None and row.closure is not None:
                state.fold(Closed(namespace=lease.namespace, leases=(lease.name,), end=row.end, reason=row.closure), at)
        return state

    # -- writing --

    def submit(self, objects: Iterable[ApiObject], *, decide: bool) -> Outcome:
        """Create or update objects, all or none; answers the facts, or why there are none."""
        return self.tell(Apply(tuple(objects)), decide=decide)  # type: ignore[arg-type]  # the kinds that people write

    def tell(self, asked: Asked, *, decide: bool) -> Outcome:
        """One event, made of the newest state if need be."""
        return self.home.handle(asked, now=self.now(), decide=decide)[0]

    def cancel(self, keys: Sequence[tuple[str, str]]) -> list[FieldError]:
        """Delete runs, by namespace and name, in one commit."""
        events = [Delete(kind="Run", namespace=namespace, name=name) for namespace, name in keys]
        outcomes = self.home.handle(*events, now=self.now(), decide=self.driven)
        return [error for outcome in outcomes for error in outcome.refused]

    def resolve(self, key: str) -> Outcome:
        """An operator wants room made now for a waiting run, ``namespace/name``."""
        return self.home.handle(Resolve(key), now=self.now())[0]

    def apply(self, objects: Iterable[ApiObject]) -> list[FieldError]:
        """Create or update objects, all or none; answers what is wrong with them."""
        return self._handle(Apply(tuple(objects)))  # type: ignore[arg-type]  # the kinds that people write

    def delete(self, kind: str, name: str, *, namespace: str = "") -> list[FieldError]:
        return self._handle(Delete(kind=kind, name=name, namespace=namespace))  # type: ignore[arg-type]  # one of the kinds

    def set_policy(self, policy: Policy) -> list[FieldError]:
        return self._handle(SetPolicy(policy))

    def publish(self, beacon: str, root: str) -> None:
        """Record a custodian's first value: draws use its chain from now on."""
        self._handle(Publish(beacon, root))

    def _handle(self, event: Event) -> list[FieldError]:
        outcomes = self.home.handle(event, now=self.now(), decide=self.driven)
        return [error for outcome in outcomes for error in outcome.refused]

    # -- asking --

    def plan(self, run: Run, *, now: Instant | None = None) -> Verdict:
        """What would be decided for a run now; nothing is recorded."""
        plan = make_plan(self.state().world, compile_demand(run), now=self.now() if now is None else now)
        return plan.verdict if isinstance(plan, Plan) else plan

    def rehearse(self, asked: Asked, *, now: Instant) -> tuple[State, Outcome]:
        """What an event would bring about if the fleet were driven: decided on a state that is thrown away."""
        state = self.state()
        event = event_of(asked, state)
        if isinstance(event, Apply):
            keys = [(item.metadata.namespace, item.metadata.name) for item in event.objects if item.kind == "Run"]
            past = {f"{space}/{name}": self.ledger.attempts(space, name) for space, name in keys}
            event = Apply(event.objects, past, event.named)
        return state, step(state, event, now=now)
