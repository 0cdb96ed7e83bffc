"""Lease: the immutable fact that a Run held GPUs of one node, from when to when, and who paid (SPEC 2)."""

from __future__ import annotations

from typing import Annotated, Literal

from msgspec import Meta

from tenure.api.meta import (
    API_VERSION,
    Amount,
    ClosureReason,
    Name,
    ObjectMeta,
    Owner,
    Record,
    RunRef,
    Time,
    Word,
    says,
)

Role = Literal["Active", "Spare", "Borrowed"]
OpenReason = Literal["Start", "Grow", "Swap", "Refund"]


class Slice(Record, frozen=True, kw_only=True):
    """GPUs of one node."""

    nodes: Annotated[tuple[Name, ...], Meta(min_length=1, max_length=1), says("The node; always one.")]
    gpus: Annotated[tuple[Amount, ...], Meta(min_length=1, max_length=4096), says("GPU ordinals on it, each once.")]
    role: Annotated[Role, says("Active: the Run's width. Spare: hot standby. Borrowed: opportunistic work on a spare.")]


class Interval(Record, frozen=True, kw_only=True):
    """From when; until when is in the status."""

    start: Annotated[Time, says("When the lease opened.")]


class LeaseSpec(Record, frozen=True, kw_only=True):
    """Immutable from the moment it is written."""

    owner: Annotated[Owner, says("The Run's owner.")]
    run_ref: Annotated[RunRef, says("The Run that held the GPUs.")]
    comp_path: Annotated[tuple[str, ...], Meta(max_length=8), says("The group and the domain that it served.")]
    slice: Annotated[Slice, says("Which GPUs.")]
    interval: Annotated[Interval, says("From when.")]
    paid_by_envelope: Annotated[Word, says("The envelope that pays.")]
    paid_by_budget: Annotated[Name, says("The Budget it is in; envelope names are unique only within one.")]
    paid_by_owner: Annotated[Owner, says("That Budget's owner, so that an audit outlives the Budget.")]
    reason: Annotated[OpenReason, says("Why it exists.")]


class LeaseStatus(Record, frozen=True, kw_only=True):
    """Set once, when the GPUs are really free."""

    closed: Annotated[bool, says("Whether it is over.")] = False
    end_time: Annotated[Time | None, says("When it ended, itself outside.")] = None
    closure_reason: Annotated[ClosureReason | None, says("Why it ended.")] = None


class Lease(Record, frozen=True, kw_only=True):
    """The immutable fact that a Run held GPUs of one node, from when to when, and who paid.

    In its Run's namespace.
    """

    api_version: Literal["rq.davidlangworthy.io/v1"] = API_VERSION
    kind: Literal["Lease"] = "Lease"
    metadata: ObjectMeta
    spec: LeaseSpec
    status: LeaseStatus = LeaseStatus()
