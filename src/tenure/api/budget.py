"""Budget: what an owner may spend, where, when, and who else may draw on it (SPEC 2)."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from msgspec import Meta

from tenure.api.meta import (
    API_VERSION,
    Amount,
    Condition,
    Count,
    ObjectMeta,
    Owner,
    OwnerPattern,
    Record,
    Selector,
    Time,
    Word,
    says,
)


class PreActivation(Record, frozen=True, kw_only=True):
    """What an envelope is good for before its window opens."""

    allow_reservations: Annotated[bool, says("May a reservation be planned on it before `start`?")] = True
    allow_admission: Annotated[bool, says("May a Run be admitted on it before `start`?")] = False


class Lending(Record, frozen=True, kw_only=True):
    """What owners outside the family may borrow."""

    allow: Annotated[bool, says("False lends to nobody, whatever `to` says.")] = False
    to: Annotated[
        tuple[OwnerPattern, ...],
        Meta(max_length=64),
        says(
            "Who may borrow: owners in which whole segments may be `*`. A final `*` is one segment or "
            "more, any other exactly one, a lone `*` everyone. Empty lends to nobody."
        ),
    ] = ()
    max_concurrency: Annotated[
        Count | None, says("GPUs lent at one instant, at most the envelope's `concurrency`.")
    ] = None
    max_gpu_hours: Annotated[Amount | None, says("GPU-hours lent over the window, at most the envelope's own.")] = None


class Envelope(Record, frozen=True, kw_only=True):
    """An amount of GPUs of one flavor, at some place, in some window of time."""

    name: Annotated[Word, says("Unique within the Budget.")]
    flavor: Annotated[Word, says("The kind of GPU this money buys: a node's flavor label.")]
    selector: Annotated[
        Selector,
        Meta(min_length=1),
        says("Node labels this money may be spent on; all must match, and it is not empty."),
    ]
    concurrency: Annotated[Count, says("GPUs at one instant.")]
    max_gpu_hours: Annotated[
        Amount | None,
        says("GPU-hours over the window; at most `concurrency` x the window's hours where it has both ends."),
    ] = None
    start: Annotated[Time | None, says("Where the window begins. Left out: it is open already.")] = None
    end: Annotated[Time | None, says("Where the window ends, itself outside: `[start, end)`. Left out: never.")] = None
    sharing: Annotated[Literal["Family", "None"], says("May family draw on the excess?")] = "Family"
    pre_activation: Annotated[PreActivation, says("What it is good for before `start`.")] = PreActivation()
    lending: Annotated[Lending | None, says("What owners outside the family may borrow. Left out: nothing.")] = None


class AggregateCap(Record, frozen=True, kw_only=True):
    """A bound on several envelopes of one flavor together."""

    name: Annotated[Word, says("Unique within the Budget.")]
    flavor: Annotated[Word, says("The flavor of every envelope it bounds.")]
    envelopes: Annotated[
        tuple[Word, ...],
        Meta(min_length=1, max_length=64),
        says("The envelopes of this Budget that it bounds."),
    ]
    max_concurrency: Annotated[Count | None, says("GPUs at one instant over all of them.")] = None
    max_gpu_hours: Annotated[Amount | None, says("GPU-hours over all of them.")] = None


class BudgetSpec(Record, frozen=True, kw_only=True):
    """What is granted."""

    owner: Annotated[Owner, says("Whose money it is.")]
    envelopes: Annotated[
        tuple[Envelope, ...], Meta(min_length=1, max_length=128), says("What may be spent; at least one.")
    ]
    parents: Annotated[
        tuple[Owner, ...],
        Meta(max_length=16),
        says("The owner's parents in the family, a graph without cycles. Only what is listed counts."),
    ] = ()
    aggregate_caps: Annotated[
        tuple[AggregateCap, ...], Meta(max_length=32), says("Bounds over several envelopes.")
    ] = ()


class Headroom(Record, frozen=True, kw_only=True):
    """What is left of an envelope."""

    name: Annotated[Word, says("The envelope.")]
    flavor: Annotated[Word, says("Its flavor.")]
    concurrency: Annotated[int, says("GPUs still free to use at this instant.")]
    gpu_hours: Annotated[float | None, says("GPU-hours left: limit - used - committed. Absent without a limit.")] = None
    used_gpu_hours: Annotated[float, says("GPU-hours charged in the window in force.")]
    committed_gpu_hours: Annotated[float, says("What running claims with a declared duration may still use.")]
    used: Annotated[int, says("GPUs in its open leases, all roles.")]
    lent: Annotated[int, says("Of those, held by owners outside the family.")]
    spare: Annotated[int, says("Of those, held as hot spares.")]
    borrowed: Annotated[int, says("Of those, opportunistic work on somebody's spares.")]
    exhausts_at: Annotated[
        Time | None, says("When its hours or its window run out at the present rate, or ran out.")
    ] = None


class AggregateHeadroom(Record, frozen=True, kw_only=True):
    """What is left under an aggregate cap."""

    name: Annotated[Word, says("The cap.")]
    flavor: Annotated[Word, says("Its flavor.")]
    used: Annotated[int, says("GPUs in open leases of its envelopes.")]
    concurrency: Annotated[int | None, says("GPUs still free to use, if it bounds them.")] = None
    gpu_hours: Annotated[float | None, says("GPU-hours left: limit - used - committed. Absent without a limit.")] = None
    used_gpu_hours: Annotated[float, says("GPU-hours charged to its envelopes.")]
    committed_gpu_hours: Annotated[float, says("What running claims with a declared duration may still use.")]


class Shortage(Record, frozen=True, kw_only=True):
    """The last time that an envelope, or a cap, could no longer pay: what was done about it."""

    name: Annotated[Word, says("The envelope, or the cap; `ENVELOPE.lending`: what the envelope lends.")]
    activation: Annotated[int, says("How often the resolver has run for it.")]
    at: Annotated[Time, says("When.")]
    deficit_gpus: Annotated[int, says("GPUs that it paid for and could not.")]
    cuts: Annotated[
        tuple[dict[str, Any], ...], Meta(max_length=1024), says("Who gave way, in order; the first of them.")
    ] = ()
    intent: Annotated[dict[str, Any] | None, says("What was frozen before the draw, if there was one.")] = None
    result: Annotated[dict[str, Any] | None, says("What was drawn; `kubectl runs verify` checks both.")] = None
    draw_left_out: Annotated[
        bool | None, says("There was a draw, and it is too large for an object: `kubectl runs verify` asks the ledger.")
    ] = None


class Foreseen(Record, frozen=True, kw_only=True):
    """A shortage that is announced: an envelope, or a cap, will not be able to pay for all that it pays for."""

    name: Annotated[Word, says("The envelope, or the cap; `ENVELOPE.lending`: what the envelope lends.")]
    at: Annotated[Time, says("When it will be resolved.")]
    short_gpus: Annotated[int, says("GPUs that it may not pay for then, and that nobody else would.")]
    cut_probabilities: Annotated[
        dict[str, str], Meta(max_length=1024), says("The odds of runs to be cut whole, the likeliest of them.")
    ] = {}


class BudgetStatus(Record, frozen=True, kw_only=True):
    """Derived from the ledger; never read back by a decision."""

    headroom: Annotated[tuple[Headroom, ...], Meta(max_length=128), says("One for each envelope.")] = ()
    aggregate_headroom: Annotated[
        tuple[AggregateHeadroom, ...], Meta(max_length=32), says("One for each aggregate cap.")
    ] = ()
    conditions: Annotated[tuple[Condition, ...], Meta(max_length=32), says("What is to be said about it.")] = ()
    shortages: Annotated[
        tuple[Shortage, ...], Meta(max_length=160), says("The last record of the resolver for each envelope and cap.")
    ] = ()
    foreseen: Annotated[
        tuple[Foreseen, ...], Meta(max_length=160), says("Shortages that are announced, or wait for their draw.")
    ] = ()


class Budget(Record, frozen=True, kw_only=True):
    """What an owner may spend, where, when, and who else may draw on it. Cluster-scoped."""

    api_version: Literal["rq.davidlangworthy.io/v1"] = API_VERSION
    kind: Literal["Budget"] = "Budget"
    metadata: ObjectMeta
    spec: BudgetSpec
    status: BudgetStatus = BudgetStatus()
