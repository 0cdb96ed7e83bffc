"""A whole cluster in virtual time: the real operators, an API server in memory, machines that pretend, and trouble.

    world = ClusterWorld(plan)
    world.advance(2 * HOUR); world.do(event); world.violations()

Two operator processes run and are elected between. What people do is written into the API server as they would write
it; what goes wrong is in ``faults_api`` and ``events``. Every entry is audited the moment the LedgerHead names it,
read from the objects in the API server and from nowhere else.
"""

from __future__ import annotations

import random
import shutil
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from random import Random
from typing import Any

import msgspec

from proof import scratch
from proof.sim.api import Server
from proof.sim.api_client import VirtualClient
from proof.sim.api_forms import MERGE, Object
from proof.sim.clock import Clock
from proof.sim.cluster_end import finish
from proof.sim.cluster_judge import Judge
from proof.sim.events import FOR_GOOD, Event, Plan
from proof.sim.faults_api import STRIKES
from proof.sim.journal import DEATHS, FAILURES, Journal
from proof.sim.loop import VirtualLoop
from proof.sim.machines import Machines
from proof.sim.process import Process
from proof.sim.wire import Strike, Wire
from tenure.facts import Entry
from tenure.kube.marks import POLICY_KEY, POLICY_NAME
from tenure.kube.resources import BUDGETS, CONFIG_MAPS, NAMESPACES, NODES, RUNS, SYSTEM_NAMESPACE, Resource
from tenure.testing import START
from tenure.units import HOUR, MINUTE, SECOND, Instant, Micros, parse_duration

LAB = "lab"
PROCESSES = 2
_encode = msgspec.json.Encoder().encode


