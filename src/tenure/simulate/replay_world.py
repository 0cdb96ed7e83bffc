"""The world that a trace is replayed on: machines, money, and a Run for every job.

A trace says how many GPUs a job held, for how long and for whom; it knows nothing of this fleet. To be decided:

- **Kind of GPU.** On a fleet of one flavor every job runs on that one, whatever the trace calls its own. On a fleet of
  several a job gets the first of its kinds that the fleet has; if it names none, the flavor with the most GPUs.
- **Too wide.** A job that would not fit an empty fleet is left out, for all policies alike.
- **Money.** Unless budgets are given, each owner has one of its own that could pay for the whole fleet.
- **What it declares.** One of the ways of ``declare``, the same for all policies that are compared.
- **Pods.** Unless whole ones are asked for, a gang lies on any free GPUs, one pod on each machine that it touches. With
  whole pods it is cut into pods of one width that never cross a machine (``reference.pod_of``), for all policies alike.

>>> [node.metadata.name for node in uniform_nodes("2x2x8")]
['d0-n0', 'd0-n1', 'd1-n0', 'd1-n1']
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Sequence
from math import gcd
from typing import Literal, get_args

from msgspec import Struct

from tenure.api.budget import Budget, BudgetSpec, Envelope
from tenure.api.core import Node, NodeStatus
from tenure.api.meta import ObjectMeta
from tenure.api.policy import Policy
from tenure.api.run import Resources, Run, RunSpec, Runtime
from tenure.engine.topology import Location, Topology
from tenure.shell.nodes import NODE_COUNT_MAX
from tenure.simulate.declare import Declare, declared_by
from tenure.simulate.reference import Room, on_machines, pod_of, pooled
from tenure.simulate.trace import Job, Names, slug
from tenure.units import format_duration

Pods = Literal["any", "whole"]
POD_WAYS: tuple[Pods, ...] = get_args(Pods)
FLAVOR, REGION, CLUSTER = "gpu", "sim", "sim"
"""The labels of a uniform fleet."""
_UNIFORM = re.compile(r"([1-9]\d{0,5})x([1-9]\d{0,5})x([1-9]\d{0,3})", re.ASCII)


class LeftOut(Struct, frozen=True):
    """A job that this fleet could never run, and why."""

    job: Job
    why: str


class Machines:
    """What a fleet offers: GPUs by flavor and place, of machines that take work."""

    def __init__(self, nodes: Sequence[Node], policy: Policy) -> None:
        self.topology = Topology(policy)
        self.places: dict[str, dict[Location, int]] = {}
        self.sizes: dict[str, list[int]] = {}
        """GPUs of each machine, by flavor."""
        for node in nodes:
            row = self.topology.put(node)
            if row.open and row.site is not None:
                places = self.places.setdefault(row.site.flavor, {})
                places[row.site.location] = places.get(row.site.location, 0) + row.gpus
                self.sizes.setdefault(row.site.flavor, []).append(row.gpus)
        self.gpus = {flavor: sum(places.values()) for flavor, places in sorted(self.places.items())}

    @property
    def total(self) -> int:
        return sum(self.gpus.values())

    @property
    def domains(self) -> int:
        rows = (row for row in self.topology.rows.values() if row.site is not None)
        return len({(row.site.flavor, row.site.location, row.site.fabric) for row in rows if row.site is not None})

    def units(self, pods: Pods) -> dict[str, int]:
        """By flavor, the width into which all machines can be cut; empty if gangs lie on any GPUs."""
        return {} if pods == "any" else {flavor: gcd(*sizes) for flavor, sizes in sorted(self.sizes.items())}

    def room(self, flavor: str, pods: Pods) -> Room:
        """What a reference sees of a flavor."""
        return pooled(self.gpus[flavor]) if pods == "any" else on_machines(self.sizes[flavor])

    def flavor_of(self, job: Job) -> str | None:
        if len(self.gpus) == 1:
            return next(iter(self.gpus))
        if job.flavors:
            return next((flavor for flavor in job.flavors if flavor in self.gpus), None)
        return max(self.gpus, key=lambda flavor: self.gpus[flavor], default=None)

    def widest(self, flavor: str) -> int:
        """The widest gang that could run there: a run never spans two clusters."""
        clusters: dict[str, int] = {}
        for (_, cluster), gpus in self.places[flavor].items():
            clusters[cluster] = clusters.get(cluster, 0) + gpus
        return max(clusters.values())

    def sort(self, jobs: Iterable[Job]) -> tuple[dict[str, list[Job]], list[LeftOut]]:
        """Jobs by the flavor that they run on, and those that never could."""
        sorted_: dict[str, list[Job]] = {}
        left_out = []
        for job in jobs:
            flavor = self.flavor_of(job)
            if flavor is None:
                left_out.append(LeftOut(job, f"no machine has {' or '.join(job.flavors) or 'GPUs'}"))
            elif job.gpus > (widest := self.widest(flavor)):
                left_out.append(LeftOut(job, f"{job.gpus} GPUs are more than the {widest} there are of {flavor}"))
            else:
                sorted_.setdefault(flavor, []).append(job)
        return sorted_, left_out


def uniform_nodes(text: str, gpu_resource: str = "nvidia.com/gpu") -> tuple[Node, ...] | None:
    """The machines of ``DOMAINSxNODESxGPUS``; None if that is not what the text says."""
    found = _UNIFORM.fullmatch(text)
    if found is None or int(found[1]) * int(found[2]) > NODE_COUNT_MAX or int(found[3]) > 1024:
        return None
    domains, count, gpus = map(int, found.groups())
    wide, deep = len(str(domains - 1)), len(str(count - 1))
    return tuple(
        Node(
            metadata=ObjectMeta(name=f"{domain}-n{index:0{deep}d}", labels=_labels(domain)),
            status=NodeStatus(allocatable={gpu_resource: str(gpus)}),
        )
        for domain in (f"d{number:0{wide}d}" for number in range(domains))
        for index in range(count)
    )


def _labels(domain: str) -> dict[str, str]:
    return {"region": REGION, "cluster": CLUSTER, "fabric.domain": domain, "gpu.flavor": FLAVOR}


def ample_budgets(owners: Collection[str], machines: Machines) -> tuple[Budget, ...]:
    """A budget for each owner that could pay for all machines at once."""
    envelopes = tuple(
        Envelope(
            name=f"{flavor}-{index}", flavor=flavor, selector={"region": region, "cluster": cluster}, concurrency=gpus
        )
        for flavor, places in sorted(machines.places.items())
        for index, ((region, cluster), gpus) in enumerate(sorted(places.items()))
    )
    names = Names()
    return tuple(
        Budget(metadata=ObjectMeta(name=names.name(owner)), spec=BudgetSpec(owner=owner, envelopes=envelopes))
        for owner in sorted(owners)
    )


def run_of(job: Job, flavor: str, *, declare: Declare, unit: int | None = None) -> Run:
    """The Run that stands for a job, in whole pods if machines are cut into units.

    A job that is cut waits again: its work still has to be done.
    """
    declared = declared_by(job, declare)
    return Run(
        metadata=ObjectMeta(name=job.name, namespace=slug(job.owner)),
        spec=RunSpec(
            owner=job.owner,
            resources=Resources(
                gpu_type=flavor, total_gpus=job.gpus, gpus_per_pod=None if unit is None else pod_of(job.gpus, unit)
            ),
            runtime=Runtime(
                expected_duration=None if declared is None else format_duration(declared), on_preemption="Requeue"
            ),
        ),
    )
