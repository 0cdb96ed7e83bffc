"""Promise: at 100,000 GPUs a full admission is at least 200 times faster than a scan, with the same answer.

The scan is ``tests/engine/oracle.py``: the written rules without an index. As a test it looks at every lease for every
node, and at every lease for every envelope; here leases are first sorted by both, in one pass, so that the engine is
compared with a plain scan and not with a product of two sizes. Every answer is compared: nodes, ordinals, groups,
payers, pods, refusals.

Requests are admitted and committed by the engine together, timed and undone, some times over; then they are put one by
one to the scan and to the engine, so that both always answer on the same state. The scan knows of no promises, so a run
that waits is taken back before the next is asked for, both times: that is in the engine's time too.
"""

from __future__ import annotations

from pathlib import Path
from statistics import median

from bench import fleet
from bench.bed import Bed, check, telling
from bench.load import Ask, batch
from bench.measure import Clock, Stopwatch, Took, still
from bench.result import Row, Scale
from tenure.api.core import Node
from tenure.api.run import Run
from tenure.engine import Apply, Event, Outcome, State
from tenure.facts import Decided, Lease, Opened, Placed
from tenure.units import SECOND, Instant
from tests.engine import oracle

NAME = "scan"
GOAL = 200.0
_CLOCKS: dict[Clock, str] = {"wall": "", "cpu": ", processor time"}
Answer = oracle.Placement | oracle.Refusal


def run(scale: Scale, folder: Path) -> list[Row]:
    bed = Bed.build(scale.scan, file=folder / "scan.db")
    try:
        bed.measure_images()
        asks = [ask for number in range(scale.batches) for ask in batch(number)]
        with still():
            engine = [_admit_all(bed, asks) for _ in range(2 + scale.rounds // 4)]
            scanned, same = _scan_all(bed, asks)
    finally:
        bed.close()
    return [
        *(_row(scale, scanned, engine, clock, note) for clock, note in _CLOCKS.items()),
        Row(bench=NAME, what=f"answers equal to the scan's, of {len(asks)}", measured=100 * same / len(asks), unit="%",
            goal=100, sense="at least"),
    ]  # fmt: skip


def _row(scale: Scale, scanned: list[Took], engine: list[Took], clock: Clock, note: str) -> Row:
    slow, fast = (median(getattr(one, clock) for one in took) for took in (scanned, engine))
    return Row(
        bench=NAME, what=f"scan against full admission at {scale.scan:,} GPUs, committed{note}", measured=slow / fast,
        goal=GOAL, sense="at least", detail={"us_engine": round(fast * 1e6, 1), "us_scan": round(slow * 1e6, 1)},
    )  # fmt: skip


def _admit_all(bed: Bed, asks: list[Ask]) -> Took:
    """What the engine took for one of the requests, all in one commit."""
    events: list[Event] = []
    for ask in asks:
        events += [Apply((ask.run,)), *(fleet.remove([fleet.key_of(ask.run)], {}) if ask.answer != "start" else ())]
    bed.now += SECOND
    with Stopwatch() as watch:
        outcomes = bed.committed(events, bed.now)
    check(asks, [outcome for event, outcome in zip(events, outcomes, strict=True) if isinstance(event, Apply)])
    started = [fleet.key_of(ask.run) for ask in asks if ask.answer == "start"]
    bed.committed(fleet.remove(started, fleet.placed(outcomes)), bed.now)
    return watch.took.over(len(asks), plus=bed.image_share)


def _scan_all(bed: Bed, asks: list[Ask]) -> tuple[list[Took], int]:
    """Put requests to the scan, then to the engine, one by one: what the scan took, and how many answers were equal."""
    took: list[Took] = []
    same, tell = 0, telling("scan")
    bed.now += SECOND
    for ask in asks:
        with Stopwatch() as watch:
            expected = scan(bed.state, ask.run, bed.now)
        outcome = bed.committed([Apply((ask.run,))], bed.now)[0]
        same += expected == answer(outcome)
        if not fleet.placed([outcome]):
            bed.committed(fleet.remove([fleet.key_of(ask.run)], {}), bed.now)
        took.append(watch.took)
        tell("runs", len(took), len(asks))
    return took, same


def answer(outcome: Outcome) -> Answer:
    """What the engine decided, in the words of the scan."""
    verdict = next(fact.verdict for fact in outcome.facts if isinstance(fact, Decided))
    if verdict.outcome != "start":
        assert verdict.headline is not None
        return oracle.Refusal(verdict.outcome, verdict.headline.code)
    leases = (fact.lease for fact in outcome.facts if isinstance(fact, Opened))
    pods = (fact.pod for fact in outcome.facts if isinstance(fact, Placed))
    return oracle.Placement(
        verdict.width,
        tuple(
            oracle.Leased(one.group, one.domain, one.node, one.gpus, one.role, one.budget, one.envelope, one.funding)
            for one in leases
        ),
        tuple(oracle.Placed(pod.rank, pod.group, pod.node, pod.gpus) for pod in pods),
    )


# --- the scan -------------------------------------------------------------------------------------------------------


def scan(state: State, run: Run, now: Instant) -> Answer:
    """``oracle.plan`` on all that the state holds. What is closed here was closed as it opened: it cost nothing."""
    leases = list(state.leases.values())
    nodes = [row.node for row in state.topology.rows.values()]
    usage: list[tuple[Lease, Instant | None]] = [(lease, None) for lease in leases]
    world = _World(nodes, leases, list(state.budgets.values()), usage, run, now, state.policy)
    for width in world.widths():
        for circle in ("owner", "family", "everybody"):
            found = world.search(width, circle)
            if found is not None:
                return world.bind(width, found)
    return world.refuse(world.widths()[-1])


class _World(oracle.World):
    """The oracle's world, with leases and charges sorted by node and by envelope before they are looked at."""

    _by_node: dict[str, list[Lease]] | None = None

    def machine(self, node: Node, leases: list[Lease], *, idle: bool) -> oracle.Machine | None:
        if self._by_node is None:
            self._by_node = {}
            for lease in leases:
                self._by_node.setdefault(lease.node, []).append(lease)
        here = self._by_node.get(node.metadata.name, []) if leases else []
        return super().machine(node, here, idle=idle)

    def count(self, usage: list[tuple[Lease, Instant | None]]) -> list[oracle.Account]:
        accounts = super().count([])
        found = {account.key: account for account in accounts}
        for lease, end in usage:
            self.charge(found[lease.budget, lease.envelope], lease, end)
        return accounts