class ClusterWorld:
    """See ``world.World``."""

    def __init__(self, plan: Plan) -> None:
        self.plan = plan
        self.tally: Counter[str] = Counter()
        self.luck = Random(f"cluster {plan.seed}")
        self._chance = random.getstate()
        random.seed(plan.seed)
        self.folder = scratch.make("sim")
        self.loop = VirtualLoop()
        self.loop.set_exception_handler(self._surprised)
        self.server = Server(self.now)
        self.machines = Machines(self.loop, self.server, self.luck, self.tally)
        self.judge = Judge(self.server, self.machines, self.tally)
        self.strikes: list[Strike] = []
        self.wires = [Wire(str(number), self.strikes, self.luck, self.tally) for number in range(PROCESSES)]
        self.clocks = [Clock(self.now) for _ in range(PROCESSES)]
        self.journals = [Journal(self.folder / f"journal-{number}", self.tally) for number in range(PROCESSES)]
        self.processes: list[Process] = []
        self.troubles: dict[str, dict[int, tuple[str, int]]] = {}
        """What is wrong with each node, under a number of its own."""
        self._number = 0
        self.keep = HOUR * 6 if plan.seed % 3 == 0 else None
        self._policy: Object = {}
        with self.loop.entered():
            self._furnish()
        self.processes = [self._process(number) for number in range(PROCESSES)]
        self.judge.deciding = self._deciding
        self.judge.able = lambda: any(one.able for one in self.processes)

    @property
    def trace(self) -> Callable[[Entry], None] | None:
        return self.judge.trace

    @trace.setter
    def trace(self, told: Callable[[Entry], None] | None) -> None:
        self.judge.trace = told

    # --- the protocol ---------------------------------------------------------------------------------------------

    def advance(self, until: Micros) -> None:
        self.loop.drive(lambda: False, until=until / SECOND)

    def do(self, event: Event) -> None:
        self.tally[f"event/{event.kind}"] += 1
        with self.loop.entered():
            _DO[event.kind](self, event)

    def violations(self) -> list[str]:
        return self.judge.judged(self.fleet_now())

    def finish(self) -> list[str]:
        return finish(self)

    def close(self) -> None:
        for process in self.processes:
            process.kill()
        self.loop.close()
        shutil.rmtree(self.folder, ignore_errors=True)
        random.setstate(self._chance)

    # --- the beginning --------------------------------------------------------------------------------------------

    def now(self) -> Instant:
        return START + round(self.loop.time() * SECOND)

    def fleet_now(self) -> Instant:
        """Now, by the clock of whoever decides: who is an hour behind is on time an hour later. Nobody knows better if
        nobody decides."""
        return min(self._deciding() or [clock.shows for clock in self.clocks])

    def _deciding(self) -> list[Instant]:
        return [clock.shows for clock, one in zip(self.clocks, self.processes, strict=True) if one.leading]

    @property
    def at(self) -> Micros:
        return self.now() - START

    def _furnish(self) -> None:
        for name in (LAB, SYSTEM_NAMESPACE, "default"):
            self.create(NAMESPACES, {"metadata": {"name": name}})
        self.set_policy(self.plan.policy)
        for node in self.plan.nodes:
            self.machines.add(node)
            self.create(NODES, node)
        for budget in self.plan.budgets:
            self.create(BUDGETS, budget)

    def _process(self, number: int) -> Process:
        wire = self.wires[number]
        self._number += 1
        wire.mortal = None
        process = Process(
            self.loop, VirtualClient(wire, self.server), self.journals[number], f"operator-{number}-{self._number}",
            now=self.clocks[number].now, failed=self.judge.failed, keep=self.keep,
            archive=self.folder / "archive" if self.keep is not None else None, turning=self.judge.turning,
            turned=self.judge.turned,
        )  # fmt: skip
        wire.process = process
        process.restarts = lambda: self.kill(number, 10 * SECOND)
        return process

    def _surprised(self, loop: Any, context: dict[str, Any]) -> None:
        error = context.get("exception")
        if error is not None:
            self.judge.failed(f"{type(error).__name__}: {error} ({context.get('message')})")

    # --- writing as people do -------------------------------------------------------------------------------------

    def create(self, resource: Resource, item: Object) -> bool:
        body = {"apiVersion": resource.api_version, "kind": resource.kind, **item}
        path = resource.path(item["metadata"].get("namespace"))
        return self.server.handle("POST", path, {}, _encode(body)).status < 300

    def patch(self, resource: Resource, name: str, change: Object, namespace: str | None = None) -> bool:
        path = resource.path(namespace, name)
        return self.server.handle("PATCH", path, {}, _encode(change), content=MERGE).status < 300

    def delete(self, resource: Resource, name: str, namespace: str | None = None) -> bool:
        return self.server.handle("DELETE", resource.path(namespace, name), {}).status < 300

    def set_policy(self, policy: Object) -> None:
        self._policy = policy
        data = {POLICY_KEY: _encode(policy).decode()}
        if not self.patch(CONFIG_MAPS, POLICY_NAME, {"data": data}, SYSTEM_NAMESPACE):
            self.create(CONFIG_MAPS, {"metadata": {"name": POLICY_NAME, "namespace": SYSTEM_NAMESPACE}, "data": data})
        self.machines.bind_delay = parse_duration(policy.get("bindDelay", "0s")) / SECOND
        self.machines.stop_delay = parse_duration(policy.get("stopDelay", "0s")) / SECOND

    def submit(self, event: Event) -> None:
        item = event.object
        if self.create(RUNS, {**item, "metadata": {**item["metadata"], "namespace": LAB}}):
            key = f"{LAB}/{item['metadata']['name']}"
            self.machines.lengths.pop(key, None)
            if event.lasts:
                self.machines.lengths[key] = event.lasts

    def cancel(self, event: Event) -> None:
        self.delete(RUNS, event.target, LAB)
        self.loop.call_later(5.0, self.machines.collect_garbage)

    def resize(self, event: Event) -> None:
        run = self.server.get(RUNS, f"{LAB}/{event.target}")
        if run is not None and run["spec"].get("malleable"):
            self.patch(RUNS, event.target, {"spec": {"malleable": {"desiredTotalGPUs": event.number}}}, LAB)

    def sponsors(self, event: Event) -> None:
        self.patch(RUNS, event.target, {"spec": {"funding": {"maxBorrowGPUs": None, **event.object}}}, LAB)

    def budget(self, event: Event) -> None:
        name = event.object["metadata"]["name"]
        found = self.server.get(BUDGETS, name)
        if found is None:
            self.create(BUDGETS, event.object)
        else:
            meta = {"name": name, "resourceVersion": found["metadata"]["resourceVersion"]}
            body = {"apiVersion": BUDGETS.api_version, "kind": "Budget", "metadata": meta, "spec": event.object["spec"]}
            self.server.handle("PUT", BUDGETS.path(None, name), {}, _encode(body))

    # --- pods -----------------------------------------------------------------------------------------------------

    def end_pod(self, event: Event, code: int) -> None:
        prefix = f"{LAB}/{event.target}"
        mine = [(node, one.key) for node, one in self.machines.running() if self.machines.run_of(one.key) == prefix]
        if mine:
            self.machines.end(*sorted(mine)[event.number % len(mine)], code)

    def break_pods(self, event: Event) -> None:
        key = f"{LAB}/{event.target}"
        self.machines.broken[key] += 1

        def mend() -> None:
            self.machines.broken[key] -= 1

        self.later(event.lasts, mend)

    # --- machines -------------------------------------------------------------------------------------------------

    def trouble(
        self, node: str, kind: str, lasts: Micros, number: int = 0, *, after: Callable[[], None] | None = None
    ) -> bool:
        """Something is wrong with a node for a while, and everybody is told; True if that is any news."""
        self._number += 1
        mine = self._number
        self.troubles.setdefault(node, {})[mine] = (kind, number)
        news = self.show(node)

        def mend() -> None:
            del self.troubles[node][mine]
            self.show(node)
            if after is not None:
                after()

        self.later(lasts, mend)
        return news

    def show(self, node: str) -> bool:
        """Have its object say what there is to say; True if it said something else before."""
        before = self.server.get(NODES, node)
        found = self.troubles.get(node, {})
        lies = [number for kind, number in found.values() if kind == "lie"]
        self.machines.show(node, {kind for kind, _ in found.values()}, lies[-1] if lies else None)
        after = self.server.get(NODES, node)
        return before is not None and after is not None and _version(before) != _version(after)

    def fail_node(self, event: Event) -> None:
        """A machine burns; after some minutes somebody fences it, and later it comes back, empty."""
        alive = event.target in self.machines.all and bool(self.machines.all[event.target].alive)
        if event.target not in self.machines.all or not self.machines.lose(event.target):
            return
        self._count(event, self.show(event.target) or alive)
        fenced = self.luck.choice((1, MINUTE, 10 * MINUTE))
        # Who was fenced is let in again when nothing of it runs: a machine is not back before it was fenced.
        self.later(
            fenced, lambda: self.trouble(event.target, "fence", event.lasts, after=lambda: self._return(event.target))
        )

    def _return(self, node: str) -> None:
        self.machines.back(node)
        self.show(node)

    def reboot_node(self, event: Event) -> None:
        alive = event.target in self.machines.all and bool(self.machines.all[event.target].alive)
        if event.target in self.machines.all and self.machines.lose(event.target):
            self._count(event, self.show(event.target) or alive)
            self.later(event.lasts, lambda: self._return(event.target))

    def silence_node(self, event: Event) -> None:
        if event.target not in self.machines.all:
            return
        if self.plan.policy.get("unreadyIsFailure") or self._policy.get("unreadyIsFailure"):
            self.machines.excuse(event.target)
        told = self._once(event)
        self.machines.mute(event.target, told)
        if self.trouble(event.target, "unready", event.lasts, after=lambda: self.machines.unmute(event.target, told)):
            told()

    def mark_node(self, event: Event) -> None:
        if event.target in self.machines.all:
            self._count(event, self.trouble(event.target, event.kind.removeprefix("node-"), event.lasts, event.number))

    def lie_of_pods(self, event: Event) -> None:
        if event.target not in self.machines.all:
            return
        if event.number % 2:
            self.tally["fault/pods-lie"] += self.machines.snatch(event.target)
            return
        told = self._once(event)
        self.machines.mute(event.target, told)
        self.later(event.lasts, lambda: self.machines.unmute(event.target, told))

    # --- clocks and processes -------------------------------------------------------------------------------------

    @property
    def leader(self) -> int:
        """The place of the process that decides; the first one if nobody does."""
        return next((number for number, one in enumerate(self.processes) if one.leading), 0)

    def _count(self, event: Event, really: bool = True) -> None:
        self.tally[f"fault/{event.kind}"] += really

    def _once(self, event: Event) -> Callable[[], None]:
        """Counts a fault when it is called first: when somebody has seen something of it."""
        left = [True]

        def told() -> None:
            self._count(event, left[0])
            left[0] = False

        return told

    @contextmanager
    def _set(self, number: int) -> Iterator[Clock]:
        """Something is done to the clock of a process; if that one decides, the time that is left out was nobody's."""
        clock = self.clocks[number]
        before = clock.shows
        yield clock
        if self.processes[number].leading:
            self.judge.jumped(before, clock.shows)

    def skew(self, event: Event) -> None:
        number, told = self.leader, self._once(event)
        with self._set(number) as clock:
            clock.step(event.number, told)

        def over() -> None:
            with self._set(number) as clock:
                clock.step(-event.number)
                clock.over(told)

        self.later(event.lasts, over)

    def step_clock(self, event: Event) -> None:
        with self._set(self.leader) as clock:
            clock.step(event.number, self._once(event))

    def freeze(self, event: Event) -> None:
        number, told = self.leader, self._once(event)
        with self._set(number) as clock:
            clock.freeze(told)

        def over() -> None:
            with self._set(number) as clock:
                clock.thaw()
                clock.over(told)

        self.later(event.lasts, over)

    def crash(self, event: Event) -> None:
        self._count(event, not self.processes[self.leader].dead)
        self.kill(self.leader, event.lasts, journal=bool(event.number % 2))

    def kill(self, number: int, lasts: Micros, *, journal: bool = True) -> None:
        """A process dies, and another has its place after a while: on the same disk, if that survives."""
        process = self.processes[number]
        if not process.dead:
            process.kill(journal=journal)
            self.later(lasts, lambda: self._replace(process, number))

    def _replace(self, process: Process, number: int) -> None:
        if not process.buried():
            self.later(SECOND, lambda: self._replace(process, number))
        elif self.processes[number] is process:
            self.processes[number] = self._process(number)

    def arm(self, event: Event) -> None:
        number = self.leader
        process = self.processes[number]
        process.dies = lambda: self.kill(number, event.lasts, journal=bool(event.number % 3))
        self.wires[number].mortal = (event.number, bool(event.number % 2))

    def restart(self, event: Event) -> None:
        number = self.leader
        process = self.processes[number]
        if not process.dead:

            def stopped() -> None:
                self._count(event)
                self.later(event.lasts, lambda: self._replace(process, number))

            process.stop(stopped)

    def two_leaders(self, event: Event) -> None:
        sure, told = list(self.processes), self._once(event)
        for one in sure:
            one.sure += 1
            one.usurps.append(told)
            one.wake()

        def over() -> None:
            for one in sure:
                one.sure -= 1
                one.usurps = [each for each in one.usurps if each is not told]

        self.later(event.lasts, over)

    def pause_leader(self, event: Event) -> None:
        process = self.processes[self.leader]
        if not process.dead and not process.paused:
            process.pause(lambda: self._count(event))
            self.later(event.lasts, process.resume)

    # --- the disk of whoever decides ------------------------------------------------------------------------------

    def fill_disk(self, event: Event) -> None:
        journal = self.journals[self.leader]
        journal.fill(1)
        self.later(event.lasts, lambda: journal.fill(-1))

    def fail_sync(self, event: Event) -> None:
        self.journals[self.leader].fail_sync(FAILURES[event.number % len(FAILURES)])

    def tear_write(self, event: Event) -> None:
        number = self.leader
        self.processes[number].dies = lambda: self.kill(number, event.lasts)
        self.journals[number].kill_at(DEATHS[event.number % len(DEATHS)], event.number)

    def restore_backup(self, event: Event) -> None:
        """A copy is made now; later the process dies, and the copy is put in place: all of it, or the file without its
        anchor, which is then ahead. Somebody reads what the operator says, and deletes the file."""
        number = self.leader
        journal, whole = self.journals[number], bool(event.number % 2)
        backup = journal.kept()

        def put() -> None:
            process = self.processes[number]
            process.kill()
            if not process.buried():
                self.later(SECOND, put)
                return
            journal.restore(backup, anchor=whole)
            self.later(0, lambda: self._replace(process, number))
            if not whole:
                self.later(20 * MINUTE, lambda: self._delete_journal(number))

        self.later(event.lasts, put)

    def _delete_journal(self, number: int) -> None:
        """Somebody deletes a journal that its operator will not open."""
        process = self.processes[number]
        if process.operator is None and not process.dead:
            self.journals[number].lose(anchor=False)

    # --- the API server -------------------------------------------------------------------------------------------

    def strike(self, event: Event) -> None:
        one = Strike(event.kind, event.number, event.target, Random(f"{self.plan.seed} {event.kind} {event.at}"))
        self.strikes.append(one)
        if event.kind.startswith("watch"):
            for wire in self.wires:
                wire.strike(one)

        def over() -> None:
            self.strikes.remove(one)
            for wire in self.wires:
                wire.heal(event.kind)

        self.later(event.lasts, over)

    def compact(self, event: Event) -> None:
        """Counted when somebody asks for what is forgotten (see ``Wire.pass_back``)."""
        self.server.forget()

    def later(self, lasts: Micros, do: Callable[[], None]) -> None:
        """What undoes a fault, when it is over; never, if it is for good."""
        if lasts == FOR_GOOD:
            return
        self.loop.call_later(lasts / SECOND, do)


