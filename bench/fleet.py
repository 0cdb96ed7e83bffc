"""Fleets of any size that are alike in everything but size: nodes, money, and work that fills nine tenths of them.

Nodes have 8 GPUs, a fabric domain has 16 nodes, a location has at most some thousand domains. Money does not grow in
number: six families of five owners, one to three envelopes each, however large the fleet; only the amounts grow.

Nothing is forged: nodes, budgets and runs come in through the engine's own events. Runs fill every domain to the last
GPU, in the same mixture of sizes everywhere, and then some are deleted, so that each eight domains have the same holes:

    one domain in eight    8 whole nodes free
    the other seven        5 GPUs free, in pieces of 1 to 4            together 99 of 1,024: 90.3 % full

In three of each eight domains all work declares to be over in six hours, in each domain a second later than in the one
before: what is too wide for the holes is promised a start there. Elsewhere half of the runs declare ten days, and half
nothing.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from itertools import islice
from typing import TypeVar

from msgspec import Struct

from tenure.api.budget import AggregateCap, Budget, BudgetSpec, Envelope, Lending
from tenure.api.core import Namespace, Node, NodeStatus
from tenure.api.meta import OWNER_ANNOTATION, ObjectMeta
from tenure.api.run import Funding, Locality, Resources, Run, RunSpec, Runtime
from tenure.engine import Apply, Delete, Event, Outcome, Report, Sighting
from tenure.facts import Placed
from tenure.units import DAY, Instant, format_time, parse_time

NOW: Instant = parse_time("2025-11-03T09:00:00Z")
FLAVOR = "H100-80GB"
GPUS, NODES, PERIOD = 8, 16, 8
"""GPUs of a node, nodes of a domain, and after how many domains the pattern of holes repeats."""
SOON = (2, 4, 6)
"""Domains of the period where everything is over soon."""
FAMILIES = 6
TEMPLATE = {"spec": {"containers": [{"name": "main", "image": "train:1", "command": ["python", "train.py"]}]}}

SLOTS = (64, 32, 8, 8, 4, 2, 1, 1, 4, 2, 1, 1)
"""The runs that fill one domain, in the order they come in."""
HOLES = {0: (0,), **dict.fromkeys((1, 3, 5, 7), (4, 11)), **dict.fromkeys((2, 4, 6), (5, 6, 9))}
"""Which of a domain's slots are deleted again, by the domain's place in the period."""

Handle = Callable[..., list[Outcome]]
"""``Home.handle``: events in, outcomes out."""
Progress = Callable[[str, int, int], None]
"""(what, done, of): for people who wait."""
T = TypeVar("T")


def _silent(what: str, done: int, of: int) -> None:
    """Tell nobody."""


class Plan(Struct, frozen=True):
    """How large a fleet is: a location is (region, cluster), and locations of one cluster can be combined."""

    domains: int
    locations: tuple[tuple[str, str], ...]

    @property
    def gpus(self) -> int:
        return self.domains * NODES * GPUS

    @property
    def gpus_here(self) -> int:
        """GPUs of one location."""
        return self.gpus // len(self.locations)

    def location(self, domain: int) -> tuple[str, str]:
        """Location by location: its domains are neighbours."""
        return self.locations[domain * len(self.locations) // self.domains]


def plan_fleet(gpus: int) -> Plan:
    """A fleet of at least so many GPUs.

    >>> [(plan_fleet(gpus).gpus, len(plan_fleet(gpus).locations)) for gpus in (1_000, 10_000, 100_000, 1_000_000)]
    [(1024, 1), (12288, 4), (106496, 8), (1007616, 8)]
    """
    count = 1 if gpus <= 2_000 else 4 if gpus <= 50_000 else 8
    locations = tuple((f"region-{place % 4}", f"gpu-{'ab'[place // 4]}") for place in range(count))
    step = PERIOD * count
    domains = -(-gpus // (NODES * GPUS * step)) * step
    return Plan(domains, locations)


# --- machines -----------------------------------------------------------------------------------------------------


def nodes(plan: Plan) -> Iterator[Node]:
    for domain in range(plan.domains):
        region, cluster = plan.location(domain)
        for slot in range(NODES):
            labels = {
                "region": region, "cluster": cluster, "fabric.domain": f"d{domain:05d}",
                "rack": f"rack-{domain * 2 + slot // 8:05d}", "gpu.flavor": FLAVOR,
            }  # fmt: skip
            yield Node(
                metadata=ObjectMeta(name=f"n{domain:05d}-{slot:02d}", labels=labels),
                status=NodeStatus(allocatable={"nvidia.com/gpu": str(GPUS), "cpu": "192"}),
            )


# --- money --------------------------------------------------------------------------------------------------------


class Account(Struct, frozen=True):
    """An owner, its namespace, and the places where it has an envelope of its own."""

    owner: str
    namespace: str
    places: tuple[int, ...]


def accounts() -> list[Account]:
    """Owners of every fleet. ``places`` count on over all envelopes and wrap around the fleet's locations."""
    out, place = [], 0
    for family in range(FAMILIES):
        for member, count in (("", 1), (":a", 2), (":b", 3), (":c", 1)):
            places = tuple(range(place, place + count))
            out.append(Account(f"org:f{family}{member}", f"f{family}", places))
            place += count
        out.append(Account(f"org:f{family}:junior", f"f{family}", out[-4].places))
    return out


