"""The port between verbs and homes: what a verb may ask of a fleet, wherever its truth is kept.

Verbs know this module and nothing behind it. ``local.py`` answers from an embedded fleet's file; a cluster will
answer the same questions from the API server. Objects are API objects, explanations and leases are the ledger's own
records, and the few records below carry what an API object does not say by itself.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Literal, Protocol, Unpack

from msgspec import Struct

from tenure.api.budget import Budget
from tenure.api.core import Node, Pod
from tenure.api.errors import FieldError
from tenure.api.policy import Policy
from tenure.api.run import Run
from tenure.facts import Lease, Reason, Verdict
from tenure.ledger import Decision, LeaseRow, Note, UsageKey
from tenure.ledger.queries import Which
from tenure.units import GpuMicros, Instant

Change = Literal["created", "changed", "unchanged"]
NodeState = Literal["Ready", "Cordoned", "NotReady", "Tainted", "Fenced", "Quarantined", "NoGPUs"]


class RunLine(Struct, frozen=True, kw_only=True):
    """A run in one line."""

    namespace: str
    name: str
    owner: str
    flavor: str
    phase: str
    """Pending, Running, Completed or Failed."""
    blocked: bool
    """It waits for something that waiting alone does not bring."""
    gpus: int
    """Asked for."""
    need: int
    """What it is charged for at its narrowest: active and spare."""
    held: int
    """Open Active GPUs."""
    created: Instant | None
    started: Instant | None
    retry_at: Instant | None
    """After a failed start: the next try."""
    attempt: int
    restarts: int
    stopping: bool
    reason: str
    message: str

    @property
    def key(self) -> str:
        return f"{self.namespace}/{self.name}"

    @property
    def over(self) -> bool:
        return self.phase in ("Completed", "Failed")


class PodLine(Struct, frozen=True, kw_only=True):
    """A pod that is wanted or not yet gone."""

    namespace: str
    name: str
    run: str
    rank: int
    group: int
    node: str
    gpus: tuple[int, ...]
    phase: str
    since: Instant
    code: int | None
    message: str
    stopping: bool


class NodeLine(Struct, frozen=True, kw_only=True):
    """A machine: where it is, what it has, and whether it takes work."""

    name: str
    flavor: str
    region: str
    cluster: str
    domain: str
    rack: str
    gpus: int
    held: int
    free: int
    state: NodeState
    fault: Reason | None
    leases: tuple[Lease, ...]


class SlotLine(Struct, frozen=True, kw_only=True):
    """How many gangs of one size fit a domain now, and how many would if its free GPUs were not scattered."""

    flavor: str
    region: str
    cluster: str
    domain: str
    free: int
    size: int
    fit: int
    ideal: int


class Submitted(Struct, frozen=True, kw_only=True):
    """What became of objects that were applied: refused as a whole, or what happened to each."""

    refused: tuple[FieldError, ...] = ()
    changes: tuple[tuple[str, Change], ...] = ()
    """(``Run/namespace/name`` or ``Budget/name``, what happened), in the order given."""
    decided: bool = False
    """Whether decisions were taken at once; otherwise nothing drives this fleet yet."""


class Planned(Struct, frozen=True, kw_only=True):
    """What would become of a run."""

    line: RunLine
    verdict: Verdict | None
    """None if the run is there already and does not wait."""
    leases: tuple[Lease, ...] = ()


class Rehearsal(Struct, frozen=True, kw_only=True):
    """What would happen if objects were applied now; nothing was."""

    refused: tuple[FieldError, ...] = ()
    runs: tuple[Planned, ...] = ()


class LogFile(Struct, frozen=True, kw_only=True):
    """Where one container of one pod writes."""

    pod: str
    attempt: int
    rank: int
    group: int
    container: str
    path: Path


class View(Protocol):
    """Everything at one instant."""

    @property
    def now(self) -> Instant: ...
    @property
    def policy(self) -> Policy: ...
    def lines(self, namespace: str | None = None) -> list[RunLine]:
        """Runs of one namespace or of all, by namespace and name."""
        ...

    def line(self, namespace: str, name: str) -> RunLine | None: ...
    def run(self, namespace: str, name: str) -> Run: ...
    def leases(self, namespace: str, name: str) -> list[Lease]:
        """The open leases of a run, in the order of their names."""
        ...

    def budgets(self) -> list[Budget]: ...
    def pods(self, namespace: str | None = None, run: str | None = None) -> list[PodLine]: ...
    def pod(self, namespace: str, name: str) -> Pod: ...
    def nodes(self) -> list[NodeLine]: ...
    def node(self, name: str) -> Node: ...
    def slots(self) -> list[SlotLine]: ...


class Follower(Protocol):
    """A fleet as it changes."""

    def view(self) -> View: ...
    def wait(self, seconds: float) -> list[Note] | None:
        """What happened since the last call; None if nothing changed within so many seconds."""
        ...


class Fleet(Protocol):
    """A fleet that can be asked and told."""

    def close(self) -> None: ...
    def __enter__(self) -> Fleet: ...
    def __exit__(self, *_: object) -> None: ...
    @property
    def name(self) -> str:
        """What to call it."""
        ...

    @property
    def driven(self) -> bool:
        """Whether somebody lets time pass and runs what was decided."""
        ...

    @property
    def drive_command(self) -> str:
        """How to have it driven."""
        ...

    def view(self, at: Instant | None = None) -> View:
        """The present, or any instant of the past."""
        ...

    def follow(self) -> Follower: ...
    def find_leases(
        self,
        *,
        at: Instant | None = None,
        since: Instant | None = None,
        until: Instant | None = None,
        open_only: bool = False,
        newest: bool = False,
        limit: int | None = None,
        **which: Unpack[Which],
    ) -> list[LeaseRow]:
        """Leases, open and closed, as ``Ledger.leases`` finds them."""
        ...

    def usage(
        self, *, by: UsageKey, since: Instant, until: Instant, **which: Unpack[Which]
    ) -> dict[str, GpuMicros]: ...
    def notes(self, subject: str) -> list[Note]: ...
    def decisions(self, namespace: str, run: str, limit: int | None = None) -> list[Decision]: ...
    def logs(self, namespace: str, run: str) -> list[LogFile]:
        """The files of all attempts that are still there, by attempt, rank and container."""
        ...

    def rehearse(self, objects: Sequence[Run | Budget | object] = (), *, only: str = "") -> Rehearsal:
        """What would happen if these objects were applied now; ``only`` asks about a run that is there."""
        ...

    def submit(self, objects: Iterable[object]) -> Submitted: ...
    def cancel(self, keys: Sequence[tuple[str, str]]) -> None:
        """Delete runs, all or none."""
        ...
