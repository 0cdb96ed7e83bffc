"""The port between verbs and homes: what a verb may ask of a fleet, wherever its truth is kept.

Verbs know this module and nothing behind it. ``local.py`` is an embedded fleet's file, ``cluster.py`` an API server;
both answer questions from a ledger (``recorded.py``), and differ in how they are told. Objects are API objects,
explanations and leases are the ledger's own records, and the few records below carry what an API object does not say
by itself.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Literal, Protocol, Unpack

from msgspec import Struct

from tenure.api.budget import Budget
from tenure.api.core import Node, Pod
from tenure.api.errors import FieldError
from tenure.api.policy import Policy
from tenure.api.run import Estimate, QueuePlace, Run
from tenure.facts import Froze, Lease, Reason, Reservation, Resolved, Verdict
from tenure.ledger import (
    Charge,
    CutRow,
    Decision,
    LeaseRow,
    Note,
    PlanRow,
    PromiseRow,
    ReservationRow,
    ResolutionRow,
    RunRow,
    UsageKey,
)
from tenure.ledger.queries import Which
from tenure.units import GpuMicros, Instant

if TYPE_CHECKING:
    from tenure.engine.alternatives import Alternative
    from tenure.engine.asked import Room
    from tenure.engine.waits import Rest
    from tenure.ledger import Head, Link
    from tenure.shell.logs import LogFile

Telling = Callable[[str, int, int], None]
"""Hears how far something has come: what, how much is done, of how much."""
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
    """Asked for: of an elastic run, what it desires now."""
    need: int
    """What it is charged for at its narrowest: active and spare."""
    held: int
    """Open Active GPUs."""
    created: Instant | None
    started: Instant | None
    retry_at: Instant | None
    """After a failed start: the next try."""
    planned: Instant | None
    """While it waits: the start that its reservation plans."""
    by: Instant | None = None
    """The bound of its promise, if it holds one."""
    queue: QueuePlace | None = None
    """Its place, while it waits without a promise."""
    promise: str
    """The state of its reservation while it waits: Pending, Blocked or Active; empty if it has none."""
    attempt: int | None
    """None: its object is all that tells of it, and it holds no lease that does."""
    restarts: int
    stopping: bool
    requeued: bool
    """It was cut, and waits to start again."""
    reason: str
    message: str
    taken: bool = True
    """Whether the ledger knows it; if not, its object is all that tells of it."""

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


class SponsorLine(Struct, frozen=True, kw_only=True):
    """An envelope that a run would ask to lend, and what it would answer now."""

    place: int | None
    """The sponsor's place in the list, from 1; None: it is asked after the list."""
    owner: str
    relation: str
    """sponsor, ancestor or cousin; or sibling, parent: it pays as family, before any sponsor is asked."""
    budget: str = ""
    """Empty, like the envelope: the owner has none of this flavor."""
    envelope: str = ""
    lends: bool = False
    gpus: int = 0
    """What it could give now, if it were the only one to be asked."""
    limit: Reason | None = None
    """Why it could not give all that the run still wants."""


class LendingLine(Struct, frozen=True, kw_only=True):
    """An envelope as a lender, in the window in force."""

    budget: str
    envelope: str
    owner: str
    flavor: str
    to: tuple[str, ...]
    """Who may borrow; empty: nobody."""
    lent: int
    lent_max: int | None
    used: GpuMicros
    """Lent so far."""
    committed: GpuMicros
    """What borrowers that declared a duration may still use."""
    used_max: GpuMicros | None
    room: int
    """GPUs that it could lend now."""
    bound: str
    """Which limit leaves no more: a field of the envelope, or an aggregate cap."""


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
    reservation: Reservation | None = None
    """If it would wait: what it would be promised."""
    rests: tuple[Rest, ...] = ()
    """What that counts on."""
    estimate: Estimate | None = None
    """When it would be likely to start."""
    alternatives: tuple[Alternative, ...] = ()
    """Other requests that would start earlier, the earliest first."""


class Rehearsal(Struct, frozen=True, kw_only=True):
    """What would happen if objects were applied now; nothing was."""

    refused: tuple[FieldError, ...] = ()
    runs: tuple[Planned, ...] = ()


class Made(Struct, frozen=True, kw_only=True):
    """What became of an operator's wish for room: declined, cut at once, or left to a draw; or it needed no cut."""

    declined: Reason | None = None
    resolved: Resolved | None = None
    froze: Froze | None = None


TABLE = "Table/"
"""What the name of a query table's row begins with, where it is told of."""


