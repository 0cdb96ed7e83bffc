"""Reservation: the promise made to a Run that cannot start now (SPEC 2)."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from msgspec import Meta

from tenure.api.meta import API_VERSION, Count, Labels, Name, ObjectMeta, Record, RunRef, Time, Word, says


class IntendedSlice(Record, frozen=True, kw_only=True):
    """Where the Run is meant to go."""

    nodes: Annotated[tuple[Name, ...], Meta(max_length=20_000), says("The nodes.")] = ()
    domain: Annotated[Labels, says("The labels of their domain.")] = {}


class PayingEnvelope(Record, frozen=True, kw_only=True):
    """So many GPUs, paid by one envelope."""

    budget: Annotated[Name, says("The Budget.")]
    envelope: Annotated[Word, says("Its envelope.")]
    gpus: Annotated[Count, says("GPUs it pays.")]


class ReservationSpec(Record, frozen=True, kw_only=True):
    """The promise as first made; immutable."""

    run_ref: Annotated[RunRef, says("The Run that waits.")]
    intended_slice: Annotated[IntendedSlice, says("Where it is meant to go.")] = IntendedSlice()
    paying_envelopes: Annotated[tuple[PayingEnvelope, ...], Meta(max_length=256), says("Who is meant to pay.")] = ()
    earliest_start: Annotated[Time | None, says("The start promised; left out if there was none to promise.")] = None


class Remedy(Record, frozen=True, kw_only=True):
    """One thing that would free what is missing."""

    kind: Annotated[str, says("What would be done.")]
    run: Annotated[str, says("To whom.")] = ""
    gpus: Annotated[int, says("GPUs it would free.")]
    text: Annotated[str, says("In a sentence.")]


class Forecast(Record, frozen=True, kw_only=True):
    """What stands between the Run and its start."""

    deficit_gpus: Annotated[int, says("Machines that are missing.")] = 0
    short_gpus: Annotated[int, says("GPUs that nobody can pay for.")] = 0
    scope: Annotated[Labels, says("Where.")] = {}
    remedies: Annotated[
        tuple[Remedy, ...], Meta(max_length=20_000), says("From a dry run of the resolver; the first.")
    ] = ()
    confidence: Annotated[
        Literal["projected", "window-aligned", "conservative"] | None, says("What the start rests on.")
    ] = None
    cut_probabilities: Annotated[
        dict[str, str],
        Meta(max_length=20_000),
        says("The odds of running Runs to be cut, from 0 to 1; the likeliest of them."),
    ] = {}


class Resolution(Record, frozen=True, kw_only=True):
    """What the resolver did; `kubectl runs verify` checks the draw, if there was one."""

    intent: Annotated[dict[str, Any] | None, says("What was frozen before the draw.")] = None
    result: Annotated[dict[str, Any] | None, says("What was drawn; left out until the custodians have revealed.")] = (
        None
    )
    draw_left_out: Annotated[
        bool | None, says("There was a draw, and it is too large for an object: `kubectl runs verify` asks the ledger.")
    ] = None
    cuts: Annotated[
        tuple[dict[str, Any], ...], Meta(max_length=20_000), says("What was applied, in order; the first of it.")
    ] = ()


class ReservationStatus(Record, frozen=True, kw_only=True):
    """The present plan."""

    state: Annotated[
        Literal["Pending", "Blocked", "Active", "Released", "Canceled"], says("Where it is in its life.")
    ] = "Pending"
    reason: Annotated[str, says("Why, as a code for programs.")] = ""
    message: Annotated[str, says("Why, in a sentence.")] = ""
    planned_start: Annotated[Time | None, says("When the Run is planned to start.")] = None
    promised_by: Annotated[
        Time | None, says("The bound: by then it starts. What it needs is protected from then on.")
    ] = None
    planned_slice: Annotated[IntendedSlice | None, says("Where.")] = None
    countdown_seconds: Annotated[int | None, says("Seconds until then.")] = None
    activated_at: Annotated[Time | None, says("When it became Active.")] = None
    released_at: Annotated[Time | None, says("When it was Released.")] = None
    forecast: Annotated[Forecast | None, says("What stands in the way.")] = None
    resolution: Annotated[Resolution | None, says("Who gave way, once a resolver ran for it.")] = None


class Reservation(Record, frozen=True, kw_only=True):
    """The promise made to a Run that cannot start now. Namespaced, written by the scheduler alone."""

    api_version: Literal["rq.davidlangworthy.io/v1"] = API_VERSION
    kind: Literal["Reservation"] = "Reservation"
    metadata: ObjectMeta
    spec: ReservationSpec
    status: ReservationStatus = ReservationStatus()
