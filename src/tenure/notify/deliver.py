"""The round: for each receiver, take what is due out of the outbox, send it, and save what came of it.

A ``Courier`` serves one receiver. Its ``turn(now)`` does a bounded amount of work, saves once, and answers when to
come again: now, at an instant, or (None) when there is something new. First come objects that lag and are due, then
dead letters that a person revived, then the stream of new notes; what each answer means is decided by
``progress.py``, and nothing here knows the time but by argument.

What was sent counts from when it is saved. If the process dies in between, at most one turn's events
(``SENDS_PER_TURN``, or one batch of a file) go out twice, with the same ids. If the ledger refuses to be written, the
courier sends nothing more until it has saved what it sent.

``Deliverer.run`` gives every courier a thread and a ledger handle of its own, so that no receiver waits for another.
"""

from __future__ import annotations

import os
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from threading import Event, Thread
from time import monotonic, time_ns
from typing import Final

from tenure.ledger import Code, Ledger, LedgerRefused
from tenure.notify import progress as rules
from tenure.notify.config import NotifyConfig, Receiver
from tenure.notify.event import Letter, Place, body
from tenure.notify.outbox import Outbox
from tenure.notify.progress import Answer, Away, Dead, Declined, Delivered, Lag
from tenure.notify.sinks import Sink, sink_for
from tenure.units import SECOND, Instant, Micros

SENDS_PER_TURN: Final = 64
LAGS_PER_TURN: Final = SENDS_PER_TURN // 2
"""Objects that lag may not keep new notes waiting."""
PAGE: Final = 256
"""Notes read in a turn, wanted or not."""
LAZY: Final[Micros] = 10 * SECOND
"""A place that moved over unwanted notes only is saved this late: losing it costs nothing but reading them again."""
POLL: Final = 0.2
"""Seconds between two looks at the file, which has no bell."""
RETRY: Final = 1.0
"""Seconds until a refused save is tried again."""
GRACE: Final = 3.0
"""Seconds for delivering what is due after being told to stop."""

Report = Callable[[str], None]


