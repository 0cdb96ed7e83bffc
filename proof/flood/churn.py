"""A day of churn on a virtual clock, and what is left of it in memory.

Tenants submit, cancel and let their runs end; runs fail and are tried again; some are elastic, some have spares, some
wait for more than there is; nodes are closed, lost and brought back; budgets are edited. All of it goes through a home
with a ledger on disk, simulated pods, a custodian for draws, and metrics, as in a daemon.

Twice the fleet is brought to rest, after two hours and at the end of the day: nothing is submitted until every run has
ended and was deleted. Then what is held must be the same. Compared are

    objects    what can be reached from the engine's state, less its machines and its views of the future: the same on
               every machine
    image      bytes of the state's image, likewise
    blocks     blocks of memory that Python has allocated in the whole process, after a full collection
    resident   memory of the process as the kernel tells it

Caches with a bound fill up for half a day and more, and would look like growth: SQLite's pages (16 MiB) and what the
allocator keeps for later are given back before anything is measured, and functions that remember answers forget them.
One that remembers without a bound does not, and shows. Views of the future, marks and pools of nodes are bounded as
well, and are in the last two alone. What a fleet keeps of its past is in the ledger's file, and is in none of these.
"""

from __future__ import annotations

import gc
import sys
from collections.abc import Callable, Iterator
from ctypes import CDLL
from functools import _lru_cache_wrapper
from pathlib import Path
from random import Random
from types import BuiltinFunctionType, FunctionType, MethodType, ModuleType
from typing import Any

from msgspec import Struct
from msgspec.structs import replace

from bench.fleet import FLAVOR
from bench.result import Row
from proof.flood.world import TENANTS, World
from tenure.api.core import Node, Taint
from tenure.api.meta import ObjectMeta
from tenure.api.run import Locality, Malleable, Resources, Run, RunSpec, Runtime
from tenure.engine import Apply, Delete, Event, Publish, State, dump
from tenure.engine.topology import FENCE_TAINT
from tenure.observe.meter import Meter
from tenure.observe.metrics import Metrics
from tenure.shell.custodian import SimulatedCustodian
from tenure.shell.home import Home
from tenure.shell.ledger_store import LedgerStore
from tenure.shell.simulated import SimulatedExecutor
from tenure.units import HOUR, MINUTE, SECOND, Instant

NAME = "churn"
GOALS = {"objects": 1.10, "image": 1.01, "blocks": 1.03, "resident": 1.15}
"""Times what it was. Objects are some 400: notices that were given come and go, by a few dozen. One that stayed of each
run would be ten times as many."""
BOUNDED = ("topology", "timeline")
"""Parts of the state with caches."""
EVERY = 18 * SECOND
"""Time between two things that happen."""
FIRST = 2
"""Hours until the fleet is brought to rest for the first time."""
KEPT = 10 * MINUTE
"""How long a run that is over is looked at by people before it is deleted."""
Tell = Callable[[str], None]


class Rest(Struct, frozen=True):
    """What is held at rest."""

    objects: int
    image: int
    blocks: int
    resident: int


