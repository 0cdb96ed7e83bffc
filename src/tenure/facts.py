"""The ledger's vocabulary: what an entry may say, as typed immutable records.

A decision is a list of facts. The engine decides facts, the ledger stores them, the auditor reads them, and none
of the three needs to know another. Folding the facts of all entries, in order, gives the whole state; nothing is
planned again. Instants are integer microseconds (``tenure.units``), amounts are integers.

    Entry(seq=7, at=1761955210000000, cause="apply Run/rai/train", facts=[PutRun, Decided, Opened, Placed, Moved],
    prev="9f..")

The hash of an entry is SHA-256 over its stored bytes, which contain the hash of the entry before it.
"""

from __future__ import annotations

import hashlib
from typing import Literal, dataclass_transform

import msgspec
from msgspec import Struct

from tenure.api.budget import Budget
from tenure.api.core import Namespace, Node
from tenure.api.lease import OpenReason, Role
from tenure.api.meta import wire_name
from tenure.api.policy import Policy
from tenure.api.run import Run
from tenure.draw import Intent, Result
from tenure.units import GpuMicros, Instant, Micros

FundingClass = Literal["owned", "shared", "borrowed"]
Phase = Literal["Pending", "Starting", "Running", "Stopping", "Completed", "Failed"]
PodPhase = Literal["Placed", "Bound", "Succeeded", "Failed", "Gone"]
Number = int | str


@dataclass_transform(frozen_default=True, field_specifiers=(msgspec.field,))
class _Record(Struct, frozen=True, kw_only=True, omit_defaults=True, forbid_unknown_fields=True, rename=wire_name):
    """A part of a fact."""


class _Fact(_Record, kw_only=True, tag_field="fact", tag=True):
    """One thing that is so from the moment its entry is committed."""


# --- parts ------------------------------------------------------------------------------------------------------


class Lease(_Record, kw_only=True, gc=False):
    """An interval of GPUs on one node, with one payer. Open until a ``Closed`` fact names it."""

    namespace: str
    name: str
    run: str
    uid: str
    owner: str
    attempt: int
    group: int
    domain: str
    node: str
    gpus: tuple[int, ...]
    role: Role
    start: Instant
    until: Instant | None = None
    """The end the run declared, if it declared one: what is committed is gpus x (until - now)."""
    budget: str
    envelope: str
    payer: str
    funding: FundingClass
    reason: OpenReason
    since: Instant | None = None
    """When the run took these GPUs on, if that was before: in a lease that goes on where another has ended."""

    @property
    def key(self) -> str:
        return f"{self.namespace}/{self.name}"

    @property
    def run_key(self) -> str:
        return f"{self.namespace}/{self.run}"

    @property
    def taken(self) -> Instant:
        """When the run took these GPUs on, whoever has paid for them since."""
        return self.start if self.since is None else self.since


class Pod(_Record, kw_only=True, gc=False):
    """Where one pod of an attempt runs, and on which GPUs of its node."""

    namespace: str
    name: str
    run: str
    attempt: int
    group: int
    rank: int
    node: str
    gpus: tuple[int, ...]

    @property
    def key(self) -> str:
        return f"{self.namespace}/{self.name}"

    @property
    def run_key(self) -> str:
        return f"{self.namespace}/{self.run}"


class Reason(_Record, kw_only=True):
    """A code of ``engine/reasons.py`` and the numbers of its sentence."""

    code: str
    data: dict[str, Number] = {}


class Visit(_Record, kw_only=True):
    """One envelope that cover looked at: in which tier, what it could give, what was taken, what limited it."""

    tier: int
    relation: str
    owner: str
    budget: str
    envelope: str
    funding: FundingClass
    offered: int = 0
    taken: int = 0
    limit: Reason | None = None


class Attempted(_Record, kw_only=True):
    """One location (or combination) where a plan was tried, and how it fell out."""

    where: str
    owned: int = 0
    shared: int = 0
    borrowed: int = 0
    domains: int = 0
    free: int = 0
    fault: Reason | None = None


class Segment(_Record, kw_only=True):
    """So many GPUs paid by one envelope."""

    budget: str
    envelope: str
    payer: str
    funding: FundingClass
    gpus: int


class Verdict(_Record, kw_only=True):
    """A plan's explanation: the headline, who pays, and the whole search. What ``explain`` prints."""

    outcome: Literal["start", "wait", "never"]
    headline: Reason | None = None
    width: int = 0
    segments: tuple[Segment, ...] = ()
    domains: tuple[str, ...] = ()
    visits: tuple[Visit, ...] = ()
    tried: tuple[Attempted, ...] = ()
    plan_hash: str = ""