def namespaces() -> list[Namespace]:
    bound = {f"f{family}": f"org:f{family}" for family in range(FAMILIES)} | {"lone": "org"}
    return [Namespace(metadata=ObjectMeta(name=name, annotations={OWNER_ANNOTATION: bound[name]})) for name in bound]


def budgets(plan: Plan) -> list[Budget]:
    return [
        *(_family_budget(plan, account) for account in accounts()),
        _lone_budget(plan, "org:poor", concurrency=32, hours=None),
        _lone_budget(plan, "org:spent", concurrency=64, hours=8),
    ]


def _family_budget(plan: Plan, account: Account) -> Budget:
    junior = account.owner.endswith(":junior")
    share = 4 if junior else plan.gpus_here // 4
    envelopes = tuple(_envelope(plan, place, share, lends=account.owner.count(":") == 1) for place in account.places)
    parents = () if account.owner.count(":") == 1 else (account.owner.rpartition(":")[0],)
    cap = AggregateCap(name="all", flavor=FLAVOR, envelopes=tuple(one.name for one in envelopes),
                       max_concurrency=share * len(envelopes) * 9 // 10)  # fmt: skip
    return Budget(
        metadata=ObjectMeta(name=account.owner.replace(":", "-")),
        spec=BudgetSpec(owner=account.owner, parents=parents, envelopes=envelopes,
                        aggregate_caps=(cap,) if len(envelopes) > 1 else ()),
    )  # fmt: skip


def _envelope(plan: Plan, place: int, share: int, *, lends: bool) -> Envelope:
    """Every other envelope has a window and hours; those of a family's head lend."""
    region, cluster = plan.locations[place % len(plan.locations)]
    timed = place % 2 == 0
    return Envelope(
        name=f"e{place:02d}", flavor=FLAVOR, selector={"region": region, "cluster": cluster}, concurrency=share,
        max_gpu_hours=share * 24 * 31 if timed else None,
        start=format_time(NOW - DAY) if timed else None, end=format_time(NOW + 30 * DAY) if timed else None,
        lending=Lending(allow=True, to=("org:*",), max_concurrency=max(1, share // 2)) if lends else None,
    )  # fmt: skip


def _lone_budget(plan: Plan, owner: str, *, concurrency: int, hours: int | None) -> Budget:
    region, cluster = plan.locations[0]
    envelope = Envelope(name="only", flavor=FLAVOR, selector={"region": region, "cluster": cluster},
                        concurrency=concurrency, max_gpu_hours=hours, sharing="None")  # fmt: skip
    return Budget(
        metadata=ObjectMeta(name=owner.replace(":", "-")), spec=BudgetSpec(owner=owner, envelopes=(envelope,))
    )


# --- work ---------------------------------------------------------------------------------------------------------


def make_run(
    name: str,
    *,
    owner: str,
    namespace: str,
    gpus: int,
    pod: int | None = None,
    group: int | None = None,
    spares: int = 0,
    spread: bool = True,
    duration: str | None = None,
    selector: dict[str, str] | None = None,
    funding: Funding | None = None,
    flavor: str = FLAVOR,
) -> Run:
    return Run(
        metadata=ObjectMeta(name=name, namespace=namespace),
        spec=RunSpec(
            owner=owner,
            resources=Resources(gpu_type=flavor, total_gpus=gpus, gpus_per_pod=pod),
            locality=Locality(group_gpus=group, allow_cross_group_spread=spread, selector=selector or {}),
            spares_per_group=spares,
            funding=funding or Funding(),
            runtime=Runtime(expected_duration=duration),
            template=TEMPLATE,
        ),
    )


def build(handle: Handle, plan: Plan, *, progress: Progress = _silent) -> None:
    """Bring a fleet up through ``handle`` and fill it."""
    furnish(handle, plan, now=NOW, progress=progress)
    fill(handle, plan, now=NOW, progress=progress)


def furnish(handle: Handle, plan: Plan, *, now: Instant, progress: Progress = _silent) -> None:
    """The empty fleet: who is who, money, machines."""
    handle(Apply(tuple(namespaces())), Apply(tuple(budgets(plan))), now=now)
    for done, chunk in enumerate(_chunks(nodes(plan), 64 * NODES)):
        handle(Apply(tuple(chunk)), now=now)
        progress("nodes", min(plan.domains, 64 * (done + 1)), plan.domains)


def fill(handle: Handle, plan: Plan, *, now: Instant, progress: Progress = _silent) -> None:
    """Work for every domain to the last GPU first, then the holes."""
    payers = _payers(plan)
    doomed: dict[str, list[str]] = {}
    for first in range(0, plan.domains, 32):
        applies, holes = _work(plan, payers, range(first, min(first + 32, plan.domains)))
        pods = placed(handle(*applies, now=now))
        handle(Report(tuple(Sighting(pod, "Bound") for key in pods for pod in pods[key])), now=now)
        doomed |= {key: pods[key] for key in holes}
        progress("runs", min(plan.domains, first + 32), plan.domains)
    for keys in _chunks(doomed, 256):
        handle(*remove(keys, doomed), now=now)


def _payers(plan: Plan) -> dict[int, list[Account]]:
    """For each location the owners that have a share of it."""
    rich = [account for account in accounts() if not account.owner.endswith(":junior")]
    count = len(plan.locations)
    return {
        location: [account for account in rich for place in account.places if place % count == location]
        for location in range(count)
    }


def _work(plan: Plan, payers: dict[int, list[Account]], domains: Iterable[int]) -> tuple[list[Event], list[str]]:
    """The runs for some domains, and those of them that will make the holes."""
    applies: list[Event] = []
    holes = []
    for domain in domains:
        here = payers[domain * len(plan.locations) // plan.domains]
        runs = list(_domain_runs(plan, here[domain % len(here)], domain))
        applies.append(Apply(tuple(runs)))
        holes += [key_of(runs[slot]) for slot in HOLES[domain % PERIOD]]
    return applies, holes


def _domain_runs(plan: Plan, payer: Account, domain: int) -> Iterator[Run]:
    region, cluster = plan.location(domain)
    for slot, gpus in enumerate(SLOTS):
        yield make_run(
            f"fill-{domain:05d}-{slot:02d}", owner=payer.owner, namespace=payer.namespace, gpus=gpus,
            pod=8 if gpus >= 8 else None, group=gpus // 2 if gpus > 8 else None,
            duration=_declared(domain, slot), selector={"region": region, "cluster": cluster},
        )  # fmt: skip


def _declared(domain: int, slot: int) -> str | None:
    if domain % PERIOD in SOON:
        return f"{6 * 3600 + domain}s"
    return "240h" if slot % 2 else None


def key_of(run: Run) -> str:
    return f"{run.metadata.namespace}/{run.metadata.name}"


def placed(outcomes: Iterable[Outcome]) -> dict[str, list[str]]:
    """The pods that were placed, by run."""
    pods: dict[str, list[str]] = {}
    for outcome in outcomes:
        for fact in outcome.facts:
            if isinstance(fact, Placed):
                pods.setdefault(fact.pod.run_key, []).append(fact.pod.key)
    return pods


def remove(runs: Iterable[str], pods: dict[str, list[str]]) -> list[Event]:
    """Undo runs by the engine's own events: delete them, waiting ones first, and see their pods gone."""
    keys = sorted(runs, key=lambda key: key in pods)
    gone = tuple(Sighting(pod, "Gone") for key in keys for pod in pods.get(key, ()))
    deletes: list[Event] = [Delete("Run", name, namespace) for namespace, name in (key.split("/") for key in keys)]
    return [*deletes, Report(gone)] if gone else deletes


def _chunks(items: Iterable[T], size: int) -> Iterator[list[T]]:
    rest = iter(items)
    while chunk := list(islice(rest, size)):
        yield chunk
