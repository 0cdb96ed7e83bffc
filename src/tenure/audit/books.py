"""The fold: the facts of all entries, in order, give the state that the checks read.

Nothing here decides or judges. The books believe an entry's instant: a lease begins when the entry that
opened it is committed, and ends between that and the entry that closed it. What a fact says against that is
reported (I5), and not believed. Every method costs what the fact holds; only an edit of a window costs
more, and never the history.

A *slot* is one GPU ordinal of one node. Who holds it, who sits on it and which pods use it is all that I1
and I3 need.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field

from tenure.api.budget import Budget
from tenure.api.core import Namespace, Node
from tenure.api.meta import OWNER_ANNOTATION
from tenure.api.policy import Policy
from tenure.api.run import Run
from tenure.audit.accounts import AccountKey, EnvelopeBook, EnvelopeKey, window_of
from tenure.audit.kinship import Family
from tenure.audit.meters import Meter
from tenure.audit.places import NOWHERE, Place, has_failed, is_ready, place_of
from tenure.facts import Froze, Lease, Life, Pod, PodPhase, Reservation
from tenure.units import FOREVER, GpuMicros, Instant, parse_time

SlotKey = tuple[str, int]
"""(node, ordinal)"""
Order = tuple[Instant, str, str]
"""(creation, namespace, name): a run's place in the queue"""
LIVE_PODS = ("Placed", "Bound")
TERMINAL = ("Completed", "Failed")
AT_WORK = ("Starting", "Running")
ENGAGED = ("Starting", "Running", "Stopping")


@dataclass(slots=True)
class Holding:
    """An open lease, with where its node is."""

    lease: Lease
    place: Place
    since: Instant
    ending: str = ""
    """The reason it will close with, once a stop was decided."""


@dataclass(slots=True)
class PodBook:
    pod: Pod
    phase: PodPhase = "Placed"
    stop: bool = False
    """It was asked to leave."""
    gave_way: bool = False
    """It worked on a spare that was needed: its lease is closed already, and the GPUs are not its own."""

    @property
    def is_live(self) -> bool:
        return self.phase in LIVE_PODS


@dataclass(slots=True)
class RunBook:
    """A Run, what it holds, and since when it runs."""

    run: Run | None = None
    life: Life = field(default_factory=Life)
    leases: dict[str, Holding] = field(default_factory=dict)
    pods: dict[str, PodBook] = field(default_factory=dict)
    borrowed: int = 0
    borrowed_ceiling: int | None = None
    running_since: Instant | None = None
    touched: Instant = 0
    """When an entry last told of it, of its leases or of its pods."""
    came: int = 0
    """The number of the entry by which it came to be."""
    left: int = 0
    """The number of the fact by which it last left the queue: an attempt that is retried begins nothing anew."""
    is_retried: bool = False
    """It waits for the next attempt after one that failed."""
    ranks: dict[tuple[int, int], int] = field(default_factory=dict)
    """The group that each (attempt, rank) was given to."""
    groups: dict[int, set[int]] = field(default_factory=dict)
    """Group indexes that each attempt has used."""

    @property
    def is_engaged(self) -> bool:
        return bool(self.leases or self.pods) or self.life.phase in ENGAGED


@dataclass(slots=True)
class NodeBook:
    node: Node | None = None
    unready_since: Instant | None = None


@dataclass(slots=True)
class Slot:
    """Leases that hold the GPU (Active, Spare), leases that sit on a spare (Borrowed), pods that use it."""

    holders: list[str] = field(default_factory=list)
    borrowers: list[str] = field(default_factory=list)
    pods: list[str] = field(default_factory=list)