class Mark(_Record, kw_only=True):
    """A condition of a Run, with the instant it last changed."""

    type: str
    status: Literal["True", "False", "Unknown"]
    reason: str
    message: str = ""
    at: Instant


class Life(_Record, kw_only=True):
    """Where a Run is in its life. Replaced whole by each ``Moved``."""

    phase: Phase = "Pending"
    attempt: int = 0
    restarts: int = 0
    failures: int = 0
    """Starts that failed in a row: the exponent of the backoff."""
    admitted: bool = False
    """True from the first admission on: the spec is frozen."""
    started: Instant | None = None
    until: Instant | None = None
    """When this attempt said it would end, if the run declared a duration."""
    grown: Instant | None = None
    """When an elastic run last grew, or started: the next step comes one interval later."""
    backfilled: bool = False
    """This attempt started past an older run that had a reservation: if it overstays, it is the first to go."""
    bound: Instant | None = None
    """The run declares no end, and started inside slices that are promised from then on: then it is the first to go."""
    cut: bool = False
    """Requeued after the resolver cut it: its reservation cuts nobody."""
    not_before: Instant = 0
    deadline: Instant | None = None
    """A requeued run must start before this, or it fails."""
    deleting: bool = False
    deleted: Instant | None = None
    """When its deletion was asked for."""
    width: int = 0
    after: Literal["", "Completed", "Failed", "Retry", "Requeue", "Canceled"] = ""
    """While Stopping: what it becomes when the last lease is closed."""
    reason: str = ""
    message: str = ""
    marks: tuple[Mark, ...] = ()


# --- reservations and cuts ----------------------------------------------------------------------------------------


class Share(_Record, kw_only=True, gc=False):
    """So many GPUs of one node."""

    node: str
    gpus: int


class Slice(_Record, kw_only=True):
    """When a run is to start, where, and who is to pay."""

    start: Instant | None = None
    until: Instant | None = None
    """When it would end; None if it did not declare a duration."""
    width: int = 0
    shares: tuple[Share, ...] = ()
    domain: dict[str, str] = {}
    """The labels that all its nodes share: region, cluster, and the fabric domain if it is one."""
    domains: tuple[str, ...] = ()
    """``region/cluster/fabric`` of each domain it is in."""
    segments: tuple[Segment, ...] = ()


Trigger = Literal["Activation", "Shortage", "Operator"]
CutKind = Literal["Reclaim", "Overstay", "DropSpare", "Shrink", "Lottery"]


class Cut(_Record, kw_only=True):
    """One thing that gave way: these leases of a run. In a forecast, without the leases."""

    kind: CutKind
    run: str
    """``namespace/name``"""
    owner: str
    gpus: int
    leases: tuple[str, ...] = ()


class Forecast(_Record, kw_only=True):
    """What stands between a waiting run and its start, from a dry run of the resolver."""

    deficit: int = 0
    """GPUs that groups lack in the domains of the slice: machines, by what fits, never by a count of free GPUs."""
    short: int = 0
    """GPUs that nobody can pay for."""
    scope: dict[str, str] = {}
    remedies: tuple[Cut, ...] = ()
    pool: int = 0
    """GPUs of all runs in the lottery, if there would be one: the remedies then show the fewest that could be drawn."""
    odds: dict[str, str] = {}
    """The odds of each run in the lottery to be cut, as decimal text."""


class Reservation(_Record, kw_only=True):
    """The promise to a waiting run: as first made, and as it stands. Replaced whole by each ``Reserved``."""

    namespace: str
    name: str
    uid: str
    run: str
    run_uid: str
    made: Instant
    turn: int = 0
    """Starts are promised one after the other, and counted: who was promised one earlier is not delayed by this."""
    dated: Instant | None = None
    """When the promise that stands was made: what is repaired keeps its number and its date."""
    wait: Micros = 0
    """What was to be waited when it was made: it is moved earlier only by a tenth of this, or more."""
    by: Instant | None = None
    """The bound: machines and money are protected from then on, for as long as the run lasts."""
    on_cuts: bool = False
    """It takes no cuts of its own, and counts on what an earlier promise is to cut."""
    state: Literal["Pending", "Blocked", "Active", "Released", "Canceled"] = "Pending"
    reason: str = ""
    message: str = ""
    promise: Slice
    """As first made; never changed."""
    plan: Slice
    """As it stands."""
    confidence: Literal["", "projected", "window-aligned", "conservative"] = ""
    forecast: Forecast = Forecast()
    activation: int = 0
    """How often it became Active: numbers its draws."""
    activated: Instant | None = None
    released: Instant | None = None

    @property
    def key(self) -> str:
        return f"{self.namespace}/{self.name}"

    @property
    def run_key(self) -> str:
        return f"{self.namespace}/{self.run}"


