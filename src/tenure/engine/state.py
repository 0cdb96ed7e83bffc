"""The whole state: what the facts say, and the indexes over it.

``fold`` is the only way the state changes, and it only ever follows a fact: a state folded from the ledger and one that
decided the same facts itself are equal. Every index has one owner (``Books``, ``Family``, ``Topology``, ``Queue``,
``Agenda``), and a fact costs what it touches. Closed leases are gone from here; the ledger keeps them.
"""

from __future__ import annotations

from bisect import bisect_left, insort
from collections.abc import Callable, Iterable, Iterator
from typing import Any

from tenure.api.budget import Budget
from tenure.api.core import Namespace, Node
from tenure.api.policy import Policy
from tenure.api.run import Run
from tenure.engine.agenda import Agenda
from tenure.engine.bind import Counters
from tenure.engine.books import Books, Fund, Meter
from tenure.engine.demand import compile_demand
from tenure.engine.family import Family
from tenure.engine.plan import World
from tenure.engine.topology import Topology, is_ready
from tenure.facts import (
    Cleared,
    Closed,
    Decided,
    Ending,
    Fact,
    Froze,
    Lease,
    Life,
    Moved,
    Noted,
    Opened,
    Placed,
    Pod,
    PodPhase,
    Published,
    PutBudget,
    PutNamespace,
    PutNode,
    PutPolicy,
    PutRun,
    Removed,
    Reservation,
    Reserved,
    Resolved,
    Seen,
    Warned,
)
from tenure.units import FOREVER, Instant, parse_duration, parse_time

QueueKey = tuple[Instant, str, str]
"""(creation, namespace, name): the order in which waiting runs are considered."""


class PodRow:
    """A pod that is wanted or not yet gone."""

    __slots__ = ("code", "message", "phase", "pod", "since", "stop")

    def __init__(self, pod: Pod, since: Instant) -> None:
        self.pod = pod
        self.phase: PodPhase = "Placed"
        self.since = since
        self.code: int | None = None
        self.message = ""
        self.stop = False


class RunRow:
    """A Run with its life, its open leases, its pods, and what it has used so far by (class, payer)."""

    __slots__ = ("counters", "demand", "leases", "life", "meters", "order", "pods", "run")

    def __init__(self, run: Run, life: Life) -> None:
        created = run.metadata.creation_timestamp
        self.run = run
        self.life = life
        self.demand = compile_demand(run)
        self.counters = Counters()
        self.leases: dict[str, Lease] = {}
        self.pods: dict[str, PodRow] = {}
        self.meters: dict[tuple[str, str], Meter] = {}
        self.order: QueueKey = (parse_time(created) if created else 0, self.namespace, self.name)

    @property
    def key(self) -> str:
        return f"{self.namespace}/{self.name}"

    @property
    def namespace(self) -> str:
        return self.run.metadata.namespace

    @property
    def name(self) -> str:
        return self.run.metadata.name

    def active(self) -> int:
        """Width: open GPUs on which the run works; its spares stand by."""
        return sum(len(lease.gpus) for lease in self.leases.values() if lease.role != "Spare")


class Queue:
    """Waiting runs by flavor, oldest first, and by owner."""

    def __init__(self) -> None:
        self._rows: dict[str, list[QueueKey]] = {}
        self._owners: dict[tuple[str, str], list[QueueKey]] = {}

    def add(self, row: RunRow) -> None:
        insort(self._rows.setdefault(row.demand.flavor, []), row.order)
        insort(self._owners.setdefault((row.demand.flavor, row.demand.owner), []), row.order)

    def remove(self, row: RunRow) -> None:
        _discard(self._rows, row.demand.flavor, row.order)
        _discard(self._owners, (row.demand.flavor, row.demand.owner), row.order)

    def waiting(self, flavor: str) -> list[str]:
        return [f"{namespace}/{name}" for _, namespace, name in self._rows.get(flavor, ())]

    def of_owner(self, flavor: str, owner: str) -> list[str]:
        return [f"{namespace}/{name}" for _, namespace, name in self._owners.get((flavor, owner), ())]

    def flavors(self) -> list[str]:
        return sorted(self._rows)

    def depth(self) -> int:
        return sum(map(len, self._rows.values()))


