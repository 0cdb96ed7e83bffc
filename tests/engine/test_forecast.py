"""The earliest start equals that of a replay which tries every instant, on small random worlds (SPEC 7)."""

from __future__ import annotations

from collections import Counter
from random import Random

import pytest

from tenure.api.budget import Budget
from tenure.api.core import Node
from tenure.api.policy import Policy
from tenure.api.run import Run
from tenure.api.validate import validate
from tenure.engine.demand import compile_demand
from tenure.engine.forecast import Search, Start, slice_of
from tenure.engine.plan import Plan
from tenure.engine.starts import safe_plan
from tenure.testing import Fleet, budget, cap, elastic, envelope, node, run
from tenure.units import MINUTE, Instant
from tests.engine import oracle
from tests.engine.replay import Replay

WORLDS = 200
QUESTIONS = 20
SLICES = 4
LASTS = ("20m", "1h", "1h", "2h", "3h", "7h")


def machines(luck: Random) -> list[Node]:
    domains = luck.choice(("A", "A", "AB", "AB", "ABC"))
    regions = luck.choice((("us-west",), ("us-west",), ("us-west",), ("us-west", "us-east")))
    return [
        node(f"n{index}", luck.choice((2, 4, 4, 6, 8, 8)), domain=luck.choice(domains), region=luck.choice(regions),
             cluster=luck.choice(("gpu-a", "gpu-a", "gpu-a", "gpu-b")) if len(regions) > 1 else "gpu-a",
             rack=luck.choice(("", "", "r1")))
        for index in range(luck.randint(1, 4))
    ]  # fmt: skip


def money(luck: Random) -> list[Budget]:
    out = []
    for name in ("a", "b", "c"):
        names = ("x", "y", "z")[: luck.choice((1, 1, 2, 3))]
        envelopes = []
        for one in names:
            gpus = luck.choice((4, 8, 8, 16, 32))
            hours = luck.choice((None, None, None, None, 4 * gpus, 8 * gpus))
            where = luck.choice(({"region": "us-west"},) * 5 + ({"cluster": "gpu-a"}, {"region": "us-east"},
                                 {"fabric.domain": luck.choice("AB")}))  # fmt: skip
            start = luck.choice((None, None, None, None, None, "2h", "5h", "9h"))
            end = luck.choice((None, None, None, None, None, None, "12h", "1d"))
            if start and end:
                hours = None if hours is None else min(hours, 3 * gpus)
            lends = luck.random() < 0.4
            envelopes.append(envelope(
                one, gpus, hours=hours, selector=where, start=start, end=end, early=luck.random() < 0.15,
                reservable=luck.random() > 0.15, sharing="None" if luck.random() < 0.15 else "Family",
                lends_to=["org:*"] if lends else None, lends=luck.choice((None, 2, gpus)) if lends else None,
                lends_hours=luck.choice((None, hours)) if lends else None,
            ))  # fmt: skip
        caps = []
        for number in range(luck.choice((0, 0, 1, 2)) if len(names) > 1 else 0):
            some = luck.sample(names, 2)
            caps.append(cap(f"cap{number}", some, gpus=luck.choice((4, 8, 16)), hours=luck.choice((None, None, 30))))
        out.append(budget(name, *envelopes, parents=("org:up",) if name != "c" else (), caps=caps))
    return out