# --- facts ------------------------------------------------------------------------------------------------------


class PutBudget(_Fact, kw_only=True):
    object: Budget


class PutRun(_Fact, kw_only=True):
    object: Run
    attempts: int = 0
    """Attempts that an earlier Run of the same name made: lease names go on counting after them."""


class PutNamespace(_Fact, kw_only=True):
    object: Namespace


class PutNode(_Fact, kw_only=True):
    object: Node


class Removed(_Fact, kw_only=True):
    kind: Literal["Budget", "Run", "Namespace", "Node"]
    namespace: str = ""
    name: str


class PutPolicy(_Fact, kw_only=True):
    policy: Policy


class Decided(_Fact, kw_only=True):
    """Why: the explanation of an admission, or of a refusal whose headline changed."""

    namespace: str
    run: str
    verdict: Verdict


class Opened(_Fact, kw_only=True):
    lease: Lease


class Ending(_Fact, kw_only=True):
    """A stop was decided: these leases will close with this reason as soon as their pods are gone."""

    namespace: str
    run: str
    leases: tuple[str, ...]
    pods: tuple[str, ...] = ()
    reason: str


class Closed(_Fact, kw_only=True):
    namespace: str
    leases: tuple[str, ...]
    end: Instant
    reason: str


class Placed(_Fact, kw_only=True):
    pod: Pod


class Seen(_Fact, kw_only=True):
    """A pod was observed: bound, ended (with its exit code), or gone."""

    namespace: str
    pod: str
    phase: PodPhase
    code: int | None = None
    message: str = ""
    since: Instant | None = None
    """When it became so, if that was before the entry: a daemon may have been away."""


class Cleared(_Fact, kw_only=True):
    """Pods that are over and done with."""

    namespace: str
    pods: tuple[str, ...]


class Moved(_Fact, kw_only=True):
    namespace: str
    run: str
    life: Life


class Warned(_Fact, kw_only=True):
    """A notice about an envelope (or an aggregate cap) went out, once for each mark of an account."""

    budget: str
    envelope: str = ""
    cap: str = ""
    mark: str
    used: GpuMicros = 0


class Reserved(_Fact, kw_only=True):
    """A reservation was made or changed; Released and Canceled are its last."""

    reservation: Reservation


class Published(_Fact, kw_only=True):
    """A custodian's chain is a beacon of all draws from now on: its first value, c[0], for everybody to know."""

    beacon: str
    root: str


class Froze(_Fact, kw_only=True):
    """A draw is needed: the intent, before anybody knows the seed. ``intent.reservation`` names what it is for."""

    trigger: Trigger
    intent: Intent

    @property
    def subject(self) -> str:
        """What the draw is for: a reservation, or (without a namespace) an envelope or a cap."""
        ref = self.intent.reservation
        return f"Reservation/{ref.namespace}/{ref.name}" if ref.namespace else f"Budget/{ref.name}"


class Resolved(_Fact, kw_only=True):
    """The resolver ran: why, what it cut, in order; with the draw if there was a lottery.

    ``subject`` is ``Reservation/<namespace>/<name>`` or ``Budget/<budget>/<envelope or cap>``; (subject, activation) is
    unique. It stands in the entry of the cuts themselves.
    """

    trigger: Trigger
    subject: str
    activation: int
    cuts: tuple[Cut, ...] = ()
    deficit: int = 0
    intent: Intent | None = None
    result: Result | None = None


class Noted(_Fact, kw_only=True):
    """Something people want to hear about; becomes an Event and a notification."""

    kind: str
    object: str
    reason: str
    message: str


Fact = (
    PutBudget | PutRun | PutNamespace | PutNode | Removed | PutPolicy | Decided | Opened | Ending | Closed | Placed
    | Seen | Cleared | Moved | Warned | Reserved | Published | Froze | Resolved | Noted
)  # fmt: skip


class Entry(_Record, kw_only=True):
    """One decision, or a batch: effective whole, at the instant it is committed, and never before."""

    seq: int
    at: Instant
    cause: str
    facts: tuple[Fact, ...]
    prev: str
    decided: bool = True
    """False if the facts were only recorded: whatever they give cause to decide is then still to be decided."""


GENESIS = "0" * 64
"""The ``prev`` of the first entry."""

_encoder = msgspec.json.Encoder(order="deterministic")
_decoder = msgspec.json.Decoder(Entry)


def encode_entry(entry: Entry) -> bytes:
    """The bytes that are stored and hashed."""
    return _encoder.encode(entry)


def decode_entry(body: bytes) -> Entry:
    return _decoder.decode(body)


def entry_hash(body: bytes) -> str:
    return hashlib.sha256(body).hexdigest()
