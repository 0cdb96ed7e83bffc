"""Small fleets and the work they get, drawn from a seed: few of everything, so that every limit is felt often."""

from __future__ import annotations

from random import Random

from tenure.api.budget import Budget, Envelope
from tenure.api.core import Node
from tenure.api.policy import Policy
from tenure.api.run import Run
from tenure.api.validate import validate
from tenure.testing import budget, cap, elastic, envelope, node, run

OWNERS = ("org:a", "org:b", "org:c", "org:up", "org:aunt", "org:far")
PARENTS = {"org:a": ("org:up",), "org:b": ("org:up",), "org:c": ("org:aunt",)}
PLACES = (("us-west", "gpu-a"), ("us-west", "gpu-b"))


def nodes(luck: Random) -> list[Node]:
    places = luck.sample(PLACES, luck.choice((1, 1, 2)))
    size = luck.choice((4, 8))
    out = []
    for index in range(luck.randint(2, 5)):
        region, cluster = luck.choice(places)
        gpus = size if luck.random() < 0.8 else luck.choice((2, 4, 8))
        out.append(node(f"n{index}", gpus, region=region, cluster=cluster, domain=luck.choice("AAB")))
    return out


def policy(luck: Random) -> Policy:
    return Policy(
        activation_lead=luck.choice(("1m", "5m", "15m")),
        budget_grace=luck.choice(("0s", "15m", "15m")),
        on_budget_shortage=luck.choice(("Resolve", "Resolve", "Resolve", "Coast")),
        lookahead=luck.choice(("15m", "1h")),
        grow_interval=luck.choice(("1m", "10m")),
        patience=luck.choice(("0s", "2h", "8h", "24h")),
        unready_is_failure=luck.random() < 0.3,
        unready_debounce=luck.choice(("1m", "5m")),
        bind_delay=luck.choice(("0s", "5s", "40s")),
        stop_delay=luck.choice(("0s", "3s", "30s")),
    )


def _envelope(luck: Random, name: str) -> Envelope:
    gpus = luck.choice((4, 8, 8, 16, 24, 32))
    hours = luck.choice((None, None, None, 4 * gpus, 12 * gpus, 30 * gpus))
    start, end = luck.choice(((None, None),) * 6 + ((None, "30h"), ("4h", None), ("2h", "40h")))
    lends = luck.random() < 0.5
    return envelope(
        name,
        gpus,
        hours=hours,
        selector=luck.choice(({"region": "us-west"},) * 4 + ({"cluster": "gpu-a"}, {"fabric.domain": "A"})),
        start=start,
        end=end,
        sharing="None" if luck.random() < 0.2 else "Family",
        early=luck.random() < 0.3,
        lends_to=[luck.choice(("*", "org:*", "org:a"))] if lends else None,
        lends=luck.choice((None, 2, gpus)) if lends else None,
        lends_hours=luck.choice((None, hours)) if lends and hours else None,
    )


def budget_of(luck: Random, owner: str) -> Budget:
    """A valid Budget of an owner, another one each time."""
    while True:
        envelopes = [_envelope(luck, f"e{index}") for index in range(luck.choice((1, 1, 2)))]
        caps = []
        if len(envelopes) > 1 and luck.random() < 0.5:
            caps = [cap("all", [one.name for one in envelopes], gpus=luck.choice((8, 16)))]
        made = budget(owner.removeprefix("org:"), *envelopes, owner=owner, parents=PARENTS.get(owner, ()), caps=caps)
        if not validate(made):
            return made


def budgets(luck: Random) -> list[Budget]:
    owners = luck.sample(OWNERS[:3], luck.randint(2, 3)) + luck.sample(OWNERS[3:], luck.randint(0, 2))
    return [budget_of(luck, owner) for owner in sorted(owners)]


def run_of(luck: Random, name: str) -> Run:
    """A valid Run of any kind: one pod or many, groups, spares, elastic, borrowing, opportunistic."""
    while True:
        made = _run(luck, name)
        if not validate(made):
            return made


def _run(luck: Random, name: str) -> Run:
    kind = luck.choice(("plain", "plain", "grouped", "grouped", "elastic", "guest"))
    pod = luck.choice((None, 1, 2, 4)) if kind != "plain" else None
    unit = pod or 1
    group, spares, shape = None, 0, None
    gpus = unit * luck.randint(1, luck.choice((4, 8, 16)) // unit)
    if kind in ("grouped", "elastic"):
        group = unit * luck.randint(1, max(1, 4 // unit))
        spares = luck.choice((0, 0, 1, 2)) if kind == "grouped" or luck.random() < 0.3 else 0
        gpus = group * luck.choice((1, 2, 2, 3, 4))
    if kind == "elastic":
        assert group is not None
        low = group * luck.randint(1, gpus // group)
        shape = elastic(low, gpus + 2 * group, group, desired=luck.choice((None, gpus, gpus + group, low)))
    sponsors = luck.sample(OWNERS, luck.randint(1, 3)) if luck.random() < 0.4 else []
    return run(
        name,
        gpus,
        owner=luck.choice(OWNERS[:3]),
        group=group,
        spares=spares,
        pod=pod,
        spread=luck.random() > 0.15,
        where=luck.choice(({},) * 6 + ({"cluster": "gpu-a"},)),
        elastic=shape,
        sponsors=sponsors,
        max_borrow=luck.choice((None, None, 2, 8)) if sponsors else None,
        lasts=luck.choice((None, "10m", "1h", "2h", "4h", "8h")),
        checkpoint=luck.choice((None, None, "30m", "6h")),
        restarts=luck.choice((0, 0, 1, 2)),
        opportunistic=kind == "guest",
        on_preemption=luck.choice(("Fail", "Requeue")),
    )