class Churn:
    """One day of one fleet."""

    def __init__(self, file: Path, seed: int = 1) -> None:
        self.luck = Random(seed)
        self.world = World(file)
        home = self.world.home
        self.custodian = SimulatedCustodian("churn")
        self.executor = SimulatedExecutor(bind_delay=2 * SECOND, stop_delay=5 * SECOND)
        self.metrics = Metrics()
        home.executor, home.custodians = self.executor, (self.custodian,)
        meter = Meter(self.metrics, lambda: self.world.now)
        meter.begin(home)
        home.watch = meter.saw
        self.world.handle(Publish(self.custodian.beacon, self.custodian.root))
        self.nodes = {row.name: row.node for row in self.state.topology.rows.values()}
        self.begun = self.world.now
        self.submitted = 0
        self.peak = 0
        """The most runs that were there at once."""
        self._over: dict[str, Instant] = {}
        """Runs that are over, and since when."""

    @property
    def state(self) -> State:
        return self.world.state

    def until(self, hours: float, *, tell: Tell) -> None:
        """Let things happen until so many hours after the beginning; the last of them bring the fleet to rest."""
        end = self.begun + round(hours * HOUR)
        while self.world.now < end - HOUR:
            self._pass(EVERY)
            self.world.handle(*self._something())
            self.peak = max(self.peak, len(self.state.runs))
            if self.submitted % 100 == 0:
                tell(f"churn: hour {(self.world.now - self.begun) / HOUR:.1f} of {hours:g}, {self.submitted:,} runs")
        self.world.handle(Apply(tuple(self.nodes.values())))
        for name in self.nodes:
            self.executor.restore_node(name)
        while self.state.runs or self.world.now < end:
            assert self.world.now < end + 24 * HOUR, "all that was submitted ends"
            self._pass(MINUTE)

    def rest(self) -> Rest:
        assert not self.state.runs
        assert not self.state.leases
        self.metrics.collect(self.state, now=self.world.now)
        give_back(self.world.home)
        blocks = sys.getallocatedblocks()
        kept = [part for name, part in vars(self.state).items() if name not in BOUNDED]
        return Rest(held(*kept), len(dump(self.state)), blocks, resident())

    # -- what happens --

    def _pass(self, time: int) -> None:
        """Time passes, timer by timer, and what is over for long is deleted."""
        end = self.world.now + time
        home = self.world.home
        home.drive(now=self.world.now)
        while (wake := home.next_wake()) is not None and wake <= end:
            self.world.now = max(self.world.now, wake)
            home.drive(now=self.world.now)
        self.world.now = end
        home.drive(now=end)
        for key, row in self.state.runs.items():
            if row.life.phase in ("Completed", "Failed"):
                self._over.setdefault(key, end)
        gone = [key for key, since in self._over.items() if since <= end - KEPT]
        self.world.handle(*(_delete(key) for key in gone if key in self.state.runs))
        for key in gone:
            del self._over[key]

    def _something(self) -> list[Event]:
        chances = [self._submit] * 12 + [self._cancel, self._fail, self._succeed, self._node]
        return self.luck.choice(chances)()

    def _submit(self) -> list[Event]:
        self.submitted += 1
        return [Apply((self._run(self.submitted),))]

    def _run(self, number: int) -> Run:
        luck = self.luck
        gpus = luck.choice((1, 1, 2, 4, 8, 8, 16, 32, 64))
        kind = luck.choice(("plain", "plain", "plain", "groups", "elastic")) if gpus >= 16 else "plain"
        seconds = luck.choice((300, 900, 1_800, 3_000))
        return Run(
            metadata=ObjectMeta(name=f"run-{number:06d}", namespace=luck.choice(TENANTS)),
            spec=RunSpec(
                resources=Resources(gpu_type=FLAVOR, total_gpus=gpus),
                locality=Locality(group_gpus=8 if kind != "plain" else None, allow_cross_group_spread=True),
                spares_per_group=1 if kind == "groups" else 0,
                malleable=Malleable(min_total_gpus=8, max_total_gpus=gpus, step_gpus=8) if kind == "elastic" else None,
                runtime=Runtime(expected_duration=f"{seconds}s"),
            ),
        )

    def _some_run(self) -> str | None:
        keys = sorted(self.state.runs)
        return self.luck.choice(keys) if keys else None

    def _cancel(self) -> list[Event]:
        key = self._some_run()
        return [] if key is None else [_delete(key)]

    def _fail(self) -> list[Event]:
        return self._end("fail")

    def _succeed(self) -> list[Event]:
        return self._end("succeed")

    def _end(self, how: Any) -> list[Event]:
        """A run's pods end before their time."""
        key = self._some_run()
        if key is not None:
            self.executor.finish(key, how, now=self.world.now)
        return []

    def _node(self) -> list[Event]:
        """A node is closed, or lost and fenced, or is as it was again."""
        node = self.nodes[self.luck.choice(sorted(self.nodes))]
        name = node.metadata.name
        how = self.luck.choice(("close", "lose", "back", "back"))
        if how == "close":
            return [Apply((replace(node, spec=replace(node.spec, unschedulable=True)),))]
        if how == "lose":
            self.executor.lose_node(name)
            return [Apply((_fenced(node),))]
        self.executor.restore_node(name)
        return [Apply((node,))]


def rows(folder: Path, hours: float, *, tell: Tell, seed: int = 1) -> Iterator[Row]:
    churn = Churn(folder / "churn.db", seed)
    try:
        churn.until(FIRST, tell=tell)
        first, early = churn.rest(), churn.submitted
        churn.until(hours, tell=tell)
        last = churn.rest()
    finally:
        churn.world.close()
    counts = {
        "runs": churn.submitted,
        "runs_before": early,
        "most_at_once": churn.peak,
        "entries": churn.world.home.seq,
    }
    when = f"at rest, after {hours:g} virtual hours"
    for name, says in (
        ("objects", "objects held by the engine"),
        ("image", "bytes of the state's image"),
        ("blocks", "blocks of memory that are in use"),
        ("resident", "resident memory"),
    ):
        before, after = getattr(first, name), getattr(last, name)
        yield Row(bench=NAME, what=f"{says} {when} against {FIRST}", goal=GOALS[name], measured=after / before,
                  steady=name in ("image", "blocks"), detail={"before": before, "after": after, **counts})  # fmt: skip


# --- looking at memory ----------------------------------------------------------------------------------------------


_NOT_HELD = (type, ModuleType, FunctionType, BuiltinFunctionType, MethodType)


def held(*roots: object) -> int:
    """How many objects can be reached from some, less code: that belongs to everybody."""
    seen: set[int] = set()
    rest: list[Any] = list(roots)
    while rest:
        one = rest.pop()
        if id(one) not in seen and not isinstance(one, _NOT_HELD):
            seen.add(id(one))
            rest += gc.get_referents(one)
    return len(seen)


def give_back(home: Home) -> None:
    """Let go of what is only kept to be quick."""
    assert isinstance(home.store, LedgerStore)
    for one in gc.get_objects():
        if isinstance(one, _lru_cache_wrapper) and one.cache_parameters()["maxsize"] is not None:
            one.cache_clear()
    home.store.ledger._db.execute("PRAGMA shrink_memory")
    gc.collect()
    if (trim := getattr(CDLL(None), "malloc_trim", None)) is not None:  # glibc has it
        trim(0)


def resident() -> int:
    """Bytes of this process that are in memory."""
    for line in Path("/proc/self/status").read_text().splitlines():
        if line.startswith("VmRSS:"):
            return int(line.split()[1]) * 1024
    raise AssertionError("the kernel tells it")


def _fenced(node: Node) -> Node:
    taint = Taint(key=FENCE_TAINT, effect="NoExecute", value="nodeshutdown")
    return replace(node, spec=replace(node.spec, taints=(taint,)))


def _delete(key: str) -> Delete:
    namespace, _, name = key.partition("/")
    return Delete("Run", name, namespace)
