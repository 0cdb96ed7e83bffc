"""A fleet that decides: the engine's state, the store that holds the truth, and the executor that makes it happen.

    events -> step (pure) -> facts -> one commit -> fold -> executor -> reports -> events
                                                          -> custodians -> reveals -> events

A decision counts when its commit returns. If the commit fails, the state is thrown away and built again from what is
stored: whatever was really committed is there, whatever was not never happened. Other processes may append to the same
store; every decision is made inside a transaction, on a state that has first taken in what they wrote. An entry tells
whether it was decided on or only recorded, so everybody who folds it knows what is left to decide.
"""

from __future__ import annotations

import gc
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager

from tenure.draw import Intent
from tenure.engine import (
    Apply,
    Event,
    Outcome,
    Report,
    Reveal,
    Sighting,
    State,
    Tick,
    dump,
    load,
    next_wake,
    render,
    settle,
    step,
)
from tenure.engine.state import PodRow, RunRow
from tenure.facts import Cleared, Ending, Entry, Fact, Placed, Seen
from tenure.shell.custodian import Custodian
from tenure.shell.executor import Attentive, Executor, PodReport, PodWork
from tenure.shell.store import Store, Writing
from tenure.units import Instant, Micros

Asked = Event | Callable[[State], Event]
"""An event, or one that is made of the state that it is decided on, when nobody else can write any more."""
IMAGE_EVERY = 256
"""Entries between two images of the state, at least; an image costs what is open, so a large fleet takes fewer."""


def event_of(asked: Asked, state: State) -> Event:
    return asked(state) if callable(asked) else asked


def rebuild(store: Store) -> tuple[State, int]:
    """The state that the stored entries give, and the number of the last one."""
    return _rebuilt(store)[:2]


def _rebuilt(store: Store) -> tuple[State, int, int]:
    """The same, and the number of the entry that the newest image is of: images are due by what has to be folded
    after them, whoever wrote it, or a fleet of short-lived processes would never have one."""
    with nothing_collected():
        image = store.snapshot()
        state, imaged = (State(store.fleet), 0) if image is None else (load(image.body), image.seq)
        seq = imaged
        for entry in store.entries(after=seq):
            fold_entry(state, entry)
            seq = entry.seq
        return state, seq, imaged


def fold_entry(state: State, entry: Entry) -> None:
    """Let an entry be so: its facts, and (if it was decided) that nothing is left to be decided."""
    for fact in entry.facts:
        state.fold(fact, entry.at)
    state.now = max(state.now, entry.at)
    if entry.decided:
        settle(state)