class Courier:
    """Serves one receiver."""

    def __init__(self, receiver: Receiver, outbox: Outbox, sink: Sink, *, report: Report | None = None) -> None:
        self.receiver = receiver
        self.outbox = outbox
        self.sink = sink
        self.report: Report = report or (lambda _: None)
        self.halted: Callable[[], bool] = lambda: False
        """Asked before each send: whether to leave the rest for another time."""
        self.progress = outbox.register(receiver.name, history=receiver.history)
        self._saved = self.progress
        self._saved_at: Instant = 0
        self._dead: list[Dead] = []
        self._settled: list[Place] = []
        self._is_away = self.progress.fails > 0
        self._declines = bool(self.progress.lags)
        self._sends = 0
        self._more = False
        self._stumbled = ""

    def turn(self, now: Instant) -> Instant | None:
        """Do what is due, a bounded amount of it; answers when to come again."""
        self._save(now)  # what a refusal of the ledger left undone
        self._sends, self._more = 0, False
        for step in (self._retry_lags, self._retry_dead, self._go_on):
            if not self._is_over(now):
                step(now)
        self.sink.rest()
        self._save(now)
        self._stumbled = ""
        return self._wake(now)

    def flush(self) -> None:
        """Save everything now, also a place that moved over unwanted notes only."""
        if self.progress != self._saved or self._dead or self._settled:
            self._save_now(self._saved_at)

    def stumbled(self, error: Exception) -> None:
        """Something went wrong that nobody has thought of; told once. Only its kind: its text may hold a secret."""
        kind = type(error).__name__
        if kind != self._stumbled:
            self.report(f"receiver {self.receiver.name}: {kind} in the notifier; its events are kept, trying again")
        self._stumbled = kind

    # -- what is due --

    def _retry_lags(self, now: Instant) -> None:
        for lag in rules.due(self.progress, now=now)[:LAGS_PER_TURN]:
            if self._is_over(now):
                return
            self._retry_lag(lag, now)

    def _retry_lag(self, lag: Lag, now: Instant) -> None:
        owed = self.outbox.letters_about(lag.object, since=lag.place, until=self.progress.place, limit=PAGE)
        letter = next((each for each in owed if self.receiver.wants(each)), None)
        if letter is None:  # the filters have changed since
            rest = _rest(owed, owed[-1]) if owed else None
            self.progress = rules.skip(self.progress, lag, rest=rest, now=now)
            return
        answer = self._send([letter])
        rest, pace = _rest(owed, letter), self.receiver.pace
        self.progress, dead = rules.settle_lag(self.progress, lag, letter, answer, rest=rest, now=now, pace=pace)
        self._heard(answer, dead)

    def _retry_dead(self, now: Instant) -> None:
        letters = self.outbox.revived(self.receiver.name, limit=LAGS_PER_TURN)
        self._more = len(letters) == LAGS_PER_TURN
        for letter in letters:
            if self._is_over(now):
                return
            answer, dead = self._send([letter]), None
            match answer:
                case Delivered():
                    self._settled.append(letter.place)
                    self.progress = rules.thanked(self.progress, 1)
                case Away():
                    self.progress = rules.away(self.progress, answer, now=now, pace=self.receiver.pace)
                case Declined(why=why):
                    dead = Dead(seq=letter.seq, idx=letter.idx, at=now, refusals=1, why=why)
            self._heard(answer, dead)

    def _go_on(self, now: Instant) -> None:
        page = deque(self.outbox.letters(after=self.progress.place, limit=PAGE))
        full = len(page) == PAGE
        while page and not self.progress.is_full and not self._is_over(now):
            batch, to = self._gather(page)
            if not batch:
                self.progress = rules.move(self.progress, to)
                continue
            answer = self._send(batch)
            pace = self.receiver.pace
            self.progress, dead = rules.settle(self.progress, batch, answer, to=to, now=now, pace=pace)
            self._heard(answer, dead)
        self._more |= (full or bool(page)) and not self.progress.is_full

    def _gather(self, page: deque[Letter]) -> tuple[list[Letter], Place]:
        """The next letters to send together, and the last place that they and those skipped on the way cover."""
        batch: list[Letter] = []
        to = page[0].place
        while page and len(batch) < self.sink.width:
            letter = page.popleft()
            to = letter.place
            if self.receiver.wants(letter) and not self.progress.lags_on(letter.object):
                batch.append(letter)
        return batch, to

    def _send(self, batch: list[Letter]) -> Answer:
        self._sends += 1
        return self.sink.send([body(letter, fleet=self.outbox.fleet) for letter in batch])

    def _is_over(self, now: Instant) -> bool:
        return self.progress.not_before > now or self._sends >= SENDS_PER_TURN or self.halted()

    def _wake(self, now: Instant) -> Instant | None:
        if self.progress.not_before > now:
            return self.progress.not_before
        wakes = [lag.not_before for lag in self.progress.lags]
        if self._more or self._sends >= SENDS_PER_TURN:
            wakes.append(now)
        if self.progress != self._saved:
            wakes.append(self._saved_at + LAZY)
        return max(now, min(wakes)) if wakes else None

    # -- what came of it --

    def _save(self, now: Instant) -> None:
        """Save what was sent, at once; a place that only moved over unwanted notes, now and then."""
        if self.progress == self._saved and not self._dead and not self._settled:
            return
        only_moved = rules.move(self._saved, self.progress.place) == self.progress
        if self._dead or self._settled or not only_moved or now - self._saved_at >= LAZY:
            self._save_now(now)

    def _save_now(self, now: Instant) -> None:
        self.outbox.save(self.receiver.name, self.progress, dead=self._dead, settled=self._settled)
        self._saved, self._saved_at = self.progress, now
        self._dead, self._settled = [], []

    def _heard(self, answer: Answer, dead: Dead | None) -> None:
        """Tell the operator what changed, once."""
        name = self.receiver.name
        was_away, self._is_away = self._is_away, isinstance(answer, Away)
        if isinstance(answer, Away) and not was_away:
            self.report(f"receiver {name}: {answer.why}; its events are kept, trying again")
        elif was_away and not self._is_away:
            self.report(f"receiver {name} answers again")
        if dead is not None:
            self._dead.append(dead)
            often = "once" if dead.refusals == 1 else f"{dead.refusals} times"
            self.report(f"receiver {name} {dead.why}, {often}: the event of entry {dead.seq} is a dead letter")
        elif isinstance(answer, Declined) and not self._declines:
            self._declines = True
            self.report(f"receiver {name} {answer.why}: the event is kept, trying again")
        if self._declines and not self.progress.lags:
            self._declines = False
            self.report(f"receiver {name} owes no answer any more")


