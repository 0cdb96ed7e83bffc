"""What an estimate is made from, and what it says: plain records of one flavor in one cluster.

Whoever asks fills them in from the state and the ledger; nothing here knows either.
"""

from __future__ import annotations

from typing import Literal, NamedTuple

from tenure.units import HOUR, Instant, Micros

Basis = Literal["history", "declared", "none"]
Lacking = Literal["", "machines", "money", "run times"]
"""Why there are no times: too few machines, no money in sight, or nobody knows how long what is in the way runs."""


class Pool(NamedTuple):
    """The machines of one flavor in one cluster."""

    free: int
    """GPUs that nobody holds now."""
    patience: Micros = 24 * HOUR
    """Work that declares no end may start inside a promise that is further off than this, until its bound."""


class Running(NamedTuple):
    """A run that holds GPUs."""

    key: str
    owner: str
    gpus: int
    started: Instant
    ends: Instant | None
    """Its declared end; None if it declares none."""
    cut_at: Instant | None = None
    """When it will be cut for a promise, at the latest; None if it will not."""


class Promised(NamedTuple):
    """A run that waits with a promise. They come in the order of their numbers."""

    key: str
    owner: str
    gpus: int
    by: Instant
    """The bound: ``promisedBy``."""
    lasts: Micros | None
    opens: Instant = 0
    """Its money is not there before."""


class Waiting(NamedTuple):
    """A run that waits without a promise. They come by age."""

    key: str
    owner: str
    gpus: int
    lasts: Micros | None
    limit: int | None = None
    """GPUs that its owner can pay here at one instant, those in use among them; None if machines are short sooner."""


class Band(NamedTuple):
    """When a run is likely to start: by ``likely`` in half of all cases, by ``latest`` in nine of ten."""

    likely: Instant | None
    latest: Instant | None
    basis: Basis
    lacking: Lacking = ""
    replayed: tuple[Micros, Micros] | None = None
    """The waits until both, before any correction: what the correction learns from (``coverage.Past``)."""
