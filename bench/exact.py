"""Promise: usage that is kept incrementally equals usage counted from scratch, exactly, after every step.

Random histories are played on a small fleet: runs come, finish, fail and are deleted, nodes are fenced and come back,
windows and limits are edited, Budgets are removed and return, time passes. After each step three accounts are compared,
to the last GPU-microsecond:

    the engine's meters        straight lines, two additions a lease
    a recount of all entries   ``tenure.audit.recount``, which shares no arithmetic with the engine
    a state folded anew        the whole ledger again from its first entry: the same image, byte for byte
"""

from __future__ import annotations

from pathlib import Path
from random import Random

import msgspec

from bench import fleet
from bench.bed import telling
from bench.load import batch
from bench.result import Row, Scale
from tenure.api.budget import Budget
from tenure.api.core import Node, Taint
from tenure.audit.recount import recount
from tenure.engine import Apply, Delete, Event, State, dump
from tenure.engine.topology import FENCE_TAINT
from tenure.shell.home import Home, rebuild
from tenure.shell.simulated import SimulatedExecutor
from tenure.shell.store import MemoryStore
from tenure.units import DAY, FOREVER, HOUR, MINUTE, SECOND, GpuMicros, Instant, format_time

NAME = "exact"
LENGTH = 50
"""Steps of one history: comparing costs the whole history each time."""

_Charges = dict[tuple[str, str, Instant | None, Instant | None], GpuMicros]


def run(scale: Scale, folder: Path) -> list[Row]:
    steps = equal = figures = 0
    tell = telling("random histories")
    for seed in range(-(-scale.steps // LENGTH)):
        history = History(seed)
        for _ in range(min(LENGTH, scale.steps - steps)):
            history.step()
            same, compared = history.compare()
            steps, equal, figures = steps + 1, equal + same, figures + compared
        tell("steps", steps, scale.steps)
    return [
        Row(bench=NAME, what=f"steps of random histories after which usage is exact, of {steps:,}",
            measured=100 * equal / steps, unit="%", goal=100, sense="at least", detail={"figures_compared": figures}),
    ]  # fmt: skip


class History:
    """A fleet to which random things happen."""

    def __init__(self, seed: int) -> None:
        self.luck = Random(seed)
        self.now = fleet.NOW
        self.executor = SimulatedExecutor(bind_delay=SECOND, stop_delay=SECOND)
        self.home = Home(MemoryStore(), self.executor)
        self.plan = fleet.plan_fleet(1_000)
        self.budgets = {budget.metadata.name: budget for budget in fleet.budgets(self.plan)}
        self.nodes = list(fleet.nodes(self.plan))
        self.waiting = [ask.run for number in range(8) for ask in batch(1_000 * seed + number)]
        fleet.furnish(self.home.handle, self.plan, now=self.now)

    def step(self) -> None:
        """Something happens, time passes, and the fleet settles."""
        chances = [self._submit] * 5 + [self._end] * 2 + [self._delete, self._edit, self._edit, self._node]
        self.home.handle(*self.luck.choice(chances)(), now=self.now)
        self.home.drive(now=self.now)
        self.now += self.luck.choice((1, SECOND, 7 * MINUTE, 3 * HOUR))
        self.home.drive(now=self.now)

    # -- what may happen --

    def _submit(self) -> list[Event]:
        runs = [self.waiting.pop() for _ in range(min(len(self.waiting), self.luck.randint(1, 4)))]
        return [Apply((run,)) for run in runs]

    def _end(self) -> list[Event]:
        for key in self._some_runs(2):
            self.executor.finish(key, self.luck.choice(("succeed", "fail")), now=self.now)
        return []

    def _delete(self) -> list[Event]:
        return [Delete("Run", *reversed(key.split("/"))) for key in self._some_runs(2)]

    def _edit(self) -> list[Event]:
        """Change a Budget's windows and limits, or take it away, or bring it back."""
        budget = self.budgets[self.luck.choice(sorted(self.budgets))]
        if budget.metadata.name in self.home.state.budgets and self.luck.random() < 0.3:
            return [Delete("Budget", budget.metadata.name)]
        return [Apply((self._edited(budget),))]

    def _edited(self, budget: Budget) -> Budget:
        length = self.luck.choice((None, 10, 20))
        envelopes = tuple(
            msgspec.structs.replace(
                one, end=None if length is None else format_time(fleet.NOW + length * DAY),
                concurrency=max(1, one.concurrency * self.luck.choice((1, 1, 2)) // self.luck.choice((1, 1, 3))),
                max_gpu_hours=self.luck.choice((None, one.concurrency)), lending=None,
            )
            for one in budget.spec.envelopes
        )  # fmt: skip
        return msgspec.structs.replace(budget, spec=msgspec.structs.replace(budget.spec, envelopes=envelopes))

    def _node(self) -> list[Event]:
        """Fence a node that is in use (or, if it is fenced, let it in again)."""
        used = sorted({lease.node for lease in self.home.state.leases.values()})
        node = next(one for one in self.nodes if one.metadata.name == (used or [self.nodes[0].metadata.name])[0])
        name = node.metadata.name
        if self.luck.random() < 0.5:
            self.executor.restore_node(name)
            return [Apply((node,))]
        self.executor.lose_node(name)
        return [Apply((_fenced(node),))]

    def _some_runs(self, most: int) -> list[str]:
        keys = sorted(self.home.state.runs)
        return self.luck.sample(keys, min(most, len(keys)))

    # -- what must be so --

    def compare(self) -> tuple[bool, int]:
        """Whether all accounts agree, and how many figures were compared."""
        log, state = self.home.store.entries(), self.home.state
        counted = recount(log, now=self.now)
        used, lent, runs = _kept(state, self.now)
        agree = (
            used == _plain(counted.accounts)
            and lent == _plain(counted.lent)
            and all(counted.runs[key] == amount for key, amount in runs.items())
            and self._folded_anew() == dump(state)
        )
        return agree, len(used) + len(lent) + len(runs)

    def _folded_anew(self) -> bytes:
        again, _ = rebuild(self.home.store)
        again.now = self.home.state.now  # a look at the clock that decided nothing is in no entry
        return dump(again)


def _kept(state: State, now: Instant) -> tuple[_Charges, _Charges, dict[str, GpuMicros]]:
    """What the engine's meters say, by account (used and lent) and by run."""
    used: _Charges = {}
    lent: _Charges = {}
    for (key, window), (total, loans, *_) in state.books.accounts.items():
        used[*key, *_window(window)], lent[*key, *_window(window)] = total, loans
    for fund in state.books.funds.values():
        account = (*fund.key, *_window(fund.window))
        used[account], lent[account] = fund.total.used(now), fund.lent.used(now)
    runs = {key: sum(meter.used(now) for meter in row.meters.values()) for key, row in state.runs.items()}
    return _plain(used), _plain(lent), runs


def _window(window: tuple[Instant, Instant]) -> tuple[Instant | None, Instant | None]:
    return window[0] or None, None if window[1] == FOREVER else window[1]


def _plain(charges: _Charges) -> _Charges:
    return {key: amount for key, amount in charges.items() if amount}


def _fenced(node: Node) -> Node:
    taint = Taint(key=FENCE_TAINT, effect="NoExecute", value="nodeshutdown")
    return msgspec.structs.replace(node, spec=msgspec.structs.replace(node.spec, taints=(taint,)))