class Books:
    """Everything that is so, after the entries folded so far."""

    def __init__(self) -> None:
        self.policy = Policy()
        self.family = Family()
        self.budgets: dict[str, Budget] = {}
        self.envelopes: dict[EnvelopeKey, EnvelopeBook] = {}
        self.namespaces: dict[str, Namespace] = {}
        self.nodes: dict[str, NodeBook] = {}
        self.runs: dict[str, RunBook] = {}
        self.engaged: set[str] = set()
        self.leases: dict[str, Holding] = {}
        self.closed: set[str] = set()
        self.pods: dict[str, PodBook] = {}
        self.slots: dict[SlotKey, Slot] = {}
        self.on_node: dict[str, dict[str, None]] = {}
        """Open leases that hold GPUs of a node (Active, Spare), also some that it does not report any more."""
        self.fact = 0
        """The number of facts and entries so far: of two things that one entry does, one comes before the other."""
        self.entry = 0
        """That number when the present entry began: its facts have higher ones."""
        self.draws: dict[str, Froze] = {}
        """By subject: draws that wait for their reveals."""
        self.custodians: set[str] = set()
        """Who has published a chain: without any, nobody can be drawn."""
        self.reservations: dict[str, Reservation] = {}
        """By run: those that are neither Released nor Canceled."""
        self.reservations_by_name: dict[str, str] = {}
        """The run of each of them."""
        self.cap_notices: dict[tuple[str, str], dict[str, Instant]] = {}
        self.spent_by_run: dict[str, Meter] = {}
        self.spent_by_node: dict[str, Meter] = {}
        self.run_total, self.node_total = Meter(), Meter()

    # --- budgets --------------------------------------------------------------------------------------------

    def put_budget(self, budget: Budget, *, at: Instant) -> None:
        name = budget.metadata.name
        self.budgets[name] = budget
        self.family.put(name, owner=budget.spec.owner, parents=budget.spec.parents)
        for envelope in budget.spec.envelopes:
            self.envelope((name, envelope.name), at=at).switch(window_of(envelope), at=at)

    def remove_budget(self, name: str) -> None:
        """The accounts stay, and open leases go on charging them."""
        self.budgets.pop(name, None)
        self.family.remove(name)

    def envelope(self, key: EnvelopeKey, *, at: Instant) -> EnvelopeBook:
        """The book of an envelope, begun where there is none: a lease may name one that nobody granted."""
        if key not in self.envelopes:
            self.envelopes[key] = EnvelopeBook(at=at)
        return self.envelopes[key]

    def notice(self, budget: str, name: str, mark: str, *, at: Instant) -> None:
        """Remember when a mark of an envelope's account, or of an aggregate cap, was first announced."""
        book = self.envelopes.get((budget, name))
        notices = book.account.notices if book else self.cap_notices.setdefault((budget, name), {})
        notices.setdefault(mark, at)

    # --- nodes and runs -------------------------------------------------------------------------------------

    def put_node(self, node: Node, *, at: Instant) -> None:
        book = self.nodes.setdefault(node.metadata.name, NodeBook())
        moved = book.node is None or place_of(book.node, self.policy) != place_of(node, self.policy)
        book.node = node
        if moved:
            self._note_places(node.metadata.name)
        if is_ready(node):
            book.unready_since = None
        elif book.unready_since is None:
            book.unready_since = at

    def put_policy(self, policy: Policy) -> None:
        same = policy.topology_labels == self.policy.topology_labels
        self.policy = policy
        for name in () if same else sorted(self.nodes):
            self._note_places(name)

    def _note_places(self, name: str) -> None:
        """A node lies elsewhere now, by its labels, and so does all that is on it."""
        node = self.node(name)
        for holding in self.leases.values():
            if holding.lease.node == name and node is not None:
                holding.place = place_of(node, self.policy)

    def node(self, name: str) -> Node | None:
        book = self.nodes.get(name)
        return book.node if book else None

    def node_failed(self, name: str, *, now: Instant) -> bool:
        book = self.nodes.get(name, NodeBook())
        return has_failed(book.node, unready_since=book.unready_since, policy=self.policy, now=now)

    def put_run(self, run: Run) -> None:
        book = self.run(f"{run.metadata.namespace}/{run.metadata.name}")
        if book.run is None or book.run.metadata.uid != run.metadata.uid:
            book.life, book.running_since = Life(), None
        book.came = self.entry if book.run is None else book.came
        book.run = run

    def remove_run(self, key: str) -> None:
        book = self.run(key)
        book.run, book.life, book.running_since = None, Life(), None
        self._note_engaged(key)
        if not book.is_engaged:
            del self.runs[key]

    def run(self, key: str) -> RunBook:
        """The book of a run, begun where there is none."""
        book = self.runs.get(key)
        if book is None:
            book = self.runs[key] = RunBook()
        return book

    def move(self, key: str, life: Life, *, at: Instant) -> None:
        book = self.run(key)
        if life.phase != "Running":
            book.running_since = None
        elif book.life.phase != "Running":
            book.running_since = at
        if life.phase in AT_WORK and book.life.phase not in AT_WORK and not book.is_retried:
            book.left = self.fact
        if life.phase != book.life.phase:
            book.is_retried = life.phase == "Pending" and book.life.after == "Retry"
        book.life = life
        self._note_engaged(key)

    def owner_of(self, run: Run) -> str:
        """The run's owner, or the one that its namespace gives it."""
        namespace = self.namespaces.get(run.metadata.namespace)
        default = namespace.metadata.annotations.get(OWNER_ANNOTATION, "") if namespace else ""
        return run.spec.owner or default

    def order_of(self, key: str) -> Order:
        """A run's place in the queue; one that nobody knows stands at the end."""
        book = self.runs.get(key)
        if book is None or book.run is None:
            return FOREVER, "", key
        meta = book.run.metadata
        return parse_time(meta.creation_timestamp) if meta.creation_timestamp else 0, meta.namespace, meta.name

    def _note_engaged(self, key: str) -> None:
        if self.run(key).is_engaged:
            self.engaged.add(key)
        else:
            self.engaged.discard(key)

    # --- leases ---------------------------------------------------------------------------------------------

    def open(self, lease: Lease, *, at: Instant) -> None:
        node = self.node(lease.node)
        place = place_of(node, self.policy) if node else NOWHERE
        run = self.run(lease.run_key)
        holding = self.leases[lease.key] = Holding(lease, place, at)
        run.leases[lease.key] = holding
        run.groups.setdefault(lease.attempt, set()).add(lease.group)
        run.borrowed += _borrowed(lease)
        self._note_engaged(lease.run_key)
        if lease.role != "Borrowed":
            self.on_node.setdefault(lease.node, {})[lease.key] = None
        for ordinal in lease.gpus:
            self._seats(lease, ordinal).append(lease.key)
        self.envelope((lease.budget, lease.envelope), at=at).charge(
            lease.key, gpus=len(lease.gpus), lent=lease.funding == "borrowed", until=lease.until, at=at
        )
        self._spend(lease, +len(lease.gpus), at=at)

    def end(self, key: str, reason: str) -> None:
        """A stop was decided for an open lease."""
        holding = self.leases[key]
        holding.ending = reason
        self.envelopes[holding.lease.budget, holding.lease.envelope].leave(key)

    def ask_to_leave(self, pods: Iterable[str]) -> None:
        for key in pods:
            if key in self.pods:
                self.pods[key].stop = True

    def close(self, key: str, *, reason: str, end: Instant, at: Instant) -> None:
        """Close an open lease. An end outside of the lease's life is not believed."""
        holding = self.leases.pop(key)
        if reason == "ReclaimedBySpare" and holding.lease.role == "Borrowed":
            self._give_way(holding.lease)
        lease, end = holding.lease, min(max(end, holding.since), at)
        self.closed.add(key)
        run = self.run(lease.run_key)
        del run.leases[key]
        run.borrowed -= _borrowed(lease)
        self._note_engaged(lease.run_key)
        self.on_node.get(lease.node, {}).pop(key, None)
        for ordinal in lease.gpus:
            self._seats(lease, ordinal).remove(key)
            self._forget_if_free((lease.node, ordinal))
        self.envelopes[lease.budget, lease.envelope].release(
            key, gpus=len(lease.gpus), lent=lease.funding == "borrowed", end=end, at=at
        )
        self._spend(lease, -len(lease.gpus), at=at, late=at - end)

    def _give_way(self, lease: Lease) -> None:
        for ordinal in lease.gpus:
            for key in self.slots[lease.node, ordinal].pods:
                book = self.pods[key]
                book.gave_way = book.gave_way or book.pod.run_key == lease.run_key

    def _spend(self, lease: Lease, gpus: int, *, at: Instant, late: int = 0) -> None:
        """Run the meters of the lease's node and run faster or slower, and take back what came ``late``."""
        by_run = self.spent_by_run.setdefault(lease.run_key, Meter())
        by_node = self.spent_by_node.setdefault(lease.node, Meter())
        for meter in (by_run, self.run_total, by_node, self.node_total):
            meter.change(gpus, at=at)
            meter.correct(gpus * late)

    def _seats(self, lease: Lease, ordinal: int) -> list[str]:
        slot = self.slots.setdefault((lease.node, ordinal), Slot())
        return slot.borrowers if lease.role == "Borrowed" else slot.holders

    def _forget_if_free(self, key: SlotKey) -> None:
        slot = self.slots.get(key)
        if slot and not (slot.holders or slot.borrowers or slot.pods):
            del self.slots[key]

    # --- pods -----------------------------------------------------------------------------------------------

    def place(self, pod: Pod) -> None:
        book = self.pods[pod.key] = PodBook(pod)
        run = self.run(pod.run_key)
        run.pods[pod.key] = book
        run.ranks.setdefault((pod.attempt, pod.rank), pod.group)
        self._note_engaged(pod.run_key)
        for ordinal in pod.gpus:
            self.slots.setdefault((pod.node, ordinal), Slot()).pods.append(pod.key)

    def see(self, key: str, phase: PodPhase) -> None:
        book = self.pods[key]
        if phase == "Gone" and book.phase != "Gone":
            self._vacate(book.pod)
        book.phase = phase

    def clear(self, key: str) -> None:
        book = self.pods.pop(key)
        if book.phase != "Gone":
            self._vacate(book.pod)
        del self.run(book.pod.run_key).pods[key]
        self._note_engaged(book.pod.run_key)

    def _vacate(self, pod: Pod) -> None:
        for ordinal in pod.gpus:
            self.slots[pod.node, ordinal].pods.remove(pod.key)
            self._forget_if_free((pod.node, ordinal))

    # --- sums -----------------------------------------------------------------------------------------------

    def charges(self, now: Instant) -> dict[AccountKey, GpuMicros]:
        """What every account that was ever used has been charged."""
        found = {
            (*key, *window): account.used.read(now)
            for key, book in self.envelopes.items()
            for window, account in book.accounts.items()
        }
        return {key: charge for key, charge in sorted(found.items(), key=_account_order) if charge}

    def charges_of(self, budget: Budget, *, at: Instant) -> dict[AccountKey, GpuMicros]:
        """The same for the envelopes that one Budget has now, those never used included."""
        keys = [(budget.metadata.name, envelope.name) for envelope in budget.spec.envelopes]
        return {
            (*key, *window): account.used.read(at)
            for key in keys
            if key in self.envelopes
            for window, account in self.envelopes[key].accounts.items()
        }


def _borrowed(lease: Lease) -> int:
    return len(lease.gpus) if lease.funding == "borrowed" else 0


def _account_order(item: tuple[AccountKey, GpuMicros]) -> tuple[str, str, int, int]:
    (budget, envelope, start, end), _ = item
    return budget, envelope, start or 0, end or 0