class State:
    """Everything the engine knows. Changed by ``fold`` alone."""

    def __init__(self, fleet: str = "") -> None:
        self.fleet = fleet
        self.now: Instant = 0
        self.namespaces: dict[str, Namespace] = {}
        self.runs: dict[str, RunRow] = {}
        self.leases: dict[str, Lease] = {}
        self.ending: dict[str, str] = {}
        """Leases that close with this reason as soon as their pods are gone."""
        self.pods: dict[str, PodRow] = {}
        self.leaving: dict[str, PodRow] = {}
        """Of those, the ones that were asked to leave."""
        self.reservations: dict[str, Reservation] = {}
        """By run: promises that are neither Released nor Canceled."""
        self.beacons: dict[str, tuple[int, str]] = {}
        """Custodians' chains: the index that was revealed last, and its value. Index 0 is what was published."""
        self.draws: dict[str, Froze] = {}
        """By subject: draws that wait for their reveals."""
        self.resolutions: dict[str, int] = {}
        """By subject, for those without a reservation: how often the resolver ran."""
        self.books = Books()
        self.family = Family()
        self.queue = Queue()
        self.agenda = Agenda()
        self.unready: dict[str, Instant] = {}
        """Nodes that are not ready, and since when."""
        self.policy = Policy()
        self.policy_known = False
        """True once a policy was recorded; the defaults count from then on like any other."""
        self.topology = Topology(self.policy)

    @property
    def world(self) -> World:
        return World(self.books, self.family, self.topology, parse_duration(self.policy.lookahead))

    @property
    def budgets(self) -> dict[str, Budget]:
        return self.books.budgets

    def fold(self, fact: Fact, at: Instant) -> None:
        """Let one fact be so, from ``at`` on."""
        self.now = max(self.now, at)
        _FOLDS[type(fact)](self, fact, at)

    # -- objects --

    def _put_namespace(self, fact: PutNamespace, at: Instant) -> None:
        self.namespaces[fact.object.metadata.name] = fact.object

    def _put_budget(self, fact: PutBudget, at: Instant) -> None:
        budget = fact.object
        old = self.budgets.get(budget.metadata.name)
        if old is not None:
            self.family.remove(old.spec.owner, old.spec.parents)
        self.family.add(budget.spec.owner, budget.spec.parents)
        self._terms_changed(self.books.put(budget, at=at))
        if old is None or (old.spec.owner, old.spec.parents) != (budget.spec.owner, budget.spec.parents):
            self.agenda.machines_changed(self.queue.flavors())  # relatives may pay with envelopes of any flavor

    def _put_node(self, fact: PutNode, at: Instant) -> None:
        before = self.topology.rows.get(fact.object.metadata.name)
        flavors = {before.site.flavor} if before and before.site else set()
        row = self.topology.put(fact.object)
        self.agenda.machines_changed(flavors | ({row.site.flavor} if row.site else set()))
        if is_ready(fact.object):
            self.unready.pop(row.name, None)
        elif row.name not in self.unready:
            self.unready[row.name] = at
            self.agenda.wake(at + parse_duration(self.policy.unready_debounce), "unready", row.name)

    def _put_run(self, fact: PutRun, at: Instant) -> None:
        run = fact.object
        row = self.runs.get(f"{run.metadata.namespace}/{run.metadata.name}")
        if row is None:
            row = self.runs[f"{run.metadata.namespace}/{run.metadata.name}"] = RunRow(run, Life(attempt=fact.attempts))
        else:
            self._unqueue(row)
            row.run, row.demand = run, compile_demand(run)
            self._look_at_width(row)
        self._enqueue(row)

    def _removed(self, fact: Removed, at: Instant) -> None:
        if fact.kind == "Budget":
            budget = self.budgets[fact.name]
            self.family.remove(budget.spec.owner, budget.spec.parents)
            self._terms_changed(self.books.remove(fact.name))
            self.agenda.machines_changed(self.queue.flavors())
        elif fact.kind == "Node":
            site = self.topology.rows[fact.name].site
            self.topology.remove(fact.name)
            self.agenda.machines_changed({site.flavor} if site else ())
            self.unready.pop(fact.name, None)
        elif fact.kind == "Namespace":
            self.namespaces.pop(fact.name, None)
        else:
            row = self.runs.pop(f"{fact.namespace}/{fact.name}")
            assert not row.leases, "a run is removed after its last lease is closed"
            assert not row.pods, "a run is removed after its last pod is gone"
            self._unqueue(row)

    def _put_policy(self, fact: PutPolicy, at: Instant) -> None:
        self.restore_policy(fact.policy, known=True)
        self.agenda.machines_changed(self.queue.flavors())
        for fund in self.books.funds.values():
            self.agenda.rearm(fund)
        self._watch_unready()

    def restore_policy(self, policy: Policy, *, known: bool) -> None:
        self.policy, self.policy_known = policy, known
        if policy.topology_labels != self.topology.policy.topology_labels or (
            policy.gpu_resource != self.topology.policy.gpu_resource
        ):
            self._rebuild_topology(policy)
        self.topology.policy = policy

    def _rebuild_topology(self, policy: Policy) -> None:
        """Other label keys are another map of the same nodes."""
        old, self.topology = self.topology, Topology(policy)
        for name in sorted(old.rows):
            self.topology.put(old.rows[name].node)
        for lease in spares_first(self.leases.values()):
            self._hold(lease)
        for fund in self.books.funds.values():
            fund.place = None

    # -- leases and pods --

    def _opened(self, fact: Opened, at: Instant) -> None:
        lease = fact.lease
        self.register(lease)
        self.agenda.rearm(self.books.open(lease))
        row = self.runs[lease.run_key]
        self._look_at_width(row)
        row.counters.opened(lease)
        row.meters.setdefault((lease.funding, lease.payer), Meter()).open(len(lease.gpus), at=lease.start)

    def register(self, lease: Lease) -> None:
        """Enter an open lease everywhere but in the meters."""
        assert lease.key not in self.leases, f"I5: lease {lease.key} opened twice"
        self.leases[lease.key] = lease
        self.runs[lease.run_key].leases[lease.name] = lease
        self._hold(lease)

    def _hold(self, lease: Lease) -> None:
        if lease.node in self.topology.rows:
            self.topology.hold(lease)

    def _ending(self, fact: Ending, at: Instant) -> None:
        for name in fact.leases:
            self.ending[f"{fact.namespace}/{name}"] = fact.reason
        self._look_at_width(self.runs[f"{fact.namespace}/{fact.run}"])
        for name in fact.pods:
            pod = self.pods[f"{fact.namespace}/{name}"]
            pod.stop = True
            if pod.phase in ("Placed", "Bound"):  # what has ended by itself ended then, not now
                pod.since = at
            self.leaving[pod.pod.key] = pod

    def _closed(self, fact: Closed, at: Instant) -> None:
        for name in fact.leases:
            lease = self.leases.pop(f"{fact.namespace}/{name}")
            self.ending.pop(lease.key, None)
            self.topology.release(lease)
            fund = self.books.close(lease, end=fact.end)
            row = self.runs[lease.run_key]
            del row.leases[name]
            self._look_at_width(row)
            row.meters[lease.funding, lease.payer].close(len(lease.gpus), at=fact.end)
            self.agenda.rearm(fund)
            self.agenda.machines_changed({row.demand.flavor})

    def _placed(self, fact: Placed, at: Instant) -> None:
        row = PodRow(fact.pod, at)
        self.pods[fact.pod.key] = row
        run = self.runs[fact.pod.run_key]
        run.pods[fact.pod.name] = row
        run.counters.placed(fact.pod)

    def _seen(self, fact: Seen, at: Instant) -> None:
        row = self.pods[f"{fact.namespace}/{fact.pod}"]
        row.phase, row.code, row.message = fact.phase, fact.code, fact.message
        row.since = at if fact.since is None else min(at, max(row.since, fact.since))

    def _cleared(self, fact: Cleared, at: Instant) -> None:
        for name in fact.pods:
            row = self.pods.pop(f"{fact.namespace}/{name}")
            self.leaving.pop(row.pod.key, None)
            del self.runs[row.pod.run_key].pods[name]

    # -- lives --

    def _moved(self, fact: Moved, at: Instant) -> None:
        row = self.runs[f"{fact.namespace}/{fact.run}"]
        waited = _waits(row.life)
        if waited:
            self.agenda.room.add(row.demand.flavor)  # perhaps it no longer keeps others from taking more
            if not _waits(fact.life):
                self.queue.remove(row)
        row.life = fact.life
        self._look_at_width(row)
        if _waits(fact.life):
            self._set_timers(row)
            if not waited:
                self._enqueue(row)

    def _warned(self, fact: Warned, at: Instant) -> None:
        if fact.cap:
            self.books.cap_warned.setdefault((fact.budget, fact.cap), set()).add(fact.mark)
            return
        fund = self.books.funds[fact.budget, fact.envelope]
        fund.warned.add(fact.mark)
        self.agenda.rearm(fund)

    # -- reservations and draws --

    def _reserved(self, fact: Reserved, at: Instant) -> None:
        one = fact.reservation
        if one.state in ("Released", "Canceled"):
            self.reservations.pop(one.run_key, None)
        else:
            self.reservations[one.run_key] = one

    def _published(self, fact: Published, at: Instant) -> None:
        self.beacons[fact.beacon] = (0, fact.root)

    def _froze(self, fact: Froze, at: Instant) -> None:
        self.draws[subject_of(fact)] = fact

    def _resolved(self, fact: Resolved, at: Instant) -> None:
        self.draws.pop(fact.subject, None)
        if fact.subject.startswith("Budget/"):
            self.resolutions[fact.subject] = fact.activation
        if fact.intent is not None and fact.result is not None:
            for beacon in fact.intent.beacons:
                self.beacons[beacon.id] = (beacon.index, fact.result.reveals[beacon.id])

    def _told(self, fact: Decided | Noted, at: Instant) -> None:
        """Explanations and notices are for people: the ledger keeps them, no decision reads them."""

    # -- indexes --

    def _enqueue(self, row: RunRow) -> None:
        if _waits(row.life):
            self.queue.add(row)
            self.agenda.run_changed(row.key)
            self._set_timers(row)

    def _unqueue(self, row: RunRow) -> None:
        if _waits(row.life):
            self.queue.remove(row)
            self.agenda.room.add(row.demand.flavor)

    def _look_at_width(self, row: RunRow) -> None:
        """Something happened to a run that may grow, shrink or take spares."""
        spec = row.run.spec
        if row.life.phase == "Running" and (spec.malleable is not None or spec.spares_per_group):
            self.agenda.elastic.add(row.key)

    def _set_timers(self, row: RunRow) -> None:
        life = row.life
        if life.not_before > self.now:
            self.agenda.wake(life.not_before, "retry", row.key)
        self.agenda.wake(FOREVER if life.deadline is None else life.deadline, "deadline", row.key)

    def _terms_changed(self, funds: list[Fund]) -> None:
        for fund in funds:
            self.agenda.rearm(fund)
        self.agenda.machines_changed({fund.flavor for fund in funds})

    # -- coming back from an image --

    def restore_node(self, node: Node) -> None:
        self.topology.put(node)

    def restore_budget(self, budget: Budget) -> None:
        self.family.add(budget.spec.owner, budget.spec.parents)
        self.books.put(budget, at=0)

    def restore_run(self, row: RunRow) -> None:
        self.runs[row.key] = row

    def restore_reservation(self, reservation: Reservation) -> None:
        self.reservations[reservation.run_key] = reservation

    def restore_agenda(self) -> None:
        """Everything is to be looked at: a settled world then decides nothing."""
        for key in sorted(self.runs):
            self._enqueue(self.runs[key])
            self._look_at_width(self.runs[key])
        self.agenda.machines_changed(self.topology.flavors())
        for fund in self.books.funds.values():
            self.agenda.rearm(fund)
        self._watch_unready()

    def _watch_unready(self) -> None:
        for node, since in self.unready.items():
            self.agenda.wake(since + parse_duration(self.policy.unready_debounce), "unready", node)

    def must_wait(self, pod: PodRow) -> bool:
        """Whether work that gave way to this new pod has not left its GPUs yet: until then the pod must not start."""
        if pod.phase != "Placed" or pod.stop:
            return False
        here = (other.pod.gpus for other in self.leaving.values() if other.pod.node == pod.pod.node)
        return any(not set(gpus).isdisjoint(pod.pod.gpus) for gpus in here)

    def leases_on(self, node: str) -> Iterator[Lease]:
        row = self.topology.rows.get(node)
        for key in sorted(row.leases) if row else ():
            yield self.leases[key]


