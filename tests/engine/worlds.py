"""Small random worlds: few of everything, so that every limit is felt often."""

from __future__ import annotations

from random import Random

from tenure.api.budget import Budget, Envelope
from tenure.api.core import Node
from tenure.api.run import Run
from tenure.testing import FLAVOR, budget, cap, elastic, envelope, node, run

OWNERS = ("org:a", "org:b", "org:c", "org:up", "org:top", "org:aunt", "org:cousin", "org:far")
PARENTS = {
    "org:a": ("org:up",),
    "org:b": ("org:up",),
    "org:c": ("org:up", "org:aunt"),
    "org:up": ("org:top",),
    "org:aunt": ("org:top",),
    "org:cousin": ("org:aunt",),
}
PLACES = (("us-west", "gpu-a"), ("us-east", "gpu-a"), ("us-west", "gpu-b"))
OTHER = "A100"


def random_nodes(luck: Random) -> list[Node]:
    out = []
    places = luck.sample(PLACES, luck.randint(1, 3))
    for index in range(luck.randint(2, 9)):
        region, cluster = luck.choice(places)
        out.append(
            node(
                f"n{index}",
                luck.choice((1, 2, 4, 4, 8, 8, 8)),
                region=region,
                cluster=cluster,
                domain=luck.choice("AB" if luck.random() < 0.8 else "CD"),
                rack=luck.choice(("", "r1", "r2")),
                flavor=OTHER if luck.random() < 0.05 else FLAVOR,
                cordoned=luck.random() < 0.05,
                ready=luck.random() > 0.05,
            )
        )
    return out


def random_selector(luck: Random) -> dict[str, str]:
    fine = luck.random()
    if fine < 0.12:
        return {"region": "us-west", "fabric.domain": luck.choice("AB")}
    if fine < 0.2:
        return {"rack": luck.choice(("r1", "r2"))}
    region, cluster = luck.choice((*PLACES, PLACES[0]))
    return luck.choice(
        ({"region": region}, {"region": region}, {"cluster": cluster}, {"region": region, "cluster": cluster})
    )


def random_envelope(luck: Random, name: str) -> Envelope:
    gpus = luck.choice((2, 4, 8, 8, 16, 32, 32))
    hours = luck.choice((None, None, None, gpus // 2, 2 * gpus, 4 * gpus, 9 * gpus))
    lends = luck.random() < 0.6
    starts = luck.choice((None, None, None, None, "0s", "3h"))
    ends = luck.choice((None, None, None, None, "1h", "6h", "1d"))
    if starts and ends == "1h":
        ends = "6h"
    if starts and ends:
        hours = None if hours is None else min(hours, 3 * gpus)
    return envelope(
        name,
        gpus,
        hours=hours,
        selector=random_selector(luck),
        start=starts,
        end=ends,
        sharing="None" if luck.random() < 0.2 else "Family",
        early=luck.random() < 0.3,
        lends_to=[luck.choice(("*", "org:a", "org:*", "org:b"))] if lends else None,
        lends=luck.choice((None, 1, min(4, gpus), gpus)) if lends else None,
        lends_hours=luck.choice((None, 0, hours)) if lends and hours is not None else None,
        flavor=OTHER if luck.random() < 0.04 else FLAVOR,
    )


def random_budgets(luck: Random) -> list[Budget]:
    out = []
    for owner in luck.sample(OWNERS[:3], luck.randint(1, 3)) + luck.sample(OWNERS[3:], luck.randint(0, 4)):
        name = owner.removeprefix("org:")
        envelopes = [random_envelope(luck, f"e{index}") for index in range(luck.randint(1, 3))]
        same = [one.name for one in envelopes if one.flavor == FLAVOR]
        caps = []
        if len(same) > 1 and luck.random() < 0.5:
            caps = [cap("all", same, gpus=luck.choice((4, 8, 16, 32)), hours=luck.choice((None, None, 8, 40)))]
        out.append(budget(name, *envelopes, owner=owner, parents=PARENTS.get(owner, ()), caps=caps))
    return out


def random_run(luck: Random, name: str, *, flavor: str = FLAVOR) -> Run:
    kind = luck.choice(("plain", "plain", "grouped", "grouped", "pods", "elastic"))
    pod = luck.choice((None, 1, 2, 4)) if kind != "plain" else None
    unit = pod or 1
    group, spares, shape = None, 0, None
    gpus = unit * luck.randint(1, luck.choice((8, 24)) // unit)
    if kind in ("grouped", "elastic"):
        group = unit * luck.randint(1, max(1, 8 // unit))
        spares = luck.choice((0, 0, 0, 1, 2, 4))
        groups = luck.choice((1, 1, 2, 2, 3, 4))
        gpus = group * groups
        if kind == "grouped" and unit == 1 and luck.random() < 0.4:
            gpus += luck.randint(0, group - 1)
    if kind == "elastic":
        assert group is not None
        low = group * luck.randint(1, gpus // group)
        shape = elastic(low, gpus + group, group, desired=luck.choice((None, gpus, low)))
    sponsors = luck.sample(OWNERS, luck.randint(0, 3)) if luck.random() < 0.6 else []
    where = luck.choice(({}, {}, {}, {}, {"region": "us-west"}, {"cluster": "gpu-a"}, {"rack": "r1"}))
    where = {"region": "mars"} if luck.random() < 0.02 else where
    return run(
        name,
        gpus,
        owner=luck.choice(OWNERS[:3]) if luck.random() < 0.9 else luck.choice(OWNERS),
        group=group,
        spares=spares,
        pod=pod,
        spread=luck.random() > 0.15,
        where=where,
        elastic=shape,
        sponsors=sponsors,
        max_borrow=luck.choice((None, None, 2, 8)) if sponsors else None,
        lasts=luck.choice((None, None, "30m", "2h", "8h")),
        checkpoint=luck.choice((None, None, "30m")),
        restarts=luck.choice((0, 0, 1, 2)),
        flavor=flavor,
    )
