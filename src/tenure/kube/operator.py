"""The operator of a cluster: the embedded daemon's loop, with an API server in the place of a file.

    informers ── what changed ──> intake ──> Home.handle ── one swap of the LedgerHead ──> fold
        ^                                                                                    |
        └──────── pods, leases, reservations, statuses, events <── desk <── executor, materialiser

Nothing is decided before every copy is complete and the ledger is folded. Whatever has arrived since the last decision
is taken in together. Several operators may run: who is outrun at the swap throws its decision away, reads what the
winner wrote, and goes on; leader election only saves the trouble. When the ledger cannot be written, nothing is
admitted, running work goes on, and the loop says so once and tries again.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import Future
from itertools import chain
from threading import Event

from msgspec import Struct

from tenure.api.errors import FieldError
from tenure.engine import Event as EngineEvent
from tenure.engine import Publish
from tenure.facts import Entry
from tenure.kube.absent import Mark
from tenure.kube.client import Client
from tenure.kube.desk import RUN, Desk
from tenure.kube.errors import ApiError
from tenure.kube.informer import Informers, key_of
from tenure.kube.intake import KINDS, Intake
from tenure.kube.likely import Likely
from tenure.kube.loop import IO
from tenure.kube.materialise import HOLD_SECONDS, Materialiser
from tenure.kube.pods import START_TIMEOUT, KubeExecutor
from tenure.kube.refusals import StoreRefused
from tenure.kube.resources import LEASES
from tenure.kube.store import KubeStore
from tenure.kube.tidings import Tidings
from tenure.kube.translate import Object
from tenure.kube.watching import CLOSED, Bell, informers, names
from tenure.kube.wishes import take_away
from tenure.ledger import LeaseRow, LedgerRefused
from tenure.observe.meter import Meter
from tenure.shell.custodian import Custodian
from tenure.shell.home import Home
from tenure.shell.store import Store
from tenure.shell.timed_store import TimedStore
from tenure.units import SECOND, Instant, Micros

SYNC_SECONDS = 120.0
LINGER_SECONDS = 0.005
"""How long to wait for more after the first change: a burst is one decision."""
REFRESH_SECONDS = 60.0
"""How often numbers that run with the clock are written anew."""
RETRY_SECONDS = 1.0
STANDBY_SECONDS = 0.5
SILENCE_SECONDS = 90.0
"""A watch that was told nothing for so long, not even that there is nothing, is dead; and so is a loop."""
_WRITTEN = ("Lease", "Reservation", "Run", "Budget")


class Options(Struct, frozen=True, kw_only=True):
    """How an operator runs."""

    bind: bool = True
    """False: nothing new is decided; what happens is accounted for."""
    binding: bool = False
    """Whether pods get their node by the Binding subresource, instead of being created with it."""
    start_timeout: Micros = START_TIMEOUT
    keep: Micros | None = None
    """How long closed leases and reservations that are over stay in the API server; None for ever."""
    hold: float = HOLD_SECONDS
    simulated: bool = False
    """Take what only the simulator may have: a draw's secret, runs without a template."""
    watch_seconds: int = 60
    look: float = 1.0
    """Seconds after which it looks around, though nothing has changed that it knows of."""
    reporter: str = "tenure"


class Chore:
    """Something to be done now and then, on the loop's thread of decisions: it may use the ledger."""

    def __init__(
        self, name: str, every: float, do: Callable[[], None], *, ticks: Callable[[], float] = time.monotonic
    ) -> None:
        self.name, self.every, self.do = name, every, do
        self.due = ticks() + every


def clock() -> Instant:
    """Now, in microseconds."""
    return time.time_ns() // 1000


def draws_wait(beacons: Iterable[str]) -> str:
    """What an operator says that keeps none of the chains which its ledger's draws are made with."""
    return f"draws wait for this ledger's custodians ({', '.join(sorted(beacons))}): name theirs with --custodian"