class Deliverer:
    """Serves all receivers of a ledger. Whoever is new among them is registered before this is made."""

    def __init__(
        self,
        path: Path,
        config: NotifyConfig,
        *,
        anchor: Path | None = None,
        environ: Mapping[str, str] = os.environ,
        report: Report | None = None,
    ) -> None:
        self._path = path
        self._anchor = anchor
        self.couriers: list[Courier] = []
        try:
            for receiver in config.receivers:
                sink = sink_for(receiver, environ=environ)
                self.couriers.append(Courier(receiver, self._open(), sink, report=report))
        except BaseException:
            self.close()
            raise

    def turn(self, now: Instant) -> Instant | None:
        """One turn of every courier, one after the other; answers when to come again."""
        wakes = [courier.turn(now) for courier in self.couriers]
        return min((wake for wake in wakes if wake is not None), default=None)

    def run(self, stop: Event) -> None:
        """Deliver until told to stop, then what is due, within ``GRACE``; what is left then is sent by the next run."""
        threads = [
            Thread(target=self._serve, args=(courier, stop), name=f"notify-{courier.receiver.name}", daemon=True)
            for courier in self.couriers
        ]
        for thread in threads:
            thread.start()
        stop.wait()
        deadline = monotonic() + GRACE + RETRY
        for thread in threads:
            thread.join(max(0.0, deadline - monotonic()))
        if not any(thread.is_alive() for thread in threads):
            self.close()

    def close(self) -> None:
        for courier in self.couriers:
            courier.outbox.close()

    def _open(self) -> Outbox:
        return Outbox(Ledger.open(self._path, anchor=self._anchor))

    def _serve(self, courier: Courier, stop: Event) -> None:
        courier.halted = _Patience(stop).is_over
        while True:
            stopping = stop.is_set()
            pause = self._turn(courier)
            if stopping and (pause > 0 or courier.halted()):
                break
            stop.wait(pause)
        with suppress(LedgerRefused):  # what is not saved is read, or at worst sent, again
            courier.flush()

    def _turn(self, courier: Courier) -> float:
        """A turn of one courier; answers how long to sleep."""
        now = time_ns() // 1000
        try:
            wake = courier.turn(now)
        except LedgerRefused as refused:
            self._renew(courier, refused)
            return RETRY
        except Exception as error:  # or this receiver would never hear of anything again
            courier.stumbled(error)
            return RETRY
        return POLL if wake is None else min(POLL, (wake - now) / SECOND)

    def _renew(self, courier: Courier, refused: LedgerRefused) -> None:
        """Open the ledger again, unless it was only busy; what the courier has sent and not saved, it remembers."""
        if refused.code is Code.Busy:
            return
        try:
            fresh = self._open()
        except LedgerRefused:
            return  # the daemon says what is wrong with it
        courier.outbox.close()
        courier.outbox = fresh


class _Patience:
    """Tells when the time for last things is over."""

    def __init__(self, stop: Event) -> None:
        self._stop = stop
        self._since: float | None = None

    def is_over(self) -> bool:
        if not self._stop.is_set():
            return False
        if self._since is None:
            self._since = monotonic()
        return monotonic() - self._since > GRACE


def _rest(owed: Sequence[Letter], letter: Letter) -> Place | None:
    """Where an object goes on after one of the letters that were read; None if that was its last."""
    return None if letter is owed[-1] and len(owed) < PAGE else (letter.seq, letter.idx + 1)