def work(luck: Random, name: str, *, largest: int = 20) -> Run:
    kind = luck.choice(("plain", "plain", "pods", "grouped", "grouped", "elastic"))
    pod = luck.choice((None, 2, 4)) if kind != "plain" else None
    unit, group, shape = pod or 1, None, None
    gpus = unit * luck.randint(1, max(1, largest // unit))
    if kind in ("grouped", "elastic"):
        group = unit * luck.randint(1, max(1, 6 // unit))
        gpus = group * luck.randint(1, max(1, largest // group))
        if kind == "grouped" and not pod and luck.random() < 0.3:
            gpus += luck.randint(0, group - 1)
    if kind == "elastic":
        assert group is not None
        low = group * luck.randint(1, gpus // group)
        shape = elastic(low, gpus + group, group, desired=luck.choice((None, gpus, low)))
    sponsors = luck.sample(("org:b", "org:c"), luck.randint(1, 2)) if luck.random() < 0.4 else []
    return run(
        name, gpus, owner=luck.choice(("org:a", "org:a", "org:b", "org:c")), group=group, pod=pod, elastic=shape,
        spares=luck.choice((0, 0, 1, 2)) if group else 0, spread=luck.random() > 0.2, sponsors=sponsors,
        max_borrow=luck.choice((None, None, 4)) if sponsors else None,
        lasts=None if luck.random() < 0.12 else luck.choice(LASTS),
        where=luck.choice(({}, {}, {}, {}, {"region": "us-west"}, {"rack": "r1"}, {"fabric.domain": "A"})),
    )  # fmt: skip


def world(seed: int) -> Fleet:
    """Runs come, start, end early, overstay, are deleted; some wait with a reservation."""
    luck = Random(f"world {seed}")
    policy = Policy(patience=luck.choice(("30m", "3h", "24h", "1000h")), lookahead=luck.choice(("30m", "1h")))
    fleet = Fleet(*machines(luck), *money(luck), policy=policy, secret="forecast")
    for index in range(luck.randint(4, 12)):
        wanted = work(luck, f"r{index}", largest=luck.choice((4, 8, 16)))
        assert not validate(wanted), [error.sentence() for error in validate(wanted)]
        fleet.apply(wanted)
        if fleet.pods(f"lab/r{index}") and luck.random() < 0.9:
            fleet.bind(f"lab/r{index}")
        if luck.random() < 0.6:
            fleet.report("Gone", *fleet.state.leaving)
            fleet.report("Bound", *fleet.state.pods)
            fleet.later(luck.choice(("1m", "10m", "45m", "1h")))
        if luck.random() < 0.15 and (running := [key for key in sorted(fleet.state.runs) if fleet.pods(key)]):
            key = luck.choice(running)
            fleet.delete("Run", key) if luck.random() < 0.5 else fleet.succeed(key)
        if luck.random() < 0.7:
            fleet.report("Gone", *fleet.state.leaving)
    return fleet


def worth_asking(luck: Random, fleet: Fleet) -> Run:
    """Mostly runs that an empty fleet would serve, with the money that there is."""
    for _ in range(4):
        wanted = work(luck, "wanted", largest=luck.choice((6, 12, 20)))
        nodes, budgets = (row.node for row in fleet.state.topology.rows.values()), fleet.state.budgets.values()
        answer = oracle.plan(nodes, (), budgets, (), wanted, fleet.now, fleet.state.policy)
        if not isinstance(answer, oracle.Refusal) or answer.outcome == "wait":
            break
    return wanted


def ask(seed: int, count: Counter[str]) -> None:
    fleet = world(seed)
    luck = Random(f"questions {seed}")
    state, now, replay = fleet.state, fleet.now, Replay(fleet)
    evicted = Replay(fleet, evicted=True)
    count["reserved"] += len(replay.claims)
    count["overstayed"] += any(lease.until is not None and lease.until <= now for lease in replay.leases)
    for index in range(QUESTIONS):
        wanted = worth_asking(luck, fleet)
        demand = compile_demand(wanted)
        since = now if luck.random() < 0.7 else now + luck.randint(0, 600) * MINUTE
        expected = replay.earliest(wanted, since=since)
        found = Search(state, demand, now=now).earliest(since=since, limit=None)
        assert (found and found.at) == expected, (
            f"seed {seed}, question {index}: {told(replay, wanted, found, expected)}"
        )
        if found is not None:
            fits(replay, found, wanted)
            if expected is not None and expected > since:
                short = Search(state, demand, now=now).earliest(since=since, limit=expected - 1)
                assert short is None, f"seed {seed}, question {index}: there is nothing before"
        count["never" if expected is None else "now" if expected == now else "later"] += 1
        count["window"] += found is not None and found.aligned
        if state.timeline.overdue:
            with state.timeline.without(tuple(state.timeline.overdue)):
                sooner = Search(state, demand, now=now).earliest(since=now + 1, limit=None)
            expected = evicted.earliest(wanted, since=now + 1)
            assert (sooner and sooner.at) == expected, f"seed {seed}, question {index}: without who is overdue"
            count["evicted"] += expected is not None and (found is None or expected < found.at)
        starts = isinstance(safe_plan(state, demand, now=now), Plan)
        assert starts == replay.starts(wanted, now), f"seed {seed}, question {index}: to start now"


def told(replay: Replay, wanted: Run, found: Start | None, expected: Instant | None) -> str:
    def offset(at: Instant | None) -> str:
        return "never" if at is None else f"{(at - replay.now) / MINUTE:g}m"

    instants = ", ".join(offset(at) for at in replay.instants)
    return f"found {offset(found and found.at)}, expected {offset(expected)} of {instants}\n{wanted.spec}"


def fits(replay: Replay, found: Start, wanted: Run) -> None:
    """Each node really has what the plan takes of it, for the whole time."""
    demand = compile_demand(wanted)
    for share in slice_of(found.plan, at=found.at, duration=demand.duration).shares:
        gpus = int(replay.fleet.node(share.node).status.allocatable["nvidia.com/gpu"])
        assert share.gpus <= replay.free(share.node, gpus, found.at, demand.duration)


@pytest.mark.parametrize("part", range(SLICES))
def test_the_earliest_start_is_that_of_a_replay_of_every_instant(part: int) -> None:
    count: Counter[str] = Counter()
    for seed in range(part, WORLDS, SLICES):
        ask(seed, count)
    asked = WORLDS // SLICES * QUESTIONS
    for what, least in (("now", 20), ("later", 4), ("never", 10), ("window", 60)):
        assert count[what] > asked // least, f"too few {what}: the worlds say little, {count}"
    assert count["reserved"] > WORLDS // SLICES // 2
    assert count["overstayed"] > WORLDS // SLICES // 20
    assert count["evicted"], "nobody who is overdue is in anybody's way"
