"""Run: a gang of GPUs that somebody asks for (SPEC 2)."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from msgspec import Meta

from tenure.api.meta import (
    API_VERSION,
    Amount,
    Condition,
    Count,
    Duration,
    Name,
    ObjectMeta,
    Owner,
    Record,
    Selector,
    Time,
    Word,
    says,
)


class Resources(Record, frozen=True, kw_only=True):
    """How many GPUs, of which kind."""

    gpu_type: Annotated[Word, says("The flavor of GPU: a node's flavor label.")]
    total_gpus: Annotated[
        Count, says("GPUs asked for, spares not counted. A malleable Run starts at this width at most.")
    ]
    gpus_per_pod: Annotated[
        Count | None,
        says("Every pod is exactly this wide; it divides every group. Left out: one pod a node."),
    ] = None


class Locality(Record, frozen=True, kw_only=True):
    """Which GPUs belong close together."""

    group_gpus: Annotated[
        Count | None,
        says("GPUs that must share one fabric domain. Left out: a malleable Run's step, else as they fit."),
    ] = None
    allow_cross_group_spread: Annotated[bool, says("May groups lie in different domains?")] = True
    selector: Annotated[Selector, says("Labels that every node of the Run must carry.")] = {}


class Malleable(Record, frozen=True, kw_only=True):
    """The widths that a Run can live with: min, min + step, ... max."""

    min_total_gpus: Annotated[Count, says("The narrowest width; a multiple of the group size.")]
    max_total_gpus: Annotated[Count, says("The widest; a whole number of steps above the narrowest.")]
    step_gpus: Annotated[Count, says("It grows and shrinks by so many GPUs; a multiple of the group size.")]
    desired_total_gpus: Annotated[
        Count | None,
        says("The width to grow or shrink to. Left out: `maxTotalGPUs`. May be changed at any time."),
    ] = None


class Funding(Record, frozen=True, kw_only=True):
    """Whose money besides the family's."""

    allow_borrow: Annotated[bool, says("May owners outside the family pay?")] = False
    max_borrow_gpus: Annotated[
        Amount | None, says("Borrowed GPUs held at any moment. Left out: no bound. Needs `allowBorrow`.")
    ] = None
    sponsors: Annotated[
        tuple[Owner, ...],
        Meta(max_length=32),
        says("Owners asked to pay, in this order. Needs `allowBorrow`."),
    ] = ()


class Runtime(Record, frozen=True, kw_only=True):
    """How it runs, and what happens when it cannot."""

    expected_duration: Annotated[
        Duration | None, says("A declared estimate, used by forecasts and safe backfill; longer than 0.")
    ] = None
    checkpoint: Annotated[
        Duration | None, says("How long it may wait, requeued, after an uncovered failure; longer than 0.")
    ] = None
    on_preemption: Annotated[Literal["Fail", "Requeue"], says("What becomes of it when it loses everything.")] = "Fail"
    max_restarts: Annotated[Amount, says("New attempts after the workload failed.")] = 0


class RunSpec(Record, frozen=True, kw_only=True):
    """What is asked for.

    Fixed once first admitted, except `desiredTotalGPUs`, `sponsors` and `maxBorrowGPUs`.
    """

    owner: Annotated[
        Owner, says("Who asks: the namespace's owner or one below it. Left out: the namespace's owner.")
    ] = ""
    resources: Annotated[Resources, says("How many GPUs, of which kind.")]
    locality: Annotated[Locality, says("Which GPUs belong close together.")] = Locality()
    spares_per_group: Annotated[Amount, says("GPUs of hot spare for each group. Needs groups.")] = 0
    malleable: Annotated[Malleable | None, says("Its widths. Left out: it always has `totalGPUs`.")] = None
    funding: Annotated[Funding, says("Whose money besides the family's.")] = Funding()
    opportunistic: Annotated[bool, says("True: may also run on other Runs' spares, and gives way at once.")] = False
    runtime: Annotated[Runtime, says("How it runs, and what happens when it cannot.")] = Runtime()
    template: Annotated[
        dict[str, Any] | None,
        says(
            "The pods' PodTemplateSpec: image, command, env, volumes. Required, with a container; only the "
            "simulator does without."
        ),
    ] = None


class Width(Record, frozen=True, kw_only=True):
    """GPUs, spares not counted."""

    min: Annotated[int, says("The narrowest width.")]
    max: Annotated[int, says("The widest.")]
    desired: Annotated[int, says("What it wants now.")]
    allocated: Annotated[int, says("What it holds.")]
    pending: Annotated[int, says("What it still waits for.")]


