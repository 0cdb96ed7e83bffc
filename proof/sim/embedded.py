"""The embedded home in virtual time: the real ledger file, the real shell, a driver, and people who write beside it.

The driver does what ``tenure up`` does: it drives its home at every instant that the home asks for, and when the ledger
refuses it lets go, and opens it again a second later. People write through a process of their own, which decides while
a driver lives and only records while none does; who is refused, or gets no answer, asks again a minute later.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from contextlib import ExitStack
from heapq import heappop, heappush
from itertools import count

import msgspec

from proof.sim import audit, seen
from proof.sim.clock import Clock
from proof.sim.disk import Disk, Killed
from proof.sim.events import FOR_GOOD, Event, Plan
from proof.sim.reality import Pods, Reality
from tenure.api.budget import Budget
from tenure.api.core import Node
from tenure.api.policy import Policy
from tenure.api.run import Funding, Run, RunSpec
from tenure.api.validate import validate
from tenure.draw import Intent
from tenure.embedded.driver import DriverBusy, DriverLock
from tenure.embedded.fleet import Fleet
from tenure.engine import Apply, Publish, SetPolicy
from tenure.facts import Entry
from tenure.ledger import Code, Head, Ledger, LedgerRefused
from tenure.shell.custodian import SimulatedCustodian
from tenure.shell.home import Home
from tenure.shell.ledger_store import LedgerStore
from tenure.testing import START, namespace
from tenure.units import HOUR, MINUTE, SECOND, Instant, Micros

BUSY = 200
"""Drives at one instant (or polls) without progress after which a home is called restless."""


class Driver:
    """A process that drives: its handle, its home, its lock."""

    def __init__(self, world: EmbeddedWorld, clock: Clock, *, locked: bool = True) -> None:
        self.clock = clock
        self.stack = ExitStack()
        try:
            if locked:
                self.stack.enter_context(DriverLock(world.disk.path))
            self.ledger = world.disk.open()
            self.stack.callback(world.disk.shut, self.ledger)
            self.home = Home(LedgerStore(self.ledger), custodians=(world.custodian,))
            self.pods = Pods(world.reality, self.home.state.policy)
            self.home.executor = self.pods
        except BaseException:
            self.stack.close()
            raise

    def close(self) -> None:
        self.stack.close()


class Custodian(SimulatedCustodian):
    """One who may be away: then there is no answer, and the draw waits."""

    def __init__(self, tally: Counter[str]) -> None:
        super().__init__("sim")
        self.tally, self.away = tally, 0

    def answer(self, intent: Intent) -> str | None:
        self.tally["fault/custodian-away"] += self.away > 0
        return None if self.away else super().answer(intent)


class Desk(Fleet):
    """The process that people use, with a clock of the simulation."""

    def __init__(self, ledger: Ledger, clock: Clock) -> None:
        super().__init__(ledger)
        self._clock = clock

    def now(self) -> Instant:
        return self._clock.now()


class EmbeddedWorld:
    """An embedded fleet under attack."""

    def __init__(self, plan: Plan) -> None:
        self.plan = plan
        self.tally: Counter[str] = Counter()
        self.trace: Callable[[Entry], None] | None = None
        self.at: Micros = 0
        self.clock = Clock(self._true)
        self.disk = Disk(self.tally)
        self.custodian = Custodian(self.tally)
        self.watch = audit.Watch(self.tally)
        self.reality = Reality([msgspec.convert(one, Node) for one in plan.nodes], self.tally)
        self.driver: Driver | None = None
        self.second: Driver | None = None
        self.desk: Desk | None = None
        self._timers: list[tuple[Micros, int, Callable[[], None]]] = []
        self._numbers = count(1)
        self._troubles: list[str] = []
        self._usurped: Callable[[], None] = lambda: None
        """Called when a second driver has written something, or was refused."""
        self._backs_up = any(event.kind == "backup-restored" for event in plan.events)
        self._begin()

    def _true(self) -> Instant:
        return START + self.at

    def _begin(self) -> None:
        policy = msgspec.convert(self.plan.policy, Policy)
        objects = (
            namespace("lab"),
            *(machine.shown() for machine in self.reality.machines.values()),
            *(msgspec.convert(one, Budget) for one in self.plan.budgets),
        )
        ledger = self.disk.open()
        home = Home(LedgerStore(ledger))
        events = (SetPolicy(policy), Publish(self.custodian.beacon, self.custodian.root), Apply(objects))
        outcomes = home.handle(*events, now=START, decide=False)
        assert not any(outcome.refused for outcome in outcomes), outcomes
        self.disk.shut(ledger)
        self._wake_driver()
        self._settle()

    def close(self) -> None:
        self._nobody()
        self.disk.close()

    # -- time --

    def advance(self, until: Micros) -> None:
        idle = 0
        while (at := self._next()) is not None and at <= until:
            idle = idle + 1 if at <= self.at else 0
            if idle > BUSY:
                self._troubles.append(f"I11-settled: the home asks to be woken at {at} for ever, and does nothing")
                break
            self.at = max(self.at, at)
            self._fire()
            self._settle()
        self.at = max(self.at, until)
        self._settle()

    def _next(self) -> Micros | None:
        """The next instant, of the world, at which anything is due."""
        found = [self._timers[0][0]] if self._timers else []
        for driver in (self.driver, self.second):
            wake = None if driver is None else driver.home.next_wake()
            at = None if driver is None or wake is None else driver.clock.when(wake)
            if at is not None:
                found.append(max(at - START, self.at))
        return min(found, default=None)

    def later(self, delay: Micros, act: Callable[[], None]) -> None:
        """Something follows from an event, after a while; never, if that is for good."""
        if delay != FOR_GOOD:
            heappush(self._timers, (self.at + delay, next(self._numbers), act))

    def _fire(self) -> None:
        while self._timers and self._timers[0][0] <= self.at:
            heappop(self._timers)[2]()

    def _settle(self) -> None:
        """Whoever drives, drives; then the auditor reads what was written."""
        self._drive(self.second)
        self._drive(self.driver)
        self._read()
        if self._backs_up and self.at // (8 * HOUR) != self._backed:
            self._backed = self.at // (8 * HOUR)
            self.disk.keep_backup()

    _backed = -1

    def _drive(self, driver: Driver | None) -> None:
        if driver is None or driver not in (self.driver, self.second):
            return
        now = driver.clock.now()
        self.watch.woken(driver.home.next_wake(), now)
        head = self._head() if driver is self.second else None
        try:
            before = driver.home.seq
            driver.home.drive(now=now)
            if driver.home.seq != before:
                self._wait = SECOND // 2
            if driver is self.second and self._head() != head:
                self._usurped()
        except LedgerRefused as refused:
            self._refused(refused)
            if driver is self.second:
                self._usurped()
            self._let_go(driver)
        except Killed:
            self._killed(0)

    def _head(self) -> Head | None:
        """What is stored last, as the second driver reads it."""
        try:
            return None if self.second is None else self.second.ledger.head
        except LedgerRefused:
            return None

    def _read(self) -> None:
        """Feed what is stored to the auditor: everything that a handle shows is acknowledged by now, or will be."""
        if self.driver is None:
            return
        try:
            for link in self.driver.ledger.links(after=self.watch.seq):
                self.watch.feed(link.body)
                self.watch.stamped(link.entry.at, self._true())
                seen.count(link.entry, self.tally)
                if self.trace is not None:
                    self.trace(link.entry)
                self.disk.known = (link.entry.seq, link.hash)
        except LedgerRefused as refused:
            self._refused(refused)
            self._let_go(self.driver)

    # -- processes --

    def _wake_driver(self) -> None:
        if self.driver is not None:
            return
        try:
            self.driver = Driver(self, self.clock)
            self._read()  # what was recorded while nobody drove
        except LedgerRefused as refused:
            self._refused(refused)
            self._wake_later()
        except Killed:
            self._killed(0)

    def _wake_later(self) -> None:
        """A real driver tries every second; here ever less often, since nothing else happens meanwhile."""
        self._wait = min(2 * self._wait, MINUTE)
        self.later(self._wait, self._wake_driver)

    _wait: Micros = SECOND // 2

    def _let_go(self, driver: Driver) -> None:
        """The ledger refused: only what is stored can be trusted; open it again."""
        driver.close()
        if driver is self.driver:
            self.driver = None
            self._wake_later()
        else:
            self.second = None

    def _refused(self, refused: LedgerRefused) -> None:
        self.tally[f"seen/refused: {refused.code}"] += 1
        if refused.code is Code.DiskFull:
            self.tally["fault/disk-full"] += 1

    def _nobody(self) -> None:
        """Nobody has the ledger open any more."""
        for driver in (self.driver, self.second):
            if driver is not None:
                driver.close()
        self.driver = self.second = self.desk = None
        self.disk.close_all()

    def _killed(self, away: Micros) -> None:
        """Somebody died inside a write, and the machine with it."""
        self._nobody()
        self.disk.bury()
        self.later(max(away, self._away), self._wake_driver)

    _away: Micros = 0

    # -- people --

    def _ask(self, act: Callable[[Desk], object]) -> None:
        """Somebody writes, and asks again if that is refused or nobody answers."""
        try:
            if self.desk is None:
                self.desk = Desk(self.disk.open(), self.clock)
            refused = act(self.desk)
            if refused:
                self.tally["seen/refused by intake"] += 1
        except LedgerRefused as refusal:
            self._refused(refusal)
            if self.desk is not None:
                self.disk.shut(self.desk.ledger)
                self.desk = None
            self.later(MINUTE, lambda: self._ask(act))
        except Killed:
            self._killed(0)
            self.later(MINUTE, lambda: self._ask(act))

    # -- events --

    def do(self, event: Event) -> None:
        self.tally[f"event/{event.kind}"] += 1
        doing = getattr(self, "_do_" + event.kind.replace("-", "_"), None)
        if doing is not None:
            doing(event)
        self._settle()

    def _do_submit(self, event: Event) -> None:
        run = msgspec.convert(event.object, Run)
        key = f"lab/{run.metadata.name}"
        if event.lasts:
            self.reality.lengths[key] = event.lasts
        elif run.spec.runtime.expected_duration is None:
            self.reality.lengths[key] = (1 + event.number) * HOUR
        self._ask(lambda desk: desk.apply([run]))

    def _do_cancel(self, event: Event) -> None:
        self._ask(lambda desk: desk.cancel([("lab", event.target)]))

    def _do_resize(self, event: Event) -> None:
        def wanted(spec: RunSpec) -> RunSpec:
            if spec.malleable is None:
                return spec
            shape = msgspec.structs.replace(spec.malleable, desired_total_gpus=event.number)
            return msgspec.structs.replace(spec, malleable=shape)

        self._edit(event.target, wanted)

    def _do_sponsors(self, event: Event) -> None:
        funding = msgspec.convert(event.object, Funding)
        self._edit(event.target, lambda spec: msgspec.structs.replace(spec, funding=funding))

    def _edit(self, name: str, wanted: Callable[[RunSpec], RunSpec]) -> None:
        def act(desk: Desk) -> object:
            row = desk.home.state.runs.get(f"lab/{name}")
            if row is None:
                return []
            run = msgspec.structs.replace(row.run, spec=wanted(row.run.spec))
            if run == row.run or validate(run, simulated=True):  # by now another run has that name: nobody takes it
                return []
            return desk.apply([run])

        self._ask(act)

    def _do_budget(self, event: Event) -> None:
        made = msgspec.convert(event.object, Budget)
        self._ask(lambda desk: desk.apply([made]))

    def _do_drop_budget(self, event: Event) -> None:
        self._ask(lambda desk: desk.delete("Budget", event.target))

    def _do_policy(self, event: Event) -> None:
        policy = msgspec.convert(event.object, Policy)
        self._ask(lambda desk: desk.set_policy(policy))

    # -- pods --

    def _live(self, run: str) -> list[str]:
        if self.driver is None:
            return []
        pods = self.driver.home.state.pods
        return sorted(key for key, row in pods.items() if row.pod.run_key == f"lab/{run}" and not row.stop)

    def _end(self, key: str, how: str) -> None:
        assert self.driver is not None
        run = self.driver.home.state.pods[key].pod.run_key
        self.reality.ends.setdefault(key, (run, how, self.clock.shows))  # type: ignore[arg-type]  # an Outcome

    def _do_pod_exits(self, event: Event) -> None:
        live = self._live(event.target)
        if live:
            self._end(live[event.number % len(live)], "succeed")

    def _do_pod_fails(self, event: Event) -> None:
        live = self._live(event.target)
        if live:
            self._end(live[event.number % len(live)], "fail")

    def _do_pod_breaks(self, event: Event) -> None:
        self.reality.broken[f"lab/{event.target}"] += 1
        self.later(event.lasts, lambda: self.reality.broken.subtract([f"lab/{event.target}"]))

    # -- machines --

    def _trouble(self, event: Event, kind: str, number: int = 0, *, told: Callable[[], None]) -> None:
        """A machine has a trouble until it is over, and everybody is told of both: ``told``, if that is any news."""
        machine = self.reality.machines[event.target]
        mine, before = next(self._numbers), machine.shown()
        machine.troubles[mine] = (kind, number)
        self._tell(event.target, lambda node: told() if node != before else None)

        def over() -> None:
            del machine.troubles[mine]
            if kind == "down" and not machine.is_down:
                for driver in (self.driver, self.second):
                    if driver is not None:
                        driver.pods.restore_node(event.target)
                self._came_back(event.target)
            self._tell(event.target)

        self.later(event.lasts, over)

    def _came_back(self, name: str) -> None:
        """A machine that is back says that its pods are gone, also where nobody could record that it was away."""
        if self.driver is None:
            self.later(MINUTE, lambda: self._came_back(name))
        else:
            pods = self.driver.home.state.pods.values()
            self.reality.gone.update(row.pod.key for row in pods if row.pod.node == name)

    def _tell(self, name: str, told: Callable[[Node], None] = lambda _: None) -> None:
        """The node's object is written as it is when it is written; ``told`` what was."""

        def act(desk: Desk) -> object:
            node = self.reality.machines[name].shown()
            refused = desk.apply([node])
            if not refused:
                told(node)
            return refused

        self._ask(act)

    def _once(self, kind: str) -> Callable[[], None]:
        """Counts a fault when it is called first: when somebody has seen something of it."""
        left = [1]

        def told() -> None:
            self.tally[f"fault/{kind}"] += left[0]
            left[0] = 0

        return told

    def _pods_on(self, name: str) -> list[str]:
        if self.driver is None:
            return []
        return sorted(key for key, row in self.driver.home.state.pods.items() if row.pod.node == name and not row.stop)

    def _do_node_fail(self, event: Event) -> None:
        told = self._once(event.kind)
        if self._pods_on(event.target) and not self.reality.machines[event.target].is_down:
            told()
        for driver in (self.driver, self.second):
            if driver is not None:
                driver.pods.lose_node(event.target)
        self._trouble(event, "down", told=told)
        noticed = min(event.number % 600 * SECOND, event.lasts // 2 if event.lasts > 0 else HOUR)
        rest = event.lasts if event.lasts == FOR_GOOD else event.lasts - noticed
        fenced = msgspec.structs.replace(event, lasts=rest)
        self.later(noticed, lambda: self._trouble(fenced, "fence", told=told))

    def _do_node_reboot(self, event: Event) -> None:
        told = self._once(event.kind)
        for key in self._pods_on(event.target):
            self._end(key, "fail")
            told()
        self._trouble(event, "unready", told=told)

    def _do_node_unready(self, event: Event) -> None:
        self._trouble(event, "unready", told=self._once(event.kind))

    def _do_node_cordon(self, event: Event) -> None:
        self._trouble(event, "cordon", told=self._once(event.kind))

    def _do_node_lie(self, event: Event) -> None:
        self._trouble(event, "lie", event.number, told=self._once(event.kind))

    def _do_pods_lie(self, event: Event) -> None:
        if event.number % 2:
            self.reality.gone.update(self._pods_on(event.target))
        else:
            self.reality.silent[event.target] += 1
            self.later(event.lasts, lambda: self.reality.silent.subtract([event.target]))

    # -- clocks --

    def _do_clock_skew(self, event: Event) -> None:
        told = self._once(event.kind)
        self.clock.step(event.number, told)

        def over() -> None:
            self.clock.step(-event.number)
            self.clock.over(told)

        self.later(event.lasts, over)

    def _do_clock_step(self, event: Event) -> None:
        self.clock.step(event.number, self._once(event.kind))

    def _do_clock_freeze(self, event: Event) -> None:
        told = self._once(event.kind)
        self.clock.freeze(told)

        def over() -> None:
            self.clock.thaw()
            self.clock.over(told)

        self.later(event.lasts, over)

    # -- processes --

    def _do_crash(self, event: Event) -> None:
        self.tally["fault/crash"] += self.driver is not None or self.second is not None
        self.disk.kill()
        self._nobody()
        self.later(event.lasts, self._wake_driver)

    def _do_two_leaders(self, event: Event) -> None:
        if self.driver is None or self.second is not None:
            return
        try:
            with DriverLock(self.disk.path):
                self._troubles.append("a second driver could take the lock of a fleet that is driven")
        except DriverBusy:
            self.tally["seen/second driver kept out by the lock"] += 1
        self._usurped = self._once(event.kind)
        try:  # and one whose lock does not work, as on a network disk
            mine = self.second = Driver(self, Clock(self._true), locked=False)
        except LedgerRefused as refused:
            self._refused(refused)
            return

        def over() -> None:
            if self.second is mine:
                mine.close()
                self.second = None

        self.later(event.lasts, over)

    def _do_custodian_away(self, event: Event) -> None:
        self.custodian.away += 1
        self.later(event.lasts, self._custodian_back)

    def _custodian_back(self) -> None:
        self.custodian.away -= 1
        self._settle()  # a real driver asks ten times a second

    # -- the disk --

    def _do_disk_full(self, event: Event) -> None:
        self.disk.fill("anchor" if event.number % 2 else "file")
        self.later(event.lasts, lambda: self.disk.fill(""))

    def _do_sync_fails(self, event: Event) -> None:
        self.disk.fail_sync(("before", "after", "anchor")[event.number % 3])

    def _do_crash_in_write(self, event: Event) -> None:
        self._away = event.lasts
        self.disk.kill_at(event.target)

    def _do_torn_write(self, event: Event) -> None:
        self._away = event.lasts
        self.disk.kill_at("anchor-written" if event.number % 5 == 0 else "after-commit", tear=event.number)

    def _do_backup_restored(self, event: Event) -> None:
        backup = self.disk.backup
        if self.driver is None or backup is None or backup[0] >= self.disk.known[0]:
            return
        running = bool(event.number % 2)
        if not running:
            self._nobody()
        aside = self.disk.restore_backup(only_the_file=event.number % 3 == 0)
        if running:
            self._tell(next(iter(self.reality.machines)))  # who writes on must be refused
            self._settle()
        self._nobody()
        try:
            ledger = self.disk.open()
            if not self.disk.faults:
                self.tally["seen/backup whole again by its WAL"] += 1
            self.disk.shut(ledger)
        except LedgerRefused as refused:
            self.tally["fault/backup-restored"] += 1
            self._refused(refused)
        self.disk.put_right(aside)
        self.later(event.lasts, self._wake_driver)

    # -- judging --

    def violations(self) -> list[str]:
        home = None if self.driver is None else self.driver.home
        now = None if self.driver is None else self.driver.clock.shows
        found = [*self._troubles, *self.disk.faults]
        self._troubles, self.disk.faults = [], []
        return found + self.watch.violations(home, now)

    def finish(self) -> list[str]:
        return audit.finish(self)