class Operator:
    """One process's hold on a cluster."""

    def __init__(
        self,
        io: IO,
        client: Client,
        store: KubeStore,
        *,
        options: Options | None = None,
        custodians: Sequence[Custodian] = (),
        roots: Iterable[tuple[str, str]] = (),
        self_made: bool = False,
        now: Callable[[], Instant] = clock,
        ticks: Callable[[], float] = time.monotonic,
        report: Callable[[str], None] = lambda text: None,
        watch: Callable[[Entry], None] = lambda entry: None,
        meter: Meter | None = None,
    ) -> None:
        """``roots``: what custodians publish; ``self_made``: only to a ledger that has none. ``ticks`` are
        seconds that only ever grow. ``report`` is told troubles in a sentence, ``watch`` every entry, and ``meter``
        whatever becomes a metric."""
        options = options or Options()
        self.io, self.client, self.store, self.options = io, client, store, options
        self.now, self.ticks, self.report, self.watch, self.meter = now, ticks, report, watch, meter
        self.bell = Bell()
        self.caches = informers(client, self.bell, watch_seconds=options.watch_seconds, clock=ticks)
        self.informers = Informers(io, self.caches.values())
        self.desk = Desk(io, trouble=lambda key, error: report(f"{key}: {error}"))
        self.desk.changed = self.bell.ring
        self.leading: Callable[[], bool] = lambda: True
        """Asked before each turn: who is not the leader watches, and decides nothing."""
        self.chores: list[Chore] = []
        self.stopping = Event()
        self.begun = False
        """Everything was read and folded once."""
        self.started = False
        """The loop went round once, whatever came of it."""
        self.ready = False
        """Everything is synced, folded and compared, and the last decision could be committed."""
        self.turned = ticks()
        """When the loop last went round."""
        self._custodians, self._roots, self._self_made = tuple(custodians), tuple(roots), self_made
        self._likely: Likely | None = None
        self._trouble = ""
        self._lost = False
        """The last decision was not committed: the state is built anew before the next."""
        self._stood_by = False
        """Somebody else led until now."""
        self._refreshed = ticks()
        self._entries: list[Entry] = []
        """What was committed and not followed yet."""
        self._closed: Future[set[str]] | None = None
        """Which leases are closed, while it is being read."""
        self._followed: int | None = None
        """The last entry that was followed; None before everything was compared once."""
        self._at_home = False
        """Whether a turn was made to its end: what is done once was done then. The first may break off anywhere."""

    # -- beginning --

    def start(self) -> None:
        """Sync everything and fold the ledger; nothing is decided yet."""
        self.informers.start()
        options = self.options
        self.home = Home(self._timed(), custodians=self._custodians, watch=self._entries.append)  # while they read
        missing = self.informers.wait(SYNC_SECONDS)
        if missing:
            kinds = ", ".join(one.resource.plural for one in missing)
            raise ApiError(0, "NotSynced", f"{kinds} could not be read in {SYNC_SECONDS:.0f} s")
        self.store.refresh()
        self.home.handle(now=self.home.state.now)
        self.home.binding = options.bind
        self._begin_anew()
        self.tidings = Tidings(
            self.client,
            self.desk,
            reservations=self.caches["Reservation"].get,
            reporter=options.reporter,
            clock=self.ticks,
        )
        self.begun = True
        if self.meter is not None:
            self.meter.metrics.called = self.bell.ring
            self.meter.begin(self.home)

    def _begin_anew(self) -> None:
        """Remember nothing of what was looked at, asked for or written: all of it is compared in the next turn."""
        options = self.options
        self.intake = Intake(
            {kind: self.caches[kind] for kind in KINDS}, simulated=options.simulated, created=self.created
        )
        self.executor = KubeExecutor(
            self.client, self.desk, self.caches["Pod"], fleet=self.store.fleet, state=lambda: self.home.state,
            seq=lambda: self.home.seq, bind=options.binding, start_timeout=options.start_timeout,
            changed=self.bell.ring,
        )  # fmt: skip
        self.home.executor = self.executor
        if self._likely is not None:
            self._likely.close()
        self._likely = Likely(self.store.ledger, clock=self.ticks, trouble=self._complain)
        self.materialiser = Materialiser(
            self.client,
            self.desk,
            self.caches,
            fleet=self.store.fleet,
            refused=self.intake.refused,
            likely=self._likely,
            hold=options.hold,
            clock=self.ticks,
        )
        self._followed, self._at_home, self._closed = None, False, None

    def _timed(self) -> Store:
        return self.store if self.meter is None else TimedStore(self.store, self.meter.took)

    def created(self, item: Object) -> str | None:
        """When an object was made, as far as queues are concerned."""
        found: str | None = item["metadata"].get("creationTimestamp")
        return found

    # -- the loop --

    def run(self) -> None:
        """Drive until told to stop. Work that runs then goes on; the next operator finds it again."""
        self.start()
        try:
            while not self.stopping.is_set():
                pause = self.once()
                if self.bell.await_ring(pause):
                    self.stopping.wait(LINGER_SECONDS)
        finally:
            self.finish()

    def stop(self) -> None:
        self.stopping.set()
        self.bell.ring()

    def finish(self) -> None:
        """Write down what was decided, as far as a few seconds allow, and let go. Who leads no longer writes nothing:
        what it knows is old, and whoever leads has written what is so."""
        self.ready = False
        if self._followed is not None and self.leading():
            self.materialiser.flush(self.home.state, now=self.now(), all_of_it=True)
            self.desk.wait(5.0)
        if self._likely is not None:
            self._likely.close()
        self.desk.close()
        self.informers.stop()

    def once(self) -> float:
        """One turn, whatever goes wrong in it; returns how long nothing has to be done."""
        try:
            if not self.leading():
                self._stand_by()
                return STANDBY_SECONDS
            self._take_over()
            self.turn()
            self._do_chores()
            self.ready, self._trouble = self._closed is None, ""
            if self.meter is not None:
                self.meter.look(self.home)
            return self._pause()
        except (StoreRefused, LedgerRefused) as refused:
            outrun = getattr(refused, "code", "") == "Outrun"
            self._lost = True
            if self.meter is not None:
                self.meter.refused(outrun=outrun)
            self._complain(f"{refused.sentence} {refused.next_step}", quiet=outrun)
            return 0.0 if outrun else RETRY_SECONDS
        except ApiError as error:
            self._complain(str(error))
            return RETRY_SECONDS
        finally:
            self.turned, self.started = self.ticks(), True

    def _stand_by(self) -> None:
        if not self._stood_by:
            self._let_go()
        self.bell.take()  # whoever leads again compares everything
        self.ready, self._stood_by = True, True
        if self.meter is not None:
            self.meter.rest()

    def _let_go(self) -> None:
        """Somebody else leads from now on. What was still to be written is theirs to write, and may be wrong by now: a
        pod that is tried again for ever may come to be on GPUs that others were given. Whoever leads again after that
        begins as after a restart, instead of following what others have followed already, perhaps for weeks."""
        self.desk.drop_all()
        if self._closed is not None:
            self._closed.cancel()
        self._begin_anew()

    def _take_over(self) -> None:
        """The first turn after somebody else led: what they wrote is read first, and is theirs to count."""
        if self._stood_by:
            self.store.refresh()
            self.home.handle(now=self.home.state.now)
            if self.meter is not None:
                self.meter.begin(self.home)
        self._stood_by = False

    def _do_chores(self) -> None:
        for chore in self.chores:
            if self.ticks() >= chore.due:
                chore.due = self.ticks() + chore.every
                try:
                    chore.do()
                except (ApiError, StoreRefused) as error:
                    self.report(f"{chore.name}: {error}")

    def _complain(self, text: str, *, quiet: bool = False) -> None:
        self.ready = quiet and self.ready
        if self.meter is not None:
            self.meter.metrics.ready = self.ready
        if not quiet and text != self._trouble:
            self.report(f"{text} Running work goes on, nothing is admitted; trying again.")
            self._trouble = text

    def turn(self) -> None:
        """Take in what has changed, decide, and have it carried out."""
        now = self.now()
        self._take_news()
        self._catch_up()
        if self._followed is None:
            self._compare_all(now)
        if not self._at_home:
            self._publish()
        self._compare_closed(now)
        while True:
            self._decide(now)
            followed = self._follow()
            if self.intake.left or not (followed or self.intake.waiting):
                break  # what is left waits for what others have asked for meanwhile
        self._show(now)
        if not self._at_home:
            self._list_closed()
            self._at_home = True

    def _publish(self) -> None:
        """Custodians that were named replace a chain of their name. One that an operator made for itself never does:
        others made theirs as well, and what was frozen is drawn with the chain that it names, or waits."""
        published = self.home.state.roots
        if self._self_made and published and any(published.get(beacon) != root for beacon, root in self._roots):
            self.home.custodians, self._roots = (), ()
            self.report(draws_wait(published))
        for beacon, root in self._roots:
            self._handle(Publish(beacon, root))

    def _take_news(self) -> None:
        """Hand out what the informers saw."""
        changed = {resource.kind: keys for resource, keys in self.bell.take().items()}
        for kind in KINDS:
            for key in changed.get(kind, ()):
                self.intake.mark(kind, key)
        self.executor.saw(changed.get("Pod", ()))
        for written in _WRITTEN:
            for key in changed.get(written, ()):
                self.materialiser.saw(written, key, self.home.state)
        if "LedgerHead" in changed and self._is_behind():
            self.store.refresh()

    def _catch_up(self) -> None:
        """Fold what others have committed, before anything is compared with it: what is looked at with an old state and
        found in order would not be looked at again. After a decision that was lost, what is stored is what counts."""
        if self._lost or self.store.spec.seq != self.home.seq:
            self.home.handle(now=self.home.state.now)
            self._lost = False
        for entry in self._entries:
            self.intake.learned(entry, self.store.version)

    def _is_behind(self) -> bool:
        head = self.caches["LedgerHead"].get("head")
        return head is not None and int(head["spec"]["seq"]) > self.store.head.seq

    def _compare_all(self, now: Instant) -> None:
        """Compare everything that is there with everything that should be: once, at the beginning."""
        self.intake.mark_all(self.home.state)
        self.materialiser.resync(self.home.state, self.store, since=self._kept_since(now))
        self._followed = self.home.seq
        self._entries.clear()

    def _list_closed(self) -> None:
        """Begin to read which leases are closed. They may be very many, and no decision rests on them or waits for
        the API server to tell them."""
        self._closed = self.io.start(names(self.client, LEASES, fields=CLOSED))
        self._closed.add_done_callback(lambda done: self.bell.ring())

    def _compare_closed(self, now: Instant) -> None:
        """When it has been read which leases are closed: have the ends written that are not."""
        if self._closed is None or not self._closed.done():
            return
        done, self._closed = self._closed, None
        try:
            closed = done.result()
        except ApiError:
            self._list_closed()
            raise
        missing = self.store.ledger.closed_leases(since=self._kept_since(now), but=closed)
        self.materialiser.compare((row.lease, row.end, row.closure) for row in chain(missing, self._shown_open()))

    def _shown_open(self) -> Iterator[LeaseRow]:
        """Leases that have ended, and whose objects say that they are open: however long ago, and though all that is
        known of them may have left the API server."""
        shown, held = self.caches["Lease"], self.home.state.leases
        left = [item for item in shown.values() if key_of(item) not in held]
        for namespace, run in sorted({(one["metadata"]["namespace"], one["spec"]["runRef"]["name"]) for one in left}):
            rows = self.store.ledger.leases(namespace=namespace, run=run)
            yield from (row for row in rows if not row.open and shown.get(row.lease.key) is not None)

    def _kept_since(self, now: Instant) -> Instant | None:
        """What was over before then may have left the API server for good, by our policy or an earlier one."""
        archived = self.store.spec.archived
        ends = [] if archived is None else [archived.at]
        return max([*ends, *([] if self.options.keep is None else [now - self.options.keep])], default=None)

    def _decide(self, now: Instant) -> None:
        batch = self.intake.collect(self.home.state)
        for (kind, key), look in self.intake.absent.search(self.client, self._is_gone):
            self.desk.put(f"{kind}/{key}?", look, rank=RUN)
        try:
            if batch:
                self.intake.apply(batch, self._handle)
                for wish in batch.last:
                    self._granted(wish.run)
            self.home.drive(now=now)
        except BaseException:
            self.intake.put_back(batch)
            raise

    def _is_gone(self, mark: Mark) -> None:
        """Something was looked for and is not there. On the loop's thread."""
        self.intake.mark(*mark)
        self.bell.ring()

    def _granted(self, key: str) -> None:
        wish = self.intake.wishes.granted(key)
        self.desk.put(f"Wish/{key}", lambda: take_away(self.client, key, wish), rank=RUN)

    def _handle(self, event: EngineEvent) -> list[FieldError]:
        outcomes = self.home.handle(event, now=self.now(), decide=self.home.binding)
        return [error for outcome in outcomes for error in outcome.refused]

    def _follow(self) -> bool:
        """Let everybody know what was committed, by us or by others; True if it was anything."""
        told, self._entries[:] = list(self._entries), []
        assert self._followed is not None
        entries: Iterable[Entry] = told
        if self.home.seq - self._followed != len(told):  # the state was built anew from what others wrote
            entries = self.store.entries(after=self._followed, until=self.home.seq)
        before = self._followed
        for entry in entries:
            self.materialiser.follow(entry)
            self.tidings.follow(entry, self.home.state)
            self.intake.follow(entry)
            self.watch(entry)
            if self.meter is not None:
                self.meter.saw(entry)
            self._followed = entry.seq
        return self._followed != before

    def _show(self, now: Instant) -> None:
        if self.intake.news:
            news, self.intake.news = self.intake.news, set()
            self.materialiser.refusals(news)
            refused = self.intake.refused
            self.tidings.refused({mark: refused[mark] for mark in news if mark in refused}, now=now)
        if self.ticks() - self._refreshed > REFRESH_SECONDS:
            self._refreshed = self.ticks()
            self.materialiser.refresh(self.home.state, now=now)
            self.desk.again()
        self.materialiser.flush(self.home.state, now=now)

    def _pause(self) -> float:
        """Seconds until something is due though nothing changes."""
        waits = [0.0 if self.intake.waiting else self.options.look]
        if (wake := self.home.next_wake()) is not None and self.home.binding:
            waits.append((wake - self.now()) / SECOND)
        if (held := self.materialiser.next_flush()) is not None:
            waits.append(held)
        return max(0.0, min(waits))

    # -- probes --

    @property
    def alive(self) -> bool:
        """Whether watches make progress and the loop goes round."""
        silent = self.informers.silent_seconds(self.ticks)
        return silent < SILENCE_SECONDS and self.ticks() - self.turned < SILENCE_SECONDS
