"""A study: one trace, one fleet, the engine and what it is compared with. What ``-o json`` prints and a report shows.

The references (``reference.py``) see one pool of GPUs for each flavor, or its machines where pods are whole; they know
neither topology nor budgets. All policies get the same jobs, and hear the same declarations.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import Any

import msgspec
from msgspec import Struct

from tenure.api.meta import to_wire
from tenure.simulate.declare import Declarations, count_declarations
from tenure.simulate.reference import Policy, count, play
from tenure.simulate.replay import Progress, Replay, Replayed, Setting
from tenure.simulate.replay_world import LeftOut, Machines, Pods
from tenure.simulate.stats import Summary
from tenure.simulate.trace import Job, Trace
from tenure.units import DAY, HOUR


class TraceInfo(Struct, frozen=True, kw_only=True, rename="camel"):
    """Where jobs came from."""

    source: str
    jobs: int
    left_out: int
    """Rows that could not be used."""
    processors: int | None = None
    """How many the machine had on which they ran, if the file says so."""


class FleetInfo(Struct, frozen=True, kw_only=True, rename="camel"):
    """On what they ran."""

    name: str
    machines: int
    domains: int
    gpus: dict[str, int]
    """By flavor."""

    @property
    def total(self) -> int:
        return sum(self.gpus.values())


class Load(Struct, frozen=True, kw_only=True, rename="camel"):
    """What was asked of the fleet."""

    jobs: int
    owners: int
    span_days: float
    """From the start of the trace to the last submission."""
    gpu_hours: float
    offered: float
    """GPU-hours asked for over GPU-hours there are in the span."""


class Study(Struct, frozen=True, kw_only=True, rename="camel"):
    """Everything that was found out."""

    traces: tuple[TraceInfo, ...]
    fleet: FleetInfo
    load: Load
    declared: Declarations
    pods: Pods
    policy: dict[str, Any]
    left_out: dict[str, int]
    """Jobs that this fleet could never run, by why."""
    tenure: Replayed
    references: dict[str, Summary]
    ratios: dict[str, float]
    """Tenure's mean wait over that of each reference; absent where the reference had no wait."""

    @property
    def thrown_share(self) -> float:
        """GPU-hours thrown away over GPU-hours asked for; above 1 if more was thrown away than there was to do."""
        return self.tenure.thrown.gpu_hours / self.load.gpu_hours if self.load.gpu_hours else 0.0

    @property
    def summaries(self) -> list[Summary]:
        return [self.tenure.summary, *self.references.values()]


def study(
    setting: Setting,
    *,
    name: str,
    traces: Sequence[Trace],
    machines: Machines,
    left_out: Sequence[LeftOut],
    compare: Sequence[Policy] = (),
    progress: Progress | None = None,
) -> Study:
    """Replay the jobs under every policy."""
    references: dict[str, Summary] = {policy: refer(policy, setting, machines) for policy in compare}
    tenure = Replay(setting, progress=progress).play()
    jobs = [job for job, _ in setting.all_jobs()]
    return Study(
        traces=tuple(_info(trace) for trace in traces),
        fleet=FleetInfo(name=name, machines=len(setting.nodes), domains=machines.domains, gpus=machines.gpus),
        load=load_of(jobs, gpus=machines.total),
        declared=count_declarations(jobs, setting.declare),
        pods=setting.pods,
        policy=to_wire(setting.policy),
        left_out=dict(Counter(one.why for one in left_out)),
        tenure=tenure,
        references=references,
        ratios={
            policy: tenure.summary.wait_hours.mean / summary.wait_hours.mean
            for policy, summary in references.items()
            if summary.wait_hours.mean
        },
    )


def refer(policy: Policy, setting: Setting, machines: Machines) -> Summary:
    """What a reference policy makes of the same jobs, declared alike."""
    stays = [
        stay
        for flavor, jobs in setting.jobs.items()
        for stay in play(policy, jobs, machines.room(flavor, setting.pods), declare=setting.declare)
    ]
    horizon = max((stay.job.submit for stay in stays), default=0)
    return count(policy, stays, gpus=machines.total, horizon=horizon).summary()


def _info(trace: Trace) -> TraceInfo:
    return TraceInfo(
        source=trace.source, jobs=len(trace.jobs), left_out=trace.left_out, processors=trace.processors
    )  # fmt: skip


def load_of(jobs: Sequence[Job], *, gpus: int) -> Load:
    span = max((job.submit for job in jobs), default=0)
    work = sum(job.gpus * job.duration for job in jobs)
    return Load(
        jobs=len(jobs),
        owners=len({job.owner for job in jobs}),
        span_days=span / DAY,
        gpu_hours=work / HOUR,
        offered=work / (gpus * span) if span else 0.0,
    )


def to_tree(found: Study) -> dict[str, Any]:
    """The study as plain data."""
    tree: dict[str, Any] = msgspec.to_builtins(found)
    return tree