def subject_of(froze: Froze) -> str:
    """What a draw is for: a reservation, or (without a namespace) an envelope or a cap."""
    ref = froze.intent.reservation
    return f"Reservation/{ref.namespace}/{ref.name}" if ref.namespace else f"Budget/{ref.name}"


def spares_first(leases: Iterable[Lease]) -> list[Lease]:
    """An order in which leases can be held: what sits on a spare comes after it."""
    return sorted(leases, key=lambda lease: (lease.role == "Borrowed", lease.key))


def _waits(life: Life) -> bool:
    return life.phase == "Pending" and not life.deleting


def _discard(table: dict[Any, list[QueueKey]], key: Any, order: QueueKey) -> None:
    rows = table[key]
    at = bisect_left(rows, order)
    assert rows[at] == order
    del rows[at]
    if not rows:
        del table[key]


_FOLDS: dict[type, Callable[[State, Any, Instant], None]] = {
    PutNamespace: State._put_namespace,
    PutBudget: State._put_budget,
    PutNode: State._put_node,
    PutRun: State._put_run,
    PutPolicy: State._put_policy,
    Removed: State._removed,
    Opened: State._opened,
    Ending: State._ending,
    Closed: State._closed,
    Placed: State._placed,
    Seen: State._seen,
    Cleared: State._cleared,
    Moved: State._moved,
    Warned: State._warned,
    Reserved: State._reserved,
    Published: State._published,
    Froze: State._froze,
    Resolved: State._resolved,
    Decided: State._told,
    Noted: State._told,
}