class Misshown(Struct, frozen=True, kw_only=True):
    """An object that says something else than the ledger."""

    object: str
    message: str
    expected: str
    found: str


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
    def estimates(self, keys: Sequence[str] | None = None) -> Mapping[str, Estimate]:
        """When waiting runs are likely to start, all of them or these (``namespace/name``): up to a minute old. Once
        all were asked for, ``run`` tells it too without any further work."""
        ...

    def leases(self, namespace: str, name: str) -> list[Lease]:
        """The open leases of a run, in the order of their names."""
        ...

    def sponsors(self, namespace: str, name: str) -> list[SponsorLine]:
        """Who would be asked to lend to a run, in order."""
        ...

    def reservation(self, namespace: str, run: str) -> Reservation | None:
        """The promise to a run that waits."""
        ...

    def budgets(self) -> list[Budget]: ...
    def lending(self) -> list[LendingLine]:
        """Every envelope that lends, or has lent GPUs out, by budget and name."""
        ...

    def pods(self, namespace: str | None = None, run: str | None = None) -> list[PodLine]: ...
    def pod(self, namespace: str, name: str) -> Pod: ...
    def nodes(self) -> list[NodeLine]: ...
    def node(self, name: str) -> Node: ...
    def slots(self) -> list[SlotLine]: ...


class Follower(Protocol):
    """A fleet as it changes."""

    def view(self) -> View: ...
    def since(self, line: RunLine) -> Instant:
        """Since when a run stands as it does."""
        ...

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
    def charges(self, *, since: Instant, until: Instant, **which: Unpack[Which]) -> list[Charge]:
        """What each envelope paid for each run on each day, as ``Ledger.charges`` finds it."""
        ...

    def notes(self, subject: str) -> list[Note]: ...
    def decisions(self, namespace: str, run: str, limit: int | None = None) -> list[Decision]: ...
    def submissions(self, namespace: str, run: str) -> list[RunRow]:
        """Every run that ever had this name, the oldest first."""
        ...

    def attempts_before(self, namespace: str, run: str) -> int:
        """The last attempt of earlier runs of this name, after which the newest one goes on counting; 0 where there
        was none, or the ledger cannot be read."""
        ...

    def find_reservations(
        self, *, namespace: str | None = None, run: str | None = None, name: str | None = None, live: bool = False
    ) -> list[ReservationRow]:
        """Reservations with their last records, in the order they were made; ``live``: those that are not over."""
        ...

    def plans(self, namespace: str, run: str) -> list[PlanRow]:
        """How the reservations of a run changed."""
        ...

    def resolutions(self, subject: str) -> list[ResolutionRow]:
        """What the resolver froze and did for a reservation or a budget."""
        ...

    def cuts(self, namespace: str, run: str) -> list[CutRow]:
        """What a run lost to the resolver."""
        ...

    def beacons(self, at_seq: int) -> dict[str, str]:
        """What the custodians had published by an entry."""
        ...

    def promises(self, *, since: Instant, until: Instant) -> list[PromiseRow]:
        """What runs that started out of a reservation had been promised."""
        ...

    def logs(self, namespace: str, run: str, *, follow: bool = False) -> list[LogFile]:
        """The files of all attempts that are still there, by attempt, rank and container; ``follow``: as they grow."""
        ...

    def settle_logs(self) -> None:
        """Wait a moment, once a run is over, for the last of what its followed files are to hold."""
        ...

    @property
    def head(self) -> Head:
        """The last entry of the ledger that the answers are from."""
        ...

    def links(self, until: int) -> Iterator[Link]:
        """The ledger from its beginning up to an entry, as it is stored."""
        ...

    def misshown(self, progress: Telling) -> Iterator[Misshown]:
        """What shows leases to others and says something else than the ledger: objects in a cluster, the query tables
        of an embedded fleet's file."""
        ...

    def rehearse(self, objects: Sequence[Run | Budget | object] = (), *, only: str = "") -> Rehearsal:
        """What would happen if these objects were applied now; ``only`` asks about a run that is there."""
        ...

    def room_for(self, key: str) -> Room | Reason:
        """Who would give way if room were made now for a run that waits, or why none can be; nothing is changed."""
        ...

    def make_room(self, key: str) -> Made:
        """Have the resolver make room now for a run that waits."""
        ...

    def submit(self, objects: Iterable[object], *, dry_run: bool = False) -> Submitted:
        """Create or change objects, all or none; ``dry_run``: go through all of it, and write nothing."""
        ...

    def amend(self, before: Run, after: Run, *, dry_run: bool = False) -> Submitted:
        """Change a run that is there: only what differs is written, so that what others change meanwhile stays."""
        ...

    def cancel(self, keys: Sequence[tuple[str, str]], *, dry_run: bool = False) -> None:
        """Delete runs, all or none."""
        ...