def _version(item: Object) -> str:
    version: str = item["metadata"]["resourceVersion"]
    return version


_DO: dict[str, Callable[[ClusterWorld, Event], None]] = {
    "submit": ClusterWorld.submit,
    "cancel": ClusterWorld.cancel,
    "resize": ClusterWorld.resize,
    "sponsors": ClusterWorld.sponsors,
    "budget": ClusterWorld.budget,
    "drop-budget": lambda world, event: world.delete(BUDGETS, event.target) and None,
    "policy": lambda world, event: world.set_policy(event.object),
    "pod-exits": lambda world, event: world.end_pod(event, 0),
    "pod-fails": lambda world, event: world.end_pod(event, 1),
    "pod-breaks": ClusterWorld.break_pods,
    "node-fail": ClusterWorld.fail_node,
    "node-reboot": ClusterWorld.reboot_node,
    "node-unready": ClusterWorld.silence_node,
    "node-cordon": ClusterWorld.mark_node,
    "node-lie": ClusterWorld.mark_node,
    "pods-lie": ClusterWorld.lie_of_pods,
    "clock-skew": ClusterWorld.skew,
    "clock-step": ClusterWorld.step_clock,
    "clock-freeze": ClusterWorld.freeze,
    "crash": ClusterWorld.crash,
    "two-leaders": ClusterWorld.two_leaders,
    "leader-paused": ClusterWorld.pause_leader,
    "dies-writing": ClusterWorld.arm,
    "restart": ClusterWorld.restart,
    "etcd-compacts": ClusterWorld.compact,
    "disk-full": ClusterWorld.fill_disk,
    "sync-fails": ClusterWorld.fail_sync,
    "torn-write": ClusterWorld.tear_write,
    "backup-restored": ClusterWorld.restore_backup,
    **dict.fromkeys(STRIKES, ClusterWorld.strike),
}