class SponsorShare(Record, frozen=True, kw_only=True):
    """What one sponsor pays."""

    owner: Annotated[Owner, says("The sponsor.")]
    gpus: Annotated[int, says("GPUs it pays now.")]
    gpu_hours: Annotated[float, says("GPU-hours it has paid.")]


class FundingStatus(Record, frozen=True, kw_only=True):
    """Who pays now, and who paid how much."""

    owned_gpus: Annotated[int, says("GPUs paid by the owner's own envelopes.")] = 0
    shared_gpus: Annotated[int, says("GPUs paid by the family.")] = 0
    borrowed_gpus: Annotated[int, says("GPUs paid by sponsors.")] = 0
    owned_gpu_hours: Annotated[float, says("GPU-hours of the owner's own.")] = 0.0
    shared_gpu_hours: Annotated[float, says("GPU-hours of the family.")] = 0.0
    borrowed_gpu_hours: Annotated[float, says("GPU-hours of sponsors.")] = 0.0
    sponsors: Annotated[tuple[SponsorShare, ...], Meta(max_length=256), says("Sponsor by sponsor.")] = ()


class SpareStatus(Record, frozen=True, kw_only=True):
    """The spares of one group."""

    group: Annotated[int, says("The group's index.")]
    available: Annotated[int, says("Spare GPUs it holds.")]
    consumed: Annotated[int, says("Spare GPUs that took over for failed ones.")]


class Risk(Record, frozen=True, kw_only=True):
    """The chance to lose the whole Run."""

    cut_probability: Annotated[float, says("The highest over all that threatens it, from 0 to 1.")]
    reservation: Annotated[str, says("The reservation it comes from, if it is one: namespace/name.")] = ""
    envelope: Annotated[str, says("The envelope or cap that runs short, if it is money: budget/name.")] = ""
    at: Annotated[Time, says("When it would happen.")]


class QueuePlace(Record, frozen=True, kw_only=True):
    """Where a Run without a promise stands among those who wait for the same flavor."""

    position: Annotated[int, says("Its place by age among those without a promise, from 1.")]
    ahead: Annotated[int, says("Those before it there, and all that hold a promise.")]
    waits_for: Annotated[Literal["machines", "money"], says("Money, if no envelope could pay for it now.")]
    reason: Annotated[str, says("What it waits for, in a sentence.")] = ""


class Estimate(Record, frozen=True, kw_only=True):
    """When a Run is likely to start. It protects nothing, and no decision reads it."""

    likely_start: Annotated[Time | None, says("By then it has started in half of all cases.")] = None
    latest_likely: Annotated[Time | None, says("By then it has started in nine of ten.")] = None
    as_of: Annotated[Time, says("When this was estimated.")]
    basis: Annotated[
        Literal["history", "declared", "none"],
        says(
            "What it rests on: how long such Runs really took, what is declared alone, or nothing that says when: then "
            "there are no times."
        ),
    ]


class RunStatus(Record, frozen=True, kw_only=True):
    """How it stands: derived from the ledger, never read back by a decision."""

    phase: Annotated[Literal["Pending", "Running", "Completed", "Failed"], says("Derived from the conditions.")] = (
        "Pending"
    )
    conditions: Annotated[
        tuple[Condition, ...],
        Meta(max_length=32),
        says("Admitted, Scheduled, Running, Completed, Failed, Blocked."),
    ] = ()
    message: Annotated[str, says("What is going on, in a sentence.")] = ""
    leases: Annotated[tuple[Name, ...], Meta(max_length=20_000), says("Its open leases.")] = ()
    pending_reservation: Annotated[Name | None, says("The reservation it waits for.")] = None
    earliest_start: Annotated[Time | None, says("The planned start of that reservation.")] = None
    promised_by: Annotated[Time | None, says("The latest start promised, where it is not the planned one.")] = None
    queue: Annotated[QueuePlace | None, says("Its place, while it waits without a promise.")] = None
    estimate: Annotated[Estimate | None, says("When it is likely to start, while it waits.")] = None
    restarts: Annotated[int, says("Attempts after the workload failed.")] = 0
    width: Annotated[Width | None, says("How wide it is.")] = None
    funding: Annotated[FundingStatus | None, says("Who pays.")] = None
    spares: Annotated[tuple[SpareStatus, ...], Meta(max_length=20_000), says("Its spares, group by group.")] = ()
    risk: Annotated[Risk | None, says("The chance to lose the whole Run.")] = None


class Run(Record, frozen=True, kw_only=True):
    """A gang of GPUs that somebody asks for. Namespaced."""

    api_version: Literal["rq.davidlangworthy.io/v1"] = API_VERSION
    kind: Literal["Run"] = "Run"
    metadata: ObjectMeta
    spec: RunSpec
    status: RunStatus = RunStatus()