class Home:
    """One process's hold on a fleet."""

    def __init__(
        self,
        store: Store,
        executor: Executor | None = None,
        *,
        custodians: Iterable[Custodian] = (),
        watch: Callable[[Entry], None] | None = None,
    ) -> None:
        self.store = store
        self.executor = executor
        self.custodians = tuple(custodians)
        self.watch = watch
        self.binding = True
        """False: what happens is recorded and accounted for, but nothing new is decided."""
        self.state, self.seq, self._imaged = _rebuilt(store)
        self._stale = False
        self._heard = self.seq
        """The last entry that ``watch`` was told."""
        self._news: list[Entry] = []
        """Entries of the present transaction: told to ``watch`` when they count."""
        self._given: tuple[Intent, dict[str, str]] | None = None
        """What custodians have revealed for a draw: while it waits for the others, they need not be asked again."""
        self._told: Attentive | None = None
        """The executor that was told everything, and from then on only needs to hear what changed."""
        self._touched: set[str] = set()
        """Pods of which something was recorded since it was last called, and those that were held back then."""

    # -- deciding --

    def handle(self, *events: Asked, now: Instant, decide: bool = True) -> list[Outcome]:
        """Decide on events and commit the decisions together: all of them count when this returns, or none does."""
        self._news = []
        if self._stale:
            self.state, self.seq, self._imaged = _rebuilt(self.store)
            self._stale, self._told = False, None
            if self.watch is not None:  # what others wrote, and what of ours counted though the answer was lost
                self._news += self.store.entries(after=self._heard, until=self.seq)
        try:
            with self.store.write() as tx:
                self._catch_up(tx)
                outcomes = [self._step(tx, event, now=now, decide=decide) for event in events]
                if self.store.keeps_images and self.seq - self._imaged >= IMAGE_EVERY + _size(self.state) // 8:
                    tx.save_snapshot(dump(self.state))
                    self._imaged = self.seq
        except BaseException:
            self._stale = True
            raise
        self._heard = self.seq
        if self.watch is not None:
            for entry in self._news:
                self.watch(entry)
        return outcomes

    def _catch_up(self, tx: Writing) -> None:
        """Take in what others wrote.

        A look that finds nothing writes nothing, and yet it is later now for this state. An entry of somebody whose
        clock is behind must not be folded then: timers that it sets would be past already, and never fire.
        """
        ahead = False
        for entry in tx.since(self.seq):
            ahead = ahead or entry.at < self.state.now
            if not ahead:
                fold_entry(self.state, entry)
            self._took(entry)
        if ahead:
            self.state, self.seq, self._imaged = _rebuilt(self.store)
            self._told = None

    def _took(self, entry: Entry) -> None:
        self.seq = entry.seq
        if self._told is not None:
            self._touched.update(pods_of(entry.facts))
        self._news.append(entry)

    def _step(self, tx: Writing, asked: Asked, *, now: Instant, decide: bool) -> Outcome:
        event = event_of(asked, self.state)
        if isinstance(event, Apply):
            past = {key: self.store.attempts(*key.split("/")) for key in _new_runs(self.state, event)}
            event = Apply(event.objects, past, event.named)
        self.state.head = tx.head.hash
        outcome = step(self.state, event, now=now, decide=decide)
        if outcome.facts or outcome.looked:
            self._took(tx.append(at=self.state.now, cause=outcome.cause, facts=outcome.facts, decided=decide))
        return outcome

    # -- driving --

    def drive(self, *, now: Instant) -> None:
        """Let time pass up to ``now``: fire timers, look at pods, decide, until nothing changes.

        The fleet's time never runs back: where a clock was set back it stands until the clock has caught up, and what
        is due by it, or was decided by somebody whose clock is ahead, is done now and not an hour later.
        """
        self._catch_up_alone()
        now = max(now, self.state.now)
        while self._reported(now) or (self.binding and (self._ticked(now) or self._revealed(now))):
            pass

    def _catch_up_alone(self) -> None:
        """Take in what others wrote, without deciding on it yet; after a commit that failed, all that is stored.

        Before anything else: the state that a failed commit leaves behind wants pods that were never decided on.
        """
        if self._stale or self.seq != self.store.head.seq:
            self.handle(now=self.state.now)

    def _ticked(self, now: Instant) -> bool:
        """Decide on what is on the agenda, and let timers fire."""
        if not self._has_work(now):
            return False
        self.handle(Tick(), now=now)
        return True

    def _reported(self, now: Instant) -> bool:
        """Take in what became of pods, before timers: what ended just now is free for whoever starts just now. False if
        there is nothing new: an executor may say again, and again, that a pod is gone which had ended before."""
        reports = self._look(now)
        if not reports:
            return False
        seen = tuple(Sighting(one.key, one.phase, one.code, one.message, one.at) for one in reports)
        outcomes = self.handle(Report(seen), now=now, decide=self.binding)
        return any(outcome.facts or outcome.looked for outcome in outcomes)

    def _revealed(self, now: Instant) -> bool:
        """Ask the custodians about the draws that wait, now that these are committed; False if that changes nothing.

        After a crash they are asked again, and give the same answers.
        """
        for subject, froze in sorted(self.state.draws.items()):
            reveals = self._reveals(froze.intent)
            if reveals is not None and self.handle(Reveal(subject, reveals), now=now)[0].facts:
                return True
        return False

    def _reveals(self, intent: Intent) -> dict[str, str] | None:
        """What the custodians reveal for a draw; None while one of them cannot.

        Nobody reveals before all have said that they can. A value that was revealed serves no other intent: if one of
        them is lost, and another chain takes its place, the next intent asks the same values of the rest.
        """
        if self._given is None or self._given[0] != intent:
            self._given = (intent, {})
        given, present = self._given[1], {one.beacon: one for one in self.custodians}
        asked = [present.get(beacon.id) for beacon in intent.beacons if beacon.id not in given]
        able = [one for one in asked if one is not None and one.can_answer(intent)]
        if len(able) < len(asked):
            return None
        for one in able:
            value = one.answer(intent)
            if value is None:
                return None
            given[one.beacon] = value
        return dict(given)

    def next_wake(self) -> Instant | None:
        """When to drive again though nothing happens; None if only an event can change anything."""
        wakes = [next_wake(self.state), self.executor.next_wake() if self.executor else None]
        return min((at for at in wakes if at is not None), default=None)

    def _has_work(self, now: Instant) -> bool:
        agenda = self.state.agenda
        due = agenda.next()
        return agenda.pending or bool(agenda.funds) or (due is not None and due <= now)

    def _look(self, now: Instant) -> list[PodReport]:
        """Call the executor: with what changed if that is all it needs to hear, else with everything."""
        if self.executor is None:
            return []
        if self._told is not self.executor:
            return self._look_at_all(self.executor, now)
        told, self._told = self._told, None  # until the call has come back
        pods, touched = self.state.pods, self._touched
        changed = [self._work(pods[key]) for key in self._ready(touched & pods.keys())]
        reports = told.revise(changed, dropped=sorted(touched - pods.keys()), now=now)
        self._told = told
        return reports

    def _look_at_all(self, executor: Executor, now: Instant) -> list[PodReport]:
        pods = self.state.pods
        reports = executor.reconcile([self._work(pods[key]) for key in self._ready(pods)], now=now)
        self._told = executor if isinstance(executor, Attentive) else None
        return reports

    def _ready(self, keys: Iterable[str]) -> list[str]:
        """Pods that the executor may hear of: a new one waits until work that gave way to it has left its GPUs."""
        self._touched = {key for key in keys if self.state.must_wait(self.state.pods[key])}
        return sorted(set(keys) - self._touched)

    def _work(self, pod: PodRow) -> PodWork:
        row = self.state.runs[pod.pod.run_key]
        manifest = {}
        if pod.phase == "Placed" and not pod.stop:
            manifest = render.to_manifest(render.pod(row, pod, self.state.policy.gpu_resource))
        return PodWork(
            pod=pod.pod, known=pod.phase, since=pod.since, stop=pod.stop, duration=_length(row, pod), manifest=manifest
        )


def _length(row: RunRow, pod: PodRow) -> Micros | None:
    """How long a pod's work takes, as declared: one that joined a running run ends when the others do."""
    whole, started = row.demand.duration, row.life.started
    if whole is None or started is None or pod.since <= started:
        return whole
    return max(0, started + whole - pod.since)


def pods_of(facts: Iterable[Fact]) -> Iterator[str]:
    """The keys of the pods that facts are about: those of which an executor has to hear again."""
    for fact in facts:
        if isinstance(fact, Placed):
            yield fact.pod.key
        elif isinstance(fact, Seen):
            yield f"{fact.namespace}/{fact.pod}"
        elif isinstance(fact, Ending | Cleared):
            yield from (f"{fact.namespace}/{name}" for name in fact.pods)


def _size(state: State) -> int:
    return len(state.runs) + len(state.leases) + len(state.pods) + len(state.topology.rows)


def _new_runs(state: State, event: Apply) -> list[str]:
    keys = [
        f"{item.metadata.namespace or 'default'}/{item.metadata.name}" for item in event.objects if item.kind == "Run"
    ]
    return [key for key in keys if key not in state.runs]


@contextmanager
def nothing_collected() -> Iterator[None]:
    """No garbage collection in this block; afterwards as before. It looks at all that is alive again and again while
    that grows: a third of the time that it takes to read a long queue."""
    was_on = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_on:
            gc.enable()
